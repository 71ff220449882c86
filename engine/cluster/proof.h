/* Inside cluster/: how two workers show each other that they know the secret of the incarnation, without sending it.
 *
 * Each side gives a nonce; a proof is HMAC-SHA256 by the secret over who proves, both nonces, both workers and the incarnation,
 * so that no proof is of use on another connection, or in the other direction. The session is derived the same way: no message
 * of a connection counts without it. It keeps strangers out; it hides nothing: encryption is the network's.
 * Pure functions; any thread. */
#ifndef LEAT_CLUSTER_PROOF_H
#define LEAT_CLUSTER_PROOF_H

#include "core/base.h"

enum { PROOF_NONCE = 32, PROOF_BYTES = 32 };

enum proof_kind { PROOF_DIALER = 1, PROOF_LISTENER, PROOF_SESSION };

/* What is proven; both sides fill it the same. */
struct proof_case {
    uint8_t dialer_nonce[PROOF_NONCE], listener_nonce[PROOF_NONCE];
    uint64_t incarnation;
    uint32_t dialer, listener; /* numbers of the workers */
};

/* Random bytes of the kernel. */
void proof_nonce(uint8_t nonce[PROOF_NONCE]);
void proof_make(struct str secret, enum proof_kind kind, const struct proof_case *proven,
                uint8_t proof[PROOF_BYTES]);
/* Whether the bytes are the proof; takes as long for any wrong ones. */
LEAT_CHECKED bool proof_is_right(struct str secret, enum proof_kind kind, const struct proof_case *proven,
                                 const uint8_t proof[PROOF_BYTES]);
/* The word that all messages of the connection carry; never 0. */
uint64_t proof_session(struct str secret, const struct proof_case *proven);

#endif

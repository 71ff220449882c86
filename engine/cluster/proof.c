#include "cluster/proof.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

void proof_nonce(uint8_t nonce[PROOF_NONCE])
{
    ssize_t got;
    do
        got = getrandom(nonce, PROOF_NONCE, 0);
    while (got < 0 && errno == EINTR);
    leat_assert(got == PROOF_NONCE); /* up to 256 bytes come whole, once the kernel's pool is filled */
}

void proof_make(struct str secret, enum proof_kind kind, const struct proof_case *proven,
                uint8_t proof[PROOF_BYTES])
{
    static const char name[16] = "leat link 1";
    uint8_t text[sizeof(name) + 8 + sizeof(*proven)];
    uint64_t kind_word = kind;
    memcpy(text, name, sizeof(name));
    memcpy(text + sizeof(name), &kind_word, 8);
    memcpy(text + sizeof(name) + 8, proven, sizeof(*proven));
    unsigned length = 0;
    const uint8_t *made =
        HMAC(EVP_sha256(), secret.data, (int)secret.length, text, sizeof(text), proof, &length);
    leat_assert(made != NULL && length == PROOF_BYTES);
}

bool proof_is_right(struct str secret, enum proof_kind kind, const struct proof_case *proven,
                    const uint8_t proof[PROOF_BYTES])
{
    uint8_t expected[PROOF_BYTES];
    proof_make(secret, kind, proven, expected);
    return CRYPTO_memcmp(expected, proof, PROOF_BYTES) == 0;
}

uint64_t proof_session(struct str secret, const struct proof_case *proven)
{
    uint8_t bytes[PROOF_BYTES];
    uint64_t session;
    proof_make(secret, PROOF_SESSION, proven, bytes);
    memcpy(&session, bytes, sizeof(session));
    return session != 0 ? session : 1;
}

/* TLS over bytes in memory: a connection gives what came and takes what is to be sent. One thread. */
#ifndef LEAT_NET_TLS_H
#define LEAT_NET_TLS_H

#include "net/net.h"

struct tls_context; /* of a listener */
struct tls;         /* of a connection */

/* NULL after a diagnostic: a file that cannot be read or used. */
struct tls_context *tls_context_open(const struct net_listen *listen, struct diag_list *diags);
void tls_context_close(struct tls_context *context); /* NULL is allowed */

struct tls *tls_open(struct tls_context *context);
void tls_close(struct tls *tls); /* NULL is allowed */

/* Bytes that came. */
void tls_put(struct tls *tls, const char *bytes, size_t count);
enum tls_state { TLS_WANTS_BYTES, TLS_DONE, TLS_ENDED, TLS_FAILED };
/* Goes on with the handshake. */
enum tls_state tls_handshake(struct tls *tls);
/* After the handshake: the client chose HTTP/2; false: HTTP/1.1, or nothing. */
bool tls_is_http2(const struct tls *tls);
/* Decrypts into `plain`, which has `room`. *got > 0: bytes; 0: with TLS_WANTS_BYTES; TLS_FAILED: the client
 * has broken the protocol; TLS_ENDED: it has ended its direction. */
enum tls_state tls_read(struct tls *tls, char *plain, size_t room, size_t *got);
/* Encrypts all of `plain`, which may be empty, and appends what is to be sent to `out`. */
LEAT_CHECKED bool tls_write(struct tls *tls, struct str plain, struct byte_buffer *out);
/* Appends the end of the stream to what is to be sent. */
void tls_end(struct tls *tls);

#endif

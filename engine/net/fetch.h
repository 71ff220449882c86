/* An HTTP client: requests to one server, one after the other, over a connection that stays open (libcurl). One thread,
 * but for fetch_stop. */
#ifndef LEAT_NET_FETCH_H
#define LEAT_NET_FETCH_H

#include "core/buffer.h"
#include "core/diag.h"

struct fetch_options {
    struct str address; /* "HOST:PORT" */
    /* Paths of PEM files. authority: TLS, and the server's certificate must be signed by it; NULL: plaintext, which is
     * refused unless HOST is a loopback name. certificate, key: this client's; NULL: none. */
    const char *authority, *certificate, *key;
    const char *token; /* sent with each request as `authorization: Bearer TOKEN`; NULL: none */
};

struct fetch;

/* Connects with the first request. The texts are copied. NULL after a diagnostic: the options cannot be used. */
struct fetch *fetch_new(const struct fetch_options *options, struct diag_list *diags);
void fetch_free(struct fetch *fetch); /* NULL is allowed */
/* Sends GET `target` ("/path?query") and waits for the answer, as long as something of it comes in each stall_s seconds.
 * body: emptied, then the answer's body of at most body_max bytes. Returns the status; 0: there was no answer, and fetch_why
 * says why. */
int fetch_get(struct fetch *fetch, const char *target, uint32_t stall_s, size_t body_max,
              struct byte_buffer *body);
/* The same with POST and an empty body. */
int fetch_post(struct fetch *fetch, const char *target, uint32_t stall_s, size_t body_max,
               struct byte_buffer *body);
/* Why the last request got no answer: "", or words; valid until the next request. */
const char *fetch_why(const struct fetch *fetch);
/* The request in work, and all later ones, end without an answer within a second. Any thread. */
void fetch_stop(struct fetch *fetch);

#endif

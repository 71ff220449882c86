/* The file that says where the control API of a run is, and which token its acting calls take: CONTROL, beside the
 * checkpoints, for its owner alone (0600). Who can read it can stop the run. `leat ctl` reads it. Text:
 *
 *     leat control 1
 *     HOST:PORT
 *     TOKEN
 *     CERTIFICATE          path of the certificate chain; empty: no TLS
 */
#ifndef LEAT_CONTROL_API_KEY_H
#define LEAT_CONTROL_API_KEY_H

#include "core/diag.h"

enum { API_TOKEN_BYTES = 65 }; /* 64 hexadecimal digits, NUL */

struct api_key {
    char *address, *certificate; /* malloc'd; certificate NULL: no TLS */
    char token[API_TOKEN_BYTES];
};

/* Fills the token with random digits; false: the system has none. */
LEAT_CHECKED bool api_token_make(char token[API_TOKEN_BYTES]);
/* Writes DIR/CONTROL. Returns an errno; 0: good. */
LEAT_CHECKED int api_key_write(struct str directory, const struct api_key *key);
/* Removes DIR/CONTROL if it has this key's token. */
void api_key_remove(struct str directory, const struct api_key *key);
/* Reads DIR/CONTROL; the texts are the caller's to free (api_key_free). False after a diagnostic. */
LEAT_CHECKED bool api_key_read(struct str directory, struct api_key *key, struct diag_list *diags);
void api_key_free(struct api_key *key);

#endif

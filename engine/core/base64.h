/* Base64 (RFC 4648): the standard alphabet, with padding. Any thread. */
#ifndef LEAT_CORE_BASE64_H
#define LEAT_CORE_BASE64_H

#include "core/buffer.h"

/* Decodes into `out`, which may be the text itself; writes at most length / 4 * 3 bytes. Returns the bytes
 * written, or SIZE_MAX where the text is not base64, also where the last digit has bits that belong to no
 * byte. */
size_t base64_decode(const char *text, size_t length, char *out);
/* Appends the base64 of `data`. */
void base64_encode(const char *data, size_t length, struct byte_buffer *out);

#endif

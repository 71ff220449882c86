/* Escapes in the texts of JSON. Any thread. */
#ifndef LEAT_FORMATS_JSON_ESCAPE_H
#define LEAT_FORMATS_JSON_ESCAPE_H

#include "core/buffer.h"

/* Appends a text, which is valid UTF-8, in quotes; only what JSON requires is escaped. */
void json_quote(struct byte_buffer *out, struct str text);

/* Decodes the escape whose backslash is before `at`, a pair of surrogates included: writes at most
 * UTF8_BYTES_MAX bytes at *out, no more than the escape has, and advances *out. Returns the byte behind the
 * escape; NULL: the escape is wrong, *why says how (static text). Never reads at or behind `end`. */
const char *json_unescape(const char *at, const char *end, char **out, const char **why);

#endif

/* Texts as JSON: in quotes, whatever bytes they have. Bytes that are no UTF-8 become U+FFFD; control characters and marks
 * that change the direction of text are escaped, so that no text can control a terminal. Any thread. */
#ifndef LEAT_CORE_QUOTE_H
#define LEAT_CORE_QUOTE_H

#include "core/buffer.h"

enum { QUOTE_CHARACTER_BYTES_MAX = 6 };

/* Writes the first character of `left` bytes, at least 1, as it stands within quotes; `out` has room for
 * QUOTE_CHARACTER_BYTES_MAX. Returns the bytes written; *took: the bytes of `at` that they stand for. Async-signal-safe. */
size_t quote_json_character(const char *at, size_t left, char *out, size_t *took);
/* Appends the text with its quotes; null where its data is NULL. */
void quote_json(struct byte_buffer *out, struct str text);
/* Puts `***` in the place of each occurrence of the secret (NULL or "": none) in the text, which is freed. The caller frees the
 * result. Texts of servers may repeat what they were sent. */
char *text_without(char *text, const char *secret);

#endif

/* The encoding of a run's own state in a checkpoint: 64-bit words; a text is a word with its length in
 * bytes, and its bytes. The bytes read come from outside and may be damaged. Any thread. */
#ifndef LEAT_RUN_BASE_WORDS_H
#define LEAT_RUN_BASE_WORDS_H

#include "core/buffer.h"

enum { WORDS_TEXT_MAX = 1 << 21 }; /* bytes of a text */

void words_put(struct byte_buffer *out, uint64_t value);
void words_put_text(struct byte_buffer *out, struct str text);

/* A position in encoded bytes. left: the bytes not read yet, owned by the caller. is_short: they ended too
 * early. */
struct words {
    struct str left;
    bool is_short;
};

/* Take the next word or text from words->left; the text points into these bytes. If they end too early,
 * the result is 0 or an empty text, and is_short is set. */
uint64_t words_take(struct words *words);
struct str words_take_text(struct words *words);

#endif

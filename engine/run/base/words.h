/* What a run saves of itself in a checkpoint: 64-bit words, and texts as their length and bytes. What is read
 * comes from outside. Any thread. */
#ifndef LEAT_RUN_BASE_WORDS_H
#define LEAT_RUN_BASE_WORDS_H

#include "core/buffer.h"

enum { WORDS_TEXT_MAX = 1 << 21 }; /* bytes of a text */

void words_put(struct byte_buffer *out, uint64_t value);
void words_put_text(struct byte_buffer *out, struct str text);

/* The bytes not read yet. is_short is set where they end too early. */
struct words {
    struct str left;
    bool is_short;
};

/* The next word or text, which lies where `left` did. If there is none, 0 or an empty text, and is_short is
 * set. */
uint64_t words_take(struct words *words);
struct str words_take_text(struct words *words);

#endif

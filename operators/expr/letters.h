/* Small and capital letters of one code point each: ASCII, Latin-1, Latin Extended-A, Greek and Cyrillic (the
 * basic blocks). Everything else stays as it is; nothing depends on a locale. Letters whose other case is
 * several code points (ß, ŉ) stay too, and so do those of Turkish (İ, ı), which have no answer without a
 * locale. */
#ifndef LEAT_OPERATORS_EXPR_LETTERS_H
#define LEAT_OPERATORS_EXPR_LETTERS_H

#include "core/base.h"

uint32_t letter_lower(uint32_t letter);
uint32_t letter_upper(uint32_t letter);

/* A mapped letter never takes more bytes than LETTER_GROWTH_MAX times the old one's. */
enum { LETTER_GROWTH_MAX = 1 };

/* Writes the mapped text, at most text.length * LETTER_GROWTH_MAX bytes; returns the length. Bytes that are
 * not UTF-8 stay as they are. */
size_t letters_map(struct str text, uint32_t (*map)(uint32_t letter), char *out);

#endif

/* Small and capital letters of one code point each: ASCII, Latin-1, Latin Extended-A, Greek and Cyrillic (the
 * basic blocks). All other characters stay as they are; nothing depends on a locale. Letters whose other case
 * is several code points (sharp s, n with apostrophe) stay too, and so do dotted capital I and dotless small
 * i of Turkish, whose other case depends on the locale. */
#ifndef LEAT_OPERATORS_EXPR_LETTERS_H
#define LEAT_OPERATORS_EXPR_LETTERS_H

#include "core/base.h"

uint32_t letter_lower(uint32_t letter);
uint32_t letter_upper(uint32_t letter);

/* A mapped letter takes at most LETTER_GROWTH_MAX times the bytes of the original. */
enum { LETTER_GROWTH_MAX = 1 };

/* Writes the mapped text to `out`, at most text.length * LETTER_GROWTH_MAX bytes; returns its length. Bytes
 * that are not UTF-8 stay as they are. */
size_t letters_map(struct str text, uint32_t (*map)(uint32_t letter), char *out);

#endif

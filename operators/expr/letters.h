/* Upper and lower case by Unicode's simple mappings: each code point by itself becomes one code point. What
 * has several as its other case stays (sharp s), what has none stays too; neither a locale nor neighbours
 * count (a sigma at the end of a word is lower(sigma)). The tables are utf8proc's, linked into leat, so that
 * a program has one version of Unicode wherever it runs. Any thread. */
#ifndef LEAT_OPERATORS_EXPR_LETTERS_H
#define LEAT_OPERATORS_EXPR_LETTERS_H

#include "core/base.h"

/* A mapped text has at most this many times the bytes of the original. */
enum { LETTERS_GROWTH_MAX = 2 };

/* Write the mapped text to `out`, with room for text.length * LETTERS_GROWTH_MAX bytes. Return its length.
 * Bytes that are not UTF-8 stay as they are. */
size_t letters_lower(struct str text, char *out);
size_t letters_upper(struct str text, char *out);

/* The version of Unicode whose letters are mapped: "15.0.0". */
const char *letters_unicode(void);

#endif

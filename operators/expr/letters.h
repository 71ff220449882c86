/* Upper and lower case by Unicode's simple mappings: each code point becomes one code point. A code point
 * whose other case is several code points (sharp s), or that has no other case, stays as it is. The result
 * depends neither on a locale nor on the code points around (a capital sigma becomes the same small sigma at
 * the end of a word as elsewhere). The tables are utf8proc's, linked into leat, so that a leat program uses
 * the same version of Unicode on every machine. Any thread. */
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

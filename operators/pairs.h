/* `on a = b, c`: pairs of columns, of the stream before the `|` and of the other input, equal in a match. */
#ifndef LEAT_OPERATORS_PAIRS_H
#define LEAT_OPERATORS_PAIRS_H

#include "core/operator.h"

/* Splits the pairs into columns of the left and the right side, in order, in the bind's arena. A name alone
 * stands for a column of both. Returns false after E0403. */
bool pairs_split(struct operator_bind *bind, const struct assignments *on, struct columns *left,
                 struct columns *right);
/* Resolves the pairs' columns as the keys of inputs 0 and 1 (keys_bind) and compares types. Returns false
 * after diagnostics. */
bool pairs_bind(struct operator_bind *bind, const struct assignments *on, int **left, int **right);
/* Appends a line "=on a = b: int" for each pair, for `operator_kind.shape`. */
void pairs_shape(const struct operator_bind *bind, const struct assignments *on, const int *left,
                 struct byte_buffer *out);

#endif

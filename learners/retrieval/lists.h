/*
 * The columns that learners that choose items add to rows: `rank: float`, and `top: list({ item, score })`,
 * best first. `rank` is null where the row was not ranked, and infinite where the item was unknown (a miss), so
 * that `rank <= 10` holds for no miss; formats of text (json, csv) write an infinite number as they write null.
 * `top` is null where no list was made; an item that has left the catalogue meanwhile is null in it.
 */
#ifndef LEAT_LEARNERS_RETRIEVAL_LISTS_H
#define LEAT_LEARNERS_RETRIEVAL_LISTS_H

#include "core/operator.h"
#include "learners/items/index.h"
#include "learners/items/numbers.h"

/* Bytes of lists that one batch may have, unless a single row has more. */
enum { LISTS_BATCH_BYTES = 16 << 20 };

/* Adds the columns to a schema with room for two more, whose own columns are those of the input
 * (operator_extend). item: the column of items, of type int, time or text. most: items of a list,
 * 1..ITEMS_TOP_MAX. lineage: what the model reads, beside the item. span: of the learner, for messages.
 * Returns false after a diagnostic: a name is taken, there are too many columns, or items are of another
 * type. */
LEAT_CHECKED bool lists_bind(struct operator_bind *bind, struct schema *schema, const struct field *item,
                             uint32_t most, const struct lineage *lineage, struct span span);

/* Of the rows of a batch that are selected, [selected]. */
struct lists_rows {
    const double *ranks;            /* NaN: not ranked. NULL: none is */
    const struct items_scored *top; /* [selected][most] */
    const uint32_t *counts; /* items of a list, 0..most; UINT32_MAX: there is none. NULL: there are none */
    size_t most;            /* as in lists_bind */
};

/* Emits the selected rows of `batch` with these columns, in order: in one batch, or in more if the lists have
 * more than LISTS_BATCH_BYTES. schema: of lists_bind, with its columns last. numbers: names the items. The
 * caller keeps its reference to `batch`, and counts what was emitted. On the lane's thread. */
void lists_emit(struct operator_context *context, uint32_t output, const struct schema *schema,
                struct batch *batch, const struct lists_rows *rows, const struct items_numbers *numbers);

#endif

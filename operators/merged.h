/* Merges the rows of two inputs in row order, in portions for one bracket (keyed_begin .. keyed_end) each. */
#ifndef LEAT_OPERATORS_MERGED_H
#define LEAT_OPERATORS_MERGED_H

#include "operators/keys.h"

/* What the operator computes of a batch before its rows are processed; the operator defines this struct. */
struct prepared;

/* Rows for one bracket: at most BATCH_ROWS, an element in each array for every row. */
struct merged_rows {
    uint32_t count;
    struct key keys[BATCH_ROWS];
    uint64_t hashes[BATCH_ROWS];
    bool has_null[BATCH_ROWS];
    struct merge_row rows[BATCH_ROWS];
    struct prepared *prepared[BATCH_ROWS];
};

/* Called at the first row of each batch. Sets `keys` to the keys of the batch's selected rows; the result
 * stands in merged_rows.prepared for each row. */
typedef struct prepared *merged_prepare(struct operator_context *context, struct batch *batch, uint32_t input,
                                        struct row_keys *keys);
typedef void merged_process(struct operator_context *context, const struct merged_rows *merged);

/* Does all of an operator's `process_merged`: gives all rows of the micro-batch to `process`, up to
 * BATCH_ROWS a call. */
void merged_run(struct operator_context *context, struct merge *merge, merged_prepare *prepare,
                merged_process *process);

#endif

/* Lists of batches, and operators' inputs merged row by row. */
#ifndef LEAT_RUN_LANES_MERGE_H
#define LEAT_RUN_LANES_MERGE_H

#include "core/operator.h"
#include "plan/plan.h"

struct batch_list {
    struct batch *first, *last;
    uint32_t count;
};
/* batch_list_add: takes over the caller's reference to the batch. batch_list_release: releases all batches
 * and empties the list. */
void batch_list_add(struct batch_list *list, struct batch *batch);
void batch_list_release(struct batch_list *list);

struct merge {
    struct {
        struct batch_list list;
        struct batch *batch; /* the current row's */
        uint32_t at;         /* selected index */
        struct row_order order;
    } inputs[OPERATOR_INPUTS_MAX];
    uint32_t count;
    uint32_t first; /* the input whose rows come first among equal ones; then those of the lower input */
    bool is_by_row_order; /* by row_order_compare; else by row_order_compare_inputs */
};
/* Begins to merge the lists of the node's inputs, which stay the caller's, row by row (merge_next of core/operator.h).
 * Rows of a learner's `score` come before what the same record teaches: they are predicted as if they came next. */
void merge_init(struct merge *merge, const struct batch_list *lists, const struct plan_node *node);

#endif

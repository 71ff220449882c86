/* Lists of batches, and operators' inputs merged row by row. */
#ifndef LEAT_RUN_LANES_MERGE_H
#define LEAT_RUN_LANES_MERGE_H

#include "core/operator.h"

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
};
/* Begins to merge the lists, which stay the caller's, row by row (merge_next of core/operator.h). */
void merge_init(struct merge *merge, const struct batch_list *lists, uint32_t count);

#endif

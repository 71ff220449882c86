/* Merges the rows of several lists of batches by row_order: where rows of several lanes come together, and
 * between the inputs of an operator. */
#include "run/lanes/internal.h"

#include "core/mem.h"

#include <stdlib.h>

/* --- Inputs of an operator, row by row --- */

static void load_row(struct merge *merge, uint32_t input)
{
    struct batch *batch = merge->inputs[input].batch;
    while (batch != NULL && merge->inputs[input].at == batch->selected) {
        batch = batch->next;
        merge->inputs[input].at = 0;
    }
    merge->inputs[input].batch = batch;
    if (batch != NULL)
        merge->inputs[input].order = batch_order(batch, batch_row(batch, merge->inputs[input].at));
}

void merge_init(struct merge *merge, const struct batch_list *lists, const struct plan_node *node)
{
    merge->count = node->inputs_count;
    merge->first = node->scored_input;
    /* a union hands rows on, and the nodes behind it need them in row_order */
    merge->is_by_row_order = node->tag != PLAN_LEARNER && node->operator_kind->process_merged == NULL;
    for (uint32_t i = 0; i < merge->count; i++) {
        merge->inputs[i].list = lists[i];
        merge->inputs[i].batch = lists[i].first;
        merge->inputs[i].at = 0;
        load_row(merge, i);
    }
}

static int compare_heads(const struct merge *merge, uint32_t a, uint32_t b)
{
    const struct row_order *x = &merge->inputs[a].order, *y = &merge->inputs[b].order;
    return (merge->is_by_row_order ? row_order_compare : row_order_compare_inputs)(x, y);
}

bool merge_next(struct merge *merge, struct merge_row *row)
{
    uint32_t best = merge->inputs[merge->first].batch != NULL ? merge->first : merge->count;
    for (uint32_t i = 0; i < merge->count; i++)
        if (i != merge->first && merge->inputs[i].batch != NULL &&
            (best == merge->count || compare_heads(merge, i, best) < 0))
            best = i;
    if (best == merge->count)
        return false;
    struct batch *batch = merge->inputs[best].batch;
    uint32_t index = merge->inputs[best].at++;
    *row = (struct merge_row){
        .batch = batch,
        .input = best,
        .row = batch_row(batch, index),
        .index = index,
        .is_last = index + 1 == batch->selected,
    };
    load_row(merge, best);
    return true;
}

struct batch *merge_batches(struct merge *merge, uint32_t input)
{
    return merge->inputs[input].list.first;
}

/* --- Lists into one --- */

struct row_reference {
    struct row_order order;
    struct batch *batch;
    uint32_t row;
    uint32_t sequence; /* index in the input, so that the sort keeps rows of equal order as they came */
};

static int compare_references(const void *a, const void *b)
{
    const struct row_reference *x = a, *y = b;
    int order = row_order_compare(&x->order, &y->order);
    return order != 0 ? order : (x->sequence < y->sequence ? -1 : x->sequence > y->sequence);
}

/* Whether the batches of the list follow each other in order. Rows within a batch always do; batches do if
 * one chain of operators made them. */
static bool list_is_sorted(const struct batch_list *list)
{
    for (const struct batch *batch = list->first; batch != NULL && batch->next != NULL; batch = batch->next) {
        struct row_order last = batch_order(batch, batch_row(batch, batch->selected - 1));
        struct row_order next = batch_order(batch->next, batch_row(batch->next, 0));
        if (row_order_compare(&last, &next) > 0)
            return false;
    }
    return true;
}

static uint32_t list_rows(const struct batch_list *list)
{
    uint32_t rows = 0;
    for (const struct batch *batch = list->first; batch != NULL; batch = batch->next)
        rows += batch->selected;
    return rows;
}

static uint32_t add_references(const struct batch_list *list, struct row_reference *out, uint32_t count)
{
    for (struct batch *batch = list->first; batch != NULL; batch = batch->next)
        for (uint32_t i = 0; i < batch->selected; i++) {
            uint32_t row = batch_row(batch, i);
            out[count] = (struct row_reference){batch_order(batch, row), batch, row, count};
            count++;
        }
    return count;
}

/* Merges two sorted runs of references into `out`; of equal rows those of `a` come first. */
static void merge_runs(const struct row_reference *a, uint32_t a_count, const struct row_reference *b,
                       uint32_t b_count, struct row_reference *out)
{
    uint32_t i = 0, k = 0, at = 0;
    while (i < a_count && k < b_count)
        out[at++] = row_order_compare(&b[k].order, &a[i].order) < 0 ? b[k++] : a[i++];
    while (i < a_count)
        out[at++] = a[i++];
    while (k < b_count)
        out[at++] = b[k++];
}

static void gather_references(struct batch_pool *pool, const struct row_reference *references, uint32_t count,
                              struct batch_list *out)
{
    struct batch *sources[BATCH_ROWS];
    uint16_t rows[BATCH_ROWS];
    for (uint32_t begin = 0; begin < count; begin += BATCH_ROWS) {
        uint32_t length = MIN((uint32_t)BATCH_ROWS, count - begin);
        for (uint32_t i = 0; i < length; i++) {
            sources[i] = references[begin + i].batch;
            rows[i] = (uint16_t)references[begin + i].row;
        }
        batch_list_add(out, batch_merge(pool, sources[0]->schema, sources, rows, length));
    }
}

void merge_lists(struct batch_pool *pool, struct batch_list *lists, uint32_t count, struct batch_list *out)
{
    *out = (struct batch_list){0};
    if (count == 0)
        return;
    if (count == 1 && list_is_sorted(&lists[0])) {
        *out = lists[0];
        return;
    }
    uint32_t total = 0;
    for (uint32_t i = 0; i < count; i++)
        total += list_rows(&lists[i]);
    struct row_reference *references = mem_alloc(MAX(total, 1) * sizeof(*references));
    struct row_reference *merged = mem_alloc(MAX(total, 1) * sizeof(*merged));
    uint32_t filled = 0;
    bool is_sorted = true;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t begin = filled;
        filled = add_references(&lists[i], references, filled);
        is_sorted &= list_is_sorted(&lists[i]);
        if (is_sorted) {
            /* Merge the lists so far with this one; of equal rows the earlier list's come first. */
            merge_runs(references, begin, references + begin, filled - begin, merged);
            memcpy(references, merged, filled * sizeof(*references));
        }
    }
    if (!is_sorted)
        qsort(references, total, sizeof(*references), compare_references);
    gather_references(pool, references, total, out);
    for (uint32_t i = 0; i < count; i++)
        batch_list_release(&lists[i]);
    free(references);
    free(merged);
}

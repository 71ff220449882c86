/* The merged value of a window's panes. */
#include "operators/window/panes_entry.h"

#include <stdlib.h>

void panes_sum_init(const struct panes *panes, struct panes_sum *sum)
{
    const struct aggregates *aggregates = panes->aggregates;
    sum->fixed = calloc(1, MAX(aggregates->bytes, 8));
    sum->run = calloc(1, MAX(aggregates->bytes, 8));
    sum->variable = calloc(aggregates->count, sizeof(*sum->variable));
    leat_assert(sum->fixed != NULL && sum->run != NULL && sum->variable != NULL);
}

void panes_sum_free(const struct panes *panes, struct panes_sum *sum)
{
    for (uint32_t i = 0; sum->variable != NULL && i < panes->aggregates->count; i++)
        buffer_free(&sum->variable[i]);
    free(sum->variable);
    free(sum->run);
    free(sum->fixed);
}

void panes_sum_clear(const struct panes *panes, struct panes_sum *sum)
{
    memset(sum->fixed, 0, panes->aggregates->bytes);
    for (uint32_t k = 0; k < panes->aggregates->count && panes->aggregates->variable > 0; k++)
        buffer_clear(&sum->variable[k]);
}

/* Merges the whole run that begins with pane i; returns the first pane behind it. */
static uint32_t merge_run(const struct panes *panes, char *data, uint32_t i, int64_t run,
                          struct panes_sum *sum)
{
    bool found;
    uint32_t at = panes_find_run(panes, data, run, &found);
    if (found) {
        const struct run_head *head = run_at(panes, data, at);
        panes_merge_fixed(panes->aggregates, sum->fixed, (const char *)(head + 1));
        return i + head->panes;
    }
    int64_t last = run_last(panes, run);
    memset(sum->run, 0, panes->aggregates->bytes);
    for (; i < head_of(data)->panes && index_at(panes, data, i) <= last; i++)
        panes_merge_fixed(panes->aggregates, sum->run, pane_partials(panes, data, i));
    panes_merge_fixed(panes->aggregates, sum->fixed, sum->run);
    return i;
}

/* Merges the fixed partials of the window first..last, from the i-th pane on. */
static void read_fixed(const struct panes *panes, char *data, uint32_t i, int64_t first, int64_t last,
                       struct panes_sum *sum)
{
    while (i < head_of(data)->panes && index_at(panes, data, i) <= last) {
        int64_t run = index_at(panes, data, i) >> panes->shift;
        if (panes->shift > 0 && run_first(panes, run) >= first && run_last(panes, run) <= last)
            i = merge_run(panes, data, i, run, sum);
        else
            panes_merge_fixed(panes->aggregates, sum->fixed, pane_partials(panes, data, i++));
    }
}

/* Merges one variable partial of the same panes. */
static void read_variable(const struct panes *panes, char *data, uint32_t i, int64_t first, int64_t last,
                          uint32_t which, uint32_t variable, struct byte_buffer *into)
{
    while (i < head_of(data)->panes && index_at(panes, data, i) <= last) {
        int64_t index = index_at(panes, data, i);
        uint32_t level = 0;
        while (level < panes->levels && block_first(index, level + 1) >= first &&
               block_last(index, level + 1) <= last)
            level++;
        i = panes_combine_block(panes, data, i, level, which, variable, into);
    }
}

void panes_read(const struct panes *panes, const struct keyed_slot *slot, int64_t first, int64_t last,
                struct panes_sum *sum)
{
    const struct aggregates *aggregates = panes->aggregates;
    uint32_t bytes;
    char *data = keyed_read(slot, &bytes);
    if (bytes == 0)
        return;
    uint32_t i = lower_bound(panes, data, first);
    if (aggregates->variable < aggregates->count)
        read_fixed(panes, data, i, first, last, sum);
    for (uint32_t k = 0, v = 0; k < aggregates->count && aggregates->variable > 0; k++)
        if (is_variable(&aggregates->items[k]))
            read_variable(panes, data, i, first, last, k, v++, &sum->variable[k]);
}

void panes_finish(const struct panes *panes, const struct panes_sum *sum, int64_t time,
                  struct column_builder *const *builders, uint32_t row)
{
    for (uint32_t k = 0; k < panes->aggregates->count; k++) {
        const struct aggregate *aggregate = &panes->aggregates->items[k];
        if (!is_variable(aggregate))
            aggregate->kind->finish(sum->fixed + aggregate->offset, time, builders[k], row);
        else
            aggregate->kind->finish_bytes(
                aggregate, (struct str){sum->variable[k].data, sum->variable[k].length}, builders[k], row);
    }
}

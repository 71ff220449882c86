/* The merged value of a window's panes, for rows and for `leat state get`. */
#include "core/describe.h"
#include "core/mem.h"
#include "operators/window/panes_entry.h"

#include <stdlib.h>

void panes_sum_init(const struct panes *panes, struct panes_sum *sum)
{
    const struct aggregates *aggregates = panes->aggregates;
    sum->fixed = mem_calloc(1, MAX(aggregates->bytes, 8));
    sum->run = mem_calloc(1, MAX(aggregates->bytes, 8));
    sum->variable = mem_calloc(aggregates->count, sizeof(*sum->variable));
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

/* The place in the list of stored runs of the next one that a reader may meet; runs are met by rising index. */
struct run_cursor {
    uint32_t at;
    bool is_set;
};

/* The stored run with that index; NULL: there is none. */
static const struct run_head *next_run(const struct panes *panes, char *data, int64_t run,
                                       struct run_cursor *cursor)
{
    bool is_found;
    if (!cursor->is_set)
        cursor->at = panes_find_run(panes, data, run, &is_found);
    cursor->is_set = true;
    while (cursor->at < head_of(data)->runs && run_at(panes, data, cursor->at)->index < run)
        cursor->at++;
    if (cursor->at == head_of(data)->runs || run_at(panes, data, cursor->at)->index != run)
        return NULL;
    return run_at(panes, data, cursor->at);
}

/* Merges the whole run that begins with pane i; returns the first pane behind it. */
static uint32_t merge_run(const struct panes *panes, char *data, uint32_t i, int64_t run,
                          struct run_cursor *cursor, struct panes_sum *sum)
{
    const struct run_head *head = next_run(panes, data, run, cursor);
    if (head != NULL) {
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
    struct run_cursor cursor = {0};
    while (i < head_of(data)->panes && index_at(panes, data, i) <= last) {
        int64_t run = index_at(panes, data, i) >> panes->shift;
        if (panes->shift > 0 && run_first(panes, run) >= first && run_last(panes, run) <= last)
            i = merge_run(panes, data, i, run, &cursor, sum);
        else
            panes_merge_fixed(panes->aggregates, sum->fixed, pane_partials(panes, data, i++));
    }
}

/* Merges the partials of one variable aggregate of the window first..last, from the i-th pane on. */
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

/* --- Description --- */

enum { DESCRIBED_ROWS = 64 };

/* Panes to be described: a row of the batch for each. */
struct described {
    struct batch *batch;
    struct column_builder builders[AGGREGATES_MAX + 1], *places[AGGREGATES_MAX + 1];
    int64_t starts[DESCRIBED_ROWS], ends[DESCRIBED_ROWS];
};

static const struct schema *described_schema(const struct aggregates *aggregates, struct arena *arena)
{
    struct schema *schema = schema_copy(arena, &(struct schema){0}, aggregates->count);
    for (uint32_t i = 0; i < aggregates->count; i++)
        (void)schema_add(schema, aggregates->items[i].name, aggregates->items[i].result);
    return schema;
}

static void describe_rows(const struct described *rows, struct arena *arena, struct describe *out)
{
    const struct schema *schema = rows->batch->schema;
    const char **names = arena_array(arena, const char *, schema->count + 1);
    for (uint32_t k = 0; k < schema->count; k++)
        names[k] = arena_strndup(arena, schema->fields[k].name.data, schema->fields[k].name.length);
    for (uint32_t row = 0; row < rows->batch->rows; row++) {
        describe_record(out, NULL);
        describe_time(out, "start", rows->starts[row]);
        describe_time(out, "end", rows->ends[row]);
        for (uint32_t k = 0; k < schema->count; k++)
            if (names[k][0] != '\0')
                describe_value(out, names[k], &rows->batch->columns[k], &schema->fields[k].type, row);
        describe_close(out);
    }
}

void panes_describe(const struct panes *panes, struct panes_sum *sum, const struct keyed_slot *slot,
                    uint32_t first, panes_edges *edges, const void *argument,
                    struct operator_context *context, struct describe *out)
{
    const struct schema *schema = described_schema(panes->aggregates, context->scratch);
    struct described *rows = arena_new(context->scratch, struct described);
    describe_list(out, "panes");
    for (uint32_t at = first, count; at < panes_count(slot) && !describe_is_full(out); at += count) {
        count = MIN(panes_count(slot) - at, (uint32_t)DESCRIBED_ROWS);
        rows->batch = batch_new(context->pool, schema, count);
        for (uint32_t k = 0; k < schema->count; k++) {
            rows->places[k] = &rows->builders[k];
            builder_init(&rows->builders[k], rows->batch, &rows->batch->columns[k], schema->fields[k].type);
        }
        for (uint32_t row = 0; row < count; row++) {
            int64_t pane = panes_index(panes, slot, at + row);
            panes_sum_clear(panes, sum);
            panes_read(panes, slot, pane, pane, sum);
            edges(argument, pane, sum->fixed, &rows->starts[row], &rows->ends[row]);
            panes_finish(panes, sum, rows->ends[row] - 1, rows->places, row);
        }
        for (uint32_t k = 0; k < schema->count; k++)
            builder_finish(&rows->builders[k]);
        describe_rows(rows, context->scratch, out);
        batch_release(rows->batch);
    }
    describe_close(out);
}

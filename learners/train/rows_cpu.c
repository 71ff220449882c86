#include "learners/train/rows_cpu.h"

#include "core/base.h"

#include <stdlib.h>

void rows_cpu_init(struct rows_cpu *rows, struct table *tables, size_t vector_at, size_t places_max)
{
    *rows = (struct rows_cpu){.tables = tables, .vector_at = vector_at};
    rows->found = calloc(places_max + 1, sizeof *rows->found);
    rows->steps = calloc(places_max + 1, sizeof *rows->steps);
    rows->none = calloc(places_max + 1, 1);
    leat_assert(rows->found && rows->steps && rows->none);
}

size_t rows_cpu_bytes(size_t places_max)
{
    const struct rows_cpu *rows = NULL;
    return (places_max + 1) * (sizeof *rows->found + sizeof *rows->steps + sizeof *rows->none);
}

void rows_cpu_free(struct rows_cpu *rows)
{
    free(rows->found);
    free(rows->steps);
    free(rows->none);
    *rows = (struct rows_cpu){0};
}

static void *row_of(const struct rows_cpu *rows, const struct train_group *g, struct table_row *row)
{
    return row ? (unsigned char *)table_payload(row) + (g->has_vectors ? rows->vector_at : 0) : NULL;
}

/* All places are sighted, field by field and in the order of events; a number's row is that of its first. */
static bool rows_resolve(void *of, struct train *t, struct train_group *g, struct gpu_error *error)
{
    (void)error;
    struct rows_cpu *rows = of;
    const struct train_input *in = &t->batch;
    const uint32_t *tables = in->host.tables + train_input_tables(in, g->first);
    size_t first = train_input_first(in, g->first);
    for (uint32_t f = 0; f < g->fields; f++) {
        size_t at = first + tables[f];
        table_resolve_batch(&rows->tables[g->first + f], in->host.ids + at, in->host.seen + at,
                            tables[f + 1] - tables[f], (uint32_t)t->steps + 1, rows->found + tables[f]);
    }
    bool has_lost[MODEL_FIELDS_MAX] = {false};
    for (uint32_t f = 0; f < g->fields; f++) {
        uint64_t expired = rows->tables[g->first + f].stats.expired, *before = &rows->expired[g->first + f];
        has_lost[f] = expired != *before;
        *before = expired;
    }
    for (uint32_t u = 0; u < g->count[0]; u++) {
        struct table_row *row = rows->found[g->order[g->starts[u]]];
        g->rows[u] = row_of(rows, g, row);
        g->has_changed[u] =
            row ? row->count == g->starts[u + 1] - g->starts[u] : has_lost[g->unique_tables[u]];
    }
    return true;
}

static bool rows_find(void *of, struct train *t, struct train_group *g, const struct train_input *in,
                      struct gpu_error *error)
{
    (void)error;
    struct rows_cpu *rows = of;
    const uint32_t *tables = in->host.tables + train_input_tables(in, g->first);
    size_t first = train_input_first(in, g->first);
    for (uint32_t p = 0; p < tables[g->fields]; p++)
        rows->steps[p] = (uint32_t)t->steps + 1;
    for (uint32_t f = 0; f < g->fields; f++) {
        size_t at = first + tables[f];
        table_resolve(&rows->tables[g->first + f], in->host.ids + at, in->host.seen + at,
                      rows->steps + tables[f], rows->none, tables[f + 1] - tables[f],
                      rows->found + tables[f]);
    }
    for (uint32_t p = 0; p < tables[g->fields]; p++)
        g->found[p] = row_of(rows, g, rows->found[p]);
    return true;
}

struct train_rows rows_cpu_of(struct rows_cpu *rows)
{
    return (struct train_rows){.of = rows,
                               .linear_at = -(int32_t)rows->vector_at,
                               .format = ROW_FP32,
                               .resolve = rows_resolve,
                               .find = rows_find};
}

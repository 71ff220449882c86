#include "learners/train/rows_cpu.h"

#include "core/base.h"
#include "core/mem.h"

#include <stdlib.h>

/* The arrays of struct rows_cpu, each with one element more than there are places. */
#define ROWS_ARRAYS(X) X(found) X(steps) X(seen) X(counts) X(none) X(is_known)

void rows_cpu_init(struct rows_cpu *rows, struct table *tables, size_t vector_at, size_t places_max)
{
    *rows = (struct rows_cpu){.tables = tables, .vector_at = vector_at};
    memset(rows->seen_least, 0xff, sizeof(rows->seen_least));
#define TAKE(array) rows->array = mem_calloc(places_max + 1, sizeof(*rows->array));
    ROWS_ARRAYS(TAKE)
}

size_t rows_cpu_bytes(size_t places_max)
{
    const struct rows_cpu *rows = NULL;
    size_t bytes = 0;
#define COUNT(array) bytes += (places_max + 1) * sizeof(*rows->array);
    ROWS_ARRAYS(COUNT)
    return bytes;
}

void rows_cpu_free(struct rows_cpu *rows)
{
#define FREE(array) free(rows->array);
    ROWS_ARRAYS(FREE)
    *rows = (struct rows_cpu){0};
}

static void *row_of(const struct rows_cpu *rows, const struct train_group *g, struct table_row *row)
{
    return row != NULL ? (unsigned char *)table_payload(row) + (g->has_vectors ? rows->vector_at : 0) : NULL;
}

/* The cold stores of a model's tables share one database, so tables with a store must not be looked up by two
 * threads at the same time. */
static bool rows_are_apart(void *of, const struct train *t)
{
    const struct rows_cpu *rows = of;
    bool are_apart = true;
    for (uint32_t f = 0; f < t->options->fields; f++)
        are_apart &= rows->tables[f].cold == NULL;
    return are_apart;
}

/* Sets, for each index of the group, the number of its occurrences and the latest of their event times, in
 * seconds. seen_at: [places] */
static void count_occurrences(const struct train_group *g, const uint32_t *seen_at, uint32_t *counts,
                              uint32_t *seen)
{
    for (uint32_t u = 0; u < g->count[0]; u++) {
        counts[u] = g->starts[u + 1] - g->starts[u];
        seen[u] = 0;
        for (uint32_t i = g->starts[u]; i < g->starts[u + 1]; i++)
            seen[u] = MAX(seen[u], seen_at[g->order[i]]);
    }
}

/* Whether the field's table is unchanged since the batch's rows were found: then a new look-up finds the same
 * rows. */
static bool is_as_found(const struct rows_cpu *rows, uint32_t field)
{
    const struct table *table = &rows->tables[field];
    return rows->as_found[field].changes == table->changes &&
           rows->as_found[field].expired_before == table->expired_before;
}

/* On a CPU a group is a field, and a field has one table. */
static bool rows_resolve(void *of, struct train *t, struct train_group *g, struct gpu_error *error)
{
    (void)error;
    struct rows_cpu *rows = of;
    struct table *table = &rows->tables[g->first];
    size_t at = g->places_before;
    struct table_row **found = rows->found + at;
    struct table_occurrences in = {.keys = g->unique_ids,
                                   .seen = rows->seen + at,
                                   .counts = rows->counts + at,
                                   .rows = t->has_indices && is_as_found(rows, g->first) ? found : NULL,
                                   .n = g->count[0]};
    count_occurrences(g, t->batch.host.seen + train_input_first(&t->batch, g->first), rows->counts + at,
                      rows->seen + at);
    table_resolve_batch(table, &in, (uint32_t)t->steps + 1, found, rows->is_known + at);
    g->has_lost = rows->seen_least[g->first] < table->expired_before;
    rows->seen_least[g->first] = UINT32_MAX;
    for (uint32_t u = 0; u < in.n; u++) {
        g->rows[u] = row_of(rows, g, found[u]);
        g->known[u] = rows->is_known[at + u] ? g->rows[u] : NULL;
    }
    return true;
}

/* Finds the rows of the indices from g->fresh on; of all indices if the table has changed since the last
 * look-up. */
static bool rows_find(void *of, struct train *t, struct train_group *g, const struct train_input *in,
                      struct gpu_error *error)
{
    (void)error, (void)in;
    struct rows_cpu *rows = of;
    struct table *table = &rows->tables[g->first];
    size_t at = g->places_before;
    struct table_row **found = rows->found + at;
    uint32_t n = g->count[0], *least = &rows->seen_least[g->first];
    if (!is_as_found(rows, g->first))
        g->fresh = 0;
    for (uint32_t u = g->fresh; u < n; u++)
        rows->steps[at + u] = (uint32_t)t->steps + 1;
    table_resolve(table, g->unique_ids + g->fresh, rows->seen + at, rows->steps + at + g->fresh, rows->none,
                  n - g->fresh, found + g->fresh);
    rows->as_found[g->first].changes = table->changes;
    rows->as_found[g->first].expired_before = table->expired_before;
    for (uint32_t u = g->fresh; u < n; u++) {
        g->known[u] = row_of(rows, g, found[u]);
        *least = found[u] != NULL ? MIN(*least, found[u]->seen) : *least;
    }
    return true;
}

struct train_rows rows_cpu_of(struct rows_cpu *rows)
{
    return (struct train_rows){.of = rows,
                               .linear_at = -(int32_t)rows->vector_at,
                               .format = ROW_FP32,
                               .are_apart = rows_are_apart,
                               .resolve = rows_resolve,
                               .find = rows_find};
}

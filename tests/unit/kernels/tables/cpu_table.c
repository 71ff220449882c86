#include "cpu_table.h"

#include "learners/tables/table.h"

#include <stdlib.h>

enum { EXPIRE_AFTER_S = 100000000 };

struct cpu_table {
    struct table table;
    struct gpu_table_options options;
    uint32_t d, state_floats;
    float state_init;
    struct table_row **found; /* [room] */
    uint8_t *is_known;        /* [room] */
    size_t room;
    struct table_row **sorted; /* made by the last cpu_table_row with i = 0 */
    size_t sorted_count;
};

static void init_row(void *argument, uint64_t key, void *payload)
{
    const struct cpu_table *t = argument;
    float *row = payload;
    kernels_variant(KERNELS_SCALAR)
        ->init_uniform(row, num_mix(key ^ t->options.init_seed), t->options.init_bound, t->d);
    for (uint32_t i = 0; i < t->state_floats; i++)
        row[t->d + i] = t->state_init;
}

struct cpu_table *cpu_table_new(const struct gpu_table_options *options, uint32_t d, uint32_t state_floats,
                                float state_init)
{
    struct cpu_table *t = calloc(1, sizeof(*t));
    t->options = *options;
    t->d = d;
    t->state_floats = state_floats;
    t->state_init = state_init;
    struct table_options o = {
        .payload_bytes = (d + state_floats) * sizeof(float),
        .align = 8,
        .admit_after = options->admit_after,
        .sketch_bytes = options->sketch_bytes,
        .expire_after_us = (int64_t)EXPIRE_AFTER_S * 1000000,
        .rows_max = options->rows_max,
        .shards = options->shards,
        .seed = options->seed,
        .init = init_row,
        .init_argument = t,
    };
    table_init(&t->table, &o);
    return t;
}

void cpu_table_free(struct cpu_table *t)
{
    table_free(&t->table);
    free(t->found);
    free(t->is_known);
    free(t->sorted);
    free(t);
}

void cpu_table_batch(struct cpu_table *t, const uint64_t *keys, const uint32_t *seen, const uint32_t *counts,
                     size_t n, uint32_t step)
{
    struct table_occurrences in = {.keys = keys, .seen = seen, .counts = counts, .n = n};
    if (n > t->room) {
        t->room = n;
        t->found = realloc(t->found, n * sizeof(struct table_row *));
        t->is_known = realloc(t->is_known, n);
    }
    if (n > 0)
        table_resolve_batch(&t->table, &in, step, t->found, t->is_known);
}

void cpu_table_expire(struct cpu_table *t, uint32_t expired_before)
{
    if (expired_before > 0)
        table_set_watermark(&t->table, ((int64_t)expired_before - 1 + EXPIRE_AFTER_S) * 1000000,
                            TABLE_STEP_NONE);
}

float *cpu_table_find(struct cpu_table *t, uint64_t key)
{
    struct table_row *row = table_find(&t->table, key);
    return row != NULL ? table_payload(row) : NULL;
}

bool cpu_table_row(struct cpu_table *t, size_t i, struct gpu_row_head *head, const float **payload)
{
    if (i == 0) {
        free(t->sorted);
        t->sorted = table_sorted(&t->table, &t->sorted_count);
    }
    if (i >= t->sorted_count)
        return false;
    struct table_row *row = t->sorted[i];
    *head =
        (struct gpu_row_head){.key = row->key, .count = row->count, .seen = row->seen, .epoch = row->epoch};
    *payload = table_payload(row);
    return true;
}

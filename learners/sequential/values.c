#include "learners/sequential/values.h"

#include "core/mem.h"
#include "kernels/batch.h"

#include <stdlib.h>

struct values {
    const struct batch_kernels *kernels;
    uint32_t dim;
    size_t n, room;
    uint64_t *ids, *unique; /* numbers plus 1 */
    uint32_t *bags, *indices, *order, *tables;
    uint32_t *starts; /* [room + 1] */
    float *scales;
    void **rows;
    void *scratch;
    size_t scratch_bytes;
};

struct values *values_new(const struct batch_kernels *kernels, uint32_t dim)
{
    struct values *v = mem_calloc(1, sizeof(*v));
    v->kernels = kernels, v->dim = dim;
    return v;
}

static void free_arrays(struct values *v)
{
    free(v->ids), free(v->unique), free(v->bags), free(v->indices), free(v->order), free(v->tables);
    free(v->starts), free(v->rows), free(v->scales);
}

void values_free(struct values *v)
{
    if (v == NULL)
        return;
    free_arrays(v);
    free(v->scratch);
    free(v);
}

void values_begin(struct values *v, size_t most)
{
    v->n = 0;
    if (most <= v->room)
        return;
    free_arrays(v);
    v->room = MAX(most, 2 * v->room);
    leat_assert(v->room < UINT32_C(1) << 31);
    v->ids = mem_alloc(v->room * sizeof(*v->ids));
    v->unique = mem_alloc(v->room * sizeof(*v->unique));
    v->bags = mem_alloc(v->room * sizeof(*v->bags));
    v->indices = mem_alloc(v->room * sizeof(*v->indices));
    v->order = mem_alloc(v->room * sizeof(*v->order));
    v->tables = mem_alloc(v->room * sizeof(*v->tables));
    v->starts = mem_alloc((v->room + 1) * sizeof(*v->starts));
    v->rows = mem_alloc(v->room * sizeof(*v->rows));
    v->scales = mem_alloc(v->room * sizeof(*v->scales));
}

void values_add(struct values *v, uint32_t number, uint32_t gradient)
{
    if (number == 0)
        return;
    v->ids[v->n] = number;
    v->bags[v->n++] = gradient;
}

static void *scratch_of(struct values *v, size_t bytes)
{
    if (bytes > v->scratch_bytes) {
        free(v->scratch);
        v->scratch_bytes = (bytes + 63) / 64 * 64;
        v->scratch = mem_aligned(64, v->scratch_bytes);
    }
    return v->scratch;
}

/* The steps of the distinct rows v->rows[count], whose places lie in v->bags by v->order and v->starts. */
static uint32_t update_rows(struct values *v, uint32_t count, const float *gradients, const float *scales,
                            const struct optimizer_options *optimizer)
{
    uint32_t refused = 0;
    struct batch_update a = {.in = {.grads = gradients,
                                    .bag = v->bags,
                                    .scales = scales,
                                    .order = v->order,
                                    .starts = v->starts,
                                    .count = &count,
                                    .n = (uint32_t)v->n,
                                    .d = v->dim},
                             .rows = v->rows,
                             .format = ROW_FP32,
                             .kind = optimizer->kind,
                             .params = optimizer->params,
                             .rejected = &refused};
    v->kernels->update(&a, NULL);
    a.scratch = scratch_of(v, a.scratch_bytes), a.scratch_bytes = v->scratch_bytes;
    v->kernels->update(&a, NULL);
    return refused;
}

uint32_t values_update(struct values *v, struct catalogue *catalogue, const float *gradients,
                       const struct optimizer_options *optimizer)
{
    uint32_t n = (uint32_t)v->n, tables[2] = {0, n}, count;
    if (n == 0)
        return 0;
    struct batch_dedupe d = {.ids = v->ids,
                             .tables = tables,
                             .tables_count = 1,
                             .n = n,
                             .method = DEDUPE_HASH,
                             .count = &count,
                             .indices = v->indices,
                             .unique_ids = v->unique,
                             .unique_tables = v->tables,
                             .order = v->order,
                             .starts = v->starts};
    v->kernels->dedupe(&d, NULL);
    d.scratch = scratch_of(v, d.scratch_bytes), d.scratch_bytes = v->scratch_bytes;
    v->kernels->dedupe(&d, NULL);
    float *const *rows = catalogue_rows(catalogue);
    for (uint32_t u = 0; u < count; u++) {
        uint32_t number = (uint32_t)v->unique[u] - 1;
        v->rows[u] = number < catalogue_used(catalogue) ? rows[number] : NULL;
        if (v->rows[u] != NULL)
            catalogue_change(catalogue, number);
    }
    return update_rows(v, count, gradients, NULL, optimizer);
}

uint32_t values_update_row(struct values *v, float *row, const float *gradients, float scale,
                           const struct optimizer_options *optimizer)
{
    if (v->n == 0)
        return 0;
    for (uint32_t i = 0; i < v->n; i++)
        v->order[i] = i, v->scales[i] = scale;
    v->starts[0] = 0, v->starts[1] = (uint32_t)v->n;
    v->rows[0] = row;
    return update_rows(v, 1, gradients, v->scales, optimizer);
}

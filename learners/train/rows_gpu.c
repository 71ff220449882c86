#include "learners/train/rows_gpu.h"

#include "core/base.h"

/* The distinct keys of a group's places, as dedupe left them. */
static struct gpu_batch batch_of(struct rows_gpu *rows, const struct train *t, const struct train_group *g,
                                 const struct train_input *in)
{
    const uint32_t *tables = in->host.tables + train_input_tables(in, g->first);
    for (uint32_t f = 0; f < g->fields; f++)
        rows->places[f] = tables[f + 1] - tables[f];
    return (struct gpu_batch){.count = g->count,
                              .keys = g->unique_ids,
                              .tables = g->unique_tables,
                              .starts = g->starts,
                              .order = g->order,
                              .seen = in->there.seen + train_input_first(in, g->first),
                              .n = train_input_places(in, g->first, g->fields),
                              .step = (uint32_t)t->steps + 1,
                              .epoch = t->epoch,
                              .places = rows->places};
}

static struct device_table *table_of(const struct rows_gpu *rows, const struct train *t,
                                     const struct train_group *g)
{
    return rows->tables[g - t->groups];
}

static bool rows_resolve(void *of, struct train *t, struct train_group *g, struct gpu_error *error)
{
    struct gpu_batch batch = batch_of(of, t, g, &t->batch);
    batch.known = g->known;
    return device_table_step(table_of(of, t, g), &batch, g->rows, error);
}

static bool rows_find(void *of, struct train *t, struct train_group *g, const struct train_input *in,
                      struct gpu_error *error)
{
    struct gpu_batch batch = batch_of(of, t, g, in);
    return device_table_find(table_of(of, t, g), &batch, g->known, error);
}

static bool rows_refresh(void *of, struct train *t, struct train_group *g, const struct train_input *in,
                         struct gpu_error *error)
{
    struct gpu_batch batch = batch_of(of, t, g, in);
    if (!device_table_find(table_of(of, t, g), &batch, g->known, error))
        return false;
    device_table_refresh(table_of(of, t, g), &batch);
    return true;
}

struct train_rows rows_gpu_of(struct rows_gpu *rows)
{
    return (struct train_rows){.of = rows,
                               .linear_at = rows->linear_at,
                               .format = rows->format,
                               .resolve = rows_resolve,
                               .find = rows_find,
                               .refresh = rows_refresh};
}

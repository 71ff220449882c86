/*
 * A model on a GPU: its tables are device_tables (device/table.h), one set for the fields with vectors and
 * one for the fields with a linear weight alone; the step is that of the CPU (train/train.h) with the
 * device's kernels. Rows are stored in the form of the CPU's tables, so that a CPU can continue what a GPU
 * has learned, and a GPU what a CPU has.
 */
#include "learners/model/internal.h"
#include "learners/train/rows_gpu.h"

#include "core/base.h"
#include "core/mem.h"

#include <stdlib.h>

enum {
    EXTRA_FLOATS = LINEAR_BYTES / sizeof(float),
    ROW_BUCKET_BYTES = 32, /* bytes of a row in its bucket: key, digest and header */
    SNAPSHOT_PART = 8,     /* an eighth of the memory is for rows that a checkpoint copies */
};

/* A set of tables: of the model's fields first .. first + count. */
struct device_set {
    uint32_t first, count, batch_max;
    struct gpu_table_options tables[MODEL_FIELDS_MAX];
    uint32_t places[MODEL_FIELDS_MAX]; /* most ids of a batch, by table */
    float extra[EXTRA_FLOATS];
};

static void set_tables(const struct model *m, struct device_set *s)
{
    const struct model_options *o = &m->options;
    for (uint32_t i = 0; i < s->count; i++) {
        const struct table_options *t = &m->tables[s->first + i].options;
        s->tables[i] = (struct gpu_table_options){.admit_after = t->admit_after,
                                                  .sketch_bytes = t->sketch_bytes,
                                                  .rows_max = t->rows_max,
                                                  .shards = t->shards,
                                                  .seed = t->seed,
                                                  .init_seed = model_field_seed(m, s->first + i),
                                                  .init_bound = model_field_bound(m, s->first + i)};
    }
    s->batch_max = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        s->places[i] = model_field_ids(o, s->first + i) * MAX(o->batch, (uint32_t)MODEL_ROWS_MAX);
        s->batch_max += s->places[i];
    }
    if (!o->linear_is_off)
        linear_init_payload(m, s->extra);
}

static struct gpu_tables_options tables_of(const struct model *m, const struct device_set *s, uint64_t memory)
{
    bool has_vectors = s->first < m->options.vectors;
    struct gpu_tables_options o = {.tables = s->count,
                                   .table = s->tables,
                                   .d = has_vectors ? (uint32_t)m->vector_floats : 0,
                                   .format = ROW_FP32,
                                   .optimizer = m->options.embedding.kind,
                                   .accumulator = m->options.embedding.accumulator,
                                   .extra_floats = m->options.linear_is_off ? 0 : EXTRA_FLOATS,
                                   .batch_max = s->batch_max,
                                   .memory_bytes = memory};
    memcpy(o.extra, s->extra, sizeof(o.extra));
    return o;
}

/*
 * Sets the initial size of each table: room for twice the ids that a batch may bring, as far as half of the
 * memory allows, so that the first tables to grow leave memory to the others. An error of plan is ignored
 * here, because create reports it.
 */
static void reserve_batches(struct device_set *s, const struct gpu_tables_options *o,
                            const struct gpu_table_api *api)
{
    struct gpu_tables_plan plan;
    struct gpu_error error;
    if (!api->plan(o, o->memory_bytes, &plan, &error))
        return;
    uint64_t row_bytes = gpu_extra_at(o) + o->extra_floats * sizeof(float) + ROW_BUCKET_BYTES;
    uint64_t share = (o->memory_bytes - plan.bytes_least) / 2 / s->count / row_bytes;
    for (uint32_t i = 0; i < s->count; i++)
        if (s->tables[i].rows_max == 0)
            s->tables[i].rows_start = MIN(2 * (uint64_t)s->places[i], share);
}

/* Returns the byte offsets, in a payload of the CPU's tables, of the parts of a row on the device. */
static struct device_stored stored_of(const struct model *m, const struct device_set *s)
{
    bool has_vectors = s->first < m->options.vectors;
    return (struct device_stored){.payload_bytes = m->tables[s->first].options.payload_bytes,
                                  .linear_at = 0,
                                  .linear_bytes = model_linear_bytes(m),
                                  .vector_at = has_vectors ? m->vector_at : 0,
                                  .state_at = has_vectors ? m->state_at : 0};
}

static struct device_table *table_new(struct model *m, uint32_t first, uint32_t count, uint64_t memory,
                                      const struct model_device *d, struct gpu_error *error)
{
    struct device_set *s = mem_calloc(1, sizeof(*s));
    s->first = first, s->count = count;
    set_tables(m, s);
    struct device_table_options o = {.api = d->api,
                                     .gpu = d->gpu,
                                     .stream = d->stream,
                                     .tables = tables_of(m, s, memory - memory / SNAPSHOT_PART),
                                     .stored = stored_of(m, s),
                                     .pinned_bytes =
                                         d->pinned_bytes / (first > 0 || count < m->options.fields ? 2 : 1),
                                     .snapshot_bytes = memory / SNAPSHOT_PART,
                                     .stores = d->stores != NULL ? d->stores + first : NULL,
                                     .ahead = 1,
                                     .expire_after_us = m->options.expire_after_us};
    if (first < m->options.vectors)
        m->device_rows->linear_at = (int32_t)gpu_extra_at(&o.tables);
    reserve_batches(s, &o.tables, d->api->tables);
    struct device_table *t = device_table_new(&o, error);
    free(s);
    return t;
}

/* Frees the stores of fields whose tables could not be made; returns false. */
static bool stores_free(const struct model *m, const struct model_device *d, uint32_t first)
{
    for (uint32_t f = first; f < m->options.fields && d->stores != NULL; f++)
        if (d->stores[f] != NULL)
            d->stores[f]->free(d->stores[f]->self);
    return false;
}

/* Divides the memory by the bytes of a row of each kind, assuming that all fields have equally many rows. */
static bool tables_new(struct model *m, const struct model_device *d, struct gpu_error *error)
{
    uint32_t vectors = m->options.vectors, fields = m->options.fields, at = 0;
    uint64_t row = TABLE_ROW_HEADER + m->tables[0].options.payload_bytes,
             wide = TABLE_ROW_HEADER + LINEAR_BYTES;
    uint64_t all = row * vectors + wide * (fields - vectors);
    uint64_t share = fields == vectors ? d->memory_bytes : d->memory_bytes / MAX(all, 1U) * row * vectors;
    if (vectors > 0 && !(m->device_rows->tables[at++] = table_new(m, 0, vectors, share, d, error)))
        return stores_free(m, d, vectors);
    return fields == vectors ||
           (m->device_rows->tables[at] =
                table_new(m, vectors, fields - vectors, d->memory_bytes - share, d, error)) != NULL;
}

bool model_attach(struct model *m, const struct model_device *d, struct gpu_error *error)
{
    leat_assert(m->train == NULL && m->options.is_on_device);
    if (m->options.network != NULL && !d->api->can_matmul(d->gpu, error))
        return stores_free(m, d, 0);
    m->device_rows = mem_calloc(1, sizeof(*m->device_rows));
    m->device_rows->format = ROW_FP32;
    if (!tables_new(m, d, error))
        return false;
    struct train_setup setup = {
        .options = &m->options,
        .device = {.kernels = d->api->kernels, .api = d->api, .gpu = d->gpu, .stream = d->stream},
        .rows = rows_gpu_of(m->device_rows),
        .kernels = m->k};
    m->train = train_new(&setup, error);
    if (m->train == NULL)
        return false;
    model_train_write(m);
    if (m->error.failure != GPU_OK)
        *error = m->error;
    return m->error.failure == GPU_OK;
}

const struct gpu_error *model_error(const struct model *m)
{
    return m->error.failure == GPU_OK ? NULL : &m->error;
}

void model_device_free(struct model *m)
{
    for (uint32_t i = 0; m->device_rows != NULL && i < ARRAY_COUNT(m->device_rows->tables); i++)
        device_table_free(m->device_rows->tables[i]);
    free(m->device_rows);
}

void model_device_watermark(struct model *m)
{
    for (uint32_t i = 0; i < ARRAY_COUNT(m->device_rows->tables); i++)
        if (m->device_rows->tables[i] != NULL)
            device_table_set_watermark(m->device_rows->tables[i], m->watermark_us, m->train->epoch);
}

struct device_table *model_device_table(const struct model *m, uint32_t field, uint32_t *table)
{
    bool is_second = m->options.vectors > 0 && field >= m->options.vectors;
    *table = is_second ? field - m->options.vectors : field;
    return m->device_rows->tables[is_second ? 1 : 0];
}

void model_device_times(const struct model *m, uint32_t field, int64_t *halved_at_us, int64_t *watermark_us,
                        uint32_t *expired_before)
{
    uint32_t table;
    const struct device_table *t = model_device_table(m, field, &table);
    struct device_table_times times = device_table_times(t, table);
    *halved_at_us = times.halved_at_us, *watermark_us = times.watermark_us;
    *expired_before = times.expired_before;
}

void model_device_set_times(struct model *m, uint32_t field, int64_t halved_at_us, int64_t watermark_us,
                            uint32_t expired_before)
{
    uint32_t table;
    struct device_table *t = model_device_table(m, field, &table);
    struct device_table_times times = {
        .halved_at_us = halved_at_us, .watermark_us = watermark_us, .expired_before = expired_before};
    device_table_set_times(t, table, &times);
}

struct table_stats model_device_stats(struct model *m, uint32_t field, uint64_t *bytes)
{
    uint32_t table;
    struct device_table *t = model_device_table(m, field, &table);
    struct gpu_table_stats s = {0};
    const struct train_device *d = &m->train->device;
    if (!d->api->tables->stats(device_table_tables(t), d->stream, table, &s, &m->error))
        return (struct table_stats){0};
    struct device_table_below below = device_table_below(t, table);
    *bytes = s.bytes;
    return (struct table_stats){.rows = s.rows + below.pinned + below.cold,
                                .inserted = s.inserted,
                                .evicted = s.evicted,
                                .expired = s.expired,
                                .refused = s.refused,
                                .waiting = s.waiting};
}

struct gpu_error *model_error_place(struct model *m)
{
    return &m->error;
}

void model_device_set_epoch(struct model *m, uint32_t epoch)
{
    m->train->epoch = epoch;
}

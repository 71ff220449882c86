/* Batches that are announced, and due; device_table.h tells the rules. */
#include "learners/device_table_internal.h"

#include <stdlib.h>

enum { STAGE_LEAST = 64, STAGE_MOST = 1 << 16, EXPORT_BYTES = 8 << 20 };

/* --- rows as they are stored ------------------------------------------------------------------------------
 */

void device_pack(const struct device_table *t, const struct gpu_row_head *head, const float *payload,
                 unsigned char *stored)
{
    struct table_row row = {.key = head->key, .count = head->count, .seen = head->seen, .epoch = head->epoch};
    memcpy(stored, &row, offsetof(struct table_row, step));
    memcpy(stored + offsetof(struct table_row, step), payload, t->floats * sizeof *payload);
}

void device_unpack(const struct device_table *t, uint32_t table, const unsigned char *stored, uint32_t slot)
{
    struct table_row row = {0};
    memcpy(&row, stored, offsetof(struct table_row, step));
    t->pool.heads[slot] = (struct gpu_row_head){
        .key = row.key, .table = table, .count = row.count, .seen = row.seen, .epoch = row.epoch};
    memcpy(device_pool_payload(&t->pool, slot), stored + offsetof(struct table_row, step),
           t->floats * sizeof(float));
}

size_t device_table_stored_bytes(const struct device_table *t)
{
    return t->stored_bytes;
}

/* --- making and ending ------------------------------------------------------------------------------------
 */

static bool batch_init(struct device_table *t, struct device_batch *b, struct gpu_error *error)
{
    const struct gpu_api *api = t->api;
    size_t n = MAX(t->options.batch_max, 1U);
    b->raised = malloc(n * sizeof *b->raised);
    leat_assert(b->raised);
    return (b->asked = api->event(t->gpu, error)) != NULL &&
           (b->keys = api->alloc_pinned(t->gpu, n * sizeof *b->keys, error)) != NULL &&
           (b->tables = api->alloc_pinned(t->gpu, n * sizeof *b->tables, error)) != NULL &&
           (b->missing = api->alloc_pinned(t->gpu, n * sizeof *b->missing, error)) != NULL &&
           (b->counts = api->alloc_pinned(t->gpu, 2 * sizeof *b->counts, error)) != NULL &&
           (b->device_missing = api->alloc(t->gpu, n * sizeof *b->device_missing, error)) != NULL &&
           (b->device_count = api->alloc(t->gpu, sizeof *b->device_count, error)) != NULL;
}

static void batch_free(struct device_table *t, struct device_batch *b)
{
    free(b->raised);
    t->api->event_free(t->gpu, b->asked);
    t->api->free_pinned(t->gpu, b->keys);
    t->api->free_pinned(t->gpu, b->tables);
    t->api->free_pinned(t->gpu, b->missing);
    t->api->free_pinned(t->gpu, b->counts);
    t->api->free(t->gpu, b->device_missing);
    t->api->free(t->gpu, b->device_count);
}

static void *zeroed(size_t count, size_t size)
{
    void *memory = calloc(MAX(count, (size_t)1), size);
    leat_assert(memory);
    return memory;
}

static void make_arrays(struct device_table *t, const struct device_table_options *options)
{
    size_t n = options->tables.tables;
    struct gpu_table_options *copies = zeroed(n, sizeof *copies);
    memcpy(copies, options->tables.table, n * sizeof *copies);
    t->options.table = copies;
    t->has_stored = zeroed(n, sizeof *t->has_stored);
    t->expired_before = zeroed(n, sizeof *t->expired_before);
    t->rows_new = zeroed(n, sizeof *t->rows_new);
    t->rows_cold = zeroed(n, sizeof *t->rows_cold);
    t->removed = zeroed(n, sizeof *t->removed);
    t->removed_since = zeroed(n, sizeof *t->removed_since);
    t->at_waiting = zeroed(t->stage, sizeof *t->at_waiting);
    t->store_keys = zeroed(DEVICE_STORE_BATCH, sizeof *t->store_keys);
    t->store_times = zeroed(DEVICE_STORE_BATCH, sizeof *t->store_times);
    t->store_found = zeroed(DEVICE_STORE_BATCH, sizeof *t->store_found);
    t->store_slots = zeroed(DEVICE_STORE_BATCH, sizeof *t->store_slots);
    t->store_rows = zeroed(DEVICE_STORE_BATCH, t->stored_bytes);
    t->ahead_count = MAX(options->ahead, 1U) + 1; /* and the one that is due */
    t->ahead = zeroed(t->ahead_count, sizeof *t->ahead);
}

static bool init(struct device_table *t, const struct device_table_options *options, struct gpu_error *error)
{
    uint32_t piece = (uint32_t)MAX(EXPORT_BYTES / t->stored_bytes, (size_t)STAGE_LEAST);
    uint64_t none = 0;
    t->tables = t->api->tables->create(t->gpu, &t->options, error);
    if (t->tables == NULL ||
        !device_pool_init(&t->pool, t->api, t->gpu, t->floats, options->pinned_bytes, t->stage, error) ||
        !device_export_init(&t->export, t->api, t->gpu, t->floats, piece, error) ||
        (t->at = t->api->alloc_pinned(t->gpu, t->stage * sizeof *t->at, error)) == NULL)
        return false;
    for (uint32_t i = 0; i < t->ahead_count; i++)
        if (!batch_init(t, &t->ahead[i], error))
            return false;
    return t->api->tables->take_removed(t->tables, t->stream, NULL, 0, &none, error); /* lists from now on */
}

struct device_table *device_table_new(const struct device_table_options *options, struct gpu_error *error)
{
    struct device_table *t = zeroed(1, sizeof *t);
    const struct gpu_tables_options *o = &options->tables;
    t->api = options->api;
    t->gpu = options->gpu;
    t->stream = options->stream;
    t->options = *o;
    t->floats = o->d + opt_state_floats(o->optimizer, o->d);
    t->stored_bytes = offsetof(struct table_row, step) + t->floats * sizeof(float);
    t->stage = MIN(MAX(o->batch_max, (uint32_t)STAGE_LEAST), (uint32_t)STAGE_MOST);
    t->stores = zeroed(o->tables, sizeof(struct cold_store *));
    for (uint32_t i = 0; i < o->tables && options->stores != NULL; i++)
        t->stores[i] = options->stores[i];
    make_arrays(t, options);
    if (init(t, options, error))
        return t;
    device_table_free(t);
    return NULL;
}

void device_table_free(struct device_table *t)
{
    if (t == NULL)
        return;
    t->api->tables->destroy(t->tables);
    device_pool_free(&t->pool);
    device_export_free(&t->export);
    t->api->free_pinned(t->gpu, t->at);
    for (uint32_t i = 0; i < t->ahead_count; i++)
        batch_free(t, &t->ahead[i]);
    for (uint32_t i = 0; i < t->options.tables; i++) {
        if (t->stores[i] != NULL)
            t->stores[i]->free(t->stores[i]->self);
        free(t->removed[i].items);
        free(t->removed_since[i].items);
    }
    void *const memory[] = {(void *)t->options.table,
                            (void *)t->stores,
                            t->has_stored,
                            t->expired_before,
                            t->rows_new,
                            t->rows_cold,
                            t->removed,
                            t->removed_since,
                            t->at_waiting,
                            t->store_keys,
                            t->store_times,
                            t->store_found,
                            t->store_slots,
                            t->store_rows,
                            t->ahead};
    for (size_t i = 0; i < ARRAY_COUNT(memory); i++)
        free(memory[i]);
    free(t);
}

struct gpu_tables *device_table_tables(struct device_table *t)
{
    return t->tables;
}

struct device_table_stats device_table_stats(const struct device_table *t)
{
    struct device_table_stats stats = t->stats;
    stats.pinned_rows = device_pool_rows(&t->pool);
    return stats;
}

void device_table_expire(struct device_table *t, uint32_t table, uint32_t expired_before)
{
    t->expired_before[table] = MAX(t->expired_before[table], expired_before);
    t->api->tables->expire(t->tables, t->stream, table, expired_before);
}

/* --- batches ----------------------------------------------------------------------------------------------
 */

static struct device_batch *announced(struct device_table *t, uint32_t step)
{
    for (uint32_t i = 0; i < t->ahead_count; i++)
        if (t->ahead[i].batch.step == step)
            return &t->ahead[i];
    return NULL;
}

/* Queues the question which keys are missing, and the copies of the answer. */
static void ask(struct device_table *t, struct device_batch *b)
{
    const struct gpu_batch *batch = &b->batch;
    const struct gpu_api *api = t->api;
    api->tables->missing(t->tables, t->stream, batch, b->device_missing, b->device_count);
    api->copy(t->stream, &b->counts[0], batch->count, sizeof *b->counts);
    api->copy(t->stream, &b->counts[1], b->device_count, sizeof *b->counts);
    api->copy(t->stream, b->missing, b->device_missing, batch->n * sizeof *b->missing);
    api->copy(t->stream, b->keys, batch->keys, batch->n * sizeof *b->keys);
    api->copy(t->stream, b->tables, batch->tables, batch->n * sizeof *b->tables);
    api->record(b->asked, t->stream);
}

bool device_table_ahead(struct device_table *t, const struct gpu_batch *batch, struct gpu_error *error)
{
    /* While this batch's question waits for the work queued before it: what is cold of earlier ones. */
    for (uint32_t i = 0; i < t->ahead_count; i++) {
        struct device_batch *b = &t->ahead[i];
        if (b->batch.step == TABLE_STEP_NONE || b->is_raised)
            continue;
        if (!t->api->wait_for(b->asked, error) || !device_raise(t, b, error))
            return false;
    }
    struct device_batch *b = announced(t, TABLE_STEP_NONE);
    leat_assert(b != NULL && batch->step != TABLE_STEP_NONE && announced(t, batch->step) == NULL);
    b->batch = *batch;
    b->is_raised = false;
    ask(t, b);
    return true;
}

bool device_table_step(struct device_table *t, const struct gpu_batch *batch, void **rows,
                       struct gpu_error *error)
{
    struct device_batch *b = announced(t, batch->step);
    if (b == NULL) {
        if (!device_table_ahead(t, batch, error))
            return false;
        b = announced(t, batch->step);
    }
    /* Again: rows that came for other batches since are to be spared from now on, and some may have had to
     * go. */
    ask(t, b);
    if (!t->api->wait_for(b->asked, error) || !device_fetch(t, b, error) ||
        !device_room(t, batch->step, error))
        return false;
    t->api->tables->resolve(t->tables, t->stream, batch, rows);
    b->batch.step = TABLE_STEP_NONE;
    return true;
}

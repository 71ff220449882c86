/* A device_table, its event time, and its batches, announced and due; table.h explains the rules. */
#include "learners/device/internal.h"

#include "core/mem.h"

#include <stdlib.h>

_Static_assert(sizeof(struct gpu_sketch_block) == sizeof(struct sketch_block) &&
                   offsetof(struct gpu_sketch_block, counts) == offsetof(struct sketch_block, counts) &&
                   (int)GPU_SKETCH_BLOCK == (int)SKETCH_BLOCK && (int)GPU_SKETCH_DEPTH == (int)SKETCH_DEPTH,
               "a GPU's blocks are those of checkpoints");

enum { STAGE_LEAST = 64, STAGE_MOST = 1 << 16 };

/* --- Stored rows --- */

void device_pack(const struct device_table *t, const struct gpu_row_head *head, const float *payload,
                 unsigned char *stored)
{
    struct table_row row = {.key = head->key, .count = head->count, .seen = head->seen, .epoch = head->epoch};
    memcpy(stored, &row, offsetof(struct table_row, step));
    const struct device_stored *s = &t->stored;
    size_t d = t->options.d, state = gpu_state_floats(&t->options);
    unsigned char *out = stored + offsetof(struct table_row, step);
    memset(out, 0, s->payload_bytes);
    memcpy(out + s->vector_at, payload, d * sizeof(*payload));
    memcpy(out + s->state_at, payload + d, state * sizeof(*payload));
    memcpy(out + s->linear_at, payload + d + state, s->linear_bytes);
}

void device_unpack(const struct device_table *t, uint32_t table, const unsigned char *stored, uint32_t slot)
{
    struct table_row row = {0};
    memcpy(&row, stored, offsetof(struct table_row, step));
    t->pool.heads[slot] = (struct gpu_row_head){
        .key = row.key, .table = table, .count = row.count, .seen = row.seen, .epoch = row.epoch};
    const struct device_stored *s = &t->stored;
    size_t d = t->options.d, state = gpu_state_floats(&t->options);
    const unsigned char *in = stored + offsetof(struct table_row, step);
    float *payload = device_pool_payload(&t->pool, slot);
    memcpy(payload, in + s->vector_at, d * sizeof(*payload));
    memcpy(payload + d, in + s->state_at, state * sizeof(*payload));
    memset(payload + d + state, 0, t->options.extra_floats * sizeof(*payload));
    memcpy(payload + d + state, in + s->linear_at, s->linear_bytes);
}

/* Returns the layout of stored payloads: that of the options, or, if they have none (payload_bytes 0), the
 * vector, the state and the extra floats without gaps. */
static struct device_stored stored_as(const struct device_table_options *options)
{
    const struct gpu_tables_options *o = &options->tables;
    struct device_stored s = options->stored;
    size_t vector = o->d * sizeof(float), state = gpu_state_floats(o) * sizeof(float);
    size_t extra = o->extra_floats * sizeof(float);
    if (s.payload_bytes == 0)
        s = (struct device_stored){.payload_bytes = vector + state + extra,
                                   .state_at = vector,
                                   .linear_at = vector + state,
                                   .linear_bytes = extra};
    leat_assert(s.linear_bytes <= extra && s.linear_at + s.linear_bytes <= s.payload_bytes);
    leat_assert(s.vector_at + vector <= s.payload_bytes && s.state_at + state <= s.payload_bytes);
    return s;
}

size_t device_table_stored_bytes(const struct device_table *t)
{
    return t->stored_bytes;
}

/* --- Making and freeing --- */

static bool batch_init(struct device_table *t, struct device_batch *b, struct gpu_error *error)
{
    const struct gpu_api *api = t->api;
    size_t n = MAX(t->options.batch_max, 1U);
    b->raised = mem_alloc(n * sizeof(*b->raised));
    return (b->asked = api->event(t->gpu, error)) != NULL &&
           (b->keys = api->alloc_pinned(t->gpu, n * sizeof(*b->keys), error)) != NULL &&
           (b->tables = api->alloc_pinned(t->gpu, n * sizeof(*b->tables), error)) != NULL &&
           (b->missing = api->alloc_pinned(t->gpu, n * sizeof(*b->missing), error)) != NULL &&
           (b->counts = api->alloc_pinned(t->gpu, 2 * sizeof(*b->counts), error)) != NULL &&
           (b->device_missing = api->alloc(t->gpu, n * sizeof(*b->device_missing), error)) != NULL &&
           (b->device_count = api->alloc(t->gpu, sizeof(*b->device_count), error)) != NULL;
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
    void *memory = mem_calloc(MAX(count, (size_t)1), size);
    return memory;
}

static void make_arrays(struct device_table *t, const struct device_table_options *options)
{
    size_t n = options->tables.tables;
    struct gpu_table_options *copies = zeroed(n, sizeof(*copies));
    memcpy(copies, options->tables.table, n * sizeof(*copies));
    t->options.table = copies;
    t->has_stored = zeroed(n, sizeof(*t->has_stored));
    t->rows_stored = zeroed(n, sizeof(*t->rows_stored));
    t->expired_before = zeroed(n, sizeof(*t->expired_before));
    t->halved_at_us = zeroed(n, sizeof(*t->halved_at_us));
    for (size_t i = 0; i < n; i++)
        t->halved_at_us[i] = INT64_MIN;
    t->rows_new = zeroed(n, sizeof(*t->rows_new));
    t->rows_cold = zeroed(n, sizeof(*t->rows_cold));
    t->removed = zeroed(n, sizeof(*t->removed));
    t->removed_since = zeroed(n, sizeof(*t->removed_since));
    t->at_waiting = zeroed(t->stage, sizeof(*t->at_waiting));
    t->store_keys = zeroed(DEVICE_STORE_BATCH, sizeof(*t->store_keys));
    t->store_times = zeroed(DEVICE_STORE_BATCH, sizeof(*t->store_times));
    t->store_found = zeroed(DEVICE_STORE_BATCH, sizeof(*t->store_found));
    t->store_slots = zeroed(DEVICE_STORE_BATCH, sizeof(*t->store_slots));
    t->store_rows = zeroed(DEVICE_STORE_BATCH, t->stored_bytes);
    t->ahead_count = MAX(options->ahead, 1U) + 1; /* one more, for the batch that is due */
    t->ahead = zeroed(t->ahead_count, sizeof(*t->ahead));
}

/* Takes pinned memory for sketches' blocks on their way. */
static bool blocks_init(struct device_table *t, struct gpu_error *error)
{
    uint64_t blocks = 0;
    for (uint32_t i = 0; i < t->options.tables; i++)
        blocks += gpu_sketch_blocks(&t->options.table[i]);
    if (blocks == 0)
        return true;
    t->blocks = t->api->alloc_pinned(t->gpu, DEVICE_SKETCH_PIECE * sizeof(*t->blocks), error);
    t->blocks_count =
        t->blocks != NULL ? t->api->alloc_pinned(t->gpu, sizeof(*t->blocks_count), error) : NULL;
    return t->blocks_count != NULL;
}

static bool init(struct device_table *t, const struct device_table_options *options, struct gpu_error *error)
{
    uint64_t none = 0;
    t->tables = t->api->tables->create(t->gpu, &t->options, error);
    if (t->tables == NULL ||
        !device_pool_init(&t->pool, t->api, t->gpu, t->floats, options->pinned_bytes, t->stage, error) ||
        !device_snapshot_init(&t->snapshot, t, options->snapshot_bytes, error) ||
        (t->at = t->api->alloc_pinned(t->gpu, t->stage * sizeof(*t->at), error)) == NULL)
        return false;
    for (uint32_t i = 0; i < t->ahead_count; i++)
        if (!batch_init(t, &t->ahead[i], error))
            return false;
    if (!batch_init(t, &t->found, error) || !blocks_init(t, error))
        return false;
    /* removed keys are listed from now on */
    return t->api->tables->take_removed(t->tables, t->stream, NULL, 0, &none, error);
}

struct device_table *device_table_new(const struct device_table_options *options, struct gpu_error *error)
{
    struct device_table *t = zeroed(1, sizeof(*t));
    const struct gpu_tables_options *o = &options->tables;
    t->api = options->api;
    t->gpu = options->gpu;
    t->stream = options->stream;
    t->options = *o;
    t->floats = gpu_payload_floats(o);
    t->expire_after_us = options->expire_after_us;
    t->watermark_us = INT64_MIN;
    t->stored = stored_as(options);
    t->stored_bytes = offsetof(struct table_row, step) + t->stored.payload_bytes;
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
    device_snapshot_free(&t->snapshot);
    device_cut_free(t);
    t->api->free_pinned(t->gpu, t->at);
    t->api->free_pinned(t->gpu, t->blocks);
    t->api->free_pinned(t->gpu, t->blocks_count);
    for (uint32_t i = 0; i < t->ahead_count; i++)
        batch_free(t, &t->ahead[i]);
    batch_free(t, &t->found);
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
                            t->halved_at_us,
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
                            t->ahead,
                            t->rows_stored};
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

struct device_table_below device_table_below(const struct device_table *t, uint32_t table)
{
    struct device_table_below below = {.cold = t->rows_stored[table]};
    for (uint32_t slot = 0; slot < t->pool.room; slot++) {
        const struct gpu_row_head *head = &t->pool.heads[slot];
        below.pinned += head->key != 0 && head->table == table && !t->pool.is_busy[slot];
    }
    return below;
}

struct cold_store *device_table_store(const struct device_table *t, uint32_t table)
{
    return t->stores[table];
}

/* --- Event time --- */

void device_table_expire(struct device_table *t, uint32_t table, uint32_t expired_before)
{
    t->expired_before[table] = MAX(t->expired_before[table], expired_before);
    t->api->tables->expire(t->tables, t->stream, table, expired_before);
}

void device_table_set_watermark(struct device_table *t, int64_t watermark_us, uint32_t epoch)
{
    int64_t after = t->expire_after_us;
    if (watermark_us <= t->watermark_us || after <= 0)
        return;
    t->watermark_us = watermark_us;
    uint32_t expired_before = table_expiry(watermark_us, after);
    for (uint32_t i = 0; i < t->options.tables; i++) {
        if (t->options.table[i].admit_after > 1)
            for (unsigned n = table_halvings(&t->halved_at_us[i], watermark_us, after); n > 0; n--)
                t->api->tables->halve_sketch(t->tables, t->stream, i, epoch);
        if (expired_before > 0)
            device_table_expire(t, i, expired_before);
    }
}

struct device_table_times device_table_times(const struct device_table *t, uint32_t table)
{
    return (struct device_table_times){t->halved_at_us[table], t->watermark_us, t->expired_before[table]};
}

void device_table_set_times(struct device_table *t, uint32_t table, const struct device_table_times *times)
{
    t->halved_at_us[table] = times->halved_at_us;
    t->watermark_us = times->watermark_us;
    device_table_expire(t, table, times->expired_before);
}

/* --- Batches --- */

static struct device_batch *announced(struct device_table *t, uint32_t step)
{
    for (uint32_t i = 0; i < t->ahead_count; i++)
        if (t->ahead[i].batch.step == step)
            return &t->ahead[i];
    return NULL;
}

/* Queues the question which of the batch's keys are missing, and the copies of the answer. */
static void ask(struct device_table *t, struct device_batch *b)
{
    const struct gpu_batch *batch = &b->batch;
    const struct gpu_api *api = t->api;
    api->tables->missing(t->tables, t->stream, batch, b->device_missing, b->device_count);
    api->copy(t->stream, &b->counts[0], batch->count, sizeof(*b->counts));
    api->copy(t->stream, &b->counts[1], b->device_count, sizeof(*b->counts));
    api->copy(t->stream, b->missing, b->device_missing, batch->n * sizeof(*b->missing));
    api->copy(t->stream, b->keys, batch->keys, batch->n * sizeof(*b->keys));
    api->copy(t->stream, b->tables, batch->tables, batch->n * sizeof(*b->tables));
    api->record(b->asked, t->stream);
    b->is_asked = true;
}

static bool lies_below(const struct device_table *t)
{
    bool is_below = device_pool_rows(&t->pool) > 0;
    for (uint32_t i = 0; i < t->options.tables; i++)
        is_below |= t->has_stored[i];
    return is_below;
}

bool device_table_ahead(struct device_table *t, const struct gpu_batch *batch, struct gpu_error *error)
{
    /* Load the cold rows of earlier batches while this batch's question waits for the work
     * queued before it. */
    for (uint32_t i = 0; i < t->ahead_count; i++) {
        struct device_batch *b = &t->ahead[i];
        if (b->batch.step == TABLE_STEP_NONE || !b->is_asked || b->is_raised)
            continue;
        if (!t->api->wait_for(b->asked, error) || !device_raise(t, b, error))
            return false;
    }
    struct device_batch *b = announced(t, TABLE_STEP_NONE);
    leat_assert(b != NULL && batch->step != TABLE_STEP_NONE && announced(t, batch->step) == NULL);
    b->batch = *batch;
    b->is_raised = b->is_asked = false;
    if (lies_below(t))
        ask(t, b);
    return true;
}

/* Makes room for all rows that the batch may bring, while no row lies in a lower tier. *has_room false:
 * missing keys have to be asked for. */
static bool room_unasked(struct device_table *t, const struct gpu_batch *batch, bool *has_room,
                         struct gpu_error *error)
{
    const struct gpu_table_api *api = t->api->tables;
    *has_room = false;
    if (t->is_tight || lies_below(t))
        return true;
    for (uint32_t i = 0; i < t->options.tables; i++)
        t->rows_new[i] = batch->places != NULL ? batch->places[i] : batch->n;
    *has_room = api->has_room(t->tables, t->rows_new, batch->n);
    if (*has_room)
        return true;
    if (!api->make_room(t->tables, t->stream, t->rows_new, t->rows_cold, error))
        return false;
    *has_room = true;
    for (uint32_t i = 0; i < t->options.tables; i++)
        *has_room = *has_room && t->rows_cold[i] == 0;
    t->is_tight = !*has_room;
    return true;
}

/* Moves all of a batch's rows in lower tiers into the GPU's memory. */
static bool bring(struct device_table *t, struct device_batch *b, struct gpu_error *error)
{
    ask(t, b);
    return t->api->wait_for(b->asked, error) && device_fetch(t, b, error);
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
    bool has_room = false;
    if (!room_unasked(t, batch, &has_room, error))
        return false;
    /* Missing keys were asked for when the batch was announced. Ask again: rows fetched for other batches
     * since then must be spared from now on, and some rows may have been sent down. */
    t->due = b;
    if (!has_room && (!bring(t, b, error) || !device_room(t, batch->step, error)))
        return false;
    t->due = NULL;
    t->api->tables->resolve(t->tables, t->stream, batch, rows);
    b->batch.step = TABLE_STEP_NONE;
    return true;
}

bool device_table_find(struct device_table *t, const struct gpu_batch *batch, void **rows,
                       struct gpu_error *error)
{
    leat_assert(batch->step != TABLE_STEP_NONE);
    if (lies_below(t)) {
        t->found.batch = *batch;
        t->due = &t->found;
        if (!bring(t, &t->found, error))
            return false;
        t->due = NULL;
    }
    t->api->tables->find(t->tables, t->stream, batch->keys, batch->tables, batch->count, batch->n, rows);
    return true;
}

void device_table_refresh(struct device_table *t, const struct gpu_batch *batch)
{
    t->api->tables->refresh(t->tables, t->stream, batch);
}

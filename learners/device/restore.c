/* Removed keys, and restoring, of a device_table's checkpoints; table.h explains the rules. Writing is
 * in snapshot.c. */
#include "learners/device/internal.h"

#include "core/mem.h"

#include <stdio.h>
#include <stdlib.h>

enum { REMOVED_PIECE = 4096, RESTORED_LEAST = 16 };

/* --- Removed keys --- */

void device_list_moved(struct device_table *t, uint32_t table, uint64_t key)
{
    table_keys_add(t->is_in_snapshot ? &t->removed_since[table] : &t->removed[table], key);
}

void device_list_removed(struct device_table *t, uint32_t table, uint64_t key)
{
    device_list_moved(t, table, key);
    if (t->cut != NULL)
        table_keys_add(&t->cut->parts[table].removed, key);
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void sort_keys(struct table_keys *keys)
{
    size_t count = 0;
    if (keys->count == 0)
        return;
    qsort(keys->items, keys->count, sizeof(*keys->items), by_number);
    for (size_t i = 0; i < keys->count; i++)
        if (i == 0 || keys->items[i] != keys->items[count - 1])
            keys->items[count++] = keys->items[i];
    keys->count = count;
}

bool device_collect_removed(struct device_table *t, struct gpu_error *error)
{
    struct gpu_row_head *heads = mem_calloc(REMOVED_PIECE, sizeof(*heads));
    uint64_t count = REMOVED_PIECE;
    bool is_good = true;
    while (is_good && count == REMOVED_PIECE) {
        is_good = t->api->tables->take_removed(t->tables, t->stream, heads, REMOVED_PIECE, &count, error);
        for (uint64_t i = 0; is_good && i < count; i++)
            device_list_removed(t, heads[i].table, heads[i].key);
    }
    free(heads);
    return is_good;
}

bool device_take_removed(struct device_table *t, struct gpu_error *error)
{
    bool is_good = device_collect_removed(t, error);
    for (uint32_t i = 0; i < t->options.tables; i++)
        sort_keys(&t->removed[i]);
    return is_good;
}

const struct table_keys *device_table_removed(const struct device_table *t, uint32_t table)
{
    leat_assert(t->is_in_snapshot);
    return &t->removed[table];
}

void device_table_snapshot_end(struct device_table *t, bool is_published)
{
    leat_assert(t->is_in_snapshot);
    t->is_in_snapshot = false;
    /* still true if the snapshot was begun, held the tables and was never written */
    atomic_store_explicit(&t->snapshot.is_held, false, memory_order_release);
    for (uint32_t i = 0; i < t->options.tables; i++) {
        if (is_published)
            t->removed[i].count = 0;
        for (size_t k = 0; k < t->removed_since[i].count; k++)
            table_keys_add(&t->removed[i], t->removed_since[i].items[k]);
        t->removed_since[i].count = 0;
    }
}

/* --- Restoring --- */

/* Drops from the pool's index the rows, if any, of the keys that lie in its first n stage slots. */
static void drop_below(struct device_table *t, uint32_t table, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t old = device_pool_find(&t->pool, table, t->pool.heads[t->pool.room + i].key);
        if (old != BATCH_NONE)
            device_pool_drop(&t->pool, old);
    }
}

static bool restore_piece(struct device_table *t, uint32_t table, const unsigned char *rows, uint32_t n,
                          struct gpu_error *error)
{
    for (uint32_t i = 0; i < n; i++) {
        t->at[i] = t->pool.room + i;
        device_unpack(t, table, rows + i * t->stored_bytes, t->at[i]);
    }
    drop_below(t, table, n);
    if (!device_import(t, n, TABLE_STEP_NONE, false, error))
        return false;
    drop_below(t, table, n); /* making room for the new rows may have sent older ones down */
    return true;
}

/* Restores rows in pieces of at most t->stage rows, of fewer if the GPU's memory has no room for as many. */
bool device_table_restore(struct device_table *t, uint32_t table, const void *stored, size_t count,
                          struct gpu_error *error)
{
    const unsigned char *rows = stored;
    uint32_t most = t->stage;
    t->is_in_restore = true;
    for (size_t from = 0, n; from < count; from += n) {
        n = MIN(count - from, (size_t)most);
        struct gpu_error full;
        while (!restore_piece(t, table, rows + from * t->stored_bytes, (uint32_t)n, &full)) {
            if (full.failure != GPU_NO_MEMORY || n <= RESTORED_LEAST) {
                *error = full;
                return false;
            }
            most = MAX((uint32_t)n / 2, (uint32_t)RESTORED_LEAST);
            n = MIN(n, (size_t)most);
        }
    }
    return true;
}

bool device_table_restore_remove(struct device_table *t, uint32_t table, const uint64_t *keys, size_t count,
                                 struct gpu_error *error)
{
    uint64_t *device_keys = t->api->alloc(t->gpu, t->stage * sizeof(*device_keys), error);
    uint32_t *device_tables = t->api->alloc(t->gpu, t->stage * sizeof(*device_tables), error);
    bool is_good = device_keys != NULL && device_tables != NULL;
    for (size_t from = 0; is_good && from < count; from += t->stage) {
        uint32_t n = (uint32_t)MIN(count - from, (size_t)t->stage);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t slot = device_pool_find(&t->pool, table, keys[from + i]);
            if (slot != BATCH_NONE)
                device_pool_drop(&t->pool, slot);
            t->at[i] = table;
        }
        t->api->copy(t->stream, device_keys, keys + from, n * sizeof(*keys));
        t->api->copy(t->stream, device_tables, t->at, n * sizeof(*t->at));
        t->api->tables->remove(t->tables, t->stream, device_keys, device_tables, n);
        is_good = t->api->wait(t->stream, error);
    }
    t->api->free(t->gpu, device_keys);
    t->api->free(t->gpu, device_tables);
    return is_good;
}

bool device_table_restore_counts(struct device_table *t, uint32_t table, const struct sketch_block *blocks,
                                 size_t count, struct gpu_error *error)
{
    uint64_t all = gpu_sketch_blocks(&t->options.table[table]);
    for (size_t i = 0; i < count; i++) {
        if (blocks[i].number < all)
            continue;
        *error = (struct gpu_error){.failure = GPU_UNSUPPORTED};
        (void)snprintf(
            error->text, sizeof(error->text),
            "A checkpoint has block %llu of the occurrence sketch of table %u, but the sketch has only "
            "%llu blocks.",
            (unsigned long long)blocks[i].number, table, (unsigned long long)all);
        return false;
    }
    for (size_t from = 0; from < count; from += DEVICE_SKETCH_PIECE) {
        uint32_t n = (uint32_t)MIN(count - from, (size_t)DEVICE_SKETCH_PIECE);
        memcpy(t->blocks, blocks + from, n * sizeof(*t->blocks));
        t->api->tables->import_sketch(t->tables, t->stream, table, t->blocks, n);
        if (!t->api->wait(t->stream, error))
            return false;
    }
    return true;
}

bool device_table_restored(struct device_table *t, struct gpu_error *error)
{
    leat_assert(!t->is_in_snapshot);
    bool is_good = device_collect_removed(t, error);
    t->is_in_restore = false;
    for (uint32_t i = 0; i < t->options.tables; i++) {
        t->removed[i].count = 0;
        t->has_stored[i] = t->rows_stored[i] > 0; /* rows that this restore moved to the store */
    }
    return is_good;
}

bool device_table_restored_cold(struct device_table *t, uint32_t table, uint64_t rows,
                                struct gpu_error *error)
{
    struct gpu_table_stats stats = {0};
    leat_assert(t->stores[table] != NULL);
    if (!t->api->tables->stats(t->tables, t->stream, table, &stats, error))
        return false;
    uint64_t above = stats.rows + device_table_below(t, table).pinned;
    t->rows_stored[table] = rows - MIN(rows, above);
    t->has_stored[table] = true;
    return true;
}

/* Moving rows between a GPU's memory, pinned memory and the cold store; table.h explains the rules. */
#include "learners/device/internal.h"

#include <stdio.h>
#include <stdlib.h>

static bool no_store(struct gpu_error *error, const char *what)
{
    *error = (struct gpu_error){.failure = GPU_FAILED};
    (void)snprintf(
        error->text, sizeof(error->text),
        "The cold store of an embedding table could not %s rows; the job must end and start again from its "
        "last checkpoint.",
        what);
    return false;
}

/* --- From the pool to the cold store --- */

struct spill {
    uint32_t table, slot;
    uint64_t key;
};

static int by_table_and_key(const void *a, const void *b)
{
    const struct spill *x = a, *y = b;
    if (x->table != y->table)
        return x->table < y->table ? -1 : 1;
    return (x->key > y->key) - (x->key < y->key);
}

/*
 * During a restore: sets store_found[i] to whether the store has the i-th row in the pool's version or a
 * newer one. A restore reads the base before the deltas, so the pool may have an old version of a row that
 * had already moved to the store when the checkpoint was made.
 */
static bool ask_for_newer(struct device_table *t, const struct spill *rows, size_t count,
                          struct gpu_error *error)
{
    struct cold_store *store = t->stores[rows[0].table];
    for (size_t i = 0; i < count; i++)
        t->store_keys[i] = rows[i].key;
    if (!store->get(store->self, t->store_keys, t->store_rows, t->stored_bytes, count, t->store_found))
        return no_store(error, "read");
    for (size_t i = 0; i < count; i++) {
        struct table_row head = {0};
        memcpy(&head, t->store_rows + i * t->stored_bytes, offsetof(struct table_row, step));
        t->store_found[i] = t->store_found[i] && head.epoch >= t->pool.heads[rows[i].slot].epoch;
    }
    return true;
}

/* Moves rows of one table, sorted by rising key, from the pool to the store. */
static bool put_rows(struct device_table *t, const struct spill *rows, size_t count, struct gpu_error *error)
{
    uint32_t table = rows[0].table;
    struct cold_store *store = t->stores[table];
    if (t->is_in_restore && !ask_for_newer(t, rows, count, error))
        return false;
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        const struct gpu_row_head *head = &t->pool.heads[rows[i].slot];
        if (t->is_in_restore && t->store_found[i])
            continue;
        t->store_keys[n] = head->key;
        t->store_times[n] = (int64_t)head->seen * US_PER_SECOND;
        unsigned char *stored = t->store_rows + n++ * t->stored_bytes;
        device_pack(t, head, device_pool_payload(&t->pool, rows[i].slot), stored);
        device_cut_moved(t, head, stored);
    }
    if (n > 0 && !store->put(store->self, t->store_keys, t->store_times, t->store_rows, t->stored_bytes, n))
        return no_store(error, "write");
    t->has_stored[table] = true;
    t->rows_stored[table] += count;
    t->stats.spilled += n;
    for (size_t i = 0; i < count; i++) {
        device_list_moved(t, table, rows[i].key);
        device_pool_drop(&t->pool, rows[i].slot);
    }
    return true;
}

/* Collects up to `limit` rows that may go to a store, from the pool's hand on, at most once round the pool.
 * Removes expired rows. Returns the number collected; rows: sorted by table and key. */
static size_t collect(struct device_table *t, struct spill *rows, size_t limit)
{
    struct device_pool *p = &t->pool;
    size_t count = 0;
    for (uint32_t passed = 0; passed < p->room && count < limit; passed++) {
        uint32_t slot = p->hand;
        p->hand = p->hand + 1 < p->room ? p->hand + 1 : 0;
        const struct gpu_row_head *head = &p->heads[slot];
        if (head->key == 0 || p->is_busy[slot])
            continue;
        if (device_table_is_expired(t, head)) {
            device_list_removed(t, head->table, head->key);
            device_pool_drop(p, slot);
        } else if (t->stores[head->table] != NULL) {
            rows[count++] = (struct spill){head->table, slot, head->key};
        }
    }
    qsort(rows, count, sizeof(*rows), by_table_and_key);
    return count;
}

static bool all_take_rows(const struct device_table *t)
{
    bool take = true;
    for (uint32_t i = 0; i < t->options.tables; i++)
        take = take && (t->stores[i] == NULL || t->stores[i]->takes_rows(t->stores[i]->self));
    return take;
}

bool device_table_is_pressed(const struct device_table *t)
{
    return t->pool.free_count < t->stage && !all_take_rows(t);
}

bool device_pool_room(struct device_table *t, uint32_t count, struct gpu_error *error)
{
    struct spill rows[DEVICE_STORE_BATCH];
    /* A store that takes no rows yet keeps them in its memory: then give it no more than necessary. */
    size_t more = t->pool.free_count < count && all_take_rows(t) ? t->pool.room / 16 : 0;
    while (t->pool.free_count < count) {
        size_t wanted = MIN((size_t)count - t->pool.free_count + more, ARRAY_COUNT(rows));
        size_t found = collect(t, rows, wanted);
        for (size_t at = 0, end; at < found; at = end) {
            for (end = at + 1; end < found && rows[end].table == rows[at].table; end++)
                continue;
            if (!put_rows(t, rows + at, end - at, error))
                return false;
        }
        if (found == 0 && t->pool.free_count < count) {
            *error = (struct gpu_error){.failure = GPU_NO_MEMORY};
            (void)snprintf(
                error->text, sizeof(error->text),
                "Pinned memory for cold rows of embedding tables is full (%u rows), and there is no "
                "cold store below it. Make `pinned_memory` or `device_memory` larger, or limit the rows "
                "by `rows_max`.",
                t->pool.room);
            return false;
        }
    }
    return true;
}

/* --- From the GPU's memory to the pool --- */

/* Sends up to `count` of a table's oldest rows that no step from `spared` on uses; *sent: how many. */
static bool send(struct device_table *t, uint32_t table, uint64_t count, uint32_t spared, uint64_t *sent,
                 struct gpu_error *error)
{
    *sent = 0;
    while (*sent < count) {
        uint32_t n = (uint32_t)MIN(count - *sent, (uint64_t)t->stage), taken = 0;
        if (!device_pool_room(t, n, error))
            return false;
        for (uint32_t i = 0; i < n; i++)
            t->at[i] = device_pool_take(&t->pool);
        if (!t->api->tables->take_oldest(t->tables, t->stream, table, spared, n, t->pool.heads,
                                         t->pool.payloads, t->at, &taken, error))
            return false;
        for (uint32_t i = 0; i < n; i++) {
            const struct gpu_row_head *head = &t->pool.heads[t->at[i]];
            bool is_row = i < taken && !device_table_is_expired(t, head);
            if (i < taken && !is_row)
                device_list_removed(t, table, head->key);
            if (is_row)
                device_pool_add(&t->pool, t->at[i]);
            else
                device_pool_give(&t->pool, t->at[i]);
        }
        *sent += taken;
        t->stats.sent += taken;
        if (taken < n)
            break;
    }
    return true;
}

/*
 * Lets rows go that announced batches need, except those of the due batch: the due batch's rows are marked
 * with a step after all announced ones, and after the mark of an earlier call for another step. Returns that
 * step: rows with an earlier one may go.
 */
static uint32_t unspare(struct device_table *t, uint32_t step)
{
    uint32_t last = step;
    for (uint32_t i = 0; i < t->ahead_count; i++) {
        uint32_t other = t->ahead[i].batch.step;
        if (other != TABLE_STEP_NONE && (int32_t)(other - last) > 0)
            last = other;
    }
    if (t->stats.unspared == 0 || t->unspared_for != step) {
        bool is_behind = t->stats.unspared > 0 && (int32_t)(t->unspared_mark - last) > 0;
        t->unspared_mark = (is_behind ? t->unspared_mark : last) + 1;
        t->unspared_for = step;
    }
    if (t->due != NULL) {
        struct gpu_batch marked = t->due->batch;
        marked.step = t->unspared_mark;
        t->api->tables->missing(t->tables, t->stream, &marked, t->due->device_missing, t->due->device_count);
    }
    t->stats.unspared++;
    return t->unspared_mark;
}

static bool too_small(const struct device_table *t, uint64_t rows, struct gpu_error *error)
{
    *error = (struct gpu_error){.failure = GPU_NO_MEMORY};
    (void)snprintf(error->text, sizeof(error->text),
                   "A batch needs %llu rows more than fit into the %llu MiB of device memory that embedding "
                   "tables may take. Make `device_memory` larger or `batch` smaller.",
                   (unsigned long long)rows, (unsigned long long)(t->options.memory_bytes >> 20));
    return false;
}

bool device_room(struct device_table *t, uint32_t step, struct gpu_error *error)
{
    uint32_t spared = step;
    if (t->api->tables->has_room(t->tables, t->rows_new, t->due != NULL ? t->due->batch.n : 0))
        return true;
    for (;;) {
        if (!t->api->tables->make_room(t->tables, t->stream, t->rows_new, t->rows_cold, error))
            return false;
        uint64_t lacking = 0;
        bool is_short = false;
        for (uint32_t i = 0; i < t->options.tables; i++) {
            uint64_t sent = 0;
            lacking += t->rows_cold[i];
            if (t->rows_cold[i] == 0)
                continue;
            uint64_t more = t->rows_cold[i] + MIN(t->rows_cold[i] / 4, (uint64_t)t->stage);
            if (!send(t, i, more, spared, &sent, error))
                return false;
            is_short |= sent < t->rows_cold[i];
        }
        if (lacking == 0)
            return true;
        if (is_short && spared != step)
            return too_small(t, lacking, error);
        if (is_short)
            spared = unspare(t, step);
    }
}

/* --- Up --- */

/* Makes room for the rows of t->at[0 .. count), and keeps t->at, which sending rows down overwrites. */
static bool import_room(struct device_table *t, uint32_t count, uint32_t step, struct gpu_error *error)
{
    memset(t->rows_new, 0, t->options.tables * sizeof(*t->rows_new));
    for (uint32_t i = 0; i < count; i++)
        t->rows_new[t->pool.heads[t->at[i]].table]++;
    memcpy(t->at_waiting, t->at, count * sizeof(*t->at));
    bool has_room = device_room(t, step, error);
    memcpy(t->at, t->at_waiting, count * sizeof(*t->at));
    return has_room;
}

/* Counts `count` rows as moved up from the table's store: the copies that the store keeps of them are not
 * counted in rows_stored. */
static void leave_store(struct device_table *t, uint32_t table, uint32_t count)
{
    t->rows_stored[table] -= MIN(t->rows_stored[table], (uint64_t)count);
}

/* Frees the pool slot of a row that was moved up or has expired. A row that is not in the pool's index is a
 * copy from the store, raised for a batch. */
static void leave_pool(struct device_table *t, uint32_t slot)
{
    const struct gpu_row_head *head = &t->pool.heads[slot];
    if (device_pool_find(&t->pool, head->table, head->key) == slot) {
        device_pool_drop(&t->pool, slot);
    } else {
        leave_store(t, head->table, 1);
        device_pool_give(&t->pool, slot);
    }
}

bool device_import(struct device_table *t, uint32_t count, uint32_t step, bool keeps, struct gpu_error *error)
{
    if (count == 0)
        return true;
    for (uint32_t i = 0; i < count; i++)
        if (t->at[i] < t->pool.room)
            t->pool.is_busy[t->at[i]] = true;
    struct gpu_error full; /* not the caller's error, as long as room can be made */
    while (!t->api->tables->import_rows(t->tables, t->stream, t->pool.heads, t->pool.payloads, count, t->at,
                                        step, keeps, &full)) {
        if (full.failure != GPU_NO_MEMORY)
            *error = full;
        if (full.failure != GPU_NO_MEMORY || !import_room(t, count, step, error))
            return false;
    }
    for (uint32_t i = 0; i < count; i++)
        if (t->at[i] < t->pool.room)
            leave_pool(t, t->at[i]);
    t->stats.fetched += count;
    return true;
}

/* Asks the store of `table` for t->store_keys[0 .. count); store_found[i]: row i was found and
 * has not expired. */
static bool get_rows(struct device_table *t, uint32_t table, size_t count, struct gpu_error *error)
{
    struct cold_store *store = t->stores[table];
    if (!store->get(store->self, t->store_keys, t->store_rows, t->stored_bytes, count, t->store_found))
        return no_store(error, "read");
    for (size_t i = 0; i < count; i++) {
        struct table_row head = {0};
        memcpy(&head, t->store_rows + i * t->stored_bytes, offsetof(struct table_row, step));
        t->store_found[i] = t->store_found[i] && head.seen >= t->expired_before[table];
        t->stats.loaded += t->store_found[i];
    }
    return true;
}

void device_unraise(struct device_table *t, struct device_batch *b)
{
    for (uint32_t u = 0; b->is_raised && u < b->batch.n; u++)
        if (b->raised[u] != BATCH_NONE)
            device_pool_give(&t->pool, b->raised[u]);
    b->is_raised = false;
}

/* Loads into pool slots the rows of one table that the batch misses, that the pool does not have and the
 * store has, as long as the pool keeps free slots for two stages. */
static bool raise_table(struct device_table *t, struct device_batch *b, uint32_t table,
                        struct gpu_error *error)
{
    for (uint32_t m = 0; m < b->counts[1];) {
        size_t count = 0;
        uint32_t spare = t->pool.free_count - MIN(t->pool.free_count, 2 * t->stage);
        for (; m < b->counts[1] && count < MIN(spare, (uint32_t)DEVICE_STORE_BATCH); m++) {
            uint32_t u = b->missing[m];
            if (b->tables[u] != table || device_pool_find(&t->pool, table, b->keys[u]) != BATCH_NONE)
                continue;
            t->store_slots[count] = m;
            t->store_keys[count++] = b->keys[u];
        }
        if (count == 0)
            break;
        if (!get_rows(t, table, count, error))
            return false;
        for (size_t i = 0; i < count; i++) {
            if (!t->store_found[i])
                continue;
            uint32_t slot = device_pool_take(&t->pool);
            device_unpack(t, table, t->store_rows + i * t->stored_bytes, slot);
            t->pool.is_busy[slot] = true;
            b->raised[b->missing[t->store_slots[i]]] = slot;
        }
    }
    return true;
}

bool device_raise(struct device_table *t, struct device_batch *b, struct gpu_error *error)
{
    memset(b->raised, 0xff, b->batch.n * sizeof(*b->raised));
    b->is_raised = true;
    b->spilled = t->stats.spilled;
    for (uint32_t table = 0; table < t->options.tables; table++)
        if (t->has_stored[table] && !raise_table(t, b, table, error))
            return false;
    return true;
}

/*
 * The slot of the m-th missing key's row in pinned memory, or BATCH_NONE. If the pool has the row, its raised
 * copy is discarded: the row was fetched for another batch in the meantime, and sent down again.
 */
static uint32_t pinned_slot(struct device_table *t, struct device_batch *b, uint32_t m)
{
    uint32_t u = b->missing[m], slot = device_pool_find(&t->pool, b->tables[u], b->keys[u]);
    uint32_t raised = b->is_raised ? b->raised[u] : BATCH_NONE;
    if (raised == BATCH_NONE)
        return slot;
    b->raised[u] = BATCH_NONE;
    if (slot == BATCH_NONE)
        return raised;
    device_pool_give(&t->pool, raised);
    return slot;
}

/* Fetches missing rows that lie in pinned memory. */
static bool fetch_pinned(struct device_table *t, struct device_batch *b, struct gpu_error *error)
{
    if (b->is_raised && b->spilled != t->stats.spilled)
        device_unraise(t, b); /* the store may have newer versions of raised rows */
    for (uint32_t m = 0; m < b->counts[1];) {
        uint32_t count = 0;
        for (; m < b->counts[1] && count < t->stage; m++) {
            uint32_t slot = pinned_slot(t, b, m);
            if (slot == BATCH_NONE)
                continue;
            if (device_table_is_expired(t, &t->pool.heads[slot])) {
                device_list_removed(t, t->pool.heads[slot].table, t->pool.heads[slot].key);
                leave_pool(t, slot);
            } else {
                b->missing[m] = BATCH_NONE;
                t->at[count++] = slot;
            }
        }
        if (!device_import(t, count, b->batch.step, true, error))
            return false;
        if (b->is_raised && b->spilled != t->stats.spilled)
            device_unraise(t, b);
    }
    device_unraise(t, b); /* copies of keys that are no longer missing */
    return true;
}

/* Fetches rows that are still missing from the cold stores, through the slots for rows on their way. */
static bool fetch_cold(struct device_table *t, struct device_batch *b, uint32_t table,
                       struct gpu_error *error)
{
    size_t most = MIN(t->stage, (uint32_t)DEVICE_STORE_BATCH);
    for (uint32_t m = 0; m < b->counts[1];) {
        size_t count = 0;
        for (; m < b->counts[1] && count < most; m++) {
            if (b->missing[m] == BATCH_NONE || b->tables[b->missing[m]] != table)
                continue;
            t->store_slots[count] = m;
            t->store_keys[count++] = b->keys[b->missing[m]];
        }
        if (count == 0)
            break;
        if (!get_rows(t, table, count, error))
            return false;
        uint32_t found = 0;
        for (size_t i = 0; i < count; i++) {
            if (!t->store_found[i])
                continue;
            b->missing[t->store_slots[i]] = BATCH_NONE;
            t->at[found] = t->pool.room + found;
            device_unpack(t, table, t->store_rows + i * t->stored_bytes, t->at[found++]);
        }
        if (!device_import(t, found, b->batch.step, true, error))
            return false;
        leave_store(t, table, found);
    }
    return true;
}

bool device_fetch(struct device_table *t, struct device_batch *b, struct gpu_error *error)
{
    if (!fetch_pinned(t, b, error))
        return false;
    for (uint32_t table = 0; table < t->options.tables; table++)
        if (t->has_stored[table] && !fetch_cold(t, b, table, error))
            return false;
    memset(t->rows_new, 0, t->options.tables * sizeof(*t->rows_new));
    for (uint32_t m = 0; m < b->counts[1]; m++)
        if (b->missing[m] != BATCH_NONE)
            t->rows_new[b->tables[b->missing[m]]]++;
    return true;
}

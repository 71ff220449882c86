/* Cold rows of learners in the shared database; see core/cold_store.h. Rows that are put while a checkpoint
 * holds the database wait in a table in memory, and are read from there. */
#include "core/buffer.h"
#include "core/mem.h"
#include "core/os.h"
#include "state/store.h"

#include <stdlib.h>

enum { COLD_KIND = 'c', COLD_KEY_BYTES = STORE_PREFIX_BYTES + 1 + 8, COLD_SHARDS_MAX = 255 };

/* A slot of an open-addressing table. state: 0 unused, 1 a row, 2 removed. */
struct waiting {
    uint64_t key;
    int64_t time_us;
    uint32_t row; /* index in `rows` */
    uint8_t state;
};

struct cold {
    struct cold_store store;
    struct store_user user;
    uint32_t table; /* which of the learner's tables; in the place of the key group */
    size_t row_bytes;
    struct waiting *waiting;
    uint32_t capacity, count;
    struct byte_buffer rows;
    rocksdb_writebatch_t *batch;
};

/* Bytes of a database key before the row's key: of a table with several shards the shard is one more. */
static size_t begin_bytes(const struct cold *cold)
{
    return STORE_PREFIX_BYTES + (cold->store.shards > 1);
}

/* Writes a row's database key to `out`, which has COLD_KEY_BYTES; returns its length. */
static size_t make_key(const struct cold *cold, char *out, uint64_t key)
{
    size_t at = begin_bytes(cold);
    store_prefix(out, cold->user.id, COLD_KIND, cold->table);
    if (at > STORE_PREFIX_BYTES)
        out[STORE_PREFIX_BYTES] = (char)cold->store.shard_of(cold->store.owner, key);
    for (int i = 0; i < 8; i++)
        out[at + (size_t)i] = (char)(key >> (56 - 8 * i));
    return at + 8;
}

static struct waiting *find_waiting(const struct cold *cold, uint64_t key)
{
    uint32_t at = (uint32_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (cold->capacity - 1);
    while (cold->waiting[at].state != 0 && cold->waiting[at].key != key)
        at = (at + 1) & (cold->capacity - 1);
    return &cold->waiting[at];
}

static void wait_with(struct cold *cold, uint64_t key, int64_t time_us, const void *row)
{
    if ((cold->count + 1) * 2 > cold->capacity) {
        struct cold old = *cold;
        cold->capacity = MAX(old.capacity * 2, 256);
        cold->waiting = mem_calloc(cold->capacity, sizeof(*cold->waiting));
        for (uint32_t i = 0; i < old.capacity; i++)
            if (old.waiting[i].state != 0)
                *find_waiting(cold, old.waiting[i].key) = old.waiting[i];
        free(old.waiting);
    }
    struct waiting *slot = find_waiting(cold, key);
    if (slot->state == 0) {
        cold->count++;
        slot->row = (uint32_t)(cold->rows.length / cold->row_bytes);
        slot->key = key;
        buffer_reserve(&cold->rows, cold->row_bytes);
        cold->rows.length += cold->row_bytes;
    }
    slot->state = row == NULL ? 2 : 1;
    slot->time_us = time_us;
    if (row != NULL)
        memcpy(cold->rows.data + slot->row * cold->row_bytes, row, cold->row_bytes);
}

static void put_row(struct cold *cold, uint64_t key, int64_t time_us, const void *row)
{
    char text[COLD_KEY_BYTES];
    size_t key_bytes = make_key(cold, text, key);
    if (row == NULL) {
        rocksdb_writebatch_delete(cold->batch, text, key_bytes);
        return;
    }
    struct stored_value head = {.expire_us = time_us};
    const char *keys[1] = {text}, *parts[2] = {(const char *)&head, row};
    size_t lengths[2] = {sizeof(head), cold->row_bytes};
    rocksdb_writebatch_putv(cold->batch, 1, keys, &key_bytes, 2, parts, lengths);
}

static bool commit(struct cold *cold)
{
    if (rocksdb_writebatch_count(cold->batch) == 0)
        return true;
    bool is_good = store_commit(cold->user.store, cold->batch);
    rocksdb_writebatch_clear(cold->batch);
    return is_good;
}

/* Puts the rows that waited into the batch, once the database may be written to again. */
static void settle(struct cold *cold)
{
    for (uint32_t i = 0; i < cold->capacity; i++) {
        const struct waiting *slot = &cold->waiting[i];
        if (slot->state != 0)
            put_row(cold, slot->key, slot->time_us,
                    slot->state == 1 ? cold->rows.data + slot->row * cold->row_bytes : NULL);
    }
    if (cold->count > 0)
        memset(cold->waiting, 0, cold->capacity * sizeof(*cold->waiting));
    cold->count = 0;
    buffer_clear(&cold->rows);
}

static bool write_rows(struct cold *cold, const uint64_t *keys, const int64_t *times_us, const void *rows,
                       size_t count)
{
    struct state_store *store = cold->user.store;
    if (state_store_error(store) != NULL)
        return false;
    bool can_write = store_can_write(&cold->user);
    if (can_write)
        settle(cold);
    for (size_t i = 0; i < count; i++) {
        const void *row = rows == NULL ? NULL : (const char *)rows + i * cold->row_bytes;
        int64_t time_us = times_us == NULL ? TIME_MAX : times_us[i];
        if (can_write)
            put_row(cold, keys[i], time_us, row);
        else
            wait_with(cold, keys[i], time_us, row);
    }
    return commit(cold);
}

static bool cold_takes_rows(void *self)
{
    const struct cold *cold = self;
    return store_can_write(&cold->user);
}

static bool cold_put(void *self, const uint64_t *keys, const int64_t *times_us, const void *rows,
                     size_t row_bytes, size_t count)
{
    struct cold *cold = self;
    leat_assert(row_bytes == cold->row_bytes);
    return count == 0 || write_rows(cold, keys, times_us, rows, count);
}

static bool cold_remove(void *self, const uint64_t *keys, size_t count)
{
    return count == 0 || write_rows(self, keys, NULL, NULL, count);
}

/* Reads the keys of `index`, at most STORE_READ_MAX and none of them waiting, in one call. */
static bool get_stored(struct cold *cold, const uint64_t *keys, const size_t *index, size_t count, char *rows,
                       bool *found)
{
    char text[STORE_READ_MAX][COLD_KEY_BYTES];
    const char *texts[STORE_READ_MAX];
    size_t lengths[STORE_READ_MAX];
    rocksdb_pinnableslice_t *values[STORE_READ_MAX];
    for (size_t i = 0; i < count; i++) {
        lengths[i] = make_key(cold, text[i], keys[index[i]]);
        texts[i] = text[i];
    }
    bool has_found = false, is_good = store_get(cold->user.store, (uint32_t)count, texts, lengths, values);
    for (size_t i = 0; i < count; i++) {
        if (values[i] == NULL)
            continue;
        size_t bytes;
        const char *data = rocksdb_pinnableslice_value(values[i], &bytes);
        found[index[i]] = bytes == sizeof(struct stored_value) + cold->row_bytes;
        if (found[index[i]])
            memcpy(rows + index[i] * cold->row_bytes, data + sizeof(struct stored_value), cold->row_bytes);
        has_found |= found[index[i]];
        rocksdb_pinnableslice_destroy(values[i]);
    }
    if (has_found)
        (void)failpoint("state.load"); /* for tests: rows were read back; a failure here is ignored */
    return is_good;
}

static bool cold_get(void *self, const uint64_t *keys, void *rows, size_t row_bytes, size_t count,
                     bool *found)
{
    struct cold *cold = self;
    leat_assert(row_bytes == cold->row_bytes);
    size_t index[STORE_READ_MAX], pending = 0;
    for (size_t i = 0; i < count; i++) {
        struct waiting *slot = cold->count == 0 ? NULL : find_waiting(cold, keys[i]);
        found[i] = slot != NULL && slot->state == 1;
        if (found[i])
            memcpy((char *)rows + i * row_bytes, cold->rows.data + slot->row * row_bytes, row_bytes);
        if (slot == NULL || slot->state == 0)
            index[pending++] = i;
        if (pending == STORE_READ_MAX || (i + 1 == count && pending > 0)) {
            if (store_has_database(cold->user.store) && !get_stored(cold, keys, index, pending, rows, found))
                return false;
            pending = 0;
        }
    }
    return state_store_error(cold->user.store) == NULL;
}

/* A scan that merges the waiting rows, sorted by key, with those of the database. */
struct cold_scan {
    struct cold *cold;
    void (*visit)(void *argument, uint64_t key, const void *row);
    void *argument;
    const struct waiting **sorted; /* [count] rows that wait, of the shards that are scanned */
    uint32_t count, next;
};

static int by_key(const void *a, const void *b)
{
    const struct waiting *x = *(const struct waiting *const *)a, *y = *(const struct waiting *const *)b;
    return x->key < y->key ? -1 : x->key > y->key;
}

static void visit_waiting(struct cold_scan *scan, uint64_t below, bool is_end)
{
    for (; scan->next < scan->count && (is_end || scan->sorted[scan->next]->key < below); scan->next++) {
        const struct waiting *slot = scan->sorted[scan->next];
        if (slot->state == 1)
            scan->visit(scan->argument, slot->key, scan->cold->rows.data + slot->row * scan->cold->row_bytes);
    }
}

static bool visit_stored(void *argument, struct str key, struct str value)
{
    struct cold_scan *scan = argument;
    uint64_t number = 0;
    for (int i = 0; i < 8; i++)
        number = number << 8 | (unsigned char)key.data[key.length - 8 + (size_t)i];
    visit_waiting(scan, number, false);
    bool is_replaced = scan->next < scan->count && scan->sorted[scan->next]->key == number;
    if (!is_replaced && value.length == sizeof(struct stored_value) + scan->cold->row_bytes)
        scan->visit(scan->argument, number, value.data + sizeof(struct stored_value));
    return true;
}

/* The range of database keys of a shard; of a table with one shard, the whole table's. */
static struct store_range range_of(const struct cold *cold, uint32_t shard)
{
    struct store_range range = {.bytes = begin_bytes(cold)};
    bool is_last = shard + 1 >= cold->store.shards;
    store_prefix(range.first, cold->user.id, COLD_KIND, cold->table);
    store_prefix(range.limit, cold->user.id, COLD_KIND, cold->table + is_last);
    if (range.bytes > STORE_PREFIX_BYTES) {
        range.first[STORE_PREFIX_BYTES] = (char)shard;
        range.limit[STORE_PREFIX_BYTES] = (char)(is_last ? 0 : shard + 1);
    }
    return range;
}

static bool cold_scan(void *self, uint32_t shard,
                      void (*visit)(void *argument, uint64_t key, const void *row), void *argument)
{
    struct cold *cold = self;
    struct store_range ranges[COLD_SHARDS_MAX];
    uint32_t shards = MAX(cold->store.shards, 1U), ranges_count = shard == COLD_ALL_SHARDS ? shards : 1,
             count = 0;
    leat_assert(shards <= COLD_SHARDS_MAX && (shard == COLD_ALL_SHARDS || shard < shards));
    for (uint32_t i = 0; i < ranges_count; i++)
        ranges[i] = range_of(cold, shard == COLD_ALL_SHARDS ? i : shard);
    struct cold_scan scan = {.cold = cold, .visit = visit, .argument = argument};
    scan.sorted = mem_alloc(MAX(cold->count, 1) * sizeof(void *));
    for (uint32_t i = 0; i < cold->capacity; i++) {
        const struct waiting *slot = &cold->waiting[i];
        if (slot->state != 0 &&
            (ranges_count == shards || cold->store.shard_of(cold->store.owner, slot->key) == shard))
            scan.sorted[count++] = slot;
    }
    scan.count = count;
    qsort(scan.sorted, count, sizeof(void *), by_key);
    bool is_good = store_scan_ranges(cold->user.store, ranges, ranges_count, visit_stored, &scan);
    visit_waiting(&scan, 0, true);
    free(scan.sorted);
    return is_good;
}

enum { RESHARD_ROWS = 4096 };

static bool move_row(void *argument, struct str key, struct str value)
{
    struct cold *cold = argument;
    char text[COLD_KEY_BYTES];
    uint64_t number = 0;
    if (key.length != STORE_PREFIX_BYTES + 8)
        return true; /* the row was moved before */
    for (int i = 0; i < 8; i++)
        number = number << 8 | (unsigned char)key.data[STORE_PREFIX_BYTES + i];
    rocksdb_writebatch_put(cold->batch, text, make_key(cold, text, number), value.data, value.length);
    rocksdb_writebatch_delete(cold->batch, key.data, key.length);
    return rocksdb_writebatch_count(cold->batch) < 2 * RESHARD_ROWS || commit(cold);
}

static bool cold_reshard(void *self)
{
    struct cold *cold = self;
    char first[STORE_PREFIX_BYTES], limit[STORE_PREFIX_BYTES];
    store_prefix(first, cold->user.id, COLD_KIND, cold->table);
    store_prefix(limit, cold->user.id, COLD_KIND, cold->table + 1);
    if (cold->store.shards <= 1)
        return true;
    bool is_good = store_scan(cold->user.store, (struct str){first, sizeof(first)},
                              (struct str){limit, sizeof(limit)}, move_row, cold);
    return commit(cold) && is_good && state_store_error(cold->user.store) == NULL;
}

static void cold_barrier(void *self, int64_t expired_us)
{
    struct cold *cold = self;
    /* Rows that have waited since an earlier checkpoint belong to this one: write them before the copy. */
    settle(cold);
    (void)commit(cold); /* the store keeps the error */
    store_hold(&cold->user);
    __atomic_store_n(&cold->user.barrier_watermark, expired_us, __ATOMIC_RELEASE);
}

static void cold_free(void *self)
{
    struct cold *cold = self;
    store_remove_user(&cold->user);
    rocksdb_writebatch_destroy(cold->batch);
    buffer_free(&cold->rows);
    free(cold->waiting);
    free(cold);
}

struct cold_store *cold_store_new(struct state_store *store, uint16_t id, uint32_t table, size_t row_bytes)
{
    struct cold *cold = mem_calloc(1, sizeof(*cold));
    leat_assert(row_bytes > 0 && table < UINT16_MAX);
    cold->store = (struct cold_store){.self = cold,
                                      .takes_rows = cold_takes_rows,
                                      .put = cold_put,
                                      .get = cold_get,
                                      .remove = cold_remove,
                                      .scan = cold_scan,
                                      .reshard = cold_reshard,
                                      .barrier = cold_barrier,
                                      .free = cold_free};
    cold->user =
        (struct store_user){.store = store, .id = id, .kind = COLD_KIND, .has_table = true, .table = table};
    cold->table = table;
    cold->row_bytes = row_bytes;
    cold->batch = store_batch_new();
    store_add_user(&cold->user);
    return &cold->store;
}

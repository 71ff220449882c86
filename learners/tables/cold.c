/* Moving rows between memory and the cold store; cold.h tells the rules. */
#include "learners/tables/cold.h"
#include "learners/tables/cut.h"
#include "learners/tables/inline.h"

#include "core/base.h"
#include "core/buffer.h"
#include "core/mem.h"

#include <stdlib.h>

enum {
    COLD_BATCH = 4096, /* rows moved in one call of the store */
    EVICT_MAX = 16384, /* most rows that one table_keep moves beyond those added since the last one */
    ROWS_LEAST = 1024, /* rows_cap is never lowered below this */
    SAMPLE = 256,      /* rows whose ages are sampled to find out what is old */
    ASKED_SHIFT = 54,  /* a key's place in table_cold.asked is what is left of its hash */
};
_Static_assert((1 << (64 - ASKED_SHIFT)) == COLD_ASKED, "the places are the array's");

static uint32_t shard_of_key(const void *owner, uint64_t key)
{
    return table_shard(owner, key);
}

void table_cold_bind(const struct table *t, struct cold_store *store)
{
    store->shards = t->options.shards;
    store->shard_of = shard_of_key;
    store->owner = t;
}

void table_cold_init(struct table *t, struct cold_store *store)
{
    leat_assert(t->cold == NULL && t->stats.rows == 0 && t->options.rows_max == 0);
    table_cold_bind(t, store);
    struct table_cold *c = mem_calloc(1, sizeof(*c));
    c->store = store;
    c->rows_cap = UINT64_MAX;
    c->keys = mem_calloc(COLD_BATCH, sizeof(*c->keys));
    c->times = mem_calloc(COLD_BATCH, sizeof(*c->times));
    c->found = mem_calloc(COLD_BATCH, sizeof(*c->found));
    c->rows_of = mem_calloc(COLD_BATCH, table_stored_bytes(t));
    c->asked = mem_calloc(COLD_ASKED, sizeof(*c->asked));
    t->cold = c;
}

void table_cold_free(struct table *t)
{
    struct table_cold *c = t->cold;
    if (c == NULL)
        return;
    c->store->free(c->store->self);
    free(c->keys);
    free(c->times);
    free(c->found);
    free(c->rows_of);
    free(c->asked);
    table_guests_free(t);
    free(c);
    t->cold = NULL;
}

static uint32_t stored_seen(const unsigned char *stored)
{
    uint32_t seen;
    memcpy(&seen, stored + offsetof(struct table_row, seen), sizeof(seen));
    return seen;
}

/* Loads the rows of c->keys[0..count) from the store. If the store fails, the engine notices and publishes no
 * more checkpoints. */
static void load_batch(struct table *t, size_t count, uint32_t step)
{
    struct table_cold *c = t->cold;
    size_t bytes = table_stored_bytes(t);
    if (!c->store->get(c->store->self, c->keys, c->rows_of, bytes, count, c->found))
        return;
    for (size_t i = 0; i < count; i++) {
        const unsigned char *stored = c->rows_of + i * bytes;
        uint64_t hash = table_hash(t, c->keys[i]);
        if (!c->found[i] || stored_seen(stored) < t->expired_before ||
            table_slot_of(t, c->keys[i], hash) != NULL)
            continue;
        if (c->has_guests) {
            table_guests_add(t, stored);
            continue;
        }
        table_restore_row(t, stored);
        /* The row counts as used by the step before, so that it is not spared as a row of this step. */
        table_slot_row(t, table_slot_of(t, c->keys[i], hash))->step = step - 1;
        c->rows--;
        c->loaded++;
    }
}

/* Whether the store was asked for the key before in this call, which need not ask again: it has no such row, or puts
 * the row back. Forgets a key when another one takes its place, and then asks again. */
static bool was_asked(struct table_cold *c, uint64_t key, uint64_t hash)
{
    struct cold_asked *asked = &c->asked[hash >> ASKED_SHIFT];
    if (asked->key == key && asked->call == c->call)
        return true;
    *asked = (struct cold_asked){.key = key, .call = c->call};
    return false;
}

void table_cold_load(struct table *t, const uint64_t *keys, size_t n, uint32_t step)
{
    size_t count = 0;
    t->cold->call += !t->cold->has_guests; /* else the calls until table_guests_end count as one */
    for (size_t i = 0; i < n; i++) {
        uint64_t hash = table_hash(t, keys[i]);
        if (keys[i] == 0 || table_slot_of(t, keys[i], hash) != NULL || table_guest(t, keys[i]) != NULL ||
            was_asked(t->cold, keys[i], hash))
            continue;
        t->cold->keys[count++] = keys[i];
        if (count == COLD_BATCH) {
            load_batch(t, count, step);
            count = 0;
        }
    }
    if (count > 0)
        load_batch(t, count, step);
}

size_t table_row_bytes(const struct table *t)
{
    return table_bytes(t) - sketch_bytes(&t->sketch);
}

void table_share(struct table *t, size_t bytes)
{
    t->cold->bytes_max = bytes;
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The age, in steps since the last use, from which on a row is old: so that 1.5 times `count` rows are that
 * old, and at least a quarter of all rows, so that the hand finds them soon. Estimated from a sample. */
static uint32_t old_age(const struct table *t, uint64_t count, uint32_t step)
{
    uint32_t ages[SAMPLE];
    size_t n = 0;
    uint64_t stride = MAX(t->rows_used / SAMPLE, 1);
    for (uint64_t i = 0; i < SAMPLE && i * stride < t->rows_used; i++) {
        const struct table_row *row =
            table_row_at(t, (uint32_t)((t->cold->hand + i * stride) % t->rows_used));
        if (row->key != 0)
            ages[n++] = step - row->step;
    }
    if (n == 0)
        return 0;
    qsort(ages, n, sizeof(*ages), by_number);
    uint64_t wanted = MAX(n / 4, n * count * 3 / 2 / MAX(t->stats.rows, 1));
    return ages[n - 1 - MIN(wanted, (uint64_t)n - 1)];
}

static int by_key(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Collects into c->keys, by rising key, up to `limit` keys of rows whose age is at least `age` (old_age),
 * from the hand on; *left: rows that the hand may still pass. Returns the number of keys. */
static size_t collect_old(struct table *t, size_t limit, uint32_t age, uint32_t step, bool is_spared,
                          uint64_t *left)
{
    struct table_cold *c = t->cold;
    size_t count = 0;
    for (; *left > 0 && count < limit; --*left) {
        if (++c->hand >= t->rows_used)
            c->hand = 0;
        const struct table_row *row = table_row_at(t, c->hand);
        if (row->key != 0 && step - row->step >= age && !(is_spared && row->step == step))
            c->keys[count++] = row->key;
    }
    qsort(c->keys, count, sizeof(*c->keys), by_key);
    return count;
}

/* Removes the rows of c->keys[0..count) from memory; those that have not expired go to the store. */
static bool evict_batch(struct table *t, size_t count)
{
    struct table_cold *c = t->cold;
    size_t bytes = table_stored_bytes(t), used = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t key = c->keys[i], hash = table_hash(t, key);
        struct table_row *row = table_slot_row(t, table_slot_of(t, key, hash));
        if (table_is_expired(t, row)) {
            table_remove(t, key, hash);
            t->stats.expired++;
            continue;
        }
        table_store_row(t, row, c->rows_of + used * bytes);
        if (t->cut != NULL && row->epoch > t->cut->since)
            table_cut_keep(t, row);
        c->times[used] = (int64_t)row->seen * US_PER_SECOND;
        c->keys[used++] = key;
    }
    if (used > 0 && !c->store->put(c->store->self, c->keys, c->times, c->rows_of, bytes, used))
        return false;
    table_cut_move(t, true);
    for (size_t i = 0; i < used; i++)
        table_remove(t, c->keys[i], table_hash(t, c->keys[i]));
    table_cut_move(t, false);
    c->rows += used;
    c->evicted += used;
    return true;
}

bool table_evict(struct table *t, uint64_t count, uint32_t step, bool is_spared)
{
    uint32_t age = old_age(t, count, step);
    /* One round of the hand for old rows only, then one for rows of any age. */
    for (int round = 0; round < 2 && count > 0; round++, age = 0) {
        uint64_t left = t->rows_used;
        while (count > 0 && left > 0) {
            size_t found =
                collect_old(t, (size_t)MIN(count, (uint64_t)COLD_BATCH), age, step, is_spared, &left);
            if (!evict_batch(t, found))
                return false;
            count -= found;
        }
    }
    table_begin(t); /* nobody points at the evicted rows */
    return true;
}

/*
 * Evicted rows leave room but not bytes, so the number of rows is capped at the point where the bytes reached
 * the share. Pages of inline rows fill unevenly, and some still split below the cap: as long as bytes grow
 * although the cap was kept, the cap is lowered a little.
 */
static void set_cap(struct table *t)
{
    struct table_cold *c = t->cold;
    size_t bytes = table_row_bytes(t);
    bool was_kept = c->rows_before <= c->rows_cap, is_first = c->rows_cap == UINT64_MAX;
    if (bytes <= c->bytes_max)
        return;
    if (is_first)
        c->rows_cap = (uint64_t)((double)t->stats.rows * (double)c->bytes_max / (double)bytes);
    if (is_first || (t->options.is_inline && was_kept && bytes > c->bytes_capped + c->bytes_capped / 64))
        c->rows_cap = MAX(c->rows_cap / 16 * 15, (uint64_t)ROWS_LEAST);
    else if (was_kept)
        return;
    c->bytes_capped = bytes;
}

void table_keep(struct table *t, uint32_t step, bool is_spared)
{
    struct table_cold *c = t->cold;
    uint64_t rows = t->stats.rows, came = rows - MIN(rows, c->rows_before);
    set_cap(t);
    /* A snapshot's writer must copy rows before they are evicted, else the owner has to copy them aside. The
     * writer is done soon, so until then the table may exceed the cap by an eighth. */
    uint64_t slack = t->snapshot ? c->rows_cap / 8 : 0;
    if (rows > c->rows_cap && rows - c->rows_cap > slack && c->store->takes_rows(c->store->self)) {
        uint64_t excess = rows - c->rows_cap + MIN(c->rows_cap / 16, (uint64_t)COLD_BATCH);
        /* the store keeps its own error */
        (void)table_evict(t, MIN(excess, came + EVICT_MAX), step, is_spared);
    }
    c->rows_before = t->stats.rows;
}

struct giving {
    struct table *table;
    struct byte_buffer *out;
    struct table_keys keys; /* of the shard's copies in the store */
    uint64_t count;
};

static void give_stored(void *argument, uint64_t key, const void *stored)
{
    struct giving *g = argument;
    struct table *t = g->table;
    struct table_cold *c = t->cold;
    table_keys_add(&g->keys, key);
    uint64_t hash = table_hash(t, key);
    const uint64_t *slot = table_slot_of(t, key, hash);
    /* An expired copy may be of a row that was loaded and has expired in memory: `rows` does not count it then. */
    if (stored_seen(stored) < t->expired_before)
        return;
    if (slot == NULL && c->rows > 0)
        c->rows--;
    if (slot != NULL) {
        table_store_row(t, table_slot_row(t, slot), c->rows_of);
        if (memcmp(c->rows_of, stored, table_stored_bytes(t)) != 0)
            return; /* the row has changed since it was loaded */
        table_remove(t, key, hash);
    }
    buffer_append(g->out, stored, table_stored_bytes(t));
    g->count++;
}

bool table_cold_give(struct table *t, uint32_t shard, struct byte_buffer *out, uint64_t *count)
{
    struct cold_store *store = t->cold->store;
    struct giving g = {.table = t, .out = out};
    bool is_good = store->scan(store->self, shard, give_stored, &g);
    for (size_t at = 0; at < g.keys.count && is_good; at += COLD_BATCH)
        is_good = store->remove(store->self, g.keys.items + at, MIN(g.keys.count - at, (size_t)COLD_BATCH));
    free(g.keys.items);
    *count = g.count;
    return is_good;
}

bool table_cold_take(struct table *t, const unsigned char *stored, uint64_t count)
{
    struct table_cold *c = t->cold;
    size_t bytes = table_stored_bytes(t);
    for (uint64_t at = 0, n; at < count; at += n) {
        n = MIN(count - at, (uint64_t)COLD_BATCH);
        for (uint64_t i = 0; i < n; i++) {
            const unsigned char *row = stored + (at + i) * bytes;
            memcpy(&c->keys[i], row, sizeof(c->keys[i]));
            c->times[i] = (int64_t)stored_seen(row) * US_PER_SECOND;
        }
        if (!c->store->put(c->store->self, c->keys, c->times, stored + at * bytes, bytes, n))
            return false;
        c->rows += n;
    }
    return true;
}

void table_cold_barrier(struct table *t)
{
    struct table_cold *c = t->cold;
    c->store->barrier(c->store->self, (int64_t)t->expired_before * US_PER_SECOND);
}

void table_cold_restored(struct table *t, uint64_t rows)
{
    t->cold->rows = rows - MIN(rows, t->stats.rows);
}

static int by_row_key(const void *a, const void *b)
{
    uint64_t x = (*(struct table_row *const *)a)->key;
    uint64_t y = (*(struct table_row *const *)b)->key;
    return (x > y) - (x < y);
}

struct table_row **table_sorted(const struct table *t, size_t *count)
{
    struct table_row **list = mem_alloc(MAX(t->stats.rows, 1) * sizeof(struct table_row *));
    size_t n = 0;
    for (uint32_t i = 0; i < t->rows_used; i++) {
        struct table_row *row = table_row_at(t, i);
        if (row->key != 0 && !table_is_expired(t, row))
            list[n++] = row;
    }
    qsort(list, n, sizeof(*list), by_row_key);
    *count = n;
    return list;
}

/* The sorted rows in memory, merged with those of the store. */
struct visit {
    const struct table *table;
    struct table_row **rows, *cold; /* cold: room for one row */
    size_t count, next;
    table_visitor *visit;
    void *argument;
    bool goes_on;
};

/* Visits the rows in memory whose keys are below `key`; is_end: all that are left. */
static void visit_below(struct visit *v, uint64_t key, bool is_end)
{
    for (; v->next < v->count && (is_end || v->rows[v->next]->key < key) && v->goes_on; v->next++)
        v->goes_on = v->visit(v->argument, v->rows[v->next]);
}

static void visit_cold(void *argument, uint64_t key, const void *stored)
{
    struct visit *v = argument;
    const struct table *t = v->table;
    visit_below(v, key, false);
    if (!v->goes_on || table_slot_of(t, key, table_hash(t, key)) || stored_seen(stored) < t->expired_before)
        return;
    table_load_row(t, v->cold, stored);
    v->cold->step = TABLE_STEP_NONE;
    v->goes_on = v->visit(v->argument, v->cold);
}

bool table_visit(const struct table *t, table_visitor *visit, void *argument)
{
    struct visit v = {.table = t, .visit = visit, .argument = argument, .goes_on = true};
    v.rows = table_sorted(t, &v.count);
    v.cold = mem_aligned(64, (t->stride + 63) / 64 * 64);
    bool is_good = t->cold == NULL || t->cold->rows == 0 ||
                   t->cold->store->scan(t->cold->store->self, COLD_ALL_SHARDS, visit_cold, &v);
    if (is_good)
        visit_below(&v, 0, true);
    free(v.cold);
    free(v.rows);
    return is_good && v.goes_on;
}

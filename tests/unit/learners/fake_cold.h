/* A cold store in memory, with the copy that a checkpoint would hold. Keys are below FAKE_KEYS. */
#ifndef LEAT_TESTS_UNIT_LEARNERS_FAKE_COLD_H
#define LEAT_TESTS_UNIT_LEARNERS_FAKE_COLD_H

#include "core/base.h"
#include "core/cold_store.h"

#include <stdlib.h>
#include <string.h>

enum { FAKE_KEYS = 8192 };

struct fake_rows {
    unsigned char *rows[FAKE_KEYS];
};

struct fake_cold {
    struct cold_store store;
    size_t row_bytes;
    struct fake_rows now, copy; /* copy: the rows at the last barrier */
    bool is_held, has_failed;
    bool lets_wait; /* put may be called while the store is held, as with a real store */
    uint64_t gets, puts;
};

static inline void fake_clear(struct fake_rows *rows)
{
    for (size_t k = 0; k < FAKE_KEYS; k++)
        free(rows->rows[k]);
    memset(rows, 0, sizeof(*rows));
}

static inline void fake_copy(struct fake_rows *to, const struct fake_rows *from, size_t row_bytes)
{
    fake_clear(to);
    for (size_t k = 0; k < FAKE_KEYS; k++)
        if (from->rows[k] != NULL) {
            to->rows[k] = malloc(row_bytes);
            memcpy(to->rows[k], from->rows[k], row_bytes);
        }
}

static bool fake_takes_rows(void *self)
{
    return !((struct fake_cold *)self)->is_held;
}

static bool fake_put(void *self, const uint64_t *keys, const int64_t *times_us, const void *rows,
                     size_t row_bytes, size_t count)
{
    struct fake_cold *f = self;
    leat_assert(row_bytes == f->row_bytes && times_us != NULL && (!f->is_held || f->lets_wait));
    if (f->has_failed)
        return false;
    for (size_t i = 0; i < count; i++) {
        leat_assert(keys[i] < FAKE_KEYS && (i == 0 || keys[i] > keys[i - 1]));
        if (f->now.rows[keys[i]] == NULL)
            f->now.rows[keys[i]] = malloc(row_bytes);
        memcpy(f->now.rows[keys[i]], (const char *)rows + i * row_bytes, row_bytes);
    }
    f->puts += count;
    return true;
}

static bool fake_get(void *self, const uint64_t *keys, void *rows, size_t row_bytes, size_t count,
                     bool *found)
{
    struct fake_cold *f = self;
    leat_assert(row_bytes == f->row_bytes);
    for (size_t i = 0; i < count; i++) {
        const void *row = f->now.rows[keys[i]];
        found[i] = row != NULL;
        if (row != NULL)
            memcpy((char *)rows + i * row_bytes, row, row_bytes);
    }
    f->gets += count;
    return !f->has_failed;
}

static bool fake_remove(void *self, const uint64_t *keys, size_t count)
{
    struct fake_cold *f = self;
    leat_assert(!f->is_held || f->lets_wait);
    for (size_t i = 0; i < count && !f->has_failed; i++) {
        leat_assert(keys[i] < FAKE_KEYS);
        free(f->now.rows[keys[i]]);
        f->now.rows[keys[i]] = NULL;
    }
    return !f->has_failed;
}

static bool fake_scan(void *self, uint32_t shard,
                      void (*visit)(void *argument, uint64_t key, const void *row), void *argument)
{
    struct fake_cold *f = self;
    for (size_t k = 0; k < FAKE_KEYS; k++)
        if (f->now.rows[k] != NULL && (shard == COLD_ALL_SHARDS || f->store.shards <= 1 ||
                                       f->store.shard_of(f->store.owner, k) == shard))
            visit(argument, k, f->now.rows[k]);
    return true;
}

static bool fake_reshard(void *self)
{
    (void)self;
    return true;
}

/* Removes expired rows, as a compaction might, and copies the others. */
static void fake_barrier(void *self, int64_t expired_us)
{
    struct fake_cold *f = self;
    for (size_t k = 0; k < FAKE_KEYS; k++) {
        uint32_t seen;
        if (f->now.rows[k] == NULL)
            continue;
        memcpy(&seen, f->now.rows[k] + 12, sizeof(seen));
        if ((int64_t)seen * US_PER_SECOND < expired_us) {
            free(f->now.rows[k]);
            f->now.rows[k] = NULL;
        }
    }
    fake_copy(&f->copy, &f->now, f->row_bytes);
}

static void fake_free(void *self)
{
    struct fake_cold *f = self;
    fake_clear(&f->now);
    fake_clear(&f->copy);
    free(f);
}

static inline struct fake_cold *fake_new(size_t row_bytes)
{
    struct fake_cold *f = calloc(1, sizeof(*f));
    leat_assert(f != NULL);
    f->row_bytes = row_bytes;
    f->store = (struct cold_store){.self = f,
                                   .takes_rows = fake_takes_rows,
                                   .put = fake_put,
                                   .get = fake_get,
                                   .remove = fake_remove,
                                   .scan = fake_scan,
                                   .reshard = fake_reshard,
                                   .barrier = fake_barrier,
                                   .free = fake_free};
    return f;
}

#endif

/* A plain model of histories: arrays of entries, and the rule of windows in its simplest form; and what the tests that
 * compare with it share. */
#ifndef LEAT_TESTS_UNIT_LEARNERS_HISTORIES_MODEL_H
#define LEAT_TESTS_UNIT_LEARNERS_HISTORIES_MODEL_H

#include "fake_cold.h"

#include "learners/histories/histories.h"
#include "learners/tables/cold.h"
#include "tests/unit/support/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BATCH = 150, START = 1000000, PLAIN_USERS = 3000, PLAIN_HISTORY = 200 };

struct plain_user {
    uint64_t count;
    uint32_t seen, length;
    struct history_entry entries[PLAIN_HISTORY];
};

struct plain {
    uint32_t history, expired_before;
    struct plain_user users[PLAIN_USERS + 1];
};

static inline bool plain_is_there(const struct plain *p, uint64_t key)
{
    const struct plain_user *u = &p->users[key];
    return u->count > 0 && u->seen >= p->expired_before;
}

/* Returns the user's count before. */
static inline uint64_t plain_append(struct plain *p, uint64_t key, const struct history_entry *entry)
{
    struct plain_user *u = &p->users[key];
    if (!plain_is_there(p, key))
        *u = (struct plain_user){0};
    if (u->length == p->history) {
        uint32_t stay = p->history / 2;
        memmove(u->entries, u->entries + (p->history - stay), stay * sizeof(*u->entries));
        u->length = stay;
    }
    u->entries[u->length++] = *entry;
    u->seen = MAX(u->seen, entry->seconds);
    return u->count++;
}

static inline void plain_check(const struct plain *p, uint64_t key, struct history_view *view)
{
    const struct plain_user *u = &p->users[key];
    struct history_entry entry;
    if (!plain_is_there(p, key)) {
        assert_true(view->count == 0 && view->length == 0 && !history_next(view, &entry));
        return;
    }
    assert_int_equal(view->count, u->count);
    assert_int_equal(view->length, u->length);
    assert_int_equal(history_window(u->count, p->history).length, u->length);
    for (uint32_t i = 0; i < u->length; i++) {
        assert_true(history_next(view, &entry));
        assert_memory_equal(&entry, &u->entries[i], sizeof(entry));
    }
    assert_false(history_next(view, &entry));
}

static inline void plain_check_all(const struct plain *p, struct histories *h, uint32_t step)
{
    static uint64_t keys[PLAIN_USERS + 1];
    static struct history_view views[PLAIN_USERS + 1];
    uint64_t users = 0, entries = 0;
    for (uint64_t key = 0; key <= PLAIN_USERS; key++)
        keys[key] = key;
    histories_find(h, keys, PLAIN_USERS + 1, step, views);
    for (uint64_t key = 0; key <= PLAIN_USERS; key++) {
        plain_check(p, key, &views[key]);
        users += plain_is_there(p, key);
        entries += plain_is_there(p, key) ? p->users[key].length : 0;
    }
    struct histories_counts counts = histories_count(h);
    assert_int_equal(counts.users, users);
    assert_int_equal(counts.entries, entries);
}

/* A user by Zipf's law, roughly: the logarithm of the rank is uniform. */
static inline uint64_t plain_draw_key(struct test_random *random)
{
    double u = (double)(random_next(random) >> 11) * 0x1p-53;
    return (uint64_t)exp(u * log((double)PLAIN_USERS + 0.99));
}

/* An entry: mostly an ordinary one, now and then of extreme values. */
static inline struct history_entry plain_draw_entry(struct test_random *random, uint32_t sides, uint32_t now)
{
    struct history_entry e = {.item.number = random_below(random, 1 << (1 + random_below(random, 24)))};
    e.seconds = now - random_below(random, 5) + random_below(random, 5);
    if (random_chance(random, 2))
        e.item.number = ITEMS_NUMBERS_MAX - random_below(random, 2);
    if (random_chance(random, 10))
        e.item.generation = (uint16_t)(random_next(random) >> random_below(random, 16));
    if (random_chance(random, 3))
        e.seconds = now - random_below(random, now / 2);
    for (uint32_t i = 0; i < sides; i++)
        e.sides[i] = random_chance(random, 5) ? (uint32_t)random_next(random) : random_below(random, 20);
    return e;
}

struct variant {
    uint32_t history, sides;
    int64_t expire_after_s;
    bool has_cold;
};

static const struct variant variants[] = {
    {.history = 1},
    {.history = 2, .sides = 1, .expire_after_s = 300},
    {.history = 3, .sides = 4},
    {.history = 50, .sides = 1, .expire_after_s = 900, .has_cold = true},
    {.history = 7, .sides = 2, .expire_after_s = 100, .has_cold = true},
    {.history = PLAIN_HISTORY, .has_cold = true},
    {.history = PLAIN_HISTORY, .sides = 3, .expire_after_s = 2000},
};

static inline struct histories *make(const struct variant *v, bool has_cold)
{
    struct histories_options options = {.history = v->history,
                                        .sides = v->sides,
                                        .expire_after_us = v->expire_after_s * US_PER_SECOND,
                                        .shards = TABLE_SHARDS_MAX,
                                        .seed = 11};
    struct histories *h = histories_create(&options);
    for (size_t i = 1; i < histories_tables(h) && has_cold; i++) {
        struct fake_cold *fake = fake_new(table_stored_bytes(histories_table(h, i)));
        table_cold_init(histories_table(h, i), &fake->store);
    }
    return h;
}

struct batch {
    size_t n;
    uint64_t keys[BATCH], before[BATCH];
    uint32_t steps[BATCH];
    struct history_entry entries[BATCH];
};

/* A call has one to three steps. */
static inline void make_batch(struct batch *b, struct test_random *random, const struct variant *v,
                              uint32_t *step, uint32_t now)
{
    b->n = 1 + random_below(random, BATCH);
    for (size_t i = 0; i < b->n; i++) {
        *step += i == 0 || random_chance(random, 1);
        b->keys[i] = plain_draw_key(random);
        b->steps[i] = *step;
        b->entries[i] = plain_draw_entry(random, v->sides, now);
    }
}

static inline void append(struct histories *h, struct batch *b)
{
    histories_append(h, b->keys, b->steps, b->entries, b->n, b->before);
}

static inline void set_time(struct histories *h, const struct variant *v, uint32_t now)
{
    if (v->expire_after_s > 0)
        histories_set_watermark(h, (int64_t)now * US_PER_SECOND, TABLE_STEP_NONE);
}

static inline void plain_set_time(struct plain *p, const struct variant *v, uint32_t now)
{
    if (v->expire_after_s > 0)
        p->expired_before = table_expiry((int64_t)now * US_PER_SECOND, v->expire_after_s * US_PER_SECOND);
}

static inline void evict_some(struct histories *h, struct test_random *random, uint32_t step)
{
    for (size_t i = 1; i < histories_tables(h); i++)
        if (histories_table(h, i)->cold != NULL && random_chance(random, 30))
            assert_true(table_evict(histories_table(h, i), random_below(random, 200), step, false));
}

static inline void append_users(struct histories *h, uint64_t from, uint64_t to, uint32_t seconds,
                                uint32_t step)
{
    for (uint64_t key = from; key < to; key++)
        histories_append(h, &key, &step, &(struct history_entry){.seconds = seconds}, 1, NULL);
}

#endif

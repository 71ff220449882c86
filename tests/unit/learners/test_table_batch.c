/* table_resolve_batch against a plain implementation of its rule, with random options; with snapshots and a
 * cold store in between. */
#include "fake_cold.h"

#include "learners/tables/cold.h"
#include "learners/tables/inline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

enum { OLD = 300, ROOM = 400, MANY = 6000 }; /* see test_rows_that_went */
enum { KEYS = 1200, BATCH_MAX = 300, BATCHES = 120, SKETCH_BYTES = 4096, WIDTH = SKETCH_BYTES / 4 };

static uint64_t random_state;
static uint64_t draw(uint64_t below)
{
    return num_mix(++random_state) % below;
}

static void init_row(void *argument, uint64_t key, void *payload)
{
    (void)argument;
    uint64_t *p = payload;
    p[0] = num_mix(key);
    p[1] = 0;
}

struct plain_row {
    bool is_there;
    uint32_t count, seen, step;
    uint64_t learned;
};

static struct plain {
    struct table_options options;
    struct plain_row rows[KEYS + 1];
    uint8_t cells[4][WIDTH];
    uint32_t expired_before;
    int64_t halved_at_us;
    uint64_t waiting, refused, evicted;
} plain;

static uint64_t hash_of(uint64_t key)
{
    return num_mix(key ^ plain.options.seed);
}

static uint8_t *cell(uint64_t key, unsigned d)
{
    uint32_t low = (uint32_t)hash_of(key), step = (uint32_t)(hash_of(key) >> 32) | 1;
    return &plain.cells[d][(low + d * step) % WIDTH];
}

static unsigned lowest_cell(uint64_t key)
{
    unsigned lowest = 255;
    for (unsigned d = 0; d < 4; d++)
        lowest = MIN(lowest, (unsigned)*cell(key, d));
    return lowest;
}

/* Makes room in the key's bucket. Returns false if all its rows are of this step. */
static bool plain_make_room(uint64_t key, uint32_t step)
{
    uint64_t max = plain.options.rows_max, buckets = (max + 127) / 128, used = 0, victim = 0;
    uint64_t bucket = (uint64_t)((__uint128_t)hash_of(key) * buckets >> 64);
    bool has_expired = false;
    for (uint64_t k = 1; k <= KEYS; k++) {
        struct plain_row *r = &plain.rows[k], *v = &plain.rows[victim];
        if (!r->is_there || (uint64_t)((__uint128_t)hash_of(k) * buckets >> 64) != bucket)
            continue;
        used++;
        if (r->step == step)
            continue;
        has_expired |= r->seen < plain.expired_before;
        if (victim == 0 || r->count < v->count || (r->count == v->count && r->seen < v->seen))
            victim = k;
    }
    if (used < max / buckets + (bucket < max % buckets))
        return true;
    for (uint64_t k = 1; k <= KEYS && has_expired; k++)
        if ((uint64_t)((__uint128_t)hash_of(k) * buckets >> 64) == bucket && plain.rows[k].step != step &&
            plain.rows[k].seen < plain.expired_before)
            plain.rows[k].is_there = false;
    if (has_expired)
        return true;
    plain.rows[victim].is_there = false; /* victim 0: rows[0], which no key uses */
    plain.evicted += victim != 0;
    return victim != 0;
}

struct distinct_key {
    uint64_t key;
    uint32_t count, seen;
    bool is_new;
};

static void plain_batch(const uint64_t *keys, const uint32_t *seen, size_t n, uint32_t step)
{
    static struct distinct_key list[BATCH_MAX];
    static unsigned estimates[BATCH_MAX];
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        size_t at = 0;
        while (at < count && list[at].key != keys[i])
            at++;
        if (keys[i] == 0)
            continue;
        if (at == count)
            list[count++] = (struct distinct_key){.key = keys[i]};
        list[at].count++;
        list[at].seen = MAX(list[at].seen, seen[i]);
    }
    for (size_t i = 0; i < count; i++) {
        struct plain_row *row = &plain.rows[list[i].key];
        if (row->seen < plain.expired_before && row->step != step)
            row->is_there = false;
        list[i].is_new = !row->is_there;
        estimates[i] = MIN(lowest_cell(list[i].key) + list[i].count, 255U);
    }
    bool counts = plain.options.admit_after > 1;
    for (size_t i = 0; i < count; i++)
        for (unsigned d = 0; d < 4 && counts && list[i].is_new; d++)
            *cell(list[i].key, d) = (uint8_t)MAX(*cell(list[i].key, d), estimates[i]);
    for (size_t i = 0; i < count; i++) { /* before any row is made: rows of the batch must not be evicted */
        struct plain_row *row = &plain.rows[list[i].key];
        if (list[i].is_new)
            continue;
        row->count += list[i].count;
        row->seen = MAX(row->seen, list[i].seen);
        row->step = step;
    }
    for (size_t i = 0; i < count; i++) {
        if (!list[i].is_new)
            continue;
        if (counts && lowest_cell(list[i].key) < MIN(plain.options.admit_after, 255U)) {
            plain.waiting += list[i].count;
        } else if (plain.options.rows_max > 0 && !plain_make_room(list[i].key, step)) {
            plain.refused += list[i].count;
        } else {
            plain.rows[list[i].key] = (struct plain_row){
                .is_there = true, .count = list[i].count, .seen = list[i].seen, .step = step};
        }
    }
}

static void plain_watermark(int64_t watermark_us)
{
    int64_t after = plain.options.expire_after_us;
    if (after == 0)
        return;
    plain.expired_before = (uint32_t)((watermark_us - after) / US_PER_SECOND) + 1;
    if (plain.halved_at_us == 0)
        plain.halved_at_us = watermark_us;
    for (; plain.halved_at_us + after <= watermark_us; plain.halved_at_us += after)
        for (size_t i = 0; i < sizeof(plain.cells); i++)
            ((uint8_t *)plain.cells)[i] /= 2;
}

static bool check_row(void *argument, struct table_row *row)
{
    const struct plain_row *p = &plain.rows[row->key];
    uint64_t payload[2];
    memcpy(payload, table_payload(row), sizeof(payload));
    assert_true(row->key >= 1 && row->key <= KEYS && p->is_there);
    assert_int_equal(row->count, p->count);
    assert_int_equal(row->seen, p->seen);
    assert_true(payload[0] == num_mix(row->key) && payload[1] == p->learned);
    ++*(size_t *)argument;
    return true;
}

static void check(const struct table *t)
{
    size_t found = 0, expected = 0;
    assert_true(table_visit(t, check_row, &found));
    for (uint64_t k = 1; k <= KEYS; k++)
        expected += plain.rows[k].is_there && plain.rows[k].seen >= plain.expired_before;
    assert_int_equal(found, expected);
    if (plain.options.admit_after > 1)
        assert_memory_equal(t->sketch.counts, plain.cells, sizeof(plain.cells));
    assert_int_equal(t->stats.waiting, plain.waiting);
    assert_int_equal(t->stats.refused, plain.refused);
    assert_int_equal(t->stats.evicted, plain.evicted);
}

/* Distinct keys; counts: NULL: one occurrence each. */
static void see(struct table *t, const uint64_t *keys, const uint32_t *seen, const uint32_t *counts, size_t n,
                uint32_t step, struct table_row **rows)
{
    static uint32_t ones[MANY];
    static uint8_t is_known[MANY];
    for (size_t i = 0; i < n; i++)
        ones[i] = 1;
    struct table_occurrences in = {
        .keys = keys, .seen = seen, .counts = counts != NULL ? counts : ones, .n = n};
    table_resolve_batch(t, &in, step, rows, is_known);
}

/* Occurrences in any order, with duplicates; key 0: none. */
static void see_all(struct table *t, const uint64_t *keys, const uint32_t *seen, size_t n, uint32_t step,
                    struct table_row **rows, uint8_t *is_known)
{
    uint64_t once[BATCH_MAX];
    uint32_t latest[BATCH_MAX], counts[BATCH_MAX], number[BATCH_MAX];
    struct table_row *rows_of[BATCH_MAX];
    uint8_t known_of[BATCH_MAX];
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        size_t u = 0;
        if (keys[i] == 0)
            continue;
        while (u < count && once[u] != keys[i])
            u++;
        if (u == count)
            once[count] = keys[i], latest[count] = counts[count] = 0, count++;
        latest[u] = MAX(latest[u], seen[i]);
        counts[u]++;
        number[i] = (uint32_t)u;
    }
    struct table_occurrences in = {.keys = once, .seen = latest, .counts = counts, .n = count};
    /* Rows looked up before the step: some were not found, others may have moved or been removed since. */
    if (draw(2)) {
        static const uint8_t none[BATCH_MAX];
        uint32_t steps[BATCH_MAX];
        for (size_t u = 0; u < count; u++)
            steps[u] = step;
        table_resolve(t, once, latest, steps, none, count, rows_of);
        in.rows = rows_of;
    }
    table_resolve_batch(t, &in, step, rows_of, known_of);
    for (size_t i = 0; i < n; i++)
        rows[i] = keys[i] == 0 ? NULL : rows_of[number[i]], is_known[i] = keys[i] != 0 && known_of[number[i]];
}

static void step_batch(struct table *t, uint32_t step, uint32_t now, size_t n)
{
    uint64_t keys[BATCH_MAX] = {0}, narrow = 1 + draw(KEYS);
    uint32_t seen[BATCH_MAX] = {0};
    struct table_row *rows[BATCH_MAX];
    uint8_t is_known[BATCH_MAX];
    bool was_there[BATCH_MAX];
    for (size_t i = 0; i < n; i++) {
        keys[i] = draw(16) == 0 ? 0 : 1 + draw(draw(2) ? narrow : KEYS) * draw(KEYS) / KEYS;
        seen[i] = now - (uint32_t)draw(30);
        const struct plain_row *p = &plain.rows[keys[i]];
        was_there[i] = keys[i] != 0 && p->is_there && (p->seen >= plain.expired_before || p->step == step);
    }
    see_all(t, keys, seen, n, step, rows, is_known);
    plain_batch(keys, seen, n, step);
    for (size_t i = 0; i < n; i++) {
        struct plain_row *p = &plain.rows[keys[i]];
        assert_true((rows[i] != NULL) == p->is_there && is_known[i] == was_there[i]);
        if (!p->is_there)
            continue;
        uint64_t *payload = (uint64_t *)(void *)table_payload(rows[i]);
        assert_true(rows[i]->key == keys[i] && rows[i]->step == step && rows[i]->epoch == t->epoch);
        payload[1] += i; /* all occurrences of a key have the same row */
        p->learned += i;
    }
}

static bool emit_rows(void *argument, const void *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        table_restore_row(argument, (const unsigned char *)rows + i * table_stored_bytes(argument));
    return true;
}

static bool emit_counts(void *argument, const void *items, size_t count)
{
    struct table *copy = argument;
    bool is_good = true;
    for (size_t i = 0; i < count; i++)
        is_good &= sketch_restore(&copy->sketch, (const struct sketch_block *)items + i);
    return is_good;
}

/* Writes the changes of an epoch to `copy`, which must then equal the table at the barrier, although the
 * table has gone on. */
static void snapshot(struct table *t, struct table *copy, uint32_t epoch, uint32_t *step, uint32_t now)
{
    const struct table_keys *removed;
    struct table_snapshot *s = table_snapshot_begin(t, epoch - 1, epoch, &removed);
    struct plain before = plain;
    for (int i = 0; i < 3; i++)
        step_batch(t, ++*step, now, draw(BATCH_MAX));
    for (size_t i = 0; i < removed->count; i++)
        table_restore_remove(copy, removed->items[i]);
    assert_true(table_snapshot_write(s, emit_rows, copy) &&
                table_snapshot_write_counts(s, emit_counts, copy));
    table_snapshot_end(t, true);
    struct plain after = plain;
    plain = before;
    copy->stats = t->stats;
    plain.waiting = after.waiting, plain.refused = after.refused, plain.evicted = after.evicted;
    copy->expired_before = plain.expired_before;
    check(copy);
    plain = after;
}

static void run(uint64_t seed)
{
    static const uint32_t admissions[] = {0, 1, 2, 3, 7, 300};
    random_state = seed << 32;
    plain = (struct plain){.options = {.payload_bytes = 16,
                                       .align = 8,
                                       .is_inline = draw(2),
                                       .seed = seed,
                                       .admit_after = admissions[draw(ARRAY_COUNT(admissions))],
                                       .sketch_bytes = SKETCH_BYTES,
                                       .expire_after_us = draw(2) ? 150 * US_PER_SECOND : 0,
                                       .rows_max = draw(2) ? 1 + draw(600) : 0,
                                       .init = init_row}};
    struct table t, copy;
    table_init(&t, &plain.options);
    table_init(&copy, &plain.options);
    bool is_cold = plain.options.rows_max == 0 && draw(2);
    if (is_cold)
        table_cold_init(&t, &fake_new(table_stored_bytes(&t))->store);
    uint32_t now = 1000, step = 1, epoch = 0;
    for (int i = 0; i < BATCHES; i++) {
        step_batch(&t, step, now, draw(BATCH_MAX + 1));
        bool goes_on = draw(8) == 0; /* the step goes on after the watermark */
        now += (uint32_t)draw(draw(8) == 0 ? 400 : 40);
        if (plain.options.expire_after_us > 0 && draw(2)) { /* expired rows that no sweep has removed yet */
            t.expired_before = plain.expired_before = now - 149;
        } else if (draw(2)) {
            table_set_watermark(&t, now * US_PER_SECOND, goes_on ? step : TABLE_STEP_NONE);
            plain_watermark(now * US_PER_SECOND);
        }
        if (is_cold && draw(3) == 0)
            assert_true(table_evict(&t, draw(KEYS / 2), step, goes_on));
        else if (!is_cold && draw(10) == 0)
            snapshot(&t, &copy, ++epoch, &step, now);
        step += !goes_on;
        check(&t);
    }
    table_free(&t);
    table_free(&copy);
}

static void test_rule(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        print_message("seed %d\n", (int)seed);
        run(seed);
    }
}

static struct table_options small(uint64_t rows_max)
{
    return (struct table_options){
        .payload_bytes = 16, .align = 8, .seed = 3, .rows_max = rows_max, .init = init_row};
}

/* Event by event, key 2 would evict key 1, which occurs right after it in the same batch; in a batch,
 * key 1 stays. */
static void test_later_occurrences_spare(void **state)
{
    (void)state;
    struct table t;
    struct table_options o = small(1);
    table_init(&t, &o);
    struct table_row *rows[2];
    see(&t, (const uint64_t[]){1}, (const uint32_t[]){5}, NULL, 1, 1, rows);
    rows[0]->count = UINT32_MAX - 1;
    see(&t, (const uint64_t[]){2, 1}, (const uint32_t[]){6, 7}, (const uint32_t[]){1, 2}, 2, 2, rows);
    assert_null(rows[0]);
    assert_true(rows[1]->key == 1 && rows[1]->seen == 7);
    assert_int_equal(rows[1]->count, UINT32_MAX); /* the count saturates */
    assert_int_equal(t.stats.refused, 1);
    see(&t, (const uint64_t[]){2, 3}, (const uint32_t[]){9, 9}, NULL, 2, 3, rows);
    assert_true(rows[0] != NULL && rows[1] == NULL); /* in the order of first occurrences */
    table_free(&t);
}

/* Buckets have at most 128 rows each and rows_max in all, for any rows_max. */
static void test_shares(void **state)
{
    (void)state;
    static const uint64_t limits[] = {1, 127, 128, 129, 255, 256, 257, 1000, 4096, 5001};
    for (size_t i = 0; i < ARRAY_COUNT(limits); i++) {
        struct table t;
        struct table_options o = small(limits[i]);
        table_init(&t, &o);
        uint64_t sum = 0;
        for (uint64_t b = 0; b < t.buckets; b++) {
            assert_in_range(table_bucket_rows(&t, b), 1, TABLE_BUCKET_ROWS);
            sum += table_bucket_rows(&t, b);
        }
        assert_int_equal(sum, limits[i]);
        struct table_row *row;
        for (uint64_t k = 1; k <= 40000; k++)
            see(&t, &k, &(uint32_t){1}, NULL, 1, (uint32_t)k, &row);
        assert_int_equal(t.stats.rows, limits[i]);
        table_free(&t);
    }
}

/* --- Rows that are removed or moved between a look-up and its step --- */

enum way { EXPIRED, EVICTED, SPILLED, SPLIT, WAYS };

static void make_go(struct table *t, enum way way, uint32_t step)
{
    static uint64_t keys[MANY];
    static uint32_t seen[MANY];
    static struct table_row *rows[MANY];
    size_t n = way == SPLIT ? MANY : way == EVICTED ? ROOM : OLD / 2;
    for (size_t i = 0; i < n; i++)
        keys[i] = OLD + 1 + i, seen[i] = 1400;
    if (way == EXPIRED)
        table_set_watermark(t, 1200 * US_PER_SECOND, TABLE_STEP_NONE);
    if (way == SPILLED)
        assert_true(table_evict(t, OLD / 2, step, false));
    see(t, keys, seen, NULL, n, step, rows); /* new rows take the places that are free now */
}

struct rows_seen {
    size_t count;
    struct {
        struct table_row head;
        uint64_t payload[2];
    } rows[OLD + MANY];
};

static bool note_row(void *argument, struct table_row *row)
{
    struct rows_seen *all = argument;
    all->rows[all->count].head = *row;
    memcpy(all->rows[all->count++].payload, table_payload(row), sizeof(all->rows->payload));
    return true;
}

/* Half of the rows have event times late enough to stay when the others expire. Returns how many of the rows
 * found by the look-up are elsewhere or gone at the time of the step. */
static size_t step_after(struct table *t, enum way way, bool is_handed, struct rows_seen *all,
                         uint8_t *is_known)
{
    uint64_t keys[OLD];
    uint32_t seen[OLD], steps[OLD], counts[OLD];
    static const uint8_t none[OLD];
    struct table_row *rows[OLD], *found[OLD];
    size_t gone = 0;
    for (size_t i = 0; i < OLD; i++)
        keys[i] = i + 1, seen[i] = i % 2 == 0 ? 1000 : 1190, steps[i] = 2, counts[i] = 1;
    see(t, keys, seen, NULL, OLD, 1, rows);
    for (size_t i = 0; i < OLD; i++)
        memcpy((unsigned char *)table_payload(rows[i]) + sizeof(uint64_t), &(uint64_t){i * i},
               sizeof(uint64_t));
    table_resolve(t, keys, seen, steps, none, OLD, found);
    make_go(t, way, 2);
    for (size_t i = 0; i < OLD; i++)
        gone += found[i] != NULL && found[i]->key != keys[i];
    struct table_occurrences in = {
        .keys = keys, .seen = seen, .counts = counts, .rows = is_handed ? found : NULL, .n = OLD};
    table_resolve_batch(t, &in, 3, rows, is_known);
    for (size_t i = 0; i < OLD; i++)
        assert_true(rows[i] == NULL || (rows[i]->key == keys[i] && rows[i]->step == 3));
    all->count = 0;
    assert_true(table_visit(t, note_row, all));
    return gone;
}

static void test_rows_that_went(void **state)
{
    (void)state;
    static struct rows_seen handed, searched;
    for (int way = 0; way < 2 * WAYS; way++) {
        uint8_t known[2][OLD];
        size_t gone = 0;
        for (int is_handed = 0; is_handed < 2; is_handed++) {
            struct table t;
            struct table_options o = small(way / 2 == EVICTED ? ROOM : 0);
            o.is_inline = way % 2, o.expire_after_us = 150 * US_PER_SECOND;
            table_init(&t, &o);
            if (way / 2 == SPILLED)
                table_cold_init(&t, &fake_new(table_stored_bytes(&t))->store);
            gone = step_after(&t, (enum way)(way / 2), is_handed, is_handed ? &handed : &searched,
                              known[is_handed]);
            table_free(&t);
        }
        assert_true(gone > OLD / 10 || way == 2 * SPLIT); /* a split does not move rows that lie apart */
        assert_int_equal(handed.count, searched.count);
        assert_memory_equal(handed.rows, searched.rows, handed.count * sizeof(*handed.rows));
        assert_memory_equal(known[0], known[1], sizeof(known[0]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rule),
        cmocka_unit_test(test_later_occurrences_spare),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_rows_that_went),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

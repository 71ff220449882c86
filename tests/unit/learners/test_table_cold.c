/* Tables and models whose rows are moved to a cold store at random, against ones that keep all rows in
 * memory: the same rows and predictions, also after restoring checkpoints. */
#include "events.h"
#include "fake_cold.h"

#include "core/buffer.h"
#include "core/team.h"
#include "learners/model/internal.h"
#include "learners/tables/cold.h"
#include "learners/tables/inline.h"
#include "learners/tables/shard.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

enum { KEYS = 3000, CALL_MAX = 64, EPOCHS = 24 };

static struct events events;
static double logits[EVENTS_MAX], other_logits[EVENTS_MAX];
static uint8_t verdicts[EVENTS_MAX], other_verdicts[EVENTS_MAX];

static void init_row(void *argument, uint64_t key, void *payload)
{
    (void)argument;
    uint64_t *p = payload;
    p[0] = num_mix(key);
    p[1] = 0;
}

static uint64_t key_at(uint64_t i)
{
    uint64_t a = num_mix(i * 2) % KEYS, b = num_mix(i * 2 + 1) % KEYS;
    return 1 + (a * b) / KEYS;
}

static struct fake_cold *make_cold(struct table *t)
{
    struct fake_cold *fake = fake_new(table_stored_bytes(t));
    table_cold_init(t, &fake->store);
    return fake;
}

/* One call, which depends on `at` alone. Inline rows are resolved one by one, with all look-ups announced
 * before, as linear_plain.c does. */
static void call(struct table *t, uint32_t at, uint32_t n)
{
    uint64_t keys[CALL_MAX];
    uint32_t seen[CALL_MAX], steps[CALL_MAX];
    uint8_t learns[CALL_MAX];
    struct table_row *rows[CALL_MAX];
    for (uint32_t j = 0; j < n; j++) {
        keys[j] = key_at(at + j);
        seen[j] = 1000 + (at + j) / 10;
        steps[j] = at + j + 1;
        learns[j] = num_mix(at + j) % 8 != 0;
    }
    uint32_t piece = t->options.is_inline ? 1 : n;
    table_warm(t, keys, n, steps[0]);
    for (uint32_t j = 0; j < n; j++) {
        if (j % piece == 0)
            table_resolve(t, keys + j, seen + j, steps + j, learns + j, piece, rows + j);
        uint64_t *payload = rows[j] == NULL ? NULL : (uint64_t *)(void *)table_payload(rows[j]);
        if (payload != NULL && learns[j])
            payload[1] += at + j;
    }
    if (t->options.expire_after_us > 0)
        table_set_watermark(t, (int64_t)(1000 + at / 10) * US_PER_SECOND, TABLE_STEP_NONE);
}

static bool add_row(void *argument, struct table_row *row)
{
    uint64_t *digest = argument, payload[2];
    memcpy(payload, table_payload(row), sizeof(payload));
    *digest = num_mix(*digest ^ row->key) + row->count * 5 + row->seen * 7;
    *digest = num_mix(*digest ^ payload[0]) + payload[1] * 3;
    return true;
}

static uint64_t digest(const struct table *t)
{
    uint64_t sum = 0;
    assert_true(table_visit(t, add_row, &sum));
    return sum;
}

static struct table_options options(unsigned variant)
{
    return (struct table_options){.payload_bytes = 16,
                                  .align = 8,
                                  .is_inline = variant & 1,
                                  .seed = 3,
                                  .admit_after = variant & 2 ? 3 : 0,
                                  .sketch_bytes = 1 << 14,
                                  .expire_after_us = variant & 4 ? 200 * US_PER_SECOND : 0,
                                  .init = init_row};
}

enum { VARIANTS = 8 };

static void test_same_rows(void **state)
{
    (void)state;
    for (unsigned variant = 0; variant < VARIANTS; variant++) {
        struct table cold, warm;
        struct table_options o = options(variant);
        table_init(&cold, &o);
        table_init(&warm, &o);
        make_cold(&cold);
        uint32_t n;
        for (uint32_t at = 0; at < 30000; at += n) {
            n = 1 + (uint32_t)(num_mix(at) % CALL_MAX);
            if (num_mix(at + 1) % 4 == 0)
                assert_true(table_evict(&cold, num_mix(at + 2) % 300, at, false));
            call(&cold, at, n);
            call(&warm, at, n);
            if (num_mix(at + 3) % 50 == 0)
                assert_true(digest(&cold) == digest(&warm));
        }
        assert_true(digest(&cold) == digest(&warm));
        assert_true(cold.cold->evicted > 3000 && cold.cold->loaded > 1000 && cold.cold->rows > 0);
        assert_true(warm.stats.rows > 100 && cold.stats.waiting == warm.stats.waiting);
        assert_true(o.expire_after_us > 0 || table_rows(&cold) == warm.stats.rows);
        table_free(&cold);
        table_free(&warm);
    }
}

/* Looks the keys up without an occurrence; returns how many have a row. */
static uint32_t look_up(struct table *t, const uint64_t *keys, uint32_t n)
{
    uint32_t seen[CALL_MAX] = {0}, steps[CALL_MAX] = {TABLE_STEP_NONE}, found = 0;
    uint8_t learns[CALL_MAX] = {0};
    struct table_row *rows[CALL_MAX];
    table_look(t, keys, seen, steps, learns, n, false, rows);
    for (uint32_t i = 0; i < n; i++) {
        if (rows[i] == NULL || rows[i] == &table_possible)
            continue;
        uint64_t payload[2];
        memcpy(payload, table_payload(rows[i]), sizeof(payload));
        assert_true(rows[i]->key == keys[i] && payload[0] == num_mix(keys[i]));
        found++;
    }
    return found;
}

/* A call that only reads asks the store once for each key, whether the store has it or not; the next call asks again,
 * and finds what has come to the store since. */
static void test_asked_once(void **state)
{
    (void)state;
    enum { STORED = 20, ABSENT = 20, TIMES = 30 };
    struct table t;
    struct table_options o = options(0);
    uint64_t keys[CALL_MAX], stored[STORED];
    uint32_t seen[STORED] = {0}, steps[STORED], found = 0;
    struct table_row *rows[STORED];
    table_init(&t, &o);
    struct fake_cold *fake = make_cold(&t);
    for (uint32_t i = 0; i < STORED; i++) {
        stored[i] = 1 + i;
        steps[i] = 1;
    }
    table_resolve(&t, stored, seen, steps, NULL, STORED, rows);
    assert_true(table_evict(&t, STORED / 2, 2, false) && t.stats.rows == STORED / 2);
    for (uint32_t round = 0; round < 2; round++) {
        uint64_t before = fake->gets, cold = t.cold->rows;
        table_guests_begin(&t);
        for (uint32_t turn = 0; turn < TIMES; turn++) {
            for (uint32_t i = 0; i < CALL_MAX; i++)
                keys[i] = 1 + num_mix(turn * CALL_MAX + i) % (STORED + ABSENT);
            found = 0;
            for (uint32_t i = 0; i < CALL_MAX; i++)
                found += keys[i] <= STORED;
            assert_int_equal(look_up(&t, keys, CALL_MAX), found);
        }
        assert_int_equal(fake->gets - before, cold + ABSENT);
        table_guests_end(&t);
        assert_true(table_evict(&t, STORED, 3, false) && t.stats.rows == 0);
    }
    table_free(&t);
}

/* --- Checkpoints --- */

struct disk {
    struct table rows; /* base and deltas so far, as a restore would see them */
    struct fake_rows cold;
    uint64_t total;
};

static bool emit_rows(void *argument, const void *rows, size_t count)
{
    struct table *t = argument;
    for (size_t i = 0; i < count; i++)
        table_restore_row(t, (const unsigned char *)rows + i * table_stored_bytes(t));
    return true;
}

struct writing {
    struct table_snapshot *snapshot;
    struct table *to;
};

static void *write_rows(void *argument)
{
    struct writing *w = argument;
    return table_snapshot_write(w->snapshot, emit_rows, w->to) ? argument : NULL;
}

/* A checkpoint: a barrier, 40 calls and evictions while it is written, and its end. Returns where
 * the calls end. */
static uint32_t checkpoint(struct table *t, struct disk *disk, uint32_t epoch, uint32_t *published,
                           uint32_t at, bool is_base, bool is_published)
{
    const struct table_keys *removed;
    struct fake_cold *fake = t->cold->store->self;
    struct writing w = {.to = &disk->rows};
    uint64_t total = table_rows(t);
    w.snapshot = table_snapshot_begin(t, is_base ? 0 : *published, epoch, &removed);
    table_cold_barrier(t);
    pthread_t thread;
    void *result = &w;
    if (is_published) {
        if (is_base) {
            struct table_options o = t->options;
            table_free(&disk->rows);
            table_init(&disk->rows, &o);
        }
        for (size_t i = 0; i < removed->count; i++)
            table_restore_remove(&disk->rows, removed->items[i]);
        assert_int_equal(pthread_create(&thread, NULL, write_rows, &w), 0);
    }
    for (uint32_t i = 0; i < 40; i++, at += 16) {
        if (i % 8 == 7)
            assert_true(table_evict(t, 100, at, false));
        call(t, at, 16);
    }
    if (is_published) {
        pthread_join(thread, &result);
        fake_copy(&disk->cold, &fake->copy, fake->row_bytes);
        disk->total = total;
        *published = epoch;
    }
    assert_non_null(result);
    table_snapshot_end(t, is_published);
    return at;
}

/* Restores a table from a checkpoint: the rows of base and deltas, and the newest copy of the cold store. */
static void restore(struct table *t, struct disk *disk, uint32_t epoch)
{
    table_init(t, &disk->rows.options);
    struct fake_cold *fake = make_cold(t);
    fake_copy(&fake->now, &disk->cold, fake->row_bytes);
    const struct table_keys *removed;
    struct table_snapshot *all = table_snapshot_begin(&disk->rows, 0, epoch, &removed);
    assert_true(table_snapshot_write(all, emit_rows, t));
    table_snapshot_end(&disk->rows, true);
    table_restored(t, epoch);
    table_cold_restored(t, disk->total);
}

static void run_checkpoints(unsigned variant)
{
    struct table_options o = options(variant);
    o.admit_after = 0; /* test_table.c tests sketches */
    struct table t, warm;
    struct disk disk = {.total = 0};
    table_init(&t, &o);
    table_init(&warm, &o);
    table_init(&disk.rows, &o);
    make_cold(&t);
    uint32_t at = 0, barrier = 0, published = 0;
    bool wants_base = true;
    uint64_t loaded = 0;
    for (uint32_t epoch = 1; epoch <= EPOCHS; epoch++) {
        for (uint32_t i = 0; i < 100; i++, at += 16) {
            if (num_mix(at) % 3 == 0)
                assert_true(table_evict(&t, num_mix(at + 1) % 200, at, false));
            call(&t, at, 16);
        }
        bool is_published = epoch % 3 != 2;
        uint64_t expected = digest(&t);
        barrier = is_published ? at : barrier;
        at = checkpoint(&t, &disk, epoch, &published, at, wants_base || epoch % 7 == 0, is_published);
        wants_base = wants_base && !is_published;
        if (!is_published)
            continue;
        struct table again;
        restore(&again, &disk, epoch);
        again.expired_before = 1000 + (barrier - 16) / 10;
        again.expired_before = o.expire_after_us > 0
                                   ? again.expired_before - (uint32_t)(o.expire_after_us / US_PER_SECOND) + 1
                                   : 0;
        again.watermark_us = (int64_t)(1000 + (barrier - 16) / 10) * US_PER_SECOND;
        assert_true(digest(&again) == expected);
        if (epoch % 4 == 0) { /* the old process ends here */
            loaded += t.cold->loaded;
            table_free(&t);
            t = again;
            at = barrier;
            wants_base = true;
        } else {
            table_free(&again);
        }
    }
    uint32_t end = at;
    for (at = 0; at < end; at += 16)
        call(&warm, at, 16);
    assert_true(digest(&t) == digest(&warm));
    assert_true(loaded > 1000);
    table_free(&t);
    table_free(&warm);
    table_free(&disk.rows);
    fake_clear(&disk.cold);
}

static void test_checkpoints(void **state)
{
    (void)state;
    for (unsigned variant = 0; variant < VARIANTS; variant++)
        if (!(variant & 2))
            run_checkpoints(variant);
}

/* If the store cannot write rows, they stay in memory. */
static void test_failed_store(void **state)
{
    (void)state;
    struct table t;
    struct table_options o = options(0);
    table_init(&t, &o);
    struct fake_cold *fake = make_cold(&t);
    for (uint32_t at = 0; at < 3200; at += 16)
        call(&t, at, 16);
    uint64_t before = digest(&t), rows = t.stats.rows;
    fake->has_failed = true;
    assert_false(table_evict(&t, 100, 3200, false));
    assert_true(t.stats.rows == rows && digest(&t) == before);
    fake->has_failed = false;
    assert_true(table_evict(&t, rows, 3200, false));
    assert_true(t.stats.rows == 0 && t.cold->rows == rows && digest(&t) == before);
    fake->has_failed = true; /* the engine stops after such an error; until then nothing may break */
    call(&t, 3200, 16);
    table_free(&t);
}

/* --- Models --- */

static bool add_payload(void *argument, struct table_row *row)
{
    uint64_t *sum = argument;
    const uint32_t *words = (const uint32_t *)(const void *)table_payload(row);
    *sum = num_mix(*sum ^ row->key) + row->count * 31 + row->seen;
    *sum = num_mix(*sum ^ words[0]) + words[1];
    return true;
}

static uint64_t model_digest(struct model *m)
{
    uint64_t sum = 0;
    for (uint32_t f = 0; f < EVENT_FIELDS; f++)
        assert_true(table_visit(model_table(m, f), add_payload, &sum));
    return sum;
}

struct helper {
    struct team team;
    atomic_bool is_over;
};

static void *help(void *argument)
{
    struct helper *h = argument;
    while (!atomic_load(&h->is_over))
        if (!team_help(&h->team))
            team_pause(1000);
    return NULL;
}

static void wake(void *engine)
{
    (void)engine;
}

/* Between calls random rows are evicted, but none of a block in progress. */
static void learn_cold(struct model *m, uint32_t begin, uint32_t end)
{
    uint32_t n;
    for (uint32_t at = begin; at < end; at += n) {
        n = MIN(1 + (uint32_t)(num_mix(at) % 200), end - at);
        for (uint32_t f = 0; f < EVENT_FIELDS; f++)
            assert_true(table_evict(model_table(m, f), num_mix(at + f) % 400, (uint32_t)m->steps + 1,
                                    m->pending > 0));
        events_learn(&events, m, at, at + n, n, other_logits, other_verdicts);
        if (at / 1000 != (at + n) / 1000)
            model_set_watermark(m, events.times[at]);
    }
}

static void learn_warm(struct model *m, uint32_t begin, uint32_t end)
{
    uint32_t n;
    for (uint32_t at = begin; at < end; at += n) {
        n = MIN(1 + (uint32_t)(num_mix(at) % 200), end - at);
        events_learn(&events, m, at, at + n, n, logits, verdicts);
        if (at / 1000 != (at + n) / 1000)
            model_set_watermark(m, events.times[at]);
    }
}

static void predict(struct model *m, double *out)
{
    const uint64_t *ids[EVENT_FIELDS];
    const float *dense[EVENT_DENSE];
    for (int f = 0; f < EVENT_FIELDS; f++)
        ids[f] = events.ids[f];
    for (int d = 0; d < EVENT_DENSE; d++)
        dense[d] = events.dense[d];
    struct model_input in = {.rows = 1000, .ids = ids, .dense = dense, .event_time_us = events.times};
    model_predict(m, &in, out);
}

static void same_model(const struct model_options *o)
{
    const char *reason;
    const struct kernels *k = kernels_pick(NULL, &reason);
    struct model *cold = model_new(o, k), *warm = model_new(o, k);
    struct helper h = {.team = {.wake = wake}};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, help, &h), 0);
    model_set_team(cold, &h.team);
    for (uint32_t f = 0; f < EVENT_FIELDS; f++)
        model_set_cold(cold, f, &fake_new(table_stored_bytes(model_table(cold, f)))->store);
    learn_cold(cold, 0, 4000);
    learn_warm(warm, 0, 4000);
    for (uint32_t f = 0; f < EVENT_FIELDS; f++)
        assert_true(table_evict(model_table(cold, f), 200, (uint32_t)cold->steps + 1, cold->pending > 0));
    predict(cold, other_logits);
    predict(warm, logits);
    assert_memory_equal(logits, other_logits, 4000 * sizeof(*logits));
    learn_cold(cold, 4000, EVENTS_MAX);
    learn_warm(warm, 4000, EVENTS_MAX);
    assert_memory_equal(logits + 4000, other_logits + 4000, (EVENTS_MAX - 4000) * sizeof(*logits));
    assert_memory_equal(verdicts, other_verdicts, sizeof(verdicts));
    assert_true(model_digest(cold) == model_digest(warm));
    assert_true(model_table(cold, 2)->cold->loaded > 500);
    atomic_store(&h.is_over, true);
    pthread_join(thread, NULL);
    model_free(cold);
    model_free(warm);
}

static void test_models(void **state)
{
    (void)state;
    static const struct {
        const struct interaction *interaction;
        uint32_t hidden, batch;
        bool is_clipped;
    } shapes[] = {{NULL, 0, 1, false},
                  {NULL, 0, 37, false},
                  {&interaction_fm, 0, 1, false},
                  {&interaction_ffm, 0, 1, true},
                  {&interaction_fm, 24, 1, false},
                  {&interaction_ffm, 0, 64, false}};
    for (size_t i = 0; i < ARRAY_COUNT(shapes); i++)
        for (int has_rules = 0; has_rules < 2; has_rules++) {
            struct model_options o = events_options(shapes[i].interaction, shapes[i].hidden);
            o.batch = shapes[i].batch;
            o.clip_norm = shapes[i].is_clipped ? 0.5F : 0.0F;
            if (has_rules) {
                o.admit_after = 2;
                o.sketch_bytes = 4096;
                o.expire_after_us = 700 * US_PER_SECOND;
                o.negatives_kept = 0.7;
            }
            same_model(&o);
        }
}

/* A table keeps a memory budget far below what its rows need, and loses no row. */
static void test_budget(void **state)
{
    (void)state;
    for (int is_inline = 0; is_inline < 2; is_inline++) {
        struct table t, warm;
        struct table_options o = options(is_inline ? 1 : 0);
        table_init(&t, &o);
        table_init(&warm, &o);
        struct fake_cold *fake = make_cold(&t);
        table_share(&t, 70000); /* some 1,400 rows of 3,000 */
        size_t most = 0;
        for (uint32_t at = 0; at < 60000; at += 64) {
            fake->is_held = at % 4096 < 1024;
            table_keep(&t, at, false);
            call(&t, at, 64);
            call(&warm, at, 64);
            most = MAX(most, table_row_bytes(&t));
        }
        assert_true(most < table_row_bytes(&warm) * 3 / 4);
        assert_true(t.cold->evicted > 100 && t.cold->loaded > 100);
        assert_true(digest(&t) == digest(&warm));
        table_free(&t);
        table_free(&warm);
    }
}

/* A row that was loaded and then expired in memory leaves its copy in the store, which the count of cold rows has no
 * part of: giving the copy's shard away must not make the table forget that another shard has a cold row. */
static void test_given_expired_copy(void **state)
{
    (void)state;
    struct table t;
    struct table_options o = options(4);
    o.shards = TABLE_SHARDS_MAX;
    table_init(&t, &o);
    make_cold(&t);
    uint64_t keys[2] = {1, 2};
    while (table_shard(&t, keys[1]) == table_shard(&t, keys[0]))
        keys[1]++;
    uint32_t seen[2] = {1000, 5000}, steps[3] = {1, 1, 2};
    struct table_row *rows[2];
    struct byte_buffer given = {0};
    table_resolve(&t, keys, seen, steps, NULL, 2, rows);
    assert_true(table_evict(&t, 2, 2, false) && t.cold->rows == 2);
    table_resolve(&t, keys, seen, steps + 2, NULL, 1, rows);
    assert_int_equal(t.cold->rows, 1);
    table_set_watermark(&t, 2000 * US_PER_SECOND, TABLE_STEP_NONE);
    assert_int_equal(t.stats.rows, 0);
    assert_true(table_give_shard(&t, table_shard(&t, keys[0]), &given));
    assert_int_equal(look_up(&t, keys + 1, 1), 1);
    buffer_free(&given);
    table_free(&t);
}

static int setup(void **state)
{
    (void)state;
    events_make(&events);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_rows),
        cmocka_unit_test(test_checkpoints),
        cmocka_unit_test(test_failed_store),
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_asked_once),
        cmocka_unit_test(test_given_expired_copy),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}

/* Histories against a plain model (histories_model.h): random appends, look-ups, removals, expiry, cold rows and
 * restores; and the edges. */
#include "histories_model.h"

#include "core/buffer.h"
#include "learners/histories/internal.h"
#include "learners/tables/cut.h"

#include <stdio.h>

enum { TABLES_MAX = CLASSES_MAX + 1 };

/* --- Checkpoints --- */

/* What the checkpoints hold: the rows of base and deltas, as histories, and the copies of the cold stores. */
struct disk {
    struct histories *rows;
    struct fake_rows cold[TABLES_MAX];
    uint64_t total[TABLES_MAX];
};

struct writing {
    struct table_snapshot *snapshot[TABLES_MAX];
    const struct table_keys *removed[TABLES_MAX];
    uint64_t total[TABLES_MAX];
};

static bool emit_rows(void *argument, const void *rows, size_t count)
{
    struct table *t = argument;
    for (size_t i = 0; i < count; i++)
        table_restore_row(t, (const unsigned char *)rows + i * table_stored_bytes(t));
    return true;
}

static void checkpoint_begin(struct histories *h, struct writing *w, uint32_t since, uint32_t epoch)
{
    for (size_t i = 0; i < histories_tables(h); i++) {
        struct table *t = histories_table(h, i);
        w->total[i] = table_rows(t);
        w->snapshot[i] = table_snapshot_begin(t, since, epoch, &w->removed[i]);
        if (t->cold != NULL)
            table_cold_barrier(t);
    }
}

static void checkpoint_end(struct histories *h, struct writing *w, struct disk *disk, bool is_published)
{
    for (size_t i = 0; i < histories_tables(h); i++) {
        struct table *t = histories_table(h, i), *rows = histories_table(disk->rows, i);
        for (size_t k = 0; k < w->removed[i]->count && is_published; k++)
            table_restore_remove(rows, w->removed[i]->items[k]);
        if (is_published)
            assert_true(table_snapshot_write(w->snapshot[i], emit_rows, rows));
        if (is_published && t->cold != NULL) {
            struct fake_cold *fake = t->cold->store->self;
            fake_copy(&disk->cold[i], &fake->copy, fake->row_bytes);
        }
        disk->total[i] = is_published ? w->total[i] : disk->total[i];
        table_snapshot_end(t, is_published);
    }
}

static struct histories *restore(const struct variant *v, struct disk *disk, uint32_t epoch)
{
    struct histories *h = make(v, v->has_cold);
    for (size_t i = 0; i < histories_tables(h); i++) {
        struct table *t = histories_table(h, i), *rows = histories_table(disk->rows, i);
        const struct table_keys *removed;
        struct table_snapshot *all = table_snapshot_begin(rows, 0, epoch, &removed);
        assert_true(table_snapshot_write(all, emit_rows, t));
        table_snapshot_end(rows, true);
        table_restored(t, epoch);
        if (t->cold != NULL) {
            struct fake_cold *fake = t->cold->store->self;
            fake_copy(&fake->now, &disk->cold[i], fake->row_bytes);
            table_cold_restored(t, disk->total[i]);
        }
    }
    assert_null(histories_check(h));
    return h;
}

/* --- One owner, and the model --- */

struct world {
    const struct variant *variant;
    struct test_random random;
    struct histories *h;
    struct plain *plain, *then; /* then: at the barrier of the published checkpoint */
    struct disk disk;
    uint32_t step, now, epoch, published;
    uint64_t evicted, loaded, left_cold;
};

static void look_up(struct world *w)
{
    uint64_t keys[BATCH];
    struct history_view views[BATCH];
    uint32_t n = 1 + random_below(&w->random, BATCH);
    bool only_reads = random_chance(&w->random, 50);
    for (uint32_t i = 0; i < n; i++)
        keys[i] = random_below(&w->random, PLAIN_USERS + 1);
    if (only_reads)
        histories_guests_begin(w->h);
    histories_find(w->h, keys, n, w->step, views);
    for (uint32_t i = 0; i < n; i++)
        plain_check(w->plain, keys[i], &views[i]);
    if (only_reads)
        histories_guests_end(w->h);
}

static void remove_one(struct world *w)
{
    uint64_t key = plain_draw_key(&w->random);
    assert_true(histories_remove(w->h, key) == plain_is_there(w->plain, key));
    if (plain_is_there(w->plain, key))
        w->plain->users[key] = (struct plain_user){0};
}

static void turn(struct world *w)
{
    static struct batch b;
    w->now += random_below(&w->random, 20);
    if (w->variant->has_cold)
        evict_some(w->h, &w->random, w->step);
    make_batch(&b, &w->random, w->variant, &w->step, w->now);
    append(w->h, &b);
    for (size_t i = 0; i < b.n; i++)
        assert_int_equal(b.before[i], plain_append(w->plain, b.keys[i], &b.entries[i]));
    if (random_chance(&w->random, 60))
        set_time(w->h, w->variant, w->now), plain_set_time(w->plain, w->variant, w->now);
    if (random_chance(&w->random, 30))
        look_up(w);
    if (random_chance(&w->random, 30))
        remove_one(w);
}

/* A checkpoint, published or not, with turns while it is open; at times the process then ends, and goes on from the
 * checkpoint published last. */
static void checkpoint(struct world *w)
{
    struct writing writing;
    bool is_published = random_chance(&w->random, 70), is_base = random_chance(&w->random, 20);
    struct plain *barrier = malloc(sizeof(*barrier));
    uint32_t now = w->now;
    memcpy(barrier, w->plain, sizeof(*barrier));
    w->epoch++;
    is_base |= w->published == 0;
    checkpoint_begin(w->h, &writing, is_base ? 0 : w->published, w->epoch);
    for (uint32_t i = random_below(&w->random, 8); i > 0; i--)
        turn(w);
    if (is_published && is_base) {
        histories_free(w->disk.rows);
        w->disk.rows = make(w->variant, false);
    }
    checkpoint_end(w->h, &writing, &w->disk, is_published);
    if (is_published) {
        w->published = w->epoch;
        free(w->then);
        w->then = barrier;
    } else {
        free(barrier);
        return;
    }
    struct histories *again = restore(w->variant, &w->disk, w->epoch);
    set_time(again, w->variant, now);
    w->then->expired_before = 0;
    plain_set_time(w->then, w->variant, now);
    plain_check_all(w->then, again, w->step);
    if (random_chance(&w->random, 50)) {
        for (size_t i = 1; i < histories_tables(w->h) && w->variant->has_cold; i++) {
            w->evicted += histories_table(w->h, i)->cold->evicted;
            w->loaded += histories_table(w->h, i)->cold->loaded;
        }
        histories_free(w->h);
        w->h = again;
        memcpy(w->plain, w->then, sizeof(*w->plain));
        w->now = now;
    } else {
        histories_free(again);
    }
}

static void test_model(void **state)
{
    (void)state;
    for (size_t k = 0; k < ARRAY_COUNT(variants); k++) {
        const struct variant *v = &variants[k];
        struct world w = {.variant = v, .random.state = 77 + k, .now = START};
        w.h = make(v, v->has_cold);
        w.disk.rows = make(v, false);
        w.plain = calloc(1, sizeof(*w.plain));
        w.plain->history = v->history;
        for (int i = 0; i < 400; i++) {
            turn(&w);
            if (random_chance(&w.random, 6))
                checkpoint(&w);
            if (random_chance(&w.random, 8))
                plain_check_all(w.plain, w.h, w.step);
        }
        plain_check_all(w.plain, w.h, w.step);
        assert_true(histories_count(w.h).users > 20 && w.published > 3);
        assert_true(!v->has_cold || (w.evicted > 1000 && w.loaded > 200));
        histories_free(w.h);
        histories_free(w.disk.rows);
        for (size_t i = 0; i < TABLES_MAX; i++)
            fake_clear(&w.disk.cold[i]);
        free(w.plain);
        free(w.then);
    }
}

/* --- Cuts --- */

/* A follower that takes what changed since the last cut has the same users and entries. */
static void test_follower(void **state)
{
    (void)state;
    for (size_t k = 0; k < ARRAY_COUNT(variants); k++) {
        const struct variant *v = &variants[k];
        struct world w = {.variant = v, .random.state = 9 + k, .now = START};
        struct histories *follower = make(v, false);
        w.h = make(v, v->has_cold);
        w.plain = calloc(1, sizeof(*w.plain));
        w.plain->history = v->history;
        for (size_t i = 0; i < histories_tables(w.h); i++) {
            table_cut_note(histories_table(w.h, i), true, 1);
            table_restored(histories_table(follower, i), 1);
        }
        for (uint32_t epoch = 2; epoch < 40; epoch++) {
            for (uint32_t i = random_below(&w.random, 8); i > 0; i--)
                turn(&w);
            for (size_t i = 0; i < histories_tables(w.h); i++) {
                struct byte_buffer cut = {0};
                table_cut(histories_table(w.h, i), epoch, &cut);
                assert_true(table_take_cut(histories_table(follower, i), cut.data, cut.length, w.step));
                buffer_free(&cut);
            }
            set_time(follower, v, w.now);
            set_time(w.h, v, w.now), plain_set_time(w.plain, v, w.now);
            plain_check_all(w.plain, follower, w.step);
        }
        histories_free(w.h);
        histories_free(follower);
        free(w.plain);
    }
}

/* --- Edges --- */

static void test_windows(void **state)
{
    (void)state;
    static const uint32_t histories[] = {1, 2, 3, 4, 5, 50, 199, 200, HISTORY_MAX};
    for (size_t k = 0; k < ARRAY_COUNT(histories); k++) {
        uint32_t history = histories[k], length = 0;
        uint64_t start = 0;
        for (uint64_t count = 0; count < 20000; count++) {
            struct history_window window = history_window(count, history);
            assert_true(window.start == start && window.length == length);
            uint32_t gone = length == history ? history - history / 2 : 0;
            start += gone;
            length = length - gone + 1;
        }
        struct history_window far = history_window(UINT64_MAX, history);
        assert_true(far.length > 0 && far.length <= history && far.start + far.length == UINT64_MAX);
    }
    assert_int_equal(history_seconds(-1), 0);
    assert_int_equal(history_seconds(5999999), 5);
    assert_int_equal(history_seconds(INT64_MAX), UINT32_MAX);
}

/* A user of a million events with the longest history and entries, which look at their largest values. */
static void test_long_history(void **state)
{
    (void)state;
    struct histories_options options = {.history = HISTORY_MAX, .sides = HISTORY_SIDES_MAX, .seed = 1};
    struct histories *h = histories_create(&options);
    enum { EVENTS = 1000000, CALL = 1000 };
    static uint64_t keys[CALL], before[CALL];
    static uint32_t steps[CALL];
    static struct history_entry entries[CALL];
    uint64_t key = 42;
    for (uint64_t at = 0; at < EVENTS; at += CALL) {
        for (uint32_t i = 0; i < CALL; i++) {
            keys[i] = key;
            steps[i] = 1 + (uint32_t)at;
            uint32_t side = UINT32_MAX - i;
            entries[i] = (struct history_entry){.item = {ITEMS_NUMBERS_MAX - i, UINT16_MAX},
                                                .seconds = (at + i) % 2 == 0 ? UINT32_MAX : UINT32_MAX / 2,
                                                .sides = {side, side, side, side}};
        }
        histories_append(h, keys, steps, entries, CALL, before);
        assert_int_equal(before[CALL - 1], at + CALL - 1);
    }
    struct history_view view;
    struct history_entry entry;
    histories_find(h, &key, 1, 0, &view);
    struct history_window window = history_window(EVENTS, HISTORY_MAX);
    assert_true(view.count == EVENTS && view.length == window.length);
    for (uint64_t i = window.start; i < EVENTS; i++) {
        assert_true(history_next(&view, &entry));
        assert_memory_equal(&entry, &entries[i % CALL], sizeof(entry));
    }
    assert_false(history_next(&view, &entry));
    assert_int_equal(histories_count(h).entries, window.length);
    histories_free(h);
}

static bool visit_rising(void *argument, uint64_t key, uint64_t count)
{
    uint64_t *last = argument;
    assert_true(key > *last && count == 1);
    *last = key;
    return key < 500;
}

static void test_walk(void **state)
{
    (void)state;
    struct variant v = {.history = 4};
    struct histories *h = make(&v, false);
    uint64_t last = 0;
    append_users(h, 1, 400, START, 1);
    assert_true(histories_walk(h, visit_rising, &last) && last == 399);
    append_users(h, 400, 800, START, 2);
    last = 0;
    assert_true(!histories_walk(h, visit_rising, &last) && last == 500);
    histories_free(h);
}

/* Rows of a damaged checkpoint are refused, or read within their bytes. */
static void test_damaged_rows(void **state)
{
    (void)state;
    struct test_random random = {.state = 8};
    struct variant v = {.history = 6, .sides = 1};
    struct histories *h = make(&v, false);
    static struct batch b;
    uint32_t step = 0, refused = 0;
    for (int i = 0; i < 20; i++) {
        make_batch(&b, &random, &v, &step, START);
        append(h, &b);
    }
    for (int i = 0; i < 300; i++) {
        struct histories *again = make(&v, false);
        for (size_t k = 0; k < histories_tables(h); k++) {
            struct table *from = histories_table(h, k), *to = histories_table(again, k);
            size_t count, bytes = table_stored_bytes(from), header = TABLE_ROW_HEADER - sizeof(uint32_t);
            struct table_row **rows = table_sorted(from, &count);
            unsigned char *stored = malloc(bytes);
            for (size_t r = 0; r < count; r++) {
                table_store_row(from, rows[r], stored);
                if (random_chance(&random, 1))
                    stored[header + random_below(&random, (uint32_t)(bytes - header))] ^=
                        (unsigned char)(1 + random_below(&random, 255));
                assert_true(table_restore_items(to, TABLE_ITEM_ROW, stored, 1));
            }
            free(stored);
            free(rows);
            table_restored(to, from->epoch);
        }
        bool is_refused = histories_check(again) != NULL;
        refused += is_refused;
        for (uint64_t key = 1; key <= PLAIN_USERS && !is_refused; key++) {
            struct history_view view;
            struct history_entry entry = {.seconds = START};
            histories_find(again, &key, 1, 0, &view);
            uint32_t length = 0;
            while (history_next(&view, &entry))
                length++;
            assert_true(length <= 6 * 33 / 3);
            uint32_t own_step = 1;
            for (int times = 0; times < 8; times++)
                histories_append(again, &key, &own_step, &entry, 1, NULL);
        }
        histories_free(again);
    }
    assert_true(refused > 10 && refused < 295);
    histories_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows),  cmocka_unit_test(test_model),
        cmocka_unit_test(test_follower), cmocka_unit_test(test_long_history),
        cmocka_unit_test(test_walk),     cmocka_unit_test(test_damaged_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

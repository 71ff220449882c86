/*
 * The items of a learner beside a plain model: a list of all numbers that is searched from its begin. Random
 * histories of occurrences, removals, changed rows, expiry and searches, with checkpoints, base and deltas,
 * from which they go on.
 */
#include "catalogue_rig.h"

#include "core/buffer.h"
#include "kernels/num.h"
#include "learners/tables/inline.h"
#include "tests/unit/support/random.h"

#include <math.h>

enum {
    KEYS = 800,
    STEPS = 3000,
    TOP = 40, /* ITEMS_OVERFETCH_MAX * TOP > NUMBERS: all items are candidates */
    OLD = 4096,
};

/* --- The model --- */

struct plain_item {
    uint64_t key; /* 0: nobody has the number */
    uint32_t generation, count, seen, step;
    float floats[DIM];
};

struct plain {
    struct plain_item items[NUMBERS];
    uint32_t used;
    int64_t watermark_us;           /* INT64_MIN: none yet */
    uint64_t gone, expired, spared; /* items that went; by expiry; and those that a step kept from it */
    uint64_t gone_hash;             /* of their numbers in order */
};

static int plain_find(const struct plain *p, uint64_t key)
{
    for (uint32_t i = 0; i < p->used; i++)
        if (p->items[i].key == key)
            return (int)i;
    return -1;
}

static int plain_add(struct plain *p, uint64_t key, uint32_t seconds, uint32_t step)
{
    int found = plain_find(p, key);
    uint32_t i = found >= 0 ? (uint32_t)found : 0;
    while (found < 0 && i < p->used && p->items[i].key != 0)
        i++;
    if (i == NUMBERS)
        return -1;
    struct plain_item *item = &p->items[i];
    if (found < 0) {
        *item = (struct plain_item){.key = key, .generation = item->generation};
        best()->init_uniform(item->floats, num_mix(SEED ^ key), 0.5F, DIM);
    }
    p->used = MAX(p->used, i + 1);
    item->count++;
    item->seen = MAX(item->seen, seconds);
    item->step = step;
    return (int)i;
}

static uint64_t hash_of(uint64_t before, uint32_t number)
{
    return num_mix(before ^ (number + 1));
}

static void plain_remove(struct plain *p, uint32_t number)
{
    p->items[number].key = 0;
    p->items[number].generation++;
    p->gone++;
    p->gone_hash = hash_of(p->gone_hash, number);
}

static void plain_watermark(struct plain *p, int64_t watermark_us, uint32_t step)
{
    const int64_t interval = EXPIRE_S / 64 * US_PER_SECOND;
    int64_t before = p->watermark_us;
    if (watermark_us <= before)
        return;
    p->watermark_us = watermark_us;
    if (before == INT64_MIN || before / interval == watermark_us / interval)
        return;
    int64_t point = watermark_us / interval * interval;
    for (uint32_t i = 0; i < p->used; i++) {
        const struct plain_item *item = &p->items[i];
        if (item->key == 0 || ((int64_t)item->seen + EXPIRE_S) * US_PER_SECOND > point)
            continue;
        if (step != TABLE_STEP_NONE && item->step == step) {
            p->spared++;
            continue;
        }
        plain_remove(p, i);
        p->expired++;
    }
}

static bool is_in_range(const struct plain_item *item)
{
    bool is_good = item->key != 0;
    for (size_t i = 0; i < DIM && is_good; i++)
        is_good = fabsf(item->floats[i]) <= ITEMS_VALUE_MAX;
    return is_good;
}

/* --- The catalogue beside it --- */

struct gone {
    uint64_t count, hash;
};

static void note_gone(void *of, uint32_t number)
{
    struct gone *gone = of;
    gone->count++;
    gone->hash = hash_of(gone->hash, number);
}

static struct catalogue *create(struct gone *gone)
{
    struct catalogue_options options = catalogue_rig_options();
    options.removed = note_gone;
    options.removed_of = gone;
    return catalogue_create(&options);
}

struct disk {
    struct catalogue *rows; /* its table alone is used */
    struct byte_buffer numbers;
    struct plain plain;
    struct gone gone;
    uint32_t epoch, step;
};

struct world {
    struct test_random random;
    struct plain plain;
    struct gone gone;
    struct catalogue *c;
    struct items_search *search;
    uint32_t now_s, step;
    struct disk disk;
    /* The checkpoint that is being written; snapshot NULL: none. */
    struct table_snapshot *snapshot;
    const struct table_keys *removed;
    struct disk writing;
    struct items_ref old[OLD];
    size_t old_count, fulls, restores;
};

/* --- Comparing --- */

static void check_items(struct world *w)
{
    uint32_t live = 0, count;
    const uint32_t *numbers = catalogue_live(w->c, &count);
    float *const *rows = catalogue_rows(w->c);
    assert_int_equal(catalogue_used(w->c), w->plain.used);
    for (uint32_t i = 0; i < w->plain.used; i++) {
        const struct plain_item *item = &w->plain.items[i];
        struct items_ref ref = {i, (uint16_t)item->generation}, found;
        struct items_value value;
        assert_int_equal(catalogue_is_live(w->c, ref), item->key != 0);
        assert_int_equal(rows[i] != NULL, item->key != 0);
        if (item->key == 0)
            continue;
        assert_true(live < count && numbers[live++] == i);
        assert_true(catalogue_find(w->c, item->key, &found));
        assert_true(found.number == i && found.generation == item->generation);
        assert_true(items_numbers_value(catalogue_numbers(w->c), ref, &value));
        assert_int_equal(value.integer, item->key * 3);
        const struct table_row *row = table_find(catalogue_table(w->c), item->key);
        assert_non_null(row);
        assert_ptr_equal((const unsigned char *)row + TABLE_ROW_HEADER, rows[i]);
        assert_true(row->count == item->count && row->seen == item->seen);
        assert_memory_equal(rows[i], item->floats, sizeof(item->floats));
        for (size_t s = 0; s < DIM; s++)
            assert_true(rows[i][DIM + s] == 0.25F);
    }
    assert_int_equal(count, live);
    assert_int_equal(catalogue_table(w->c)->stats.rows, live);
    assert_true(catalogue_table(w->c)->rows_used <= w->plain.used); /* memory of rows is used again */
    assert_true(w->gone.count == w->plain.gone && w->gone.hash == w->plain.gone_hash);
}

struct scored {
    uint32_t number;
    float score;
};

/* By score, larger first, then by number. */
static int best_first(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->number < y->number ? -1 : 1;
}

/* The rank of an item in a list of all items, by the definition. */
static double rank_of(const struct scored *all, uint32_t n, uint32_t at)
{
    double rank = 1;
    for (uint32_t k = 0; k < n; k++)
        rank += all[k].score > all[at].score ? 1 : k != at && all[k].score == all[at].score ? 0.5 : 0;
    return rank;
}

static void check_search(struct world *w)
{
    struct items_scored top[TOP];
    struct scored all[NUMBERS];
    float query[DIM];
    double rank;
    uint32_t found = 0, live = 0;
    best()->init_uniform(query, random_next(&w->random), 1.0F, DIM);
    for (uint32_t i = 0; i < w->plain.used; i++) {
        const struct plain_item *item = &w->plain.items[i];
        live += item->key != 0;
        if (is_in_range(item))
            all[found++] = (struct scored){i, best()->dot(query, item->floats, DIM)};
        else if (item->key != 0)
            assert_false(catalogue_rank(w->c, w->search, query, i, NULL, 0, &rank));
    }
    qsort(all, found, sizeof(*all), best_first);
    assert_int_equal(catalogue_top(w->c, w->search, query, 1, TOP, top), MIN(found, (uint32_t)TOP));
    assert_int_equal(catalogue_unsearchable(w->c), live - found);
    for (uint32_t i = 0; i < MIN(found, (uint32_t)TOP); i++)
        assert_true(top[i].number == all[i].number && top[i].score == all[i].score);
    for (uint32_t i = 0; i < found; i += 32) {
        assert_true(catalogue_rank(w->c, w->search, query, all[i].number, NULL, 0, &rank));
        assert_true(rank == rank_of(all, found, i));
    }
}

/* --- Checkpoints --- */

static bool emit_rows(void *argument, const void *rows, size_t count)
{
    struct table *t = argument;
    return table_restore_items(t, TABLE_ITEM_ROW, rows, count);
}

static void checkpoint_begin(struct world *w)
{
    struct table *t = catalogue_table(w->c);
    w->writing = (struct disk){.plain = w->plain, .gone = w->gone, .epoch = t->epoch, .step = w->step};
    w->snapshot = table_snapshot_begin(t, w->disk.epoch, t->epoch, &w->removed);
    items_numbers_save(catalogue_numbers(w->c), 0, &w->writing.numbers);
}

static void checkpoint_end(struct world *w, bool is_published)
{
    struct table *rows = catalogue_table(w->disk.rows);
    if (is_published) {
        for (size_t i = 0; i < w->removed->count; i++)
            table_restore_remove(rows, w->removed->items[i]);
        assert_true(table_snapshot_write(w->snapshot, emit_rows, rows));
        buffer_free(&w->disk.numbers);
        w->writing.rows = w->disk.rows;
        w->disk = w->writing;
    } else {
        buffer_free(&w->writing.numbers);
    }
    table_snapshot_end(catalogue_table(w->c), is_published);
    w->snapshot = NULL;
}

/* The run ends, and goes on from the last checkpoint. */
static void restore(struct world *w)
{
    if (w->snapshot != NULL)
        checkpoint_end(w, false);
    catalogue_free(w->c);
    w->c = create(&w->gone);
    w->plain = w->disk.plain;
    w->gone = w->disk.gone;
    w->step = w->disk.step;
    size_t count, bytes = table_stored_bytes(catalogue_table(w->c));
    struct table_row **rows = table_sorted(catalogue_table(w->disk.rows), &count);
    unsigned char *stored = malloc(bytes);
    assert_non_null(stored);
    for (size_t i = 0; i < count; i++) {
        table_store_row(catalogue_table(w->disk.rows), rows[i], stored);
        assert_true(table_restore_items(catalogue_table(w->c), TABLE_ITEM_ROW, stored, 1));
    }
    free(stored);
    free(rows);
    table_restored(catalogue_table(w->c), w->disk.epoch);
    assert_null(items_numbers_load(catalogue_numbers(w->c), w->disk.numbers.data, w->disk.numbers.length));
    assert_null(catalogue_check(w->c));
    if (w->plain.watermark_us > INT64_MIN)
        catalogue_set_watermark(w->c, w->plain.watermark_us, w->step);
    for (uint32_t i = 0; i < w->plain.used; i++)
        if (w->plain.items[i].key != 0 && w->plain.items[i].step == w->step)
            catalogue_spare(w->c, i, w->step);
    w->restores++;
}

/* --- Random histories --- */

static void occur(struct world *w)
{
    uint64_t key = 1 + random_below(&w->random, KEYS);
    uint32_t seconds = w->now_s;
    if (random_chance(&w->random, 15)) /* late, perhaps too late */
        seconds -= random_below(&w->random, 2 * EXPIRE_S);
    struct items_ref ref = {0}, before;
    bool was_there = catalogue_find(w->c, key, &before);
    enum items_added added = add(w->c, key, seconds, w->step, &ref);
    int number = plain_add(&w->plain, key, seconds, w->step);
    assert_int_equal(added, number < 0 ? ITEMS_FULL : was_there ? ITEMS_FOUND : ITEMS_NEW);
    w->fulls += added == ITEMS_FULL;
    if (number >= 0)
        assert_int_equal(ref.number, number);
}

static void delete (struct world *w)
{
    uint64_t key = 1 + random_below(&w->random, KEYS);
    struct items_ref ref;
    int number = plain_find(&w->plain, key);
    if (catalogue_find(w->c, key, &ref) && w->old_count < OLD)
        w->old[w->old_count++] = ref;
    assert_int_equal(catalogue_remove(w->c, key), number >= 0);
    if (number >= 0)
        plain_remove(&w->plain, (uint32_t)number);
}

/* New floats for a row; few are out of range. */
static void move_row(struct world *w, uint32_t number)
{
    float *floats = w->plain.items[number].floats;
    best()->init_uniform(floats, random_next(&w->random), 1.0F, DIM);
    if (random_chance(&w->random, 3))
        floats[random_below(&w->random, DIM)] = random_chance(&w->random, 50) ? NAN : 2e18F;
    memcpy(catalogue_rows(w->c)[number], floats, sizeof(w->plain.items[number].floats));
}

static void change(struct world *w)
{
    uint32_t number = random_below(&w->random, MAX(w->plain.used, 1U));
    bool changes_all = random_chance(&w->random, 2);
    if (changes_all)
        catalogue_change_all(w->c);
    for (uint32_t i = changes_all ? 0 : number; i < (changes_all ? w->plain.used : number + 1); i++) {
        if (w->plain.items[i].key == 0)
            continue;
        if (!changes_all)
            catalogue_change(w->c, i);
        move_row(w, i);
    }
}

static void set_watermark(struct world *w, uint32_t step)
{
    int64_t watermark_us = ((int64_t)w->now_s - random_below(&w->random, 30)) * US_PER_SECOND + 7;
    catalogue_set_watermark(w->c, watermark_us, step);
    plain_watermark(&w->plain, watermark_us, step);
}

static void make_step(struct world *w)
{
    w->step++;
    w->now_s += random_below(&w->random, 40);
    for (uint32_t i = random_below(&w->random, 8); i > 0; i--)
        occur(w);
    if (random_chance(&w->random, 30))
        delete (w);
    if (random_chance(&w->random, 50) && w->step > 20)
        set_watermark(w, w->step);
    if (random_chance(&w->random, 5) && w->disk.epoch > 0)
        restore(w); /* into the middle of a step, if the checkpoint came there */
    if (random_chance(&w->random, 15) && w->snapshot == NULL)
        checkpoint_begin(w);
    for (uint32_t i = random_below(&w->random, 6); i > 0; i--)
        occur(w);
    for (uint32_t i = random_below(&w->random, 6); i > 0; i--)
        change(w);
    if (random_chance(&w->random, 20) && w->step > 20)
        set_watermark(w, random_chance(&w->random, 50) ? w->step : TABLE_STEP_NONE);
    if (w->snapshot != NULL && random_chance(&w->random, 20))
        checkpoint_end(w, random_chance(&w->random, 80));
}

static void test_histories(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        static struct world world;
        struct world *w = &world;
        uint64_t spared = 0, expired = 0;
        world = (struct world){.random = {seed}, .now_s = START_S, .plain.watermark_us = INT64_MIN};
        w->c = create(&w->gone);
        w->disk.rows = catalogue_rig();
        w->search = items_search_create();
        for (size_t i = 0; i < STEPS; i++) {
            make_step(w);
            spared = MAX(spared, w->plain.spared);
            expired = MAX(expired, w->plain.expired);
            if (i % 7 == 0)
                check_items(w);
            if (i % 13 == 0)
                check_search(w);
        }
        check_items(w);
        check_search(w);
        for (size_t i = 0; i < w->old_count; i++) {
            const struct plain_item *item = &w->plain.items[w->old[i].number];
            bool is_same = item->key != 0 && item->generation == w->old[i].generation;
            assert_int_equal(catalogue_is_live(w->c, w->old[i]), is_same); /* same: removed, then restored */
        }
        assert_true(w->fulls > 20 && w->restores > 20 && spared > 5 && expired > 100 && w->old_count > 100);
        if (w->snapshot != NULL)
            checkpoint_end(w, false);
        buffer_free(&w->disk.numbers);
        items_search_free(w->search);
        catalogue_free(w->disk.rows);
        catalogue_free(w->c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_histories)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

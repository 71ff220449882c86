/* Histories of several owners, who give each other shards, against one owner and a plain model; and draws of users. */
#include "histories_model.h"

#include "core/buffer.h"
#include "learners/tables/inline.h"
#include "learners/tables/shard.h"

#include <stdio.h>

enum { PARTS = 3 };

/* --- Owners of shards --- */

struct owners {
    struct histories *one, *parts[PARTS];
    uint32_t owner[TABLE_SHARDS_MAX];
};

static struct histories *owner_of(struct owners *o, uint64_t key)
{
    return o->parts[o->owner[table_shard(histories_table(o->one, 0), key)]];
}

static void exchange(struct owners *o, struct test_random *random)
{
    uint32_t shard = random_below(random, TABLE_SHARDS_MAX), to = random_below(random, PARTS);
    uint32_t from = o->owner[shard];
    if (from == to)
        return;
    for (size_t i = 0; i < histories_tables(o->one); i++) {
        struct byte_buffer given = {0};
        assert_true(table_give_shard(histories_table(o->parts[from], i), shard, &given));
        assert_true(table_take_shard(histories_table(o->parts[to], i), given.data, given.length));
        buffer_free(&given);
    }
    o->owner[shard] = to;
}

static void append_by_owner(struct owners *o, struct batch *b)
{
    static struct batch own;
    for (int p = 0; p < PARTS; p++) {
        size_t places[BATCH];
        own.n = 0;
        for (size_t i = 0; i < b->n; i++) {
            if (owner_of(o, b->keys[i]) != o->parts[p])
                continue;
            places[own.n] = i;
            own.keys[own.n] = b->keys[i];
            own.steps[own.n] = b->steps[i];
            own.entries[own.n++] = b->entries[i];
        }
        if (own.n > 0)
            append(o->parts[p], &own);
        for (size_t i = 0; i < own.n; i++)
            assert_int_equal(own.before[i], b->before[places[i]]);
    }
}

static void check_draws(struct owners *o, const struct plain *plain, uint32_t step)
{
    struct histories_draw one, parts;
    histories_draw_begin((const struct histories *const *)&o->one, 1, &one);
    histories_draw_begin((const struct histories *const *)o->parts, PARTS, &parts);
    for (uint64_t i = 0; i < 50; i++) {
        uint64_t key, other = 0;
        bool is_drawn = histories_draw(&one, 3, step, i, &key);
        assert_true(is_drawn == histories_draw(&parts, 3, step, i, &other));
        assert_true(!is_drawn || (key == other && plain_is_there(plain, key)));
    }
}

static void check_owners(struct owners *o, const struct plain *plain, uint32_t step)
{
    for (uint64_t key = 1; key <= PLAIN_USERS; key++) {
        struct history_view view;
        histories_find(owner_of(o, key), &key, 1, step, &view);
        plain_check(plain, key, &view);
    }
    plain_check_all(plain, o->one, step);
}

static void test_owners(void **state)
{
    (void)state;
    for (size_t k = 0; k < ARRAY_COUNT(variants); k++) {
        const struct variant *v = &variants[k];
        static struct batch b;
        struct test_random random = {.state = 5 + k};
        struct owners o = {.one = make(v, false)};
        for (int p = 0; p < PARTS; p++)
            o.parts[p] = make(v, v->has_cold);
        struct plain *plain = calloc(1, sizeof(*plain));
        plain->history = v->history;
        uint32_t step = 0, now = START;
        for (int i = 0; i < 300; i++) {
            for (int p = 0; p < PARTS && v->has_cold; p++)
                evict_some(o.parts[p], &random, step);
            make_batch(&b, &random, v, &step, now);
            append(o.one, &b);
            append_by_owner(&o, &b);
            for (size_t e = 0; e < b.n; e++)
                assert_int_equal(b.before[e], plain_append(plain, b.keys[e], &b.entries[e]));
            now += random_below(&random, 20);
            set_time(o.one, v, now);
            for (int p = 0; p < PARTS; p++)
                set_time(o.parts[p], v, now);
            plain_set_time(plain, v, now);
            for (uint32_t e = random_below(&random, 6); e > 0; e--)
                exchange(&o, &random);
            check_draws(&o, plain, step);
            if (random_chance(&random, 5))
                check_owners(&o, plain, step);
        }
        check_owners(&o, plain, step);
        histories_free(o.one);
        for (int p = 0; p < PARTS; p++)
            histories_free(o.parts[p]);
        free(plain);
    }
}

/* --- Draws --- */

/* Every user is drawn as often as chance has it: the sum of squared deviations is as that of a uniform choice. */
static void test_draws_are_uniform(void **state)
{
    (void)state;
    static const uint32_t numbers[] = {1, 5, 128, 129, 400, 700, 3000, 20000};
    struct variant v = {.history = 4, .expire_after_s = 1000};
    for (size_t k = 0; k < ARRAY_COUNT(numbers); k++) {
        struct histories *h = make(&v, false);
        uint32_t users = numbers[k], draws = users * (users < 10000 ? 40 : 12);
        append_users(h, 1, 1 + users, START, 1);
        append_users(h, 1 + users, 1 + 3 * users, START - 500, 2); /* they expire */
        set_time(h, &v, START + 600);
        struct histories_draw draw;
        histories_draw_begin((const struct histories *const *)&h, 1, &draw);
        uint32_t *times = calloc(users + 1, sizeof(*times)), repeated = 0;
        for (uint32_t i = 0; i < draws; i++) {
            uint64_t key, again;
            assert_true(histories_draw(&draw, 9, i / 64, i % 64, &key));
            if (i % 16 == 0)
                assert_true(histories_draw(&draw, 9, i / 64, i % 64, &again) && key == again);
            assert_true(histories_draw(&draw, 10, i / 64, i % 64, &again));
            assert_in_range(key, 1, users);
            repeated += key == again;
            times[key]++;
        }
        double expected = (double)draws / users, squares = 0, freedom = users - 1.0;
        for (uint32_t i = 1; i <= users; i++)
            squares += (times[i] - expected) * (times[i] - expected) / expected;
        printf("%u users: chi-square %.1f of %.0f degrees\n", users, squares, freedom);
        assert_true(fabs(squares - freedom) <= 5 * sqrt(2 * freedom));
        assert_true(users < 100 || repeated < draws / users * 3 + 30); /* another seed draws others */
        free(times);
        histories_free(h);
    }
}

static void test_draws_of_nobody(void **state)
{
    (void)state;
    struct variant v = {.history = 4, .expire_after_s = 100};
    struct histories *h = make(&v, false);
    struct histories_draw draw;
    uint64_t key;
    histories_draw_begin((const struct histories *const *)&h, 1, &draw);
    assert_false(histories_draw(&draw, 1, 1, 1, &key));
    append_users(h, 1, 10000, START, 1);
    set_time(h, &v, START + 200);
    histories_draw_begin((const struct histories *const *)&h, 1, &draw);
    assert_false(histories_draw(&draw, 1, 1, 1, &key));
    histories_free(h);
}

/* Of a bucket with more than 128 users, which takes keys chosen for it, the first 128 by hash are drawn, whatever the
 * order they came in. */
static void test_crowded_bucket(void **state)
{
    (void)state;
    enum { USERS = 5000, CROWD = 300, BITS = 9 };
    static uint64_t crowd[CROWD];
    struct variant v = {.history = 4};
    struct histories *rising = make(&v, false), *falling = make(&v, false);
    uint32_t found = 0, drawn = 0, step = 1;
    for (uint64_t key = USERS + 1; found < CROWD; key++)
        if (table_hash(histories_table(rising, 0), key) >> (64 - BITS) == (1 << BITS) - 1)
            crowd[found++] = key;
    struct history_entry entry = {.seconds = START};
    append_users(rising, 1, USERS + 1, START, step);
    append_users(falling, 1, USERS + 1, START, step);
    for (uint32_t i = 0; i < CROWD; i++) {
        histories_append(rising, &crowd[i], &step, &entry, 1, NULL);
        histories_append(falling, &crowd[CROWD - 1 - i], &step, &entry, 1, NULL);
    }
    struct histories_draw one, other;
    histories_draw_begin((const struct histories *const *)&rising, 1, &one);
    histories_draw_begin((const struct histories *const *)&falling, 1, &other);
    for (uint64_t i = 0; i < 20000; i++) {
        uint64_t key, again;
        assert_true(histories_draw(&one, 1, 1, i, &key) && histories_draw(&other, 1, 1, i, &again));
        assert_int_equal(key, again);
        drawn += key > USERS;
    }
    assert_true(drawn > 100);
    histories_free(rising);
    histories_free(falling);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_owners),
        cmocka_unit_test(test_draws_are_uniform),
        cmocka_unit_test(test_draws_of_nobody),
        cmocka_unit_test(test_crowded_bucket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

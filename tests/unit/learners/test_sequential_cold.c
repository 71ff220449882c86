/* Sequence models whose histories lie in cold stores in part: what is known of each event, what is learned and what
 * requests are answered have the same bits as with all in memory; and a model keeps to its memory. */
#include "fake_cold.h"
#include "sequential_rig.h"

#include "learners/tables/cold.h"

static struct cold_store *make_store(void *of, uint32_t number, size_t row_bytes)
{
    struct sequential *s = of;
    struct table *tables[STORED_TABLES_MAX];
    assert_true(number < sequential_tables(s, tables) && table_stored_bytes(tables[number]) == row_bytes);
    return &fake_new(row_bytes)->store;
}

static uint64_t loaded(const struct sequential *s)
{
    uint64_t rows = 0;
    for (size_t i = 1; i < histories_tables(s->histories); i++)
        rows += histories_table(s->histories, i)->cold->loaded;
    return rows;
}

/* Moves some rows of each class, or all, to its store. */
static void evict(struct sequential *s, struct test_random *random)
{
    for (size_t i = 1; i < histories_tables(s->histories); i++)
        if (random_chance(random, 60))
            assert_true(table_evict(histories_table(s->histories, i), 1 + random_below(random, RIG_USERS),
                                    (uint32_t)s->steps + 1, false));
}

/* What 20 users would be answered. */
static uint64_t ask(struct sequential *s, const struct rig_case *of, uint64_t hash)
{
    static struct sequential_seen seen[20];
    static struct sequential_event events[20];
    static uint8_t wants[20];
    memset(wants, 1, sizeof(wants));
    for (uint32_t i = 0; i < 20; i++) {
        events[i] = rig_event(of, 5000 + i);
        events[i].item = (struct items_value){0};
    }
    sequential_ask(s, events, 20, wants, seen);
    for (uint32_t i = 0; i < 20; i++)
        hash = rig_seen_hash(hash, &seen[i], s->options.dim);
    return hash;
}

enum { EVENTS = 1000 };

static void test_same(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        struct rig_case of = rig_all;
        struct rig_result results[2] = {{1, 1}, {1, 1}};
        of.is_hstu = kind, of.users = RIG_USERS;
        struct sequential_options options = rig_options(&of);
        for (int is_cold = 0; is_cold < 2; is_cold++) {
            struct sequential *s = sequential_new(&options);
            struct test_random random = {7};
            uint64_t cold = 0;
            if (is_cold)
                sequential_set_cold(s, make_store, s);
            for (uint64_t from = 0; from < EVENTS; from += RIG_BLOCK) {
                results[is_cold].seen = rig_run(s, &of, from, from + RIG_BLOCK, 0, results[is_cold].seen);
                if (is_cold)
                    evict(s, &random);
                uint64_t before = is_cold ? loaded(s) : 0;
                results[is_cold].seen = ask(s, &of, results[is_cold].seen);
                assert_true(!is_cold || loaded(s) == before); /* requests change nothing */
                cold += sequential_memory_now(s).cold;
            }
            assert_true(is_cold ? cold > 50 && loaded(s) > 50 : cold == 0);
            results[is_cold].model = rig_model_hash(s, true);
            sequential_free(s);
        }
        rig_assert_same(results[0], results[1]);
    }
}

/* --- Memory --- */

static size_t entries_bytes(const struct sequential *s)
{
    size_t bytes = 0;
    for (size_t i = 1; i < histories_tables(s->histories); i++)
        bytes += table_row_bytes(histories_table(s->histories, i));
    return bytes;
}

/* With memory for a third of the users' entries beside the network, the items and the index of users, they take little
 * more (a table keeps 1,024 rows in any case, so few users show it badly), and the bits are the same. */
static void test_keeps(void **state)
{
    (void)state;
    enum { MANY = 60000, EACH = 1000 };
    struct rig_case of = rig_all;
    of.users = 7000, of.rehearse = 0, of.expire_after_us = 0, of.batch = 100;
    struct sequential_options options = rig_options(&of);
    struct rig_result results[2] = {{1, 1}, {1, 1}};
    size_t whole = 0, others = 0;
    for (int is_cold = 0; is_cold < 2; is_cold++) {
        struct sequential *s = sequential_new(&options);
        if (is_cold)
            sequential_set_cold(s, make_store, s);
        for (uint64_t from = 0; from < MANY; from += EACH) {
            results[is_cold].seen = rig_feed(s, &of, from, from + EACH, 0, results[is_cold].seen);
            if (is_cold) {
                sequential_keep(s, others + whole / 3);
                assert_true(entries_bytes(s) < whole / 10 * 6);
            }
        }
        if (!is_cold) {
            whole = entries_bytes(s);
            others =
                s->memory.size + catalogue_bytes(s->items) + table_bytes(histories_table(s->histories, 0));
        } else {
            assert_true(sequential_memory_now(s).cold > of.users / 4);
            assert_true(loaded(s) > MANY / 10);
        }
        results[is_cold].model = rig_model_hash(s, true);
        sequential_free(s);
    }
    rig_assert_same(results[0], results[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same), cmocka_unit_test(test_keeps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

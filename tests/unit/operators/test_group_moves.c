/* Key groups that go to another lane: what an operator keeps beside its state must not outlive their stay. Moves at random, with all
 * operators: keyed_script.h. */
#include "unit/support/fake_engine.h"
#include "unit/support/temporary.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static char path[TEMPORARY_PATH_BYTES];

static void start(struct fake_engine *engine, const char *step)
{
    temporary_make(path);
    fake_open(engine, path, 1);
    assert_true(fake_bind(engine, step, 1));
    fake_start(engine, 2, 1 << 20);
}

static void end(struct fake_engine *engine)
{
    fake_close(engine);
    temporary_remove(path);
}

/* A lane that has given all its key groups away, and got none, emits nothing of them, although its table has them until the checkpoint
 * of that barrier is written. */
static void test_window_of_keys_gone(void **state)
{
    struct fake_engine engine;
    struct fake_row rows[20];
    (void)state;
    start(&engine, "window by k over tumbling(10s) { n: count() }");
    for (uint32_t i = 0; i < ARRAY_COUNT(rows); i++)
        rows[i] = (struct fake_row){.ts = US_PER_SECOND, .k = i, .has_k = true};
    fake_micro_batch(&engine, rows, ARRAY_COUNT(rows), 2 * US_PER_SECOND);
    fake_move_all(&engine, 1);
    fake_micro_batch(&engine, rows, 0, 10 * US_PER_SECOND);
    assert_int_equal(engine.lanes[0].counters.emitted, 0);
    assert_int_equal(engine.lanes[1].counters.emitted, ARRAY_COUNT(rows));
    end(&engine);
}

/* While the key's group is on another lane, rows come to the slices before the newest one. */
static void test_sums_of_a_key_that_comes_back(void **state)
{
    struct fake_engine engine;
    struct fake_row rows[10];
    (void)state;
    start(&engine, "feature by k over forever every 1s { n: count() }");
    for (uint32_t i = 0; i < ARRAY_COUNT(rows); i++)
        rows[i] = (struct fake_row){.ts = i * US_PER_SECOND, .k = 1, .has_k = true};
    for (uint32_t lane = 0; lane < 2; lane++) {
        fake_move_all(&engine, lane);
        fake_micro_batch(&engine, rows, ARRAY_COUNT(rows), 0);
    }
    fake_move_all(&engine, 0);
    buffer_clear(&engine.output);
    fake_micro_batch(&engine, &rows[ARRAY_COUNT(rows) - 1], 1, 0);
    assert_string_equal(strrchr(fake_text(&engine.output), '|'), "|20\n");
    end(&engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_window_of_keys_gone),
                                       cmocka_unit_test(test_sums_of_a_key_that_comes_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

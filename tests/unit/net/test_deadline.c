#include "net/deadline.h"
#include "unit/core/cmocka_all.h"

enum { COUNT = 40 };

static struct {
    uv_loop_t loop;
    struct deadlines deadlines;
    struct deadline_queue quick, slow;
    struct deadline all[COUNT];
    int order[2 * COUNT], passed_count;
    int again; /* how often the first is set once more as it passes */
} test;

static void passed(struct deadline *deadline)
{
    assert_null(deadline->next);
    assert_true(uv_now(&test.loop) >= deadline->at_ms);
    test.order[test.passed_count++] = (int)(deadline - test.all);
    if (deadline == test.all && test.again-- > 0)
        deadline_set(&test.deadlines, &test.quick, deadline);
}

static void begin(void)
{
    memset(&test, 0, sizeof(test));
    uv_loop_init(&test.loop);
    deadlines_init(&test.deadlines, &test.loop);
    deadlines_add(&test.deadlines, &test.quick, 20, passed);
    deadlines_add(&test.deadlines, &test.slow, 60, passed);
}

static void end(void)
{
    uv_close((uv_handle_t *)&test.deadlines.timer, NULL);
    uv_run(&test.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&test.loop), 0);
}

static void test_order(void **state)
{
    (void)state;
    begin();
    for (int i = 0; i < COUNT; i++)
        deadline_set(&test.deadlines, i % 2 ? &test.quick : &test.slow, &test.all[i]);
    deadline_set(&test.deadlines, &test.quick, &test.all[1]); /* now the last of them */
    deadline_clear(&test.all[3]);
    deadline_clear(&test.all[3]);
    deadline_set(&test.deadlines, &test.slow, &test.all[5]); /* moves */
    uv_run(&test.loop, UV_RUN_DEFAULT);                      /* until no timer is left */
    assert_int_equal(test.passed_count, COUNT - 1);
    assert_int_equal(test.order[0], 7);
    assert_int_equal(test.order[COUNT / 2 - 3], 1);
    assert_int_equal(test.order[COUNT / 2 - 2], 0);
    assert_int_equal(test.order[COUNT - 2], 5);
    end();
}

static void test_again(void **state)
{
    (void)state;
    begin();
    test.again = 2;
    uint64_t began = uv_now(&test.loop);
    deadline_set(&test.deadlines, &test.quick, &test.all[0]);
    deadline_set(&test.deadlines, &test.slow, &test.all[1]);
    uv_run(&test.loop, UV_RUN_DEFAULT);
    assert_int_equal(test.passed_count, 4);
    assert_true(uv_now(&test.loop) - began >= 60);
    end();
}

/* A deadline that is shorter than those before it is not waited for longer than it says. */
static void test_shorter(void **state)
{
    (void)state;
    begin();
    struct deadline_queue hour;
    deadlines_add(&test.deadlines, &hour, 3600 * 1000, passed);
    deadline_set(&test.deadlines, &hour, &test.all[0]);
    deadline_set(&test.deadlines, &test.quick, &test.all[1]);
    while (test.passed_count == 0)
        uv_run(&test.loop, UV_RUN_ONCE);
    assert_int_equal(test.order[0], 1);
    deadline_clear(&test.all[0]);
    end();
}

/* It counts from when it is set, not from when the loop's turn began. */
static void test_long_turn(void **state)
{
    (void)state;
    begin();
    uint64_t began = uv_hrtime();
    while (uv_hrtime() - began < 50 * 1000 * 1000)
        continue;
    deadline_set(&test.deadlines, &test.quick, &test.all[1]);
    uv_run(&test.loop, UV_RUN_DEFAULT);
    assert_int_equal(test.passed_count, 1);
    assert_true(uv_hrtime() - began >= 68 * 1000 * 1000);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_again),
        cmocka_unit_test(test_shorter),
        cmocka_unit_test(test_long_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

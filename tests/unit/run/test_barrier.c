/* When a checkpoint that somebody asks for is wanted: at once, or for followers a while after the last one. */
#include "run/base/barrier.h"

#include "core/os.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static bool is_wanted(struct run *run, void ask(struct run *run), int64_t ago_us, int64_t work_us)
{
    struct barrier *b = run->barrier;
    b->is_wanted = false;
    b->barrier_us = os_monotonic_us() - ago_us;
    b->work_us = work_us;
    ask(run);
    return b->is_wanted;
}

static void test_asked_seldom(void **state)
{
    enum { SECOND = 1000 * 1000 };
    static struct run run;
    (void)state;
    run.barrier = barrier_new();
    assert_true(is_wanted(&run, barrier_ask_seldom, 0, 0)); /* there was none in this life */
    assert_false(is_wanted(&run, barrier_ask_seldom, (BARRIER_SHARE - 2) * SECOND, SECOND));
    assert_true(is_wanted(&run, barrier_ask_seldom, (BARRIER_SHARE + 2) * SECOND, SECOND));
    assert_true(is_wanted(&run, barrier_ask, 0, SECOND));
    run.barrier->state = BARRIER_WRITING; /* one is on its way */
    assert_false(is_wanted(&run, barrier_ask, 0, 0));
    assert_false(is_wanted(&run, barrier_ask_seldom, 0, 0));
    barrier_free(run.barrier);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_asked_seldom)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

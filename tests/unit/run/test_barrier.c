/* When a checkpoint that somebody asks for is wanted: at once, or for followers a while after one of them got one. */
#include "run/base/barrier.h"

#include "core/os.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { NEVER = -1 };

/* ago_us: since a follower got one. */
static bool is_wanted(struct run *run, void ask(struct run *run), int64_t ago_us, int64_t work_us)
{
    struct barrier *b = run->barrier;
    b->is_wanted = false;
    b->asked_us = ago_us == NEVER ? 0 : os_monotonic_us() - ago_us;
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
    assert_true(is_wanted(&run, barrier_ask_seldom, NEVER, 0)); /* there was none in this life */
    run.barrier->barrier_us = os_monotonic_us();
    assert_true(
        is_wanted(&run, barrier_ask_seldom, NEVER, SECOND)); /* the job has just made one of its own */
    run.barrier->is_wanted = false;
    barrier_ask_seldom(&run);
    assert_false(run.barrier->is_wanted);
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

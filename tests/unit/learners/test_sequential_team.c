/* Sequence models with a helping thread, and with values that are computed again: the same bits as without. Run under ThreadSanitizer as well. */
#include "sequential_rig.h"
#include "team_helper.h"

#include <pthread.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { EVENTS = 320 }; /* a sanitizer is slow, and later steps run the same code */
#else
enum { EVENTS = 700 };
#endif

static void test_team(void **state)
{
    (void)state;
    struct rig_case of = rig_all;
    static struct helper helper;
    pthread_t thread;
    rig_sasrec.layers = rig_hstu.layers = 2;
    of.history = 50, of.batch = 60, of.rehearse = 3;
    helper.team.wake = wait_for_help, helper.team.engine = &helper;
    assert_int_equal(pthread_create(&thread, NULL, help, &helper), 0);
    for (int i = 0; i < 2; i++) {
        of.is_hstu = i;
        struct sequential_options options = rig_options(&of);
        struct rig_result alone = rig_whole(&options, &of, EVENTS, 0, NULL);
        options.recompute = true;
        rig_assert_same(rig_whole(&options, &of, EVENTS, 0, NULL), alone);
        for (int k = 0; k < 2; k++) {
            unsigned before = atomic_load(&helper.pieces);
            options.recompute = k;
            rig_assert_same(rig_whole(&options, &of, EVENTS, 0, &helper.team), alone);
            assert_true(atomic_load(&helper.pieces) > before);
        }
    }
    atomic_store(&helper.is_over, true);
    pthread_join(thread, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_team)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* A team: its owner and helpers share pieces of work. Each piece is done once, and no helper is still working
 * when team_close returns. */
#include "core/team.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { HELPERS = 3, ROUNDS = 2000, PIECES = 20 };

struct work {
    struct team team;
    atomic_bool is_over;
    atomic_uint next;
    unsigned done[PIECES]; /* not atomic: a piece belongs to the thread that took it, later to the owner */
    unsigned wakes;
};

static bool one_piece(void *argument)
{
    struct work *w = argument;
    unsigned piece = atomic_fetch_add(&w->next, 1);
    if (piece >= PIECES)
        return false;
    w->done[piece]++;
    return true;
}

static void *helper(void *argument)
{
    struct work *w = argument;
    while (!atomic_load(&w->is_over)) {
        if (!team_help(&w->team))
            team_pause(1000);
    }
    return NULL;
}

static void count_wake(void *engine)
{
    ((struct work *)engine)->wakes++;
}

static void test_rounds(void **state)
{
    (void)state;
    struct work w = {.wakes = 0};
    pthread_t threads[HELPERS];
    w.team.wake = count_wake;
    w.team.engine = &w;
    for (int i = 0; i < HELPERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, helper, &w), 0);
    for (unsigned round = 1; round <= ROUNDS; round++) {
        atomic_store(&w.next, 0);
        team_open(&w.team, one_piece, &w);
        while (one_piece(&w))
            team_pause(round % 2 * 1000);
        team_close(&w.team);
        for (unsigned i = 0; i < PIECES; i++)
            assert_int_equal(w.done[i], round);
    }
    assert_int_equal(w.wakes, ROUNDS);
    atomic_store(&w.is_over, true);
    for (int i = 0; i < HELPERS; i++)
        pthread_join(threads[i], NULL);
    assert_false(team_help(&w.team)); /* the team is closed */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rounds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

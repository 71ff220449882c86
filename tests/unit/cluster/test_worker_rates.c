/* Which pairs of workers are slow, by the rates that each has measured: those of one slow worker among few, and none where all are alike. */
#include "cluster/rates.h"
#include "cluster/worker_internal.h"
#include "core/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WORKERS_MAX = 4, SLOW = 500000, FAST = 60000000, AT_HAND = 2000000000 /* on one machine */ };

struct meeting {
    struct cluster_member members[WORKERS_MAX];
    struct cluster_rate rates[WORKERS_MAX][WORKERS_MAX];
    struct cluster_view view;
    struct rendezvous_round round;
};

/* rate(from, to), in bytes a second. */
static void meet(struct meeting *m, uint32_t count, int64_t (*rate)(uint32_t from, uint32_t to))
{
    static const char *const addresses[WORKERS_MAX] = {"a", "b", "c", "d"};
    memset(m, 0, sizeof(*m));
    for (uint32_t from = 0; from < count; from++) {
        struct cluster_member *member = &m->members[from];
        member->lease = m->round.workers[from].lease = (int64_t)from + 1;
        m->round.workers[from].address = (struct str){addresses[from], 1};
        for (uint32_t to = 0; to < count; to++)
            if (to != from)
                m->rates[from][member->rates_count++] =
                    (struct cluster_rate){(int64_t)to + 1, rate(from, to)};
        member->rates = m->rates[from];
    }
    m->view.members = m->members;
    m->view.members_count = count;
    m->round.count = count;
}

static int64_t c_is_slow(uint32_t from, uint32_t to)
{
    return from == 2 || to == 2 ? SLOW : FAST + from; /* answers to what is sent to c come slowly */
}

static int64_t c_sends_slowly(uint32_t from, uint32_t to)
{
    return from == 2 ? SLOW : FAST - to;
}

static int64_t two_machines(uint32_t from, uint32_t to)
{
    return from / 2 == to / 2 ? AT_HAND : FAST;
}

static void test_slow_pairs(void **state)
{
    static const struct {
        uint32_t count;
        int64_t (*rate)(uint32_t from, uint32_t to);
        const char *slow;
    } rows[] = {
        {2, c_is_slow, ""},
        {3, c_is_slow, "a to c 0.5 MB/s, b to c 0.5 MB/s, c to a 0.5 MB/s, c to b 0.5 MB/s"},
        {3, c_sends_slowly, "c to a 0.5 MB/s, c to b 0.5 MB/s"},
        {4, c_is_slow,
         "a to c 0.5 MB/s, b to c 0.5 MB/s, c to a 0.5 MB/s, c to b 0.5 MB/s, c to d 0.5 MB/s, d to c 0.5 MB/s"},
        {4, two_machines, ""},
    };
    struct meeting m;
    char text[256];
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        meet(&m, rows[i].count, rows[i].rate);
        rates_describe_slow(&m.view, &m.round, text, sizeof(text));
        assert_string_equal(text, rows[i].slow);
    }
}

/* Rates to members that are gone do not count, and nothing is said before all rates are known. */
static void test_not_all_is_known(void **state)
{
    struct meeting m;
    char text[256];
    (void)state;
    meet(&m, 3, c_is_slow);
    m.members[1].rates_count = 0;
    rates_describe_slow(&m.view, &m.round, text, sizeof(text));
    assert_string_equal(text, "");
    m.members[0].rates_count = m.members[2].rates_count = 0;
    assert_int_equal(rates_median(&m.view), 0);
    meet(&m, 3, c_is_slow);
    for (uint32_t i = 0; i < 3; i++)
        m.rates[i][1].lease = 99; /* of a member that is gone */
    assert_int_equal(rates_median(&m.view), FAST);
}

/* A round ends when some rates are known and none was told: the next record of the worker has them, too. */
static void test_a_round_that_ends_early(void **state)
{
    (void)state;
    struct worker *worker = mem_calloc(1, sizeof(*worker));
    struct rendezvous_round round = {.count = 2, .self = 0};
    round.workers[0].lease = 1;
    round.workers[1].lease = 2;
    worker->rates.rates[0] = (struct cluster_rate){2, FAST};
    worker->rates.rates[1] = (struct cluster_rate){7, FAST}; /* of one that has gone */
    worker->rates.count = 2;
    worker_rates_begin(worker, &round);
    assert_int_equal(worker->member.rates_count, 1);
    assert_non_null(worker->member.rates);
    assert_int_equal(worker->member.rates[0].lease, 2);
    free(worker);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slow_pairs),
        cmocka_unit_test(test_a_round_that_ends_early),
        cmocka_unit_test(test_not_all_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

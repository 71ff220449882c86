/* The watch for nearly all rows that end as dead letters judges this life alone: what earlier lives had counted may come later, where
 * another worker of the job has restored it. */
#include "control/dead_watch.h"
#include "core/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static const struct plan_node node = {.tag = PLAN_OPERATOR, .label = "where"};

static struct run_stats *stats;
static struct dead_watch *watch;

static void set(uint64_t begin_in, uint64_t begin_dead, uint64_t in, uint64_t dead)
{
    stats->nodes_count = 1;
    stats->nodes[0] = (struct run_node_stats){.node = &node,
                                              .counters = {.in = begin_in + in, .dead = begin_dead + dead},
                                              .begin_in = begin_in,
                                              .begin_dead = begin_dead,
                                              .dead_reason = ""};
}

static bool look(void)
{
    bool is_new[PLAN_NODES_MAX];
    return dead_watch_look(watch, stats, is_new);
}

static void test_alone(void **state)
{
    (void)state;
    set(1000, 0, 0, 0);
    dead_watch_begin(watch, stats);
    set(1000, 0, 100, 95);
    assert_true(look());
    set(1000, 0, 300, 95);
    assert_false(look());
    assert_false(watch->nodes[0].is_bad);
    set(1000, 0, 300, 290);
    dead_watch_end(watch, stats);
    assert_true(watch->nodes[0].is_bad);
}

/* An earlier life had nothing but dead letters, or none; the leader begins without its counters. */
static void test_late(void **state)
{
    (void)state;
    set(0, 0, 0, 0);
    dead_watch_begin(watch, stats);
    set(1000, 1000, 200, 0);
    assert_false(look());
    dead_watch_end(watch, stats);
    assert_false(watch->nodes[0].is_bad);
    set(0, 0, 0, 0);
    dead_watch_begin(watch, stats);
    set(1000, 0, 200, 190);
    assert_true(look());
    set(0, 0, 0, 0);
    dead_watch_begin(watch, stats);
    set(1000, 0, 200, 190);
    dead_watch_end(watch, stats);
    assert_true(watch->nodes[0].is_bad);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_alone), cmocka_unit_test(test_late)};
    stats = mem_calloc(1, sizeof(*stats));
    watch = mem_calloc(1, sizeof(*watch));
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(stats);
    free(watch);
    return failed;
}

/* Workers and their directories: parts of no head do not pile up; what a start with a head, or without one, takes and refuses, and what
 * it tells the sinks of rows that are out. */
#include "watched.h"
#include "workers.h"

#include "core/os.h"
#include "run/head.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define STREAMS                                                                                              \
    "source a = sequence { count: 300000, keys: 100, event_time: ts }\n"                                     \
    "stream g = a | gate\n"                                                                                  \
    "stream w = g | feature by key over 1h { n: count() }\n"                                                 \
    "sink w = watched from w\n"
static const char job[] = "job j { checkpoint: { dir: \"alone\", every: 10ms } }\n" STREAMS;

static const struct registry *registry;

static void remove_folder(const char *path)
{
    assert_int_equal(os_remove_tree(path), 0);
}

/* One worker fails again and again: the other's parts go with their chain, though there is no head yet. */
static void test_abandoned(void **state)
{
    enum { FAILS = 40 };
    struct heads heads = {0};
    struct outcome outcome;
    struct way way = {
        .registry = registry, .folder = "many", .incarnation = 1, .waits_for = 1, .heads = &heads};
    (void)state;
    watched = (struct watched){.fails = FAILS};
    workers_run(job, 2, 1, &way, &outcome);
    assert_true(outcome.is_finished);
    assert_int_equal(watched.failed, FAILS);
    assert_true(watched.most_parts > 1 && watched.most_parts <= CHECKPOINT_CHAIN_MAX + 1);
    buffer_free(&heads.last);
    remove_folder("many");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_abandoned)};
    char folder[] = "worker-parts-XXXXXX";
    registry = registry_watched(&operator_gate);
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    if (mkdtemp(folder) == NULL || chdir(folder) != 0 || setenv("LEAT_TEST_CUT", "25", 1) != 0 ||
        !failpoints_init(&diags))
        return 2;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(&arena);
    return chdir("..") != 0 || rmdir(folder) != 0 ? 2 : failed;
}

/* No deadlock: three workers whose stages send each other rows in a circle, with next to no memory for rows that wait, and links that have
 * room for a batch or a message, while windows close many rows at once; and the result is that of a run that is alone, whatever the order
 * in which messages come. LEAT_TEST_SEEDS: how many seeds; LEAT_TEST_SEED: the first one. */
#include "workers.h"

#include "core/os.h"
#include "unit/support/patience.h"
#include "unit/support/random.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { WORKERS = 3, SEEDS = 12, BATCH_BYTES = 64 << 10 };

/* Each step has another key, so that all workers send rows to all others, again and again. A window of `w` closes 3,000 rows with one
 * record. */
static const char job[] =
    "source a = sequence { count: 12000, keys: 3000, rate: 1000, event_time: ts }\n"
    "source b = sequence { count: 4000, keys: 700, rate: 333, seed: 4, event_time: ts }\n"
    "stream u = a | union b\n"
    "stream f = u | feature by key over 1h { n: count() } | with bucket = hash_mod(key, 11)\n"
    "stream g = f | feature by bucket over 1h { m: count(), s: sum(n) }\n"
    "stream h = g | feature by key over 1h { back: last(m) }\n"
    "stream w = h | window by key over tumbling(4s) { rows: count(), most: max(back) }\n"
    "stream v = w | with bucket = hash_mod(key, 5)\n"
    "stream x = v | window by bucket over tumbling(4s) { rows: count(), most: max(most) }\n"
    "sink h = null from h\n"
    "sink x = null from x\n";

static uint64_t seed_now;

/* SIGALRM: the runs stand still. The process ends here. */
static void say_seed(int number)
{
    char text[128];
    int length = snprintf(text, sizeof(text), "no end: LEAT_TEST_SEED=%llu LEAT_TEST_SEEDS=1\n",
                          (unsigned long long)seed_now);
    ssize_t wrote = write(STDERR_FILENO, text, (size_t)length);
    (void)wrote;
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

/* Returns how often a link was full. */
static uint64_t run_seed(uint64_t seed, const struct outcome *alone)
{
    struct test_random random = {seed};
    struct outcome outcome;
    static const size_t budgets[] = {0, 1, BATCH_BYTES}, windows[] = {0, 1, BATCH_BYTES};
    uint32_t choice = random_below(&random, ARRAY_COUNT(budgets) + 1);
    size_t budget = choice < ARRAY_COUNT(budgets) ? budgets[choice] : random_below(&random, BATCH_BYTES);
    choice = random_below(&random, ARRAY_COUNT(windows) + 1);
    size_t window = choice < ARRAY_COUNT(windows) ? windows[choice] : random_below(&random, BATCH_BYTES);
    const struct way way = {.seed = seed, .is_tight = true, .waiting_budget = budget, .window = window};
    seed_now = seed;
    alarm((unsigned)(PATIENCE_US / US_PER_SECOND));
    workers_run(job, WORKERS, 1 + random_below(&random, 2), &way, &outcome);
    alarm(0);
    assert_int_equal(outcome.sinks, alone->sinks);
    for (uint32_t i = 0; i < outcome.sinks; i++)
        assert_string_equal(outcome.notes[i], alone->notes[i]);
    assert_memory_equal(outcome.counters, alone->counters, outcome.nodes * sizeof(outcome.counters[0]));
    assert_int_equal(outcome.records, 16000);
    assert_true(window != 1 || outcome.refusals > 0);
    return outcome.refusals;
}

static uint64_t number_of(const char *name, uint64_t usual)
{
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : usual;
}

static void test_seeds(void **state)
{
    struct outcome alone;
    uint64_t first = number_of("LEAT_TEST_SEED", (uint64_t)os_wall_us() % 1000000),
             count = number_of("LEAT_TEST_SEEDS", SEEDS);
    (void)state;
    print_message("seeds %llu to %llu\n", (unsigned long long)first, (unsigned long long)(first + count - 1));
    workers_run(job, 0, 1, NULL, &alone);
    uint64_t refusals = 0;
    for (uint64_t i = 0; i < count; i++)
        refusals += run_seed(first + i, &alone);
    print_message("%llu times a link was full\n", (unsigned long long)refusals);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_seeds)};
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    char folder[] = "worker-cycles-XXXXXX";
    if (setenv("LEAT_TEST_CUT", "64", 1) != 0 || setenv("LEAT_TEST_STATE", "4096", 1) != 0 ||
        !failpoints_init(&diags) || mkdtemp(folder) == NULL || chdir(folder) != 0)
        return 2;
    (void)signal(SIGALRM, say_seed);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(&arena);
    return chdir("..") != 0 || os_remove_tree(folder) != 0 ? 2 : failed;
}

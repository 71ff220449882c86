/* What several workers do as one: the order log, byte for byte, up to --until and up to a stop. */
#include "arrivals.h"
#include "cli/commands.h"
#include "core/mem.h"
#include "core/order_log.h"
#include "core/os.h"
#include "later.h"
#include "unit/support/random.h"
#include "workers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Three partitions of different speeds, whose rows meet in windows and in a join. */
static const char job[] =
    "source a = sequence { count: 20000, keys: 50, rate: 900, event_time: ts }\n"
    "source b = sequence { count: 6000, keys: 30, rate: 300, seed: 4, event_time: ts }\n"
    "source c = sequence { count: 500, keys: 30, rate: 30, seed: 5, event_time: ts }\n"
    "stream u = a | union b, c\n"
    "stream f = u | feature by key over 1h { n: count(), before: last(value) }\n"
    "stream w = f | window by key over tumbling(1s) { n: count(), s: sum(before) }\n"
    "sink f = null from f\n"
    "sink w = null from w\n";

/* One source of three partitions, whose batches end where wide records do; their slowest keys hold the watermark. */
static const char job_of_files[] =
    "source s = file { path: [\"one.jsonl\", \"two.jsonl\", \"three.jsonl\"]\n"
    "  schema: { key: int, ts: time(ms), note: text }, event_time: ts, max_delay: 50ms\n"
    "  watermark: per_key { by: key, within: 2s } }\n"
    "stream w = s | window by key over tumbling(1s) { n: count(), f: first(ts) }\n"
    "sink w = null from w\n"
    "sink late = null from w.late\n";

/* Sources that wait for each other: four partitions that lie apart by more than is allowed, beside one whose source waits for none,
 * and one that is merged by event time. WAITS: what the sources wait for. */
#define JOB_THAT_WAITS(WAITS)                                                                                \
    "source a = arrivals { partitions: 2, count: 9000, step: 2200us, delay: 400ms, late: 90ms, batch: 700\n" \
    "  event_time: ts, max_delay: 20ms" WAITS " }\n"                                                         \
    "source b = arrivals { partitions: 2, count: 3000, step: 7ms, late: 9ms, batch: 90, seed: 2\n"           \
    "  event_time: ts" WAITS " }\n"                                                                          \
    "source c = arrivals { count: 1000, step: 20ms, delay: 2s, seed: 3, event_time: ts }\n"                  \
    "source d = sequence { count: 900, keys: 10, rate: 45, event_time: ts" WAITS " }\n"                      \
    "stream e = d | select id, key, ts\n"                                                                    \
    "stream u = a | union b, c, e\n"                                                                         \
    "stream f = u | feature by key over 1h { n: count(), before: last(id) }\n"                               \
    "stream w = f | window by key over tumbling(100ms) { n: count(), s: sum(before) }\n"                     \
    "stream l = a | window by key over tumbling(10ms) { n: count(), f: first(id) }\n"                        \
    "sink f = null from f\n"                                                                                 \
    "sink w = null from w\n"                                                                                 \
    "sink l = null from l\n"                                                                                 \
    "sink late = null from l.late\n"

static const char job_that_waits[] = JOB_THAT_WAITS(", align: 150ms");

static void write_file(const char *path, uint32_t rows, uint32_t seed)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    struct test_random random = {seed};
    for (uint32_t i = 0, ts = 0; i < rows; i++) {
        uint32_t wide = random_below(&random, 200) == 0 ? 200000 : random_below(&random, 50);
        uint32_t late = random_below(&random, 100), key = random_below(&random, seed == 3 ? 300 : 7);
        ts += random_below(&random, 20 + seed);
        fprintf(file, "{\"key\": %u, \"ts\": %u, \"note\": \"%0*d\"}\n", key, 1000 + ts - late,
                (int)MAX(wide, 1), 0);
    }
    fclose(file);
}

static const struct {
    uint32_t workers, lanes;
} sizes[] = {{1, 1}, {2, 1}, {2, 2}, {3, 1}, {4, 2}};

static void same(const struct outcome *one, const struct outcome *other)
{
    workers_same(one, other);
    assert_int_equal(one->records, other->records);
}

static char *read_file(const char *path, size_t *bytes)
{
    char *text = NULL;
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *bytes = (size_t)ftell(file);
    rewind(file);
    text = mem_alloc(*bytes + 1);
    assert_int_equal(fread(text, 1, *bytes, file), *bytes);
    fclose(file);
    return text;
}

/* Records between cuts; NULL: as always. */
static void set_cut(const char *records)
{
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    assert_int_equal(records == NULL ? unsetenv("LEAT_TEST_CUT") : setenv("LEAT_TEST_CUT", records, 1), 0);
    assert_true(failpoints_init(&diags));
    arena_free(&arena);
}

static void test_files(void **state)
{
    static const char *const names[] = {"one.jsonl", "two.jsonl", "three.jsonl"};
    struct outcome first, other;
    (void)state;
    for (uint32_t i = 0; i < ARRAY_COUNT(names); i++)
        write_file(names[i], 3000 + 700 * i, i + 1);
    workers_run(job_of_files, 0, 2, NULL, &first);
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        workers_run(job_of_files, sizes[i].workers, sizes[i].lanes, NULL, &other);
        same(&first, &other);
    }
    for (uint32_t i = 0; i < ARRAY_COUNT(names); i++)
        assert_int_equal(unlink(names[i]), 0);
}

/* A job, and the records between its cuts. */
struct ordered {
    const char *job, *cut;
};

static void test_order_log(void **state)
{
    /* With cuts after 53 records, one of source `a` is at 1 s, where the other sources have a row, too. */
    static const int64_t untils[] = {0, 1, 1000001, 3333333, 19000000};
    const struct ordered *of = *state;
    set_cut(of->cut);
    for (size_t u = 0; u < ARRAY_COUNT(untils); u++) {
        struct outcome first, other;
        size_t first_bytes, bytes;
        struct way way = {.registry = registry_with_arrivals(&builtin_registry),
                          .until_us = untils[u],
                          .order = "alone.order"};
        workers_run(of->job, 0, 2, &way, &first);
        char *log = read_file(way.order, &first_bytes);
        assert_int_equal(first.is_finished, untils[u] == 0);
        for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
            way.order = "workers.order";
            workers_run(of->job, sizes[i].workers, sizes[i].lanes, &way, &other);
            same(&first, &other);
            char *again = read_file(way.order, &bytes);
            assert_int_equal(bytes, first_bytes);
            assert_memory_equal(log, again, bytes);
            free(again);
            assert_int_equal(unlink(way.order), 0);
        }
        free(log);
        assert_int_equal(unlink("alone.order"), 0);
    }
    set_cut(NULL);
}

/* The sources of the job wait for each other: without that, rows come in another order. */
static void test_that_sources_wait(void **state)
{
    const struct way way = {.registry = registry_with_arrivals(&builtin_registry)};
    struct outcome waits, other;
    (void)state;
    workers_run(job_that_waits, 0, 2, &way, &waits);
    workers_run(JOB_THAT_WAITS(""), 0, 2, &way, &other);
    assert_string_not_equal(waits.notes[0], other.notes[0]);
    assert_true(memcmp(waits.notes[3], "0 rows", 6) != 0); /* some are late */
}

/* The stopped log has the entries of the whole one up to its end: a stop makes no micro-batch of its own. Returns how many micro-batches
 * are in it. */
static uint64_t is_beginning(struct str whole, struct str stopped)
{
    struct order_reader one, other;
    struct order_entry a, b;
    assert_true(order_open(&one, whole) && order_open(&other, stopped));
    while (order_next(&other, &b) && b.tag != ORDER_EPOCH) {
        assert_true(order_next(&one, &a));
        assert_int_equal(a.tag, b.tag);
        assert_int_equal(a.partition, b.partition);
        assert_int_equal(a.records, b.records);
        assert_int_equal(a.time, b.time);
    }
    assert_null(other.why);
    uint64_t micro_batches = other.head.next;
    order_close(&one);
    order_close(&other);
    return micro_batches;
}

/* Many micro-batches, so that a stop comes before the end. */
static const char long_job[] =
    "source a = sequence { count: 200000, keys: 50, rate: 900, event_time: ts }\n"
    "source b = sequence { count: 60000, keys: 30, rate: 300, seed: 4, event_time: ts }\n"
    "stream u = a | union b\n"
    "stream w = u | window by key over tumbling(1s) { n: count() }\n"
    "sink w = null from w\n";

/* Wherever a worker stops the job, its leader or another one, what it did is the beginning of what it would have done. */
static void test_stop(void **state)
{
    enum { ROUNDS = 5 }; /* a busy machine may come through before a stop */
    struct outcome outcome;
    size_t whole_bytes, bytes;
    bool is_stopped[ARRAY_COUNT(sizes)] = {false};
    const char *text = *state;
    struct way way = {.registry = registry_with_arrivals(&builtin_registry), .order = "whole.order"};
    workers_run(text, 0, 2, &way, &outcome);
    char *whole = read_file("whole.order", &whole_bytes);
    for (size_t i = 0; i < ROUNDS * ARRAY_COUNT(sizes); i++) {
        size_t size = i % ARRAY_COUNT(sizes);
        if (is_stopped[size])
            continue;
        way.stops_after = 5 + size;
        way.order = "stopped.order";
        workers_run(text, sizes[size].workers, sizes[size].lanes, &way, &outcome);
        char *log = read_file("stopped.order", &bytes);
        if (!outcome.is_finished)
            assert_int_equal(is_beginning((struct str){whole, whole_bytes}, (struct str){log, bytes}),
                             outcome.micro_batches);
        is_stopped[size] = !outcome.is_finished;
        free(log);
        assert_int_equal(unlink("stopped.order"), 0);
    }
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++)
        assert_true(is_stopped[i]);
    free(whole);
    assert_int_equal(unlink("whole.order"), 0);
}

#define JOB_THAT_STANDS(STANDS)                                                                              \
    "source a = arrivals { count: 10240, batch: 1024, event_time: ts" STANDS " }\n"                          \
    "sink a = null from a\n"

/* A stop waits for rows that are read slowly, longer than it waits for a source that does not answer; that one it goes without. */
static void test_stop_while_a_source_stands(void **state)
{
    enum { MICRO_BATCHES = 4 }; /* before the source stands */
    static const char *const texts[] = {JOB_THAT_STANDS(", stands_at: 4096, stands: 4s"),
                                        JOB_THAT_STANDS(", stands_at: 4096")};
    struct outcome outcome;
    size_t whole_bytes, bytes;
    struct way way = {.registry = registry_with_arrivals(&builtin_registry), .order = "whole.order"};
    (void)state;
    set_cut("1024"); /* a micro-batch for each batch */
    workers_run(JOB_THAT_STANDS(""), 0, 2, &way, &outcome);
    char *whole = read_file("whole.order", &whole_bytes);
    way.order = "stopped.order";
    way.stops_after = MICRO_BATCHES;
    for (uint32_t workers = 0; workers <= 2; workers += 2) {
        workers_run(texts[0], workers, 2, &way, &outcome);
        char *log = read_file("stopped.order", &bytes);
        assert_int_equal(is_beginning((struct str){whole, whole_bytes}, (struct str){log, bytes}),
                         outcome.micro_batches);
        assert_int_equal(outcome.micro_batches, MICRO_BATCHES + 1);
        assert_int_equal(outcome.records, 5120);
        free(log);
        assert_int_equal(unlink("stopped.order"), 0);
    }
    workers_run(texts[1], 2, 1, &way, &outcome);
    assert_int_equal(outcome.micro_batches, MICRO_BATCHES + 1);
    assert_int_equal(outcome.records, 4096);
    assert_int_equal(unlink("stopped.order"), 0);
    free(whole);
    assert_int_equal(unlink("whole.order"), 0);
}

/* Operators that go on when the sources have ended, in windows' rows and one behind another: the leader
 * goes by answers of other workers, and the order log has these micro-batches. */
static const char job_with_later[] =
    "source s = sequence { count: 20000, keys: 97, skew: 0.7, rate: 50, event_time: ts }\n"
    "stream before = s | window by key over tumbling(1m) { n: count(), v: sum(value) }\n"
    "stream rows = before | later 20\n"
    "stream other = before | later 7\n"
    "stream behind = rows | window by n over tumbling(2m) { rows: count(), all: sum(v) }\n"
    "stream again = behind | later 9 | window by n over forever { rows: sum(rows), last: last(all) }\n"
    "sink rows = null from rows\n"
    "sink other = null from other\n"
    "sink behind = null from behind\n"
    "sink late = null from behind.late\n"
    "sink again = null from again\n";

static void test_ended(void **state)
{
    struct outcome first, other;
    size_t first_bytes, bytes;
    struct way way = {.registry = registry_with_later(), .order = "alone.order"};
    (void)state;
    workers_run(job_with_later, 0, 2, &way, &first);
    char *log = read_file(way.order, &first_bytes);
    way.order = "workers.order";
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        workers_run(job_with_later, sizes[i].workers, sizes[i].lanes, &way, &other);
        same(&first, &other);
        char *again = read_file(way.order, &bytes);
        assert_int_equal(bytes, first_bytes);
        assert_memory_equal(log, again, bytes);
        free(again);
        assert_int_equal(unlink(way.order), 0);
    }
    free(log);
    assert_int_equal(unlink("alone.order"), 0);
}

/* The log of a run whose micro-batches end elsewhere, so that the replay shows that it goes by the log; of a run that was stopped,
 * behind which the order is computed; and with other passes behind the end. */
static void test_replay(void **state)
{
    static const char *const jobs[] = {job,           job, job_with_later, job_with_later, job_that_waits,
                                       job_that_waits};
    static const int64_t untils[] = {0, 3333333, 0, 60000000, 0, 3333333};
    (void)state;
    for (size_t j = 0; j < ARRAY_COUNT(jobs); j++) {
        struct outcome first, other;
        size_t first_bytes, bytes;
        struct way way = {.registry = registry_with_arrivals(registry_with_later()),
                          .order = "log.order",
                          .until_us = untils[j]};
        set_cut(j % 2 == 0 ? "53" : NULL);
        workers_run(jobs[j], j == 0 ? 3 : 0, 2, &way, &first);
        set_cut(NULL);
        way = (struct way){.registry = way.registry, .replays = "log.order", .order = "alone.order"};
        workers_run(jobs[j], 0, 2, &way, &first);
        assert_true(first.is_finished);
        char *log = read_file(way.order, &first_bytes);
        way.order = "workers.order";
        for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
            workers_run(jobs[j], sizes[i].workers, sizes[i].lanes, &way, &other);
            same(&first, &other);
            char *again = read_file(way.order, &bytes);
            assert_int_equal(bytes, first_bytes);
            assert_memory_equal(log, again, bytes);
            free(again);
            assert_int_equal(unlink(way.order), 0);
        }
        free(log);
        assert_int_equal(unlink("alone.order") | unlink("log.order"), 0);
    }
}

/* Where the records are not those of the log, several workers say the same as one: another time, fewer, or more of them. */
static void test_other_records(void **state)
{
    static const char *const names[] = {"one.jsonl", "two.jsonl", "three.jsonl"};
    static const struct {
        uint32_t rows, seed;
    } others[] = {{3700, 77}, {3600, 2}, {3800, 2}};
    struct outcome outcome;
    (void)state;
    for (uint32_t i = 0; i < ARRAY_COUNT(names); i++)
        write_file(names[i], 3000 + 700 * i, i + 1);
    workers_run(job_of_files, 0, 2, &(struct way){.order = "log.order"}, &outcome);
    for (size_t k = 0; k < ARRAY_COUNT(others); k++) {
        const struct way way = {.replays = "log.order"};
        write_file(names[1], others[k].rows, others[k].seed);
        char *error = workers_fail(job_of_files, 0, 2, &way);
        assert_non_null(strstr(error, "the order log does not fit"));
        for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
            char *other = workers_fail(job_of_files, sizes[i].workers, sizes[i].lanes, &way);
            assert_string_equal(error, other);
            free(other);
        }
        free(error);
    }
    const struct way until = {.replays = "log.order", .until_us = 1000000, .is_refused = true};
    char *error = workers_fail(job_of_files, 3, 1, &until);
    assert_non_null(
        strstr(error, "several workers cannot run a job with an order log to replay, and --until"));
    free(error);
    for (uint32_t i = 0; i < ARRAY_COUNT(names); i++)
        assert_int_equal(unlink(names[i]), 0);
    assert_int_equal(unlink("log.order"), 0);
}

int main(void)
{
    static struct ordered of[] = {{job, NULL}, {job, "53"}, {job_that_waits, NULL}, {job_that_waits, "53"}};
    const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(test_order_log, &of[0]),
                                       cmocka_unit_test_prestate(test_order_log, &of[1]),
                                       cmocka_unit_test_prestate(test_order_log, &of[2]),
                                       cmocka_unit_test_prestate(test_order_log, &of[3]),
                                       cmocka_unit_test(test_that_sources_wait),
                                       cmocka_unit_test(test_files),
                                       cmocka_unit_test_prestate(test_stop, (void *)long_job),
                                       cmocka_unit_test_prestate(test_stop, (void *)job_that_waits),
                                       cmocka_unit_test(test_ended),
                                       cmocka_unit_test(test_replay),
                                       cmocka_unit_test(test_other_records),
                                       cmocka_unit_test(test_stop_while_a_source_stands)};
    char folder[] = "workers-XXXXXX";
    if (mkdtemp(folder) == NULL || chdir(folder) != 0)
        return 2;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return chdir("..") != 0 || rmdir(folder) != 0 ? 2 : failed;
}

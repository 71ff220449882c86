/* What several workers do as one: the order log, byte for byte, up to --until and up to a stop. */
#include "core/mem.h"
#include "core/order_log.h"
#include "workers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
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

static const struct {
    uint32_t workers, lanes;
} sizes[] = {{1, 1}, {2, 1}, {2, 2}, {3, 1}, {4, 2}};

static void same(const struct outcome *one, const struct outcome *other)
{
    assert_int_equal(one->sinks, other->sinks);
    for (uint32_t i = 0; i < one->sinks; i++)
        assert_string_equal(one->notes[i], other->notes[i]);
    assert_memory_equal(one->counters, other->counters, one->nodes * sizeof(one->counters[0]));
    assert_int_equal(one->micro_batches, other->micro_batches);
    assert_int_equal(one->is_finished, other->is_finished);
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

static void test_order_log(void **state)
{
    (void)state;
    static const int64_t untils[] = {0, 1, 3333333, 19000000};
    for (size_t u = 0; u < ARRAY_COUNT(untils); u++) {
        struct outcome first, other;
        size_t first_bytes, bytes;
        struct way way = {.until_us = untils[u], .order = "alone.order"};
        workers_run(job, 0, 2, &way, &first);
        char *log = read_file(way.order, &first_bytes);
        assert_int_equal(first.is_finished, untils[u] == 0);
        for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
            way.order = "workers.order";
            workers_run(job, sizes[i].workers, sizes[i].lanes, &way, &other);
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
}

/* The stopped log has the entries of the whole one up to its last micro-batch, which has no rows. Returns how many micro-batches
 * are in it. */
static uint64_t is_beginning(struct str whole, struct str stopped)
{
    struct order_reader one, other;
    struct order_entry a, b;
    assert_true(order_open(&one, whole) && order_open(&other, stopped));
    while (order_next(&other, &b) && other.micro_batch < other.head.next) {
        assert_true(order_next(&one, &a));
        assert_int_equal(a.tag, b.tag);
        assert_int_equal(a.partition, b.partition);
        assert_int_equal(a.records, b.records);
        assert_int_equal(a.time, b.time);
    }
    assert_null(other.why);
    assert_int_equal(b.tag, ORDER_MICRO_BATCH);
    uint64_t micro_batches = other.head.next;
    order_close(&one);
    order_close(&other);
    return micro_batches;
}

/* Wherever a worker stops the job, what it did is the beginning of what it would have done. */
static void test_stop(void **state)
{
    (void)state;
    struct outcome outcome;
    size_t whole_bytes, bytes;
    uint32_t stopped = 0;
    workers_run(job, 0, 2, &(struct way){.order = "whole.order"}, &outcome);
    char *whole = read_file("whole.order", &whole_bytes);
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        workers_run(job, sizes[i].workers, sizes[i].lanes,
                    &(struct way){.stops_after = 5 + i, .order = "stopped.order"}, &outcome);
        char *log = read_file("stopped.order", &bytes);
        if (!outcome.is_finished)
            assert_int_equal(is_beginning((struct str){whole, whole_bytes}, (struct str){log, bytes}),
                             outcome.micro_batches);
        stopped += !outcome.is_finished;
        free(log);
        assert_int_equal(unlink("stopped.order"), 0);
    }
    assert_true(stopped > 0);
    free(whole);
    assert_int_equal(unlink("whole.order"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_order_log), cmocka_unit_test(test_stop)};
    char folder[] = "workers-XXXXXX";
    if (mkdtemp(folder) == NULL || chdir(folder) != 0)
        return 2;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return chdir("..") != 0 || rmdir(folder) != 0 ? 2 : failed;
}

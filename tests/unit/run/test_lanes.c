/* Whole jobs at several numbers of lanes and workers: the digests of all output must be the same, and the counts must add
 * up. The test also runs under ASan and TSan, which see what the lanes share. */
#include "core/buffer.h"
#include "part.h"
#include "workers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static void same_at_any_lanes(const char *text)
{
    static const struct {
        uint32_t workers, lanes;
    } sizes[] = {{0, 1}, {0, 2}, {0, 3}, {0, 7}, {1, 2}, {2, 1}, {2, 2}, {3, 1}, {5, 1}};
    struct outcome first, other;
    workers_run(text, 0, 1, NULL, &first);
    assert_true(first.sinks > 0 && first.is_finished);
    for (size_t i = 1; i < ARRAY_COUNT(sizes); i++) {
        workers_run(text, sizes[i].workers, sizes[i].lanes, NULL, &other);
        assert_int_equal(first.sinks, other.sinks);
        for (uint32_t k = 0; k < first.sinks; k++)
            assert_string_equal(first.notes[k], other.notes[k]);
        assert_memory_equal(first.counters, other.counters, first.nodes * sizeof(first.counters[0]));
    }
}

static void test_rows(void **state)
{
    (void)state;
    same_at_any_lanes("source s = sequence { count: 30000, keys: 97, event_time: ts }\n"
                      "stream a = s | where key > 10 | with x = 1000 / (key % 13)\n"
                      "sink a = null from a\n"
                      "sink dead = null from dead_letters\n");
}

static void test_two_sources(void **state)
{
    (void)state;
    same_at_any_lanes(
        "source imps = ctr { events: 12000, stream: impressions, event_time: ts, max_delay: 10s }\n"
        "source clicks = ctr { events: 12000, stream: clicks, event_time: ts, max_delay: 10s }\n"
        "stream f = imps | dedup by imp_id within 1h\n"
        "  | feature by item over [1h, 24h] every 1m { n: count(), p: sum(price), s: distinct(site) }\n"
        "  | feature from clicks by item over 6h every 10m { clicks: count() }\n"
        "stream e = f | attribute clicks on imp_id within 30m as clicked\n"
        "stream w = e | window by cat over tumbling(1h) { n: count(), c: sum(clicked), m: mean(price) }\n"
        "sink e = null from e\n"
        "sink w = null from w\n"
        "sink late = null from w.late\n");
}

static void test_union(void **state)
{
    (void)state;
    same_at_any_lanes("source a = sequence { count: 9000, keys: 50, rate: 900, event_time: ts }\n"
                      "source b = sequence { count: 3000, keys: 30, rate: 300, seed: 4, event_time: ts }\n"
                      "stream u = a | union b | dedup by key within 1s\n"
                      "sink u = null from u\n");
}

/* A union of as many streams as a step takes, each from its own source: the rows of all are there, in the
 * job's one order, on which the digest of the next step depends. */
static void test_wide_union(void **state)
{
    (void)state;
    struct byte_buffer job = {0}, streams = {0};
    for (int i = 0; i < OPERATOR_INPUTS_MAX; i++) {
        buffer_printf(&job,
                      "source s%d = sequence { count: %d, keys: 9, rate: %d, seed: %d, event_time: ts }\n", i,
                      100 + i, 50 + i % 7, i);
        if (i > 0)
            buffer_printf(&streams, "%s s%d", i > 1 ? "," : "", i);
    }
    buffer_printf(&job,
                  "stream u = s0 | union%.*s\n"
                  "stream f = u | feature by key over 1h { n: count(), before: last(value) }\n"
                  "sink u = null from u\nsink f = null from f\n",
                  (int)streams.length, streams.data);
    buffer_append(&job, "", 1);
    same_at_any_lanes(job.data);
    struct outcome outcome;
    workers_run(job.data, 0, 2, NULL, &outcome);
    uint64_t in = 0;
    for (uint32_t i = 0; i < outcome.nodes; i++)
        in = MAX(in, outcome.counters[i].in);
    assert_int_equal(in, 100 * OPERATOR_INPUTS_MAX + OPERATOR_INPUTS_MAX * (OPERATOR_INPUTS_MAX - 1) / 2);
    buffer_free(&job);
    buffer_free(&streams);
}

static void test_learner(void **state)
{
    (void)state;
    same_at_any_lanes(
        "source s = ctr { events: 8000, stream: labelled, event_time: ts, max_delay: 10s }\n"
        "learner m = deepfm from s { label: clicked, sparse: [user, item, site, cross(site, cat)]\n"
        "  dense: [price, pos], embedding: { dim: 8, admit_after: 2, expire_after: 20m, rows_max: 1024 }\n"
        "  hidden: [16], metrics_every: 1000 }\n"
        "sink p = null from m.predictions\n"
        "sink t = null from m.metrics\n");
}

/* Learners whose embedding rows other lanes find and make while they learn: in tables that keep all rows, and
 * in tables that evict rows by their headers. */
static void test_team(void **state)
{
    (void)state;
    same_at_any_lanes(
        "source s = ctr { events: 20000, stream: labelled, event_time: ts, max_delay: 10s }\n"
        "learner m = ffm from s { label: clicked, sparse: [user, item, site, cat], dense: [price, pos]\n"
        "  embedding: { dim: 8, optimizer: adagrad_block { rate: 0.1 }, admit_after: 2 }, metrics_every: "
        "1000 }\n"
        "learner n = ffm from s { label: clicked, sparse: [user, item, site], dense: [price]\n"
        "  embedding: { dim: 4, expire_after: 20m, rows_max: 512 }, clip_norm: 10.0 }\n"
        "sink p = null from m.predictions\n"
        "sink t = null from m.metrics\n"
        "sink q = null from n.predictions\n");
}

/* A window that closes for 60,000 keys at once: its rows exceed the memory budget, and are spilled. */
static void test_spill(void **state)
{
    (void)state;
    same_at_any_lanes("job j { memory: 32MiB }\n"
                      "source s = sequence { count: 60000, keys: 60000, rate: 1000000, event_time: ts }\n"
                      "stream w = s | window by key over tumbling(1d) { n: count() }\n"
                      "stream x = w | dedup by n within 1h\n"
                      "sink w = null from w\n"
                      "sink x = null from x\n");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),       cmocka_unit_test(test_two_sources), cmocka_unit_test(test_union),
        cmocka_unit_test(test_wide_union), cmocka_unit_test(test_learner),     cmocka_unit_test(test_spill),
        cmocka_unit_test(test_team),
    };
    struct part part = {1, 1};
    if (argc == 3 && (strcmp(argv[1], "--part") != 0 || !part_read(argv[2], &part)))
        return 2;
    struct CMUnitTest own[ARRAY_COUNT(tests)];
    size_t count = 0;
    for (size_t i = 0; i < ARRAY_COUNT(tests); i++)
        if (part_has(&part, i))
            own[count++] = tests[i];
    if (count == 0)
        return 2;
    return _cmocka_run_group_tests("lanes", own, count, NULL, NULL);
}

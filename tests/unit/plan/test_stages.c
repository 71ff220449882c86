/* How jobs are cut into stages and exchanges. */
#include "toys.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define SOURCES                                                                                              \
    "source a = rows { event_time: ts }\n"                                                                   \
    "source b = rows { event_time: ts }\n"

static const struct {
    const char *what, *job, *shape;
} cases[] = {
    {"a source into a sink", SOURCES "sink out = out from a",
     "0 sources: a.rows\n1 single: out.out\n0 -> 1 out/0 single\n"},
    {"what depends on a row alone runs where rows are decoded",
     SOURCES "stream s = a | pass | rewrite | with x = 1\nsink out = out from s",
     "0 sources: a.rows s.pass s.rewrite s.with\n1 single: out.out\n0 -> 1 out/0 single\n"},
    {"a key moves rows", SOURCES "stream s = a | pass | keyed by user | pass\nsink out = out from s",
     "0 sources: a.rows s.pass\n1 keyed: s.keyed s.pass\n2 single: out.out\n"
     "0 -> 1 s/0 hash user\n1 -> 2 out/0 single\n"},
    {"the same key does not move them again",
     SOURCES "stream s = a | keyed by user | pass | keyed by user\nsink out = out from s",
     "0 sources: a.rows\n1 keyed: s.keyed s.pass s.keyed\n2 single: out.out\n"
     "0 -> 1 s/0 hash user\n1 -> 2 out/0 single\n"},
    {"another key does", SOURCES "stream s = a | keyed by user | keyed by item\nsink out = out from s",
     "0 sources: a.rows\n1 keyed: s.keyed\n2 keyed: s.keyed\n3 single: out.out\n"
     "0 -> 1 s/0 hash user\n1 -> 2 s/0 hash item\n2 -> 3 out/0 single\n"},
    {"so does a longer one, or another order",
     SOURCES
     "stream s = a | keyed by user, item | keyed by item, user | keyed by user\nsink out = out from s",
     "0 sources: a.rows\n1 keyed: s.keyed\n2 keyed: s.keyed\n3 keyed: s.keyed\n4 single: out.out\n"
     "0 -> 1 s/0 hash user item\n1 -> 2 s/0 hash item user\n2 -> 3 s/0 hash user\n3 -> 4 out/0 single\n"},
    {"after a step that may change the key, rows move again",
     SOURCES "stream s = a | keyed by user | rewrite | keyed by user\nsink out = out from s",
     "0 sources: a.rows\n1 keyed: s.keyed s.rewrite\n2 keyed: s.keyed\n3 single: out.out\n"
     "0 -> 1 s/0 hash user\n1 -> 2 s/0 hash user\n2 -> 3 out/0 single\n"},
    {"a second stream comes by the same key",
     SOURCES "stream s = a | keyed from b by user\nsink out = out from s",
     "0 sources: a.rows b.rows\n1 keyed: s.keyed\n2 single: out.out\n"
     "0 -> 1 s/0 hash user\n0 -> 1 s/1 hash user\n1 -> 2 out/0 single\n"},
    {"a second stream of an earlier stage joins the stage",
     SOURCES "stream s = a | keyed by user | keyed from b by user\nsink out = out from s",
     "0 sources: a.rows b.rows\n1 keyed: s.keyed s.keyed\n2 single: out.out\n"
     "0 -> 1 s/0 hash user\n0 -> 1 s/1 hash user\n1 -> 2 out/0 single\n"},
    {"a second stream of a later stage does not",
     SOURCES
     "stream t = b | keyed by item\nstream u = a | keyed by user\nstream s = t | keyed from u by item\n"
     "sink out = out from s",
     "0 sources: a.rows b.rows\n1 keyed: t.keyed\n2 keyed: u.keyed\n3 keyed: s.keyed\n4 single: out.out\n"
     "0 -> 1 t/0 hash item\n0 -> 2 u/0 hash user\n1 -> 3 s/0 hash item\n2 -> 3 s/1 hash item\n3 -> 4 out/0 "
     "single\n"},
    {"streams are merged where they are", SOURCES "stream s = a | merge b\nsink out = out from s",
     "0 sources: a.rows b.rows s.merge\n1 single: out.out\n0 -> 1 out/0 single\n"},
    {"keyed streams are merged lane by lane, and are no longer by key",
     SOURCES
     "stream x = a | keyed by user\nstream y = b | keyed by user\nstream s = x | merge y | keyed by user\n"
     "sink out = out from s",
     "0 sources: a.rows b.rows\n1 keyed: x.keyed\n2 keyed: y.keyed\n3 keyed: s.merge\n4 keyed: s.keyed\n"
     "5 single: out.out\n0 -> 1 x/0 hash user\n0 -> 2 y/0 hash user\n1 -> 3 s/0 forward\n2 -> 3 s/1 forward\n"
     "3 -> 4 s/0 hash user\n4 -> 5 out/0 single\n"},
    {"decoded rows that meet keyed ones come along",
     SOURCES "stream x = a | keyed by user\nstream s = b | merge x\nsink out = out from s",
     "0 sources: a.rows b.rows\n1 keyed: x.keyed\n2 keyed: s.merge\n3 single: out.out\n"
     "0 -> 1 x/0 hash user\n0 -> 2 s/0 forward\n1 -> 2 s/1 forward\n2 -> 3 out/0 single\n"},
    {"all rows in order: one instance",
     SOURCES "stream s = a | number_all | keyed by user | pass\nsink out = out from s",
     "0 sources: a.rows\n1 single: s.number_all s.keyed s.pass out.out\n0 -> 1 s/0 single\n"},
    {"a learner and its outputs",
     SOURCES "learner m = guess from a { label: item, inputs: [user, log(id)] }\n"
             "sink p = out from m.predictions\nsink q = out from m.metrics",
     "0 sources: a.rows m.with\n1 single: m.guess p.out q.out\n0 -> 1 m/0 single\n"},
    {"late rows are an output of their own",
     SOURCES "stream s = a | aggregate by user\nsink out = out from s\nsink late = out from s.late",
     "0 sources: a.rows\n1 keyed: s.aggregate\n2 single: out.out\n3 single: late.out\n"
     "0 -> 1 s/0 hash user\n1 -> 2 out/0 single\n1 -> 3 late/0 single\n"},
    {"late rows are a stream like others, also under another name",
     SOURCES "stream s = a | aggregate by user\nstream t = s.late\nstream u = t | pass | keyed by user\n"
             "sink out = out from u",
     "0 sources: a.rows\n1 keyed: s.aggregate u.pass\n2 keyed: u.keyed\n3 single: out.out\n"
     "0 -> 1 s/0 hash user\n1 -> 2 u/0 hash user\n2 -> 3 out/0 single\n"},
    {"those of a step within a stream, as a step's second stream",
     SOURCES "stream s = a | aggregate by user | pass\nstream t = a | keyed from s.late by user\n"
             "sink out = out from t",
     "0 sources: a.rows\n1 keyed: s.aggregate\n2 keyed: t.keyed\n3 single: out.out\n"
     "0 -> 1 s/0 hash user\n0 -> 2 t/0 hash user\n1 -> 2 t/1 hash user\n2 -> 3 out/0 single\n"},
    {"dead letters of every stage, last",
     SOURCES "sink dead = out from dead_letters\nstream s = a | keyed by user\nsink out = out from s",
     "0 sources: a.rows\n1 keyed: s.keyed\n2 single: out.out\n3 single: dead.out\n"
     "0 -> 1 s/0 hash user\n1 -> 2 out/0 single\n0 -> 3 dead/0 single\n1 -> 3 dead/0 single\n2 -> 3 dead/0 "
     "single\n"},
    {"what nothing needs is left out",
     SOURCES "stream s = a | keyed by user\nstream unused = b | keyed by item\nsink out = out from a",
     "0 sources: a.rows\n1 single: out.out\n0 -> 1 out/0 single\n"},
    {"a stream is computed once for all who read it",
     SOURCES "stream s = a | keyed by user\nstream t = s | pass\nstream u = s | keyed by item\n"
             "sink o1 = out from t\nsink o2 = out from u\nsink o3 = out from s",
     "0 sources: a.rows\n1 keyed: s.keyed t.pass\n2 keyed: u.keyed\n3 single: o1.out\n4 single: o2.out\n"
     "5 single: o3.out\n0 -> 1 s/0 hash user\n1 -> 2 u/0 hash item\n1 -> 3 o1/0 single\n2 -> 4 o2/0 single\n"
     "1 -> 5 o3/0 single\n"},
};

/* What holds for every plan: nodes come after their inputs, stages are in topological order, every edge is
 * within a stage or is an exchange, and exchanges into keyed stages have keys. */
static void check_invariants(const struct plan *plan)
{
    for (uint32_t i = 0; i < plan->exchanges_count; i++) {
        const struct plan_exchange *x = &plan->exchanges[i];
        assert_true(x->from_stage < x->to_stage);
        assert_int_equal(plan->nodes[x->to_node].stage, x->to_stage);
        assert_int_equal(x->mode == EXCHANGE_HASH,
                         x->key_count > 0 && plan->stages[x->to_stage].tag == STAGE_KEYED);
        assert_int_equal(x->mode == EXCHANGE_SINGLE, plan->stages[x->to_stage].tag == STAGE_SINGLE);
    }
    for (uint32_t i = 0; i < plan->nodes_count; i++) {
        const struct plan_node *node = &plan->nodes[i];
        assert_int_equal(node->place, i);
        uint32_t found = 0;
        for (uint32_t k = 0; k < plan->stages[node->stage].nodes_count; k++)
            found += plan->stages[node->stage].nodes[k] == i;
        assert_int_equal(found, 1);
        for (uint32_t k = 0; k < node->inputs_count; k++) {
            if (node->inputs[k].output == PLAN_OUTPUT_DEAD)
                continue;
            assert_true(node->inputs[k].node < i);
            uint32_t exchanges = 0;
            for (uint32_t e = 0; e < plan->exchanges_count; e++)
                exchanges += plan->exchanges[e].to_node == i && plan->exchanges[e].to_input == k;
            assert_int_equal(exchanges, plan->nodes[node->inputs[k].node].stage != node->stage);
        }
    }
}

static void test_cuts(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct toy_job toy;
        toy_plan(&toy, &toy_registry, cases[i].job);
        if (strcmp(toy_shape(&toy), cases[i].shape) != 0)
            fail_msg("%s:\n%s\nexpected\n%s", cases[i].what, toy_shape(&toy), cases[i].shape);
        check_invariants(toy.plan);
        toy_free(&toy);
    }
}

/* Which outputs of a learner are read: by sinks and operators, not by dead letters. */
static void test_outputs_read(void **state)
{
    (void)state;
    static const struct {
        const char *sinks;
        uint32_t read;
    } jobs[] = {
        {"sink q = out from m.metrics", 2},
        {"sink p = out from m.predictions\nsink q = out from m.metrics", 3},
        {"stream s = m.predictions | pass\nsink p = out from s\nsink dead = out from dead_letters", 1},
    };
    for (size_t i = 0; i < ARRAY_COUNT(jobs); i++) {
        struct toy_job toy;
        char job[512];
        snprintf(job, sizeof(job), SOURCES "learner m = guess from a { label: item, inputs: [user] }\n%s",
                 jobs[i].sinks);
        toy_plan(&toy, &toy_registry, job);
        assert_non_null(toy.plan);
        uint32_t place = 0;
        while (toy.plan->nodes[place].tag != PLAN_LEARNER)
            place++;
        assert_int_equal(plan_outputs_read(toy.plan, place), jobs[i].read);
        toy_free(&toy);
    }
}

/* The invariants hold for many jobs of random shape. */
static void test_random_jobs(void **state)
{
    (void)state;
    struct test_random random = {11};
    for (int round = 0; round < 300; round++) {
        struct byte_buffer job = {0};
        toy_random_job(&random, &job);
        struct toy_job toy;
        toy_plan(&toy, &toy_registry, job.data);
        if (toy.plan == NULL)
            fail_msg("%s was refused: %s", job.data, toy_codes(&toy));
        check_invariants(toy.plan);
        toy_free(&toy);
        buffer_free(&job);
    }
}

static void get_fingerprint(const char *job, char fingerprint[33])
{
    struct toy_job toy;
    toy_plan(&toy, &toy_registry, job);
    assert_non_null(toy.plan);
    memcpy(fingerprint, toy.plan->fingerprint, 33);
    toy_free(&toy);
}

/* The fingerprint depends on what reaches state; not on comments, the order of options, lanes,
 * intervals or sinks. */
static void test_fingerprint(void **state)
{
    (void)state;
    static const struct {
        const char *job;
        bool is_same;
    } others[] = {
        {"# a comment\nsource a = rows { max_delay: 1s, event_time: ts }\nstream s = a | keyed by user hold "
         "5m\n"
         "sink out = out from s",
         true},
        {"job j { workers: 7, memory: 2GiB, checkpoint: { every: 3s, dir: \"x\" } }\n"
         "source a = rows { event_time: ts, max_delay: 1s }\n"
         "stream s = a | keyed hold 5m by user note \"x\"\nsink other = null from s\nsink dead = out from "
         "dead_letters",
         true},
        {"param d: duration = 5m\nsource a = rows { event_time: ts, max_delay: 1s }\n"
         "stream s = a | keyed by user hold d\nsink out = out from s",
         true},
        {"source a = rows { event_time: ts, max_delay: 2s }\nstream s = a | keyed by user hold 5m\n"
         "sink out = out from s",
         false},
        {"source a = rows { event_time: ts, max_delay: 1s }\nstream s = a | keyed by item hold 5m\n"
         "sink out = out from s",
         false},
        {"source a = rows { event_time: ts, max_delay: 1s }\nstream s = a | keyed by user hold 6m\n"
         "sink out = out from s",
         false},
        {"source a = rows { event_time: ts, max_delay: 1s }\nstream s = a | pass | keyed by user hold 5m\n"
         "sink out = out from s",
         false},
    };
    char first[33], other[33];
    get_fingerprint(
        "source a = rows { event_time: ts, max_delay: 1s }\nstream s = a | keyed by user hold 5m\n"
        "sink out = out from s",
        first);
    for (size_t i = 0; i < ARRAY_COUNT(others); i++) {
        get_fingerprint(others[i].job, other);
        if ((strcmp(first, other) == 0) != others[i].is_same)
            fail_msg("fingerprint of job %zu", i);
    }
}

/* --replay replaces a source's connector and keeps its times; sinks then only count, except one that is
 * given a path. */
static void test_replay(void **state)
{
    (void)state;
    static const struct plan_replace replay = {{"a", 1}, {"rec/*", 5}}, sink = {{"o1", 2}, {"out.jsonl", 9}};
    struct toy_job toy;
    toy_plan_with(&toy,
                  "job j { checkpoint: { dir: \"state/j\" } }\n"
                  "source a = live { event_time: ts, max_delay: 3s }\nsource b = rows\n"
                  "sink o1 = out from a\nsink o2 = out from b",
                  (struct plan_options){.registry = &toy_registry,
                                        .replays = &replay,
                                        .replays_count = 1,
                                        .sinks = &sink,
                                        .sinks_count = 1,
                                        .is_replay = true});
    assert_string_equal(toy_shape(&toy), "0 sources: a.file b.rows\n1 single: o1.file\n2 single: o2.null\n"
                                         "0 -> 1 o1/0 single\n0 -> 2 o2/0 single\n");
    assert_int_equal(toy.plan->nodes[0].common->max_delay_us, 3 * US_PER_SECOND);
    assert_true(toy.plan->nodes[0].is_bounded);
    assert_true(str_equal(toy.plan->config.checkpoint.directory, STR("state/j.replay")));
    toy_free(&toy);
}

/* A source that is not used gives a warning, and the plan is still made. */
static void test_unused(void **state)
{
    (void)state;
    struct toy_job toy;
    toy_plan(&toy, &toy_registry, SOURCES "stream s = a | pass\nsink out = out from s");
    assert_non_null(toy.plan);
    assert_int_equal(toy.diags.count, 1);
    assert_int_equal(toy.diags.items[0].severity, DIAG_WARNING);
    assert_string_equal(toy.diags.items[0].message, "`b` is not used by any sink, learner or `serve`");
    toy_free(&toy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuts),        cmocka_unit_test(test_outputs_read),
        cmocka_unit_test(test_random_jobs), cmocka_unit_test(test_fingerprint),
        cmocka_unit_test(test_replay),      cmocka_unit_test(test_unused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

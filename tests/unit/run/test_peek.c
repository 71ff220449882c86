/* Peeks at whole jobs while they run, at several numbers of lanes: the output is that of a run that nobody asks, each peek
 * gets one answer, and what is too much is refused. The test also runs under ASan and TSan, which see what the lanes and
 * who asks them share. */
#include "cli/commands.h"
#include "run/peek.h"
#include "run/run.h"
#include "unit/support/patience.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

enum { SINKS_MAX = 8, NOTE_BYTES = 160, ASKERS = 2, KEYS = 7, PEEKS = 64 };

static const char job[] =
    "job asked { memory: 64MiB }\n"
    "source imps = ctr { events: 16000, stream: impressions, event_time: ts, max_delay: 10s }\n"
    "source clicks = ctr { events: 16000, stream: clicks, event_time: ts, max_delay: 10s }\n"
    "stream f = imps | dedup by imp_id within 1h\n"
    "  | feature by item over [1h, 24h] every 1m { n: count(), p: sum(price) }\n"
    "stream e = f | join clicks on imp_id within [0s, 30m] kind left prefix \"c_\"\n"
    "stream w = imps | window by cat over tumbling(1h) { n: count(), m: mean(price) }\n"
    "stream h = imps | sort within 5s\n"
    "learner m = fm from f { label: price > 1.0, sparse: [item, cat], dense: [log1p(n_1h)], embedding: { dim: 4 } }\n"
    "sink e = null from e\nsink w = null from w\nsink h = null from h\nsink p = null from m.predictions\n";

struct job_run {
    struct arena arena;
    struct diag_list diags;
    struct plan *plan;
    struct run *run;
};

static void make(struct job_run *r, uint32_t lanes)
{
    *r = (struct job_run){0};
    diag_list_init(&r->diags, &r->arena);
    struct job_file *file = lang_parse(&r->arena, &r->diags, &builtin_registry, str_from(job));
    struct plan_options plan_options = {.registry = &builtin_registry};
    struct run_options options = {.lanes = lanes, .until_us = TIME_MAX};
    if (lang_expand(file, &r->arena, &r->diags, NULL))
        r->plan = plan_make(file, &plan_options, &r->arena, &r->diags);
    r->run = r->plan == NULL ? NULL : run_new(r->plan, &options, &r->diags);
    if (r->run == NULL)
        diag_print(stderr, &r->diags, &(struct diag_source){"job", str_from(job)}, false);
    assert_non_null(r->run);
}

/* Frees the run; notes: rows and digests of its sinks. */
static void unmake(struct job_run *r, char notes[SINKS_MAX][NOTE_BYTES])
{
    struct run_stats *stats = calloc(1, sizeof(*stats));
    uint32_t sinks = 0;
    assert_non_null(stats);
    run_stats(r->run, stats);
    for (uint32_t i = 0; i < stats->nodes_count; i++)
        if (stats->nodes[i].node->tag == PLAN_SINK)
            memcpy(notes[sinks++], stats->nodes[i].note, NOTE_BYTES);
    free(stats);
    run_free(r->run);
    arena_free(&r->arena);
}

/* --- Asking --- */

static struct batch_pool *pool; /* rows of all peeks' keys */
static atomic_uint ended;       /* peeks of which `done` was called */

static void is_done(struct run_peek *peek)
{
    atomic_store((atomic_bool *)peek->user, true);
    atomic_fetch_add(&ended, 1);
}

static const struct plan_node *node_of(const struct plan *plan, const char *part)
{
    for (uint32_t i = 0; i < plan->nodes_count; i++)
        if (strcmp(plan->nodes[i].part, part) == 0)
            return &plan->nodes[i];
    fail_msg("no part %s", part);
    return NULL;
}

static struct run_peek *new_peek(const struct plan_node *node, uint32_t keys, atomic_bool *is_there)
{
    struct run_peek *peek = run_peek_new(node, pool, is_done, is_there);
    for (uint32_t i = 0; i < keys; i++) {
        char text[16];
        snprintf(text, sizeof(text), "%u", i);
        struct str words[2] = {STR("item"), str_from(text)};
        if (node->tag == PLAN_LEARNER)
            assert_true(run_peek_add(peek, words, 2));
        else
            assert_true(run_peek_add(peek, words + 1, node->bound[0].key_count));
    }
    return peek;
}

struct asker {
    pthread_t thread;
    const struct job_run *of;
    atomic_bool *is_over;
    uint32_t by_end[RUN_PEEK_WAITS]; /* peeks, by what became of them */
    uint32_t found;
};

static void *ask_on(void *argument)
{
    struct asker *asker = argument;
    const struct plan *plan = asker->of->plan;
    while (!atomic_load(asker->is_over))
        for (uint32_t i = 0; i < plan->nodes_count; i++) {
            atomic_bool is_there = false;
            if (!run_peek_can(&plan->nodes[i]))
                continue;
            struct run_peek *peek = new_peek(&plan->nodes[i], KEYS, &is_there);
            if (run_peek_ask(asker->of->run, peek) == RUN_PEEK_WAITS)
                while (!atomic_load(&is_there))
                    usleep(100);
            asker->by_end[peek->end]++;
            for (uint32_t k = 0; k < peek->count && peek->end == RUN_PEEK_DONE; k++)
                asker->found += peek->keys[k].is_found;
            run_peek_free(peek);
        }
    return NULL;
}

static void run_job(uint32_t lanes, bool is_asked, char notes[SINKS_MAX][NOTE_BYTES])
{
    struct job_run r;
    struct asker askers[ASKERS] = {0};
    atomic_bool is_over = false;
    make(&r, lanes);
    for (int i = 0; i < ASKERS && is_asked; i++) {
        askers[i].of = &r;
        askers[i].is_over = &is_over;
        assert_int_equal(pthread_create(&askers[i].thread, NULL, ask_on, &askers[i]), 0);
    }
    assert_true(run_start(r.run));
    assert_true(run_wait(r.run));
    atomic_store(&is_over, true);
    uint32_t answered = 0, found = 0;
    for (int i = 0; i < ASKERS && is_asked; i++) {
        pthread_join(askers[i].thread, NULL);
        answered += askers[i].by_end[RUN_PEEK_DONE];
        found += askers[i].found;
        assert_int_equal(askers[i].by_end[RUN_PEEK_WRONG], 0);
    }
    if (is_asked)
        assert_true(answered > 0 && found > 0);
    unmake(&r, notes);
}

static void test_changes_nothing(void **state)
{
    (void)state;
    char alone[SINKS_MAX][NOTE_BYTES] = {0}, asked[SINKS_MAX][NOTE_BYTES] = {0};
    run_job(2, false, alone);
    for (uint32_t lanes = 1; lanes <= 3; lanes++) {
        run_job(lanes, true, asked);
        assert_memory_equal(alone, asked, sizeof(alone));
    }
}

/* Before lanes work, and after they have, nobody answers; `done` is not called. */
static void test_over(void **state)
{
    (void)state;
    char notes[SINKS_MAX][NOTE_BYTES] = {0};
    struct job_run r;
    atomic_bool is_there = false;
    make(&r, 2);
    struct run_peek *peek = new_peek(node_of(r.plan, "w/window"), 3, &is_there);
    assert_int_equal(run_peek_ask(r.run, peek), RUN_PEEK_OVER);
    assert_true(run_start(r.run));
    assert_true(run_wait(r.run));
    assert_int_equal(run_peek_ask(r.run, peek), RUN_PEEK_OVER);
    assert_false(atomic_load(&is_there));
    run_peek_free(peek);
    unmake(&r, notes);
}

/* Asks more than may wait, as fast as it can: each peek has one end, and no more than the bound are waiting. */
static void test_too_many(void **state)
{
    (void)state;
    char notes[SINKS_MAX][NOTE_BYTES] = {0};
    struct job_run r;
    static struct run_peek *peeks[4 * PEEKS];
    static atomic_bool is_there[4 * PEEKS];
    make(&r, 1);
    const struct plan_node *node = node_of(r.plan, "w/window");
    uint32_t waiting = 0, busy = 0, over = 0;
    for (uint32_t i = 0; i < 4 * PEEKS; i++)
        peeks[i] = new_peek(node, RUN_PEEK_KEYS_MAX, &is_there[i]);
    atomic_store(&ended, 0);
    assert_true(run_start(r.run));
    enum run_peek_end end = run_peek_ask(r.run, peeks[0]);
    for (int64_t since = 0; end == RUN_PEEK_OVER; end = run_peek_ask(r.run, peeks[0]))
        wait_more(&since); /* the lane begins soon */
    for (uint32_t i = 0; i < 4 * PEEKS; i++) {
        end = i == 0 ? end : run_peek_ask(r.run, peeks[i]);
        waiting += end == RUN_PEEK_WAITS;
        busy += end == RUN_PEEK_BUSY;
        over += end == RUN_PEEK_OVER;
    }
    assert_int_equal(waiting + busy + over, 4 * PEEKS);
    assert_true(busy > 0);
    run_stop(r.run);
    assert_true(run_wait(r.run));
    assert_int_equal(atomic_load(&ended), waiting);
    for (uint32_t i = 0; i < 4 * PEEKS; i++)
        run_peek_free(peeks[i]);
    unmake(&r, notes);
}

static void test_wrong_keys(void **state)
{
    (void)state;
    char notes[SINKS_MAX][NOTE_BYTES] = {0};
    struct job_run r;
    const struct str words[] = {STR("7x"), STR("8")};
    make(&r, 1);
    struct run_peek *peek = run_peek_new(node_of(r.plan, "f/dedup"), pool, is_done, NULL);
    assert_false(run_peek_add(peek, words, 1));
    assert_int_equal(peek->end, RUN_PEEK_WRONG);
    assert_non_null(strstr(peek->why, "imp_id (int)"));
    assert_false(run_peek_add(peek, words, 2));
    assert_true(run_peek_add(peek, words + 1, 1));
    assert_true(run_peek_add(peek, &(struct str){0}, 1)); /* null */
    run_peek_free(peek);
    assert_true(run_start(r.run));
    assert_true(run_wait(r.run));
    unmake(&r, notes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changes_nothing),
        cmocka_unit_test(test_over),
        cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_wrong_keys),
    };
    pool = batch_pool_new();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed == 0)
        batch_pool_free(pool); /* which holds that no row is left */
    return failed;
}

/* Micro-batches behind the end of all sources (operator_kind.wants_more): the same bytes at any number of lanes, with
 * stops and kills between them, and by the order log; with windows before and behind the operators that want them, and
 * one such operator behind another. */
#include "core/buffer.h"
#include "later.h"
#include "run/run.h"
#include "unit/support/patience.h"
#include "unit/support/random.h"
#include "unit/support/temporary.h"

#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>

/* --- Runs --- */

enum { TEXT_BYTES = 2048, SINKS = 5, PARTS = 20, PARTS_BEHIND = 9 };

struct job_run {
    struct arena arena;
    struct diag_list diags;
    struct run *run;
    struct run_stats stats;
};

static const char *const sinks[SINKS] = {"before", "rows", "behind", "late", "again"};

/* A job whose outputs are DIR/before.jsonl and so on. Behind `later` comes a window by event time, whose rows would be
 * late if it were told the end before; behind that, `later` again. */
static const char *job_text(char text[TEXT_BYTES], const char *dir, bool has_checkpoints, unsigned parts)
{
    char job[128] = "";
    if (has_checkpoints)
        snprintf(
            job, sizeof(job),
            "job j { checkpoint: { dir: \"%s/state\", every: 10ms, min_free: 0B, keep: { last: 1000 } } }\n",
            dir);
    snprintf(
        text, TEXT_BYTES,
        "%s"
        "source s = sequence { count: 20000, keys: 97, skew: 0.7, rate: 50, event_time: ts }\n"
        "stream before = s | window by key over tumbling(1m) { n: count(), v: sum(value) }\n"
        "stream rows = before | later %u\n"
        "stream behind = rows | window by n over tumbling(2m) { rows: count(), all: sum(v) }\n"
        "stream again = behind | later %u | window by n over forever { rows: sum(rows), last: last(all) }\n"
        "sink before = file from before { path: \"%s/before.jsonl\" }\n"
        "sink rows = file from rows { path: \"%s/rows.jsonl\" }\n"
        "sink behind = file from behind { path: \"%s/behind.jsonl\" }\n"
        "sink late = file from behind.late { path: \"%s/late.jsonl\" }\n"
        "sink again = file from again { path: \"%s/again.jsonl\" }\n",
        job, parts, parts > 0 ? PARTS_BEHIND : 0, dir, dir, dir, dir, dir);
    return text;
}

static struct job_run *begin(const char *text, const struct run_options *options)
{
    struct job_run *r = calloc(1, sizeof(*r));
    leat_assert(r != NULL);
    diag_list_init(&r->diags, &r->arena);
    struct job_file *file = lang_parse(&r->arena, &r->diags, registry_with_later(), str_from(text));
    struct plan_options plan_options = {.registry = registry_with_later()};
    bool is_good = lang_expand(file, &r->arena, &r->diags, NULL);
    struct plan *plan = is_good ? plan_make(file, &plan_options, &r->arena, &r->diags) : NULL;
    r->run = plan == NULL ? NULL : run_new(plan, options, &r->diags);
    if (r->run == NULL || !run_start(r->run)) {
        diag_print(stderr, &r->diags, &(struct diag_source){"job", str_from(text)}, false);
        leat_assert(false);
    }
    return r;
}

struct outcome {
    bool is_finished, was_finished, has_input_ended;
    uint64_t micro_batches;
};

/* Ends the run, which must be good. */
static struct outcome end(struct job_run *r)
{
    bool is_good = run_wait(r->run);
    if (!is_good)
        diag_print(stderr, &r->diags, NULL, false);
    leat_assert(is_good);
    run_stats(r->run, &r->stats);
    const struct run_stats *stats = &r->stats;
    struct outcome outcome = {stats->is_finished, stats->was_finished, stats->has_input_ended,
                              stats->micro_batches};
    for (uint32_t i = 0; i < stats->nodes_count; i++) {
        leat_assert(counters_balance(&stats->nodes[i].counters));
        leat_assert(stats->nodes[i].counters.late == 0);
        leat_assert(!stats->is_finished || stats->nodes[i].counters.held == 0);
    }
    run_free(r->run);
    arena_free(&r->arena);
    free(r);
    return outcome;
}

static struct run_options on(uint32_t lanes)
{
    return (struct run_options){.lanes = lanes, .until_us = TIME_MAX};
}

static void new_dir(char dir[64], const char *name)
{
    snprintf(dir, 64, "%s", name);
    assert_int_equal(os_mkdirs(dir), 0);
}

static char *read_sink(const char *dir, const char *sink, size_t *bytes)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s.jsonl", dir, sink);
    int64_t size = os_file_bytes(path);
    assert_true(size >= 0);
    char *text = calloc(1, (size_t)size + 1);
    FILE *file = fopen(path, "rb");
    assert_non_null(text);
    assert_non_null(file);
    *bytes = fread(text, 1, (size_t)size, file);
    assert_int_equal(*bytes, size);
    fclose(file);
    return text;
}

/* The sinks from number `first` on. */
static void assert_same_from(const char *dir, const char *expected, uint32_t first)
{
    for (uint32_t i = first; i < SINKS; i++) {
        size_t found_bytes, bytes;
        char *found = read_sink(dir, sinks[i], &found_bytes), *text = read_sink(expected, sinks[i], &bytes);
        bool is_late = strcmp(sinks[i], "late") == 0;
        assert_true(is_late ? bytes == 0 : bytes > 500);
        assert_int_equal(found_bytes, bytes);
        assert_memory_equal(found, text, bytes);
        free(found);
        free(text);
    }
}

static void assert_same(const char *dir, const char *expected)
{
    assert_same_from(dir, expected, 0);
}

static uint64_t expected_micro_batches;

/* The job at one lane, without checkpoints: into ./expected, once. */
static void expect(void)
{
    char text[TEXT_BYTES], dir[64];
    if (expected_micro_batches > 0)
        return;
    new_dir(dir, "expected");
    struct run_options options = on(1);
    struct outcome outcome = end(begin(job_text(text, dir, false, PARTS), &options));
    assert_true(outcome.is_finished && outcome.has_input_ended);
    expected_micro_batches = outcome.micro_batches;
    /* 20 full batches of the source; the parts of the first operator; the second one's, of which the first comes in the
     * micro-batch that tells the first one's end; the final one. */
    assert_int_equal(outcome.micro_batches, 20 + PARTS + PARTS_BEHIND + 1);
}

static void test_lanes(void **state)
{
    (void)state;
    static const uint32_t lanes[] = {1, 2, 3, 7};
    char text[TEXT_BYTES], dir[64], name[32];
    expect();
    for (size_t i = 0; i < ARRAY_COUNT(lanes); i++)
        for (int has_checkpoints = 0; has_checkpoints < 2; has_checkpoints++) {
            snprintf(name, sizeof(name), "lanes-%u-%d", lanes[i], has_checkpoints);
            new_dir(dir, name);
            struct run_options options = on(lanes[i]);
            struct outcome outcome = end(begin(job_text(text, dir, has_checkpoints == 1, PARTS), &options));
            assert_true(outcome.is_finished);
            assert_int_equal(outcome.micro_batches, expected_micro_batches);
            assert_same(dir, "expected");
        }
}

/* Steps that emit rows at their end emit them once, also where the end is told many times. */
static void test_ends_once(void **state)
{
    (void)state;
    static const char *const streams[] = {
        "dedup by key within forever keep last emit final",
        "top_n 2 by key order desc(value) emit final",
        "window by key over session(3s) { n: count() }",
        "window by key over forever { n: count(), v: sum(value) }",
        "sort within 10s",
        "join c on key within [-5s, 5s] kind left prefix \"c_\"",
        "attribute c on key within 5s as hit",
        "enrich from c on key within 10s { seen: value }",
    };
    for (unsigned parts = 0; parts <= 5; parts += 5) {
        struct byte_buffer job = {0};
        buffer_printf(&job,
                      "source s = sequence { count: 3000, keys: 97, rate: 50, event_time: ts }\n"
                      "source c = sequence { count: 2000, keys: 97, rate: 40, seed: 4, event_time: ts }\n"
                      "stream l = s | later %u\nsink l = null from l\n",
                      parts);
        char dir[64];
        new_dir(dir, parts == 0 ? "once-0" : "once-5");
        for (size_t i = 0; i < ARRAY_COUNT(streams); i++)
            buffer_printf(&job,
                          "stream t%zu = s | %s\nsink t%zu = file from t%zu { path: \"%s/t%zu.jsonl\" }\n", i,
                          streams[i], i, i, dir, i);
        buffer_append(&job, "", 1);
        struct run_options options = on(2);
        assert_true(end(begin(job.data, &options)).is_finished);
        buffer_free(&job);
    }
    for (size_t i = 0; i < ARRAY_COUNT(streams); i++) {
        char sink[16];
        size_t bytes, found_bytes;
        snprintf(sink, sizeof(sink), "t%zu", i);
        char *expected = read_sink("once-0", sink, &bytes), *found = read_sink("once-5", sink, &found_bytes);
        assert_true(bytes > 1000);
        assert_int_equal(found_bytes, bytes);
        assert_memory_equal(found, expected, bytes);
        free(expected);
        free(found);
    }
}

/* Without work left there is one micro-batch behind the end, as ever. */
static void test_no_work(void **state)
{
    (void)state;
    char text[TEXT_BYTES], dir[64];
    new_dir(dir, "none");
    struct run_options options = on(2);
    struct outcome outcome = end(begin(job_text(text, dir, true, 0), &options));
    assert_true(outcome.is_finished);
    assert_int_equal(outcome.micro_batches, 20 + 1);
}

/* Begins a run that stands behind `parts` more parts, or at its end; its figures by then are in `stats`. */
static struct job_run *begin_parts(const char *text, const struct run_options *options, unsigned parts)
{
    unsigned until = atomic_load(&later_parts_run) + parts;
    atomic_store(&later_parts_max, until);
    struct job_run *r = begin(text, options);
    for (int64_t since = 0; !run_has_ended(r->run) && atomic_load(&later_parts_run) < until;
         wait_more(&since))
        run_stats(r->run, &r->stats);
    run_stats(r->run, &r->stats);
    return r;
}

/* Stops a run of `begin_parts`. */
static struct outcome stop_parts(struct job_run *r)
{
    run_stop(r->run);
    atomic_store(&later_parts_max, UINT_MAX);
    return end(r);
}

/* Stops within the work, again and again: each life ends with a checkpoint, and the micro-batches are those of a run
 * that nobody stops. */
static void test_stops(void **state)
{
    (void)state;
    char text[TEXT_BYTES], dir[64];
    unsigned stopped = 0, lives = 0;
    bool is_finished = false;
    expect();
    new_dir(dir, "stops");
    atomic_store(&later_pause_us, 20000);
    atomic_store(&later_restored_within, 0);
    double share = -1;
    for (; !is_finished && lives < 100; lives++) {
        struct run_options options = on(1 + lives % 3);
        struct job_run *r = begin_parts(job_text(text, dir, true, PARTS), &options, 2);
        const struct run_stats *seen = &r->stats;
        if (!seen->is_finished && !isnan(seen->end_share_done)) {
            assert_true(seen->end_share_done >= 0 && seen->end_share_done <= 1);
            share = MAX(share, seen->end_share_done);
        }
        assert_true(run_has_ended(r->run) || (seen->has_input_ended && seen->watermark == TIME_MAX));
        struct outcome outcome = stop_parts(r);
        is_finished = outcome.is_finished;
        stopped += !is_finished;
    }
    atomic_store(&later_pause_us, 0);
    assert_true(is_finished && stopped >= 3 && atomic_load(&later_restored_within) >= 3 && share > 0);
    struct run_options options = on(2);
    struct outcome outcome = end(begin(job_text(text, dir, true, PARTS), &options));
    assert_true(outcome.was_finished);
    assert_int_equal(outcome.micro_batches, expected_micro_batches);
    assert_same(dir, "expected");
}

enum { LIFE_KILLED = 1, LIFE_FINISHED = 0 };

/* A life in a process of its own: it kills itself when it has published `checkpoints` of them behind the end. Does not
 * return. */
static void live(const char *text, uint32_t lanes, unsigned checkpoints)
{
    struct run_options options = on(lanes);
    atomic_store(&later_pause_us, 20000);
    atomic_store(&later_restored_within, 0);
    struct job_run *r = begin(text, &options);
    bool has_ended = false, was_within = atomic_load(&later_restored_within) > 0;
    uint64_t before = 0;
    int fd = open("restored", O_WRONLY | O_CREAT | O_APPEND,
                  0600); /* a byte for each life that began within the work */
    leat_assert(fd >= 0 && (!was_within || write(fd, "x", 1) == 1));
    while (!run_has_ended(r->run)) {
        run_stats(r->run, &r->stats);
        before = has_ended ? before : r->stats.checkpoints;
        has_ended |= r->stats.has_input_ended;
        if (has_ended && r->stats.checkpoints >= before + checkpoints)
            kill(getpid(), SIGKILL);
        usleep(200);
    }
    struct outcome outcome = end(r);
    _exit(outcome.is_finished ? LIFE_FINISHED : 2);
}

static void test_kills(void **state)
{
    (void)state;
    char text[TEXT_BYTES], dir[64];
    unsigned kills = 0;
    int status = SIGKILL;
    struct test_random random = {.state = 7};
    expect();
    new_dir(dir, "kills");
    job_text(text, dir, true, PARTS);
    for (unsigned life = 0; life < 200 && status == SIGKILL; life++) {
        unsigned checkpoints = 1 + random_below(&random, 2);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            live(text, 1 + life % 3, checkpoints);
        assert_int_equal(waitpid(child, &status, 0), child);
        kills += status == SIGKILL;
    }
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == LIFE_FINISHED);
    assert_true(kills >= 3 && os_file_bytes("restored") >= 3); /* lives that went on within the work */
    assert_same(dir, "expected");
}

/* The order log has these micro-batches, and a replay by it gives the same bytes; with a job that has other work, or
 * none, the replay has what that job does without a log. */
static void test_order(void **state)
{
    (void)state;
    char text[TEXT_BYTES], dir[64], other[64];
    expect();
    new_dir(dir, "order");
    struct run_options options = on(2);
    options.record_order = "order/log/";
    (void)end(begin(job_text(text, dir, true, PARTS), &options));
    assert_same(dir, "expected");
    static const unsigned parts[] = {PARTS, PARTS + 5, 3, 0};
    for (size_t i = 0; i < ARRAY_COUNT(parts); i++)
        for (int has_log = 0; has_log < 2; has_log++) {
            snprintf(other, sizeof(other), "replay-%zu-%d", i, has_log);
            new_dir(dir, other);
            options = on(1 + (uint32_t)i);
            options.order = has_log ? i % 2 == 0 ? "order/log/" : "order/state" : NULL;
            struct outcome outcome = end(begin(job_text(text, dir, true, parts[i]), &options));
            assert_true(outcome.is_finished);
            assert_int_equal(outcome.micro_batches, 20 + parts[i] + (parts[i] > 0 ? PARTS_BEHIND : 0) + 1);
            if (parts[i] == PARTS)
                assert_same(dir, "expected");
            if (has_log) {
                snprintf(other, sizeof(other), "replay-%zu-0", i);
                for (uint32_t k = 0; k < SINKS; k++) {
                    size_t found_bytes, bytes;
                    char *found = read_sink(dir, sinks[k], &found_bytes);
                    char *expected = read_sink(other, sinks[k], &bytes);
                    assert_int_equal(found_bytes, bytes);
                    assert_memory_equal(found, expected, bytes);
                    free(found);
                    free(expected);
                }
            }
        }
}

/* A replay that is stopped behind the end goes on there, as the run that wrote the log would. */
static void test_replay_stops(void **state)
{
    (void)state;
    char text[TEXT_BYTES], dir[64];
    bool is_finished = false;
    expect();
    new_dir(dir, "replay-stops");
    struct run_options options = on(2);
    options.record_order = "replay-stops/log";
    new_dir(dir, "replay-first");
    (void)end(begin(job_text(text, dir, true, PARTS), &options));
    new_dir(dir, "replay-stops");
    atomic_store(&later_pause_us, 20000);
    atomic_store(&later_restored_within, 0);
    for (unsigned lives = 0; !is_finished && lives < 100; lives++) {
        options = on(1 + lives % 2);
        options.order = "replay-stops/log";
        is_finished = stop_parts(begin_parts(job_text(text, dir, true, PARTS), &options, 4)).is_finished;
    }
    atomic_store(&later_pause_us, 0);
    assert_true(is_finished && atomic_load(&later_restored_within) >= 2);
    assert_same(dir, "expected");
}

/* Damages the newest checkpoints of the directory, so that a resume falls back to the one before them. Returns how many
 * there were. */
static size_t damage(const char *state, size_t newest)
{
    char pattern[128];
    glob_t found;
    snprintf(pattern, sizeof(pattern), "%s/gen-*/ckpt-*/state.bin", state);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    size_t count = found.gl_pathc;
    for (size_t i = count - MIN(newest, count - 1); i < count; i++)
        assert_int_equal(truncate(found.gl_pathv[i], os_file_bytes(found.gl_pathv[i]) / 2), 0);
    globfree(&found);
    return count;
}

/* A fallback to an older checkpoint, behind the end or before it, executes the same micro-batches again. */
static void test_falls_back(void **state)
{
    (void)state;
    char text[TEXT_BYTES], dir[64], name[32], path[80];
    expect();
    for (size_t newest = 1; newest <= 100; newest = newest * 3 + 1) {
        snprintf(name, sizeof(name), "back-%zu", newest);
        new_dir(dir, name);
        job_text(text, dir, true, PARTS);
        struct run_options options = on(2);
        atomic_store(&later_pause_us, 20000);
        assert_false(stop_parts(begin_parts(text, &options, 5)).is_finished);
        atomic_store(&later_pause_us, 0);
        snprintf(path, sizeof(path), "%s/state", dir);
        assert_true(damage(path, newest) > 1);
        options = on(3);
        struct outcome outcome = end(begin(text, &options));
        assert_true(outcome.is_finished);
        assert_int_equal(outcome.micro_batches, expected_micro_batches);
        assert_same(dir, "expected");
    }
}

/* A new run that begins with another run's checkpoint within the work goes on there. */
static void test_from(void **state)
{
    (void)state;
    char text[TEXT_BYTES], dir[64];
    expect();
    new_dir(dir, "from-before");
    struct run_options options = on(2);
    atomic_store(&later_pause_us, 20000);
    assert_false(stop_parts(begin_parts(job_text(text, dir, true, PARTS), &options, 5)).is_finished);
    atomic_store(&later_pause_us, 0);
    atomic_store(&later_restored_within, 0);
    new_dir(dir, "from");
    options = on(3);
    options.mode = RUN_FROM;
    options.from = "from-before/state";
    static const char *const drops[] = {"sink/before", "sink/rows", "sink/behind", "sink/late", "sink/again"};
    options.drops = drops; /* their paths are others */
    options.drops_count = ARRAY_COUNT(drops);
    struct outcome outcome = end(begin(job_text(text, dir, true, PARTS), &options));
    assert_true(outcome.is_finished && atomic_load(&later_restored_within) > 0);
    assert_int_equal(outcome.micro_batches, expected_micro_batches);
    size_t bytes, all;
    char *rows = read_sink(dir, "rows", &bytes), *expected = read_sink("expected", "rows", &all);
    assert_true(bytes > 0 && bytes < all); /* the rows behind the checkpoint alone */
    assert_memory_equal(rows, expected + all - bytes, bytes);
    free(rows);
    free(expected);
    assert_same_from(dir, "expected", 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lanes),        cmocka_unit_test(test_no_work),
        cmocka_unit_test(test_ends_once),    cmocka_unit_test(test_stops),
        cmocka_unit_test(test_kills),        cmocka_unit_test(test_order),
        cmocka_unit_test(test_replay_stops), cmocka_unit_test(test_falls_back),
        cmocka_unit_test(test_from),
    };
    void *place = NULL;
    if (temporary_enter(&place) != 0)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return temporary_leave(&place) != 0 || failed;
}

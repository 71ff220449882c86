/* Checkpoints of several workers: they change no row and no entry of the order log; what becomes the head has a part of each; and a job
 * that is killed goes on from the head, at any number of workers, as if it had not been. */
#include "arrivals.h"
#include "later.h"
#include "workers.h"

#include "core/mem.h"
#include "core/order_log.h"
#include "core/os.h"
#include "run/head.h"

#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

/* Partitions of different speeds; rows meet in windows, in a union; a learner stands on one worker. */
#define STREAMS                                                                                              \
    "source a = sequence { count: 12000, keys: 500, rate: 900, event_time: ts }\n"                           \
    "source b = sequence { count: 3600, keys: 300, rate: 300, seed: 4, event_time: ts }\n"                   \
    "source c = sequence { count: 300, keys: 300, rate: 30, seed: 5, event_time: ts }\n"                     \
    "stream u = a | union b, c\n"                                                                            \
    "stream f = u | feature by key over 1h { n: count(), before: last(value) }\n"                            \
    "stream g = f | gate\n"                                                                                  \
    "stream w = f | window by key over tumbling(1s) { n: count(), s: sum(before) }\n"                        \
    "source d = sequence { count: 1500, keys: 100, rate: 115, seed: 6, event_time: ts }\n"                   \
    "learner m = fm from d { label: value > 0.5, sparse: [key], dense: [id]\n"                               \
    "  embedding: { dim: 4, rows_max: 1024 }, metrics_every: 1000 }\n"                                       \
    "sink f = null from g\n"                                                                                 \
    "sink w = null from w\n"                                                                                 \
    "sink p = null from m.predictions\n"                                                                     \
    "sink o = file from w { path: \"out/{n}.jsonl\", roll_rows: 100 }\n"

static const char job_of_streams[] = "job j { checkpoint: { dir: \"alone\", every: 10ms } }\n" STREAMS;

/* The same job, which takes checkpoints when it is asked to, at its end, and when it begins with a head. */
static const char job_of_few[] = "job j { checkpoint: { dir: \"alone\", every: 1h } }\n" STREAMS;

/* Partitions of which one waits for the others, and goes on when they end. */
static const char job_that_waits[] =
    "job j { checkpoint: { dir: \"alone\", every: 10ms } }\n"
    "source a = arrivals { partitions: 2, count: 4000, keys: 300, step: 1ms, delay: 400ms, late: 20ms, batch: 512\n"
    "  event_time: ts, align: 150ms }\n"
    "source b = arrivals { count: 4000, keys: 300, step: 1ms, seed: 2, event_time: ts, align: 100ms }\n"
    "stream u = a | union b\n"
    "stream f = u | feature by key over 1h { n: count(), before: last(id) }\n"
    "stream g = f | gate\n"
    "stream w = f | window by key over tumbling(1s) { n: count(), s: sum(before) }\n"
    "sink f = null from g\n"
    "sink w = null from w\n"
    "sink o = file from w { path: \"out/{n}.jsonl\", roll_rows: 100 }\n";

static const char *job = job_of_streams;

static const struct registry *registry; /* with the operator `gate` */

struct size {
    uint32_t workers, lanes; /* workers 0: alone */
};

static const struct size sizes[] = {{1, 2}, {2, 2}, {3, 1}};

/* Appends the entries of a log, of all its segments, without those that begin and end a segment. */
static void read_entries(const char *path, struct byte_buffer *entries)
{
    char *text = NULL;
    size_t bytes = 0;
    struct order_entry entry;
    assert_int_equal(os_read_file(path, 1 << 30, &text, &bytes), 0);
    for (size_t at = 0; at < bytes;) {
        struct order_reader reader;
        assert_true(order_open(&reader, (struct str){text + at, bytes - at}));
        while (order_next(&reader, &entry))
            if (entry.tag != ORDER_PARTITION && entry.tag != ORDER_EPOCH)
                buffer_printf(entries, "%d %u %llu %lld\n", entry.tag, entry.partition,
                              (unsigned long long)entry.records, (long long)entry.time);
        assert_null(reader.why);
        at += order_segment_bytes(&reader.head);
        order_close(&reader);
    }
    free(text);
    assert_int_equal(unlink(path), 0);
}

static void remove_folder(const char *path)
{
    assert_int_equal(os_remove_tree(path), 0);
}

/* Compares the files in out/ with those in expected/, and removes them; keeps them as those, where there are none. */
static void same_files(void)
{
    glob_t files;
    if (access("expected", F_OK) != 0) {
        assert_int_equal(rename("out", "expected"), 0);
        return;
    }
    assert_int_equal(glob("expected/*", 0, NULL, &files), 0);
    assert_true(files.gl_pathc > 5);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        char path[64], *one, *other;
        size_t one_bytes, other_bytes;
        snprintf(path, sizeof(path), "out/%s", files.gl_pathv[i] + strlen("expected/"));
        assert_int_equal(os_read_file(files.gl_pathv[i], 1 << 30, &one, &one_bytes), 0);
        assert_int_equal(os_read_file(path, 1 << 30, &other, &other_bytes), 0);
        assert_int_equal(one_bytes, other_bytes);
        assert_memory_equal(one, other, one_bytes);
        assert_int_equal(unlink(path), 0);
        free(one);
        free(other);
    }
    globfree(&files);
    assert_int_equal(rmdir("out"), 0); /* there are no others */
}

/* The head has a part of each worker, of the same epoch, as it lies in that worker's directory. */
static void check_head(const struct byte_buffer *manifest, uint32_t workers)
{
    struct run_head head;
    const char *why;
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    assert_true(run_head_decode((struct str){manifest->data, manifest->length}, &head, &why));
    assert_int_equal(head.count, workers);
    for (uint32_t i = 0; i < head.count; i++) {
        char path[CHECKPOINT_PATH_BYTES];
        snprintf(path, sizeof(path), "%.*s", STR_ARGS(head.parts[i].directory));
        struct checkpoint_dir_options options = {.path = path, .read_only = true};
        struct checkpoint_dir *dir = checkpoint_dir_open(&options, &diags);
        uint8_t digest[CHECKPOINT_DIGEST_BYTES];
        uint64_t bytes;
        assert_non_null(dir);
        assert_int_equal(head.parts[i].id.epoch, head.epoch);
        assert_int_equal(head.parts[i].id.generation, 3);
        assert_true(checkpoint_digest(dir, head.parts[i].id, digest, &bytes, &diags));
        assert_memory_equal(digest, head.parts[i].digest, sizeof(digest));
        assert_int_equal(bytes, head.parts[i].bytes);
        checkpoint_dir_close(dir);
    }
    arena_free(&arena);
}

static void test_same(void **state)
{
    struct outcome alone, other;
    struct byte_buffer order = {0};
    uint64_t refuses = *state == NULL ? 0 : 1;
    workers_run(job, 0, 2, &(struct way){.registry = registry, .folder = "alone", .order = "alone.order"},
                &alone);
    read_entries("alone.order", &order);
    same_files();
    remove_folder("alone");
    for (size_t i = refuses; i < ARRAY_COUNT(sizes); i++) {
        struct heads heads = {0};
        struct byte_buffer entries = {0};
        struct way way = {.registry = registry,
                          .folder = "many",
                          .order = "many.order",
                          .incarnation = 3,
                          .refuses = refuses,
                          .waits_for = 2,
                          .heads = &heads};
        workers_run(job, sizes[i].workers, sizes[i].lanes, &way, &other);
        workers_same(&alone, &other);
        same_files();
        read_entries("many.order", &entries);
        assert_int_equal(entries.length, order.length);
        assert_memory_equal(entries.data, order.data, order.length);
        assert_true(heads.published > 1 && heads.refused == refuses);
        check_head(&heads.last, sizes[i].workers);
        remove_folder("many");
        buffer_free(&entries);
        buffer_free(&heads.last);
    }
    buffer_free(&order);
}

static const char log_path[] = "log.order"; /* where it is there, lives replay it */

/* One life of the job: from an argument of the program. */
struct life {
    unsigned workers, lanes, incarnation, dies_at, dies_before;
    unsigned fails_at; /* the write of so many a MANIFEST or GENERATION fails; 0: none */
    unsigned refuses;  /* so many heads, the first ones, are not taken */
};
#define LIFE "%u:%u:%u:%u:%u:%u:%u:%u" /* and whether it is job_that_waits */

static void live(const struct life *life, struct outcome *outcome)
{
    struct heads heads = {0};
    char *manifest = NULL;
    size_t bytes = 0;
    if (life->incarnation > 1)
        assert_int_equal(os_read_file("many/HEAD", 1 << 20, &manifest, &bytes), 0);
    struct way way = {.registry = registry,
                      .folder = life->workers > 0 ? "many" : "alone",
                      .incarnation = life->incarnation,
                      .dies_at = life->dies_at,
                      .dies_before = life->dies_before != 0,
                      .refuses = life->refuses,
                      .waits_for = life->dies_at,
                      .heads = &heads,
                      .replays = access(log_path, F_OK) == 0 ? log_path : NULL,
                      .head = {manifest, bytes}};
    workers_run(job, life->workers, life->lanes, &way, outcome);
    buffer_free(&heads.last);
    free(manifest);
}

/* Lives in a process of its own, which is killed. */
static void live_and_die(const struct life *life)
{
    char text[64];
    snprintf(text, sizeof(text), LIFE, life->workers, life->lanes, life->incarnation, life->dies_at,
             life->dies_before, life->fails_at, life->refuses, job == job_that_waits);
    workers_die(text);
}

/* Whether the head is of that epoch. */
static void is_of_epoch(uint64_t epoch)
{
    struct run_head head;
    const char *why;
    char *manifest;
    size_t bytes;
    assert_int_equal(os_read_file("many/HEAD", 1 << 20, &manifest, &bytes), 0);
    assert_true(run_head_decode((struct str){manifest, bytes}, &head, &why));
    assert_int_equal(head.epoch, epoch);
    free(manifest);
}

/* A job that is killed again and again, and begins each time with the head, at other numbers of workers, gives what it gives alone
 * without a break. Each second life dies before its second head is there: then parts newer than the head lie in the directories. In
 * the first life one worker's part of the first checkpoint fails, where there are several: then no part of it counts, and others have
 * chains of three. */
static void goes_on(const struct size *lives, size_t count, const struct outcome *alone)
{
    struct outcome outcome;
    for (unsigned i = 0; i < count; i++) {
        bool is_last = i + 1 == count;
        struct life life = {lives[i].workers, lives[i].lanes, i + 1, is_last ? 0 : 2, i % 2, 0, 0};
        if (i == 0 && life.workers > 1)
            life.fails_at = life.workers + 2; /* each has written its GENERATION before */
        if (is_last)
            live(&life, &outcome);
        else
            live_and_die(&life);
        if (i == 0)
            is_of_epoch(life.fails_at > 0 ? 3 : 2);
    }
    workers_same(alone, &outcome);
    same_files();
    remove_folder("many");
    remove_folder("alone");
}

static void test_death(void **state)
{
    enum { LIVES = 3 };
    static const struct size lives[][LIVES] = {
        {{2, 1}, {2, 1}, {3, 1}}, {{1, 1}, {3, 1}, {2, 2}}, {{3, 2}, {2, 1}, {0, 2}}};
    struct outcome alone;
    (void)state;
    workers_run(job, 0, 2, &(struct way){.registry = registry, .folder = "alone"}, &alone);
    same_files();
    remove_folder("alone");
    for (size_t i = 0; i < ARRAY_COUNT(lives); i++)
        goes_on(lives[i], ARRAY_COUNT(lives[i]), &alone);
}

/* Records between cuts. */
static void set_cut(const char *records)
{
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    assert_int_equal(setenv("LEAT_TEST_CUT", records, 1), 0);
    assert_true(failpoints_init(&diags));
    arena_free(&arena);
}

/* A replay of a log of many segments, whose micro-batches end elsewhere than they would without it, goes on from heads, too: each
 * has its own place in the log, whatever the leader has chosen by then. */
static void test_replay_goes_on(void **state)
{
    static const struct size lives[] = {{3, 1}, {2, 2}, {3, 2}};
    struct outcome plain, alone;
    struct way way = {.registry = registry, .folder = "alone"};
    (void)state;
    workers_run(job, 0, 2, &way, &plain);
    remove_folder("alone");
    remove_folder("out");
    set_cut("31");
    way.order = log_path;
    workers_run(job, 0, 2, &way, &alone);
    set_cut("25");
    remove_folder("alone");
    remove_folder("out");
    way = (struct way){.registry = registry, .folder = "alone", .replays = log_path};
    workers_run(job, 0, 2, &way, &alone);
    assert_int_not_equal(plain.micro_batches, alone.micro_batches);
    same_files();
    remove_folder("alone");
    goes_on(lives, ARRAY_COUNT(lives), &alone);
    assert_int_equal(unlink(log_path), 0);
}

/* All parts of the third checkpoint are there, and no head, for the first two were refused: no sink has given away what they cover. */
static void test_unpublished(void **state)
{
    glob_t files;
    (void)state;
    live_and_die(&(struct life){3, 1, 1, 1, 1, 0, 2});
    assert_int_equal(glob("many/*/gen-000001/ckpt-*3/MANIFEST", 0, NULL, &files), 0);
    assert_int_equal(files.gl_pathc, 3);
    globfree(&files);
    assert_int_equal(glob("out/*.part", 0, NULL, &files), 0);
    globfree(&files);
    assert_int_equal(glob("out/*.jsonl", 0, NULL, &files), GLOB_NOMATCH);
    remove_folder("many");
    remove_folder("out");
}

static size_t count_files(const char *pattern)
{
    glob_t files;
    size_t count = glob(pattern, 0, NULL, &files) == 0 ? files.gl_pathc : 0;
    if (count > 0)
        globfree(&files);
    return count;
}

/* Six heads are not taken: three checkpoints are in doubt, and the fourth is published until it is the head, so that no more parts lie
 * there. The job goes on from it. */
static void test_in_doubt(void **state)
{
    struct outcome outcome;
    (void)state;
    live_and_die(&(struct life){2, 1, 1, 1, 0, 0, 6});
    is_of_epoch(4);
    assert_int_equal(count_files("many/*/gen-000001/ckpt-*/MANIFEST"), 2 * 4);
    /* It died before it could tell of the head. */
    assert_int_equal(count_files("many/*/gen-000001/doubt-*"), 2 * 4);
    live(&(struct life){3, 1, 2, 0, 0, 0, 0}, &outcome);
    assert_true(outcome.is_finished);
    same_files();
    remove_folder("many");
}

/* Runs the job alone up to a stop, and appends the manifest of its last checkpoint. */
static void stop_alone(struct byte_buffer *manifest)
{
    struct outcome outcome;
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    workers_run(job, 0, 2, &(struct way){.registry = registry, .folder = "alone", .stops_after = 40},
                &outcome);
    assert_false(outcome.is_finished);
    assert_true(run_head_of_run("alone", manifest, &diags));
    arena_free(&arena);
}

static void do_nothing(struct run **runs LEAT_UNUSED, uint32_t count LEAT_UNUSED)
{
}

/* Several workers go on with what a run has done that was alone; their first head comes at once. */
static void test_from_alone(void **state)
{
    struct outcome whole, outcome;
    struct byte_buffer manifest = {0};
    struct heads heads = {0};
    bool is_seldom = job == job_of_streams;
    (void)state;
    workers_run(job, 0, 2, &(struct way){.registry = registry, .folder = "alone"}, &whole);
    same_files();
    remove_folder("alone");
    stop_alone(&manifest);
    struct way way = {.registry = registry,
                      .folder = "many",
                      .incarnation = 2,
                      .heads = &heads,
                      .waits_for = is_seldom,
                      .meanwhile = is_seldom ? do_nothing : NULL,
                      .head = {manifest.data, manifest.length}};
    workers_run(is_seldom ? job_of_few : job, 3, 1, &way, &outcome);
    workers_same(&whole, &outcome);
    same_files();
    buffer_free(&manifest);
    buffer_free(&heads.last);
    remove_folder("alone");
    remove_folder("many");
}

/* Changes a byte in the middle of the file; again: it is as before. */
static void flip(const char *pattern)
{
    glob_t files;
    assert_int_equal(glob(pattern, 0, NULL, &files), 0);
    FILE *file = fopen(files.gl_pathv[files.gl_pathc - 1], "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long at = ftell(file) / 2;
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    int byte = fgetc(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    assert_int_equal(fputc(byte ^ 1, file), byte ^ 1);
    assert_int_equal(fclose(file), 0);
    globfree(&files);
}

/* What does not fit the head is refused, before a row is read: a start with it is an error each time, and none without. */
/* A plain run does not go on from one worker's part, nor is that a head of its own; of one worker it is all there is. */
static void test_part_alone(void **state)
{
    static const char *const texts[] = {"job j { checkpoint: { dir: \"many/0\" } }\n" STREAMS,
                                        "job j { checkpoint: { dir: \"many/1\" } }\n" STREAMS};
    struct heads heads = {0};
    struct way way = {
        .registry = registry, .folder = "many", .incarnation = 1, .stops_after = 40, .heads = &heads};
    struct outcome outcome;
    struct arena arena = {0};
    struct diag_list diags;
    struct byte_buffer manifest = {0};
    (void)state;
    diag_list_init(&diags, &arena);
    for (uint32_t count = 2; count > 0; count--) {
        workers_run(job, count, 1, &way, &outcome);
        enum diag_code expected = count > 1 ? DIAG_FOREIGN_DIRECTORY : DIAG_NONE;
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(workers_refusal(texts[i], 0, &(struct way){.registry = registry}), expected);
            assert_int_equal(run_head_of_run(i == 0 ? "many/0" : "many/1", &manifest, &diags), count == 1);
        }
        remove_folder("many");
        remove_folder("out");
    }
    buffer_free(&heads.last);
    buffer_free(&manifest);
    arena_free(&arena);
}

static void test_refusals(void **state)
{
    static const char other[] = "job j { checkpoint: { dir: \"other\" } }\n"
                                "source a = sequence { count: 10, event_time: ts }\nsink a = null from a\n";
    struct byte_buffer manifest = {0};
    (void)state;
    stop_alone(&manifest);
    struct way way = {
        .registry = registry, .folder = "many", .incarnation = 2, .head = {manifest.data, manifest.length}};
    assert_int_equal(workers_refusal(other, 0, &way), DIAG_OTHER_JOB);
    static const char *const files[] = {"alone/gen-*/ckpt-*/MANIFEST", "alone/gen-*/ckpt-*/state.bin"};
    for (size_t i = 0; i < ARRAY_COUNT(files); i++) {
        flip(files[i]);
        assert_int_equal(workers_refusal(job, 1, &way), DIAG_CHECKPOINT_DAMAGED);
        way.incarnation++;
        flip(files[i]);
    }
    way.head.length--;
    assert_int_equal(workers_refusal(job, 1, &way), DIAG_CHECKPOINT_DAMAGED);
    way.head.length++;
    way.incarnation = 1; /* as the run that was alone */
    assert_int_equal(workers_refusal(job, 1, &way), DIAG_RESUME_OR_FRESH);
    way.incarnation = 9;
    assert_int_equal(workers_refusal(job, 1, &way), DIAG_NONE);
    assert_int_equal(workers_refusal(job, 1, &way),
                     DIAG_RESUME_OR_FRESH); /* the directory has a ninth already */
    way.incarnation = 10;                   /* the refusal has made none */
    assert_int_equal(workers_refusal(job, 1, &way), DIAG_NONE);
    assert_int_equal(rename("alone", "elsewhere"), 0);
    way.incarnation = 11;
    assert_int_equal(workers_refusal(job, 1, &way), DIAG_FOREIGN_DIRECTORY);
    buffer_free(&manifest);
    remove_folder("elsewhere");
    remove_folder("other");
    remove_folder("many");
    remove_folder("out");
}

/* Many short micro-batches, so that several checkpoints come; little memory for state, so that these have databases. */
static void set_knobs(unsigned fails_at)
{
    char failpoint[64];
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    assert_int_equal(setenv("LEAT_TEST_STATE", "4096", 1), 0);
    snprintf(failpoint, sizeof(failpoint), fails_at > 0 ? "ckpt.manifest=error:ENOSPC@%u" : "", fails_at);
    assert_int_equal(setenv("LEAT_FAILPOINTS", failpoint, 1), 0);
    assert_true(failpoints_init(&diags));
    arena_free(&arena);
}

static void set_job(const char *text)
{
    job = text;
    (void)os_remove_tree("expected");
}

static int begin_to_wait(void **state)
{
    (void)state;
    set_job(job_that_waits);
    return 0;
}

static int end_to_wait(void **state)
{
    (void)state;
    set_job(job_of_streams);
    return 0;
}

int main(int argc, char **argv)
{
    struct life life;
    struct outcome outcome;
    unsigned waits;
    registry = registry_with_arrivals(registry_with(&operator_gate));
    if (argc == 2 && sscanf(argv[1], LIFE, &life.workers, &life.lanes, &life.incarnation, &life.dies_at,
                            &life.dies_before, &life.fails_at, &life.refuses, &waits) == 8) {
        job = waits == 0 ? job_of_streams : job_that_waits;
        set_knobs(life.fails_at);
        live(&life, &outcome);
        return 0; /* it should have been killed */
    }
    static char refuses[] = "refuses";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same),
        cmocka_unit_test_prestate(test_same, refuses),
        cmocka_unit_test(test_unpublished),
        cmocka_unit_test(test_in_doubt),
        cmocka_unit_test(test_from_alone),
        cmocka_unit_test(test_part_alone),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_death),
        cmocka_unit_test(test_replay_goes_on),
        cmocka_unit_test_setup_teardown(test_same, begin_to_wait, end_to_wait),
        cmocka_unit_test_setup_teardown(test_from_alone, begin_to_wait, end_to_wait),
        cmocka_unit_test_setup_teardown(test_death, begin_to_wait, end_to_wait)};
    char folder[] = "worker-checkpoints-XXXXXX";
    if (mkdtemp(folder) == NULL || chdir(folder) != 0)
        return 2;
    set_cut("25");
    set_knobs(0);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    set_job(NULL);
    return chdir("..") != 0 || rmdir(folder) != 0 ? 2 : failed;
}

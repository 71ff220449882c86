/* Workers and their directories: parts of no head do not pile up; what a start with a head, or without one, takes and refuses, and what
 * it tells the sinks of rows that are out. */
#include "watched.h"
#include "workers.h"

#include "core/mem.h"
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
/* Keeps all checkpoints: tests begin with the head of a life before the last one. */
static const char job[] =
    "job j { checkpoint: { dir: \"alone\", every: 10ms, keep: { last: 1000 } } }\n" STREAMS;

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

/* A leader that publishes its last manifest again and again gives it up when the job stops, and takes one more checkpoint. */
static void test_stopped(void **state)
{
    struct heads heads = {0};
    struct outcome outcome;
    struct way way = {.registry = registry,
                      .folder = "many",
                      .incarnation = 1,
                      .waits_for = 1,
                      .refuses_below = 5,
                      .stops_at = 5,
                      .heads = &heads};
    (void)state;
    watched = (struct watched){0};
    workers_run(job, 2, 1, &way, &outcome);
    assert_int_equal(heads.published, 1);
    buffer_free(&heads.last);
    remove_folder("many");
}

/* A leader that publishes its last manifest again and again ends when another process has taken over its directory. */
static void test_taken_over(void **state)
{
    struct heads heads = {0};
    struct way way = {.registry = registry,
                      .folder = "many",
                      .incarnation = 1,
                      .waits_for = 1,
                      .refuses = UINT64_MAX,
                      .taken_at = 5,
                      .heads = &heads};
    (void)state;
    watched = (struct watched){0};
    char *error = workers_fail(job, 2, 1, &way);
    assert_non_null(strstr(error, "another process has taken over `many/1`"));
    assert_true(heads.refused >= 5 && heads.refused <= 7);
    free(error);
    remove_folder("many");
}

/* What a worker fails of is told, also where it does not know then whether another one has its part. */
static void test_fails_uncertain(void **state)
{
    struct heads heads = {0};
    struct way way = {
        .registry = registry, .folder = "many", .incarnation = 1, .is_uncertain = true, .heads = &heads};
    (void)state;
    watched = (struct watched){.breaks = true};
    char *error = workers_fail(job, 2, 1, &way);
    assert_non_null(strstr(error, "it is full"));
    watched = (struct watched){0};
    free(error);
    remove_folder("many");
}

/* Runs the job alone up to a stop, and sets the manifest of its last checkpoint. Returns the number of its next micro-batch. */
static uint64_t stop_alone(struct byte_buffer *manifest, uint64_t stops_after)
{
    struct outcome outcome;
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    buffer_clear(manifest);
    workers_run(job, 0, 2, &(struct way){.registry = registry, .folder = "alone", .stops_after = stops_after},
                &outcome);
    assert_false(outcome.is_finished);
    assert_true(run_head_of_run("alone", manifest, &diags));
    arena_free(&arena);
    return outcome.micro_batches;
}

/* Whether the sinks were told that micro-batches before `next` are known to be out. */
static void knows(bool knows_next, uint64_t next)
{
    assert_true(watched.fences == 1 && watched.knows_next == knows_next);
    assert_int_equal(watched.known_next, next);
    watched = (struct watched){0};
}

/* What a start knows to be out comes from the head, not from an order log in its directory, which may be newer, older or missing. */
static void test_known(void **state)
{
    struct byte_buffer manifest = {0}, newer = {0};
    (void)state;
    uint64_t next = stop_alone(&manifest, 40), newer_next = stop_alone(&newer, 400);
    assert_true(next < newer_next);
    struct way way = {
        .registry = registry, .folder = "many", .incarnation = 3, .head = {manifest.data, manifest.length}};
    watched = (struct watched){0};
    assert_int_equal(workers_refusal(job, 2, &way), DIAG_NONE); /* in an empty directory */
    knows(true, next);
    remove_folder("many/0");
    assert_int_equal(symlink("../alone", "many/0"), 0);
    assert_int_equal(workers_refusal(job, 2, &way), DIAG_NONE); /* beside newer parts of an order log */
    knows(true, next);
    assert_int_equal(workers_refusal(job, 0, &way), DIAG_NONE); /* the same, alone */
    knows(true, next);
    assert_int_equal(unlink("many/0"), 0);
    way.head.length = 0;
    assert_int_equal(workers_refusal(job, 2, &way), DIAG_NONE); /* the job begins: nothing is out */
    knows(true, 0);
    way.mode = RUN_FRESH;
    way.incarnation++;
    assert_int_equal(workers_refusal(job, 2, &way), DIAG_NONE); /* what is out may come again */
    knows(false, 0);
    remove_folder("alone");
    next = stop_alone(&manifest, 40);
    watched = (struct watched){0};
    assert_int_equal(workers_refusal(job, 0, &(struct way){.registry = registry}), DIAG_NONE);
    knows(true, next); /* without a head and other workers: from the order log */
    buffer_free(&manifest);
    buffer_free(&newer);
    remove_folder("alone");
    remove_folder("many");
}

/* A life that began with a head, and took no checkpoint, does not begin anew without one; nor do workers whose directories have parts
 * of heads. */
static void test_anew(void **state)
{
    static const char elsewhere[] = "job j { checkpoint: { dir: \"elsewhere\", every: 10ms } }\n" STREAMS;
    struct byte_buffer manifest = {0};
    struct heads heads = {0};
    struct outcome outcome;
    (void)state;
    stop_alone(&manifest, 40);
    struct str head = {manifest.data, manifest.length};
    struct way alone = {.registry = registry, .head = head};
    struct way way = {.registry = registry, .folder = "many", .incarnation = 2, .head = head};
    for (uint32_t workers = 0; workers <= 2; workers += 2) {
        struct way *one = workers == 0 ? &alone : &way;
        assert_int_equal(workers_refusal(elsewhere, workers, one), DIAG_NONE);
        one->head.length = 0;
        one->incarnation++;
        assert_int_equal(workers_refusal(elsewhere, workers, one), DIAG_RESUME_OR_FRESH);
        one->head = head;
        assert_int_equal(workers_refusal(elsewhere, workers, one), DIAG_NONE);
        one->head.length = 0;
        one->incarnation++;
        one->mode = RUN_FRESH;
        assert_int_equal(workers_refusal(elsewhere, workers, one), DIAG_NONE);
        one->mode = RUN_AUTO;
        one->incarnation++;
        assert_int_equal(workers_refusal(elsewhere, workers, one), DIAG_NONE); /* that life had no head */
    }
    remove_folder("many");
    way.incarnation = 1;
    way.heads = &heads;
    workers_run(job, 2, 1, &way, &outcome);
    assert_true(heads.published > 0);
    way.incarnation = 2;
    assert_int_equal(workers_refusal(job, 2, &way), DIAG_RESUME_OR_FRESH);
    way.head = (struct str){heads.last.data, heads.last.length};
    assert_int_equal(workers_refusal(job, 2, &way), DIAG_NONE);
    buffer_free(&heads.last);
    buffer_free(&manifest);
    remove_folder("alone");
    remove_folder("elsewhere");
    remove_folder("many");
}

/* What the mode says fits the head, or there is no start. */
static void test_modes(void **state)
{
    struct byte_buffer manifest = {0};
    (void)state;
    stop_alone(&manifest, 40);
    struct str head = {manifest.data, manifest.length}, none = {NULL, 0};
    const struct {
        uint32_t workers;
        enum run_start_mode mode;
        struct str head;
        enum diag_code expected;
    } starts[] = {{2, RUN_RESUME, none, DIAG_RESUME_OR_FRESH},
                  {2, RUN_FROM, none, DIAG_NO_CHECKPOINT},
                  {2, RUN_FROM, head, DIAG_RESUME_OR_FRESH},
                  {2, RUN_FRESH, head, DIAG_RESUME_OR_FRESH},
                  {0, RUN_FRESH, head, DIAG_RESUME_OR_FRESH},
                  {0, RUN_FROM, head, DIAG_RESUME_OR_FRESH},
                  {2, RUN_RESUME, head, DIAG_NONE},
                  {0, RUN_RESUME, head, DIAG_NONE}};
    for (size_t i = 0; i < ARRAY_COUNT(starts); i++) {
        struct way way = {.registry = registry,
                          .folder = "many",
                          .incarnation = 2,
                          .mode = starts[i].mode,
                          .from = "nowhere",
                          .head = starts[i].head};
        assert_int_equal(workers_refusal(job, starts[i].workers, &way), starts[i].expected);
    }
    buffer_free(&manifest);
    remove_folder("alone");
    remove_folder("many");
}

/* A directory is the one that the head names, whatever the path: then this run's checkpoints go on from the part there. */
static void test_paths(void **state)
{
    struct byte_buffer manifest = {0};
    struct arena arena = {0};
    struct diag_list diags;
    struct checkpoint_list list;
    (void)state;
    diag_list_init(&diags, &arena);
    stop_alone(&manifest, 40);
    static const char again[] = "job j { checkpoint: { dir: \"alone/../alone/\", every: 10ms } }\n" STREAMS;
    struct way way = {.registry = registry, .head = {manifest.data, manifest.length}};
    assert_int_equal(workers_refusal(again, 0, &way), DIAG_NONE);
    struct checkpoint_dir *dir =
        checkpoint_dir_open(&(struct checkpoint_dir_options){.path = "alone", .read_only = true}, &diags);
    assert_non_null(dir);
    assert_int_equal(checkpoint_newest_generation(dir), 2);
    assert_true(checkpoint_walk(dir, &arena, &list, &diags) && list.count > 0);
    assert_int_equal(list.items[0].id.generation, 1);
    checkpoint_dir_close(dir);
    arena_free(&arena);
    buffer_free(&manifest);
    remove_folder("alone");
}

/* Writes the head as a file below heads/, whose path it sets. */
static void write_head(uint32_t incarnation, const struct byte_buffer *manifest, char path[64])
{
    struct arena arena = {0};
    struct diag_list diags;
    struct run_head *head = mem_alloc(sizeof(*head));
    const char *why;
    struct str bytes = {manifest->data, manifest->length};
    diag_list_init(&diags, &arena);
    assert_true(run_head_decode(bytes, head, &why));
    assert_true(run_head_write("heads", incarnation, head->epoch, bytes, &diags));
    snprintf(path, 64, "heads/head-%06u-%012llu", incarnation, (unsigned long long)head->epoch);
    free(head);
    arena_free(&arena);
}

/* A run that is alone begins with the state of several workers, by the file of their head; also when it dies before its first checkpoint
 * and is started again without the file. */
static void test_from(void **state)
{
    struct outcome whole, outcome;
    struct heads heads = {0};
    char path[64];
    (void)state;
    workers_run(job, 0, 2, &(struct way){.registry = registry, .folder = "alone"}, &whole);
    remove_folder("alone");
    struct way many = {
        .registry = registry, .folder = "many", .incarnation = 7, .stops_after = 300, .heads = &heads};
    workers_run(job, 3, 1, &many, &outcome);
    assert_false(outcome.is_finished);
    assert_true(count_files("many/*/gen-000007/ckpt-*/db/*.sst") > 1); /* not all state is in memory */
    write_head(7, &heads.last, path);
    struct way from = {.registry = registry, .mode = RUN_FROM, .from = path};
    assert_int_equal(workers_refusal(job, 0, &from), DIAG_NONE);
    workers_run(job, 0, 2, &(struct way){.registry = registry, .folder = "alone"}, &outcome);
    assert_true(outcome.is_finished);
    assert_string_equal(outcome.notes[0], whole.notes[0]);
    remove_folder("alone");
    static const char changed[] = "job j { checkpoint: { dir: \"alone\" } }\n" STREAMS
                                  "source b = sequence { count: 10, event_time: ts }\nsink b = null from b\n";
    assert_int_equal(workers_refusal(changed, 0, &from), DIAG_NONE);
    remove_folder("alone");
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(workers_refusal(job, 0, &from), DIAG_CHECKPOINT_DAMAGED);
    from.from = "heads/none";
    assert_int_equal(workers_refusal(job, 0, &from), DIAG_NO_CHECKPOINT);
    buffer_free(&heads.last);
    remove_folder("alone");
    remove_folder("heads");
    remove_folder("many");
}

/* Several workers begin with the state of another run, of one that was alone and of several workers: again in a second incarnation,
 * for the first one had no head. Then they go on from their own head. */
static void test_workers_from(void **state)
{
    struct outcome whole, outcome;
    struct heads heads = {0}, others = {0};
    struct byte_buffer manifest = {0};
    char path[64];
    (void)state;
    workers_run(job, 0, 2, &(struct way){.registry = registry, .folder = "alone"}, &whole);
    remove_folder("alone");
    stop_alone(&manifest, 300);
    struct way way = {.registry = registry,
                      .folder = "first",
                      .incarnation = 1,
                      .mode = RUN_FROM,
                      .from = "alone",
                      .heads = &heads};
    assert_int_equal(workers_refusal(job, 2, &way), DIAG_NONE);
    way.incarnation = 2;
    way.stops_after = 600;
    workers_run(job, 2, 2, &way, &outcome);
    assert_false(outcome.is_finished);
    write_head(2, &heads.last, path);
    way = (struct way){.registry = registry,
                       .folder = "second",
                       .incarnation = 1,
                       .mode = RUN_FROM,
                       .from = path,
                       .stops_after = 800,
                       .heads = &others};
    workers_run(job, 3, 1, &way, &outcome);
    assert_false(outcome.is_finished);
    way.stops_after = 0;
    way.incarnation = 2;
    assert_int_equal(workers_refusal(job, 3, &way), DIAG_RESUME_OR_FRESH); /* there is a head */
    way.mode = RUN_AUTO;
    way.head = (struct str){others.last.data, others.last.length};
    workers_run(job, 2, 1, &way, &outcome);
    assert_true(outcome.is_finished);
    assert_string_equal(outcome.notes[0], whole.notes[0]);
    buffer_free(&manifest);
    buffer_free(&heads.last);
    buffer_free(&others.last);
    remove_folder("alone");
    remove_folder("heads");
    remove_folder("first");
    remove_folder("second");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_abandoned),  cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_taken_over), cmocka_unit_test(test_fails_uncertain),
        cmocka_unit_test(test_known),      cmocka_unit_test(test_anew),
        cmocka_unit_test(test_modes),      cmocka_unit_test(test_paths),
        cmocka_unit_test(test_from),       cmocka_unit_test(test_workers_from)};
    char folder[] = "worker-parts-XXXXXX";
    registry = registry_watched(&operator_gate);
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    if (mkdtemp(folder) == NULL || chdir(folder) != 0 || setenv("LEAT_TEST_CUT", "25", 1) != 0 ||
        setenv("LEAT_TEST_STATE", "4096", 1) != 0 || !failpoints_init(&diags))
        return 2;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(&arena);
    return chdir("..") != 0 || rmdir(folder) != 0 ? 2 : failed;
}

/* Key groups that move between the instances of several workers: they change no row and no count, and a job that is killed while they
 * move goes on from the head, at other numbers of workers, with moves and without. */
#include "later.h"
#include "workers.h"

#include "cli/commands.h"
#include "core/mem.h"
#include "core/os.h"
#include "run/lanes/move.h"

#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Tables and queues, rows that wait, and windows of both kinds; a learner, which moves to another database of its worker. */
static const char job[] =
    "job j { checkpoint: { dir: \"alone\", every: 10ms } }\n"
    "source a = sequence { count: 24000, keys: 900, skew: 1.1, rate: 900, event_time: ts }\n"
    "source b = sequence { count: 7200, keys: 500, rate: 300, seed: 4, event_time: ts }\n"
    "stream u = a | union b\n"
    "stream d = u | dedup by key, id within 2s\n"
    "stream f = d | feature by key over 1h { n: count(), before: last(value) }\n"
    "stream g = f | gate\n"
    "stream t = g | attribute b on key within 2s as met\n"
    "stream w = t | window by key over tumbling(3s) { n: count(), s: sum(before) }\n"
    "stream s = g | window by key over session(700ms) { n: count(), last: last(id) }\n"
    "learner m = fm from b { label: value > 0.5, sparse: [key], dense: [id]\n"
    "  embedding: { dim: 4, rows_max: 1024 }, metrics_every: 1000 }\n"
    "sink t = null from t\n"
    "sink w = null from w\n"
    "sink s = null from s\n"
    "stream q = m.predictions | feature by key over 1h { n: count(), before: last(id) }\n" /* at the learner's worker */
    "sink p = null from q\n"
    "sink o = file from s { path: \"out/{n}.jsonl\", roll_rows: 100 }\n";

static const struct registry *registry; /* with the operator `gate` */

/* One life of the job: from an argument of the program. */
struct life {
    unsigned workers, lanes, incarnation, move_seed; /* move_seed: or BY_LOAD, or HOMES */
    unsigned heads;                                  /* it does not end before */
    char failpoints[64];                             /* at which it is killed; "-": none */
};
enum { BY_LOAD = 1000, HOMES /* no group moves; stages with one instance do, from life to life */ };
#define LIFE "%u:%u:%u:%u:%u:%63s"

static void set_knobs(const char *failpoints)
{
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    assert_int_equal(setenv("LEAT_TEST_CUT", "25", 1), 0);
    assert_int_equal(setenv("LEAT_TEST_STATE", "4096", 1), 0);
    assert_int_equal(setenv("LEAT_FAILPOINTS", failpoints[0] == '-' ? "" : failpoints, 1), 0);
    assert_true(failpoints_init(&diags));
    arena_free(&arena);
}

static void live(const struct life *life, struct outcome *outcome)
{
    struct heads heads = {0};
    char *manifest = NULL;
    size_t bytes = 0;
    if (life->incarnation > 1 && access("many/HEAD", F_OK) == 0)
        assert_int_equal(os_read_file("many/HEAD", 1 << 20, &manifest, &bytes), 0);
    struct way way = {.registry = registry,
                      .folder = life->workers > 0 ? "many" : "alone",
                      .incarnation = life->incarnation,
                      .move_seed = life->move_seed >= BY_LOAD ? 0 : life->move_seed,
                      .homes = life->move_seed == HOMES ? life->incarnation : 0,
                      .balances = life->move_seed == BY_LOAD,
                      .waits_for = life->workers > 0 ? life->heads : 0,
                      .heads = &heads,
                      .head = {manifest, bytes}};
    workers_run(job, life->workers, life->lanes, &way, outcome);
    buffer_free(&heads.last);
    free(manifest);
}

/* Lives in a process of its own, which is killed. */
static void live_and_die(const struct life *life)
{
    char text[128];
    snprintf(text, sizeof(text), "%u:%u:%u:%u:%u:%s", life->workers, life->lanes, life->incarnation,
             life->move_seed, life->heads, life->failpoints);
    workers_die(text);
}

static void remove_folder(const char *path)
{
    assert_int_equal(os_remove_tree(path), 0);
}

/* Compares the files in out/ with those in expected/, and removes them; keeps them as those, where there are none. */
static void same_files(void)
{
    glob_t files, others;
    if (access("expected", F_OK) != 0) {
        assert_int_equal(rename("out", "expected"), 0);
        return;
    }
    assert_int_equal(glob("expected/*", 0, NULL, &files) | glob("out/*", 0, NULL, &others), 0);
    assert_true(files.gl_pathc > 5 && files.gl_pathc == others.gl_pathc);
    globfree(&others);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        char path[64], *one, *other;
        size_t one_bytes, other_bytes;
        snprintf(path, sizeof(path), "out/%s", files.gl_pathv[i] + strlen("expected/"));
        assert_int_equal(os_read_file(files.gl_pathv[i], 1 << 30, &one, &one_bytes), 0);
        assert_int_equal(os_read_file(path, 1 << 30, &other, &other_bytes), 0);
        assert_int_equal(one_bytes, other_bytes);
        assert_memory_equal(one, other, one_bytes);
        free(one);
        free(other);
    }
    globfree(&files);
    remove_folder("out");
}

static struct outcome alone; /* what the job gives alone, without moves */

static void test_same(void **state)
{
    static const struct life lives[] = {
        {0, 2, 1, 3, 8, "-"}, {2, 1, 1, 4, 8, "-"}, {3, 2, 1, 6, 5, "-"}, {2, 2, 1, BY_LOAD, 12, "-"}};
    struct outcome outcome;
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(lives); i++) {
        live(&lives[i], &outcome);
        workers_same(&alone, &outcome);
        same_files();
        assert_true(lives[i].workers == 0 ||
                    outcome.moved_groups > (lives[i].move_seed == BY_LOAD ? 10 : 100));
        remove_folder(lives[i].workers == 0 ? "alone" : "many");
    }
}

/* Lives of which the first ones are killed at steps of moves, or behind a part; with other numbers of workers, some of which have no
 * moves; and with the same number: these begin with the placement of the head. Databases are taken over as they are, but for those of
 * workers that are no more, and where stages with one instance have gone to another worker. */
static void test_death(void **state)
{
    static const struct life lives[][3] = {
        {{2, 1, 1, 1, 50, "move.base=kill@40"}, {2, 2, 2, 8, 3, "move.taken=kill@9"}, {3, 1, 3, 0, 1, "-"}},
        {{2, 2, 1, 2, 50, "move.give=kill@9"},
         {3, 1, 2, 0, 3, "ckpt.published=kill@6"},
         {2, 1, 3, 9, 3, "-"}},
        {{2, 2, 1, BY_LOAD, 50, "move.given=kill@6"},
         {2, 2, 2, BY_LOAD, 6, "ckpt.published=kill@6"},
         {2, 2, 3, BY_LOAD, 4, "-"}},
        {{2, 2, 1, 0, 9, "ckpt.published=kill@10"},
         {2, 2, 2, BY_LOAD, 50, "move.taken=kill@6"},
         {0, 2, 3, 0, 0, "-"}},
        {{2, 1, 1, HOMES, 9, "ckpt.published=kill@6"},
         {2, 1, 2, HOMES, 9, "ckpt.published=kill@6"},
         {2, 1, 3, HOMES, 1, "-"}},
        {{3, 2, 1, BY_LOAD, 50, "move.taken=kill@6"},
         {2, 2, 2, 0, 9, "ckpt.published=kill@9"},
         {3, 2, 3, BY_LOAD, 2, "-"}},
    };
    struct outcome outcome;
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(lives); i++) {
        live_and_die(&lives[i][0]);
        live_and_die(&lives[i][1]);
        live(&lives[i][2], &outcome);
        workers_same(&alone, &outcome);
        same_files();
        remove_folder("many");
        (void)os_remove_tree("alone");
    }
}

static void keeps_placement(struct run *run)
{
    const struct placement *before = &run->placement_before, *now = &run->placements[0];
    uint32_t moved = 0;
    assert_int_equal(before->instances, 2);
    for (uint32_t group = 0; group < KEY_GROUPS; group++) {
        moved += now->instance[group] != before->instance[group];
        assert_true(now->instance[group] == before->instance[group] || now->instance[group] == 2);
    }
    assert_true(now->instances == 2 ? moved == 0 : moved <= KEY_GROUPS / 3);
    assert_true(placements_have_moved(now));
}

/* A start with as many instances begins with the placement of the head, one with more moves no groups but to those that are new. */
static void test_placement_is_kept(void **state)
{
    struct heads heads = {0};
    struct outcome outcome;
    struct way way = {.registry = registry,
                      .folder = "many",
                      .incarnation = 1,
                      .move_seed = 5,
                      .waits_for = 4,
                      .heads = &heads};
    (void)state;
    workers_run(job, 2, 1, &way, &outcome);
    way.head = (struct str){heads.last.data, heads.last.length};
    way.waits_for = 0;
    for (way.incarnation = 2; way.incarnation <= 3; way.incarnation++)
        workers_look(job, way.incarnation, 1, &way, keeps_placement);
    buffer_free(&heads.last);
    remove_folder("many");
    remove_folder("out");
}

static void is_at_home(struct run *run)
{
    for (uint32_t stage = 1; stage < run->plan->stages_count; stage++)
        assert_true(run->plan->stages[stage].tag != STAGE_SINGLE ||
                    run->stage_instances[stage] == ((stage + 2) % 3 == peers_self(run)));
}

/* A stage with one instance is at the worker that has it, as all were told. */
static void test_homes(void **state)
{
    (void)state;
    for (uint32_t self = 0; self < 3; self++)
        workers_look(job, 3, self,
                     &(struct way){.registry = registry, .folder = "many", .incarnation = 1, .homes = 2},
                     is_at_home);
    remove_folder("many");
    (void)os_remove_tree("out");
}

static void goes_on(struct run *run)
{
    assert_true(run->stores.taken > 0);
}

/* Stages with one instance have gone to another worker since the head: workers go on with their databases nevertheless. */
static void test_databases_go_on(void **state)
{
    struct heads heads = {0};
    struct outcome outcome;
    struct way way = {.registry = registry,
                      .folder = "many",
                      .incarnation = 1,
                      .homes = 2,
                      .waits_for = 2,
                      .heads = &heads};
    (void)state;
    workers_run(job, 3, 1, &way, &outcome);
    way = (struct way){.registry = registry,
                       .folder = "many",
                       .incarnation = 2,
                       .homes = 1,
                       .head = {heads.last.data, heads.last.length}};
    for (uint32_t self = 0; self < 3; self++)
        workers_look(job, 3, self, &way, goes_on);
    buffer_free(&heads.last);
    remove_folder("many");
    remove_folder("out");
}

/* --- Messages that cannot be --- */

static bool give(struct run *run, enum peer_message tag, const uint64_t *words, size_t count)
{
    struct byte_buffer message = {0};
    peers_begin(&message, tag);
    for (size_t i = 0; i < count; i++)
        words_put(&message, words[i]);
    bool is_taken = run_receive(run, 0, (struct str){message.data, message.length});
    buffer_free(&message);
    return is_taken;
}

enum { PIECE_WORDS = 6 /* stage, instance, what, number, node; and a record without bytes, of group 0 */ };

static void replace_words(struct run *run, const uint64_t *piece)
{
    static const uint64_t wrong[PIECE_WORDS - 1][4] = {{0, UINT64_MAX, PLAN_STAGES_MAX},
                                                       {0, 2, UINT64_MAX, UINT64_MAX},
                                                       {GIVEN_CHANGES, GIVEN_TAGS, UINT64_MAX, 7},
                                                       {0, 2, UINT64_MAX, 3},
                                                       {PLAN_NODES_MAX, UINT64_MAX, 1ULL << 32, 99}};
    uint64_t words[PIECE_WORDS];
    for (size_t at = 0; at < PIECE_WORDS - 1; at++)
        for (size_t i = 0; i < ARRAY_COUNT(wrong[at]); i++) {
            memcpy(words, piece, sizeof(words));
            words[at] = wrong[at][i];
            assert_false(give(run, PEER_PIECE, words, PIECE_WORDS));
        }
    memcpy(words, piece, sizeof(words));
    for (uint32_t stage = 0; stage < run->plan->stages_count; stage++)
        if (run->plan->stages[stage].tag == STAGE_SINGLE) {
            words[0] = stage;
            assert_false(give(run, PEER_PIECE, words, PIECE_WORDS));
        }
    for (size_t count = 0; count < PIECE_WORDS; count++)
        assert_false(give(run, PEER_PIECE, piece, count));
}

/* Worker 1 of two, of which the other leads, and which have one lane each. */
static void say_wrong(struct run *run)
{
    uint32_t stage = 1;
    while (run->plan->stages[stage].tag == STAGE_SINGLE)
        stage++;
    const uint64_t piece[PIECE_WORDS] = {stage, 1, GIVEN_BASE, 1, 0, 0};
    replace_words(run, piece);
    assert_false(give(run, PEER_GIVEN, (const uint64_t[]){stage, GIVEN_BASE, 2}, 3));
    assert_false(give(run, PEER_GIVEN, (const uint64_t[]){stage, GIVEN_BASE, 0}, 3));
    assert_false(give(run, PEER_GIVEN, (const uint64_t[]){stage, GIVEN_CHANGES, 1}, 3));
    assert_false(give(run, PEER_GIVEN, (const uint64_t[]){0, GIVEN_BASE, 1}, 3));
    assert_false(give(run, PEER_ROOM, (const uint64_t[]){1}, 1));  /* nothing was given */
    assert_false(give(run, PEER_TAKEN, (const uint64_t[]){1}, 1)); /* it does not lead */
    for (uint64_t round = 0; round < 4; round++)
        assert_false(give(run, PEER_ROUND, &round, 1)); /* nothing is announced */
    assert_true(give(run, PEER_PIECE, piece, PIECE_WORDS));
    assert_true(give(run, PEER_GIVEN, (const uint64_t[]){stage, GIVEN_BASE, 1}, 3));
    assert_false(give(run, PEER_GIVEN, (const uint64_t[]){stage, GIVEN_BASE, 1}, 3));
    assert_false(give(run, PEER_PIECE, piece, PIECE_WORDS)); /* all were given */
    /* The piece is read when its round has begun: an operator has no empty records. */
    struct placement *next = &run->placements[1];
    struct stage_instance *taker = lanes_instance(run, stage, 0);
    size_t bytes;
    *next = run->placements[0];
    next->version = 1;
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        placement_move(next, group, 1);
    stage_announce(taker, next);
    assert_true(pieces_take(taker, GIVEN_BASE, 1, &bytes));
    assert_true(run_has_failed(run));
    assert_int_equal(run->diags->items[0].code, DIAG_FILE_DAMAGED);
}

static void test_wrong(void **state)
{
    struct heads heads = {0};
    (void)state;
    workers_look(
        job, 2, 1,
        &(struct way){
            .registry = registry, .folder = "many", .incarnation = 1, .move_seed = 1, .heads = &heads},
        say_wrong);
    remove_folder("many");
    (void)os_remove_tree("out");
}

int main(int argc, char **argv)
{
    struct life life;
    struct outcome outcome;
    registry = registry_with(&operator_gate);
    if (argc == 2 && sscanf(argv[1], LIFE, &life.workers, &life.lanes, &life.incarnation, &life.move_seed,
                            &life.heads, life.failpoints) == 6) {
        set_knobs(life.failpoints);
        live(&life, &outcome);
        return 0; /* it should have been killed */
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same),
                                       cmocka_unit_test(test_wrong),
                                       cmocka_unit_test(test_placement_is_kept),
                                       cmocka_unit_test(test_homes),
                                       cmocka_unit_test(test_databases_go_on),
                                       cmocka_unit_test(test_death)};
    char folder[] = "worker-moves-XXXXXX";
    if (mkdtemp(folder) == NULL || chdir(folder) != 0)
        return 2;
    set_knobs("-");
    live(&(struct life){0, 2, 1, 0, 0, "-"}, &alone);
    same_files();
    remove_folder("alone");
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove_folder("expected");
    return chdir("..") != 0 || rmdir(folder) != 0 ? 2 : failed;
}

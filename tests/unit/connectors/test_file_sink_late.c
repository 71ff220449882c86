/* A process falls asleep between its question whether it was replaced (sink_check) and the step behind that, at each such question in
 * turn; its successor begins meanwhile; then the process wakes up, and takes its step. The files are those of the successor. */
#include "connectors/file/names.h"
#include "unit/connectors/rig.h"
#include "unit/formats/harness.h"
#include "unit/support/temporary.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

extern const struct sink_kind sink_file;

enum { ROWS = 350, CHUNK = 50, QUESTIONS_MAX = 200 };

struct scene {
    char directory[TEMPORARY_PATH_BYTES], options[512];
    struct arena arena;
    struct batch_pool *pool;
    struct batch *batch;
    struct rig_checkpoint newest; /* that is published */
    uint32_t rows;                /* that it covers */
    bool has_newest;
    int questions, sleeps_at; /* of the sleeper */
    uint32_t writes_first;    /* rows that the successor writes before the sleeper wakes up */
    struct rig_sink successor;
    uint32_t written; /* by the successor */
    bool has_slept;
};

static const struct rig_life successors = {.life = 3, .replaces_parts = true};

static void write_rows(struct rig_sink *rig, struct scene *scene, uint32_t first, uint32_t count)
{
    uint16_t sel[ROWS];
    struct batch *view = batch_derive(scene->batch, scene->batch->schema);
    for (uint32_t i = 0; i < count; i++)
        sel[i] = (uint16_t)(first + i);
    view->sel = sel;
    view->selected = count;
    (void)rig->kind->write(&rig->context, view); /* a process that was replaced may fail */
    batch_release(view);
}

static bool open_life(struct rig_sink *rig, struct scene *scene, const struct rig_life *life)
{
    rig_life = life;
    bool is_open = rig_sink_open(rig, &sink_file, scene->options, scene->batch->schema, true,
                                 scene->has_newest ? &scene->newest : NULL);
    rig_life = NULL;
    return is_open;
}

/* The sleeper's sink_check. */
static int falls_asleep(void *engine)
{
    struct scene *scene = engine;
    if (scene->has_slept)
        return ESTALE;
    if (++scene->questions != scene->sleeps_at)
        return 0;
    scene->has_slept = true;
    assert_true(open_life(&scene->successor, scene, &successors));
    uint32_t first = scene->has_newest ? scene->rows : 0;
    scene->written = MAX(MIN(scene->writes_first, ROWS), first);
    write_rows(&scene->successor, scene, first, scene->written - first);
    return 0;
}

/* An earlier life, killed before it had a checkpoint. */
static void live_before(struct scene *scene)
{
    static const struct rig_life life = {.life = 1};
    struct rig_sink rig;
    assert_true(open_life(&rig, scene, &life));
    write_rows(&rig, scene, 0, 3 * CHUNK);
    rig_sink_close(&rig);
}

static void live_asleep(struct scene *scene)
{
    const struct rig_life life = {.life = 2, .replaces_parts = true, .check = falls_asleep, .engine = scene};
    static struct rig_checkpoint taken;
    struct rig_sink rig;
    bool is_good = open_life(&rig, scene, &life);
    for (uint32_t row = 0; row < ROWS && is_good && !scene->has_slept; row += CHUNK) {
        write_rows(&rig, scene, row, CHUNK);
        if (row % (3 * CHUNK) != 0 || scene->has_slept)
            continue;
        assert_true(rig_sink_snapshot_on(&rig, row / CHUNK + 1, NULL, true, &taken));
        rig_checkpoint_free(&scene->newest);
        scene->newest = taken;
        taken = (struct rig_checkpoint){0};
        scene->rows = row + CHUNK;
        scene->has_newest = true;
        (void)rig.kind->published(&rig.context, row / CHUNK + 1);
    }
    rig_sink_close(&rig);
}

static void end_successor(struct scene *scene)
{
    struct rig_sink *rig = &scene->successor;
    static struct rig_checkpoint last;
    write_rows(rig, scene, scene->written, ROWS - scene->written);
    if (!rig->kind->finish(&rig->context) || !rig_sink_snapshot(rig, 100, &last) ||
        !rig->kind->published(&rig->context, 100))
        fail_msg("asleep at question %d, %u rows written: %s", scene->sleeps_at, scene->written,
                 rig->context.error);
    rig_sink_close(rig);
    rig_checkpoint_free(&last);
}

/* All rows, in order, in files of 70 rows under their final names, and nothing else. */
static void check_files(const struct scene *scene)
{
    struct byte_buffer names = {0};
    int64_t next = 0;
    for (int number = 0; next < ROWS; number++) {
        char path[1024], line[64];
        size_t bytes;
        snprintf(path, sizeof(path), "%s/o-%06d.jsonl", scene->directory, number);
        char *data = rig_read_file(path, &bytes), *at = data;
        if (data == NULL)
            fail_msg("asleep at question %d: %s is missing", scene->sleeps_at, path);
        for (int i = 0; i < 70 && next < ROWS; i++, next++) {
            int length = snprintf(line, sizeof(line), "{\"id\":%lld}\n", (long long)next);
            if (strncmp(at, line, (size_t)length) != 0)
                fail_msg("asleep at question %d: expected %s in %s, found %.20s", scene->sleeps_at, line,
                         path, at);
            at += length;
        }
        assert_int_equal(*at, 0);
        free(data);
        buffer_printf(&names, "%so-%06d.jsonl", number == 0 ? "" : " ", number);
    }
    char *found = rig_list(scene->directory);
    buffer_append(&names, "", 1);
    assert_string_equal(found, names.data);
    free(found);
    buffer_free(&names);
}

/* Returns whether the sleeper asked so often. */
static bool sleep_at(int question, uint32_t writes_first, bool has_before)
{
    struct scene scene = {.sleeps_at = question, .writes_first = writes_first, .pool = batch_pool_new()};
    temporary_make(scene.directory);
    snprintf(scene.options, sizeof(scene.options), "{ path: \"%s/o.jsonl\", roll_rows: 70 }",
             scene.directory);
    scene.batch = batch_new(scene.pool, harness_schema(&scene.arena, "id int"), ROWS);
    for (uint32_t i = 0; i < ROWS; i++)
        scene.batch->columns[0].ints[i] = scene.batch->event_time[i] = i;
    if (has_before)
        live_before(&scene);
    live_asleep(&scene);
    if (scene.has_slept) {
        end_successor(&scene);
        check_files(&scene);
    }
    rig_checkpoint_free(&scene.newest);
    batch_release(scene.batch);
    batch_pool_free(scene.pool);
    arena_free(&scene.arena);
    temporary_remove(scene.directory);
    return scene.has_slept;
}

static void test_late_steps(void **state)
{
    (void)state;
    static const uint32_t writes[] = {0, 1, 120, ROWS};
    for (size_t i = 0; i < ARRAY_COUNT(writes); i++)
        for (int has_before = 0; has_before < 2; has_before++) {
            int question = 1;
            while (sleep_at(question, writes[i], has_before) && question < QUESTIONS_MAX)
                question++;
            assert_in_range(question, 10, QUESTIONS_MAX - 1); /* the sweep has seen them all */
        }
}

int main(void)
{
    if (access("/dev/shm", W_OK) == 0) /* for each file is synced, thousands of times */
        setenv("TMPDIR", "/dev/shm", 1);
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_late_steps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

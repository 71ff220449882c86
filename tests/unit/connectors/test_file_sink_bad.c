/* The file sink in trouble: names taken, full disks, damaged outputs, impossible options. */
#include "connectors/file/names.h"
#include "core/os.h"
#include "unit/connectors/rig.h"
#include "unit/formats/harness.h"
#include "unit/support/temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

extern const struct sink_kind sink_file, sink_null;

struct fixture {
    char directory[TEMPORARY_PATH_BYTES];
    struct arena arena;
    struct batch_pool *pool;
    struct batch *batch; /* 1,000 rows, ids from 0 */
    char path[512], options[1024];
};

static void begin(struct fixture *fixture, const char *name, const char *more)
{
    memset(fixture, 0, sizeof(*fixture));
    fixture->pool = batch_pool_new();
    temporary_make(fixture->directory);
    fixture->batch = batch_new(fixture->pool, harness_schema(&fixture->arena, "id int"), 1000);
    for (uint32_t i = 0; i < 1000; i++)
        fixture->batch->columns[0].ints[i] = fixture->batch->event_time[i] = i;
    snprintf(fixture->path, sizeof(fixture->path), "%s/%s", fixture->directory, name);
    snprintf(fixture->options, sizeof(fixture->options), "{ path: \"%s\"%s }", fixture->path, more);
}

static void end(struct fixture *fixture)
{
    batch_release(fixture->batch);
    batch_pool_free(fixture->pool);
    arena_free(&fixture->arena);
    temporary_remove(fixture->directory);
}

static bool open_sink(struct rig_sink *rig, struct fixture *fixture)
{
    return rig_sink_open(rig, &sink_file, fixture->options, fixture->batch->schema, true, NULL);
}

static void test_name_taken(void **state)
{
    (void)state;
    static const char *const taken[] = {"o.jsonl", "o.jsonl.part"};
    struct fixture fixture;
    struct rig_sink rig;
    for (size_t i = 0; i < ARRAY_COUNT(taken); i++) {
        begin(&fixture, "o.jsonl", "");
        char *path = arena_printf(&fixture.arena, "%s/%s", fixture.directory, taken[i]);
        rig_write_file(path, "precious", 8);
        assert_false(open_sink(&rig, &fixture));
        assert_string_equal(rig_error(&rig.diags), "E0606");
        assert_non_null(strstr(rig.diags.items[0].message, path));
        assert_non_null(strstr(rig.diags.items[0].hint, "overwrite: true"));
        rig_sink_close(&rig);
        size_t bytes;
        char *data = rig_read_file(path, &bytes);
        assert_string_equal(data, "precious");
        free(data);
        snprintf(fixture.options, sizeof(fixture.options), "{ path: \"%s\", overwrite: true }", fixture.path);
        assert_true(open_sink(&rig, &fixture));
        assert_true(rig.kind->finish(&rig.context));
        rig_sink_close(&rig);
        data = rig_list(fixture.directory);
        assert_string_equal(data, "o.jsonl");
        free(data);
        end(&fixture);
    }
    /* Rolled files: an existing file of any number is a conflict. */
    begin(&fixture, "o.jsonl", ", roll_rows: 10");
    rig_write_file(arena_printf(&fixture.arena, "%s/o-000007.jsonl", fixture.directory), "x", 1);
    assert_false(open_sink(&rig, &fixture));
    assert_string_equal(rig_error(&rig.diags), "E0606");
    rig_sink_close(&rig);
    end(&fixture);
    /* A directory as path, with the shortest name: "/". */
    begin(&fixture, "o.jsonl", "");
    snprintf(fixture.options, sizeof(fixture.options), "{ path: \"/\" }");
    assert_false(open_sink(&rig, &fixture));
    assert_string_equal(rig_error(&rig.diags), "E0404");
    rig_sink_close(&rig);
    end(&fixture);
    /* Two sinks with the same path. */
    begin(&fixture, "o.jsonl", "");
    struct rig_sink second;
    assert_true(open_sink(&rig, &fixture));
    assert_false(open_sink(&second, &fixture));
    assert_string_equal(rig_error(&second.diags), "E0606");
    rig_sink_close(&second);
    rig_sink_close(&rig);
    end(&fixture);
}

/* A sink that is opened and closed, because its run could not begin, leaves no file in the way of
 * the next run. */
static void test_not_begun(void **state)
{
    (void)state;
    struct fixture fixture;
    struct rig_sink rig;
    struct rig_checkpoint checkpoint = {0};
    begin(&fixture, "o.jsonl", "");
    for (unsigned times = 0; times < 2; times++) {
        assert_true(open_sink(&rig, &fixture));
        rig_sink_close(&rig);
        char *list = rig_list(fixture.directory);
        assert_string_equal(list, "");
        free(list);
    }
    assert_true(open_sink(&rig, &fixture)); /* the file stays if a checkpoint names it */
    assert_true(rig_sink_snapshot(&rig, 1, &checkpoint));
    rig_sink_close(&rig);
    char *list = rig_list(fixture.directory);
    assert_string_equal(list, "o.jsonl.part");
    free(list);
    rig_checkpoint_free(&checkpoint);
    end(&fixture);
}

static void test_cannot_create(void **state)
{
    (void)state;
    struct fixture fixture;
    struct rig_sink rig;
    begin(&fixture, "file/o.jsonl", "");
    rig_write_file(arena_printf(&fixture.arena, "%s/file", fixture.directory), "x", 1);
    assert_false(open_sink(&rig, &fixture));
    assert_string_equal(rig_error(&rig.diags), "E0605");
    assert_non_null(strstr(rig.diags.items[0].message, "file/o.jsonl"));
    rig_sink_close(&rig);
    end(&fixture);
}

/* Writes until the disk (1 MiB, less ballast_kib) is full, makes room, goes on with the same batch; every id
 * must be in the files once. */
static void fill_disk(const char *name, const char *more, uint32_t ballast_kib)
{
    struct fixture fixture;
    struct rig_sink rig;
    char inside[64];
    snprintf(inside, sizeof(inside), "disk/%s", name);
    begin(&fixture, inside, more);
    char *disk = arena_printf(&fixture.arena, "%s/disk", fixture.directory);
    assert_int_equal(mkdir(disk, 0700), 0);
    if (mount("none", disk, "tmpfs", 0, "size=1m") != 0) {
        print_message("skipped: no tmpfs can be mounted here (%s)\n", strerror(errno));
        end(&fixture);
        skip();
    }
    char *ballast = arena_printf(&fixture.arena, "%s/ballast", disk);
    char *zeros = calloc(1, ballast_kib << 10);
    rig_write_file(ballast, zeros, ballast_kib << 10);
    free(zeros);
    assert_true(open_sink(&rig, &fixture));
    uint32_t batches = 0;
    while (rig.kind->write(&rig.context, fixture.batch))
        assert_true(++batches < 1000);
    assert_non_null(strstr(rig.context.error, "the disk is full"));
    assert_non_null(strstr(rig.context.error, disk));
    assert_non_null(strstr(rig.context.error, "free some space"));
    assert_int_equal(unlink(ballast), 0);
    for (uint32_t i = 0; i < 3; i++)
        assert_true(rig.kind->write(&rig.context, fixture.batch));
    assert_true(rig.kind->finish(&rig.context));
    rig_sink_close(&rig);
    uint32_t id = 0;
    char *names = rig_list(disk);
    for (char *rest = names, *file; (file = strsep(&rest, " ")) != NULL;) {
        size_t bytes;
        char *data = rig_read_file(arena_printf(&fixture.arena, "%s/%s", disk, file), &bytes);
        for (const char *at = data; at < data + bytes; id++) {
            char line[32];
            snprintf(line, sizeof(line), "{\"id\":%u}\n", id % 1000);
            assert_memory_equal(at, line, strlen(line));
            at += strlen(line);
        }
        free(data);
    }
    assert_int_equal(id, (batches + 3) * 1000);
    free(names);
    assert_int_equal(umount(disk), 0);
    end(&fixture);
}

/* On a full disk the message says what to do; once there is room, the same batch goes on where it stopped. */
static void test_full_disk(void **state)
{
    (void)state;
    fill_disk("o.jsonl", "", 600);
    /* With 1,300 rows a file, writing stops in the middle of a batch. */
    fill_disk("o.jsonl", ", roll_rows: 1300", 900);
}

/* After a failed write the unfinished file holds whole rows only. */
static void test_readable_prefix(void **state)
{
    (void)state;
    struct fixture fixture;
    struct rig_sink rig;
    struct arena arena = {0};
    struct diag_list diags;
    begin(&fixture, "o.jsonl", "");
    diag_list_init(&diags, &arena);
    setenv("LEAT_FAILPOINTS", "sink.write=error:ENOSPC@3", 1);
    assert_true(failpoints_init(&diags));
    assert_true(open_sink(&rig, &fixture));
    uint32_t batches = 0;
    while (rig.kind->write(&rig.context, fixture.batch))
        assert_true(++batches < 1000);
    assert_non_null(strstr(rig.context.error, "the disk is full"));
    size_t bytes;
    char *data = rig_read_file(arena_printf(&fixture.arena, "%s.part", fixture.path), &bytes);
    assert_true(bytes > 100 << 10 && data[bytes - 1] == '\n');
    free(data);
    rig_sink_close(&rig);
    end(&fixture);
    arena_free(&arena);
}

/* A file gets its final name once a published checkpoint covers it: not before, and not by an
 * older checkpoint. */
static void test_names_follow_checkpoints(void **state)
{
    (void)state;
    static struct rig_checkpoint checkpoint;
    struct fixture fixture;
    struct rig_sink rig;
    static const char *const expected[] = {
        "o-000000.jsonl.part o-000001.jsonl.part",
        "o-000000.jsonl.part o-000001.jsonl.part o-000002.jsonl.part o-000003.jsonl.part",
        "o-000000.jsonl o-000001.jsonl.part o-000002.jsonl.part o-000003.jsonl.part",
        "o-000000.jsonl o-000001.jsonl o-000002.jsonl o-000003.jsonl.part",
        "o-000000.jsonl o-000001.jsonl o-000002.jsonl o-000003.jsonl",
    };
    begin(&fixture, "o.jsonl", ", roll_rows: 600");
    assert_true(open_sink(&rig, &fixture));
    for (int step = 0; step < 5; step++) {
        if (step < 2)
            assert_true(rig.kind->write(&rig.context, fixture.batch));
        if (step == 0 || step == 2)
            assert_true(rig_sink_snapshot(&rig, step == 0 ? 1 : 2, &checkpoint));
        if (step == 2 || step == 3)
            assert_true(rig.kind->published(&rig.context, step == 2 ? 1 : 2));
        if (step == 4)
            assert_true(rig.kind->finish(&rig.context));
        char *names = rig_list(fixture.directory);
        assert_string_equal(names, expected[step]);
        free(names);
    }
    rig_sink_close(&rig);
    rig_checkpoint_free(&checkpoint);
    end(&fixture);
}

/* An output's name may come to mean an input file after the check. That is found when the file would be
 * removed, replaced or truncated: by a new run, at the end of a file, and by a resumed run. */
static void test_taken_meanwhile(void **state)
{
    (void)state;
    static struct rig_checkpoint checkpoint;
    struct fixture fixture;
    struct rig_sink rig;
    struct arena arena = {0};
    struct claims *claims = claims_new(&arena);
    begin(&fixture, "o.jsonl", ", overwrite: true");
    char *input = arena_printf(&arena, "%s/in.jsonl", fixture.directory),
         *part = arena_printf(&arena, "%s.part", fixture.path);
    char *kept = arena_printf(&arena, "%s.kept", part);
    rig_write_file(input, "precious", 8);
    int fd = open(input, O_RDONLY);
    claims_opened(claims, fd);
    close(fd);
    rig_claims = claims;
    /* A new run. */
    assert_int_equal(link(input, fixture.path), 0);
    assert_false(open_sink(&rig, &fixture));
    assert_string_equal(rig_error(&rig.diags), "E0617");
    rig_sink_close(&rig);
    assert_int_equal(unlink(fixture.path), 0);
    /* The end of a file. */
    assert_true(open_sink(&rig, &fixture));
    assert_true(rig.kind->write(&rig.context, fixture.batch));
    assert_true(rig_sink_snapshot(&rig, 1, &checkpoint));
    assert_int_equal(link(input, fixture.path), 0);
    assert_false(rig.kind->finish(&rig.context));
    assert_int_equal(rig.context.error_code, DIAG_OUTPUT_DESTROYS);
    rig_sink_close(&rig);
    /* A resume: under the final name, and under the unfinished one. */
    for (int i = 0; i < 2; i++) {
        assert_false(
            rig_sink_open(&rig, &sink_file, fixture.options, fixture.batch->schema, true, &checkpoint));
        assert_string_equal(rig_error(&rig.diags), "E0617");
        rig_sink_close(&rig);
        assert_int_equal(unlink(i == 0 ? fixture.path : part), 0);
        assert_int_equal(i == 0 ? rename(part, kept) : rename(kept, part), 0);
        if (i == 0)
            assert_int_equal(link(input, part), 0);
    }
    assert_true(rig_sink_open(&rig, &sink_file, fixture.options, fixture.batch->schema, true, &checkpoint));
    assert_true(rig.kind->finish(&rig.context));
    rig_sink_close(&rig);
    size_t bytes;
    char *data = rig_read_file(input, &bytes);
    assert_string_equal(data, "precious");
    free(data);
    rig_claims = NULL;
    rig_checkpoint_free(&checkpoint);
    arena_free(&arena);
    end(&fixture);
}

static bool count_one(void *argument, const char *path)
{
    (void)path;
    ++*(int *)argument;
    return true;
}

/* names_walk finds the copies that runs of any life made (names_copy), by the pattern and by the path, and no
 * file whose name only resembles theirs. */
static void test_copies(void **state)
{
    (void)state;
    static const struct {
        unsigned which;
        int count;
    } cases[] = {{NAMES_COPY, 3}, {NAMES_PART | NAMES_FINAL, 0}};
    char directory[TEMPORARY_PATH_BYTES], pattern[512], other[512];
    temporary_make(directory);
    snprintf(pattern, sizeof(pattern), "%s/copies-{n}.jsonl", directory);
    char *path = names_expand(pattern, 3, 0);
    static const uint32_t lives[] = {1, 40000, UINT32_MAX};
    for (size_t i = 0; i < ARRAY_COUNT(lives); i++) {
        char *copy = names_copy(path, lives[i]);
        fclose(fopen(copy, "wb"));
        free(copy);
    }
    snprintf(other, sizeof(other), "%s.part.new-12", path);
    fclose(fopen(other, "wb"));
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
        for (int is_pattern = 0; is_pattern < 2; is_pattern++) {
            int count = 0;
            assert_true(names_walk(is_pattern ? pattern : path, cases[i].which, count_one, &count));
            assert_int_equal(count, cases[i].count);
        }
    free(path);
    temporary_remove(directory);
}

/* A resume is refused if a file that the checkpoint names is shorter than there or missing. */
static void test_damaged_output(void **state)
{
    (void)state;
    static const char *const damages[] = {"shorter", "gone", "pending gone"};
    for (size_t i = 0; i < ARRAY_COUNT(damages); i++) {
        static struct rig_checkpoint checkpoint;
        struct fixture fixture;
        struct rig_sink rig;
        begin(&fixture, "o.jsonl", i == 2 ? ", roll_rows: 700" : "");
        assert_true(open_sink(&rig, &fixture));
        assert_true(rig.kind->write(&rig.context, fixture.batch));
        assert_true(rig_sink_snapshot(&rig, 1, &checkpoint));
        rig_sink_close(&rig);
        char *part = arena_printf(&fixture.arena, "%s.part", fixture.path);
        if (i == 0)
            assert_int_equal(truncate(part, 100), 0);
        if (i == 1)
            assert_int_equal(unlink(part), 0);
        if (i == 2)
            assert_int_equal(
                unlink(arena_printf(&fixture.arena, "%s/o-000000.jsonl.part", fixture.directory)), 0);
        assert_false(
            rig_sink_open(&rig, &sink_file, fixture.options, fixture.batch->schema, true, &checkpoint));
        assert_string_equal(rig_error(&rig.diags), "E0605");
        assert_non_null(strstr(rig.diags.items[0].message, "does not match the checkpoint"));
        assert_non_null(rig.diags.items[0].hint);
        rig_sink_close(&rig);
        rig_checkpoint_free(&checkpoint);
        end(&fixture);
    }
}

/* A checkpoint's records cut at each length: the sink opens, or refuses with a diagnostic;
 * more than 50 are refused. */
static void test_damaged_records(void **state)
{
    (void)state;
    static struct rig_checkpoint checkpoint;
    struct fixture fixture;
    struct rig_sink rig;
    begin(&fixture, "o.batches", "");
    assert_true(open_sink(&rig, &fixture));
    assert_true(rig.kind->write(&rig.context, fixture.batch));
    assert_true(rig_sink_snapshot(&rig, 1, &checkpoint));
    rig_sink_close(&rig);
    size_t refused = 0;
    for (size_t i = 0; i < checkpoint.count; i++)
        for (size_t length = 0; length < MIN(checkpoint.records[i].bytes, (size_t)100); length++) {
            size_t bytes = checkpoint.records[i].bytes;
            checkpoint.records[i].bytes = length;
            bool is_good =
                rig_sink_open(&rig, &sink_file, fixture.options, fixture.batch->schema, true, &checkpoint);
            checkpoint.records[i].bytes = bytes;
            assert_true(is_good || rig.diags.errors > 0);
            refused += !is_good;
            rig_sink_close(&rig);
        }
    assert_true(refused > 50);
    rig_checkpoint_free(&checkpoint);
    end(&fixture);
}

static void test_options(void **state)
{
    (void)state;
    static const struct {
        const char *options, *schema, *code;
    } cases[] = {
        {"{ path: \"\" }", "a int", "E0404"},
        {"{ path: \"x.csv\" }", "a [int]", "E0303"},
        {"{ path: \"x.csv\", delimiter: \"ab\" }", "a int", "E0404"},
        {"{ path: \"x.csv\", compression: brotli }", "a int", "E0405"},
        {"{ path: \"x.csv\", roll_rows: -1 }", "a int", "E0404"},
    };
    struct arena arena = {0};
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct rig_sink rig;
        assert_false(rig_sink_open(&rig, &sink_file, cases[i].options,
                                   harness_schema(&arena, cases[i].schema), false, NULL));
        assert_string_equal(rig_error(&rig.diags), cases[i].code);
        rig_sink_close(&rig);
    }
    arena_free(&arena);
}

/* The null sink resumes its row count and digest from a checkpoint. */
static void test_null(void **state)
{
    (void)state;
    static struct rig_checkpoint checkpoint;
    struct fixture fixture;
    struct rig_sink rig;
    struct byte_buffer whole = {0}, resumed = {0};
    begin(&fixture, "none", "");
    for (int life = 0; life < 2; life++) {
        assert_true(rig_sink_open(&rig, &sink_null, "{ }", fixture.batch->schema, true,
                                  life == 0 ? NULL : &checkpoint));
        assert_true(rig.kind->write(&rig.context, fixture.batch));
        if (life == 0)
            assert_true(rig_sink_snapshot(&rig, 1, &checkpoint));
        if (life == 0)
            assert_true(rig.kind->write(&rig.context, fixture.batch));
        rig.kind->describe(&rig.context, life == 0 ? &whole : &resumed);
        rig_sink_close(&rig);
    }
    buffer_append(&whole, "", 1);
    buffer_append(&resumed, "", 1);
    assert_string_equal(whole.data, resumed.data);
    assert_memory_equal(whole.data, "2000 rows, digest ", 18);
    buffer_free(&whole);
    buffer_free(&resumed);
    rig_checkpoint_free(&checkpoint);
    end(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_name_taken),
        cmocka_unit_test(test_cannot_create),
        cmocka_unit_test(test_not_begun),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_damaged_output),
        cmocka_unit_test(test_damaged_records),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_null),
        cmocka_unit_test(test_names_follow_checkpoints),
        cmocka_unit_test(test_taken_meanwhile),
        cmocka_unit_test(test_readable_prefix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

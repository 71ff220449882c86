/* The file sink writes the same bytes into the same files, however rows are cut into batches and wherever
 * checkpoints and crashes fall. */
#include "formats/formats.h"
#include "unit/connectors/rig.h"
#include "unit/formats/harness.h"
#include "unit/support/random.h"
#include "unit/support/temporary.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

extern const struct sink_kind sink_file;

enum { BATCHES = 24, KEPT = 3 };

static const struct {
    const char *name, *options;
} variants[] = {
    {"out.jsonl", ""},
    {"out.csv", ""},
    {"out.msgpack", ""},
    {"out.batches", ""},
    {"out.jsonl.gz", ""},
    {"out.csv.zst", ", times: ms"},
    {"out.batches.lz4", ""},
    {"out.jsonl", ", roll_rows: 1000"},
    {"out.csv", ", roll_bytes: 100KiB"},
    {"out.jsonl.zst", ", roll_bytes: 300KiB"},
    {"out.batches", ", roll_rows: 2500"},
    {"out.batches.zst", ", roll_bytes: 200KiB"},
    {"out-{time}.jsonl", ", roll_every: 2s"},
    {"sub/{time}/part-{n}.csv.gz", ", roll_every: 3s, roll_rows: 700"},
};

struct stream {
    struct arena arena;
    struct batch_pool *pool;
    struct batch *batches[BATCHES];
    uint32_t rows; /* of all batches */
};

static void make_stream(struct stream *stream)
{
    *stream = (struct stream){.pool = batch_pool_new()};
    const struct schema *schema =
        harness_schema(&stream->arena, "i int, f float, s text, b bool, y bytes, t us");
    for (uint32_t i = 0; i < BATCHES; i++) {
        stream->batches[i] = harness_batch(stream->pool, schema, 200 + i * 37 % 800, i + 1);
        for (uint32_t j = 0; j < stream->batches[i]->rows; j++)
            stream->batches[i]->event_time[j] =
                (int64_t)(stream->rows + j) * 1000 - (int64_t)(j % 7) * 300000;
        stream->rows += stream->batches[i]->rows;
    }
}

static void free_stream(struct stream *stream)
{
    for (uint32_t i = 0; i < BATCHES; i++)
        batch_release(stream->batches[i]);
    batch_pool_free(stream->pool);
    arena_free(&stream->arena);
}

/* Writes rows first .. first + count - 1 of the stream in random batches of 1 to 400; false:
 * a write failed. */
static bool write_rows(struct rig_sink *rig, const struct stream *stream, uint32_t first, uint32_t count,
                       struct test_random *random)
{
    uint32_t begin = 0;
    for (uint32_t i = 0; i < BATCHES; i++) {
        struct batch *batch = stream->batches[i];
        uint32_t end = begin + batch->rows;
        for (uint32_t at = MAX(begin, first); at < MIN(end, first + count);) {
            uint16_t sel[BATCH_ROWS];
            uint32_t rows = 1 + random_below(random, 400);
            rows = MIN(rows, MIN(end, first + count) - at);
            struct batch *view = batch_derive(batch, batch->schema);
            for (uint32_t j = 0; j < rows; j++)
                sel[j] = (uint16_t)(at - begin + j);
            view->sel = sel;
            view->selected = rows;
            bool is_good = rig->kind->write(&rig->context, view);
            batch_release(view);
            if (!is_good)
                return false;
            at += rows;
        }
        begin = end;
    }
    return true;
}

/* --- Directories as text: a line `NAME LENGTH DIGEST` for each file --- */

static void describe(const char *directory, const char *below, struct byte_buffer *out)
{
    char path[1024], inner[512];
    snprintf(path, sizeof(path), "%s/%s", directory, below);
    char *names = rig_list(path);
    for (char *rest = names, *name; (name = strsep(&rest, " ")) != NULL && *name != '\0';) {
        struct stat info;
        snprintf(inner, sizeof(inner), "%s%s%s", below, below[0] == '\0' ? "" : "/", name);
        snprintf(path, sizeof(path), "%s/%s", directory, inner);
        assert_int_equal(stat(path, &info), 0);
        if (S_ISDIR(info.st_mode)) {
            describe(directory, inner, out);
            continue;
        }
        size_t bytes;
        char *data = rig_read_file(path, &bytes);
        uint64_t sum = 1469598103934665603u;
        for (size_t i = 0; i < bytes; i++)
            sum = (sum ^ (unsigned char)data[i]) * 1099511628211u;
        buffer_printf(out, "%s %zu %016llx\n", inner, bytes, (unsigned long long)sum);
        free(data);
    }
    free(names);
}

static char *describe_all(const char *directory)
{
    struct byte_buffer out = {0};
    describe(directory, "", &out);
    buffer_append(&out, "", 1);
    return out.data;
}

/* Fails unless each file under its final name (without .part) is the same in the complete run. */
static void check_final_names(const char *got, const char *complete)
{
    char *copy = strdup(got);
    for (char *rest = copy, *line; (line = strsep(&rest, "\n")) != NULL && *line != '\0';) {
        char *space = strchr(line, ' ');
        if (memcmp(space - 5, ".part", 5) != 0 && strstr(complete, line) == NULL)
            fail_msg("%s\nis no file of\n%s", line, complete);
    }
    free(copy);
}

static void copy_checkpoint(struct rig_checkpoint *to, const struct rig_checkpoint *from)
{
    rig_checkpoint_free(to);
    to->epoch = from->epoch;
    for (size_t i = 0; i < from->count; i++) {
        to->records[i] = (struct rig_record){malloc(from->records[i].bytes + 1), from->records[i].bytes};
        memcpy(to->records[i].data, from->records[i].data, from->records[i].bytes);
        to->count++;
    }
}

struct kept {
    struct rig_checkpoint checkpoint;
    uint32_t rows;
    bool is_there;
};

/* One life of the sink: opens it from a kept checkpoint or anew and writes until a crash or the end. Returns
 * true if the stream was finished, false after a crash. */
static bool live(const char *options, const struct stream *stream, struct kept *kept, uint64_t *epoch,
                 struct test_random *random)
{
    static struct rig_checkpoint taken;
    struct rig_sink rig;
    uint32_t choice = random_below(random, KEPT);
    struct kept *from = kept[choice].is_there ? &kept[choice] : &kept[0];
    uint32_t row = from->is_there ? from->rows : 0;
    if (!rig_sink_open(&rig, &sink_file, options, stream->batches[0]->schema, true,
                       from->is_there ? &from->checkpoint : NULL))
        fail_msg("%s", rig.diags.items[0].message);
    if (from->is_there && from != &kept[0]) {
        /* The run fell back to an older checkpoint: forget the newer ones. */
        copy_checkpoint(&kept[0].checkpoint, &from->checkpoint);
        kept[0].rows = from->rows;
        kept[1].is_there = kept[2].is_there = false;
    }
    while (row < stream->rows) {
        uint32_t rows = 1 + random_below(random, 3000);
        rows = MIN(rows, stream->rows - row);
        assert_true(write_rows(&rig, stream, row, rows, random));
        row += rows;
        if (random_chance(random, 60)) {
            assert_true(rig_sink_snapshot(&rig, ++*epoch, &taken));
            uint32_t rows_taken = row;
            /* More rows come before the checkpoint is published or lost. */
            rows = random_below(random, 500);
            rows = MIN(rows, stream->rows - row);
            assert_true(write_rows(&rig, stream, row, rows, random));
            row += rows;
            if (random_chance(random, 80)) {
                for (int i = KEPT - 1; i > 0; i--) {
                    if (kept[i - 1].is_there)
                        copy_checkpoint(&kept[i].checkpoint, &kept[i - 1].checkpoint);
                    kept[i].rows = kept[i - 1].rows;
                    kept[i].is_there = kept[i - 1].is_there;
                }
                copy_checkpoint(&kept[0].checkpoint, &taken);
                kept[0].rows = rows_taken;
                kept[0].is_there = true;
                if (random_chance(random, 90))
                    assert_true(rig.kind->published(&rig.context, *epoch));
            }
        }
        if (random_chance(random, 25)) {
            rig_sink_close(&rig);
            rig_checkpoint_free(&taken);
            return false;
        }
    }
    bool has_ended = random_chance(random, 70);
    if (has_ended)
        assert_true(rig.kind->finish(&rig.context));
    rig_sink_close(&rig);
    rig_checkpoint_free(&taken);
    /* A crash right after the end, before the last checkpoint. */
    return has_ended && random_chance(random, 70);
}

static void run_variant(const char *name, const char *more, const struct stream *stream)
{
    char directory[TEMPORARY_PATH_BYTES], options[1024];
    struct test_random random = {1};
    struct rig_sink rig;
    temporary_make(directory);
    snprintf(options, sizeof(options), "{ path: \"%s/%s\"%s }", directory, name, more);
    assert_true(rig_sink_open(&rig, &sink_file, options, stream->batches[0]->schema, false, NULL));
    assert_true(write_rows(&rig, stream, 0, stream->rows, &random));
    assert_true(rig.kind->finish(&rig.context));
    rig_sink_close(&rig);
    char *complete = describe_all(directory);
    assert_null(strstr(complete, ".part"));
    temporary_remove(directory);
    for (uint64_t seed = 2; seed < 6; seed++) {
        static struct kept kept[KEPT];
        uint64_t epoch = 0;
        random.state = seed;
        temporary_make(directory);
        snprintf(options, sizeof(options), "{ path: \"%s/%s\"%s, overwrite: true }", directory, name, more);
        while (!live(options, stream, kept, &epoch, &random)) {
            char *now = describe_all(directory);
            check_final_names(now, complete);
            free(now);
        }
        char *got = describe_all(directory);
        assert_string_equal(got, complete);
        free(got);
        for (int i = 0; i < KEPT; i++) {
            rig_checkpoint_free(&kept[i].checkpoint);
            kept[i].is_there = false;
        }
        temporary_remove(directory);
    }
    free(complete);
}

static void test_crashes(void **state)
{
    (void)state;
    struct stream stream;
    make_stream(&stream);
    for (size_t i = 0; i < ARRAY_COUNT(variants); i++)
        run_variant(variants[i].name, variants[i].options, &stream);
    free_stream(&stream);
}

/* The source `file` reads back what the sink `file` wrote. */
static void test_reads_back(void **state)
{
    (void)state;
    extern const struct source_kind source_file;
    static const char *const names[] = {"o.jsonl", "o.csv.gz", "o.msgpack.zst", "o.batches.lz4"};
    struct stream stream;
    make_stream(&stream);
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        char directory[TEMPORARY_PATH_BYTES], options[1024];
        struct test_random random = {1};
        struct rig_sink sink;
        struct rig_source source;
        struct byte_buffer expected = {0};
        temporary_make(directory);
        snprintf(options, sizeof(options), "{ path: \"%s/%s\" }", directory, names[i]);
        assert_true(rig_sink_open(&sink, &sink_file, options, stream.batches[0]->schema, false, NULL));
        assert_true(write_rows(&sink, &stream, 0, stream.rows, &random));
        assert_true(sink.kind->finish(&sink.context));
        rig_sink_close(&sink);
        for (uint32_t j = 0; j < BATCHES; j++)
            harness_json(stream.batches[j], &expected);
        buffer_append(&expected, "", 1);
        assert_true(rig_source_open(&source, &source_file, options,
                                    "i int, f float, s text, b bool, y bytes, t rfc3339"));
        struct rig_reading reading = rig_read(&source, 0);
        char *text = rig_text(&reading);
        assert_string_equal(text, expected.data);
        free(text);
        rig_reading_free(&reading);
        rig_source_close(&source);
        buffer_free(&expected);
        temporary_remove(directory);
    }
    free_stream(&stream);
}

int main(void)
{
    /* The tests call fsync thousands of times: cheap on a file system in memory. */
    if (getenv("TMPDIR") == NULL && access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_crashes), cmocka_unit_test(test_reads_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The file source on bad files: each error has a code, a message that names the file, and a hint; the records
 * before the error are delivered, and none is read twice or invented. */
#include "formats/formats.h"
#include "unit/connectors/rig.h"
#include "unit/formats/harness.h"
#include "unit/support/temporary.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

extern const struct source_kind source_file;

enum { RECORDS = 5000 };

static char directory[TEMPORARY_PATH_BYTES];

/* RECORDS lines {"id":N}; the text is malloc'd. */
static char *lines(size_t *bytes)
{
    struct byte_buffer out = {0};
    for (int i = 0; i < RECORDS; i++)
        buffer_printf(&out, "{\"id\":%d}\n", i);
    *bytes = out.length;
    return out.data;
}

static char *path_of(const char *name)
{
    static char path[512];
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    return path;
}

static bool open_source(struct rig_source *rig, const char *name)
{
    char options[1024];
    snprintf(options, sizeof(options), "{ path: \"%s/%s\" }", directory, name);
    return rig_source_open(rig, &source_file, options, "id int");
}

/* Reads until the status `expected`; returns the number of records, which must be the file's
 * first, in order. */
static size_t read_ids(struct rig_source *rig, enum read_status expected)
{
    struct rig_reading reading = rig_read(rig, 0);
    char *text = rig_text(&reading), line[64];
    const char *at = text;
    size_t count = 0;
    while (*at != '\0') {
        snprintf(line, sizeof(line), "{\"id\":%zu}\n", count);
        assert_memory_equal(at, line, strlen(line));
        at += strlen(line);
        count++;
    }
    assert_int_equal(reading.status, expected);
    free(text);
    rig_reading_free(&reading);
    return count;
}

static void expect(struct rig_source *rig, const char *code, const char *words)
{
    const char *message = rig_message(rig);
    assert_string_equal(rig_error(&rig->diags), code);
    if (strstr(message, words) == NULL || strstr(message, directory) == NULL ||
        rig->diags.items[0].hint == NULL)
        fail_msg("%s", message);
}

static void test_truncated_and_damaged(void **state)
{
    (void)state;
    static const char *const kinds[] = {".gz", ".zst", ".lz4"};
    size_t bytes;
    char *text = lines(&bytes);
    for (size_t k = 0; k < ARRAY_COUNT(kinds); k++) {
        char name[32];
        size_t packed;
        char *data = rig_compress(kinds[k], text, bytes, &packed);
        snprintf(name, sizeof(name), "a.jsonl%s", kinds[k]);
        struct rig_source rig;
        for (size_t cut = 1; cut < packed; cut += packed / 40 + 1) {
            rig_write_file(path_of(name), data, packed - cut);
            if (open_source(&rig, name)) {
                assert_in_range(read_ids(&rig, READ_ERROR), 0, RECORDS);
                assert_int_equal(read_ids(&rig, READ_ERROR), 0);
            }
            expect(&rig, "E0603", packed - cut < 5 ? "is " : "is truncated");
            rig_source_close(&rig);
        }
        /* Garbage after the end of the compressed data is damage. */
        rig_write_file(path_of(name), data, packed);
        int fd = open(path_of(name), O_WRONLY | O_APPEND);
        assert_int_equal(write(fd, "garbage!", 8), 8);
        assert_true(open_source(&rig, name));
        assert_int_equal(read_ids(&rig, READ_ERROR), RECORDS);
        expect(&rig, "E0603", "is damaged");
        rig_source_close(&rig);
        /* A flipped bit is found as damage, unless it is in a part of a header that changes nothing. */
        for (size_t at = 0; at < packed; at += packed / 30 + 1) {
            data[at] = (char)(data[at] ^ 0x10);
            rig_write_file(path_of(name), data, packed);
            data[at] = (char)(data[at] ^ 0x10);
            if (!open_source(&rig, name) || strcmp(rig_error(&rig.diags), "") != 0) {
                expect(&rig, "E0603", "");
            } else {
                struct rig_reading reading = rig_read(&rig, 0);
                if (reading.status == READ_ERROR)
                    expect(&rig, "E0603", "is ");
                rig_reading_free(&reading);
            }
            rig_source_close(&rig);
        }
        close(fd);
        unlink(path_of(name));
        free(data);
    }
    free(text);
}

/* Zeros after a gzip file are padding, as for gzip itself: a warning says how many. Anything else after it is
 * damage, and so are zeros after .zst and .lz4 files. */
static void test_padding(void **state)
{
    (void)state;
    static const char *const kinds[] = {".gz", ".zst", ".lz4"};
    static const size_t paddings[] = {1, 511, 1 << 18, (1 << 18) + 1, 700000};
    size_t bytes, packed;
    char *text = lines(&bytes);
    for (size_t k = 0; k < ARRAY_COUNT(kinds); k++)
        for (size_t p = 0; p < ARRAY_COUNT(paddings); p++)
            /* ending: 0: file, zeros; 1: file, zeros, garbage; 2: file, zeros, file; 3: zeros alone */
            for (int ending = 0; ending < 4; ending++) {
                char name[32];
                struct rig_source rig;
                char *data = rig_compress(kinds[k], text, bytes, &packed);
                char *zeros = calloc(paddings[p], 1);
                snprintf(name, sizeof(name), "a.jsonl%s", kinds[k]);
                FILE *file = fopen(path_of(name), "wb");
                if (ending < 3)
                    fwrite(data, 1, packed, file);
                fwrite(zeros, 1, paddings[p], file);
                if (ending == 1 || ending == 2)
                    fwrite(ending == 1 ? "x" : data, 1, ending == 1 ? 1 : packed, file);
                fclose(file);
                assert_int_equal(open_source(&rig, name), ending < 3); /* open checks the first bytes */
                bool is_good = k == 0 && ending == 0;
                if (ending < 3)
                    assert_int_equal(read_ids(&rig, is_good ? READ_END : READ_ERROR), RECORDS);
                if (is_good) {
                    assert_int_equal(rig.diags.count, 1);
                    assert_int_equal(rig.diags.items[0].severity, DIAG_WARNING);
                    struct source_progress progress;
                    rig.kind->progress(&rig.source, &progress);
                    assert_int_equal(progress.bytes_done, progress.bytes_total);
                    char number[32];
                    snprintf(number, sizeof(number), "%zu bytes of zeros", paddings[p]);
                    assert_non_null(strstr(rig.diags.items[0].message, number));
                } else {
                    expect(&rig, "E0603", k == 0 && ending < 3 ? "is damaged" : "is ");
                }
                rig_source_close(&rig);
                unlink(path_of(name));
                free(zeros);
                free(data);
            }
    free(text);
}

static void test_concatenated_frames(void **state)
{
    (void)state;
    static const char *const kinds[] = {".gz", ".zst", ".lz4"};
    size_t bytes, packed[2];
    char *text = lines(&bytes);
    for (size_t k = 0; k < ARRAY_COUNT(kinds); k++) {
        char name[32];
        snprintf(name, sizeof(name), "two.jsonl%s", kinds[k]);
        char *first = rig_compress(kinds[k], text, 1001, &packed[0]);
        char *second = rig_compress(kinds[k], text + 1001, bytes - 1001, &packed[1]);
        FILE *file = fopen(path_of(name), "wb");
        fwrite(first, 1, packed[0], file);
        fwrite(second, 1, packed[1], file);
        fclose(file);
        struct rig_source rig;
        assert_true(open_source(&rig, name));
        assert_int_equal(read_ids(&rig, READ_END), RECORDS);
        rig_source_close(&rig);
        free(first);
        free(second);
    }
    free(text);
}

static void test_nothing_there(void **state)
{
    (void)state;
    struct rig_source rig;
    assert_false(open_source(&rig, "none-*.jsonl"));
    expect(&rig, "E0602", "no file matches");
    rig_source_close(&rig);
    assert_false(open_source(&rig, "none.jsonl"));
    expect(&rig, "E0602", "no file matches");
    rig_source_close(&rig);
    /* A directory without a manifest, with a damaged manifest, and with one that names files
     * outside of it. */
    mkdir(path_of("dir"), 0700);
    assert_false(open_source(&rig, "dir"));
    expect(&rig, "E0602", "manifest.json");
    rig_source_close(&rig);
    static const char *const manifests[] = {
        "{",
        "[]",
        "{\"partitions\": []}",
        "{\"partitions\": [{\"name\": \"p\", \"files\": [\"../a\"]}]}",
        "{\"partitions\": [{\"name\": \"p\", \"files\": [\"/etc/passwd\"]}]}",
        "{\"partitions\": [{\"name\": \"p\", \"files\": 5}]}"};
    for (size_t i = 0; i < ARRAY_COUNT(manifests); i++) {
        rig_write_file(path_of("dir/manifest.json"), manifests[i], strlen(manifests[i]));
        assert_false(open_source(&rig, "dir"));
        expect(&rig, "E0603", "manifest");
        rig_source_close(&rig);
    }
    /* Not a file. */
    mkfifo(path_of("fifo.jsonl"), 0600);
    int fd = open(path_of("fifo.jsonl"), O_RDWR);
    assert_false(open_source(&rig, "fifo.jsonl"));
    expect(&rig, "E0601", "is not a regular file");
    close(fd);
    rig_source_close(&rig);
}

static void test_unreadable(void **state)
{
    (void)state;
    struct rig_source rig;
    mkdir(path_of("closed"), 0755);
    rig_write_file(path_of("closed/a.jsonl"), "{}\n", 3);
    rig_write_file(path_of("secret.jsonl"), "{}\n", 3);
    chmod(path_of("secret.jsonl"), 0);
    chmod(path_of("closed"), 0);
    /* Root may read every file: become another user. */
    bool is_root = geteuid() == 0;
    if (is_root)
        assert_int_equal(chmod(directory, 0755) | seteuid(65534), 0);
    assert_false(open_source(&rig, "secret.jsonl"));
    expect(&rig, "E0601", "cannot be opened");
    rig_source_close(&rig);
    assert_false(open_source(&rig, "closed/*.jsonl"));
    expect(&rig, "E0601", "Permission denied");
    rig_source_close(&rig);
    assert_false(open_source(&rig, "closed/a.jsonl"));
    expect(&rig, "E0601", "Permission denied");
    rig_source_close(&rig);
    if (is_root)
        assert_int_equal(seteuid(0), 0);
    chmod(path_of("closed"), 0755);
}

static void test_empty(void **state)
{
    (void)state;
    static const char *const names[] = {"e.jsonl",   "e.csv",      "e.msgpack",
                                        "e.batches", "e.jsonl.gz", "e.jsonl.zst"};
    struct rig_source rig;
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        rig_write_file(path_of(names[i]), "", 0);
        assert_true(open_source(&rig, names[i]));
        assert_int_equal(read_ids(&rig, READ_END), 0);
        assert_string_equal(rig_error(&rig.diags), "");
        rig_source_close(&rig);
    }
    rig_write_file(path_of("blank.jsonl"), "\n\r\n\n", 4);
    assert_true(open_source(&rig, "blank.jsonl"));
    assert_int_equal(read_ids(&rig, READ_END), 0);
    rig_source_close(&rig);
    /* A record after 5 MiB of blank lines is read. */
    char *blank = malloc(5 << 20);
    memset(blank, '\n', 5 << 20);
    memcpy(blank + (5 << 20) - 9, "{\"id\":0}\n", 9);
    rig_write_file(path_of("blank.jsonl"), blank, 5 << 20);
    free(blank);
    assert_true(open_source(&rig, "blank.jsonl"));
    assert_int_equal(read_ids(&rig, READ_END), 1);
    rig_source_close(&rig);
    rig_write_file(path_of("plain.jsonl.gz"), "{\"id\":0}\n", 9);
    assert_false(open_source(&rig, "plain.jsonl.gz"));
    expect(&rig, "E0603", "is not compressed, although its suffix says so");
    rig_source_close(&rig);
}

static void append(const char *name, const char *text)
{
    int fd = open(path_of(name), O_WRONLY | O_APPEND);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static void test_changes(void **state)
{
    (void)state;
    struct rig_source rig;
    size_t bytes;
    char *text = lines(&bytes);
    /* The file grows by a whole record: what it had at open is read, and a warning names the rest. */
    rig_write_file(path_of("g.jsonl"), text, bytes);
    assert_true(open_source(&rig, "g.jsonl"));
    append("g.jsonl", "{\"id\":5000}\n");
    assert_int_equal(read_ids(&rig, READ_END), RECORDS);
    assert_string_equal(rig_error(&rig.diags), "");
    assert_int_equal(rig.diags.items[0].severity, DIAG_WARNING);
    assert_non_null(strstr(rig_message(&rig), "the 12 bytes added since the job began were not read"));
    rig_source_close(&rig);
    /* The file grows in the middle of a record. */
    rig_write_file(path_of("g.jsonl"), text, bytes - 3);
    assert_true(open_source(&rig, "g.jsonl"));
    append("g.jsonl", "9}\n");
    struct rig_reading reading = rig_read(&rig, 0);
    assert_int_equal(reading.status, READ_ERROR);
    expect(&rig, "E0604", "grew while it was read, and its last record was not complete");
    rig_reading_free(&reading);
    rig_source_close(&rig);
    /* The file shrinks; then another is written to in place; then one is removed. */
    rig_write_file(path_of("g.jsonl"), text, bytes);
    assert_true(open_source(&rig, "g.jsonl"));
    assert_int_equal(truncate(path_of("g.jsonl"), 100), 0);
    assert_int_equal(read_ids(&rig, READ_ERROR), 0);
    expect(&rig, "E0604", "shorter");
    rig_source_close(&rig);
    rig_write_file(path_of("g.jsonl"), text, bytes);
    const struct timespec then[2] = {{.tv_sec = 1700000000}, {.tv_sec = 1700000000}};
    assert_int_equal(utimensat(AT_FDCWD, path_of("g.jsonl"), then, 0), 0);
    assert_true(open_source(&rig, "g.jsonl"));
    rig_write_file(path_of("g.jsonl"), text, bytes);
    assert_in_range(read_ids(&rig, READ_ERROR), 0, RECORDS);
    expect(&rig, "E0604", "was written to");
    rig_source_close(&rig);
    rig_write_file(path_of("g.jsonl"), text, bytes);
    assert_true(open_source(&rig, "g.jsonl"));
    unlink(path_of("g.jsonl"));
    assert_int_equal(read_ids(&rig, READ_ERROR), 0);
    expect(&rig, "E0601", "No such file");
    rig_source_close(&rig);
    /* A position beyond the end of the file, and one in a third file while the source has one file. */
    rig_write_file(path_of("g.jsonl"), text, bytes);
    assert_true(open_source(&rig, "g.jsonl"));
    struct source_position behind = {.b = (int64_t)bytes + 1, .record = RECORDS};
    assert_false(source_file.seek(&rig.source, 0, &behind));
    expect(&rig, "E0604", "shorter");
    rig_source_close(&rig);
    assert_true(open_source(&rig, "g.jsonl"));
    behind = (struct source_position){.a = 2};
    assert_false(source_file.seek(&rig.source, 0, &behind));
    expect(&rig, "E0604", "files were added or removed");
    rig_source_close(&rig);
    free(text);
}

/* A recording that was cut between two blocks is known by its missing end mark alone; bytes after the end
 * mark are an error, too. */
static void test_batches_without_end(void)
{
    struct arena arena = {0};
    struct byte_buffer file = {0};
    struct batch_pool *pool = batch_pool_new();
    struct batch *batch = batch_new(pool, harness_schema(&arena, "id int"), 1000);
    for (uint32_t i = 0; i < 1000; i++)
        batch->event_time[i] = batch->columns[0].ints[i] = i;
    void *encoder = format_batches.encoder_new(batch->schema, NULL);
    format_batches.encode_header(encoder, &file);
    for (int i = 0; i < 3; i++)
        format_batches.encode(encoder, batch, 0, 1000, &file);
    rig_write_file(path_of("d.batches"), file.data, file.length);
    struct rig_source rig;
    assert_true(open_source(&rig, "d.batches"));
    struct rig_reading reading = rig_read(&rig, 0);
    assert_int_equal(reading.status, READ_ERROR);
    assert_int_equal(reading.count, 2);
    expect(&rig, "E0603", "its end mark is missing");
    rig_reading_free(&reading);
    rig_source_close(&rig);
    format_batches.encode_end(encoder, &file);
    buffer_append(&file, "x", 1);
    rig_write_file(path_of("d.batches"), file.data, file.length);
    assert_true(open_source(&rig, "d.batches"));
    reading = rig_read(&rig, 0);
    assert_int_equal(reading.status, READ_ERROR);
    assert_int_equal(reading.count, 3);
    expect(&rig, "E0603", "end");
    rig_reading_free(&reading);
    rig_source_close(&rig);
    format_batches.encoder_free(encoder);
    batch_release(batch);
    batch_pool_free(pool);
    buffer_free(&file);
    arena_free(&arena);
}

static void test_damaged_formats(void **state)
{
    (void)state;
    struct rig_source rig;
    rig_write_file(path_of("d.msgpack"), "\x81\xa2id\x00\x81\xa2id\x01\xc1\x81", 12);
    assert_true(open_source(&rig, "d.msgpack"));
    assert_int_equal(read_ids(&rig, READ_ERROR), 2);
    expect(&rig, "E0603", "at 10");
    rig_source_close(&rig);
    rig_write_file(path_of("d.msgpack"), "\x81\xa2id\x00\x81\xa2i", 8);
    assert_true(open_source(&rig, "d.msgpack"));
    assert_int_equal(read_ids(&rig, READ_ERROR), 1);
    expect(&rig, "E0603", "ends inside a record");
    rig_source_close(&rig);
    rig_write_file(path_of("d.batches"), "no batches at all", 17);
    assert_false(open_source(&rig, "d.batches"));
    expect(&rig, "E0603", "is not a recording");
    rig_source_close(&rig);
    test_batches_without_end();
    rig_write_file(path_of("d.csv"), "other\n1\n", 8);
    assert_false(open_source(&rig, "d.csv"));
    expect(&rig, "E0607", "has no column `id`");
    rig_source_close(&rig);
    rig_write_file(path_of("d.csv"), "id\n0\n1\n\"torn", 12);
    assert_true(open_source(&rig, "d.csv"));
    struct rig_reading reading = rig_read(&rig, 0);
    char *text = rig_text(&reading);
    assert_string_equal(text, "{\"id\":0}\n{\"id\":1}\n!0 a quote that is never closed\n");
    free(text);
    rig_reading_free(&reading);
    rig_source_close(&rig);
}

static void test_options(void **state)
{
    (void)state;
    static const struct {
        const char *options, *schema, *code;
    } cases[] = {
        {"{ path: \"x.jsonl\" }", NULL, "E0402"},
        {"{ path: \"x.csv\", delimiter: \",,\" }", "a int", "E0404"},
        {"{ path: \"x.csv\", delimiter: \"\\\"\" }", "a int", "E0404"},
        {"{ path: [\"x.csv\", \"y.jsonl\"] }", "a int", "E0407"},
        {"{ path: \"x.csv\" }", "a [int]", "E0303"},
        {"{ path: \"x.csv\", order_by: b }", "a int", "E0302"},
        {"{ path: \"x.csv\", order_by: a }", "a text", "E0303"},
        {"{ path: \"x.csv\", format: xml }", "a int", "E0405"},
        {"{ }", "a int", "E0402"},
        {"{ path: [] }", "a int", "E0402"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct rig_source rig;
        assert_false(rig_source_open(&rig, &source_file, cases[i].options, cases[i].schema));
        assert_string_equal(rig_error(&rig.diags), cases[i].code);
        rig_source_close(&rig);
    }
}

/* Where a glob or a directory does not tell the format, the names of its files do, and must agree. */
static void test_formats_by_name(void **state)
{
    (void)state;
    struct rig_source rig;
    size_t packed;
    mkdir(path_of("names"), 0755);
    char *data = rig_compress(".gz", "id\n0\n", 5, &packed);
    rig_write_file(path_of("names/a.csv.gz"), data, packed);
    free(data);
    assert_true(open_source(&rig, "names/*.gz"));
    assert_int_equal(read_ids(&rig, READ_END), 1);
    rig_source_close(&rig);
    rig_write_file(path_of("names/b.jsonl"), "{\"id\":0}\n", 9);
    assert_false(open_source(&rig, "names/*"));
    assert_string_equal(rig_error(&rig.diags), "E0407");
    rig_source_close(&rig);
    rig_write_file(path_of("names/c"), "{\"id\":0}\n", 9);
    assert_false(open_source(&rig, "names/c"));
    expect(&rig, "E0402", "does not tell its format");
    rig_source_close(&rig);
}

static int set_up(void **state)
{
    (void)state;
    temporary_make(directory);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    temporary_remove(directory);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_truncated_and_damaged),
        cmocka_unit_test(test_concatenated_frames),
        cmocka_unit_test(test_padding),
        cmocka_unit_test(test_nothing_there),
        cmocka_unit_test(test_unreadable),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_changes),
        cmocka_unit_test(test_damaged_formats),
        cmocka_unit_test(test_formats_by_name),
        cmocka_unit_test(test_options),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

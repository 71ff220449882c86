/* Recordings on disk: every payload, key and header comes back byte for byte, from any offset, however the
 * records are divided into spans; gaps, damage and what a crash left are found. */
#include "connectors/kafka/recording_form.h"
#include "connectors/kafka/recording_write.h"
#include "unit/support/random.h"
#include "unit/support/temporary.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define BYTES(literal) ((struct str){(literal), sizeof(literal) - 1})

static const struct str payloads[] = {
    {NULL, 0}, /* a tombstone */
    BYTES(""),
    BYTES("null"),
    BYTES(" null"),
    BYTES("{\"n\":1}"),
    BYTES("{ \"n\" :\t1.50e+3 , \"m\": [ 1,2 , {} ] }"),
    BYTES(" {\"n\":1}"),
    BYTES("{\"n\":1} "),
    BYTES("{\n  \"n\": 1\n}"),
    BYTES("{\"n\":1}\n"),
    BYTES("{\"n\":1}\r\n"),
    BYTES("{\"n\":1}{\"n\":2}"),
    BYTES("{\"n\":1"),
    BYTES("{\"n\":01}"),
    BYTES("[1,]"),
    BYTES("tru"),
    BYTES("true"),
    BYTES("-0.0"),
    BYTES("\"a \\\" quoted \\u00e9 \\ud83d\\ude00 text\""),
    BYTES("\"half of a code: \\ud83d\""),
    BYTES("\"tab\tinside\""),
    BYTES("plain, \"quoted\", back\\slash, \x01\x1f\x7f and \0 too"),
    BYTES("caf\xc3\xa9 \xe2\x80\xa8 \xf0\x9f\x98\x80"),
    BYTES("\xff\xfe not UTF-8"),
    BYTES("{\"n\":\"\xc3\"}"),
    BYTES("\xed\xa0\x80"), /* a surrogate as bytes */
    BYTES("\0"),
    BYTES("\n"),
    BYTES("\x85\xa6offset"),
};
static const struct str keys[] = {{NULL, 0},     BYTES(""),     BYTES("k1"),
                                  BYTES("null"), BYTES("\xff"), BYTES("a\nb\"c")};

enum { CASES = ARRAY_COUNT(payloads) * ARRAY_COUNT(keys) };

/* Record number i, whose headers are put into `headers`; the offsets have gaps. */
static struct recorded record_at(uint64_t i, struct byte_buffer *headers)
{
    struct recorded record = {.offset = (int64_t)(i * 3 + i % 2),
                              .time_ms = i % 7 == 0 ? -1 : 1700000000000 + (int64_t)(i * 37 % 101),
                              .record = {.key = keys[i / ARRAY_COUNT(payloads) % ARRAY_COUNT(keys)],
                                         .value = payloads[i % ARRAY_COUNT(payloads)]}};
    buffer_clear(headers);
    for (uint64_t k = 0; k < i % 4; k++)
        record_put_header(headers, k == 1 ? BYTES("") : BYTES("trace"),
                          payloads[(i + k) % ARRAY_COUNT(payloads)]);
    record.record.headers = (struct str){headers->data, headers->length};
    return record;
}

static void assert_same(struct str a, struct str b)
{
    assert_int_equal(a.data == NULL, b.data == NULL);
    assert_int_equal(a.length, b.length);
    if (a.length > 0)
        assert_memory_equal(a.data, b.data, a.length);
}

static void assert_record(const struct recorded *found, uint64_t i)
{
    struct byte_buffer headers = {0};
    struct recorded record = record_at(i, &headers);
    assert_int_equal(found->offset, record.offset);
    assert_int_equal(found->time_ms, record.time_ms);
    assert_same(found->record.key, record.record.key);
    assert_same(found->record.value, record.record.value);
    assert_int_equal(found->record.headers.length, record.record.headers.length);
    if (headers.length > 0)
        assert_memory_equal(found->record.headers.data, headers.data, headers.length);
    buffer_free(&headers);
}

/* --- A recording --- */

struct place {
    char folder[TEMPORARY_PATH_BYTES];
    struct arena arena;
    struct diag_list diags;
    struct recording recording;
};

static void begin(struct place *place)
{
    *place = (struct place){0};
    temporary_make(place->folder);
    diag_list_init(&place->diags, &place->arena);
}

static void end(struct place *place)
{
    arena_free(&place->arena);
    temporary_remove(place->folder);
}

/* Writes a recording of the records [from, to) of partition 3, in spans of `each` records. */
static void write_records(const char *folder, uint64_t from, uint64_t to, uint64_t each,
                          enum recording_format format)
{
    struct arena arena = {0};
    struct recording recording = {0};
    struct byte_buffer headers = {0};
    struct recording_span span;
    struct recording_packer packer = {0};
    struct recording_writer writer = {
        .directory = folder, .topic = "clicks", .id = 3, .format = format, .packer = &packer, .fd = -1};
    struct recording_partition *p = recording_add(&recording, "clicks", 3, &arena);
    p->first = p->next = record_at(from, &headers).offset;
    for (uint64_t i = from; i < to; i++) {
        struct recorded record = record_at(i, &headers);
        assert_int_equal(recording_writer_put(&writer, p->next, &record), 0);
        if ((i + 1 - from) % each != 0 && i + 1 < to)
            continue;
        assert_int_equal(recording_writer_finish(&writer, record.offset + 1, &span, &arena), 0);
        recording_add_span(p, &span, &arena);
        p->next = span.next;
        p->records += span.records;
    }
    recording_writer_close(&writer);
    recording_packer_free(&packer);
    assert_int_equal(recording_save(&recording, folder, NULL), 0);
    buffer_free(&headers);
    arena_free(&arena);
}

static bool open_one(struct place *place, const char *path)
{
    struct str name = str_from(path);
    return recording_open(&place->recording, &name, 1, NULL, 0, &place->arena, &place->diags);
}

static void assert_refused(const struct place *place, enum diag_code code, const char *says)
{
    assert_int_equal(place->diags.count, 1);
    assert_int_equal(place->diags.items[0].code, code);
    assert_non_null(strstr(place->diags.items[0].message, says));
}

static void check_from(struct recording_reader *reader, uint64_t first, uint64_t to)
{
    struct recorded record;
    for (uint64_t i = first; i < to; i++) {
        assert_int_equal(recording_reader_next(reader, &record), RECORDED);
        assert_record(&record, i);
        if (i % 5 == 0) {
            recording_reader_back(reader);
            assert_int_equal(recording_reader_next(reader, &record), RECORDED);
            assert_record(&record, i);
        }
    }
    assert_int_equal(recording_reader_next(reader, &record), RECORDED_END);
    assert_int_equal(recording_reader_next(reader, &record), RECORDED_END);
}

static void test_every_payload_comes_back(void **state LEAT_UNUSED)
{
    for (enum recording_format format = RECORDING_JSONL; format <= RECORDING_MSGPACK; format++)
        for (uint64_t each = 7; each <= CASES; each += CASES - 7) {
            struct place place;
            struct byte_buffer headers = {0};
            begin(&place);
            write_records(place.folder, 0, CASES, each, format);
            assert_true(open_one(&place, place.folder));
            assert_int_equal(place.recording.partitions_count, 1);
            const struct recording_partition *p = recording_find(&place.recording, STR("clicks/3"));
            assert_non_null(p);
            assert_int_equal(p->records, CASES);
            assert_int_equal(p->spans_count, (CASES + each - 1) / each);
            struct recording_reader *reader = recording_reader_new(p, &place.diags, NULL);
            check_from(reader, 0, CASES);
            for (uint64_t i = 0; i < CASES; i += 11) {
                assert_true(
                    recording_reader_seek(reader, i == 0 ? 0 : record_at(i - 1, &headers).offset + 1));
                check_from(reader, i, CASES);
            }
            assert_true(recording_reader_seek(reader, p->next));
            check_from(reader, CASES, CASES);
            assert_false(recording_reader_seek(reader, p->next + 1));
            assert_refused(&place, DIAG_RECORDS_GONE, "has no offset");
            recording_reader_free(reader);
            buffer_free(&headers);
            end(&place);
        }
}

static void test_what_stands_as_it_is(void **state LEAT_UNUSED)
{
    static const struct {
        struct str payload;
        const char *line;
    } lines[] = {
        {BYTES("{ \"n\": 1 }"), "{\"offset\":5,\"time\":9,\"value\":{ \"n\": 1 }}\n"},
        {BYTES("{\"n\":1}\n"), "{\"offset\":5,\"time\":9,\"text\":\"{\\\"n\\\":1}\\n\"}\n"},
        {BYTES("null"), "{\"offset\":5,\"time\":9,\"text\":\"null\"}\n"},
        {{NULL, 0}, "{\"offset\":5,\"time\":9,\"value\":null}\n"},
        {BYTES("\xff"), "{\"offset\":5,\"time\":9,\"base64\":\"/w==\"}\n"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(lines); i++) {
        struct byte_buffer out = {0};
        struct recorded record = {.offset = 5, .time_ms = 9, .record = {.value = lines[i].payload}};
        recorded_put_json(&record, &out);
        assert_same((struct str){out.data, out.length}, str_from(lines[i].line));
        buffer_free(&out);
    }
}

static void test_a_line_that_others_wrote(void **state LEAT_UNUSED)
{
    static const struct {
        const char *line;
        const char *why; /* NULL: good */
    } lines[] = {
        {" {}", "not a JSON object"},
        {"{ \"value\" : {\"a\":[1]} , \"headers\":[[\"h\",{\"base64\":\"/w==\"}]], \"more\": 1, \"time\": 3, "
         "\"offset\": 4 }",
         NULL},
        {"{\"offset\":4,\"time\":3}", "lacks one"},
        {"{\"offset\":4,\"time\":3,\"value\":1,\"text\":\"1\"}", "two payloads"},
        {"{\"offset\":4.5,\"time\":3,\"value\":1}", "whole numbers"},
        {"{\"offset\":-4,\"time\":3,\"value\":1}", "whole numbers"},
        {"{\"offset\":4,\"time\":3,\"base64\":\"?\"}", "neither text nor base64"},
        {"{\"offset\":4,\"time\":3,\"key\":7,\"value\":1}", "`key`"},
        {"{\"offset\":4,\"time\":3,\"headers\":[[\"a\"]],\"value\":1}", "`headers`"},
        {"{\"offset\":4,\"time\":3,\"value\":1} x", "not a JSON object"},
        {"{\"offset\":4,\"time\":3,\"value\":{\"a\"}}", "not a JSON object"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(lines); i++) {
        struct arena arena = {0};
        struct recorded record;
        const char *why = recorded_from_json(str_from(lines[i].line), &arena, &record);
        if (lines[i].why == NULL) {
            assert_null(why);
            assert_int_equal(record.offset, 4);
            assert_same(record.record.value, BYTES("{\"a\":[1]}"));
        } else {
            assert_non_null(why);
            assert_non_null(strstr(why, lines[i].why));
        }
        arena_free(&arena);
    }
}

/* Damaged records are read or refused; no byte beyond them is read. */
static void test_damaged_records(void **state LEAT_UNUSED)
{
    struct test_random random = {7};
    struct byte_buffer headers = {0}, out = {0};
    for (uint64_t i = 0; i < 20000; i++) {
        struct arena arena = {0};
        struct recorded found, record = record_at(random_below(&random, CASES), &headers);
        bool is_json = i % 2 == 0;
        size_t used;
        buffer_clear(&out);
        if (is_json)
            recorded_put_json(&record, &out);
        else
            recorded_put_msgpack(&record, &out);
        char *bytes = malloc(out.length); /* of exact size: AddressSanitizer watches its end */
        size_t length = out.length - (i % 3 == 0 ? random_below(&random, (uint32_t)out.length) : 0);
        memcpy(bytes, out.data, length);
        if (length > 0)
            for (uint32_t k = random_below(&random, 4); k > 0; k--)
                bytes[random_below(&random, (uint32_t)length)] = (char)random_below(&random, 256);
        bytes = realloc(bytes, MAX(length, 1));
        if (is_json)
            (void)recorded_from_json((struct str){bytes, length}, &arena, &found);
        else if (recorded_from_msgpack((struct str){bytes, length}, &arena, &found, &used) == NULL)
            assert_true(used <= length);
        free(bytes);
        arena_free(&arena);
    }
    buffer_free(&headers);
    buffer_free(&out);
}

/* --- Several recordings, and damaged ones --- */

static char *below(struct place *place, const char *name)
{
    return arena_printf(&place->arena, "%s/%s", place->folder, name);
}

static void test_several_as_one(void **state LEAT_UNUSED)
{
    struct place place;
    begin(&place);
    write_records(below(&place, "a"), 0, 50, 20, RECORDING_JSONL);
    write_records(below(&place, "b"), 40, 120, 30, RECORDING_MSGPACK); /* 40 to 49 again */
    write_records(below(&place, "c"), 121, 130, 30, RECORDING_JSONL);
    assert_true(recording_is(str_from(below(&place, "[ab]"))));
    assert_true(recording_is(str_from(below(&place, "a/clicks/"))));
    assert_false(recording_is(str_from(place.folder)));
    assert_false(recording_is(str_from(below(&place, "a/clicks/*"))));
    assert_true(open_one(&place, below(&place, "[ab]")));
    struct recording_reader *reader =
        recording_reader_new(&place.recording.partitions[0], &place.diags, NULL);
    check_from(reader, 0, 120);
    recording_reader_free(reader);
    assert_true(open_one(&place, below(&place, "b/clicks")));
    assert_int_equal(place.recording.partitions[0].records, 80);
    struct str other = STR("others"), path = str_from(below(&place, "a"));
    assert_true(recording_open(&place.recording, &path, 1, &other, 1, &place.arena, &place.diags));
    assert_int_equal(place.recording.partitions_count, 0);
    assert_int_equal(place.diags.count, 0);
    assert_false(open_one(&place, below(&place, "*")));
    assert_refused(&place, DIAG_FILE_DAMAGED, "have a hole: `clicks/3` lacks offsets 359 to 363");
    end(&place);
}

static const char *first_span(struct place *place)
{
    write_records(place->folder, 0, 30, 10, RECORDING_JSONL);
    assert_true(open_one(place, place->folder));
    return place->recording.partitions[0].spans[0].path;
}

static void test_a_span_that_is_gone(void **state LEAT_UNUSED)
{
    struct place place;
    begin(&place);
    assert_int_equal(unlink(first_span(&place)), 0);
    assert_false(open_one(&place, place.folder));
    assert_refused(&place, DIAG_NO_FILE, "does not exist");
    end(&place);
}

static void test_a_span_that_was_cut(void **state LEAT_UNUSED)
{
    struct place place;
    begin(&place);
    const char *path = first_span(&place);
    assert_int_equal(truncate(path, place.recording.partitions[0].spans[0].bytes - 1), 0);
    assert_false(open_one(&place, place.folder));
    assert_refused(&place, DIAG_FILE_DAMAGED, "the manifest says");
    end(&place);
}

/* Reads until an error, whose message must contain `says`. */
static void assert_unreadable(struct place *place, const char *says)
{
    struct recorded record;
    enum recorded_status status;
    struct recording_reader *reader =
        recording_reader_new(&place->recording.partitions[0], &place->diags, NULL);
    while ((status = recording_reader_next(reader, &record)) == RECORDED)
        ;
    assert_int_equal(status, RECORDED_ERROR);
    assert_int_equal(recording_reader_next(reader, &record), RECORDED_ERROR);
    assert_refused(place, DIAG_FILE_DAMAGED, says);
    recording_reader_free(reader);
}

static void test_a_span_with_other_records(void **state LEAT_UNUSED)
{
    struct place place;
    char *text;
    size_t bytes;
    begin(&place);
    first_span(&place);
    const char *path = below(&place, "manifest.json");
    assert_int_equal(os_read_file(path, 1 << 20, &text, &bytes), 0);
    char *at = strstr(strstr(text, "\"spans\""), "\"records\":10,");
    assert_non_null(at);
    memcpy(at, "\"records\": 9,", strlen("\"records\": 9,"));
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    fclose(file);
    free(text);
    assert_true(open_one(&place, place.folder));
    assert_unreadable(&place, "does not have as many records");
    end(&place);
}

static void test_a_byte_that_changed(void **state LEAT_UNUSED)
{
    struct place place;
    begin(&place);
    const char *path = first_span(&place);
    int fd = open(path, O_RDWR);
    char byte;
    assert_int_equal(pread(fd, &byte, 1, 40), 1);
    byte ^= 4;
    assert_int_equal(pwrite(fd, &byte, 1, 40), 1);
    close(fd);
    assert_unreadable(&place, path);
    end(&place);
}

static void test_bad_manifests(void **state LEAT_UNUSED)
{
    static const struct {
        const char *text, *says;
    } manifests[] = {
        {"{\"leat_recording\":1", "damaged"},
        {"{\"leat_recording\":2,\"partitions\":[]}", "newer leat"},
        {"{\"leat_recording\":1}", "were expected"},
        {"{\"leat_recording\":1,\"partitions\":[{}]}", "lacks one of topic"},
        {"{\"leat_recording\":1,\"partitions\":[{\"topic\":\"t\",\"partition\":0,\"first\":0,\"next\":1,"
         "\"spans\":[{\"file\":\"../x/y\",\"first\":0,\"next\":1,\"records\":1,\"bytes\":1,\"first_time\":1,"
         "\"last_time\":1}]}]}",
         "lacks one of file"},
        {"{\"leat_recording\":1,\"partitions\":[{\"topic\":\"t\",\"partition\":0,\"first\":0,\"next\":9,"
         "\"spans\":[{\"file\":\"x/y\",\"first\":1,\"next\":2,\"records\":1,\"bytes\":1,\"first_time\":1,"
         "\"last_time\":1}]}]}",
         "do not follow"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(manifests); i++) {
        struct place place;
        begin(&place);
        FILE *file = fopen(below(&place, "manifest.json"), "w");
        assert_non_null(file);
        fputs(manifests[i].text, file);
        fclose(file);
        assert_false(open_one(&place, place.folder));
        assert_refused(&place, DIAG_FILE_DAMAGED, manifests[i].says);
        end(&place);
    }
}

static void test_what_a_crash_left(void **state LEAT_UNUSED)
{
    struct place place;
    begin(&place);
    const char *named = first_span(&place);
    static const char *const left[] = {"clicks/00003-00000000000000000999.jsonl.zst.part",
                                       "clicks/00003-00000000000000000998.msgpack.zst"};
    const char *mine = below(&place, "clicks/notes.txt");
    for (size_t i = 0; i < ARRAY_COUNT(left); i++)
        close(open(below(&place, left[i]), O_CREAT | O_WRONLY, 0666));
    close(open(mine, O_CREAT | O_WRONLY, 0666));
    recording_sweep(&place.recording, place.folder, "clicks");
    for (size_t i = 0; i < ARRAY_COUNT(left); i++)
        assert_int_not_equal(access(below(&place, left[i]), F_OK), 0);
    assert_int_equal(access(mine, F_OK), 0);
    assert_int_equal(access(named, F_OK), 0);
    end(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_payload_comes_back),
        cmocka_unit_test(test_what_stands_as_it_is),
        cmocka_unit_test(test_a_line_that_others_wrote),
        cmocka_unit_test(test_damaged_records),
        cmocka_unit_test(test_several_as_one),
        cmocka_unit_test(test_a_span_that_is_gone),
        cmocka_unit_test(test_a_span_that_was_cut),
        cmocka_unit_test(test_a_byte_that_changed),
        cmocka_unit_test(test_a_span_with_other_records),
        cmocka_unit_test(test_bad_manifests),
        cmocka_unit_test(test_what_a_crash_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

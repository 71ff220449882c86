/* Files whose sizes cross every limit (batch, read buffer, grid, sort memory), of every format, plain and
 * sorted by `order_by`: each record is read once, in its place, with its own bytes. The expected records are
 * noted while the file is made. */
#include "formats/formats.h"
#include "unit/connectors/rig.h"
#include "unit/formats/harness.h"
#include "unit/support/random.h"
#include "unit/support/temporary.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

extern const struct source_kind source_file;

enum { MIB = 1 << 20 };
static const char schema_text[] = "t int, n int, s text";

struct item {
    int64_t key;
    uint32_t number;
    bool is_bad;
    size_t offset, length; /* the record's bytes in the file; length 0: unknown (block formats) */
};

/* How long the records of a file are, and what is between them. */
struct profile {
    const char *name;
    size_t bytes;           /* approximate size of the file */
    uint32_t pad, wide;     /* upper bound of the bytes of `s`; the bound for one record in fifty */
    uint32_t empty;         /* upper bound of the empty lines after one record in fifty */
    bool has_bad, has_crlf; /* lines that are no records; some lines end with CRLF */
    bool has_no_end;        /* the last line has no newline */
};

static const struct profile profiles[] = {
    {"tiny", 5 * MIB, 0, 0, 0, false, false, false},
    {"tiny, CRLF", 3 * MIB, 1, 0, 0, false, true, true},
    {"usual", 9 * MIB, 60, 5000, 3, true, false, false},
    {"wide", 6 * MIB, 3000, 900000, 40, true, true, true},
    {"600 kB", 7 * MIB, 0, 0, 0, false, false, false}, /* each `s` has 600,000 bytes */
    {"empty lines", 9 * MIB, 30, MIB, 1500000, true, false, false},
};

/* A file under construction, and the records in it. */
struct made {
    const struct format_kind *format;
    const struct schema *schema;
    struct batch_pool *pool;
    void *encoder;
    struct byte_buffer file;
    struct item *items;
    uint32_t count, capacity;
};

static struct item *add_item(struct made *made, int64_t key)
{
    if (made->count == made->capacity) {
        made->capacity = MAX(2 * made->capacity, 4096);
        made->items = realloc(made->items, made->capacity * sizeof(*made->items));
        assert_non_null(made->items);
    }
    struct item *item = &made->items[made->count];
    *item = (struct item){.key = key, .number = made->count, .offset = made->file.length};
    made->count++;
    return item;
}

/* Appends `count` records with the given keys and lengths of `s`. */
static void put_rows(struct made *made, const int64_t *keys, const uint32_t *lengths, uint32_t count)
{
    struct batch *batch = batch_new(made->pool, made->schema, count);
    uint32_t longest = 0;
    for (uint32_t i = 0; i < count; i++)
        longest = MAX(longest, lengths[i]);
    char *heap = arena_alloc(&batch->arena, longest + 1);
    memset(heap, 'x', longest + 1);
    batch->columns[2].heap = heap;
    for (uint32_t i = 0; i < count; i++) {
        batch->columns[0].ints[i] = keys[i];
        batch->columns[1].ints[i] = made->count;
        batch->columns[2].texts[i] = (struct text_ref){0, lengths[i]};
        batch->event_time[i] = 0;
        struct item *item = add_item(made, keys[i]);
        if (made->format->is_blocks)
            continue;
        made->format->encode(made->encoder, batch, i, 1, &made->file);
        item->length = made->file.length - item->offset - made->format->has_lines;
    }
    if (made->format->is_blocks)
        made->format->encode(made->encoder, batch, 0, count, &made->file);
    batch_release(batch);
}

/* Appends a line that is no record, sometimes one longer than 1 MiB. A sort keeps it behind the record before
 * it, so it gets that record's key. */
static void put_bad_line(struct made *made, struct test_random *random)
{
    bool is_long = random_chance(random, 3);
    size_t length = is_long ? (size_t)MIB + 1 + random_below(random, 3 * MIB) : 1 + random_below(random, 60);
    struct item *item = add_item(made, made->count == 0 ? INT64_MIN : made->items[made->count - 1].key);
    char *to = buffer_reserve(&made->file, length + 1);
    memset(to, '?', length);
    to[length] = '\n';
    made->file.length += length + 1;
    item->is_bad = true;
    item->length = MIN(length, (size_t)MIB + 1);
}

/* Replaces the `\n` after the last record with `\r\n`. */
static void end_with_crlf(struct made *made)
{
    made->file.length--;
    buffer_append(&made->file, "\r\n", 2);
}

static void make_file(struct made *made, const struct profile *profile, uint64_t seed)
{
    struct test_random random = {seed};
    if (made->format->encode_header != NULL)
        made->format->encode_header(made->encoder, &made->file);
    while (made->file.length < profile->bytes) {
        int64_t keys[300];
        uint32_t lengths[300], count = made->format->is_blocks ? 1 + random_below(&random, 300) : 1;
        for (uint32_t i = 0; i < count; i++) {
            keys[i] = (int64_t)random_below(&random, 2000) - 1000;
            uint32_t most =
                profile->wide > 0 && random_below(&random, 50) == 0 ? profile->wide : profile->pad;
            lengths[i] = strcmp(profile->name, "600 kB") == 0 ? 600000
                         : most == 0                          ? 0
                                                              : random_below(&random, most);
        }
        put_rows(made, keys, lengths, count);
        if (!made->format->has_lines)
            continue;
        if (profile->has_crlf && random_chance(&random, 50))
            end_with_crlf(made);
        if (profile->empty > 0 && random_below(&random, 50) == 0)
            for (uint32_t lines = random_below(&random, profile->empty); lines > 0; lines--)
                buffer_append(&made->file, "\n", 1);
        if (profile->has_bad && random_below(&random, 40) == 0)
            put_bad_line(made, &random);
    }
    if (made->format->encode_end != NULL)
        made->format->encode_end(made->encoder, &made->file);
    while (profile->has_no_end && made->format->has_lines &&
           strchr("\r\n", made->file.data[made->file.length - 1]) != NULL)
        made->file.length--;
}

static int compare_items(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* Checks that `raw` decodes to the items from `at` on, and is no longer than a batch may be. */
static void check_batch(struct rig_source *rig, const struct made *made, const struct item *items,
                        uint32_t at, struct raw_batch *raw)
{
    struct batch *batch = batch_new(rig->pool, rig->source.schema, raw->count);
    struct decode_output output = {.batch = batch};
    output.bad = arena_array(&batch->arena, struct bad_record, raw->count);
    rig->kind->decode(&rig->source, rig->decoder, raw, &output);
    assert_in_range(raw->count, 1, BATCH_ROWS);
    assert_true(at + raw->count <= made->count);
    if (raw->records != NULL && raw->count > 1)
        assert_true(raw->records[raw->count - 1].offset + raw->records[raw->count - 1].length -
                        raw->records[0].offset <=
                    SOURCE_BATCH_BYTES);
    uint32_t bad = 0;
    for (uint32_t i = 0; i < raw->count; i++) {
        const struct item *item = &items[at + i];
        struct str text = raw_record_text(raw, i);
        bool is_bad = bad < output.bad_count && output.bad[bad].row == i;
        bad += is_bad;
        if (is_bad != item->is_bad || (!is_bad && (batch->columns[0].ints[i] != item->key ||
                                                   batch->columns[1].ints[i] != item->number)))
            fail_msg("record %u is not number %u", at + i, item->number);
        if (!made->format->is_blocks && (text.length != item->length ||
                                         memcmp(text.data, made->file.data + item->offset, text.length) != 0))
            fail_msg("number %u has other bytes", item->number);
    }
    batch_release(batch);
}

/* Reads everything, then one batch again from some of the positions where batches begin. */
static void check_reading(struct rig_source *rig, const struct made *made, const struct item *items)
{
    struct raw_batch raw = {0};
    struct source_position places[4096];
    uint32_t at = 0, batches = 0;
    enum read_status status;
    while ((status = rig->kind->read(&rig->source, 0, &raw)) == READ_BATCH) {
        assert_int_equal(raw.position.record, at);
        check_batch(rig, made, items, at, &raw);
        if (batches < ARRAY_COUNT(places))
            places[batches++] = raw.position;
        at += raw.count;
        assert_int_equal(raw.next.record, at);
    }
    assert_string_equal(rig_error(&rig->diags), "");
    assert_int_equal(status, READ_END);
    assert_int_equal(at, made->count);
    for (uint32_t i = 0; i < batches; i += batches / 7 + 1) {
        assert_true(rig->kind->seek(&rig->source, 0, &places[i]));
        assert_int_equal(rig->kind->read(&rig->source, 0, &raw), READ_BATCH);
        assert_int_equal(raw.position.record, places[i].record);
        check_batch(rig, made, items, (uint32_t)places[i].record, &raw);
        assert_true(i + 1 >= batches || raw.next.record == places[i + 1].record);
    }
    arena_free(&raw.arena);
}

/* Reads the file in its own order, then sorted with the smallest `sort_memory` allowed. */
static void check_file(const struct made *made, const char *directory, const char *suffix)
{
    char path[512], options[1200];
    struct item *sorted = malloc(made->count * sizeof(*sorted));
    struct rig_source rig;
    size_t packed = made->file.length;
    assert_non_null(sorted);
    memcpy(sorted, made->items, made->count * sizeof(*sorted));
    qsort(sorted, made->count, sizeof(*sorted), compare_items);
    char *data =
        *suffix == '\0' ? made->file.data : rig_compress(suffix, made->file.data, made->file.length, &packed);
    snprintf(path, sizeof(path), "%s/a%s%s", directory, made->format->suffix, suffix);
    rig_write_file(path, data, packed);
    for (int is_sorted = 0; is_sorted < 2; is_sorted++) {
        snprintf(options, sizeof(options), "{ path: \"%s\"%s%s%s }", path,
                 is_sorted ? ", order_by: t, sort_memory: 4MiB, sort_dir: \"" : "",
                 is_sorted ? directory : "", is_sorted ? "\"" : "");
        if (!rig_source_open(&rig, &source_file, options, schema_text))
            fail_msg("%s", rig_message(&rig));
        check_reading(&rig, made, is_sorted ? sorted : made->items);
        rig_source_close(&rig);
    }
    if (data != made->file.data)
        free(data);
    free(sorted);
}

static void check_format(const struct format_kind *format, const struct profile *profile, const char *suffix,
                         const char *directory)
{
    struct arena arena = {0};
    struct made made = {
        .format = format, .schema = harness_schema(&arena, schema_text), .pool = batch_pool_new()};
    made.encoder = format->encoder_new(made.schema, NULL);
    make_file(&made, profile, (uint64_t)(profile - profiles) + 1);
    check_file(&made, directory, suffix);
    format->encoder_free(made.encoder);
    batch_pool_free(made.pool);
    buffer_free(&made.file);
    free(made.items);
    arena_free(&arena);
}

static void test_sizes(void **state)
{
    (void)state;
    char directory[TEMPORARY_PATH_BYTES];
    temporary_make(directory);
    for (size_t f = 0; formats_all[f] != NULL; f++)
        for (size_t p = 0; p < ARRAY_COUNT(profiles) && !formats_all[f]->is_payload; p++)
            check_format(formats_all[f], &profiles[p], "", directory);
    temporary_remove(directory);
}

static void test_compressed(void **state)
{
    (void)state;
    static const char *const suffixes[] = {".gz", ".zst", ".lz4"};
    char directory[TEMPORARY_PATH_BYTES];
    temporary_make(directory);
    for (size_t f = 0; formats_all[f] != NULL; f++)
        for (size_t s = 0; s < ARRAY_COUNT(suffixes) && !formats_all[f]->is_payload; s++)
            check_format(formats_all[f], &profiles[2], suffixes[s], directory);
    temporary_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_compressed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

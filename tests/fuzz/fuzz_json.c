/* Arbitrary bytes as JSON lines. The first byte chooses a schema. However they are cut into pieces the
 * records are the same; a record decoded among others is what it is alone; simdjson says the same of its
 * validity and its values; and what was good is good again when it is written and read. */
#include "formats/formats.h"
#include "unit/formats/harness.h"
#include "unit/formats/json_reference.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BYTES_MAX = 8192, RECORDS_MAX = 512 };

static const struct {
    const char *text;
    size_t fields;
} schemas[] = {
    {"i int, f float, s text, b bool, t ms, l [int], e [{x int, y text}]", 7},
    {"i int, f float, s text, b bool, t ms", 5},
    {"i int, f float", 2},
};

static void must(bool is_true, const char *what)
{
    if (is_true)
        return;
    fprintf(stderr, "fuzz_json: not so: %s\n", what);
    abort();
}

struct fuzz {
    struct batch_pool *pool;
    const struct schema *schema;
    size_t fields;
    struct raw_record records[RECORDS_MAX];
    uint32_t count;
};

/* Cuts all records, `step` bytes more at a time. */
static uint32_t cut(const char *data, size_t bytes, size_t step, struct raw_record *records)
{
    size_t used = 0, given = 0;
    uint32_t count = 0;
    while (used < bytes && count < RECORDS_MAX) {
        given = MIN(given + step, bytes);
        struct format_split split = {.data = data + used,
                                     .bytes = given - used,
                                     .is_last = given == bytes,
                                     .max = RECORDS_MAX - count,
                                     .records = records + count};
        format_json.split(&split);
        for (uint32_t i = 0; i < split.count; i++)
            records[count + i].offset += (uint32_t)used;
        count += split.count;
        used += split.used;
        must(split.used > 0 || given < bytes, "cutting goes on");
    }
    return count;
}

static struct decode_output decode(struct fuzz *fuzz, char *data, size_t bytes, struct raw_record *records,
                                   uint32_t count)
{
    struct raw_batch raw = {.data = data, .data_bytes = bytes, .records = records, .count = count};
    struct decode_output output = {.batch = batch_new(fuzz->pool, fuzz->schema, count)};
    output.bad = arena_array(&output.batch->arena, struct bad_record, count);
    void *decoder = format_json.decoder_new(fuzz->schema, NULL);
    format_json.decode(decoder, &raw, &output);
    format_json.decoder_free(decoder);
    return output;
}

/* One record in memory that ends where it may: what it decodes to, as text in `out`. */
static void decode_alone(struct fuzz *fuzz, const char *data, uint32_t length, struct byte_buffer *out)
{
    char *copy = malloc(length + RAW_PADDING);
    must(copy != NULL, "there is memory");
    memcpy(copy, data, length);
    struct raw_record record = {0, length};
    struct decode_output output = decode(fuzz, copy, length, &record, 1);
    harness_exact(&output, 0, out);
    batch_release(output.batch);
    free(copy);
}

static void check_record(struct fuzz *fuzz, const struct decode_output *together, const char *data,
                         uint32_t row)
{
    struct byte_buffer among = {0}, alone = {0}, line = {0}, again = {0};
    static char text[1 << 20];
    uint32_t length = fuzz->records[row].length;
    const char *record = data + fuzz->records[row].offset;
    harness_exact(together, row, &among);
    decode_alone(fuzz, record, length, &alone);
    must(strcmp(among.data, alone.data) == 0, "a record is the same among others and alone");
    bool is_bad = alone.data[0] == '!';
    enum reference_verdict verdict = reference_read(record, length, fuzz->fields, text, sizeof(text));
    if (verdict != REFERENCE_UNSURE) {
        must(is_bad == (verdict == REFERENCE_BAD), "simdjson has the same verdict");
        must(is_bad || strcmp(alone.data, text) == 0, "simdjson reads the same values");
    }
    if (!is_bad) {
        struct format_config config = {.times = TIME_UNIT_US};
        void *encoder = format_json.encoder_new(fuzz->schema, &config);
        format_json.encode(encoder, together->batch, row, 1, &line);
        format_json.encoder_free(encoder);
        /* Times were written in microseconds and are read in milliseconds, so only the verdict is compared.
         */
        decode_alone(fuzz, line.data, (uint32_t)line.length - 1, &again);
        must(again.data[0] != '!' || strstr(again.data, "out of range") != NULL, "what was written is good");
    }
    buffer_free(&among);
    buffer_free(&alone);
    buffer_free(&line);
    buffer_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static struct fuzz fuzz;
    struct raw_record again[RECORDS_MAX];
    if (size < 2 || size > BYTES_MAX)
        return 0;
    struct arena arena = {.block_bytes = 4096};
    size_t which = bytes[0] % ARRAY_COUNT(schemas);
    fuzz.schema = harness_schema(&arena, schemas[which].text);
    fuzz.fields = schemas[which].fields;
    if (fuzz.pool == NULL)
        fuzz.pool = batch_pool_new(); /* for good: most of the time would go into memory */
    size_t length = size - 1;
    char *data = malloc(length + RAW_PADDING);
    must(data != NULL, "there is memory");
    memcpy(data, bytes + 1, length);
    memset(data + length, '7', RAW_PADDING);
    fuzz.count = cut(data, length, length, fuzz.records);
    size_t step = 1 + bytes[0] / ARRAY_COUNT(schemas);
    must(cut(data, length, step, again) == fuzz.count, "as many records, however they are cut");
    must(memcmp(again, fuzz.records, fuzz.count * sizeof(*again)) == 0,
         "the same records, however they are cut");
    if (fuzz.count > 0) {
        struct decode_output output = decode(&fuzz, data, length, fuzz.records, fuzz.count);
        for (uint32_t row = 0; row < fuzz.count; row++)
            check_record(&fuzz, &output, data, row);
        batch_release(output.batch);
    }
    free(data);
    arena_free(&arena);
    return 0;
}

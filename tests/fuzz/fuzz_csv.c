/* Arbitrary bytes as CSV. The first byte chooses the delimiter, whether there is a header, and whether
 * fields are trimmed. However the bytes are cut into pieces, the records are the same; no byte belongs
 * to two records; good rows are the same once they are written and read. Without blanks and `+`,
 * trimming changes nothing. */
#include "formats/formats.h"
#include "fuzz.h"
#include "unit/formats/harness.h"

#include <stdio.h>
#include <stdlib.h>

enum { BYTES_MAX = 8192, RECORDS_MAX = 512 };

static uint32_t cut(const struct format_config *config, const char *data, size_t bytes, size_t step,
                    struct raw_record *records)
{
    size_t used = 0, given = 0, behind = 0;
    uint32_t count = 0, lines = 0, newlines = 0;
    while (used < bytes && count < RECORDS_MAX) {
        given = MIN(given + step, bytes);
        struct format_split split = {.config = config,
                                     .data = data + used,
                                     .bytes = given - used,
                                     .is_last = given == bytes,
                                     .max = RECORDS_MAX - count,
                                     .records = records + count};
        format_csv.split(&split);
        for (uint32_t i = count; i < count + split.count; i++) {
            records[i].offset += (uint32_t)used;
            must(records[i].offset >= behind, "records do not overlap");
            behind = records[i].offset + records[i].length;
            must(behind <= given, "records lie within the bytes");
        }
        count += split.count;
        lines += split.lines;
        used += split.used;
        must(split.used > 0 || given < bytes, "cutting goes on");
    }
    for (size_t i = 0; i < used; i++)
        newlines += data[i] == '\n';
    must(lines == newlines, "lines are counted");
    return count;
}

/* Decodes a whole file to lines as harness_decode writes them. */
static void decode(const struct schema *schema, const struct format_config *config, const char *data,
                   size_t bytes, struct byte_buffer *json)
{
    harness_decode(&format_csv, schema, config, data, bytes, 7, json);
    buffer_append(json, "", 1);
    json->length--;
}

/* Copies the lines of good rows. */
static void good_lines(const struct byte_buffer *from, struct byte_buffer *to)
{
    for (const char *at = from->data; *at != '\0'; at = strchr(at, '\n') + 1)
        if (*at == '{')
            buffer_append(to, at, (size_t)(strchr(at, '\n') - at) + 1);
    buffer_append(to, "", 1);
    to->length--;
}

/* Writes the rows of JSON lines as a CSV file. */
static void to_csv(const struct schema *schema, const struct format_config *config, struct byte_buffer *json,
                   struct byte_buffer *csv)
{
    struct raw_record records[RECORDS_MAX];
    struct format_split split = {
        .data = json->data, .bytes = json->length, .is_last = true, .max = RECORDS_MAX, .records = records};
    void *encoder = format_csv.encoder_new(schema, config);
    format_csv.encode_header(encoder, csv);
    format_json.split(&split);
    if (split.count > 0) {
        struct batch_pool *pool = batch_pool_new();
        struct raw_batch raw = {
            .data = json->data, .data_bytes = json->length, .records = records, .count = split.count};
        struct decode_output output = {.batch = batch_new(pool, schema, split.count)};
        output.bad = arena_array(&output.batch->arena, struct bad_record, split.count);
        buffer_reserve(json, RAW_PADDING);
        raw.data = json->data;
        void *decoder = format_json.decoder_new(schema, NULL);
        format_json.decode(decoder, &raw, &output);
        must(output.bad_count == 0, "rows of CSV are good JSON");
        format_csv.encode(encoder, output.batch, 0, split.count, csv);
        format_json.decoder_free(decoder);
        batch_release(output.batch);
        batch_pool_free(pool);
    }
    format_csv.encoder_free(encoder);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static const char delimiters[] = ",;\t|";
    struct raw_record records[RECORDS_MAX], again[RECORDS_MAX];
    if (size < 2 || size > BYTES_MAX)
        return 0;
    struct format_config config = {
        .delimiter = delimiters[bytes[0] & 3], .has_no_header = bytes[0] & 4, .times = TIME_UNIT_RFC3339};
    struct format_config strict = config;
    config.trims = bytes[0] & 8;
    struct arena arena = {.block_bytes = 4096};
    const struct schema *schema = harness_schema(&arena, "a int, b text, c float, d bool, f bytes");
    size_t length = size - 1;
    char *data = malloc(length + RAW_PADDING);
    must(data != NULL, "there is memory");
    memcpy(data, bytes + 1, length);
    memset(data + length, '"', RAW_PADDING);
    uint32_t count = cut(&config, data, length, length, records);
    must(cut(&config, data, length, 1 + (bytes[0] >> 4), again) == count,
         "as many records, however they are cut");
    must(memcmp(again, records, count * sizeof(*again)) == 0, "the same records, however they are cut");

    struct byte_buffer json = {0}, good = {0}, csv = {0}, twice = {0};
    decode(schema, &config, data, length, &json);
    good_lines(&json, &good);
    to_csv(schema, &config, &good, &csv);
    decode(schema, &strict, csv.data == NULL ? "" : csv.data, csv.length, &twice);
    good.data[good.length] = '\0';
    must(strcmp(twice.data, good.data) == 0 || count > RECORDS_MAX - 2,
         "rows are the same when written and read again");
    if (memchr(data, ' ', length) == NULL && memchr(data, '\t', length) == NULL &&
        memchr(data, '+', length) == NULL) {
        buffer_clear(&twice);
        decode(schema, &strict, data, length, &twice);
        json.data[json.length] = '\0';
        must(strcmp(twice.data, json.data) == 0, "what has nothing to trim is the same when trimmed");
    }
    buffer_free(&json);
    buffer_free(&good);
    buffer_free(&csv);
    buffer_free(&twice);
    free(data);
    arena_free(&arena);
    return 0;
}

/* Arbitrary bytes as JSON lines. The first byte chooses a schema. However the bytes are cut into pieces, the
 * records are the same; a record gives the same among others and alone; simdjson gives the same verdict and
 * values; and a good record is good again when it is written and read.
 *
 * Bytes that are changed at random hardly ever have two records of the same shape, and only the second of two
 * such records is read by the template: so half of the inputs get a random record of the schema, or one of
 * their own records again. */
#include "formats/formats.h"
#include "fuzz.h"
#include "unit/formats/harness.h"
#include "unit/formats/json_reference.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);

enum { BYTES_MAX = 8192, RECORDS_MAX = 512 };

static const struct {
    const char *text;
    size_t fields;
} schemas[] = {
    {"i int, f float, s text, b bool, t ms, l [int], e [{x int, y text}]", 7},
    {"i int, f float, s text, b bool, t ms", 5},
    {"i int, f float", 2},
};

struct fuzz {
    struct batch_pool *pool;
    const struct schema *schema;
    size_t fields;
    struct raw_record records[RECORDS_MAX];
    uint32_t count;
};

/* Splits the bytes into records, with `step` more bytes at a time; returns the number of records. */
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

/* Decodes one record, in memory that ends right after the padding, and appends its values as
 * text to `out`. */
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
        /* Times were written in microseconds and are read in milliseconds, so only the
         * verdict is compared. */
        decode_alone(fuzz, line.data, (uint32_t)line.length - 1, &again);
        must(again.data[0] != '!' || strstr(again.data, "out of range") != NULL, "what was written is good");
    }
    buffer_free(&among);
    buffer_free(&alone);
    buffer_free(&line);
    buffer_free(&again);
}

/* --- Inputs that look like records --- */

static const char *const numbers[] = {"0",
                                      "-1",
                                      "7",
                                      "01",
                                      "1234567",
                                      "12345678",
                                      "123456789",
                                      "-0",
                                      "17.0",
                                      "1.5",
                                      "-0.000125",
                                      "1e3",
                                      "12345678.25",
                                      "1e999",
                                      "999999999999999",
                                      "1e-7",
                                      "00",
                                      "1.",
                                      "-",
                                      "9223372036854775807",
                                      "1.1234567",
                                      "01.5",
                                      "1700000000000",
                                      "9223372036854775808"};
static const char *const texts[] = {"\"\"",
                                    "\"a\"",
                                    "\"exactly 15 byte\"",
                                    "\"sixteen bytes...\"",
                                    "\"a\\nb\"",
                                    "\"\\u0041\"",
                                    "\"\\ud83d\\ude00\"",
                                    "\"\\ud83d\\u0041\"",
                                    "\"\\ud83d\\uffff\"",
                                    "\"\\udc00\"",
                                    "\"\xc3\xa9\"",
                                    "\"\xed\xa0\x80\"",
                                    "\"seventeen bytes..\"",
                                    "\"\\\"\"",
                                    "\"\\x\""};
static const char *const others[] = {"true",        "false",
                                     "null",        "tru",
                                     "[]",          "[1]",
                                     "[1,-2,null]", "[1,2.0]",
                                     "{}",          "[",
                                     "[{}]",        "{\"z\":1}",
                                     "[{\"x\":1}]", "[{\"x\":1,\"y\":\"a\\n\"}]",
                                     "[[1]]",       "[null,{}]",
                                     "falsetto",    "[{\"y\":\"\",\"x\":2},{\"x\":3,\"x\":4}]"};

static uint32_t draw(uint64_t *state, uint32_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33) % below;
}

/* A random value, in most cases one of the type of the key's column. */
static const char *draw_value(uint64_t *state, char key)
{
    bool is_number = strchr("ift", key) != NULL;
    switch (draw(state, 8)) {
    case 0: return numbers[draw(state, ARRAY_COUNT(numbers))];
    case 1: return texts[draw(state, ARRAY_COUNT(texts))];
    case 2: return others[draw(state, ARRAY_COUNT(others))];
    default:
        return is_number    ? numbers[draw(state, ARRAY_COUNT(numbers))]
               : key == 's' ? texts[draw(state, ARRAY_COUNT(texts))]
                            : others[draw(state, ARRAY_COUNT(others))];
    }
}

static void draw_record(uint64_t *state, struct byte_buffer *out)
{
    const char *keys = "ifsbtle";
    bool has_spaces = draw(state, 8) == 0;
    uint32_t members = 0, skipped = draw(state, 12);
    buffer_printf(out, "{");
    for (uint32_t i = 0; i < 7; i++) {
        if (i == skipped)
            continue;
        char key = draw(state, 40) == 0 ? "zis"[draw(state, 3)] : keys[i];
        buffer_printf(out, "%s\"%c\":%s%s", members++ > 0 ? "," : "", key, has_spaces ? " " : "",
                      draw_value(state, key));
    }
    buffer_printf(out, "}\n");
}

/* Appends a random line of the data. */
static void draw_line(uint64_t *state, const uint8_t *data, size_t size, struct byte_buffer *out)
{
    size_t begin = 1 + draw(state, (uint32_t)size - 1), end;
    while (begin > 1 && data[begin - 1] != '\n')
        begin--;
    for (end = begin; end < size && data[end] != '\n';)
        end++;
    buffer_append(out, data + begin, end - begin);
    buffer_append(out, "\n", 1);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    uint64_t state = seed;
    uint32_t what = draw(&state, 4);
    if (what < 2 && size > 2) {
        struct byte_buffer line = {0};
        if (data[size - 1] != '\n')
            buffer_append(&line, "\n", 1);
        if (what == 0)
            draw_record(&state, &line);
        else
            draw_line(&state, data, size, &line);
        if (size + line.length <= max) {
            memcpy(data + size, line.data, line.length);
            size += line.length;
        }
        buffer_free(&line);
        if (draw(&state, 2) == 0)
            return size;
    }
    return LLVMFuzzerMutate(data, size, max);
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
        fuzz.pool = batch_pool_new(); /* never freed: allocating would take most of the time */
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

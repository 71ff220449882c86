/* Arbitrary bytes as a file of the format FUZZED_FORMAT, msgpack or batches. The first byte says how many
 * records are decoded at once: rows, bad records and damage must be the same with any number, and good rows
 * must be the same once they are written and read. A file of batches is a header and blocks that are made
 * from the input, with right digests, so that the fuzzer gets past these; the second byte says how. */
#include "formats/formats.h"
#include "fuzz.h"
#include "unit/formats/harness.h"

#include <xxhash.h>

enum { DIGEST_BYTES = 16, HEADER_START = 16, HEAD_BYTES = 16, BLOCKS_MAX = 6 };

/* The schema with times as the harness shows them, and as they are in the input. */
static const char shown_columns[] =
    "a int, b text, c float, d bool, e bytes, t rfc3339, l [int], r [{x int, y text}]";
static const char columns[] = "a int, b text, c float, d bool, e bytes, t us, l [int], r [{x int, y text}]";

static bool is_batches(void)
{
    return FUZZED_FORMAT.is_blocks;
}

static void put_digest(struct byte_buffer *out, size_t begin)
{
    XXH128_canonical_t digest;
    XXH128_canonicalFromHash(&digest, XXH3_128bits(out->data + begin, out->length - begin));
    buffer_append(out, &digest, sizeof(digest));
}

/* Appends a header, the encoder's or one of bytes of the input, then blocks whose sections are bytes of the
 * input, with right lengths and digests. */
static void put_blocks(const struct schema *schema, struct fuzz_input *input, struct byte_buffer *out)
{
    uint8_t how = fuzz_byte(input);
    if (how & 1) {
        uint32_t words[2] = {1, 0}, length = fuzz_below(input, 200);
        buffer_append(out, "LEATBATS", 8);
        words[1] = HEADER_START + length + DIGEST_BYTES;
        buffer_append(out, words, sizeof(words));
        for (uint32_t i = 0; i < length; i++) {
            uint8_t byte = fuzz_byte(input);
            buffer_append(out, &byte, 1);
        }
        put_digest(out, 0);
    } else {
        void *encoder = FUZZED_FORMAT.encoder_new(schema, NULL);
        FUZZED_FORMAT.encode_header(encoder, out);
        FUZZED_FORMAT.encoder_free(encoder);
    }
    for (uint32_t block = 0; block < BLOCKS_MAX && input->at < input->end; block++) {
        size_t begin = out->length;
        uint32_t length = fuzz_below(input, 600);
        length = MIN(length, (uint32_t)(input->end - input->at));
        uint32_t head[4] = {how & 2 && block + 1 == BLOCKS_MAX ? 0x444e454c : 0x4b4c424c,
                            1 + fuzz_below(input, 40), HEAD_BYTES + length + DIGEST_BYTES,
                            fuzz_below(input, 32) | (uint32_t)fuzz_byte(input) << 16};
        buffer_append(out, head, sizeof(head));
        length = MIN(length, (uint32_t)(input->end - input->at));
        buffer_append(out, input->at, length);
        input->at += length;
        head[2] = HEAD_BYTES + length + DIGEST_BYTES;
        memcpy(out->data + begin, head, sizeof(head));
        put_digest(out, begin);
    }
}

/* Whether the header can be read and fits the schema. As in sources, a decoder is made only then: a header
 * from the input may name other columns. */
static bool header_fits(const struct schema *schema, const struct byte_buffer *bytes)
{
    if (FUZZED_FORMAT.header == NULL)
        return true;
    struct arena arena = {.block_bytes = 4096};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    size_t used = 0;
    const char *damage = NULL;
    bool fits = FUZZED_FORMAT.header(NULL, bytes->data, bytes->length, true, &used, &damage) == HEADER_READ &&
                (FUZZED_FORMAT.header_check == NULL ||
                 FUZZED_FORMAT.header_check(schema, NULL, (struct str){bytes->data, used}, &diags));
    arena_free(&arena);
    return fits;
}

static void terminate(struct byte_buffer *text)
{
    buffer_append(text, "", 1);
    text->length--;
}

/* Whether a line is that of a good row which can be read again: times beyond the calendar are shown as
 * numbers, and cannot. */
static bool is_good_row(const char *line)
{
    const char *end = strchr(line, '\n'), *time = memmem(line, (size_t)(end - line), "\"t\":\"", 5);
    return *line == '{' && (time == NULL || (time[9] == '-' && time[12] == '-'));
}

/* The good rows must be the same once they are written and read. */
static void check_written(const struct byte_buffer *rows)
{
    struct arena arena = {.block_bytes = 4096};
    const struct schema *schema = harness_schema(&arena, shown_columns);
    struct byte_buffer good = {0}, bytes = {0}, again = {0};
    struct raw_record records[BATCH_ROWS];
    uint32_t count = 0;
    for (const char *at = rows->data; *at != '\0'; at = strchr(at, '\n') + 1)
        if (is_good_row(at) && count < BATCH_ROWS) {
            buffer_append(&good, at, (size_t)(strchr(at, '\n') - at) + 1);
            count++;
        }
    if (count > 0) {
        struct format_split split = {
            .data = good.data, .bytes = good.length, .is_last = true, .max = BATCH_ROWS, .records = records};
        format_json.split(&split);
        buffer_reserve(&good, RAW_PADDING);
        struct batch_pool *pool = batch_pool_new();
        struct raw_batch raw = {
            .data = good.data, .data_bytes = good.length, .records = records, .count = split.count};
        struct decode_output output = {.batch = batch_new(pool, schema, split.count)};
        output.bad = arena_array(&output.batch->arena, struct bad_record, split.count);
        memset(output.batch->event_time, 0, split.count * sizeof(int64_t));
        void *decoder = format_json.decoder_new(schema, NULL),
             *encoder = FUZZED_FORMAT.encoder_new(schema, NULL);
        format_json.decode(decoder, &raw, &output);
        must(split.count == count && output.bad_count == 0, "rows are good JSON");
        if (FUZZED_FORMAT.encode_header != NULL)
            FUZZED_FORMAT.encode_header(encoder, &bytes);
        FUZZED_FORMAT.encode(encoder, output.batch, 0, split.count, &bytes);
        if (FUZZED_FORMAT.encode_end != NULL)
            FUZZED_FORMAT.encode_end(encoder, &bytes);
        FUZZED_FORMAT.encoder_free(encoder);
        format_json.decoder_free(decoder);
        batch_release(output.batch);
        batch_pool_free(pool);
        harness_decode(&FUZZED_FORMAT, schema, NULL, bytes.data, bytes.length, BATCH_ROWS, &again);
        must(again.length == good.length && memcmp(again.data, good.data, good.length) == 0,
             "rows are the same once written and read");
    }
    buffer_free(&good);
    buffer_free(&bytes);
    buffer_free(&again);
    arena_free(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, data + size};
    struct arena arena = {.block_bytes = 4096};
    const struct schema *schema = harness_schema(&arena, columns);
    struct byte_buffer bytes = {0}, rows = {0}, again = {0};
    uint32_t at_once = 1 + fuzz_byte(&input) % 5;
    if (is_batches())
        put_blocks(schema, &input, &bytes);
    else
        buffer_append(&bytes, input.at, (size_t)(input.end - input.at));
    if (bytes.length > 0 && header_fits(schema, &bytes)) {
        harness_decode(&FUZZED_FORMAT, schema, NULL, bytes.data, bytes.length, BATCH_ROWS, &rows);
        terminate(&rows);
        if (!is_batches()) {
            harness_decode(&FUZZED_FORMAT, schema, NULL, bytes.data, bytes.length, at_once, &again);
            terminate(&again);
            must(strcmp(rows.data, again.data) == 0, "the same rows, however they are cut");
        }
        check_written(&rows);
    }
    buffer_free(&bytes);
    buffer_free(&rows);
    buffer_free(&again);
    arena_free(&arena);
    return 0;
}

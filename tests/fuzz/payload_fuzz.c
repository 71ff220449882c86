#include "fuzz/payload_fuzz.h"

#include "unit/formats/harness.h"

#include <stdio.h>
#include <stdlib.h>

enum { COPIES = 3 };

void payload_fuzz_must(bool is_true, const char *what)
{
    if (is_true)
        return;
    fprintf(stderr, "fuzz: not so: %s\n", what);
    abort();
}

void payload_fuzz_open(struct payload_fuzz *fuzz, const struct format_kind *format, const char *name,
                       struct str schema_text, const char *message, const char *columns)
{
    *fuzz = (struct payload_fuzz){.format = format};
    diag_list_init(&fuzz->diags, &fuzz->arena);
    fuzz->schema = harness_schema(&fuzz->arena, columns);
    fuzz->payload = payload_of_text(format, name, schema_text, str_from(message), fuzz->schema, &fuzz->diags);
    payload_fuzz_must((fuzz->payload == NULL) == (fuzz->diags.errors > 0),
                      "a schema is refused with reasons");
    fuzz->pool = batch_pool_new();
}

void payload_fuzz_close(struct payload_fuzz *fuzz)
{
    payload_close(fuzz->payload);
    batch_pool_free(fuzz->pool);
    arena_free(&fuzz->arena);
}

/* The payloads in memory that ends where it may; row `row` of what comes out. */
static void decode(struct payload_fuzz *fuzz, const struct str *payloads, uint32_t count, uint32_t rows,
                   struct byte_buffer *out)
{
    struct format_config config = {.payload = fuzz->payload};
    struct raw_record records[2 * COPIES];
    size_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        bytes += payloads[i].length;
    char *data = malloc(bytes + RAW_PADDING);
    payload_fuzz_must(data != NULL, "there is memory");
    struct raw_batch raw = {.data = data, .data_bytes = bytes, .records = records, .count = count};
    bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        records[i] = (struct raw_record){(uint32_t)bytes, (uint32_t)payloads[i].length};
        if (payloads[i].length > 0)
            memcpy(data + bytes, payloads[i].data, payloads[i].length);
        bytes += payloads[i].length;
    }
    /* What follows is no end of a number. */
    memset(data + bytes, 0x81, RAW_PADDING);
    struct decode_output output = {.batch = batch_new(fuzz->pool, fuzz->schema, count)};
    output.bad = arena_array(&output.batch->arena, struct bad_record, count);
    void *decoder = fuzz->format->decoder_new(fuzz->schema, &config);
    fuzz->format->decode(decoder, &raw, &output);
    for (uint32_t row = 0; row < count; row += count / rows) {
        harness_exact(&output, row, out);
        buffer_append(out, "\n", 1);
    }
    fuzz->format->decoder_free(decoder);
    batch_release(output.batch);
    free(data);
}

void payload_fuzz_decode(struct payload_fuzz *fuzz, struct str payload, struct byte_buffer *out)
{
    struct str payloads[2 * COPIES];
    struct byte_buffer among = {0};
    for (uint32_t i = 0; i < COPIES; i++) {
        payloads[2 * i] = payload;
        payloads[2 * i + 1] = (struct str){payload.data, payload.length * i / COPIES};
    }
    decode(fuzz, &payload, 1, 1, out);
    decode(fuzz, payloads, 2 * COPIES, COPIES, &among);
    payload_fuzz_must(among.length == COPIES * out->length, "a payload is the same among others and alone");
    for (uint32_t i = 0; i < COPIES; i++)
        payload_fuzz_must(memcmp(among.data + i * out->length, out->data, out->length) == 0,
                          "a payload is the same among others and alone");
    buffer_free(&among);
    out->data[--out->length] = '\0';
}

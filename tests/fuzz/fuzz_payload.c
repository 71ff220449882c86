/* Arbitrary bytes as payloads of CASES (avro_cases, protobuf_cases), and as schemas. The first byte chooses:
 * a schema of the cases, and the other bytes are a payload, for which the format's library must give the same
 * verdict and values; or the other bytes are the text of a schema, a byte 0, and a payload. */
#include "core/buffer.h"
#include "formats/payload.h"
#include "unit/formats/harness.h"
#include "unit/formats/payload_cases.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TEXT_BYTES = 1 << 20, COPIES = 3 };

struct fuzz {
    const struct format_kind *format;
    struct arena arena;
    struct diag_list diags;
    const struct schema *schema;
    struct payload *payload; /* NULL: the schema was refused, with reasons */
    struct batch_pool *pool;
};

static void fuzz_must(bool is_true, const char *what)
{
    if (is_true)
        return;
    fprintf(stderr, "fuzz: not so: %s\n", what);
    abort();
}

static void fuzz_open(struct fuzz *fuzz, const struct format_kind *format, const char *name,
                      struct str schema_text, const char *message, const char *columns)
{
    *fuzz = (struct fuzz){.format = format};
    diag_list_init(&fuzz->diags, &fuzz->arena);
    fuzz->schema = harness_schema(&fuzz->arena, columns);
    fuzz->payload = payload_of_text(format, name, schema_text, str_from(message), fuzz->schema, &fuzz->diags);
    fuzz_must((fuzz->payload == NULL) == (fuzz->diags.errors > 0), "a schema is refused with reasons");
    fuzz->pool = batch_pool_new();
}

static void fuzz_close(struct fuzz *fuzz)
{
    payload_close(fuzz->payload);
    batch_pool_free(fuzz->pool);
    arena_free(&fuzz->arena);
}

/* Decodes the payloads in one batch, in memory that ends right after the padding, and appends the text
 * (harness_exact) of `rows` of the rows, evenly spaced from the first on. */
static void decode(struct fuzz *fuzz, const struct str *payloads, uint32_t count, uint32_t rows,
                   struct byte_buffer *out)
{
    struct format_config config = {.payload = fuzz->payload};
    struct raw_record records[2 * COPIES];
    size_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        bytes += payloads[i].length;
    char *data = malloc(bytes + RAW_PADDING);
    fuzz_must(data != NULL, "there is memory");
    struct raw_batch raw = {.data = data, .data_bytes = bytes, .records = records, .count = count};
    bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        records[i] = (struct raw_record){(uint32_t)bytes, (uint32_t)payloads[i].length};
        if (payloads[i].length > 0)
            memcpy(data + bytes, payloads[i].data, payloads[i].length);
        bytes += payloads[i].length;
    }
    /* Padding that ends no varint, so that a decoder that reads on does not stop there. */
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

/* Decodes the payload alone, and three times with others between them; the results must be the same. Appends
 * the text of the row, as harness_exact writes it. */
static void fuzz_decode(struct fuzz *fuzz, struct str payload, struct byte_buffer *out)
{
    struct str payloads[2 * COPIES];
    struct byte_buffer among = {0};
    for (uint32_t i = 0; i < COPIES; i++) {
        payloads[2 * i] = payload;
        payloads[2 * i + 1] = (struct str){payload.data, payload.length * i / COPIES};
    }
    decode(fuzz, &payload, 1, 1, out);
    decode(fuzz, payloads, 2 * COPIES, COPIES, &among);
    fuzz_must(among.length == COPIES * out->length, "a payload is the same among others and alone");
    for (uint32_t i = 0; i < COPIES; i++)
        fuzz_must(memcmp(among.data + i * out->length, out->data, out->length) == 0,
                  "a payload is the same among others and alone");
    buffer_free(&among);
    out->data[--out->length] = '\0';
}

static void check_payload(const struct payload_case *test, struct fuzz *fuzz, struct str payload)
{
    static char expected[TEXT_BYTES];
    struct byte_buffer out = {0};
    fuzz_decode(fuzz, payload, &out);
    bool is_bad = out.data[0] == '!';
    bool is_good =
        CASES.read(test->schema, payload.data, payload.length, test->names, expected, sizeof(expected));
    fuzz_must(is_good != is_bad || (is_good && CASES.is_stricter(out.data)) || (!is_good && test->has_unread),
              "the library has the same verdict");
    fuzz_must(is_bad || !is_good || strcmp(out.data, expected) == 0, "the library reads the same values");
    buffer_free(&out);
}

static void check_schema(struct str text, struct str payload)
{
    struct fuzz fuzz;
    struct byte_buffer out = {0};
    fuzz_open(&fuzz, CASES.format, CASES.schema_name, text, CASES.message,
              "a int, b text, t us, l [int], e [{x int, y text}]");
    if (fuzz.payload != NULL)
        fuzz_decode(&fuzz, payload, &out);
    buffer_free(&out);
    fuzz_close(&fuzz);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static struct fuzz fuzzes[PAYLOAD_CASES];
    if (size < 1)
        return 0;
    int choice = bytes[0] % (PAYLOAD_CASES + 1);
    struct str rest = {(const char *)bytes + 1, size - 1};
    if (choice < PAYLOAD_CASES) {
        /* Opened once, because libprotobuf takes long to read a schema. */
        if (fuzzes[choice].payload == NULL)
            fuzz_open(&fuzzes[choice], CASES.format, CASES.schema_name, str_from(CASES.cases[choice].schema),
                      CASES.message, CASES.cases[choice].columns);
        fuzz_must(fuzzes[choice].payload != NULL, "the schema is good");
        check_payload(&CASES.cases[choice], &fuzzes[choice], rest);
        return 0;
    }
    const char *end = memchr(rest.data, '\0', rest.length);
    size_t length = end == NULL ? rest.length : (size_t)(end - rest.data);
    size_t used = length + (end != NULL);
    check_schema((struct str){rest.data, length}, (struct str){rest.data + used, rest.length - used});
    return 0;
}

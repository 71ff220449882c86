/* Arbitrary bytes as Avro payloads, and as Avro schemas. The first byte chooses a schema: one of avro_cases,
 * of whose payloads Avro C must say the same; or what follows is the schema's text, a byte 0, and a payload.
 */
#include "fuzz/payload_fuzz.h"
#include "unit/formats/avro_cases.h"
#include "unit/formats/avro_reference.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TEXT_BYTES = 1 << 20 };

static void check_payload(const struct avro_case *test, struct payload_fuzz *fuzz, struct str payload)
{
    static char expected[TEXT_BYTES];
    struct byte_buffer out = {0};
    payload_fuzz_decode(fuzz, payload, &out);
    bool is_bad = out.data[0] == '!';
    bool is_good = avro_reference_read(test->schema, payload.data, payload.length, test->names,
                                       test->is_float, expected, sizeof(expected));
    payload_fuzz_must(is_good != is_bad || (is_good && avro_case_is_stricter(out.data)),
                      "Avro C has the same verdict");
    payload_fuzz_must(is_bad || strcmp(out.data, expected) == 0, "Avro C reads the same values");
    buffer_free(&out);
}

static void check_schema(struct str text, struct str payload)
{
    struct payload_fuzz fuzz;
    struct byte_buffer out = {0};
    payload_fuzz_open(&fuzz, &format_avro, "s.avsc", text, "",
                      "a int, b text, t us, l [int], e [{x int, y text}]");
    if (fuzz.payload != NULL)
        payload_fuzz_decode(&fuzz, payload, &out);
    buffer_free(&out);
    payload_fuzz_close(&fuzz);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static struct payload_fuzz fuzzes[AVRO_CASES];
    if (size < 1)
        return 0;
    unsigned choice = bytes[0] % (AVRO_CASES + 1);
    struct str rest = {(const char *)bytes + 1, size - 1};
    if (choice < AVRO_CASES) {
        if (fuzzes[choice].payload == NULL)
            payload_fuzz_open(&fuzzes[choice], &format_avro, "s.avsc", str_from(avro_cases[choice].schema),
                              "", avro_cases[choice].columns);
        payload_fuzz_must(fuzzes[choice].payload != NULL, "the schema is good");
        check_payload(&avro_cases[choice], &fuzzes[choice], rest);
        return 0;
    }
    const char *end = memchr(rest.data, '\0', rest.length);
    size_t length = end == NULL ? rest.length : (size_t)(end - rest.data);
    size_t used = length + (end != NULL);
    check_schema((struct str){rest.data, length}, (struct str){rest.data + used, rest.length - used});
    return 0;
}

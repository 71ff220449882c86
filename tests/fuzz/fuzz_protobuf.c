/* Arbitrary bytes as messages of Protocol Buffers, and as .proto files. The first byte chooses a schema: one
 * of protobuf_cases, of whose messages libprotobuf must say the same; or what follows is the .proto text, a
 * byte 0, and a message. */
#include "fuzz/payload_fuzz.h"
#include "unit/formats/protobuf_cases.h"
#include "unit/formats/protobuf_reference.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TEXT_BYTES = 1 << 20 };

static void check_payload(const struct protobuf_case *test, struct payload_fuzz *fuzz, struct str payload)
{
    static char expected[TEXT_BYTES];
    struct byte_buffer out = {0};
    payload_fuzz_decode(fuzz, payload, &out);
    bool is_bad = out.data[0] == '!';
    bool is_good = protobuf_reference_read(test->proto, payload.data, payload.length, test->names, expected,
                                           sizeof(expected));
    payload_fuzz_must(is_good != is_bad || (is_good && protobuf_case_is_stricter(out.data)) ||
                          (!is_good && test->has_unread),
                      "libprotobuf has the same verdict");
    payload_fuzz_must(is_bad || !is_good || strcmp(out.data, expected) == 0,
                      "libprotobuf reads the same values");
    buffer_free(&out);
}

static void check_schema(struct str text, struct str payload)
{
    struct payload_fuzz fuzz;
    struct byte_buffer out = {0};
    payload_fuzz_open(&fuzz, &format_protobuf, "m.proto", text, "M",
                      "a int, b text, t us, l [int], e [{x int, y text}]");
    if (fuzz.payload != NULL)
        payload_fuzz_decode(&fuzz, payload, &out);
    buffer_free(&out);
    payload_fuzz_close(&fuzz);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static struct payload_fuzz fuzzes[PROTOBUF_CASES];
    if (size < 1)
        return 0;
    int choice = bytes[0] % (PROTOBUF_CASES + 1);
    struct str rest = {(const char *)bytes + 1, size - 1};
    if (choice < PROTOBUF_CASES) {
        /* libprotobuf takes its time to read a .proto file. */
        if (fuzzes[choice].payload == NULL)
            payload_fuzz_open(&fuzzes[choice], &format_protobuf, "m.proto",
                              str_from(protobuf_cases[choice].proto), "M", protobuf_cases[choice].columns);
        payload_fuzz_must(fuzzes[choice].payload != NULL, "the schema is good");
        check_payload(&protobuf_cases[choice], &fuzzes[choice], rest);
        return 0;
    }
    const char *end = memchr(rest.data, '\0', rest.length);
    size_t length = end == NULL ? rest.length : (size_t)(end - rest.data);
    size_t used = length + (end != NULL);
    check_schema((struct str){rest.data, length}, (struct str){rest.data + used, rest.length - used});
    return 0;
}

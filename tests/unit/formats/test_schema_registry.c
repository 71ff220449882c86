/* Payloads that name their schema, against a small registry (registry.py): schemas that change, come late, or
 * are missing; registries that do not answer, are slow, want a password, or send too much or nonsense. */
#include "unit/formats/harness.h"
#include "unit/formats/payloads.h"
#include "unit/formats/registry.h"
#include "unit/support/patience.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#define RECORD(fields)    "{\\\"type\\\":\\\"record\\\",\\\"name\\\":\\\"R\\\",\\\"fields\\\":[" fields "]}"
#define FIELD(name, type) "{\\\"name\\\":\\\"" name "\\\",\\\"type\\\":\\\"" type "\\\"}"
#define SCHEMA(text)      "{\"schema\":\"" text "\"}"

/* Asks payload_ready for a payload until the answer is not PAYLOAD_LATER; returns the answer. */
static enum payload_status wait_for(struct payloads *payloads, const char *hex)
{
    char bytes[256];
    size_t length = harness_from_hex(hex, bytes);
    for (int64_t since = 0;;) {
        unsigned wakes = __atomic_load_n(&payloads->wakes, __ATOMIC_SEQ_CST);
        enum payload_status status = payload_ready(payloads->payload, bytes, length);
        if (status != PAYLOAD_LATER)
            return status;
        while (wakes == __atomic_load_n(&payloads->wakes, __ATOMIC_SEQ_CST))
            wait_more(&since);
    }
}

static void expect_failure(struct payloads *payloads, const char *hex, enum diag_code code,
                           const char *message)
{
    char bytes[256];
    size_t length = harness_from_hex(hex, bytes);
    assert_int_equal(wait_for(payloads, hex), PAYLOAD_FAILED);
    payload_report(payloads->payload, bytes, length, "clicks/3, offset 17", &payloads->diags);
    assert_int_equal(payloads->diags.errors, 1);
    assert_int_equal(payloads->diags.items[0].code, code);
    const char *found = payloads->diags.items[0].message;
    if (strstr(found, message) == NULL || strncmp(found, "clicks/3, offset 17: ", 21) != 0)
        assert_string_equal(found, message);
    payloads->diags.count = payloads->diags.errors = 0;
}

static const char evolving[] = "{\"schemas\":{\"1\":" SCHEMA(RECORD(FIELD("user", "int") "," FIELD(
    "old", "string"))) ","
                       "\"2\":" SCHEMA(RECORD(FIELD("price", "float") "," FIELD("user", "long") "," FIELD(
                           "extra",
                           "double"))) ","
                                       "\"3\":" SCHEMA(RECORD(FIELD(
                                           "user",
                                           "string"))) ",\"4\":{\"schemaType\":\"JSON\",\"schema\":\"{}\"}}}";

/* Two schemas of writers, and a reader's schema with defaults and an alias. */
static void test_evolution(void **state)
{
    (void)state;
    static const char reader[] = "{\"type\":\"record\",\"name\":\"R\",\"fields\":[{\"name\":\"user\","
                                 "\"type\":\"long\"},{\"name\":\"price\","
                                 "\"type\":\"double\",\"default\":9.5},{\"name\":\"name\",\"aliases\":["
                                 "\"old\"],\"type\":[\"null\",\"string\"],"
                                 "\"default\":null},{\"name\":\"device\",\"type\":\"string\",\"default\":"
                                 "\"phone\"},{\"name\":\"tags\",\"type\":"
                                 "{\"type\":\"array\",\"items\":\"string\"},\"default\":[]}]}";
    struct registry registry;
    struct payloads payloads;
    char asked[4096];
    registry_open(&registry, evolving);
    payloads_open(&payloads, &format_avro, "r.avsc", reader, strlen(reader), NULL, registry.url,
                  "user int, price float, name text, device text, tags [text]");
    assert_non_null(payloads.payload);
    char bytes[] = {0, 0, 0, 0, 1, 0};
    assert_int_equal(payload_ready(payloads.payload, bytes, sizeof(bytes)), PAYLOAD_LATER);
    assert_int_equal(wait_for(&payloads, "00 00000001"), PAYLOAD_READY);
    assert_int_equal(wait_for(&payloads, "00 00000002"), PAYLOAD_READY);
    /* Payloads that name no schema are bad: there is nothing to wait for. */
    assert_int_equal(payload_ready(payloads.payload, "\x01\0\0\0\x09x", 6), PAYLOAD_READY);
    assert_int_equal(payload_ready(payloads.payload, "", 0), PAYLOAD_READY);
    char *text = payloads_decode(
        &payloads, &format_avro,
        "00 00000001 02 0278 | 00 00000002 0000c03f 04 0000000000000000 | 00 00000001 06 00 | "
        "01 00000001 02 0278 | 00 000000 | | 00 00000002 | 00 00000009 02");
    assert_string_equal(text,
                        "{\"user\":1,\"price\":9.5,\"name\":\"x\",\"device\":\"phone\",\"tags\":[]}\n"
                        "{\"user\":2,\"price\":1.5,\"name\":null,\"device\":\"phone\",\"tags\":[]}\n"
                        "{\"user\":3,\"price\":9.5,\"name\":\"\",\"device\":\"phone\",\"tags\":[]}\n"
                        "!0 the payload does not begin with a Schema Registry's header: 0, schema number\n"
                        "!0 the payload does not begin with a Schema Registry's header: 0, schema number\n"
                        "!0 the payload does not begin with a Schema Registry's header: 0, schema number\n"
                        "!5 the payload ends inside a value\n"
                        "!0 the payload's schema is not known\n");
    free(text);
    expect_failure(&payloads, "00 00000003 00", DIAG_BAD_PAYLOAD_SCHEMA,
                   "the field `user` of schema 3 is string, which a column of type int");
    expect_failure(&payloads, "00 00000004 00", DIAG_BAD_PAYLOAD_SCHEMA,
                   "schema 4 is of type JSON in the registry");
    payloads_close(&payloads);
    registry_close(&registry, asked, sizeof(asked));
    assert_string_equal(asked, "/schemas/ids/1\n/schemas/ids/2\n/schemas/ids/3\n/schemas/ids/4\n");
}

/* Without a reader's schema, a column that the writer's schema lacks is null; if it is required,
 * the schema fails. */
static void test_without_reader(void **state)
{
    (void)state;
    struct registry registry;
    struct payloads payloads;
    char asked[4096];
    registry_open(&registry, evolving);
    payloads_open(&payloads, &format_avro, NULL, NULL, 0, NULL, registry.url, "user int, price float!");
    expect_failure(&payloads, "00 00000001", DIAG_BAD_PAYLOAD_SCHEMA, "schema 1 has no field `price`");
    assert_int_equal(wait_for(&payloads, "00 00000002"), PAYLOAD_READY);
    payloads_close(&payloads);
    payloads_open(&payloads, &format_avro, NULL, NULL, 0, NULL, registry.url, "user int, price float");
    assert_int_equal(wait_for(&payloads, "00 00000001"), PAYLOAD_READY);
    char *text = payloads_decode(&payloads, &format_avro, "00 00000001 02 0278");
    assert_string_equal(text, "{\"user\":1,\"price\":null}\n");
    free(text);
    payloads_close(&payloads);
    registry_close(&registry, asked, sizeof(asked));
}

/* payload_ready waits for a schema that comes late; one that the registry lacks makes bad records,
 * and few requests. */
static void test_missing(void **state)
{
    (void)state;
    struct registry registry;
    struct payloads payloads;
    char asked[4096];
    registry_open(&registry, "{\"schemas\":{\"7\":" SCHEMA(
                                 RECORD(FIELD("a", "int"))) "},\"late\":{\"7\":2},\"fail\":2}");
    payloads_open(&payloads, &format_avro, NULL, NULL, 0, NULL, registry.url, "a int");
    payloads.options.registry.wait_us = 10 * US_PER_SECOND;
    assert_int_equal(wait_for(&payloads, "00 00000007"), PAYLOAD_READY);
    assert_int_equal(wait_for(&payloads, "00 00000063"), PAYLOAD_READY);
    char *text = payloads_decode(&payloads, &format_avro, "00 00000007 02 | 00 00000063 02");
    assert_string_equal(text, "{\"a\":1}\n!0 the registry does not have the payload's schema\n");
    free(text);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(payload_ready(payloads.payload, "\0\0\0\0\x63", 5), PAYLOAD_READY);
    payloads_close(&payloads);
    registry_close(&registry, asked, sizeof(asked));
    assert_string_equal(asked,
                        "/schemas/ids/7\n/schemas/ids/7\n/schemas/ids/7\n/schemas/ids/7\n/schemas/ids/7\n"
                        "/schemas/ids/99\n/schemas/ids/99\n/schemas/ids/99\n");
}

/* What registry.py does for `faulty`: a different fault for each schema number. */
static const char faulty[] = "{\"slow\":{\"8\":5},\"huge\":[9],\"strange\":{\"10\":[200,\"<html>\"],\"11\":["
                             "200,{\"a\":1}],\"12\":[404,"
                             "\"<html>\"],\"13\":[403,{\"message\":\"no \\u001b[31m "
                             "rights\"}]},\"away\":{\"14\":\"http://127.0.0.1:1/\"},"
                             "\"schemas\":{\"15\":{\"schema\":\"\\\"int\\\"\",\"references\":[{\"name\":"
                             "\"x\",\"subject\":\"y\",\"version\":1}]},"
                             "\"16\":{\"schema\":\"\\\"int\\\"\",\"references\":[{\"name\":5}]}}}";

static const struct {
    const char *hex, *message;
    int64_t timeout_us;
} failures[] = {
    {"00 00000008", "schema 8 cannot be fetched from the registry: ", 200000},
    {"00 00000009", "schema 9 cannot be fetched from the registry: the answer is larger than 4 MiB",
     20000000},
    {"00 0000000a", "the answer is not JSON", 20000000},
    {"00 0000000b", "the answer has no `schema`", 20000000},
    {"00 0000000c", "it answers 404", 20000000},
    {"00 0000000d", "it answers 403: no [31m rights", 20000000},
    {"00 0000000e", "it answers 301", 20000000},
    {"00 0000000f", "schema 15 cannot be fetched from the registry: it answers 404: Subject not found.",
     20000000},
    {"00 00000010", "a reference in the schema is incomplete, or references are nested too deep", 20000000},
};

static void test_failures(void **state)
{
    (void)state;
    struct registry registry;
    char asked[65536];
    registry_open(&registry, faulty);
    for (size_t i = 0; i < ARRAY_COUNT(failures); i++) {
        struct payloads payloads;
        payloads_open(&payloads, &format_avro, NULL, NULL, 0, NULL, registry.url, "a int");
        payload_close(payloads.payload);
        payloads.options.registry.timeout_us = failures[i].timeout_us;
        assert_true(payload_open(&format_avro, &payloads.options, payloads.schema, payloads_wake, &payloads,
                                 &payloads.diags, &payloads.payload));
        expect_failure(&payloads, failures[i].hex, DIAG_SCHEMA_REGISTRY_FAILED, failures[i].message);
        payloads_close(&payloads);
    }
    registry_close(&registry, asked, sizeof(asked));
}

/* A wrong password ends in an error after one request, without further attempts. */
static void test_password(void **state)
{
    (void)state;
    static const char what[] =
        "{\"user\":\"leat:open sesame\",\"schemas\":{\"1\":" SCHEMA(RECORD(FIELD("a", "int"))) "}}";
    static const char *const passwords[] = {"open sesame", "shut sesame"};
    for (size_t i = 0; i < ARRAY_COUNT(passwords); i++) {
        struct registry registry;
        struct payloads payloads;
        char asked[4096];
        registry_open(&registry, what);
        payloads_open(&payloads, &format_avro, NULL, NULL, 0, NULL, registry.url, "a int");
        payload_close(payloads.payload);
        payloads.options.registry.user = STR("leat");
        payloads.options.registry.password = str_from(passwords[i]);
        payloads.options.registry.wait_us = US_PER_MINUTE;
        assert_true(payload_open(&format_avro, &payloads.options, payloads.schema, payloads_wake, &payloads,
                                 &payloads.diags, &payloads.payload));
        if (i == 0)
            assert_int_equal(wait_for(&payloads, "00 00000001"), PAYLOAD_READY);
        else
            expect_failure(&payloads, "00 00000001", DIAG_SCHEMA_REGISTRY_FAILED,
                           "it answers 401: Unauthorized");
        payloads_close(&payloads);
        registry_close(&registry, asked, sizeof(asked));
        assert_string_equal(asked, i == 0 ? "/schemas/ids/1\n" : "/schemas/ids/1!\n");
    }
}

/* No registry listens: an error comes after wait_us, and closing does not wait. */
static void test_away(void **state)
{
    (void)state;
    struct payloads payloads;
    payloads_open(&payloads, &format_avro, NULL, NULL, 0, NULL, "http://127.0.0.1:1", "a int");
    payloads.options.registry.wait_us = 300 * 1000;
    int64_t begin = os_monotonic_us();
    expect_failure(&payloads, "00 00000001", DIAG_SCHEMA_REGISTRY_FAILED,
                   "schema 1 cannot be fetched from the registry: Failed to connect");
    assert_true(os_monotonic_us() - begin >= 300 * 1000);
    payloads.options.registry.wait_us = US_PER_HOUR;
    assert_int_equal(payload_ready(payloads.payload, "\0\0\0\0\x02", 5), PAYLOAD_LATER);
    usleep(20 * 1000); /* mostly, the first try has failed by then, and the next one is waited for */
    begin = os_monotonic_us();
    payloads_close(&payloads);
    assert_true(os_monotonic_us() - begin < PATIENCE_US);
}

/* Schemas with references, which are fetched, too; message indexes choose the message of a payload. */
static void test_references(void **state)
{
    (void)state;
    static const char what[] =
        "{\"schemas\":{\"1\":{\"schemaType\":\"PROTOBUF\",\"schema\":\"syntax = \\\"proto3\\\"; "
        "import \\\"p/part.proto\\\"; "
        "message A { int32 a = 1; } message M { repeated part.P p = 1; message N { int32 a = 2; "
        "message O { int32 a = 3; } } "
        "}\",\"references\":[{\"name\":\"p/part.proto\",\"subject\":\"p/part\",\"version\":2}]},"
        "\"2\":{\"schema\":\"" RECORD(
            "{\\\"name\\\":\\\"l\\\",\\\"type\\\":{\\\"type\\\":\\\"array\\\",\\\"items\\\":"
            "\\\"S\\\"}}") "\",\"references\":[{\"name\":\"S\",\"subject\":\"s\",\"version\":1}]}},"
                           "\"subjects\":{\"p/part/2\":{\"schema\":\"syntax = \\\"proto3\\\"; "
                           "package part; message P { int32 x = 1; }\"},"
                           "\"s/"
                           "1\":{\"schema\":\"{\\\"type\\\":\\\"record\\\",\\\"name\\\":\\\"S\\\","
                           "\\\"fields\\\":[" FIELD("x", "int") "]}\"}}}";
    struct registry registry;
    struct payloads payloads;
    char asked[4096];
    registry_open(&registry, what);
    payloads_open(&payloads, &format_protobuf, NULL, NULL, 0, NULL, registry.url, "a int");
    static const char *const ready[] = {"00 00000001 00",     "00 00000001 0200",
                                        "00 00000001 040200", "00 00000001 06020000",
                                        "00 00000001 0208",   "00 00000001 0402ffffff0f"};
    for (size_t i = 0; i < ARRAY_COUNT(ready); i++)
        assert_int_equal(wait_for(&payloads, ready[i]), PAYLOAD_READY);
    char *text = payloads_decode(
        &payloads, &format_protobuf,
        "00 00000001 00 0805 | 00 00000001 0200 0806 | 00 00000001 040200 1007 | 00 00000001 06020000 "
        "1808 | 00 00000001 0208 | 00 00000001 0402ffffff0f | 00 00000001 | 00 00000001 01");
    assert_string_equal(text,
                        "{\"a\":5}\n{\"a\":6}\n{\"a\":7}\n{\"a\":8}\n"
                        "!0 the payload's schema has no message of this index\n"
                        "!0 the payload does not begin with a Schema Registry's header: 0, schema number, "
                        "message indexes\n"
                        "!0 the payload does not begin with a Schema Registry's header: 0, schema number, "
                        "message indexes\n"
                        "!0 the payload does not begin with a Schema Registry's header: 0, schema number, "
                        "message indexes\n");
    free(text);
    payloads_close(&payloads);
    payloads_open(&payloads, &format_protobuf, NULL, NULL, 0, "M", registry.url, "p [{x int}]");
    assert_int_equal(wait_for(&payloads, "00 00000001 0202"), PAYLOAD_READY);
    assert_int_equal(wait_for(&payloads, "00 00000001 00"), PAYLOAD_READY);
    text = payloads_decode(&payloads, &format_protobuf, "00 00000001 0202 0a020805 | 00 00000001 00 0805");
    assert_string_equal(text, "{\"p\":[{\"x\":5}]}\n!0 the payload has another message than `message:` "
                              "names\n");
    free(text);
    payloads_close(&payloads);
    payloads_open(&payloads, &format_avro, NULL, NULL, 0, NULL, registry.url, "l [{x int}]");
    assert_int_equal(wait_for(&payloads, "00 00000002"), PAYLOAD_READY);
    text = payloads_decode(&payloads, &format_avro, "00 00000002 02 0a 00");
    assert_string_equal(text, "{\"l\":[{\"x\":5}]}\n");
    free(text);
    payloads_close(&payloads);
    registry_close(&registry, asked, sizeof(asked));
}

static void *decode_again_and_again(void *argument)
{
    struct payloads *payloads = argument;
    for (int i = 0; i < 200; i++) {
        char *text =
            payloads_decode(payloads, &format_avro, "00 00000001 02|00 00000011 00 04|00 00000001 06");
        assert_string_equal(text, "{\"a\":1}\n{\"a\":2}\n{\"a\":3}\n");
        free(text);
    }
    return NULL;
}

/* Threads decode with known schemas while another asks for more. Schemas 1 and 17 share a slot of
 * the recent ones. */
static void test_threads(void **state)
{
    (void)state;
    static const char schema[] = SCHEMA(RECORD(FIELD("a", "int")));
    static const char other[] = SCHEMA(RECORD(FIELD("b", "string") "," FIELD("a", "int")));
    struct registry registry;
    struct payloads payloads;
    struct byte_buffer what = {0};
    char asked[4096], hex[16];
    pthread_t threads[3];
    buffer_printf(&what, "{\"schemas\":{\"1\":%s", schema);
    for (int i = 2; i < 40; i++)
        buffer_printf(&what, ",\"%d\":%s", i, i == 17 ? other : schema);
    buffer_printf(&what, "}}");
    registry_open(&registry, what.data);
    payloads_open(&payloads, &format_avro, NULL, NULL, 0, NULL, registry.url, "a int");
    assert_int_equal(wait_for(&payloads, "00 00000001"), PAYLOAD_READY);
    assert_int_equal(wait_for(&payloads, "00 00000011"), PAYLOAD_READY);
    for (size_t i = 0; i < ARRAY_COUNT(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, decode_again_and_again, &payloads), 0);
    for (int i = 1; i < 41; i++) {
        snprintf(hex, sizeof(hex), "00 000000%02x", i);
        assert_int_equal(wait_for(&payloads, hex), PAYLOAD_READY);
    }
    for (size_t i = 0; i < ARRAY_COUNT(threads); i++)
        pthread_join(threads[i], NULL);
    payloads_close(&payloads);
    registry_close(&registry, asked, sizeof(asked));
    buffer_free(&what);
}

static void test_options(void **state)
{
    (void)state;
    static const struct {
        const struct format_kind *format;
        const char *file, *message, *url, *user, *password;
        enum diag_code code; /* DIAG_NONE: good */
        bool is_warning;
    } cases[] = {
        {&format_json, "", "", "", "", "", DIAG_NONE, false},
        {&format_json, "a.avsc", "", "", "", "", DIAG_OPTIONS_CLASH, false},
        {&format_avro, "", "", "", "", "", DIAG_OPTION_MISSING, false},
        {&format_avro, "a.avsc", "", "", "", "", DIAG_NONE, false},
        {&format_avro, "a.avsc", "M", "", "", "", DIAG_OPTIONS_CLASH, false},
        {&format_avro, "a.avsc", "", "http://h", "", "", DIAG_NONE, false},
        {&format_protobuf, "a.proto", "M", "", "", "", DIAG_NONE, false},
        {&format_protobuf, "a.proto", "M", "http://h", "", "", DIAG_OPTIONS_CLASH, false},
        {&format_avro, "", "", "h:80", "", "", DIAG_OUT_OF_RANGE, false},
        {&format_avro, "", "", "http://", "", "", DIAG_OUT_OF_RANGE, false},
        {&format_avro, "", "", "http://h/?a", "", "", DIAG_OUT_OF_RANGE, false},
        {&format_avro, "", "", "http://h\n", "", "", DIAG_OUT_OF_RANGE, false},
        {&format_avro, "", "", "file:///etc", "", "", DIAG_OUT_OF_RANGE, false},
        {&format_avro, "", "", "http://me:secret@h", "", "", DIAG_OPEN_SECRET, false},
        {&format_avro, "", "", "http://h", "me", "", DIAG_OPTIONS_CLASH, false},
        {&format_avro, "", "", "http://h", "me", "secret", DIAG_OPEN_CONNECTION, true},
        {&format_avro, "", "", "https://h", "me", "secret", DIAG_NONE, false},
        {&format_avro, "", "", "http://127.0.0.1:8081", "me", "secret", DIAG_NONE, false},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct arena arena = {0};
        struct diag_list diags;
        struct payload_options options = {.schema_file = str_from(cases[i].file),
                                          .message = str_from(cases[i].message),
                                          .registry = {.url = str_from(cases[i].url),
                                                       .user = str_from(cases[i].user),
                                                       .password = str_from(cases[i].password)}};
        diag_list_init(&diags, &arena);
        bool is_good = payload_bind(cases[i].format, &options, &diags, (struct span){0, 0});
        assert_int_equal(is_good, cases[i].code == DIAG_NONE || cases[i].is_warning);
        assert_int_equal(diags.count, cases[i].code != DIAG_NONE);
        if (diags.count > 0) {
            assert_int_equal(diags.items[0].code, cases[i].code);
            assert_null(strstr(diags.items[0].message, "secret"));
        }
        arena_free(&arena);
    }
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options),        cmocka_unit_test(test_evolution),
        cmocka_unit_test(test_without_reader), cmocka_unit_test(test_missing),
        cmocka_unit_test(test_failures),       cmocka_unit_test(test_password),
        cmocka_unit_test(test_away),           cmocka_unit_test(test_references),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

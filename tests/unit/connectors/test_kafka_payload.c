/* Source `kafka` with payloads that need a schema, against librdkafka's mock cluster and a small registry:
 * records wait for their schema, none is lost, and those before a record that stops the job are read. */
#include "unit/connectors/kafka_mock.h"
#include "unit/connectors/rig.h"
#include "unit/formats/harness.h"
#include "unit/formats/registry.h"
#include "unit/support/patience.h"
#include "unit/support/temporary.h"

#include <signal.h>
#include <stdlib.h>

#define RECORD(fields)    "{\\\"type\\\":\\\"record\\\",\\\"name\\\":\\\"R\\\",\\\"fields\\\":[" fields "]}"
#define FIELD(name, type) "{\\\"name\\\":\\\"" name "\\\",\\\"type\\\":\\\"" type "\\\"}"
#define SCHEMA(text)      "{\"schema\":\"" text "\"}"

static int set_up(void **state)
{
    struct mock *mock = *state = mock_new();
    rd_kafka_mock_topic_create(mock->cluster, "clicks", 1, 1);
    return 0;
}

/* Produces payloads that are given in hex, with `|` between them; "null": a tombstone. */
static void produce(struct mock *mock, const char *hex)
{
    char *copy = strdup(hex), bytes[512];
    for (char *part = copy, *next; part != NULL; part = next) {
        next = strchr(part, '|');
        if (next != NULL)
            *next++ = '\0';
        bool is_null = strstr(part, "null") != NULL;
        size_t length = is_null ? 0 : harness_from_hex(part, bytes);
        assert_int_equal(rd_kafka_producev(mock->producer, RD_KAFKA_V_TOPIC("clicks"),
                                           RD_KAFKA_V_PARTITION(0),
                                           RD_KAFKA_V_VALUE(is_null ? NULL : bytes, length),
                                           RD_KAFKA_V_TIMESTAMP(1700000000000),
                                           RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_END),
                         0);
    }
    assert_int_equal(rd_kafka_flush(mock->producer, 10000), 0);
    free(copy);
}

/* Reads until the answer is `status`, not READ_LATER; returns all rows as text, malloc'd. */
static char *read_all(struct rig_source *rig, enum read_status status)
{
    struct byte_buffer out = {0};
    int64_t since = 0;
    for (enum read_status got = READ_LATER; got == READ_LATER;) {
        struct rig_reading part = rig_read(rig, 0);
        char *text = rig_text(&part);
        buffer_append(&out, text, strlen(text));
        free(text);
        got = part.status;
        rig_reading_free(&part);
        assert_true(got == READ_LATER || got == status);
        wait_more(&since);
    }
    buffer_append(&out, "", 1);
    return out.data;
}

static bool open_source(struct rig_source *rig, struct mock *mock, const char *more, const char *schema)
{
    static char options[1024]; /* option values point into it */
    snprintf(options, sizeof(options), "{ brokers: \"%s\", topic: \"clicks\", %s }",
             rd_kafka_mock_cluster_bootstraps(mock->cluster), more);
    return rig_source_bind(rig, &source_kafka, options, schema) && rig_source_begin(rig);
}

/* A schema that the registry gives late, one that it does not have, bytes without a schema number, a
 * tombstone: live, and up to the end of the log. */
static void test_registry(void **state)
{
    struct mock *mock = *state;
    struct registry registry;
    static const char *const more[] = {"", ", until: latest"};
    char asked[4096], options[512];
    registry_open(&registry,
                  "{\"schemas\":{\"1\":" SCHEMA(RECORD(FIELD("n", "int"))) ",\"2\":" SCHEMA(RECORD(
                      FIELD("s", "string") "," FIELD("n", "long"))) "},\"late\":{\"2\":2},\"fail\":1}");
    produce(mock, "00 00000001 02|00 00000001 04|00 00000002 0278 06|ff|null|00 00000009 02|00 00000001 08");
    for (size_t i = 0; i < ARRAY_COUNT(more); i++) {
        struct rig_source rig;
        snprintf(options, sizeof(options), "format: avro, registry: { url: \"%s\" }%s", registry.url,
                 more[i]);
        assert_true(open_source(&rig, mock, options, "n int, s text"));
        char *text = read_all(&rig, i == 0 ? READ_QUIET : READ_END);
        assert_string_equal(
            text, "{\"n\":1,\"s\":null}\n{\"n\":2,\"s\":null}\n{\"n\":3,\"s\":\"x\"}\n"
                  "!0 the payload does not begin with a Schema Registry's header: 0, schema number\n"
                  "!-1 no payload (a tombstone), and the source has no column for the key\n"
                  "!0 the registry does not have the payload's schema\n{\"n\":4,\"s\":null}\n");
        free(text);
        rig_source_close(&rig);
    }
    registry_close(&registry, asked, sizeof(asked));
}

/* A schema that does not fit the columns stops the job at its first record, with the offset in the message;
 * the records before it are read. */
static void test_schema_that_does_not_fit(void **state)
{
    struct mock *mock = *state;
    struct registry registry;
    struct rig_source rig;
    char asked[4096], options[512];
    registry_open(&registry, "{\"schemas\":{\"1\":" SCHEMA(RECORD(FIELD("n", "int"))) ",\"2\":" SCHEMA(
                                 RECORD(FIELD("n", "string"))) "}}");
    produce(mock, "00 00000001 02|00 00000002 0278|00 00000001 04");
    snprintf(options, sizeof(options), "format: avro, registry: { url: \"%s\" }", registry.url);
    assert_true(open_source(&rig, mock, options, "n int"));
    char *text = read_all(&rig, READ_ERROR);
    assert_string_equal(text, "{\"n\":1}\n");
    assert_string_equal(rig_error(&rig.diags), "E0614");
    assert_non_null(strstr(rig_message(&rig),
                           "clicks/0, offset 1: the field `n` of schema 2 is string, which a column of type "
                           "int does not take"));
    free(text);
    rig_source_close(&rig);
    registry_close(&registry, asked, sizeof(asked));
}

/* One schema for all records, from a file. */
static void test_files(void **state)
{
    struct mock *mock = *state;
    struct rig_source rig;
    char directory[TEMPORARY_PATH_BYTES], path[512], options[1024];
    temporary_make(directory);
    snprintf(path, sizeof(path), "%s/click.proto", directory);
    static const char proto[] = "syntax = \"proto3\"; message A {} message Click { int64 n = 1; }";
    rig_write_file(path, proto, strlen(proto));
    produce(mock, "0805|0806|08");
    snprintf(options, sizeof(options), "format: protobuf, schema_file: \"%s\", message: \"Click\"", path);
    assert_true(open_source(&rig, mock, options, "n int"));
    char *text = read_all(&rig, READ_QUIET);
    assert_string_equal(text, "{\"n\":5}\n{\"n\":6}\n!1 the payload ends inside a value\n");
    free(text);
    rig_source_close(&rig);
    assert_false(open_source(&rig, mock, options, "m int"));
    assert_string_equal(rig_error(&rig.diags), "E0614");
    rig_source_close(&rig);
    assert_false(open_source(&rig, mock, "format: protobuf, schema_file: \"/no/such.proto\"", "n int"));
    assert_string_equal(rig_error(&rig.diags), "E0601");
    rig_source_close(&rig);
    assert_false(open_source(&rig, mock, "format: avro", "n int"));
    assert_string_equal(rig_error(&rig.diags), "E0402");
    rig_source_close(&rig);
    temporary_remove(directory);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_registry, set_up, mock_tear_down),
        cmocka_unit_test_setup_teardown(test_schema_that_does_not_fit, set_up, mock_tear_down),
        cmocka_unit_test_setup_teardown(test_files, set_up, mock_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

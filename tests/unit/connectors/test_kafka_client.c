/* Kafka clients without a broker: which options a job may set and combine, and the
 * messages about failures. */
#include "connectors/kafka/errors.h"
#include "connectors/kafka/properties.h"
#include "connectors/kafka/token.h"
#include "unit/connectors/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

extern const struct source_kind source_kafka;

#define COMMON "brokers: \"localhost:9092\", topic: \"clicks\""

/* Binds the options: the first diagnostic must have `code` ("": there is none) and contain `says`
 * if not NULL. */
static void check_options(const char *options, const char *schema, const char *code, const char *says)
{
    struct rig_source rig;
    bool is_good = rig_source_bind(&rig, &source_kafka, options, schema);
    const char *found = rig.diags.count == 0 ? "" : diag_code_name(rig.diags.items[0].code);
    if (strcmp(found, code) != 0 || is_good != (rig.diags.errors == 0))
        fail_msg("%s: %s, expected %s: %s", options, found, code,
                 rig.diags.count == 0 ? "" : rig_message(&rig));
    if (says != NULL && strstr(rig_message(&rig), says) == NULL)
        fail_msg("%s: not said `%s`: %s", options, says, rig_message(&rig));
    rig_source_close(&rig);
}

static void test_options(void **state)
{
    (void)state;
    check_options("{ " COMMON " }", "a int", "", NULL);
    check_options("{ " COMMON " }", NULL, "E0402", "schema");
    check_options("{ topic: \"clicks\" }", "a int", "E0402", "brokers");
    check_options("{ brokers: \"\", topic: \"clicks\" }", "a int", "E0404", "names no broker");
    check_options("{ brokers: \"localhost:9092,,x:1\", topic: \"clicks\" }", "a int", "E0404", "host:port");
    check_options("{ brokers: \"http://localhost:9092\", topic: \"clicks\" }", "a int", "E0404", "host:port");
    check_options("{ " COMMON ", group: \"g\" }", "a int", "E0407", "exactly once");
    check_options("{ brokers: \"localhost:9092\", topic: \"a b\" }", "a int", "E0404", "`a b`");
    check_options("{ brokers: \"localhost:9092\", topic: \"\" }", "a int", "E0404", NULL);
    check_options("{ brokers: \"localhost:9092\", topic: [] }", "a int", "E0402", "empty list");
    check_options("{ brokers: \"localhost:9092\", topic: [\"^a(\", \"b\"] }", "a int", "E0307", "^a(");
    check_options("{ brokers: \"localhost:9092\", topic: [\"^a.*\", \"b\"] }", "a int", "", NULL);
    check_options("{ " COMMON ", format: csv, delimiter: \"ab\" }", "a int", "E0404", "delimiter");
    check_options("{ " COMMON ", format: csv }", "a [int]", "E0303", "csv");
    check_options("{ " COMMON ", format: raw }", "a text", "", NULL);
    check_options("{ " COMMON ", format: raw }", "a int", "E0303", NULL);
    check_options("{ " COMMON ", format: raw, meta: { key: k } }", "a bytes, k text", "", NULL);
}

static void test_start(void **state)
{
    (void)state;
    check_options("{ " COMMON ", start: latest }", "a int", "", NULL);
    check_options("{ " COMMON ", start: time(\"2026-01-31T12:00:00Z\") }", "a int", "", NULL);
    check_options("{ " COMMON ", start: offsets(0, 5) }", "a int", "", NULL);
    check_options("{ " COMMON ", start: newest }", "a int", "E0405", "earliest, latest");
    check_options("{ " COMMON ", start: 5 }", "a int", "E0405", NULL);
    check_options("{ " COMMON ", start: time(5) }", "a int", "E0405", NULL);
    check_options("{ " COMMON ", start: time(\"yesterday\") }", "a int", "E0404", "not a time");
    check_options("{ " COMMON ", start: offsets() }", "a int", "E0405", NULL);
    check_options("{ " COMMON ", start: offsets(\"a\") }", "a int", "E0405", NULL);
    check_options("{ brokers: \"localhost\", topic: [\"a\", \"b\"], start: offsets(1) }", "a int", "E0407",
                  "one topic");
}

static void test_meta_options(void **state)
{
    (void)state;
    check_options("{ " COMMON
                  ", meta: { key: k, offset: o, partition: p, topic: t, timestamp: at, headers: { h: "
                  "\"x-h\" } } }",
                  "v int, k bytes, o int, p int, t text, at ms, h text", "", NULL);
    check_options("{ " COMMON ", meta: { key: k } }", "a int", "E0302", "`k`");
    check_options("{ " COMMON ", meta: { key: k } }", "a int, k int", "E0303", "text` or `bytes");
    check_options("{ " COMMON ", meta: { offset: k } }", "a int, k text", "E0303", "k: int");
    check_options("{ " COMMON ", meta: { timestamp: k } }", "a int, k int", "E0303", "k: time(ms)");
    check_options("{ " COMMON ", meta: { offset: k, partition: k } }", "a int, k int", "E0406",
                  "named twice");
    check_options("{ " COMMON ", meta: { headers: { k: 5 } } }", "a int, k text", "E0403", "header");
    check_options("{ " COMMON ", meta: { key: a } }", "a text", "E0402", "left for the payload");
}

static void test_security(void **state)
{
    (void)state;
    check_options("{ brokers: \"10.1.1.1:9092\", topic: \"a\" }", "a int", "E0609", "10.1.1.1:9092");
    check_options("{ brokers: \"127.0.0.1:9092, kafka-2:9092\", topic: \"a\" }", "a int", "E0609", "kafka-2");
    check_options("{ brokers: \"kafka:9092\", topic: \"a\", security: { protocol: ssl } }", "a int", "",
                  NULL);
    check_options("{ " COMMON ", security: { protocol: sasl_ssl, user: \"u\", password: \"secret\" } }",
                  "a int", "E0408", "is a secret");
    check_options("{ " COMMON ", security: { protocol: sasl_ssl, user: \"u\" } }", "a int", "E0407",
                  "`user` and `password`");
    check_options("{ " COMMON ", security: { user: \"u\" } }", "a int", "E0407", "SASL");
    check_options("{ " COMMON ", security: { ca: \"ca.pem\" } }", "a int", "E0407", "TLS");
    check_options("{ " COMMON ", security: { protocol: ssl, key: \"k.pem\" } }", "a int", "E0407",
                  "belong together");
    check_options("{ " COMMON
                  ", security: { protocol: ssl, certificate: \"c\", key: \"k\", token_file: \"t\" } }",
                  "a int", "E0407", "SASL");
    check_options("{ " COMMON ", security: { protocol: sasl_ssl, mechanism: oauthbearer } }", "a int",
                  "E0407", "token");
    check_options("{ " COMMON
                  ", security: { protocol: sasl_ssl, mechanism: oauthbearer, token_file: \"t\" } }",
                  "a int", "", NULL);
    check_options(
        "{ " COMMON
        ", security: { protocol: sasl_ssl, mechanism: oauthbearer, token_file: \"t\", user: \"u\" } }",
        "a int", "E0407", "instead of");
}

static void test_properties(void **state)
{
    (void)state;
    static const char *const forbidden[] = {
        "plugin_library_paths: \"x.so\"",
        "sasl_kerberos_kinit_cmd: \"sh\"",
        "ssl_engine_location: \"x\"",
        "sasl_oauthbearer_token_endpoint_url: \"http://x\"",
        "isolation_level: read_uncommitted",
        "auto_offset_reset: latest",
        "check_crcs: false",
        "ssl_endpoint_identification_algorithm: none",
        "enable_ssl_certificate_verification: false",
        "bootstrap_servers: \"x\"",
        "group_id: \"x\"",
        "sasl_password: \"x\"",
        "enable_auto_commit: true",
        "debug: all",
    };
    char options[256];
    for (size_t i = 0; i < ARRAY_COUNT(forbidden); i++) {
        snprintf(options, sizeof(options), "{ %s, properties: { %s } }", COMMON, forbidden[i]);
        check_options(options, "a int", "E0401", "cannot be set in a job");
    }
    check_options("{ " COMMON
                  ", properties: { socket_timeout_ms: 30s, client_rack: \"r1\", `fetch.min.bytes`: 1KB, "
                  "socket_keepalive_enable: true, broker_address_family: v4 } }",
                  "a int", "", NULL);
    check_options("{ " COMMON ", properties: { socket_timeout: 1 } }", "a int", "E0401", "socket.timeout.ms");
    check_options("{ " COMMON ", properties: { linger_ms: 1 } }", "a int", "E0401", "only for sinks");
    check_options("{ " COMMON ", properties: { socket_timeout_ms: 1 } }", "a int", "E0404", "range");
    check_options("{ " COMMON ", properties: { socket_timeout_ms: [1] } }", "a int", "E0403", NULL);
    check_options("{ " COMMON ", properties: { fetch_min_bytes: 10s } }", "a int", "E0403", NULL);
}

/* --- Errors --- */

static const struct {
    const char *line, *says; /* librdkafka's log line; what leat must say about it */
    bool is_final;           /* no later attempt can succeed */
} lines[] = {
    {"[thrd:localhost:1/bootstrap]: localhost:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection "
     "refused "
     "(after 0ms in state CONNECT)",
     "localhost:1: no process listens at this port", false},
    {"[thrd:nohost:9092/bootstrap]: nohost:9092/bootstrap: Failed to resolve 'nohost:9092': Name or service "
     "not "
     "known (after 1ms in state CONNECT)",
     "nohost:9092: no such host is known", false},
    {"[thrd:sasl_ssl://localhost:9094/bootstrap]: sasl_ssl://localhost:9094/bootstrap: SASL authentication "
     "error: "
     "Authentication failed during authentication due to invalid credentials with SASL mechanism "
     "SCRAM-SHA-256 "
     "(after 312ms in state AUTH_REQ)",
     "localhost:9094: the user or the password is wrong", true},
    {"[thrd:localhost:9093/bootstrap]: localhost:9093/bootstrap: Disconnected while requesting ApiVersion: "
     "might be "
     "caused by incorrect security.protocol configuration (connecting to a SSL listener?)",
     "ends the connection at once: it is starting, or does not speak this protocol", false},
    {"[thrd:127.0.0.1:9093/bootstrap]: 127.0.0.1:9093/1: ApiVersionRequest failed: Local: Timed out: "
     "probably due "
     "to broker version < 0.10",
     "accepts connections but does not answer: it is starting, or it hangs", false},
    {"[thrd:ssl://localhost:9092/bootstrap]: ssl://localhost:9092/bootstrap: SSL handshake failed: "
     "Disconnected: "
     "connecting to a PLAINTEXT broker listener? (after 5ms in state SSL_HANDSHAKE)",
     "ends the connection at once: it is starting, or does not speak TLS at this port", false},
    {"[thrd:ssl://127.0.0.1:9092/bootstrap]: ssl://127.0.0.1:9092/bootstrap: SSL handshake failed: "
     "error:0A000126:SSL routines::unexpected eof while reading (after 8ms in state SSL_HANDSHAKE)",
     "127.0.0.1:9092: the broker ends the connection at once: it is starting, or does not speak TLS", false},
    {"[thrd:ssl://127.0.0.1:9092/bootstrap]: ssl://127.0.0.1:9092/bootstrap: SSL handshake failed: "
     "error:0A00010B:SSL routines::wrong version number (after 8ms in state SSL_HANDSHAKE)",
     "127.0.0.1:9092: the broker does not speak TLS", true},
    {"[thrd:sasl_ssl://localhost:9094/bootstrap]: sasl_ssl://localhost:9094/bootstrap: SASL authentication "
     "error: SaslAuthenticateRequest failed: Local: Broker transport failure (after 0ms in state DOWN)",
     "the connection ends during the login: the network fails", false},
    {"1/1 brokers are down", "1/1 brokers are down", false},
};

static void test_reasons(void **state)
{
    (void)state;
    const struct kafka_client client = {.security = {.password = STR("hush-hush")}};
    char why[512];
    for (size_t i = 0; i < ARRAY_COUNT(lines); i++) {
        struct kafka_errors *errors = kafka_errors_new(&client, NULL);
        assert_int_equal(kafka_errors_why(errors, why, sizeof(why)), 0);
        for (int k = 0; k < 10; k++) /* a broker that is starting fails many times */
            kafka_errors_add(errors, lines[i].line);
        kafka_errors_add(errors, "1/1 brokers are down");
        kafka_errors_why(errors, why, sizeof(why));
        if (strstr(why, lines[i].says) == NULL)
            fail_msg("`%s` of `%s`", why, lines[i].line);
        assert_int_equal(kafka_errors_are_final(errors), lines[i].is_final);
        kafka_errors_free(errors);
    }
    struct kafka_errors *errors = kafka_errors_new(&client, NULL);
    kafka_errors_add(errors, "password=hush-hush");
    assert_int_equal(kafka_errors_why(errors, why, sizeof(why)), 0);
    kafka_errors_free(errors);
}

static void test_certificates(void **state)
{
    (void)state;
    static const struct {
        int code;
        const char *says;
    } codes[] = {{10, "has expired"},
                 {9, "not valid yet"},
                 {62, "another host name"},
                 {64, "another host name"},
                 {18, "not signed by a trusted authority"},
                 {20, "not signed by a trusted authority"}};
    const struct kafka_client client = {0};
    struct arena arena = {0};
    char why[512];
    for (size_t i = 0; i < ARRAY_COUNT(codes); i++) {
        struct kafka_errors *errors = kafka_errors_new(&client, NULL);
        struct diag_list diags;
        diag_list_init(&diags, &arena);
        kafka_errors_certificate(errors, "kafka-1:9093", codes[i].code);
        kafka_errors_add(errors,
                         "[thrd:ssl://kafka-1:9093/bootstrap]: ssl://kafka-1:9093/bootstrap: SSL handshake "
                         "failed: error:0A000086:SSL routines::certificate verify failed: broker "
                         "certificate could not be verified, verify that ssl.ca.location is correctly "
                         "configured");
        kafka_errors_why(errors, why, sizeof(why));
        if (strstr(why, codes[i].says) == NULL || strncmp(why, "kafka-1:9093: ", 14) != 0)
            fail_msg("%d: %s", codes[i].code, why);
        kafka_errors_report(errors, RD_KAFKA_RESP_ERR__TRANSPORT, &diags, "do %s", "this");
        assert_string_equal(rig_error(&diags), "E0610");
        assert_non_null(strstr(diags.items[0].message, "cannot do this: kafka-1:9093: "));
        assert_non_null(diags.items[0].hint);
        kafka_errors_free(errors);
    }
    arena_free(&arena);
}

static void test_tokens(void **state)
{
    (void)state;
    int64_t ends_ms = 0;
    char subject[32];
    const char *why = NULL;
    /* {"alg":"none"} . {"sub":"leat","exp":1800000000} */
    assert_true(kafka_token_parse(STR("eyJhbGciOiJub25lIn0.eyJzdWIiOiJsZWF0IiwiZXhwIjoxODAwMDAwMDAwfQ."),
                                  &ends_ms, subject, sizeof(subject), &why));
    assert_int_equal(ends_ms, INT64_C(1800000000000));
    assert_string_equal(subject, "leat");
    static const char *const bad[] = {
        "", "a", "a.b", "a.!!.c", "eyJhbGciOiJub25lIn0.eyJzdWIiOiJsZWF0In0.", "..", "a.e30.c"};
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        assert_false(kafka_token_parse(str_from(bad[i]), &ends_ms, subject, sizeof(subject), &why));
        assert_non_null(why);
    }
    /* {"sub":"leat","exp":1e300} and {"sub":"leat","exp":-5}: `exp` is no time. */
    static const char *const far[] = {"a.eyJzdWIiOiJsZWF0IiwiZXhwIjoxZTMwMH0.c",
                                      "a.eyJzdWIiOiJsZWF0IiwiZXhwIjotNX0.c"};
    for (size_t i = 0; i < ARRAY_COUNT(far); i++) {
        assert_false(kafka_token_parse(str_from(far[i]), &ends_ms, subject, sizeof(subject), &why));
        assert_string_equal(why, "its `exp` is not a time in seconds since 1970");
    }
}

static void test_files_that_are_not_there(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    const struct kafka_client client = {.brokers = STR("localhost:1"),
                                        .security = {.protocol = KAFKA_SSL, .ca = STR("/no/such/ca.pem")}};
    struct kafka_errors *errors = NULL;
    assert_null(
        kafka_client_new(&client, RD_KAFKA_CONSUMER, NULL, NULL, STR("j"), STR("s"), &errors, &diags));
    assert_string_equal(rig_error(&diags), "E0610");
    assert_non_null(strstr(diags.items[0].message, "/no/such/ca.pem"));
    kafka_client_free(NULL, NULL);
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_options),
                                       cmocka_unit_test(test_start),
                                       cmocka_unit_test(test_meta_options),
                                       cmocka_unit_test(test_security),
                                       cmocka_unit_test(test_properties),
                                       cmocka_unit_test(test_reasons),
                                       cmocka_unit_test(test_certificates),
                                       cmocka_unit_test(test_tokens),
                                       cmocka_unit_test(test_files_that_are_not_there)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

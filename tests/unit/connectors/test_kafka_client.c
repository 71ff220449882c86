/* Kafka clients without a broker: what a job may set, what goes together, what is said about failures. */
#include "connectors/kafka/errors.h"
#include "connectors/kafka/token.h"
#include "unit/connectors/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* --- errors --- */

static const struct {
    const char *line, *says; /* what it means, or NULL: told in librdkafka's words */
    bool is_final;
} lines[] = {
    {"[thrd:localhost:1/bootstrap]: localhost:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection "
     "refused "
     "(after 0ms in state CONNECT)",
     "localhost:1: nobody listens there", false},
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
     "does not speak this protocol", true},
    {"[thrd:ssl://localhost:9092/bootstrap]: ssl://localhost:9092/bootstrap: SSL handshake failed: "
     "Disconnected: "
     "connecting to a PLAINTEXT broker listener? (after 5ms in state SSL_HANDSHAKE)",
     "does not speak TLS", true},
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
    } codes[] = {{10, "has expired"},       {9, "not valid yet"},    {62, "another host name"},
                 {64, "another host name"}, {18, "nobody we trust"}, {20, "nobody we trust"}};
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reasons), cmocka_unit_test(test_certificates),
                                       cmocka_unit_test(test_tokens),
                                       cmocka_unit_test(test_files_that_are_not_there)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Source `sequence`: a record is a function of its number, so that reading from any position gives the same;
 * keys follow Zipf's law. */
#include "unit/connectors/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

extern const struct source_kind source_sequence;

static void test_anywhere(void **state)
{
    (void)state;
    struct rig_source rig;
    assert_true(
        rig_source_open(&rig, &source_sequence, "{ count: 5000, keys: 7, rate: 3, start: 1h }", NULL));
    struct rig_reading whole = rig_read(&rig, 0);
    assert_int_equal(whole.count, 5);
    assert_int_equal(whole.status, READ_END);
    assert_memory_equal(whole.batches[0].text, "{\"id\":0,\"key\":0,\"value\":0.", 26);
    assert_non_null(
        strstr(whole.batches[0].text, "\"ts\":\"1970-01-01T01:00:00.333333Z\"}\n{\"id\":2,\"key\":2,"));
    assert_non_null(strstr(whole.batches[4].text, "{\"id\":4999,\"key\":1,"));
    for (size_t i = 0; i < whole.count; i++) {
        assert_true(rig.kind->seek(&rig.source, 0, &whole.batches[i].position));
        struct rig_reading rest = rig_read(&rig, 0);
        assert_int_equal(rest.count, whole.count - i);
        assert_string_equal(rest.batches[0].text, whole.batches[i].text);
        rig_reading_free(&rest);
    }
    rig_reading_free(&whole);
    rig_source_close(&rig);
}

static void test_zipf(void **state)
{
    (void)state;
    enum { KEYS = 1000, COUNT = 200000 };
    static const char *const skews[] = {"0.5", "1", "1.5"};
    for (size_t s = 0; s < ARRAY_COUNT(skews); s++) {
        static uint32_t seen[KEYS];
        char options[128];
        struct rig_source rig;
        struct raw_batch raw = {0};
        memset(seen, 0, sizeof(seen));
        snprintf(options, sizeof(options), "{ count: %d, keys: %d, skew: %s }", COUNT, KEYS, skews[s]);
        assert_true(rig_source_open(&rig, &source_sequence, options, NULL));
        while (rig.kind->read(&rig.source, 0, &raw) == READ_BATCH) {
            struct batch *batch = batch_new(rig.pool, rig.source.schema, raw.count);
            struct decode_output output = {.batch = batch};
            rig.kind->decode(&rig.source, NULL, &raw, &output);
            for (uint32_t i = 0; i < raw.count; i++) {
                assert_in_range(batch->columns[1].ints[i], 0, KEYS - 1);
                seen[batch->columns[1].ints[i]]++;
            }
            batch_release(batch);
        }
        /* P(k) is the integral of 1 / x^skew over [k + 1, k + 2), normalized; the test allows four
         * standard deviations. */
        double skew = strtod(skews[s], NULL), sum = 0, weights[KEYS];
        for (int k = 0; k < KEYS; k++) {
            weights[k] = 0;
            for (int i = 0; i < 100; i++) {
                double x = k + 1 + (i + 0.5) / 100;
                weights[k] += s == 1 ? 1 / x : s == 0 ? 1 / __builtin_sqrt(x) : 1 / (x * __builtin_sqrt(x));
            }
            sum += weights[k];
        }
        for (int k = 0; k < KEYS; k += k < 10 ? 1 : 50) {
            double expected = COUNT * weights[k] / sum, difference = seen[k] - expected;
            if (difference * difference > 16 * expected + 16)
                fail_msg("skew %g, key %d: %u times, expected %g", skew, k, seen[k], expected);
        }
        rig_source_close(&rig);
    }
}

/* The digest of the first records is fixed: every machine and compiler flag must give the same numbers. */
static void test_fixed(void **state)
{
    (void)state;
    struct rig_source rig;
    char hex[33];
    struct raw_batch raw = {0};
    assert_true(
        rig_source_open(&rig, &source_sequence, "{ count: 1000, keys: 50, skew: 1.1, seed: 9 }", NULL));
    assert_int_equal(rig.kind->read(&rig.source, 0, &raw), READ_BATCH);
    struct batch *batch = batch_new(rig.pool, rig.source.schema, raw.count);
    struct decode_output output = {.batch = batch};
    rig.kind->decode(&rig.source, NULL, &raw, &output);
    memset(batch->event_time, 0, raw.count * sizeof(int64_t));
    struct batch_digest *digest = batch_digest_new();
    batch_digest_add(digest, batch);
    batch_digest_hex(digest, hex);
    assert_string_equal(hex, "89df0f81443cf556939b4228e28c789f");
    batch_digest_free(digest);
    batch_release(batch);
    rig_source_close(&rig);
}

static void test_options(void **state)
{
    (void)state;
    struct rig_source rig;
    assert_false(rig_source_open(&rig, &source_sequence, "{ count: 1000000000000, rate: 0.001 }", NULL));
    assert_string_equal(rig_error(&rig.diags), "E0407");
    rig_source_close(&rig);
    assert_false(rig_source_open(&rig, &source_sequence, "{ }", "id int"));
    assert_string_equal(rig_error(&rig.diags), "E0407");
    rig_source_close(&rig);
    assert_true(rig_source_open(&rig, &source_sequence, "{ count: 0 }", NULL));
    struct rig_reading none = rig_read(&rig, 0);
    assert_int_equal(none.status, READ_END);
    assert_int_equal(none.count, 0);
    rig_source_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_anywhere), cmocka_unit_test(test_zipf),
                                       cmocka_unit_test(test_fixed), cmocka_unit_test(test_options)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

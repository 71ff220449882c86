/* What an encoder writes, its decoder reads back: random rows of every type, in every format. The bytes do
 * not depend on how the rows are distributed over calls of the encoder. */
#include "unit/formats/harness.h"
#include "unit/support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static const char flat_schema[] = "i int, f float, s text, b bool, y bytes, t rfc3339, j int, k text";
static const char nested_schema[] = "i int, f float, s text, b bool, y bytes, t rfc3339, l [int], m "
                                    "[[text]], e [{x int, y [float], z text}], q bool";

/* Encodes a selection of the batch's rows in calls of random size. */
static void encode_file(const struct format_kind *format, const struct batch *batch, const void *config,
                        uint64_t seed, struct byte_buffer *out)
{
    struct test_random random = {seed};
    void *encoder = format->encoder_new(batch->schema, config);
    if (format->encode_header != NULL)
        format->encode_header(encoder, out);
    for (uint32_t at = 0; at < batch->selected;) {
        uint32_t count = 1 + random_below(&random, 200);
        count = MIN(count, batch->selected - at);
        format->encode(encoder, batch, at, count, out);
        at += count;
        if (format->encoder_save == NULL || !random_chance(&random, 30))
            continue;
        /* Save and load the encoder, as a checkpoint does. */
        struct byte_buffer saved = {0};
        format->encoder_save(encoder, &saved);
        format->encoder_free(encoder);
        encoder = format->encoder_new(batch->schema, config);
        assert_true(format->encoder_load(encoder, saved.data, saved.length));
        buffer_free(&saved);
    }
    if (format->encode_end != NULL)
        format->encode_end(encoder, out);
    format->encoder_free(encoder);
}

/* Random rows of the schema, encoded twice and decoded. They have no NaN, which JSON and
 * CSV cannot express. */
static void round_trip(const struct format_kind *format, const char *schema_text)
{
    struct arena arena = {0};
    const struct schema *schema = harness_schema(&arena, schema_text);
    struct batch_pool *pool = batch_pool_new();
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct batch *batch = harness_batch(pool, schema, seed == 20 ? 0 : (uint32_t)(seed * 53), seed);
        uint16_t sel[BATCH_ROWS];
        struct batch *view = batch_derive(batch, schema);
        view->sel = sel;
        view->selected = 0;
        for (uint32_t i = 0; i < batch->rows; i++)
            if (seed % 3 == 0 || i % 5 != 0)
                sel[view->selected++] = (uint16_t)i;
        struct byte_buffer expected = {0}, bytes = {0}, again = {0}, got = {0};
        harness_json(view, &expected);
        encode_file(format, view, NULL, seed, &bytes);
        encode_file(format, view, NULL, seed + 1000, &again);
        assert_int_equal(bytes.length, again.length);
        if (bytes.length > 0)
            assert_memory_equal(bytes.data, again.data, bytes.length);
        harness_decode(format, schema, NULL, bytes.data, bytes.length, 100, &got);
        buffer_append(&expected, "", 1);
        buffer_append(&got, "", 1);
        assert_string_equal(got.data, expected.data);
        buffer_free(&expected);
        buffer_free(&bytes);
        buffer_free(&again);
        buffer_free(&got);
        batch_release(view);
        batch_release(batch);
    }
    batch_pool_free(pool);
    arena_free(&arena);
}

static void test_json(void **state)
{
    (void)state;
    round_trip(&format_json, nested_schema);
}

static void test_csv(void **state)
{
    (void)state;
    round_trip(&format_csv, flat_schema);
    round_trip(&format_csv, "i int");
}

static void test_msgpack(void **state)
{
    (void)state;
    round_trip(&format_msgpack, nested_schema);
}

static void test_batches(void **state)
{
    (void)state;
    round_trip(&format_batches, nested_schema);
    round_trip(&format_batches, flat_schema);
}

/* Times as numbers in every unit, and the shortest texts of floats. */
static void test_written_forms(void **state)
{
    (void)state;
    static const struct {
        enum time_unit unit;
        const char *expected;
    } units[] = {
        {TIME_UNIT_RFC3339, "{\"t\":\"1969-12-31T23:59:59.999999Z\"}\n"},
        {TIME_UNIT_US, "{\"t\":-1}\n"},
        {TIME_UNIT_MS, "{\"t\":-1}\n"},
        {TIME_UNIT_S, "{\"t\":-1}\n"},
        {TIME_UNIT_NS, "{\"t\":-1000}\n"},
    };
    static const struct {
        double value;
        const char *expected;
    } floats[] = {
        {0.1, "0.1"},
        {-0.0, "-0"},
        {1e21, "1e+21"},
        {123456789, "123456789"},
        {0.000001, "0.000001"},
        {1.0 / 3, "0.3333333333333333"},
        {5e-324, "5e-324"},
        {1e-7, "1e-07"},
        {999999999.999999, "999999999.999999"},
        {0.30000000000000004, "0.30000000000000004"},
        {-1.5, "-1.5"},
        {1e9, "1000000000"},
    };
    struct arena arena = {0};
    struct batch_pool *pool = batch_pool_new();
    for (size_t i = 0; i < ARRAY_COUNT(units); i++) {
        struct batch *batch = batch_new(pool, harness_schema(&arena, "t us"), 1);
        struct format_config config = {.times = units[i].unit};
        struct byte_buffer out = {0};
        batch->columns[0].ints[0] = -1;
        void *encoder = format_json.encoder_new(batch->schema, &config);
        format_json.encode(encoder, batch, 0, 1, &out);
        buffer_append(&out, "", 1);
        assert_string_equal(out.data, units[i].expected);
        format_json.encoder_free(encoder);
        buffer_free(&out);
        batch_release(batch);
    }
    for (size_t i = 0; i < ARRAY_COUNT(floats); i++) {
        struct batch *batch = batch_new(pool, harness_schema(&arena, "f float"), 1);
        struct byte_buffer out = {0};
        batch->columns[0].floats[0] = floats[i].value;
        harness_json(batch, &out);
        buffer_append(&out, "", 1);
        assert_string_equal(out.data, arena_printf(&arena, "{\"f\":%s}\n", floats[i].expected));
        buffer_free(&out);
        batch_release(batch);
    }
    batch_pool_free(pool);
    arena_free(&arena);
}

/* Times are rounded down to whole units, and read back so; in nanoseconds every microsecond is written
 * exactly, also where the number exceeds 64 bits. */
static void test_times_in_units(void **state)
{
    (void)state;
    static const struct {
        enum time_unit unit;
        const char *schema;
        int64_t us;
    } units[] = {{TIME_UNIT_S, "t s", 1000000},
                 {TIME_UNIT_MS, "t ms", 1000},
                 {TIME_UNIT_US, "t us", 1},
                 {TIME_UNIT_NS, "t ns", 1}};
    static const int64_t times[] = {
        0, 1, -1, 1700000000445001, -1700000000445001, 9223372036854775, -9223372036854775};
    static const struct format_kind *const formats[] = {&format_json, &format_csv, &format_msgpack};
    struct arena arena = {0};
    struct batch_pool *pool = batch_pool_new();
    for (size_t f = 0; f < ARRAY_COUNT(formats); f++)
        for (size_t u = 0; u < ARRAY_COUNT(units); u++) {
            const struct schema *schema = harness_schema(&arena, units[u].schema);
            struct format_config config = {.times = units[u].unit};
            struct batch *batch = batch_new(pool, schema, ARRAY_COUNT(times));
            struct byte_buffer bytes = {0}, got = {0}, expected = {0};
            memset(batch->event_time, 0, ARRAY_COUNT(times) * sizeof(int64_t));
            for (size_t i = 0; i < ARRAY_COUNT(times); i++)
                batch->columns[0].ints[i] = times[i];
            encode_file(formats[f], batch, &config, 3, &bytes);
            for (size_t i = 0; i < ARRAY_COUNT(times); i++)
                batch->columns[0].ints[i] -= (times[i] % units[u].us + units[u].us) % units[u].us;
            harness_json(batch, &expected);
            harness_decode(formats[f], schema, &config, bytes.data, bytes.length, 100, &got);
            buffer_append(&expected, "", 1);
            buffer_append(&got, "", 1);
            assert_string_equal(got.data, expected.data);
            buffer_free(&bytes);
            buffer_free(&got);
            buffer_free(&expected);
            batch_release(batch);
        }
    /* Before 1677 and after 2262 nanoseconds exceed 64 bits: JSON and CSV write all digits, MessagePack
     * its own timestamp. */
    for (size_t f = 0; f < ARRAY_COUNT(formats); f++) {
        struct format_config config = {.times = TIME_UNIT_NS};
        struct batch *batch = batch_new(pool, harness_schema(&arena, "t ns"), 2);
        struct byte_buffer bytes = {0}, got = {0};
        memset(batch->event_time, 0, 2 * sizeof(int64_t));
        batch->columns[0].ints[0] = INT64_C(9223372036854776);
        batch->columns[0].ints[1] = -INT64_C(62135596800000000);
        encode_file(formats[f], batch, &config, 3, &bytes);
        if (formats[f] == &format_msgpack) {
            harness_decode(formats[f], batch->schema, &config, bytes.data, bytes.length, 100, &got);
            buffer_append(&got, "", 1);
            assert_string_equal(
                got.data, "{\"t\":\"2262-04-11T23:47:16.854776Z\"}\n{\"t\":\"0001-01-01T00:00:00Z\"}\n");
        } else {
            buffer_append(&bytes, "", 1);
            assert_non_null(strstr(bytes.data, "9223372036854776000"));
            assert_non_null(strstr(bytes.data, "-62135596800000000000"));
        }
        buffer_free(&bytes);
        buffer_free(&got);
        batch_release(batch);
    }
    batch_pool_free(pool);
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json),          cmocka_unit_test(test_csv),
        cmocka_unit_test(test_msgpack),       cmocka_unit_test(test_batches),
        cmocka_unit_test(test_written_forms), cmocka_unit_test(test_times_in_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

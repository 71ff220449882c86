/* Source `kafka` against librdkafka's own mock cluster: which records come, in which batches, when a
 * partition is quiet, and where reading resumes. The mock has no transactions and no retention; tests/kafka
 * uses a real broker. */
#include "unit/connectors/kafka_mock.h"
#include "unit/connectors/rig.h"
#include "unit/support/patience.h"

#include <stdlib.h>

enum { PARTITIONS = 3 };

static int set_up(void **state)
{
    struct mock *mock = *state = mock_new();
    rd_kafka_mock_topic_create(mock->cluster, "clicks", PARTITIONS, 1);
    rd_kafka_mock_topic_create(mock->cluster, "views", 1, 1);
    return 0;
}

/* Produces `count` records {"n":first}, {"n":first + 1}, ... */
static void produce(struct mock *mock, const char *topic, int32_t partition, int first, int count)
{
    for (int n = first; n < first + count; n++) {
        char value[64];
        snprintf(value, sizeof(value), "{\"n\":%d}", n);
        assert_int_equal(rd_kafka_producev(mock->producer, RD_KAFKA_V_TOPIC(topic),
                                           RD_KAFKA_V_PARTITION(partition),
                                           RD_KAFKA_V_VALUE(value, strlen(value)), RD_KAFKA_V_KEY("key", 3),
                                           RD_KAFKA_V_TIMESTAMP(1700000000000 + n),
                                           RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_END),
                         0);
    }
    assert_int_equal(rd_kafka_flush(mock->producer, 10000), 0);
}

static bool open_source(struct rig_source *rig, struct mock *mock, const char *more, const char *schema)
{
    static char options[512]; /* option values point into it */
    snprintf(options, sizeof(options), "{ brokers: \"%s\", %s }",
             rd_kafka_mock_cluster_bootstraps(mock->cluster), more);
    return rig_source_bind(rig, &source_kafka, options, schema) && rig_source_begin(rig);
}

/* Reads until the answer is not READ_LATER; appends the batches to `reading`. */
static enum read_status read_all(struct rig_source *rig, uint32_t partition, struct rig_reading *reading)
{
    for (int64_t since = 0;; wait_more(&since)) {
        struct rig_reading part = rig_read(rig, partition);
        reading->batches =
            realloc(reading->batches, (reading->count + part.count + 1) * sizeof(*reading->batches));
        if (part.count > 0)
            memcpy(reading->batches + reading->count, part.batches, part.count * sizeof(*part.batches));
        reading->count += part.count;
        reading->status = part.status;
        free(part.batches);
        if (reading->status != READ_LATER)
            return reading->status;
    }
}

/* The reading must be `count` records {"n":first}, {"n":first + 1}, ... and nothing else. */
static void check_numbers(const struct rig_reading *reading, int first, int count)
{
    struct byte_buffer expected = {0};
    for (int n = first; n < first + count; n++)
        buffer_printf(&expected, "{\"n\":%d}\n", n);
    buffer_append(&expected, "", 1);
    char *text = rig_text(reading);
    assert_string_equal(text, expected.data);
    free(text);
    buffer_free(&expected);
}

static void test_live(void **state)
{
    struct mock *mock = *state;
    struct rig_source rig;
    struct rig_reading reading = {0};
    produce(mock, "clicks", 0, 0, 2500);
    assert_true(open_source(&rig, mock, "topic: \"clicks\"", "n int"));
    assert_int_equal(rig.source.partitions_count, PARTITIONS);
    assert_string_equal(source_kafka.partition_name(&rig.source, 2), "clicks/2");
    struct source_position position;
    source_kafka.begin(&rig.source, 0, &position);
    assert_int_equal(position.b, 0);
    assert_int_equal(read_all(&rig, 0, &reading), READ_QUIET);
    check_numbers(&reading, 0, 2500);
    assert_int_equal(reading.batches[reading.count - 1].next.b, 2500);
    assert_int_equal(reading.batches[reading.count - 1].next.record, 2500);
    assert_string_equal(reading.batches[0].path, "clicks/0");
    rig_reading_free(&reading);
    assert_int_equal(read_all(&rig, 1, &reading), READ_QUIET);
    assert_int_equal(reading.count, 0);
    /* Records produced later are read later. */
    produce(mock, "clicks", 0, 2500, 10);
    for (int64_t since = 0; reading.count == 0; wait_more(&since))
        read_all(&rig, 0, &reading);
    while (reading.batches[reading.count - 1].next.b < 2510)
        read_all(&rig, 0, &reading);
    check_numbers(&reading, 2500, 10);
    rig_reading_free(&reading);
    rig_source_close(&rig);
}

static void count_wake(void *engine)
{
    atomic_fetch_add((atomic_int *)engine, 1);
}

static void test_wake(void **state)
{
    struct mock *mock = *state;
    struct rig_source rig;
    struct rig_reading reading = {0};
    atomic_int wakes = 0;
    static char options[256];
    snprintf(options, sizeof(options), "{ brokers: \"%s\", topic: \"clicks\" }",
             rd_kafka_mock_cluster_bootstraps(mock->cluster));
    assert_true(rig_source_bind(&rig, &source_kafka, options, "n int"));
    rig.source.wake = count_wake;
    rig.source.engine = &wakes;
    assert_true(rig_source_begin(&rig));
    assert_int_equal(read_all(&rig, 2, &reading), READ_QUIET);
    /* The end of the log wakes the engine, too. */
    for (int64_t since = 0; atomic_load(&wakes) == 0; wait_more(&since)) {
    }
    read_all(&rig, 2, &reading);
    int before = atomic_load(&wakes);
    produce(mock, "clicks", 2, 0, 1);
    for (int64_t since = 0; reading.count == 0; wait_more(&since)) {
        if (atomic_load(&wakes) > before) /* by the record, or by a late end-of-log event */
            read_all(&rig, 2, &reading);
    }
    check_numbers(&reading, 0, 1);
    rig_reading_free(&reading);
    rig_source_close(&rig);
}

/* A bounded source gives the same, full batches each time, and ends where the log ended when
 * it was opened. */
static void test_until_latest(void **state)
{
    struct mock *mock = *state;
    for (int round = 0; round < 2; round++) {
        struct rig_source rig;
        struct rig_reading reading = {0};
        if (round == 0)
            produce(mock, "views", 0, 0, 3000);
        assert_true(open_source(&rig, mock, "topic: \"views\", until: latest", "n int"));
        if (round == 0)
            produce(mock, "clicks", 1, 0, 5);
        assert_int_equal(read_all(&rig, 0, &reading), READ_END);
        check_numbers(&reading, 0, 3000);
        assert_int_equal(reading.count, 3);
        assert_int_equal(reading.batches[0].count, BATCH_ROWS);
        assert_int_equal(reading.batches[2].count, 3000 - 2 * BATCH_ROWS);
        rig_reading_free(&reading);
        rig_source_close(&rig);
    }
    produce(mock, "views", 0, 3000, 1);
}

static void test_start(void **state)
{
    struct mock *mock = *state;
    static const struct {
        const char *options;
        int first, count;
    } starts[] = {
        {"start: latest", 0, 0},
        {"start: offsets(2990)", 2990, 11},
        {"start: offsets(3001)", 0, 0},
    };
    for (size_t i = 0; i < ARRAY_COUNT(starts); i++) {
        struct rig_source rig;
        struct rig_reading reading = {0};
        char options[128];
        snprintf(options, sizeof(options), "topic: \"views\", until: latest, %s", starts[i].options);
        assert_true(open_source(&rig, mock, options, "n int"));
        assert_int_equal(read_all(&rig, 0, &reading), READ_END);
        check_numbers(&reading, starts[i].first, starts[i].count);
        rig_reading_free(&reading);
        rig_source_close(&rig);
    }
    static const char *const bad[] = {"start: offsets(4000)", "start: offsets(0, 1)"};
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        struct rig_source rig;
        char options[128];
        snprintf(options, sizeof(options), "topic: \"views\", %s", bad[i]);
        assert_false(open_source(&rig, mock, options, "n int"));
        assert_string_equal(rig_error(&rig.diags), i == 0 ? "E0612" : "E0404");
        rig_source_close(&rig);
    }
}

/* Reading resumes at `position` if the topic still has the record that `mark` identifies, and fails if that
 * record is another. */
static void check_seek(struct mock *mock, const struct source_position *position, struct str mark)
{
    struct rig_source rig;
    struct rig_reading reading = {0};
    for (int is_other = 0; is_other < 2; is_other++) {
        char changed[SOURCE_MARK_BYTES], again[SOURCE_MARK_BYTES];
        memcpy(changed, mark.data, mark.length);
        changed[mark.length - 1] ^= (char)is_other; /* the record's digest ends the mark */
        assert_true(open_source(&rig, mock, "topic: \"views\"", "n int"));
        assert_true(source_kafka.mark_check(&rig.source, 0, position, (struct str){changed, mark.length}));
        assert_true(source_kafka.seek(&rig.source, 0, position));
        /* A checkpoint that is taken before the first read saves the same mark. */
        assert_int_equal(source_kafka.mark(&rig.source, 0, position, again), mark.length);
        assert_memory_equal(again, changed, mark.length);
        assert_int_equal(read_all(&rig, 0, &reading), is_other ? READ_ERROR : READ_QUIET);
        if (is_other) {
            assert_string_equal(rig_error(&rig.diags), "E0611");
            assert_non_null(strstr(rig_message(&rig), "differs from the record read before"));
        } else {
            check_numbers(&reading, (int)position->b, 3001 - (int)position->b);
            assert_int_equal(reading.batches[0].position.record, position->record);
        }
        rig_reading_free(&reading);
        rig_source_close(&rig);
    }
}

/* A mark identifies a record before the position; at the beginning of the log, the last record of
 * the first batch. */
static void test_seek(void **state)
{
    struct mock *mock = *state;
    struct rig_source rig;
    struct rig_reading reading = {0};
    char mark[SOURCE_MARK_BYTES], first[SOURCE_MARK_BYTES];
    assert_true(open_source(&rig, mock, "topic: \"views\"", "n int"));
    assert_int_equal(read_all(&rig, 0, &reading), READ_QUIET);
    struct source_position position = reading.batches[reading.count - 2].next, none = {0};
    size_t bytes = source_kafka.mark(&rig.source, 0, &position, mark);
    assert_true(bytes > 0);
    assert_int_equal(source_kafka.mark(&rig.source, 0, &none, first), bytes);
    rig_reading_free(&reading);
    rig_source_close(&rig);
    check_seek(mock, &position, (struct str){mark, bytes});
    check_seek(mock, &none, (struct str){first, bytes});
    /* A position beyond the end: the name belongs to another topic now. */
    assert_true(open_source(&rig, mock, "topic: \"views\"", "n int"));
    position.b = 4000;
    assert_false(source_kafka.seek(&rig.source, 0, &position));
    assert_string_equal(rig_error(&rig.diags), "E0611");
    rig_source_close(&rig);
}

static void test_unknown_topic(void **state)
{
    struct mock *mock = *state;
    struct rig_source rig;
    assert_false(open_source(&rig, mock, "topic: [\"clicks\", \"veiws\"]", "n int"));
    assert_string_equal(rig_error(&rig.diags), "E0611");
    assert_non_null(strstr(rig_message(&rig), "did you mean `views`?"));
    rig_source_close(&rig);
    assert_false(open_source(&rig, mock, "topic: \"^nothing.*\"", "n int"));
    assert_string_equal(rig_error(&rig.diags), "E0611");
    rig_source_close(&rig);
}

/* A topic that matches the pattern is created while others are read. */
static void test_discover(void **state)
{
    struct mock *mock = *state;
    struct rig_source rig;
    struct rig_reading reading = {0};
    rd_kafka_mock_topic_create(mock->cluster, "log-a", 2, 1);
    assert_true(open_source(&rig, mock, "topic: \"^log-.*\", refresh: 1s", "n int"));
    assert_int_equal(rig.source.partitions_count, 2);
    rd_kafka_mock_topic_create(mock->cluster, "log-b", 1, 1);
    produce(mock, "log-b", 0, 0, 7);
    for (int64_t since = 0; rig.source.partitions_count < 3; wait_more(&since))
        assert_true(source_kafka.discover(&rig.source));
    assert_string_equal(source_kafka.partition_name(&rig.source, 0), "log-a/0");
    assert_string_equal(source_kafka.partition_name(&rig.source, 2), "log-b/0");
    for (int64_t since = 0; read_all(&rig, 2, &reading) == READ_QUIET && reading.count == 0;
         wait_more(&since)) {
    }
    check_numbers(&reading, 0, 7);
    rig_reading_free(&reading);
    rig_source_close(&rig);
}

static void test_rate(void **state)
{
    struct mock *mock = *state;
    struct rig_source rig;
    struct rig_reading reading = {0};
    assert_true(open_source(&rig, mock, "topic: \"views\", until: latest, max_rate: 6000", "n int"));
    int64_t begin = os_monotonic_us();
    assert_int_equal(read_all(&rig, 0, &reading), READ_END);
    check_numbers(&reading, 0, 3001);
    assert_int_equal(reading.count, 3); /* full batches, though the records came in pieces */
    assert_int_equal(reading.batches[1].count, BATCH_ROWS);
    assert_true(os_monotonic_us() - begin >= 430000); /* 3,001 records, less a burst of 300, at 6,000/s */
    rig_reading_free(&reading);
    rig_source_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_live),     cmocka_unit_test(test_wake), cmocka_unit_test(test_until_latest),
        cmocka_unit_test(test_start),    cmocka_unit_test(test_seek), cmocka_unit_test(test_unknown_topic),
        cmocka_unit_test(test_discover), cmocka_unit_test(test_rate)};
    return cmocka_run_group_tests(tests, set_up, mock_tear_down);
}

/* A replay is what live was: source `kafka` reads the same records from librdkafka's mock cluster and from a
 * recording, and batches, positions, columns and dead letters are equal. */
#include "connectors/kafka/recording_write.h"
#include "connectors/kafka/source.h"
#include "unit/connectors/kafka_mock.h"
#include "unit/connectors/rig.h"
#include "unit/support/patience.h"
#include "unit/support/random.h"
#include "unit/support/temporary.h"

#include <stdlib.h>

enum { RECORDS = 2500, LONGEST = 2 << 20 };

#define SCHEMA "n int, key text, trace text, all [{key text, value bytes}], at ms"
#define OPTIONS                                                                                              \
    "topic: \"clicks\", until: latest, meta: { key: key, headers: { trace: \"trace\" }, all_headers: all, timestamp: at }"

static char padding[LONGEST];

/* Record i: a small one, one of 100 kB, a tombstone, one that is too long, or one that is no JSON. Its bytes
 * are in `bytes`. */
static struct recorded record_at(uint64_t i, struct byte_buffer *bytes, struct byte_buffer *headers)
{
    struct test_random random = {i};
    struct recorded r = {.offset = (int64_t)i, .time_ms = 1700000000000 + (int64_t)i};
    buffer_clear(bytes);
    buffer_clear(headers);
    buffer_printf(bytes, "{\"n\":%d", (int)i);
    size_t more = i == 700 || i == 1900 ? LONGEST / 2 : i % 170 == 0 ? 100000 : random_below(&random, 40);
    buffer_append(bytes, padding, more);
    buffer_append(bytes, "}", i % 31 != 0);
    r.record.value = (struct str){bytes->data, bytes->length};
    if (i % 13 == 0)
        r.record.value = (struct str){NULL, 0};
    r.record.key = i % 5 == 0 ? (struct str){NULL, 0} : i % 7 == 0 ? STR("") : STR("k\xc3\xa9y");
    for (uint64_t k = 0; k < i % 4; k++) /* of two headers with one name the last counts */
        record_put_header(headers, k == 1 ? STR("other") : STR("trace"),
                          k == 2 ? (struct str){NULL, 0} : (struct str){padding, i % 9});
    r.record.headers = (struct str){headers->data, headers->length};
    return r;
}

static void produce(struct mock *mock, const struct recorded *r)
{
    rd_kafka_headers_t *headers = rd_kafka_headers_new(4);
    struct str rest = r->record.headers, name, value;
    while (record_take_header(&rest, &name, &value))
        rd_kafka_header_add(headers, name.data, (ssize_t)name.length, value.data,
                            value.data == NULL ? -1 : (ssize_t)value.length);
    assert_int_equal(
        rd_kafka_producev(mock->producer, RD_KAFKA_V_TOPIC("clicks"), RD_KAFKA_V_PARTITION(0),
                          RD_KAFKA_V_VALUE((void *)(uintptr_t)r->record.value.data, r->record.value.length),
                          RD_KAFKA_V_KEY(r->record.key.data, r->record.key.length),
                          RD_KAFKA_V_TIMESTAMP(r->time_ms), RD_KAFKA_V_HEADERS(headers),
                          RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_END),
        0);
}

/* Writes a recording of all records, in spans of 900. */
static void record_all(const char *folder)
{
    struct arena arena = {0};
    struct recording recording = {0};
    struct byte_buffer bytes = {0}, headers = {0};
    struct recording_span span;
    struct recording_packer packer = {0};
    struct recording_writer writer = {.directory = folder, .topic = "clicks", .packer = &packer, .fd = -1};
    struct recording_partition *p = recording_add(&recording, "clicks", 0, &arena);
    p->first = p->next = 0;
    for (uint64_t i = 0; i < RECORDS; i++) {
        struct recorded r = record_at(i, &bytes, &headers);
        assert_int_equal(recording_writer_put(&writer, p->next, &r), 0);
        if ((i + 1) % 900 != 0 && i + 1 < RECORDS)
            continue;
        assert_int_equal(recording_writer_finish(&writer, (int64_t)i + 1, &span, &arena), 0);
        recording_add_span(p, &span, &arena);
        p->next = span.next;
        p->records += span.records;
    }
    recording_writer_close(&writer);
    recording_packer_free(&packer);
    assert_int_equal(recording_save(&recording, folder, NULL), 0);
    buffer_free(&bytes);
    buffer_free(&headers);
    arena_free(&arena);
}

static void open_one(struct rig_source *rig, struct mock *mock, const char *folder)
{
    static char options[1024]; /* option values point into it */
    const struct source_kind *kind = folder == NULL ? &source_kafka : &source_kafka_recording;
    snprintf(options, sizeof(options), "{ brokers: \"%s\", queue: 64MiB, " OPTIONS " }",
             rd_kafka_mock_cluster_bootstraps(mock->cluster));
    if (!rig_source_bind(rig, kind, options, SCHEMA))
        fail_msg("%s", rig_message(rig));
    if (folder != NULL)
        ((struct kafka_source *)rig->source.config)->recording = str_from(folder);
    rig->source.has_dead_letters = true;
    if (!rig_source_begin(rig))
        fail_msg("%s", rig_message(rig));
}

static void read_to_the_end(struct rig_source *rig, struct rig_reading *all)
{
    *all = (struct rig_reading){0};
    for (int64_t since = 0; all->status != READ_END; wait_more(&since)) {
        struct rig_reading part = rig_read(rig, 0);
        all->batches = realloc(all->batches, (all->count + part.count + 1) * sizeof(*all->batches));
        if (part.count > 0)
            memcpy(all->batches + all->count, part.batches, part.count * sizeof(*part.batches));
        all->count += part.count;
        all->status = part.status;
        free(part.batches);
        assert_true(part.status == READ_END || part.status == READ_LATER);
    }
}

static void assert_position(const struct source_position *a, const struct source_position *b)
{
    assert_int_equal(a->a, b->a);
    assert_int_equal(a->b, b->b);
    assert_int_equal(a->record, b->record);
}

/* From batch number `from` of the first reading on, the second has the same. */
static void assert_same(const struct rig_reading *a, size_t from, const struct rig_reading *b)
{
    assert_int_equal(a->count - from, b->count);
    for (size_t i = 0; i < b->count; i++) {
        const struct rig_batch *x = &a->batches[from + i], *y = &b->batches[i];
        assert_position(&x->position, &y->position);
        assert_position(&x->next, &y->next);
        assert_int_equal(x->count, y->count);
        assert_string_equal(x->text, y->text);
        assert_string_equal(x->path, y->path);
    }
}

static int set_up(void **state)
{
    struct mock *mock = *state = mock_new();
    rd_kafka_mock_topic_create(mock->cluster, "clicks", 1, 1);
    memset(padding, ' ', sizeof(padding));
    return 0;
}

static void test_a_replay_is_what_live_was(void **state)
{
    struct mock *mock = *state;
    char folder[TEMPORARY_PATH_BYTES];
    struct byte_buffer bytes = {0}, headers = {0};
    struct rig_source rig;
    struct rig_reading live, again;
    temporary_make(folder);
    for (uint64_t i = 0; i < RECORDS; i++) {
        struct recorded r = record_at(i, &bytes, &headers);
        produce(mock, &r);
        if (i % 500 == 0)
            assert_int_equal(rd_kafka_flush(mock->producer, 60000), 0);
    }
    assert_int_equal(rd_kafka_flush(mock->producer, 60000), 0);
    buffer_free(&bytes);
    buffer_free(&headers);
    record_all(folder);
    open_one(&rig, mock, NULL);
    read_to_the_end(&rig, &live);
    rig_source_close(&rig);
    assert_true(live.count > 4); /* some end by their bytes, some by their records */
    assert_int_equal(live.batches[live.count - 1].next.record, RECORDS);
    char *text = rig_text(&live);
    assert_non_null(strstr(text, "a record longer than 1 MiB"));
    free(text);
    for (size_t from = 0; from < live.count; from++) {
        open_one(&rig, mock, folder);
        if (from > 0)
            assert_true(source_kafka_recording.seek(&rig.source, 0, &live.batches[from].position));
        read_to_the_end(&rig, &again);
        rig_source_close(&rig);
        assert_same(&live, from, &again);
        rig_reading_free(&again);
    }
    rig_reading_free(&live);
    temporary_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_replay_is_what_live_was, set_up, mock_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

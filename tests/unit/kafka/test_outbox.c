/* The outbox gives out its records in order, in parts of any size, also after a snapshot; and it keeps
 * to its budget. */
#include "connectors/kafka/outbox.h"
#include "unit/connectors/rig.h"
#include "unit/kafka/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static _Atomic bool is_full;
static int woken;
static struct outbox_room room;
static const struct layout layout = {.partitions = 3};

static void wake(void *engine)
{
    woken += engine == &woken;
}

static void init(struct outbox *outbox, uint64_t budget)
{
    is_full = false;
    woken = 0;
    outbox_room_init(&room, budget, &is_full, wake, &woken);
    outbox_init(outbox, &room, 0);
}

static void append_numbers(struct outbox *outbox, uint64_t first, uint64_t next, struct byte_buffer *printed)
{
    struct byte_buffer value = {0}, headers = {0};
    for (uint64_t number = first; number < next; number++)
        for (uint32_t i = 0; i < fixture_rows(number); i++) {
            struct kafka_record record = fixture_record(number, i, &value, &headers);
            outbox_append(outbox, number, i, &record);
            fixture_print(&record, printed);
        }
    outbox_account(outbox);
    buffer_free(&value);
    buffer_free(&headers);
}

static void print_parts(const struct outbox_part *parts, uint32_t count, struct byte_buffer *out)
{
    for (uint32_t i = 0; i < count; i++) {
        struct chunk_cursor cursor = parts[i].begin;
        for (uint64_t k = parts[i].from; k < parts[i].to; k++) {
            struct kafka_record record = chunk_next(&cursor);
            fixture_print(&record, out);
        }
    }
}

/* Sends all committed records, `bytes` a turn, and prints them to `out`; returns the number of turns. */
static uint32_t send_all(struct outbox *outbox, uint64_t bytes, struct byte_buffer *out)
{
    struct outbox_part parts[4];
    uint32_t turns = 0;
    for (uint32_t count; (count = outbox_take(outbox, bytes, parts, ARRAY_COUNT(parts))) > 0; turns++) {
        print_parts(parts, count, out);
        outbox_sent(outbox, parts, count);
    }
    return turns;
}

static void check_same(const struct byte_buffer *a, const struct byte_buffer *b)
{
    assert_int_equal(a->length, b->length);
    assert_memory_equal(a->data, b->data, a->length);
}

/* --- Snapshots: a sink that consists of an outbox alone --- */

struct holder {
    struct outbox outbox;
};

static const struct option no_options[] = {OPTIONS_END};
static struct outbox *current;

static bool holder_open(struct sink_context *context)
{
    struct holder *holder = context->config;
    init(&holder->outbox, 1 << 20);
    return true;
}

static bool holder_snapshot(struct sink_context *context LEAT_UNUSED, struct snapshot_writer *writer)
{
    return outbox_snapshot(current, writer);
}

static bool holder_restore(struct sink_context *context, struct snapshot_reader *reader)
{
    struct holder *holder = context->config;
    uint32_t group;
    struct str record;
    while (snapshot_get(reader, &group, &record))
        if (!outbox_restore(&holder->outbox, record))
            return false;
    return outbox_restored(&holder->outbox, true);
}

static void holder_close(struct sink_context *context)
{
    struct holder *holder = context->config;
    outbox_free(&holder->outbox);
}

static const struct sink_kind holder_kind = {.name = "holder",
                                             .options = no_options,
                                             .size = sizeof(struct holder),
                                             .open = holder_open,
                                             .snapshot = holder_snapshot,
                                             .restore = holder_restore,
                                             .close = holder_close};

static void take_snapshot(struct outbox *outbox, struct rig_checkpoint *checkpoint)
{
    struct rig_sink rig;
    current = outbox;
    assert_true(rig_sink_open(&rig, &holder_kind, "{}", NULL, true, NULL));
    assert_true(rig_sink_snapshot(&rig, 1, checkpoint));
    rig_sink_close(&rig);
}

static struct outbox *restored(struct rig_sink *rig, struct rig_checkpoint *checkpoint)
{
    if (!rig_sink_open(rig, &holder_kind, "{}", NULL, true, checkpoint))
        return NULL;
    return &((struct holder *)rig->context.config)->outbox;
}

static void test_round_trip(void **state LEAT_UNUSED)
{
    for (uint64_t bytes = 1; bytes < 100000; bytes = bytes * 3 + 50) {
        struct outbox outbox;
        struct byte_buffer in = {0}, out = {0};
        init(&outbox, 1 << 30);
        for (uint64_t epoch = 1; epoch < 12; epoch++) {
            append_numbers(&outbox, epoch * 10, epoch * 10 + 10, &in);
            outbox_close(&outbox, epoch, epoch * 10 + 10, layout);
        }
        assert_int_equal(send_all(&outbox, bytes, &out), 0); /* nothing is committed */
        outbox_committed(&outbox, 4);
        assert_false(outbox_is_sent(&outbox));
        assert_true(send_all(&outbox, bytes, &out) > 0);
        assert_true(outbox_is_sent(&outbox));
        outbox_committed(&outbox, 20);
        send_all(&outbox, bytes, &out);
        check_same(&in, &out);
        assert_int_equal(outbox.closed_bytes, 0);
        assert_null(outbox.closed);
        buffer_free(&in);
        buffer_free(&out);
        outbox_free(&outbox);
    }
}

static void test_snapshot(void **state LEAT_UNUSED)
{
    struct rig_checkpoint checkpoint = {0};
    struct rig_sink rig;
    struct outbox outbox;
    struct byte_buffer in = {0}, out = {0}, early = {0};
    init(&outbox, 1 << 30);
    append_numbers(&outbox, 0, 100, &early);
    outbox_close(&outbox, 1, 100, layout);
    outbox_committed(&outbox, 1);
    send_all(&outbox, 1 << 20, &out);
    buffer_clear(&out);
    append_numbers(&outbox, 100, 9000, &in); /* more than one chunk */
    outbox_close(&outbox, 2, 9000, layout);
    outbox_close(&outbox, 3, 9100, layout); /* an epoch without records */
    append_numbers(&outbox, 9100, 9200, &in);
    outbox_close(&outbox, 4, 9200, layout);
    append_numbers(&outbox, 9200, 9300, &early); /* the open epoch, which is not in the snapshot */
    take_snapshot(&outbox, &checkpoint);
    struct outbox *again = restored(&rig, &checkpoint);
    assert_non_null(again);
    assert_int_equal(again->closed_bytes, outbox.closed_bytes);
    send_all(again, 5000, &out);
    check_same(&in, &out);
    rig_sink_close(&rig);
    rig_checkpoint_free(&checkpoint);
    buffer_free(&in);
    buffer_free(&out);
    buffer_free(&early);
    outbox_free(&outbox);
}

/* While brokers do not answer, each epoch is written into one delta, and the chain of deltas restores the
 * records that are held, whichever were sent in between. */
static void test_deltas(void **state LEAT_UNUSED)
{
    static const struct {
        uint64_t numbers; /* micro-batches of the epoch */
        bool is_abandoned;
        size_t records;  /* of the delta: one for all, then two for each new epoch: it and its chunk */
        uint32_t go_out; /* epochs that are sent after the delta */
    } turns[] = {{10, false, 2, 0}, {10, false, 3, 0}, {10, false, 3, 2}, {10, true, 3, 0}, {10, true, 5, 1},
                 {10, false, 7, 0}, {10, false, 3, 4}, {0, false, 1, 0},  {10, false, 3, 0}};
    struct rig_checkpoint checkpoints[ARRAY_COUNT(turns)] = {{0}}, *previous = NULL;
    struct rig_sink rig, again;
    struct outbox outbox;
    struct outbox_part part;
    struct byte_buffer in = {0}, gone = {0}, out = {0};
    uint64_t number = 0;
    init(&outbox, 1 << 30);
    current = &outbox;
    assert_true(rig_sink_open(&rig, &holder_kind, "{}", NULL, true, NULL));
    for (size_t i = 0; i < ARRAY_COUNT(turns); i++, number += 10) {
        append_numbers(&outbox, number, number + turns[i].numbers, &in);
        outbox_close(&outbox, i + 1, number + 10, layout);
        assert_true(rig_sink_snapshot_on(&rig, i + 1, previous, !turns[i].is_abandoned, &checkpoints[i]));
        assert_int_equal(checkpoints[i].count, turns[i].records);
        if (!turns[i].is_abandoned) {
            previous = &checkpoints[i];
            outbox_committed(&outbox, i + 1);
            struct outbox *same = restored(&again, previous);
            assert_non_null(same);
            assert_int_equal(same->closed_bytes, outbox.closed_bytes);
            assert_int_equal(same->held_records, outbox.held_records);
            buffer_clear(&out);
            buffer_append(&out, gone.data, gone.length);
            send_all(same, 5000, &out);
            check_same(&in, &out);
            rig_sink_close(&again);
        }
        for (uint32_t k = 0; k < turns[i].go_out; k++) {
            assert_int_equal(outbox_take(&outbox, 1 << 20, &part, 1), 1);
            print_parts(&part, 1, &gone);
            outbox_sent(&outbox, &part, 1);
        }
    }
    rig_sink_close(&rig);
    for (size_t i = 0; i < ARRAY_COUNT(turns); i++)
        rig_checkpoint_free(&checkpoints[i]);
    buffer_free(&in);
    buffer_free(&gone);
    buffer_free(&out);
    outbox_free(&outbox);
}

/* A Kafka record that is longer than a record of a snapshot may be. */
static void test_large_record(void **state LEAT_UNUSED)
{
    enum { BYTES = 9 << 20 };
    struct rig_checkpoint checkpoint = {0};
    struct rig_sink rig;
    struct outbox outbox;
    struct outbox_part part;
    char *large = malloc(BYTES);
    assert_non_null(large);
    for (size_t i = 0; i < BYTES; i++)
        large[i] = (char)(i * 7 + i / 1000);
    struct kafka_record record = {.key = STR("k"), .value = {large, BYTES}, .partition = -1};
    init(&outbox, 1 << 20);
    outbox_append(&outbox, 5, 0, &record);
    outbox_account(&outbox);
    assert_true(is_full);
    outbox_close(&outbox, 1, 6, layout);
    take_snapshot(&outbox, &checkpoint);
    for (size_t i = 0; i < checkpoint.count; i++)
        assert_true(checkpoint.records[i].bytes <= 4 << 20);
    struct outbox *again = restored(&rig, &checkpoint);
    assert_non_null(again);
    assert_int_equal(outbox_take(again, 1, &part, 1), 1);
    struct chunk_cursor cursor = part.begin;
    struct kafka_record same = chunk_next(&cursor);
    assert_int_equal(same.value.length, BYTES);
    assert_memory_equal(same.value.data, large, BYTES);
    rig_sink_close(&rig);
    rig_checkpoint_free(&checkpoint);
    outbox_free(&outbox);
    free(large);
}

static void test_budget(void **state LEAT_UNUSED)
{
    struct outbox outbox;
    struct byte_buffer in = {0}, out = {0};
    uint64_t number = 0;
    init(&outbox, 100000);
    while (!is_full)
        append_numbers(&outbox, number, number + 1, &in), number++;
    assert_true(outbox.open.bytes >= 100000 && outbox.open.bytes < 110000);
    outbox_close(&outbox, 1, number, layout);
    assert_true(is_full);
    outbox_committed(&outbox, 1);
    assert_int_equal(woken, 0);
    struct outbox_part part;
    while (is_full) {
        assert_int_equal(outbox_take(&outbox, 10000, &part, 1), 1);
        outbox_sent(&outbox, &part, 1);
    }
    /* An epoch's memory is freed when the whole epoch is sent. */
    assert_true(outbox.closed_bytes < 50000);
    assert_int_equal(woken, 1);
    append_numbers(&outbox, number, number + 500, &in);
    assert_true(is_full);
    outbox_fail(&outbox); /* nobody waits for a sender that has stopped */
    assert_false(is_full);
    append_numbers(&outbox, number + 500, number + 1500, &in);
    assert_false(is_full);
    buffer_free(&in);
    buffer_free(&out);
    outbox_free(&outbox);
}

/* The epoch is sent while a snapshot of it is written: its bytes stay until that is done. */
static struct outbox *snapshot_of;
static bool sends_meanwhile(struct sink_context *context LEAT_UNUSED, struct snapshot_writer *writer)
{
    struct byte_buffer out = {0};
    assert_true(outbox_snapshot(snapshot_of, writer));
    send_all(snapshot_of, 1 << 20, &out);
    assert_non_null(snapshot_of->closed);
    assert_true(outbox_is_sent(snapshot_of));
    buffer_free(&out);
    return true;
}

static void test_held(void **state LEAT_UNUSED)
{
    struct rig_checkpoint checkpoint = {0};
    struct rig_sink rig;
    struct outbox outbox;
    struct byte_buffer in = {0}, out = {0};
    struct sink_kind kind = holder_kind;
    kind.snapshot = sends_meanwhile;
    init(&outbox, 1 << 20);
    append_numbers(&outbox, 0, 50, &in);
    outbox_close(&outbox, 1, 50, layout);
    outbox_committed(&outbox, 1);
    snapshot_of = &outbox;
    assert_true(rig_sink_open(&rig, &kind, "{}", NULL, true, NULL));
    assert_true(rig_sink_snapshot(&rig, 1, &checkpoint));
    rig_sink_close(&rig);
    assert_null(outbox.closed); /* freed when the snapshot was done */
    struct outbox *again = restored(&rig, &checkpoint);
    assert_non_null(again);
    send_all(again, 1 << 20, &out);
    check_same(&in, &out);
    rig_sink_close(&rig);
    rig_checkpoint_free(&checkpoint);
    buffer_free(&in);
    buffer_free(&out);
    outbox_free(&outbox);
}

/* --- Going on where the progress topic says --- */

static void fill(struct outbox *outbox, struct byte_buffer *in)
{
    init(outbox, 1 << 30);
    for (uint64_t epoch = 1; epoch < 5; epoch++) {
        append_numbers(outbox, epoch * 10, epoch * 10 + 10, in);
        outbox_close(outbox, epoch, epoch * 10 + 10, layout);
    }
    outbox_committed(outbox, 4);
}

/* Two outboxes share a budget: what one holds, the other cannot have. */
static void test_shared_budget(void **state LEAT_UNUSED)
{
    struct outbox first, second;
    struct outbox_part parts[4];
    struct byte_buffer in = {0}, out = {0};
    uint64_t number = 0;
    init(&first, 20000);
    outbox_init(&second, &room, 1);
    while (first.open_bytes < 12000)
        append_numbers(&first, number, number + 1, &in), number++;
    assert_false(is_full);
    while (second.open_bytes < 9000)
        append_numbers(&second, number, number + 1, &in), number++;
    assert_true(is_full);
    outbox_close(&first, 1, number, layout);
    outbox_close(&second, 1, number, layout);
    outbox_committed(&second, 1);
    uint32_t count = outbox_take(&second, 1 << 20, parts, ARRAY_COUNT(parts));
    outbox_sent(&second, parts, count);
    assert_true(is_full); /* the other one still holds more than half */
    assert_int_equal(woken, 0);
    outbox_committed(&first, 1);
    send_all(&first, 1 << 20, &out);
    assert_false(is_full);
    assert_int_equal(woken, 1);
    assert_int_equal(room.used_bytes, 0);
    buffer_free(&in);
    buffer_free(&out);
    outbox_free(&first);
    outbox_free(&second);
}

/* However much of an outbox was sent, the outbox of another life goes on there. */
static void test_skip(void **state LEAT_UNUSED)
{
    for (uint32_t turns = 0;; turns++) {
        struct outbox first, second;
        struct outbox_part parts[2];
        struct progress_part last;
        struct byte_buffer in = {0}, again = {0}, out = {0};
        uint32_t count = 0, done = 0;
        fill(&first, &in);
        fill(&second, &again);
        while (done < turns && (count = outbox_take(&first, 400, parts, ARRAY_COUNT(parts))) > 0) {
            print_parts(parts, count, &out);
            last = outbox_part_progress(&parts[count - 1]);
            outbox_sent(&first, parts, count);
            done++;
        }
        assert_null(outbox_skip(&second, done == 0 ? NULL : &last));
        assert_int_equal(second.closed_bytes, first.closed_bytes);
        send_all(&second, 300, &out);
        check_same(&in, &out);
        buffer_free(&in);
        buffer_free(&again);
        buffer_free(&out);
        outbox_free(&first);
        outbox_free(&second);
        if (done < turns)
            return;
    }
}

static void test_skip_refuses(void **state LEAT_UNUSED)
{
    struct progress_part bad[] = {
        {.first = 0, .next = 15, .to = 3, .total = 3},     /* ends inside the first epoch */
        {.first = 15, .next = 20, .to = 3, .total = 3},    /* begins inside the first epoch */
        {.first = 0, .next = 20, .to = 999, .total = 999}, /* another count of records */
        {.first = 0, .next = 21, .to = 1, .total = 1},
    };
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        struct outbox outbox;
        struct byte_buffer in = {0};
        fill(&outbox, &in);
        if (bad[i].first == 0 && i > 0)
            bad[i].first = outbox.closed->first;
        assert_non_null(outbox_skip(&outbox, &bad[i]));
        buffer_free(&in);
        outbox_free(&outbox);
    }
}

/* A snapshot in which a byte was changed or a record was cut is restored or refused, but does no harm. */
static void test_damaged_snapshot(void **state LEAT_UNUSED)
{
    struct rig_checkpoint checkpoint = {0};
    struct outbox outbox;
    struct byte_buffer in = {0};
    struct test_random random = {3};
    init(&outbox, 1 << 20);
    for (uint64_t epoch = 1; epoch < 4; epoch++) {
        append_numbers(&outbox, epoch * 10, epoch * 10 + 10, &in);
        outbox_close(&outbox, epoch, epoch * 10 + 10, layout);
    }
    take_snapshot(&outbox, &checkpoint);
    for (int turn = 0; turn < 3000; turn++) {
        struct rig_sink rig;
        struct rig_record *record = &checkpoint.records[random_below(&random, (uint32_t)checkpoint.count)];
        size_t at = random_below(&random, (uint32_t)MIN(record->bytes, 400)), bytes = record->bytes;
        char before = record->data[at];
        if (random_chance(&random, 70))
            record->data[at] = (char)random_next(&random);
        else
            record->bytes = at;
        struct outbox *again = restored(&rig, &checkpoint);
        struct byte_buffer out = {0};
        if (again != NULL)
            send_all(again, 500, &out);
        buffer_free(&out);
        rig_sink_close(&rig);
        record->data[at] = before;
        record->bytes = bytes;
    }
    rig_checkpoint_free(&checkpoint);
    buffer_free(&in);
    outbox_free(&outbox);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),    cmocka_unit_test(test_snapshot),
        cmocka_unit_test(test_deltas),        cmocka_unit_test(test_large_record),
        cmocka_unit_test(test_budget),        cmocka_unit_test(test_held),
        cmocka_unit_test(test_shared_budget), cmocka_unit_test(test_skip),
        cmocka_unit_test(test_skip_refuses),  cmocka_unit_test(test_damaged_snapshot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

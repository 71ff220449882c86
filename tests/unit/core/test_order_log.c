#include "cmocka_all.h"
#include "core/order_log.h"

#include <stdlib.h>

/* Two partitions, three numbers, as the sequencer would write them. */
static void put_segment(struct byte_buffer *out)
{
    struct byte_buffer partitions = {0}, entries = {0}, more = {0};
    struct order_partition impressions = {0, STR("impressions"), STR("a/*.jsonl"), 0, INT64_MIN, 0, 0};
    struct order_partition clicks = {
        1,          STR("clicks"),    STR(""),
        1ULL << 40, 1700000000000000, ORDER_HAS_ENDED | ORDER_IS_LIVE | ORDER_HAS_OFFSETS,
        1LL << 50};
    order_put_partition(&partitions, ORDER_PARTITION, &impressions);
    order_put_partition(&partitions, ORDER_PARTITION, &clicks);
    struct order_slice slice = {
        .partition = 0, .records = 1024, .time = 1700000000000001, .time_before = INT64_MIN};
    order_put_slice(&entries, &slice);
    slice = (struct order_slice){.partition = 1,
                                 .records = 1,
                                 .time = 1700000000000000,
                                 .time_before = 1700000000000000,
                                 .has_offset = true,
                                 .offset = (1LL << 50) + 3, /* three are missing */
                                 .offset_before = 1LL << 50};
    order_put_slice(&entries, &slice);
    order_put_of(&entries, ORDER_CUT, 0);
    order_put(&entries, ORDER_MICRO_BATCH);
    order_put_of(&more, ORDER_ENDED, 1);
    slice = (struct order_slice){
        .partition = 0, .records = 7, .time = INT64_MAX, .time_before = 1700000000000001};
    order_put_slice(&more, &slice);
    slice = (struct order_slice){.partition = 1,
                                 .records = 4,
                                 .time = 1,
                                 .time_before = 1700000000000000,
                                 .has_offset = true,
                                 .offset = (1LL << 50) + 7,
                                 .offset_before = (1LL << 50) + 4};
    order_put_slice(&more, &slice);
    order_put(&more, ORDER_ENDED_ALL);
    order_put(&more, ORDER_LAST);
    struct order_head head = {.epoch = 5, .first = 40, .next = 44};
    order_seal(&head, (struct str){partitions.data, partitions.length},
               (struct str){entries.data, entries.length}, (struct str){more.data, more.length}, 4, 1036,
               out);
    buffer_free(&partitions);
    buffer_free(&entries);
    buffer_free(&more);
}

static struct str text_of(const struct byte_buffer *buffer)
{
    return (struct str){buffer->data, buffer->length};
}

static void test_round_trip(void **state)
{
    (void)state;
    static const struct {
        enum order_tag tag;
        uint32_t partition;
        uint64_t records;
        int64_t time, offset;
    } expected[] = {
        {ORDER_PARTITION, 0, 0, 0, 0},
        {ORDER_PARTITION, 1, 0, 0, 0},
        {ORDER_SLICE, 0, 1024, 1700000000000001, 0},
        {ORDER_SLICE, 1, 1, 1700000000000000, (1LL << 50) + 3},
        {ORDER_CUT, 0, 0, 0, 0},
        {ORDER_MICRO_BATCH, 0, 0, 0, 0},
        {ORDER_ENDED, 1, 0, 0, 0},
        {ORDER_SLICE, 0, 7, INT64_MAX, 0},
        {ORDER_SLICE, 1, 4, 1, (1LL << 50) + 7},
        {ORDER_ENDED_ALL, 0, 0, 0, 0},
        {ORDER_LAST, 0, 0, 0, 0},
    };
    struct byte_buffer text = {0};
    put_segment(&text);
    put_segment(&text); /* what follows is no part of it */
    struct order_reader reader;
    struct order_entry entry;
    assert_true(order_open(&reader, text_of(&text)));
    assert_int_equal(order_segment_bytes(&reader.head) * 2, text.length);
    for (size_t i = 0; i < ARRAY_COUNT(expected); i++) {
        assert_true(order_next(&reader, &entry));
        assert_int_equal(entry.tag, expected[i].tag);
        assert_int_equal(entry.partition, expected[i].partition);
        assert_int_equal(entry.time, expected[i].time);
        assert_int_equal(entry.records, expected[i].records);
        assert_int_equal(entry.offset, expected[i].offset);
        assert_int_equal(entry.has_offset, expected[i].offset != 0);
        if (i == 1) {
            assert_true(str_is(entry.added.source, "clicks"));
            assert_int_equal(entry.added.name.length, 0);
            assert_int_equal(entry.added.records, 1ULL << 40);
            assert_int_equal(entry.added.time, 1700000000000000);
            assert_int_equal(entry.added.is, ORDER_HAS_ENDED | ORDER_IS_LIVE | ORDER_HAS_OFFSETS);
            assert_int_equal(entry.added.offset, 1LL << 50);
        }
    }
    assert_int_equal(reader.micro_batch, 44);
    assert_true(order_next(&reader, &entry));
    assert_int_equal(entry.tag, ORDER_EPOCH);
    assert_int_equal(entry.records, 1036);
    assert_false(order_next(&reader, &entry));
    assert_null(reader.why);
    order_close(&reader);
    struct order_figures figures;
    assert_null(order_figures(text_of(&text), &figures));
    assert_int_equal(figures.head.epoch, 5);
    assert_int_equal(figures.slices, 4);
    assert_int_equal(figures.entries, 12);
    assert_int_equal(figures.partitions, 2);
    buffer_free(&text);
}

static void test_torn_and_flipped(void **state)
{
    (void)state;
    struct byte_buffer text = {0};
    struct order_figures figures;
    put_segment(&text);
    for (size_t length = 0; length < text.length; length++) {
        /* Memory of its own, so that reading too far is seen. */
        char *torn = malloc(MAX(length, 1));
        assert_non_null(torn);
        memcpy(torn, text.data, length);
        assert_non_null(order_figures((struct str){torn, length}, &figures));
        free(torn);
    }
    for (size_t i = 0; i < text.length * 8; i++) {
        text.data[i / 8] ^= (char)(1 << i % 8);
        if (order_figures(text_of(&text), &figures) == NULL)
            fail_msg("bit %zu", i);
        text.data[i / 8] ^= (char)(1 << i % 8);
    }
    assert_null(order_figures(text_of(&text), &figures));
    buffer_free(&text);
}

/* Bytes with a good digest: what order_seal wraps is taken as it is. */
static const char *why_refused(const char *partitions, size_t partitions_bytes, const char *entries,
                               size_t entries_bytes, uint64_t numbers, uint64_t slices, uint64_t records)
{
    struct byte_buffer text = {0};
    struct order_figures figures;
    struct order_head head = {.first = 0, .next = numbers};
    order_seal(&head, (struct str){partitions, partitions_bytes}, (struct str){entries, entries_bytes},
               (struct str){"", 0}, slices, records, &text);
    const char *why = order_figures(text_of(&text), &figures);
    buffer_free(&text);
    return why;
}

#define P "\1\0\1a\1b\0\0\0"
#define WHY(entries, numbers, slices, records)                                                               \
    why_refused(P, sizeof(P) - 1, entries, sizeof(entries) - 1, numbers, slices, records)

static void test_impossible(void **state)
{
    (void)state;
    assert_null(WHY("\2\0\12\0\4", 1, 1, 10));
    assert_non_null(WHY("\2\0\12\0\4", 2, 1, 10)); /* numbers */
    assert_non_null(WHY("\2\0\12\0\4", 1, 2, 10)); /* slices */
    assert_non_null(WHY("\2\0\12\0\4", 1, 1, 11)); /* records */
    assert_non_null(WHY("\2\1\12\0\4", 1, 1, 10)); /* a partition that is not there */
    assert_non_null(WHY("\5\1", 1, 0, 0));
    assert_non_null(WHY("\2\0\0\0\4", 1, 1, 0)); /* a slice without records */
    assert_non_null(WHY("\2\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\2\0\4", 1, 1, 10)); /* more than 64 bits */
    assert_non_null(WHY("\4" P, 1, 0, 0));                                            /* a partition later */
    assert_non_null(WHY("\1\2\0\0\0\0\0\4", 1, 0, 0));                                /* and out of turn */
    assert_non_null(WHY("\1\1\x90\1a\0\0\0\0\4", 1, 0, 0)); /* a name that is too long */
    assert_non_null(WHY("\7\0\0\4", 1, 0, 0));              /* something behind the end */
    assert_null(WHY("\20\0\4", 1, 0, 0));                   /* idle */
    assert_null(WHY("\22\2\4", 1, 0, 0));                   /* a tick of the clock */
    assert_non_null(WHY("\20\1\4", 1, 0, 0));
    assert_null(WHY("\24\20\4", 1, 0, 0)); /* the load */
    assert_non_null(WHY("\24\21\4", 1, 0, 0));
    assert_null(WHY("\23\1\1a\1c\0\0\0\4", 1, 0, 0)); /* added while running */
    assert_null(WHY("\23\1\1a\1c\0\0\0\2\1\12\0\4", 1, 1, 10));
    assert_non_null(WHY("\23\2\1a\1c\0\0\0\4", 1, 0, 0));             /* out of turn */
    assert_null(WHY("\23\1\1a\1c\0\0\4\6\2\1\12\0\0\4", 1, 1, 10));   /* with offsets */
    assert_non_null(WHY("\23\1\1a\1c\0\0\4\6\2\1\12\0\4", 1, 1, 10)); /* a slice without one */
    assert_non_null(WHY("\23\1\1a\1c\0\0\10\4", 1, 0, 0));            /* what nobody knows */
    for (unsigned tag = 0; tag < 256; tag++) {
        char entries[] = {(char)tag};
        const char *why = why_refused(P, sizeof(P) - 1, entries, 1, 1, 0, 0);
        bool is_live = tag >= ORDER_LIVE_FIRST && tag <= ORDER_LIVE_LAST;
        bool is_made = tag == ORDER_IDLE || tag == ORDER_TICK || tag == ORDER_ADDED || tag == ORDER_LOAD;
        /* Both take the tag of the end for their number, and what comes behind that for a tag. */
        bool is_unknown =
            tag == 0 || tag == ORDER_TICK || tag == ORDER_LOAD || (tag > ORDER_ENDED_ALL && !is_live);
        assert_int_equal(why == NULL,
                         tag == ORDER_MICRO_BATCH || tag == ORDER_LAST || tag == ORDER_ENDED_ALL);
        assert_int_equal(why != NULL && strstr(why, "live source") != NULL, is_live && !is_made);
        assert_int_equal(why != NULL && strstr(why, "unknown type") != NULL, is_unknown);
    }
}

static void test_no_log(void **state)
{
    (void)state;
    struct byte_buffer text = {0};
    struct order_figures figures;
    put_segment(&text);
    text.data[7] = '3';
    assert_non_null(strstr(order_figures(text_of(&text), &figures), "another version of leat"));
    text.data[0] = 'L';
    assert_non_null(strstr(order_figures(text_of(&text), &figures), "not an order log"));
    buffer_free(&text);
}

/* A slice with its cut takes at most 16 bytes (docs/design.md, section 6). */
static void test_size(void **state)
{
    (void)state;
    struct byte_buffer entries = {0};
    enum { SLICES = 10000 };
    int64_t time = 1700000000000000;
    for (int i = 0; i < SLICES; i++) {
        struct order_slice slice = {.partition = (uint32_t)(i % 300),
                                    .records = 1024,
                                    .time = time + 60 * US_PER_SECOND,
                                    .time_before = time,
                                    .has_offset = true,
                                    .offset = 1024LL * i + 1023,
                                    .offset_before = 1024LL * i};
        order_put_slice(&entries, &slice);
        order_put_of(&entries, ORDER_CUT, (uint32_t)(i % 300));
        time += 60 * US_PER_SECOND;
    }
    assert_true(entries.length <= (size_t)16 * SLICES);
    buffer_free(&entries);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_torn_and_flipped),
        cmocka_unit_test(test_impossible), cmocka_unit_test(test_no_log),
        cmocka_unit_test(test_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

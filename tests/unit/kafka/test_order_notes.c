/* Segments of the order log that wait for a transaction: each is noted by one shard at least, none is lost by a transaction that
 * failed, what the store has is forgotten, and what waits is bounded. */
#include "connectors/kafka/order_notes.h"

#include "core/order_log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* A segment of micro-batches [10 * epoch, 10 * epoch + 10), with so many bytes of entries. */
static void add(struct order_notes *notes, uint64_t epoch, size_t bytes)
{
    struct byte_buffer segment = {0};
    char *entries = calloc(1, bytes);
    assert_non_null(entries);
    struct order_head head = {.epoch = epoch, .first = 10 * epoch, .next = 10 * epoch + 10};
    order_seal(&head, (struct str){"", 0}, (struct str){entries, bytes}, (struct str){"", 0}, 0, 0, &segment);
    order_notes_add(notes, (struct str){segment.data, segment.length});
    buffer_free(&segment);
    free(entries);
}

/* How many wait up to the epoch. */
static uint32_t waiting(struct order_notes *notes, uint64_t epoch)
{
    uint32_t count;
    struct order_note **taken = order_notes_take(notes, epoch, &count);
    order_notes_release(notes, taken, count, false);
    return count;
}

static void test_taken(void **state LEAT_UNUSED)
{
    struct order_notes notes;
    uint32_t first_count, second_count;
    order_notes_init(&notes, 1);
    order_notes_add(&notes, (struct str){"no segment", 10});
    for (uint64_t epoch = 1; epoch <= 4; epoch++)
        add(&notes, epoch, 100);
    assert_int_equal(waiting(&notes, 2), 2);
    struct order_note **first = order_notes_take(&notes, 3, &first_count),
                      **second = order_notes_take(&notes, 4, &second_count);
    assert_int_equal(first_count, 3);
    assert_int_equal(second_count, 4); /* another shard's transaction, at the same time */
    assert_int_equal(first[0]->first, 10);
    order_notes_release(&notes, first, first_count, true);
    assert_int_equal(second[2]->epoch, 3); /* held still */
    assert_int_equal(waiting(&notes, 4), 1);
    order_notes_release(&notes, second, second_count, false); /* that one failed */
    assert_int_equal(waiting(&notes, 4), 1);
    add(&notes, 5, 100);
    assert_int_equal(waiting(&notes, UINT64_MAX), 2);
    order_notes_stored(&notes, 4);
    assert_int_equal(waiting(&notes, UINT64_MAX), 1);
    order_notes_free(&notes);
}

static void test_bounded(void **state LEAT_UNUSED)
{
    enum { PIECE = 4 << 20 };
    struct order_notes notes;
    order_notes_init(&notes, 1);
    add(&notes, 1, 100);
    assert_false(order_notes_are_many(&notes));
    for (uint64_t epoch = 2; epoch < 40; epoch++) {
        add(&notes, epoch, PIECE);
        assert_true(order_notes_are_many(&notes));
        assert_true(notes.bytes <= ORDER_NOTES_BYTES_MAX);
    }
    assert_true(notes.has_said);
    uint32_t count;
    struct order_note **taken = order_notes_take(&notes, UINT64_MAX, &count);
    assert_true(count > 10);
    assert_int_equal(taken[count - 1]->epoch, 39); /* the oldest went */
    order_notes_release(&notes, taken, count, true);
    assert_int_equal(notes.bytes, 0);
    order_notes_free(&notes);
}

/* Brokers that stand still for long: what waits is bounded also while every transaction holds all of it. */
static void test_bounded_while_held(void **state LEAT_UNUSED)
{
    struct order_notes notes;
    uint32_t held_count, count;
    order_notes_init(&notes, 1);
    for (uint64_t epoch = 1; epoch <= ORDER_NOTES_COUNT_MAX; epoch++)
        add(&notes, epoch, 10);
    assert_false(notes.has_said);
    struct order_note **held = order_notes_take(&notes, UINT64_MAX, &held_count);
    assert_int_equal(held_count, ORDER_NOTES_COUNT_MAX);
    for (uint64_t epoch = ORDER_NOTES_COUNT_MAX + 1; epoch <= 2 * ORDER_NOTES_COUNT_MAX; epoch++)
        add(&notes, epoch, 10);
    assert_true(notes.has_said);
    struct order_note **taken = order_notes_take(&notes, UINT64_MAX, &count);
    assert_int_equal(count, ORDER_NOTES_COUNT_MAX);
    assert_int_equal(taken[0]->epoch, ORDER_NOTES_COUNT_MAX + 1);
    assert_int_equal(held[0]->epoch, 1); /* still there for the one who holds it */
    order_notes_release(&notes, held, held_count, false);
    order_notes_release(&notes, taken, count, true);
    assert_int_equal(notes.bytes, 0);
    assert_null(notes.head);
    order_notes_free(&notes);
}

/* What tombstones go by: the segments that this life has noted, and the checkpoint with which it began. */
static void test_stored_next(void **state LEAT_UNUSED)
{
    struct order_notes notes;
    order_notes_init(&notes, 2);
    notes.restored_next = 50;
    struct progress_order items[] = {{.life = 1, .epoch = 9, .first = 40, .next = 60},
                                     {.life = 2, .epoch = 6, .first = 50, .next = 70},
                                     {.life = 2, .epoch = 7, .first = 70, .next = 80}};
    const struct progress_orders noted = {.items = items, .count = 3};
    assert_int_equal(order_notes_stored_next(&notes, &noted), 0); /* nothing is known to be in the store */
    order_notes_stored(&notes, 5);
    assert_int_equal(order_notes_stored_next(&notes, &noted), 50);
    order_notes_stored(&notes, 6);
    assert_int_equal(order_notes_stored_next(&notes, &noted), 70);
    order_notes_free(&notes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_taken), cmocka_unit_test(test_bounded),
                                       cmocka_unit_test(test_bounded_while_held),
                                       cmocka_unit_test(test_stored_next)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

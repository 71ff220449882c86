/* Records of the progress topic: what is written is read back, and damaged bytes do no harm. */
#include "connectors/kafka/progress.h"
#include "unit/support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <xxhash.h>

#include <cmocka.h>

static const uint8_t run_a[16] = "run a", run_b[16] = "run b";

static struct str text(const struct byte_buffer *buffer)
{
    return (struct str){buffer->data, buffer->length};
}

static struct progress_part part(uint64_t first, uint64_t next, uint64_t from, uint64_t to, uint64_t total)
{
    struct progress_part made = {
        .epoch = first, .first = first, .next = next, .from = from, .to = to, .total = total, .bytes = 5};
    memset(made.digest, (int)first, sizeof(made.digest));
    return made;
}

static enum progress_read give(struct progress *to, const struct progress *as, struct progress_part what)
{
    struct byte_buffer key = {0}, value = {0};
    progress_put_part(as, &what, &key, &value);
    enum progress_read read = progress_apply(to, text(&key), text(&value));
    buffer_free(&key);
    buffer_free(&value);
    return read;
}

static enum progress_read take_back(struct progress *to, uint64_t first, uint64_t from)
{
    struct byte_buffer key = {0};
    struct progress_part gone = {.first = first, .from = from};
    progress_put_key(to, &gone, &key);
    enum progress_read read = progress_apply(to, text(&key), (struct str){NULL, 0});
    buffer_free(&key);
    return read;
}

static void test_order(void **state LEAT_UNUSED)
{
    struct progress progress;
    progress_init(&progress, run_a, STR("out"));
    assert_null(progress_last(&progress));
    assert_int_equal(give(&progress, &progress, part(10, 20, 0, 4, 9)), PROGRESS_READ);
    assert_int_equal(give(&progress, &progress, part(20, 30, 0, 9, 9)), PROGRESS_READ);
    assert_int_equal(give(&progress, &progress, part(10, 20, 4, 9, 9)), PROGRESS_READ);
    assert_int_equal(give(&progress, &progress, part(20, 30, 0, 9, 9)), PROGRESS_READ); /* the same again */
    assert_int_equal(progress.count, 3);
    assert_int_equal(progress_at(&progress, 0)->to, 4);
    assert_int_equal(progress_at(&progress, 1)->to, 9);
    assert_int_equal(progress_last(&progress)->first, 20);
    assert_int_equal(take_back(&progress, 10, 0), PROGRESS_READ);
    assert_int_equal(take_back(&progress, 10, 0), PROGRESS_READ); /* the part is gone already */
    assert_int_equal(take_back(&progress, 20, 0), PROGRESS_READ);
    assert_int_equal(progress.count, 1);
    assert_int_equal(progress_last(&progress)->from, 4);
    progress_free(&progress);
}

/* --- The order log --- */

static enum progress_read give_piece(struct progress *to, const struct progress_order *order, uint32_t piece,
                                     struct str segment, size_t cut)
{
    struct byte_buffer key = {0}, value = {0};
    progress_put_order(to, order, piece, segment, &key, &value);
    struct str bytes = text(&value);
    bytes.length -= cut;
    enum progress_read read = progress_apply(to, text(&key), bytes);
    buffer_free(&key);
    buffer_free(&value);
    return read;
}

static enum progress_read void_piece(struct progress *to, uint64_t first, uint32_t piece)
{
    struct byte_buffer key = {0};
    progress_put_order(to, &(struct progress_order){.first = first}, piece, (struct str){"", 0}, &key, NULL);
    enum progress_read read = progress_apply(to, text(&key), (struct str){NULL, 0});
    buffer_free(&key);
    return read;
}

/* A segment of three pieces, another one that replaces it, pieces of the first one that come late, and tombstones. */
static void test_order_log(void **state LEAT_UNUSED)
{
    enum { BYTES = 2 * PROGRESS_ORDER_PIECE + 77 };
    struct progress progress;
    progress_init(&progress, run_a, STR("out"));
    progress.orders.keeps_data = true;
    struct progress_orders *orders = &progress.orders;
    char *bytes = calloc(1, BYTES);
    assert_non_null(bytes);
    for (size_t i = 0; i < BYTES; i++)
        bytes[i] = (char)(i * 7 >> 3);
    struct progress_order old = {.life = 1, .epoch = 5, .first = 10, .next = 20},
                          new = {.life = 2, .epoch = 5, .first = 10, .next = 30};
    struct str whole = {bytes, BYTES}, small = {bytes, 9};
    assert_int_equal(progress_order_pieces(BYTES), 3);
    for (uint32_t piece = 0; piece < 3; piece++) {
        assert_false(orders->count > 0 && progress_order_is_whole(&orders->items[0]));
        assert_int_equal(give_piece(&progress, &old, piece, whole, 0), PROGRESS_READ);
    }
    assert_int_equal(orders->count, 1);
    assert_true(progress_order_is_whole(&orders->items[0]));
    assert_memory_equal(orders->items[0].data, bytes, BYTES);
    assert_int_equal(orders->bytes, BYTES);
    assert_int_equal(give_piece(&progress, &new, 0, small, 0), PROGRESS_READ);
    assert_int_equal(give_piece(&progress, &old, 1, whole, 0), PROGRESS_READ); /* compaction left it behind */
    assert_int_equal(orders->count, 1);
    assert_true(progress_order_is_whole(&orders->items[0]));
    assert_int_equal(orders->items[0].bytes, 9);
    assert_int_equal(progress_orders_next(orders), 30);
    assert_int_equal(give_piece(&progress, &old, 0, whole, 1), PROGRESS_DAMAGED);
    new.next = new.first;
    assert_int_equal(give_piece(&progress, &new, 0, small, 0), PROGRESS_DAMAGED);
    assert_int_equal(void_piece(&progress, 10, 2), PROGRESS_READ); /* the first piece's tombstone counts */
    assert_int_equal(orders->count, 1);
    assert_int_equal(void_piece(&progress, 10, 0), PROGRESS_READ);
    assert_int_equal(orders->count, 0);
    assert_int_equal(orders->bytes, 0);
    free(bytes);
    progress_free(&progress);
}

/* A store that is away for as long as it takes for more segments than a partition may have: old ones give way, so that none is
 * refused. Then the store is back, and what it has goes. */
static void test_many_segments(void **state LEAT_UNUSED)
{
    struct progress progress;
    progress_init(&progress, run_a, STR("out"));
    struct progress_orders *orders = &progress.orders;
    uint64_t number = 0, end = PROGRESS_ORDERS_MAX + 5000;
    for (uint32_t turn = 0; number < end; turn++) {
        uint32_t more = turn % 100 == 0 ? 3000 : 1 + turn % 7; /* brokers were away, too */
        for (uint32_t i = progress_orders_void(orders, 0, more, 9 * more); i > 0; i--)
            assert_int_equal(void_piece(&progress, orders->items[0].first, 0), PROGRESS_READ);
        for (uint32_t i = 0; i < more; i++, number++) {
            struct progress_order order = {.life = 1, .epoch = number, .first = number, .next = number + 1};
            assert_int_equal(give_piece(&progress, &order, 0, STR("a segment"), 0), PROGRESS_READ);
        }
        assert_true(orders->count <= PROGRESS_ORDERS_KEPT);
    }
    assert_true(orders->count > PROGRESS_ORDERS_KEPT - 3000);
    assert_int_equal(progress_orders_void(orders, number - 10, 1, 9), PROGRESS_ORDERS_NEEDLESS);
    assert_int_equal(progress_orders_void(orders, orders->items[9].next, 1, 9), 10);
    assert_int_equal(progress_orders_void(orders, 0, 1, PROGRESS_ORDER_BYTES_MAX), orders->count - 1);
    progress_free(&progress);
}

/* As many parts as in a month, of which old ones get tombstones: the memory stays small, and
 * the time linear. */
static void test_many(void **state LEAT_UNUSED)
{
    enum { COUNT = 200000, KEPT = 4096 };
    struct progress progress;
    progress_init(&progress, run_a, STR("out"));
    for (uint64_t i = 0; i < COUNT; i++) {
        assert_int_equal(give(&progress, &progress, part(i, i + 1, 0, 1, 1)), PROGRESS_READ);
        if (i >= KEPT)
            assert_int_equal(take_back(&progress, i - KEPT, 0), PROGRESS_READ);
    }
    assert_int_equal(progress.count, KEPT);
    for (uint32_t i = 0; i < KEPT; i++)
        assert_int_equal(progress_at(&progress, i)->first, COUNT - KEPT + i);
    assert_true(progress.capacity < 10 * KEPT);
    progress_free(&progress);
}

static enum progress_read give_life(struct progress *to, const struct progress *from)
{
    struct progress_life life = {.id = "life", .holder = "host a, process 1"};
    struct byte_buffer key = {0}, value = {0};
    progress_put_life(from, &life, &key, &value);
    enum progress_read read = progress_apply(to, text(&key), text(&value));
    buffer_free(&key);
    buffer_free(&value);
    return read;
}

static void test_others(void **state LEAT_UNUSED)
{
    struct progress ours, other_run, other_sink;
    progress_init(&ours, run_a, STR("out"));
    progress_init(&other_run, run_b, STR("out"));
    progress_init(&other_sink, run_a, STR("outer"));
    assert_int_equal(give(&ours, &other_run, part(1, 2, 0, 1, 1)), PROGRESS_IGNORED);
    assert_int_equal(give(&ours, &other_run, part(7, 9, 0, 1, 1)), PROGRESS_IGNORED);
    assert_int_equal(give(&ours, &other_sink, part(1, 2, 0, 1, 1)), PROGRESS_IGNORED);
    assert_int_equal(give_life(&ours, &other_run), PROGRESS_IGNORED); /* a life alone has sent nothing */
    assert_int_equal(progress_apply(&ours, STR("somebody's key"), STR("x")), PROGRESS_IGNORED);
    assert_int_equal(progress_apply(&ours, STR(""), STR("")), PROGRESS_IGNORED);
    assert_int_equal(ours.count, 0);
    assert_int_equal(ours.others, 2);
    assert_memory_equal(ours.other.run, run_b, sizeof(run_b));
    assert_int_equal(ours.other.epoch, part(7, 9, 0, 1, 1).epoch);
    assert_int_equal(ours.foreign, 2);
    progress_free(&ours);
}

static void test_life(void **state LEAT_UNUSED)
{
    struct progress progress;
    struct byte_buffer key = {0}, value = {0};
    struct progress_life life = {.id = "an id", .holder = "host mill, process 7"};
    progress_init(&progress, run_a, STR("out"));
    progress_put_life(&progress, &life, &key, &value);
    assert_int_equal(progress_apply(&progress, text(&key), text(&value)), PROGRESS_READ);
    assert_true(progress.has_life);
    assert_string_equal(progress.life.holder, "host mill, process 7");
    /* A tombstone for a life is damage: leat never writes one. */
    assert_int_equal(progress_apply(&progress, text(&key), (struct str){NULL, 0}), PROGRESS_DAMAGED);
    buffer_free(&key);
    buffer_free(&value);
    progress_free(&progress);
}

/* A change of any byte of key or value is noticed. */
static void test_damage(void **state LEAT_UNUSED)
{
    struct progress progress;
    struct byte_buffer key = {0}, value = {0};
    struct progress_part whole = part(10, 20, 0, 4, 9);
    progress_init(&progress, run_a, STR("out"));
    progress_put_part(&progress, &whole, &key, &value);
    for (size_t i = 0; i < value.length; i++) {
        value.data[i] ^= 4;
        assert_int_equal(progress_apply(&progress, text(&key), text(&value)), PROGRESS_DAMAGED);
        value.data[i] ^= 4;
        assert_int_equal(progress_apply(&progress, text(&key), (struct str){value.data, i}),
                         PROGRESS_DAMAGED);
    }
    for (size_t i = 0; i < key.length; i++) {
        key.data[i] ^= 4;
        assert_int_not_equal(progress_apply(&progress, text(&key), text(&value)), PROGRESS_READ);
        key.data[i] ^= 4;
    }
    key.data[4] = 2; /* which has a layout, too */
    assert_int_equal(progress_apply(&progress, text(&key), text(&value)), PROGRESS_DAMAGED);
    key.data[4] = 3;
    assert_int_equal(progress_apply(&progress, text(&key), text(&value)), PROGRESS_NEWER);
    assert_int_equal(progress.count, 0);
    buffer_free(&key);
    buffer_free(&value);
    progress_free(&progress);
}

/* Parts with and without a layout are read back, each in the form that its own time wrote; a tombstone takes its own. */
static void test_layouts(void **state LEAT_UNUSED)
{
    struct progress progress;
    struct progress_part with = part(10, 20, 0, 4, 4);
    struct byte_buffer key = {0}, value = {0};
    progress_init(&progress, run_a, STR("out"));
    with.layout = (struct layout){.since = 7, .partitions = 12};
    assert_int_equal(give(&progress, &progress, part(1, 10, 0, 9, 9)), PROGRESS_READ);
    assert_int_equal(give(&progress, &progress, with), PROGRESS_READ);
    assert_int_equal(progress_at(&progress, 0)->layout.partitions, 0);
    assert_int_equal(progress_last(&progress)->layout.partitions, 12);
    assert_int_equal(progress_last(&progress)->layout.since, 7);
    progress_put_part(&progress, progress_at(&progress, 0), &key, &value);
    assert_int_equal(key.data[4], 1);
    assert_int_equal(value.length, 80); /* as before leat chose partitions */
    buffer_clear(&key);
    progress_put_key(&progress, progress_last(&progress), &key);
    assert_int_equal(key.data[4], 2);
    assert_int_equal(progress_apply(&progress, text(&key), (struct str){NULL, 0}), PROGRESS_READ);
    assert_int_equal(progress.count, 1);
    buffer_free(&key);
    buffer_free(&value);
    progress_free(&progress);
}

/* Parts with impossible values are damage, though their checksum is right. */
static void test_impossible(void **state LEAT_UNUSED)
{
    /* of first (also in the key), next, to, total, and of a layout since, partitions */
    static const size_t places[] = {8, 16, 32, 40, 72, 80};
    struct progress_part good = part(10, 11, 0, 1, 1);
    good.layout = (struct layout){.since = 4, .partitions = 6};
    for (size_t i = 0; i <= ARRAY_COUNT(places); i++) {
        struct progress progress;
        struct byte_buffer key = {0}, value = {0};
        progress_init(&progress, run_a, STR("out"));
        progress_put_part(&progress, &good, &key, &value);
        if (i < ARRAY_COUNT(places))
            memset(value.data + places[i], places[i] == 72 ? 9 : 0, 8);
        uint64_t check =
            XXH3_64bits_withSeed(value.data, value.length - 8, XXH3_64bits(key.data, key.length));
        memcpy(value.data + value.length - 8, &check, sizeof(check));
        assert_int_equal(progress_apply(&progress, text(&key), text(&value)),
                         i < ARRAY_COUNT(places) ? PROGRESS_DAMAGED : PROGRESS_READ);
        buffer_free(&key);
        buffer_free(&value);
        progress_free(&progress);
    }
}

static void test_random_bytes(void **state LEAT_UNUSED)
{
    struct progress progress;
    struct test_random random = {7};
    progress_init(&progress, run_a, STR("out"));
    for (int turn = 0; turn < 20000; turn++) {
        char key[64], value[128];
        for (size_t i = 0; i < sizeof(key); i++)
            key[i] = (char)random_next(&random);
        for (size_t i = 0; i < sizeof(value); i++)
            value[i] = (char)random_next(&random);
        memcpy(key, "leat\1p", random_chance(&random, 50) ? 6 : 4);
        if (random_chance(&random, 80)) {
            memcpy(key + 6, "\3\0run a\0\0\0\0\0\0\0\0\0\0\0", 18);
            memcpy(key + 40, "out", 3);
        }
        size_t key_bytes = random_chance(&random, 60) ? 43 : random_below(&random, sizeof(key));
        size_t value_bytes = random_chance(&random, 60) ? 80 : random_below(&random, sizeof(value));
        progress_apply(&progress, (struct str){key, key_bytes},
                       (struct str){random_chance(&random, 10) ? NULL : value, value_bytes});
    }
    assert_int_equal(progress.count, 0);
    progress_free(&progress);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),         cmocka_unit_test(test_order_log),
        cmocka_unit_test(test_many_segments), cmocka_unit_test(test_many),
        cmocka_unit_test(test_others),        cmocka_unit_test(test_life),
        cmocka_unit_test(test_damage),        cmocka_unit_test(test_impossible),
        cmocka_unit_test(test_random_bytes),  cmocka_unit_test(test_layouts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The partition of a record is the one that Kafka's own clients choose. */
#include "connectors/kafka/partitioner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* The vectors of Kafka's UtilsTest.testMurmur2. */
static void test_hash(void **state LEAT_UNUSED)
{
    static const struct {
        const char *key;
        int32_t hash;
    } vectors[] = {
        {"21", -973932308},
        {"foobar", -790332482},
        {"a-little-bit-long-string", -985981536},
        {"a-little-bit-longer-string", -1486304829},
        {"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971},
        {"abc", 479470107},
    };
    for (size_t i = 0; i < ARRAY_COUNT(vectors); i++)
        assert_int_equal((int32_t)partitioner_hash(str_from(vectors[i].key)), vectors[i].hash);
}

static void test_choice(void **state LEAT_UNUSED)
{
    struct kafka_record record = {.key = STR("foobar"), .partition = -1};
    assert_int_equal(partitioner_choose(&record, 5, 1), 0);
    assert_int_equal(partitioner_choose(&record, 5, 7), ((uint32_t)-790332482 & 0x7fffffff) % 7);
    assert_int_equal(partitioner_choose(&record, 5, 0), -1); /* the count is not known */
    record.partition = 90;                                   /* the row's own, right or wrong */
    assert_int_equal(partitioner_choose(&record, 5, 7), 90);
    record = (struct kafka_record){.key = {"", 0}, .partition = -1}; /* an empty key is a key */
    assert_int_equal(partitioner_choose(&record, 5, 1000), (partitioner_hash(STR("")) & 0x7fffffff) % 1000);
    record.key = (struct str){NULL, 0};
    assert_int_equal(partitioner_choose(&record, 5, 1000), 5);
    assert_int_equal(partitioner_choose(&record, UINT64_MAX, 1000), 615);
}

static void test_layouts(void **state LEAT_UNUSED)
{
    struct layouts layouts = {0};
    assert_int_equal(layouts_at(&layouts, 9).partitions, 0);
    layouts_add(&layouts, (struct layout){.since = 20, .partitions = 5});
    layouts_add(&layouts, (struct layout){.since = 10, .partitions = 3});
    layouts_add(&layouts, (struct layout){.since = 20, .partitions = 6}); /* in place of 5 */
    assert_int_equal(layouts.count, 2);
    assert_int_equal(layouts_at(&layouts, 9).partitions, 0);
    assert_int_equal(layouts_at(&layouts, 10).partitions, 3);
    assert_int_equal(layouts_at(&layouts, 19).partitions, 3);
    assert_int_equal(layouts_at(&layouts, 20).partitions, 6);
    assert_int_equal(layouts_last(&layouts).since, 20);
    for (uint64_t since = 100; since < 100 + LAYOUTS_MAX; since++)
        layouts_add(&layouts, (struct layout){.since = since, .partitions = 8});
    assert_int_equal(layouts.count, LAYOUTS_MAX); /* the oldest are forgotten */
    assert_int_equal(layouts.items[0].since, 100);
    layouts_add(&layouts, (struct layout){.since = 1, .partitions = 8});
    assert_int_equal(layouts.items[0].since, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_layouts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

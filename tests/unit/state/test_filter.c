/* The filter of stored keys has every key that was added, and seldom one that was not. */
#include "state/filter.h"

#include "unit/support/random.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { KEYS = 200000 };

static void test_has_what_was_added(void **state)
{
    (void)state;
    struct key_filter filter;
    filter_init(&filter, 1 << 20);
    struct test_random random = {3};
    for (uint32_t i = 0; i < KEYS; i++)
        filter_add(&filter, random_next(&random), 5);
    random.state = 3;
    for (uint32_t i = 0; i < KEYS; i++)
        assert_true(filter_has(&filter, random_next(&random)));
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < KEYS; i++)
        wrong += filter_has(&filter, random_next(&random));
    assert_true(filter.count > 3 && wrong < KEYS / 40);
    filter_expire(&filter, 5);
    assert_true(filter.count > 0);
    filter_expire(&filter, 6);
    assert_true(filter.count == 0 && filter.bytes == 0);
    filter_free(&filter);
}

static void test_lives_as_long_as_its_keys(void **state)
{
    (void)state;
    struct key_filter filter;
    filter_init(&filter, 0);
    filter_add(&filter, 77, 10);
    filter_add(&filter, 77, 100); /* the same key, which expires later now */
    filter_expire(&filter, 50);
    assert_true(filter_has(&filter, 77));
    filter_give_up(&filter);
    assert_true(filter_has(&filter, 78) && filter.bytes == 0);
    filter_free(&filter);
}

/* The keys of one lane, which are those of a range of key groups: the upper bits of their hashes
 * are the same. */
static void test_of_one_lane(void **state)
{
    (void)state;
    struct key_filter filter;
    filter_init(&filter, 1 << 20);
    struct test_random random = {3};
    for (uint32_t i = 0; i < KEYS; i++)
        filter_add(&filter, random_next(&random) >> 4, 5);
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < KEYS; i++)
        wrong += filter_has(&filter, random_next(&random) >> 4);
    assert_true(wrong < KEYS / 40);
    filter_free(&filter);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_has_what_was_added),
                                       cmocka_unit_test(test_of_one_lane),
                                       cmocka_unit_test(test_lives_as_long_as_its_keys)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Sets of key groups, and who has which. */
#include "cmocka_all.h"
#include "core/placement.h"

static void test_sets(void **state)
{
    (void)state;
    struct group_set set = {0};
    assert_int_equal(group_set_next(&set, 0), KEY_GROUPS);
    assert_int_equal(group_set_limit(&set), 0);
    assert_int_equal(group_set_count(&set), 0);
    const uint32_t groups[] = {0, 63, 64, 65, 191, 640, KEY_GROUPS - 1};
    for (uint32_t i = 0; i < ARRAY_COUNT(groups); i++)
        bit_set(set.words, groups[i]);
    uint32_t seen = 0;
    for (uint32_t g = group_set_next(&set, 0); g < KEY_GROUPS; g = group_set_next(&set, g + 1))
        assert_int_equal(g, groups[seen++]);
    assert_int_equal(seen, ARRAY_COUNT(groups));
    assert_int_equal(group_set_count(&set), ARRAY_COUNT(groups));
    assert_int_equal(group_set_limit(&set), KEY_GROUPS);
    assert_int_equal(group_set_next(&set, KEY_GROUPS), KEY_GROUPS);
    assert_true(group_set_has(&set, 191) && !group_set_has(&set, 192));
}

static void test_all_groups(void **state)
{
    (void)state;
    assert_int_equal(group_set_next(NULL, 7), 7);
    assert_int_equal(group_set_next(NULL, KEY_GROUPS), KEY_GROUPS);
    assert_int_equal(group_set_limit(NULL), KEY_GROUPS);
    assert_int_equal(group_set_count(NULL), KEY_GROUPS);
    assert_true(group_set_has(NULL, 5));
}

/* Ranges follow each other, of nearly equal size. */
static void test_ranges(void **state)
{
    (void)state;
    for (uint32_t instances = 1; instances <= PLACEMENT_INSTANCES_MAX; instances++) {
        struct placement placement;
        placement_ranges(&placement, instances);
        for (uint32_t i = 0, from = 0; i < instances; i++) {
            struct group_set groups;
            placement_groups(&placement, i, &groups);
            uint32_t count = group_set_count(&groups);
            assert_int_equal(group_set_next(&groups, 0), from);
            assert_int_equal(group_set_limit(&groups), from + count);
            assert_true(count >= KEY_GROUPS / instances && count <= KEY_GROUPS / instances + 1);
            from += count;
        }
    }
}

/* No group moves between instances that stay where there are fewer, and none but to those that are new where there are more; and all
 * have about as many. */
static void test_keep(void **state)
{
    static const uint32_t counts[][2] = {{4, 3}, {3, 4}, {4, 4}, {8, 2}, {2, 8}, {5, 7}, {7, 1}, {1, 256}};
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(counts); i++) {
        uint32_t from = counts[i][0], to = counts[i][1], has[PLACEMENT_INSTANCES_MAX] = {0};
        struct placement before, now;
        placement_ranges(&before, from);
        placement_keep(&now, &before, to);
        assert_int_equal(now.instances, to);
        for (uint32_t group = 0; group < KEY_GROUPS; group++) {
            uint32_t old = before.instance[group], new = now.instance[group];
            assert_true(new < to && (new == old || old >= to || new >= from));
            has[new]++;
        }
        for (uint32_t k = 0; k < to; k++)
            assert_in_range(has[k], KEY_GROUPS / to - from, KEY_GROUPS / to + 1);
    }
}

/* Each group has one instance, which the seed decides, and no instance has a range. */
static void test_scatter(void **state)
{
    (void)state;
    struct placement placement, again, other;
    struct group_set groups[3];
    placement_scatter(&placement, 3, 1);
    placement_scatter(&again, 3, 1);
    placement_scatter(&other, 3, 2);
    assert_memory_equal(placement.instance, again.instance, sizeof(placement.instance));
    assert_memory_not_equal(placement.instance, other.instance, sizeof(placement.instance));
    for (uint32_t i = 0; i < 3; i++) {
        placement_groups(&placement, i, &groups[i]);
        uint32_t count = group_set_count(&groups[i]);
        assert_true(count > KEY_GROUPS / 6 && count < KEY_GROUPS / 2);
        assert_true(group_set_limit(&groups[i]) - group_set_next(&groups[i], 0) > 2 * count);
    }
    for (uint64_t hash = 0; hash < UINT64_C(1) << 60; hash += UINT64_C(1) << 50)
        for (uint32_t i = 0; i < 3; i++)
            assert_int_equal(group_set_has(&groups[i], key_group(hash)),
                             placement_instance(&placement, hash) == i);
}

static void check_text(const char *text, const char *again)
{
    struct group_set groups;
    char written[GROUP_SET_TEXT_BYTES];
    assert_int_equal(group_set_parse(str_from(text), &groups), again != NULL);
    if (again == NULL)
        return;
    group_set_text(&groups, written);
    assert_string_equal(written, again);
}

static void test_texts(void **state)
{
    (void)state;
    check_text("0-719", "0-719");
    check_text("7", "7");
    check_text("90,0-71, 72", "0-72, 90");
    check_text("718, 5-5,719", "5, 718-719");
    static const char *const wrong[] = {"",   "-",    "a",           "1-",        "-1",  "720",
                                        "1,", "1,,2", "2-1",         "1-720",     "1,1", "1-3,2",
                                        " 1", "1x",   "99999999999", "4294967297"};
    for (size_t i = 0; i < ARRAY_COUNT(wrong); i++)
        check_text(wrong[i], NULL);
    /* Too many ranges for a text: it says that there are more. */
    struct group_set groups = {0};
    char text[GROUP_SET_TEXT_BYTES];
    for (uint32_t group = 100; group < KEY_GROUPS; group += 3)
        bit_set(groups.words, group), bit_set(groups.words, group + 1 == KEY_GROUPS ? group : group + 1);
    group_set_text(&groups, text);
    assert_int_equal(strncmp(text, "100-101, 103-104", 16), 0);
    assert_string_equal(text + strlen(text) - 5, ", ...");
    struct group_set empty = {0};
    group_set_text(&empty, text);
    assert_string_equal(text, "");
    assert_true(group_set_includes(&groups, &empty) && !group_set_includes(&empty, &groups));
    assert_true(group_set_includes(NULL, &groups) && !group_set_includes(&groups, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sets), cmocka_unit_test(test_all_groups), cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_keep), cmocka_unit_test(test_scatter),    cmocka_unit_test(test_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Records on their way: what was put is what comes, and damaged bytes end the reading. */
#include "cmocka_all.h"
#include "core/key.h"
#include "core/moved.h"

static void test_round(void **state)
{
    (void)state;
    struct byte_buffer bytes = {0};
    moved_put(&bytes, 0, "", 0);
    moved_put(&bytes, KEY_GROUPS - 1, "seven", 5);
    moved_put(&bytes, SNAPSHOT_GLOBAL, "all", 3);
    struct str rest = {bytes.data, bytes.length}, data;
    uint32_t group;
    assert_true(moved_next(&rest, &group, &data) && group == 0 && data.length == 0);
    assert_true(moved_next(&rest, &group, &data) && group == KEY_GROUPS - 1 && str_is(data, "seven"));
    assert_true(moved_next(&rest, &group, &data) && group == SNAPSHOT_GLOBAL && str_is(data, "all"));
    assert_false(moved_next(&rest, &group, &data));
    assert_int_equal(rest.length, 0);
    buffer_free(&bytes);
}

/* A record that is cut, longer than allowed, or of a group that does not exist stays in the rest. */
static void test_damaged(void **state)
{
    (void)state;
    struct byte_buffer bytes = {0};
    moved_put(&bytes, 5, "seven", 5);
    struct str data;
    uint32_t group;
    for (size_t length = 1; length < bytes.length; length++) {
        struct str rest = {bytes.data, length};
        assert_false(moved_next(&rest, &group, &data));
        assert_int_equal(rest.length, length);
    }
    const struct {
        uint32_t group, bytes;
    } heads[] = {
        {KEY_GROUPS, 5}, {SNAPSHOT_GLOBAL - 1, 5}, {5, 6}, {5, MOVED_RECORD_MAX + 1}, {5, UINT32_MAX}};
    for (uint32_t i = 0; i < ARRAY_COUNT(heads); i++) {
        struct str rest = {bytes.data, bytes.length};
        memcpy(bytes.data, &heads[i], sizeof(heads[i]));
        assert_false(moved_next(&rest, &group, &data));
        assert_int_equal(rest.length, bytes.length);
    }
    buffer_free(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_round), cmocka_unit_test(test_damaged)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

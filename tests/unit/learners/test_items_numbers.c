/*
 * Dense numbers of items beside a plain model: a list of all numbers that is searched from its begin. Random
 * histories of insertions, removals, look-ups by old references, saving and restoring; generations that are
 * used up; and saved bytes that were cut or changed. What changed since an epoch: test_items_changes.c.
 */
#include "items_rig.h"

enum { OLD = 4096 };

/* --- The model --- */

struct model {
    uint64_t keys[NUMBERS]; /* 0: nobody has the number */
    uint32_t generations[NUMBERS];
    uint32_t used;
};

static int model_find(const struct model *m, uint64_t key)
{
    for (uint32_t i = 0; i < m->used; i++)
        if (m->keys[i] == key)
            return (int)i;
    return -1;
}

static int model_add(struct model *m, uint64_t key, uint32_t numbers_max)
{
    uint32_t i = 0;
    while (i < m->used && (m->keys[i] != 0 || m->generations[i] > ITEMS_GENERATION_LAST))
        i++;
    if (i == numbers_max)
        return -1;
    m->used += i == m->used;
    m->keys[i] = key;
    return (int)i;
}

static void model_remove(struct model *m, int number)
{
    m->keys[number] = 0;
    m->generations[number]++;
}

/* --- Values --- */

static void assert_value(const struct items_numbers *n, struct items_ref ref, uint64_t key)
{
    char text[48];
    struct items_value expected = value_of(key, text), found;
    assert_true(items_numbers_value(n, ref, &found));
    assert_true(found.key == key && found.is_text == expected.is_text && found.integer == expected.integer);
    assert_true(str_equal(found.text, expected.text));
    struct items_value now;
    assert_true(items_numbers_value_now(n, ref.number, &now));
    assert_true(now.key == key && now.text.data == found.text.data);
}

static void assert_all(const struct items_numbers *n, const struct model *m)
{
    uint32_t live = 0, retired = 0;
    for (uint32_t i = 0; i < m->used; i++) {
        struct items_ref ref = {i, (uint16_t)m->generations[i]}, found;
        struct items_value value;
        live += m->keys[i] != 0;
        retired += m->generations[i] > ITEMS_GENERATION_LAST;
        if (m->keys[i] == 0) {
            assert_false(items_numbers_value(n, ref, &value));
            assert_false(items_numbers_value_now(n, i, &value));
            continue;
        }
        assert_value(n, ref, m->keys[i]);
        assert_true(items_numbers_find(n, m->keys[i], &found));
        assert_true(found.number == i && found.generation == ref.generation);
    }
    struct items_counts counts = items_numbers_counts(n);
    assert_int_equal(counts.live, live);
    assert_int_equal(counts.retired, retired);
    assert_int_equal(counts.used, m->used);
    assert_int_equal(counts.free, m->used - live - retired);
}

/* --- Random histories --- */

struct old_refs {
    struct items_ref refs[OLD];
    uint64_t keys[OLD];
    size_t count;
};

static void step(struct items_numbers *n, struct model *m, struct old_refs *old, uint64_t r)
{
    uint64_t key = 1 + (r >> 20) % KEYS;
    struct items_ref ref = {0};
    int number = model_find(m, key);
    if (r % 100 < 55) {
        enum items_added added = add(n, key, &ref);
        assert_int_equal(added == ITEMS_FOUND, number >= 0);
        if (number < 0)
            number = model_add(m, key, NUMBERS);
        assert_int_equal(added == ITEMS_FULL, number < 0);
    } else {
        assert_int_equal(items_numbers_remove(n, key, &ref), number >= 0);
        if (number >= 0 && old->count < OLD) {
            old->refs[old->count] = ref;
            old->keys[old->count++] = key;
        }
        if (number >= 0)
            assert_int_equal(ref.generation, m->generations[number]);
        if (number >= 0)
            model_remove(m, number);
    }
    if (number >= 0)
        assert_int_equal(ref.number, number);
}

static void test_histories(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        static struct model model;
        static struct old_refs old;
        uint64_t random = seed * 0x9e3779b97f4a7c15U;
        struct items_numbers *n = items_numbers_create(NUMBERS);
        memset(&model, 0, sizeof(model));
        old.count = 0;
        for (int i = 0; i < 20000; i++) {
            step(n, &model, &old, random_next(&random) >> 1);
            if (i % 1999 == 0)
                n = restored(n);
            if (i % 997 == 0)
                assert_all(n, &model);
        }
        assert_all(n, &model);
        assert_true(old.count > 1000);
        for (size_t i = 0; i < old.count; i++) {
            struct items_value value;
            assert_false(items_numbers_value(n, old.refs[i], &value));
        }
        items_numbers_free(n);
    }
}

/* The order of calls decides: the lowest free number, then the next one. */
static void test_lowest(void **state)
{
    (void)state;
    struct items_numbers *n = items_numbers_create(10000);
    struct items_ref ref;
    for (uint64_t key = 1; key <= 9000; key++) {
        assert_int_equal(add(n, key, &ref), ITEMS_NEW);
        assert_true(ref.number == key - 1 && ref.generation == 0);
    }
    static const uint64_t gone[] = {8000, 17, 4097, 16, 9000};
    static const uint32_t expected[] = {15, 16, 4096, 7999, 8999, 9000};
    for (size_t i = 0; i < 5; i++)
        assert_true(items_numbers_remove(n, gone[i], &ref));
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(add(n, 20000 + i, &ref), ITEMS_NEW);
        assert_true(ref.number == expected[i] && ref.generation == (i < 5));
    }
    assert_false(items_numbers_find(n, 17, &ref));
    assert_false(items_numbers_find(n, 0, &ref));
    items_numbers_free(n);
}

static void test_generations_used_up(void **state)
{
    (void)state;
    struct items_numbers *n = items_numbers_create(2);
    struct items_ref ref;
    struct items_value value;
    for (uint32_t i = 0; i <= ITEMS_GENERATION_LAST; i++) {
        assert_int_equal(add(n, 5 + i, &ref), ITEMS_NEW);
        assert_true(ref.number == 0 && ref.generation == i);
        assert_true(items_numbers_remove(n, 5 + i, &ref));
    }
    assert_int_equal(items_numbers_counts(n).retired, 1);
    assert_false(items_numbers_value(n, (struct items_ref){0, 0}, &value));
    assert_int_equal(add(n, 1, &ref), ITEMS_NEW);
    assert_true(ref.number == 1 && ref.generation == 0);
    assert_int_equal(add(n, 2, &ref), ITEMS_FULL);
    assert_false(items_numbers_find(n, 2, &ref));
    struct byte_buffer saved = {0};
    items_numbers_save(n, 0, &saved);
    assert_null(items_numbers_load(n, saved.data, saved.length));
    buffer_free(&saved);
    assert_int_equal(items_numbers_counts(n).retired, 1);
    assert_true(items_numbers_remove(n, 1, &ref));
    assert_int_equal(add(n, 2, &ref), ITEMS_NEW);
    assert_true(ref.number == 1 && ref.generation == 1);
    items_numbers_free(n);
}

static void test_long_text(void **state)
{
    (void)state;
    struct items_numbers *n = items_numbers_create(10);
    struct items_ref ref;
    struct items_value found;
    char *text = calloc(1, ITEMS_TEXT_MAX + 1);
    assert_non_null(text);
    struct items_value value = {.key = 9, .is_text = true, .text = {text, ITEMS_TEXT_MAX + 1}};
    assert_int_equal(items_numbers_add(n, &value, &ref), ITEMS_TEXT_LONG);
    assert_int_equal(items_numbers_counts(n).used, 0);
    value.text.length = ITEMS_TEXT_MAX;
    assert_int_equal(items_numbers_add(n, &value, &ref), ITEMS_NEW);
    assert_true(items_numbers_value(n, ref, &found));
    assert_int_equal(found.text.length, ITEMS_TEXT_MAX);
    free(text);
    items_numbers_free(n);
}

/* --- Bytes from outside --- */

/* Whatever the bytes: refused, which leaves nothing, or taken, and then saved the same, apart from `since`. */
static bool is_taken(struct items_numbers *n, const char *data, size_t length)
{
    char *copy = malloc(length + 1); /* of exact length, so that ASan sees reads behind it */
    assert_non_null(copy);
    copy = realloc(copy, length > 0 ? length : 1);
    if (length > 0)
        memcpy(copy, data, length);
    assert_non_null(items_numbers_load(n, "", 0)); /* bytes may say that they are changes: of nothing */
    const char *reason = items_numbers_load(n, copy, length);
    struct byte_buffer again = {0};
    items_numbers_save(n, 0, &again);
    if (reason != NULL) {
        assert_int_equal(items_numbers_counts(n).used, 0);
        assert_int_equal(items_numbers_counts(n).live, 0);
    } else {
        assert_int_equal(again.length, length);
        memset(copy + AT_SINCE, 0, sizeof(uint32_t));
        assert_memory_equal(again.data, copy, length);
    }
    buffer_free(&again);
    free(copy);
    return reason == NULL;
}

static void test_bad_bytes(void **state)
{
    (void)state;
    struct items_numbers *n = items_numbers_create(NUMBERS);
    struct items_ref ref;
    for (uint64_t key = 1; key <= 40; key++)
        assert_int_equal(add(n, key, &ref), ITEMS_NEW);
    for (uint64_t key = 5; key <= 40; key += 7)
        assert_true(items_numbers_remove(n, key, &ref));
    struct byte_buffer saved = {0};
    items_numbers_save(n, 0, &saved);
    assert_true(is_taken(n, saved.data, saved.length));
    for (size_t length = 0; length < saved.length; length++)
        assert_false(is_taken(n, saved.data, length));
    size_t refused = 0;
    for (size_t at = 0; at < saved.length; at++) {
        for (int bit = 0; bit < 8; bit++) {
            saved.data[at] = (char)(saved.data[at] ^ 1 << bit);
            refused += !is_taken(n, saved.data, saved.length);
            saved.data[at] = (char)(saved.data[at] ^ 1 << bit);
        }
    }
    assert_true(refused > 1000);
    buffer_append(&saved, "", 1);
    assert_false(is_taken(n, saved.data, saved.length));
    buffer_free(&saved);
    items_numbers_free(n);
}

static void test_bad_records(void **state)
{
    (void)state;
    struct items_numbers *n = items_numbers_create(3);
    struct record good[] = {
        {7, -3, 0, 2, LIVE, 0}, {0, 0, 1, 1, FREE, 0}, {0, 0, 2, 65535, RETIRED, 0}, {0, 0, 3, 1, FREE, 0}};
    assert_null(reason_of(n, good, 3, 3, 0));
    assert_non_null(reason_of(n, good, 4, 4, 0)); /* beyond numbers_max, before the records are read */
    assert_non_null(reason_of(n, good, 2, 3, 0)); /* number 2 is missing */
    assert_non_null(reason_of(n, good + 1, 2, 3, 0));
    assert_non_null(reason_of(n, good, 3, 2, 0)); /* number 2 is beyond the head's */
    struct record bad[][2] = {
        {{7, 0, 0, 0, LIVE, 0}, {7, 1, 1, 0, LIVE, 0}},    {{7, 0, 0, 0, LIVE, 0}, {0, 1, 1, 0, LIVE, 0}},
        {{7, 0, 0, 0, LIVE, 0}, {8, 0, 1, 0, 3, 0}},       {{7, 0, 0, 0, LIVE, 0}, {8, 0, 1, 0, LIVE, 2}},
        {{7, 0, 0, 0, LIVE, 0}, {8, 0, 1, 1, FREE, 0}},    {{7, 0, 0, 0, LIVE, 0}, {0, 0, 1, 0, FREE, 0}},
        {{7, 0, 0, 0, LIVE, 0}, {0, 0, 1, 9, RETIRED, 0}}, {{7, 0, 0, 0, LIVE, 0}, {8, -5, 1, 0, LIVE, 1}},
        {{7, 0, 0, 0, LIVE, 0}, {0, 1, 1, 1, FREE, 0}},    {{7, 0, 0, 0, LIVE, 0}, {8, 65537, 1, 0, LIVE, 1}},
        {{7, 0, 0, 0, LIVE, 0}, {8, 4, 1, 0, LIVE, 1}},    {{7, 0, 0, 0, LIVE, 0}, {0, 0, 1, 1, FREE, 1}},
        {{7, 0, 0, 0, LIVE, 0}, {8, 0, 0, 0, LIVE, 0}},    {{7, 0, 1, 0, LIVE, 0}, {8, 0, 0, 0, LIVE, 0}},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        if (reason_of(n, bad[i], 2, 2, 0) == NULL)
            fail_msg("pair %zu of records was taken", i);
    items_numbers_free(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_histories),           cmocka_unit_test(test_lowest),
        cmocka_unit_test(test_generations_used_up), cmocka_unit_test(test_long_text),
        cmocka_unit_test(test_bad_bytes),           cmocka_unit_test(test_bad_records),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

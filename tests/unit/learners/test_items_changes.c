/*
 * Numbers of items that are saved by what changed since an epoch: base and deltas of checkpoints, and cuts of a
 * follower, beside states saved whole; and changes that were damaged.
 */
#include "items_rig.h"

/* Records of changes that cannot come after the state that is there. */
static void test_bad_changes(void **state)
{
    (void)state;
    struct items_numbers *n = items_numbers_create(5);
    const struct record base[] = {
        {7, -3, 0, 2, LIVE, 0}, {0, 0, 1, 5, FREE, 0}, {0, 0, 2, 65535, RETIRED, 0}, {9, 4, 3, 0, LIVE, 0}};
    const struct record good[] = {{7, 1, 1, 5, LIVE, 0}, {8, 1, 0, 3, LIVE, 0}};
    const struct record swapped[] = {good[1], good[0]};
    const struct record bad[] = {
        {7, -3, 0, 1, LIVE, 0},    /* an older generation */
        {0, 0, 0, 2, FREE, 0},     /* free again without the next one */
        {0, 0, 1, 4, FREE, 0},     /* likewise */
        {8, 0, 2, 65535, LIVE, 0}, /* a retired number */
        {7, 0, 3, 1, LIVE, 0},     /* another number has the key */
        {8, 0, 4, 0, LIVE, 0},     /* beyond the head's numbers */
        {8, 0, 1, 5, LIVE + 3, 0}, /* no such state */
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        assert_null(reason_of(n, base, 4, 4, 0));
        if (reason_of(n, &bad[i], 1, 4, 1) == NULL)
            fail_msg("change %zu was taken", i);
        assert_int_equal(items_numbers_counts(n).used, 0);
    }
    assert_null(reason_of(n, base, 4, 4, 0));
    assert_non_null(reason_of(n, good, 2, 4, 1)); /* not by rising number */
    assert_null(reason_of(n, base, 4, 4, 0));
    assert_non_null(reason_of(n, NULL, 0, 3, 1)); /* fewer numbers than there were */
    assert_null(reason_of(n, base, 4, 4, 0));
    assert_null(reason_of(n, swapped, 2, 4, 1));
    struct items_ref ref;
    assert_true(items_numbers_find(n, 7, &ref) && ref.number == 1 && ref.generation == 5);
    assert_true(items_numbers_find(n, 8, &ref) && ref.number == 0 && ref.generation == 3);
    assert_int_equal(items_numbers_counts(n).free, 0);
    items_numbers_free(n);
}

/* Both give the same numbers to new keys until they are full. Changes both. */
static void assert_give_equal(struct items_numbers *a, struct items_numbers *b)
{
    for (uint64_t key = 10 * KEYS;; key++) {
        struct items_ref x, y;
        enum items_added added = add(a, key, &x);
        assert_int_equal(add(b, key, &y), added);
        if (added == ITEMS_FULL)
            break;
        assert_true(x.number == y.number && x.generation == y.generation);
    }
    assert_saved_equal(a, b);
}

/* Random calls; in some epochs none, in some many. */
static void change(struct items_numbers *n, uint64_t *random)
{
    for (uint64_t i = random_next(random) % 8 == 0 ? 0 : random_next(random) % 300; i > 0; i--) {
        uint64_t r = random_next(random) >> 1, key = 1 + (r >> 20) % KEYS;
        struct items_ref ref;
        if (r % 100 < 50)
            assert_true(add(n, key, &ref) != ITEMS_TEXT_LONG);
        else
            (void)items_numbers_remove(n, key, &ref);
    }
}

/* Base and deltas of checkpoints, some abandoned, against states saved whole. */
static void test_deltas(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        uint64_t random = seed * 0x9e3779b97f4a7c15U;
        struct items_numbers *n = items_numbers_create(NUMBERS), *loaded = items_numbers_create(NUMBERS);
        struct byte_buffer bytes = {0}, whole = {0};
        uint32_t published = 0;
        for (uint32_t epoch = 1; epoch <= 150; epoch++) {
            items_numbers_set_epoch(n, epoch);
            change(n, &random);
            buffer_clear(&bytes);
            items_numbers_save(n, random_next(&random) % 40 == 0 ? 0 : published, &bytes);
            if (random_next(&random) % 4 == 0)
                continue; /* abandoned: the next one has its changes, too */
            published = epoch;
            assert_null(items_numbers_load(loaded, bytes.data, bytes.length));
            assert_saved_equal(n, loaded);
            struct items_numbers *a = copy_of(n), *b = copy_of(loaded);
            assert_give_equal(a, b);
            items_numbers_free(a);
            items_numbers_free(b);
            if (random_next(&random) % 16 == 0) { /* the process begins again */
                items_numbers_free(n);
                n = loaded;
                loaded = copy_of(n);
            }
        }
        buffer_clear(&bytes);
        items_numbers_save(n, 150, &bytes);
        assert_int_equal(bytes.length, HEAD_BYTES);
        items_numbers_save(n, 0, &whole);
        assert_true(whole.length > 20 * bytes.length);
        assert_give_equal(n, loaded); /* the heap that was loaded by deltas, not a copy of it */
        buffer_free(&bytes);
        buffer_free(&whole);
        items_numbers_free(n);
        items_numbers_free(loaded);
    }
}

/* Deltas over the end of generations, and over chunks of slots that did not change. */
static void test_deltas_of_many(void **state)
{
    (void)state;
    enum { MANY = 20000 };
    struct items_numbers *n = items_numbers_create(MANY), *loaded = items_numbers_create(MANY);
    struct items_ref ref;
    struct byte_buffer bytes = {0};
    for (uint64_t key = 1; key <= MANY - 5; key++)
        assert_int_equal(add(n, key, &ref), ITEMS_NEW);
    for (uint32_t i = 0; i < ITEMS_GENERATION_LAST; i++) {
        assert_true(items_numbers_remove(n, i == 0 ? 9001 : MANY + i, &ref));
        assert_int_equal(add(n, MANY + 1 + i, &ref), ITEMS_NEW);
    }
    items_numbers_save(n, 0, &bytes);
    assert_null(items_numbers_load(loaded, bytes.data, bytes.length));
    items_numbers_set_epoch(n, 2);
    assert_true(items_numbers_remove(n, MANY + ITEMS_GENERATION_LAST, &ref));
    assert_int_equal(items_numbers_counts(n).retired, 1);
    assert_int_equal(add(n, 5 * MANY, &ref), ITEMS_NEW);
    assert_int_equal(ref.number, MANY - 5);
    assert_true(items_numbers_remove(n, 5001, &ref)); /* in the chunk before; the first one does not change */
    buffer_clear(&bytes);
    items_numbers_save(n, 1, &bytes);
    assert_in_range(bytes.length, HEAD_BYTES + 72, HEAD_BYTES + 72 + 41);
    for (int times = 0; times < 2; times++) {
        assert_null(items_numbers_load(loaded, bytes.data, bytes.length));
        assert_int_equal(items_numbers_counts(loaded).retired, 1);
        assert_saved_equal(n, loaded);
    }
    buffer_free(&bytes);
    items_numbers_free(n);
    items_numbers_free(loaded);
}

/* A follower starts from a state between two cuts, or later than several, and takes each cut once or twice. */
static void test_follow(void **state)
{
    (void)state;
    enum { CUTS = 12 };
    for (uint64_t seed = 1; seed <= 60; seed++) {
        uint64_t random = seed * 0x9e3779b97f4a7c15U;
        struct items_numbers *n = items_numbers_create(NUMBERS), *follower = NULL;
        struct byte_buffer cuts[CUTS] = {{0}};
        change(n, &random);
        for (uint32_t i = 0; i < CUTS; i++) {
            items_numbers_set_epoch(n, i + 2);
            change(n, &random);
            if (i == seed % CUTS)
                follower = copy_of(n);
            change(n, &random);
            items_numbers_save(n, i + 1, &cuts[i]);
        }
        for (uint32_t i = (uint32_t)(random_next(&random) % (seed % CUTS + 1)); i < CUTS; i++)
            for (uint64_t times = 1 + random_next(&random) % 2; times > 0; times--)
                assert_null(items_numbers_follow(follower, cuts[i].data, cuts[i].length));
        assert_saved_equal(n, follower);
        assert_give_equal(n, follower);
        for (uint32_t i = 0; i < CUTS; i++)
            buffer_free(&cuts[i]);
        items_numbers_free(n);
        items_numbers_free(follower);
    }
}

/* Changed bits of a delta or a cut: refused, which leaves nothing, or taken, and then the state is one that loads. */
static void test_bad_deltas(void **state)
{
    (void)state;
    struct byte_buffer delta = {0};
    uint64_t random = 77;
    size_t refused = 0, taken = 0;
    struct items_numbers *n = items_numbers_create(NUMBERS);
    for (int i = 0; i < 4; i++)
        change(n, &random);
    struct items_numbers *base = copy_of(n);
    items_numbers_set_epoch(n, 2);
    struct items_ref ref;
    for (uint64_t key = 1; key <= 40; key++) {
        if (key % 2 == 0)
            assert_true(add(n, key, &ref) != ITEMS_TEXT_LONG);
        else
            (void)items_numbers_remove(n, key, &ref);
    }
    items_numbers_save(n, 1, &delta);
    for (size_t bit = 0; bit < 16 * delta.length; bit++) {
        char *at = &delta.data[bit / 16];
        struct items_numbers *loaded = copy_of(base);
        *at = (char)(*at ^ 1 << bit / 2 % 8);
        const char *reason = bit % 2 == 0 ? items_numbers_load(loaded, delta.data, delta.length)
                                          : items_numbers_follow(loaded, delta.data, delta.length);
        *at = (char)(*at ^ 1 << bit / 2 % 8);
        if (reason != NULL) {
            assert_int_equal(items_numbers_counts(loaded).used, 0);
            refused++;
        } else {
            loaded = restored(loaded);
            taken++;
        }
        items_numbers_free(loaded);
    }
    assert_true(refused > 1000 && taken > 1000);
    buffer_free(&delta);
    items_numbers_free(base);
    items_numbers_free(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_changes),    cmocka_unit_test(test_deltas),
        cmocka_unit_test(test_deltas_of_many), cmocka_unit_test(test_follow),
        cmocka_unit_test(test_bad_deltas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Sketches against exact answers over random values, and what they promise: bounds, order, merging. */
#include "cmocka_all.h"
#include "core/sketch.h"
#include "unit/support/random.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* --- distinct --- */

static void test_distinct_is_near(void **state)
{
    (void)state;
    static const uint32_t counts[] = {0, 1, 2, 10, 100, 1000, 3000, 5000, 10000, 100000, 1000000};
    for (size_t c = 0; c < ARRAY_COUNT(counts); c++) {
        double worst = 0, sum = 0;
        enum { ROUNDS = 20 };
        for (uint32_t round = 0; round < ROUNDS; round++) {
            struct sketch_distinct *sketch = calloc(1, sizeof(*sketch));
            struct test_random random = {round * 7919 + 1};
            for (uint32_t i = 0; i < counts[c]; i++) {
                uint64_t hash = random_next(&random);
                sketch_distinct_add(sketch, hash);
                sketch_distinct_add(sketch, hash); /* again: no other value */
            }
            double error = sketch_distinct_estimate(sketch) - counts[c];
            worst = MAX(worst, fabs(error));
            sum += error;
            free(sketch);
        }
        /* 2.3 %: four times for one of them, once for the mean of 20. Two of a few may share a register. */
        assert_true(worst <= 4 * 0.023 * counts[c] + (counts[c] > 1 ? 1.1 : 0));
        assert_true(fabs(sum / ROUNDS) <= 0.023 * counts[c] + (counts[c] > 1 ? 0.2 : 0));
    }
}

static void test_distinct_of_extreme_hashes(void **state)
{
    (void)state;
    static struct sketch_distinct sketch;
    sketch_distinct_add(&sketch, 0);
    assert_true(fabs(sketch_distinct_estimate(&sketch) - 1) < 0.5);
    for (uint64_t i = 0; i < SKETCH_REGISTERS; i++)
        sketch_distinct_add(&sketch, i << (64 - SKETCH_REGISTER_BITS)); /* every register is full */
    assert_true(sketch_distinct_estimate(&sketch) > 1e15);
}

static void test_distinct_merges(void **state)
{
    (void)state;
    struct sketch_distinct *parts = calloc(3, sizeof(*parts)), *whole = calloc(1, sizeof(*whole));
    struct test_random random = {5};
    for (uint32_t i = 0; i < 30000; i++) {
        uint64_t hash = random_next(&random);
        sketch_distinct_add(&parts[i % 3], hash);
        sketch_distinct_add(whole, hash);
    }
    sketch_distinct_merge(&parts[0], &parts[1]);
    sketch_distinct_merge(&parts[0], &parts[2]);
    assert_memory_equal(&parts[0], whole, sizeof(*whole));
    free(parts);
    free(whole);
}

/* --- histogram --- */

enum { VALUES = 20000 };

/* Buckets rise, do not overlap, and have exactly the values that lie in them. */
static void check_buckets(const struct sketch_histogram *h, const double *values, uint32_t count)
{
    double before = -INFINITY;
    uint64_t sum = 0;
    assert_in_range(h->count, 1, SKETCH_BUCKETS);
    for (uint32_t b = 0; b < h->count; b++) {
        double from, to;
        uint64_t exact = 0;
        sketch_histogram_range(h, b, &from, &to);
        assert_true(from >= before && (to > from || from == DBL_MAX));
        for (uint32_t i = 0; i < count; i++)
            exact += values[i] >= from && (values[i] < to || (to == DBL_MAX && values[i] == DBL_MAX));
        assert_int_equal(h->counts[b], exact);
        assert_true(exact > 0);
        sum += exact;
        before = to;
    }
    assert_int_equal(sum, count);
}

static double uniform(struct test_random *random)
{
    return (double)(random_next(random) >> 11) / 9007199254740992.0;
}

static double value_of_kind(uint32_t kind, struct test_random *random, uint32_t i)
{
    switch (kind) {
    case 0: return uniform(random);
    case 1: return random_below(random, 5);
    case 2: return 1.7e15 + (double)random_below(random, 4000000000U); /* times in microseconds */
    case 3: return (uniform(random) - 0.5) * 20;
    case 4: return random_chance(random, 95) ? 0 : uniform(random) * 100; /* mostly 0 */
    case 5: return exp(40 * (uniform(random) - 0.5)) * (random_chance(random, 50) ? 1 : -1);
    case 6: { /* any finite double */
        double value;
        uint64_t bits = random_next(random);
        memcpy(&value, &bits, sizeof(value));
        return isfinite(value) ? value : DBL_MAX;
    }
    case 7: return i == 77 ? 1e300 : i == 78 ? -1e300 : i == 79 ? 5e-324 : 100 + uniform(random);
    case 8: return i; /* rises */
    case 9: return -(double)i * i;
    case 10: return i % 3 == 0 ? DBL_MAX : i % 3 == 1 ? -DBL_MAX : -0.0;
    default: return 42;
    }
}

enum { KINDS = 12 };

static void test_histogram_counts_exactly(void **state)
{
    (void)state;
    double *values = malloc(VALUES * sizeof(*values));
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        struct test_random random = {kind + 1};
        struct sketch_numbers *numbers = calloc(1, sizeof(*numbers));
        double low = INFINITY, high = -INFINITY, mean = 0, size = 0;
        for (uint32_t i = 0; i < VALUES; i++) {
            values[i] = value_of_kind(kind, &random, i);
            sketch_numbers_add(numbers, values[i]);
            low = MIN(low, values[i]);
            high = MAX(high, values[i]);
            mean += values[i] / VALUES;
            size = MAX(size, fabs(values[i]));
            if (i == 0 || i == 70 || i == 3000)
                check_buckets(&numbers->histogram, values, i + 1);
        }
        check_buckets(&numbers->histogram, values, VALUES);
        assert_true(numbers->min == low && numbers->max == high && numbers->count == VALUES);
        assert_true(fabs(numbers->mean - mean) <= size * 1e-9);
        free(numbers);
    }
    free(values);
}

/* The largest bucket of values that are spread evenly has few of them, and one that is far out does not change that. */
static void test_histogram_is_fine(void **state)
{
    (void)state;
    static const uint32_t kinds[] = {0, 2, 3, 7, 8};
    for (size_t k = 0; k < ARRAY_COUNT(kinds); k++) {
        struct test_random random = {k + 1};
        struct sketch_histogram h = {0};
        uint64_t most = 0;
        for (uint32_t i = 0; i < VALUES; i++)
            sketch_histogram_add(&h, value_of_kind(kinds[k], &random, i));
        for (uint32_t b = 0; b < h.count; b++)
            most = MAX(most, h.counts[b]);
        assert_true(most <= VALUES / 9);
    }
    struct sketch_histogram few = {0}; /* few values have a bucket each */
    struct test_random random = {1};
    for (uint32_t i = 0; i < VALUES; i++)
        sketch_histogram_add(&few, value_of_kind(1, &random, i));
    assert_int_equal(few.count, 5);
}

static void test_numbers_merge(void **state)
{
    (void)state;
    double *values = malloc(VALUES * sizeof(*values));
    for (uint32_t a = 0; a < KINDS; a++)
        for (uint32_t b = 0; b < KINDS; b++) {
            struct test_random random = {a * KINDS + b + 1};
            struct sketch_numbers *parts = calloc(3, sizeof(*parts));
            double mean = 0, size = 0;
            for (uint32_t i = 0; i < 1000; i++) {
                values[i] = value_of_kind(i % 4 == 0 ? a : b, &random, i);
                sketch_numbers_add(&parts[i % 4 == 0], values[i]);
                mean += values[i] / 1000;
                size = MAX(size, fabs(values[i]));
            }
            sketch_numbers_add(&parts[0], (double)NAN);
            sketch_numbers_add(&parts[1], -INFINITY);
            sketch_numbers_merge(&parts[2], &parts[0]); /* into an empty one */
            sketch_numbers_merge(&parts[2], &parts[1]);
            check_buckets(&parts[2].histogram, values, 1000);
            assert_true(parts[2].count == 1000 && parts[2].not_finite == 2);
            assert_true(fabs(parts[2].mean - mean) <= size * 1e-9);
            assert_true(parts[2].min == MIN(parts[0].min, parts[1].min) &&
                        parts[2].max == MAX(parts[0].max, parts[1].max));
            free(parts);
        }
    free(values);
}

/* --- top --- */

enum { DRAWS = 50000, KEYS = 5000 };

/* Key k comes about 1 / (k + 1) as often as key 0. */
static uint32_t zipf(struct test_random *random)
{
    return (uint32_t)(exp(uniform(random) * log(KEYS)) - 1);
}

static void add_key(struct sketch_top *top, uint32_t key)
{
    char text[16];
    size_t length = (size_t)snprintf(text, sizeof(text), "key %u", key);
    struct test_random hash = {key};
    sketch_top_add(top, random_next(&hash), (struct str){text, length});
}

static uint32_t key_of(const struct sketch_frequent *found)
{
    const struct sketch_top *top = found->top;
    char text[SKETCH_TEXT_BYTES + 1] = {0};
    memcpy(text, top->texts[found->index], top->lengths[found->index]);
    assert_memory_equal(text, "key ", 4);
    return (uint32_t)strtoul(text + 4, NULL, 10);
}

static void test_top_finds_the_frequent(void **state)
{
    (void)state;
    struct sketch_top *parts = calloc(3, sizeof(*parts));
    uint64_t *exact = calloc(KEYS, sizeof(*exact));
    struct test_random random = {3};
    for (uint32_t i = 0; i < DRAWS; i++) {
        uint32_t key = zipf(&random);
        exact[key]++;
        add_key(&parts[random_below(&random, 3)], key);
    }
    const struct sketch_top *tops[] = {&parts[0], &parts[1], &parts[2]};
    struct sketch_frequent found[SKETCH_ANSWER_TOPS];
    uint32_t followed;
    assert_int_equal(sketch_top_frequent(tops, 3, found, &followed), SKETCH_ANSWER_TOPS);
    assert_int_equal(parts[0].total + parts[1].total + parts[2].total, DRAWS);
    for (uint32_t i = 0; i < SKETCH_ANSWER_TOPS; i++)
        assert_true(found[i].at_least <= exact[key_of(&found[i])] &&
                    (i == 0 || found[i].at_least <= found[i - 1].at_least));
    for (uint32_t key = 0; key < KEYS && exact[key] > DRAWS / SKETCH_TOPS; key++) { /* in this order */
        assert_int_equal(key_of(&found[key]), key);
        assert_true(found[key].at_least >= exact[key] - DRAWS / SKETCH_TOPS);
        assert_true(key < SKETCH_ANSWER_TOPS);
    }
    assert_true(exact[2] > DRAWS / SKETCH_TOPS);
    free(parts);
    free(exact);
}

/* Of values that all differ, none is said to be frequent. */
static void test_top_of_unique_values(void **state)
{
    (void)state;
    struct sketch_top *top = calloc(1, sizeof(*top));
    struct sketch_frequent found[SKETCH_ANSWER_TOPS];
    uint32_t followed;
    const struct sketch_top *tops[] = {top};
    assert_int_equal(sketch_top_frequent(tops, 1, found, &followed), 0);
    for (uint32_t i = 0; i < DRAWS; i++) {
        add_key(top, i);
        if (i < SKETCH_TOPS) {
            sketch_top_frequent(tops, 1, found, &followed);
            assert_int_equal(followed, i + 1);
        }
    }
    assert_int_equal(sketch_top_frequent(tops, 1, found, &followed), SKETCH_ANSWER_TOPS);
    assert_int_equal(found[0].at_least, 1);
    free(top);
}

static void test_top_keeps_the_first_bytes(void **state)
{
    (void)state;
    struct sketch_top *top = calloc(1, sizeof(*top));
    char long_text[1000];
    memset(long_text, 'x', sizeof(long_text));
    sketch_top_add(top, 1, (struct str){long_text, SKETCH_TEXT_BYTES});
    sketch_top_add(top, 2, (struct str){long_text, SKETCH_TEXT_BYTES + 1});
    sketch_top_add(top, 3, (struct str){NULL, 0});
    assert_int_equal(top->lengths[0], SKETCH_TEXT_BYTES);
    assert_int_equal(top->lengths[1], SKETCH_TEXT_CUT);
    assert_int_equal(top->lengths[2], 0);
    assert_memory_equal(top->texts[1], long_text, SKETCH_TEXT_BYTES);
    assert_int_equal(top->texts[2][0], 0); /* nothing behind the second text */
    free(top);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distinct_is_near),         cmocka_unit_test(test_distinct_of_extreme_hashes),
        cmocka_unit_test(test_distinct_merges),          cmocka_unit_test(test_histogram_counts_exactly),
        cmocka_unit_test(test_histogram_is_fine),        cmocka_unit_test(test_numbers_merge),
        cmocka_unit_test(test_top_finds_the_frequent),   cmocka_unit_test(test_top_of_unique_values),
        cmocka_unit_test(test_top_keeps_the_first_bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Drawn negatives: their distribution, that draws are a function of seed, identity and place; and the estimate of
 * items' frequencies against the formula, against a known distribution, and through save and restore. */
#include "kernels/num.h"
#include "learners/losses/negatives.h"
#include "tests/unit/support/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { ITEMS = 100, DRAWS = 50, IDENTITIES = 4000 };

/* The sum of (found - expected)^2 / expected must not exceed the mean of its distribution, ITEMS - 1, by more
 * than five deviations; nor be as small as counts that are too even. */
static void check_counts(const struct negatives *n, const uint32_t *numbers)
{
    static uint32_t counts[ITEMS];
    double sum = 0.0, deviation = sqrt(2.0 * (ITEMS - 1)), expected_sum = 0.0;
    memset(counts, 0, sizeof(counts));
    for (uint64_t identity = 0; identity < IDENTITIES; identity++) {
        uint32_t drawn[DRAWS];
        negatives_draw(n, identity, DRAWS, drawn, NULL);
        for (size_t i = 0; i < DRAWS; i++) {
            uint32_t place = 0;
            while (place < ITEMS && numbers[place] != drawn[i])
                place++;
            assert_true(place < ITEMS); /* only items that there are */
            counts[place]++;
        }
    }
    for (uint32_t i = 0; i < ITEMS; i++) {
        double expected = exp(negatives_log_q(n, i, DRAWS)) * IDENTITIES, distance = counts[i] - expected;
        sum += distance * distance / expected, expected_sum += expected;
    }
    assert_true(fabs(expected_sum - (double)DRAWS * IDENTITIES) < 1e-3);
    assert_true(fabs(sum - (ITEMS - 1)) < 5.0 * deviation);
}

static void test_distribution(void **state)
{
    (void)state;
    uint32_t all[ITEMS], some[ITEMS];
    for (uint32_t i = 0; i < ITEMS; i++)
        all[i] = i, some[i] = 3 * i + i / 7;
    struct negatives n = {.seed = 1, .count = ITEMS};
    for (int draw = NEGATIVES_UNIFORM; draw <= NEGATIVES_LOG_UNIFORM; draw++) {
        n.draw = (enum negatives_draw)draw;
        n.live = NULL;
        check_counts(&n, all);
        n.live = some;
        check_counts(&n, some);
    }
    for (uint32_t i = 0; i < ITEMS; i++) { /* the Zipf distribution of the header */
        double share = log((i + 2.0) / (i + 1.0)) / log(ITEMS + 1.0);
        assert_true(fabs(negatives_log_q(&n, i, 1) - log(share)) < 1e-12);
    }
    for (int draw = NEGATIVES_UNIFORM; draw <= NEGATIVES_LOG_UNIFORM; draw++) { /* the ends of the range */
        static const uint32_t counts[] = {1, 2, UINT32_MAX};
        for (size_t c = 0; c < 3; c++) {
            struct negatives few = {.draw = (enum negatives_draw)draw, .count = counts[c]};
            for (uint64_t i = 0; i < 20000; i++)
                assert_true(negatives_place(&few, i, 0) < counts[c]);
        }
    }
}

static void test_same_draws(void **state)
{
    (void)state;
    struct negatives n = {.seed = 9, .count = 1000000};
    uint32_t first[DRAWS], again[DRAWS], equal[3] = {0};
    negatives_draw(&n, 1234567, DRAWS, first, NULL);
    negatives_draw(&n, 77, DRAWS, again, NULL); /* other draws in between change nothing */
    for (size_t i = 0; i < DRAWS; i++)
        equal[0] += first[i] == again[i];
    negatives_draw(&n, 1234567, DRAWS, again, NULL);
    assert_memory_equal(first, again, sizeof(first));
    for (uint64_t i = DRAWS; i-- > 0;) /* nor does their order */
        assert_int_equal(negatives_place(&n, 1234567, i), first[i]);
    n.seed = 10;
    negatives_draw(&n, 1234567, DRAWS, again, NULL);
    for (size_t i = 0; i < DRAWS; i++)
        equal[1] += first[i] == again[i], equal[2] += i > 0 && first[i] == first[i - 1];
    assert_true(equal[0] < 2 && equal[1] < 2 && equal[2] < 2);
}

static void test_frequencies(void **state)
{
    (void)state;
    struct frequencies f;
    frequencies_init(&f, 0.25, 40.0);
    frequencies_add(&f, 3, 10);
    assert_true(fabs(frequencies_log_q(&f, 3, 1) - log(1.0 / 40.0)) < 1e-12); /* no interval yet */
    frequencies_add(&f, 3, 10);
    frequencies_add(&f, 3, 30); /* 0.75 * 40 + 0.25 * 20 */
    assert_true(fabs(frequencies_log_q(&f, 3, 1) - log(1.0 / 35.0)) < 1e-12);
    frequencies_add(&f, 3, 32); /* 0.75 * 35 + 0.25 * 2 */
    assert_true(fabs(frequencies_log_q(&f, 3, 8) - log(8.0 / 26.75)) < 1e-12);
    assert_true(fabs(frequencies_log_q(&f, 99999, 8) - log(8.0 / 40.0)) < 1e-12);
    frequencies_forget(&f, 3);
    frequencies_forget(&f, 99999);
    assert_true(fabs(frequencies_log_q(&f, 3, 1) - log(1.0 / 40.0)) < 1e-12);
    frequencies_free(&f);
    enum { STEPS = 400000 };
    frequencies_init(&f, 0.005, 20.0); /* items of a known distribution */
    struct negatives n = {.seed = 4, .draw = NEGATIVES_LOG_UNIFORM, .count = 20};
    for (uint64_t t = 0; t < STEPS; t++)
        frequencies_add(&f, negatives_place(&n, t, 0), t);
    for (uint32_t i = 0; i < 20; i++) /* B has a relative deviation of sqrt(rate / 2) = 5 % */
        assert_true(fabs(frequencies_log_q(&f, i, 1) - negatives_log_q(&n, i, 1)) < 0.2);
    frequencies_free(&f);
}

static void test_save(void **state)
{
    (void)state;
    struct frequencies f, g;
    struct byte_buffer bytes = {0}, again = {0};
    struct test_random random = {3};
    char reason[FREQUENCIES_REASON];
    frequencies_init(&f, 0.01, 500.0);
    frequencies_init(&g, 0.01, 500.0);
    for (uint64_t t = 0; t < 5000; t++)
        frequencies_add(&f, random_below(&random, 300), t);
    frequencies_add(&f, 0, 5000); /* at each time: the interval is 1, and stays at 1 */
    for (uint64_t t = 5001; t < 10000; t++)
        frequencies_add(&f, 0, t);
    frequencies_save(&f, &bytes);
    assert_int_equal(bytes.length, 300 * 16);
    frequencies_add(&g, 700, 3);
    assert_false(frequencies_restore(&g, bytes.data, bytes.length - 1, 300, 10000, reason));
    assert_non_null(strstr(reason, "found 4799 bytes"));
    assert_false(frequencies_restore(&g, bytes.data, bytes.length, 299, 10000, reason));
    assert_false(frequencies_restore(&g, bytes.data, bytes.length, 300, 9998, reason)); /* a time to come */
    assert_non_null(strstr(reason, "item 0"));
    static const double bad[] = {0.5, -1.0, NAN, INFINITY};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        double old;
        memcpy(&old, bytes.data + 16 * 9 + 8, sizeof(old));
        memcpy(bytes.data + 16 * 9 + 8, &bad[i], sizeof(old));
        assert_false(frequencies_restore(&g, bytes.data, bytes.length, 300, 10000, reason));
        assert_non_null(strstr(reason, "item 9"));
        memcpy(bytes.data + 16 * 9 + 8, &old, sizeof(old));
    }
    assert_int_equal(g.count, 701); /* what is refused changes nothing */
    assert_true(g.last[700] == 4);
    assert_true(frequencies_restore(&g, bytes.data, bytes.length, 300, 10000, reason));
    for (uint64_t t = 10000; t < 11000; t++) { /* both go on alike */
        uint32_t number = random_below(&random, 400);
        frequencies_add(&f, number, t);
        frequencies_add(&g, number, t);
    }
    buffer_clear(&bytes);
    frequencies_save(&f, &bytes);
    frequencies_save(&g, &again);
    assert_int_equal(bytes.length, again.length);
    assert_memory_equal(bytes.data, again.data, bytes.length);
    buffer_free(&bytes);
    buffer_free(&again);
    frequencies_free(&f);
    frequencies_free(&g);
}

/* The powers of a batch's other positives, corrected by estimated frequencies, are on average those of all items;
 * without the correction they are far from it. */
static void test_in_batch(void **state)
{
    (void)state;
    enum { I = 20, TARGETS = 16, TRIALS = 5000 };
    static const float row[I];
    struct frequencies f;
    struct negatives n = {.seed = 6, .draw = NEGATIVES_LOG_UNIFORM, .count = I};
    double all = 0.0, sum = 0.0, plain = 0.0;
    frequencies_init(&f, 0.005, I);
    for (uint64_t t = 0; t < 200000; t++)
        frequencies_add(&f, negatives_place(&n, t, 0), t);
    for (uint32_t i = 0; i < I; i++)
        all += exp(-0.1 * (double)i);
    for (uint64_t trial = 0; trial < TRIALS; trial++) {
        uint32_t positives[TARGETS], numbers[TARGETS - 1], target = (uint32_t)(trial % TARGETS);
        const float *rows[TARGETS], *others[TARGETS - 1];
        double log_q[TARGETS - 1];
        for (uint64_t i = 0; i < TARGETS; i++)
            positives[i] = negatives_place(&n, 1000000 + trial, i), rows[i] = &row[positives[i]];
        struct negatives_batch batch = {positives, rows, TARGETS};
        double own = negatives_in_batch(&batch, &f, target, others, numbers, log_q);
        assert_true(own == frequencies_log_q(&f, positives[target], TARGETS - 1));
        for (uint32_t i = 0; i < TARGETS - 1; i++) {
            uint32_t other = i + (i >= target); /* all but the target itself, in order */
            assert_true(numbers[i] == positives[other] && others[i] == rows[other]);
            sum += exp(-0.1 * (double)numbers[i] - log_q[i]) / TRIALS;
            plain += exp(-0.1 * (double)numbers[i]) / TRIALS * I / (TARGETS - 1);
        }
    }
    assert_true(fabs(sum - all) < 0.05 * all);
    assert_true(fabs(plain - all) > 0.1 * all);
    frequencies_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distribution), cmocka_unit_test(test_same_draws),
        cmocka_unit_test(test_frequencies),  cmocka_unit_test(test_save),
        cmocka_unit_test(test_in_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

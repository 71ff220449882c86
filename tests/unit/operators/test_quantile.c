/* quantile: the error of its answer for many kinds of values, orders and counts; computed at once, and merged
 * from panes one after the other and as a tree. */
#include "operators/aggregate/aggregate.h"

#include "unit/support/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { ROWS_MOST = 100000, PANES = 40, KINDS = 21, WAYS = 3 };

static const double pi = 3.14159265358979323846;
static double rows_of[ROWS_MOST], sorted[ROWS_MOST];

static double next(struct test_random *random)
{
    return ((double)(random_next(random) >> 11) + 0.5) / (double)(UINT64_C(1) << 53);
}

static double normal(struct test_random *random)
{
    double size = sqrt(-2 * log(next(random)));
    return size * cos(2 * pi * next(random));
}

/* Prices as in a shop: few values, some of which are frequent. */
static double price(struct test_random *random)
{
    static const double prices[] = {0.29, 0.42, 0.55, 0.65, 0.83, 0.85,  1.25,  1.45,  1.65,  1.69, 1.95,
                                    2.08, 2.1,  2.25, 2.46, 2.55, 2.95,  3.29,  3.75,  4.13,  4.25, 4.95,
                                    5.79, 5.95, 7.95, 8.5,  9.95, 10.95, 12.75, 14.95, 16.95, 18,   25};
    double share = 1 - exp(-0.78 * fabs(normal(random)));
    if (next(random) < 0.1)
        return floor(next(random) * 2000) / 100;
    return prices[(uint32_t)(33 * share) * 7 % 33];
}

/* A line of a bill: a price times a count, most often one, few or a dozen; negative when
 * goods are returned. */
static double bill(struct test_random *random)
{
    static const double counts[] = {1, 12, 2, 6, 1, 4, 24, 3, 10, 8, 48, -1};
    double share = 1 - exp(-fabs(normal(random)));
    return price(random) * counts[(uint32_t)(12 * share)];
}

static double value_of(int kind, uint32_t i, uint32_t count, struct test_random *random)
{
    double u = next(random);
    switch (kind) {
    case 0: return u;
    case 1: return -log(u) * 1e6; /* a long tail */
    case 2: return i;
    case 3: return -(double)i;
    case 4: return floor(u * 50);
    case 5: return price(random);
    case 6: return pow(u, -2);
    case 7: return next(random) < 0.97 ? 5 : floor(u * 100);
    case 8: return normal(random);
    case 9: return floor(log(u) / log(0.7));
    case 10: return -exp(2 * normal(random));
    case 11: return u < 0.5 ? 0 : 1;
    case 12: return i % 2 == 1 ? i : -(double)i;
    case 13: return (double)((uint64_t)i * 33 / count);
    case 14: return i / 500 % 7 + u * 0.5;
    case 15: return u < 0.3 ? 10 : u < 0.5 ? 10.5 : 10 + next(random);
    case 16: return floor(1 / u);
    case 17: return floor(normal(random) * 20);
    case 18: return (i % 2 == 1 ? 1 : -1) * sqrt(count - i);
    case 19: return floor(u * u * 300) / 10;
    default: return bill(random);
    }
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void fill(int kind, uint32_t count, uint64_t seed)
{
    struct test_random random = {seed};
    for (uint32_t i = 0; i < count; i++)
        sorted[i] = rows_of[i] = value_of(kind, i, count, &random);
    qsort(sorted, count, sizeof(*sorted), compare_doubles);
}

/* Returns how many sorted values are less than `value` (or_equal: or equal). */
static uint32_t below(double value, uint32_t count, bool or_equal)
{
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (sorted[middle] < value || (or_equal && sorted[middle] == value))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* By what share of the values the answer's rank is off, beyond one value: with few values even the right
 * answer is off by up to one. */
static double error_of(double value, double share, uint32_t count)
{
    double least = below(value, count, false), most = below(value, count, true);
    double rank = share * (count - 1);
    double off = least > rank + 1 ? least - rank - 1 : most < rank ? rank - most : 0;
    return off / count;
}

static double quantile_of(const struct byte_buffer *partial, double share)
{
    struct batch_pool *pool = batch_pool_new();
    struct field field = {.name = STR("q"), .type = {.tag = TYPE_FLOAT}};
    struct schema schema = {.fields = &field, .count = 1};
    struct batch *batch = batch_new(pool, &schema, 1);
    struct column_builder builder;
    struct aggregate aggregate = {.kind = &aggregate_quantile_float, .share = share};
    builder_init(&builder, batch, &batch->columns[0], field.type);
    aggregate.kind->finish_bytes(&aggregate, (struct str){partial->data, partial->length}, &builder, 0);
    builder_finish(&builder);
    double value = batch->columns[0].floats[0];
    batch_release(batch);
    batch_pool_free(pool);
    return value;
}

static void combine(struct byte_buffer *into, const struct byte_buffer *from)
{
    static const struct aggregate aggregate = {.kind = &aggregate_quantile_float};
    if (from->length > 0)
        aggregate.kind->combine(&aggregate, into, (struct str){from->data, from->length});
}

/* Digests of rows_of: out[0] of all rows, out[1] of the panes merged one after the other, out[2] merged in
 * fours, and these in fours. */
static void digest(uint32_t count, struct byte_buffer *out)
{
    static const struct aggregate aggregate = {.kind = &aggregate_quantile_float};
    struct byte_buffer panes[PANES] = {{0}}, fours[PANES / 4 + 1] = {{0}};
    struct column column = {.tag = TYPE_FLOAT, .floats = rows_of};
    for (uint32_t i = 0; i < count; i++) {
        struct aggregate_row row = {.argument = &column, .row = i};
        aggregate.kind->absorb(&aggregate, &out[0], &row);
        aggregate.kind->absorb(&aggregate, &panes[(uint64_t)i * PANES / count], &row);
    }
    for (uint32_t i = 0; i < PANES; i++) {
        combine(&out[1], &panes[i]);
        combine(&fours[i / 4], &panes[i]);
        buffer_free(&panes[i]);
    }
    for (uint32_t i = 0; i < ARRAY_COUNT(fours); i += 4) {
        struct byte_buffer sixteen = {0};
        for (uint32_t k = i; k < MIN(i + 4, ARRAY_COUNT(fours)); k++) {
            combine(&sixteen, &fours[k]);
            buffer_free(&fours[k]);
        }
        combine(&out[2], &sixteen);
        buffer_free(&sixteen);
    }
}

/* The error bound that operators/aggregate/quantile.c and the help state: one cluster. */
static void check(int kind, uint32_t count, const struct byte_buffer *digests, double *worst)
{
    static const double shares[] = {0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999};
    for (int way = 0; way < WAYS; way++) {
        assert_true(digests[way].length < 8192);
        assert_true(quantile_of(&digests[way], 0) == sorted[0]);
        assert_true(quantile_of(&digests[way], 1) == sorted[count - 1]);
        for (size_t i = 0; i < ARRAY_COUNT(shares); i++) {
            double share = shares[i], cluster = 2 * pi / 200 * sqrt(share * (1 - share));
            double error = error_of(quantile_of(&digests[way], share), share, count) / cluster;
            worst[way] = MAX(worst[way], error);
            if (error > 1)
                fail_msg("kind %d, %u values, %g, merged in way %d: off by %.2f of the stated error", kind,
                         count, share, way, error);
        }
    }
}

static void test_error_is_bounded(void **state)
{
    (void)state;
    static const uint32_t counts[] = {129, 200, 300, 500, 1000, 1677, 3000, 10000, ROWS_MOST};
    double worst[WAYS] = {0};
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t n = 0; n < ARRAY_COUNT(counts); n++)
            for (uint64_t seed = 1; seed <= (counts[n] > 3000 ? 1 : 8); seed++) {
                struct byte_buffer digests[WAYS] = {{0}};
                fill(kind, counts[n], seed);
                digest(counts[n], digests);
                check(kind, counts[n], digests, worst);
                for (int way = 0; way < WAYS; way++)
                    buffer_free(&digests[way]);
            }
    print_message("quantile: %.2f of the stated error at most, merged %.2f, as a tree %.2f\n", worst[0],
                  worst[1], worst[2]);
}

/* Up to 128 values the quantile is exact: interpolated linearly between neighbouring values. */
static void test_few_are_exact(void **state)
{
    (void)state;
    for (uint32_t count = 1; count <= 128; count += count < 8 ? 1 : 15) {
        struct byte_buffer digests[WAYS] = {{0}};
        fill(5, count, count);
        digest(count, digests);
        for (int way = 0; way < WAYS; way++) {
            for (double share = 0; share <= 1; share += 0.125) {
                double rank = share * (count - 1), from = sorted[(uint32_t)rank];
                double to = sorted[MIN((uint32_t)rank + 1, count - 1)];
                double expected = from + (rank - floor(rank)) * (to - from);
                assert_true(fabs(quantile_of(&digests[way], share) - expected) <= 1e-12 * fabs(expected));
            }
            buffer_free(&digests[way]);
        }
    }
}

/* Infinite values and equal values. */
static void test_edges(void **state)
{
    (void)state;
    const struct aggregate aggregate = {.kind = &aggregate_quantile_float};
    static double values[3000];
    for (uint32_t i = 0; i < 3000; i++)
        values[i] = i % 3 == 0 ? -INFINITY : i % 3 == 1 ? 1e308 : INFINITY;
    struct column column = {.tag = TYPE_FLOAT, .floats = values};
    struct byte_buffer partial = {0};
    for (uint32_t i = 0; i < 3000; i++)
        aggregate.kind->absorb(&aggregate, &partial, &(struct aggregate_row){.argument = &column, .row = i});
    assert_true(quantile_of(&partial, 0.1) == -INFINITY && quantile_of(&partial, 0.5) == 1e308 &&
                quantile_of(&partial, 0.9) == INFINITY);
    buffer_free(&partial);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_edges), cmocka_unit_test(test_few_are_exact),
                                       cmocka_unit_test(test_error_is_bounded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

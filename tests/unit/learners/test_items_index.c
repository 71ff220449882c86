/*
 * The exact index beside plain loops over all items: recall on a planted catalogue, before and after updates and
 * removals; small catalogues of all shapes; ties; ranks; equal bits by every variant of the kernels.
 */
#include "learners/items/index.h"

#include "kernels/num.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ITEMS = 100000, DIMS = 64, QUERIES = 64, TOP = 100, CENTRES = 200, UPDATES = 100000 };

static uint64_t seed_now;

static double uniform(void)
{
    seed_now += 0x9e3779b97f4a7c15U;
    return (double)(num_mix(seed_now) >> 11) * 0x1p-53;
}

static uint32_t below(uint32_t n)
{
    return (uint32_t)(uniform() * n);
}

/* Nearly normal: the sum of four uniform numbers, of variance 1. */
static float normal(void)
{
    return (float)((uniform() + uniform() + uniform() + uniform() - 2.0) * 1.7320508);
}

static const struct kernels *best(void)
{
    const char *reason;
    const struct kernels *kernels = kernels_pick(NULL, &reason);
    assert_non_null(kernels);
    return kernels;
}

static struct items_index *index_of(const struct kernels *kernels, uint32_t dims, uint32_t numbers_max)
{
    struct items_index_options options = {.kernels = kernels, .dims = dims, .numbers_max = numbers_max};
    return items_index_create(&options);
}

static double product(const float *x, const float *y, size_t d)
{
    double sum = 0.0;
    for (size_t i = 0; i < d; i++)
        sum += (double)x[i] * (double)y[i];
    return sum;
}

/* --- A planted catalogue --- */

/* Items around centres, with norms of Zipf's law by a random order; queries around the same centres. */
struct catalogue {
    float centres[CENTRES][DIMS], rows[ITEMS][DIMS], queries[QUERIES][DIMS];
    bool is_live[ITEMS];
    double scores[ITEMS], sorted[ITEMS];
};

static void plant_row(struct catalogue *c, float *row, double norm)
{
    const float *centre = c->centres[below(CENTRES)];
    double squares = 0.0;
    for (size_t i = 0; i < DIMS; i++) {
        row[i] = centre[i] + normal();
        squares += (double)row[i] * (double)row[i];
    }
    for (size_t i = 0; i < DIMS; i++)
        row[i] = (float)(row[i] * norm / sqrt(squares));
}

static double zipf_norm(double exponent)
{
    return pow(1.0 + below(ITEMS), -exponent);
}

static void plant(struct catalogue *c, double exponent)
{
    seed_now = 7;
    for (size_t i = 0; i < CENTRES; i++)
        for (size_t j = 0; j < DIMS; j++)
            c->centres[i][j] = normal();
    for (size_t i = 0; i < ITEMS; i++) {
        plant_row(c, c->rows[i], zipf_norm(exponent));
        c->is_live[i] = true;
    }
    for (size_t q = 0; q < QUERIES; q++)
        plant_row(c, c->queries[q], 1.0);
}

static int falling(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* The share of the items in `top` whose score is among the TOP largest. */
static double recall_of(struct catalogue *c, const float *query, const struct items_scored *top)
{
    size_t live = 0, hits = 0;
    for (size_t i = 0; i < ITEMS; i++) {
        c->scores[i] = product(query, c->rows[i], DIMS);
        if (c->is_live[i])
            c->sorted[live++] = c->scores[i];
    }
    qsort(c->sorted, live, sizeof(*c->sorted), falling);
    for (size_t i = 0; i < TOP; i++) {
        assert_true(c->is_live[top[i].number]);
        hits += c->scores[top[i].number] >= c->sorted[TOP - 1];
        assert_true(i == 0 || top[i].score < top[i - 1].score ||
                    (top[i].score == top[i - 1].score && top[i].number > top[i - 1].number));
        assert_true(fabs((double)top[i].score - c->scores[top[i].number]) < 1e-5);
    }
    return (double)hits / TOP;
}

static void assert_recall(struct catalogue *c, const struct items_index *index, struct items_search *search,
                          const char *when)
{
    static struct items_scored top[QUERIES][TOP], one[TOP];
    double sum = 0.0;
    assert_int_equal(items_index_top(index, search, c->queries[0], QUERIES, TOP, top[0]), TOP);
    for (size_t q = 0; q < QUERIES; q++) {
        assert_int_equal(items_index_top(index, search, c->queries[q], 1, TOP, one), TOP);
        assert_memory_equal(one, top[q], sizeof(one));
        sum += recall_of(c, c->queries[q], top[q]);
    }
    print_message("recall@%d %s: %.5f\n", TOP, when, sum / QUERIES);
    assert_true(sum / QUERIES >= 0.999);
}

static void catalogue_holds(double exponent)
{
    struct catalogue *c = malloc(sizeof(*c));
    assert_non_null(c);
    plant(c, exponent);
    struct items_index *index = index_of(best(), DIMS, ITEMS);
    struct items_search *search = items_search_create();
    for (uint32_t i = 0; i < ITEMS; i++)
        assert_true(items_index_put(index, i, c->rows[i]));
    assert_recall(c, index, search, "of a new catalogue");
    for (uint32_t i = 0; i < UPDATES; i++) {
        uint32_t number = below(ITEMS);
        plant_row(c, c->rows[number], zipf_norm(exponent));
        assert_true(items_index_put(index, number, c->rows[number]));
    }
    for (uint32_t removed = 0; removed < ITEMS / 5;) {
        uint32_t number = below(ITEMS);
        assert_int_equal(items_index_remove(index, number), c->is_live[number]);
        removed += c->is_live[number];
        c->is_live[number] = false;
    }
    assert_int_equal(items_index_live(index), ITEMS - ITEMS / 5);
    assert_recall(c, index, search, "after updates and removals");
    items_search_free(search);
    items_index_free(index);
    free(c);
}

static void test_catalogue_zipf(void **state)
{
    (void)state;
    catalogue_holds(1.1);
}

static void test_catalogue_of_equal_norms(void **state)
{
    (void)state;
    catalogue_holds(0.0);
}

/* --- Small catalogues --- */

enum { NUMBERS_MAX = 2100 };

/* Rows of small integers: products are exact in floats and in bytes, with many ties. */
static void small_row(float *row, size_t dims)
{
    for (size_t i = 0; i < dims; i++)
        row[i] = (float)((int)below(5) - 2);
    row[below((uint32_t)dims)] = 127.0F; /* so that the scale is 1, and bytes are the numbers */
}

struct small {
    uint32_t dims, numbers;
    float *rows;
    bool *is_live;
};

static bool is_better(double score, uint32_t number, double of, uint32_t than)
{
    return score > of || (score == of && number < than);
}

/* Repeats the search by choosing the best of what is left, k times. */
static void assert_top(const struct small *s, const float *query, const struct items_scored *top,
                       size_t found, size_t k)
{
    double last = INFINITY;
    uint32_t last_number = 0;
    static double scores[NUMBERS_MAX];
    for (uint32_t n = 0; n < s->numbers; n++)
        scores[n] = product(query, s->rows + n * s->dims, s->dims);
    for (size_t i = 0; i <= k; i++) {
        double most = -INFINITY;
        uint32_t at = UINT32_MAX;
        for (uint32_t n = 0; n < s->numbers; n++) {
            if (s->is_live[n] && (at == UINT32_MAX || is_better(scores[n], n, most, at)) &&
                (i == 0 || is_better(last, last_number, scores[n], n)))
                most = scores[n], at = n;
        }
        if (i == found) {
            assert_true(i == k || at == UINT32_MAX);
            return;
        }
        assert_int_equal(top[i].number, at);
        assert_true((double)top[i].score == most);
        last = most, last_number = at;
    }
}

static void assert_rank(const struct small *s, const struct items_index *index, struct items_search *search,
                        const float *query)
{
    uint32_t left_out[40], number = below(s->numbers);
    size_t n = below(40);
    for (size_t i = 0; i < n; i++)
        left_out[i] = below(s->numbers + 5); /* repeated, removed, unknown ones too */
    double score = product(query, s->rows + number * s->dims, s->dims), expected = 1.0, rank;
    uint32_t higher = 0, ties = 0;
    for (uint32_t i = 0; i < s->numbers; i++) {
        bool counts = s->is_live[i];
        for (size_t l = 0; l < n; l++)
            counts &= left_out[l] != i;
        double of = product(query, s->rows + i * s->dims, s->dims);
        higher += counts && of > score;
        ties += counts && of == score;
        expected += !counts || i == number ? 0.0 : of > score ? 1.0 : of == score ? 0.5 : 0.0;
    }
    struct items_above above;
    assert_true(items_index_count_above(index, search, query, (float)score, left_out, n, &above));
    assert_int_equal(above.higher, higher);
    assert_int_equal(above.ties, ties);
    assert_int_equal(items_index_rank(index, search, query, number, left_out, n, &rank), s->is_live[number]);
    if (s->is_live[number])
        assert_true(rank == expected);
}

/* Ranks of several queries at once are those of each alone. */
static void assert_ranks(const struct small *s, const struct items_index *index, struct items_search *search,
                         const float *queries, size_t count)
{
    uint32_t left_out[40];
    struct items_ranked ranked[ITEMS_QUERIES_MAX];
    for (size_t i = 0; i < 40; i++)
        left_out[i] = below(s->numbers + 5);
    for (size_t q = 0; q < count; q++)
        ranked[q] = (struct items_ranked){.query = queries + q * s->dims,
                                          .number = below(s->numbers + 2),
                                          .left_out = left_out + below(20),
                                          .left_out_count = below(20)};
    items_index_ranks(index, search, ranked, count);
    for (size_t q = 0; q < count; q++) {
        const struct items_ranked *r = &ranked[q];
        double rank = -1.0;
        assert_int_equal(r->has_rank, items_index_rank(index, search, r->query, r->number, r->left_out,
                                                       r->left_out_count, &rank));
        assert_int_equal(r->has_rank, r->number < s->numbers && s->is_live[r->number]);
        if (r->has_rank)
            assert_true(r->rank == rank);
    }
}

static void change(struct small *s, struct items_index *index)
{
    uint32_t number = below(s->numbers);
    if (below(3) == 0) {
        assert_int_equal(items_index_remove(index, number), s->is_live[number]);
        s->is_live[number] = false;
        assert_null(items_index_row(index, number));
        return;
    }
    float *row = s->rows + number * s->dims;
    small_row(row, s->dims);
    assert_true(items_index_put(index, number, row));
    s->is_live[number] = true;
    assert_memory_equal(items_index_row(index, number), row, s->dims * sizeof(*row));
}

static void small_holds(uint32_t dims, uint32_t numbers, const struct kernels *kernels)
{
    enum { COUNT = 9, K_MAX = 300 };
    struct small s = {dims, numbers, calloc((size_t)numbers * dims, sizeof(float)), calloc(numbers, 1)};
    struct items_index *index = index_of(kernels, dims, numbers);
    struct items_search *search = items_search_create();
    seed_now = dims * 1000003 + numbers;
    for (int round = 0; round < 4; round++) {
        static struct items_scored top[COUNT * K_MAX];
        float queries[COUNT * INT8_DIMS_MAX];
        size_t k = 1 + below(K_MAX);
        for (size_t q = 0; q < COUNT; q++)
            small_row(queries + q * dims, dims);
        size_t found = items_index_top(index, search, queries, COUNT, k, top);
        assert_int_equal(found, k < items_index_live(index) ? k : items_index_live(index));
        for (size_t q = 0; q < COUNT; q++)
            assert_top(&s, queries + q * dims, top + q * k, found, k);
        assert_rank(&s, index, search, queries);
        assert_ranks(&s, index, search, queries, COUNT);
        for (uint32_t i = 0; i < numbers; i++)
            change(&s, index);
    }
    items_search_free(search);
    items_index_free(index);
    free(s.rows);
    free(s.is_live);
}

static void test_small_catalogues(void **state)
{
    (void)state;
    static const uint32_t dims[] = {1, 3, 4, 16, 17, 50, 64, 255, 256},
                          numbers[] = {1, 15, 600, 1024, NUMBERS_MAX};
    for (int v = 0; v < KERNELS_VARIANTS; v++)
        for (size_t i = 0; i < 9 && kernels_variant((enum kernels_variant)v) != NULL; i++)
            for (size_t j = 0; j < 5; j++)
                small_holds(dims[i], numbers[j], kernels_variant((enum kernels_variant)v));
}

/* --- Variants, values, chunks --- */

static void test_variants(void **state)
{
    (void)state;
    enum { SOME = 5000, D = 50, COUNT = 11, K = 70 };
    static struct items_scored top[KERNELS_VARIANTS][COUNT * K];
    static struct items_above above[KERNELS_VARIANTS];
    for (int v = 0; v < KERNELS_VARIANTS; v++) {
        const struct kernels *kernels = kernels_variant((enum kernels_variant)v);
        if (kernels == NULL)
            continue;
        float row[D], queries[COUNT * D];
        seed_now = 99;
        struct items_index *index = index_of(kernels, D, SOME);
        struct items_search *search = items_search_create();
        for (uint32_t i = 0; i < SOME; i++) {
            for (size_t j = 0; j < D; j++)
                row[j] = normal();
            assert_true(items_index_put(index, i, row));
        }
        for (size_t i = 0; i < COUNT * D; i++)
            queries[i] = normal();
        assert_int_equal(items_index_top(index, search, queries, COUNT, K, top[v]), K);
        assert_true(items_index_count_above(index, search, queries, 1.25F, NULL, 0, &above[v]));
        assert_memory_equal(top[v], top[0], sizeof(top[0]));
        assert_memory_equal(&above[v], &above[0], sizeof(above[0]));
        items_search_free(search);
        items_index_free(index);
    }
}

static void test_values(void **state)
{
    (void)state;
    struct items_index *index = index_of(best(), 3, 100);
    struct items_search *search = items_search_create();
    struct items_scored top[4];
    struct items_above above;
    double rank;
    float zero[3] = {0}, large[3] = {1e18F, 1e18F, 1e18F}, minus[3] = {-1e18F, -1e18F, -1e18F};
    static const float bad[] = {NAN, INFINITY, -INFINITY, 1.01e18F, -3e38F};
    assert_int_equal(items_index_top(index, search, zero, 1, 4, top), 0);
    assert_int_equal(items_index_top(index, search, zero, 0, 4, top), 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        float row[3] = {1.0F, bad[i], 0.0F};
        assert_false(items_index_put(index, 2, row));
        assert_int_equal(items_index_top(index, search, row, 1, 4, top), SIZE_MAX);
        assert_false(items_index_count_above(index, search, row, 0.0F, NULL, 0, &above));
    }
    assert_int_equal(items_index_live(index), 0);
    assert_int_equal(items_index_bytes(index) > 10000, false);
    assert_true(items_index_put(index, 9, large));
    assert_true(items_index_put(index, 4, minus));
    assert_true(items_index_put(index, 7, zero));
    assert_true(items_index_put(index, 99, zero));
    assert_int_equal(items_index_top(index, search, large, 1, 4, top), 4);
    assert_true(top[0].number == 9 && top[1].number == 7 && top[2].number == 99 && top[3].number == 4);
    assert_true(isfinite(top[0].score) && top[1].score == 0.0F && !signbit(top[1].score));
    assert_int_equal(items_index_top(index, search, zero, 1, 2, top), 2); /* all tie */
    assert_true(top[0].number == 4 && top[1].number == 7);
    assert_true(items_index_rank(index, search, large, 99, NULL, 0, &rank));
    assert_true(rank == 2.5);
    assert_false(items_index_rank(index, search, large, 5, NULL, 0, &rank));
    assert_false(items_index_remove(index, 5));
    assert_false(items_index_remove(index, 4000000000U));
    assert_null(items_index_row(index, 4000000000U));
    items_search_free(search);
    items_index_free(index);
}

/* A product whose sixteen sums all underflow to -0 ties with 0. */
static void test_minus_zero(void **state)
{
    (void)state;
    struct items_index *index = index_of(best(), 16, 10);
    struct items_search *search = items_search_create();
    struct items_scored top[2];
    double rank;
    float tiny[16], minus_tiny[16], zero[16] = {0};
    for (size_t i = 0; i < 16; i++)
        tiny[i] = 1e-30F, minus_tiny[i] = -1e-30F;
    assert_true(items_index_put(index, 3, tiny));
    assert_true(items_index_put(index, 8, zero));
    assert_int_equal(items_index_top(index, search, minus_tiny, 1, 2, top), 2);
    assert_true(top[0].number == 3 && top[1].number == 8);
    assert_true(top[0].score == 0.0F && !signbit(top[0].score));
    assert_true(items_index_rank(index, search, minus_tiny, 3, NULL, 0, &rank));
    assert_true(rank == 1.5);
    items_search_free(search);
    items_index_free(index);
}

/* Rows of a chunk stay where they are while others come; chunks between without items take no memory. */
static void test_growth(void **state)
{
    (void)state;
    struct items_index *index = index_of(best(), 8, 50000000);
    float row[8] = {1.0F};
    assert_true(items_index_put(index, 5, row));
    const float *place = items_index_row(index, 5);
    assert_true(items_index_put(index, 49999999, row));
    assert_true(items_index_bytes(index) < 1000000);
    for (uint32_t i = 0; i < 20000; i++)
        assert_true(items_index_put(index, i, row));
    assert_ptr_equal(items_index_row(index, 5), place);
    assert_int_equal(items_index_live(index), 20001);
    items_index_free(index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_catalogue_zipf),   cmocka_unit_test(test_catalogue_of_equal_norms),
        cmocka_unit_test(test_small_catalogues), cmocka_unit_test(test_variants),
        cmocka_unit_test(test_values),           cmocka_unit_test(test_minus_zero),
        cmocka_unit_test(test_growth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

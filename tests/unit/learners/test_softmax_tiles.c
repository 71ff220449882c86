/*
 * softmax over all items in tiles against the whole softmax in long double; and that its bits depend neither on
 * how targets and tiles are divided among threads, nor on the kernel variant, nor on a rejected neighbour.
 */
#include "core/mem.h"
#include "learners/losses/losses.h"
#include "learners/losses/softmax.h"
#include "tests/unit/support/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum scores { ORDINARY, EXTREME, EQUAL, SITUATIONS };

struct trial {
    struct softmax_step step;
    float *items, *queries, *gradients; /* gradients: of all numbers */
    const float **rows;
    uint32_t *positives;
    float *weights;
    size_t numbers; /* a multiple of SOFTMAX_TILE */
};

static float between(struct test_random *random, float bound)
{
    return bound * ((float)random_below(random, 1 << 20) * 0x1p-19F - 1.0F);
}

static void make(struct trial *t, enum scores scores, uint32_t items, uint32_t targets, uint32_t d,
                 double temperature, uint64_t seed)
{
    struct test_random random = {seed};
    *t = (struct trial){.numbers = (size_t)losses_softmax_tiles(items) * SOFTMAX_TILE};
    t->items = mem_calloc((size_t)items * d, sizeof(float));
    t->queries = mem_calloc((size_t)targets * d, sizeof(float));
    t->gradients = mem_calloc(t->numbers * d, sizeof(float));
    t->rows = mem_calloc(items, sizeof(*t->rows));
    t->positives = mem_calloc(targets, sizeof(*t->positives));
    t->weights = mem_calloc(targets, sizeof(*t->weights));
    float bound = sqrtf((float)((scores == EXTREME ? 80.0 : 2.0) * temperature / d));
    for (size_t i = 0; i < (size_t)items * d; i++)
        t->items[i] = scores == EQUAL ? bound : between(&random, 1.0F) > 0.0F ? bound : -bound;
    for (size_t i = 0; i < (size_t)targets * d; i++)
        t->queries[i] =
            scores == EXTREME && i / d % 2 ? t->items[i % ((size_t)items * d)] : between(&random, bound);
    for (uint32_t i = 0; i < items; i++)
        t->rows[i] = i % 11 == 3 ? NULL : t->items + (size_t)i * d;
    for (uint32_t i = 0; i < targets; i++) {
        uint32_t number = i % 5 == 0 ? items - 1 : random_below(&random, items); /* often in the last tile */
        t->positives[i] = t->rows[number] == NULL ? number - 1 : number;
        t->weights[i] = i % 7 == 6 ? 0.0F : 0.5F + (float)(i % 3);
    }
    t->step = (struct softmax_step){.rows = t->rows,
                                    .items = items,
                                    .d = d,
                                    .queries = t->queries,
                                    .targets = targets,
                                    .positives = t->positives,
                                    .weights = t->weights,
                                    .temperature = temperature,
                                    .losses = mem_calloc(targets, sizeof(double)),
                                    .is_rejected = mem_calloc(targets, 1),
                                    .query_gradients = mem_calloc((size_t)targets * d, sizeof(float)),
                                    .points = mem_calloc(targets, sizeof(struct softmax_point))};
}

static void drop(struct trial *t)
{
    free(t->items), free(t->queries), free(t->gradients), free(t->rows), free(t->positives), free(t->weights);
    free(t->step.losses), free(t->step.is_rejected), free(t->step.query_gradients), free(t->step.points);
}

/* A step by a variant, its targets and tiles in parts of the given sizes, the last part first. */
static void run(struct trial *t, enum kernels_variant variant, uint32_t targets, uint32_t tiles)
{
    struct softmax_step *s = &t->step;
    s->kernels = kernels_variant(variant), s->batch = batch_variant(variant);
    void *scratch = mem_aligned(64, losses_softmax_scratch(s->batch, s->d));
    uint32_t all = losses_softmax_tiles(s->items);
    for (uint32_t part = (s->targets + targets - 1) / targets; part-- > 0;) {
        uint32_t end = (part + 1) * targets < s->targets ? (part + 1) * targets : s->targets;
        losses_softmax_targets(s, part * targets, end, scratch);
    }
    for (uint32_t part = (all + tiles - 1) / tiles; part-- > 0;) {
        uint32_t begin = part * tiles, end = begin + tiles < all ? begin + tiles : all;
        losses_softmax_items(s, begin, end, t->gradients + (size_t)begin * SOFTMAX_TILE * s->d, scratch);
    }
    free(scratch);
}

/* The derivatives of target's loss by all scores, times weight / temperature; returns the loss. */
static long double whole(const struct trial *t, uint32_t target, long double *derivatives)
{
    const struct softmax_step *s = &t->step;
    long double sum = 0.0L, positive = 0.0L, factor = t->weights[target] / (long double)s->temperature;
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < s->items; i++) {
            uint32_t item = pass == 0 ? s->positives[target] : i;
            long double score = 0.0L;
            for (uint32_t j = 0; s->rows[item] != NULL && j < s->d; j++)
                score += (long double)s->rows[item][j] * (long double)t->queries[(size_t)target * s->d + j];
            score /= (long double)s->temperature;
            if (pass == 0) {
                positive = score;
                break;
            }
            bool is_negative = s->rows[i] != NULL && i != s->positives[target];
            derivatives[i] = is_negative ? expl(score - positive) : 0.0L;
            sum += derivatives[i];
        }
    }
    for (uint32_t i = 0; i < s->items; i++)
        derivatives[i] *= factor / (1.0L + sum);
    derivatives[s->positives[target]] = -factor * sum / (1.0L + sum);
    return log1pl(sum) * (long double)t->weights[target];
}

/* 1e-4 of the number, or of a hundredth of the largest number beside it. */
static void check_all(const float *found, const long double *expected, size_t n, long double floor,
                      const char *what)
{
    long double most = 0.0L;
    for (size_t i = 0; i < n; i++)
        most = fmaxl(most, fabsl(expected[i]));
    for (size_t i = 0; i < n; i++) {
        if (!(fabsl((long double)found[i] - expected[i]) <=
              1e-4L * (fabsl(expected[i]) + 0.01L * most) + floor))
            fail_msg("%s %zu of %zu: %.9g, expected %.9g", what, i, n, (double)found[i], (double)expected[i]);
    }
}

static void check(const struct trial *t)
{
    const struct softmax_step *s = &t->step;
    long double *by_scores = mem_calloc(s->items, sizeof(*by_scores)),
                *by_query = mem_calloc(s->d, sizeof(*by_query));
    long double *by_rows = mem_calloc((size_t)s->items * s->d, sizeof(*by_rows)), floor = 0.0L;
    for (uint32_t target = 0; target < s->targets; target++) {
        long double loss = whole(t, target, by_scores);
        assert_int_equal(s->is_rejected[target], 0);
        if (!(fabsl((long double)s->losses[target] - loss) <= 1e-5L * fmaxl(1.0L, loss)))
            fail_msg("loss of target %u: %.9g, expected %.9g", target, s->losses[target], (double)loss);
        memset(by_query, 0, s->d * sizeof(*by_query));
        for (size_t i = 0; i < s->items; i++) {
            for (size_t j = 0; j < s->d && s->rows[i] != NULL; j++) {
                float query = t->queries[target * s->d + j];
                by_query[j] += by_scores[i] * (long double)s->rows[i][j];
                by_rows[i * s->d + j] += by_scores[i] * (long double)query;
                floor = fmaxl(floor, 1e-6L * fabsl(by_scores[i] * (long double)query));
            }
        }
        long double rounding = 0.0L; /* of a chain of additions of up to 700 addends that cancel out */
        for (size_t i = 0; i < s->items; i++)
            rounding +=
                1e-5L * fabsl(by_scores[i]) * (s->rows[i] != NULL ? fabsl((long double)s->rows[i][0]) : 0.0L);
        check_all(s->query_gradients + (size_t)target * s->d, by_query, s->d, rounding,
                  t->step.temperature < 0.5 ? "query's gradient, cold," : "query's gradient");
    }
    check_all(t->gradients, by_rows, (size_t)s->items * s->d, floor, "rows' gradients");
    free(by_scores), free(by_query), free(by_rows);
}

static void test_against_whole(void **state)
{
    (void)state;
    static const uint32_t shapes[][3] = {{1, 2, 4},     {2, 3, 1},    {255, 5, 7},   {256, 64, 16},
                                         {257, 65, 33}, {600, 9, 64}, {700, 70, 128}}; /* items, targets, d */
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
        for (int scores = 0; scores < SITUATIONS; scores++) {
            for (int cold = 0; cold < 2; cold++) {
                struct trial t;
                make(&t, (enum scores)scores, shapes[i][0], shapes[i][1], shapes[i][2], cold ? 0.1 : 1.0,
                     i * 10 + (uint64_t)scores);
                run(&t, KERNELS_SCALAR, UINT32_MAX / 2, UINT32_MAX / 2);
                check(&t);
                drop(&t);
            }
        }
    }
}

static void test_parts(void **state)
{
    (void)state;
    static const uint32_t parts[][2] = {{1, 1}, {3, 2}, {64, 1}, {65, 3}, {100, 4}};
    struct trial whole, t;
    for (int scores = 0; scores < SITUATIONS; scores++) {
        make(&whole, (enum scores)scores, 900, 130, 50, 0.5, 77);
        run(&whole, KERNELS_SCALAR, UINT32_MAX / 2, UINT32_MAX / 2);
        for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
            for (int v = KERNELS_SCALAR; v < KERNELS_VARIANTS; v++) {
                if (!kernels_supports((enum kernels_variant)v))
                    continue;
                make(&t, (enum scores)scores, 900, 130, 50, 0.5, 77);
                run(&t, (enum kernels_variant)v, parts[i][0], parts[i][1]);
                assert_memory_equal(t.step.losses, whole.step.losses, 130 * sizeof(double));
                assert_memory_equal(t.step.query_gradients, whole.step.query_gradients,
                                    130 * 50 * sizeof(float));
                assert_memory_equal(t.gradients, whole.gradients, 900 * 50 * sizeof(float));
                drop(&t);
            }
        }
        drop(&whole);
    }
}

/* A target that is rejected teaches nothing: all others are as if its weight were 0. */
static void test_rejected(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY, 3e38F}; /* the last: products beyond the range */
    for (size_t b = 0; b < sizeof(bad) / sizeof(*bad); b++) {
        struct trial t, without;
        make(&t, ORDINARY, 600, 70, 20, 0.1, 3);
        make(&without, ORDINARY, 600, 70, 20, 0.1, 3);
        for (size_t j = 0; j < 20; j++)
            t.queries[66 * 20 + j] = t.rows[5][j] > 0.0F ? bad[b] : -bad[b];
        without.weights[66] = 0.0F;
        run(&t, KERNELS_SCALAR, 70, 3);
        run(&without, KERNELS_SCALAR, 70, 3);
        for (uint32_t i = 0; i < 70; i++)
            assert_int_equal(t.step.is_rejected[i], i == 66);
        assert_true(t.step.losses[66] == 0.0);
        assert_memory_equal(t.step.losses, without.step.losses, 70 * sizeof(double));
        assert_memory_equal(t.step.query_gradients, without.step.query_gradients, 70 * 20 * sizeof(float));
        for (size_t i = 0; i < 600 * 20; i++)
            assert_true(t.gradients[i] == without.gradients[i]);
        drop(&t);
        drop(&without);
    }
}

/* A target whose loss is finite, but whose gradient is not. */
static void test_gradient_beyond_range(void **state)
{
    (void)state;
    struct trial t;
    make(&t, ORDINARY, 2, 2, 1, 0.01, 5);
    t.items[0] = 3e38F, t.items[1] = -3e38F;
    t.queries[0] = 1e-41F, t.queries[1] = 0.0F;
    t.weights[0] = 1.0F, t.weights[1] = 1e-3F;
    run(&t, KERNELS_SCALAR, 2, 1);
    assert_true(t.step.is_rejected[0] && t.step.losses[0] == 0.0 && t.step.query_gradients[0] == 0.0F);
    assert_false(t.step.is_rejected[1]);
    assert_true(fabs(t.step.losses[1] - 1e-3 * log(2.0)) < 1e-9 && isfinite(t.step.query_gradients[1]));
    assert_true(t.gradients[0] == 0.0F && t.gradients[1] == 0.0F); /* the second target's query is 0 */
    drop(&t);
}

/* The same loss as for a target alone (losses_at), whose negatives are all other items. */
static void test_same_as_alone(void **state)
{
    (void)state;
    struct trial t;
    make(&t, ORDINARY, 500, 6, 24, 0.3, 8);
    run(&t, KERNELS_SCALAR, 6, 2);
    struct losses_work work;
    losses_work_init(&work, 500);
    for (uint32_t target = 0; target < 6; target++) {
        const float *others[500];
        float gradient[24], scales[501];
        struct losses_options options = {.temperature = 0.3};
        struct losses_target alone = {.query = t.queries + (size_t)target * 24,
                                      .positive = t.rows[t.positives[target]],
                                      .negatives = others,
                                      .d = 24};
        for (uint32_t i = 0; i < 500; i++) {
            if (i != t.positives[target] && t.rows[i] != NULL)
                others[alone.count++] = t.rows[i];
        }
        struct losses_result r = {.query_gradient = gradient, .row_scales = scales};
        assert_true(losses_at(losses_find(str_from("softmax")), &options, kernels_variant(KERNELS_SCALAR),
                              &alone, (double)t.weights[target], &work, &r));
        assert_true(fabs(r.loss - t.step.losses[target]) <= 1e-5 * fmax(1.0, r.loss));
        for (size_t j = 0; j < 24; j++)
            assert_true(fabsf(gradient[j] - t.step.query_gradients[target * 24 + j]) < 1e-5F);
    }
    losses_work_free(&work);
    drop(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_whole), cmocka_unit_test(test_parts),
        cmocka_unit_test(test_rejected),      cmocka_unit_test(test_gradient_beyond_range),
        cmocka_unit_test(test_same_as_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Each loss of learners/losses against its formula, plainly in long double, and its gradients against central
 * differences of that formula: random shapes, scores of +-80, equal scores, negatives that are the positive. And
 * what losses have in common: registry, options, rejected targets, the same bits from each kernel variant.
 */
#include "core/diag.h"
#include "lang/lang.h"
#include "learners/losses/losses.h"
#include "learners/losses/negatives.h"
#include "learners/losses/options.h"
#include "tests/unit/support/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { COUNT = 300, DIMS = 128, ITEMS = 1000 };
enum scores { ORDINARY, EXTREME, EQUAL, SITUATIONS };

static const char *const names[] = {"bce", "bpr", "gbce", "sampled_softmax", "softmax", "warp"};

/* A target with all its memory. */
struct trial {
    const char *name;
    struct losses_options options;
    struct losses_target target;
    float query[DIMS], rows[1 + COUNT][DIMS];
    const float *list[COUNT];
    uint32_t numbers[COUNT];
    double log_q[COUNT];
    float query_gradient[DIMS], row_scales[1 + COUNT];
};

static float between(struct test_random *random, float low, float high)
{
    return low + (high - low) * (float)random_below(random, 1 << 20) * 0x1p-20F;
}

/* A row with this score: a random one, moved along the query. */
static void fill_row(struct trial *t, struct test_random *random, float *row, double score)
{
    double dot = 0.0, square = 0.0;
    for (uint32_t i = 0; i < t->target.d; i++) {
        row[i] = between(random, -1.0F, 1.0F);
        dot += (double)row[i] * (double)t->query[i], square += (double)t->query[i] * (double)t->query[i];
    }
    for (uint32_t i = 0; i < t->target.d; i++)
        row[i] += (float)((score * t->options.temperature - dot) / square * (double)t->query[i]);
}

static void make(struct trial *t, const char *name, enum scores scores, uint32_t count, uint32_t d,
                 uint64_t seed)
{
    struct test_random random = {seed};
    *t = (struct trial){.name = name, .options = {.temperature = seed % 3 == 0 ? 0.1 : 1.0}};
    t->options.correct = seed % 2 == 0, t->options.calibration = 0.25 * (double)(seed % 5);
    t->target = (struct losses_target){.query = t->query,
                                       .positive = t->rows[0],
                                       .negatives = t->list,
                                       .count = count,
                                       .d = d,
                                       .number = 7,
                                       .numbers = t->numbers,
                                       .positive_log_q = -1.5,
                                       .log_q = t->log_q,
                                       .items = ITEMS};
    for (uint32_t i = 0; i < d; i++)
        t->query[i] = between(&random, 0.5F, 1.0F) * (random_chance(&random, 50) ? 1.0F : -1.0F);
    for (uint32_t i = 0; i <= count; i++) {
        double score = (double)between(&random, -2.0F, 2.0F);
        if (scores == EXTREME)
            score = 80.0 - 20.0 * (double)random_below(&random, 9);
        fill_row(t, &random, t->rows[i], scores == EQUAL ? 1.25 : score);
    }
    for (uint32_t i = 0; i < count; i++) {
        t->list[i] = t->rows[1 + i];
        t->numbers[i] = random_below(&random, 12);
        t->log_q[i] = (double)between(&random, -3.0F, 0.5F);
    }
}

static long double plus(long double x) /* log(1 + e^x) */
{
    return x > 0.0L ? x + log1pl(expl(-x)) : log1pl(expl(x));
}

/* The formulas of the losses. s: scores of the positive, then of the negatives. */
static long double formula(const struct trial *t, const long double *s)
{
    const struct losses_target *of = &t->target;
    long double loss = 0.0L, sum = 0.0L, k = (long double)of->count, drawn = 0.0L;
    bool is_softmax = strstr(t->name, "softmax") != NULL;
    bool has_log_q = strcmp(t->name, "sampled_softmax") == 0 && t->options.correct;
    long double first = s[0] - (has_log_q ? (long double)of->positive_log_q : 0.0L), alpha = k / (ITEMS - 1);
    for (uint32_t i = 0; i < of->count; i++) {
        if (t->numbers[i] == of->number)
            continue;
        long double other = s[1 + i] - (has_log_q ? (long double)t->log_q[i] : 0.0L);
        if (is_softmax)
            sum += expl(other - first);
        else if (strcmp(t->name, "bpr") == 0)
            loss += plus(other - first);
        else if (strcmp(t->name, "warp") != 0)
            loss += plus(other);
        else if (drawn += 1.0L, 1.0L - first + other > 0.0L) {
            for (int r = 1; r <= (int)floorl((ITEMS - 1) / drawn); r++)
                sum += 1.0L / r;
            return sum * (1.0L - first + other);
        }
    }
    if (is_softmax)
        return log1pl(sum);
    if (strcmp(t->name, "bce") == 0)
        return plus(-first) + loss;
    if (strcmp(t->name, "gbce") == 0) {
        long double power = 1.0L - (long double)t->options.calibration; /* the limit for alpha = 0 */
        if (alpha > 0.0L)
            power = alpha * ((long double)t->options.calibration * (1.0L - 1.0L / alpha) + 1.0L / alpha);
        return (power * plus(-first) + loss) / (k + 1.0L);
    }
    return loss;
}

/* The formula with one number of the query (row -1) or of a row moved by h. */
static long double moved(const struct trial *t, int row, uint32_t dim, long double h)
{
    long double s[1 + COUNT];
    for (uint32_t r = 0; r <= t->target.count; r++) {
        s[r] = 0.0L;
        for (uint32_t i = 0; i < t->target.d; i++) {
            long double q = (long double)t->query[i] + (row == -1 && i == dim ? h : 0.0L);
            long double w = (long double)t->rows[r][i] + (row == (int)r && i == dim ? h : 0.0L);
            s[r] += q * w;
        }
        s[r] /= (long double)t->options.temperature;
    }
    return formula(t, s);
}

/* Compares a gradient of d numbers with differences: 1e-4 of the number, or of a hundredth of the largest. */
static void check_gradient(const struct trial *t, int row, const float *gradient, uint64_t seed)
{
    long double h = 1e-6L, expected[DIMS], most = 0.0L;
    long double noise = 1e-13L * (1.0L + fabsl(moved(t, -2, 0, 0.0L))); /* of the differences */
    for (uint32_t r = 0; row == -1 && r <= t->target.count; r++) /* rounding of addends that cancel out */
        noise += 1e-6L * fabsl((long double)t->row_scales[r] * (long double)t->rows[r][0]);
    uint32_t step = row >= 0 && t->target.d > 16 ? 7 : 1; /* a row's gradient is a multiple of the query */
    for (uint32_t i = 0; i < t->target.d; i += step) {
        expected[i] = (moved(t, row, i, h) - moved(t, row, i, -h)) / (2.0L * h);
        most = fmaxl(most, fabsl(expected[i]));
    }
    for (uint32_t i = 0; i < t->target.d; i += step) {
        long double bound = 1e-4L * (fabsl(expected[i]) + 0.01L * most) + noise;
        if (!(fabsl((long double)gradient[i] - expected[i]) <= bound))
            fail_msg("%s, seed %u, %u negatives, row %d, dim %u of %u: %.9g, expected %.9g", t->name,
                     (unsigned)seed, t->target.count, row, i, t->target.d, (double)gradient[i],
                     (double)expected[i]);
    }
}

static double run(struct trial *t, double weight, bool *is_good)
{
    struct losses_work work;
    struct losses_result result = {.query_gradient = t->query_gradient, .row_scales = t->row_scales};
    losses_work_init(&work, COUNT);
    *is_good = losses_at(losses_find(str_from(t->name)), &t->options, kernels_variant(KERNELS_SCALAR),
                         &t->target, weight, &work, &result);
    losses_work_free(&work);
    return result.loss;
}

static void check_trial(struct trial *t, uint64_t seed)
{
    bool is_good;
    double loss = run(t, 1.0, &is_good);
    long double expected = moved(t, -2, 0, 0.0L);
    assert_true(is_good);
    if (!(fabsl((long double)loss - expected) <= 1e-5L * fmaxl(fabsl(expected), 1.0L)))
        fail_msg("%s, seed %u: loss %.9g, expected %.9g", t->name, (unsigned)seed, loss, (double)expected);
    check_gradient(t, -1, t->query_gradient, seed);
    for (uint32_t r = 0; r <= t->target.count; r += 1 + r / 4) {
        float gradient[DIMS];
        losses_row_gradient(gradient, t->row_scales[r], t->query, t->target.d);
        check_gradient(t, (int)r, gradient, seed);
    }
}

static void test_gradients(void **state)
{
    (void)state;
    static struct trial t;
    static const uint32_t counts[] = {0, 1, 2, 5, 17, 40}, dims[] = {1, 2, 3, 16, 31, 64, 128};
    for (size_t k = 0; k < sizeof(names) / sizeof(*names); k++) {
        for (uint64_t seed = 0; seed < 120; seed++) {
            make(&t, names[k], (enum scores)(seed % SITUATIONS), counts[seed / 3 % 6], dims[seed / 5 % 7],
                 seed);
            check_trial(&t, seed);
        }
    }
}

/* Losses and gradients are the same bits from each variant; a weight is a factor of all of them. */
static void test_variants(void **state)
{
    (void)state;
    static struct trial t;
    struct losses_work work;
    losses_work_init(&work, COUNT);
    for (size_t k = 0; k < sizeof(names) / sizeof(*names); k++) {
        for (uint64_t seed = 0; seed < 30; seed++) {
            make(&t, names[k], (enum scores)(seed % SITUATIONS), COUNT - 1, 1 + (uint32_t)seed * 4, seed);
            bool is_good;
            double loss = run(&t, 1.0, &is_good);
            for (int v = KERNELS_SCALAR + 1; v < KERNELS_VARIANTS; v++) {
                float query[DIMS], scales[1 + COUNT];
                struct losses_result r = {.query_gradient = query, .row_scales = scales};
                if (!kernels_supports((enum kernels_variant)v))
                    continue;
                assert_true(losses_at(losses_find(str_from(names[k])), &t.options,
                                      kernels_variant((enum kernels_variant)v), &t.target, 1.0, &work, &r));
                assert_memory_equal(&r.loss, &loss, sizeof(loss));
                assert_memory_equal(query, t.query_gradient, t.target.d * sizeof(*query));
                assert_memory_equal(scales, t.row_scales, COUNT * sizeof(*scales));
            }
            float before = t.row_scales[0];
            assert_true(run(&t, 4.0, &is_good) == 4.0 * loss && t.row_scales[0] == 4.0F * before);
        }
    }
    losses_work_free(&work);
}

/* All other items as negatives, each expected once: the softmax over all. */
static void test_sampled_softmax_of_all(void **state)
{
    (void)state;
    static struct trial t, all;
    bool is_good;
    for (uint64_t seed = 0; seed < 30; seed++) {
        make(&t, "sampled_softmax", (enum scores)(seed % SITUATIONS), COUNT, 33, 2 * seed);
        struct negatives others = {.count = COUNT};
        t.target.positive_log_q = 0.0;
        for (uint32_t i = 0; i < COUNT; i++)
            t.log_q[i] = negatives_log_q(&others, i, COUNT), t.numbers[i] = 100 + i;
        make(&all, "softmax", (enum scores)(seed % SITUATIONS), COUNT, 33, 2 * seed);
        memcpy(all.numbers, t.numbers, sizeof(t.numbers));
        double loss = run(&t, 1.0, &is_good);
        assert_true(t.options.correct && loss == run(&all, 1.0, &is_good));
        assert_memory_equal(t.query_gradient, all.query_gradient, 33 * sizeof(float));
        assert_memory_equal(t.row_scales, all.row_scales, sizeof(t.row_scales));
    }
}

/* The corrected powers of drawn items are, on average, those of all items: so log_q is right for both draws. */
static void test_log_q_is_unbiased(void **state)
{
    (void)state;
    enum { I = 200, DRAWS = 64, TRIALS = 4000 };
    for (int draw = NEGATIVES_UNIFORM; draw <= NEGATIVES_LOG_UNIFORM; draw++) {
        struct negatives n = {.seed = 5, .draw = (enum negatives_draw)draw, .count = I};
        double all = 0.0, sum = 0.0, squares = 0.0, scores[I];
        for (uint32_t i = 0; i < I; i++)
            scores[i] = sin((double)i) + 2.0 * (double)i / I, all += exp(scores[i]);
        for (uint64_t trial = 0; trial < TRIALS; trial++) {
            uint32_t numbers[DRAWS];
            double log_q[DRAWS], estimate = 0.0;
            negatives_draw(&n, trial, DRAWS, numbers, log_q);
            for (size_t i = 0; i < DRAWS; i++)
                estimate += exp(scores[numbers[i]] - log_q[i]);
            sum += estimate, squares += estimate * estimate;
        }
        double mean = sum / TRIALS, error = sqrt((squares / TRIALS - mean * mean) / TRIALS);
        assert_true(fabs(mean - all) <= 4.0 * error && error < 0.01 * all);
    }
}

static void test_gbce(void **state)
{
    (void)state;
    static struct trial t, plain;
    bool is_good;
    make(&t, "gbce", ORDINARY, 40, 8, 5);
    make(&plain, "bce", ORDINARY, 40, 8, 5);
    t.options.calibration = 0.0; /* bce, divided by K + 1 */
    assert_true(fabs(41.0 * run(&t, 1.0, &is_good) - run(&plain, 1.0, &is_good)) < 1e-12);
    float zero = t.row_scales[0];
    t.options.calibration = 1.0; /* the positive counts as alpha = 40 / 999 */
    run(&t, 1.0, &is_good);
    assert_true(fabs((double)t.row_scales[0] / (double)zero - 40.0 / 999.0) < 1e-6);
    t.target.items = 41; /* all others are negatives: alpha is 1 */
    run(&t, 1.0, &is_good);
    assert_true(t.row_scales[0] == zero);
    t.target.items = 20; /* more draws than items: not more than all */
    run(&t, 1.0, &is_good);
    assert_true(t.row_scales[0] == zero);
}

/* Scores 3 for the positive, then 0, 1, 2.5, 9: the third negative is the first one above 3 - 1. */
static void test_warp(void **state)
{
    (void)state;
    static struct trial t;
    static const double scores[5] = {3.0, 0.0, 1.0, 2.5, 9.0};
    struct test_random random = {1};
    bool is_good;
    make(&t, "warp", ORDINARY, 4, 8, 4);
    t.options.temperature = 1.0;
    for (uint32_t i = 0; i < 5; i++)
        fill_row(&t, &random, t.rows[i], scores[i]);
    t.target.numbers = NULL;
    t.target.items = 10; /* rank 9 / 3 = 3, weight 1 + 1/2 + 1/3 */
    assert_true(fabs(run(&t, 1.0, &is_good) - 11.0 / 6.0 * 0.5) < 1e-5);
    assert_true(t.row_scales[1] == 0.0F && t.row_scales[2] == 0.0F && t.row_scales[4] == 0.0F);
    assert_true(t.row_scales[3] == -t.row_scales[0] && fabs((double)t.row_scales[3] - 11.0 / 6.0) < 1e-6);
    static const uint32_t numbers[4] = {7, 1, 2, 3}; /* the first draw is the positive: rank 9 / 2 = 4 */
    t.target.numbers = numbers;
    assert_true(fabs(run(&t, 1.0, &is_good) - 25.0 / 12.0 * 0.5) < 1e-5);
    t.target.count = 2; /* both draws score low enough */
    assert_true(run(&t, 1.0, &is_good) == 0.0 && is_good && t.row_scales[0] == 0.0F);
    t.target.count = 4, t.rows[4][0] = NAN; /* behind the first violation: never looked at */
    assert_true(run(&t, 1.0, &is_good) > 0.0 && is_good);
    double sum = 0.0;
    t.target.items = 2 * 777 + 1; /* a rank whose weight comes from the series */
    for (int i = 1; i <= 777; i++)
        sum += 1.0 / i;
    run(&t, 1.0, &is_good);
    assert_true(fabs((double)t.row_scales[3] - sum) < 1e-6);
}

static void check_rejected(struct trial *t)
{
    bool is_good;
    for (uint32_t i = 0; i <= t->target.count; i++)
        t->query_gradient[i] = t->row_scales[i] = 5.0F;
    assert_true(run(t, 1.0, &is_good) == 0.0);
    assert_false(is_good);
    for (uint32_t i = 0; i < t->target.d; i++)
        assert_true(t->query_gradient[i] == 0.0F);
    for (uint32_t i = 0; i <= t->target.count; i++)
        assert_true(t->row_scales[i] == 0.0F);
}

static void test_rejected(void **state)
{
    (void)state;
    static struct trial t;
    static const float bad[] = {NAN, INFINITY, 3e38F};
    for (size_t k = 0; k < sizeof(names) / sizeof(*names); k++) {
        for (size_t b = 0; b < 3; b++) {
            make(&t, names[k], ORDINARY, 6, 20, 4);
            t.query[3] = bad[b], t.rows[0][3] = 3e3F;
            check_rejected(&t);
            make(&t, names[k], ORDINARY, 6, 20, 4);
            t.rows[0][3] = -bad[b], t.query[3] = 3e3F;
            check_rejected(&t);
            make(&t, names[k], ORDINARY, 6, 20, 4);
            t.rows[1][3] = bad[b], t.query[3] = 3e3F, t.numbers[0] = 1;
            check_rejected(&t);
        }
    }
}

static unsigned bind(const struct losses_kind *kind, const char *block, struct losses_options *options)
{
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    struct ast *value = lang_parse_value(&arena, &diags, str_from(block));
    struct option_env env = {&arena, &diags, lang_parse_value};
    *options = (struct losses_options){0};
    bool is_good = option_bind(kind->options, "the loss", value->span, value->entries, value->entries_count,
                               options, &env);
    unsigned errors = diags.errors;
    assert_true(is_good == (errors == 0));
    arena_free(&arena);
    return errors;
}

static void test_options(void **state)
{
    (void)state;
    struct losses_options o;
    char reason[LOSSES_REASON];
    static const char *const refused[] = {"{ temperature: 0 }", "{ temperature: 1001 }", "{ nonsense: 1 }"};
    static const char *const own[] = {"{ negatives: 0 }",  "{ negatives: 4097 }", "{ negatives: 0 }",
                                      "{ negatives: -1 }", "{ negatives: 1 }",    "{ tries: 0 }"};
    for (size_t k = 0; k < sizeof(names) / sizeof(*names); k++) {
        const struct losses_kind *kind = losses_find(str_from(names[k]));
        assert_non_null(kind);
        assert_string_equal(kind->name, names[k]);
        assert_int_equal(bind(kind, "{ }", &o), 0);
        assert_true(o.temperature == 1.0 && o.negatives <= LOSSES_NEGATIVES_MAX);
        assert_true(losses_check(kind, &o, reason) && reason[0] == '\0');
        for (size_t i = 0; i < 3; i++)
            assert_true(bind(kind, refused[i], &o) > 0);
        assert_true(bind(kind, own[k], &o) > 0);
    }
    assert_null(losses_find(str_from("hinge")));
    assert_true(bind(losses_find(str_from("gbce")), "{ t: 1.5 }", &o) > 0);
    const struct losses_kind *sampled = losses_find(str_from("sampled_softmax"));
    assert_int_equal(bind(sampled, "{ negatives: 0, in_batch: true }", &o), 0);
    assert_true(losses_check(sampled, &o, reason));
    assert_int_equal(bind(sampled, "{ negatives: 0 }", &o), 0);
    assert_false(losses_check(sampled, &o, reason));
    assert_non_null(strstr(reason, "found `negatives: 0`"));
    assert_true(strlen(reason) + 1 < LOSSES_REASON);
}

/* The option `loss`, in the table of a learner. */
struct learner_options {
    struct kind_ref loss;
};
static const struct option learner_options[] = {
    OPTION_KIND(struct learner_options, loss, "loss", 0, "sampled_softmax { negatives: 64 }", losses_choices,
                "what a target teaches"),
    OPTIONS_END,
};

/* Binds `block`; returns how many errors there are, and the loss that is chosen if there is none. */
static unsigned bind_loss(const char *block, const struct losses_kind **kind, struct losses_options *options)
{
    struct arena arena = {0};
    struct diag_list diags;
    struct learner_options o = {0};
    diag_list_init(&diags, &arena);
    struct ast *value = lang_parse_value(&arena, &diags, str_from(block));
    struct option_env env = {&arena, &diags, lang_parse_value};
    bool is_good =
        option_bind(learner_options, "learner", value->span, value->entries, value->entries_count, &o, &env);
    unsigned errors = diags.errors;
    assert_true(is_good == (errors == 0));
    if (is_good) {
        *kind = losses_chosen(&o.loss);
        *options = *(const struct losses_options *)o.loss.config;
    }
    arena_free(&arena);
    return errors;
}

static void test_choices(void **state)
{
    (void)state;
    const struct losses_kind *kind = NULL;
    struct losses_options o;
    for (size_t k = 0; k < sizeof(names) / sizeof(*names); k++) {
        char block[80];
        snprintf(block, sizeof(block), "{ loss: %s { temperature: 0.5 } }", names[k]);
        assert_int_equal(bind_loss(block, &kind, &o), 0);
        assert_string_equal(kind->name, names[k]);
        assert_true(kind->options == losses_choices[k].options && o.temperature == 0.5);
        assert_true(strlen(losses_choices[k].summary) > 20);
    }
    assert_null(losses_choices[sizeof(names) / sizeof(*names)].name);
    assert_int_equal(bind_loss("{ }", &kind, &o), 0);
    assert_true(kind == losses_find(str_from("sampled_softmax")) && o.negatives == 64 && o.correct);
    assert_int_equal(bind_loss("{ loss: warp { tries: 7 } }", &kind, &o), 0);
    assert_int_equal(o.negatives, 7);
    assert_int_equal(bind_loss("{ loss: bce { in_batch: true } }", &kind, &o), 1);
    assert_int_equal(bind_loss("{ loss: hinge }", &kind, &o), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_variants),
        cmocka_unit_test(test_sampled_softmax_of_all),
        cmocka_unit_test(test_log_q_is_unbiased),
        cmocka_unit_test(test_gbce),
        cmocka_unit_test(test_warp),
        cmocka_unit_test(test_rejected),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_choices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

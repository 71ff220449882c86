/*
 * Steps of targets (learners/losses/targets.h): their gradients against central differences of the step's whole loss in
 * long double, windows' items included; the optimizers' steps against plain loops in double; the fixed order of sums;
 * the same bits with a helping thread, from each variant, and again; rejected targets; the state of frequencies.
 */
#include "core/buffer.h"
#include "learners/losses/targets.h"
#include "targets_rig.h"
#include "team_helper.h"

#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static const struct rig_case cases[] = {
    {"bce", false, false, NEGATIVES_UNIFORM, 3},
    {"bpr", false, false, NEGATIVES_LOG_UNIFORM, 2},
    {"gbce", false, false, NEGATIVES_UNIFORM, 9},
    {"warp", false, false, NEGATIVES_UNIFORM, 12},
    {"sampled_softmax", false, true, NEGATIVES_UNIFORM, 12},
    {"sampled_softmax", false, true, NEGATIVES_LOG_UNIFORM, 12},
    {"sampled_softmax", false, false, NEGATIVES_LOG_UNIFORM, 12},
    {"sampled_softmax", true, true, NEGATIVES_UNIFORM, 0},
    {"sampled_softmax", true, false, NEGATIVES_UNIFORM, 0},
    {"sampled_softmax", true, true, NEGATIVES_UNIFORM, 6},
    {"sampled_softmax", true, true, NEGATIVES_LOG_UNIFORM, 6},
    {"softmax", false, false, NEGATIVES_UNIFORM, 0},
};
enum { CASES = ARRAY_COUNT(cases) };

static struct rig rig, other;

/* Earlier occurrences of items, in the targets and in plain frequencies that have all numbers. */
static struct frequencies learn_before(struct targets *t, const struct rig *r)
{
    struct frequencies f;
    struct targets_step before = r->step;
    frequencies_init(&f, r->options.rate, r->options.initial);
    frequencies_add(&f, RIG_NUMBERS, 0);
    for (before.time = 10; before.time < 200; before.time += before.count) {
        targets_draw(t, &before);
        for (uint32_t i = 0; i < before.count; i++)
            frequencies_add(&f, before.positives[i], before.time + i);
    }
    return f;
}

/* --- Gradients --- */

static long double step_loss(const struct rig *r, const struct frequencies *f, struct rig_move m)
{
    long double sum = 0.0L;
    for (uint32_t i = 0; i < r->step.count; i++)
        sum += rig_loss(r, f, i, m);
    return sum;
}

/* Compares n numbers with differences of the step's loss: 1e-4 of the number, or of a hundredth of the largest. */
static void check_differences(const struct rig *r, const struct frequencies *f, struct rig_move m,
                              const float *found, const char *what)
{
    long double expected[RIG_DIM], most = 0.0L, h = 1e-7L;
    for (m.dim = 0; m.dim < r->dim; m.dim++) {
        struct rig_move up = m, down = m;
        up.h = h, down.h = -h;
        expected[m.dim] = (step_loss(r, f, up) - step_loss(r, f, down)) / (2.0L * h);
        most = fmaxl(most, fabsl(expected[m.dim]));
    }
    for (uint32_t j = 0; j < r->dim; j++)
        if (!(fabsl((long double)found[j] - expected[j]) <=
              1e-4L * (fabsl(expected[j]) + 0.01L * most) + 1e-7L))
            fail_msg(
                "%s, in batch %d, draw %d, %lld negatives: gradient by %s %u, dim %u: %.9g, expected %.9g",
                r->of->name, r->of->in_batch, (int)r->of->draw, (long long)r->of->negatives, what,
                m.number == UINT32_MAX ? m.target : m.number, j, (double)found[j], (double)expected[j]);
}

static void check_step(const struct rig_case *of, uint64_t seed)
{
    rig_make(&rig, of, 21, 45, 8, seed);
    struct targets *t = targets_create(&rig.options);
    struct frequencies f = learn_before(t, &rig);
    rig_gradients(&rig, t);
    for (uint32_t i = 0; i < rig.step.count; i++) {
        long double loss = rig_loss(&rig, &f, i, RIG_STILL);
        assert_int_equal(rig.is_rejected[i], 0);
        if (!(fabsl((long double)rig.losses[i] - loss) <= 1e-5L * fmaxl(1.0L, loss)))
            fail_msg("%s: loss of target %u: %.9g, expected %.9g", of->name, i, rig.losses[i], (double)loss);
        check_differences(&rig, &f, (struct rig_move){UINT32_MAX, i, 0, 0.0L},
                          rig.query_gradients + (size_t)i * rig.stride, "query");
    }
    other = rig; /* with sgd of rate 64, rows tell their gradients with little rounding */
    struct opt_params params = {.rate = 64.0F, .step_max = 1e9F};
    assert_int_equal(rig_update(&other, t, OPT_SGD, &params), 0);
    for (uint32_t number = 0; number < rig.numbers; number++) {
        float gradient[RIG_DIM];
        for (uint32_t j = 0; j < rig.dim; j++)
            gradient[j] = (rig.rows[number][j] - other.rows[number][j]) / 64.0F;
        check_differences(&rig, &f, (struct rig_move){number, UINT32_MAX, 0, 0.0L}, gradient, "row");
    }
    targets_free(t);
    frequencies_free(&f);
}

static void test_gradients(void **state)
{
    (void)state;
    for (size_t k = 0; k < CASES; k++)
        for (uint64_t seed = 0; seed < 4; seed++)
            check_step(&cases[k], seed);
}

/* The gradients for towers are those of the rows' steps. */
static void test_item_gradients(void **state)
{
    (void)state;
    static float out[RIG_NUMBERS * RIG_DIM];
    const struct opt_params params = {.rate = 1.0F, .step_max = 1e9F};
    for (size_t k = 0; k < CASES; k++) {
        rig_make(&rig, &cases[k], 200, 600, 16, k);
        rig.tokens.n = 0;
        rig_encode(&rig);
        struct targets *t = targets_create(&rig.options);
        rig_gradients(&rig, t);
        uint32_t count, moved = 0;
        const uint32_t *items = targets_items(t, &count);
        memset(out, 0xff, sizeof(out));
        targets_item_gradients(t, &rig.step, out);
        other = rig;
        assert_int_equal(rig_update(&other, t, OPT_SGD, &params), 0);
        for (uint32_t u = 0; u < count; u++)
            for (uint32_t j = 0; j < 16; j++) {
                moved += out[u * 16 + j] != 0.0F;
                assert_true(other.rows[items[u]][j] == rig.rows[items[u]][j] - out[u * 16 + j]);
            }
        assert_true(moved > 16 * 50);
        targets_free(t);
    }
}

/* --- Optimizers --- */

/* One step of a row in double, whose state lies behind its dim weights. */
static void plain_step(enum opt_kind kind, const struct opt_params *p, double *row, const double *gradient,
                       uint32_t dim)
{
    for (uint32_t j = 0; j < dim; j++) {
        double *w = &row[j], *s = &row[dim + j], *v = &row[2 * dim + j], g = gradient[j];
        if (kind == OPT_SGD) {
            *w -= (double)p->rate * g;
        } else if (kind == OPT_ADAGRAD) {
            *s += g * g;
            *w -= (double)p->rate * g / sqrt(*s);
        } else {
            *s = (double)p->beta1 * *s + (1.0 - (double)p->beta1) * g;
            *v = (double)p->beta2 * *v + (1.0 - (double)p->beta2) * g * g;
            *w -= (double)p->rate * *s * (double)p->correction1 /
                  (sqrt(*v * (double)p->correction2) + (double)p->epsilon);
        }
    }
}

/* The gradients by all rows in double: each target alone (losses_at), then the tokens. taught: which rows have one. */
static void plain_gradients(const struct rig *r, double (*gradients)[RIG_DIM], bool *taught)
{
    struct losses_work work;
    struct negatives drawing = {77, r->of->draw, r->live, r->live_count};
    bool is_all = strcmp(r->of->name, "softmax") == 0;
    uint32_t draws = is_all ? 0 : (uint32_t)r->of->negatives;
    losses_work_init(&work, RIG_NUMBERS);
    for (uint32_t i = 0; i < r->step.count; i++) {
        const float *rows[RIG_NUMBERS], *query = r->queries + (size_t)i * r->stride;
        uint32_t numbers[RIG_NUMBERS], n = draws;
        double log_q[RIG_NUMBERS];
        float scales[RIG_NUMBERS + 1], query_gradient[RIG_DIM];
        negatives_draw(&drawing, r->identities[i], draws, numbers, draws > 0 ? log_q : NULL);
        for (uint32_t k = 0; k < r->live_count && is_all; k++)
            log_q[n] = 0.0, numbers[n++] = r->live[k];
        for (uint32_t k = 0; k < n; k++)
            rows[k] = r->rows[numbers[k]];
        struct losses_target target = {
            query,        r->rows[r->positives[i]], rows, n, r->dim, r->positives[i], numbers, 0.0, log_q,
            r->live_count};
        struct losses_result result = {0.0, query_gradient, scales};
        assert_true(losses_at(r->options.loss, &r->options.losses, r->options.kernels, &target,
                              (double)r->weights[i], &work, &result));
        for (uint32_t k = 0; k <= n; k++) {
            uint32_t number = k == 0 ? r->positives[i] : numbers[k - 1];
            taught[number] |= scales[k] != 0.0F || is_all;
            for (uint32_t j = 0; j < r->dim; j++)
                gradients[number][j] += (double)scales[k] * (double)query[j];
        }
    }
    for (uint32_t k = 0; k < r->tokens.n; k++) {
        taught[r->token_numbers[k]] = true;
        for (uint32_t j = 0; j < r->dim; j++)
            gradients[r->token_numbers[k]][j] +=
                (double)RIG_SHARE * (double)r->token_gradients[k * r->dim + j];
    }
    losses_work_free(&work);
}

static void check_optimizer(const struct rig_case *of, enum opt_kind kind)
{
    static double plain[RIG_NUMBERS][RIG_DIM + RIG_STATE], gradients[RIG_NUMBERS][RIG_DIM];
    struct opt_params params = {
        .rate = 0.05F, .epsilon = 0.01F, .decay = 1.0F, .beta1 = 0.9F, .beta2 = 0.99F};
    params.step_max = 1e9F;
    rig_make(&rig, of, 60, 200, 16, 5);
    for (uint32_t i = 0; i < rig.numbers; i++)
        for (uint32_t j = 0; j < RIG_DIM + RIG_STATE; j++) {
            bool is_state = j >= rig.dim;
            rig.rows[i][j] = !is_state ? rig.rows[i][j] : opt_state_init(kind, 0.5F);
            plain[i][j] = (double)rig.rows[i][j];
        }
    struct targets *t = targets_create(&rig.options);
    for (int step = 1; step <= 4; step++) {
        bool taught[RIG_NUMBERS] = {false};
        params.correction1 = (float)(1.0 / (1.0 - pow(0.9, step)));
        params.correction2 = (float)(1.0 / (1.0 - pow(0.99, step)));
        for (uint32_t i = 0; i < rig.step.count; i++)
            rig.identities[i] += 1000;
        rig_encode(&rig);
        rig_gradients(&rig, t);
        memset(gradients, 0, sizeof(gradients));
        plain_gradients(&rig, gradients, taught);
        assert_int_equal(rig_update(&rig, t, kind, &params), 0);
        for (uint32_t i = 0; i < rig.numbers; i++) {
            if (taught[i])
                plain_step(kind, &params, plain[i], gradients[i], rig.dim);
            for (uint32_t j = 0; j < rig.dim; j++) {
                double w = (double)rig.rows[i][j];
                if (!(fabs(w - plain[i][j]) <= 1e-6 * fmax(1.0, fabs(w))))
                    fail_msg("%s, optimizer %d, step %d: row %u, dim %u: %.9g, expected %.9g", of->name, kind,
                             step, i, j, w, plain[i][j]);
                plain[i][j] = w; /* each step by itself: rounding is not carried on */
            }
        }
    }
    targets_free(t);
}

static void test_optimizers(void **state)
{
    (void)state;
    static const enum opt_kind kinds[] = {OPT_SGD, OPT_ADAGRAD, OPT_ADAM};
    for (size_t k = 0; k < CASES; k++)
        for (size_t i = 0; i < ARRAY_COUNT(kinds) && !cases[k].in_batch; i++)
            check_optimizer(&cases[k], kinds[i]);
}

/* --- Order and bits --- */

/* The sum of a row's places is one chain of fma: by window, of a window the targets before the tokens. */
static void test_order(void **state)
{
    (void)state;
    enum { N = 40, DIM = 8 };
    static const struct rig_case of = {"bce", false, false, NEGATIVES_UNIFORM, 1};
    const struct opt_params params = {.rate = 1.0F, .step_max = 1e9F};
    rig_make(&rig, &of, N, 60, DIM, 4);
    rig.live_count = rig.step.live_count =
        1; /* draws are hits: each target has the places of its positive alone */
    rig.tokens.n = 0;
    for (uint32_t i = 0; i < N; i++) {
        rig.positives[i] = rig.live[0], rig.windows[i] = i / 3;
        for (uint32_t k = 0; k < 2 && i % 3 == 0; k++) {
            rig.token_windows[rig.tokens.n] = i / 3, rig.token_numbers[rig.tokens.n] = rig.live[k];
            rig.tokens.n++;
        }
    }
    rig_encode(&rig);
    struct targets *t = targets_create(&rig.options);
    rig_gradients(&rig, t);
    other = rig;
    assert_int_equal(rig_update(&other, t, OPT_SGD, &params), 0);
    for (uint32_t j = 0; j < DIM; j++) {
        float sum = 0.0F, first = rig.rows[rig.live[0]][j];
        for (uint32_t w = 0; w <= N / 3; w++) {
            for (uint32_t i = 3 * w; i < N && i < 3 * w + 3; i++) {
                const float *query = rig.queries + (size_t)i * rig.stride;
                float dot = rig.options.kernels->dot(query, rig.rows[rig.live[0]], DIM);
                double score = (double)dot / 0.7;
                double scale = -1.0 / (1.0 + exp(score)) * ((double)rig.weights[i] / 0.7);
                sum = fmaf((float)scale, query[j], sum);
            }
            if (3 * w < N)
                sum = fmaf(RIG_SHARE, rig.token_gradients[2 * w * DIM + j], sum);
        }
        assert_true(other.rows[rig.live[0]][j] == first - sum);
    }
    targets_free(t);
}

/* Everything that a step writes, tokens included. */
static void run_step(struct rig *r, const struct rig_case *of, enum kernels_variant variant,
                     struct team *team, uint32_t *items, uint32_t *count)
{
    const struct opt_params params = {.rate = 0.1F, .decay = 1.0F, .step_max = 1e9F};
    rig_make(r, of, 250, 650, RIG_DIM, 12);
    for (uint32_t i = 0; i < r->numbers; i++)
        for (uint32_t j = 0; j < r->dim; j++)
            r->rows[i][r->dim + j] = 1.0F;
    r->options.kernels = kernels_variant(variant), r->options.batch = batch_variant(variant);
    r->options.team = team, rig_parts = team != NULL ? 7 : 1;
    struct targets *t = targets_create(&r->options);
    for (int step = 0; step < 2; step++) {
        rig_encode(r);
        rig_gradients(r, t);
        const uint32_t *listed = targets_items(t, count);
        memcpy(items, listed, *count * sizeof(*items));
        assert_int_equal(rig_update(r, t, OPT_ADAGRAD, &params), 0);
        r->step.time += r->step.count;
    }
    targets_free(t);
}

static void check_same(const char *what, const struct rig *a, const struct rig *b)
{
    if (memcmp(a->losses, b->losses, sizeof(a->losses)) != 0 ||
        memcmp(a->query_gradients, b->query_gradients, sizeof(a->query_gradients)) != 0)
        fail_msg("%s, %s: losses or gradients by queries differ", a->of->name, what);
    if (memcmp(a->rows, b->rows, sizeof(a->rows)) != 0)
        fail_msg("%s, %s: rows differ", a->of->name, what);
}

static void test_bits(void **state)
{
    (void)state;
    static uint32_t items[RIG_NUMBERS], again[RIG_NUMBERS];
    struct helper h = {.team = {.wake = wait_for_help}};
    h.team.engine = &h;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, help, &h), 0);
    for (size_t k = 0; k < CASES; k++) {
        uint32_t count, count_again;
        unsigned before = atomic_load(&h.pieces);
        run_step(&rig, &cases[k], KERNELS_SCALAR, NULL, items, &count);
        run_step(&other, &cases[k], KERNELS_SCALAR, &h.team, again, &count_again);
        assert_true(atomic_load(&h.pieces) >= before + 4); /* at least losses and rows, of two steps */
        check_same("with help, in parts", &rig, &other);
        assert_int_equal(count, count_again);
        assert_memory_equal(items, again, count * sizeof(*items));
        for (int v = KERNELS_SCALAR + 1; v < KERNELS_VARIANTS; v++) {
            if (!kernels_supports((enum kernels_variant)v))
                continue;
            run_step(&other, &cases[k], (enum kernels_variant)v, NULL, again, &count_again);
            check_same(kernels_variant_name((enum kernels_variant)v), &rig, &other);
        }
    }
    atomic_store(&h.is_over, true);
    pthread_join(thread, NULL);
}

/* --- Draws and items --- */

/* Items are distinct, in the order of first places; a target's draws depend on its identity alone. */
static void test_items(void **state)
{
    (void)state;
    static uint32_t expected[RIG_NUMBERS];
    rig_make(&rig, &cases[5], 40, 600, 8, 3);
    struct targets *t = targets_create(&rig.options);
    for (int turn = 0; turn < 3; turn++) {
        bool is_known[RIG_NUMBERS] = {false};
        struct negatives drawing = {77, NEGATIVES_LOG_UNIFORM, rig.live, rig.live_count};
        uint32_t n = 0, count, drawn[13];
        for (uint32_t i = 0; i < rig.step.count; i++) {
            drawn[0] = rig.positives[i];
            negatives_draw(&drawing, rig.identities[i], 12, drawn + 1, NULL);
            for (uint32_t k = 0; k < 13; k++)
                if (!is_known[drawn[k]])
                    is_known[expected[n++] = drawn[k]] = true;
        }
        targets_draw(t, &rig.step);
        const uint32_t *items = targets_items(t, &count);
        assert_int_equal(count, n);
        assert_memory_equal(items, expected, n * sizeof(*items));
        static const uint32_t added[] = {699, 1, 1};
        uint32_t news = 1 + !is_known[1];
        targets_add_items(t, added, 3);
        items = targets_items(t, &count);
        assert_int_equal(count, n + news);
        assert_memory_equal(items, expected, n * sizeof(*items));
        assert_int_equal(items[n], 699);
        rig.step.count = turn == 0 ? 7 : 40; /* other steps in between change nothing */
    }
    targets_free(t);
}

/* Live items without a list are 0 .. live_count - 1. A target alone in its batch has no others: without draws there is
 * nothing to compare with. */
static void test_edges(void **state)
{
    (void)state;
    const struct opt_params params = {.rate = 0.1F, .step_max = 1e9F};
    struct rig *both[] = {&rig, &other};
    for (size_t k = 0; k < CASES; k++) {
        for (uint32_t count = 1; count <= 20; count += 19) {
            for (int turn = 0; turn < 2; turn++) {
                struct rig *r = both[turn];
                rig_make(r, &cases[k], count, 300, 8, 6);
                for (uint32_t i = 0; i < 200; i++)
                    r->live[i] = i;
                r->step.live = turn == 0 ? r->live : NULL;
                r->step.live_count = 200, r->tokens.n = 0;
                for (uint32_t i = 0; i < count; i++)
                    r->positives[i] %= 200;
                rig_encode(r);
                struct targets *t = targets_create(&r->options);
                rig_gradients(r, t);
                assert_int_equal(rig_update(r, t, OPT_SGD, &params), 0);
                targets_free(t);
            }
            check_same("without a list", &rig, &other);
            bool has_negatives = count > 1 || !cases[k].in_batch || cases[k].negatives > 0;
            if (strcmp(cases[k].name, "warp") != 0) /* which one target may pass */
                assert_true((rig.losses[0] > 0.0) == has_negatives);
        }
    }
}

/* --- Rejected --- */

/* A rejected target teaches nothing: all others are as if its weight were 0, and rows that it alone has do not
 * move, although the optimizer would move them without a gradient. */
static void check_rejected(const struct rig_case *of)
{
    const struct opt_params params = {.rate = 0.1F,
                                      .beta1 = 0.9F,
                                      .beta2 = 0.9F,
                                      .epsilon = 1e-3F,
                                      .correction1 = 1.0F,
                                      .correction2 = 1.0F,
                                      .step_max = 1e9F};
    struct rig *both[] = {&rig, &other};
    for (int k = 0; k < 2; k++) {
        rig_make(both[k], of, 30, 600, 8, 8);
        both[k]->tokens.n = 0;
        for (uint32_t i = 0; i < RIG_NUMBERS; i++)
            for (uint32_t j = 8; j < 24; j++)
                both[k]->rows[i][j] = 0.1F; /* moments of earlier steps */
        rig_encode(both[k]);
        if (k == 0)
            rig.queries[11 * rig.stride + 3] = NAN;
        else
            other.weights[11] = 0.0F;
        struct targets *t = targets_create(&both[k]->options);
        rig_gradients(both[k], t);
        assert_int_equal(rig_update(both[k], t, OPT_ADAM, &params), 0);
        targets_free(t);
    }
    for (uint32_t i = 0; i < rig.step.count; i++)
        assert_int_equal(rig.is_rejected[i], i == 11);
    assert_true(rig.losses[11] == 0.0);
    check_same("rejected", &rig, &other);
    struct rig start;
    rig_make(&start, of, 30, 600, 8, 8);
    uint32_t still = 0;
    for (uint32_t i = 0; i < start.live_count; i++)
        still += memcmp(start.rows[start.live[i]], rig.rows[start.live[i]], 8 * sizeof(float)) == 0;
    assert_true(of->negatives == 0 && !of->in_batch ? still == 0 : still > 50);
}

static void test_rejected(void **state)
{
    (void)state;
    for (size_t k = 0; k < CASES; k++)
        check_rejected(&cases[k]);
}

/* Of a token whose gradient is not finite the row stays; a step of rejected targets alone moves nothing. */
static void test_rows_rejected(void **state)
{
    (void)state;
    const struct opt_params params = {.rate = 0.1F, .l2 = 0.5F, .step_max = 1e9F};
    for (size_t k = 0; k < CASES; k++) {
        rig_make(&rig, &cases[k], 30, 600, 8, 8);
        struct targets *t = targets_create(&rig.options);
        rig_gradients(&rig, t);
        rig.token_gradients[5] = INFINITY;
        other = rig;
        assert_int_equal(rig_update(&rig, t, OPT_SGD, &params), 1);
        uint32_t number = rig.token_numbers[0];
        assert_memory_equal(rig.rows[number], other.rows[number], 8 * sizeof(float));
        for (uint32_t i = 0; i < 30; i++)
            rig.queries[i * rig.stride] = NAN;
        rig_gradients(&rig, t);
        rig.tokens.n = 0;
        other = rig;
        assert_int_equal(rig_update(&rig, t, OPT_SGD, &params), 0);
        for (uint32_t i = 0; i < 30; i++)
            assert_int_equal(rig.is_rejected[i], 1);
        assert_memory_equal(rig.rows, other.rows, sizeof(rig.rows));
        rig.step.count = 0; /* a step without targets */
        rig_gradients(&rig, t);
        assert_int_equal(rig_update(&rig, t, OPT_SGD, &params), 0);
        assert_memory_equal(rig.rows, other.rows, sizeof(rig.rows));
        targets_free(t);
    }
}

/* --- Memory, state, limits --- */

static void test_memory(void **state)
{
    (void)state;
    const struct opt_params params = {.rate = 0.1F, .step_max = 1.0F};
    for (size_t k = 0; k < CASES; k++) {
        rig_make(&rig, &cases[k], 200, 600, 16, 1);
        struct targets *t = targets_create(&rig.options);
        size_t bytes = 0, taken = 0;
        for (int step = 0; step < 4; step++) {
            rig.step.count = step == 2 ? 150 : 200;
            rig_gradients(&rig, t);
            rig_update(&rig, t, OPT_SGD, &params);
            struct mallinfo2 info = mallinfo2();
            if (step == 0)
                bytes = targets_bytes(t), taken = info.uordblks + info.hblkhd;
            assert_int_equal(targets_bytes(t), bytes);
            assert_int_equal(info.uordblks + info.hblkhd, taken);
            rig.step.time += 200;
        }
        targets_free(t);
    }
}

/* Restored targets go on as the others; a number that is forgotten begins anew. */
static void test_state(void **state)
{
    (void)state;
    char reason[FREQUENCIES_REASON];
    rig_make(&rig, &cases[9], 30, 100, 8, 2);
    struct byte_buffer saved = {0};
    struct targets *a = targets_create(&rig.options), *b = targets_create(&rig.options);
    struct frequencies f = learn_before(a, &rig);
    targets_save(a, &saved);
    assert_true(saved.length > 0 && saved.length % 16 == 0);
    assert_true(targets_restore(b, saved.data, saved.length, 100, 1000, reason));
    assert_false(targets_restore(b, saved.data, saved.length, 2, 1000, reason));
    assert_non_null(strstr(reason, "item frequencies"));
    rig_make(&other, &cases[9], 30, 100, 8, 2);
    rig_gradients(&rig, a);
    rig_gradients(&other, b);
    check_same("restored", &rig, &other);
    targets_forget(b, rig.positives[0]);
    other.step.time = rig.step.time += 30;
    rig_gradients(&rig, a);
    rig_gradients(&other, b);
    assert_true(rig.losses[0] != other.losses[0]);
    struct byte_buffer none = {0};
    rig_make(&rig, &cases[0], 30, 100, 8, 2);
    struct targets *without = targets_create(&rig.options);
    targets_draw(without, &rig.step);
    targets_save(without, &none);
    assert_int_equal(none.length, 0);
    assert_false(targets_restore(without, saved.data, saved.length, 100, 1000, reason));
    assert_true(targets_restore(without, NULL, 0, 100, 1000, reason));
    buffer_free(&saved), buffer_free(&none), frequencies_free(&f);
    targets_free(a), targets_free(b), targets_free(without), targets_free(NULL);
}

static void test_check(void **state)
{
    (void)state;
    char reason[LOSSES_REASON];
    rig_make(&rig, &cases[9], 1, 10, 8, 1);
    assert_true(targets_check(&rig.options, reason) && reason[0] == '\0');
    rig.options.targets_max = 100000;
    assert_false(targets_check(&rig.options, reason));
    assert_non_null(strstr(reason, "100000 targets would make 10000700000 pairs"));
    assert_non_null(strstr(reason, "lower `batch`"));
    rig.options.losses.in_batch = false, rig.options.losses.negatives = 256;
    assert_true(targets_check(&rig.options, reason));
    rig.options.targets_max = TARGETS_PLACES_MAX / 257;
    assert_true(targets_check(&rig.options, reason));
    rig.options.targets_max++;
    assert_false(targets_check(&rig.options, reason));
    rig.options.losses.negatives = 4096;
    assert_false(targets_check(&rig.options, reason));
    rig.options.loss = losses_find(str_from("softmax"));
    assert_true(targets_check(&rig.options, reason));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),  cmocka_unit_test(test_item_gradients),
        cmocka_unit_test(test_optimizers), cmocka_unit_test(test_order),
        cmocka_unit_test(test_bits),       cmocka_unit_test(test_items),
        cmocka_unit_test(test_rejected),   cmocka_unit_test(test_rows_rejected),
        cmocka_unit_test(test_memory),     cmocka_unit_test(test_state),
        cmocka_unit_test(test_check),      cmocka_unit_test(test_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* A step of targets with windows of items, and its loss plainly in long double, for the tests of targets.h. A query is a
 * number each of its own plus SHARE times the sum of the rows of its window's items (tokens). */
#ifndef LEAT_TESTS_UNIT_LEARNERS_TARGETS_RIG_H
#define LEAT_TESTS_UNIT_LEARNERS_TARGETS_RIG_H

#include "core/mem.h"
#include "learners/losses/targets.h"
#include "tests/unit/support/random.h"

#include <math.h>
#include <stdlib.h>

enum { RIG_TARGETS = 300, RIG_NUMBERS = 700, RIG_DIM = 32, RIG_STATE = 2 * RIG_DIM, RIG_TOKENS = 4 };
#define RIG_SHARE 0.5F

struct rig_case {
    const char *name;
    bool in_batch, correct;
    enum negatives_draw draw;
    int64_t negatives;
};

struct rig {
    const struct rig_case *of;
    struct targets_options options;
    struct targets_step step;
    struct targets_tokens tokens;
    uint32_t dim, numbers, stride;
    float rows[RIG_NUMBERS][RIG_DIM + RIG_STATE]; /* weights, from dim on the optimizer's state */
    float own[RIG_TARGETS][RIG_DIM];
    float queries[RIG_TARGETS * (RIG_DIM + 4)], query_gradients[RIG_TARGETS * (RIG_DIM + 4)];
    uint32_t positives[RIG_TARGETS], windows[RIG_TARGETS], live[RIG_NUMBERS], live_count;
    float weights[RIG_TARGETS];
    uint64_t identities[RIG_TARGETS];
    double losses[RIG_TARGETS];
    uint8_t is_rejected[RIG_TARGETS];
    uint32_t token_numbers[RIG_TARGETS * RIG_TOKENS], token_windows[RIG_TARGETS * RIG_TOKENS];
    float token_gradients[RIG_TARGETS * RIG_TOKENS * RIG_DIM];
};

static inline float rig_between(struct test_random *random, float low, float high)
{
    return low + (high - low) * (float)random_below(random, 1 << 20) * 0x1p-20F;
}

/* The queries, from the rows as they are. */
static inline void rig_encode(struct rig *r)
{
    for (uint32_t i = 0; i < r->step.count; i++) {
        float *query = r->queries + (size_t)i * r->stride;
        memcpy(query, r->own[i], r->dim * sizeof(*query));
        for (uint32_t k = 0; k < r->tokens.n; k++)
            for (uint32_t j = 0; r->token_windows[k] == r->windows[i] && j < r->dim; j++)
                query[j] += RIG_SHARE * r->rows[r->token_numbers[k]][j];
    }
}

/* A step of up to two targets a window, and up to RIG_TOKENS tokens; two thirds of the numbers are live. */
static inline void rig_make(struct rig *r, const struct rig_case *of, uint32_t count, uint32_t numbers,
                            uint32_t dim, uint64_t seed)
{
    struct test_random random = {seed};
    memset(r, 0, sizeof(*r));
    r->of = of, r->dim = dim, r->numbers = numbers, r->stride = dim + 4 * (uint32_t)(seed % 2);
    for (uint32_t i = 0; i < numbers; i++) {
        if (i % 3 != 1)
            r->live[r->live_count++] = i;
        for (uint32_t j = 0; j < dim; j++)
            r->rows[i][j] = rig_between(&random, -0.5F, 0.5F);
    }
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < dim; j++)
            r->own[i][j] = rig_between(&random, -1.0F, 1.0F);
        r->positives[i] = r->live[random_below(&random, 1 + random_below(&random, r->live_count))];
        r->windows[i] = i / 2, r->identities[i] = seed * 1000 + i;
        r->weights[i] = i % 7 == 6 ? 0.0F : rig_between(&random, 0.5F, 2.0F);
    }
    for (uint32_t w = 0; w <= count / 2; w++) /* the last windows may have no target */
        for (uint32_t k = random_below(&random, RIG_TOKENS + 1); k > 0 && w % 5 != 3; k--) {
            r->token_windows[r->tokens.n] = w;
            r->token_numbers[r->tokens.n++] = r->live[random_below(&random, r->live_count)];
        }
    r->tokens = (struct targets_tokens){r->token_numbers, r->token_gradients, r->token_windows, r->tokens.n,
                                        RIG_SHARE};
    r->step = (struct targets_step){.queries = r->queries,
                                    .query_stride = r->stride == dim ? 0 : r->stride,
                                    .positives = r->positives,
                                    .weights = r->weights,
                                    .identities = r->identities,
                                    .windows = r->windows,
                                    .count = count,
                                    .live = r->live,
                                    .live_count = r->live_count,
                                    .time = 1000,
                                    .query_gradients = r->query_gradients,
                                    .losses = r->losses,
                                    .is_rejected = r->is_rejected};
    r->options = (struct targets_options){.kernels = kernels_variant(KERNELS_SCALAR),
                                          .batch = batch_variant(KERNELS_SCALAR),
                                          .loss = losses_find(str_from(of->name)),
                                          .losses = {.temperature = 0.7,
                                                     .negatives = of->negatives,
                                                     .in_batch = of->in_batch,
                                                     .correct = of->correct,
                                                     .calibration = 0.75},
                                          .dim = dim,
                                          .targets_max = RIG_TARGETS,
                                          .draw = of->draw,
                                          .seed = 77,
                                          .rate = 0.1,
                                          .initial = 50.0};
    rig_encode(r);
}

static uint32_t rig_parts = 1; /* so many calls give the losses of a step */

/* Draws, losses and gradients; the tokens' gradients are the sums of those by the queries of their window. */
static inline void rig_gradients(struct rig *r, struct targets *t)
{
    const float *rows[RIG_NUMBERS];
    uint32_t count;
    targets_draw(t, &r->step);
    targets_add_items(t, r->tokens.numbers, r->tokens.n);
    const uint32_t *items = targets_items(t, &count);
    for (uint32_t u = 0; u < count; u++)
        rows[u] = r->rows[items[u]];
    for (uint32_t part = 0, count_all = r->step.count; part < rig_parts; part++)
        targets_gradients_of(t, &r->step, rows, count_all * part / rig_parts,
                             count_all * (part + 1) / rig_parts);
    memset(r->token_gradients, 0, sizeof(r->token_gradients));
    for (uint32_t k = 0; k < r->tokens.n; k++)
        for (uint32_t i = 0; i < r->step.count; i++)
            for (uint32_t j = 0; r->windows[i] == r->token_windows[k] && j < r->dim; j++)
                r->token_gradients[k * r->dim + j] += r->query_gradients[i * r->stride + j];
}

static inline uint32_t rig_update(struct rig *r, struct targets *t, enum opt_kind kind,
                                  const struct opt_params *params)
{
    void *rows[RIG_NUMBERS];
    uint32_t count;
    const uint32_t *items = targets_items(t, &count);
    for (uint32_t u = 0; u < count; u++)
        rows[u] = r->rows[items[u]];
    return targets_update(t, &r->step, &r->tokens, rows, kind, params);
}

/* --- The step's loss in long double --- */

static inline long double rig_plus(long double x) /* log(1 + e^x) */
{
    return x > 0.0L ? x + log1pl(expl(-x)) : log1pl(expl(x));
}

/* A negative of a target: its score, and how often it is expected. */
struct rig_negative {
    uint32_t number;
    long double score, expected;
};

/* The formulas of the losses, of n negatives, none of them the positive; `draws` counts those, too. */
static inline long double rig_formula(const struct rig *r, long double first,
                                      const struct rig_negative *negatives, uint32_t n, uint32_t draws)
{
    const char *name = r->of->name;
    long double loss = 0.0L, sum = 0.0L, items = r->live_count, power = 1.0L;
    bool is_softmax = strstr(name, "softmax") != NULL, is_warp = strcmp(name, "warp") == 0;
    if (strcmp(name, "gbce") == 0)
        power = 1.0L - 0.75L + 0.75L * fminl(1.0L, (long double)draws / (items - 1.0L));
    for (uint32_t i = 0; i < n; i++) {
        long double other = negatives[i].score;
        if (is_softmax)
            sum += expl(other - first) / negatives[i].expected;
        else if (strcmp(name, "bpr") == 0)
            loss += rig_plus(other - first);
        else if (!is_warp)
            loss += rig_plus(other);
        else if (1.0L - first + other > 0.0L) {
            for (int k = 1; k <= (int)floorl((items - 1.0L) / (i + 1)); k++)
                sum += 1.0L / k;
            return sum * (1.0L - first + other);
        }
    }
    if (is_softmax)
        return log1pl(sum);
    if (strcmp(name, "bpr") == 0 || is_warp)
        return loss;
    loss += power * rig_plus(-first);
    return strcmp(name, "gbce") == 0 ? loss / (draws + 1.0L) : loss;
}

/* The sum of all losses, with one number of a row (number, dim) or of a target's own query (target) moved by h. */
struct rig_move {
    uint32_t number, target, dim;
    long double h;
};
#define RIG_STILL ((struct rig_move){UINT32_MAX, UINT32_MAX, 0, 0.0L})

static inline long double rig_row(const struct rig *r, uint32_t number, uint32_t j, struct rig_move m)
{
    return (long double)r->rows[number][j] + (number == m.number && j == m.dim ? m.h : 0.0L);
}

/* The negatives of a target, without the positive itself; returns how many. f: frequencies before the step. */
static inline uint32_t rig_list(const struct rig *r, const struct frequencies *f, uint32_t i,
                                struct rig_negative *list)
{
    struct negatives drawing = {77, r->of->draw, r->live, r->live_count};
    uint32_t n = 0, draws = strcmp(r->of->name, "softmax") == 0 ? 0 : (uint32_t)r->of->negatives;
    bool in_batch = r->of->in_batch && r->step.count > 1;
    long double others = r->step.count - 1.0L;
    for (uint32_t k = 0; k < r->live_count && strcmp(r->of->name, "softmax") == 0; k++)
        list[n++] = (struct rig_negative){r->live[k], 0.0L, 1.0L};
    for (uint32_t k = 0; k < draws; k++) {
        uint32_t place = negatives_place(&drawing, r->identities[i], k);
        list[n] = (struct rig_negative){r->live[place], 0.0L, expl(negatives_log_q(&drawing, place, draws))};
        list[n].expected += in_batch ? others / f->intervals[list[n].number] : 0.0L;
        n++;
    }
    for (uint32_t k = 0; k < r->step.count && in_batch; k++) {
        uint32_t number = r->positives[k], place = 0;
        while (r->live[place] != number)
            place++;
        long double drawn = draws > 0 ? expl(negatives_log_q(&drawing, place, draws)) : 0.0L;
        if (k != i)
            list[n++] = (struct rig_negative){number, 0.0L, others / f->intervals[number] + drawn};
        else
            list[RIG_NUMBERS].expected = others / f->intervals[number] + drawn; /* of the positive */
    }
    uint32_t left = 0;
    for (uint32_t k = 0; k < n; k++)
        if (list[k].number != r->positives[i])
            list[left++] = list[k];
    return left;
}

/* The loss of target i of the step, times weight. */
static inline long double rig_loss(const struct rig *r, const struct frequencies *f, uint32_t i,
                                   struct rig_move m)
{
    struct rig_negative list[RIG_NUMBERS + 1];
    long double query[RIG_DIM], first = 0.0L;
    list[RIG_NUMBERS].expected = 1.0L;
    uint32_t n = rig_list(r, f, i, list);
    for (uint32_t j = 0; j < r->dim; j++) {
        query[j] = (long double)r->own[i][j] + (i == m.target && j == m.dim ? m.h : 0.0L);
        for (uint32_t k = 0; k < r->tokens.n; k++)
            if (r->token_windows[k] == r->windows[i])
                query[j] += (long double)RIG_SHARE * rig_row(r, r->token_numbers[k], j, m);
        first += query[j] * rig_row(r, r->positives[i], j, m) / 0.7L;
    }
    bool has_expected = strcmp(r->of->name, "sampled_softmax") != 0 || r->of->correct;
    for (uint32_t k = 0; k < n; k++) {
        for (uint32_t j = 0; j < r->dim; j++)
            list[k].score += query[j] * rig_row(r, list[k].number, j, m) / 0.7L;
        list[k].expected = has_expected ? list[k].expected : 1.0L;
    }
    first -= r->of->in_batch && has_expected ? logl(list[RIG_NUMBERS].expected) : 0.0L;
    return rig_formula(r, first, list, n, (uint32_t)r->of->negatives) * (long double)r->weights[i];
}

#endif

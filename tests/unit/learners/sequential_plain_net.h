/*
 * The networks of a plain sequence model in double, for tests: weights with their optimizer, and sasrec and hstu by their
 * equations over one window, with dropout; numbers remember of what they are made, for derivatives. What chance drops is
 * the model's.
 */
#ifndef LEAT_TESTS_UNIT_LEARNERS_SEQUENTIAL_PLAIN_NET_H
#define LEAT_TESTS_UNIT_LEARNERS_SEQUENTIAL_PLAIN_NET_H

#include "sequential_rig.h"
#include "tape.h"

#include "kernels/attention.h"
#include "kernels/dropout.h"

#include <math.h>

/* --- What is learned --- */

/* Some weights with the optimizer's state; of a row, whether it takes part in the step. */
struct weights {
    size_t count;
    double *w, *first, *second;
    uint32_t at; /* of the step's numbers */
    bool takes_part, is_there;
};

static void weights_init(struct weights *of, const float *w, size_t count, const struct optimizer_options *o)
{
    *of = (struct weights){.count = count, .is_there = true};
    of->w = mem_calloc(3 * count, sizeof(double));
    of->first = of->w + count, of->second = of->first + count;
    for (size_t i = 0; i < count; i++) {
        of->w[i] = (double)w[i];
        of->first[i] = o->kind == OPT_ADAGRAD ? (double)o->accumulator : 0.0;
    }
}

static void weights_begin(struct weights *of)
{
    of->takes_part = false;
    of->at = (uint32_t)tape.count;
    for (size_t i = 0; i < of->count; i++)
        number(of->w[i]);
}

/* steps: those made before. scale: of the gradient. */
static void weights_step(struct weights *of, const struct optimizer_options *o, uint64_t steps, double scale)
{
    double beta1 = (double)o->params.beta1, beta2 = (double)o->params.beta2, rate = (double)o->params.rate;
    double correct1 = 1.0 - pow(beta1, (double)steps + 1.0), correct2 = 1.0 - pow(beta2, (double)steps + 1.0);
    for (size_t i = 0; i < of->count; i++) {
        double g = tape.numbers[of->at + i].slope * scale;
        if (o->kind == OPT_ADAGRAD) {
            of->first[i] += g * g;
            of->w[i] -= rate * g / sqrt(of->first[i]);
            continue;
        }
        of->first[i] = beta1 * of->first[i] + (1.0 - beta1) * g;
        of->second[i] = beta2 * of->second[i] + (1.0 - beta2) * g * g;
        of->w[i] -=
            rate * of->first[i] / correct1 / (sqrt(of->second[i] / correct2) + (double)o->params.epsilon);
    }
}

/* --- The plain model --- */

enum { HISTORY_MOST = 16, WINDOWS_MOST = 128, VALUES_MOST = 8, PARAMS_MOST = 32 };

struct token {
    uint32_t item, sides[HISTORY_SIDES_MAX]; /* numbers of the stream's values plus 1; 0: absent */
    uint32_t seconds;
    bool teaches, is_unlabelled, is_hidden;
};
struct window {
    struct token tokens[HISTORY_MOST];
    uint32_t length, target, contexts[SEQUENTIAL_CONTEXTS_MAX];
    uint64_t identity;
    bool is_older, is_masked;
};
static struct {
    const struct rig_case *of;
    struct sequential *model; /* for draws and initial weights */
    struct window users[RIG_USERS], windows[WINDOWS_MOST], unlabelled[WINDOWS_MOST];
    uint32_t count, unlabelled_count;
    bool drops; /* the pass is one of a step */
    uint64_t steps, targets, masked;
    double loss;
    double masked_loss;
    struct weights params[PARAMS_MOST], mask, items[RIG_ITEMS], sides[HISTORY_SIDES_MAX][VALUES_MOST],
        contexts[SEQUENTIAL_CONTEXTS_MAX][VALUES_MOST];
    uint32_t numbers[RIG_ITEMS], numbers_count; /* the items by their dense numbers */
} plain;

static void all_weights(void (*visit)(struct weights *, bool is_row))
{
    for (uint32_t p = 0; p < plain.model->net.params_count; p++)
        visit(&plain.params[p], false);
    visit(&plain.mask, true);
    for (uint32_t i = 0; i < RIG_ITEMS; i++)
        visit(&plain.items[i], true);
    for (uint32_t k = 0; k < HISTORY_SIDES_MAX; k++)
        for (uint32_t i = 0; i < VALUES_MOST; i++)
            visit(&plain.sides[k][i], true);
    for (uint32_t k = 0; k < SEQUENTIAL_CONTEXTS_MAX; k++)
        for (uint32_t i = 0; i < VALUES_MOST; i++)
            visit(&plain.contexts[k][i], true);
}

static void begin_weights(struct weights *of, bool is_row)
{
    (void)is_row;
    if (of->is_there)
        weights_begin(of);
}

static double squares;
static void add_squares(struct weights *of, bool is_row)
{
    for (size_t i = 0; of->is_there && !is_row && i < of->count; i++)
        squares += pow(tape.numbers[of->at + i].slope, 2.0);
}

static void step_weights(struct weights *of, bool is_row)
{
    const struct sequential_options *o = &plain.model->options;
    double most = (double)o->clip_norm, norm = sqrt(squares);
    double scale = is_row || most == 0.0 || norm <= most ? 1.0 : most / norm;
    if (of->is_there && (!is_row || of->takes_part))
        weights_step(of, is_row ? &o->rows : &o->dense, plain.steps, scale);
}

static void free_weights(struct weights *of, bool is_row)
{
    (void)is_row;
    free(of->w);
    *of = (struct weights){0};
}

static uint32_t take_row(struct weights *row)
{
    assert_true(row->is_there);
    row->takes_part = true;
    return row->at;
}

/* --- The networks, by their equations, over one window --- */

typedef uint32_t rows_of[HISTORY_MOST][4 * RIG_DIM];

static uint32_t param(uint32_t p, size_t i)
{
    return plain.params[p].at + (uint32_t)i;
}

static void norm(uint32_t *out, const uint32_t *x, uint32_t p)
{
    uint32_t mean = number(0.0), variance, centred[RIG_DIM];
    for (size_t i = 0; i < RIG_DIM; i++)
        mean = sum_of(mean, x[i], 1.0 / RIG_DIM);
    for (size_t i = 0; i < RIG_DIM; i++)
        centred[i] = sum_of(x[i], mean, -1.0);
    variance = dot(centred, centred, RIG_DIM);
    double deviation = sqrt(value(variance) / RIG_DIM + 1e-6);
    uint32_t inverse = function(variance, 1.0 / deviation, -0.5 / RIG_DIM / pow(deviation, 3.0));
    for (size_t i = 0; i < RIG_DIM; i++)
        out[i] = sum_of(product(product(centred[i], inverse), param(p, i)), param(p, RIG_DIM + i), 1.0);
}

/* out[n] = x W + b; p has n rows of d weights, then n biases. */
static void dense(uint32_t *out, const uint32_t *x, uint32_t p, bool has_bias)
{
    const struct net_params *shape = &plain.model->net.params[p];
    for (uint32_t j = 0; j < shape->n; j++) {
        uint32_t w[4 * RIG_DIM];
        for (uint32_t i = 0; i < shape->d; i++)
            w[i] = param(p, (size_t)j * shape->stride + i);
        out[j] = dot(w, x, shape->d);
        if (has_bias)
            out[j] = sum_of(out[j], param(p, (size_t)shape->n * shape->stride + j), 1.0);
    }
}

/* --- Dropout: the model's masks --- */

static uint64_t key_of(const struct window *w, const struct net_layer_kind *kind, uint32_t nth,
                       uint32_t place)
{
    const struct net *net = &plain.model->net;
    uint64_t seed = num_chance(plain.model->options.seed ^ 0xd50f, plain.steps, 0), layer = 0;
    while (net->layers[layer].kind != kind || nth-- > 0)
        layer++;
    return num_chance(seed, w->identity, (layer << 32) + place);
}

/* Of the layer's n-th dropout, at a token. */
static void drop(uint32_t *x, const struct window *w, uint32_t nth, uint32_t token)
{
    float mask[RIG_DIM];
    if (!plain.drops || plain.of->dropout == 0.0F)
        return;
    uint64_t key = key_of(w, &net_dropout, nth, token);
    for (size_t c = 0; c < RIG_DIM; c++)
        mask[c] = 1.0F;
    plain.model->options.kernels->dropout(mask, &key, plain.of->dropout, 1, RIG_DIM);
    for (size_t c = 0; c < RIG_DIM; c++)
        x[c] = function(x[c], (double)mask[c] * value(x[c]), (double)mask[c]);
}

static uint32_t drop_weight(uint32_t weight, const struct window *w, uint32_t i, uint32_t j)
{
    if (!plain.drops || plain.of->dropout == 0.0F)
        return weight;
    uint64_t key = key_of(w, &net_attention, 0, 0);
    bool is_kept =
        dropout_bits(dropout_row(key, i), dropout_column(key, j)) >= dropout_limit(plain.of->dropout);
    double factor = is_kept ? 1.0 / (1.0 - (double)plain.of->dropout) : 0.0;
    return function(weight, factor * value(weight), factor);
}

/* mixed[i] = sum over the tokens j of weight(i, j) v_j, in parts of q, k, v: up to i, or all with hidden items. */
static void mix(uint32_t *mixed, rows_of parts, const struct window *w, uint32_t i, bool is_hstu)
{
    uint32_t weights[HISTORY_MOST], values[HISTORY_MOST], sum = number(0.0);
    uint32_t keys = w->is_masked ? w->length : i + 1;
    size_t both_ways = plain.of->masked_share > 0.0, zero = both_ways * (plain.of->history - 1);
    for (uint32_t j = 0; j < keys; j++) {
        uint32_t s = dot(parts[i], parts[j] + RIG_DIM, RIG_DIM);
        if (is_hstu) {
            uint32_t bucket = attention_time_bucket(w->tokens[i].seconds, w->tokens[j].seconds);
            s = sum_of(s, param(3, zero + i - j), 1.0);
            s = silu(sum_of(s, param(3, zero + plain.of->history + bucket), 1.0));
            weights[j] = function(s, value(s) / plain.of->history, 1.0 / plain.of->history);
        } else {
            double root = sqrt(RIG_DIM);
            weights[j] = exponential(function(s, value(s) / root, 1.0 / root));
            sum = sum_of(sum, weights[j], 1.0);
        }
        weights[j] = drop_weight(weights[j], w, i, j);
    }
    uint32_t inverse =
        is_hstu ? number(1.0) : function(sum, 1.0 / value(sum), -1.0 / value(sum) / value(sum));
    for (size_t c = 0; c < RIG_DIM; c++) {
        for (uint32_t j = 0; j < keys; j++)
            values[j] = parts[j][2 * RIG_DIM + c];
        mixed[c] = product(dot(weights, values, keys), inverse);
    }
}

/* Parameters: positions; norm, W of q, k, v; norm, both dense layers; a last norm. */
static void sasrec(rows_of x, const struct window *w)
{
    static rows_of parts;
    uint32_t normal[RIG_DIM], hidden[RIG_DIM], branch[RIG_DIM];
    for (uint32_t i = 0; i < w->length; i++) {
        norm(normal, x[i], 1);
        dense(parts[i], normal, 2, false);
    }
    for (uint32_t i = 0; i < w->length; i++) {
        mix(branch, parts, w, i, false);
        drop(branch, w, 1, i);
        for (size_t c = 0; c < RIG_DIM; c++)
            x[i][c] = sum_of(x[i][c], branch[c], 1.0);
        norm(normal, x[i], 3);
        dense(hidden, normal, 4, true);
        for (size_t c = 0; c < RIG_DIM; c++)
            hidden[c] = function(hidden[c], fmax(value(hidden[c]), 0.0), value(hidden[c]) > 0.0);
        dense(branch, hidden, 5, true);
        drop(branch, w, 2, i);
        for (size_t c = 0; c < RIG_DIM; c++)
            branch[c] = sum_of(x[i][c], branch[c], 1.0);
        norm(x[i], branch, 6);
    }
}

/* Parameters: positions; norm, W1 (rows of q, k, v, u), tables, norm, W2; a last norm. */
static void hstu(rows_of x, const struct window *w)
{
    static rows_of parts;
    uint32_t normal[RIG_DIM], mixed[RIG_DIM], branch[RIG_DIM];
    for (uint32_t i = 0; i < w->length; i++) {
        norm(normal, x[i], 1);
        dense(parts[i], normal, 2, true);
        for (size_t c = 0; c < 4 * (size_t)RIG_DIM; c++)
            parts[i][c] = silu(parts[i][c]);
    }
    for (uint32_t i = 0; i < w->length; i++) {
        mix(mixed, parts, w, i, true);
        norm(normal, mixed, 4);
        for (size_t c = 0; c < RIG_DIM; c++)
            normal[c] = product(normal[c], parts[i][3 * RIG_DIM + c]);
        drop(normal, w, 1, i);
        dense(branch, normal, 5, true);
        for (size_t c = 0; c < RIG_DIM; c++)
            branch[c] = sum_of(x[i][c], branch[c], 1.0);
        norm(x[i], branch, 6);
    }
}

/* The outputs at a window's tokens. */
static void encode(rows_of x, const struct window *w)
{
    for (uint32_t i = 0; i < w->length; i++) {
        uint32_t item = take_row(w->tokens[i].is_hidden ? &plain.mask : &plain.items[w->tokens[i].item]);
        for (uint32_t c = 0; c < RIG_DIM; c++) {
            uint32_t own = function(item + c, 4.0 * value(item + c), 4.0); /* sqrt(16) */
            x[i][c] = sum_of(own, param(0, i * plain.model->net.params[0].stride + c), 1.0);
            for (uint32_t k = 0; k < plain.of->sides && !w->tokens[i].is_hidden; k++)
                if (w->tokens[i].sides[k] > 0)
                    x[i][c] = sum_of(x[i][c], take_row(&plain.sides[k][w->tokens[i].sides[k] - 1]) + c, 1.0);
        }
        drop(x[i], w, 0, i);
    }
    (plain.of->is_hstu ? hstu : sasrec)(x, w);
}

/* contexts: only those that are known. */
static void add_contexts(uint32_t *query, const struct window *w)
{
    for (uint32_t k = 0; k < plain.of->contexts; k++)
        for (uint32_t c = 0; w->contexts[k] > 0 && c < RIG_DIM; c++)
            query[c] = sum_of(query[c], take_row(&plain.contexts[k][w->contexts[k] - 1]) + c, 1.0);
}

#endif

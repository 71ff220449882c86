#include "attention_plain.h"

#include "kernels/dropout.h"
#include "kernels/rounding.h"

#include <math.h>
#include <stdlib.h>

enum { KEYS_MAX = 1024 };

static const double log2e = 1.4426950408889634;

/* One query of one head: by key, the score in base 2 with its error, and the factor of dropout. */
struct query {
    const struct attention *a;
    size_t event, head, keys, key_row, seen, row; /* rows in k and in q */
    double score[KEYS_MAX], error[KEYS_MAX], factor[KEYS_MAX];
};

static double bf16(double x)
{
    return (double)float_of_bf16(bf16_of(float_bits((float)x), 0, true));
}

/* The error of a sum of n floats, as a share of the sum of their sizes (kernels.def). */
static double sum_error(size_t n)
{
    return 2.0 * ((double)n + 2.0) * 0x1p-23;
}

static const float *at(struct attention_in x, const struct query *q, size_t row)
{
    return x.at + row * x.stride + q->head * q->a->d;
}

static double product(const float *x, const float *y, size_t d, double *sizes)
{
    double sum = 0.0;
    *sizes = 0.0;
    for (size_t c = 0; c < d; c++) {
        double one = bf16((double)x[c]) * bf16((double)y[c]);
        sum += one;
        *sizes += fabs(one);
    }
    return sum;
}

static void score(struct query *q, size_t position)
{
    const struct attention *a = q->a;
    uint64_t identity = a->identities != NULL ? a->identities[q->event] : q->event;
    uint64_t key = num_chance(a->seed, identity, a->part + q->head);
    q->seen = a->is_causal ? position + 1 : q->keys;
    for (size_t j = 0; j < q->seen; j++) {
        double sizes, scale = (double)a->scale * log2e;
        q->score[j] = scale * product(at(a->q, q, q->row), at(a->k, q, q->key_row + j), a->d, &sizes);
        q->error[j] = scale * sizes * sum_error(a->d) + fabs(q->score[j]) * 0x1p-21 + 0x1p-20;
        bool is_kept =
            dropout_bits(dropout_row(key, position), dropout_column(key, j)) >= dropout_limit(a->dropout);
        q->factor[j] = is_kept ? 1.0 / (1.0 - (double)a->dropout) : 0.0;
    }
}

/* Adds weight * row to a row of `kind`. errors: of the weight, without the step of its rounding. */
static void add(struct attention_plain *p, enum plain_kind kind, const struct query *q, size_t row,
                double weight, double error, double step, const float *of, size_t n)
{
    size_t first = row * p->width + q->head * q->a->d;
    for (size_t c = 0; c < q->a->d; c++) {
        double x = bf16((double)of[c]), size = fabs(weight * x), off = error * fabs(x) + size * sum_error(n);
        p->value[kind][first + c] += bf16(weight) * x;
        p->near[kind][first + c] += off;
        p->bound[kind][first + c] += off + size * step;
    }
}

static void scale_row(struct attention_plain *p, const struct query *q, double by)
{
    size_t first = q->row * p->width + q->head * q->a->d;
    for (size_t i = first; i < first + q->a->d; i++)
        p->value[PLAIN_OUT][i] *= by, p->near[PLAIN_OUT][i] *= by, p->bound[PLAIN_OUT][i] *= by;
}

/* Weights are rounded relative to the largest score so far, tile by tile. */
static void forward(struct attention_plain *p, const struct query *q, double step)
{
    const struct attention *a = q->a;
    double most = -3e38, sum = 0.0, worst = 0.0;
    for (size_t first = 0; first < q->seen; first += ATTENTION_KEYS) {
        size_t end = first + ATTENTION_KEYS < q->seen ? first + ATTENTION_KEYS : q->seen;
        double before = most;
        for (size_t j = first; j < end; j++)
            most = q->score[j] > most ? q->score[j] : most;
        sum *= exp2(before - most);
        scale_row(p, q, exp2(before - most));
        for (size_t j = first; j < end; j++) {
            double weight = exp2(q->score[j] - most);
            worst = q->error[j] > worst ? q->error[j] : worst;
            sum += weight;
            weight *= q->factor[j];
            add(p, PLAIN_OUT, q, q->row, weight, weight * 2.0 * (q->error[j] + worst + sum_error(q->seen)),
                step, at(a->v, q, q->key_row + j), q->seen);
        }
    }
    scale_row(p, q, 1.0 / sum);
    size_t place = q->head * p->queries + q->row;
    p->value[PLAIN_LSE][place] = most + log2(sum);
    p->bound[PLAIN_LSE][place] = p->near[PLAIN_LSE][place] =
        2.0 * worst + 2.0 * sum_error(q->seen) + fabs(most) * 0x1p-21;
}

static void backward(struct attention_plain *p, const struct query *q, double step)
{
    const struct attention *a = q->a;
    const float *dout = at(a->dout, q, q->row), *row = at(a->q, q, q->row);
    struct attention_in outs = {a->out.at, a->out.stride};
    double delta = 0.0, delta_sizes = 0.0, lse = (double)a->lse[q->head * p->queries + q->row];
    for (size_t c = 0; c < a->d; c++) {
        double one = bf16((double)dout[c]) * (double)at(outs, q, q->row)[c];
        delta += one, delta_sizes += fabs(one);
    }
    for (size_t j = 0; j < q->seen; j++) {
        double sizes, plain = exp2(q->score[j] - lse), error = q->error[j] + fabs(lse) * 0x1p-22;
        double dp = q->factor[j] * product(dout, at(a->v, q, q->key_row + j), a->d, &sizes);
        double slope = plain * (dp - delta) * (double)a->scale, weight = plain * q->factor[j];
        double slope_error = fabs(slope) * error + plain * (double)a->scale * sum_error(a->d) *
                                                       (q->factor[j] * sizes + delta_sizes);
        add(p, PLAIN_DQ, q, q->row, slope, slope_error, step, at(a->k, q, q->key_row + j), q->keys);
        add(p, PLAIN_DK, q, q->key_row + j, slope, slope_error, step, row, q->keys);
        add(p, PLAIN_DV, q, q->key_row + j, weight, weight * error, step, dout, q->keys);
    }
}

struct attention_plain attention_plain(const struct attention *a, double step)
{
    const uint32_t *starts = a->query_offsets != NULL ? a->query_offsets : a->offsets;
    struct attention_plain p = {.rows = a->offsets[a->events], .queries = starts[a->events]};
    p.width = (size_t)a->heads * a->d;
    for (size_t kind = 0; kind < PLAIN_KINDS; kind++) {
        p.value[kind] = calloc(p.rows * p.width + 1, sizeof(double));
        p.bound[kind] = calloc(p.rows * p.width + 1, sizeof(double));
        p.near[kind] = calloc(p.rows * p.width + 1, sizeof(double));
    }
    struct query q = {.a = a};
    for (q.event = 0; q.event < a->events; q.event++) {
        q.key_row = a->offsets[q.event], q.keys = a->offsets[q.event + 1] - q.key_row;
        size_t from = starts[q.event], queries = starts[q.event + 1] - from;
        for (size_t i = 0; i < queries * a->heads && q.keys <= KEYS_MAX; i++) {
            q.head = i / queries, q.row = from + i % queries;
            score(&q, q.keys - queries + i % queries);
            if (a->dout.at != NULL)
                backward(&p, &q, step);
            else
                forward(&p, &q, step);
        }
    }
    return p;
}

void attention_plain_free(struct attention_plain *p)
{
    for (size_t kind = 0; kind < PLAIN_KINDS; kind++) {
        free(p->value[kind]);
        free(p->bound[kind]);
        free(p->near[kind]);
    }
}

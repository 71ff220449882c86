#include "attention_plain.h"

#include "kernels/dropout.h"
#include "kernels/rounding.h"

#include <math.h>
#include <stdlib.h>

enum { KEYS_MAX = 1024 };

static const double log2e = 1.4426950408889634;

/* One query of one head: by key, the score (of softmax in base 2) with its error, and the factor of dropout. */
struct query {
    const struct attention *a;
    bool is_silu;
    size_t event, head, keys, key_row, seen, row, position; /* rows in k and in q */
    size_t part;                                            /* floats to the tables of the window's part */
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

/* The place of key j in the tables of positions and of times, whose head's first entries are given. */
static ptrdiff_t distance(const struct query *q, size_t j)
{
    ptrdiff_t far = (ptrdiff_t)q->a->bias->positions_max, apart = (ptrdiff_t)q->position - (ptrdiff_t)j;
    return apart < -far ? -far : apart > far ? far : apart;
}

static size_t bucket(const struct query *q, size_t j)
{
    const struct attention_bias *bias = q->a->bias;
    return attention_time_bucket(bias->query_seconds[q->row], bias->key_seconds[q->key_row + j]);
}

static double bias_of(const struct query *q, size_t j)
{
    const struct attention_bias *bias = q->a->bias;
    double sum = 0.0;
    if (!q->is_silu || bias == NULL)
        return sum;
    if (bias->positions != NULL)
        sum += (double)bias->positions[(ptrdiff_t)(q->head * bias->positions_stride) + distance(q, j)];
    if (bias->times != NULL)
        sum += (double)bias->times[q->head * bias->times_stride + bucket(q, j)];
    return sum;
}

static void score(struct query *q)
{
    const struct attention *a = q->a;
    uint64_t identity = a->identities != NULL ? a->identities[q->event] : q->event;
    uint64_t key = num_chance(a->seed, identity, a->part + q->head);
    q->seen = a->is_causal ? q->position + 1 : q->keys;
    for (size_t j = 0; j < q->seen; j++) {
        double sizes, scale = (double)a->scale * (q->is_silu ? 1.0 : log2e);
        q->score[j] = scale * product(at(a->q, q, q->row), at(a->k, q, q->key_row + j), a->d, &sizes);
        q->score[j] += bias_of(q, j);
        q->error[j] = scale * sizes * sum_error(a->d) + fabs(q->score[j]) * 0x1p-21 + 0x1p-20;
        bool is_kept =
            dropout_bits(dropout_row(key, q->position), dropout_column(key, j)) >= dropout_limit(a->dropout);
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
static void softmax_forward(struct attention_plain *p, const struct query *q, double step)
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

static void softmax_backward(struct attention_plain *p, const struct query *q, double step)
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

/* A weight of SiLU, and its slope by the score. */
static double silu(const struct query *q, size_t j, double *by_score)
{
    double gate = 1.0 / (1.0 + exp(-q->score[j])), scale = (double)q->a->weight_scale * q->factor[j];
    *by_score = scale * gate * (1.0 + q->score[j] * (1.0 - gate));
    return scale * q->score[j] * gate;
}

/* SiLU's slope by the score is at most 1.1, and the slope of that at most 0.5. */
static double silu_error(const struct query *q, size_t j, double weight)
{
    return 1.1 * (double)q->a->weight_scale * q->factor[j] * q->error[j] + fabs(weight) * 0x1p-20;
}

static void silu_forward(struct attention_plain *p, const struct query *q, double step)
{
    for (size_t j = 0; j < q->seen; j++) {
        double slope, weight = silu(q, j, &slope);
        add(p, PLAIN_OUT, q, q->row, weight, silu_error(q, j, weight), step, at(q->a->v, q, q->key_row + j),
            q->seen);
    }
}

static void add_bias(struct attention_plain *p, const float *to, double slope, double error)
{
    size_t entry = (size_t)(to - p->tables);
    double off = error + fabs(slope) * sum_error(4096);
    p->value[PLAIN_TABLES][entry] += slope;
    p->bound[PLAIN_TABLES][entry] += off;
    p->near[PLAIN_TABLES][entry] += off;
}

static void silu_backward(struct attention_plain *p, const struct query *q, double step)
{
    const struct attention *a = q->a;
    const struct attention_bias *bias = a->bias;
    const float *dout = at(a->dout, q, q->row), *row = at(a->q, q, q->row);
    for (size_t j = 0; j < q->seen; j++) {
        double sizes, by_score, weight = silu(q, j, &by_score), scale = (double)a->scale;
        double dp = product(dout, at(a->v, q, q->key_row + j), a->d, &sizes), slope = dp * by_score;
        double kept = (double)a->weight_scale * q->factor[j];
        double error =
            kept * (fabs(dp) * 0.5 * q->error[j] + 1.1 * sizes * sum_error(a->d)) + fabs(slope) * 0x1p-20;
        add(p, PLAIN_DQ, q, q->row, slope * scale, error * scale, step, at(a->k, q, q->key_row + j), q->keys);
        add(p, PLAIN_DK, q, q->key_row + j, slope * scale, error * scale, step, row, q->keys);
        add(p, PLAIN_DV, q, q->key_row + j, weight, silu_error(q, j, weight), step, dout, q->keys);
        if (bias->positions != NULL)
            add_bias(p, bias->dpositions + q->part + q->head * bias->positions_stride + distance(q, j), slope,
                     error);
        if (bias->times != NULL)
            add_bias(p, bias->dtimes + q->part + q->head * bias->times_stride + bucket(q, j), slope, error);
    }
}

static size_t part_of(const struct batch_attention *b, size_t event)
{
    size_t part = 0;
    while (b->parts != NULL && b->parts[part + 1] <= event)
        part++;
    return part * b->part_stride;
}

struct attention_plain attention_plain(const struct batch_attention *b, bool is_silu, double step,
                                       const float *tables, size_t tables_floats)
{
    const struct attention *a = &b->of;
    const uint32_t *starts = a->query_offsets != NULL ? a->query_offsets : a->offsets;
    struct attention_plain p = {.rows = a->offsets[a->events], .queries = starts[a->events]};
    p.width = (size_t)a->heads * a->d, p.tables = tables;
    for (size_t kind = 0; kind < PLAIN_KINDS; kind++) {
        size_t numbers = (kind == PLAIN_TABLES ? tables_floats : p.rows * p.width) + 1;
        p.value[kind] = calloc(numbers, sizeof(double));
        p.bound[kind] = calloc(numbers, sizeof(double));
        p.near[kind] = calloc(numbers, sizeof(double));
    }
    struct query q = {.a = a, .is_silu = is_silu};
    for (q.event = 0; q.event < a->events; q.event++) {
        q.key_row = a->offsets[q.event], q.keys = a->offsets[q.event + 1] - q.key_row;
        size_t from = starts[q.event], queries = starts[q.event + 1] - from;
        q.part = part_of(b, q.event);
        for (size_t i = 0; i < queries * a->heads && q.keys <= KEYS_MAX; i++) {
            q.head = i / queries, q.row = from + i % queries;
            q.position = q.keys - queries + i % queries;
            score(&q);
            if (a->dout.at != NULL)
                (is_silu ? silu_backward : softmax_backward)(&p, &q, step);
            else
                (is_silu ? silu_forward : softmax_forward)(&p, &q, step);
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

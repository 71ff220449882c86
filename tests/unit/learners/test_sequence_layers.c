/*
 * The layers of sequence models, and the networks sasrec and hstu, against a plain implementation in double: their
 * outputs, and their gradients by every parameter and the input against its central differences, with the same
 * dropout masks.
 */
#include "sequence_rig.h"

#include "kernels/attention.h"
#include "kernels/dropout.h"

#include <limits.h>
#include <math.h>

/* --- The plain network, layer by layer --- */

static struct plain {
    const struct rig *t;
    double *values[NET_LAYERS_MAX]; /* [matrix][rows * stride] */
    double *params[NET_LAYERS_MAX]; /* [params][n * stride + n] */
} plain;

static double *values_of(const struct net_matrix *m)
{
    return plain.values[m - plain.t->net.matrices];
}

static double *weights_of(const struct net_layer *l)
{
    return plain.params[l->params - plain.t->net.params];
}

static void plain_begin(const struct rig *t)
{
    plain = (struct plain){.t = t};
    for (uint32_t i = 0; i < t->net.matrices_count; i++)
        plain.values[i] = calloc((size_t)(t->rows + 1) * t->net.matrices[i].stride, sizeof(double));
    for (uint32_t i = 0; i < t->net.params_count; i++) {
        const struct net_params *p = &t->net.params[i];
        plain.params[i] = calloc((size_t)p->n * p->stride + p->n, sizeof(double));
        for (size_t f = 0; f < (size_t)p->n * p->stride + p->n; f++)
            plain.params[i][f] = (double)p->w[f];
    }
    const struct net_matrix *in = t->net.input;
    for (size_t i = 0; i < (size_t)t->rows * in->stride; i++)
        values_of(in)[i] = (double)in->values[i];
}

static void plain_end(void)
{
    for (uint32_t i = 0; i < NET_LAYERS_MAX; i++) {
        free(plain.values[i]);
        free(plain.params[i]);
    }
}

static void plain_dense(const struct net_layer *l)
{
    const struct net_params *p = l->params;
    const double *w = weights_of(l), *in = values_of(l->in) + l->in_from;
    double *out = values_of(l->out) + l->out_from;
    for (size_t r = 0; r < plain.t->rows; r++) {
        for (size_t j = 0; j < p->n; j++) {
            double sum = l->has_no_bias ? 0.0 : w[(size_t)p->n * p->stride + j];
            for (size_t i = 0; i < p->d; i++)
                sum += w[j * p->stride + i] * in[r * l->in->stride + i];
            out[r * l->out->stride + j] = l->is_relu && sum < 0.0 ? 0.0 : sum;
        }
    }
}

static void plain_norm(const struct net_layer *l)
{
    const double *w = weights_of(l);
    size_t d = l->in->columns;
    for (size_t r = 0; r < plain.t->rows; r++) {
        const double *x = values_of(l->in) + r * d;
        double mean = 0.0, variance = 0.0;
        for (size_t i = 0; i < d; i++)
            mean += x[i] / (double)d;
        for (size_t i = 0; i < d; i++)
            variance += (x[i] - mean) * (x[i] - mean) / (double)d;
        for (size_t i = 0; i < d; i++)
            values_of(l->out)[r * d + i] =
                (x[i] - mean) / sqrt(variance + 1e-6) * w[i] + w[l->params->stride + i];
    }
}

/* The factor of dropout of a weight of attention. */
static double kept(const struct net_layer *l, uint32_t window, size_t head, size_t i, size_t j)
{
    const struct net_windows *w = &plain.t->net.windows;
    uint64_t layer = (uint64_t)(l - plain.t->net.layers) << 32;
    uint64_t key = num_chance(w->chance, w->identities[window], layer + head);
    bool is_kept = dropout_bits(dropout_row(key, i), dropout_column(key, j)) >= dropout_limit(l->dropout);
    return is_kept ? 1.0 / (1.0 - (double)l->dropout) : 0.0;
}

static double score(const struct net_layer *l, size_t begin, size_t head, size_t i, size_t j)
{
    size_t width = (size_t)l->fields * l->dim, stride = l->in->stride;
    const double *q = values_of(l->in) + l->in_from + head * l->dim + (begin + i) * stride;
    const double *k = values_of(l->in) + l->in_from + head * l->dim + (begin + j) * stride + width;
    double s = 0.0;
    for (size_t c = 0; c < l->dim; c++)
        s += q[c] * k[c];
    if (l->has_softmax)
        return s / sqrt(l->dim);
    const uint32_t *seconds = plain.t->seconds + begin;
    size_t most = plain.t->net.options.window_max;
    size_t distances = l->is_causal ? most : 2 * most - 1, zero = l->is_causal ? 0 : most - 1;
    return s + weights_of(l)[zero + i - j] +
           weights_of(l)[distances + attention_time_bucket(seconds[i], seconds[j])];
}

static void plain_positions(const struct net_layer *l)
{
    size_t d = l->in->columns;
    for (uint32_t window = 0; window < plain.t->net.windows.count; window++)
        for (size_t r = plain.t->offsets[window]; r < plain.t->offsets[window + 1]; r++)
            for (size_t i = 0; i < d; i++)
                values_of(l->out)[r * d + i] =
                    values_of(l->in)[r * d + i] +
                    weights_of(l)[(r - plain.t->offsets[window]) * l->params->stride + i];
}

/* One query of one head. */
static void plain_query(const struct net_layer *l, uint32_t window, size_t head, size_t i)
{
    size_t begin = plain.t->offsets[window],
           keys = l->is_causal ? i + 1 : plain.t->offsets[window + 1] - begin;
    size_t at = head * l->dim, v = l->in_from + 2 * (size_t)l->fields * l->dim + at;
    double *out = values_of(l->out) + (begin + i) * l->out->stride + at, sum = 0.0;
    for (size_t c = 0; c < l->dim; c++)
        out[c] = 0.0;
    for (size_t j = 0; j < keys; j++) {
        double s = score(l, begin, head, i, j);
        double weight = l->has_softmax ? exp(s) : s / (1.0 + exp(-s)) / plain.t->net.options.window_max;
        sum += weight;
        weight *= plain.t->net.windows.drops ? kept(l, window, head, i, j) : 1.0;
        for (size_t c = 0; c < l->dim; c++)
            out[c] += weight * values_of(l->in)[(begin + j) * l->in->stride + v + c];
    }
    for (size_t c = 0; c < l->dim && l->has_softmax; c++)
        out[c] /= sum;
}

static void plain_attention(const struct net_layer *l)
{
    for (uint32_t window = 0; window < plain.t->net.windows.count; window++)
        for (size_t i = 0; i < plain.t->offsets[window + 1] - plain.t->offsets[window]; i++)
            for (size_t head = 0; head < l->fields; head++)
                plain_query(l, window, head, i);
}

/* The mask of a row comes from the kernel, over ones. */
static void plain_dropout(const struct net_layer *l)
{
    const struct net_windows *w = &plain.t->net.windows;
    uint64_t layer = (uint64_t)(l - plain.t->net.layers) << 32;
    size_t d = l->in->columns;
    float mask[512];
    for (uint32_t window = 0; window < w->count; window++) {
        for (uint32_t row = w->offsets[window]; row < w->offsets[window + 1]; row++) {
            uint64_t key = num_chance(w->chance, w->identities[window], layer + row - w->offsets[window]);
            for (size_t i = 0; i < d; i++)
                mask[i] = 1.0F;
            if (w->drops)
                rig_kernels()->dropout(mask, &key, l->dropout, 1, d);
            for (size_t i = 0; i < d; i++)
                values_of(l->out)[row * d + i] = values_of(l->in)[row * d + i] * (double)mask[i];
        }
    }
}

/* sum, gate and SiLU */
static void plain_elements(const struct net_layer *l)
{
    size_t d = l->out->columns;
    for (size_t r = 0; r < plain.t->rows; r++) {
        for (size_t i = 0; i < d; i++) {
            double x = values_of(l->in)[r * l->in->stride + l->in_from + i];
            double y = l->z != NULL ? values_of(l->z)[r * d + i] : 0.0;
            values_of(l->out)[r * d + i] = l->kind == &net_sum    ? x + y
                                           : l->kind == &net_gate ? x * y
                                                                  : x / (1.0 + exp(-x));
        }
    }
}

static void plain_forward(void)
{
    static const struct {
        const struct net_layer_kind *kind;
        void (*run)(const struct net_layer *);
    } kinds[] = {{&net_positions, plain_positions}, {&net_dense, plain_dense},     {&net_norm, plain_norm},
                 {&net_attention, plain_attention}, {&net_dropout, plain_dropout}, {&net_sum, plain_elements},
                 {&net_gate, plain_elements},       {&net_silu, plain_elements}};
    for (uint32_t i = 0; i < plain.t->net.layers_count; i++)
        for (size_t k = 0; k < ARRAY_COUNT(kinds); k++)
            if (kinds[k].kind == plain.t->net.layers[i].kind)
                kinds[k].run(&plain.t->net.layers[i]);
}

static double plain_objective(void)
{
    const struct net_matrix *out = plain.t->net.output;
    double sum = 0.0;
    plain_forward();
    for (uint32_t r = 0; r < plain.t->rows; r++)
        for (uint32_t c = 0; c < out->columns; c++)
            sum += (double)rig_slope(plain.t, r, c) * values_of(out)[(size_t)r * out->stride + c];
    return sum;
}

/* --- Comparison --- */

/* About `checks` of the gradients [rows][columns], rows `stride` apart, against differences by x. Relative to the
 * difference, or to the root mean square of all gradients of the array, if it is smaller. */
static void check_gradients(const char *name, const char *part, uint32_t number, double *x,
                            const float *gradients, size_t rows, size_t columns, size_t stride, size_t checks)
{
    double squares = 0.0;
    for (size_t i = 0; i < rows * columns; i++)
        squares += pow((double)gradients[i / columns * stride + i % columns], 2.0);
    double typical = sqrt(squares / (double)(rows * columns));
    size_t step = rows * columns / checks + 1;
    assert_true(isfinite(typical) && typical > 1e-9);
    for (size_t i = num_mix(rows * columns) % step; i < rows * columns; i += step) {
        size_t at = i / columns * stride + i % columns;
        double was = x[at], h = 1e-5;
        x[at] = was + h;
        double up = plain_objective();
        x[at] = was - h;
        double want = (up - plain_objective()) / (2.0 * h), got = (double)gradients[at];
        x[at] = was;
        if (!(fabs(got - want) <= 1e-4 * fmax(fabs(want), typical)))
            fail_msg("%s: %s %u, row %zu, column %zu: gradient %.9g, by differences %.9g", name, part, number,
                     i / columns, i % columns, got, want);
    }
}

static void check_outputs(const char *name, const struct rig *t)
{
    const struct net_matrix *out = t->net.output;
    double off = 0.0, all = 0.0;
    plain_forward();
    for (size_t i = 0; i < (size_t)t->rows * out->stride; i++) {
        off += pow((double)out->values[i] - values_of(out)[i], 2.0);
        all += pow(values_of(out)[i], 2.0);
    }
    if (!(all > 0.0 && sqrt(off / all) <= 1e-5))
        fail_msg("%s: outputs are off by %g of their length", name, sqrt(off / all));
}

static bool has_biases(const struct net *net, const struct net_params *params)
{
    for (uint32_t i = 0; i < net->layers_count; i++)
        if (net->layers[i].params == params)
            return net->layers[i].kind == &net_dense && !net->layers[i].has_no_bias;
    return false;
}

/* A sanitizer has nothing to see in more differences, which the plain network gives. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { CHECKS_MAX = 2 };
#else
enum { CHECKS_MAX = INT_MAX };
#endif

/* Checks a network over windows of these lengths. checks: of each parameter, and of the input. */
static void check(const char *name, const struct net_options *options, const uint32_t *lengths,
                  uint32_t count, size_t checks)
{
    static struct rig t;
    uint32_t rows = 0;
    checks = MIN(checks, (size_t)CHECKS_MAX);
    for (uint32_t w = 0; w < count; w++)
        rows += lengths[w];
    rig_begin(&t, options, rows, false);
    rig_stir(&t);
    rig_windows(&t, lengths, count, 0);
    rig_run(&t);
    plain_begin(&t);
    check_outputs(name, &t);
    for (uint32_t p = 0; p < t.net.params_count; p++) {
        const struct net_params *of = &t.net.params[p];
        check_gradients(name, "weights", p, plain.params[p], of->gradient, of->n, of->d, of->stride, checks);
        if (has_biases(&t.net, of)) {
            size_t at = (size_t)of->n * of->stride;
            check_gradients(name, "biases", p, plain.params[p] + at, of->gradient + at, 1, of->n, 0, checks);
        }
    }
    const struct net_matrix *in = t.net.input;
    check_gradients(name, "input", 0, values_of(in), in->gradients, rows, in->columns, in->stride, checks);
    plain_end();
    rig_end(&t);
}

/* --- Networks of one layer --- */

enum { DIM = 32, HEADS = 2 };
static const uint32_t short_windows[] = {0, 1, 7, 19, 0, 3, 0};

static void norm_shape(struct net *net, const void *own)
{
    (void)own;
    struct net_matrix *in = net_add_input(net, 0);
    net_add_norm(net, in, net_add_output_columns(net, in->columns));
}

static void sum_shape(struct net *net, const void *own) /* the input's gradient has two parts */
{
    (void)own;
    struct net_matrix *in = net_add_input(net, 0), *normal = net_add_matrix(net, in->columns);
    net_add_norm(net, in, normal);
    net_add_sum(net, in, normal, net_add_output_columns(net, in->columns));
}

static void gate_shape(struct net *net, const void *own) /* attention and its gate share a matrix */
{
    (void)own;
    struct net_matrix *in = net_add_input(net, 0);
    struct net_matrix *parts = net_add_matrix(net, 4 * DIM), *mixed = net_add_matrix(net, DIM);
    net_add_dense(net, in, 0, DIM, parts, 0, 4 * DIM, false);
    net_add_attention(net, parts, 0, HEADS, mixed, true, true, 0.0F);
    net_add_gate(net, parts, 3 * DIM, mixed, net_add_output_columns(net, DIM));
}

static void silu_shape(struct net *net, const void *own)
{
    (void)own;
    struct net_matrix *in = net_add_input(net, 0);
    net_add_silu(net, in, net_add_output_columns(net, in->columns));
}

static void dropout_shape(struct net *net, const void *own)
{
    (void)own;
    struct net_matrix *in = net_add_input(net, 0);
    net_add_dropout(net, in, net_add_output_columns(net, in->columns), 0.3F);
}

struct attention_case {
    bool has_softmax, is_causal;
    float dropout;
};

static void attention_shape(struct net *net, const void *own)
{
    const struct attention_case *o = own;
    struct net_matrix *in = net_add_input(net, 0);
    net_add_attention(net, in, 0, HEADS, net_add_output_columns(net, in->columns / 3), o->has_softmax,
                      o->is_causal, o->dropout);
}

static void test_layers(void **state)
{
    (void)state;
    static const struct network networks[] = {{.name = "norm", .shape = norm_shape},
                                              {.name = "sum", .shape = sum_shape},
                                              {.name = "gate", .shape = gate_shape},
                                              {.name = "silu", .shape = silu_shape},
                                              {.name = "dropout", .shape = dropout_shape}};
    for (size_t i = 0; i < ARRAY_COUNT(networks); i++) {
        struct net_options o = rig_options(&networks[i], NULL, DIM, 19);
        check(networks[i].name, &o, short_windows, ARRAY_COUNT(short_windows), 100);
    }
}

static void test_attention(void **state)
{
    (void)state;
    static const struct network network = {.name = "attention", .shape = attention_shape};
    for (unsigned i = 0; i < 8; i++) {
        struct attention_case own = {i & 1, i & 2, i & 4 ? 0.25F : 0.0F};
        struct net_options o = rig_options(&network, &own, 3 * DIM, 19);
        char name[80];
        snprintf(name, sizeof(name), "attention%s%s%s", i & 1 ? ", softmax" : "", i & 2 ? ", causal" : "",
                 i & 4 ? ", dropout" : "");
        check(name, &o, short_windows, ARRAY_COUNT(short_windows), 160);
    }
}

/* --- Whole networks --- */

static void test_sasrec(void **state)
{
    (void)state;
    struct sasrec_network own = {.layers = 2, .heads = 2, .dim = DIM, .hidden = 48, .is_causal = true};
    for (unsigned i = 0; i < 4; i++) {
        static const char *names[] = {"sasrec", "sasrec, dropout", "sasrec, not causal",
                                      "sasrec, dropout, recompute"};
        own.dropout = i % 2 ? 0.2F : 0.0F, own.attention_dropout = i % 2 ? 0.1F : 0.0F;
        own.is_causal = i != 2;
        struct net_options o = rig_options(&network_sasrec, &own, DIM, 19);
        o.recompute = i == 3;
        check(names[i], &o, short_windows, ARRAY_COUNT(short_windows), 10);
    }
}

static void test_hstu(void **state)
{
    (void)state;
    struct hstu_network own = {.layers = 2, .heads = 2, .dim = DIM};
    for (unsigned i = 0; i < 3; i++) {
        static const char *names[] = {"hstu", "hstu, dropout", "hstu, dropout, recompute"};
        own.dropout = i > 0 ? 0.2F : 0.0F, own.attention_dropout = i > 0 ? 0.1F : 0.0F;
        struct net_options o = rig_options(&network_hstu, &own, DIM, 19);
        o.recompute = i == 2;
        check(names[i], &o, short_windows, ARRAY_COUNT(short_windows), 10);
    }
}

/* A window that is longer than a tile, between shorter ones. */
static void test_long_window(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {1, 0, 520, 3};
    struct sasrec_network sasrec = {.layers = 1,
                                    .heads = 1,
                                    .dim = 16,
                                    .hidden = 16,
                                    .is_causal = true,
                                    .dropout = 0.2F,
                                    .attention_dropout = 0.1F};
    struct hstu_network hstu = {.layers = 1, .heads = 1, .dim = 16, .dropout = 0.2F};
    struct net_options o = rig_options(&network_sasrec, &sasrec, 16, 520);
    check("sasrec, long window", &o, lengths, ARRAY_COUNT(lengths), 2);
    o = rig_options(&network_hstu, &hstu, 16, 520);
    check("hstu, long window", &o, lengths, ARRAY_COUNT(lengths), 2);
}

/* --- The networks' equations, over one window, without the net's list of layers --- */

enum { TOKENS = 9 };

static void norm_of(double *out, const double *x, const struct net_params *p)
{
    for (size_t r = 0; r < TOKENS; r++, x += DIM, out += DIM) {
        double mean = 0.0, variance = 0.0;
        for (size_t i = 0; i < DIM; i++)
            mean += x[i] / DIM;
        for (size_t i = 0; i < DIM; i++)
            variance += (x[i] - mean) * (x[i] - mean) / DIM;
        for (size_t i = 0; i < DIM; i++)
            out[i] = (x[i] - mean) / sqrt(variance + 1e-6) * (double)p->w[i] + (double)p->w[DIM + i];
    }
}

static void linear_of(double *out, const double *x, const struct net_params *p, bool has_bias)
{
    for (size_t r = 0; r < TOKENS; r++) {
        for (size_t j = 0; j < p->n; j++) {
            double sum = has_bias ? (double)p->w[(size_t)p->n * p->stride + j] : 0.0;
            for (size_t i = 0; i < p->d; i++)
                sum += (double)p->w[j * p->stride + i] * x[r * p->d + i];
            out[r * p->n + j] = sum;
        }
    }
}

static double product_of(const double *x, const double *y)
{
    double sum = 0.0;
    for (size_t i = 0; i < DIM / HEADS; i++)
        sum += x[i] * y[i];
    return sum;
}

/* Head h of part `part` of token i, of rows of `parts` times DIM columns. */
static double *head_of(double *rows, size_t parts, size_t i, size_t part, size_t h)
{
    return rows + (i * parts + part) * DIM + h * (DIM / HEADS);
}

/* x becomes a block's output. Parameters: norm, W of q, k, v; norm, both dense layers. */
static void sasrec_block(double *x, const struct net_params *p)
{
    static double normal[TOKENS * DIM], qkv[TOKENS * 3 * DIM], hidden[TOKENS * DIM];
    double root = sqrt(DIM / HEADS);
    norm_of(normal, x, &p[0]);
    linear_of(qkv, normal, &p[1], false);
    for (size_t i = 0; i < TOKENS; i++) {
        for (size_t h = 0; h < HEADS; h++) {
            double sum = 0.0, *q = head_of(qkv, 3, i, 0, h);
            for (size_t j = 0; j <= i; j++)
                sum += exp(product_of(q, head_of(qkv, 3, j, 1, h)) / root);
            for (size_t j = 0; j <= i; j++) {
                double weight = exp(product_of(q, head_of(qkv, 3, j, 1, h)) / root) / sum;
                for (size_t c = 0; c < DIM / HEADS; c++)
                    head_of(x, 1, i, 0, h)[c] += weight * head_of(qkv, 3, j, 2, h)[c];
            }
        }
    }
    norm_of(normal, x, &p[2]);
    linear_of(hidden, normal, &p[3], true);
    for (size_t i = 0; i < TOKENS * DIM; i++)
        hidden[i] = fmax(hidden[i], 0.0);
    linear_of(normal, hidden, &p[4], true);
    for (size_t i = 0; i < TOKENS * DIM; i++)
        x[i] += normal[i];
}

/* x becomes a layer's output. Parameters: norm, W1 (rows of q, k, v, u), tables, norm, W2. */
static void hstu_layer(double *x, const struct net_params *p, const uint32_t *seconds, size_t window_max)
{
    static double normal[TOKENS * DIM], parts[TOKENS * 4 * DIM], mixed[TOKENS * DIM];
    norm_of(normal, x, &p[0]);
    linear_of(parts, normal, &p[1], true);
    for (size_t i = 0; i < TOKENS * 4 * DIM; i++)
        parts[i] /= 1.0 + exp(-parts[i]);
    memset(mixed, 0, sizeof(mixed));
    for (size_t i = 0; i < TOKENS; i++) {
        for (size_t j = 0; j <= i; j++) {
            double position = (double)p[2].w[i - j];
            double time = (double)p[2].w[window_max + attention_time_bucket(seconds[i], seconds[j])];
            for (size_t h = 0; h < HEADS; h++) {
                double s =
                    product_of(head_of(parts, 4, i, 0, h), head_of(parts, 4, j, 1, h)) + position + time;
                for (size_t c = 0; c < DIM / HEADS; c++)
                    head_of(mixed, 1, i, 0, h)[c] +=
                        s / (1.0 + exp(-s)) / (double)window_max * head_of(parts, 4, j, 2, h)[c];
            }
        }
    }
    norm_of(normal, mixed, &p[3]);
    for (size_t i = 0; i < TOKENS * DIM; i++)
        normal[i] *= head_of(parts, 4, i / DIM, 3, 0)[i % DIM];
    linear_of(mixed, normal, &p[4], true);
    for (size_t i = 0; i < TOKENS * DIM; i++)
        x[i] += mixed[i];
}

static void test_equations(void **state)
{
    (void)state;
    static struct rig t;
    static double x[TOKENS * DIM];
    struct sasrec_network sasrec = {
        .layers = 2, .heads = HEADS, .dim = DIM, .hidden = DIM, .is_causal = true};
    struct hstu_network hstu = {.layers = 2, .heads = HEADS, .dim = DIM};
    for (int is_hstu = 0; is_hstu < 2; is_hstu++) {
        struct net_options o = is_hstu ? rig_options(&network_hstu, &hstu, DIM, 12)
                                       : rig_options(&network_sasrec, &sasrec, DIM, 12);
        rig_begin(&t, &o, TOKENS, false);
        rig_stir(&t);
        rig_windows(&t, &(const uint32_t){TOKENS}, 1, 0);
        net_forward(&t.net, TOKENS);
        for (size_t i = 0; i < TOKENS * DIM; i++)
            x[i] = (double)t.net.input->values[i] + (double)t.net.params[0].w[i]; /* the position's row */
        for (size_t layer = 0; layer < 2 && !is_hstu; layer++)
            sasrec_block(x, t.net.params + 1 + layer * 5);
        for (size_t layer = 0; layer < 2 && is_hstu; layer++)
            hstu_layer(x, t.net.params + 1 + layer * 5, t.seconds, 12);
        norm_of(x, x, &t.net.params[11]);
        for (size_t i = 0; i < TOKENS * DIM; i++)
            if (!(fabs(x[i] - (double)t.net.output->values[i]) <= 1e-5 * (1.0 + fabs(x[i]))))
                fail_msg("%s: column %zu of token %zu is %.9g, by the equations %.9g", o.network->name,
                         i % DIM, i / DIM, (double)t.net.output->values[i], x[i]);
        rig_end(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers), cmocka_unit_test(test_attention),   cmocka_unit_test(test_sasrec),
        cmocka_unit_test(test_hstu),   cmocka_unit_test(test_long_window), cmocka_unit_test(test_equations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

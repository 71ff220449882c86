/*
 * Each kernel of kernels.def in each variant, with data in the L1 cache, compared with the machine's limits
 * measured in the same run, on one core:
 *   bench_kernels [--rows] [NAME-PREFIX]
 * A line has ns a call, GB/s and GFLOP/s by the bytes and flops of kernels.def, the part of the CPU that
 * limits the kernel, and the kernel's share of that limit: the least time for the call's work, by the speed
 * of the CPU's parts (units.h), over the measured time. Limits and kernels are measured in turns; a figure is
 * the median of the turns. --rows: `kernel variant share limit` alone, for programs. Scalar has no limit: it
 * is the reference, not meant to be fast. A kernel without a line here does not compile.
 */
#include "bench/kernels/units.h"

#include "kernels/attention.h"
#include "kernels/attention_pages.h"
#include "kernels/kernels.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 12, D = 96, FFM_DIM = 8, FLOATS = 1 << 14, ROW_FLOATS = 3 * 16 * D, TURNS = 9 };

struct place {
    float *memory, *a, *b, *c, *pairs;
    double one;
    double *x, *y, *z, *g;
    const float *rows[16];
    struct opt_row opt[N];
};
static const struct opt_params params = {.rate = 1e-6F,
                                         .epsilon = 1e-3F,
                                         .decay = 1.0F,
                                         .beta1 = 0.9F,
                                         .beta2 = 0.99F,
                                         .correction1 = 1.0F,
                                         .correction2 = 1.0F,
                                         .step_max = 1.0F};
static const struct ftrl64_params ftrl = {0.1, 1.0, 0.1, 0.1};

/*
 * One line a kernel: the arguments of its call; n and d as in kernels.def; and the work it cannot avoid, as
 * struct units, in vectors of sixteen floats or eight doubles (V(n): vectors of n floats). Arithmetic is
 * counted in the source, whose order, divisions and roots are the contract. An instruction without vectors
 * counts as one.
 */
#define V(n)      ((double)(n) / 16)
#define WORK(...) ((struct units){.call = 1, __VA_ARGS__})
#define LINE(name, rows, dims, work, result)                                                                 \
    enum { name##_n = rows, name##_d = dims };                                                               \
    static struct units work_##name(void)                                                                    \
    {                                                                                                        \
        enum { n = rows, d = dims };                                                                         \
        return work;                                                                                         \
    }                                                                                                        \
    static float run_##name(const struct kernels *k, struct place *p)                                        \
    {                                                                                                        \
        enum { n = rows, d = dims };                                                                         \
        (void)p;                                                                                             \
        return result;                                                                                       \
    }
LINE(pool_mean, N, D, WORK(.read = V(n * d), .write = V(d), .fma = V(n * d), .div = V(d)),
     (k->pool_mean(p->a, p->rows, n, d), 0.0F))
LINE(sum_squares, 1024, 1, WORK(.read = V(n), .chain = V(n) + 4), (p->b[0] = k->sum_squares(p->b, n) * 1e-4F))
LINE(dot, 1024, 1, WORK(.read = V(2 * n), .chain = V(n) + 4), (p->b[0] = k->dot(p->b, p->c, n) * 1e-4F))
LINE(pairs_dot, 12, 32, WORK(.read = n + V(3 * d), .write = V(2 * d), .fma = 8, .shuffle = n + 5),
     k->pairs_dot(p->a, (float *const *)p->rows, p->c, n, d))
LINE(pairs_store, 12, 32, WORK(.read = 2, .write = n, .shuffle = n),
     (k->pairs_store((float *const *)p->rows, p->a, n, d), 0.0F))
static const struct pairs_event event = {.label = 1.0F, .weight = 1.0F, .is_logistic = true, .learns = true};
LINE(pairs_adagrad, 12, 32, WORK(.chain = 45),
     (float)k->pairs_adagrad(p->pairs, (float *const *)p->rows, p->c, n, d, &event, &params))
LINE(mix_keys, 24, 1, WORK(.read = n / 8, .write = n / 8, .mul64 = n / 4),
     (k->mix_keys((uint64_t *)p->x, (uint64_t *)p->y, 7, n), 0.0F))
LINE(sigmoid_one, 1, 1, WORK(.chain = 17), (float)(p->one = k->sigmoid_one(p->one)))
LINE(sigmoid64, 128, 1, WORK(.fma = 26 * n / 8, .div64 = n / 8), (k->sigmoid64(p->x, p->y, n), 0.0F))
LINE(logloss64, 128, 1, WORK(.fma = 53 * n / 8, .div64 = n / 8), (k->logloss64(p->x, p->y, p->b, n), 0.0F))
LINE(fm_forward, N, 16, WORK(.read = V(n * d), .fma = V(2 * n * d) + 5, .shuffle = 3),
     k->fm_forward(p->a, p->rows, n, d))
LINE(fm_backward, N, 16, WORK(.read = V(n * d), .write = V(n * d), .fma = V(n * d)),
     (k->fm_backward(p->a, p->b, p->rows, n, d), 0.0F))
#define FFM V(n *d *FFM_ROUND(n))
LINE(ffm_forward, N, FFM_DIM, WORK(.read = FFM * 1.5, .write = FFM, .fma = FFM / 2, .shuffle = FFM),
     k->ffm_forward(p->a, p->rows, p->c, n, d))
LINE(ffm_pairs_forward, N, FFM_DIM, WORK(.read = FFM * 1.5, .write = FFM, .fma = FFM / 2, .shuffle = FFM),
     (k->ffm_pairs_forward(p->b, p->a, p->rows, p->c, n, d), 0.0F))
LINE(ffm_pairs_backward, N, FFM_DIM, WORK(.read = FFM, .write = FFM, .fma = FFM),
     (k->ffm_pairs_backward(p->a, p->c, n, d), 0.0F))
#define OPT_LINE(name, states, ops, ...)                                                                     \
    LINE(opt_##name, N, D,                                                                                   \
         WORK(.read = V(n * d) * (2 + states), .write = V(n * d) * (1 + states), .fma = V(n * d) * (ops),    \
              __VA_ARGS__),                                                                                  \
         (k->opt_##name(p->opt, n, d, &params), 0.0F))
OPT_LINE(sgd, 0, 6, )
OPT_LINE(momentum, 1, 7, )
OPT_LINE(adagrad, 1, 19, )
OPT_LINE(adagrad_row, 0, 9, )
OPT_LINE(adagrad_block, 0.25, 5.5, .shuffle = V(n * d) * 2.75)
OPT_LINE(adam, 2, 14, .div = V(n * d), .root = V(n * d))
OPT_LINE(ftrl, 2, 12, .div = V(3 * n * d), .root = V(2 * n * d))
OPT_LINE(newton, 1, 20, )
LINE(newton_variance, N, D, WORK(.read = V(2 * n * d), .fma = V(12 * n * d)),
     k->newton_variance(p->opt, n, d))
LINE(ftrl64_weights, 24, 1, WORK(.div64 = 2 * n / 8, .root64 = n / 8),
     (k->ftrl64_weights(p->x, p->y, p->z, n, &ftrl), 0.0F))
LINE(ftrl64_update, 24, 1, WORK(.div64 = n / 8, .root64 = 2 * n / 8),
     (k->ftrl64_update(p->y, p->z, p->x, p->g, n, &ftrl), 0.0F))
LINE(dense_forward, 128, 64, WORK(.fma = n * d), (k->dense_forward(p->a, p->b, p->c, p->b, n, d), 0.0F))
LINE(dense_backward, 128, 64, WORK(.fma = n * d), (k->dense_backward(p->a, p->b, p->c, n, d), 0.0F))
LINE(dense_gradient, 128, 64, WORK(.fma = n * d, .write = V(n * d)),
     (k->dense_gradient(p->a, p->a + n * d, p->b, p->c, n, d), 0.0F))
LINE(blend, 1024, 1, WORK(.read = V(2 * n), .write = V(n), .fma = V(n)),
     (k->blend(p->a, p->b, 0.5F, n), 0.0F))
LINE(dense_rows_to_lanes, 196, 1, WORK(.read = n, .write = n, .fma = 3 * n, .shuffle = 2 * n),
     (k->dense_rows_to_lanes(p->a, p->b, n), 0.0F))
LINE(dense_lanes_to_rows, 196, 1, WORK(.read = n, .write = n, .fma = 3 * n, .shuffle = 2 * n),
     (k->dense_lanes_to_rows(p->a, p->b, n), 0.0F))
LINE(relu_forward, 1024, 1, WORK(.read = V(n), .write = V(n), .fma = V(2 * n)),
     (k->relu_forward(p->a, n), 0.0F))
LINE(relu_backward, 1024, 1, WORK(.read = V(2 * n), .write = V(n), .fma = V(2 * n)),
     (k->relu_backward(p->a, p->b, n), 0.0F))

/* One causal window of 64 tokens. The work is that of vectors of sixteen queries and the keys up to the last
 * one's: fma's of the products, and 16 operations a vector of weights. */
static const uint32_t window[] = {0, 64};
static struct attention attention(struct place *p, size_t n, size_t d)
{
    return (struct attention){.offsets = window,
                              .events = 1,
                              .heads = 1,
                              .d = (uint32_t)d,
                              .is_causal = true,
                              .scale = 0.1F,
                              .q = {p->a, d},
                              .k = {p->a + n * d, d},
                              .v = {p->a + 2 * n * d, d},
                              .out = {p->b, d},
                              .lse = p->pairs,
                              .weight_scale = 0.01F,
                              .dout = {p->a + 3 * n * d, d},
                              .dq = {p->c, d},
                              .dk = {p->c + n * d, d},
                              .dv = {p->c + 2 * n * d, d},
                              .scratch = p->memory};
}
static float attend(void (*run)(const struct attention *), struct place *p, size_t n, size_t d)
{
    struct attention a = attention(p, n, d);
    run(&a);
    return 0.0F;
}
#define WEIGHTS V(n *(n + 16) / 2)
LINE(attention_softmax_forward, 64, 64, WORK(.fma = WEIGHTS * (2 * d + 16), .div = V(n)),
     attend(k->attention_softmax_forward, p, n, d))
LINE(attention_softmax_backward, 64, 64, WORK(.fma = WEIGHTS * (5 * d + 18)),
     attend(k->attention_softmax_backward, p, n, d))
LINE(attention_silu_forward, 64, 64, WORK(.fma = WEIGHTS * (2 * d + 16), .div = WEIGHTS),
     attend(k->attention_silu_forward, p, n, d))
LINE(attention_silu_backward, 64, 64, WORK(.fma = WEIGHTS * (5 * d + 21), .div = WEIGHTS),
     attend(k->attention_silu_backward, p, n, d))
/* The last query of a window of 64 tokens. */
static float attend_pages(void (*run)(const struct attention_pages *), struct place *p, size_t n, size_t d)
{
    const void *pages[4];
    for (size_t i = 0; i < 4; i++)
        pages[i] = p->a + i * attention_page_elements(d);
    struct attention_pages a = {.pages = pages,
                                .first = (uint32_t)n - 1,
                                .queries = 1,
                                .heads = 1,
                                .d = (uint32_t)d,
                                .scale = 0.1F,
                                .q = {p->b, d},
                                .out = {p->c, d},
                                .weight_scale = 0.01F};
    run(&a);
    return 0.0F;
}
LINE(attention_softmax_pages, 64, 64, WORK(.read = V(2 * n * d), .fma = V(n * (2 * d + 16)), .chain = n),
     attend_pages(k->attention_softmax_pages, p, n, d))
LINE(attention_silu_pages, 64, 64, WORK(.read = V(2 * n * d), .fma = V(n * (2 * d + 16)), .div = V(n)),
     attend_pages(k->attention_silu_pages, p, n, d))
LINE(init_uniform, D, 1, WORK(.mul64 = n / 4, .fma = n / 8 * 11), (k->init_uniform(p->a, 3, 0.1F, n), 0.0F))
LINE(layer_norm_forward, 12, 64,
     WORK(.read = V(3 * n * d), .write = V(n * d), .fma = V(6 * n * d), .shuffle = 3 * n),
     (k->layer_norm_forward(p->a, p->pairs, p->b, p->c, p->c, 1e-8F, n, d), 0.0F))
LINE(layer_norm_backward, 12, 64,
     WORK(.read = V(4 * n * d), .write = V(n * d), .fma = V(11 * n * d), .shuffle = 3 * n),
     (k->layer_norm_backward(p->a, p->b, p->c, p->pairs, p->c, n, d), 0.0F))
LINE(layer_norm_gradient, 12, 64, WORK(.read = V(2 * n * d), .write = V(2 * d), .fma = V(4 * n * d)),
     (k->layer_norm_gradient(p->a, p->a + d, p->b, p->c, p->pairs, n, d), 0.0F))
LINE(silu_forward, 1024, 1, WORK(.read = V(n), .write = V(n), .fma = V(25 * n), .div = V(n)),
     (k->silu_forward(p->a, p->b, n), 0.0F))
LINE(silu_backward, 1024, 1, WORK(.read = V(2 * n), .write = V(n), .fma = V(30 * n), .div = V(n)),
     (k->silu_backward(p->a, p->b, p->c, n), 0.0F))
LINE(gelu_forward, 1024, 1, WORK(.read = V(n), .write = V(n), .fma = V(31 * n), .div = V(n)),
     (k->gelu_forward(p->a, p->b, n), 0.0F))
LINE(gelu_backward, 1024, 1, WORK(.read = V(2 * n), .write = V(n), .fma = V(39 * n), .div = V(n)),
     (k->gelu_backward(p->a, p->b, p->c, n), 0.0F))
LINE(dropout, 12, 64,
     WORK(.read = V(n * d), .write = V(n * d), .mul64 = n * d / 4 * 2 / 8, .fma = V(4 * n * d)),
     (k->dropout(p->a, (const uint64_t *)p->x, 0.0F, n, d), 0.0F))
LINE(dots, 16, 64, WORK(.read = V(n * d + d * n / 4), .fma = V(n * d) + 6 * n / 4, .shuffle = 7 * n / 4),
     (k->dots(p->a, p->b, p->rows, n, d), 0.0F))
LINE(add_weighted, 16, 64, WORK(.read = V(n * d) + n, .write = V(d), .fma = V(n * d)),
     (k->add_weighted(p->a, p->rows, p->c, n, d), 0.0F))
LINE(exp64, 128, 1, WORK(.read = n / 8, .write = n / 8, .fma = 23 * n / 8), (k->exp64(p->x, p->y, n), 0.0F))
LINE(scores_max, 1024, 1, WORK(.read = V(n), .chain = V(n)), k->scores_max(p->b, n))
LINE(scores_exp_sum, 1024, 1, WORK(.read = V(n), .fma = V(24 * n)), k->scores_exp_sum(p->b, 1.0F, 1.0F, n))
LINE(scores_weights, 1024, 1, WORK(.read = V(n), .write = V(n), .fma = V(24 * n)),
     (k->scores_weights(p->a, 1.0F, 1.0F, 0.0F, 1.0F, n), 0.0F))
LINE(int8_quantize, 1, 64, WORK(.read = V(d), .write = 1, .fma = V(8 * d), .div = V(d)),
     k->int8_quantize((int8_t *)p->a, p->b, d))
static const int8_t int8_query[64];
static const int32_t int8_starts[1];
static const struct int8_queries int8_queries = {int8_query, int8_starts, 1, false};
LINE(int8_scores, 32, 64, WORK(.read = n * d / 4, .write = n),
     (k->int8_scores((int32_t *)p->a, (const uint8_t *)p->b, &int8_queries, n, d), 0.0F))
LINE(int8_above, 16, 1, WORK(.read = 2 * n, .fma = 3 * n),
     (float)k->int8_above((uint32_t *)p->a, (const int32_t *)p->b, p->c, 1e30F, n))

static volatile float sink;

/* Seconds that the work takes at the least: those of the slowest part of the CPU. Shuffles use half of the
 * ports of the other arithmetic; quotients and roots share one divider, and each also uses the arithmetic's
 * ports for two turns. */
static double least(const struct units *w, const struct units *unit, const char **part)
{
    double quotients = 2.0 * (w->div + w->root + w->div64 + w->root64);
    struct {
        double seconds;
        const char *name;
    } parts[] = {
        {w->read * unit->read, "L1 read"},
        {w->write * unit->write, "L1 write"},
        {(w->fma + w->shuffle + quotients) * unit->fma + w->mul64 * unit->mul64,
         w->mul64 > 0.0 ? "64-bit products" : "fma"},
        {w->shuffle * unit->shuffle, "shuffles"},
        {w->chain * unit->chain, "latency"},
        {w->div * unit->div + w->root * unit->root + w->div64 * unit->div64 + w->root64 * unit->root64,
         "divider"},
    };
    size_t most = 0;
    for (size_t i = 1; i < sizeof(parts) / sizeof(*parts); i++)
        most = parts[i].seconds > parts[most].seconds ? i : most;
    *part = parts[most].name;
    return parts[most].seconds + w->call * unit->call;
}

/* Seconds a call: the best of three rounds, each of at least 0.2 ms. */
static double time_call(float (*run)(const struct kernels *, struct place *), const struct kernels *k,
                        struct place *p, size_t *calls)
{
    double best = 1.0;
    for (int round = 0; round < 3;) {
        double begin = units_now();
        for (size_t i = 0; i < *calls; i++)
            sink = run(k, p);
        double took = units_now() - begin;
        if (took < 2e-4) {
            *calls *= 2;
            continue;
        }
        round++;
        best = took / (double)*calls < best ? took / (double)*calls : best;
    }
    return best;
}

static void *room(size_t bytes)
{
    void *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (p == NULL)
        abort();
    memset(p, 0, bytes);
    return p;
}

struct result {
    double seconds, share;
    const char *part;
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void fill(struct place *p);

static struct result measure(const struct kernels *k, void (*units_measure)(struct units *),
                             float (*run)(const struct kernels *, struct place *), struct units work,
                             struct place *p)
{
    struct result r = {.part = "-"};
    double seconds[TURNS], shares[TURNS];
    size_t calls = 1;
    fill(p);
    for (int i = 0; i < TURNS; i++) {
        struct units units = {0};
        if (units_measure != NULL)
            units_measure(&units);
        seconds[i] = time_call(run, k, p, &calls);
        shares[i] = units_measure == NULL ? 0.0 : least(&work, &units, &r.part) / seconds[i];
    }
    qsort(seconds, TURNS, sizeof(*seconds), by_value);
    qsort(shares, TURNS, sizeof(*shares), by_value);
    r.seconds = seconds[TURNS / 2];
    r.share = shares[TURNS / 2];
    return r;
}

static struct place *make_place(void)
{
    struct place *p = room(sizeof(*p));
    p->memory = room(16 * ROW_FLOATS * sizeof(float));
    p->a = room(FLOATS * sizeof(float)), p->b = room((FLOATS + 1024) * sizeof(float)),
    p->c = room((FLOATS + 512) * sizeof(float));
    /* With the same offset in a page, loads would wait for stores that look alike. */
    p->b += 512, p->c += 256;
    p->pairs = room(64 * sizeof(float));
    p->x = room(1024), p->y = room(1024), p->z = room(1024), p->g = room(1024);
    return p;
}

/* Resets the data before each kernel, as the kernel before may have left anything. */
static void fill(struct place *p)
{
    for (size_t i = 0; i < 16 * ROW_FLOATS; i++)
        p->memory[i] = (float)(i % 97 + 1) / 97.0F;
    for (size_t i = 0; i < FLOATS; i++)
        p->a[i] = p->b[i] = p->c[i] = 1.0F; /* not 0: states must not decay into denormals */
    for (size_t i = 0; i < 128; i++)
        p->x[i] = p->y[i] = p->z[i] = p->g[i] = (double)(i + 1) / 64.0;
    for (size_t i = 0; i < 64; i++)
        p->pairs[i] = 0.1F;
    for (size_t i = 0; i < 16; i++)
        p->rows[i] = p->memory + i * ROW_FLOATS;
    for (uint32_t i = 0; i < N; i++) {
        float *w = p->memory + i * ROW_FLOATS; /* the state lies behind the longest row of any kernel */
        p->opt[i] = (struct opt_row){
            .w = w, .state = w + ROW_FLOATS / 3, .g = p->c, .scale = 0.1F, .curvature = 0.1F};
    }
    p->one = 0.3;
}

static void print_units(const struct kernels *k, void (*units_measure)(struct units *))
{
    struct units u;
    units_measure(&u);
    printf(
        "limits [%s]: L1 read %.0f, write %.0f GB/s; fma %.0f GFLOP/s, after another %.2f ns; shuffles %.2f, "
        "divisions %.2f, roots %.2f ns a vector of 16 floats, %.2f and %.2f of 8 doubles; a call %.2f ns\n",
        k->name, 64e-9 / u.read, 64e-9 / u.write, 32e-9 / u.fma, u.chain * 1e9, u.shuffle * 1e9, u.div * 1e9,
        u.root * 1e9, u.div64 * 1e9, u.root64 * 1e9, u.call * 1e9);
}

static void print_result(const char *name, const struct kernels *k, const struct result *r, double bytes,
                         double flops, bool rows_only)
{
    double ns = r->seconds * 1e9;
    if (rows_only)
        printf("%s %s %.3f %s\n", name, k->name, r->share, r->part);
    else if (r->share > 0.0)
        printf("  %-22s %-7s %9.1f ns %8.1f GB/s %8.1f GFLOP/s  %-15s %4.0f %%\n", name, k->name, ns,
               bytes / ns, flops / ns, r->part, 100.0 * r->share);
    else
        printf("  %-22s %-7s %9.1f ns %8.1f GB/s %8.1f GFLOP/s\n", name, k->name, ns, bytes / ns, flops / ns);
}

int main(int argc, char **argv)
{
    static void (*const units[KERNELS_VARIANTS])(struct units *) = {NULL, units_measure_avx2,
                                                                    units_measure_avx512};
    bool rows_only = argc > 1 && strcmp(argv[1], "--rows") == 0;
    const char *prefix = argc > 1 + rows_only ? argv[1 + rows_only] : "";
    struct place *p = make_place();
    for (int v = 0; v < KERNELS_VARIANTS; v++) {
        const struct kernels *k = kernels_variant((enum kernels_variant)v);
        if (k == NULL || (rows_only && units[v] == NULL))
            continue;
        if (units[v] != NULL && !rows_only)
            print_units(k, units[v]);
#define KERNEL(type, fn, args, byte_count, flop_count)                                                       \
    if (strncmp(#fn, prefix, strlen(prefix)) == 0) {                                                         \
        size_t n = fn##_n, d = fn##_d;                                                                       \
        (void)n, (void)d;                                                                                    \
        struct result r = measure(k, units[v], run_##fn, work_##fn(), p);                                    \
        print_result(#fn, k, &r, (double)(byte_count), (double)(flop_count), rows_only);                     \
    }
#include "kernels/kernels.def"
    }
    return 0;
}

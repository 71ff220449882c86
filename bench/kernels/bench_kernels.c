/*
 * Each kernel of kernels.def in each variant, beside the machine's limits measured in the same run:
 *   bench_kernels [NAME-PREFIX]
 * Columns: ns a call, GB/s and GFLOP/s by the bytes and flops of kernels.def, and the larger of the two
 * shares of the limit (L1-resident reading and writing; fma). A kernel without a line here does not compile.
 */
#include "kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N = 12, D = 96, FFM_DIM = 8, FLOATS = 1 << 18, ROW_FLOATS = 3 * 16 * D };

struct place {
    float *a, *b, *c;
    double *x, *y, *z, *g;
    const float *rows[16];
    struct opt_row opt[N];
    uint32_t order[N], starts[N + 1];
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

/* What one call of each kernel is; n and d as kernels.def means them. */
#define LINE(name, rows, dims, call)                                                                         \
    enum { name##_n = rows, name##_d = dims };                                                               \
    static float run_##name(const struct kernels *k, struct place *p)                                        \
    {                                                                                                        \
        enum { n = rows, d = dims };                                                                         \
        (void)p;                                                                                             \
        return call;                                                                                         \
    }
LINE(pool_sum, N, D, (k->pool_sum(p->a, p->rows, n, d), 0.0F))
LINE(pool_mean, N, D, (k->pool_mean(p->a, p->rows, n, d), 0.0F))
LINE(segment_sum, N, D, (k->segment_sum(p->a, p->b, p->order, p->starts, n, d), 0.0F))
LINE(sum_squares, 1024, 1, k->sum_squares(p->b, n))
LINE(dot, 1024, 1, k->dot(p->b, p->c, n))
LINE(pairs_dot, 12, 32, k->pairs_dot(p->a, (float *const *)p->rows, p->c, n, d))
LINE(pairs_store, 12, 32, (k->pairs_store((float *const *)p->rows, p->a, n, d), 0.0F))
static const struct pairs_event event = {.label = 1.0F, .weight = 1.0F, .is_logistic = true, .learns = true};
LINE(pairs_adagrad, 12, 32,
     (float)k->pairs_adagrad(p->a, (float *const *)p->rows, p->c, n, d, &event, &params))
LINE(mix_keys, 24, 1, (k->mix_keys((uint64_t *)p->x, (uint64_t *)p->y, 7, n), 0.0F))
LINE(sigmoid_one, 1, 1, (float)k->sigmoid_one(p->x[0]))
LINE(sigmoid64, 24, 1, (k->sigmoid64(p->x, p->y, n), 0.0F))
LINE(logloss64, 24, 1, (k->logloss64(p->x, p->y, p->b, n), 0.0F))
LINE(fm_forward, N, 16, k->fm_forward(p->a, p->rows, n, d))
LINE(fm_backward, N, 16, (k->fm_backward(p->a, p->b, p->rows, n, d), 0.0F))
LINE(ffm_forward, N, FFM_DIM, k->ffm_forward(p->a, p->rows, p->c, n, d))
LINE(ffm_pairs_forward, N, FFM_DIM, (k->ffm_pairs_forward(p->b, p->a, p->rows, p->c, n, d), 0.0F))
LINE(ffm_pairs_backward, N, FFM_DIM, (k->ffm_pairs_backward(p->a, p->c, n, d), 0.0F))
LINE(opt_sgd, N, D, (k->opt_sgd(p->opt, n, d, &params), 0.0F))
LINE(opt_momentum, N, D, (k->opt_momentum(p->opt, n, d, &params), 0.0F))
LINE(opt_adagrad, N, D, (k->opt_adagrad(p->opt, n, d, &params), 0.0F))
LINE(opt_adagrad_row, N, D, (k->opt_adagrad_row(p->opt, n, d, &params), 0.0F))
LINE(opt_adagrad_block, N, D, (k->opt_adagrad_block(p->opt, n, d, &params), 0.0F))
LINE(opt_adam, N, D, (k->opt_adam(p->opt, n, d, &params), 0.0F))
LINE(opt_ftrl, N, D, (k->opt_ftrl(p->opt, n, d, &params), 0.0F))
LINE(opt_newton, N, D, (k->opt_newton(p->opt, n, d, &params), 0.0F))
LINE(newton_variance, N, D, k->newton_variance(p->opt, n, d))
LINE(ftrl64_weights, 24, 1, (k->ftrl64_weights(p->x, p->y, p->z, n, &ftrl), 0.0F))
LINE(ftrl64_update, 24, 1, (k->ftrl64_update(p->y, p->z, p->x, p->g, n, &ftrl), 0.0F))
LINE(dense_forward, 128, 196, (k->dense_forward(p->a, p->b, p->c, p->b, n, d), 0.0F))
LINE(dense_backward, 128, 196, (k->dense_backward(p->a, p->b, p->c, n, d), 0.0F))
LINE(dense_gradient, 128, 196, (k->dense_gradient(p->a, p->a + n * d, p->b, p->c, n, d), 0.0F))
LINE(blend, 1024, 1, (k->blend(p->a, p->b, 0.5F, n), 0.0F))
LINE(dense_rows_to_lanes, 196, 1, (k->dense_rows_to_lanes(p->a, p->b, n), 0.0F))
LINE(dense_lanes_to_rows, 196, 1, (k->dense_lanes_to_rows(p->a, p->b, n), 0.0F))
LINE(relu_forward, 1024, 1, (k->relu_forward(p->a, n), 0.0F))
LINE(relu_backward, 1024, 1, (k->relu_backward(p->a, p->b, n), 0.0F))
LINE(sigmoid, 1024, 1, (k->sigmoid(p->a, p->b, n), 0.0F))
LINE(logloss_gradient, 1024, 1, (k->logloss_gradient(p->a, p->b, p->c, n), 0.0F))
LINE(init_uniform, D, 1, (k->init_uniform(p->a, 3, 0.1F, n), 0.0F))

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static volatile float sink;

/* Best of five, each at least 2 ms. */
static double time_call(float (*run)(const struct kernels *, struct place *), const struct kernels *k,
                        struct place *p)
{
    size_t calls = 1;
    double best = 1e9;
    for (int round = 0; round < 5;) {
        double begin = seconds();
        for (size_t i = 0; i < calls; i++)
            sink = run(k, p);
        double took = seconds() - begin;
        if (took < 2e-3) {
            calls *= 2;
            continue;
        }
        round++;
        if (took / (double)calls < best)
            best = took / (double)calls;
    }
    return best;
}

static void *room(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!p)
        abort();
    memset(p, 0, bytes);
    return p;
}

struct limits {
    double l1_bytes, copy_bytes, random_bytes, fma_flops;
};

static float run_copy(const struct kernels *k, struct place *p)
{
    (void)k;
    enum { HALF = 64 << 20 };
    static unsigned char *big;
    if (!big)
        big = room(2 * (size_t)HALF);
    (void)p;
    memcpy(big, big + HALF, HALF);
    return (float)big[77];
}

/* 832-byte rows (an FFM row of 12 fields, 8 dims) at random places of 1 GiB: read, changed, written. */
static float run_random(const struct kernels *k, struct place *p)
{
    enum { ROWS = 1 << 20, ROW = 208 };
    static float *table;
    static uint64_t state = 88172645463325252U;
    if (!table)
        table = room((size_t)ROWS * ROW * sizeof *table);
    uint32_t at[8];
    for (int i = 0; i < 8; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        at[i] = (uint32_t)(state % ROWS);
        for (size_t l = 0; l < 13; l++)
            __builtin_prefetch(table + (size_t)at[i] * ROW + l * 16, 1);
    }
    for (int i = 0; i < 8; i++)
        k->blend(table + (size_t)at[i] * ROW, p->c, 1.0F, ROW);
    return 0.0F;
}

static float run_dense_l1(const struct kernels *k, struct place *p)
{
    k->dense_forward(p->a, p->b, p->c, p->b, 8, 64); /* all in L1: the fma limit */
    return 0.0F;
}

static struct limits measure(const struct kernels *k, struct place *p)
{
    struct limits l = {
        .l1_bytes = 12.0 * 1024 / time_call(run_blend, k, p),
        .copy_bytes = 2.0 * (64 << 20) / time_call(run_copy, k, p),
        .random_bytes = 8.0 * 2 * 832 / time_call(run_random, k, p),
        .fma_flops = 32.0 * 8 * 64 / time_call(run_dense_l1, k, p),
    };
    printf("limits [%s]: L1 read-write %.1f GB/s, memory copy %.1f GB/s, random 832-byte rows %.1f GB/s, fma "
           "%.1f GFLOP/s\n",
           k->name, l.l1_bytes / 1e9, l.copy_bytes / 1e9, l.random_bytes / 1e9, l.fma_flops / 1e9);
    return l;
}

static struct place *make_place(void)
{
    struct place *p = room(sizeof *p);
    float *rows = room(16 * ROW_FLOATS * sizeof *rows);
    p->a = room(FLOATS * sizeof(float)), p->b = room(FLOATS * sizeof(float)),
    p->c = room(FLOATS * sizeof(float));
    p->x = room(512), p->y = room(512), p->z = room(512), p->g = room(512);
    for (size_t i = 0; i < 16 * ROW_FLOATS; i++)
        rows[i] = (float)(i % 97 + 1) / 97.0F;
    for (size_t i = 0; i < FLOATS; i++)
        p->c[i] = 1.0F; /* not 0: states must not decay into denormals */
    for (size_t i = 0; i < 64; i++)
        p->x[i] = p->y[i] = p->z[i] = p->g[i] = (double)(i + 1) / 64.0;
    for (size_t i = 0; i < 16; i++)
        p->rows[i] = rows + i * ROW_FLOATS;
    for (uint32_t i = 0; i < N; i++) {
        float *w = rows + i * ROW_FLOATS; /* the state behind the longest row of any kernel */
        p->opt[i] = (struct opt_row){
            .w = w, .state = w + ROW_FLOATS / 3, .g = p->c, .scale = 0.1F, .curvature = 0.1F};
        p->order[i] = i, p->starts[i] = i;
    }
    p->starts[N] = N;
    return p;
}

int main(int argc, char **argv)
{
    struct place *p = make_place();
    for (int v = 0; v < KERNELS_VARIANTS; v++) {
        const struct kernels *k = kernels_variant((enum kernels_variant)v);
        if (!k)
            continue;
        struct limits limits = measure(k, p);
        const uint32_t *starts = p->starts;
        (void)starts;
#define KERNEL(type, fn, args, tolerance, class, byte_count, flop_count)                                     \
    if (argc < 2 || strncmp(#fn, argv[1], strlen(argv[1])) == 0) {                                           \
        size_t n = fn##_n, d = fn##_d;                                                                       \
        (void)n, (void)d;                                                                                    \
        double s = time_call(run_##fn, k, p), gb = (double)(byte_count) / s, gf = (double)(flop_count) / s;  \
        double by_bytes = gb / limits.l1_bytes, by_flops = gf / limits.fma_flops;                            \
        printf("  %-22s %-7s %9.1f ns %8.1f GB/s %8.1f GFLOP/s %5.0f %%\n", #fn, k->name, s * 1e9, gb / 1e9, \
               gf / 1e9, 100.0 * (by_bytes > by_flops ? by_bytes : by_flops));                               \
    }
#include "kernels/kernels.def"
    }
    return 0;
}

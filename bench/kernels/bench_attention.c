/*
 * The attention kernels over batches of windows of one length, causal, on one core:
 *   bench_attention [--rows] [VARIANT]
 * A line has the kernel, d of a head, the length, microseconds a window and head forward and forward with
 * backward, GFLOP/s of both, and their share of matmul's GFLOP/s, 512^3, measured in the same run. flops are
 * those of the visible pairs of query and key alone: 4 d a pair forward, 10 d backward. Times are CPU seconds
 * of the thread, the least of all repetitions. --rows: `softmax` alone, for programs: d, length, seconds of
 * the batch forward, forward with backward, and the sums of |out| and |dq|; peers/torch/attention.py prints
 * the same of the same batch.
 */
#include "bench/kernels/units.h"

#include "kernels/attention.h"
#include "kernels/batch.h"
#include "kernels/kernels.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 2, BATCH_ROWS = 4096, MATMUL = 512, ROUNDS = 5 };
static const double round_s = 0.06; /* least time of a line's repetitions, a round */

typedef void attention_kernel(const struct attention *);

struct batch {
    uint32_t length, windows, d;
    size_t rows;
    uint32_t *offsets, *seconds;
    float *qkv, *gradients, *dout, *out, *lse, *tables;
    void *scratch;
    struct attention a;
    struct attention_bias bias;
};

static void *room(size_t bytes)
{
    void *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (p == NULL)
        abort();
    memset(p, 0, bytes);
    return p;
}

/* The same numbers in peers/torch/attention.py. */
static void fill(float *x, size_t n, uint32_t from)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)((((uint32_t)i + from) * 2654435761U) >> 8) * 0x1p-24F - 0.5F;
}

static struct batch make(uint32_t length, uint32_t d)
{
    struct batch b = {.length = length, .windows = length < BATCH_ROWS ? BATCH_ROWS / length : 1, .d = d};
    size_t part = (size_t)HEADS * d;
    b.rows = (size_t)b.windows * length;
    b.offsets = room((b.windows + 1) * sizeof(*b.offsets));
    b.seconds = room(b.rows * sizeof(*b.seconds));
    for (uint32_t w = 0; w <= b.windows; w++)
        b.offsets[w] = w * length;
    for (size_t r = 0; r < b.rows; r++)
        b.seconds[r] = (uint32_t)(r * 3600);
    b.qkv = room(b.rows * 3 * part * sizeof(float));
    b.gradients = room(b.rows * 3 * part * sizeof(float));
    b.out = room(b.rows * part * sizeof(float));
    b.dout = room(b.rows * part * sizeof(float));
    b.lse = room(b.rows * HEADS * sizeof(float));
    b.tables = room((size_t)2 * (length + ATTENTION_TIME_BUCKETS) * sizeof(float));
    b.scratch = room(attention_scratch_bytes(d));
    fill(b.qkv, b.rows * 3 * part, 1);
    fill(b.dout, b.rows * part, 77);
    b.bias = (struct attention_bias){.positions = b.tables,
                                     .times = b.tables + length,
                                     .positions_max = length - 1,
                                     .query_seconds = b.seconds,
                                     .key_seconds = b.seconds,
                                     .dpositions = b.tables + length + ATTENTION_TIME_BUCKETS,
                                     .dtimes = b.tables + 2 * length + ATTENTION_TIME_BUCKETS};
    b.a = (struct attention){.offsets = b.offsets,
                             .events = b.windows,
                             .heads = HEADS,
                             .d = d,
                             .is_causal = true,
                             .scale = 1.0F / sqrtf((float)d),
                             .q = {b.qkv, 3 * part},
                             .k = {b.qkv + part, 3 * part},
                             .v = {b.qkv + 2 * part, 3 * part},
                             .out = {b.out, part},
                             .lse = b.lse,
                             .weight_scale = 1.0F / (float)length,
                             .dout = {b.dout, part},
                             .dq = {b.gradients, 3 * part},
                             .dk = {b.gradients + part, 3 * part},
                             .dv = {b.gradients + 2 * part, 3 * part},
                             .scratch = b.scratch};
    return b;
}

static void discard(struct batch *b)
{
    free(b->offsets), free(b->seconds), free(b->qkv), free(b->gradients), free(b->out), free(b->dout);
    free(b->lse), free(b->tables), free(b->scratch);
}

/* Least seconds of the batch: forward, and forward with backward. */
static void measure(const struct batch *b, attention_kernel *forward, attention_kernel *backward,
                    double seconds[2])
{
    seconds[0] = seconds[1] = INFINITY;
    for (int round = 0; round < ROUNDS; round++) {
        double begin = units_now();
        for (double last = begin; last - begin < round_s;) {
            forward(&b->a);
            double middle = units_now();
            backward(&b->a);
            double end = units_now();
            seconds[0] = fmin(seconds[0], middle - last);
            seconds[1] = fmin(seconds[1], end - last);
            last = end;
        }
    }
}

static double matmul_gflops(const struct batch_kernels *k)
{
    float *a = room((size_t)3 * MATMUL * MATMUL * sizeof(float));
    fill(a, (size_t)2 * MATMUL * MATMUL, 1);
    struct batch_matmul job = {.a = a,
                               .b = a + (size_t)MATMUL * MATMUL,
                               .c = a + (size_t)2 * MATMUL * MATMUL,
                               .m = MATMUL,
                               .n = MATMUL,
                               .k = MATMUL};
    k->matmul(&job, NULL);
    job.scratch = room(job.scratch_bytes);
    double least = INFINITY;
    for (int i = 0; i < 40; i++) {
        double begin = units_now();
        k->matmul(&job, NULL);
        least = fmin(least, units_now() - begin);
    }
    free(job.scratch), free(a);
    return 2e-9 * MATMUL * MATMUL * MATMUL / least;
}

static double magnitude(const float *x, size_t rows, size_t columns, size_t stride)
{
    double sum = 0.0;
    for (size_t i = 0; i < rows * columns; i++)
        sum += fabs((double)x[i / columns * stride + i % columns]);
    return sum;
}

static void print_line(const char *name, const struct batch *b, const double seconds[2], double most)
{
    double windows = (double)b->windows * HEADS, pairs = 0.5 * b->length * (b->length + 1.0) * windows;
    double ahead = 4e-9 * pairs * b->d / seconds[0], both = 14e-9 * pairs * b->d / seconds[1];
    printf("  %-8s %3u %5u %10.1f %10.1f us %7.1f %7.1f GFLOP/s %4.0f %4.0f %%\n", name, b->d, b->length,
           seconds[0] / windows * 1e6, seconds[1] / windows * 1e6, ahead, both, 100.0 * ahead / most,
           100.0 * both / most);
}

int main(int argc, char **argv)
{
    static const uint32_t lengths[] = {16, 32, 50, 64, 128, 200, 512, 1024, 2048, 4096, 8192};
    static const uint32_t rows_lengths[] = {50, 200, 2048};
    bool rows_only = argc > 1 && strcmp(argv[1], "--rows") == 0;
    const char *reason;
    const struct kernels *k = kernels_pick(argc > 1 + rows_only ? argv[1 + rows_only] : NULL, &reason);
    if (k == NULL) {
        fprintf(stderr, "bench_attention: %s\n", reason);
        return 1;
    }
    double most = rows_only ? 0.0 : matmul_gflops(batch_beside(k)), seconds[2];
    if (!rows_only)
        printf("matmul [%s]: %.0f GFLOP/s\n", k->name, most);
    size_t count = rows_only ? 3 : sizeof(lengths) / sizeof(*lengths);
    for (uint32_t d = 32; d <= 64; d += 32) {
        for (size_t i = 0; i < count; i++) {
            struct batch b = make(rows_only ? rows_lengths[i] : lengths[i], d);
            measure(&b, k->attention_softmax_forward, k->attention_softmax_backward, seconds);
            if (rows_only) {
                size_t part = (size_t)HEADS * d;
                printf("%u %u %.9f %.9f %.6f %.6f\n", d, b.length, seconds[0], seconds[1],
                       magnitude(b.out, b.rows, part, part), magnitude(b.gradients, b.rows, part, 3 * part));
            } else {
                print_line("softmax", &b, seconds, most);
                measure(&b, k->attention_silu_forward, k->attention_silu_backward, seconds);
                print_line("silu", &b, seconds, most);
                b.a.bias = &b.bias;
                measure(&b, k->attention_silu_forward, k->attention_silu_backward, seconds);
                print_line("silu, bias", &b, seconds, most);
            }
            discard(&b);
        }
    }
    return 0;
}

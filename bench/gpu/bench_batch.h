/* What the benchmarks of batch kernels share: sizes, and how a call is measured. One bench_NAME for each BATCH row of
 * kernels.def, called by bench_batch.c. */
#ifndef LEAT_BENCH_GPU_BENCH_BATCH_H
#define LEAT_BENCH_GPU_BENCH_BATCH_H

#include "place.h"

#include <stdlib.h>
#include <string.h>

/* Sizes of the benchmarks, by where they run. */
struct sizes {
    uint32_t places, tables, rows, d;
    uint32_t fm_bags, fm_fields, fm_d, ffm_bags, ffm_fields, ffm_d;
    uint32_t numbers, matrix_rows, matrix_d;
    uint32_t events, inputs, outputs; /* of a dense layer; events also of other kernels of a step */
    uint32_t windows;                 /* of a sequence model */
};

struct bench {
    struct place *place;
    const struct sizes *sizes;
};

struct call {
    void (*run)(const struct batch_kernels *kernels, void *args, void *stream);
    void *args;
};

/* For each kernel: its call, its bytes and its flops; u: as in kernels.def. */
#define BATCH(name, args, tolerance, byte_count, flop_count)                                                 \
    static inline void call_##name(const struct batch_kernels *k, void *a, void *stream)                     \
    {                                                                                                        \
        k->name((struct args *)a, stream);                                                                   \
    }                                                                                                        \
    static inline double bytes_##name(const struct args *a, double u)                                        \
    {                                                                                                        \
        (void)a, (void)u;                                                                                    \
        return (double)(byte_count);                                                                         \
    }                                                                                                        \
    static inline double flops_##name(const struct args *a, double u)                                        \
    {                                                                                                        \
        (void)a, (void)u;                                                                                    \
        return (double)(flop_count);                                                                         \
    }                                                                                                        \
    void bench_##name(struct bench *b);
#include "kernels/kernels.def"

/* Prints the line of one call. */
void bench_measure(struct bench *b, const char *kernel, const char *what, struct call call, double bytes,
                   double flops);
#define MEASURE(b, name, a, u, what)                                                                         \
    bench_measure(b, #name, what, (struct call){call_##name, a}, bytes_##name(a, u), flops_##name(a, u))

/* Asks a kernel for its scratch_bytes, and gives it scratch memory. */
#define ROOM_FOR(b, name, a)                                                                                 \
    do {                                                                                                     \
        (a)->scratch = NULL;                                                                                 \
        (b)->place->kernels->name(a, (b)->place->stream);                                                    \
        (a)->scratch = place_zeros((b)->place, (a)->scratch_bytes > 0 ? (a)->scratch_bytes : 1);             \
    } while (0)

#endif

/*
 * The speed of the CPU's parts, in seconds a unit, measured by loops that do nothing else: the limits that
 * kernels are compared with. One set for each vector width; a vector is sixteen floats, in one register or
 * two. One thread.
 */
#ifndef LEAT_BENCH_KERNELS_UNITS_H
#define LEAT_BENCH_KERNELS_UNITS_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* The units: as work, the number that a call needs; as limits, the seconds that one takes. */
#define UNITS(X)                                                                                             \
    X(read)    /* a vector loaded from the L1 cache */                                                       \
    X(write)   /* a vector stored to the L1 cache */                                                         \
    X(fma)     /* a vector of fmas, or other arithmetic, that do not depend on each other */                 \
    X(chain)   /* the same, each depends on the one before */                                                \
    X(shuffle) /* a vector of shuffled lanes */                                                              \
    X(div)     /* a vector of quotients */                                                                   \
    X(root)    /* a vector of square roots */                                                                \
    X(div64)   /* eight quotients in double */                                                               \
    X(root64)  /* eight square roots in double */                                                            \
    X(mul64)   /* eight products of 64-bit integers */                                                       \
    X(call)    /* a call through a pointer */

struct units {
#define UNIT(name) double name;
    UNITS(UNIT)
#undef UNIT
};

void units_measure_avx2(struct units *units);
void units_measure_avx512(struct units *units);

static inline double units_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#endif

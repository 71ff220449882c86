/* The loops of units.h in the words of lanes.h; included by units_avx2.c and units_avx512.c. */
#include "bench/kernels/units.h"

#include "kernels/lanes.h"

/* Makes the compiler believe that x is changed and used. */
#define KEEP(x) __asm__ volatile("" : "+x"(x))
#ifdef KERNELS_LANES_AVX512
#define HIDE(v) KEEP(v)
#else
#define HIDE(v)                                                                                              \
    do {                                                                                                     \
        KEEP((v).lo);                                                                                        \
        KEEP((v).hi);                                                                                        \
    } while (0)
#endif

enum { VECTORS = 128, ROUNDS = 40 }; /* 8 KiB an array */

static _Alignas(64) float from[VECTORS * 16], to[VECTORS * 16];

static double unit_read(void)
{
    for (size_t r = 0; r < ROUNDS; r++)
        for (size_t i = 0; i < VECTORS; i += 4) {
            v16 a = v16_load(from + i * 16), b = v16_load(from + i * 16 + 16);
            v16 c = v16_load(from + i * 16 + 32), d = v16_load(from + i * 16 + 48);
            HIDE(a);
            HIDE(b);
            HIDE(c);
            HIDE(d);
        }
    return ROUNDS * VECTORS;
}

static double unit_write(void)
{
    v16 a = v16_load(from);
    for (size_t r = 0; r < ROUNDS; r++)
        for (size_t i = 0; i < VECTORS; i++) {
            HIDE(a);
            v16_store(to + i * 16, a);
        }
    return ROUNDS * VECTORS;
}

#define FIVE(word)                                                                                           \
    word(a);                                                                                                 \
    word(b);                                                                                                 \
    word(c);                                                                                                 \
    word(d);                                                                                                 \
    word(e)

static double unit_fma(void)
{
    v16 x = v16_load(from), a = x, b = x, c = x, d = x, e = x;
#ifdef KERNELS_LANES_AVX512
    v16 f = x, g = x, h = x, i = x, j = x;
#endif
    for (size_t r = 0; r < ROUNDS * VECTORS; r++) {
#define STEP(v)                                                                                              \
    v = v16_fma(v, x, x);                                                                                    \
    HIDE(v)
        FIVE(STEP);
#ifdef KERNELS_LANES_AVX512
        STEP(f);
        STEP(g);
        STEP(h);
        STEP(i);
        STEP(j);
#endif
#undef STEP
    }
#ifdef KERNELS_LANES_AVX512
    return ROUNDS * VECTORS * 10.0;
#else
    return ROUNDS * VECTORS * 5.0;
#endif
}

static double unit_chain(void)
{
    v16 x = v16_load(from), a = x;
    for (size_t r = 0; r < ROUNDS * VECTORS; r++) {
        a = v16_fma(a, x, x);
        HIDE(a);
    }
    return ROUNDS * VECTORS;
}

static double unit_shuffle(void)
{
    v16 a = v16_load(from), b = a, c = a, d = a, e = a;
    for (size_t r = 0; r < ROUNDS * VECTORS / 4; r++) {
#ifdef KERNELS_LANES_AVX512
#define STEP(v)                                                                                              \
    v = _mm512_permute_ps(v, 0x4e);                                                                          \
    HIDE(v)
#else
#define STEP(v)                                                                                              \
    v.lo = _mm256_permute_ps(v.lo, 0x4e), v.hi = _mm256_permute_ps(v.hi, 0x4e);                              \
    HIDE(v)
#endif
        FIVE(STEP);
#undef STEP
    }
    return ROUNDS * VECTORS / 4 * 5.0;
}

/* The divider takes the same time for all of these values. */
static double unit_div(void)
{
    v16 x = v16_set1(1.37F), a = x, b = x, c = x, d = x, e = x;
    for (size_t r = 0; r < ROUNDS * VECTORS / 16; r++) {
#define STEP(v)                                                                                              \
    v = v16_div(x, v);                                                                                       \
    HIDE(v)
        FIVE(STEP);
#undef STEP
    }
    return ROUNDS * VECTORS / 16 * 5.0;
}

static double unit_root(void)
{
    v16 a = v16_set1(1.37F), b = a, c = a, d = a, e = a;
    for (size_t r = 0; r < ROUNDS * VECTORS / 16; r++) {
#define STEP(v)                                                                                              \
    v = v16_sqrt(v);                                                                                         \
    HIDE(v)
        FIVE(STEP);
#undef STEP
    }
    return ROUNDS * VECTORS / 16 * 5.0;
}

static double unit_div64(void)
{
    d8 x = d8_set1(1.37), a = x, b = x, c = x, d = x, e = x;
    for (size_t r = 0; r < ROUNDS * VECTORS / 16; r++) {
#define STEP(v)                                                                                              \
    v = d8_div(x, v);                                                                                        \
    HIDE(v)
        FIVE(STEP);
#undef STEP
    }
    return ROUNDS * VECTORS / 16 * 5.0;
}

static double unit_root64(void)
{
    d8 a = d8_set1(1.37), b = a, c = a, d = a, e = a;
    for (size_t r = 0; r < ROUNDS * VECTORS / 16; r++) {
#define STEP(v)                                                                                              \
    v = d8_sqrt(v);                                                                                          \
    HIDE(v)
        FIVE(STEP);
#undef STEP
    }
    return ROUNDS * VECTORS / 16 * 5.0;
}

/* With the instructions that the compiler picks for this width. */
static double unit_mul64(void)
{
    static _Alignas(64) uint64_t x[64];
    for (size_t r = 0; r < ROUNDS * 16; r++) {
        for (size_t i = 0; i < 64; i++)
            x[i] = (x[i] * 0xbf58476d1ce4e5b9U ^ r) * 0x94d049bb133111ebU;
        __asm__ volatile("" : : "r"(x) : "memory");
    }
    return ROUNDS * 16 * 64 * 2 / 8.0;
}

static __attribute__((noinline)) void nothing(float *p, size_t n)
{
    __asm__ volatile("" : : "r"(p), "r"(n) : "memory");
}

static double unit_call(void)
{
    void (*volatile pointer)(float *, size_t) = nothing;
    for (size_t r = 0; r < ROUNDS * VECTORS / 4; r++)
        pointer(to, r);
    return ROUNDS * VECTORS / 4;
}

void UNITS_MEASURE(struct units *units)
{
    for (size_t i = 0; i < VECTORS * 16; i++)
        from[i] = 0.5F;
#define UNIT(name)                                                                                           \
    {                                                                                                        \
        double best = 1.0;                                                                                   \
        for (int turn = 0; turn < 3; turn++) {                                                               \
            double begin = units_now(), count = unit_##name(), took = (units_now() - begin) / count;         \
            best = took < best ? took : best;                                                                \
        }                                                                                                    \
        units->name = best;                                                                                  \
    }
    UNITS(UNIT)
#undef UNIT
}

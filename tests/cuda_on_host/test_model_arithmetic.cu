/* The model's single-thread functions against fixed values, derived by hand from CUDA's Math API.
 * Kernels use few of these functions; a wrong one would go unnoticed in the other tests, which compare
 * the model with itself. */
#include "kernels/cuda/cuda.cuh"

#include <limits.h>
#include <stdio.h>

static int failures;

static void equal(const char *what, unsigned long long got, unsigned long long expected)
{
    if (got == expected)
        return;
    printf("# %s is 0x%llx, and not 0x%llx\n", what, got, expected);
    failures++;
}

#define EQUAL(expression, expected)                                                                          \
    equal(#expression, (unsigned long long)(expression), (unsigned long long)(expected))
#define EQUAL_FLOAT(expression, bits) equal(#expression, __float_as_uint(expression), bits)

static void bits(void)
{
    EQUAL(__popc(0), 0);
    EQUAL(__popc(0x80000001U), 2);
    EQUAL(__popc(~0U), 32);
    EQUAL(__popcll(0xf0f0f0f0f0f0f0f0U), 32);
    EQUAL(__popcll(1ULL << 63), 1);
    EQUAL(__ffs(0), 0);
    EQUAL(__ffs(1), 1);
    EQUAL(__ffs(0x28), 4);
    EQUAL(__ffs(INT_MIN), 32);
    EQUAL(__ffsll(0), 0);
    EQUAL(__ffsll(3LL << 40), 41);
    EQUAL(__clz(0), 32);
    EQUAL(__clz(1), 31);
    EQUAL(__clz(0x00018000), 15);
    EQUAL(__clz(-1), 0);
    EQUAL(__clzll(0), 64);
    EQUAL(__clzll(1LL << 40), 23);
    EQUAL(__brev(1), 0x80000000U);
    EQUAL(__brev(0x12345678U), 0x1e6a2c48U);
    EQUAL(__brevll(0x0123456789abcdefU), 0xf7b3d591e6a2c480U);
}

static void words(void)
{
    const unsigned x = 0x33221100U, y = 0x77665544U;
    EQUAL(__byte_perm(x, y, 0x3210), x);
    EQUAL(__byte_perm(x, y, 0x7654), y);
    EQUAL(__byte_perm(x, y, 0x0123), 0x00112233U);
    EQUAL(__byte_perm(x, y, 0x5410), 0x55441100U);
    EQUAL(__byte_perm(x, y, 0x7531), 0x77553311U);
    const unsigned low = 0x89abcdefU, high = 0x01234567U;
    EQUAL(__funnelshift_l(low, high, 0), high);
    EQUAL(__funnelshift_l(low, high, 4), 0x12345678U);
    EQUAL(__funnelshift_l(low, high, 20), 0x56789abcU);
    EQUAL(__funnelshift_l(low, high, 36), 0x12345678U); /* the shift is taken modulo 32 */
    EQUAL(__funnelshift_r(low, high, 0), low);
    EQUAL(__funnelshift_r(low, high, 4), 0x789abcdeU);
    EQUAL(__funnelshift_r(low, high, 20), 0x3456789aU);
    EQUAL(__funnelshift_r(low, high, 36), 0x789abcdeU);
    EQUAL(__umulhi(~0U, ~0U), 0xfffffffeU);
    EQUAL(__umulhi(0x80000000U, 2), 1);
    EQUAL(__mulhi(-1, 1), -1);
    EQUAL(__mulhi(INT_MIN, INT_MIN), 0x40000000);
    EQUAL(__umul64hi(~0ULL, ~0ULL), ~0ULL - 1);
    EQUAL(__umul64hi(1ULL << 63, 6), 3);
}

static void four_bytes(void)
{
    EQUAL(__vcmpeq4(0x11223344U, 0x11003300U), 0xff00ff00U);
    EQUAL(__vcmpeq4(0x01ff0080U, 0x01ff0080U), 0xffffffffU);
    EQUAL(__vcmpne4(0x11223344U, 0x11003344U), 0x00ff0000U);
    const unsigned a = 0x017f80ffU, b = 0x027f7f00U; /* 1, 127, 128, 255 and 2, 127, 127, 0 */
    EQUAL(__vcmpltu4(a, b), 0xff000000U);
    EQUAL(__vcmpleu4(a, b), 0xffff0000U);
    EQUAL(__vcmpgtu4(a, b), 0x0000ffffU);
    EQUAL(__vcmpgeu4(a, b), 0x00ffffffU);
    EQUAL(__vseteq4(a, b), 0x00010000U);
    EQUAL(__vsetne4(a, b), 0x01000101U);
    EQUAL(__vadd4(0xff01807fU, 0x01ff8001U), 0x00000080U); /* no carry into the next byte */
    EQUAL(__vsub4(0x00010280U, 0x01010101U), 0xff00017fU);
    EQUAL(__vminu4(0x01ff807fU, 0x02fe7f80U), 0x01fe7f7fU);
    EQUAL(__vmaxu4(0x01ff807fU, 0x02fe7f80U), 0x02ff8080U);
    EQUAL(__vmins4(0x01ff807fU, 0x02fe7f80U), 0x01fe8080U);
    EQUAL(__vmaxs4(0x01ff807fU, 0x02fe7f80U), 0x02ff7f7fU);
}

static void least_and_most(void)
{
    EQUAL(max(-1, 1), 1);
    EQUAL(min(-1, 1), -1);
    EQUAL(max(-1, 1U), ~0U); /* one signed, one unsigned: both are converted to unsigned */
    EQUAL(min(1U, -1), 1);
    EQUAL(max(1LL << 40, 7LL), 1LL << 40);
    EQUAL_FLOAT(min(NAN, 1.0F), 0x3f800000U); /* a NaN is ignored */
    EQUAL_FLOAT(max(1.0F, NAN), 0x3f800000U);
}

static void roundings(void)
{
    EQUAL(__float_as_uint(1.0F), 0x3f800000U);
    EQUAL(__float_as_int(-2.0F), (int)0xc0000000U);
    EQUAL_FLOAT(__uint_as_float(0x40490fdbU), 0x40490fdbU);
    EQUAL_FLOAT(__int_as_float(0x7f800000), 0x7f800000U);
    EQUAL(__double_as_longlong(1.0), 0x3ff0000000000000);
    EQUAL(__double_as_longlong(__longlong_as_double(0x400921fb54442d18)), 0x400921fb54442d18);
    EQUAL_FLOAT(__fadd_rn(1.0F, 0x1p-24F), 0x3f800000U);            /* a tie goes to even */
    EQUAL_FLOAT(__fadd_rn(1.0F + 0x1p-23F, 0x1p-24F), 0x3f800002U); /* a tie goes to even */
    EQUAL_FLOAT(__fsub_rn(1.0F, 0x1p-25F), 0x3f800000U);
    EQUAL_FLOAT(__fmul_rn(1.0F + 0x1p-12F, 1.0F + 0x1p-12F), 0x3f801000U);
    EQUAL_FLOAT(__fmaf_rn(1.0F + 0x1p-12F, 1.0F + 0x1p-12F, -1.0F - 0x1p-11F), 0x33800000U); /* 2^-24 */
    EQUAL_FLOAT(__fdiv_rn(1.0F, 3.0F), 0x3eaaaaabU);
    EQUAL_FLOAT(__frcp_rn(3.0F), 0x3eaaaaabU);
    EQUAL_FLOAT(__fsqrt_rn(2.0F), 0x3fb504f3U);
    EQUAL(__double_as_longlong(__fma_rn(1.0 + 0x1p-27, 1.0 + 0x1p-27, -1.0 - 0x1p-26)), 0x3c90000000000000);
    EQUAL(__double_as_longlong(__dsqrt_rn(2.0)), 0x3ff6a09e667f3bcd);
    EQUAL(__double_as_longlong(__ddiv_rn(1.0, 3.0)), 0x3fd5555555555555);
}

/* A value out of range gives the nearest end, a NaN gives 0. */
static void conversions(void)
{
    EQUAL(__float2int_rn(2.5F), 2);
    EQUAL(__float2int_rn(3.5F), 4);
    EQUAL(__float2int_rn(-2.5F), -2);
    EQUAL(__float2int_rn(3e9F), INT_MAX);
    EQUAL(__float2int_rn(-3e9F), INT_MIN);
    EQUAL(__float2int_rn(NAN), 0);
    EQUAL(__float2int_rz(-2.75F), -2);
    EQUAL(__float2int_rd(-2.25F), -3);
    EQUAL(__float2uint_rn(1.5F), 2);
    EQUAL(__float2uint_rn(-1.0F), 0);
    EQUAL(__float2uint_rn(5e9F), UINT_MAX);
    EQUAL(__float2uint_rn(NAN), 0);
    EQUAL(__float2uint_rz(2.75F), 2);
    EQUAL_FLOAT(__int2float_rn(16777217), 0x4b800000U); /* 2^24 + 1: a tie */
    EQUAL_FLOAT(__uint2float_rn(UINT_MAX), 0x4f800000U);
    EQUAL_FLOAT(__ull2float_rn(1ULL << 40 | 1), 0x53800000U);
    EQUAL_FLOAT(__double2float_rn(1.0 + 0x1p-25), 0x3f800000U);
    EQUAL(__double_as_longlong(__uint2double_rn(UINT_MAX)), 0x41efffffffe00000);
}

int main(void)
{
    static const struct {
        const char *what;
        void (*run)(void);
    } tests[] = {{"bits", bits},
                 {"words and their bytes", words},
                 {"four bytes in a word", four_bytes},
                 {"the least and the most", least_and_most},
                 {"roundings", roundings},
                 {"conversions", conversions}};
    int failed = 0;
    for (const auto &test : tests) {
        failures = 0;
        test.run();
        printf("%sok - %s\n", failures > 0 ? "not " : "", test.what);
        failed += failures > 0;
    }
    return failed > 0;
}

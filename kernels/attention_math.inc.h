/*
 * The functions of one number that attention needs, for CPUs and GPUs: 2^x; log2 of a sum of weights; SiLU's gate.
 */

#define ATT_LOG2E  1.44269504F
#define ATT_HIDDEN (-3e38F) /* added to the score of a key that the query does not see */

enum {
    ATT_HELD = sizeof(v16) / sizeof(float)
}; /* lanes that one thread holds: on a GPU four of the sixteen */
#define ATT_ALIGNED __attribute__((aligned(16)))

/* 2^x for -100 <= x < 128, relative error < 3e-7; below -100 as -100, so that products with the result are
 * no denormal numbers, which are slow; NaN stays NaN. */
LANES_INLINE v16 att_exp2(v16 x)
{
    v16 round = v16_set1(12582912.0F), least = v16_set1(-100.0F);
    v16 k = v16_sub(v16_add(v16_max(x, least), round), round); /* a NaN becomes -100 */
    v16 r = v16_sub(v16_max(least, x), k);                     /* a NaN stays */
    v16 p = v16_set1(0.00133813025F);
    p = v16_fma(p, r, v16_set1(0.00966636852F));
    p = v16_fma(p, r, v16_set1(0.0555038101F));
    p = v16_fma(p, r, v16_set1(0.24022349F));
    p = v16_fma(p, r, v16_set1(0.693147181F));
    p = v16_fma(p, r, v16_set1(1.0F));
    return v16_ldexp(p, k);
}

/* log2(x) for x >= 1: x = 2^e f with f in [2/3, 4/3), log2(f) by the series of atanh((f - 1) / (f + 1)) up to
 * the ninth power; error < 2e-7 + 1e-7 e. NaN and infinity become NaN, whose sign the exponent would show. */
LANES_INLINE v16 softmax_log2(v16 x)
{
    float bits_of[ATT_HELD] ATT_ALIGNED, exponents[ATT_HELD] ATT_ALIGNED;
    v16_store(bits_of, x);
    for (size_t l = 0; l < ATT_HELD; l++) {
        uint32_t bits;
        memcpy(&bits, &bits_of[l], sizeof(bits));
        uint32_t exponent = (bits - 0x3f2aaaabU) >> 23; /* 0x3f2aaaab: 2/3 */
        bits -= exponent << 23;
        exponents[l] = (float)(int32_t)exponent;
        memcpy(&bits_of[l], &bits, sizeof(bits));
    }
    v16 f = v16_load(bits_of), one = v16_set1(1.0F);
    v16 z = v16_div(v16_sub(f, one), v16_add(f, one)), z2 = v16_mul(z, z);
    v16 p = v16_set1(0.320598898F); /* 2 / (9 ln 2) */
    p = v16_fma(p, z2, v16_set1(0.412198583F));
    p = v16_fma(p, z2, v16_set1(0.577078016F));
    p = v16_fma(p, z2, v16_set1(0.961796694F));
    p = v16_fma(p, z2, v16_set1(2.88539008F));
    return v16_fma(p, z, v16_add(v16_load(exponents), v16_sub(x, x)));
}

/* 1 / (1 + e^-s) */
LANES_INLINE v16 silu_gate(v16 s)
{
    v16 x = v16_mul(s, v16_set1(-1.44269504F)), most = v16_set1(126.0F), one = v16_set1(1.0F);
    return v16_div(one, v16_add(one, att_exp2(v16_min(most, x)))); /* a NaN stays */
}

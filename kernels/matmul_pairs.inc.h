/*
 * Pairs of bf16 numbers for matmul (batch_matmul.inc.h). One instruction of some CPUs adds two products of
 * bf16 numbers to a sum (v16_fma_pairs): the bits of two fma, except that denormals count as 0. So the
 * operands are checked first: if the product of the smallest magnitudes' last bits is a normal float, no
 * denormal can occur.
 */

#if defined(KERNELS_LANES_AVX512)
enum { HAS_PAIRS = 1 };
static bool cpu_has_pairs(void)
{
    return __builtin_cpu_supports("avx512bf16");
}
#else
enum { HAS_PAIRS = 0 };
static bool cpu_has_pairs(void)
{
    return false;
}
#endif

/* in_pairs: v16_fma_pairs, else v16_fma. */
LANES_INLINE v16 multiply_add(v16 a, v16 b, v16 c, bool in_pairs)
{
#if defined(KERNELS_LANES_AVX512)
    if (in_pairs)
        return v16_fma_pairs(a, b, c);
#endif
    (void)in_pairs;
    return v16_fma(a, b, c);
}

/* --- Whether pairs can be used --- */

/* The least magnitude above 0 and the largest, as bits of floats; 0: there is none. */
struct matmul_range {
    uint32_t least, most;
};

enum {
    EXPONENT_NORMAL = 1,
    EXPONENT_BIAS = 127,
    EXPONENT_NOT_FINITE = 255,
    BITS_OF_BF16 = 7,
    BITS_OF_FLOAT = 23
};

static struct matmul_range range_of(const float *x, size_t rows, size_t columns, size_t stride)
{
    uint32_t least = UINT32_MAX, most = 0; /* least magnitude less 1: 0 wraps to the largest */
    for (size_t r = 0; r < rows; r++, x += stride) {
        for (size_t i = 0; i < columns; i++) {
            uint32_t magnitude = float_bits(x[i]) & 0x7fffffffU;
            least = magnitude - 1 < least ? magnitude - 1 : least;
            most = magnitude > most ? magnitude : most;
        }
    }
    return (struct matmul_range){least + 1, most};
}

/* The exponent of the least magnitude; EXPONENT_NOT_FINITE if all numbers are 0. */
static int least_exponent(const struct matmul_range *range)
{
    return range->most > 0 ? (int)(range->least >> BITS_OF_FLOAT) : EXPONENT_NOT_FINITE;
}

/* Whether this product can use pairs. Strides: of a, b and c in memory. */
static bool takes_pairs(const struct batch_matmul *a, size_t a_stride, size_t b_stride, size_t c_stride)
{
    if (!HAS_PAIRS || a->precision != ROW_BF16 || !cpu_has_pairs())
        return false;
    bool turns_a = a->a_is_transposed, turns_b = a->b_is_transposed;
    struct matmul_range x = range_of(a->a, turns_a ? a->k : a->m, turns_a ? a->m : a->k, a_stride);
    struct matmul_range y = range_of(a->b, turns_b ? a->n : a->k, turns_b ? a->k : a->n, b_stride);
    struct matmul_range c = {0, 0};
    if (a->adds && a->epilogue != MATMUL_MASK)
        c = range_of(a->c, a->m, a->n, c_stride);
    int product = least_exponent(&x) + least_exponent(&y) - EXPONENT_BIAS - 2 * BITS_OF_BF16;
    bool are_finite = (x.most | y.most) >> BITS_OF_FLOAT < EXPONENT_NOT_FINITE - 1 && /* when rounded, too */
                      c.most >> BITS_OF_FLOAT < EXPONENT_NOT_FINITE;
    return are_finite && least_exponent(&x) >= EXPONENT_NORMAL && least_exponent(&y) >= EXPONENT_NORMAL &&
           product >= EXPONENT_NORMAL && least_exponent(&c) - BITS_OF_FLOAT >= EXPONENT_NORMAL;
}

/* --- Packing --- */

/* Rounds to nearest even bf16, in the upper half of the result; for normal numbers and 0 only. */
LANES_INLINE uint32_t round_upper(uint32_t bits)
{
    return bits + 0x7fffU + (bits >> 16 & 1U);
}

/* Panels of floats, [p][width], become panels of rounded pairs, [p / 2][width], in place; the element of the
 * even p is in the upper half. width is a constant. With an odd depth the last pair's lower half is
 * `none`. */
LANES_INLINE void pair_panels(float *out, size_t width, size_t count, size_t depth, float none)
{
    const float *from = out;
    for (size_t i = 0; i < count; i += width, from += width * depth) {
        for (size_t p = 0; p < depth; p += 2, out += width) {
            uint32_t first[TILE_LANES], second[TILE_LANES];
            memcpy(first, from + p * width, width * sizeof(*first));
            for (size_t l = 0; l < width; l++)
                second[l] = float_bits(none);
            if (p + 1 < depth)
                memcpy(second, from + (p + 1) * width, width * sizeof(*second));
            for (size_t l = 0; l < width; l++)
                first[l] = (round_upper(first[l]) & 0xffff0000U) | round_upper(second[l]) >> 16;
            memcpy(out, first, width * sizeof(*first));
        }
    }
}

/* The padding changes no sum: -0 in a row times 0 in a lane is -0. */
static void pair_rows(float *out, size_t count, size_t depth)
{
    pair_panels(out, TILE_ROWS, count, depth, -0.0F);
}

static void pair_lanes(float *out, size_t count, size_t depth)
{
    pair_panels(out, TILE_LANES, count, depth, 0.0F);
}

/*
 * round, widen, quantize and check of batch.h. The arithmetic of one number is in rounding.h; here blocks
 * have a constant length and each step is a loop over the block, so that the compiler can vectorize it.
 */
#include "kernels/rounding.h"

#include <assert.h>

enum { ROUND_BLOCK = 64 };

/* Rounds n numbers, a constant multiple of sixteen; i, the element number of x[0], is a multiple of four. */
LANES_INLINE void round_block(uint16_t *restrict out, const float *restrict x, size_t n,
                              enum row_format format, bool is_nearest, uint64_t begin, uint64_t i)
{
    uint64_t words[ROUND_BLOCK / 4] = {0};
    uint16_t random[ROUND_BLOCK];
    for (size_t k = 0; k < n / 4 && !is_nearest; k++)
        words[k] = rounding_word(begin, i / 4 + k);
    static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "bits 16 (i % 4) of a word are its i-th half");
    memcpy(random, words, n * sizeof(*random));
    for (size_t k = 0; k < n; k++)
        out[k] = format == ROW_BF16 ? bf16_of(float_bits(x[k]), random[k], is_nearest)
                                    : fp16_of(float_bits(x[k]), random[k], is_nearest);
}

LANES_INLINE void round_format(uint16_t *out, const float *x, size_t n, enum row_format format,
                               bool is_nearest, uint64_t begin)
{
    size_t i = 0;
    for (; i + ROUND_BLOCK <= n; i += ROUND_BLOCK)
        round_block(out + i, x + i, ROUND_BLOCK, format, is_nearest, begin, i);
    for (; i + 16 <= n; i += 16)
        round_block(out + i, x + i, 16, format, is_nearest, begin, i);
    if (i == n)
        return;
    float rest[16] = {0};
    uint16_t rounded[16];
    memcpy(rest, x + i, (n - i) * sizeof(*rest));
    round_block(rounded, rest, 16, format, is_nearest, begin, i);
    memcpy(out + i, rounded, (n - i) * sizeof(*out));
}

static void round_floats(uint16_t *out, const float *x, size_t n, enum row_format format, uint64_t seed,
                         uint64_t number)
{
    uint64_t begin = rounding_begin(seed, number);
    if (format == ROW_BF16 && seed == 0)
        round_format(out, x, n, ROW_BF16, true, begin);
    else if (format == ROW_BF16)
        round_format(out, x, n, ROW_BF16, false, begin);
    else if (seed == 0)
        round_format(out, x, n, ROW_FP16, true, begin);
    else
        round_format(out, x, n, ROW_FP16, false, begin);
}

static void batch_round(struct batch_round *a, void *stream)
{
    (void)stream;
    round_floats(a->out, a->x, a->n, a->format, a->seed, a->number);
}

static void widen_floats(float *out, const uint16_t *x, size_t n, enum row_format format)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        v16_store(out + i, format == ROW_BF16 ? v16_load_bf16(x + i, 16) : v16_load_fp16(x + i, 16));
    if (i < n) {
        v16 rest = format == ROW_BF16 ? v16_load_bf16(x + i, n - i) : v16_load_fp16(x + i, n - i);
        v16_store_n(out + i, rest, n - i);
    }
}

static void batch_widen(struct batch_widen *a, void *stream)
{
    (void)stream;
    widen_floats(a->out, a->x, a->n, a->format);
}

/* The bits of the largest |x[i]|, or `largest`: bits are ordered as the magnitudes, NaN above all. */
LANES_INLINE uint32_t largest_size(const float *x, size_t n, uint32_t largest)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t size = float_bits(x[i]) & 0x7fffffffU;
        largest = size > largest ? size : largest;
    }
    return largest;
}

LANES_INLINE void int8_block(int8_t *out, const float *x, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++)
        out[i] = int8_of(x[i], scale);
}

static void batch_quantize(struct batch_quantize *a, void *stream)
{
    (void)stream;
    size_t d = a->d, stride = row_bytes(ROW_INT8, d, 0), blocks = d - d % ROUND_BLOCK;
    for (size_t r = 0; r < a->rows; r++) {
        const float *x = a->x + r * d;
        unsigned char *row = (unsigned char *)a->out + r * stride;
        uint32_t largest = 0;
        for (size_t i = 0; i < blocks; i += ROUND_BLOCK)
            largest = largest_size(x + i, ROUND_BLOCK, largest);
        if (blocks < d)
            largest = largest_size(x + blocks, d - blocks, largest);
        float scale = int8_scale(largest);
        memset(row + stride - 16, 0, 16); /* the padding; constant length: no call */
        memcpy(row, &scale, sizeof(scale));
        int8_t *bytes = (int8_t *)row + sizeof(scale);
        for (size_t i = 0; i < blocks; i += ROUND_BLOCK)
            int8_block(bytes + i, x + i, ROUND_BLOCK, scale);
        if (blocks < d)
            int8_block(bytes + blocks, x + blocks, d - blocks, scale);
    }
}

/* Sums up x - x, which is 0, or NaN if x is not finite; a NaN makes the sum NaN. */
LANES_INLINE bool floats_are_finite(const float *x, size_t n)
{
    v16 sum = v16_set1(0.0F);
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        sum = v16_add(sum, v16_sub(v16_load(x + i), v16_load(x + i)));
    if (i < n) {
        v16 rest = v16_load_n(x + i, n - i);
        sum = v16_add(sum, v16_sub(rest, rest));
    }
    return v16_sum(sum) == 0.0F;
}

static void batch_check(struct batch_check *a, void *stream)
{
    (void)stream;
    if (a->scratch == NULL) {
        a->scratch_bytes = BATCH_SCRATCH_MIN;
        return;
    }
    double total = 0.0;
    for (size_t from = 0; from < a->rows; from += BATCH_CHUNK) {
        double chunk = 0.0;
        for (size_t r = from; r < a->rows && r < from + BATCH_CHUNK; r++) {
            const float *x = a->x + r * a->d;
            float squares = sum_squares(x, a->d);
            bool is_finite = isfinite(squares) || floats_are_finite(x, a->d); /* squares may overflow */
            if (a->is_finite != NULL)
                a->is_finite[r] = is_finite;
            if (a->squares != NULL)
                a->squares[r] = squares;
            chunk += is_finite ? (double)squares : 0.0;
        }
        total += chunk;
    }
    if (a->total != NULL)
        a->total[0] = total;
}

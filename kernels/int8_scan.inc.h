/*
 * The scan of all items for the best ones: bytes of rows, their products with queries, what is above a
 * threshold, and products of floats for the few that are left. int8_scan.h tells how items lie in memory.
 *
 * Products of bytes are added as integers, so any order of sums gives the same bits. Two ways: four products
 * by one instruction where the CPU has AVX-512 VNNI; else even and odd bytes apart, as pairs of 16-bit numbers.
 */
#include "kernels/lanes_int8.h"

#if defined(KERNELS_LANES_AVX512)
static bool cpu_has_bytes(void)
{
    return __builtin_cpu_supports("avx512vnni");
}
#else
static bool cpu_has_bytes(void)
{
    return false;
}
#endif

enum {
    INT8_GROUPS_MAX = INT8_DIMS_MAX / 4,
    INT8_TILE = LANES_REGISTERS / 4,                /* queries in a tile */
    INT8_TILE_BLOCKS = LANES_REGISTERS > 8 ? 2 : 1, /* blocks in a tile */
    INT8_CHAINS = 4,                                /* sums for one query, added at the end */
};
static_assert(INT8_TILE * INT8_TILE_BLOCKS <= LANES_REGISTERS / 2,
              "a tile's sums lie in half of the registers");

static float int8_quantize(int8_t *out, const float *x, size_t d)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < d; i++) {
        uint32_t size = float_bits(x[i]) & 0x7fffffffU;
        largest = size > largest ? size : largest;
    }
    float scale = int8_scale(largest);
    for (size_t i = 0; i < d; i++)
        out[i] = int8_of(x[i], scale);
    for (size_t i = d; i < 4 * int8_groups(d); i++)
        out[i] = 0;
    return scale;
}

/* A query's bytes for all lanes, by groups of four: [groups] as they are, or [groups][2] pairs of 16-bit
 * numbers, bytes 0 and 2, then 1 and 3. */
static void int8_operands(int32_t *out, const int8_t *query, size_t groups, bool by_bytes)
{
    if (by_bytes) {
        memcpy(out, query, 4 * groups);
        return;
    }
    for (size_t g = 0; g < groups; g++, query += 4, out += 2) {
        out[0] = (int32_t)((uint16_t)query[0] | (uint32_t)(uint16_t)query[2] << 16);
        out[1] = (int32_t)((uint16_t)query[1] | (uint32_t)(uint16_t)query[3] << 16);
    }
}

/* Adds the products of group g of a block's items to their sums. */
LANES_INLINE n16 int8_add(n16 sum, n16 items, const int32_t *operands, size_t g, bool by_bytes)
{
#if defined(KERNELS_LANES_AVX512)
    if (by_bytes)
        return n16_bytes(sum, items, n16_set1(operands[g]));
#endif
    (void)by_bytes;
    sum = n16_add(sum, n16_pairs(n16_even(items), n16_set1(operands[2 * g])));
    return n16_add(sum, n16_pairs(n16_odd(items), n16_set1(operands[2 * g + 1])));
}

/* One query: memory is read in its order. */
LANES_INLINE void int8_one(int32_t *out, const uint8_t *blocks, const int32_t *query, int32_t start, size_t n,
                           size_t groups, bool by_bytes)
{
    for (size_t b = 0; b < n; b++, out += INT8_BLOCK) {
        n16 sums[INT8_CHAINS] = {n16_set1(start), n16_set1(0), n16_set1(0), n16_set1(0)};
        size_t g = 0;
        for (; g + INT8_CHAINS <= groups; g += INT8_CHAINS, blocks += (size_t)INT8_CHAINS * 64)
            for (size_t c = 0; c < INT8_CHAINS; c++)
                sums[c] = int8_add(sums[c], n16_load(blocks + c * 64), query, g + c, by_bytes);
        for (; g < groups; g++, blocks += 64)
            sums[0] = int8_add(sums[0], n16_load(blocks), query, g, by_bytes);
        n16_store(out, n16_add(n16_add(sums[0], sums[1]), n16_add(sums[2], sums[3])));
    }
}

/* A tile: `queries` and `blocks` are constants. stride: scores between queries. */
LANES_INLINE void int8_tile(int32_t *out, size_t stride, const uint8_t *block,
                            const int32_t (*query)[2 * INT8_GROUPS_MAX], const int32_t *starts, size_t groups,
                            size_t queries, size_t blocks, bool by_bytes)
{
    n16 sums[INT8_TILE][INT8_TILE_BLOCKS];
    for (size_t q = 0; q < queries; q++)
        for (size_t b = 0; b < blocks; b++)
            sums[q][b] = n16_set1(starts[q]);
    for (size_t g = 0; g < groups; g++) {
        n16 items[INT8_TILE_BLOCKS];
        for (size_t b = 0; b < blocks; b++)
            items[b] = n16_load(block + (b * groups + g) * 64);
        for (size_t q = 0; q < queries; q++)
            for (size_t b = 0; b < blocks; b++)
                sums[q][b] = int8_add(sums[q][b], items[b], query[q], g, by_bytes);
    }
    for (size_t q = 0; q < queries; q++)
        for (size_t b = 0; b < blocks; b++)
            n16_store(out + q * stride + b * INT8_BLOCK, sums[q][b]);
}

LANES_INLINE void int8_scores_by(int32_t *out, const uint8_t *blocks, const struct int8_queries *queries,
                                 size_t n, size_t d, bool by_bytes)
{
    int32_t operands[INT8_TILE][2 * INT8_GROUPS_MAX];
    size_t groups = int8_groups(d), stride = n * INT8_BLOCK, q = 0;
    const int8_t *bytes = queries->bytes;
    for (; q + INT8_TILE <= queries->count; q += INT8_TILE, out += INT8_TILE * stride) {
        for (size_t i = 0; i < INT8_TILE; i++, bytes += 4 * groups)
            int8_operands(operands[i], bytes, groups, by_bytes);
        size_t b = 0;
        for (; b + INT8_TILE_BLOCKS <= n; b += INT8_TILE_BLOCKS)
            int8_tile(out + b * INT8_BLOCK, stride, blocks + b * groups * 64, operands, queries->starts + q,
                      groups, INT8_TILE, INT8_TILE_BLOCKS, by_bytes);
        for (; b < n; b++)
            int8_tile(out + b * INT8_BLOCK, stride, blocks + b * groups * 64, operands, queries->starts + q,
                      groups, INT8_TILE, 1, by_bytes);
    }
    for (; q < queries->count; q++, out += stride, bytes += 4 * groups) {
        int8_operands(operands[0], bytes, groups, by_bytes);
        int8_one(out, blocks, operands[0], queries->starts[q], n, groups, by_bytes);
    }
}

static void int8_scores(int32_t *out, const uint8_t *blocks, const struct int8_queries *queries, size_t n,
                        size_t d)
{
    if (!queries->is_plain && cpu_has_bytes())
        int8_scores_by(out, blocks, queries, n, d, true);
    else
        int8_scores_by(out, blocks, queries, n, d, false);
}

static size_t int8_above(uint32_t *found, const int32_t *scores, const float *scales, float least, size_t n)
{
    size_t count = 0;
    v16 limit = v16_set1(least);
    for (size_t i = 0; i < n * INT8_BLOCK; i += INT8_BLOCK) {
        v16 values = v16_mul(n16_floats(n16_load(scores + i)), v16_load(scales + i));
        for (uint32_t bits = v16_greater(values, limit); bits != 0; bits &= bits - 1)
            found[count++] = (uint32_t)i + (uint32_t)__builtin_ctz(bits);
    }
    return count;
}

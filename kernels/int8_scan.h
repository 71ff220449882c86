/*
 * Items as signed bytes, and how they lie in memory for a scan of all of them (kernels int8_* of kernels.h).
 *
 * A row of d floats is a scale and d bytes: scale = largest |x| / 127, byte = x / scale to nearest even
 * (kernels/rounding.h), so bytes are in -127..127 and byte -x is minus byte x. A row of zeros, or one whose
 * scale would be below 2^-126, has scale 0 and bytes 0. Scale and bytes of a row with a NaN or an infinity mean
 * nothing: callers refuse such rows.
 *
 * Sixteen items are a block: their bytes, four dims at a time, with 128 added so that they are unsigned. Byte
 * 64 g + 4 l + j of a block is dim 4 g + j of item l, so that one load has four dims of all sixteen, and a
 * sum needs no shuffles: lane l of a vector is item l. Dims from d on have any bytes: a query has 0 there.
 */
#ifndef LEAT_KERNELS_INT8_SCAN_H
#define LEAT_KERNELS_INT8_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    INT8_BLOCK = 16,       /* items in a block */
    INT8_DIMS_MAX = 256,   /* most dims; 256 * 255 * 127 is far from the limit of int32 */
    INT8_QUERIES_MAX = 64, /* most queries of a call */
    INT8_BIAS = 128,       /* what is added to the bytes of a block */
};

/* The queries of one scan. */
struct int8_queries {
    const int8_t *bytes;   /* [count][4 * int8_groups(d)] as int8_quantize writes them */
    const int32_t *starts; /* [count] int8_start of each */
    size_t count;          /* 0..INT8_QUERIES_MAX */
    /* Takes no instructions beyond those that the variant requires; the same bits. For tests. */
    bool is_plain;
};

/* Groups of four dims. */
static inline size_t int8_groups(size_t d)
{
    return (d + 3) / 4;
}

static inline size_t int8_block_bytes(size_t d)
{
    return int8_groups(d) * 4 * INT8_BLOCK;
}

/* Minus what the bias adds to an item's product with this query. */
static inline int32_t int8_start(const int8_t *query, size_t d)
{
    int32_t sum = 0;
    for (size_t i = 0; i < d; i++)
        sum += query[i];
    return -INT8_BIAS * sum;
}

/* Writes an item's d bytes to its lane, 0..15, of a block. */
static inline void int8_block_put(uint8_t *block, size_t lane, const int8_t *row, size_t d)
{
    for (size_t i = 0; i < d; i++)
        block[i / 4 * 4 * INT8_BLOCK + lane * 4 + i % 4] = (uint8_t)(row[i] + INT8_BIAS);
}

#endif

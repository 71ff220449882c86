/*
 * Dropout by a hash instead of a generator: whether a place of a matrix is kept depends on (seed, record,
 * part) and the place's row and column alone. So the backward pass recomputes the mask instead of storing
 * it, and neither the order of the work nor the number of threads matters. Pure functions, any thread.
 *
 *   key    = num_chance(seed, record, part): seed: the model's seed and the step, mixed by the caller; record:
 *            the identity of the record; part: which of the record's matrices, for example layer * heads + head
 *   row    = the lower half of mix(key + row)                   mix = num_mix
 *   column = the upper half of mix(~key + column)
 *   bits   = hash(row ^ column), 32 bits: hash is lowbias32 (Wellons 2018), a bijection
 *   kept   = bits >= limit, limit = rate * 2^32
 *
 * In attention the record is the event, the part is the head, rows are queries and columns are keys, both by
 * position in the event's window.
 */
#ifndef LEAT_KERNELS_DROPOUT_H
#define LEAT_KERNELS_DROPOUT_H

#include "kernels/num.h"

static inline KERNELS_BOTH uint32_t dropout_row(uint64_t key, uint64_t row)
{
    return (uint32_t)num_mix(key + row);
}

static inline KERNELS_BOTH uint32_t dropout_column(uint64_t key, uint64_t column)
{
    return (uint32_t)(num_mix(~key + column) >> 32);
}

/* The place's 32 random bits, from its dropout_row and dropout_column. */
static inline KERNELS_BOTH uint32_t dropout_bits(uint32_t row, uint32_t column)
{
    uint32_t x = row ^ column;
    x = (x ^ (x >> 16)) * 0x7feb352dU;
    x = (x ^ (x >> 15)) * 0x846ca68bU;
    return x ^ (x >> 16);
}

/* A place is kept if its bits are not below this limit. rate: in [0, 1), the share that is dropped. */
static inline KERNELS_BOTH uint32_t dropout_limit(float rate)
{
    return (uint32_t)((double)rate * 0x1p32);
}

#endif

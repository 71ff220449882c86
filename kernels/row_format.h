/* Formats of floats: those of a table's rows, and those in which products take their operands. */
#ifndef LEAT_KERNELS_ROW_FORMAT_H
#define LEAT_KERNELS_ROW_FORMAT_H

#include "kernels/num.h"

#include <stddef.h>

/* How a row's weights are stored. The optimizer's state behind them is always float. */
enum row_format {
    ROW_FP32,
    ROW_BF16,
    ROW_FP16,
    ROW_INT8, /* one float, the scale, then a signed byte a weight: w = scale * byte; read only (serving) */
    ROW_FORMATS
};

/* Bytes of d weights, rounded up to a multiple of 16: the offset of the optimizer's state in a row. */
static inline KERNELS_BOTH size_t row_weight_bytes(enum row_format format, size_t d)
{
    size_t bytes = format == ROW_FP32 ? 4 * d : format == ROW_INT8 ? 4 + d : 2 * d;
    return (bytes + 15) / 16 * 16;
}

/* Bytes of a row's weights and state, each rounded up to a multiple of 16: the least stride of rows. */
static inline KERNELS_BOTH size_t row_bytes(enum row_format format, size_t d, size_t state_floats)
{
    return row_weight_bytes(format, d) + (4 * state_floats + 15) / 16 * 16;
}

#endif

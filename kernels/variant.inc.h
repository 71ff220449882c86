/*
 * Everything a variant consists of, included once by each variant_*.c, which names its lanes
 * (KERNELS_LANES_...) and its table (VARIANT_TABLE, VARIANT_NAME) first.
 */
#include "kernels/kernels.h"
#include "kernels/lanes.h"

#include "kernels/pool.inc.h"

#include "kernels/fm.inc.h"

#include "kernels/optimizer.inc.h"

#include "kernels/adagrad_block.inc.h"

#include "kernels/linear.inc.h"

#include "kernels/dense.inc.h"

extern const struct kernels VARIANT_TABLE;
const struct kernels VARIANT_TABLE = {
    .name = VARIANT_NAME,
#define KERNEL(type, fn, args, tolerance, class, bytes, flops) .fn = fn,
#include "kernels/kernels.def"
};

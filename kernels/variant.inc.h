/*
 * Everything a variant consists of, included once by each variant_*.c, which names its lanes
 * (KERNELS_LANES_...) and its tables (VARIANT_TABLE, BATCH_TABLE, VARIANT_NAME) first. Kernels over a whole
 * batch are static functions batch_<name>.
 */
#include "kernels/batch.h"
#include "kernels/lanes.h"

#include "kernels/pool.inc.h"

#include "kernels/fm.inc.h"

#include "kernels/optimizer.inc.h"

#include "kernels/adagrad_block.inc.h"

#include "kernels/linear.inc.h"

#include "kernels/dense.inc.h"

#include "kernels/batch_interaction.inc.h"

extern const struct kernels VARIANT_TABLE;
const struct kernels VARIANT_TABLE = {
    .name = VARIANT_NAME,
#define KERNEL(type, fn, args, tolerance, class, bytes, flops) .fn = fn,
#include "kernels/kernels.def"
};

#include "kernels/batch_dedupe.inc.h"

#include "kernels/batch_gather.inc.h"

#include "kernels/batch_segments.inc.h"

#include "kernels/batch_round.inc.h"

#include "kernels/batch_update.inc.h"

/* Each kernel's line stands in the order of kernels.def. */
extern const struct batch_kernels BATCH_TABLE;
const struct batch_kernels BATCH_TABLE = {
    .name = VARIANT_NAME,
    .dedupe = batch_dedupe,
    .gather_pool = batch_gather_pool,
    .segment_reduce = batch_segment_reduce,
    .update = batch_update,
    .fm = batch_fm,
    .ffm = batch_ffm,
    .round = batch_round,
    .widen = batch_widen,
    .quantize = batch_quantize,
    .check = batch_check,
};

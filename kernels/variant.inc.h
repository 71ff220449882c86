/*
 * All code of a variant. Each variant_*.c defines its lanes (KERNELS_LANES_...) and the names of its tables
 * (VARIANT_TABLE, BATCH_TABLE, VARIANT_NAME), then includes this file once. Kernels over a whole batch are
 * static functions batch_<name>.
 */
#include "kernels/attention.h"
#include "kernels/attention_pages.h"
#include "kernels/batch.h"
#include "kernels/dropout.h"
#include "kernels/lanes.h"

#include "kernels/pool.inc.h"

#include "kernels/fm.inc.h"

#include "kernels/optimizer.inc.h"

#include "kernels/adagrad_block.inc.h"

#include "kernels/linear.inc.h"

#include "kernels/dense.inc.h"

#include "kernels/norm.inc.h"

#include "kernels/gates.inc.h"

#include "kernels/activation.inc.h"

#include "kernels/softmax.inc.h"

#include "kernels/attention_math.inc.h"

#include "kernels/attention_tile.inc.h"

#include "kernels/attention_silu.inc.h"
#include "kernels/attention_softmax.inc.h"

#include "kernels/attention_pages.inc.h"

#include "kernels/int8_scan.inc.h"

#include "kernels/batch_interaction.inc.h"

extern const struct kernels VARIANT_TABLE;
const struct kernels VARIANT_TABLE = {
    .name = VARIANT_NAME,
#define KERNEL(type, fn, args, bytes, flops) .fn = fn,
#include "kernels/kernels.def"
};

#include "kernels/batch_dedupe.inc.h"

#include "kernels/batch_gather.inc.h"

#include "kernels/batch_segments.inc.h"

#include "kernels/batch_round.inc.h"

#include "kernels/batch_update.inc.h"

#include "kernels/batch_matmul.inc.h"

#include "kernels/batch_pack.inc.h"
#include "kernels/batch_params.inc.h"

#include "kernels/batch_net.inc.h"

#include "kernels/batch_dot.inc.h"
#include "kernels/batch_products.inc.h"

#include "kernels/batch_mixture.inc.h"
#include "kernels/batch_weights.inc.h"

#include "kernels/batch_loss.inc.h"

#include "kernels/batch_sequence.inc.h"

extern const struct batch_kernels BATCH_TABLE;
const struct batch_kernels BATCH_TABLE = {
    .name = VARIANT_NAME,
#define BATCH(kernel, args, tolerance, bytes, flops) .kernel = batch_##kernel,
#include "kernels/kernels.def"
};

/*
 * Kernels over a whole batch: the parts of a training step that does not go event by event. One contract for
 * all variants: scalar, AVX2 and AVX-512 (batch_*.inc.h, compiled three times) and CUDA (cuda/). They are the
 * rows of kernels.def that say BATCH. All variants write the same bits, on a GPU as well; only a row with a
 * tolerance above 0 may differ on a GPU.
 *
 * A kernel's result depends on its arguments alone. With CPU variants all pointers are to host memory,
 * `stream` is NULL and the work is done at return. With CUDA the pointers are to device memory, and the work
 * is done when the stream has reached it; the argument struct itself lies on the host and may be freed after
 * the call. `count` is computed by an earlier kernel of the step and read from device memory by the later
 * kernels, so that a step needs no wait in between and can be captured as a graph; `n` is then the capacity,
 * known to the host. All memory is the caller's. Threads: any for CPU variants; for CUDA as gpu.h says.
 *
 * Scratch memory: a kernel called with scratch = NULL sets scratch_bytes to the bytes it needs for these n,
 * at least BATCH_SCRATCH_MIN, and does nothing else; a smaller n needs no more. Scratch memory is aligned to
 * 64 bytes on a CPU, to 256 on a GPU.
 *
 * Pointers: rows and matrices of floats are aligned to 16 bytes on a GPU, to their elements on a CPU; no
 * output overlaps an input unless said so. d: a multiple of 4, up to BATCH_DIM_MAX. n may be 0. A device's
 * failure is sticky: every later gpu_api.wait reports it (gpu.h).
 *
 * Words: a place is a position in the batch's list of ids; an index (dense index) is the position of a
 * distinct id, numbered by first occurrence; a bag is the list of places that one field of one event has.
 */
#ifndef LEAT_KERNELS_BATCH_H
#define LEAT_KERNELS_BATCH_H

#include "kernels/attention.h"
#include "kernels/kernels.h"
#include "kernels/num.h"
#include "kernels/row_format.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sums over the places of one index: chunks of BATCH_CHUNK places in order, then their sums in order. */
enum {
    BATCH_DIM_MAX = 512,
    BATCH_FIELDS_MAX = 64,
    BATCH_TABLES_MAX = 256,
    BATCH_CHUNK = 128,
    BATCH_SCRATCH_MIN = 256,
};

#define BATCH_NONE UINT32_MAX

#include "kernels/slices.h"

/*
 * dedupe: the distinct ids of a batch. ids[n] are grouped by table: the ids of table t lie from tables[t] up
 * to tables[t + 1] (tables_count + 1 offsets, in the same kind of memory as ids, from 0 to n). id 0 means
 * absent, and is used as padding. The same id in two tables counts as two ids. n < 2^31. Distinct ids get
 * indices from 0 in the order of their first places.
 *
 *   count[1]                        m, the number of distinct ids
 *   indices[n]                      by place: the index of its id, BATCH_NONE if absent
 *   unique_ids[n], unique_tables[n] by index: its id and table; m filled
 *   order[n]                        places sorted by (index, place): index u has order[starts[u]] up to
 *   starts[n + 1]                   order[starts[u + 1]]; m + 1 filled; absent places are not listed
 *
 * On a CPU, order may be NULL: then order and starts are not written. Also on a CPU, with DEDUPE_HASH, the
 * ids of one table may come in several calls (parts), of `room` places in all; scratch has the size asked for
 * with n = room. The first part has before = 0; each later part has before = count[0], `indices` pointing
 * behind the places of the part before, and unique_ids and scratch as the part before left them. order is
 * NULL in all parts. A last call with has_indices set makes order and starts of all n places from indices and
 * count.
 *
 * The contents of an output behind its filled part are undefined. method: sort or hash; the results are the
 * same.
 */
enum dedupe_method { DEDUPE_SORT, DEDUPE_HASH, DEDUPE_METHODS };
struct batch_dedupe {
    const uint64_t *ids;
    const uint32_t *tables;
    uint32_t tables_count;
    uint32_t n;
    uint32_t before, room; /* ids given in parts; 0, 0: all ids in one call */
    bool has_indices;
    enum dedupe_method method;
    uint32_t *count, *indices;
    uint64_t *unique_ids;
    uint32_t *unique_tables;
    uint32_t *order, *starts;
    void *scratch;
    size_t scratch_bytes;
};

/*
 * gather_pool: out[b][d] = sum (or mean) of the weights of rows[i], i from offsets[b] up to offsets[b + 1],
 * in order; b < bags. rows[i] NULL adds zeros, and is counted in the mean's divisor. offsets NULL: one row a
 * bag. An empty bag gives zeros. With `indices`, place i has the row rows[indices[i]] (BATCH_NONE: no row).
 * fields > 0: bags lie field after field, in the order in which dedupe takes ids, with n = bags / fields
 * events; bag f * n + e goes to out[e * stride + f * d], so that each event gets one row (stride: floats
 * between events; 0: fields * d).
 */
struct batch_gather_pool {
    const void *const *rows;
    const uint32_t *indices; /* or NULL */
    const uint32_t *offsets; /* [bags + 1] or NULL */
    uint32_t bags, d;
    uint32_t fields, stride;
    enum row_format format;
    bool is_mean;
    float *out;
};

/*
 * segment_reduce: sums[u][d] = sum over the places p of index u (order and starts as dedupe writes them) of
 * scales[p] * grads[bag[p]][d], u < *count: chunks of BATCH_CHUNK places, each in order from 0 (fmaf(scale,
 * grad, sum)), then the chunks' sums in order. bag NULL: the bag of p is p. scales NULL: 1. On a CPU d may be
 * any, and starts may point behind dedupe's first index: the places of index 0 of the call begin at
 * starts[0].
 *
 * unit > 0: the gradient of bag[p] begins at grads + bag[p] * unit instead of bag[p] * d (unit is a multiple
 * of 4 on a GPU), so that gradients may lie in the rows of a matrix.
 *
 * slices.count > 1: an index's places are divided by the slices of their events, event[p] (event NULL: p), which
 * rise in the order of places. Each part is summed as above, the parts' sums by the tree of slices.h. more (CPU only; may
 * be NULL): more[more_at[p]][d] is added to a part's sum, p being its first place; without slices an index is
 * one part.
 */
struct batch_segments {
    const float *grads;
    const uint32_t *bag;
    const float *scales;
    const uint32_t *order, *starts, *count;
    uint32_t n; /* an upper bound of the places, and of the indices */
    uint32_t d;
    uint32_t unit;
    const uint32_t *event;
    struct batch_slices slices;
    const float *more;
    const uint32_t *more_at; /* [places] */
};
struct batch_segment_reduce {
    struct batch_segments in;
    float *sums;
    void *scratch;
    size_t scratch_bytes;
};

/*
 * update: each row rows[u], u < *count, makes one step of the optimizer `kind` (kernels.h, opt_*). Its
 * gradient is the sum that segment_reduce would give, which is not written to memory. rows[u] NULL is
 * skipped. The state lies at row_weight_bytes(format, d). Rows of bf16 and fp16: weights are widened, the
 * step is made in float, and the weights are rounded by batch_round's rule with seed and number = keys[u],
 * the row's key (format fp32: keys may be NULL). A row whose gradient is not finite does not change, and adds
 * one to rejected[0] (rejected may be NULL). All rows are distinct.
 */
struct batch_update {
    struct batch_segments in;
    void *const *rows;
    const uint64_t *keys;
    enum row_format format; /* not ROW_INT8 */
    enum opt_kind kind;     /* not OPT_NEWTON */
    struct opt_params params;
    uint64_t seed;
    uint32_t *rejected;
    void *scratch;
    size_t scratch_bytes;
};

/*
 * fm: vectors[b][fields][d] -> logits[b]; with grads, grads[b][fields][d] = logit_gradients[b] * (sum -
 * vector). ffm: the same with vectors[b][fields][d * FFM_ROUND(fields)]; the gradient is logit_gradients[b]
 * times the partners. Zero partners (a field's own block, and blocks from `fields` on) are multiplied, too,
 * because 0 * NaN is NaN. logit_gradients[b]: gradient of the loss by logits[b]. Arithmetic: fm_forward,
 * fm_backward and ffm_forward of kernels.h.
 *
 * logits NULL: backward alone, which computes the sums again. grads NULL: forward alone; logit_gradients are
 * not read. Both: one pass over the vectors, for logit_gradients that are known before (so they cannot be the
 * derivatives of the loss of these logits). fields: 1 up to BATCH_FIELDS_MAX. grads does not overlap vectors.
 * stride, grads_stride: floats between bags (0: the floats of a bag). adds: gradients are added to grads,
 * logits to logits. ffm of 61 fields and more needs 65 KiB of shared memory per block on a GPU.
 */
struct batch_interaction {
    const float *vectors;
    uint32_t bags, fields, d;
    float *logits;
    const float *logit_gradients;
    float *grads;
    uint32_t stride, grads_stride;
    bool adds;
};

/*
 * round: out[i] = x[i] in bf16 or fp16, on the format's own grid, denormals included. seed 0: to nearest
 * even. Any other seed: stochastically, up or down to a neighbour, up with a probability of x's distance from
 * the lower neighbour in grid steps. Rule: |x| in grid steps, truncated to sixteen binary digits behind the
 * point, plus r / 2^16, is truncated to a whole number of steps. r is sixteen random bits of element i: bits
 * 16 * (i % 4) and up of word i / 4 of splitmix64 started at num_mix(seed ^ num_mix(number)) (rounding.h).
 * Numbers on the grid do not change; |out - x| < one step; the expectation of out over seeds is x, exactly in
 * bf16, and in fp16 from 2^-17 on; below 2^-17 the expectation is nearer to 0 than x, by less than 2^-40.
 * With both ways of rounding a finite number beyond the range becomes the largest finite one, infinity stays,
 * and every NaN becomes 0x7fc0 or 0x7e00.
 *
 * widen: bf16 or fp16 to float, exact. x and out are aligned to 16 bytes on a GPU.
 */
struct batch_round {
    const float *x;
    uint64_t n;
    enum row_format format; /* ROW_BF16 or ROW_FP16 */
    uint64_t seed, number;
    uint16_t *out;
};
struct batch_widen {
    const uint16_t *x;
    uint64_t n;
    enum row_format format;
    float *out;
};

/*
 * quantize: row u of x[rows][d] -> out + u * row_bytes(ROW_INT8, d, 0): scale = largest |w| / 127, byte = w /
 * scale to nearest even, zeros up to the next row. |w - scale * byte| <= scale / 2, apart from the rounding
 * of the division, 2^-17 of that. A scale below 2^-126 becomes 0, and so do the row's bytes. A row with a NaN
 * or an infinity has scale NaN and bytes 0. out has the alignment of x.
 */
struct batch_quantize {
    const float *x;
    uint32_t rows, d;
    void *out;
};

/*
 * check, over x[rows][d]: is_finite[r] = row r has no NaN and no infinity (may be NULL); squares[r] =
 * sum_squares (kernels.h) of row r (may be NULL); total[0] = the sum of sum_squares over finite rows, in
 * double, chunks of BATCH_CHUNK rows in order, then the chunks' sums in order (may be NULL).
 */
struct batch_check {
    const float *x;
    uint32_t rows, d;
    uint8_t *is_finite;
    float *squares;
    double *total;
    void *scratch;
    size_t scratch_bytes;
};

#include "kernels/batch_train.h"

#include "kernels/batch_sequence.h"

/* The kernels of one variant. */
struct batch_kernels {
    const char *name;
#define BATCH(name, args, tolerance, bytes, flops) void (*name)(struct args * a, void *stream);
#include "kernels/kernels.def"
};

/* The table of a CPU variant, NULL if this machine does not support the variant; static storage. The table of
 * CUDA is gpu_api.kernels (gpu.h). */
const struct batch_kernels *batch_variant(enum kernels_variant variant);
/* The batch kernels of the variant that `kernels`, a table of kernels_variant or kernels_pick, belongs to. */
const struct batch_kernels *batch_beside(const struct kernels *kernels);

#ifdef __cplusplus
}
#endif
#endif

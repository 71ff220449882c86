/*
 * Kernels over a whole batch: what a training step is made of where it does not go event by event. One
 * contract for all variants: scalar, AVX2 and AVX-512 (batch.inc.h, compiled three times) and CUDA (cuda/).
 * Rows of kernels.def that say BATCH; what a variant does to its arguments is bit for bit the same in each,
 * on a GPU as well.
 *
 * A variant is a function of its arguments alone. With CPU variants all pointers are to host memory, `stream`
 * is NULL and the work is done at return; with CUDA they are to device memory (the struct itself lies on the
 * host and may go after the call), and the work is done when the stream is there. Counts that an earlier
 * kernel of the step computed
 * (`count`) are read where they lie, so that a step needs no wait in between and can be captured as a graph;
 * `n` is then the room that there is, known to the host. Kernels that need scratch memory: called with
 * scratch = NULL they set scratch_bytes to what they need for these n, BATCH_SCRATCH_MIN at least, and touch
 * nothing else; any n not greater needs no more. Scratch memory is aligned to 64 bytes on a CPU, to 256 on a
 * GPU.
 *
 * Pointers: rows and matrices of floats aligned to 16 bytes on a GPU, to their elements on a CPU; no output
 * overlaps an input unless said so. d: a multiple of 4, up to BATCH_DIM_MAX. n may be 0. Failures of a device
 * are sticky and told by the next gpu_sync (gpu.h).
 */
#ifndef KERNELS_BATCH_H
#define KERNELS_BATCH_H

#include "kernels/kernels.h"
#include "kernels/num.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Places of a segment are summed in order by chunks of BATCH_CHUNK; then the chunks' sums in order. */
enum {
    BATCH_DIM_MAX = 512,
    BATCH_FIELDS_MAX = 64,
    BATCH_TABLES_MAX = 256,
    BATCH_CHUNK = 128,
    BATCH_SCRATCH_MIN = 256,
};

#define BATCH_NONE UINT32_MAX

/* How a row's weights are stored. The optimizer's state behind them is always float. */
enum row_format {
    ROW_FP32,
    ROW_BF16,
    ROW_FP16,
    ROW_INT8, /* one float, the scale, then a signed byte a weight: w = scale * byte; read only (serving) */
    ROW_FORMATS
};

/* Bytes of d weights, a multiple of 16; the optimizer's state begins there. */
static inline KERNELS_BOTH size_t row_weight_bytes(enum row_format format, size_t d)
{
    size_t bytes = format == ROW_FP32 ? 4 * d : format == ROW_INT8 ? 4 + d : 2 * d;
    return (bytes + 15) / 16 * 16;
}

/* Bytes of weights and `state_floats` of state, a multiple of 16: the least stride of rows. */
static inline KERNELS_BOTH size_t row_bytes(enum row_format format, size_t d, size_t state_floats)
{
    return row_weight_bytes(format, d) + (4 * state_floats + 15) / 16 * 16;
}

/*
 * dedupe: the distinct ids of a batch. ids[n] are grouped by table: those of table t lie from tables[t] up to
 * tables[t + 1] (tables_count + 1 offsets, in the memory of ids, from 0 to n). id 0 is absent, and padding.
 * An id of two tables is two ids. n < 2^31. Distinct ids are numbered by their first place in ids, from 0.
 *
 *   count[1]                        how many there are: m
 *   unique[n]                       of a place: its id's number, BATCH_NONE if absent
 *   unique_ids[n], unique_tables[n] of a number; m filled
 *   order[n]                        places by (number, place): those of number u are order[starts[u]] up to
 *   starts[n + 1]                   order[starts[u + 1]]; m + 1 filled; absent places are not listed
 *
 * On a CPU, order may be NULL: neither is made. And one table's ids may come in parts, by hash, of `room`
 * places in all (scratch is what is asked for with n = room): the first with before = 0, the next with before
 * = count[0], unique behind the places of the part before, unique_ids and scratch as that one has left them,
 * order NULL. At last, is_numbered: order and starts of n places are made, unique and count being there.
 *
 * What lies behind the filled part of an output is undefined. method: sort or hash; the results are the same.
 */
enum dedupe_method { DEDUPE_SORT, DEDUPE_HASH, DEDUPE_METHODS };
struct batch_dedupe {
    const uint64_t *ids;
    const uint32_t *tables;
    uint32_t tables_count;
    uint32_t n;
    uint32_t before, room; /* 0, 0: all in one */
    bool is_numbered;
    enum dedupe_method method;
    uint32_t *count, *unique;
    uint64_t *unique_ids;
    uint32_t *unique_tables;
    uint32_t *order, *starts;
    void *scratch;
    size_t scratch_bytes;
};

/*
 * gather_pool: out[b][d] = sum (or mean) of the weights of rows[i], i from offsets[b] up to offsets[b + 1],
 * in order; b < bags. rows[i] NULL counts as zeros (and for the mean's divisor). No offsets: one row a bag.
 * An empty bag is zeros. With `unique`, the row of place i is rows[unique[i]] (BATCH_NONE: NULL).
 * fields > 0: bags lie field after field, as dedupe wants ids; bag f * n + e, n = bags / fields events, goes
 * to out[e * stride + f * d]: a row an event (stride: floats between events; 0: fields * d).
 */
struct batch_gather_pool {
    const void *const *rows;
    const uint32_t *unique;  /* or NULL */
    const uint32_t *offsets; /* [bags + 1] or NULL */
    uint32_t bags, d;
    uint32_t fields, stride;
    enum row_format format;
    bool is_mean;
    float *out;
};

/*
 * segment_reduce: sums[u][d] = sum over the places p of number u (order, starts: as dedupe leaves them) of
 * scales[p] * grads[bag[p]][d]: chunks of BATCH_CHUNK places each in order from 0 (fmaf(scale, grad, sum)),
 * then the chunks' sums in order. No `bag`: p itself. No scales: 1. u < *count. On a CPU d may be any, and
 * numbers may begin behind dedupe's first: starts[0] is where their places do.
 * unit > 0: the gradient of bag[p] begins at grads + bag[p] * unit instead of bag[p] * d (a multiple of 4 on
 * a GPU), so that gradients may lie in the rows of a matrix.
 */
struct batch_segments {
    const float *grads;
    const uint32_t *bag;
    const float *scales;
    const uint32_t *order, *starts, *count;
    uint32_t n; /* places at most, and numbers at most */
    uint32_t d;
    uint32_t unit;
};
struct batch_segment_reduce {
    struct batch_segments in;
    float *sums;
    void *scratch;
    size_t scratch_bytes;
};

/*
 * update: each row rows[u], u < *count, makes one step of the optimizer `kind` (kernels.h, opt_*) with the
 * sum that segment_reduce would give as its gradient, without writing that. rows[u] NULL is passed over.
 * State lies at row_weight_bytes(format, d). Rows of bf16 and fp16: weights are read, the step is made in
 * float, and each is rounded by batch_round's rule with seed, number = key of the row: keys[u] (format fp32:
 * keys may be NULL). A row whose gradient is not finite is left as it is, and rejected[0] (may be NULL) is
 * one more for each. No two rows are the same. more[u][d] (a CPU's; NULL: none) is added to each sum.
 */
struct batch_update {
    struct batch_segments in;
    void *const *rows;
    const uint64_t *keys;
    const float *more;
    enum row_format format;
    enum opt_kind kind; /* not ROW_INT8; OPT_NEWTON takes curvature = 1 */
    struct opt_params params;
    uint64_t seed;
    uint32_t *rejected;
    void *scratch;
    size_t scratch_bytes;
};

/*
 * fm: vectors[b][fields][d] -> logits[b], and with slopes grads[b][fields][d] = slopes[b] * (sum - vector).
 * ffm: vectors[b][fields][d * FFM_ROUND(fields)] likewise; the gradient is slopes[b] times the partners,
 * zeros of a field's own block and of blocks from `fields` on included (0 * NaN is NaN). Arithmetic:
 * fm_forward, fm_backward and ffm_forward of kernels.h. logits NULL: backward alone; what it needs of the
 * sums it computes again. grads NULL: forward alone; slopes are not read then. Both: in one pass over the
 * vectors, for slopes that are known before (they are not the derivatives of these logits' loss). fields: 1
 * up to BATCH_FIELDS_MAX. grads does not overlap vectors. stride, grads_stride: floats between bags (0: as
 * many as a bag has). adds: gradients are added to what lies in grads, logits to what lies in logits. ffm of
 * 61 fields and more asks for 65 KiB of shared memory a block: a device of compute capability 7.5 has 64.
 */
struct batch_interaction {
    const float *vectors;
    uint32_t bags, fields, d;
    float *logits;
    const float *slopes;
    float *grads;
    uint32_t stride, grads_stride;
    bool adds;
};

/*
 * round: out[i] = x[i] in bf16 or fp16, on the format's own grid, denormals included. seed 0: to nearest
 * even. Else stochastically, up or down to a neighbour, up with the share of the way there: |x| in steps of
 * the grid, cut to sixteen binary digits behind the point, plus r / 2^16, is cut to a whole number of steps.
 * r is sixteen random bits of element i: those from 16 * (i % 4) on of word i / 4 of splitmix64 begun at
 * num_mix(seed ^ num_mix(number)) (rounding.h). Exact numbers stay what they are; |out - x| < one step; the
 * expectation of out over seeds is x: exactly in bf16, and in fp16 from 2^-17 on; below that it is less than
 * 2^-40 nearer to 0. Either way a finite number beyond the range becomes the largest finite one, infinity
 * stays, and every NaN becomes 0x7fc0 or 0x7e00. widen: the way back, exact. x and out: aligned to 16 bytes
 * on a GPU.
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
 * scale to nearest even, zeros up to the next row. |w - scale * byte| <= scale / 2, but for the rounding of
 * the division, 2^-17 of that. A scale below 2^-126 is 0, and so is the row. A row with a NaN or an infinity
 * has scale NaN and bytes 0. out: aligned as x.
 */
struct batch_quantize {
    const float *x;
    uint32_t rows, d;
    void *out;
};

/*
 * check: of x[rows][d]: is_finite[r] = no NaN nor infinity in the row (may be NULL); squares[r] = sum_squares
 * of the row (kernels.h; may be NULL); total[0] = the rows' sum_squares, finite rows alone, chunks of
 * BATCH_CHUNK rows in order, then the chunks in order, in double (may be NULL).
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

/* One table of functions a variant. */
struct batch_kernels {
    const char *name;
#define BATCH(name, args, tolerance, class, bytes, flops) void (*name)(struct args * a, void *stream);
#include "kernels/kernels.def"
};

/* The CPU's, or NULL if it is not supported here; static storage. CUDA's comes from an open device (gpu.h).
 */
const struct batch_kernels *batch_variant(enum kernels_variant variant);
/* Those of the variant that `kernels` is of. */
const struct batch_kernels *batch_beside(const struct kernels *kernels);

#ifdef __cplusplus
}
#endif
#endif

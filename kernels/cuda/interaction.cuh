/*
 * The common part of fm.cu, ffm.cu and dot_interaction.cu. A thread block copies a tile of the batch into
 * shared memory and computes there. All data moves as float4. A bag has one row for each field. A row
 * consists of d / 4 slices; a slice is `width` float4s: four dims, once (fm), or once for each partner field
 * (ffm: FFM_ROUND(fields)). A tile is tile_slices slices of each row of tile_bags bags. In global memory, the
 * part of a row in a tile is contiguous; a tile with all slices is contiguous as a whole.
 */
#ifndef LEAT_KERNELS_CUDA_INTERACTION_CUH
#define LEAT_KERNELS_CUDA_INTERACTION_CUH

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/gpu.cuh"

enum {
    INTERACTION_THREADS = 256,
    /* Bytes of shared memory for a tile, unless one slice of one bag needs more: lets four blocks run on a
     * multiprocessor, and is the most that a kernel gets without cudaFuncSetAttribute. */
    INTERACTION_SHARED = 48 << 10,
    /* Bytes that kernels with larger tiles ask for: always this value, so that two threads that set it at the
     * same time do not disagree. */
    INTERACTION_SHARED_MOST = 96 << 10,
    INTERACTION_WAVES = 8, /* blocks that each multiprocessor gets before a block gets several bags */
};

/* The argument of the kernels of fm.cu and ffm.cu: struct batch_interaction (batch.h), and the tile sizes.
 * All memory is the caller's. */
struct interaction {
    const float4 *vectors;
    float *logits;                /* NULL: not wanted */
    const float *logit_gradients; /* read only if grads is not NULL */
    float4 *grads;                /* NULL: not wanted */
    uint32_t bags, fields;
    uint32_t slices, width;                /* slices of a row, float4s of a slice */
    uint32_t vectors_stride, grads_stride; /* float4s from bag to bag */
    bool adds;                             /* add to logits and grads instead of overwriting them */
    uint32_t tile_bags, tile_slices;       /* of a full tile */
    uint32_t row_stride, bag_stride;       /* float4s from row to row and bag to bag, in shared memory */
};

/* Computes x / by, rounded down, without a division. x and by are below 2^16. */
struct interaction_divider {
    uint64_t factor; /* 2^32 / by, rounded up */
};
static inline __device__ interaction_divider interaction_divide_by(uint32_t by)
{
    return {(uint64_t)(UINT32_MAX / by) + 1};
}
static inline __device__ uint32_t interaction_divide(uint32_t x, interaction_divider by)
{
    return (uint32_t)(x * by.factor >> 32);
}

/* A tile of this block. */
struct interaction_tile {
    uint32_t bag, bags;                 /* its first bag, in the batch, and the number of its bags */
    uint32_t slice, slices;             /* its first slice, and the number of slices of each row */
    uint32_t columns, count;            /* float4s of a row in the tile, and of the whole tile */
    interaction_divider by_bag, by_row; /* divide by the float4s of a bag in the tile, and by columns */
};

/* The block's tile that begins with slice `slice`. The last tiles may be smaller than a full tile. */
static inline __device__ interaction_tile interaction_tile_at(const interaction &a, uint32_t slice)
{
    interaction_tile t;
    t.bag = blockIdx.x * a.tile_bags;
    t.bags = min(a.tile_bags, a.bags - t.bag);
    t.slice = slice;
    t.slices = min(a.tile_slices, a.slices - slice);
    t.columns = t.slices * a.width;
    t.count = t.bags * a.fields * t.columns;
    t.by_bag = interaction_divide_by(a.fields * t.columns);
    t.by_row = interaction_divide_by(t.columns);
    return t;
}

/* The position of a float4 in a tile. */
struct interaction_place {
    uint32_t bag, field, column; /* all counted from the tile's first */
};

/* The position of a tile's i-th float4, counted row by row. */
static inline __device__ interaction_place interaction_place_of(const interaction &a,
                                                                const interaction_tile &t, uint32_t i)
{
    interaction_place p;
    p.bag = interaction_divide(i, t.by_bag);
    uint32_t rest = i - p.bag * a.fields * t.columns;
    p.field = interaction_divide(rest, t.by_row);
    p.column = rest - p.field * t.columns;
    return p;
}

/* Index of a tile's float4 in an array in global memory whose bags are bag_stride float4s apart. */
static inline __device__ size_t interaction_global(const interaction &a, const interaction_tile &t,
                                                   interaction_place p, uint32_t bag_stride)
{
    size_t row = p.field * a.slices * a.width + t.slice * a.width;
    return (size_t)(t.bag + p.bag) * bag_stride + row + p.column;
}

/* Index of a tile's float4 in the block's shared memory. */
static inline __device__ uint32_t interaction_shared(const interaction &a, interaction_place p)
{
    return p.bag * a.bag_stride + p.field * a.row_stride + p.column;
}

/* Copies the tile from a.vectors to `tile`, in shared memory. Called by all threads of the block; when it
 * returns, each of them may read all of `tile`. */
static inline __device__ void interaction_load(const interaction &a, const interaction_tile &t, float4 *tile)
{
    for (uint32_t i = threadIdx.x; i < t.count; i += INTERACTION_THREADS) {
        interaction_place p = interaction_place_of(a, t, i);
        async_copy_16(tile + interaction_shared(a, p),
                      a.vectors + interaction_global(a, t, p, a.vectors_stride));
    }
    async_copy_commit();
    async_copy_wait<0>();
    __syncthreads();
}

static inline __device__ float4 interaction_scale(float gradient, float4 v)
{
    return make_float4(gradient * v.x, gradient * v.y, gradient * v.z, gradient * v.w);
}

/* Writes one float4 of a.grads; if a.adds, adds to it. */
static inline __device__ void interaction_put(const interaction &a, const interaction_tile &t,
                                              interaction_place p, float4 grad)
{
    float4 *to = a.grads + interaction_global(a, t, p, a.grads_stride);
    if (a.adds) {
        float4 old = *to;
        grad = make_float4(old.x + grad.x, old.y + grad.y, old.z + grad.z, old.w + grad.w);
    }
    *to = grad;
}

/* Thread t of the block writes the logit of the block's bag number t, or adds to it if a.adds. total: that
 * bag's logit. Threads without a bag do nothing. */
static inline __device__ void interaction_put_logit(const interaction &a, float total)
{
    uint32_t bag = blockIdx.x * a.tile_bags + threadIdx.x;
    if (a.logits != NULL && threadIdx.x < a.tile_bags && bag < a.bags)
        a.logits[bag] = a.adds ? a.logits[bag] + total : total;
}

/*
 * Sets the tile sizes and strides of *a. pad: unused float4s behind each row in shared memory. each: bytes of
 * shared memory behind the tile that the kernel needs for each bag and slice. bag_stride is odd, so that
 * threads that read the same position in different bags have few bank conflicts. Returns the bytes of shared
 * memory that a block needs.
 */
static inline size_t interaction_plan(interaction *a, uint32_t multiprocessors, uint32_t pad, size_t each)
{
    size_t slice_bytes = 16 * (size_t)a->fields * (a->width + pad) + 16 + each;
    size_t fit = INTERACTION_SHARED / slice_bytes;
    size_t slices = fit < 1 ? 1 : fit < a->slices ? fit : a->slices;
    uint32_t steps = cuda_blocks(a->slices, slices);
    a->tile_slices = cuda_blocks(a->slices, steps);
    a->row_stride = a->tile_slices * a->width + pad;
    a->bag_stride = (a->fields * a->row_stride) | 1;
    size_t bag_bytes = 16 * (size_t)a->bag_stride + each * a->tile_slices;
    size_t bags = a->bags / (INTERACTION_WAVES * (size_t)multiprocessors);
    if (bags > INTERACTION_SHARED / bag_bytes)
        bags = INTERACTION_SHARED / bag_bytes;
    if (bags > INTERACTION_THREADS)
        bags = INTERACTION_THREADS;
    a->tile_bags = steps > 1 || bags < 1 ? 1 : (uint32_t)bags;
    return a->tile_bags * bag_bytes;
}

/* The argument, the grid and the shared memory of a kernel: one block for each tile_bags bags. */
struct interaction_launch {
    interaction a;
    unsigned blocks; /* 0: launch nothing: no work, or an error, which is noted in the device (gpu_note) */
    size_t shared_bytes; /* of a block */
};

/* Prepares the launch of `kernel`. width, pad, each: as above. stream: a gpu_stream. name: the kernel, for
 * error messages. */
static inline interaction_launch interaction_prepare(void (*kernel)(interaction),
                                                     const batch_interaction *batch, uint32_t width,
                                                     uint32_t pad, size_t each, void *stream,
                                                     const char *name)
{
    interaction_launch launch = {};
    interaction *a = &launch.a;
    if (batch->bags == 0 || (batch->logits == NULL && batch->grads == NULL))
        return launch;
    a->vectors = reinterpret_cast<const float4 *>(batch->vectors);
    a->logits = batch->logits;
    a->logit_gradients = batch->logit_gradients;
    a->grads = reinterpret_cast<float4 *>(batch->grads);
    a->bags = batch->bags;
    a->fields = batch->fields;
    a->slices = batch->d / 4;
    a->width = width;
    a->vectors_stride = batch->stride > 0 ? batch->stride / 4 : a->fields * a->slices * width;
    a->grads_stride = batch->grads_stride > 0 ? batch->grads_stride / 4 : a->fields * a->slices * width;
    a->adds = batch->adds;
    gpu *gpu = static_cast<gpu_stream *>(stream)->gpu;
    launch.shared_bytes = interaction_plan(a, (uint32_t)gpu->multiprocessors, pad, each);
    gpu_use(gpu);
    if (launch.shared_bytes <= INTERACTION_SHARED ||
        gpu_note(gpu,
                 cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      INTERACTION_SHARED_MOST),
                 name))
        launch.blocks = cuda_blocks(a->bags, a->tile_bags);
    return launch;
}

#endif

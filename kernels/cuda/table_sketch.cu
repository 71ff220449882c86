/*
 * Admission sketches between batches: halving, and export and import in blocks, for checkpoints.
 *
 * Ladder of halve_sketch (not measured): one byte per thread; then 16 bytes per thread, with four cells per
 * instruction. A block of threads has a block of cells; blocks that never changed, all zero, are skipped by
 * their epochs alone. Ladder of export_sketch: the host reads all epochs, waits, and asks for the blocks it
 * wants; then without a list: a block of threads for each block of cells counts the selected blocks before it
 * in the range, reading a few lines of epochs, and so knows its output position; only selected blocks are
 * read, and written directly to the output, pinned memory included.
 */
#include "kernels/cuda/tables.cuh"

enum { BLOCK = 256, WORDS = GPU_SKETCH_BLOCK / sizeof(uint64_t) };

static_assert(BLOCK * sizeof(uint4) == GPU_SKETCH_BLOCK, "a thread has 16 cells");

/* One block of threads per block of cells. */
static __global__ void __launch_bounds__(BLOCK) halve(const gpu_table_view *view, uint32_t epoch)
{
    uint32_t *changed = &view->sketch_epochs[blockIdx.x];
    if (*changed == 0)
        return;
    uint4 *at = reinterpret_cast<uint4 *>(view->sketch) + cuda_thread();
    uint4 c = *at;
    c.x = c.x >> 1 & 0x7f7f7f7fU;
    c.y = c.y >> 1 & 0x7f7f7f7fU;
    c.z = c.z >> 1 & 0x7f7f7f7fU;
    c.w = c.w >> 1 & 0x7f7f7f7fU;
    *at = c;
    __syncthreads(); /* all threads have read *changed */
    if (threadIdx.x == 0)
        *changed = epoch;
}

void tables_halve_sketch(gpu_tables *tables, gpu_stream *stream, uint32_t t, uint32_t epoch)
{
    const uint64_t blocks = gpu_sketch_blocks(&tables->tables[t].options);
    if (blocks == 0)
        return;
    LAUNCH(halve, (unsigned)blocks, BLOCK, 0, gpu_cuda_stream(stream), tables->views + t, epoch);
    gpu_launched(stream, "tables: halve_sketch");
}

/* Selects the blocks whose last change was in the epochs (since, closing]. */
struct sketch_filter {
    uint32_t since, closing;
};

static __device__ bool is_meant(const sketch_filter &f, uint32_t epoch)
{
    return epoch > f.since && epoch <= f.closing;
}

static __device__ void copy_cells(void *to, const void *from)
{
    for (uint32_t i = threadIdx.x; i < WORDS; i += BLOCK)
        static_cast<uint64_t *>(to)[i] = static_cast<const uint64_t *>(from)[i];
}

/* Thread block i exports the block of cells first + i. At least one thread block is launched, even if first
 * >= end. */
static __global__ void __launch_bounds__(BLOCK)
    export_cells(const gpu_table_view *view, sketch_filter filter, uint64_t first, uint64_t end,
                 gpu_sketch_block *blocks, uint32_t *count)
{
    const uint64_t number = first + blockIdx.x;
    const uint32_t *epochs = view->sketch_epochs;
    uint32_t rank = 0;
    for (uint64_t i = first + threadIdx.x % WARP_LANES; i < number && i < end; i += WARP_LANES)
        rank += is_meant(filter, epochs[i]);
    rank = warp_sum(rank);
    const bool goes = number < end && is_meant(filter, epochs[number]);
    if (number + 1 >= end && threadIdx.x == 0)
        *count = rank + goes;
    if (!goes)
        return;
    if (threadIdx.x == 0)
        blocks[rank].number = number;
    copy_cells(blocks[rank].counts, view->sketch + number * GPU_SKETCH_BLOCK);
}

void tables_export_sketch(gpu_tables *tables, gpu_stream *stream, uint32_t t, uint32_t since,
                          uint32_t closing, uint64_t first, uint32_t room, gpu_sketch_block *blocks,
                          uint32_t *count)
{
    const uint64_t all = gpu_sketch_blocks(&tables->tables[t].options);
    const uint64_t end = first + room < all ? first + room : all;
    const sketch_filter filter = {since, since > 0 ? closing : UINT32_MAX};
    LAUNCH(export_cells, first < end ? (unsigned)(end - first) : 1, BLOCK, 0, gpu_cuda_stream(stream),
           tables->views + t, filter, first, end, blocks, count);
    gpu_launched(stream, "tables: export_sketch");
}

static __global__ void __launch_bounds__(BLOCK)
    import_cells(const gpu_table_view *view, uint64_t all, const gpu_sketch_block *blocks)
{
    const gpu_sketch_block *block = &blocks[blockIdx.x];
    const uint64_t number = block->number;
    if (number >= all)
        return;
    copy_cells(view->sketch + number * GPU_SKETCH_BLOCK, block->counts);
    if (threadIdx.x == 0)
        view->sketch_epochs[number] = 1;
}

void tables_import_sketch(gpu_tables *tables, gpu_stream *stream, uint32_t t, const gpu_sketch_block *blocks,
                          uint32_t count)
{
    if (count == 0)
        return;
    LAUNCH(import_cells, count, BLOCK, 0, gpu_cuda_stream(stream), tables->views + t,
           gpu_sketch_blocks(&tables->tables[t].options), blocks);
    gpu_launched(stream, "tables: import_sketch");
}

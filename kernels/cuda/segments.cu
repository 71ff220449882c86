/*
 * segment_reduce (batch.h), and the chunks of long segments for all kernels that sum by index (segments.cuh).
 *
 * Ladder, naive to fast (not measured):
 *   one thread per index and float   each float waits for starts, order, bag and gradient in turn
 *   one group of lanes per index     rows of 16 bytes per lane, coalesced; each index still pays for its
 *                                    chain of look-ups
 *   one tile of indices per warp     each lane looks one index up, so the chains overlap; then the gradients
 *                                    of four indices are in flight
 *   chunks of long segments first    an id in every tenth place is summed by many warps, not by one warp that
 *                                    all others wait for
 */
#include "kernels/cuda/gpu.cuh"
#include "kernels/cuda/parts.cuh"
#include "kernels/cuda/segments.cuh"

enum { BLOCK = 256, WARPS = BLOCK / WARP_LANES, NUMBERS_AT_ONCE = 4, PLACES_AT_ONCE = 8 };

/* The index u with starts[u] <= position < starts[u + 1]. Called by the whole warp. */
static __device__ uint32_t find_number(const uint32_t *starts, uint32_t m, uint32_t position)
{
    const uint32_t lane = threadIdx.x % WARP_LANES;
    uint32_t low = 0, high = m; /* starts[low] <= position < starts[high] */
    while (high - low > 1) {
        const uint32_t step = (high - low + WARP_LANES - 1) / WARP_LANES;
        const uint64_t probe = low + (uint64_t)(lane + 1) * step;
        const bool is_below = probe < high && starts[probe] <= position;
        low += (uint32_t)__popc(__ballot_sync(WARP_ALL, is_below)) * step;
        high = high - low < step ? high : low + step;
    }
    return low;
}

/* sums[d] = the sum over order[from] .. order[to - 1], at most BATCH_CHUNK places. By the whole warp. */
static __device__ void sum_chunk(const batch_segments &in, uint32_t from, uint32_t to, float *sums)
{
    const uint32_t lane = threadIdx.x % WARP_LANES;
    if (in.d == 1) {
        const float sum = segment_chunk_one(in, from, to);
        if (lane == 0)
            *sums = sum;
        return;
    }
    for (uint32_t first = 0; first < in.d; first += WARP_LANES * 4) {
        const uint32_t column = first + lane * 4;
        float4 sum = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
        for (uint32_t base = from; base < to; base += WARP_LANES) {
            const bool is_mine = base + lane < to;
            const uint32_t place = is_mine ? in.order[base + lane] : 0;
            const uint32_t row = is_mine ? segment_row(in, place) : 0;
            const float scale = is_mine ? segment_scale(in, place) : 0.0F;
            const uint32_t count = to - base < WARP_LANES ? to - base : (uint32_t)WARP_LANES;
            for (uint32_t k = 0; k < count; k += PLACES_AT_ONCE) {
                float4 grad[PLACES_AT_ONCE];
                float scales[PLACES_AT_ONCE];
#pragma unroll
                for (uint32_t i = 0; i < PLACES_AT_ONCE; i++) {
                    const uint32_t of = __shfl_sync(WARP_ALL, row, (int)(k + i));
                    scales[i] = __shfl_sync(WARP_ALL, scale, (int)(k + i));
                    if (k + i < count && column < in.d)
                        grad[i] = segment_grad(in, of, column);
                }
#pragma unroll
                for (uint32_t i = 0; i < PLACES_AT_ONCE; i++) {
                    if (k + i < count && column < in.d)
                        sum = segment_fma(scales[i], grad[i], sum);
                }
            }
        }
        if (column < in.d)
            *reinterpret_cast<float4 *>(sums + column) = sum;
    }
}

/* The part of an index that has a position: order[from] up to order[to]. By the whole warp. */
struct part {
    uint32_t from, to;
};
static __device__ part find_part(const batch_segments &in, uint32_t m, uint32_t position)
{
    const uint32_t u = find_number(in.starts, m, position);
    part p = {in.starts[u], in.starts[u + 1]};
    if (in.slices.count <= 1)
        return p;
    const uint32_t slice = batch_slice_of(&in.slices, segment_event(in, in.order[position]));
    p.from = segment_border(in, p.from, position, in.slices.borders[slice]);
    p.to = segment_border(in, position, p.to, in.slices.borders[slice + 1]);
    return p;
}

/* One warp per window of BATCH_CHUNK places. Of long parts it sums the chunks that begin in the window: at
 * most one that continues a part from an earlier window, and one that is the first of its part. */
static __global__ void __launch_bounds__(BLOCK) chunks_kernel(batch_segments in, float *partials)
{
    const size_t window = cuda_thread() / WARP_LANES;
    const uint32_t m = in.count[0];
    if (m == 0)
        return;
    const uint32_t total = in.starts[m];
    if (total == m || window * BATCH_CHUNK >= total)
        return;
    const uint32_t begin = (uint32_t)window * BATCH_CHUNK;
    float *place = partials + window * 2 * in.d;
    const part p = find_part(in, m, begin);
    if (p.to - p.from > BATCH_CHUNK) {
        const uint32_t chunk = p.from + (begin - p.from + BATCH_CHUNK - 1) / BATCH_CHUNK * BATCH_CHUNK;
        const uint32_t end = p.to - chunk > BATCH_CHUNK ? chunk + BATCH_CHUNK : p.to;
        if (chunk < p.to)
            sum_chunk(in, chunk, end, chunk == p.from ? place + in.d : place);
    }
    if (total - begin < BATCH_CHUNK)
        return; /* too few places are left for another long part */
    const part q = find_part(in, m, begin + BATCH_CHUNK - 1);
    if (q.from != p.from && q.to - q.from > BATCH_CHUNK)
        sum_chunk(in, q.from, q.from + BATCH_CHUNK, place + in.d);
}

void segments_chunks(const batch_segments *in, float *partials, cudaStream_t stream)
{
    const unsigned blocks = cuda_blocks(cuda_blocks(in->n, BATCH_CHUNK), WARPS);
    if (in->n > BATCH_CHUNK)
        LAUNCH(chunks_kernel, blocks, BLOCK, 0, stream, segments_of(*in), partials);
}

static __global__ void __launch_bounds__(BLOCK)
    reduce_kernel(batch_segments in, const float *partials, float *sums, unsigned lanes, unsigned tile)
{
    const uint32_t m = in.count[0], lane = threadIdx.x % WARP_LANES;
    const uint32_t groups = WARP_LANES / lanes, group = lane / lanes;
    const size_t first = cuda_thread() / WARP_LANES * tile;
    if (first >= m)
        return;
    const segment_seen mine = segment_look(in, lane < tile ? first + lane : m, m);
    for (uint32_t base = 0; base < tile; base += groups * NUMBERS_AT_ONCE) {
        for (uint32_t left = 0; left < in.d; left += lanes * 4) {
            const uint32_t column = left + lane % lanes * 4;
            segment_seen seen[NUMBERS_AT_ONCE];
            float4 sum[NUMBERS_AT_ONCE];
#pragma unroll
            for (uint32_t i = 0; i < NUMBERS_AT_ONCE; i++) {
                const uint32_t k = base + i * groups + group;
                seen[i] = segment_of_lane(mine, k % WARP_LANES);
                if (k >= tile || column >= in.d)
                    seen[i].to = seen[i].from;
                sum[i] = segment_first(in, seen[i], column);
            }
#pragma unroll
            for (uint32_t i = 0; i < NUMBERS_AT_ONCE; i++) {
                if (seen[i].from == seen[i].to)
                    continue;
                const size_t u = first + base + i * groups + group;
                *reinterpret_cast<float4 *>(sums + u * in.d + column) =
                    segment_rest(in, partials, seen[i], column, sum[i]);
            }
        }
    }
}

void cuda_segment_reduce(batch_segment_reduce *a, void *stream)
{
    if (a->scratch == nullptr) {
        a->scratch_bytes = segments_scratch_bytes(&a->in);
        return;
    }
    if (a->in.n == 0)
        return;
    cudaStream_t to = gpu_cuda_stream(stream);
    float *partials = static_cast<float *>(a->scratch);
    const unsigned lanes = segments_lanes(a->in.d), tile = segments_tile(a->in.n, lanes);
    segments_chunks(&a->in, partials, to);
    LAUNCH(reduce_kernel, cuda_blocks(cuda_blocks(a->in.n, tile), WARPS), BLOCK, 0, to, segments_of(a->in),
           partials, a->sums, lanes, tile);
    (void)gpu_launched(stream, "segment_reduce");
}

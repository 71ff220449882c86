/*
 * gather_pool (batch.h).
 *
 * Ladder, naive to fast (not measured):
 *   one thread per output            each loads the row's address, then four bytes of the row
 *   one group of lanes per bag       four weights per lane: 16 bytes of fp32; whole cache lines per group
 *   one row per bag: a warp has a    32 addresses are looked up at once, index to row to address; then each
 *   tile of bags                     group has four rows in flight
 *   bags of any length               each lane of a group looks one place up; again four rows are in flight
 *   `indices` in the same pass       no list of addresses by place is written and read
 */
#include "kernels/cuda/formats.cuh"
#include "kernels/cuda/gpu.cuh"
#include "kernels/cuda/parts.cuh"
#include "kernels/cuda/segments.cuh"

enum { BLOCK = 256, WARPS = BLOCK / WARP_LANES, ROWS_AT_ONCE = 4 };

static __device__ __forceinline__ const unsigned char *gather_row(const batch_gather_pool &a, uint32_t place)
{
    uint32_t of = place;
    if (a.indices != nullptr) {
        of = a.indices[place];
        if (of == BATCH_NONE)
            return nullptr;
    }
    return static_cast<const unsigned char *>(a.rows[of]);
}

static __device__ __forceinline__ const unsigned char *row_of_lane(const unsigned char *mine, unsigned lane)
{
    const unsigned long long address = reinterpret_cast<unsigned long long>(mine);
    return reinterpret_cast<const unsigned char *>(__shfl_sync(WARP_ALL, address, (int)lane));
}

/* Where the sums of bags go: bag f * events + e to the f-th column block of row e. */
struct gather_out {
    uint32_t events; /* events of a field; all bags if there are no fields */
    uint32_t stride; /* floats between rows */
};

static gather_out gather_out_of(const batch_gather_pool *a)
{
    gather_out to = {a->bags, a->d};
    if (a->fields > 0) {
        to.events = a->bags / a->fields;
        to.stride = a->stride > 0 ? a->stride : a->fields * a->d;
    }
    return to;
}

/* The output address of bag field * events + event. `event` may be `events` or more: then the bag belongs to
 * a later field. */
static __device__ __forceinline__ float *gather_place(const batch_gather_pool &a, gather_out to,
                                                      uint32_t field, uint32_t event)
{
    for (; event >= to.events; event -= to.events)
        field++;
    return a.out + (size_t)event * to.stride + (size_t)field * a.d;
}

/* One row per bag: a warp processes a tile of bags, each group of lanes ROWS_AT_ONCE bags at a time. */
template <row_format format>
static __global__ void __launch_bounds__(BLOCK)
    gather_kernel(batch_gather_pool a, gather_out to, unsigned lanes, unsigned tile)
{
    const uint32_t lane = threadIdx.x % WARP_LANES, groups = WARP_LANES / lanes, group = lane / lanes;
    const size_t first = cuda_thread() / WARP_LANES * tile;
    if (first >= a.bags)
        return;
    const bool is_mine = lane < tile && first + lane < a.bags;
    const unsigned char *mine = is_mine ? gather_row(a, (uint32_t)(first + lane)) : nullptr;
    const uint32_t field = (uint32_t)first / to.events, event = (uint32_t)first % to.events;
    for (uint32_t base = 0; base < tile; base += groups * ROWS_AT_ONCE) {
        const unsigned char *rows[ROWS_AT_ONCE];
#pragma unroll
        for (uint32_t i = 0; i < ROWS_AT_ONCE; i++)
            rows[i] = row_of_lane(mine, (base + i * groups + group) % WARP_LANES);
        for (uint32_t column = lane % lanes * 4; column < a.d; column += lanes * 4) {
            float4 weights[ROWS_AT_ONCE];
#pragma unroll
            for (uint32_t i = 0; i < ROWS_AT_ONCE; i++)
                weights[i] = row_load<format>(rows[i], column);
#pragma unroll
            for (uint32_t i = 0; i < ROWS_AT_ONCE; i++) {
                const uint32_t k = base + i * groups + group;
                if (k < tile && first + k < a.bags)
                    *reinterpret_cast<float4 *>(gather_place(a, to, field, event + k) + column) =
                        segment_add(make_float4(0.0F, 0.0F, 0.0F, 0.0F), weights[i]);
            }
        }
    }
}

/* Bags of any number of places: one group of lanes per bag. A warp's lanes loop until its longest bag is
 * done. */
template <row_format format>
static __global__ void __launch_bounds__(BLOCK)
    pool_kernel(batch_gather_pool a, gather_out to, unsigned lanes)
{
    const uint32_t lane = threadIdx.x % WARP_LANES, in_group = lane % lanes, leader = lane - in_group;
    const size_t bag = cuda_thread() / lanes;
    const bool is_there = bag < a.bags;
    const uint32_t from = is_there ? a.offsets[bag] : 0, end = is_there ? a.offsets[bag + 1] : 0;
    const uint32_t longest = __reduce_max_sync(WARP_ALL, end - from);
    const float divisor = a.is_mean && end > from ? (float)(end - from) : 1.0F;
    float *out = gather_place(a, to, (uint32_t)bag / to.events, (uint32_t)bag % to.events);
    for (uint32_t left = 0; left < a.d; left += lanes * 4) {
        const uint32_t column = left + in_group * 4;
        float4 sum = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
        for (uint32_t base = 0; base < longest; base += lanes) {
            const bool is_mine = base + in_group < end - from;
            const unsigned char *mine = is_mine ? gather_row(a, from + base + in_group) : nullptr;
            for (uint32_t k = 0; k < lanes && base + k < longest; k += ROWS_AT_ONCE) {
                float4 weights[ROWS_AT_ONCE];
#pragma unroll
                for (uint32_t i = 0; i < ROWS_AT_ONCE; i++) {
                    const unsigned char *row = row_of_lane(mine, (leader + k + i) % WARP_LANES);
                    weights[i] = row_load<format>(k + i < lanes && column < a.d ? row : nullptr, column);
                }
#pragma unroll
                for (uint32_t i = 0; i < ROWS_AT_ONCE; i++)
                    sum = segment_add(sum, weights[i]);
            }
        }
        if (is_there && column < a.d) {
            if (a.is_mean)
                sum = make_float4(sum.x / divisor, sum.y / divisor, sum.z / divisor, sum.w / divisor);
            *reinterpret_cast<float4 *>(out + column) = sum;
        }
    }
}

template <row_format format> static void gather_format(const batch_gather_pool &a, cudaStream_t stream)
{
    const unsigned lanes = segments_lanes(a.d), tile = segments_tile(a.bags, lanes);
    const gather_out to = gather_out_of(&a);
    if (a.offsets == nullptr)
        LAUNCH(gather_kernel<format>, cuda_blocks(cuda_blocks(a.bags, tile), WARPS), BLOCK, 0, stream, a, to,
               lanes, tile);
    else
        LAUNCH(pool_kernel<format>, cuda_blocks((size_t)a.bags * lanes, BLOCK), BLOCK, 0, stream, a, to,
               lanes);
}

void cuda_gather_pool(batch_gather_pool *a, void *stream)
{
    if (a->bags == 0)
        return;
    cudaStream_t to = gpu_cuda_stream(stream);
    switch (a->format) {
    case ROW_FP32: gather_format<ROW_FP32>(*a, to); break;
    case ROW_BF16: gather_format<ROW_BF16>(*a, to); break;
    case ROW_FP16: gather_format<ROW_FP16>(*a, to); break;
    case ROW_INT8: gather_format<ROW_INT8>(*a, to); break;
    case ROW_FORMATS: break;
    }
    (void)gpu_launched(stream, "gather_pool");
}

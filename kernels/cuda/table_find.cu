/*
 * find: keys -> rows; find_values: keys -> weights as floats.
 *
 * Ladder (not measured): (1) One thread per key reads the keys of a bucket: 128 keys of 8 bytes to find one.
 * (2) Digests: a line of 128 bytes instead of a kilobyte; one warp per key, most of it idle. (3) Eight lanes
 * per key, 16 bytes each: the line in one load, sixteen digests compared in four instructions, and the second
 * bucket read only if the first was full once. (4) KEYS keys per tile at once, so that four loads per lane
 * are in flight before the first is waited for. (5) Weights are read by the tile that found them, 16 bytes
 * per lane, so no pointers are written and read again: 690 bytes per key at dim 64 (128 digests, 32 keys, 256
 * + 256 weights, the rest key, table and found).
 */
#include "kernels/cuda/formats.cuh"
#include "kernels/cuda/table_probe.cuh"
#include "kernels/cuda/tables.cuh"

enum { BLOCK = 256, KEYS = 4, BLOCK_KEYS = BLOCK / TILE_LANES * KEYS };

/* table_look_up, but expired rows count as absent. */
static __device__ bool find(const table_lookup &in, table_search (&searches)[KEYS], uint32_t *first,
                            uint32_t *n)
{
    if (!table_look_up(in, searches, first, n))
        return false;
#pragma unroll
    for (int k = 0; k < KEYS; k++) {
        const table_search *s = &searches[k];
        if (s->slot != SLOT_NONE && s->view->expired_before > 0 &&
            table_head(s->view, s->slot)->seen < s->view->expired_before)
            searches[k].slot = SLOT_NONE;
    }
    return true;
}

static __global__ void __launch_bounds__(BLOCK) find_rows(table_lookup in, uint32_t stride, void **rows)
{
    table_search searches[KEYS];
    uint32_t first, n;
    if (!find(in, searches, &first, &n))
        return;
#pragma unroll
    for (int k = 0; k < KEYS; k++) {
        const uint32_t u = first + (uint32_t)k * WARP_TILES;
        const table_search *s = &searches[k];
        if (u < n && threadIdx.x % TILE_LANES == 0)
            rows[u] = s->slot != SLOT_NONE ? table_row(s->view, s->slot, stride) : NULL;
    }
}

template <row_format format>
static __global__ void __launch_bounds__(BLOCK)
    find_weights(table_lookup in, uint32_t stride, uint32_t d, float4 *out, uint8_t *found)
{
    const uint32_t lane = threadIdx.x % TILE_LANES;
    table_search searches[KEYS];
    uint32_t first, n;
    if (!find(in, searches, &first, &n))
        return;
    const unsigned char *rows[KEYS];
#pragma unroll
    for (int k = 0; k < KEYS; k++) {
        const uint32_t u = first + (uint32_t)k * WARP_TILES;
        const table_search *s = &searches[k];
        rows[k] = s->slot != SLOT_NONE ? table_row(s->view, s->slot, stride) : NULL;
        if (u < n && lane == 0)
            found[u] = rows[k] != NULL;
    }
    for (uint32_t i = lane; i < d / 4; i += TILE_LANES) {
        float4 four[KEYS];
#pragma unroll
        for (int k = 0; k < KEYS; k++)
            four[k] = row_load<format>(rows[k], 4 * i);
#pragma unroll
        for (int k = 0; k < KEYS; k++) {
            const uint32_t u = first + (uint32_t)k * WARP_TILES;
            if (u < n)
                out[(size_t)u * (d / 4) + i] = four[k];
        }
    }
}

void tables_find(gpu_tables *tables, gpu_stream *stream, const uint64_t *keys, const uint32_t *table,
                 const uint32_t *count, uint32_t n, void **rows)
{
    if (n == 0)
        return;
    const table_lookup in = {tables->views, tables->counts, keys, table, NULL, count, n};
    LAUNCH(find_rows, cuda_blocks(n, BLOCK_KEYS), BLOCK, 0, gpu_cuda_stream(stream), in, tables->stride,
           rows);
    gpu_launched(stream, "tables: find");
}

void tables_find_values(gpu_tables *tables, gpu_stream *stream, const uint64_t *keys, const uint32_t *table,
                        const uint32_t *count, uint32_t n, float *out, uint8_t *found)
{
    static void (*const kernels[ROW_FORMATS])(table_lookup, uint32_t, uint32_t, float4 *, uint8_t *) = {
        find_weights<ROW_FP32>, find_weights<ROW_BF16>, find_weights<ROW_FP16>, find_weights<ROW_INT8>};
    if (n == 0)
        return;
    const table_lookup in = {tables->views, tables->counts, keys, table, NULL, count, n};
    LAUNCH(kernels[tables->options.format], cuda_blocks(n, BLOCK_KEYS), BLOCK, 0, gpu_cuda_stream(stream), in,
           tables->stride, tables->options.d, reinterpret_cast<float4 *>(out), found);
    gpu_launched(stream, "tables: find_values");
}

/* Typical bugs of embedding table kernels, on the real layout of tables (kernels/cuda/table.cuh,
 * table_probe.cuh): a table of two buckets, a batch of new keys. */
#include "kernels/cuda/table_probe.cuh"
#include "tests/cuda_on_host/planted/planted.h"

enum { BUCKETS = 2, SLOTS = BUCKETS * GPU_BUCKET_SLOTS, KEYS = 64, STRIDE = 16 };

struct small_table {
    gpu_table_view *view;
    gpu_table_counts *counts;
    gpu_bucket *buckets;
    unsigned char *rows;
};

static __global__ void set_table(gpu_table_view *to, gpu_table_view view)
{
    *to = view;
}

static void table_begin(small_table *t, planted_run *run)
{
    cudaMalloc(&t->view, sizeof(*t->view));
    cudaMalloc(&t->counts, sizeof(*t->counts));
    cudaMalloc(&t->buckets, BUCKETS * sizeof(*t->buckets));
    cudaMalloc(&t->rows, SLOTS * STRIDE);
    cudaMemsetAsync(t->counts, 0, sizeof(*t->counts), run->stream);
    cudaMemsetAsync(t->buckets, 0, BUCKETS * sizeof(*t->buckets), run->stream);
    cudaMemsetAsync(t->rows, 0, SLOTS * STRIDE, run->stream);
    gpu_table_view view = {};
    view.buckets = t->buckets;
    view.rows = t->rows;
    view.bucket_count = BUCKETS;
    view.seed = 7;
    LAUNCH(set_table, 1, 1, 0, run->stream, t->view, view);
}

/* Writes the place of each key, and the count of rows, to the output. */
static __global__ void list_keys(const gpu_table_view *view, const gpu_table_counts *counts, uint32_t *out)
{
    const uint32_t s = threadIdx.x;
    for (uint32_t b = 0; b < BUCKETS; b++)
        out[b * GPU_BUCKET_SLOTS + s] =
            (uint32_t)view->buckets[b].keys[s] | (uint32_t)view->buckets[b].digests[s] << 16;
    if (s == 0)
        out[SLOTS] = (uint32_t)counts->rows;
}

static void table_end(small_table *t, planted_run *run)
{
    LAUNCH(list_keys, 1, GPU_BUCKET_SLOTS, 0, run->stream, t->view, t->counts, run->device);
    cudaStreamSynchronize(run->stream);
    cudaFree(t->view);
    cudaFree(t->counts);
    cudaFree(t->buckets);
    cudaFree(t->rows);
}

static __device__ uint64_t key_of(uint32_t i)
{
    return 1 + 3 * (uint64_t)i;
}

/* --- A bucket's keys, in the order of their indices --- */

static __global__ void insert(const gpu_table_view *view, uint32_t *taken, bool has_bug)
{
    const uint32_t i = threadIdx.x;
    const uint64_t hash = table_hash_of(view, key_of(i)), bucket = table_first(view, hash);
    uint32_t slot = 0;
    if (has_bug)
        slot = atomicAdd(&taken[bucket], 1U);
    for (uint32_t before = 0; before < i && !has_bug; before++)
        slot += table_first(view, table_hash_of(view, key_of(before))) == bucket;
    view->buckets[bucket].keys[slot] = key_of(i);
    view->buckets[bucket].digests[slot] = table_digest(hash);
}

static void insert_as_they_come(planted_run *run)
{
    small_table t;
    table_begin(&t, run);
    cudaMemsetAsync(run->device + 1000, 0, BUCKETS * 4, run->stream);
    LAUNCH(insert, 1, KEYS, 0, run->stream, t.view, run->device + 1000, run->has_bug);
    cudaMemsetAsync(run->device + 1000, 0, BUCKETS * 4, run->stream);
    table_end(&t, run);
}

/* --- A row that is counted --- */

static __global__ void count_rows(gpu_table_counts *counts, bool has_bug)
{
    if (!has_bug)
        table_count(counts, &gpu_table_counts::rows, 0, threadIdx.x % 3);
    else
        counts->rows += threadIdx.x % 3;
}

static void count_is_lost(planted_run *run)
{
    small_table t;
    table_begin(&t, run);
    LAUNCH(count_rows, 4, KEYS, 0, run->stream, t.counts, run->has_bug);
    table_end(&t, run);
}

/* --- Rows that go to another bucket, by their rank in the first --- */

static __global__ void split(const gpu_table_view *view, bool has_bug)
{
    SHARED(uint32_t[GPU_BUCKET_SLOTS / WARP_LANES], goes);
    const uint32_t s = threadIdx.x, warp = s / WARP_LANES, lane = s % WARP_LANES;
    const uint32_t votes = __ballot_sync(WARP_ALL, s % 3 == 1);
    if (lane == 0)
        goes[warp] = (uint32_t)__popc(votes);
    if (!has_bug)
        __syncthreads();
    uint32_t rank = (uint32_t)__popc(votes & ((1U << lane) - 1U));
    for (uint32_t w = 0; w < warp; w++)
        rank += goes[w];
    if (s % 3 == 1)
        view->buckets[1].keys[rank % GPU_BUCKET_SLOTS] = s + 1;
}

static void rank_before_the_barrier(planted_run *run)
{
    small_table t;
    table_begin(&t, run);
    LAUNCH(split, 1, GPU_BUCKET_SLOTS, 0, run->stream, t.view, run->has_bug);
    table_end(&t, run);
}

/* --- A slot that its warp has just filled --- */

static __global__ void place(const gpu_table_view *view, bool has_bug)
{
    const uint32_t lane = threadIdx.x;
    for (uint32_t u = 0; u < KEYS; u++) {
        if (lane == u % WARP_LANES)
            view->buckets[0].keys[u] = key_of(u);
        if (!has_bug)
            __syncwarp();
        if (lane == (u + 1) % WARP_LANES) /* a thread that makes room reads the keys already there */
            view->buckets[1].keys[u] = view->buckets[0].keys[u];
        __syncwarp();
    }
}

static void key_before_its_lane_wrote(planted_run *run)
{
    small_table t;
    table_begin(&t, run);
    LAUNCH(place, 1, WARP_LANES, 0, run->stream, t.view, run->has_bug);
    table_end(&t, run);
}

/* --- A slot behind the last --- */

static __global__ void start_rows(const gpu_table_view *view, bool has_bug)
{
    const uint64_t slot = threadIdx.x + (has_bug ? 1 : 0);
    *reinterpret_cast<uint4 *>(table_row(view, slot, STRIDE)) = make_uint4(1, 2, 3, 4);
}

static void row_behind_the_last(planted_run *run)
{
    small_table t;
    table_begin(&t, run);
    LAUNCH(start_rows, 1, SLOTS, 0, run->stream, t.view, run->has_bug);
    table_end(&t, run);
}

/* Out of bounds, but within the table, so ASan alone would not see it. */
static __global__ void start_keys(const gpu_table_view *view, bool has_bug)
{
    const uint32_t slot = threadIdx.x + (has_bug ? 1 : 0);
    view->buckets[0].keys[slot] = key_of(threadIdx.x);
}

static void key_behind_its_bucket(planted_run *run)
{
    small_table t;
    table_begin(&t, run);
    LAUNCH(start_keys, 1, GPU_BUCKET_SLOTS, 0, run->stream, t.view, run->has_bug);
    table_end(&t, run);
}

/* --- A probe, which needs the whole warp --- */

static __global__ void probe(const gpu_table_view *view, const gpu_table_counts *counts, uint32_t n,
                             bool has_bug, uint32_t *out)
{
    const uint32_t tile = threadIdx.x / TILE_LANES;
    table_search search[1] = {{view, 0, tile < n ? key_of(tile) : 0, 0, 0}};
    if (has_bug && tile >= n)
        return;
    table_probe(search, counts);
    if (threadIdx.x % TILE_LANES == 0)
        out[tile] = (uint32_t)search[0].slot;
}

static void probe_by_a_part_of_a_warp(planted_run *run)
{
    small_table t;
    table_begin(&t, run);
    LAUNCH(insert, 1, KEYS, 0, run->stream, t.view, run->device + 1000, false);
    LAUNCH(probe, 1, 2 * WARP_LANES, 0, run->stream, t.view, t.counts, 6, run->has_bug, run->device + 900);
    table_end(&t, run);
}

const planted planted_tables[] = {
    {"table: keys take slots as they come", insert_as_they_come, PLANTED_DIFFERS, PLANTED_DIFFERS},
    {"table: rows are counted without an atomic", count_is_lost, NULL, PLANTED_RACE},
    {"table: rank in a bucket before the barrier", rank_before_the_barrier, PLANTED_DIFFERS, PLANTED_RACE},
    {"table: key of a slot before its lane wrote it", key_before_its_lane_wrote, PLANTED_DIFFERS,
     PLANTED_RACE},
    {"table: row behind the last bucket", row_behind_the_last, "heap-buffer-overflow", NULL},
    {"table: key behind the last slot of its bucket", key_behind_its_bucket, "out of bounds", NULL},
    {"table: probe by a part of a warp", probe_by_a_part_of_a_warp, "warp collective not reached by all",
     "warp collective not reached by all"},
    {NULL, NULL, NULL, NULL}};

/*
 * resolve: a batch's occurrences of distinct keys; gpu_table.h has the rule.
 *
 * Ladder (not measured): (1) One thread per key, with a lock for each bucket: which key gets the last slot
 * depends on timing, so the same batch gives different rows each time. (2) Phases, each a kernel, so that no
 * decision is made before everything in the batch that affects it is known: the latest event time of each
 * key; look (one tile per key, as in find); settle (expired rows are removed, sketch cells rise to a maximum,
 * so their order does not matter); admit; then rows are made, sorted by bucket (table_insert.cu). No count is
 * read by the host, so nothing waits. (3) Phases that a set does not need are not launched: admission,
 * expiry, event times. (4) A header is one access of 16 bytes; the latest event time of a key is computed by
 * a thread for up to 64 occurrences, by a warp up to 4096, by the whole device beyond.
 *
 * refresh: the latest event times, then find, which writes them.
 */
#include "kernels/cuda/table_probe.cuh"
#include "kernels/cuda/tables.cuh"

enum {
    BLOCK = 256,
    KEYS = 2,
    BLOCK_KEYS = BLOCK / TILE_LANES * KEYS,
    COUNT_MAX = 255,
    MANY = 64,
    VERY_MANY = 4096
};

/* A batch and the outputs of its phases, as a kernel argument. */
struct resolve_batch {
    gpu_batch batch;
    const gpu_table_view *views;
    gpu_table_counts *counts;
    table_scratch scratch;
    gpu_removed_list removed;
    uint32_t stride;
    void **rows;
};

static __device__ uint32_t keys_of(const gpu_batch &batch)
{
    return *batch.count < batch.n ? *batch.count : batch.n;
}

static __device__ uint32_t occurrences(const gpu_batch &batch, uint32_t u)
{
    return batch.starts[u + 1] - batch.starts[u];
}

/* --- The latest event time of each key --- */

static __global__ void seen_few(resolve_batch in)
{
    const uint32_t u = (uint32_t)cuda_thread();
    if (u >= keys_of(in.batch))
        return;
    const uint32_t from = in.batch.starts[u], to = in.batch.starts[u + 1];
    uint32_t latest = 0;
    if (to - from > MANY) {
        const int which = to - from > VERY_MANY ? COUNT_VERY_MANY : COUNT_MANY;
        in.scratch.lists[which][atomicAdd(&in.scratch.counters[which], 1U)] = u;
    } else {
        for (uint32_t i = from; i < to; i++)
            latest = max(latest, in.batch.seen[in.batch.order[i]]);
    }
    in.scratch.seen[u] = latest;
}

/* The latest event time of the occurrences first, first + stride ... of key u; in all lanes. */
static __device__ uint32_t latest_of(const gpu_batch &batch, uint32_t u, uint32_t first, uint32_t stride)
{
    const uint32_t to = batch.starts[u + 1];
    uint32_t latest = 0;
#pragma unroll 4
    for (uint64_t i = (uint64_t)batch.starts[u] + first; i < to; i += stride)
        latest = max(latest, batch.seen[batch.order[i]]);
    return warp_most(latest);
}

static __global__ void seen_many(resolve_batch in)
{
    const uint32_t warp = (uint32_t)(cuda_thread() / WARP_LANES), lane = threadIdx.x % WARP_LANES;
    const uint32_t warps = gridDim.x * blockDim.x / WARP_LANES;
    const uint32_t many = in.scratch.counters[COUNT_MANY], very_many = in.scratch.counters[COUNT_VERY_MANY];
    for (uint32_t i = warp; i < many; i += warps) {
        const uint32_t u = in.scratch.lists[COUNT_MANY][i], latest = latest_of(in.batch, u, lane, WARP_LANES);
        if (lane == 0)
            in.scratch.seen[u] = latest;
    }
    for (uint32_t i = 0; i < very_many; i++) {
        const uint32_t u = in.scratch.lists[COUNT_VERY_MANY][i];
        const uint32_t latest = latest_of(in.batch, u, warp * WARP_LANES + lane, warps * WARP_LANES);
        if (lane == 0)
            atomicMax(&in.scratch.seen[u], latest);
    }
}

/* --- Look --- */

static __device__ uint8_t *sketch_cell(const gpu_table_view *view, uint64_t hash, uint32_t d)
{
    const uint32_t step = (uint32_t)(hash >> 32) | 1;
    const uint32_t shard = shard_of(hash, view->shards, view->is_bounded ? view->bucket_count : 0);
    return view->sketch + (shard * GPU_SKETCH_DEPTH + d) * view->sketch_width +
           (((uint32_t)hash + d * step) & (view->sketch_width - 1));
}

static __device__ uint32_t sketch_estimate(const gpu_table_view *view, uint64_t hash)
{
    uint32_t least = COUNT_MAX;
#pragma unroll
    for (uint32_t d = 0; d < GPU_SKETCH_DEPTH; d++)
        least = min(least, (uint32_t)*sketch_cell(view, hash, d));
    return least;
}

static __device__ uint32_t bucket_of(const gpu_table_view *view, uint64_t hash)
{
    return view->buckets_before + (uint32_t)table_first(view, hash);
}

/* Updates the header of a row that occurs in the batch; by one lane. */
static __device__ void touch(const resolve_batch &in, const gpu_table_view *view, gpu_head *at, uint32_t u)
{
    gpu_head head = *at;
    const uint32_t k = occurrences(in.batch, u);
    head.count = head.count + k < head.count ? UINT32_MAX : head.count + k;
    head.seen = max(head.seen, in.batch.seen != NULL ? in.scratch.seen[u] : 0);
    head.epoch = in.batch.epoch;
    head.step = view->is_bounded ? in.batch.step : table_later_step(head.step, in.batch.step);
    *at = head;
}

/* For a key without a row, before anything changes: computes the sketch's estimate, or the bucket of the new
 * row; by one lane. */
static __device__ void ask(const resolve_batch &in, const table_search *s, uint32_t u)
{
    uint32_t waiting = 0;
    if (s->view->admit_after > 1)
        waiting = min(sketch_estimate(s->view, s->hash) + min(occurrences(in.batch, u), (uint32_t)COUNT_MAX),
                      (uint32_t)COUNT_MAX);
    in.scratch.waiting[u] = waiting;
    in.scratch.buckets[u] = waiting == 0 ? bucket_of(s->view, s->hash) : BATCH_NONE;
}

static __global__ void __launch_bounds__(BLOCK) look(resolve_batch in)
{
    const table_lookup asked = {in.views, in.counts,      in.batch.keys, in.batch.tables,
                                NULL,     in.batch.count, in.batch.n};
    table_search searches[KEYS];
    uint32_t first, n;
    (void)table_look_up(asked, searches, &first, &n); /* outputs beyond the last key must be written, too */
    if (threadIdx.x % TILE_LANES != 0)
        return;
#pragma unroll
    for (int k = 0; k < KEYS; k++) {
        const uint32_t u = first + (uint32_t)k * WARP_TILES;
        const table_search *s = &searches[k];
        if (u >= in.batch.n)
            continue;
        in.scratch.buckets[u] = BATCH_NONE;
        in.scratch.waiting[u] = 0;
        in.scratch.gone[u] = SLOT_NONE;
        if (u >= n || s->key == 0)
            continue;
        gpu_head *head = s->slot != SLOT_NONE ? table_head(s->view, s->slot) : NULL;
        if (head != NULL && head->seen >= s->view->expired_before) {
            touch(in, s->view, head, u);
            in.rows[u] = table_row(s->view, s->slot, in.stride);
            if (in.batch.known != NULL)
                in.batch.known[u] = in.rows[u];
            continue;
        }
        in.rows[u] = NULL;
        if (in.batch.known != NULL)
            in.batch.known[u] = NULL;
        in.scratch.gone[u] = s->slot;
        ask(in, s, u);
    }
}

/* --- Settle and admit --- */

/* Raises a cell to `estimate`; true if this thread raised it. */
static __device__ bool raise_cell(uint8_t *cell, uint32_t estimate)
{
    const uintptr_t address = (uintptr_t)cell;
    uint32_t *word = (uint32_t *)(address & ~(uintptr_t)3);
    const uint32_t shift = 8 * (uint32_t)(address & 3);
    uint32_t old = atomicOr(word, 0U);
    while ((old >> shift & 255) < estimate) {
        const uint32_t seen = old;
        old = atomicCAS(word, seen, (seen & ~(255U << shift)) | estimate << shift);
        if (old == seen)
            return true;
    }
    return false;
}

/* Raises the sketch's cells of a key without a row; blocks that change get the batch's epoch. */
static __device__ void raise_cells(const gpu_table_view *view, uint64_t hash, uint32_t estimate,
                                   uint32_t epoch)
{
#pragma unroll
    for (uint32_t d = 0; d < GPU_SKETCH_DEPTH; d++) {
        uint8_t *cell = sketch_cell(view, hash, d);
        uint32_t *changed = &view->sketch_epochs[(size_t)(cell - view->sketch) / GPU_SKETCH_BLOCK];
        if (raise_cell(cell, estimate) && load_relaxed(changed) != epoch)
            atomicExch(changed, epoch); /* other threads write the same value */
    }
}

/* Removes expired rows whose keys occur in the batch; raises the sketch's cells for keys without a row. The
 * order of threads does not matter: slots are distinct, and cells rise to a maximum. */
static __global__ void settle(resolve_batch in)
{
    const uint32_t u = (uint32_t)cuda_thread();
    const bool is_key = u < keys_of(in.batch);
    const uint32_t table = is_key ? in.batch.tables[u] : 0;
    const gpu_table_view *view = in.views + table;
    const uint64_t slot = is_key ? in.scratch.gone[u] : SLOT_NONE;
    const uint32_t estimate = is_key ? in.scratch.waiting[u] : 0;
    if (slot != SLOT_NONE) {
        gpu_bucket *bucket = view->buckets + slot / GPU_BUCKET_SLOTS;
        bucket->keys[slot % GPU_BUCKET_SLOTS] = 0;
        bucket->digests[slot % GPU_BUCKET_SLOTS] = DIGEST_WAS_FULL; /* always correct */
        table_list_removed(&in.removed, table, in.batch.keys[u]);
        if (slot / GPU_BUCKET_SLOTS < view->stash_buckets)
            atomicSub(&in.counts[table].stashed, 1U);
        atomicAdd(&in.counts[table].rows, ~0ULL);
    }
    table_count(in.counts, &gpu_table_counts::expired, table, slot != SLOT_NONE);
    if (estimate != 0)
        raise_cells(view, table_hash_of(view, in.batch.keys[u]), estimate, in.batch.epoch);
}

static __global__ void admit(resolve_batch in)
{
    const uint32_t u = (uint32_t)cuda_thread();
    const bool asks = u < keys_of(in.batch) && in.scratch.waiting[u] != 0;
    const uint32_t table = asks ? in.batch.tables[u] : 0;
    uint32_t waits = 0;
    if (asks) {
        const gpu_table_view *view = in.views + table;
        const uint64_t hash = table_hash_of(view, in.batch.keys[u]);
        if (sketch_estimate(view, hash) >= view->admit_after)
            in.scratch.buckets[u] = bucket_of(view, hash);
        else
            waits = occurrences(in.batch, u);
    }
    table_count(in.counts, &gpu_table_counts::waiting, table, waits);
}

/* --- Refresh --- */

static __global__ void __launch_bounds__(BLOCK) note_seen(resolve_batch in)
{
    const table_lookup asked = {in.views, in.counts,      in.batch.keys, in.batch.tables,
                                NULL,     in.batch.count, in.batch.n};
    table_search searches[KEYS];
    uint32_t first, n;
    if (!table_look_up(asked, searches, &first, &n) || threadIdx.x % TILE_LANES != 0)
        return;
#pragma unroll
    for (int k = 0; k < KEYS; k++) {
        const uint32_t u = first + (uint32_t)k * WARP_TILES;
        const table_search *s = &searches[k];
        if (u >= n || s->key == 0 || s->slot == SLOT_NONE)
            continue;
        gpu_head *head = table_head(s->view, s->slot);
        if (head->seen < s->view->expired_before || head->seen >= in.scratch.seen[u])
            continue;
        head->seen = in.scratch.seen[u];
        head->epoch = in.batch.epoch;
    }
}

/* --- A batch --- */

static void queue_seen(gpu_tables *tables, cudaStream_t queue, const resolve_batch &in)
{
    const uint32_t warps = cuda_blocks(in.batch.n, MANY), most = 2 * (uint32_t)tables->gpu->multiprocessors;
    gpu_note(tables->gpu,
             cudaMemsetAsync(tables->scratch.counters, 0, TABLE_COUNTERS * sizeof(uint32_t), queue),
             "tables: occurrences");
    if (in.batch.seen == NULL)
        return;
    LAUNCH(seen_few, cuda_blocks(in.batch.n, BLOCK), BLOCK, 0, queue, in);
    LAUNCH(seen_many, min(cuda_blocks(warps, BLOCK / WARP_LANES), most), BLOCK, 0, queue, in);
}

static void queue_phases(gpu_tables *tables, cudaStream_t queue, const resolve_batch &in)
{
    bool expires = false, admits = false;
    for (uint32_t t = 0; t < tables->options.tables; t++) {
        expires |= tables->tables[t].view.expired_before > 0;
        admits |= tables->tables[t].view.admit_after > 1;
    }
    const uint32_t n = in.batch.n, blocks = cuda_blocks(n, BLOCK);
    queue_seen(tables, queue, in);
    LAUNCH(look, cuda_blocks(n, BLOCK_KEYS), BLOCK, 0, queue, in);
    if (expires || admits)
        LAUNCH(settle, blocks, BLOCK, 0, queue, in);
    if (admits)
        LAUNCH(admit, blocks, BLOCK, 0, queue, in);
}

static bool fits(gpu_tables *tables, const gpu_batch *batch)
{
    if (batch->n > tables->options.batch_max)
        gpu_fail(tables->gpu,
                 "A batch of %u keys is too large: the tables were made for batches of at most %u keys.",
                 batch->n, tables->options.batch_max);
    return batch->n > 0 && batch->n <= tables->options.batch_max;
}

void tables_refresh(gpu_tables *tables, gpu_stream *stream, const gpu_batch *batch)
{
    if (!fits(tables, batch) || batch->seen == NULL)
        return;
    cudaStream_t queue = gpu_cuda_stream(stream);
    const resolve_batch in = {
        *batch,         tables->views, tables->counts, tables->scratch, tables_removed_list(tables),
        tables->stride, NULL};
    queue_seen(tables, queue, in);
    LAUNCH(note_seen, cuda_blocks(batch->n, BLOCK_KEYS), BLOCK, 0, queue, in);
    gpu_launched(stream, "tables: refresh");
}

void tables_resolve(gpu_tables *tables, gpu_stream *stream, const gpu_batch *batch, void **rows)
{
    const uint32_t n = batch->n;
    if (!fits(tables, batch) || !tables_reserve_removed(tables, stream, tables_removed_by(tables, n), NULL))
        return;
    for (uint32_t t = 0; t < tables->options.tables; t++)
        tables_note_new(tables, t, batch->places != NULL ? batch->places[t] : n);
    cudaStream_t queue = gpu_cuda_stream(stream);
    const resolve_batch in = {
        *batch,         tables->views, tables->counts, tables->scratch, tables_removed_list(tables),
        tables->stride, rows};
    queue_phases(tables, queue, in);
    gpu_launched(stream, "tables: resolve");
    const table_insertion insertion = {batch->count,
                                       n,
                                       batch->keys,
                                       batch->tables,
                                       NULL,
                                       batch->starts,
                                       batch->seen != NULL ? tables->scratch.seen : NULL,
                                       batch->step,
                                       batch->epoch,
                                       rows};
    tables_insert(tables, stream, &insertion);
}

/*
 * What the host reads from a set between batches: counters, errors, removals; and expiry.
 *
 * Ladder of expire (not measured): (1) A pass over all headers each time the watermark moves: 1.6 GB of
 * reads for a table of 100 M rows. (2) Expired rows are ignored wherever they are found, and each call
 * sweeps SWEEP_BUCKETS more buckets, so that expired rows do not hold memory for ever. One warp per bucket;
 * keys are read only for rows that are removed.
 */
#include "kernels/cuda/tables.cuh"

#include <stdlib.h>
#include <string.h>

static const uint32_t SWEEP_BUCKETS = 256, WARPS_A_BLOCK = 8;

/* --- Reading back --- */

static bool read_back(gpu_tables *tables, gpu_stream *stream, void *to, const void *from, size_t bytes)
{
    cudaStream_t queue = gpu_cuda_stream(stream);
    if (!gpu_note(tables->gpu, cudaMemcpyAsync(tables->pinned, from, bytes, cudaMemcpyDeviceToHost, queue),
                  "tables: reading counts") ||
        !gpu_note(tables->gpu, cudaStreamSynchronize(queue), "tables: waiting"))
        return false;
    memcpy(to, tables->pinned, bytes);
    return true;
}

/* Notes errors that kernels found as a failure of the device. */
static bool check_flags(gpu_tables *tables, const gpu_table_flags &flags, gpu_error *error)
{
    if (flags.overflowed > 0)
        gpu_fail(tables->gpu,
                 "Embedding tables had no room for %u new rows: make_room was not called for these rows.",
                 flags.overflowed);
    else if (flags.removed > tables->removed_room)
        gpu_fail(tables->gpu,
                 "%u keys were removed from embedding tables, but only %u can be listed: a bug of leat.",
                 flags.removed, tables->removed_room);
    return gpu_is_good(tables->gpu, error);
}

static bool read_flags(gpu_tables *tables, gpu_stream *stream, gpu_table_flags *flags, gpu_error *error)
{
    if (!gpu_is_good(tables->gpu, error) || !read_back(tables, stream, flags, tables->flags, sizeof(*flags)))
        return gpu_is_good(tables->gpu, error);
    return check_flags(tables, *flags, error);
}

bool tables_wait(gpu_tables *tables, gpu_stream *stream, gpu_error *error)
{
    gpu_table_flags flags = {};
    return read_flags(tables, stream, &flags, error);
}

bool tables_read_counts(gpu_tables *tables, gpu_stream *stream, uint32_t t, gpu_table_counts *counts,
                        gpu_error *error)
{
    if (!tables_wait(tables, stream, error))
        return false;
    read_back(tables, stream, counts, tables->counts + t, sizeof(*counts));
    return gpu_is_good(tables->gpu, error);
}

/* --- Removals --- */

/* Makes room on the host for `count` more removals. */
static bool need_gone(gpu_tables *tables, size_t count, gpu_error *error)
{
    if (tables->gone_count + count <= tables->gone_room)
        return true;
    size_t room = 2 * (tables->gone_count + count);
    void *grown = realloc(tables->gone, room * sizeof(*tables->gone));
    if (grown == NULL)
        return gpu_refuse(error, GPU_NO_MEMORY, "The host has no memory left for %zu removed keys.", room);
    tables->gone = static_cast<gpu_removed *>(grown);
    tables->gone_room = room;
    return true;
}

/* Queues the copy of the list's first `count` entries; the list is empty afterwards. */
static bool queue_drain(gpu_tables *tables, gpu_stream *stream, void *to, size_t count)
{
    cudaStream_t queue = gpu_cuda_stream(stream);
    return gpu_note(tables->gpu,
                    cudaMemcpyAsync(to, tables->removed, count * sizeof(*tables->removed),
                                    cudaMemcpyDeviceToHost, queue),
                    "tables: reading removals") &&
           gpu_note(tables->gpu, cudaMemsetAsync(&tables->flags->removed, 0, sizeof(uint32_t), queue),
                    "tables: reading removals");
}

static bool drain(gpu_tables *tables, gpu_stream *stream, uint32_t count, gpu_error *error)
{
    if (count == 0)
        return true;
    if (!need_gone(tables, count, error))
        return false;
    if (queue_drain(tables, stream, tables->gone + tables->gone_count, count) &&
        gpu_note(tables->gpu, cudaStreamSynchronize(gpu_cuda_stream(stream)), "tables: waiting"))
        tables->gone_count += count, tables->removed_most = 0;
    return gpu_is_good(tables->gpu, error);
}

const gpu_table_counts *tables_read_all(gpu_tables *tables, gpu_stream *stream, gpu_error *error)
{
    cudaStream_t queue = gpu_cuda_stream(stream);
    unsigned char *counts = tables->pinned + PINNED_COUNTS_AT;
    gpu_table_flags *flags = reinterpret_cast<gpu_table_flags *>(tables->pinned);
    static_assert(PINNED_COUNTS_AT + BATCH_TABLES_MAX * sizeof(gpu_table_counts) <= PINNED_BYTES,
                  "the counts of all tables are read at once");
    const uint32_t most =
        tables->removed_most < tables->removed_room ? tables->removed_most : tables->removed_room;
    const bool drains = tables->removed_host != NULL && most > tables->removed_room / 2;
    gpu_note(tables->gpu, cudaMemcpyAsync(flags, tables->flags, sizeof(*flags), cudaMemcpyDefault, queue),
             "tables: reading counts");
    gpu_note(tables->gpu,
             cudaMemcpyAsync(counts, tables->counts, tables->options.tables * sizeof(gpu_table_counts),
                             cudaMemcpyDefault, queue),
             "tables: reading counts");
    if (drains)
        queue_drain(tables, stream, tables->removed_host, most);
    gpu_note(tables->gpu, cudaStreamSynchronize(queue), "tables: waiting");
    if (!gpu_is_good(tables->gpu, error) || !check_flags(tables, *flags, error))
        return NULL;
    tables->removed_most = flags->removed;
    if (drains) {
        if (!need_gone(tables, flags->removed, error))
            return NULL;
        if (flags->removed > 0)
            memcpy(tables->gone + tables->gone_count, tables->removed_host,
                   flags->removed * sizeof(*tables->gone));
        tables->gone_count += flags->removed;
        tables->removed_most = 0;
    }
    return reinterpret_cast<const gpu_table_counts *>(counts);
}

bool tables_drain_removed(gpu_tables *tables, gpu_stream *stream, gpu_error *error)
{
    gpu_table_flags flags = {};
    return read_flags(tables, stream, &flags, error) && drain(tables, stream, flags.removed, error);
}

uint64_t tables_removed_by(const gpu_tables *tables, uint32_t places)
{
    bool expires = false, evicts = false;
    for (uint32_t t = 0; t < tables->options.tables; t++) {
        expires |= tables->tables[t].view.expired_before > 0;
        evicts |= tables->tables[t].view.is_bounded != 0;
    }
    return tables->lists_removed ? ((uint64_t)expires + evicts) * places : 0;
}

bool tables_reserve_removed(gpu_tables *tables, gpu_stream *stream, uint64_t n, gpu_error *error)
{
    gpu_table_flags flags = {};
    if (!tables->lists_removed)
        return true;
    if (tables->removed_most + n > tables->removed_room) {
        if (!read_flags(tables, stream, &flags, error))
            return false;
        tables->removed_most = flags.removed;
    }
    if (tables->removed_most + n > tables->removed_room && !drain(tables, stream, flags.removed, error))
        return false;
    tables->removed_most += (uint32_t)n;
    return true;
}

bool tables_stats(gpu_tables *tables, gpu_stream *stream, uint32_t t, gpu_table_stats *stats,
                  gpu_error *error)
{
    gpu_table_counts counts = {};
    if (!tables_read_counts(tables, stream, t, &counts, error))
        return false;
    const gpu_table *table = &tables->tables[t];
    *stats = {};
    stats->rows = counts.rows;
    stats->inserted = counts.inserted;
    stats->evicted = counts.evicted;
    stats->expired = counts.expired;
    stats->refused = counts.refused;
    stats->waiting = counts.waiting;
    stats->stashed = counts.stashed;
    stats->buckets = table->view.bucket_count;
    stats->bytes =
        table->buckets.usable + table->rows.usable + gpu_sketch_blocks(&table->options) * GPU_SKETCH_BLOCK;
    return true;
}

/* --- Expiry --- */

static __global__ void set_expired_before(gpu_table_view *view, uint32_t expired_before)
{
    if (cuda_thread() == 0)
        view->expired_before = expired_before;
}

/* Removes the expired rows of `count` buckets from `first` on, one warp per bucket. The buckets, the stash's
 * included, form a ring. */
static __global__ void sweep(const gpu_table_view *view, uint32_t table, uint64_t first, uint32_t count,
                             gpu_table_counts *counts, gpu_removed_list list)
{
    const uint32_t warp = (uint32_t)(cuda_thread() / WARP_LANES), lane = threadIdx.x % WARP_LANES;
    if (warp >= count)
        return;
    const uint64_t place = (first + warp) % (view->stash_buckets + view->bucket_count);
    gpu_bucket *bucket = view->buckets + place;
    const uint32_t line = reinterpret_cast<const uint32_t *>(bucket->digests)[lane];
    const bool has_zero = __any_sync(WARP_ALL, __vcmpeq4(line, 0) != 0);
    uint32_t gone = 0;
#pragma unroll
    for (uint32_t i = 0; i < GPU_BUCKET_SLOTS / WARP_LANES; i++) {
        const uint32_t slot = lane * 4 + i;
        if ((line >> 8 * i & 255) < DIGEST_KEYS || bucket->heads[slot].seen >= view->expired_before)
            continue;
        table_list_removed(&list, table, bucket->keys[slot]);
        bucket->keys[slot] = 0;
        bucket->digests[slot] = has_zero ? DIGEST_FREE : DIGEST_WAS_FULL;
        gone++;
    }
    gone = warp_sum(gone);
    if (lane == 0 && gone > 0) {
        atomicAdd(&counts[table].expired, (unsigned long long)gone);
        atomicAdd(&counts[table].rows, 0ULL - gone);
        if (place < view->stash_buckets)
            atomicAdd(&counts[table].stashed, 0U - gone);
    }
}

void tables_expire(gpu_tables *tables, gpu_stream *stream, uint32_t t, uint32_t expired_before)
{
    gpu_table *table = &tables->tables[t];
    gpu_table_view *view = tables->views + t;
    cudaStream_t queue = gpu_cuda_stream(stream);
    uint64_t buckets = table->view.stash_buckets + table->view.bucket_count;
    uint32_t count = buckets < SWEEP_BUCKETS ? (uint32_t)buckets : SWEEP_BUCKETS;
    uint64_t first = table->sweep_at % buckets;
    if (expired_before <= table->view.expired_before)
        return;
    if (!tables_reserve_removed(tables, stream, (uint64_t)count * GPU_BUCKET_SLOTS, NULL))
        return;
    table->view.expired_before = expired_before;
    LAUNCH(set_expired_before, 1, 1, 0, queue, view, expired_before);
    LAUNCH(sweep, cuda_blocks(count, WARPS_A_BLOCK), WARPS_A_BLOCK * WARP_LANES, 0, queue, view, t, first,
           count, tables->counts, tables_removed_list(tables));
    table->sweep_at = first + count;
    gpu_launched(stream, "tables: expire");
}

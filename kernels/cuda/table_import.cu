/*
 * Rows that enter tables, and keys that are searched or removed: import_rows, missing, remove, take_removed.
 *
 * Ladder of import (not measured): (1) One thread per row probes and copies: a row's bytes are read 4 at a
 * time. (2) Keys are found by eight lanes per key (table_probe.cuh), keys without a row get one as a batch's
 * new keys do (table_insert.cu), and a warp copies a row, 16 bytes per lane. missing: the probe, a prefix
 * sum, and a list in order.
 */
#include "kernels/cuda/table_payload.cuh"
#include "kernels/cuda/table_probe.cuh"

#include "kernels/cuda/sort.cuh"

#include <algorithm>
#include <string.h>

enum { BLOCK = 256, KEYS = 4, BLOCK_KEYS = BLOCK / TILE_LANES * KEYS };

static table_lookup lookup_of(const gpu_tables *tables)
{
    table_lookup in = {};
    in.views = tables->views;
    in.counts = tables->counts;
    return in;
}

/* --- Import --- */

static __global__ void __launch_bounds__(BLOCK)
    import_find(table_lookup in, uint32_t stride, void **rows, uint32_t *buckets, uint32_t *missing_by_table)
{
    table_search searches[KEYS];
    uint32_t first, n;
    if (!table_look_up(in, searches, &first, &n) || threadIdx.x % TILE_LANES != 0)
        return;
#pragma unroll
    for (int k = 0; k < KEYS; k++) {
        const uint32_t u = first + (uint32_t)k * WARP_TILES;
        const table_search *s = &searches[k];
        if (u >= n)
            continue;
        const bool is_there = s->slot != SLOT_NONE;
        rows[u] = is_there ? table_row(s->view, s->slot, stride) : NULL;
        buckets[u] = is_there || s->key == 0
                         ? BATCH_NONE
                         : s->view->buckets_before + (uint32_t)table_first(s->view, s->hash);
        if (!is_there && s->key != 0)
            atomicAdd(&missing_by_table[s->table], 1U);
    }
}

struct import_arguments {
    const gpu_table_view *views;
    table_shape shape;
    const gpu_row_head *heads;
    const float *payloads;
    const uint32_t *at; /* positions in heads and payloads; NULL: in order */
    void *const *rows;
    const uint32_t *buckets; /* BATCH_NONE: the row existed before */
    uint32_t n, step;
    bool keeps;
};

/* Writes the imported rows, one warp per row. */
static __global__ void __launch_bounds__(BLOCK) import_write(import_arguments a)
{
    const uint32_t u = (uint32_t)(cuda_thread() / WARP_LANES), lane = threadIdx.x % WARP_LANES;
    if (u >= a.n || a.rows[u] == NULL)
        return;
    const gpu_row_head in = a.heads[u];
    const gpu_table_view *view = a.views + in.table;
    unsigned char *row = static_cast<unsigned char *>(a.rows[u]);
    gpu_head *head = table_head(view, (uint64_t)(row - view->rows) / a.shape.stride);
    const bool stays = a.keeps && a.buckets[u] == BATCH_NONE;
    if (lane == 0 && stays)
        head->step = table_later_step(head->step, a.step);
    if (stays)
        return;
    if (lane == 0)
        *head = {in.count, in.seen, in.epoch, a.step};
    payload_in(a.shape, row, a.payloads + (size_t)(a.at != NULL ? a.at[u] : u) * table_floats(a.shape), lane);
}

/* Copies the heads, which are read several times, from the caller's memory to device memory. */
static __global__ void gather_heads(const gpu_row_head *heads, const uint32_t *at, uint32_t n,
                                    gpu_row_head *out)
{
    size_t u = cuda_thread();
    if (u < n)
        out[u] = heads[at != NULL ? at[u] : u];
}

/* For each key of one piece of the import: finds its row, or else the bucket for a new row. Reads back how
 * many keys of each table have no row. Waits. */
static bool find_places(gpu_tables *tables, gpu_stream *stream, const gpu_row_head *heads, uint32_t n,
                        gpu_error *error)
{
    table_moves *m = tables->moves;
    size_t bytes = tables->options.tables * sizeof(*m->missing_by_table);
    table_lookup in = lookup_of(tables);
    in.heads = heads;
    in.n = n;
    gpu_note(tables->gpu, cudaMemsetAsync(m->missing_by_table, 0, bytes, gpu_cuda_stream(stream)),
             "tables: import");
    LAUNCH(import_find, cuda_blocks(n, BLOCK_KEYS), BLOCK, 0, gpu_cuda_stream(stream), in, tables->stride,
           m->rows, tables->scratch.buckets, m->missing_by_table);
    gpu_note(tables->gpu,
             cudaMemcpyAsync(m->missing_by_table_host, m->missing_by_table, bytes, cudaMemcpyDefault,
                             gpu_cuda_stream(stream)),
             "tables: import");
    return tables_wait(tables, stream, error);
}

/* Makes room for the missing rows; the other rows may move. */
static bool make_import_room(gpu_tables *tables, gpu_stream *stream, gpu_error *error)
{
    uint64_t cold[BATCH_TABLES_MAX] = {};
    uint32_t missing[BATCH_TABLES_MAX];
    memcpy(missing, tables->moves->missing_by_table_host, tables->options.tables * sizeof(*missing));
    if (!tables_make_room(tables, stream, missing, cold, error))
        return false;
    for (uint32_t t = 0; t < tables->options.tables; t++)
        if (cold[t] > 0)
            return gpu_refuse(error, GPU_NO_MEMORY,
                              "%u rows do not fit into table %u within the %llu MiB that its set of tables "
                              "may take: first %llu other rows must leave the table.",
                              missing[t], t, (unsigned long long)(tables->options.memory_bytes >> 20),
                              (unsigned long long)cold[t]);
    return true;
}

static bool import_piece(gpu_tables *tables, gpu_stream *stream, const import_arguments *piece,
                         gpu_error *error)
{
    table_moves *m = tables->moves;
    import_arguments a = *piece;
    LAUNCH(gather_heads, cuda_blocks(a.n, BLOCK), BLOCK, 0, gpu_cuda_stream(stream), a.heads, a.at, a.n,
           m->heads);
    a.heads = m->heads;
    a.rows = m->rows;
    if (!find_places(tables, stream, a.heads, a.n, error))
        return false;
    bool has_new = false;
    for (uint32_t t = 0; t < tables->options.tables; t++)
        has_new |= m->missing_by_table_host[t] > 0;
    if (has_new) {
        if (!make_import_room(tables, stream, error) || !find_places(tables, stream, a.heads, a.n, error))
            return false;
        gpu_note(tables->gpu,
                 cudaMemsetAsync(tables->scratch.counters, 0, TABLE_COUNTERS * sizeof(uint32_t),
                                 gpu_cuda_stream(stream)),
                 "tables: import"); /* clears the count of keys for the stash, left by an earlier batch */
        table_insertion insertion = {};
        insertion.n = a.n;
        insertion.heads = a.heads;
        insertion.step = a.step;
        insertion.rows = m->rows;
        tables_insert(tables, stream, &insertion);
        for (uint32_t t = 0; t < tables->options.tables; t++)
            tables_note_new(tables, t, m->missing_by_table_host[t]);
    }
    LAUNCH(import_write, cuda_blocks((size_t)a.n * WARP_LANES, BLOCK), BLOCK, 0, gpu_cuda_stream(stream), a);
    gpu_launched(stream, "tables: import");
    return true;
}

bool tables_import_rows(gpu_tables *tables, gpu_stream *stream, const gpu_row_head *heads,
                        const float *payloads, uint32_t count, const uint32_t *at, uint32_t step, bool keeps,
                        gpu_error *error)
{
    if (!gpu_is_good(tables->gpu, error) || !moves_need(tables, error))
        return false;
    size_t floats = table_floats(tables_shape(tables));
    for (uint32_t from = 0; from < count; from += tables->scratch.room) {
        import_arguments piece = {};
        piece.views = tables->views;
        piece.shape = tables_shape(tables);
        piece.heads = at != NULL ? heads : heads + from;
        piece.payloads = at != NULL ? payloads : payloads + from * floats;
        piece.at = at != NULL ? at + from : NULL;
        piece.buckets = tables->scratch.buckets;
        piece.n = count - from < tables->scratch.room ? count - from : tables->scratch.room;
        piece.step = step;
        piece.keeps = keeps;
        if (!import_piece(tables, stream, &piece, error))
            return false;
    }
    return tables_wait(tables, stream, error);
}

/* --- Missing --- */

static __global__ void __launch_bounds__(BLOCK)
    mark_missing(table_lookup in, uint32_t step, uint32_t *is_missing)
{
    table_search searches[KEYS];
    uint32_t first, n;
    if (!table_look_up(in, searches, &first, &n) || threadIdx.x % TILE_LANES != 0)
        return;
#pragma unroll
    for (int k = 0; k < KEYS; k++) {
        const uint32_t u = first + (uint32_t)k * WARP_TILES;
        const table_search *s = &searches[k];
        if (u >= n)
            continue;
        is_missing[u] = s->key != 0 && s->slot == SLOT_NONE;
        if (s->slot == SLOT_NONE || s->view->is_bounded)
            continue;
        gpu_head *head = table_head(s->view, s->slot);
        head->step = table_later_step(head->step, step);
    }
}

static __global__ void list_missing(const uint32_t *is_missing, const uint32_t *places, uint32_t n,
                                    uint32_t *missing, uint32_t *count)
{
    size_t u = cuda_thread();
    if (u < n && is_missing[u])
        missing[places[u]] = (uint32_t)u;
    if (u + 1 == n)
        *count = places[u] + is_missing[u];
}

void tables_missing(gpu_tables *tables, gpu_stream *stream, const gpu_batch *batch, uint32_t *missing,
                    uint32_t *count)
{
    table_scratch *s = &tables->scratch;
    cudaStream_t queue = gpu_cuda_stream(stream);
    table_lookup in = lookup_of(tables);
    in.keys = batch->keys;
    in.tables = batch->tables;
    in.count = batch->count;
    in.n = batch->n;
    gpu_note(tables->gpu, cudaMemsetAsync(count, 0, sizeof(*count), queue), "tables: missing");
    if (batch->n == 0)
        return;
    /* s->buckets and s->buckets_sorted are used here for other data: a flag per key, and the flags' prefix
     * sums. */
    gpu_note(tables->gpu, cudaMemsetAsync(s->buckets, 0, batch->n * sizeof(*s->buckets), queue),
             "tables: missing");
    LAUNCH(mark_missing, cuda_blocks(batch->n, BLOCK_KEYS), BLOCK, 0, queue, in, batch->step, s->buckets);
    scan_exclusive_32(tables->moves->scan, &tables->moves->scan_room, s->buckets, s->buckets_sorted, batch->n,
                      queue);
    LAUNCH(list_missing, cuda_blocks(batch->n, BLOCK), BLOCK, 0, queue, s->buckets, s->buckets_sorted,
           batch->n, missing, count);
    gpu_launched(stream, "tables: missing");
}

/* --- Removal --- */

static __global__ void __launch_bounds__(BLOCK) find_slots(table_lookup in, uint64_t *slots)
{
    table_search searches[KEYS];
    uint32_t first, n;
    if (!table_look_up(in, searches, &first, &n) || threadIdx.x % TILE_LANES != 0)
        return;
#pragma unroll
    for (int k = 0; k < KEYS; k++) {
        const uint32_t u = first + (uint32_t)k * WARP_TILES;
        if (u < n)
            slots[u] = searches[k].slot;
    }
}

/* Frees the slots; digest 1 (DIGEST_WAS_FULL) is always correct. If a key is given twice, only one thread
 * frees its slot. */
static __global__ void free_slots(table_lookup in, const uint64_t *slots, gpu_table_counts *counts)
{
    size_t u = cuda_thread();
    if (u >= in.n || slots[u] == SLOT_NONE)
        return;
    uint32_t table = in.tables != NULL ? in.tables[u] : 0;
    gpu_bucket *bucket = in.views[table].buckets + slots[u] / GPU_BUCKET_SLOTS;
    unsigned long long *keys = reinterpret_cast<unsigned long long *>(bucket->keys);
    if (atomicExch(&keys[slots[u] % GPU_BUCKET_SLOTS], 0ULL) == 0)
        return;
    bucket->digests[slots[u] % GPU_BUCKET_SLOTS] = DIGEST_WAS_FULL;
    atomicAdd(&counts[table].rows, 0ULL - 1);
    if (slots[u] / GPU_BUCKET_SLOTS < in.views[table].stash_buckets)
        atomicSub(&counts[table].stashed, 1U);
}

void tables_remove(gpu_tables *tables, gpu_stream *stream, const uint64_t *keys, const uint32_t *table,
                   uint32_t count)
{
    table_scratch *s = &tables->scratch;
    for (uint32_t at = 0; at < count; at += s->room) {
        table_lookup in = lookup_of(tables);
        in.keys = keys + at;
        in.tables = table != NULL ? table + at : NULL;
        in.n = count - at < s->room ? count - at : s->room;
        LAUNCH(find_slots, cuda_blocks(in.n, BLOCK_KEYS), BLOCK, 0, gpu_cuda_stream(stream), in, s->gone);
        LAUNCH(free_slots, cuda_blocks(in.n, BLOCK), BLOCK, 0, gpu_cuda_stream(stream), in, s->gone,
               tables->counts);
    }
    gpu_launched(stream, "tables: remove");
}

static bool is_less(const gpu_removed &a, const gpu_removed &b)
{
    return a.table != b.table ? a.table < b.table : a.key < b.key;
}

static bool is_same(const gpu_removed &a, const gpu_removed &b)
{
    return a.table == b.table && a.key == b.key;
}

bool tables_take_removed(gpu_tables *tables, gpu_stream *stream, gpu_row_head *removed, uint64_t room,
                         uint64_t *count, gpu_error *error)
{
    *count = 0;
    if (!tables_drain_removed(tables, stream, error))
        return false;
    if (tables->removed_host == NULL && tables->removed_room > 0) {
        const size_t bytes = tables->removed_room * sizeof(*tables->removed_host);
        tables->removed_host =
            static_cast<gpu_removed *>(leat_gpu_api()->alloc_pinned(tables->gpu, bytes, error));
        if (tables->removed_host == NULL)
            return false;
    }
    tables->lists_removed = true;
    gpu_removed *first = tables->gone, *end = first + tables->gone_count;
    std::sort(first, end, is_less);
    end = std::unique(first, end, is_same);
    uint64_t n = (uint64_t)(end - first) < room ? (uint64_t)(end - first) : room;
    for (uint64_t i = 0; i < n; i++)
        removed[i] = {first[i].key, first[i].table, 0, 0, 0};
    tables->gone_count = (size_t)(end - first) - n;
    if (tables->gone_count > 0)
        memmove(first, first + n, tables->gone_count * sizeof(*first));
    *count = n;
    return true;
}

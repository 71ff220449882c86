/*
 * select and export_rows: copies of rows; take_oldest uses the same code for the rows it removes.
 *
 * Ladder (not measured): (1) One thread per slot copies the slot's row: strided reads, and output positions
 * by atomic additions, so that the order differs from run to run. (2) Heads are read in order, 16 bytes per
 * lane, selected rows are counted by bucket, and a prefix sum gives each row its position in (table, slot)
 * order; a warp copies a row, 16 bytes per lane. (3) The list of selected rows is never written: export reads
 * the heads of a bucket again, 2 KB in addition to the 64 KB and more of rows that it copies. The limit is
 * the copy to the host, which overlaps with the gathering of the next piece (learners/device/snapshot.h).
 */
#include "kernels/cuda/table_payload.cuh"

#include "kernels/cuda/sort.cuh"

#include <new>
#include <stdlib.h>

enum { COUNT_BLOCK = 256, EXPORT_BLOCK = GPU_BUCKET_SLOTS };

/* --- Memory --- */

uint64_t tables_places(const gpu_tables *tables, uint32_t t)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < t; i++)
        sum += table_places(&tables->tables[i].view);
    return sum;
}

template <typename type> static bool make(gpu_tables *tables, type **memory, size_t count, gpu_error *error)
{
    if (*memory == NULL)
        *memory = static_cast<type *>(leat_gpu_api()->alloc(tables->gpu, count * sizeof(type), error));
    return *memory != NULL;
}

template <typename type>
static bool make_pinned(gpu_tables *tables, type **memory, size_t count, gpu_error *error)
{
    if (*memory == NULL)
        *memory = static_cast<type *>(leat_gpu_api()->alloc_pinned(tables->gpu, count * sizeof(type), error));
    return *memory != NULL;
}

static void free_places(gpu_tables *tables, table_moves *m)
{
    leat_gpu_api()->free(tables->gpu, m->counts);
    leat_gpu_api()->free(tables->gpu, m->offsets);
    leat_gpu_api()->free(tables->gpu, m->scan);
    leat_gpu_api()->free_pinned(tables->gpu, m->offsets_host);
    m->counts = m->offsets = m->offsets_host = NULL;
    m->scan = NULL;
    m->places_room = 0;
}

static bool make_places(gpu_tables *tables, table_moves *m, gpu_error *error)
{
    size_t places = tables_places(tables, tables->options.tables);
    if (places <= m->places_room)
        return true;
    free_places(tables, m);
    size_t room = places + places / 4 + 64;
    unsigned char *scan = NULL;
    uint32_t scanned = tables->scratch.room; /* tables_missing scans up to this many elements with m->scan */
    scanned = scanned > room + 1 ? scanned : (uint32_t)room + 1;
    scan_exclusive_32(NULL, &m->scan_room, NULL, NULL, scanned, NULL);
    if (!make(tables, &m->counts, room + 1, error) || !make(tables, &m->offsets, room + 1, error) ||
        !make_pinned(tables, &m->offsets_host, room + 1, error) ||
        !make(tables, &scan, m->scan_room + 1, error))
        return false;
    m->scan = scan;
    m->places_room = room;
    return true;
}

bool moves_need(gpu_tables *tables, gpu_error *error)
{
    if (tables->moves == NULL)
        tables->moves = new (std::nothrow) table_moves{};
    table_moves *m = tables->moves;
    if (m == NULL)
        return gpu_refuse(error, GPU_NO_MEMORY, "The host has no memory left.");
    size_t n = tables->options.tables;
    if (m->sort == NULL) {
        unsigned char *sort = NULL;
        sort_pairs_32(NULL, &m->sort_room, NULL, NULL, NULL, NULL, MOVES_OFFERS, 32, NULL);
        if (!make(tables, &sort, m->sort_room + 1, error))
            return false;
        m->sort = sort;
    }
    for (uint32_t *&offers : m->offers)
        if (!make(tables, &offers, MOVES_OFFERS, error))
            return false;
    return make_places(tables, m, error) && make(tables, &m->digits, MOVES_DIGITS, error) &&
           make_pinned(tables, &m->digits_host, MOVES_DIGITS, error) &&
           make(tables, &m->missing_by_table, n, error) &&
           make_pinned(tables, &m->missing_by_table_host, n, error) &&
           make(tables, &m->full, n * MOVES_FULL, error) &&
           make_pinned(tables, &m->full_host, n * MOVES_FULL, error) &&
           make(tables, &m->heads, tables->scratch.room, error) &&
           make(tables, &m->rows, tables->scratch.room, error);
}

uint64_t moves_bytes(uint32_t tables, uint32_t room)
{
    size_t sort = 0;
    sort_pairs_32(NULL, &sort, NULL, NULL, NULL, NULL, MOVES_OFFERS, 32, NULL);
    return sort +
           (4 * (uint64_t)MOVES_OFFERS + MOVES_DIGITS + tables * (1 + (uint64_t)MOVES_FULL)) *
               sizeof(uint32_t) +
           (uint64_t)room * (sizeof(void *) + sizeof(gpu_row_head));
}

void moves_free(gpu_tables *tables)
{
    table_moves *m = tables->moves;
    if (m == NULL)
        return;
    free_places(tables, m);
    for (uint32_t *offers : m->offers)
        leat_gpu_api()->free(tables->gpu, offers);
    leat_gpu_api()->free(tables->gpu, m->sort);
    leat_gpu_api()->free(tables->gpu, m->digits);
    leat_gpu_api()->free_pinned(tables->gpu, m->digits_host);
    leat_gpu_api()->free(tables->gpu, m->missing_by_table);
    leat_gpu_api()->free_pinned(tables->gpu, m->missing_by_table_host);
    leat_gpu_api()->free(tables->gpu, m->full);
    leat_gpu_api()->free_pinned(tables->gpu, m->full_host);
    leat_gpu_api()->free(tables->gpu, m->heads);
    leat_gpu_api()->free(tables->gpu, m->rows);
    delete m;
    tables->moves = NULL;
}

/* --- Counting --- */

/* Counts the selected rows of each bucket, one warp per bucket. */
static __global__ void __launch_bounds__(COUNT_BLOCK)
    count_rows(const gpu_table_view *view, uint64_t places, table_filter filter, uint32_t *counts)
{
    uint64_t place = cuda_thread() / WARP_LANES;
    uint32_t lane = threadIdx.x % WARP_LANES, count = 0;
    if (place >= places)
        return;
    const gpu_bucket *bucket = view->buckets + place;
    uint8_t digests[4];
    gpu_head heads[4];
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        digests[i] = bucket->digests[lane + i * WARP_LANES];
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        heads[i] = bucket->heads[lane + i * WARP_LANES];
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        bool is_row = digests[i] >= DIGEST_KEYS;
        uint64_t key = is_row && filter.is_oldest ? bucket->keys[lane + i * WARP_LANES] : 0;
        count += (uint32_t)__popc(__ballot_sync(WARP_ALL, is_row && filter_takes(filter, key, heads[i])));
    }
    if (lane == 0)
        counts[place] = count;
}

void moves_count(gpu_tables *tables, gpu_stream *stream, uint32_t t, const table_filter *filter)
{
    uint64_t places = table_places(&tables->tables[t].view);
    table_filter of_table = *filter;
    of_table.expired_before = tables->tables[t].view.expired_before;
    LAUNCH(count_rows, cuda_blocks(places * WARP_LANES, COUNT_BLOCK), COUNT_BLOCK, 0, gpu_cuda_stream(stream),
           tables->views + t, places, of_table, tables->moves->counts + tables_places(tables, t));
    gpu_launched(stream, "tables: count_rows");
}

void moves_scan(gpu_tables *tables, gpu_stream *stream, size_t n)
{
    table_moves *m = tables->moves;
    gpu_note(tables->gpu, cudaMemsetAsync(m->counts + n, 0, sizeof(*m->counts), gpu_cuda_stream(stream)),
             "tables: counts");
    scan_exclusive_32(m->scan, &m->scan_room, m->counts, m->offsets, (uint32_t)n + 1,
                      gpu_cuda_stream(stream));
    gpu_launched(stream, "tables: scan");
}

/* --- Copying --- */

/* The argument of export_bucket. */
struct export_arguments {
    const gpu_table_view *view;
    gpu_table_counts *counts;
    table_filter filter;
    table_shape shape;
    const uint32_t *offsets; /* by place in the table, from 0 */
    uint64_t first, begin, end;
    uint32_t table;
    bool takes;
    gpu_row_head *heads;
    float *payloads;
    const uint32_t *at;
};

/* The selected rows of a block's bucket, in slot order. */
struct export_chosen {
    uint32_t warps[EXPORT_BLOCK / WARP_LANES]; /* by warp: number of selected slots */
    uint8_t slots[EXPORT_BLOCK];
};

/* Whether the bucket has a digest 0. Called by all threads of the block. */
static __device__ bool has_free(uint8_t digest, uint32_t *warps)
{
    uint32_t zeros = __ballot_sync(WARP_ALL, digest == DIGEST_FREE);
    __syncthreads();
    if (threadIdx.x % WARP_LANES == 0)
        warps[threadIdx.x / WARP_LANES] = zeros;
    __syncthreads();
    uint32_t any = 0;
    for (uint32_t w = 0; w < EXPORT_BLOCK / WARP_LANES; w++)
        any |= warps[w];
    return any != 0;
}

/* The output position of selected row `number`. */
static __device__ size_t export_at(const export_arguments &a, uint64_t number)
{
    return a.at != NULL ? a.at[number - a.begin] : number - a.begin;
}

/* Exports the selected rows of one bucket per block: one thread per slot selects, then one warp per row
 * copies. */
static __global__ void __launch_bounds__(EXPORT_BLOCK) export_bucket(export_arguments a)
{
    SHARED(export_chosen, chosen);
    const uint32_t s = threadIdx.x, lane = s % WARP_LANES, warp = s / WARP_LANES;
    const uint64_t place = a.first + blockIdx.x;
    gpu_bucket *bucket = a.view->buckets + place;
    const uint8_t digest = bucket->digests[s];
    const uint64_t key = bucket->keys[s];
    const gpu_head head = bucket->heads[s];
    bool is_chosen = digest >= DIGEST_KEYS && filter_takes(a.filter, key, head);
    uint32_t votes = __ballot_sync(WARP_ALL, is_chosen);
    uint32_t rank = (uint32_t)__popc(votes & ((1U << lane) - 1U)), count = 0;
    if (lane == 0)
        chosen.warps[warp] = (uint32_t)__popc(votes);
    __syncthreads();
    for (uint32_t w = 0; w < EXPORT_BLOCK / WARP_LANES; w++) {
        rank += w < warp ? chosen.warps[w] : 0;
        count += chosen.warps[w];
    }
    if (is_chosen)
        chosen.slots[rank] = (uint8_t)s;
    const uint64_t first = a.offsets[place];
    if (is_chosen && first + rank >= a.begin && first + rank < a.end)
        a.heads[export_at(a, first + rank)] = {key, a.table, head.count, head.seen, head.epoch};
    __syncthreads();
    const size_t floats = table_floats(a.shape);
    for (uint32_t i = warp; i < count; i += EXPORT_BLOCK / WARP_LANES)
        if (first + i >= a.begin && first + i < a.end)
            payload_out(a.shape,
                        table_row(a.view, place * GPU_BUCKET_SLOTS + chosen.slots[i], a.shape.stride),
                        a.payloads + export_at(a, first + i) * floats, lane);
    if (!a.takes)
        return;
    bool keeps_free = has_free(digest, chosen.warps);
    if (is_chosen) {
        bucket->keys[s] = 0;
        bucket->digests[s] = keeps_free ? DIGEST_FREE : DIGEST_WAS_FULL;
    }
    if (s == 0 && count > 0) {
        atomicAdd(&a.counts[a.table].rows, 0ULL - count);
        if (place < a.view->stash_buckets)
            atomicSub(&a.counts[a.table].stashed, count);
    }
}

void moves_export_table(gpu_tables *tables, gpu_stream *stream, uint32_t t, const moves_export *out)
{
    export_arguments a = {};
    a.view = tables->views + t;
    a.counts = tables->counts;
    a.filter = *out->filter;
    a.filter.expired_before = tables->tables[t].view.expired_before;
    a.shape = tables_shape(tables);
    a.offsets = tables->moves->offsets + tables_places(tables, t);
    a.first = out->first;
    a.begin = out->begin;
    a.end = out->end;
    a.table = t;
    a.takes = out->takes;
    a.heads = out->heads;
    a.payloads = out->payloads;
    a.at = out->at;
    if (out->last <= out->first)
        return;
    LAUNCH(export_bucket, (unsigned)(out->last - out->first), EXPORT_BLOCK, 0, gpu_cuda_stream(stream), a);
    gpu_launched(stream, "tables: export_bucket");
}

/* --- The functions --- */

bool tables_select(gpu_tables *tables, gpu_stream *stream, uint32_t since, uint32_t closing, uint64_t *rows,
                   gpu_error *error)
{
    *rows = 0;
    if (!gpu_is_good(tables->gpu, error) || !moves_need(tables, error))
        return false;
    table_moves *m = tables->moves;
    m->selected = table_filter{};
    m->selected.since = since;
    m->selected.closing = closing;
    m->selected_rows = m->exported_rows = 0;
    for (uint32_t t = 0; t < tables->options.tables; t++)
        moves_count(tables, stream, t, &m->selected);
    size_t places = tables_places(tables, tables->options.tables);
    moves_scan(tables, stream, places);
    gpu_note(tables->gpu,
             cudaMemcpyAsync(m->offsets_host, m->offsets, (places + 1) * sizeof(*m->offsets),
                             cudaMemcpyDefault, gpu_cuda_stream(stream)),
             "tables: select");
    if (!tables_wait(tables, stream, error))
        return false;
    *rows = m->selected_rows = m->offsets_host[places];
    return true;
}

static __global__ void set_count(uint32_t *count, uint32_t value)
{
    if (cuda_thread() == 0)
        *count = value;
}

/* The place, in [0, n), of the bucket that has selected row number `row`. */
static uint64_t place_of(const uint32_t *offsets, uint64_t n, uint64_t row)
{
    uint64_t low = 0, high = n;
    while (low < high) {
        uint64_t middle = (low + high) / 2;
        if (offsets[middle + 1] > row)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

void tables_export_rows(gpu_tables *tables, gpu_stream *stream, uint32_t room, gpu_row_head *heads,
                        float *payloads, uint32_t *count)
{
    table_moves *m = tables->moves;
    uint64_t left = m != NULL ? m->selected_rows - m->exported_rows : 0;
    uint32_t n = (uint32_t)(left < room ? left : room);
    LAUNCH(set_count, 1, 1, 0, gpu_cuda_stream(stream), count, n);
    gpu_launched(stream, "tables: set_count");
    if (n == 0)
        return;
    moves_export out = {&m->selected, m->exported_rows, m->exported_rows + n, 0, 0, false, heads, payloads,
                        NULL};
    for (uint32_t t = 0; t < tables->options.tables; t++) {
        uint64_t places = table_places(&tables->tables[t].view);
        const uint32_t *offsets = m->offsets_host + tables_places(tables, t);
        out.first = place_of(offsets, places, out.begin);
        out.last = place_of(offsets, places, out.end - 1);
        out.last += out.last < places;
        if (offsets[places] > out.begin && offsets[0] < out.end)
            moves_export_table(tables, stream, t, &out);
    }
    m->exported_rows += n;
}

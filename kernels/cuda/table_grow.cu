/*
 * make_room: free tables grow, bucket by bucket, by linear hashing (Litwin 1980: "Linear hashing: a new tool
 * for file and table addressing").
 *
 * An appended bucket b takes a part of the rows of one other bucket (table_split_from): the rows whose hash,
 * the first or the second one, whichever put them there, addresses b with one bit more. The new bucket is
 * empty before, so no split overflows, and the splits of one launch are of different buckets: none waits for
 * another.
 *
 * Between two doublings of the number of buckets, buckets that are not split yet get more keys, up to twice
 * as many. Second buckets then hold up to a sixth of all rows (at 1.41 times a power of two), and two
 * measures keep full buckets rare: rows are evened out first, if new rows would find too few slots
 * (table_even.cu); and a new row counts as many rows as unsplit buckets get more, and a quarter more. Rows
 * that overflow in a batch nevertheless go to the stash.
 *
 * Ladder (not measured): (1) rehash everything into twice the memory: needs both memories, and stops until
 * all is done. (2) One bucket at a time, in place. (3) A block for each split: a thread a slot decides, warps
 * copy the rows, 16 bytes a lane; all splits of a call in one launch.
 */
#include "kernels/cuda/table_moves.cuh"

#include <string.h>

enum { BLOCK = GPU_BUCKET_SLOTS };

/* --- Splitting --- */

/* The slots whose rows go to the new bucket, in order. */
struct split_list {
    uint32_t warps[BLOCK / WARP_LANES], zeros[BLOCK / WARP_LANES];
    uint8_t slots[BLOCK];
};

/* Whether a row of bucket `from` belongs to the new bucket, which is `level` higher. */
static __device__ bool goes_over(const gpu_table_view *view, uint64_t key, uint64_t from, uint64_t level)
{
    const uint64_t hash = table_hash_of(view, key);
    const uint32_t first = (uint32_t)hash, second = (uint32_t)(hash >> 32);
    const bool is_first = (first & (level - 1)) == from;
    return ((is_first ? first : second) & level) != 0;
}

/* A block of threads for each new bucket: first_new + blockIdx.x, all below twice `level`. */
static __global__ void __launch_bounds__(BLOCK)
    split(const gpu_table_view *view, uint64_t first_new, uint64_t level, uint32_t stride)
{
    SHARED(split_list, list);
    const uint32_t s = threadIdx.x, lane = s % WARP_LANES, warp = s / WARP_LANES;
    const uint64_t from = first_new + blockIdx.x - level, place = view->stash_buckets + from;
    gpu_bucket *old_bucket = view->buckets + place, *new_bucket = old_bucket + level;
    const uint8_t digest = old_bucket->digests[s];
    const uint64_t key = old_bucket->keys[s];
    const gpu_head head = old_bucket->heads[s];
    const bool goes = digest >= DIGEST_KEYS && goes_over(view, key, from, level);
    const uint32_t votes = __ballot_sync(WARP_ALL, goes);
    const uint32_t zeros = __ballot_sync(WARP_ALL, digest == DIGEST_FREE);
    if (lane == 0) {
        list.warps[warp] = (uint32_t)__popc(votes);
        list.zeros[warp] = zeros;
    }
    __syncthreads();
    uint32_t rank = (uint32_t)__popc(votes & ((1U << lane) - 1U)), count = 0, any_zero = 0;
    for (uint32_t w = 0; w < BLOCK / WARP_LANES; w++) {
        rank += w < warp ? list.warps[w] : 0;
        count += list.warps[w];
        any_zero |= list.zeros[w];
    }
    /* Without a 0, keys of both buckets may lie in their second bucket or the stash. */
    const uint8_t free_digest = any_zero != 0 ? DIGEST_FREE : DIGEST_WAS_FULL;
    if (goes) {
        list.slots[rank] = (uint8_t)s;
        new_bucket->digests[rank] = digest;
        new_bucket->keys[rank] = key;
        new_bucket->heads[rank] = head;
        old_bucket->digests[s] = free_digest;
        old_bucket->keys[s] = 0;
    }
    if (s >= count) {
        new_bucket->digests[s] = free_digest;
        new_bucket->keys[s] = 0;
    }
    __syncthreads();
    const uint64_t new_slots = (place + level) * GPU_BUCKET_SLOTS;
    for (uint32_t i = warp; i < count; i += BLOCK / WARP_LANES) {
        const uint64_t old_slot = place * GPU_BUCKET_SLOTS + list.slots[i];
        const uint4 *old_row = reinterpret_cast<const uint4 *>(table_row(view, old_slot, stride));
        uint4 *new_row = reinterpret_cast<uint4 *>(table_row(view, new_slots + i, stride));
        for (uint32_t v = lane; v < stride / sizeof(uint4); v += WARP_LANES)
            new_row[v] = old_row[v];
    }
}

/* Grows table t to `buckets` buckets, for which it has memory. */
static void split_up_to(gpu_tables *tables, gpu_stream *stream, uint32_t t, uint64_t buckets)
{
    gpu_table_view *view = &tables->tables[t].view;
    while (view->bucket_count < buckets) {
        const uint64_t level = table_level(view->bucket_count);
        const uint64_t end = buckets < 2 * level ? buckets : 2 * level;
        LAUNCH(split, (unsigned)(end - view->bucket_count), BLOCK, 0, gpu_cuda_stream(stream),
               tables->views + t, view->bucket_count, level, tables->stride);
        gpu_launched(stream, "tables: split");
        view->bucket_count = end;
        tables_set_view(tables, stream, t);
    }
}

/* --- How many buckets --- */

/* Whether `buckets` buckets of table t stay within the memory that the set may take. */
static bool may_have(const gpu_tables *tables, uint32_t t, uint64_t buckets)
{
    const gpu_table *of = &tables->tables[t];
    const uint64_t all = of->view.stash_buckets + buckets;
    uint64_t bytes = tables->fixed_bytes;
    for (uint32_t i = 0; i < tables->options.tables; i++)
        if (i != t)
            bytes += tables->tables[i].buckets.usable + tables->tables[i].rows.usable;
    bytes += range_rounded(&of->buckets, all * sizeof(gpu_bucket));
    bytes += range_rounded(&of->rows, all * GPU_BUCKET_SLOTS * tables->stride);
    return buckets <= of->buckets_most && bytes <= tables->options.memory_bytes;
}

/* The number of buckets that table t has memory for. */
static uint64_t buckets_mapped(const gpu_tables *tables, uint32_t t)
{
    const gpu_table *of = &tables->tables[t];
    uint64_t a = of->buckets.usable / sizeof(gpu_bucket);
    uint64_t b = of->rows.usable / ((uint64_t)GPU_BUCKET_SLOTS * tables->stride);
    uint64_t all = a < b ? a : b;
    return all - of->view.stash_buckets < of->buckets_most ? all - of->view.stash_buckets : of->buckets_most;
}

/* The largest number in [buckets, wanted] that the set's memory allows. */
static uint64_t within_memory(const gpu_tables *tables, uint32_t t, uint64_t buckets, uint64_t wanted)
{
    uint64_t low = buckets, high = wanted;
    const uint64_t mapped = buckets_mapped(tables, t);
    if (wanted <= mapped)
        return wanted;
    while (low < high) {
        const uint64_t middle = low + (high - low + 1) / 2;
        if (middle <= mapped || may_have(tables, t, middle))
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* How many buckets table t should have. */
static uint64_t wanted_buckets(const gpu_tables *tables, uint32_t t, uint64_t rows, uint64_t more)
{
    const uint64_t now = tables->tables[t].view.bucket_count;
    return within_memory(tables, t, now, room_buckets(rows, more, now));
}

/* Gets memory for `buckets`, and an eighth more if possible; returns how many of `buckets` have memory. */
static uint64_t map_buckets(gpu_tables *tables, gpu_stream *stream, uint32_t t, uint64_t buckets)
{
    if (buckets <= buckets_mapped(tables, t))
        return buckets;
    const uint64_t ahead = within_memory(tables, t, buckets, buckets + buckets / 8);
    gpu_error full; /* not a failure: rows go to the cold tier instead */
    if (!tables_need_buckets(tables, stream, t, ahead, &full))
        (void)tables_need_buckets(tables, stream, t, buckets, &full);
    const uint64_t mapped = buckets_mapped(tables, t);
    return buckets < mapped ? buckets : mapped;
}

/* --- make_room --- */

static bool make_table_room(gpu_tables *tables, gpu_stream *stream, uint32_t t,
                            const gpu_table_counts *counts, uint64_t more, uint64_t *rows_cold,
                            gpu_error *error)
{
    gpu_table *table = &tables->tables[t];
    const gpu_table_view *view = &table->view;
    const uint64_t rows = counts->rows;
    split_up_to(tables, stream, t, map_buckets(tables, stream, t, wanted_buckets(tables, t, rows, more)));
    const uint64_t buckets = view->bucket_count;
    const double over = ceil(room_rows_over(rows, more, buckets));
    if (over > 0)
        *rows_cold = (uint64_t)over; /* may be more than the table has: then nothing helps */
    table->rows_most = rows;
    table->rows_left = room_rows_promised(rows, more, buckets);
    if (counts->stashed > 0 && !moves_empty_stash(tables, stream, t, counts->stashed, error))
        return false;
    if (!room_is_tight(rows, more, buckets))
        return true;
    const uint32_t most = room_rows_before(rows, room_rows_ahead(rows, more, buckets), buckets);
    return moves_even_out(tables, stream, t, most, moves_rows_above(tables, t, most), error) &&
           moves_empty_stash(tables, stream, t, counts->stashed, error);
}

bool tables_has_room(const gpu_tables *tables, const uint32_t *rows_new, uint32_t places)
{
    for (uint32_t t = 0; t < tables->options.tables; t++)
        if (!tables->tables[t].view.is_bounded && tables->tables[t].rows_left < rows_new[t])
            return false;
    const uint64_t removed = tables_removed_by(tables, places);
    return removed == 0 || tables->removed_most + removed <= tables->removed_room;
}

bool tables_make_room(gpu_tables *tables, gpu_stream *stream, const uint32_t *rows_new, uint64_t *rows_cold,
                      gpu_error *error)
{
    const uint32_t n = tables->options.tables;
    gpu_table_counts counts[BATCH_TABLES_MAX];
    for (uint32_t t = 0; t < n; t++)
        rows_cold[t] = 0;
    if (!gpu_is_good(tables->gpu, error) || !moves_need(tables, error))
        return false;
    /* Decided by the upper bound of the rows: it includes all tables that turn out to be tight. */
    for (uint32_t t = 0; t < n; t++) {
        const gpu_table *table = &tables->tables[t];
        if (!table->view.is_bounded && room_is_tight(table->rows_most, rows_new[t], table->view.bucket_count))
            moves_count_full(tables, stream, t);
    }
    const gpu_table_counts *counted = tables_read_all(tables, stream, error);
    if (counted == NULL)
        return false;
    memcpy(counts, counted, n * sizeof(*counts)); /* moving rows may wait, which overwrites `counted` */
    for (uint32_t t = 0; t < n; t++)
        if (!tables->tables[t].view.is_bounded &&
            !make_table_room(tables, stream, t, &counts[t], rows_new[t], &rows_cold[t], error))
            return false;
    return moves_need(tables, error) && gpu_is_good(tables->gpu, error);
}

/*
 * make_room: free tables grow, bucket by bucket, by linear hashing (Litwin 1980: "Linear hashing: a new tool
 * for file and table addressing").
 *
 * An appended bucket b takes rows from one old bucket, table_split_from(b). A row lies in the old bucket by
 * its first or its second hash; it moves to b if the next bit of that hash is 1. The new bucket is empty
 * before the split, so it cannot overflow. The splits of one launch have different old and new buckets, so no
 * split waits for another.
 *
 * Between two doublings of the number of buckets, a bucket that is not split yet gets up to twice as many new
 * keys as a split one. Up to a sixth of all rows then lie in their second bucket (the most at 1.41 times a
 * power of two buckets). Two measures keep full buckets rare: if new rows would find too few free slots,
 * make_room first moves rows from full buckets to their other bucket (table_even.cu); and in the computation
 * of the room each new row counts as buckets / level * 1.25 rows (table_room.cuh). Rows that find both
 * buckets full nevertheless go to the stash.
 *
 * Ladder (not measured): (1) Rehash all rows into a table of twice the size: needs the memory of both, and
 * training stops until all rows are moved. (2) One bucket at a time, in place. (3) One block per split: one
 * thread per slot decides whether its row moves, then warps copy the rows, 16 bytes per lane of the warp; one
 * launch for all splits up to the next power of two.
 */
#include "kernels/cuda/table_moves.cuh"

#include <string.h>

enum { BLOCK = GPU_BUCKET_SLOTS };

/* --- Splitting --- */

/* Shared memory of a block. slots: the old bucket's slots whose rows move, ascending. Per warp, warps: its
 * number of rows that move; zeros: a bit for each slot with DIGEST_FREE. */
struct split_list {
    uint32_t warps[BLOCK / WARP_LANES], zeros[BLOCK / WARP_LANES];
    uint8_t slots[BLOCK];
};

/* Whether the row of this key moves from bucket `from` to the new bucket, from + level. */
static __device__ bool goes_over(const gpu_table_view *view, uint64_t key, uint64_t from, uint64_t level)
{
    const uint64_t hash = table_hash_of(view, key);
    const uint32_t first = (uint32_t)hash, second = (uint32_t)(hash >> 32);
    const bool is_first = (first & (level - 1)) == from;
    return ((is_first ? first : second) & level) != 0;
}

/* Block i fills the new bucket first_new + i, one thread per slot of the old bucket. All new buckets are
 * below 2 * level. */
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
    /* If no slot has DIGEST_FREE, the old bucket was full once: some of its keys, and keys that now belong to
     * the new bucket, may lie in their second bucket or in the stash, and probes of both buckets must look
     * there. */
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

/* Splits buckets of table t until it has `buckets` buckets. Their memory must be mapped (map_buckets). */
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

/* Whether the set of tables stays within options.memory_bytes if table t has `buckets` buckets. */
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

/* The number of buckets, without the stash, for which table t has mapped memory. */
static uint64_t buckets_mapped(const gpu_tables *tables, uint32_t t)
{
    const gpu_table *of = &tables->tables[t];
    uint64_t a = of->buckets.usable / sizeof(gpu_bucket);
    uint64_t b = of->rows.usable / ((uint64_t)GPU_BUCKET_SLOTS * tables->stride);
    uint64_t all = a < b ? a : b;
    return all - of->view.stash_buckets < of->buckets_most ? all - of->view.stash_buckets : of->buckets_most;
}

/* The largest number of buckets in [buckets, wanted] that options.memory_bytes allows table t. */
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

/* The number of buckets for `rows` rows and `more` new ones in table t, as far as memory allows; not below
 * the present number. */
static uint64_t wanted_buckets(const gpu_tables *tables, uint32_t t, uint64_t rows, uint64_t more)
{
    const uint64_t now = tables->tables[t].view.bucket_count;
    return within_memory(tables, t, now, room_buckets(rows, more, now));
}

/* Maps memory for `buckets` buckets of table t, and for an eighth more if possible. Returns how many of the
 * `buckets` have memory now. */
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
    /* May exceed the table's rows: then the new rows do not fit even into an empty table. */
    if (over > 0)
        *rows_cold = (uint64_t)over;
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
    /* The exact counts are read below, together with these; so the upper bound rows_most decides here. It is
     * never below the count: every table that make_table_room finds tight has been counted. */
    for (uint32_t t = 0; t < n; t++) {
        const gpu_table *table = &tables->tables[t];
        if (!table->view.is_bounded && room_is_tight(table->rows_most, rows_new[t], table->view.bucket_count))
            moves_count_full(tables, stream, t);
    }
    const gpu_table_counts *counted = tables_read_all(tables, stream, error);
    if (counted == NULL)
        return false;
    memcpy(counts, counted, n * sizeof(*counts)); /* a copy: moves that wait overwrite `counted` */
    for (uint32_t t = 0; t < n; t++)
        if (!tables->tables[t].view.is_bounded &&
            !make_table_room(tables, stream, t, &counts[t], rows_new[t], &rows_cold[t], error))
            return false;
    return moves_need(tables, error) && gpu_is_good(tables->gpu, error);
}

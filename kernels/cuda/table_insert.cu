/*
 * Making rows: new keys get slots in their buckets, in the order of their indices; where a bounded table's
 * bucket is full, a row is evicted by the rule (gpu_table.h).
 *
 * Ladder (not measured): (1) One thread per key, a lock for each bucket: the keys' order is lost. (2) Keys
 * are sorted by bucket (stable, so that a bucket's keys stay in order), one warp per bucket: the warp reads
 * the digests once and places all keys of the bucket. (3) Free slots are four ballots, so that placing a key
 * takes a few instructions; headers are read only if a bucket is full, 16 bytes per lane, and kept in
 * registers for all evictions of the bucket; keys of a bucket are read only to break ties. (4) A row is
 * written by the warp that placed it, 16 bytes per lane, and nothing waits for those stores. (5) Free tables:
 * keys that do not fit are sorted once more, by second bucket; the stash, for keys that fit in neither, is
 * filled by one warp, and hardly ever needed.
 */
#include "kernels/cuda/sort.cuh"
#include "kernels/cuda/tables.cuh"
#include "kernels/rounding.h"

enum {
    BLOCK = 256,
    HEADS = GPU_BUCKET_SLOTS / WARP_LANES,
    STASH_KEYS = GPU_STASH_BUCKETS * GPU_BUCKET_SLOTS
};

/* The argument of all kernels here. */
struct insert_batch {
    table_insertion keys;
    const gpu_table_view *views;
    gpu_table_counts *counts;
    table_scratch scratch;
    gpu_removed_list removed;
    gpu_table_flags *flags;
    uint32_t stride, weight_bytes, state_floats, extra_at, d;
    row_format format;
    float state_init;
};

/* A bucket that a warp fills, the same in all lanes except `heads`. */
struct open_bucket {
    const gpu_table_view *view;
    gpu_bucket *bucket;
    uint64_t place;
    uint32_t table;
    uint32_t free_slots[4]; /* ballots: bit i of word j is slot 4 * i + j */
    gpu_head heads[HEADS];  /* slots lane + 32 * j, valid if has_heads */
    uint32_t candidates;    /* bit j: the row of heads[j] may be evicted */
    bool has_heads;
};

/* Counts of one table, which a warp adds to the table's counters at the end. */
struct insert_counts {
    uint32_t table, rows, inserted, evicted, expired, refused;
};

static __device__ void flush(const insert_batch &in, const insert_counts &sums)
{
    gpu_table_counts *counts = in.counts + sums.table;
    if (threadIdx.x % WARP_LANES != 0)
        return;
    if (sums.rows != 0)
        atomicAdd(&counts->rows, (unsigned long long)sums.rows);
    if (sums.inserted != 0)
        atomicAdd(&counts->inserted, (unsigned long long)sums.inserted);
    if (sums.evicted != 0)
        atomicAdd(&counts->evicted, (unsigned long long)sums.evicted);
    if (sums.expired != 0)
        atomicAdd(&counts->expired, (unsigned long long)sums.expired);
    if (sums.refused != 0)
        atomicAdd(&counts->refused, (unsigned long long)sums.refused);
}

/* --- A row --- */

/* Element i of init_uniform (dense.inc.h). */
static __device__ float init_weight(uint64_t seed, uint32_t i, float bound)
{
    const uint64_t x = num_mix(seed + (uint64_t)(i + 1) * 0x9e3779b97f4a7c15U);
    return ((float)(int32_t)(x >> 40) * 0x1p-23F - 1.0F) * bound;
}

/* Rounds to nearest (rounding.h). */
static __device__ uint32_t to_bits(row_format format, float x)
{
    return format == ROW_BF16 ? bf16_of(float_bits(x), 0, true) : fp16_of(float_bits(x), 0, true);
}

/* Writes the weights, state and extra floats of a new row; by a warp. */
static __device__ void start_row(const insert_batch &in, const gpu_table_view *view, unsigned char *row,
                                 uint64_t key)
{
    const uint32_t lane = threadIdx.x % WARP_LANES;
    const uint64_t seed = num_mix(key ^ view->init_seed);
    const uint32_t four_bytes = in.format == ROW_FP32 ? 16 : 8;
    for (uint32_t i = lane; i < in.weight_bytes / four_bytes; i += WARP_LANES) {
        float w[4]; /* zeros behind the last weight, up to the state */
#pragma unroll
        for (uint32_t j = 0; j < 4; j++)
            w[j] = 4 * i < in.d ? init_weight(seed, 4 * i + j, view->init_bound) : 0.0F;
        if (in.format == ROW_FP32)
            reinterpret_cast<float4 *>(row)[i] = make_float4(w[0], w[1], w[2], w[3]);
        else
            reinterpret_cast<uint2 *>(row)[i] =
                make_uint2(to_bits(in.format, w[0]) | to_bits(in.format, w[1]) << 16,
                           to_bits(in.format, w[2]) | to_bits(in.format, w[3]) << 16);
    }
    float4 *state = reinterpret_cast<float4 *>(row + in.weight_bytes);
    for (uint32_t i = lane; i < (in.extra_at - in.weight_bytes) / 16; i += WARP_LANES) {
        const uint32_t n = in.state_floats - 4 * i;
        state[i] = make_float4(in.state_init, n > 1 ? in.state_init : 0.0F, n > 2 ? in.state_init : 0.0F,
                               n > 3 ? in.state_init : 0.0F);
    }
    if (lane == 0 && in.stride > in.extra_at)
        *reinterpret_cast<float4 *>(row + in.extra_at) =
            make_float4(view->extra[0], view->extra[1], view->extra[2], view->extra[3]);
}

/* --- Slots --- */

static __device__ void open(open_bucket *b, uint64_t place)
{
    const uint32_t lane = threadIdx.x % WARP_LANES;
    b->place = place;
    b->bucket = b->view->buckets + place;
    b->has_heads = false;
    b->candidates = 0;
    const uint32_t line = reinterpret_cast<const uint32_t *>(b->bucket->digests)[lane];
    const uint32_t room = table_room(b->view, place - b->view->stash_buckets);
#pragma unroll
    for (uint32_t j = 0; j < 4; j++)
        b->free_slots[j] =
            __ballot_sync(WARP_ALL, (line >> 8 * j & 255) < DIGEST_KEYS && 4 * lane + j < room);
    __syncwarp(); /* all lanes have read the digests before one writes */
}

/* Takes a free slot, always the same one for the same bucket; BATCH_NONE: none is free. */
static __device__ uint32_t take_free(open_bucket *b)
{
#pragma unroll
    for (uint32_t j = 0; j < 4; j++) {
        if (b->free_slots[j] != 0) {
            const uint32_t lane = (uint32_t)__ffs((int)b->free_slots[j]) - 1;
            b->free_slots[j] &= b->free_slots[j] - 1;
            return 4 * lane + j;
        }
    }
    return BATCH_NONE;
}

/* Reads the headers of a full bucket, and sets which rows may be evicted: those that `step` has not used. */
static __device__ void read_heads(open_bucket *b, uint32_t step)
{
    const uint32_t lane = threadIdx.x % WARP_LANES, room = table_room(b->view, b->place);
    b->has_heads = true;
    __syncwarp(); /* makes the rows visible that this warp has just made */
#pragma unroll
    for (uint32_t j = 0; j < HEADS; j++) {
        const uint32_t slot = lane + j * WARP_LANES;
        b->heads[j] = slot < room ? b->bucket->heads[slot] : gpu_head{};
        b->candidates |= (uint32_t)(slot < room && b->heads[j].step != step) << j;
    }
}

/* A row that may be evicted. The row that goes_before all others is evicted. is_live: not expired. */
struct victim {
    uint32_t is_live, count, seen, slot;
};

static __device__ bool goes_before(const open_bucket *b, const victim &x, const victim &y)
{
    if (x.is_live != y.is_live)
        return x.is_live < y.is_live;
    if (x.count != y.count)
        return x.count < y.count;
    if (x.seen != y.seen)
        return x.seen < y.seen;
    return b->bucket->keys[x.slot] < b->bucket->keys[y.slot];
}

/* Clears is_in in all lanes but those with the least value among the lanes that have is_in set. */
static __device__ void keep_least(bool *is_in, uint32_t value)
{
    const uint32_t least = warp_least(*is_in ? value : UINT32_MAX);
    *is_in = *is_in && value == least;
}

/* Chooses the row to evict and returns its slot, the same in all lanes; BATCH_NONE: no row may be evicted. */
static __device__ uint32_t take_victim(open_bucket *b, uint32_t step, bool *was_expired)
{
    const uint32_t lane = threadIdx.x % WARP_LANES;
    if (!b->has_heads)
        read_heads(b, step);
    victim mine = {0, 0, 0, BATCH_NONE};
#pragma unroll
    for (uint32_t j = 0; j < HEADS; j++) {
        const gpu_head *head = &b->heads[j];
        const victim next = {head->seen >= b->view->expired_before, head->count, head->seen,
                             lane + j * WARP_LANES};
        if ((b->candidates >> j & 1) != 0 && (mine.slot == BATCH_NONE || goes_before(b, next, mine)))
            mine = next;
    }
    bool is_in = mine.slot != BATCH_NONE;
    if (!__any_sync(WARP_ALL, is_in))
        return BATCH_NONE;
    keep_least(&is_in, mine.is_live);
    keep_least(&is_in, mine.count);
    keep_least(&is_in, mine.seen);
    uint32_t left = __ballot_sync(WARP_ALL, is_in);
    if ((left & (left - 1)) != 0) { /* a tie */
        const uint64_t key = is_in ? b->bucket->keys[mine.slot] : 0;
        keep_least(&is_in, (uint32_t)(key >> 32));
        keep_least(&is_in, (uint32_t)key);
        left = __ballot_sync(WARP_ALL, is_in);
    }
    __syncwarp(); /* all lanes have read headers and keys before one writes */
    const int winner = __ffs((int)left) - 1;
    const uint32_t slot = __shfl_sync(WARP_ALL, mine.slot, winner);
    *was_expired = __shfl_sync(WARP_ALL, mine.is_live, winner) == 0;
    if ((int)lane == winner)
        b->candidates &= ~(1U << (slot / WARP_LANES));
    return slot;
}

/* --- A key --- */

/* A new key, the same in all lanes of its warp. */
struct new_key {
    uint32_t u, count, seen;
    uint64_t key;
};

static __device__ void place_key(const insert_batch &in, const open_bucket *b, uint32_t slot,
                                 const new_key &k)
{
    const uint64_t at = b->place * GPU_BUCKET_SLOTS + slot;
    unsigned char *row = table_row(b->view, at, in.stride);
    if (threadIdx.x % WARP_LANES == 0) {
        const bool is_imported = in.keys.heads != NULL;
        b->bucket->digests[slot] = table_digest(table_hash_of(b->view, k.key));
        b->bucket->keys[slot] = k.key;
        b->bucket->heads[slot] = {k.count, k.seen, is_imported ? in.keys.heads[k.u].epoch : in.keys.epoch,
                                  in.keys.step};
        in.keys.rows[k.u] = row;
    }
    if (in.keys.heads == NULL)
        start_row(in, b->view, row, k.key);
}

/* Evicts a row from a bounded table's full bucket and returns its slot; BATCH_NONE: new key refused. */
static __device__ uint32_t make_way(const insert_batch &in, open_bucket *b, insert_counts *sums)
{
    bool was_expired = false;
    const uint32_t slot = take_victim(b, in.keys.step, &was_expired);
    if (slot == BATCH_NONE)
        return slot;
    if (threadIdx.x % WARP_LANES == 0)
        table_list_removed(&in.removed, b->table, b->bucket->keys[slot]);
    sums->rows--;
    sums->expired += was_expired;
    sums->evicted += !was_expired;
    return slot;
}

static __device__ new_key load_key(const insert_batch &in, uint32_t u, bool is_key)
{
    new_key k = {u, 0, 0, 0};
    if (!is_key)
        return k;
    if (in.keys.heads != NULL)
        return {u, in.keys.heads[u].count, in.keys.heads[u].seen, in.keys.heads[u].key};
    k.key = in.keys.keys[u];
    k.count = in.keys.starts[u + 1] - in.keys.starts[u];
    k.seen = in.keys.seen != NULL ? in.keys.seen[u] : 0;
    return k;
}

static __device__ uint32_t table_of(const insert_batch &in, uint32_t u)
{
    if (in.keys.heads != NULL)
        return in.keys.heads[u].table;
    return in.keys.tables != NULL ? in.keys.tables[u] : 0;
}

/* For a key that got no slot: a bounded table refuses the key; a free table passes it on to its second
 * bucket, or from there to the stash. Called by the whole warp, each lane with its own key. */
static __device__ void turn_away(const insert_batch &in, const open_bucket *b, const new_key &k, bool is_key,
                                 bool is_second, insert_counts *sums)
{
    sums->refused += warp_sum(is_key && b->view->is_bounded ? k.count : 0);
    if (!is_key || b->view->is_bounded)
        return;
    if (is_second)
        in.scratch.lists[0][atomicAdd(&in.scratch.counters[COUNT_STASH], 1U)] = k.u;
    else
        in.scratch.seconds[k.u] =
            b->view->buckets_before + (uint32_t)table_second(b->view, table_hash_of(b->view, k.key));
}

/* --- A bucket --- */

/* Places all new keys of one bucket: those from buckets_sorted[at] on that have the same bucket. */
static __device__ void fill_bucket(const insert_batch &in, uint32_t at, bool is_second, insert_counts *sums)
{
    const uint32_t lane = threadIdx.x % WARP_LANES, bucket = in.scratch.buckets_sorted[at];
    open_bucket b;
    b.table = table_of(in, in.scratch.order_sorted[at]);
    b.view = in.views + b.table;
    open(&b, b.view->stash_buckets + (bucket - b.view->buckets_before));
    if (sums->table != b.table) {
        flush(in, *sums);
        *sums = {b.table, 0, 0, 0, 0, 0};
    }
    bool is_full = false;
    for (uint32_t from = at;; from += WARP_LANES) {
        const bool is_key = from + lane < in.keys.n && in.scratch.buckets_sorted[from + lane] == bucket;
        const uint32_t n = (uint32_t)__popc(__ballot_sync(WARP_ALL, is_key));
        const new_key mine = load_key(in, is_key ? in.scratch.order_sorted[from + lane] : 0, is_key);
        uint32_t placed = 0;
        for (; placed < n && !is_full; placed++) {
            const new_key k = {
                __shfl_sync(WARP_ALL, mine.u, (int)placed), __shfl_sync(WARP_ALL, mine.count, (int)placed),
                __shfl_sync(WARP_ALL, mine.seen, (int)placed), __shfl_sync(WARP_ALL, mine.key, (int)placed)};
            uint32_t slot = take_free(&b);
            if (slot == BATCH_NONE && b.view->is_bounded)
                slot = make_way(in, &b, sums);
            is_full = slot == BATCH_NONE;
            if (is_full)
                break;
            place_key(in, &b, slot, k);
            sums->rows++;
            sums->inserted += in.keys.heads == NULL;
        }
        if (is_full)
            turn_away(in, &b, mine, is_key && lane >= placed, is_second, sums);
        if (n < WARP_LANES)
            return;
    }
}

/* Each warp fills the buckets whose first key is among the warp's 32 sorted keys. */
static __global__ void __launch_bounds__(BLOCK) fill_buckets(insert_batch in, bool is_second)
{
    const uint32_t i = (uint32_t)cuda_thread(), n = in.keys.n;
    const uint32_t bucket = i < n ? in.scratch.buckets_sorted[i] : BATCH_NONE;
    const bool is_first = bucket != BATCH_NONE && (i == 0 || in.scratch.buckets_sorted[i - 1] != bucket);
    uint32_t firsts = __ballot_sync(WARP_ALL, is_first);
    insert_counts sums = {0, 0, 0, 0, 0, 0};
    for (; firsts != 0; firsts &= firsts - 1)
        fill_bucket(in, i / WARP_LANES * WARP_LANES + (uint32_t)__ffs((int)firsts) - 1, is_second, &sums);
    flush(in, sums);
}

/* --- The stash --- */

/* Places a key in the first stash bucket with a free slot; by one warp. */
static __device__ bool stash_key(const insert_batch &in, const new_key &k, uint32_t table)
{
    open_bucket b;
    b.table = table;
    b.view = in.views + table;
    for (uint32_t place = 0; place < b.view->stash_buckets; place++) {
        open(&b, place);
        const uint32_t slot = take_free(&b);
        if (slot != BATCH_NONE) {
            place_key(in, &b, slot, k);
            __syncwarp();
            return true;
        }
    }
    return false;
}

/* One block places the keys left for the stash, in order. Keys beyond a stash's capacity are counted in
 * flags->overflowed: an error. */
static __global__ void __launch_bounds__(BLOCK) fill_stash(insert_batch in)
{
    SHARED(uint32_t[STASH_KEYS], keys);
    const uint32_t all = in.scratch.counters[COUNT_STASH], n = min(all, (uint32_t)STASH_KEYS);
    for (uint32_t i = threadIdx.x; i < n; i += BLOCK) {
        const uint32_t u = in.scratch.lists[0][i];
        uint32_t rank = 0;
        for (uint32_t j = 0; j < n; j++)
            rank += in.scratch.lists[0][j] < u;
        keys[rank] = u;
    }
    __syncthreads();
    if (threadIdx.x >= WARP_LANES)
        return;
    uint32_t lost = all - n;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t u = keys[i], table = table_of(in, u);
        if (!stash_key(in, load_key(in, u, true), table)) {
            lost++;
        } else if (threadIdx.x == 0) {
            atomicAdd(&in.counts[table].rows, 1ULL);
            atomicAdd(&in.counts[table].stashed, 1U);
            if (in.keys.heads == NULL)
                atomicAdd(&in.counts[table].inserted, 1ULL);
        }
    }
    if (threadIdx.x == 0 && lost > 0)
        atomicAdd(&in.flags->overflowed, lost);
}

/* --- All phases --- */

static void sort_and_fill(gpu_tables *tables, gpu_stream *stream, const insert_batch &in, bool is_second)
{
    cudaStream_t queue = gpu_cuda_stream(stream);
    const table_scratch *s = &tables->scratch;
    /* Bits of a sort key: all indices of buckets are below the highest value, which stands for no bucket. */
    int bits = 1;
    while (((uint64_t)1 << bits) - 1 < tables_buckets(tables))
        bits++;
    size_t bytes = s->sort_bytes;
    sort_pairs_32(s->sort, &bytes, is_second ? s->seconds : s->buckets, s->buckets_sorted, s->iota,
                  s->order_sorted, in.keys.n, bits, queue);
    LAUNCH(fill_buckets, cuda_blocks(in.keys.n, BLOCK), BLOCK, 0, queue, in, is_second);
}

void tables_insert(gpu_tables *tables, gpu_stream *stream, const table_insertion *insertion)
{
    const gpu_tables_options *o = &tables->options;
    const insert_batch in = {*insertion,
                             tables->views,
                             tables->counts,
                             tables->scratch,
                             tables_removed_list(tables),
                             tables->flags,
                             tables->stride,
                             tables->weight_bytes,
                             tables->state_floats,
                             tables->extra_at,
                             o->d,
                             o->format,
                             tables->state_init};
    bool has_free = false;
    for (uint32_t t = 0; t < o->tables; t++)
        has_free |= !tables->tables[t].view.is_bounded;
    if (has_free)
        gpu_note(tables->gpu,
                 cudaMemsetAsync(tables->scratch.seconds, 0xff, insertion->n * sizeof(uint32_t),
                                 gpu_cuda_stream(stream)),
                 "tables: new rows");
    sort_and_fill(tables, stream, in, false);
    if (has_free) {
        sort_and_fill(tables, stream, in, true);
        LAUNCH(fill_stash, 1, BLOCK, 0, gpu_cuda_stream(stream), in);
    }
    gpu_launched(stream, "tables: new rows");
}

/*
 * Moving rows to buckets with room: out of the stash, and from full buckets to the other bucket of their
 * keys.
 *
 * Ladder (not measured): (1) One thread per row takes a free slot by compare-and-swap: the slots of rows
 * would depend on the order of threads. (2) Offers: each bucket that has too many rows lists which rows it
 * would give to which bucket; the offers are sorted by receiving bucket (stable), the first that fit are
 * accepted, and a warp copies a row. There are no atomics, and the slots are the same in every run; in a
 * round a bucket either gives or takes, so there are no conflicts. A round reads a line of 128 bytes per
 * bucket, and the keys of buckets that give rows. (3) The host does not wait for the number of offers:
 * make_room has counted the rows of each bucket before, which gives the host an upper bound. Mostly the bound
 * is 0, and no round is launched.
 */
#include "kernels/cuda/table_moves.cuh"

#include "kernels/cuda/sort.cuh"

enum { BLOCK = 256 };

/* One round of moves. The stash gives all its rows (is_stash), or the table's buckets give their rows above
 * `most`. */
struct even_round {
    const gpu_table_view *view;
    const uint32_t *used; /* by place in the table: the bucket's number of rows */
    uint64_t places;      /* of the table, the stash included */
    uint32_t most;        /* rows that a receiving bucket may have afterwards */
    bool is_stash;
    uint32_t room; /* capacity of the lists of offers */
};

/* --- Offers --- */

static __global__ void __launch_bounds__(BLOCK)
    count_used(const gpu_table_view *view, uint64_t places, uint32_t *used)
{
    uint64_t place = cuda_thread() / WARP_LANES;
    uint32_t lane = threadIdx.x % WARP_LANES, count = 0;
    if (place >= places)
        return;
    uint32_t line = reinterpret_cast<const uint32_t *>(view->buckets[place].digests)[lane];
    for (uint32_t i = 0; i < 4; i++)
        count += (line >> 8 * i & 255) >= DIGEST_KEYS;
    count = warp_sum(count);
    if (lane == 0)
        used[place] = count;
}

/* The bucket that a row of `place` may move to; SLOT_NONE: none. */
static __device__ uint64_t other_place(const even_round &r, uint64_t place, uint64_t key)
{
    const uint64_t hash = table_hash_of(r.view, key);
    const uint64_t first = r.view->stash_buckets + table_first(r.view, hash);
    const uint64_t second = r.view->stash_buckets + table_second(r.view, hash);
    if (r.is_stash && r.used[first] < r.most)
        return first;
    const uint64_t other = place == second ? first : second;
    return other != place && r.used[other] < r.most ? other : SLOT_NONE;
}

/*
 * One warp per bucket, 32 slots at a time, in order. If `to` is NULL: counts[place] = the number of rows that
 * the bucket offers. Else writes the bucket's offers, from element offsets[place] on: to[] = the receiving
 * place, from[] = the slot.
 */
static __global__ void __launch_bounds__(BLOCK)
    make_offers(even_round r, uint32_t *counts, const uint32_t *offsets, uint32_t *to, uint32_t *from)
{
    const uint64_t place = cuda_thread() / WARP_LANES;
    const uint32_t lane = threadIdx.x % WARP_LANES;
    if (place >= r.places)
        return;
    const bool is_in_stash = place < r.view->stash_buckets;
    const uint32_t used = r.used[place];
    uint32_t gives = r.is_stash ? used : used > r.most ? used - r.most : 0;
    if (is_in_stash != r.is_stash)
        gives = 0;
    uint32_t given = 0;
    const gpu_bucket *bucket = r.view->buckets + place;
    for (uint32_t s = lane; __any_sync(WARP_ALL, given < gives && s < GPU_BUCKET_SLOTS); s += WARP_LANES) {
        const bool is_row = bucket->digests[s] >= DIGEST_KEYS;
        const uint64_t other = is_row ? other_place(r, place, bucket->keys[s]) : SLOT_NONE;
        const uint32_t votes = __ballot_sync(WARP_ALL, other != SLOT_NONE);
        const uint32_t rank = given + (uint32_t)__popc(votes & ((1U << lane) - 1U));
        if (to != NULL && other != SLOT_NONE && rank < gives && offsets[place] + rank < r.room) {
            to[offsets[place] + rank] = (uint32_t)other;
            from[offsets[place] + rank] = (uint32_t)(place * GPU_BUCKET_SLOTS + s);
        }
        given += (uint32_t)__popc(votes);
    }
    if (to == NULL && lane == 0)
        counts[place] = given < gives ? given : gives;
}

/* Counts the buckets by their number of rows, without the stash. */
static __global__ void __launch_bounds__(BLOCK)
    count_full(const gpu_table_view *view, uint64_t buckets, uint32_t *full)
{
    SHARED(uint32_t[MOVES_FULL], sums);
    for (uint32_t i = threadIdx.x; i < MOVES_FULL; i += BLOCK)
        sums[i] = 0;
    __syncthreads();
    const uint64_t stride = (uint64_t)gridDim.x * (BLOCK / WARP_LANES);
    const uint32_t lane = threadIdx.x % WARP_LANES;
    for (uint64_t b = cuda_thread() / WARP_LANES; b < buckets; b += stride) {
        const gpu_bucket *bucket = view->buckets + view->stash_buckets + b;
        const uint32_t line = reinterpret_cast<const uint32_t *>(bucket->digests)[lane];
        uint32_t count = 0;
        for (uint32_t i = 0; i < 4; i++)
            count += (line >> 8 * i & 255) >= DIGEST_KEYS;
        count = warp_sum(count);
        if (lane == 0)
            atomicAdd(&sums[count], 1U);
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < MOVES_FULL; i += BLOCK)
        if (sums[i] > 0)
            atomicAdd(&full[i], sums[i]);
}

void moves_count_full(gpu_tables *tables, gpu_stream *stream, uint32_t t)
{
    table_moves *m = tables->moves;
    cudaStream_t queue = gpu_cuda_stream(stream);
    const size_t at = (size_t)t * MOVES_FULL, bytes = MOVES_FULL * sizeof(*m->full);
    const uint64_t buckets = tables->tables[t].view.bucket_count;
    const unsigned blocks = cuda_blocks(buckets * WARP_LANES, BLOCK);
    const unsigned most = (unsigned)tables->gpu->multiprocessors * 8;
    gpu_note(tables->gpu, cudaMemsetAsync(m->full + at, 0, bytes, queue), "tables: count_full");
    LAUNCH(count_full, blocks < most ? blocks : most, BLOCK, 0, queue, tables->views + t, buckets,
           m->full + at);
    gpu_note(tables->gpu, cudaMemcpyAsync(m->full_host + at, m->full + at, bytes, cudaMemcpyDefault, queue),
             "tables: count_full");
    gpu_launched(stream, "tables: count_full");
}

uint64_t moves_rows_above(const gpu_tables *tables, uint32_t t, uint32_t most)
{
    const uint32_t *full = tables->moves->full_host + (size_t)t * MOVES_FULL;
    uint64_t rows = 0;
    for (uint32_t i = most + 1; i < MOVES_FULL; i++)
        rows += (uint64_t)full[i] * (i - most);
    return rows;
}

/* --- Acceptance --- */

/* The n-th free slot of a bucket, from 0; the bucket must have so many. */
static __device__ uint32_t free_slot(const gpu_bucket *bucket, uint32_t n)
{
    const uint32_t *line = reinterpret_cast<const uint32_t *>(bucket->digests);
    for (uint32_t i = 0; i < GPU_BUCKET_SLOTS / 4; i++) {
        const uint32_t word = line[i];
        for (uint32_t b = 0; b < 4; b++) {
            if ((word >> 8 * b & 255) >= DIGEST_KEYS)
                continue;
            if (n == 0)
                return i * 4 + b;
            n--;
        }
    }
    return GPU_BUCKET_SLOTS;
}

/* targets[i] = the new slot for offer i, or BATCH_NONE: refused. The offers to[] and from[] are sorted; to[i]
 * BATCH_NONE: no offer. One thread per offer. */
static __global__ void accept_offers(even_round r, const uint32_t *to, uint32_t *targets)
{
    const uint32_t i = (uint32_t)cuda_thread();
    if (i >= r.room)
        return;
    const uint32_t place = to[i];
    targets[i] = BATCH_NONE;
    if (place == BATCH_NONE)
        return;
    uint32_t low = 0, high = i;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (to[middle] < place)
            low = middle + 1;
        else
            high = middle;
    }
    targets[i] = i - low < r.most - r.used[place]
                     ? place * GPU_BUCKET_SLOTS + free_slot(r.view->buckets + place, i - low)
                     : BATCH_NONE;
}

/* Moves the accepted rows, one warp per row. The freed slot gets digest 1 (DIGEST_WAS_FULL), because other
 * keys may have gone to their second bucket when this bucket was full. */
static __global__ void __launch_bounds__(BLOCK)
    move_rows(even_round r, const uint32_t *from, const uint32_t *targets, uint32_t stride,
              gpu_table_counts *counts)
{
    const uint32_t i = (uint32_t)(cuda_thread() / WARP_LANES), lane = threadIdx.x % WARP_LANES;
    if (i >= r.room || targets[i] == BATCH_NONE)
        return;
    const uint32_t old_slot = from[i] % GPU_BUCKET_SLOTS, new_slot = targets[i] % GPU_BUCKET_SLOTS;
    gpu_bucket *old_bucket = r.view->buckets + from[i] / GPU_BUCKET_SLOTS;
    gpu_bucket *new_bucket = r.view->buckets + targets[i] / GPU_BUCKET_SLOTS;
    const uint4 *old_row = reinterpret_cast<const uint4 *>(table_row(r.view, from[i], stride));
    uint4 *new_row = reinterpret_cast<uint4 *>(table_row(r.view, targets[i], stride));
    for (uint32_t v = lane; v < stride / sizeof(uint4); v += WARP_LANES)
        new_row[v] = old_row[v];
    if (lane != 0)
        return;
    new_bucket->heads[new_slot] = old_bucket->heads[old_slot];
    new_bucket->keys[new_slot] = old_bucket->keys[old_slot];
    new_bucket->digests[new_slot] = old_bucket->digests[old_slot];
    old_bucket->keys[old_slot] = 0;
    old_bucket->digests[old_slot] = DIGEST_WAS_FULL;
    if (r.is_stash)
        atomicSub(&counts->stashed, 1U);
}

/* In buckets that gave rows, digests 0 become 1, because probes must look into the second bucket from now on.
 * One warp per bucket. */
static __global__ void __launch_bounds__(BLOCK) mark_givers(even_round r, const uint32_t *offsets)
{
    const uint64_t place = cuda_thread() / WARP_LANES;
    if (place >= r.places || offsets[place + 1] == offsets[place])
        return;
    uint32_t *word = reinterpret_cast<uint32_t *>(r.view->buckets[place].digests) + threadIdx.x % WARP_LANES;
    *word |= __vcmpeq4(*word, 0) & 0x01010101U;
}

/* Sets the digests of an empty stash to 0. */
static __global__ void clear_stash(const gpu_table_view *view, const gpu_table_counts *counts)
{
    const uint32_t place = blockIdx.x;
    if (counts->stashed == 0 && place < view->stash_buckets)
        view->buckets[place].digests[threadIdx.x] = DIGEST_FREE;
}

/* --- Rounds --- */

/* Queues one round; offsets[places] is then the number of offers. */
static bool queue_round(gpu_tables *tables, gpu_stream *stream, uint32_t t, const even_round &r)
{
    table_moves *m = tables->moves;
    cudaStream_t queue = gpu_cuda_stream(stream);
    const unsigned blocks = cuda_blocks(r.places * WARP_LANES, BLOCK);
    size_t sort_bytes = m->sort_room;
    LAUNCH(count_used, blocks, BLOCK, 0, queue, r.view, r.places, m->counts);
    LAUNCH(make_offers, blocks, BLOCK, 0, queue, r, m->offsets, m->offsets, (uint32_t *)NULL,
           (uint32_t *)NULL);
    gpu_note(tables->gpu, cudaMemsetAsync(m->offsets + r.places, 0, sizeof(*m->offsets), queue),
             "tables: offers");
    scan_exclusive_32(m->scan, &m->scan_room, m->offsets, m->offsets, (uint32_t)r.places + 1, queue);
    gpu_note(tables->gpu, cudaMemsetAsync(m->offers[0], 0xff, r.room * sizeof(*m->offers[0]), queue),
             "tables: offers");
    LAUNCH(make_offers, blocks, BLOCK, 0, queue, r, (uint32_t *)NULL, m->offsets, m->offers[0], m->offers[1]);
    sort_pairs_32(m->sort, &sort_bytes, m->offers[0], m->offers[2], m->offers[1], m->offers[3], r.room, 32,
                  queue);
    LAUNCH(accept_offers, cuda_blocks(r.room, BLOCK), BLOCK, 0, queue, r, m->offers[2], m->offers[0]);
    LAUNCH(move_rows, cuda_blocks((size_t)r.room * WARP_LANES, BLOCK), BLOCK, 0, queue, r, m->offers[3],
           m->offers[0], tables->stride, tables->counts + t);
    if (r.is_stash)
        LAUNCH(clear_stash, GPU_STASH_BUCKETS, GPU_BUCKET_SLOTS, 0, queue, r.view, tables->counts + t);
    else
        LAUNCH(mark_givers, blocks, BLOCK, 0, queue, r, m->offsets);
    return gpu_launched(stream, "tables: moving rows to where there is room");
}

/* Reads the number of offers of the last round; waits. */
static bool read_offers(gpu_tables *tables, gpu_stream *stream, const even_round &r, uint64_t *offers,
                        gpu_error *error)
{
    table_moves *m = tables->moves;
    gpu_note(tables->gpu,
             cudaMemcpyAsync(m->offsets_host, m->offsets + r.places, sizeof(*m->offsets), cudaMemcpyDefault,
                             gpu_cuda_stream(stream)),
             "tables: offers");
    if (!tables_wait(tables, stream, error))
        return false;
    *offers = m->offsets_host[0];
    return true;
}

static bool rounds(gpu_tables *tables, gpu_stream *stream, uint32_t t, uint32_t most, bool is_stash,
                   uint64_t offers, gpu_error *error)
{
    if (!moves_need(tables, error))
        return false;
    /* Rounds with more than MOVES_OFFERS offers are not counted in `i`; the loop ends nevertheless, because
     * each of them moves at least one row. */
    for (int i = 0; i < ROOM_ROUNDS && offers > 0;) {
        const bool is_known = offers <= MOVES_OFFERS;
        const even_round r = {tables->views + t,
                              tables->moves->counts,
                              table_places(&tables->tables[t].view),
                              most,
                              is_stash,
                              is_known ? (uint32_t)offers : (uint32_t)MOVES_OFFERS};
        if (!queue_round(tables, stream, t, r) ||
            (!is_known && !read_offers(tables, stream, r, &offers, error)))
            return gpu_is_good(tables->gpu, error);
        i += is_known;
    }
    return true;
}

bool moves_empty_stash(gpu_tables *tables, gpu_stream *stream, uint32_t t, uint64_t rows, gpu_error *error)
{
    return rounds(tables, stream, t, GPU_BUCKET_SLOTS, true, rows, error);
}

bool moves_even_out(gpu_tables *tables, gpu_stream *stream, uint32_t t, uint32_t most, uint64_t rows,
                    gpu_error *error)
{
    return rounds(tables, stream, t, most, false, rows, error);
}

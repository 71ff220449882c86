/*
 * Finding keys: eight lanes per key read its bucket's line of digests, 16 bytes each, compare sixteen digests
 * in four instructions, and read the keys of slots whose digests match. On average half a key per line is
 * read in vain: the digest matches, but the key is another. A warp processes 4 * KEYS keys at once; if any of
 * its keys needs the second bucket or the stash, all lanes of the warp look there together.
 */
#ifndef LEAT_KERNELS_CUDA_TABLE_PROBE_CUH
#define LEAT_KERNELS_CUDA_TABLE_PROBE_CUH

#include "kernels/cuda/table.cuh"

enum { TILE_LANES = 8, WARP_TILES = WARP_LANES / TILE_LANES };

/* A search of a tile of eight lanes, the same in all its lanes. */
struct table_search {
    const gpu_table_view *view;
    uint32_t table;
    uint64_t key; /* 0: search nothing */
    uint64_t hash;
    uint64_t slot; /* the result; SLOT_NONE: not found */
};

/* The bytes of `mask` that are 0xff, as four bits. */
static inline __device__ uint32_t table_byte_bits(uint32_t mask)
{
    return ((mask & 0x01010101U) * 0x01020408U) >> 24;
}

/* The positions of a lane's sixteen digests that equal `digest`, as bits. */
static inline __device__ uint32_t table_matches(uint4 line, uint32_t digest)
{
    uint32_t all = digest * 0x01010101U;
    return table_byte_bits(__vcmpeq4(line.x, all)) | table_byte_bits(__vcmpeq4(line.y, all)) << 4 |
           table_byte_bits(__vcmpeq4(line.z, all)) << 8 | table_byte_bits(__vcmpeq4(line.w, all)) << 12;
}

/*
 * For each k with looks[k], searches bucket places[k] for the tile's k-th key; places are counted from the
 * stash's first bucket. Clears looks[k] if that ends the search: the key was found, or the bucket has a
 * digest 0, so the key is nowhere else. Called by the whole warp.
 */
template <int KEYS>
static __device__ void table_look(table_search (&searches)[KEYS], const uint64_t (&places)[KEYS],
                                  bool (&looks)[KEYS])
{
    const uint32_t lane = threadIdx.x % TILE_LANES;
    const uint32_t shift = threadIdx.x % WARP_LANES - lane;
    uint4 lines[KEYS];
    uint32_t matches[KEYS], hits[KEYS];
#pragma unroll
    for (int k = 0; k < KEYS; k++) {
        const gpu_bucket *bucket = searches[k].view->buckets + places[k];
        lines[k] = looks[k] ? reinterpret_cast<const uint4 *>(bucket->digests)[lane]
                            : make_uint4(WARP_ALL, WARP_ALL, WARP_ALL, WARP_ALL);
    }
    bool again = true;
#pragma unroll
    for (int k = 0; k < KEYS; k++) {
        matches[k] = looks[k] ? table_matches(lines[k], table_digest(searches[k].hash)) : 0;
        hits[k] = BATCH_NONE;
    }
    while (again) {
        uint64_t stored[KEYS];
#pragma unroll
        for (int k = 0; k < KEYS; k++) {
            const gpu_bucket *bucket = searches[k].view->buckets + places[k];
            uint32_t at = lane * 16 + (uint32_t)__ffs((int)matches[k]) - 1;
            stored[k] = matches[k] != 0 ? bucket->keys[at] : 0;
        }
        uint32_t left = 0;
#pragma unroll
        for (int k = 0; k < KEYS; k++) {
            if (matches[k] != 0 && stored[k] == searches[k].key)
                hits[k] = lane * 16 + (uint32_t)__ffs((int)matches[k]) - 1;
            matches[k] &= matches[k] - 1;
            left |= hits[k] == BATCH_NONE ? matches[k] : 0;
        }
        again = __any_sync(WARP_ALL, left != 0);
    }
#pragma unroll
    for (int k = 0; k < KEYS; k++) {
        uint32_t found = __ballot_sync(WARP_ALL, hits[k] != BATCH_NONE) >> shift & 255;
        uint32_t zeros = __ballot_sync(WARP_ALL, table_matches(lines[k], DIGEST_FREE) != 0) >> shift & 255;
        uint32_t hit = __shfl_sync(WARP_ALL, hits[k], (int)shift + (found != 0 ? __ffs((int)found) - 1 : 0));
        if (looks[k] && found != 0)
            searches[k].slot = places[k] * GPU_BUCKET_SLOTS + hit;
        looks[k] = looks[k] && found == 0 && zeros == 0;
    }
}

/* Sets the slot of each search; expired rows are found, too; key 0 is not searched. By the whole warp. */
template <int KEYS>
static __device__ void table_probe(table_search (&searches)[KEYS], const gpu_table_counts *counts)
{
    uint64_t places[KEYS];
    bool looks[KEYS], goes_on = false;
#pragma unroll
    for (int k = 0; k < KEYS; k++) {
        table_search *s = &searches[k];
        s->slot = SLOT_NONE;
        s->hash = table_hash_of(s->view, s->key);
        places[k] = s->view->stash_buckets + table_first(s->view, s->hash);
        looks[k] = s->key != 0;
    }
    table_look(searches, places, looks);
    bool is_second[KEYS];
#pragma unroll
    for (int k = 0; k < KEYS; k++) {
        table_search *s = &searches[k];
        looks[k] = looks[k] && !s->view->is_bounded;
        uint64_t second = s->view->stash_buckets + table_second(s->view, s->hash);
        is_second[k] = looks[k] && second != places[k];
        places[k] = second;
        goes_on |= looks[k];
    }
    if (!__any_sync(WARP_ALL, goes_on))
        return;
    bool looks_second[KEYS];
#pragma unroll
    for (int k = 0; k < KEYS; k++)
        looks_second[k] = is_second[k];
    table_look(searches, places, looks_second);
    goes_on = false;
#pragma unroll
    for (int k = 0; k < KEYS; k++) {
        looks[k] = is_second[k] ? looks_second[k] : looks[k];
        looks[k] = looks[k] && counts[searches[k].table].stashed > 0;
        goes_on |= looks[k];
    }
    for (uint32_t b = 0; b < GPU_STASH_BUCKETS && __any_sync(WARP_ALL, goes_on); b++) {
#pragma unroll
        for (int k = 0; k < KEYS; k++)
            places[k] = b;
        table_look(searches, places, looks);
        goes_on = false;
#pragma unroll
        for (int k = 0; k < KEYS; k++)
            goes_on |= looks[k];
    }
}

/* The keys to search, as a kernel argument: keys[u] of table tables[u], or the keys and tables of heads[u]; u
 * < n, and u < *count. */
struct table_lookup {
    const gpu_table_view *views;
    const gpu_table_counts *counts;
    const uint64_t *keys;
    const uint32_t *tables;    /* NULL: 0 */
    const gpu_row_head *heads; /* or NULL */
    const uint32_t *count;     /* or NULL */
    uint32_t n;
};

/*
 * Finds the keys of this thread's tile, with the indices first + k * WARP_TILES, so that the indices of a
 * warp are contiguous; *n: the number of all keys. Returns false, for the whole warp, if all its indices are
 * beyond the last key. A block of B threads searches B / TILE_LANES * KEYS keys.
 */
template <int KEYS>
static __device__ bool table_look_up(const table_lookup &in, table_search (&searches)[KEYS], uint32_t *first,
                                     uint32_t *n)
{
    const uint32_t warp = (uint32_t)(cuda_thread() / WARP_LANES);
    *n = in.count != NULL && *in.count < in.n ? *in.count : in.n;
    *first = warp * (WARP_TILES * KEYS) + threadIdx.x % WARP_LANES / TILE_LANES;
#pragma unroll
    for (int k = 0; k < KEYS; k++) {
        const uint32_t u = *first + (uint32_t)k * WARP_TILES;
        const bool is_asked = u < *n;
        uint32_t table = 0;
        if (is_asked && in.heads != NULL)
            table = in.heads[u].table;
        else if (is_asked && in.tables != NULL)
            table = in.tables[u];
        searches[k].table = table;
        searches[k].view = in.views + table;
        searches[k].key = !is_asked ? 0 : in.heads != NULL ? in.heads[u].key : in.keys[u];
        searches[k].slot = SLOT_NONE;
    }
    if ((uint64_t)warp * (WARP_TILES * KEYS) >= *n)
        return false;
    table_probe(searches, in.counts);
    return true;
}

#endif

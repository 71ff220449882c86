/*
 * dedupe (batch.h), by sorting and by hashing.
 *
 * Ladder, naive to fast (not measured, nor which method is faster for which ids):
 *   sort of (table, id, place)   17 bytes of key; but a table's places lie together, so a stable sort by the
 *                                64 bits of the id alone keeps an id's tables apart, in order
 *   a second sort, by index      not needed: runs are moved as a whole, to the place that a scan of their
 *                                lengths gives
 *   hash, index by first place   one pass over the ids, each with one random slot access; each table has its
 *                                own slots, so a slot holds the id alone; atomicMin gives the first place,
 *                                and a scan over first places gives the indices; then the sort by index has
 *                                few bits: 20 for a million ids, not 64
 *   a read before each atomic    an id in every tenth place would be contended at one address; a thread that
 *                                finds the id with an earlier place writes nothing
 */
#include "kernels/cuda/gpu.cuh"
#include "kernels/cuda/parts.cuh"
#include "kernels/cuda/sort.cuh"

enum { BLOCK = 256, ALIGN = 256 };

/* The arrays in scratch memory; unused ones are NULL. */
struct dedupe_scratch {
    uint32_t *places;  /* [n] 0, 1, 2 ... */
    uint32_t *indices; /* [n + 1] by place: 1 if the place is its id's first; scanned: the index of that id */
    uint64_t *sorted_ids;
    uint32_t *sorted_places;
    uint32_t *runs;                    /* [n + 1] in sorted order: 1 where a run begins; scanned: the run */
    uint32_t *run_indices, *run_begin; /* [n] by run: its id's index; its first position in sorted order */
    uint64_t *slot_ids;
    uint32_t *slot_firsts;        /* [2n] by slot: the first place of its id */
    uint32_t *slots;              /* [n] by place: the id's slot; BATCH_NONE if absent */
    uint32_t *keys, *sorted_keys; /* [n] indices, all ones if absent */
    void *library;                /* scratch of sorts and scans */
    size_t library_bytes, all_bytes;
};

/* Bits of a sort key: enough for the indices below n, and for one more value, all ones: absent. */
static int key_bits(uint32_t n)
{
    int bits = 1;
    while (bits < 32 && (1ULL << bits) <= n)
        bits++;
    return bits;
}

template <typename type> static void take(unsigned char *base, size_t *used, size_t count, type **part)
{
    *part = base != nullptr ? reinterpret_cast<type *>(base + *used) : nullptr;
    *used += (count * sizeof(type) + ALIGN - 1) / ALIGN * ALIGN;
}

static dedupe_scratch lay_out(const batch_dedupe *a)
{
    dedupe_scratch s = {};
    unsigned char *base = static_cast<unsigned char *>(a->scratch), *library = nullptr;
    const size_t n = a->n;
    size_t used = 0, scan_bytes = 0, sort_bytes = 0;
    take(base, &used, n, &s.places);
    take(base, &used, n + 1, &s.indices);
    scan_exclusive_32(nullptr, &scan_bytes, nullptr, nullptr, a->n + 1, nullptr);
    if (a->method == DEDUPE_SORT) {
        take(base, &used, n, &s.sorted_ids);
        take(base, &used, n, &s.sorted_places);
        take(base, &used, n + 1, &s.runs);
        take(base, &used, n, &s.run_indices);
        take(base, &used, n, &s.run_begin);
        sort_pairs_64(nullptr, &sort_bytes, nullptr, nullptr, nullptr, nullptr, a->n, 64, nullptr);
    } else {
        take(base, &used, 2 * n, &s.slot_ids);
        take(base, &used, 2 * n, &s.slot_firsts);
        take(base, &used, n, &s.slots);
        take(base, &used, n, &s.keys);
        take(base, &used, n, &s.sorted_keys);
        sort_pairs_32(nullptr, &sort_bytes, nullptr, nullptr, nullptr, nullptr, a->n, key_bits(a->n),
                      nullptr);
    }
    s.library_bytes = scan_bytes > sort_bytes ? scan_bytes : sort_bytes;
    take(base, &used, s.library_bytes, &library);
    s.library = library;
    s.all_bytes = used > BATCH_SCRATCH_MIN ? used : (size_t)BATCH_SCRATCH_MIN;
    return s;
}

/* The table of a place: tables[t] <= place < tables[t + 1]. */
static __device__ uint32_t table_of(const uint32_t *tables, uint32_t count, uint32_t place)
{
    uint32_t low = 0, high = count; /* tables[low] <= place < tables[high] */
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (tables[middle] <= place)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static __global__ void __launch_bounds__(BLOCK) empty_kernel(uint32_t *count, uint32_t *starts)
{
    if (cuda_thread() == 0)
        count[0] = starts[0] = 0;
}

/* --- By sorting --- */

/* Sets places to 0, 1, 2 ..., and clears the marks of first places and the lengths of runs. */
static __global__ void __launch_bounds__(BLOCK) begin_kernel(batch_dedupe a, dedupe_scratch s)
{
    const size_t i = cuda_thread();
    if (i > a.n)
        return;
    s.indices[i] = 0;
    a.starts[i] = 0;
    if (i == a.n) {
        s.runs[i] = 0;
        return;
    }
    s.places[i] = (uint32_t)i;
    if (a.ids[i] == 0)
        a.indices[i] = BATCH_NONE;
}

/* Marks where runs begin in sorted order. The sort is stable: a run's first place is its id's first. */
static __global__ void __launch_bounds__(BLOCK) heads_kernel(batch_dedupe a, dedupe_scratch s)
{
    const size_t i = cuda_thread();
    if (i >= a.n)
        return;
    const uint64_t id = s.sorted_ids[i];
    const uint32_t place = s.sorted_places[i];
    bool is_head = id != 0 && (i == 0 || s.sorted_ids[i - 1] != id);
    if (id != 0 && !is_head && a.tables_count > 1)
        is_head = table_of(a.tables, a.tables_count, s.sorted_places[i - 1]) !=
                  table_of(a.tables, a.tables_count, place);
    s.runs[i] = is_head;
    if (is_head)
        s.indices[place] = 1;
}

/* Writes each run's index and beginning, and the index's id and table. Runs and indices are scanned. */
static __global__ void __launch_bounds__(BLOCK) runs_kernel(batch_dedupe a, dedupe_scratch s)
{
    const size_t i = cuda_thread();
    if (i == 0)
        a.count[0] = s.runs[a.n];
    if (i >= a.n || s.runs[i] == s.runs[i + 1])
        return;
    const uint32_t place = s.sorted_places[i], run = s.runs[i], index = s.indices[place];
    s.run_begin[run] = (uint32_t)i;
    s.run_indices[run] = index;
    a.unique_ids[index] = s.sorted_ids[i];
    a.unique_tables[index] = table_of(a.tables, a.tables_count, place);
}

/* The length of each run, at its index. Absent ids, 0, are sorted to the front: the last run ends at n. */
static __global__ void __launch_bounds__(BLOCK) lengths_kernel(batch_dedupe a, dedupe_scratch s)
{
    const size_t run = cuda_thread(), m = s.runs[a.n];
    if (run < m)
        a.starts[s.run_indices[run]] = (run + 1 < m ? s.run_begin[run + 1] : a.n) - s.run_begin[run];
}

static __global__ void __launch_bounds__(BLOCK) deal_kernel(batch_dedupe a, dedupe_scratch s)
{
    const size_t i = cuda_thread();
    if (i >= a.n || s.sorted_ids[i] == 0)
        return;
    const uint32_t run = s.runs[i + 1] - 1, index = s.run_indices[run], place = s.sorted_places[i];
    a.indices[place] = index;
    a.order[a.starts[index] + (uint32_t)i - s.run_begin[run]] = place;
}

static void dedupe_sort(const batch_dedupe &a, dedupe_scratch s, cudaStream_t stream)
{
    const unsigned blocks = cuda_blocks((size_t)a.n + 1, BLOCK);
    LAUNCH(begin_kernel, blocks, BLOCK, 0, stream, a, s);
    sort_pairs_64(s.library, &s.library_bytes, a.ids, s.sorted_ids, s.places, s.sorted_places, a.n, 64,
                  stream);
    LAUNCH(heads_kernel, blocks, BLOCK, 0, stream, a, s);
    scan_exclusive_32(s.library, &s.library_bytes, s.runs, s.runs, a.n + 1, stream);
    scan_exclusive_32(s.library, &s.library_bytes, s.indices, s.indices, a.n + 1, stream);
    LAUNCH(runs_kernel, blocks, BLOCK, 0, stream, a, s);
    LAUNCH(lengths_kernel, blocks, BLOCK, 0, stream, a, s);
    scan_exclusive_32(s.library, &s.library_bytes, a.starts, a.starts, a.n + 1, stream);
    LAUNCH(deal_kernel, blocks, BLOCK, 0, stream, a, s);
}

/* --- By hashing --- */

/* Gives each id a slot of its table, which has two slots for each place; writes the slot's first place. */
static __global__ void __launch_bounds__(BLOCK) insert_kernel(batch_dedupe a, dedupe_scratch s)
{
    const size_t i = cuda_thread();
    if (i >= a.n)
        return;
    const uint32_t place = (uint32_t)i;
    const uint64_t id = a.ids[i];
    if (id == 0) {
        s.slots[i] = BATCH_NONE;
        return;
    }
    const uint32_t table = table_of(a.tables, a.tables_count, place);
    const size_t base = 2 * (size_t)a.tables[table], size = 2 * (size_t)a.tables[table + 1] - base;
    unsigned long long *ids = reinterpret_cast<unsigned long long *>(s.slot_ids) + base;
    size_t at = (size_t)__umul64hi(num_mix(id), size);
    for (;; at = at + 1 < size ? at + 1 : 0) {
        unsigned long long there = load_relaxed(&ids[at]);
        if (there == 0)
            there = atomicCAS(&ids[at], 0ULL, (unsigned long long)id);
        if (there == 0 || there == id)
            break;
    }
    if (load_relaxed(&s.slot_firsts[base + at]) > place)
        atomicMin(&s.slot_firsts[base + at], place);
    s.slots[i] = (uint32_t)(base + at);
}

static __global__ void __launch_bounds__(BLOCK) firsts_kernel(batch_dedupe a, dedupe_scratch s)
{
    const size_t i = cuda_thread();
    if (i > a.n)
        return;
    const uint32_t slot = i < a.n ? s.slots[i] : BATCH_NONE;
    s.indices[i] = slot != BATCH_NONE && s.slot_firsts[slot] == i;
}

/* Writes each place's index, and the id and table of each index. s.indices must be scanned already. */
static __global__ void __launch_bounds__(BLOCK) numbers_kernel(batch_dedupe a, dedupe_scratch s)
{
    const size_t i = cuda_thread();
    if (i == 0)
        a.count[0] = s.indices[a.n];
    if (i >= a.n)
        return;
    const uint32_t slot = s.slots[i], first = slot != BATCH_NONE ? s.slot_firsts[slot] : BATCH_NONE;
    const uint32_t index = slot != BATCH_NONE ? s.indices[first] : BATCH_NONE;
    s.places[i] = (uint32_t)i;
    s.keys[i] = index;
    a.indices[i] = index;
    if (first == i) {
        a.unique_ids[index] = a.ids[i];
        a.unique_tables[index] = table_of(a.tables, a.tables_count, first);
    }
}

/* Finds where each index begins. Places are sorted by index, with the absent ones last. */
static __global__ void __launch_bounds__(BLOCK) starts_kernel(batch_dedupe a, dedupe_scratch s)
{
    const size_t i = cuda_thread();
    if (i > a.n)
        return;
    const uint32_t before = i > 0 ? s.sorted_keys[i - 1] : BATCH_NONE;
    const uint32_t key = i < a.n ? s.sorted_keys[i] : BATCH_NONE;
    if (key != BATCH_NONE && key != before)
        a.starts[key] = (uint32_t)i;
    if (key == BATCH_NONE && (i == 0 || before != BATCH_NONE))
        a.starts[s.indices[a.n]] = (uint32_t)i;
}

static void dedupe_hash(const batch_dedupe &a, dedupe_scratch s, cudaStream_t stream)
{
    const unsigned blocks = cuda_blocks((size_t)a.n + 1, BLOCK);
    (void)cudaMemsetAsync(s.slot_ids, 0, 2 * (size_t)a.n * sizeof(*s.slot_ids), stream);
    (void)cudaMemsetAsync(s.slot_firsts, 0xff, 2 * (size_t)a.n * sizeof(*s.slot_firsts), stream);
    LAUNCH(insert_kernel, blocks, BLOCK, 0, stream, a, s);
    LAUNCH(firsts_kernel, blocks, BLOCK, 0, stream, a, s);
    scan_exclusive_32(s.library, &s.library_bytes, s.indices, s.indices, a.n + 1, stream);
    LAUNCH(numbers_kernel, blocks, BLOCK, 0, stream, a, s);
    sort_pairs_32(s.library, &s.library_bytes, s.keys, s.sorted_keys, s.places, a.order, a.n, key_bits(a.n),
                  stream);
    LAUNCH(starts_kernel, blocks, BLOCK, 0, stream, a, s);
}

void cuda_dedupe(batch_dedupe *a, void *stream)
{
    cudaStream_t to = gpu_cuda_stream(stream); /* makes the device current, for CUB's sizes */
    if (a->scratch == nullptr) {
        a->scratch_bytes = lay_out(a).all_bytes;
        return;
    }
    if (a->n == 0)
        LAUNCH(empty_kernel, 1, 1, 0, to, a->count, a->starts);
    else if (a->method == DEDUPE_SORT)
        dedupe_sort(*a, lay_out(a), to);
    else
        dedupe_hash(*a, lay_out(a), to);
    (void)gpu_launched(stream, "dedupe");
}

/*
 * take_oldest: removes the rows that were used longest ago from a table.
 *
 * Ladder (not measured): (1) Sort all (step, key): 12 bytes per row through eight passes of a radix sort, for
 * a few rows. (2) A threshold: a histogram of the highest bits gives the bin of the last row to take, a
 * histogram of the next bits within that bin gives that row's bin there, and so on: three passes over the
 * steps, 16 bytes per row read in order, and six more over the keys only if rows of one step have to be
 * distinguished. Nothing is sampled: the result is exact, and the same in every run. (3) Counting in shared
 * memory, one histogram per block.
 */
#include "kernels/cuda/table_moves.cuh"

#include <string.h>

enum { BLOCK = 256 };

/* Which digit of the age order or the key to count, and of which rows: those whose bits under order_mask and
 * key_mask, the bits of the limit known so far, equal `order` and `key`. */
struct oldest_digit {
    uint32_t step_spared;
    uint32_t order_mask, order;
    uint64_t key_mask, key;
    bool is_of_key;
    uint32_t shift, bits;
};

static __global__ void __launch_bounds__(BLOCK)
    count_digits(const gpu_table_view *view, uint64_t places, oldest_digit a, uint32_t *digits)
{
    SHARED(uint32_t[MOVES_DIGITS], sums);
    for (uint32_t i = threadIdx.x; i < MOVES_DIGITS; i += BLOCK)
        sums[i] = 0;
    __syncthreads();
    const uint64_t slots = places * GPU_BUCKET_SLOTS, stride = (uint64_t)gridDim.x * BLOCK;
    for (uint64_t at = cuda_thread(); at < slots; at += stride) {
        const gpu_bucket *bucket = view->buckets + at / GPU_BUCKET_SLOTS;
        const uint32_t s = (uint32_t)(at % GPU_BUCKET_SLOTS);
        if (bucket->digests[s] < DIGEST_KEYS)
            continue;
        const uint32_t order = table_age_order(bucket->heads[s].step, a.step_spared);
        if (order >= 0x80000000U || (order & a.order_mask) != a.order)
            continue;
        const uint64_t key = a.is_of_key ? bucket->keys[s] : 0;
        if ((key & a.key_mask) != a.key)
            continue;
        const uint32_t digit = (uint32_t)((a.is_of_key ? key : order) >> a.shift) & ((1U << a.bits) - 1U);
        atomicAdd(&sums[digit], 1U);
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < MOVES_DIGITS; i += BLOCK)
        if (sums[i] > 0)
            atomicAdd(&digits[i], sums[i]);
}

static bool read_digits(gpu_tables *tables, gpu_stream *stream, uint32_t t, const oldest_digit *digit,
                        gpu_error *error)
{
    table_moves *m = tables->moves;
    cudaStream_t queue = gpu_cuda_stream(stream);
    uint64_t places = table_places(&tables->tables[t].view);
    unsigned blocks = cuda_blocks(places * GPU_BUCKET_SLOTS, BLOCK * 8);
    unsigned most = (unsigned)tables->gpu->multiprocessors * 8;
    gpu_note(tables->gpu, cudaMemsetAsync(m->digits, 0, MOVES_DIGITS * sizeof(*m->digits), queue),
             "tables: take_oldest");
    LAUNCH(count_digits, blocks < most ? blocks : most, BLOCK, 0, queue, tables->views + t, places, *digit,
           m->digits);
    gpu_note(tables->gpu,
             cudaMemcpyAsync(m->digits_host, m->digits, MOVES_DIGITS * sizeof(*m->digits), cudaMemcpyDefault,
                             queue),
             "tables: take_oldest");
    return tables_wait(tables, stream, error);
}

/* The bin with the rank-th row (from 1); *rank becomes the rank within the bin. false: there are fewer
 * rows. */
static bool find_bin(const uint32_t *digits, uint32_t bins, uint64_t *rank, uint32_t *bin)
{
    for (*bin = 0; *bin < bins; ++*bin) {
        if (*rank <= digits[*bin])
            return true;
        *rank -= digits[*bin];
    }
    return false;
}

/* Sets the filter's limit so that it selects the `rank` oldest rows of table t. */
static bool find_limit(gpu_tables *tables, gpu_stream *stream, uint32_t t, uint64_t rank,
                       table_filter *filter, gpu_error *error)
{
    static const struct {
        bool is_of_key;
        uint32_t shift, bits;
    } rounds[] = {{false, 20, 11}, {false, 9, 11}, {false, 0, 9}, {true, 53, 11}, {true, 42, 11},
                  {true, 31, 11},  {true, 20, 11}, {true, 9, 11}, {true, 0, 9}};
    oldest_digit digit = {};
    digit.step_spared = filter->step_spared;
    filter->order_most = 0x7fffffffU;
    filter->key_most = UINT64_MAX;
    for (const auto &round : rounds) {
        uint32_t bin = 0, bins = 1U << round.bits;
        digit.is_of_key = round.is_of_key;
        digit.shift = round.shift;
        digit.bits = round.bits;
        if (!read_digits(tables, stream, t, &digit, error))
            return false;
        const uint32_t *digits = tables->moves->digits_host;
        if (!find_bin(digits, bins, &rank, &bin))
            return true; /* the table has fewer rows than `rank`: the filter selects all of them */
        uint64_t mask = (uint64_t)(bins - 1) << round.shift, rest = ((uint64_t)1 << round.shift) - 1;
        uint64_t known = (uint64_t)bin << round.shift;
        if (round.is_of_key) {
            digit.key_mask |= mask;
            digit.key |= known;
            filter->key_most = digit.key | rest;
        } else {
            digit.order_mask |= (uint32_t)mask;
            digit.order |= (uint32_t)known;
            filter->order_most = digit.order | (uint32_t)rest;
        }
        if (rank == digits[bin])
            return true; /* the last row to take is the last of this bin: no finer limit is needed */
    }
    return true;
}

bool tables_take_oldest(gpu_tables *tables, gpu_stream *stream, uint32_t t, uint32_t step_spared,
                        uint32_t room, gpu_row_head *heads, float *payloads, const uint32_t *at,
                        uint32_t *count, gpu_error *error)
{
    *count = 0;
    if (!gpu_is_good(tables->gpu, error) || !moves_need(tables, error))
        return false;
    if (room == 0)
        return true;
    table_moves *m = tables->moves;
    table_filter filter = {};
    filter.is_oldest = true;
    filter.step_spared = step_spared;
    if (!find_limit(tables, stream, t, room, &filter, error))
        return false;
    uint64_t places = table_places(&tables->tables[t].view), first = tables_places(tables, t);
    m->selected_rows = m->exported_rows = 0;
    gpu_note(tables->gpu,
             cudaMemsetAsync(m->counts, 0, (first + places) * sizeof(*m->counts), gpu_cuda_stream(stream)),
             "tables: take_oldest");
    moves_count(tables, stream, t, &filter);
    moves_scan(tables, stream, first + places);
    moves_export out = {&filter, 0, room, 0, places, true, heads, payloads, at};
    moves_export_table(tables, stream, t, &out);
    gpu_note(tables->gpu,
             cudaMemcpyAsync(m->offsets_host, m->offsets + first + places, sizeof(*m->offsets),
                             cudaMemcpyDefault, gpu_cuda_stream(stream)),
             "tables: take_oldest");
    if (!tables_wait(tables, stream, error))
        return false;
    *count = m->offsets_host[0];
    return true;
}

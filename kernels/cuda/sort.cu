/*
 * Sorting and prefix sums (sort.cuh): CUB's radix sort (one pass over the data for eight bits of the key:
 * Adinets and Merrill 2022) and its scan with decoupled look-back (Merrill and Garland 2016). We know of
 * nothing faster for the sizes of a batch, so there is no ladder here; speed: not measured. In the host's
 * model each function is a kernel of one thread.
 */
#include "kernels/cuda/sort.cuh"

#ifdef CUDA_ON_HOST
#include <algorithm>
#include <vector>

enum { SCRATCH_BYTES = 256 };

template <typename key>
static void sort_plainly(const key *keys, key *keys_out, const uint32_t *values, uint32_t *values_out,
                         uint32_t n, int bits)
{
    const key mask = bits >= (int)(8 * sizeof(key)) ? (key) ~(key)0 : (key)(((key)1 << bits) - 1);
    std::vector<uint32_t> places(n);
    for (uint32_t i = 0; i < n; i++)
        places[i] = i;
    std::stable_sort(places.begin(), places.end(),
                     [=](uint32_t a, uint32_t b) { return (keys[a] & mask) < (keys[b] & mask); });
    for (uint32_t i = 0; i < n; i++) {
        keys_out[i] = keys[places[i]];
        values_out[i] = values[places[i]];
    }
}

static void scan_plainly(const uint32_t *in, uint32_t *out, uint32_t n)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t next = in[i];
        out[i] = sum;
        sum += next;
    }
}

/* The model takes and writes scratch memory only to test its size and address. */
#define SORT_ON_HOST(name, key)                                                                              \
    void name(void *scratch, size_t *scratch_bytes, const key *keys, key *keys_out, const uint32_t *values,  \
              uint32_t *values_out, uint32_t n, int bits, cudaStream_t stream)                               \
    {                                                                                                        \
        if (scratch == nullptr) {                                                                            \
            *scratch_bytes = SCRATCH_BYTES;                                                                  \
            return;                                                                                          \
        }                                                                                                    \
        (void)cudaMemsetAsync(scratch, 0, *scratch_bytes, stream);                                           \
        LAUNCH(sort_plainly<key>, 1, 1, 0, stream, keys, keys_out, values, values_out, n, bits);             \
    }
SORT_ON_HOST(sort_pairs_32, uint32_t)
SORT_ON_HOST(sort_pairs_64, uint64_t)
#undef SORT_ON_HOST

void scan_exclusive_32(void *scratch, size_t *scratch_bytes, const uint32_t *in, uint32_t *out, uint32_t n,
                       cudaStream_t stream)
{
    if (scratch == nullptr) {
        *scratch_bytes = SCRATCH_BYTES;
        return;
    }
    (void)cudaMemsetAsync(scratch, 0, *scratch_bytes, stream);
    LAUNCH(scan_plainly, 1, 1, 0, stream, in, out, n);
}

#else
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>

/* gpu_launched notes a failed launch later. */
void sort_pairs_32(void *scratch, size_t *scratch_bytes, const uint32_t *keys, uint32_t *keys_out,
                   const uint32_t *values, uint32_t *values_out, uint32_t n, int bits, cudaStream_t stream)
{
    (void)cub::DeviceRadixSort::SortPairs(scratch, *scratch_bytes, keys, keys_out, values, values_out, n, 0,
                                          bits, stream);
}

void sort_pairs_64(void *scratch, size_t *scratch_bytes, const uint64_t *keys, uint64_t *keys_out,
                   const uint32_t *values, uint32_t *values_out, uint32_t n, int bits, cudaStream_t stream)
{
    (void)cub::DeviceRadixSort::SortPairs(scratch, *scratch_bytes, keys, keys_out, values, values_out, n, 0,
                                          bits, stream);
}

void scan_exclusive_32(void *scratch, size_t *scratch_bytes, const uint32_t *in, uint32_t *out, uint32_t n,
                       cudaStream_t stream)
{
    (void)cub::DeviceScan::ExclusiveSum(scratch, *scratch_bytes, in, out, n, stream);
}
#endif

/*
 * Sorting and prefix sums over device memory: CUB on a GPU, plain loops in the host's model. sort.cu is the
 * only file that includes CUB (it takes half a minute to compile). All functions queue their work on
 * `stream`; scratch = NULL sets *scratch_bytes and does nothing else. Failures are noted by gpu_launched,
 * which the caller calls.
 */
#ifndef LEAT_KERNELS_CUDA_SORT_CUH
#define LEAT_KERNELS_CUDA_SORT_CUH

#include "kernels/cuda/cuda.cuh"

/* Sort n pairs of key and value, stably, by the lowest `bits` bits of the keys, ascending. No two arrays
 * overlap. */
void sort_pairs_32(void *scratch, size_t *scratch_bytes, const uint32_t *keys, uint32_t *keys_out,
                   const uint32_t *values, uint32_t *values_out, uint32_t n, int bits, cudaStream_t stream);
void sort_pairs_64(void *scratch, size_t *scratch_bytes, const uint64_t *keys, uint64_t *keys_out,
                   const uint32_t *values, uint32_t *values_out, uint32_t n, int bits, cudaStream_t stream);

/* out[i] = the sum of in[0] .. in[i - 1], modulo 2^32. out may be in. */
void scan_exclusive_32(void *scratch, size_t *scratch_bytes, const uint32_t *in, uint32_t *out, uint32_t n,
                       cudaStream_t stream);

#endif

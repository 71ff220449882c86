/*
 * The vocabulary of device code. The same .cu files are compiled twice: by nvcc for a GPU, and by the host's
 * C++ compiler against the execution model of tests/cuda_on_host (CUDA_ON_HOST), where sanitizers see every
 * index and threads take turns in a seeded order. Code uses directly what both compilers know under one name:
 * threadIdx, blockIdx, blockDim, gridDim, __syncthreads, __syncwarp, __shfl_sync and its variants,
 * __ballot_sync, __any_sync, __all_sync, __match_any_sync, __reduce_*_sync, atomicAdd / Min / Max / Or / And
 * / Exch / CAS (32 and 64 bits, integers only), __popc, __ffs, __clz, __brev, __byte_perm, __vcmpeq4, __ldg,
 * fmaf, float4, uint2, uint4, dim3, the bf16 and fp16 conversions, and the run-time functions that gpu.cu
 * uses. What differs between the two has a name here:
 *
 *   LAUNCH(kernel, grid, block, shared_bytes, stream, arguments...)   in place of <<<>>>
 *   SHARED(type, name)             an array or a struct of the block: SHARED(float[4][128], tile);
 *   SHARED_DYNAMIC(type, name)     type *name = the block's shared_bytes of the launch
 *   WARP_ALL                       the mask of all lanes
 *   load_relaxed(address)          loads a word that other threads change by atomics, not from the L1 cache
 *
 * Rules: lanes of a warp that communicate through memory have a __syncwarp in between (shuffles and votes
 * order no memory); no float atomics; no clock; no result may depend on the order in which threads, warps or
 * blocks run; every rounding is visible in the source (nvcc -fmad=false, g++ -ffp-contract=off: fmaf where an
 * fma is meant).
 */
#ifndef LEAT_KERNELS_CUDA_CUDA_CUH
#define LEAT_KERNELS_CUDA_CUDA_CUH

#include <stddef.h>
#include <stdint.h>

#ifdef CUDA_ON_HOST
#include "tests/cuda_on_host/model.h"

template <typename type> static inline type load_relaxed(const type *address)
{
    model_may_yield();
    return __atomic_load_n(address, __ATOMIC_RELAXED);
}
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                               \
    kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__)

template <typename type> static __device__ __forceinline__ type load_relaxed(const type *address)
{
    return *static_cast<const volatile type *>(address);
}

template <typename type> struct cuda_shared_type {
    using is = type;
};
#define SHARED(type, name) __shared__ alignas(16) cuda_shared_type<type>::is name
#define SHARED_DYNAMIC(type, name)                                                                           \
    extern __shared__ __align__(16) unsigned char cuda_shared_bytes[];                                       \
    type *name = (type *)(void *)cuda_shared_bytes
#endif

#define WARP_ALL 0xffffffffU

enum { WARP_LANES = 32 };

/* The number of blocks of `block` threads (or tiles) that cover n items. */
static inline __host__ __device__ unsigned cuda_blocks(size_t n, size_t block)
{
    return (unsigned)((n + block - 1) / block);
}

/* This thread's index in a one-dimensional grid. */
static inline __device__ size_t cuda_thread(void)
{
    return (size_t)blockIdx.x * blockDim.x + threadIdx.x;
}

#endif

/*
 * Features that CUDA C++ has no function for: asynchronous copies into shared memory, and loads, stores and
 * prefetches with cache hints. This file and mma.cuh have the only inline PTX of leat. Each function has a version for the
 * host's model, where a copy is made only when a thread waits for it.
 *
 * Copies: each thread waits for its own copies. A thread that reads what others copied needs a barrier after
 * their wait:
 *
 *   async_copy_16(&tile[threadIdx.x], &rows[i]);   any number of copies
 *   async_copy_commit();                           the copies since the last commit form a group
 *   async_copy_wait<1>();                          waits for all groups except the latest 1
 *   __syncthreads();
 */
#ifndef LEAT_KERNELS_CUDA_ASYNC_CUH
#define LEAT_KERNELS_CUDA_ASYNC_CUH

#include "kernels/cuda/cuda.cuh"

#ifdef CUDA_ON_HOST

static inline void async_copy_16(void *shared, const void *global)
{
    model_async_copy(static_cast<uint4 *>(shared), static_cast<const uint4 *>(global));
}

static inline void async_copy_commit(void)
{
    model_async_commit();
}

template <int groups> static inline void async_copy_wait(void)
{
    uint4 *to;
    const uint4 *from;
    while (model_async_landed(groups, &to, &from)) {
        *to = *from;
    }
}

static inline void prefetch_l2(const void *)
{
}

template <typename type> static inline type load_past_l1(const type *address)
{
    return *address;
}

template <typename type> static inline void store_past_l1(type *address, type value)
{
    *address = value;
}

#else

/* Copies 16 bytes, aligned to 16 on both sides, bypassing the L1 cache (cp.async.cg; before sm_80:
 * synchronously). */
static __device__ __forceinline__ void async_copy_16(void *shared, const void *global)
{
#if __CUDA_ARCH__ >= 800
    const unsigned to = (unsigned)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(to), "l"(global) : "memory");
#else
    *static_cast<uint4 *>(shared) = *static_cast<const uint4 *>(global);
#endif
}

static __device__ __forceinline__ void async_copy_commit(void)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" : : : "memory");
#endif
}

template <int groups> static __device__ __forceinline__ void async_copy_wait(void)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" : : "n"(groups) : "memory");
#endif
}

/* Prefetches the cache line of an address into the L2 cache. */
static __device__ __forceinline__ void prefetch_l2(const void *address)
{
    asm volatile("prefetch.global.L2 [%0];" : : "l"(address));
}

/* load_past_l1, store_past_l1: 16 bytes, aligned to 16, not allocated in the L1 cache: for rows that this
 * multiprocessor accesses only once. */
static __device__ __forceinline__ uint4 load_past_l1(const uint4 *address)
{
    uint4 value;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "l"(address)
                 : "memory");
    return value;
}

static __device__ __forceinline__ float4 load_past_l1(const float4 *address)
{
    float4 value;
    asm volatile("ld.global.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
                 : "l"(address)
                 : "memory");
    return value;
}

static __device__ __forceinline__ void store_past_l1(uint4 *address, uint4 value)
{
    asm volatile("st.global.L1::no_allocate.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(address), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w)
                 : "memory");
}

static __device__ __forceinline__ void store_past_l1(float4 *address, float4 value)
{
    asm volatile("st.global.L1::no_allocate.v4.f32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(address), "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w)
                 : "memory");
}

#endif

#endif

/* Threads of a grid: their indices, where they wait for each other, the memory that they share. A thread is a
 * fiber; it runs until it has to wait, or until a point where the seeded order may let another thread run
 * first: each barrier, warp collective, atomic and fence.
 *
 * The model is stricter than a GPU, on which such a bug would be silent: a barrier needs all threads of
 * the block, and a warp collective all lanes of its mask, at the same line; a shuffle's source must be
 * in the mask. */
#ifndef LEAT_TESTS_CUDA_ON_HOST_THREADS_H
#define LEAT_TESTS_CUDA_ON_HOST_THREADS_H

#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tests/cuda_on_host/runtime.h"
#include "tests/cuda_on_host/types.h"

/* The place of a wait in the source. */
struct model_site {
    const char *file;
    int line;

    static constexpr model_site here(const char *file = __builtin_FILE(), int line = __builtin_LINE())
    {
        return {file, line};
    }
};
#define MODEL_HERE model_site here = model_site::here()

/* What kernels see of the running thread. */
struct model_block_place {
    uint3 index;
    dim3 block_dim, grid_dim;
};
struct model_thread_place {
    uint3 index;
    model_block_place *block;
};
extern model_thread_place *model_now;

#define threadIdx (model_now->index)
#define blockIdx  (model_now->block->index)
#define blockDim  (model_now->block->block_dim)
#define gridDim   (model_now->block->grid_dim)
static constexpr int warpSize = 32;

/* --- Launches --- */
void model_queue_launch(const char *kernel, const void *address, dim3 grid, dim3 block, size_t shared_bytes,
                        cudaStream_t stream, std::function<void()> call);

/* Reports an argument that points to the host's pageable memory, which a kernel cannot reach. */
void model_check_pointer(const char *kernel, const void *address);

template <typename type> static inline void model_check_argument(const char *kernel, const type &value)
{
    if constexpr (std::is_pointer<type>::value) {
        model_check_pointer(kernel, (const void *)value);
    }
}

template <typename... parameters, typename... arguments>
static inline void model_launch(const char *name, void (*kernel)(parameters...), dim3 grid, dim3 block,
                                size_t shared_bytes, cudaStream_t stream, arguments &&...given)
{
    std::tuple<std::decay_t<parameters>...> values(std::forward<arguments>(given)...);
    std::apply([name](const auto &...value) { (model_check_argument(name, value), ...); }, values);
    model_queue_launch(name, (const void *)kernel, grid, block, shared_bytes, stream,
                       [kernel, values] { std::apply(kernel, values); });
}

#define LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                               \
    model_launch(#kernel, kernel, grid, block, shared_bytes, stream, ##__VA_ARGS__)

/* --- Shared memory: each piece is a heap block of its own, so that ASan sees its ends --- */
void *model_shared(const void *site, size_t bytes, size_t align);
void *model_shared_dynamic(void);

template <typename type> struct cuda_shared_type {
    using is = type;
};
#define SHARED(type, name)                                                                                   \
    static const char name##_site = 0;                                                                       \
    auto &name = *static_cast<cuda_shared_type<type>::is *>(                                                 \
        model_shared(&name##_site, sizeof(cuda_shared_type<type>::is), alignof(cuda_shared_type<type>::is)))
#define SHARED_DYNAMIC(type, name) type *name = static_cast<type *>(model_shared_dynamic())

/* --- Barriers --- */
enum model_barrier_kind {
    MODEL_SYNCTHREADS,
    MODEL_SYNCTHREADS_OR,
    MODEL_SYNCTHREADS_AND,
    MODEL_SYNCTHREADS_COUNT
};
int model_barrier(model_barrier_kind kind, int predicate, model_site site);

static inline void __syncthreads(MODEL_HERE)
{
    model_barrier(MODEL_SYNCTHREADS, 0, here);
}

static inline int __syncthreads_or(int predicate, MODEL_HERE)
{
    return model_barrier(MODEL_SYNCTHREADS_OR, predicate, here);
}

static inline int __syncthreads_and(int predicate, MODEL_HERE)
{
    return model_barrier(MODEL_SYNCTHREADS_AND, predicate, here);
}

static inline int __syncthreads_count(int predicate, MODEL_HERE)
{
    return model_barrier(MODEL_SYNCTHREADS_COUNT, predicate, here);
}

/* --- Warp collectives --- */
enum model_warp_kind {
    MODEL_SYNCWARP,
    MODEL_SHFL,
    MODEL_SHFL_UP,
    MODEL_SHFL_DOWN,
    MODEL_SHFL_XOR,
    MODEL_BALLOT,
    MODEL_ANY,
    MODEL_ALL,
    MODEL_MATCH_ANY,
    MODEL_MATCH_ALL,
    MODEL_REDUCE_ADD,
    MODEL_REDUCE_MIN_SIGNED,
    MODEL_REDUCE_MAX_SIGNED,
    MODEL_REDUCE_MIN,
    MODEL_REDUCE_MAX,
    MODEL_REDUCE_AND,
    MODEL_REDUCE_OR,
    MODEL_REDUCE_XOR,
    MODEL_MMA,
};

/* value: this lane's bits; operand and width: of shuffles. Returns this lane's result. */
uint64_t model_warp(model_warp_kind kind, unsigned mask, uint64_t value, unsigned operand, int width,
                    model_site site);

static inline void __syncwarp(unsigned mask = 0xffffffffU, MODEL_HERE)
{
    model_warp(MODEL_SYNCWARP, mask, 0, 0, 32, here);
}

template <typename type>
static inline type model_shuffle(model_warp_kind kind, unsigned mask, type value, unsigned operand, int width,
                                 model_site site)
{
    static_assert(std::is_trivially_copyable<type>::value && (sizeof(type) == 4 || sizeof(type) == 8),
                  "shuffles take 4 or 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(value));
    bits = model_warp(kind, mask, bits, operand, width, site);
    memcpy(&value, &bits, sizeof(value));
    return value;
}

template <typename type>
static inline type __shfl_sync(unsigned mask, type value, int lane, int width = 32, MODEL_HERE)
{
    return model_shuffle(MODEL_SHFL, mask, value, (unsigned)lane, width, here);
}

template <typename type>
static inline type __shfl_up_sync(unsigned mask, type value, unsigned by, int width = 32, MODEL_HERE)
{
    return model_shuffle(MODEL_SHFL_UP, mask, value, by, width, here);
}

template <typename type>
static inline type __shfl_down_sync(unsigned mask, type value, unsigned by, int width = 32, MODEL_HERE)
{
    return model_shuffle(MODEL_SHFL_DOWN, mask, value, by, width, here);
}

template <typename type>
static inline type __shfl_xor_sync(unsigned mask, type value, int lane_mask, int width = 32, MODEL_HERE)
{
    return model_shuffle(MODEL_SHFL_XOR, mask, value, (unsigned)lane_mask, width, here);
}

static inline unsigned __ballot_sync(unsigned mask, int predicate, MODEL_HERE)
{
    return (unsigned)model_warp(MODEL_BALLOT, mask, predicate != 0, 0, 32, here);
}

static inline int __any_sync(unsigned mask, int predicate, MODEL_HERE)
{
    return (int)model_warp(MODEL_ANY, mask, predicate != 0, 0, 32, here);
}

static inline int __all_sync(unsigned mask, int predicate, MODEL_HERE)
{
    return (int)model_warp(MODEL_ALL, mask, predicate != 0, 0, 32, here);
}

template <typename type> static inline unsigned __match_any_sync(unsigned mask, type value, MODEL_HERE)
{
    static_assert(sizeof(type) == 4 || sizeof(type) == 8, "match takes 4 or 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(value));
    return (unsigned)model_warp(MODEL_MATCH_ANY, mask, bits, 0, 32, here);
}

template <typename type>
static inline unsigned __match_all_sync(unsigned mask, type value, int *is_same, MODEL_HERE)
{
    static_assert(sizeof(type) == 4 || sizeof(type) == 8, "match takes 4 or 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(value));
    const unsigned lanes = (unsigned)model_warp(MODEL_MATCH_ALL, mask, bits, 0, 32, here);
    *is_same = lanes != 0;
    return lanes;
}

#define MODEL_REDUCE(name, type, kind)                                                                       \
    static inline type name(unsigned mask, type value, MODEL_HERE)                                           \
    {                                                                                                        \
        return (type)model_warp(kind, mask, (unsigned)value, 0, 32, here);                                   \
    }
MODEL_REDUCE(__reduce_add_sync, unsigned, MODEL_REDUCE_ADD)
MODEL_REDUCE(__reduce_add_sync, int, MODEL_REDUCE_ADD)
MODEL_REDUCE(__reduce_min_sync, unsigned, MODEL_REDUCE_MIN)
MODEL_REDUCE(__reduce_min_sync, int, MODEL_REDUCE_MIN_SIGNED)
MODEL_REDUCE(__reduce_max_sync, unsigned, MODEL_REDUCE_MAX)
MODEL_REDUCE(__reduce_max_sync, int, MODEL_REDUCE_MAX_SIGNED)
MODEL_REDUCE(__reduce_and_sync, unsigned, MODEL_REDUCE_AND)
MODEL_REDUCE(__reduce_or_sync, unsigned, MODEL_REDUCE_OR)
MODEL_REDUCE(__reduce_xor_sync, unsigned, MODEL_REDUCE_XOR)
#undef MODEL_REDUCE

/* --- Tensor cores (kernels/cuda/mma.cuh): m16n8k16, this lane's fragments --- */
void model_mma(float *c, const uint32_t *a, const uint32_t *b, model_site here);

/* --- Atomics, integers only --- */
/* Lets other threads run first if the seed says so. */
void model_may_yield(void);

template <typename type, typename function> static inline type model_atomic(type *address, function next)
{
    static_assert(std::is_integral<type>::value && (sizeof(type) == 4 || sizeof(type) == 8),
                  "atomics take integers of 4 or 8 bytes");
    model_may_yield();
    type old = __atomic_load_n(address, __ATOMIC_ACQUIRE);
    while (
        !__atomic_compare_exchange_n(address, &old, next(old), false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
    }
    return old;
}

/* The second parameter takes no part in deduction: atomicAdd(&count, 1) must work for an unsigned count, as
 * in CUDA. */
template <typename type> struct model_same {
    using is = type;
};

#define MODEL_ATOMIC(name, expression)                                                                       \
    template <typename type> static inline type name(type *address, typename model_same<type>::is value)     \
    {                                                                                                        \
        return model_atomic(address, [value](type old) { return (type)(expression); });                      \
    }
MODEL_ATOMIC(atomicMin, old < value ? old : value)
MODEL_ATOMIC(atomicMax, old > value ? old : value)
MODEL_ATOMIC(atomicAnd, old &value)
MODEL_ATOMIC(atomicOr, old | value)
MODEL_ATOMIC(atomicXor, old ^ value)
MODEL_ATOMIC(atomicInc, old >= value ? 0 : old + 1)
MODEL_ATOMIC(atomicDec, old == 0 || old > value ? value : old - 1)
#undef MODEL_ATOMIC

template <typename type> static inline type atomicAdd(type *address, typename model_same<type>::is value)
{
    static_assert(std::is_integral<type>::value, "no atomics of floats: their sums depend on the order");
    model_may_yield();
    return __atomic_fetch_add(address, value, __ATOMIC_ACQ_REL);
}

template <typename type> static inline type atomicSub(type *address, typename model_same<type>::is value)
{
    model_may_yield();
    return __atomic_fetch_sub(address, value, __ATOMIC_ACQ_REL);
}

template <typename type> static inline type atomicExch(type *address, typename model_same<type>::is value)
{
    model_may_yield();
    return __atomic_exchange_n(address, value, __ATOMIC_ACQ_REL);
}

template <typename type>
static inline type atomicCAS(type *address, typename model_same<type>::is expected,
                             typename model_same<type>::is value)
{
    static_assert(std::is_integral<type>::value, "atomics take integers");
    model_may_yield();
    __atomic_compare_exchange_n(address, &expected, value, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    return expected;
}

static inline void __threadfence(void)
{
    model_may_yield();
}

static inline void __threadfence_block(void)
{
    model_may_yield();
}

static inline void __threadfence_system(void)
{
    model_may_yield();
}

static inline void __nanosleep(unsigned)
{
    model_may_yield();
}

/* --- Asynchronous copies (kernels/cuda/async.cuh) --- */
void model_async_copy(uint4 *to, const uint4 *from);
void model_async_commit(void);
/* Gives the next copy to perform if all groups but the latest `groups` must have landed; false:
 * there is none. */
bool model_async_landed(unsigned groups, uint4 **to, const uint4 **from);

[[noreturn]] void model_trap(model_site site);

static inline void __trap(MODEL_HERE)
{
    model_trap(here);
}

#endif

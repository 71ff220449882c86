/* The run time's memory: heap blocks with ASan's red zones, filled with the run's poison; and reserved
 * address ranges to which memory is mapped piece by piece, where access to an unmapped address faults. */
#include <map>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "tests/cuda_on_host/driver.h"
#include "tests/cuda_on_host/runtime_internal.h"
#include "tests/cuda_on_host/sanitizers.h"
#include "tests/cuda_on_host/testing.h"

struct allocation {
    size_t bytes;
    memory_kind kind;
    bool is_mapped; /* mapped into reserved addresses */
};

static std::map<uintptr_t, allocation> allocations;
static size_t device_bytes;

/* --- Allocations --- */
memory_kind memory_of(const void *address)
{
    auto after = allocations.upper_bound((uintptr_t)address);
    if (after == allocations.begin()) {
        return MEMORY_PAGEABLE;
    }
    --after;
    return (uintptr_t)address - after->first < after->second.bytes ? after->second.kind : MEMORY_PAGEABLE;
}

bool memory_is_for_kernels(const void *address)
{
    return address == NULL || memory_of(address) != MEMORY_PAGEABLE ||
           memory_of(static_cast<const char *>(address) - 1) != MEMORY_PAGEABLE;
}

/* While the device does no work, device memory is hidden from the host, which could not access it on a
 * machine with a GPU either: ASan reports an access. Each piece of work shows and hides all of it, so large
 * memories are not hidden. */
enum { HIDDEN_BYTES_MAX = 4 << 20 };
static bool is_hidden;

void memory_hide(bool is_to_be)
{
#ifdef MODEL_ASAN
    is_to_be = is_to_be && device_bytes <= HIDDEN_BYTES_MAX;
    if (!is_to_be && !is_hidden) {
        return;
    }
    for (const auto &a : allocations) {
        if (a.second.kind == MEMORY_DEVICE && is_to_be) {
            ASAN_POISON_MEMORY_REGION((void *)a.first, a.second.bytes);
        } else if (a.second.kind == MEMORY_DEVICE) {
            ASAN_UNPOISON_MEMORY_REGION((void *)a.first, a.second.bytes);
        }
    }
    is_hidden = is_to_be;
#else
    is_hidden = is_to_be;
#endif
}

static bool is_planted(void)
{
    return run.allocations_to_failure > 0 && --run.allocations_to_failure == 0;
}

static bool fits(size_t bytes)
{
    return device_bytes <= run.memory_bytes && bytes <= run.memory_bytes - device_bytes;
}

static cudaError_t allocate(void **memory, size_t bytes, memory_kind kind)
{
    *memory = NULL;
    if (is_planted()) {
        return runtime_fail(cudaErrorMemoryAllocation);
    }
    if (bytes == 0) {
        return cudaSuccess;
    }
    if ((kind == MEMORY_DEVICE && !fits(bytes)) || posix_memalign(memory, 256, bytes) != 0) {
        return runtime_fail(cudaErrorMemoryAllocation);
    }
    model_poison(*memory, bytes);
    allocations[(uintptr_t)*memory] = {bytes, kind, false};
    device_bytes += kind == MEMORY_DEVICE ? bytes : 0;
    memory_hide(true);
    return cudaSuccess;
}

static cudaError_t release(void *memory, memory_kind kind, const char *call, const char *origin)
{
    if (memory == NULL) {
        return runtime_sticky;
    }
    const auto found = allocations.find((uintptr_t)memory);
    if (found == allocations.end() || found->second.kind != kind || found->second.is_mapped) {
        model_report(NULL, "%s(%p): not from %s, or freed before", call, memory, origin);
    }
    streams_drain_all();
    memory_hide(false);
    device_bytes -= kind == MEMORY_DEVICE ? found->second.bytes : 0;
    allocations.erase(found);
    free(memory);
    memory_hide(true);
    return runtime_sticky;
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    ENTER_UNLESS_FAILED();
    return allocate(memory, bytes, MEMORY_DEVICE);
}

cudaError_t cudaFree(void *memory)
{
    ENTER();
    return release(memory, MEMORY_DEVICE, "cudaFree", "cudaMalloc");
}

cudaError_t cudaMallocHost(void **memory, size_t bytes)
{
    ENTER_UNLESS_FAILED();
    return allocate(memory, bytes, MEMORY_PINNED);
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned)
{
    return cudaMallocHost(memory, bytes);
}

cudaError_t cudaFreeHost(void *memory)
{
    ENTER();
    return release(memory, MEMORY_PINNED, "cudaFreeHost", "cudaMallocHost");
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *all_bytes)
{
    ENTER_UNLESS_FAILED();
    *free_bytes = fits(0) ? run.memory_bytes - device_bytes : 0;
    *all_bytes = run.memory_bytes;
    return cudaSuccess;
}

/* --- Memory in reserved addresses --- */
/* cuMemCreate's handle is an allocation, to which cuMemMap gives an address. */
enum { GRANULE_LEAST = 4 << 10, GRANULE = 64 << 10 }; /* small pieces: tests need growth, not much memory */

static size_t granule_of_environment(void)
{
    const char *text = getenv("LEAT_CUDA_GRANULE");
    if (text == NULL || *text == 0) {
        return GRANULE;
    }
    char *end;
    const size_t bytes = strtoull(text, &end, 10);
    if (*end != 0 || bytes < GRANULE_LEAST || (bytes & (bytes - 1)) != 0) {
        fprintf(stderr, "LEAT_CUDA_GRANULE: `%s` is not a power of two from %d\n", text, GRANULE_LEAST);
        abort();
    }
    return bytes;
}

size_t cuda_model_granule(void)
{
    static const size_t granule = granule_of_environment();
    return granule;
}

struct driver_memory {
    size_t bytes;
    int uses; /* the handle, and each mapping */
};
static std::map<CUdeviceptr, driver_memory *> mapped;

static void *address_of(CUdeviceptr at)
{
    return (void *)(uintptr_t)at;
}

static CUresult granularity(size_t *bytes, const CUmemAllocationProp *, CUmemAllocationGranularity_flags)
{
    *bytes = cuda_model_granule();
    return CUDA_SUCCESS;
}

static CUresult reserve(CUdeviceptr *base, size_t bytes, size_t, CUdeviceptr, unsigned long long)
{
    const size_t granule = cuda_model_granule();
    if (bytes == 0 || bytes % granule != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    void *addresses =
        mmap(NULL, bytes + granule, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (addresses == MAP_FAILED) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    /* skew: makes the range aligned to the granule. */
    const CUdeviceptr first = (uintptr_t)addresses, skew = -first & (granule - 1);
    if (skew > 0) {
        munmap(addresses, skew);
    }
    munmap(address_of(first + skew + bytes), granule - skew);
    *base = first + skew;
    return CUDA_SUCCESS;
}

static CUresult unreserve(CUdeviceptr base, size_t bytes)
{
    const auto next = mapped.lower_bound(base);
    if (next != mapped.end() && next->first < base + bytes) {
        model_report(NULL, "cuMemAddressFree: memory is still mapped there");
    }
    munmap(address_of(base), bytes);
    return CUDA_SUCCESS;
}

static void drop(driver_memory *memory)
{
    if (--memory->uses == 0) {
        device_bytes -= memory->bytes;
        delete memory;
    }
}

static CUresult create(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *,
                       unsigned long long)
{
    const std::lock_guard<std::recursive_mutex> guard(runtime_lock);
    if (bytes == 0 || bytes % cuda_model_granule() != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (is_planted() || !fits(bytes)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    device_bytes += bytes;
    *handle = (uintptr_t) new driver_memory{bytes, 1};
    return CUDA_SUCCESS;
}

static CUresult release_handle(CUmemGenericAllocationHandle handle)
{
    const std::lock_guard<std::recursive_mutex> guard(runtime_lock);
    drop((driver_memory *)(uintptr_t)handle);
    return CUDA_SUCCESS;
}

static CUresult map(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                    unsigned long long)
{
    const std::lock_guard<std::recursive_mutex> guard(runtime_lock);
    driver_memory *memory = (driver_memory *)(uintptr_t)handle;
    if (bytes != memory->bytes || offset != 0 || at % cuda_model_granule() != 0 || mapped.count(at) > 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memory->uses++;
    mapped[at] = memory;
    return CUDA_SUCCESS;
}

static CUresult unmap(CUdeviceptr at, size_t bytes)
{
    const std::lock_guard<std::recursive_mutex> guard(runtime_lock);
    const auto found = mapped.find(at);
    if (found == mapped.end() || found->second->bytes != bytes) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    streams_drain_all();
    memory_hide(false);
    drop(found->second);
    mapped.erase(found);
    allocations.erase((uintptr_t)at);
    mmap(address_of(at), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    memory_hide(true);
    return CUDA_SUCCESS;
}

static CUresult set_access(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *, size_t)
{
    const std::lock_guard<std::recursive_mutex> guard(runtime_lock);
    const auto found = mapped.find(at);
    if (found == mapped.end() || found->second->bytes != bytes ||
        mprotect(address_of(at), bytes, PROT_READ | PROT_WRITE) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    model_poison(address_of(at), bytes);
    allocations[(uintptr_t)at] = {bytes, MEMORY_DEVICE, true};
    memory_hide(true);
    return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult *result)
{
    static const struct {
        const char *name;
        void *function;
    } functions[] = {{"cuMemGetAllocationGranularity", (void *)granularity},
                     {"cuMemAddressReserve", (void *)reserve},
                     {"cuMemAddressFree", (void *)unreserve},
                     {"cuMemCreate", (void *)create},
                     {"cuMemRelease", (void *)release_handle},
                     {"cuMemMap", (void *)map},
                     {"cuMemUnmap", (void *)unmap},
                     {"cuMemSetAccess", (void *)set_access}};
    ENTER_UNLESS_FAILED();
    *function = NULL;
    for (const auto &known : functions) {
        if (strcmp(known.name, name) == 0) {
            *function = known.function;
        }
    }
    if (result != NULL) {
        *result = *function != NULL ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    }
    return cudaSuccess;
}

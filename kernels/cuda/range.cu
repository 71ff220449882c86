/*
 * Address ranges that get memory as they grow; see range.cuh.
 *
 * No ladder: there is no kernel here. A piece costs three calls of the driver; callers grow a range by at
 * least an eighth, so that there are few pieces.
 */
#include "kernels/cuda/range.cuh"

#include <stdlib.h>
#include <string.h>

#ifndef CUDA_ON_HOST
#include <cudaTypedefs.h>
#endif

/* The driver's functions, found at run time: libcuda is not linked, as machines without a GPU lack it. */
struct driver {
    PFN_cuMemGetAllocationGranularity_v10020 granularity;
    PFN_cuMemAddressReserve_v10020 reserve;
    PFN_cuMemAddressFree_v10020 unreserve;
    PFN_cuMemCreate_v10020 create;
    PFN_cuMemRelease_v10020 release;
    PFN_cuMemMap_v10020 map;
    PFN_cuMemUnmap_v10020 unmap;
    PFN_cuMemSetAccess_v10020 set_access;
};

template <typename function> static bool find(const char *name, function *found)
{
    void *entry = NULL;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    if (cudaGetDriverEntryPointByVersion(name, &entry, 10020, cudaEnableDefault, &result) != cudaSuccess)
        (void)cudaGetLastError();
    if (result != cudaDriverEntryPointSuccess || entry == NULL)
        return false;
    memcpy(found, &entry, sizeof(entry));
    return true;
}

static driver find_driver(bool *is_complete)
{
    driver d = {};
    *is_complete = find("cuMemGetAllocationGranularity", &d.granularity) &&
                   find("cuMemAddressReserve", &d.reserve) && find("cuMemAddressFree", &d.unreserve) &&
                   find("cuMemCreate", &d.create) && find("cuMemRelease", &d.release) &&
                   find("cuMemMap", &d.map) && find("cuMemUnmap", &d.unmap) &&
                   find("cuMemSetAccess", &d.set_access);
    return d;
}

static const driver *driver_of(void)
{
    static bool is_complete = false;
    static const driver found = find_driver(&is_complete); /* C++ initializes it once, in one thread */
    return is_complete ? &found : NULL;
}

static CUmemAllocationProp properties(const gpu *gpu)
{
    CUmemAllocationProp p;
    memset(&p, 0, sizeof(p));
    p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    p.location.id = gpu->device;
    return p;
}

/* A driver failure as a run-time status: out of memory becomes cudaErrorMemoryAllocation, all others a
 * failure of the device. */
static cudaError_t status_of(CUresult result)
{
    if (result == CUDA_SUCCESS)
        return cudaSuccess;
    return result == CUDA_ERROR_OUT_OF_MEMORY ? cudaErrorMemoryAllocation
                                              : static_cast<cudaError_t>(result); /* same numbers */
}

static bool reserve(gpu *gpu, gpu_range *range, size_t bytes, gpu_error *error)
{
    const driver *d = driver_of();
    gpu_use(gpu);
    CUmemAllocationProp wanted = properties(gpu);
    CUdeviceptr base = 0;
    if (d == NULL)
        return gpu_refuse(error, GPU_NO_DRIVER,
                          "The driver of device %d cannot map memory into reserved addresses: the driver is "
                          "too old, or is not NVIDIA's own.",
                          gpu->device);
    if (d->granularity(&range->granule, &wanted, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) != CUDA_SUCCESS)
        range->granule = (size_t)2 << 20;
    range->reserved = range_rounded(range, bytes);
    if (d->reserve(&base, range->reserved, 0, 0, 0) != CUDA_SUCCESS)
        return gpu_refuse(error, GPU_NO_MEMORY, "%zu MiB of addresses cannot be reserved on device %d.",
                          bytes >> 20, gpu->device);
    range->base = reinterpret_cast<unsigned char *>(base);
    return true;
}

static void unreserve(gpu *gpu, gpu_range *range)
{
    gpu_note(gpu,
             status_of(driver_of()->unreserve(reinterpret_cast<CUdeviceptr>(range->base), range->reserved)),
             "releasing addresses");
}

static cudaError_t map_piece(gpu *gpu, const gpu_range *range, gpu_range_piece *piece)
{
    const driver *d = driver_of();
    CUmemAllocationProp wanted = properties(gpu);
    CUmemGenericAllocationHandle memory;
    CUdeviceptr at = reinterpret_cast<CUdeviceptr>(range->base + range->usable);
    CUresult result = d->create(&memory, piece->bytes, &wanted, 0);
    if (result != CUDA_SUCCESS)
        return status_of(result);
    result = d->map(at, piece->bytes, 0, memory, 0);
    (void)d->release(memory); /* the mapping keeps the memory alive */
    if (result != CUDA_SUCCESS)
        return status_of(result);
    CUmemAccessDesc access;
    memset(&access, 0, sizeof(access));
    access.location = wanted.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    result = d->set_access(at, piece->bytes, &access, 1);
    if (result != CUDA_SUCCESS)
        (void)d->unmap(at, piece->bytes);
    return status_of(result);
}

static void unmap_piece(gpu *gpu, unsigned char *at, const gpu_range_piece *piece)
{
    gpu_note(gpu, status_of(driver_of()->unmap(reinterpret_cast<CUdeviceptr>(at), piece->bytes)),
             "releasing addresses");
}

bool range_init(gpu *gpu, gpu_range *range, size_t bytes, gpu_error *error)
{
    *range = gpu_range{};
    gpu_use(gpu);
    if (gpu_is_good(gpu, error) && reserve(gpu, range, bytes, error))
        return true;
    *range = gpu_range{};
    return false;
}

static bool refuse(gpu *gpu, const gpu_range *range, size_t bytes, gpu_error *error)
{
    size_t free_bytes = 0, all_bytes = 0;
    if (cudaMemGetInfo(&free_bytes, &all_bytes) != cudaSuccess)
        (void)cudaGetLastError();
    return gpu_refuse(error, GPU_NO_MEMORY,
                      "A table cannot grow by %zu MiB to %zu MiB; device %d has %zu of %zu MiB free. Give "
                      "tables less memory, or end other processes that use the device.",
                      (bytes - range->usable) >> 20, bytes >> 20, gpu->device, free_bytes >> 20,
                      all_bytes >> 20);
}

bool range_need(gpu *gpu, gpu_range *range, size_t bytes, gpu_error *error)
{
    if (bytes <= range->usable)
        return true;
    if (!gpu_is_good(gpu, error))
        return false;
    if (bytes > range->reserved)
        return gpu_refuse(error, GPU_NO_MEMORY,
                          "A table cannot grow to %zu MiB; only %zu MiB of addresses were reserved for it.",
                          bytes >> 20, range->reserved >> 20);
    void *pieces = realloc(range->pieces, (range->pieces_count + 1) * sizeof(*range->pieces));
    if (pieces == NULL)
        return gpu_refuse(error, GPU_NO_MEMORY, "The host has no memory left.");
    range->pieces = static_cast<gpu_range_piece *>(pieces);
    gpu_range_piece piece = {range_rounded(range, bytes) - range->usable};
    gpu_use(gpu);
    cudaError_t status = map_piece(gpu, range, &piece);
    if (status == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return refuse(gpu, range, bytes, error);
    }
    if (!gpu_note(gpu, status, "mapping memory"))
        return gpu_is_good(gpu, error);
    range->pieces[range->pieces_count++] = piece;
    range->usable += piece.bytes;
    return true;
}

void range_free(gpu *gpu, gpu_range *range)
{
    if (range->base == NULL)
        return;
    gpu_use(gpu);
    unsigned char *at = range->base;
    for (size_t i = 0; i < range->pieces_count; i++) {
        unmap_piece(gpu, at, &range->pieces[i]);
        at += range->pieces[i].bytes;
    }
    unreserve(gpu, range);
    free(range->pieces);
    *range = gpu_range{};
}

/* The driver's functions that map memory into reserved addresses (cuda.h, cudaTypedefs.h); callers find them
 * by name. */
#ifndef LEAT_TESTS_CUDA_ON_HOST_DRIVER_H
#define LEAT_TESTS_CUDA_ON_HOST_DRIVER_H

#include "tests/cuda_on_host/runtime.h"

enum CUresult { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1, CUDA_ERROR_OUT_OF_MEMORY = 2 };
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemGenericAllocationHandle;

enum CUmemAllocationType { CU_MEM_ALLOCATION_TYPE_PINNED = 1 };
enum CUmemLocationType { CU_MEM_LOCATION_TYPE_DEVICE = 1 };
enum CUmemAccess_flags { CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3 };
enum CUmemAllocationGranularity_flags {
    CU_MEM_ALLOC_GRANULARITY_MINIMUM,
    CU_MEM_ALLOC_GRANULARITY_RECOMMENDED
};
struct CUmemLocation {
    CUmemLocationType type;
    int id;
};
struct CUmemAllocationProp {
    CUmemAllocationType type;
    CUmemLocation location;
};
struct CUmemAccessDesc {
    CUmemLocation location;
    CUmemAccess_flags flags;
};

typedef CUresult (*PFN_cuMemGetAllocationGranularity_v10020)(size_t *granularity,
                                                             const CUmemAllocationProp *wanted,
                                                             CUmemAllocationGranularity_flags option);
typedef CUresult (*PFN_cuMemAddressReserve_v10020)(CUdeviceptr *base, size_t bytes, size_t align,
                                                   CUdeviceptr wish, unsigned long long flags);
typedef CUresult (*PFN_cuMemAddressFree_v10020)(CUdeviceptr base, size_t bytes);
typedef CUresult (*PFN_cuMemCreate_v10020)(CUmemGenericAllocationHandle *memory, size_t bytes,
                                           const CUmemAllocationProp *wanted, unsigned long long flags);
typedef CUresult (*PFN_cuMemRelease_v10020)(CUmemGenericAllocationHandle memory);
typedef CUresult (*PFN_cuMemMap_v10020)(CUdeviceptr at, size_t bytes, size_t offset,
                                        CUmemGenericAllocationHandle memory, unsigned long long flags);
typedef CUresult (*PFN_cuMemUnmap_v10020)(CUdeviceptr at, size_t bytes);
typedef CUresult (*PFN_cuMemSetAccess_v10020)(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access,
                                              size_t count);

enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess, cudaDriverEntryPointSymbolNotFound };
enum { cudaEnableDefault = 0 };
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult *result = NULL);

#endif

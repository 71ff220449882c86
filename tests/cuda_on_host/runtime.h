/* The CUDA run time's names that kernels/cuda/ uses. Device and pinned memory are the host's own. Work queued
 * on a stream is done at a moment that the seed chooses, at the latest when a thread waits for it; reading
 * too early therefore gives old content. There is no default stream. testing.h plants failures. */
#ifndef LEAT_TESTS_CUDA_ON_HOST_RUNTIME_H
#define LEAT_TESTS_CUDA_ON_HOST_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

/* name, number, text: CUDA's own numbers */
#define MODEL_ERRORS(ERROR)                                                                                  \
    ERROR(cudaSuccess, 0, "no error")                                                                        \
    ERROR(cudaErrorInvalidValue, 1, "invalid argument")                                                      \
    ERROR(cudaErrorMemoryAllocation, 2, "out of memory")                                                     \
    ERROR(cudaErrorInitializationError, 3, "initialization error")                                           \
    ERROR(cudaErrorInvalidConfiguration, 9, "invalid configuration argument")                                \
    ERROR(cudaErrorStubLibrary, 34, "CUDA driver is a stub library")                                         \
    ERROR(cudaErrorInsufficientDriver, 35, "CUDA driver version is insufficient for CUDA runtime version")   \
    ERROR(cudaErrorNoDevice, 100, "no CUDA-capable device is detected")                                      \
    ERROR(cudaErrorInvalidDevice, 101, "invalid device ordinal")                                             \
    ERROR(cudaErrorNoKernelImageForDevice, 209, "no kernel image is available for execution on the device")  \
    ERROR(cudaErrorECCUncorrectable, 214, "uncorrectable ECC error encountered")                             \
    ERROR(cudaErrorUnsupportedPtxVersion, 222,                                                               \
          "the provided PTX was compiled with an unsupported toolchain.")                                    \
    ERROR(cudaErrorInvalidResourceHandle, 400, "invalid resource handle")                                    \
    ERROR(cudaErrorNotReady, 600, "device not ready")                                                        \
    ERROR(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered")                          \
    ERROR(cudaErrorLaunchFailure, 719, "unspecified launch failure")                                         \
    ERROR(cudaErrorNotSupported, 801, "operation not supported")                                             \
    ERROR(cudaErrorIllegalState, 401, "the operation cannot be performed in the present state")              \
    ERROR(cudaErrorUnknown, 999, "unknown error")

#define MODEL_ERROR(name, number, text) name = number,
enum cudaError { MODEL_ERRORS(MODEL_ERROR) };
#undef MODEL_ERROR
typedef cudaError cudaError_t;

struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;
typedef CUgraph_st *cudaGraph_t;
typedef CUgraphExec_st *cudaGraphExec_t;
typedef CUstream_st *cudaStream_t;
typedef CUevent_st *cudaEvent_t;

enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault,
};
enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1 };
enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal,
    cudaStreamCaptureModeThreadLocal,
    cudaStreamCaptureModeRelaxed
};
enum { cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2 };
enum { cudaHostAllocDefault = 0, cudaHostAllocPortable = 1, cudaHostAllocMapped = 2 };
enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9
};
enum cudaDeviceAttr {
    cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrL2CacheSize = 38,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};

struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor;
    int major, minor, multiProcessorCount, l2CacheSize, maxThreadsPerBlock, maxThreadsPerMultiProcessor,
        warpSize;
    int persistingL2CacheMaxSize, ECCEnabled, integrated, unifiedAddressing;
};

cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);

cudaError_t cudaMalloc(void **memory, size_t bytes);
cudaError_t cudaFree(void *memory);
cudaError_t cudaMallocHost(void **memory, size_t bytes);
cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *memory);
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *all_bytes);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *to, int byte, size_t bytes, cudaStream_t stream);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
/* Work queued on a stream that records a graph is kept for the graph; waiting for such a
 * stream is reported. */
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to);

cudaError_t model_func_set_attribute(const void *kernel, cudaFuncAttribute attribute, int value);
template <typename function>
static inline cudaError_t cudaFuncSetAttribute(function *kernel, cudaFuncAttribute attribute, int value)
{
    return model_func_set_attribute((const void *)kernel, attribute, value);
}

template <typename type> static inline cudaError_t cudaMalloc(type **memory, size_t bytes)
{
    return cudaMalloc((void **)memory, bytes);
}

template <typename type> static inline cudaError_t cudaMallocHost(type **memory, size_t bytes)
{
    return cudaMallocHost((void **)memory, bytes);
}

#endif

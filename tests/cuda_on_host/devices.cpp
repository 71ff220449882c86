/* The run time's devices and errors. */
#include "tests/cuda_on_host/runtime_internal.h"

std::recursive_mutex runtime_lock;
cudaError_t runtime_sticky;
static cudaError_t last_error;

cudaError_t runtime_fail(cudaError_t error)
{
    last_error = error;
    return error;
}

void runtime_reset(void)
{
    const std::lock_guard<std::recursive_mutex> guard(runtime_lock);
    streams_begin();
    last_error = runtime_sticky = cudaSuccess;
}

/* --- Devices --- */
cudaError_t cudaGetDeviceCount(int *count)
{
    ENTER();
    *count = 0;
    if (run.driver == 0) {
        return runtime_fail(cudaErrorInsufficientDriver);
    }
    *count = run.devices;
    return run.devices > 0 ? cudaSuccess : runtime_fail(cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int *device)
{
    ENTER_UNLESS_FAILED();
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    ENTER_UNLESS_FAILED();
    return device >= 0 && device < run.devices ? cudaSuccess : runtime_fail(cudaErrorInvalidDevice);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device)
{
    ENTER_UNLESS_FAILED();
    if (device < 0 || device >= run.devices) {
        return runtime_fail(cudaErrorInvalidDevice);
    }
    *properties = cudaDeviceProp{};
    snprintf(properties->name, sizeof(properties->name), "the host's model of a GPU");
    properties->totalGlobalMem = run.memory_bytes;
    properties->sharedMemPerBlock = SHARED_BYTES_MAX;
    properties->sharedMemPerBlockOptin = SHARED_BYTES_OPTIN;
    properties->sharedMemPerMultiprocessor = SHARED_BYTES_OPTIN + 1024;
    properties->major = run.capability / 10;
    properties->minor = run.capability % 10;
    properties->multiProcessorCount = 2;
    properties->l2CacheSize = 1 << 20;
    properties->maxThreadsPerBlock = THREADS_MAX;
    properties->maxThreadsPerMultiProcessor = 2 * THREADS_MAX;
    properties->warpSize = LANES;
    properties->unifiedAddressing = 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device)
{
    cudaDeviceProp properties;
    const cudaError_t status = cudaGetDeviceProperties(&properties, device);
    switch (attribute) {
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = (int)properties.sharedMemPerMultiprocessor;
        break;
    case cudaDevAttrMultiProcessorCount: *value = properties.multiProcessorCount; break;
    case cudaDevAttrL2CacheSize: *value = properties.l2CacheSize; break;
    case cudaDevAttrComputeCapabilityMajor: *value = properties.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = properties.minor; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)properties.sharedMemPerBlockOptin; break;
    }
    return status;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    ENTER();
    *version = run.driver;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

/* --- Errors --- */
cudaError_t cudaGetLastError(void)
{
    ENTER_UNLESS_FAILED();
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    ENTER_UNLESS_FAILED();
    return last_error;
}

const char *cudaGetErrorName(cudaError_t error)
{
    switch (error) {
#define MODEL_ERROR(name, number, text)                                                                      \
    case name: return #name;
        MODEL_ERRORS(MODEL_ERROR)
#undef MODEL_ERROR
    }
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
#define MODEL_ERROR(name, number, text)                                                                      \
    case name: return text;
        MODEL_ERRORS(MODEL_ERROR)
#undef MODEL_ERROR
    }
    return "unrecognized error code";
}

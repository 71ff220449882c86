/* Lists the devices, and why one cannot be used: gpu_api.devices, and the checks of gpu_open. */
#include "kernels/cuda/gpu.cuh"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool gpu_refuse(gpu_error *error, enum gpu_failure failure, const char *format, ...)
{
    if (error == NULL)
        return false;
    error->failure = failure;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof(error->text), format, arguments);
    va_end(arguments);
    return false;
}

/* "13.0" for 13000. */
struct version_text {
    char text[16];
};
static version_text version_of(int version)
{
    version_text v;
    snprintf(v.text, sizeof(v.text), "%d.%d", version / 1000, version % 1000 / 10);
    return v;
}

void gpu_versions(int *library, int *driver)
{
    if (cudaRuntimeGetVersion(library) != cudaSuccess)
        *library = 0;
    if (cudaDriverGetVersion(driver) != cudaSuccess)
        *driver = 0;
    (void)cudaGetLastError();
}

/* Whether the driver supports this library's major version of CUDA, or a later one. */
static bool has_driver(gpu_error *error)
{
    int driver = 0, needed = 0;
    gpu_versions(&needed, &driver);
    if (driver == 0)
        return gpu_refuse(
            error, GPU_NO_DRIVER,
            "There is no NVIDIA driver on this machine: libcuda.so.1 was not found or cannot be loaded. "
            "Install a driver that supports CUDA %d, or work on the CPU.",
            needed / 1000);
    if (driver / 1000 < needed / 1000)
        return gpu_refuse(
            error, GPU_NO_DRIVER,
            "The NVIDIA driver supports CUDA up to %s, but this library needs at least %d.0. Install a later "
            "driver, or build with an nvcc of CUDA %d.",
            version_of(driver).text, needed / 1000, driver / 1000);
    return true;
}

int gpu_count(gpu_error *error)
{
    if (!has_driver(error))
        return -1;
    int count = 0;
    cudaError_t status = cudaGetDeviceCount(&count);
    if (status == cudaErrorNoDevice)
        count = 0;
    else if (status != cudaSuccess) {
        gpu_refuse(error, GPU_NO_DRIVER,
                   "The NVIDIA driver is there, but reports an error: %s (%s). `nvidia-smi` may show more.",
                   cudaGetErrorString(status), cudaGetErrorName(status));
        count = -1;
    }
    (void)cudaGetLastError(); /* clears the error, so that no later call reports it */
    return count;
}

/* Fills in the memory figures. They need a context on the device, which takes some of its memory. */
static void describe_memory(int device, gpu_device *to)
{
    size_t free_bytes = 0, all_bytes = 0;
    cudaError_t status = cudaSetDevice(device);
    if (status == cudaSuccess)
        status = cudaMemGetInfo(&free_bytes, &all_bytes);
    (void)cudaGetLastError();
    if (status != cudaSuccess) {
        to->is_usable =
            gpu_refuse(&to->why, status == cudaErrorMemoryAllocation ? GPU_NO_MEMORY : GPU_FAILED,
                       "Device %d (%s) cannot be opened: %s (%s). `nvidia-smi` shows the processes that use "
                       "the device, and its compute mode.",
                       device, to->name, cudaGetErrorString(status), cudaGetErrorName(status));
        return;
    }
    to->memory_free = free_bytes;
    to->memory_bytes = all_bytes;
}

bool gpu_describe(int device, gpu_device *to)
{
    *to = gpu_device{};
    cudaDeviceProp properties;
    cudaError_t status = cudaGetDeviceProperties(&properties, device);
    (void)cudaGetLastError();
    if (status != cudaSuccess) {
        snprintf(to->name, sizeof(to->name), "unknown");
        return gpu_refuse(&to->why, GPU_FAILED, "The properties of device %d cannot be read: %s (%s).",
                          device, cudaGetErrorString(status), cudaGetErrorName(status));
    }
    snprintf(to->name, sizeof(to->name), "%.63s", properties.name);
    to->capability = properties.major * 10 + properties.minor;
    to->multiprocessors = properties.multiProcessorCount;
    to->memory_bytes = properties.totalGlobalMem;
    to->l2_bytes = (uint64_t)properties.l2CacheSize;
    to->is_usable = true;
    if (to->capability < GPU_CAPABILITY_MIN)
        to->is_usable = gpu_refuse(
            &to->why, GPU_TOO_OLD,
            "Device %d (%s) has compute capability %d.%d, but at least %d.%d is needed: take another device, "
            "or work on the CPU.",
            device, to->name, properties.major, properties.minor, GPU_CAPABILITY_MIN / 10,
            GPU_CAPABILITY_MIN % 10);
    else
        describe_memory(device, to);
    return to->is_usable;
}

int gpu_devices(gpu_device *devices, gpu_error *error)
{
    int count = gpu_count(error);
    for (int d = 0; d < count && d < GPU_DEVICES_MAX; d++)
        gpu_describe(d, &devices[d]);
    return count;
}

/* An open device and a stream, as the device library sees them; gpu.h has the public side. */
#ifndef LEAT_KERNELS_CUDA_GPU_CUH
#define LEAT_KERNELS_CUDA_GPU_CUH

#include "kernels/cuda/cuda.cuh"
#include "kernels/gpu.h"

#include <pthread.h>

struct cublas; /* cublas.cuh */

struct gpu {
    int device;
    int multiprocessors;
    pthread_mutex_t lock;  /* protects `failed` */
    gpu_error failed;      /* the first failure; failure == GPU_OK: none */
    struct cublas *cublas; /* cuBLASLt's handle and plans; NULL before cuBLASLt's first use */
};

struct gpu_stream {
    struct gpu *gpu;
    cudaStream_t stream;
};

struct gpu_event {
    struct gpu *gpu;
    cudaEvent_t event;
};

/* Makes this device the target of the calling thread's run-time calls. */
static inline void gpu_use(const gpu *gpu)
{
    (void)cudaSetDevice(gpu->device); /* the next call that gpu_note sees reports a failure */
}

/* The CUDA stream of a kernel's `stream` argument, a gpu_stream. Also makes the stream's device the target of
 * the calling thread's run-time calls. */
static inline cudaStream_t gpu_cuda_stream(void *stream)
{
    gpu_stream *of = static_cast<gpu_stream *>(stream);
    gpu_use(of->gpu);
    return of->stream;
}

/* The number of multiprocessors of the device of a kernel's `stream` argument. */
static inline int gpu_multiprocessors(void *stream)
{
    return static_cast<gpu_stream *>(stream)->gpu->multiprocessors;
}

/* Fills `error` (may be NULL) and returns false. */
bool gpu_refuse(gpu_error *error, enum gpu_failure failure, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* If `status` is a failure, and the device's first, stores it as the sticky failure (gpu.failed). what: the
 * operation, for the message. Returns true if status is a success. */
bool gpu_note(gpu *gpu, cudaError_t status, const char *what);
/* Waits for all work on the device, of all streams. Not allowed while this thread records a graph. */
void gpu_drain(gpu *gpu, const char *what);
/* Call after launches: notes a launch that failed. Returns false in that case. */
bool gpu_launched(void *stream, const char *kernel);
/* False if the device has failed; `error` then says how. */
bool gpu_is_good(gpu *gpu, gpu_error *error);

/* Notes a failure that CUDA does not report, in whole sentences, as the device's first failure. */
void gpu_fail(gpu *gpu, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The table of functions that the library exports; code inside the library uses it, too, for memory with
 * error messages. */
extern "C" __attribute__((visibility("default"))) const gpu_api *leat_gpu_api(void);

/* The number of devices that the driver shows; -1: error says why the driver cannot be asked
 * (gpu_devices.cu). */
int gpu_count(gpu_error *error);
/* Describes one device; false: the device cannot be used, and described->why says why. */
bool gpu_describe(int device, gpu_device *described);
int gpu_devices(gpu_device *devices, gpu_error *error); /* gpu_api.devices */
void gpu_versions(int *library, int *driver);           /* gpu_api.versions */

#endif

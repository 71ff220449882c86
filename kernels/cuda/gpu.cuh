/* What an open device and a stream are inside of the device library; gpu.h is the outside. */
#ifndef KERNELS_CUDA_GPU_CUH
#define KERNELS_CUDA_GPU_CUH

#include "kernels/cuda/cuda.cuh"
#include "kernels/gpu.h"

#include <pthread.h>

struct cublas; /* cublas.cuh */

struct gpu {
    int device;
    int multiprocessors;
    pthread_mutex_t lock;  /* over failed */
    gpu_error failed;      /* the first failure; failure == GPU_OK: none */
    struct cublas *cublas; /* NULL: not needed so far */
};

struct gpu_stream {
    struct gpu *gpu;
    cudaStream_t stream;
};

struct gpu_event {
    struct gpu *gpu;
    cudaEvent_t event;
};

/* Calls of the run time by this thread are for this device from now on. */
static inline void gpu_use(const gpu *gpu)
{
    (void)cudaSetDevice(gpu->device); /* a failure comes back with the next call that gpu_note sees */
}

/* The stream of a kernel's `stream` argument; makes its device the thread's. */
static inline cudaStream_t gpu_cuda_stream(void *stream)
{
    gpu_stream *of = static_cast<gpu_stream *>(stream);
    gpu_use(of->gpu);
    return of->stream;
}

/* How many multiprocessors the device of a kernel's `stream` argument has. */
static inline int gpu_multiprocessors(void *stream)
{
    return static_cast<gpu_stream *>(stream)->gpu->multiprocessors;
}

/* Fills error (NULL: nobody asks); false, so that it can be returned. */
bool gpu_refuse(gpu_error *error, enum gpu_failure failure, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Notes the first failure of a device. `what`: what was being done. Returns whether status is a success. */
bool gpu_note(gpu *gpu, cudaError_t status, const char *what);
/* Waits for all work on the device, of all streams; not while this thread records a graph. */
void gpu_drain(gpu *gpu, const char *what);
/* After launches: notes those that could not be launched. */
bool gpu_launched(void *stream, const char *kernel);
/* Whether the device has not failed so far; else error says how it did. */
bool gpu_is_good(gpu *gpu, gpu_error *error);

/* Notes what else makes a device's results worthless, in whole sentences, as its first failure. */
void gpu_fail(gpu *gpu, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The functions that the library hands over, for its own use: memory that does not fit says so. */
extern "C" __attribute__((visibility("default"))) const gpu_api *leat_gpu_api(void);

/* How many devices the driver shows; -1: error says why it cannot be asked (gpu_devices.cu). */
int gpu_count(gpu_error *error);
/* One of them; false: it cannot be used, described->why says why not. */
bool gpu_describe(int device, gpu_device *described);
int gpu_devices(gpu_device *devices, gpu_error *error); /* gpu_api.devices */
void gpu_versions(int *library, int *driver);           /* gpu_api.versions */

#endif

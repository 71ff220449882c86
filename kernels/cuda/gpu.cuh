/* What an open device and a stream are inside of the device library; gpu.h is the outside. */
#ifndef KERNELS_CUDA_GPU_CUH
#define KERNELS_CUDA_GPU_CUH

#include "kernels/cuda/cuda.cuh"
#include "kernels/gpu.h"

struct gpu {
    int device;
    int multiprocessors;
    gpu_error failed; /* the first failure; failure == GPU_OK: none */
};

struct gpu_stream {
    struct gpu *gpu;
    cudaStream_t stream;
};

static inline cudaStream_t gpu_cuda_stream(void *stream)
{
    return static_cast<gpu_stream *>(stream)->stream;
}

/* Notes the first failure of a device. `what`: what was being done. Returns whether status is a success. */
bool gpu_note(gpu *gpu, cudaError_t status, const char *what);
/* After launches: notes those that could not be launched. */
bool gpu_launched(void *stream, const char *kernel);

#endif

/*
 * Matrix products by cuBLASLt, which is opened at the first use: the device library does not link it, so that
 * it can be loaded on machines without cuBLASLt. The host's model (tests/cuda_on_host) replaces cuBLASLt by
 * functions of its own.
 *
 * One thread at a time uses a device (gpu.h). The algorithm for a shape is chosen once, and kept until the
 * device is closed: the same product has the same bits each time. No algorithm adds in an order that may vary
 * (parts of k are summed in sequence, or in a step of their own).
 */
#ifndef LEAT_KERNELS_CUDA_CUBLAS_CUH
#define LEAT_KERNELS_CUDA_CUBLAS_CUH

#include "kernels/cuda/gpu.cuh"

#ifndef CUDA_ON_HOST
#include <cublasLt.h>
#endif

/* Bytes of cuBLASLt's workspace: NVIDIA's advice for Hopper. The host's model needs no workspace; there a
 * small one saves the tests memory. */
#ifdef CUDA_ON_HOST
enum { CUBLAS_WORKSPACE_MAX = 64 << 10 };
#else
enum { CUBLAS_WORKSPACE_MAX = 32 << 20 };
#endif

/*
 * d[m][n] = epilogue(a * b) + (adds: d), row-major; a and b in `format`, d float; strides in elements.
 * Pointers are aligned as a_aligned, b_aligned and d_aligned say, in bytes, up to 16. epilogue: MATMUL_PLAIN,
 * MATMUL_BIAS or MATMUL_BIAS_RELU (a NaN may become 0). m, n and k are above 0.
 */
struct cublas_shape {
    uint64_t m, n, k;
    int64_t a_stride, b_stride, d_stride;
    uint64_t workspace_bytes;
    uint32_t a_is_transposed, b_is_transposed, adds;
    enum matmul_epilogue epilogue;
    enum row_format format;
    uint8_t a_aligned, b_aligned, d_aligned, padding; /* padding: 0, as shapes are compared as bytes */
};
struct cublas_operands {
    const void *a, *b;
    const float *bias;
    float *d;
    void *workspace;
    float factor; /* a * b is multiplied by factor before the epilogue */
};

enum cublas_result { CUBLAS_DONE, CUBLAS_HAS_NONE, CUBLAS_FAILED };
/* CUBLAS_HAS_NONE: cuBLASLt has no algorithm for the shape, and nothing was done. CUBLAS_FAILED: noted as the
 * device's failure. */
cublas_result cublas_multiply(gpu *gpu, const cublas_shape &shape, const cublas_operands &operands,
                              cudaStream_t stream);

bool cublas_can(gpu *gpu, gpu_error *error); /* gpu_api.can_matmul */
void cublas_close(gpu *gpu);                 /* after the last product */

#endif

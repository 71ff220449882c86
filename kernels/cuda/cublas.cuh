/*
 * Products of matrices by cuBLASLt, which is opened when somebody needs it: the device library does not link
 * it, and is loaded on machines that lack it. The host's model has the functions itself.
 *
 * One thread at a time uses a device's (gpu.h). A shape's algorithm is asked for once, and kept until the
 * device is closed: the same product has the same bits each time. None adds in an order that may vary (parts
 * of k are summed in sequence, or in a step of their own).
 */
#ifndef KERNELS_CUDA_CUBLAS_CUH
#define KERNELS_CUDA_CUBLAS_CUH

#include "kernels/cuda/gpu.cuh"

#ifndef CUDA_ON_HOST
#include <cublasLt.h>
#endif

/* What NVIDIA advises for Hopper; the host's model needs none, and each of its tests would take so much. */
#ifdef CUDA_ON_HOST
enum { CUBLAS_WORKSPACE_MAX = 64 << 10 };
#else
enum { CUBLAS_WORKSPACE_MAX = 32 << 20 };
#endif

/*
 * d[m][n] = epilogue(a * b) + (adds: d), row-major, `format` of a and b, d is float; strides in elements.
 * Pointers aligned as the shape says, up to 16 bytes. An epilogue that cuBLASLt has: MATMUL_PLAIN, _BIAS or
 * _BIAS_RELU (there a NaN may become 0). None of m, n and k is 0.
 */
struct cublas_shape {
    uint64_t m, n, k;
    int64_t a_stride, b_stride, d_stride;
    uint64_t workspace_bytes;
    uint32_t a_is_transposed, b_is_transposed, adds;
    enum matmul_epilogue epilogue;
    enum row_format format;
    uint8_t a_aligned, b_aligned, d_aligned, padding; /* 0: shapes are compared as bytes */
};
struct cublas_operands {
    const void *a, *b;
    const float *bias;
    float *d;
    void *workspace;
    float factor; /* of the product, before all else */
};

enum cublas_result { CUBLAS_DONE, CUBLAS_HAS_NONE, CUBLAS_FAILED };
/* CUBLAS_HAS_NONE: there is no algorithm for the shape, and nothing was done. CUBLAS_FAILED: noted. */
cublas_result cublas_multiply(gpu *gpu, const cublas_shape &shape, const cublas_operands &operands,
                              cudaStream_t stream);

bool cublas_can(gpu *gpu, gpu_error *error); /* gpu_api.can_matmul */
void cublas_close(gpu *gpu);                 /* after the last product is done */

#endif

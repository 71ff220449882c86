/* cuBLASLt for the host's model (cublas.h). Arguments are checked and copied when a call is made. */
#include "tests/cuda_on_host/cublas.h"

#include <math.h>
#include <string.h>

#include "kernels/rounding.h"
#include "tests/cuda_on_host/runtime_internal.h"
#include "tests/cuda_on_host/threads.h"

struct cublasLtContext {
    uint64_t algorithms; /* how many algorithms were requested */
};

struct cublasLtMatmulDescOpaque_t {
    cublasOperation_t a, b;
    cublasLtEpilogue_t epilogue;
    const float *bias;
};

struct cublasLtMatrixLayoutOpaque_t {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t stride;
};

struct cublasLtMatmulPreferenceOpaque_t {
    uint64_t workspace_bytes;
    uint32_t schemes, aligned[4];
};

/* A product that waits in a stream. */
struct cublas_work {
    cublasLtMatmulDescOpaque_t product;
    cublasLtMatrixLayoutOpaque_t a_layout, b_layout, d_layout;
    const void *a, *b;
    const float *c;
    float *d;
    float alpha, beta;
    void *workspace;
    size_t workspace_bytes;
};

/* ALGORITHM_MARK: part of an algorithm's mark, which names the product it was made for, so that it is used
 * for no other. UNSUPPORTED_DEPTH: a k for which there is no algorithm. */
enum { ALGORITHM_MARK = 0x1ea7, UNSUPPORTED_DEPTH = 33 };

bool cublas_model_is_there(void)
{
    const std::lock_guard<std::recursive_mutex> guard(runtime_lock);
    run_begin_if_needed();
    return !run.has_no_cublas;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = new cublasLtContext();
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *product, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    *product = new cublasLtMatmulDescOpaque_t{CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, NULL};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product)
{
    delete product;
    return CUBLAS_STATUS_SUCCESS;
}

/* Copies an attribute's value if it has the size that the library expects. */
template <typename type> static cublasStatus_t take(type *to, const void *value, size_t bytes)
{
    if (bytes != sizeof(*to)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    memcpy(to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t attribute, const void *value,
                                              size_t bytes)
{
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return take(&product->a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return take(&product->b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return take(&product->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return take(&product->bias, value, bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *matrix, cudaDataType_t type, uint64_t rows,
                                          uint64_t columns, int64_t stride)
{
    if (rows == 0 || columns == 0 || stride < (int64_t)rows) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    *matrix = new cublasLtMatrixLayoutOpaque_t{type, rows, columns, stride};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t matrix)
{
    delete matrix;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    *preference = new cublasLtMatmulPreferenceOpaque_t{0, 7, {256, 256, 256, 256}};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    delete preference;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes)
{
    switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return take(&preference->workspace_bytes, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return take(&preference->schemes, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return take(&preference->aligned[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value,
                    bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

/* m, n and k of a product, and whether its matrices agree on them. */
struct extents {
    uint64_t m, n, k;
    bool agree;
};

static extents extents_of(const cublasLtMatmulDescOpaque_t &product, const cublasLtMatrixLayoutOpaque_t &a,
                          const cublasLtMatrixLayoutOpaque_t &b, const cublasLtMatrixLayoutOpaque_t &d)
{
    const bool a_is_turned = product.a == CUBLAS_OP_T, b_is_turned = product.b == CUBLAS_OP_T;
    extents e = {a_is_turned ? a.columns : a.rows, b_is_turned ? b.rows : b.columns,
                 a_is_turned ? a.rows : a.columns, false};
    e.agree = e.k == (b_is_turned ? b.columns : b.rows) && d.rows == e.m && d.columns == e.n &&
              a.type == b.type && d.type == CUDA_R_32F;
    return e;
}

static uint64_t mark_of(const extents &e)
{
    return ALGORITHM_MARK ^ e.m << 48 ^ e.n << 32 ^ e.k << 16;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t *results, int *count)
{
    const extents e = extents_of(*product, *a, *b, *d);
    *count = 0;
    handle->algorithms++;
    if (wanted < 1 || !e.agree || c->rows != d->rows || c->columns != d->columns ||
        preference->schemes == 0) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (e.k == UNSUPPORTED_DEPTH) { /* callers must be ready for this */
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    const uint64_t parts = 64 * e.m * e.n + 256, most = preference->workspace_bytes;
    const uint64_t workspace_bytes = parts < most ? parts : most;
    uint32_t aligned = 0; /* alignments of a, b and d in bytes, each in one byte */
    for (unsigned i : {0U, 1U, 3U}) {
        const uint32_t bytes = preference->aligned[i];
        if (bytes < sizeof(float) || bytes > 16 || (bytes & (bytes - 1)) != 0) {
            return CUBLAS_STATUS_INVALID_VALUE;
        }
        aligned |= bytes << 8 * i;
    }
    results[0] = {
        {{mark_of(e), workspace_bytes, aligned}}, workspace_bytes, CUBLAS_STATUS_SUCCESS, 1.0F, {0}};
    *count = 1;
    return CUBLAS_STATUS_SUCCESS;
}

/* --- The product --- */
static float element(const void *matrix, const cublasLtMatrixLayoutOpaque_t &layout, cublasOperation_t turned,
                     uint64_t row, uint64_t column)
{
    const size_t at = turned == CUBLAS_OP_T ? row * (uint64_t)layout.stride + column
                                            : column * (uint64_t)layout.stride + row;
    switch (layout.type) {
    case CUDA_R_32F: return static_cast<const float *>(matrix)[at];
    case CUDA_R_16F: return float_of_fp16(static_cast<const uint16_t *>(matrix)[at]);
    case CUDA_R_16BF: return float_of_bf16(static_cast<const uint16_t *>(matrix)[at]);
    }
    return NAN;
}

static void multiply(const cublas_work &w)
{
    const extents e = extents_of(w.product, w.a_layout, w.b_layout, w.d_layout);
    memset(w.workspace, run.poison, w.workspace_bytes);
    for (uint64_t column = 0; column < e.n; column++) {
        for (uint64_t row = 0; row < e.m; row++) {
            const size_t at = column * (uint64_t)w.d_layout.stride + row;
            float sum = w.beta != 0.0F ? w.beta * w.c[at] / w.alpha : 0.0F; /* alpha is a power of two */
            for (uint64_t p = 0; p < e.k; p++) {
                sum = fmaf(element(w.a, w.a_layout, w.product.a, row, p),
                           element(w.b, w.b_layout, w.product.b, p, column), sum);
            }
            sum = w.alpha == 1.0F ? sum : w.alpha * sum;
            if (w.product.epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
                sum += w.product.bias[row];
            }
            if (w.product.epilogue == CUBLASLT_EPILOGUE_RELU_BIAS) {
                sum = sum < 0.0F ? 0.0F : sum;
            }
            w.d[at] = sum;
        }
    }
    if (run.products_to_wrong > 0 && --run.products_to_wrong == 0 && e.m > 0 && e.n > 0) {
        w.d[0] += 0.01F;
    }
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t product, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t workspace_bytes,
                              cudaStream_t stream)
{
    const extents e = extents_of(*product, *a_layout, *b_layout, *d_layout);
    const bool has_bias = product->epilogue != CUBLASLT_EPILOGUE_DEFAULT;
    if (!e.agree || c_layout->stride != d_layout->stride || algorithm->data[0] != mark_of(e) ||
        algorithm->data[1] > workspace_bytes || (uintptr_t)workspace % 256 != 0 ||
        (uintptr_t)a % (algorithm->data[2] & 255) != 0 ||
        (uintptr_t)b % (algorithm->data[2] >> 8 & 255) != 0 ||
        (uintptr_t)d % (algorithm->data[2] >> 24 & 255) != 0 || (has_bias && product->bias == NULL)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    for (const void *given : {a, b, c, (const void *)d, (const void *)workspace,
                              (const void *)(has_bias ? product->bias : NULL)}) {
        model_check_pointer("cublasLtMatmul", given);
    }
    cublas_work work = {*product,
                        *a_layout,
                        *b_layout,
                        *d_layout,
                        a,
                        b,
                        static_cast<const float *>(c),
                        static_cast<float *>(d),
                        *static_cast<const float *>(alpha),
                        *static_cast<const float *>(beta),
                        workspace,
                        algorithm->data[1]};
    streams_queue(stream, [work] { multiply(work); });
    return CUBLAS_STATUS_SUCCESS;
}

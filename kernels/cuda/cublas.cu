/*
 * Finds and opens cuBLASLt, and keeps an algorithm for each shape; see cublas.cuh.
 *
 * No ladder: there is no kernel here. cuBLASLt's matrices are column-major, where a row-major matrix is its
 * transpose: so d^T = b^T a^T is computed, with b as cuBLASLt's A.
 */
#include "kernels/cuda/cublas.cuh"

#include "kernels/num.h"

#include <dlfcn.h>
#include <new>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CUBLAS_FUNCTIONS(FUNCTION)                                                                           \
    FUNCTION(cublasLtCreate)                                                                                 \
    FUNCTION(cublasLtDestroy)                                                                                \
    FUNCTION(cublasLtMatmul)                                                                                 \
    FUNCTION(cublasLtMatmulAlgoGetHeuristic)                                                                 \
    FUNCTION(cublasLtMatmulDescCreate)                                                                       \
    FUNCTION(cublasLtMatmulDescDestroy)                                                                      \
    FUNCTION(cublasLtMatmulDescSetAttribute)                                                                 \
    FUNCTION(cublasLtMatmulPreferenceCreate)                                                                 \
    FUNCTION(cublasLtMatmulPreferenceDestroy)                                                                \
    FUNCTION(cublasLtMatmulPreferenceSetAttribute)                                                           \
    FUNCTION(cublasLtMatrixLayoutCreate)                                                                     \
    FUNCTION(cublasLtMatrixLayoutDestroy)

struct cublas_functions {
#define FUNCTION(name) decltype(&::name) name;
    CUBLAS_FUNCTIONS(FUNCTION)
#undef FUNCTION
};

/* The cuBLASLt descriptors and the algorithm of a shape. */
struct cublas_plan {
    cublas_plan *next;
    cublas_shape shape;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algorithm;
    bool has_algorithm;
};

enum { CUBLAS_PLAN_LISTS = 4096 }; /* hash lists: there may be a plan for each number of events */
struct cublas {
    cublasLtHandle_t handle;
    cublas_plan *plans[CUBLAS_PLAN_LISTS];
};

/* --- Opening --- */

#ifdef CUDA_ON_HOST
static const cublas_functions *functions_of(char *why, size_t size)
{
    static const cublas_functions model = {
#define FUNCTION(name) ::name,
        CUBLAS_FUNCTIONS(FUNCTION)
#undef FUNCTION
    };
    if (cublas_model_is_there())
        return &model;
    snprintf(why, size, "the test's model of a GPU hides it");
    return NULL;
}
#else
template <typename function>
static bool find(void *library, const char *name, function *found, char *why, size_t size)
{
    void *symbol = dlsym(library, name);
    if (symbol == NULL)
        snprintf(why, size, "the library has no function %s", name);
    else
        memcpy(found, &symbol, sizeof(symbol));
    return symbol != NULL;
}

struct cublas_library {
    cublas_functions functions;
    bool is_complete;
    char why[160];
};

/* Opens the file that LEAT_CUBLASLT names; else the library by name where the loader looks, then in the
 * folder of the toolkit that built this file. */
static void *open_file(void)
{
    const int major = CUDART_VERSION / 1000;
    char path[512];
    const char *named = getenv("LEAT_CUBLASLT");
    if (named != NULL && named[0] != '\0')
        return dlopen(named, RTLD_NOW | RTLD_LOCAL);
    snprintf(path, sizeof(path), "%s/libcublasLt.so.%d", LEAT_CUBLASLT_FOLDER, major);
    void *library = dlopen(strrchr(path, '/') + 1, RTLD_NOW | RTLD_LOCAL);
    return library != NULL ? library : dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static cublas_library open_library(void)
{
    cublas_library found = {};
    void *library = open_file();
    if (library == NULL) {
        snprintf(found.why, sizeof(found.why), "%s", dlerror());
        return found;
    }
    found.is_complete = true;
#define FUNCTION(name)                                                                                       \
    found.is_complete =                                                                                      \
        found.is_complete && find(library, #name, &found.functions.name, found.why, sizeof(found.why));
    CUBLAS_FUNCTIONS(FUNCTION)
#undef FUNCTION
    return found;
}

static const cublas_functions *functions_of(char *why, size_t size)
{
    static const cublas_library library = open_library(); /* C++: once, by one thread; never closed */
    if (library.is_complete)
        return &library.functions;
    snprintf(why, size, "%s", library.why);
    return NULL;
}
#endif

static const cublas_functions *functions_or_error(gpu_error *error)
{
    char why[160] = "";
    const cublas_functions *functions = functions_of(why, sizeof(why));
    if (functions == NULL)
        gpu_refuse(error, GPU_UNSUPPORTED,
                   "Dense layers on a GPU need cuBLASLt of CUDA %d: install libcublas, or set LEAT_CUBLASLT "
                   "to the path of libcublasLt.so. The library cannot be opened: %.90s.",
                   CUDART_VERSION / 1000, why);
    return functions;
}

/* The device's handle, opened at the first use; NULL with `error` set. */
static cublas *cublas_of(gpu *gpu, const cublas_functions *f, gpu_error *error)
{
    if (gpu->cublas != NULL)
        return gpu->cublas;
    cublas *opened = new (std::nothrow) cublas{};
    if (opened == NULL) {
        gpu_refuse(error, GPU_NO_MEMORY, "The host has no memory left.");
        return NULL;
    }
    gpu_use(gpu);
    cublasStatus_t status = f->cublasLtCreate(&opened->handle);
    if (status != CUBLAS_STATUS_SUCCESS) {
        gpu_refuse(error, GPU_UNSUPPORTED, "cuBLASLt cannot be used on device %d: status %d.", gpu->device,
                   (int)status);
        delete opened;
        return NULL;
    }
    gpu->cublas = opened;
    return opened;
}

bool cublas_can(gpu *gpu, gpu_error *error)
{
    const cublas_functions *f = functions_or_error(error);
    return f != NULL && cublas_of(gpu, f, error) != NULL;
}

/* --- Plans --- */

static void plan_free(const cublas_functions *f, cublas_plan *plan)
{
    if (plan->a != NULL)
        (void)f->cublasLtMatrixLayoutDestroy(plan->a);
    if (plan->b != NULL)
        (void)f->cublasLtMatrixLayoutDestroy(plan->b);
    if (plan->d != NULL)
        (void)f->cublasLtMatrixLayoutDestroy(plan->d);
    if (plan->product != NULL)
        (void)f->cublasLtMatmulDescDestroy(plan->product);
    delete plan;
}

void cublas_close(gpu *gpu)
{
    char why[160];
    const cublas_functions *f = functions_of(why, sizeof(why));
    if (gpu->cublas == NULL || f == NULL)
        return;
    for (cublas_plan *list : gpu->cublas->plans) {
        for (cublas_plan *plan = list, *next; plan != NULL; plan = next) {
            next = plan->next;
            plan_free(f, plan);
        }
    }
    (void)f->cublasLtDestroy(gpu->cublas->handle);
    delete gpu->cublas;
    gpu->cublas = NULL;
}

template <typename type>
static cublasStatus_t product_set(const cublas_functions *f, cublasLtMatmulDesc_t product,
                                  cublasLtMatmulDescAttributes_t attribute, type value)
{
    return f->cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof(value));
}

static cublasStatus_t describe_product(const cublas_functions *f, cublas_plan *plan)
{
    const cublas_shape &s = plan->shape;
    cublasLtEpilogue_t epilogue = s.epilogue == MATMUL_BIAS        ? CUBLASLT_EPILOGUE_BIAS
                                  : s.epilogue == MATMUL_BIAS_RELU ? CUBLASLT_EPILOGUE_RELU_BIAS
                                                                   : CUBLASLT_EPILOGUE_DEFAULT;
    cublasStatus_t status = f->cublasLtMatmulDescCreate(&plan->product, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = product_set(f, plan->product, CUBLASLT_MATMUL_DESC_TRANSA,
                             s.b_is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = product_set(f, plan->product, CUBLASLT_MATMUL_DESC_TRANSB,
                             s.a_is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = product_set(f, plan->product, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    return status;
}

static cublasStatus_t describe_matrices(const cublas_functions *f, cublas_plan *plan)
{
    const cublas_shape &s = plan->shape;
    cudaDataType_t type = s.format == ROW_BF16 ? CUDA_R_16BF : s.format == ROW_FP16 ? CUDA_R_16F : CUDA_R_32F;
    cublasStatus_t status = f->cublasLtMatrixLayoutCreate(&plan->b, type, s.b_is_transposed ? s.k : s.n,
                                                          s.b_is_transposed ? s.n : s.k, s.b_stride);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = f->cublasLtMatrixLayoutCreate(&plan->a, type, s.a_is_transposed ? s.m : s.k,
                                               s.a_is_transposed ? s.k : s.m, s.a_stride);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = f->cublasLtMatrixLayoutCreate(&plan->d, CUDA_R_32F, s.n, s.m, s.d_stride);
    return status;
}

template <typename type>
static cublasStatus_t prefer(const cublas_functions *f, cublasLtMatmulPreference_t preference,
                             cublasLtMatmulPreferenceAttributes_t attribute, type value)
{
    return f->cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value));
}

/* Takes the first algorithm of cuBLASLt's heuristic. If the heuristic has none, returns success and leaves
 * plan->has_algorithm false. */
static cublasStatus_t choose_algorithm(const cublas_functions *f, const cublas *c, cublas_plan *plan)
{
    cublasLtMatmulPreference_t wish = NULL;
    cublasStatus_t status = f->cublasLtMatmulPreferenceCreate(&wish);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const uint32_t d_aligned = plan->shape.d_aligned;
    const struct {
        cublasLtMatmulPreferenceAttributes_t of;
        uint32_t bytes;
    } alignments[] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, plan->shape.b_aligned},
                      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, plan->shape.a_aligned},
                      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, d_aligned},
                      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, d_aligned}};
    status = prefer(f, wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, plan->shape.workspace_bytes);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = prefer(f, wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes);
    for (const auto &alignment : alignments) {
        if (status == CUBLAS_STATUS_SUCCESS)
            status = prefer(f, wish, alignment.of, alignment.bytes);
    }
    cublasLtMatmulHeuristicResult_t found = {};
    int count = 0;
    if (status == CUBLAS_STATUS_SUCCESS) {
        status = f->cublasLtMatmulAlgoGetHeuristic(c->handle, plan->product, plan->b, plan->a, plan->d,
                                                   plan->d, wish, 1, &found, &count);
        plan->has_algorithm =
            status == CUBLAS_STATUS_SUCCESS && count > 0 && found.state == CUBLAS_STATUS_SUCCESS;
        plan->algorithm = found.algo;
        if (status == CUBLAS_STATUS_NOT_SUPPORTED)
            status = CUBLAS_STATUS_SUCCESS;
    }
    (void)f->cublasLtMatmulPreferenceDestroy(wish);
    return status;
}

static uint64_t shape_hash(const cublas_shape &shape)
{
    uint64_t hash = num_mix(shape.m ^ num_mix(shape.n ^ num_mix(shape.k)));
    return hash ^ (uint64_t)shape.epilogue ^ (uint64_t)shape.format << 3;
}

/* The plan of a shape, made at the shape's first product; NULL: failed, *status says how. */
static cublas_plan *plan_of(const cublas_functions *f, cublas *c, const cublas_shape &shape,
                            const float *bias, cublasStatus_t *status)
{
    cublas_plan **list = &c->plans[shape_hash(shape) % CUBLAS_PLAN_LISTS];
    cublas_plan *plan = *list;
    while (plan != NULL && memcmp(&plan->shape, &shape, sizeof(shape)) != 0)
        plan = plan->next;
    bool is_new = plan == NULL;
    *status = CUBLAS_STATUS_SUCCESS;
    if (is_new) {
        plan = new (std::nothrow) cublas_plan{};
        if (plan == NULL) {
            *status = CUBLAS_STATUS_ALLOC_FAILED;
            return NULL;
        }
        memcpy(&plan->shape, &shape, sizeof(shape));
        *status = describe_product(f, plan);
        if (*status == CUBLAS_STATUS_SUCCESS)
            *status = describe_matrices(f, plan);
    }
    if (*status == CUBLAS_STATUS_SUCCESS && shape.epilogue != MATMUL_PLAIN)
        *status = product_set(f, plan->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, (const void *)bias);
    if (is_new && *status == CUBLAS_STATUS_SUCCESS)
        *status = choose_algorithm(f, c, plan);
    if (is_new && *status == CUBLAS_STATUS_SUCCESS) {
        plan->next = *list;
        *list = plan;
    } else if (is_new) {
        plan_free(f, plan);
    }
    return *status == CUBLAS_STATUS_SUCCESS ? plan : NULL;
}

cublas_result cublas_multiply(gpu *gpu, const cublas_shape &shape, const cublas_operands &operands,
                              cudaStream_t stream)
{
    gpu_error error = {};
    const cublas_functions *f = functions_or_error(&error);
    cublas *c = f != NULL ? cublas_of(gpu, f, &error) : NULL;
    if (c == NULL) {
        gpu_fail(gpu, "%s", error.text);
        return CUBLAS_FAILED;
    }
    cublasStatus_t status;
    cublas_plan *plan = plan_of(f, c, shape, operands.bias, &status);
    if (plan != NULL && !plan->has_algorithm)
        return CUBLAS_HAS_NONE;
    const float kept = shape.adds ? 1.0F : 0.0F;
    if (plan != NULL)
        status = f->cublasLtMatmul(c->handle, plan->product, &operands.factor, operands.b, plan->b,
                                   operands.a, plan->a, &kept, operands.d, plan->d, operands.d, plan->d,
                                   &plan->algorithm, operands.workspace, shape.workspace_bytes, stream);
    if (status == CUBLAS_STATUS_SUCCESS)
        return CUBLAS_DONE;
    gpu_fail(
        gpu,
        "Device %d failed in cuBLASLt's product of %llu x %llu x %llu: status %d. The process must end and "
        "start again from its last checkpoint.",
        gpu->device, (unsigned long long)shape.m, (unsigned long long)shape.n, (unsigned long long)shape.k,
        (int)status);
    return CUBLAS_FAILED;
}

/* For tests of the model: words in device memory, checks, and a list of tests that are run
 * with several seeds. */
#ifndef LEAT_TESTS_CUDA_ON_HOST_TEST_MODEL_H
#define LEAT_TESTS_CUDA_ON_HOST_TEST_MODEL_H

#include "kernels/cuda/cuda.cuh"
#include "tests/cuda_on_host/testing.h"

#include <atomic>
#include <stdio.h>
#include <stdlib.h>
#include <vector>

typedef std::vector<uint32_t> words;

static cudaStream_t stream;
static std::atomic<bool> is_good(true);

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            is_good = false;                                                                                 \
            printf("# line %d: not so: %s (seed %llu)\n", __LINE__, #condition,                              \
                   (unsigned long long)cuda_model_seed());                                                   \
        }                                                                                                    \
    } while (0)

/* Device memory with the content of `host`; the destructor copies it back to `host`. */
struct device_words {
    words &host;
    uint32_t *at;

    explicit device_words(words &content) : host(content)
    {
        CHECK(cudaMalloc((void **)&at, host.size() * 4) == cudaSuccess);
        CHECK(cudaMemcpyAsync(at, host.data(), host.size() * 4, cudaMemcpyDefault, stream) == cudaSuccess);
    }
    ~device_words()
    {
        CHECK(cudaMemcpyAsync(host.data(), at, host.size() * 4, cudaMemcpyDefault, stream) == cudaSuccess);
        CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
        CHECK(cudaFree(at) == cudaSuccess);
    }
};

static inline uint32_t mix(uint32_t x)
{
    x = (x ^ x >> 16) * 0x7feb352dU;
    x = (x ^ x >> 15) * 0x846ca68bU;
    return x ^ x >> 16;
}

typedef void model_test_body(cuda_model_output *output);
struct model_test {
    const char *what;
    model_test_body *body;
};

static inline void run_test(void *context, cuda_model_output *output)
{
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    static_cast<const model_test *>(context)->body(output);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

/* Runs all tests; main returns its result. argv[1]: the number of seeds. */
static inline int run_model_tests(int argc, char **argv, const std::vector<model_test> &tests)
{
    bool all_good = true;
#ifdef __SANITIZE_THREAD__
    int seeds = argc > 1 ? atoi(argv[1]) : 1; /* four thousand fibers of TSan are slow */
#else
    int seeds = argc > 1 ? atoi(argv[1]) : 3;
#endif
    for (const auto &test : tests) {
        is_good = true;
        bool agrees = cuda_model_runs_agree(test.what, run_test, (void *)&test, seeds);
        printf("%sok - %s\n", agrees && is_good ? "" : "not ", test.what);
        fflush(stdout);
        all_good = all_good && agrees && is_good;
    }
    return !all_good;
}

#endif

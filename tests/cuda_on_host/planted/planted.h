/* Tests of the tests: small kernels with a bug of each class that the model must detect, and the same kernels
 * without the bug, for which it must report nothing. Each file has a list of cases; main.cpp runs each case
 * in a process of its own. */
#ifndef LEAT_TESTS_CUDA_ON_HOST_PLANTED_PLANTED_H
#define LEAT_TESTS_CUDA_ON_HOST_PLANTED_PLANTED_H

#include "kernels/cuda/async.cuh"
#include "tests/cuda_on_host/testing.h"

/* What a case runs on: 1024 words of device memory and as many of pinned memory; all of them go
 * to the output. */
struct planted_run {
    bool has_bug;
    cudaStream_t stream, other;
    uint32_t *device, *pinned;
};
enum { PLANTED_WORDS = 1024, PLANTED_BYTES = PLANTED_WORDS * 4 };

struct planted {
    const char *name;
    void (*body)(planted_run *run);
    /* The text by which a build with ASan and UBSan, and one with TSan, must report the bug; "a|b": one of
     * both; NULL: it does not detect the bug. */
    const char *asan, *tsan;
};

#define PLANTED_DIFFERS "the result depends on"
#define PLANTED_RACE    "ThreadSanitizer: data race"

/* A list ends with a case without a name. */
extern const planted planted_waits[], planted_bounds[], planted_order[], planted_streams[], planted_tables[];

#endif

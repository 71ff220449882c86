/*
 * The tests of the tests: small kernels with a bug of each class that the model has to catch, and the same
 * kernels without it, of which nothing may be said. Each file has a list of cases; main.cpp runs each in a
 * process of its own.
 */
#ifndef CUDA_ON_HOST_PLANTED_H
#define CUDA_ON_HOST_PLANTED_H

#include "kernels/cuda/async.cuh"
#include "tests/cuda_on_host/testing.h"

/* What a case runs on: device memory of 1024 words and pinned memory of as many, which all go to the output.
 */
struct planted_run {
    bool has_bug;
    cudaStream_t stream, other;
    uint32_t *device, *pinned;
};
enum { PLANTED_WORDS = 1024, PLANTED_BYTES = PLANTED_WORDS * 4 };

struct planted {
    const char *name;
    void (*body)(planted_run *run);
    /* What a build with ASan and UBSan has to say of the bug, and one with TSan; "a|b": either; NULL: it does
     * not see it. */
    const char *asan, *tsan;
};

#define PLANTED_DIFFERS "the result depends on"
#define PLANTED_RACE    "ThreadSanitizer: data race"

/* Ends with a case without a name. */
extern const planted planted_waits[], planted_bounds[], planted_order[], planted_streams[], planted_tables[];

#endif

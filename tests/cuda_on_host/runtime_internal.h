/* What the files of the run time share. All of it under the lock. */
#ifndef CUDA_ON_HOST_RUNTIME_INTERNAL_H
#define CUDA_ON_HOST_RUNTIME_INTERNAL_H

#include <functional>
#include <mutex>

#include "tests/cuda_on_host/machine.h"

extern std::recursive_mutex runtime_lock;
/* The first failure of the device: from then on all calls return it. */
extern cudaError_t runtime_sticky;

/* Notes an error for cudaGetLastError, and returns it. */
cudaError_t runtime_fail(cudaError_t error);

#define ENTER()                                                                                              \
    const std::lock_guard<std::recursive_mutex> guard(runtime_lock);                                         \
    run_begin_if_needed()
#define ENTER_UNLESS_FAILED()                                                                                \
    ENTER();                                                                                                 \
    if (runtime_sticky != cudaSuccess) {                                                                     \
        return runtime_sticky;                                                                               \
    }

/* streams.cpp */
void streams_begin(void);     /* a run */
void streams_drain_all(void); /* does all that is queued */
/* Work of a library for the device, in the stream's order; nothing on a device that has failed. */
void streams_queue(CUstream_st *stream, std::function<void()> act);

/* memory.cpp: what is known of an address */
enum memory_kind { MEMORY_PAGEABLE, MEMORY_PINNED, MEMORY_DEVICE };
memory_kind memory_of(const void *address);
/* NULL, in such memory, or at its end: what a kernel may be given. */
bool memory_is_for_kernels(const void *address);
/* Whether the host may touch device memory: only while it plays the device. */
void memory_hide(bool is_to_be);

#endif

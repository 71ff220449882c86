/* Shared by the files of the run time; the caller holds runtime_lock. */
#ifndef LEAT_TESTS_CUDA_ON_HOST_RUNTIME_INTERNAL_H
#define LEAT_TESTS_CUDA_ON_HOST_RUNTIME_INTERNAL_H

#include <functional>
#include <mutex>

#include "tests/cuda_on_host/machine.h"

extern std::recursive_mutex runtime_lock;
/* The first failure of the device: all later calls return it. */
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
void streams_begin(void);     /* at the begin of a run */
void streams_drain_all(void); /* does all queued work */
/* Queues a library's work for the device in the stream's order; does nothing on a device that has failed. */
void streams_queue(CUstream_st *stream, std::function<void()> act);

/* memory.cpp: the kind of memory at an address */
enum memory_kind { MEMORY_PAGEABLE, MEMORY_PINNED, MEMORY_DEVICE };
memory_kind memory_of(const void *address);
/* Whether a kernel may be given the address: NULL, in device or pinned memory, or at the end
 * of such memory. */
bool memory_is_for_kernels(const void *address);
/* Hides device memory from the host (is_to_be) or shows it: the host may touch it only while it
 * plays the device. */
void memory_hide(bool is_to_be);

#endif

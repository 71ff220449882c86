/*
 * The GPU: one shared object (leat_cuda.so, built from kernels/cuda/) that is opened when somebody asks for a
 * device, so that one leat binary serves machines with and without a GPU. gpu_open_library finds it and
 * returns the table of its functions, struct gpu_api; everything else goes through that table. The tests open
 * the same sources built for the host (tests/cuda_on_host) through the same table.
 *
 * Threads: one thread at a time uses a struct gpu; another thread may use gpu_api.wait, and copies on a
 * stream of its own. Errors: a function that may fail returns NULL or false and fills struct gpu_error.
 * Kernels and copies fail later: the first failure of a device is sticky, and every wait after it reports
 * it. After a failure nothing on the device can be trusted: the process has to end (docs/design.md,
 * section 9) and be started again from its last checkpoint.
 */
#ifndef LEAT_KERNELS_GPU_H
#define LEAT_KERNELS_GPU_H

#include "kernels/batch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* GPU_CAPABILITY_MIN: the lowest compute capability (80: sm_80) that has __reduce_max_sync and asynchronous
 * copies to shared memory. */
enum { GPU_API_VERSION = 8, GPU_DEVICES_MAX = 16, GPU_CAPABILITY_MIN = 80 };

enum gpu_failure {
    GPU_OK,
    GPU_NO_LIBRARY,  /* leat_cuda.so is not there, cannot be opened or is of another version of leat */
    GPU_NO_DRIVER,   /* no NVIDIA driver, or one too old for this run time */
    GPU_NO_DEVICE,   /* no such device */
    GPU_TOO_OLD,     /* compute capability below GPU_CAPABILITY_MIN */
    GPU_NO_MEMORY,   /* the memory asked for does not fit */
    GPU_UNSUPPORTED, /* a dim or a format that no kernel has */
    GPU_FAILED,      /* sticky: illegal access, ECC, lost device ... */
};

struct gpu_error {
    enum gpu_failure failure;
    char text[384]; /* what was expected, what was found, what to do; whole sentences */
};

struct gpu_device {
    char name[64];
    int capability; /* 90: sm_90 */
    int multiprocessors;
    uint64_t memory_bytes, memory_free;
    uint64_t l2_bytes;
    bool is_usable;
    struct gpu_error why; /* filled if not is_usable */
};

struct gpu;
struct gpu_stream; /* queued work runs in order; different streams overlap */
struct gpu_event;
struct gpu_graph;
struct gpu_tables; /* gpu_table.h */

struct gpu_api {
    uint32_t version;
    const struct batch_kernels *kernels; /* name "cuda" */

    /* Returns the number of devices, and describes the first of them in devices[GPU_DEVICES_MAX], the
     * caller's. -1: error says why the devices cannot be listed. */
    int (*devices)(struct gpu_device *devices, struct gpu_error *error);
    /* CUDA versions, 13000 being 13.0: *library is the version this library was built with, *driver the
     * latest version that the driver supports (0: no driver). */
    void (*versions)(int *library, int *driver);
    struct gpu *(*open)(int device, struct gpu_error *error); /* NULL: failed, error is set */
    void (*close)(struct gpu *gpu);                           /* waits for all work; NULL is fine */

    /* Free bytes of the device's memory; 0: the device has failed. */
    uint64_t (*memory_free)(struct gpu *gpu);

    /* Device and pinned host memory, aligned to 256 bytes. NULL: the bytes do not fit (error says how much is
     * free), or the device has failed. 0 bytes give a pointer, too. free(NULL) is allowed; freeing waits for
     * the device. */
    void *(*alloc)(struct gpu *gpu, size_t bytes, struct gpu_error *error);
    void (*free)(struct gpu *gpu, void *memory);
    void *(*alloc_pinned)(struct gpu *gpu, size_t bytes, struct gpu_error *error);
    void (*free_pinned)(struct gpu *gpu, void *memory);

    struct gpu_stream *(*stream)(struct gpu *gpu, struct gpu_error *error);
    void (*stream_free)(struct gpu *gpu, struct gpu_stream *stream); /* waits for its work */
    struct gpu_event *(*event)(struct gpu *gpu, struct gpu_error *error);
    void (*event_free)(struct gpu *gpu, struct gpu_event *event);
    void (*record)(struct gpu_event *event, struct gpu_stream *stream);
    void (*wait_event)(struct gpu_stream *stream,
                       struct gpu_event *event); /* the stream waits for the event; the caller does not */
    /* Blocks the caller until the work (the event) is done. false: the device has failed, error is set. */
    bool (*wait)(struct gpu_stream *stream, struct gpu_error *error);
    bool (*wait_for)(struct gpu_event *event, struct gpu_error *error);
    /* Milliseconds between two recorded events that are done; NaN: one is not done, or a failure. */
    float (*elapsed_ms)(struct gpu_event *from, struct gpu_event *to);

    /* Queue a copy or a fill on the stream; both sides may be device or pinned memory (pageable memory is not
     * asynchronous). */
    void (*copy)(struct gpu_stream *stream, void *to, const void *from, size_t bytes);
    void (*fill)(struct gpu_stream *stream, void *to, uint8_t byte, size_t bytes);

    const struct gpu_table_api *tables; /* gpu_table.h */

    /* Whether the kernel matmul can be used: it needs cuBLASLt, which may be missing. Ask before a job
     * begins; false: error says what to install. */
    bool (*can_matmul)(struct gpu *gpu, struct gpu_error *error);

    /*
     * CUDA graphs: work that is queued often with the same arguments is recorded once and queued by one call.
     * Between graph_begin and graph_end, copies, fills and kernels queued on the stream are recorded with
     * their addresses instead of run; the thread must not wait, allocate or record events meanwhile.
     * graph_end: NULL on failure, error is set. graph_launch queues all recorded work; it may be called any
     * number of times. graph_free: call it when the work is done; NULL is allowed.
     */
    bool (*graph_begin)(struct gpu_stream *stream, struct gpu_error *error);
    struct gpu_graph *(*graph_end)(struct gpu_stream *stream, struct gpu_error *error);
    void (*graph_launch)(struct gpu_stream *stream, struct gpu_graph *graph);
    void (*graph_free)(struct gpu *gpu, struct gpu_graph *graph);
};

/*
 * Opens the device library at `path`. path NULL: the file that LEAT_CUDA_LIBRARY names, else leat_cuda.so
 * beside the program. The library stays open until the process ends (a CUDA run time cannot be unloaded).
 * Returns NULL on failure, with `error` set.
 */
const struct gpu_api *gpu_open_library(const char *path, struct gpu_error *error);

/* Writes the path that gpu_open_library(NULL) opens, whether the file exists or not; false: the path is not
 * known or longer than `size`. */
bool gpu_library_path(char *path, size_t size);

/* A few words for a failure: "no driver" ... */
const char *gpu_failure_name(enum gpu_failure failure);

/* The type of the only symbol that the shared object exports, "leat_gpu_api". */
typedef const struct gpu_api *gpu_api_function(void);

#ifdef __cplusplus
}
#endif
#endif

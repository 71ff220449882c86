/*
 * Where a training step runs, and its memory. All memory is counted, by part, before it is taken: a first
 * walk over all users counts it, a second walk in the same order hands it out. Device memory on a GPU, host
 * memory on a CPU.
 */
#ifndef LEAT_LEARNERS_TRAIN_MEMORY_H
#define LEAT_LEARNERS_TRAIN_MEMORY_H

#include "kernels/gpu.h"

struct train_device {
    const struct batch_kernels *kernels;
    const struct gpu_api *api; /* NULL: the CPU */
    struct gpu *gpu;
    struct gpu_stream *stream; /* NULL on the CPU */
};

enum train_part {
    TRAIN_INPUT,       /* ids, dense features and labels of a batch */
    TRAIN_ROWS,        /* distinct ids, pointers to their rows, their places */
    TRAIN_ACTIVATIONS, /* matrices of the network, and their gradients */
    TRAIN_PARAMETERS,  /* dense weights, their optimizer's state, their gradients */
    TRAIN_SCRATCH,     /* scratch memory of kernels */
    TRAIN_PARTS
};

struct train_memory {
    const struct train_device *device;
    unsigned char *base; /* NULL: memory is being counted */
    size_t used, size;
    size_t parts[TRAIN_PARTS];
};

/* Returns count * size bytes of zeros, aligned to 256 bytes, which train_memory_free frees; NULL while memory
 * is being counted. */
void *train_take(struct train_memory *memory, enum train_part part, size_t count, size_t size);

/* Between the two walks: takes the memory. False: error (of a GPU; a host without memory
 * ends the process). */
bool train_memory_make(struct train_memory *memory, struct gpu_error *error);
void train_memory_free(struct train_memory *memory);

/* In the order of the device's stream; on a CPU at once. `to` and `from`: host (pinned) or device memory. */
void train_copy(const struct train_device *device, void *to, const void *from, size_t bytes);
void train_fill(const struct train_device *device, void *to, uint8_t byte, size_t bytes);
/* Waits until all work on the stream is done; false: the device has failed. */
bool train_wait(const struct train_device *device, struct gpu_error *error);

/* Host memory that a device can copy from and to: pinned where there is a device. Zeros. */
void *train_host_new(const struct train_device *device, size_t bytes, struct gpu_error *error);
void train_host_free(const struct train_device *device, void *memory);

#endif

/*
 * Where a training step runs, and its memory: all of it is counted before it is taken, by part, in one walk
 * over who needs some, and handed out in a second walk of the same order. Device memory on a GPU, host memory
 * on a CPU.
 */
#ifndef LEARNERS_TRAIN_MEMORY_H
#define LEARNERS_TRAIN_MEMORY_H

#include "kernels/gpu.h"

struct train_device {
    const struct batch_kernels *kernels;
    const struct gpu_api *api; /* NULL: the CPU */
    struct gpu *gpu;
    struct gpu_stream *stream; /* NULL on the CPU */
};

enum train_part {
    TRAIN_INPUT,       /* ids, numbers, labels of a batch */
    TRAIN_ROWS,        /* distinct ids, where their rows are, which places they have */
    TRAIN_ACTIVATIONS, /* matrices of the network, and their slopes */
    TRAIN_PARAMETERS,  /* dense weights, optimizer's state, gradients */
    TRAIN_SCRATCH,     /* what kernels ask for */
    TRAIN_PARTS
};

struct train_memory {
    const struct train_device *device;
    unsigned char *base; /* NULL: it is being counted */
    size_t used, size;
    size_t parts[TRAIN_PARTS];
};

/* count * size bytes of zeros, aligned to 256; NULL while it is being counted. */
void *train_take(struct train_memory *memory, enum train_part part, size_t count, size_t size);

/* Between the two walks. false: error (of a GPU; a host without memory ends the process). */
bool train_memory_make(struct train_memory *memory, struct gpu_error *error);
void train_memory_free(struct train_memory *memory);

/* In the order of the device's stream; on a CPU at once. Sides may be host (pinned) or device memory. */
void train_copy(const struct train_device *device, void *to, const void *from, size_t bytes);
void train_fill(const struct train_device *device, void *to, uint8_t byte, size_t bytes);
/* Until all is done; false: the device has failed. */
bool train_wait(const struct train_device *device, struct gpu_error *error);

/* Host memory that a device copies from and to: pinned where there is one. Zeros. */
void *train_host_new(const struct train_device *device, size_t bytes, struct gpu_error *error);
void train_host_free(const struct train_device *device, void *memory);

#endif

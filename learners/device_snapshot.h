/*
 * What a checkpoint takes from a device_table, on its way to the writer: pieces of rows, or of sketches'
 * blocks. At the barrier pieces are gathered into staging, device memory that was taken once; there they are
 * as the barrier found them, whatever steps do. The writer's thread copies one after the other to pinned
 * memory, over a stream of its own, and hands it on while the next one is copied. What staging has no room
 * for is gathered as pieces leave it; until the last of it was, nothing of the tables may change: they are
 * held. So the GPU keeps a bounded part of its memory for this, and the host two pieces.
 */
#ifndef LEARNERS_DEVICE_SNAPSHOT_H
#define LEARNERS_DEVICE_SNAPSHOT_H

#include "kernels/gpu_table.h"

#include <stdatomic.h>

/* heads[] and, from payloads_at on, payloads[]; or blocks. */
struct device_piece {
    unsigned char *memory; /* of staging */
    struct gpu_event *gathered;
    uint32_t rows;    /* 0: it has blocks */
    uint32_t *blocks; /* [tables] of each, one table's behind the other's */
};

/* A piece in pinned memory. */
struct device_landing {
    unsigned char *memory;
    struct gpu_event *copied;
};

struct device_snapshot {
    struct gpu_stream *copies;
    size_t piece_bytes, payloads_at;
    uint32_t piece_rows, piece_blocks, pieces_count;
    unsigned char *staging;      /* [pieces_count][piece_bytes] */
    struct device_piece *pieces; /* [pieces_count], a ring */
    struct device_landing landings[2];
    unsigned char *pool_rows; /* pinned, a piece: rows of the pool on their way into staging */
    uint32_t *count;          /* device memory, [1]: what nobody asks for */
    /* Of the snapshot that lasts; its owner's until the writer begins, then the writer's. */
    uint32_t since, closing;
    uint64_t gathered, left; /* pieces so far: gathered, and copied out of staging */
    uint64_t rows_left;      /* in the GPU's memory */
    uint32_t slot;           /* of the pool: the next one */
    uint32_t table;          /* whose sketch is next, */
    uint64_t block;          /* from this block on */
    atomic_bool is_held;
};

struct device_table;

/* bytes: of staging; two pieces of it at least. false: error. */
bool device_snapshot_init(struct device_table *t, uint64_t bytes, struct gpu_error *error);
void device_snapshot_free(struct device_table *t);

#endif

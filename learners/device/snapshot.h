/*
 * How a checkpoint's data gets from a device_table to the writer: in pieces of rows, or of sketches' blocks.
 * At the barrier rows and blocks are copied (gathered) into staging, a part of the device's memory that is
 * taken once and that steps do not write to. The writer's thread copies one piece after the other from
 * staging to pinned memory, on a stream of its own, and emits a piece while the next one is copied. Rows that
 * staging has no room for are gathered as pieces leave it; until all are gathered, nothing in the tables may
 * change: the tables are held. So a snapshot takes a bounded part of the GPU's memory, and three pieces of
 * pinned memory.
 */
#ifndef LEAT_LEARNERS_DEVICE_SNAPSHOT_H
#define LEAT_LEARNERS_DEVICE_SNAPSHOT_H

#include "kernels/gpu_table.h"

#include <stdatomic.h>

/* A piece's memory: heads[] and, from payloads_at on, payloads[]; or blocks. */
struct device_piece {
    unsigned char *memory;      /* part of staging */
    struct gpu_event *gathered; /* reached when the piece is complete */
    uint32_t rows;              /* 0: the piece has blocks */
    uint32_t *blocks;           /* [tables] number of blocks of each table; the tables follow each other */
};

/* A piece in pinned memory. `copied` is reached when the copy is complete. */
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
    uint32_t *count;          /* device memory, [1]: a result of export_rows that nobody reads */
    /* State of the snapshot in progress: the owner's until the writer begins, then the writer's. */
    uint32_t since, closing;
    uint64_t gathered, left; /* pieces gathered so far, and pieces copied out of staging */
    uint64_t rows_left;      /* rows in the GPU's memory still to gather */
    uint32_t slot;           /* next pool slot to gather */
    uint32_t table;          /* next table whose sketch is gathered, */
    uint64_t block;          /* from this block on */
    atomic_bool is_held;     /* the tables are held; any thread may read it */
};

struct device_table;

/* bytes: size of staging, which has at least two pieces. False: error. */
bool device_snapshot_init(struct device_table *t, uint64_t bytes, struct gpu_error *error);
void device_snapshot_free(struct device_table *t);

#endif

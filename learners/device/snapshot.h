/*
 * A checkpoint's way from a device_table to the writer: pieces of rows, or of sketches' blocks. At the
 * barrier pieces are gathered into staging, device memory taken once; there they stay as of the barrier,
 * whatever steps do. The writer's thread copies one piece after the other to pinned memory, on a stream of
 * its own, and emits it while the next one is copied. Rows that staging has no room for are gathered as
 * pieces leave it; until all are gathered, nothing in the tables may change: they are held. So the GPU keeps
 * a bounded part of its memory for this, and the host two pieces.
 */
#ifndef LEAT_LEARNERS_DEVICE_SNAPSHOT_H
#define LEAT_LEARNERS_DEVICE_SNAPSHOT_H

#include "kernels/gpu_table.h"

#include <stdatomic.h>

/* A piece's memory: heads[] and, from payloads_at on, payloads[]; or blocks. */
struct device_piece {
    unsigned char *memory; /* part of staging */
    struct gpu_event *gathered;
    uint32_t rows;    /* 0: the piece has blocks */
    uint32_t *blocks; /* [tables] number of blocks of each table; the tables follow each other */
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
    uint32_t *count;          /* device memory, [1]: a result of export_rows that nobody reads */
    /* State of the snapshot in progress: the owner's until the writer begins, then the writer's. */
    uint32_t since, closing;
    uint64_t gathered, left; /* pieces gathered so far, and pieces copied out of staging */
    uint64_t rows_left;      /* rows in the GPU's memory still to gather */
    uint32_t slot;           /* next pool slot to gather */
    uint32_t table;          /* next table whose sketch is gathered, */
    uint64_t block;          /* from this block on */
    atomic_bool is_held;
};

struct device_table;

/* bytes: size of staging, which has at least two pieces. False: error. */
bool device_snapshot_init(struct device_table *t, uint64_t bytes, struct gpu_error *error);
void device_snapshot_free(struct device_table *t);

#endif

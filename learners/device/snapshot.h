/*
 * How a checkpoint's data, and a cut's (cut.c), get from a device_table to the writer: in pieces of rows, or of
 * sketches' blocks. At the barrier rows and blocks are copied (gathered) into staging, a part of the device's
 * memory that is taken once and that steps do not write to. The writer's thread copies one piece after the other from
 * staging to pinned memory, on a stream of its own, and emits a piece while the next one is copied. Rows that
 * staging has no room for are gathered as pieces leave it; until all are gathered, nothing in the tables may
 * change: the tables are held. So a snapshot takes a bounded part of the GPU's memory, and three pieces of
 * pinned memory.
 */
#ifndef LEAT_LEARNERS_DEVICE_SNAPSHOT_H
#define LEAT_LEARNERS_DEVICE_SNAPSHOT_H

#include "kernels/gpu_table.h"
#include "learners/device/table.h"

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

struct device_table;

struct device_snapshot {
    struct device_table *of;
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

/* bytes: size of staging, which has at least two pieces. False: error; free it then, too. */
bool device_snapshot_init(struct device_snapshot *s, struct device_table *of, uint64_t bytes,
                          struct gpu_error *error);
/* s: zeros, or what init left. */
void device_snapshot_free(struct device_snapshot *s);

/* Selects rows and blocks of the epochs since + 1 .. closing (since 0: all), and gathers what staging has room
 * for. The owner's thread, between steps. False: error. */
bool device_snapshot_select(struct device_snapshot *s, uint32_t since, uint32_t closing,
                            struct gpu_error *error);
/* Emits what was selected; see device_table_snapshot_write. */
bool device_snapshot_write(struct device_snapshot *s, device_table_emit *rows, device_table_emit *counts,
                           void *argument, struct gpu_error *error);

#endif

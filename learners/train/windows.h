/*
 * Rows that are tokens: a network of a sequence model reads windows, whose rows follow one another. A layer of
 * attention lets the rows of a window meet; all other layers go row by row.
 *
 * A chunk is some whole windows in a row: as many as have at most BATCH_CHUNK rows together, or one longer
 * window. A new slice of the step begins a new chunk. A tile (tiles.c) is as many whole chunks as have at most
 * the tile's rows together, or one longer chunk. So neither cuts a window. Gradients by parameters are summed
 * chunk by chunk, in their order: their bits depend on the windows of the pass alone, whatever the size of tiles
 * and the number of threads. A step of several passes has the bits of these passes: where they begin is part of
 * what is computed.
 *
 * On a GPU all rows of a pass go through the layers together, and the pass's windows are copied to its memory
 * (struct windows_copy). A matrix product sums the whole pass at once; layers with kernels of their own sum chunk by
 * chunk. A step has one slice there.
 */
#ifndef LEAT_LEARNERS_TRAIN_WINDOWS_H
#define LEAT_LEARNERS_TRAIN_WINDOWS_H

#include <stdbool.h>
#include <stdint.h>

struct gpu_error;
struct net;
struct net_part;
struct train_memory;

/* The first rows of a window whose last rows alone are in the pass (forward, all attention causal): attention
 * layers put the keys and values of the rows in the pass behind those that are kept, and read them there. */
struct net_kept {
    void *const
        *pages;    /* kernels/attention_pages.h, of all the window's rows; NULL: none are kept, nor put */
    uint32_t rows; /* how many rows are kept; 0: the window begins in the pass */
    const uint32_t *seconds; /* [kept rows, then those in the pass]; as net_windows.seconds */
};

/* The windows of a pass. The caller owns the arrays, which must stay until the backward pass has returned. */
struct net_windows {
    /* [count + 1] rows of the pass, from 0 up to its number of rows, rising. A window may be empty, and has at
     * most net_options.window_max rows. */
    const uint32_t *offsets;
    uint32_t count;
    const uint32_t *seconds;    /* [rows] the token's time; for a bias of time alone, else may be NULL */
    const uint64_t *identities; /* [count] hashes of the windows' identities; may be NULL unless `drops` */
    uint64_t chance;            /* of dropout: the model's seed and the step, mixed (num_chance of num.h) */
    bool drops;                 /* dropout is applied; the same in the forward and the backward pass */
    /* Causal attention attends to whole windows, with net_options.both_ways alone; the same in both passes, and
     * not with `kept`. */
    bool is_both_ways;
    const struct net_kept *kept; /* [count]; NULL: all rows of all windows are in the pass */
    bool kept_is_bf16; /* with `kept`: keys and values are rounded to bf16, kept or not; so are the pages */
};

/* On a GPU: the windows of the pass in the device's memory, as kernels over jagged batches take them
 * (kernels/batch_sequence.h). chunks, chunk_rows: the first window, and the first row, of each chunk, with one behind
 * the last. identities, seconds: NULL if the pass has none. */
struct windows_copy {
    const uint32_t *offsets, *seconds, *chunks, *chunk_rows;
    const uint64_t *identities;
    uint32_t count, chunks_count;
};

/* Some windows of the tile in progress. */
struct net_chunk {
    uint32_t window, end; /* numbers in the pass of its first window, and of the one behind its last */
    uint32_t from, n;     /* its rows, counted from the tile's first row */
};

/* Memory for the borders of chunks and tiles; on a GPU for the copy of a pass's windows. By net_take alone. */
void windows_take(struct net *net, struct train_memory *memory);
/* On a GPU, the host's memory: by net_start and net_stop alone. False: it cannot be had. */
bool windows_pin(struct net *net, struct gpu_error *error);
void windows_unpin(struct net *net);
/* On a GPU, in a forward pass of n rows: queues the copy of the windows, and sets net->copy. */
void windows_send(struct net *net, uint32_t n);
/* Divides the pass's windows, of n rows, into chunks and tiles of `tile` rows. With has_slices the borders of
 * net->slices, which count windows, are borders of chunks. Returns the number of tiles. */
uint32_t windows_divide(struct net *net, uint32_t n, uint32_t tile, bool has_slices);
/* For the thread of `net`: begins tile `number`. Returns its rows; *from: its first row in the pass. */
uint32_t windows_begin(struct net *net, uint32_t number, uint32_t *from);
/* The least rows of memory for tiles of `tile` rows. */
uint32_t windows_tile_rows(const struct net *net, uint32_t tile);

/* For layers: the chunks of the tile in progress. */
uint32_t net_chunks(const struct net *net);
struct net_chunk net_chunk(const struct net *net, uint32_t number);
/* Most chunks of a tile whose memory has `rows` rows. */
uint32_t net_chunks_max(uint32_t rows);

/* net_next_part (net.h) of a network over windows: each part is a chunk, which may have no rows. */
bool windows_next_part(const struct net *net, struct net_part *part);

#endif

/*
 * Counts occurrences of keys in bounded memory, to admit a key to a table at its n-th occurrence: a count-min
 * sketch of four rows of bytes with conservative update (Estan 2002). It never counts too low, so no key is
 * admitted late; it may admit one early: sketch_false_rate says how often, and halving (every `expire_after`
 * of event time) keeps that rate low. Deterministic in the order of occurrences. One thread owns a sketch;
 * sketch_snapshot_write runs on another.
 *
 * sketch_add_batch counts a batch of distinct keys, each with its k occurrences, at once: every estimate,
 * lowest cell + k, is taken from the sketch as it was before the batch, then each cell rises to the highest
 * estimate of its keys. So the order of the keys does not matter, and a GPU can do it with atomic maxima. The
 * result is never too low: before the batch each cell was at least the true count of each of its keys, so a
 * key's estimate is at least its count with the batch, and all its cells are at least its estimate
 * afterwards. Nor is it higher than after the same occurrences one by one: those too raise a key's lowest
 * cell by k, from a sketch that holds at least as much (other keys came before), and cells never fall. Counts
 * end at SKETCH_COUNT_MAX in both.
 */
#ifndef LEAT_LEARNERS_TABLES_SKETCH_H
#define LEAT_LEARNERS_TABLES_SKETCH_H

#include "kernels/shards.h"
#include "learners/tables/chunks.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SKETCH_DEPTH = 4,
    SKETCH_COUNT_MAX = 255,
    SKETCH_BLOCK = 4096, /* cells in a block, the unit that a snapshot copies */
};

struct sketch {
    uint8_t *counts;         /* [shards][SKETCH_DEPTH][width]; NULL: no sketch */
    size_t width;            /* a power of two, at least 1024 */
    uint32_t shards;         /* of the table (kernels/shards.h) */
    uint64_t buckets;        /* the table's logical buckets, by which shards are found; 0: by the hash */
    uint32_t *block_epochs;  /* [sketch_blocks] checkpoint epoch of the last change; 0: never changed */
    uint32_t epoch;          /* epoch that changes now belong to */
    uint32_t since, closing; /* of the snapshot in progress */
    struct chunks *snapshot;
    /* For cuts (cut.h), [cells_max] cells that changed, also twice; NULL: they are not noted. cells_count is cells_max:
     * there may be more of them. */
    uint32_t *cells;
    size_t cells_count, cells_max;
};

/* A block of counts as it is stored. */
struct sketch_block {
    uint64_t number;
    uint8_t counts[SKETCH_BLOCK];
};

/* bytes: memory for the counts, rounded down to a power of two, at least 4 KiB for each shard. The counts of a
 * shard are whole blocks that follow each other; a key is counted in its own shard. */
void sketch_init(struct sketch *sketch, size_t bytes, uint32_t shards, uint64_t buckets);
void sketch_free(struct sketch *sketch);

/* Counts one occurrence of a well-mixed hash; returns the estimate with this occurrence, which is never too
 * low. sketch_count: the estimate now. */
unsigned sketch_add(struct sketch *sketch, uint64_t hash);
unsigned sketch_count(const struct sketch *sketch, uint64_t hash);

/* The cells of a hash, one in each row of the counts. They are prefetched. */
void sketch_cells(const struct sketch *sketch, uint64_t hash, const uint8_t *cells[SKETCH_DEPTH]);

/* Counts the occurrences of one batch. hashes: of n distinct keys; counts: occurrences of each; after[i]: the
 * estimate of key i with the whole batch. */
void sketch_add_batch(struct sketch *sketch, const uint64_t *hashes, const uint32_t *counts, size_t n,
                      uint8_t *after);

/* Halves every count. */
void sketch_halve(struct sketch *sketch);

/* The probability that a key never seen has a count above 0 now. */
double sketch_false_rate(const struct sketch *sketch);

size_t sketch_blocks(const struct sketch *sketch);
/* Bytes of memory that the sketch occupies. */
size_t sketch_bytes(const struct sketch *sketch);

/*
 * A snapshot of the blocks that changed in the epochs since + 1 .. closing (since 0: all that ever changed),
 * while the owner goes on (chunks.h). sketch_snapshot_write: any thread, once; emits struct sketch_block.
 * Without a sketch all three do nothing.
 */
void sketch_snapshot_begin(struct sketch *sketch, uint32_t since, uint32_t closing);
bool sketch_snapshot_write(const struct sketch *sketch, chunks_emit *emit, void *argument);
void sketch_snapshot_end(struct sketch *sketch);

/* From now on cells that change are noted (is_on), or no longer; those noted so far are forgotten. Too many are noted as
 * such: then the blocks tell what changed. sketch_set: sets a noted cell's count in a copy; false: it has no such
 * cell. */
void sketch_note(struct sketch *sketch, bool is_on);
static inline bool sketch_has_noted_all(const struct sketch *sketch)
{
    return sketch->cells_count < sketch->cells_max;
}
bool sketch_set(struct sketch *sketch, uint64_t cell, uint8_t count);

/* Replaces a block's counts, and the epoch of their last change (0: all counts are 0). */
void sketch_replace(struct sketch *sketch, const struct sketch_block *block, uint32_t epoch);
/* Puts a stored block back; false if the sketch has no block of that number. */
bool sketch_restore(struct sketch *sketch, const struct sketch_block *block);

#endif

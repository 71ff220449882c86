#include "learners/tables/sketch.h"

#include "core/base.h"
#include "core/mem.h"

#include <stdlib.h>

void sketch_init(struct sketch *sketch, size_t bytes, uint32_t shards, uint64_t buckets)
{
    leat_assert(shards > 0 && shards <= TABLE_SHARDS_MAX && (shards & (shards - 1)) == 0);
    size_t width = 1024;
    while (width * 2 * SKETCH_DEPTH * shards <= bytes)
        width *= 2;
    *sketch = (struct sketch){.counts = mem_calloc(SKETCH_DEPTH * (size_t)shards, width),
                              .width = width,
                              .shards = shards,
                              .buckets = buckets,
                              .epoch = 1};
    sketch->block_epochs = mem_calloc(sketch_blocks(sketch), sizeof(*sketch->block_epochs));
}

void sketch_free(struct sketch *sketch)
{
    sketch_snapshot_end(sketch);
    free(sketch->counts);
    free(sketch->block_epochs);
    free(sketch->cells);
    *sketch = (struct sketch){0};
}

size_t sketch_blocks(const struct sketch *sketch)
{
    return sketch->shards * SKETCH_DEPTH * sketch->width / SKETCH_BLOCK;
}

size_t sketch_bytes(const struct sketch *sketch)
{
    return sketch_blocks(sketch) * (SKETCH_BLOCK + sizeof(*sketch->block_epochs));
}

static void mark_changed(struct sketch *sketch, size_t block)
{
    if (sketch->snapshot != NULL)
        chunks_protect(sketch->snapshot, block);
    sketch->block_epochs[block] = sketch->epoch;
}

/* Call before a count changes. */
static void change(struct sketch *sketch, const uint8_t *count)
{
    size_t block = (size_t)(count - sketch->counts) / SKETCH_BLOCK;
    if (unlikely(sketch->block_epochs[block] != sketch->epoch))
        mark_changed(sketch, block);
    if (sketch->cells_count < sketch->cells_max)
        sketch->cells[sketch->cells_count++] = (uint32_t)(count - sketch->counts);
}

/* The counts of a hash's shard. */
static uint8_t *shard_counts(const struct sketch *sketch, uint64_t hash)
{
    return sketch->counts + shard_of(hash, sketch->shards, sketch->buckets) * SKETCH_DEPTH * sketch->width;
}

/* Double hashing: the cell in row d of the shard's counts is computed from the two halves of the hash. */
static uint8_t *place(const struct sketch *sketch, uint8_t *counts, uint64_t hash, unsigned d)
{
    uint32_t low = (uint32_t)hash;
    uint32_t step = (uint32_t)(hash >> 32) | 1;
    return counts + d * sketch->width + ((low + d * step) & (sketch->width - 1));
}

void sketch_cells(const struct sketch *sketch, uint64_t hash, const uint8_t *cells[SKETCH_DEPTH])
{
    uint8_t *counts = shard_counts(sketch, hash);
    for (unsigned d = 0; d < SKETCH_DEPTH; d++) {
        cells[d] = place(sketch, counts, hash, d);
        __builtin_prefetch(cells[d]);
    }
}

unsigned sketch_count(const struct sketch *sketch, uint64_t hash)
{
    uint8_t *counts = shard_counts(sketch, hash);
    unsigned lowest = SKETCH_COUNT_MAX;
    for (unsigned d = 0; d < SKETCH_DEPTH; d++)
        lowest = MIN(lowest, (unsigned)*place(sketch, counts, hash, d));
    return lowest;
}

unsigned sketch_add(struct sketch *sketch, uint64_t hash)
{
    unsigned lowest = sketch_count(sketch, hash);
    uint8_t *counts = shard_counts(sketch, hash);
    if (lowest == SKETCH_COUNT_MAX)
        return lowest;
    for (unsigned d = 0; d < SKETCH_DEPTH; d++) {
        uint8_t *count = place(sketch, counts, hash, d);
        if (*count == lowest) {
            change(sketch, count);
            *count = (uint8_t)(lowest + 1);
        }
    }
    return lowest + 1;
}

enum { PREFETCH_AHEAD = 16 };

static void prefetch(const struct sketch *sketch, const uint64_t *hashes, size_t i, size_t n)
{
    for (unsigned d = 0; d < SKETCH_DEPTH && i < n; d++)
        prefetch_line(place(sketch, shard_counts(sketch, hashes[i]), hashes[i], d));
}

void sketch_add_batch(struct sketch *sketch, const uint64_t *hashes, const uint32_t *counts, size_t n,
                      uint8_t *after)
{
    for (size_t i = 0; i < MIN(n, (size_t)PREFETCH_AHEAD); i++)
        prefetch(sketch, hashes, i, n);
    for (size_t i = 0; i < n; i++) {
        prefetch(sketch, hashes, i + PREFETCH_AHEAD, n);
        uint64_t sum = (uint64_t)sketch_count(sketch, hashes[i]) + counts[i];
        after[i] = (uint8_t)MIN(sum, (uint64_t)SKETCH_COUNT_MAX);
    }
    for (size_t i = 0; i < n; i++) {
        for (unsigned d = 0; d < SKETCH_DEPTH; d++) {
            uint8_t *count = place(sketch, shard_counts(sketch, hashes[i]), hashes[i], d);
            if (*count < after[i]) {
                change(sketch, count);
                *count = after[i];
            }
        }
    }
    for (size_t i = 0; i < n; i++)
        after[i] = (uint8_t)sketch_count(sketch, hashes[i]);
}

void sketch_halve(struct sketch *sketch)
{
    for (size_t block = 0; block < sketch_blocks(sketch); block++) {
        if (sketch->block_epochs[block] == 0)
            continue; /* all counts are zero */
        uint8_t *counts = sketch->counts + block * SKETCH_BLOCK;
        change(sketch, counts);
        sketch->cells_count = sketch->cells_max; /* more than may be noted */
        for (size_t i = 0; i < SKETCH_BLOCK; i++)
            counts[i] /= 2;
    }
}

double sketch_false_rate(const struct sketch *sketch)
{
    double sum = 0.0; /* over shards, which have the same share of keys */
    const uint8_t *counts = sketch->counts;
    for (uint32_t s = 0; s < sketch->shards; s++) {
        double rate = 1.0;
        for (size_t d = 0; d < SKETCH_DEPTH; d++) {
            size_t used = 0;
            for (size_t i = 0; i < sketch->width; i++)
                used += *counts++ > 0;
            rate *= (double)used / (double)sketch->width;
        }
        sum += rate;
    }
    return sum / sketch->shards;
}

static size_t copy_block(const void *owner, size_t number, unsigned char *out)
{
    const struct sketch *sketch = owner;
    if (sketch->block_epochs[number] <= sketch->since || sketch->block_epochs[number] > sketch->closing)
        return 0;
    struct sketch_block *block = (struct sketch_block *)(void *)out;
    block->number = number;
    memcpy(block->counts, sketch->counts + number * SKETCH_BLOCK, SKETCH_BLOCK);
    return 1;
}

void sketch_snapshot_begin(struct sketch *sketch, uint32_t since, uint32_t closing)
{
    if (sketch->counts == NULL)
        return;
    sketch->since = since;
    sketch->closing = closing;
    sketch->epoch = closing + 1;
    sketch->snapshot = chunks_begin(sketch_blocks(sketch), sizeof(struct sketch_block), copy_block, sketch);
}

bool sketch_snapshot_write(const struct sketch *sketch, chunks_emit *emit, void *argument)
{
    return sketch->counts == NULL || chunks_write(sketch->snapshot, emit, argument);
}

void sketch_snapshot_end(struct sketch *sketch)
{
    chunks_end(sketch->snapshot);
    sketch->snapshot = NULL;
}

enum {
    NOTED_SHARE = 32
}; /* of the cells one in so many may be noted: noted ones take a quarter of the blocks' bytes */

void sketch_note(struct sketch *sketch, bool is_on)
{
    size_t cells = sketch_blocks(sketch) * SKETCH_BLOCK;
    sketch->cells_count = 0;
    if (!is_on) {
        free(sketch->cells);
        sketch->cells = NULL;
        sketch->cells_max = 0;
    } else if (sketch->cells == NULL && sketch->counts != NULL && cells <= UINT32_MAX) {
        sketch->cells_max = cells / NOTED_SHARE;
        sketch->cells = mem_alloc(sketch->cells_max * sizeof(*sketch->cells));
    }
}

bool sketch_set(struct sketch *sketch, uint64_t cell, uint8_t count)
{
    if (sketch->counts == NULL || cell >= sketch_blocks(sketch) * SKETCH_BLOCK)
        return false;
    sketch->counts[cell] = count;
    sketch->block_epochs[cell / SKETCH_BLOCK] = 1; /* as in sketch_restore */
    return true;
}

void sketch_replace(struct sketch *sketch, const struct sketch_block *block, uint32_t epoch)
{
    mark_changed(sketch, block->number);
    memcpy(sketch->counts + block->number * SKETCH_BLOCK, block->counts, SKETCH_BLOCK);
    sketch->block_epochs[block->number] = epoch;
}

bool sketch_restore(struct sketch *sketch, const struct sketch_block *block)
{
    if (sketch->counts == NULL || block->number >= sketch_blocks(sketch))
        return false;
    memcpy(sketch->counts + block->number * SKETCH_BLOCK, block->counts, SKETCH_BLOCK);
    sketch->block_epochs[block->number] = 1; /* older than any epoch still to come */
    return true;
}

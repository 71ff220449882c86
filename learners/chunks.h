/*
 * Copy-on-write in chunks: how a snapshot's writer reads memory that its owner goes on changing. Each chunk
 * is claimed once: by the writer, which copies it and gives the copy out; or by the owner before it first
 * changes it, which puts the copy into a list that the writer gives out at its end. So the owner touches a
 * chunk only after it was copied, the writer only one that the owner has not touched: all is seen as it was
 * at the barrier. What a chunk is, and what of it belongs to the snapshot, its `copy` says.
 */
#ifndef LEARNERS_CHUNKS_H
#define LEARNERS_CHUNKS_H

#include <stdbool.h>
#include <stddef.h>

/* Copies what belongs to the snapshot of a chunk; returns how many items that is. `out` has room for the
 * chunk_bytes of chunks_begin. */
typedef size_t chunks_copy(const void *owner, size_t chunk, unsigned char *out);
/* false: the disk refused. */
typedef bool chunks_emit(void *argument, const void *items, size_t count);

struct chunks;

/* By the owner, at the barrier: one byte a chunk. `owner` must outlive it. */
struct chunks *chunks_begin(size_t count, size_t chunk_bytes, chunks_copy *copy, const void *owner);
/* By the owner, before it changes a chunk; those that did not exist at the barrier are its own. */
void chunks_protect(struct chunks *chunks, size_t chunk);
/* Any thread, once: gives out every chunk's items; false if emit said so. */
bool chunks_write(struct chunks *chunks, chunks_emit *emit, void *argument);
/* By the owner, when the writer is done. NULL is allowed. */
void chunks_end(struct chunks *chunks);

#endif

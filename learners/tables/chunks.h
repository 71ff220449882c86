/*
 * Copy-on-write in chunks: how a snapshot's writer reads memory that its owner goes on changing. Each chunk
 * is claimed once: by the writer, which copies it and emits the copy; or by the owner before its first
 * change, which puts the copy into a list that the writer emits later. So the owner changes a chunk only
 * after it was copied, and the writer reads only chunks that the owner has not changed: the snapshot shows
 * all chunks as at the barrier. The `copy` function defines what a chunk is and which of its items belong to
 * the snapshot.
 */
#ifndef LEAT_LEARNERS_TABLES_CHUNKS_H
#define LEAT_LEARNERS_TABLES_CHUNKS_H

#include <stdbool.h>
#include <stddef.h>

/* Copies the items of a chunk that belong to the snapshot; returns how many. `out` has room for the
 * chunk_bytes of chunks_begin. */
typedef size_t chunks_copy(const void *owner, size_t chunk, unsigned char *out);
/* Takes `count` items to store; false: the disk refused them. */
typedef bool chunks_emit(void *argument, const void *items, size_t count);

struct chunks;

/* By the owner, at the barrier; takes one byte a chunk. `owner` must outlive the snapshot. */
struct chunks *chunks_begin(size_t count, size_t chunk_bytes, chunks_copy *copy, const void *owner);
/* By the owner, before it changes a chunk. Chunks that did not exist at the barrier need no copy. */
void chunks_protect(struct chunks *chunks, size_t chunk);
/* Any thread, once: emits every chunk's items; false if emit returned false. */
bool chunks_write(struct chunks *chunks, chunks_emit *emit, void *argument);
/* By the owner, when the writer is done. chunks may be NULL. */
void chunks_end(struct chunks *chunks);

#endif

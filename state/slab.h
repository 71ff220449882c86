/* Inside state/: blocks of variable size for the values of one table, counted exactly. A block begins with
 * its length and the index of its chunk (KEYED_VALUE_HEADER bytes); sizes are rounded to classes, chunks hold
 * blocks of one class, an empty chunk goes back to the pages. A block whose class is a multiple of 64 bytes
 * lies on cache lines of its own. */
#ifndef LEAT_STATE_SLAB_H
#define LEAT_STATE_SLAB_H

#include "state/pages.h"
#include "state/state.h"

enum { SLAB_CLASSES = 36, SLAB_CLASS_BYTES_MAX = 16384 };

struct slab_chunk;

struct slab {
    struct pages *pages;        /* set before the first block is taken */
    struct slab_chunk **chunks; /* by index; NULL where it was given back */
    uint32_t count, capacity;
    uint32_t free_index; /* the lowest index that may be free */
    struct slab_chunk *partial[SLAB_CLASSES];
    size_t used_bytes; /* of blocks, rounded to their classes */
    uint64_t alone;    /* blocks that are in no chunk: slab_free does not know where they are */
};

/* A block for `bytes` of value; its length is set, the value is not. */
char *slab_take(struct slab *slab, uint32_t bytes);
void slab_give(struct slab *slab, char *block);
/* The value with a new length, moved if its class changes. Not zeroed. */
char *slab_resize(struct slab *slab, char *block, uint32_t bytes);
void slab_free(struct slab *slab);

static inline uint32_t slab_bytes(const char *block)
{
    uint32_t bytes;
    memcpy(&bytes, block, sizeof bytes);
    return bytes;
}

#endif

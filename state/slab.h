/* Inside state/: blocks of variable size for the values of one table, with an exact account of their memory.
 * A block begins with its length and the index of its chunk (KEYED_VALUE_HEADER bytes). Sizes are rounded up
 * to classes, chunks hold blocks of one class, and an empty chunk goes back to the pages. A block whose class
 * is a multiple of 64 bytes shares no cache line. */
#ifndef LEAT_STATE_SLAB_H
#define LEAT_STATE_SLAB_H

#include "state/pages.h"
#include "state/state.h"

enum { SLAB_CLASSES = 36, SLAB_CLASS_BYTES_MAX = 16384 };

struct slab_chunk;

struct slab {
    struct pages *pages;        /* set before the first block is taken */
    struct slab_chunk **chunks; /* by index; NULL: the chunk was given back */
    uint32_t count, capacity;
    uint32_t free_index;                      /* the lowest index that may be free */
    struct slab_chunk *partial[SLAB_CLASSES]; /* chunks with free blocks */
    size_t used_bytes;                        /* of blocks, rounded to their classes */
    uint64_t alone; /* number of blocks outside of chunks; give them back first: slab_free cannot find them */
};

/* Returns a block for a value of `bytes`; its length is set, its value is not. */
char *slab_take(struct slab *slab, uint32_t bytes);
void slab_give(struct slab *slab, char *block);
/* Changes a value's length. Returns its block, which moves if its class changes. New bytes are not set. */
char *slab_resize(struct slab *slab, char *block, uint32_t bytes);
void slab_free(struct slab *slab);

static inline uint32_t slab_bytes(const char *block)
{
    uint32_t bytes;
    memcpy(&bytes, block, sizeof(bytes));
    return bytes;
}

#endif

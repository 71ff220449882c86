#include "state/slab.h"

#include "core/mem.h"

#include <stdlib.h>

enum { CHUNK_BYTES = 64 << 10, CLASS_STEP = 16, CLASS_LINEAR_BYTES = 128, CHUNK_NONE = UINT32_MAX };

struct slab_chunk {
    struct slab_chunk *previous, *next; /* among the chunks of the class with free blocks */
    char *free_list;                    /* given-back blocks, linked through their value */
    uint32_t index;
    uint32_t class;
    uint32_t used;  /* blocks handed out */
    uint32_t fresh; /* first block that was never handed out */
    uint32_t blocks;
    bool is_partial;
    char *data;
};

/* Classes: 16, 32 ... 128 bytes, then four to each doubling. */
static uint32_t class_of(size_t bytes)
{
    if (bytes <= CLASS_LINEAR_BYTES)
        return (uint32_t)((bytes + CLASS_STEP - 1) / CLASS_STEP) - 1;
    uint32_t log = 63 - (uint32_t)__builtin_clzll(bytes - 1); /* 2^log < bytes <= 2^(log + 1) */
    return 8 + (log - 7) * 4 + (uint32_t)((bytes - 1 - ((size_t)1 << log)) >> (log - 2));
}

static uint32_t class_bytes(uint32_t class)
{
    if (class < 8)
        return (class + 1) * CLASS_STEP;
    uint32_t log = 7 + (class - 8) / 4;
    return (1U << log) + (((class - 8) % 4 + 1) << (log - 2));
}

/* Bytes that a block takes. Blocks outside of chunks are rounded, too, so that growing seldom moves them. */
static size_t room_of(size_t bytes)
{
    return class_bytes(class_of(bytes));
}

static uint32_t chunk_of(const char *block)
{
    uint32_t index;
    memcpy(&index, block + 4, sizeof(index));
    return index;
}

static void set_head(char *block, uint32_t bytes, uint32_t chunk)
{
    memcpy(block, &bytes, sizeof(bytes));
    memcpy(block + 4, &chunk, sizeof(chunk));
}

static void link_partial(struct slab *slab, struct slab_chunk *chunk)
{
    chunk->previous = NULL;
    chunk->next = slab->partial[chunk->class];
    if (chunk->next != NULL)
        chunk->next->previous = chunk;
    slab->partial[chunk->class] = chunk;
    chunk->is_partial = true;
}

static void unlink_partial(struct slab *slab, struct slab_chunk *chunk)
{
    if (chunk->previous != NULL)
        chunk->previous->next = chunk->next;
    else
        slab->partial[chunk->class] = chunk->next;
    if (chunk->next != NULL)
        chunk->next->previous = chunk->previous;
    chunk->is_partial = false;
}

static struct slab_chunk *new_chunk(struct slab *slab, uint32_t class)
{
    uint32_t index = slab->free_index;
    while (index < slab->count && slab->chunks[index] != NULL)
        index++;
    if (index == slab->capacity) {
        slab->capacity = MAX(slab->capacity * 2, 64);
        slab->chunks = mem_realloc(slab->chunks, slab->capacity * sizeof(*slab->chunks));
    }
    slab->count = MAX(slab->count, index + 1);
    slab->free_index = index + 1;
    struct slab_chunk *chunk = mem_alloc(sizeof(*chunk));
    *chunk = (struct slab_chunk){.index = index, .class = class, .blocks = CHUNK_BYTES / class_bytes(class)};
    chunk->data = pages_take(slab->pages, CHUNK_BYTES, false);
    slab->chunks[index] = chunk;
    link_partial(slab, chunk);
    return chunk;
}

char *slab_take(struct slab *slab, uint32_t bytes)
{
    size_t whole = (size_t)bytes + KEYED_VALUE_HEADER;
    if (whole > SLAB_CLASS_BYTES_MAX) {
        char *block = mem_alloc(room_of(whole));
        set_head(block, bytes, CHUNK_NONE);
        slab->used_bytes += room_of(whole);
        slab->alone++;
        return block;
    }
    uint32_t class = class_of(whole);
    struct slab_chunk *chunk = slab->partial[class];
    if (chunk == NULL)
        chunk = new_chunk(slab, class);
    char *block = chunk->free_list;
    if (block != NULL)
        memcpy(&chunk->free_list, block, sizeof(chunk->free_list));
    else
        block = chunk->data + (size_t)class_bytes(class) * chunk->fresh++;
    if (++chunk->used == chunk->blocks)
        unlink_partial(slab, chunk);
    slab->used_bytes += class_bytes(class);
    set_head(block, bytes, chunk->index);
    return block;
}

void slab_give(struct slab *slab, char *block)
{
    uint32_t index = chunk_of(block);
    if (index == CHUNK_NONE) {
        slab->used_bytes -= room_of((size_t)slab_bytes(block) + KEYED_VALUE_HEADER);
        slab->alone--;
        free(block);
        return;
    }
    struct slab_chunk *chunk = slab->chunks[index];
    leat_assert(chunk != NULL && chunk->used > 0);
    slab->used_bytes -= class_bytes(chunk->class);
    memcpy(block, &chunk->free_list, sizeof(chunk->free_list));
    chunk->free_list = block;
    if (!chunk->is_partial)
        link_partial(slab, chunk);
    bool is_only = chunk->previous == NULL && chunk->next == NULL;
    if (--chunk->used == 0 && !is_only) {
        unlink_partial(slab, chunk);
        slab->chunks[index] = NULL;
        slab->free_index = MIN(slab->free_index, index);
        pages_give(slab->pages, chunk->data, CHUNK_BYTES);
        free(chunk);
    }
}

char *slab_resize(struct slab *slab, char *block, uint32_t bytes)
{
    size_t whole = (size_t)bytes + KEYED_VALUE_HEADER;
    uint32_t index = chunk_of(block);
    if (class_of(whole) == class_of((size_t)slab_bytes(block) + KEYED_VALUE_HEADER)) {
        set_head(block, bytes, index);
        return block;
    }
    char *moved = slab_take(slab, bytes);
    memcpy(moved + KEYED_VALUE_HEADER, block + KEYED_VALUE_HEADER, MIN(bytes, slab_bytes(block)));
    slab_give(slab, block);
    return moved;
}

void slab_free(struct slab *slab)
{
    for (uint32_t i = 0; i < slab->count; i++) {
        if (slab->chunks[i] == NULL)
            continue;
        pages_give(slab->pages, slab->chunks[i]->data, CHUNK_BYTES);
        free(slab->chunks[i]);
    }
    free(slab->chunks);
    *slab = (struct slab){0};
}

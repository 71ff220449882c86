#include "core/arena.h"

#include "core/log_line.h"
#include "core/mem.h"
#include "core/refused.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef ARENA_IS_WATCHED
#include <sanitizer/asan_interface.h>
#define forbid(memory, bytes) ASAN_POISON_MEMORY_REGION(memory, bytes)
#define allow(memory, bytes)  ASAN_UNPOISON_MEMORY_REGION(memory, bytes)
#else
#define forbid(memory, bytes) ((void)(memory))
#define allow(memory, bytes)  ((void)(memory))
#endif

enum { ARENA_BLOCK_BYTES = 64 * 1024, ARENA_BLOCK_MAX = 4 * 1024 * 1024, ARENA_HEADER = 64 };

struct arena_block {
    struct arena_block *next;
    size_t size; /* payload bytes */
    size_t used;
};

_Static_assert(sizeof(struct arena_block) <= ARENA_HEADER, "the payload starts on a cache line");

static char *payload(struct arena_block *block)
{
    return (char *)block + ARENA_HEADER;
}

void leat_assert_failed(const char *condition, const char *file, int line, const char *function)
{
    char text[1024];
    int length = snprintf(text, sizeof(text),
                          "%s:%d: %s: assertion failed: %s\nThis is a bug in leat; please report it.\n", file,
                          line, function, condition);
    log_last(LOG_LEVEL_ERROR, (struct str){text, MIN((size_t)MAX(length, 0), sizeof(text) - 1)});
    abort();
}

int str_compare(struct str a, struct str b)
{
    size_t common = MIN(a.length, b.length);
    int order = common == 0 ? 0 : memcmp(a.data, b.data, common);
    if (order != 0)
        return order;
    return a.length < b.length ? -1 : a.length > b.length;
}

void arena_init(struct arena *arena, size_t block_bytes)
{
    *arena = (struct arena){.block_bytes = block_bytes};
}

struct arena_cleanup {
    struct arena_cleanup *next;
    void (*run)(void *argument);
    void *argument;
};

void arena_defer(struct arena *arena, void (*run)(void *argument), void *argument)
{
    struct arena_cleanup *cleanup = arena_new(arena, struct arena_cleanup);
    *cleanup = (struct arena_cleanup){arena->cleanups, run, argument};
    arena->cleanups = cleanup;
}

static void run_cleanups(struct arena *arena)
{
    for (struct arena_cleanup *cleanup = arena->cleanups; cleanup != NULL; cleanup = cleanup->next)
        cleanup->run(cleanup->argument);
    arena->cleanups = NULL;
}

void arena_free(struct arena *arena)
{
    run_cleanups(arena);
    struct arena_block *block = arena->first;
    while (block != NULL) {
        struct arena_block *next = block->next;
        allow(payload(block), block->size);
        free(block);
        block = next;
    }
    arena->first = arena->current = NULL;
    arena->used_bytes = 0;
}

void arena_reset(struct arena *arena)
{
    run_cleanups(arena);
    for (struct arena_block *block = arena->first; block != NULL; block = block->next) {
        block->used = 0;
        forbid(payload(block), block->size);
    }
    arena->current = arena->first;
    arena->used_bytes = 0;
}

size_t arena_kept_bytes(const struct arena *arena)
{
    size_t bytes = 0;
    for (const struct arena_block *block = arena->first; block != NULL; block = block->next)
        bytes += ARENA_HEADER + block->size;
    return bytes;
}

/* Moves on to the next spare block that holds `bytes`, else inserts a new block after the current one. */
static struct arena_block *next_block(struct arena *arena, size_t bytes)
{
    struct arena_block *after = arena->current;
    while (after != NULL && after->next != NULL) {
        after = arena->current = after->next;
        if (after->size >= bytes)
            return after;
    }
    if (arena->block_bytes == 0)
        arena->block_bytes = ARENA_BLOCK_BYTES;
    size_t size = MAX(arena->block_bytes, (bytes + 63) / 64 * 64);
    struct arena_block *block = mem_aligned(64, ARENA_HEADER + (size + 63) / 64 * 64);
    if (block == NULL)
        refused_memory(size);
    *block = (struct arena_block){.size = size};
    forbid(payload(block), size);
    if (after == NULL)
        arena->first = block;
    else
        after->next = block;
    arena->current = block;
    if (arena->block_bytes < ARENA_BLOCK_MAX)
        arena->block_bytes *= 2;
    return block;
}

void *arena_alloc(struct arena *arena, size_t bytes)
{
    leat_assert(bytes <= PTRDIFF_MAX / 2);
    size_t alignment = bytes >= 64 ? 64 : 16;
    struct arena_block *block = arena->current;
    if (block != NULL)
        block->used = (block->used + alignment - 1) & ~(alignment - 1);
    if (block == NULL || block->used > block->size || block->size - block->used < bytes + ARENA_GAP)
        block = next_block(arena, bytes + ARENA_GAP);
    char *memory = payload(block) + block->used;
    allow(memory, bytes);
    block->used += bytes + ARENA_GAP;
    arena->used_bytes += bytes;
    return memory;
}

void *arena_calloc(struct arena *arena, size_t count, size_t size)
{
    size_t bytes;
    if (!size_multiply(count, size, &bytes))
        refused_memory(SIZE_MAX);
    return memset(arena_alloc(arena, bytes), 0, bytes);
}

void *arena_copy(struct arena *arena, const void *data, size_t bytes)
{
    void *copy = arena_alloc(arena, bytes);
    return bytes == 0 ? copy : memcpy(copy, data, bytes);
}

char *arena_strndup(struct arena *arena, const char *data, size_t length)
{
    char *copy = arena_alloc(arena, length + 1);
    if (length > 0)
        memcpy(copy, data, length);
    copy[length] = '\0';
    return copy;
}

char *arena_strdup(struct arena *arena, const char *terminated)
{
    return arena_strndup(arena, terminated, strlen(terminated));
}

struct str arena_str(struct arena *arena, struct str text)
{
    return (struct str){arena_strndup(arena, text.data, text.length), text.length};
}

char *arena_printf(struct arena *arena, const char *format, ...)
{
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    leat_assert(length >= 0);
    char *text = arena_alloc(arena, (size_t)length + 1);
    vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

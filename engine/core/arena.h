/* Arena: memory that is freed all at once. Blocks of growing size; single allocations cannot be freed.
 *
 * Two uses: long-lived (job file, plan) and scratch (reset for each batch; keeps its blocks). An arena
 * belongs to one thread at a time. Allocation never returns NULL: where the system refuses memory the
 * process ends with a message, because nothing in leat can go on without it (memory budgets are enforced
 * above this layer). */
#ifndef LEAT_CORE_ARENA_H
#define LEAT_CORE_ARENA_H

#include "core/base.h"

/* Under AddressSanitizer allocations are kept apart and memory not handed out is poisoned,
 * to detect overruns. */
#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define ARENA_IS_WATCHED
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define ARENA_IS_WATCHED
#endif
#ifdef ARENA_IS_WATCHED
enum { ARENA_GAP = 16 };
#else
enum { ARENA_GAP = 0 };
#endif

struct arena_block;
struct arena_cleanup;

struct arena {
    struct arena_block *first;   /* oldest block */
    struct arena_block *current; /* block that serves allocations; later blocks are empty spares kept
                                    by a reset */
    size_t block_bytes;          /* size of the next ordinary block */
    size_t used_bytes;           /* bytes handed out since the last reset, for budgets and tests */
    struct arena_cleanup *cleanups;
};

/* block_bytes: size of the first block; 0: 64 KiB. A zeroed struct arena may be used without arena_init. */
void arena_init(struct arena *arena, size_t block_bytes);
/* Frees all blocks. The arena may be used again. */
void arena_free(struct arena *arena);
/* Everything handed out becomes invalid; the blocks are kept for reuse. */
void arena_reset(struct arena *arena);
/* Bytes of all blocks, used or not. */
size_t arena_kept_bytes(const struct arena *arena);
/* Registers run(argument), which is called when the arena is reset or freed, the last registered first: to
 * free memory that a library allocated elsewhere. */
void arena_defer(struct arena *arena, void (*run)(void *argument), void *argument);

/* Memory that is not initialized, aligned to 64 bytes if bytes >= 64, else to 16. bytes = 0 gives a valid
 * pointer. */
void *arena_alloc(struct arena *arena, size_t bytes);
/* Zeroed. */
void *arena_calloc(struct arena *arena, size_t count, size_t size);
void *arena_copy(struct arena *arena, const void *data, size_t bytes);
/* NUL-terminated copies. */
char *arena_strndup(struct arena *arena, const char *data, size_t length);
char *arena_strdup(struct arena *arena, const char *terminated);
struct str arena_str(struct arena *arena, struct str text);
char *arena_printf(struct arena *arena, const char *format, ...) LEAT_PRINTF(2, 3);

#define arena_new(arena, type)          ((type *)arena_calloc((arena), 1, sizeof(type)))
#define arena_array(arena, type, count) ((type *)arena_calloc((arena), (count), sizeof(type)))

#endif

/* Memory that is never refused: as malloc and its relatives, but where the system has none the process ends
 * (refused.h says how and why), so that no caller checks the result. The caller frees the result with free().
 * Code that can go on without memory calls refused_ask. Any thread. */
#ifndef LEAT_CORE_MEM_H
#define LEAT_CORE_MEM_H

#include "core/base.h"

/* A result is never NULL, also for 0 bytes. */
void *mem_alloc(size_t bytes);
void *mem_calloc(size_t count, size_t size);       /* zeroed */
void *mem_realloc(void *memory, size_t bytes);     /* memory: NULL, or what malloc or a relative gave */
void *mem_aligned(size_t alignment, size_t bytes); /* alignment: a power of two */
/* Copies with a NUL behind them. */
char *mem_str(struct str text);
char *mem_strdup(const char *terminated);
char *mem_printf(const char *format, ...) LEAT_PRINTF(1, 2);

#endif

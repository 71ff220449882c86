#include "core/mem.h"

#include "core/refused.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void *mem_alloc(size_t bytes)
{
    void *memory = malloc(MAX(bytes, 1));
    if (unlikely(memory == NULL))
        refused_memory(bytes);
    return memory;
}

void *mem_calloc(size_t count, size_t size)
{
    void *memory = calloc(MAX(count, 1), MAX(size, 1));
    if (unlikely(memory == NULL)) {
        size_t bytes;
        refused_memory(size_multiply(count, size, &bytes) ? bytes : SIZE_MAX);
    }
    return memory;
}

void *mem_realloc(void *memory, size_t bytes)
{
    void *moved = realloc(memory, MAX(bytes, 1));
    if (unlikely(moved == NULL))
        refused_memory(bytes);
    return moved;
}

void *mem_aligned(size_t alignment, size_t bytes)
{
    void *memory = NULL;
    if (unlikely(posix_memalign(&memory, MAX(alignment, sizeof(void *)), MAX(bytes, 1)) != 0))
        refused_memory(bytes);
    return memory;
}

char *mem_str(struct str text)
{
    char *copy = mem_alloc(text.length + 1);
    if (text.length > 0)
        memcpy(copy, text.data, text.length);
    copy[text.length] = '\0';
    return copy;
}

char *mem_strdup(const char *terminated)
{
    return mem_str(str_from(terminated));
}

char *mem_printf(const char *format, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    if (unlikely(length < 0))
        refused_memory(0);
    return text;
}

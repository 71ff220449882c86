#include "learners/train/memory.h"

#include "core/base.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { ALIGN = 256, HUGE_PAGE = 1 << 21 };

void *train_take(struct train_memory *memory, enum train_part part, size_t count, size_t size)
{
    size_t bytes;
    leat_assert(!__builtin_mul_overflow(count, size, &bytes) && bytes <= SIZE_MAX / 4);
    bytes = (bytes + ALIGN) / ALIGN * ALIGN; /* at least one byte more: vectors may be read past the end */
    unsigned char *at = memory->base != NULL ? memory->base + memory->used : NULL;
    memory->used += bytes;
    memory->parts[part] += bytes;
    leat_assert(memory->base == NULL || memory->used <= memory->size);
    return at;
}

/* Host memory in huge pages. A matrix is written field by field, one event after the other: with small pages
 * each write would soon touch another page and wait for its address translation. */
static void *huge_new(size_t bytes)
{
    if (bytes < HUGE_PAGE)
        return aligned_alloc(ALIGN, bytes);
    bytes = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    void *memory = aligned_alloc(HUGE_PAGE, bytes);
    /* a kernel without huge pages refuses, which does no harm */
    if (memory)
        (void)madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
}

bool train_memory_make(struct train_memory *memory, struct gpu_error *error)
{
    const struct train_device *d = memory->device;
    memory->size = MAX(memory->used, (size_t)ALIGN);
    if (d->api != NULL) {
        memory->base = d->api->alloc(d->gpu, memory->size, error);
    } else {
        memory->base = huge_new(memory->size);
        leat_assert(memory->base);
    }
    memory->used = 0;
    memset(memory->parts, 0, sizeof(memory->parts));
    if (memory->base != NULL)
        train_fill(d, memory->base, 0, memory->size);
    return memory->base != NULL;
}

void train_memory_free(struct train_memory *memory)
{
    if (memory->base == NULL)
        return;
    if (memory->device->api != NULL)
        memory->device->api->free(memory->device->gpu, memory->base);
    else
        free(memory->base);
    memory->base = NULL;
}

void train_copy(const struct train_device *d, void *to, const void *from, size_t bytes)
{
    if (bytes == 0)
        return;
    if (d->api != NULL)
        d->api->copy(d->stream, to, from, bytes);
    else
        memcpy(to, from, bytes);
}

void train_fill(const struct train_device *d, void *to, uint8_t byte, size_t bytes)
{
    if (bytes == 0)
        return;
    if (d->api != NULL)
        d->api->fill(d->stream, to, byte, bytes);
    else
        memset(to, byte, bytes);
}

bool train_wait(const struct train_device *d, struct gpu_error *error)
{
    return d->api == NULL || d->api->wait(d->stream, error);
}

void *train_host_new(const struct train_device *d, size_t bytes, struct gpu_error *error)
{
    bytes = (bytes + ALIGN) / ALIGN * ALIGN;
    void *memory = d->api ? d->api->alloc_pinned(d->gpu, bytes, error) : aligned_alloc(ALIGN, bytes);
    leat_assert(memory != NULL || d->api != NULL);
    if (memory)
        memset(memory, 0, bytes);
    return memory;
}

void train_host_free(const struct train_device *d, void *memory)
{
    if (d->api)
        d->api->free_pinned(d->gpu, memory);
    else
        free(memory);
}

#include "state/pages.h"

#include "core/mem.h"
#include "core/refused.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALONE_BYTES = PAGES_REGION_BYTES / 2 };

static uint32_t pages_in(size_t bytes)
{
    return (uint32_t)((bytes + PAGES_BYTES - 1) / PAGES_BYTES);
}

static char *map(size_t bytes)
{
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        refused_memory(bytes);
    return memory;
}

/* Only advice: a kernel without huge pages refuses it, and nothing changes. */
static void ask_for_huge_pages(char *memory, size_t bytes)
{
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
}

/* Maps a region at an address that is a multiple of its size. */
static char *map_region(bool is_huge)
{
    char *memory = map(2 * (size_t)PAGES_REGION_BYTES);
    size_t before = -(uintptr_t)memory & (PAGES_REGION_BYTES - 1);
    if (before > 0)
        munmap(memory, before);
    if (before < PAGES_REGION_BYTES)
        munmap(memory + before + PAGES_REGION_BYTES, PAGES_REGION_BYTES - before);
    if (is_huge)
        ask_for_huge_pages(memory + before, PAGES_REGION_BYTES);
    return memory + before;
}

static struct pages_region *add_region(struct pages *pages)
{
    if (pages->count == pages->capacity) {
        pages->capacity = MAX(pages->capacity * 2, 16);
        pages->regions = mem_realloc(pages->regions, pages->capacity * sizeof(*pages->regions));
    }
    struct pages_region region = {.free = PAGES_REGION, .longest = PAGES_REGION};
    region.base = map_region(pages->count > 0);
    uint32_t at = pages->count++;
    for (; at > 0 && pages->regions[at - 1].base > region.base; at--)
        pages->regions[at] = pages->regions[at - 1];
    pages->regions[at] = region;
    pages->empty++;
    return &pages->regions[at];
}

static bool is_used(const struct pages_region *region, uint32_t page)
{
    return (region->used[page / 64] >> (page % 64) & 1) != 0;
}

static void mark(struct pages_region *region, uint32_t first, uint32_t count, bool is_taken)
{
    for (uint32_t page = first; page < first + count; page++) {
        leat_assert(is_used(region, page) != is_taken);
        region->used[page / 64] ^= UINT64_C(1) << (page % 64);
    }
}

/* The first page of the first run of `count` free pages. PAGES_REGION: the region has none; `longest` is then
 * set to the longest run it has. */
static uint32_t find_run(struct pages_region *region, uint32_t count)
{
    uint32_t longest = 0, length = 0;
    for (uint32_t page = 0; page < PAGES_REGION; page++) {
        if (length == 0 && region->used[page / 64] == UINT64_MAX) {
            page |= 63;
            continue;
        }
        length = is_used(region, page) ? 0 : length + 1;
        longest = MAX(longest, length);
        if (length == count)
            return page + 1 - count;
    }
    region->longest = longest;
    return PAGES_REGION;
}

static char *take_run(struct pages *pages, struct pages_region *region, uint32_t first, uint32_t count,
                      bool is_zeroed)
{
    char *span = region->base + (size_t)first * PAGES_BYTES;
    mark(region, first, count, true);
    pages->empty -= region->free == PAGES_REGION;
    region->free -= count;
    if (is_zeroed && first < region->touched)
        memset(span, 0, (size_t)(MIN(first + count, region->touched) - first) * PAGES_BYTES);
    region->touched = MAX(region->touched, first + count);
    return span;
}

void *pages_take(struct pages *pages, size_t bytes, bool is_zeroed)
{
    leat_assert(bytes > 0);
    if (bytes > ALONE_BYTES) {
        char *memory = map(bytes);
        ask_for_huge_pages(memory, bytes);
        return memory;
    }
    uint32_t count = pages_in(bytes);
    for (uint32_t i = 0; i < pages->count; i++) {
        struct pages_region *region = &pages->regions[i];
        if (region->longest < count)
            continue;
        uint32_t first = find_run(region, count);
        if (first < PAGES_REGION)
            return take_run(pages, region, first, count, is_zeroed);
    }
    return take_run(pages, add_region(pages), 0, count, is_zeroed);
}

void pages_give(struct pages *pages, void *span, size_t bytes)
{
    if (bytes > ALONE_BYTES) {
        munmap(span, bytes);
        return;
    }
    char *base = (char *)span - ((uintptr_t)span & (PAGES_REGION_BYTES - 1));
    uint32_t low = 0, high = pages->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (pages->regions[middle].base < base)
            low = middle + 1;
        else
            high = middle;
    }
    struct pages_region *region = &pages->regions[low];
    leat_assert(low < pages->count && region->base == base);
    uint32_t count = pages_in(bytes);
    mark(region, (uint32_t)(((char *)span - base) / PAGES_BYTES), count, false);
    region->free += count;
    region->longest = region->free;
    if (region->free < PAGES_REGION || ++pages->empty == 1)
        return;
    munmap(base, PAGES_REGION_BYTES);
    pages->empty--;
    pages->count--;
    memmove(region, region + 1, (pages->count - low) * sizeof(*region));
}

void pages_free(struct pages *pages)
{
    for (uint32_t i = 0; i < pages->count; i++)
        munmap(pages->regions[i].base, PAGES_REGION_BYTES);
    free(pages->regions);
    *pages = (struct pages){0};
}

/* Inside state/: memory for the slots and values of one table, in spans of whole pages.
 *
 * A look-up of a random key waits for memory, and with pages of 4 KiB also for the address translation. So
 * spans are cut from regions of 2 MiB; from the second region on, the kernel is asked to back each by one
 * huge page (the first is not: a small table takes no more memory than it touches). The lowest region with
 * room is used first; all empty regions but one go back to the system. Spans larger than half a region are
 * mapped alone. Not safe for threads. */
#ifndef LEAT_STATE_PAGES_H
#define LEAT_STATE_PAGES_H

#include "core/base.h"

enum { PAGES_BYTES = 4096, PAGES_REGION_BYTES = 2 << 20, PAGES_REGION = PAGES_REGION_BYTES / PAGES_BYTES };

struct pages_region {
    char *base;
    uint64_t used[PAGES_REGION / 64]; /* one bit for each page */
    uint32_t free;                    /* pages */
    uint32_t longest;                 /* no run of free pages is longer than this */
    uint32_t touched;                 /* pages from this one on were never handed out: they are zero */
};

struct pages {
    struct pages_region *regions; /* by rising base */
    uint32_t count, capacity;
    uint32_t empty; /* regions without a used page: 0 or 1 */
};

/* A span of `bytes` > 0, rounded up to pages and aligned to a page. is_zeroed: its bytes are zero. */
void *pages_take(struct pages *pages, size_t bytes, bool is_zeroed);
/* Gives a span back. bytes: as in pages_take. */
void pages_give(struct pages *pages, void *span, size_t bytes);
/* Frees all regions with the spans in them. Spans that were mapped alone must have been given back. */
void pages_free(struct pages *pages);

#endif

/* Inside state/: memory for the slots and values of one table, in spans of whole pages.
 *
 * A look-up of a random key waits for memory, and with pages of 4 KiB for their translation as well. So spans
 * are cut from regions of 2 MiB that the kernel is asked to back by one huge page each, from the second
 * region on: a small table takes no more than it touches. The lowest region with room is taken first; an
 * empty one goes back to the system, but for one. Spans beyond half a region are mapped alone. Not safe for
 * threads. */
#ifndef LEAT_STATE_PAGES_H
#define LEAT_STATE_PAGES_H

#include "core/base.h"

enum { PAGES_BYTES = 4096, PAGES_REGION_BYTES = 2 << 20, PAGES_REGION = PAGES_REGION_BYTES / PAGES_BYTES };

struct pages_region {
    char *base;
    uint64_t used[PAGES_REGION / 64]; /* a bit a page */
    uint32_t free;
    uint32_t longest; /* no run of free pages is longer */
    uint32_t touched; /* pages from here on were never handed out: they are zero */
};

struct pages {
    struct pages_region *regions; /* by rising base */
    uint32_t count, capacity;
    uint32_t empty; /* regions without a used page: 0 or 1 */
};

/* bytes > 0, rounded up to pages; aligned to a page. Zeroed on demand: slabs need not be. */
void *pages_take(struct pages *pages, size_t bytes, bool is_zeroed);
/* With the size it was taken with. */
void pages_give(struct pages *pages, void *span, size_t bytes);
/* All spans within regions go with them. */
void pages_free(struct pages *pages);

#endif

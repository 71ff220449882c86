/* Positions as a checkpoint has them (checkpoint_info.sources): words of 64 bits, and texts as their length
 * and bytes. positions.c saves and restores them; positions_look.c reads them for others. */
#ifndef LEAT_RUN_POSITIONS_H
#define LEAT_RUN_POSITIONS_H

#include "run/internal.h"

/* 7: of sources with offsets the next offset to read. Up to 6: that of a batch, and a count of its records.
 */
enum { POSITIONS_VERSION = 7, SAVED_TEXT_MAX = 1 << 21 };

/* What is left of them; bytes from outside. */
struct saved {
    struct str left;
    bool is_short;
};

struct saved_partition {
    uint64_t source;
    struct str name, mark, keys;
    bool has_offsets;
    int64_t marked;
    struct source_position resume;
    uint32_t resume_rows, since_cut;
    int64_t order_max, event_max;
    bool has_event, has_own_order, is_idle;
    uint64_t records;
};

/* The next one; zero, empty, and saved->is_short, where there is none. */
uint64_t saved_take(struct saved *saved);
struct str saved_take_text(struct saved *saved);
struct saved_partition saved_take_partition(struct saved *saved);

#endif

/* Panes of one group: the partials of its aggregates for each slice of event time, as the value of a keyed
 * entry.
 *
 *     head | prefix | panes by rising index | runs | nodes | heap
 *
 * A pane is its index (8 bytes) and the partials (aggregates.bytes); a variable partial is a reference into
 * the heap. What several panes give together is kept, too, so that a reader of a long window merges few
 * pieces instead of many panes. It is made when a later pane has left them behind, and made anew when one of
 * them changes.
 *
 * Fixed partials: a run is those of 2^shift panes, merged in order. A window's value is the merge, in order,
 * of its first panes up to a run's edge, its whole runs, and its last panes.
 *
 * Variable partials, which cost more to merge: panes are the leaves of a tree. A block of level n is 4^n
 * panes, at multiples of that; its value is the merge, in order, of the values of its four blocks of level n
 * - 1, and a pane is a block of level 0. A window's value is the merge, in order, of the largest blocks that
 * it consists of. So a reader merges at most six pieces a level. A node is a block's value.
 *
 * Both values are functions of the panes' content alone, whether a run or a node is there or not; windows of
 * up to PANES_MERGED_ABOVE panes have none of them: theirs is the merge of the panes in order. */
#ifndef LEAT_OPERATORS_PANES_H
#define LEAT_OPERATORS_PANES_H

#include "operators/aggregate/aggregate.h"
#include "state/state.h"

enum {
    PANES_BYTES_MAX = 6 << 20,  /* of the panes of an entry */
    PANES_ENTRY_MAX = 12 << 20, /* with what was merged of them */
    PANES_MERGED_ABOVE = 32,
    PANES_LEVEL_BITS = 2,
    PANES_LEVELS_MAX = 12
};

struct panes {
    const struct aggregates *aggregates;
    struct keyed_table *table;
    uint32_t shift;  /* of runs; 0: there are none */
    uint32_t levels; /* of nodes; 0: there are none */
    uint32_t stride, run_stride, node_stride;
    struct byte_buffer scratch, partial;
    struct byte_buffer *blocks; /* of PANES_LEVELS_MAX + 1: being merged, by level */
};

/* A merged value being built. */
struct panes_sum {
    char *fixed, *run;
    struct byte_buffer *variable; /* by aggregate */
};

/* window_panes: of the longest window. */
void panes_init(struct panes *panes, const struct aggregates *aggregates, struct keyed_table *table,
                uint64_t window_panes);
void panes_free(struct panes *panes);

struct panes_row {
    int64_t pane;
    int64_t first_alive; /* panes below may be dropped */
    int64_t expire_us;   /* when the pane is not needed any more */
    const struct column *arguments;
    const struct column
        *own; /* for aggregates without an argument that ask for one of the operator; or NULL */
    uint32_t row;
    int64_t time;
    struct str prefix; /* of a new entry */
    bool is_new;       /* set: the pane was not there */
};
/* Adds the row to its pane. false: the entry is at PANES_BYTES_MAX with panes that are alive; nothing
 * changed. Inside a bracket. */
bool panes_update(struct panes *panes, struct keyed_slot *slot, struct panes_row *row);

/* --- Panes whose indices move: sessions, all time. No nodes (window_panes: 1). Inside a bracket. --- */

/* Merges pane i + 1 into pane i; false: the entry would be beyond PANES_BYTES_MAX with the row's update that
 * is to follow; nothing changed. */
bool panes_join(struct panes *panes, struct keyed_slot *slot, uint32_t i, const struct panes_row *row);
/* Gives pane i another index, between those beside it. */
void panes_move(struct panes *panes, struct keyed_slot *slot, uint32_t i, int64_t index);
/* Merges the first `count` panes, in order, into the last one of them; false: the entry would be beyond
 * PANES_BYTES_MAX meanwhile; nothing changed. */
bool panes_fold(struct panes *panes, struct keyed_slot *slot, uint32_t count);
void panes_remove(struct panes *panes, struct keyed_slot *slot, uint32_t i);
/* Drops the panes with an index below `first`. */
void panes_drop(struct panes *panes, struct keyed_slot *slot, int64_t first);
/* Appends an entry with pane i alone. */
void panes_extract(struct panes *panes, const struct keyed_slot *slot, uint32_t i, struct byte_buffer *out);

void panes_sum_init(const struct panes *panes, struct panes_sum *sum);
void panes_sum_free(const struct panes *panes, struct panes_sum *sum);
void panes_sum_clear(const struct panes *panes, struct panes_sum *sum);
/* Adds the panes first..last of the entry. Where all aggregates are additive the sum of neighbouring ranges
 * is that of the whole; elsewhere it must be clear before. */
void panes_read(const struct panes *panes, const struct keyed_slot *slot, int64_t first, int64_t last,
                struct panes_sum *sum);
/* Sets the row of each aggregate's column. time: the reader's. */
void panes_finish(const struct panes *panes, const struct panes_sum *sum, int64_t time,
                  struct column_builder *const *builders, uint32_t row);

/* Panes of the entry, and the index of one of them, rising. */
uint32_t panes_count(const struct keyed_slot *slot);
int64_t panes_index(const struct panes *panes, const struct keyed_slot *slot, uint32_t i);
/* How many panes have an index below that one. */
uint32_t panes_below(const struct panes *panes, const struct keyed_slot *slot, int64_t index);
/* The fixed partials of pane i; to write to only after a change in the same bracket. */
char *panes_partials(const struct panes *panes, const struct keyed_slot *slot, uint32_t i);
struct str panes_prefix(const struct keyed_slot *slot);

struct describe;
/* When a pane begins and ends; partials: its fixed ones. */
typedef void panes_edges(const void *argument, int64_t pane, char *partials, int64_t *start, int64_t *end);
/* `leat state get`: the entry's panes from `first` on as a list: start, end and the aggregates' values;
 * aggregates without a name are left out. */
void panes_describe(const struct panes *panes, struct panes_sum *sum, const struct keyed_slot *slot,
                    uint32_t first, panes_edges *edges, const void *argument,
                    struct operator_context *context, struct describe *out);

/* Brings the entry's value near, some rows ahead of its use. */
static inline void panes_prefetch(const struct keyed_slot *slot)
{
    enum { LINE_BYTES = 64, LINES_MAX = 6 };
    uint32_t bytes;
    const char *data = keyed_read(slot, &bytes);
    for (uint32_t at = LINE_BYTES - KEYED_VALUE_HEADER; at < bytes && at < LINES_MAX * LINE_BYTES;
         at += LINE_BYTES)
        prefetch_line(data + at);
}

/* Which pane a time is in; floor, also before 1970. */
static inline int64_t pane_of(int64_t time, int64_t width)
{
    return time / width - (time % width < 0);
}

/* The end of a pane plus `more`, clamped. */
static inline int64_t pane_end(int64_t pane, int64_t width, int64_t more)
{
    int64_t end;
    if (__builtin_mul_overflow(pane + 1, width, &end))
        return pane < 0 ? TIME_MIN : TIME_MAX;
    return time_add(end, more);
}

#endif

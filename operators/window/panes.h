/* Panes of one group: the partials of its aggregates for each slice of event time, as the value of a keyed
 * entry.
 *
 *     head | prefix | panes by rising index | runs | nodes | heap
 *
 * A pane is its index (8 bytes) and the partials (aggregates.bytes); a variable partial is a reference into
 * the heap. The merged value of several panes is stored, too, so that a reader of a long window merges few
 * pieces instead of many panes. It is made once a later pane exists, and again whenever one of its panes
 * changes.
 *
 * Fixed partials: a run holds the merge, in order, of 2^shift panes. A window's value is the merge, in order,
 * of its first panes up to a run's edge, its whole runs, and its last panes.
 *
 * Variable partials, which cost more to merge: panes are the leaves of a tree. A block of level n is 4^n
 * panes, at multiples of that; its value is the merge, in order, of the values of its four blocks of level
 * n - 1, and a pane is a block of level 0. A window's value is the merge, in order, of the largest blocks
 * that it consists of. So a reader merges at most six pieces a level. A node stores a block's value.
 *
 * Both values depend on the panes' content alone, whether a run or node is stored or not. Windows of up to
 * PANES_MERGED_ABOVE panes have no runs or nodes: their value is the merge of the panes in order. */
#ifndef LEAT_OPERATORS_WINDOW_PANES_H
#define LEAT_OPERATORS_WINDOW_PANES_H

#include "operators/aggregate/aggregate.h"
#include "state/state.h"

enum {
    PANES_BYTES_MAX = 6 << 20,  /* bytes of an entry's panes */
    PANES_ENTRY_MAX = 12 << 20, /* bytes of an entry with its runs and nodes */
    PANES_MERGED_ABOVE = 32,
    PANES_LEVEL_BITS = 2,
    PANES_LEVELS_MAX = 12
};

struct panes {
    const struct aggregates *aggregates;
    struct keyed_table *table;
    uint32_t shift;                           /* a run has 2^shift panes; 0: there are no runs */
    uint32_t levels;                          /* of nodes; 0: there are no nodes */
    uint32_t stride, run_stride, node_stride; /* bytes of a pane, of a run, of a node */
    struct byte_buffer scratch, partial;
    struct byte_buffer *blocks; /* PANES_LEVELS_MAX + 1: the block being merged at each level */
};

/* A window's merged value, being built. run: room for a run that is not stored. */
struct panes_sum {
    char *fixed, *run;
    struct byte_buffer *variable; /* by aggregate */
};

/* window_panes: panes of the longest window. `aggregates` and `table` must outlive `panes`. */
void panes_init(struct panes *panes, const struct aggregates *aggregates, struct keyed_table *table,
                uint64_t window_panes);
void panes_free(struct panes *panes);

struct panes_row {
    int64_t pane;
    int64_t first_alive; /* panes with a lower index may be dropped */
    int64_t expire_us;   /* the event time after which the pane is not needed, microseconds */
    const struct column *arguments;
    /* The operator's own column, for aggregates that have no argument in the job; NULL: none of them needs
     * it. */
    const struct column *own;
    uint32_t row;      /* physical */
    int64_t time;      /* of the row, microseconds */
    struct str prefix; /* of the entry, if it is new */
    bool is_new;       /* set by panes_update: the pane did not exist before */
};
/* Adds the row to its pane, inside a bracket (state/state.h). Returns false, with nothing changed, if the row
 * would make the panes that are alive longer than PANES_BYTES_MAX. */
bool panes_update(struct panes *panes, struct keyed_slot *slot, struct panes_row *row);

/* --- Panes whose indices move: sessions, all time. No nodes (window_panes: 1). Inside a bracket. --- */

/* Merges pane i + 1 into pane i. Returns false, with no pane changed, if the entry would exceed
 * PANES_BYTES_MAX after the merge and the update by `row`, which follows. */
bool panes_join(struct panes *panes, struct keyed_slot *slot, uint32_t i, const struct panes_row *row);
/* Gives pane i another index, which must lie between its neighbours' indices. */
void panes_move(struct panes *panes, struct keyed_slot *slot, uint32_t i, int64_t index);
/* Merges the first `count` panes, in order, into the last one of them. Returns false, with nothing changed,
 * if the entry would exceed PANES_BYTES_MAX meanwhile. */
bool panes_fold(struct panes *panes, struct keyed_slot *slot, uint32_t count);
void panes_remove(struct panes *panes, struct keyed_slot *slot, uint32_t i);
/* Drops the panes with an index below `first`. */
void panes_drop(struct panes *panes, struct keyed_slot *slot, int64_t first);
/* Appends the bytes of an entry with the same prefix that has pane i alone. */
void panes_extract(struct panes *panes, const struct keyed_slot *slot, uint32_t i, struct byte_buffer *out);

void panes_sum_init(const struct panes *panes, struct panes_sum *sum);
void panes_sum_free(const struct panes *panes, struct panes_sum *sum);
void panes_sum_clear(const struct panes *panes, struct panes_sum *sum);
/* Merges the panes with index first..last into `sum`. If all aggregates are additive, `sum` may already hold
 * neighbouring panes; otherwise it must have been cleared. */
void panes_read(const struct panes *panes, const struct keyed_slot *slot, int64_t first, int64_t last,
                struct panes_sum *sum);
/* Writes each aggregate's value to `row` of its column. time: event time of the reading row, microseconds. */
void panes_finish(const struct panes *panes, const struct panes_sum *sum, int64_t time,
                  struct column_builder *const *builders, uint32_t row);

/* The number of panes of the entry, and the index of the i-th; indices rise. */
uint32_t panes_count(const struct keyed_slot *slot);
int64_t panes_index(const struct panes *panes, const struct keyed_slot *slot, uint32_t i);
/* The number of panes with an index below `index`. */
uint32_t panes_below(const struct panes *panes, const struct keyed_slot *slot, int64_t index);
/* The fixed partials of pane i. Write to them only after a change of the entry in the same bracket. */
char *panes_partials(const struct panes *panes, const struct keyed_slot *slot, uint32_t i);
/* The prefix of an entry that has a value; it lies in the entry. */
struct str panes_prefix(const struct keyed_slot *slot);

struct describe;
/* Sets the start and end of a pane, in microseconds. partials: the pane's fixed partials. */
typedef void panes_edges(const void *argument, int64_t pane, char *partials, int64_t *start, int64_t *end);
/* For `leat state get`: writes the entry's panes from the first-th on as a list of start, end and the
 * aggregates' values; aggregates without a name are left out. */
void panes_describe(const struct panes *panes, struct panes_sum *sum, const struct keyed_slot *slot,
                    uint32_t first, panes_edges *edges, const void *argument,
                    struct operator_context *context, struct describe *out);

/* Prefetches the entry's value, some rows ahead of its use. */
static inline void panes_prefetch(const struct keyed_slot *slot)
{
    enum { LINE_BYTES = 64, LINES_MAX = 6 };
    uint32_t bytes;
    const char *data = keyed_read(slot, &bytes);
    for (uint32_t at = LINE_BYTES - KEYED_VALUE_HEADER; at < bytes && at < LINES_MAX * LINE_BYTES;
         at += LINE_BYTES)
        prefetch_line(data + at);
}

/* The pane that a time is in; rounds down, also before 1970. */
static inline int64_t pane_of(int64_t time, int64_t width)
{
    return time / width - (time % width < 0);
}

/* The end of a pane, plus `more` microseconds, clamped. */
static inline int64_t pane_end(int64_t pane, int64_t width, int64_t more)
{
    int64_t end;
    if (__builtin_mul_overflow(pane + 1, width, &end))
        return pane < 0 ? TIME_MIN : TIME_MAX;
    return time_add(end, more);
}

#endif

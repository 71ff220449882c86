/* Aggregates of a group over all time, for `feature ... over forever`.
 *
 * An entry is panes (panes.h) that never end. A slice of `every` that the watermark has passed is closed:
 * nothing tells it from those before it any more, and they become one pane. So an entry is that one, and the
 * slices that are still open: as many as the watermark is behind, however long the stream is.
 *
 * A row of slice p reads the slices up to its own, or, where the watermark has passed that, all that are
 * closed: what it reads is a function of the rows and the watermark before it, not of when panes become one.
 * A row that comes late is added to a closed one. */
#ifndef LEAT_OPERATORS_ALL_TIME_H
#define LEAT_OPERATORS_ALL_TIME_H

#include "operators/panes.h"

/* What the panes of a group up to one give together, so that the next reader goes on from there: a shorter
 * way to the same value, nothing else. */
struct all_time_prefix {
    bool is_there;
    struct key key;
    int64_t last;
    struct panes_sum sum;
};
enum { ALL_TIME_PREFIXES = 32 };

struct all_time {
    struct keyed_table *table; /* NULL: not open */
    struct panes panes;
    struct panes_sum sum;
    int64_t every_us;
    struct all_time_prefix prefixes[ALL_TIME_PREFIXES]; /* each for the keys whose hashes fall on it */
};

/* Whether what a group keeps has a bound; false after a diagnostic. */
bool all_time_check(const struct operator_bind *bind, const struct aggregates *aggregates);

/* kind: of the table, for its snapshots. */
void all_time_open(struct all_time *all, const struct operator_context *context,
                   const struct aggregates *aggregates, int64_t every_us, char kind, size_t budget_bytes);
/* Tolerates zeroed state. */
void all_time_close(struct all_time *all);

/* Inside a bracket of all->table. false: the entry is full, the row was not added. */
bool all_time_update(struct all_time *all, struct keyed_slot *slot, int64_t watermark,
                     const struct column *arguments, const struct batch *batch, uint32_t row);
/* Sets the row of each aggregate's column. time: the reader's. */
void all_time_read(struct all_time *all, const struct keyed_slot *slot, int64_t watermark, int64_t time,
                   struct column_builder *const *builders, uint32_t row);
/* `leat state get`: what is closed, from the beginning of time on, and the open slices. */
void all_time_describe(struct all_time *all, const struct keyed_slot *slot, struct operator_context *context,
                       struct describe *out);

#endif

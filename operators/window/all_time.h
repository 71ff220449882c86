/* Aggregates of a group over all time, for `feature ... over forever`.
 *
 * A group's entry is a list of panes (panes.h), one for each slice of `every`, and it never expires. A slice
 * is closed once the watermark has passed its end. No reader needs closed slices apart from each other, so
 * they are merged into one pane from time to time. An entry is thus that pane, closed slices that are not
 * merged yet, and the open slices: its size depends on how far the watermark is behind, not on the length of
 * the stream.
 *
 * A row of slice p reads the slices up to p and all closed slices. So the value it reads depends on the rows
 * and the watermark before it, not on when closed panes were merged. A late row is added to a closed pane. */
#ifndef LEAT_OPERATORS_WINDOW_ALL_TIME_H
#define LEAT_OPERATORS_WINDOW_ALL_TIME_H

#include "operators/window/panes.h"

/* An entry of the cache: the merged panes of group `key` up to pane `last`. The group's next reader starts
 * from it and adds only later panes. The cache changes no result. */
struct all_time_prefix {
    bool is_there;
    struct key key;
    uint32_t
        stay; /* of the key's group (core/placement.h): when it comes back in a later one, its entry has changed */
    int64_t last;
    struct panes_sum sum;
};
enum { ALL_TIME_PREFIXES = 32 };

struct all_time {
    struct keyed_table *table; /* NULL: not open */
    struct panes panes;
    struct panes_sum sum;
    int64_t every_us;
    const struct group_set *groups;                     /* of the instance */
    struct all_time_prefix prefixes[ALL_TIME_PREFIXES]; /* a group uses index key_hash % ALL_TIME_PREFIXES */
};

/* Refuses aggregates whose state over all time has no bound (distinct_exact); false after a diagnostic. */
bool all_time_check(const struct operator_bind *bind, const struct aggregates *aggregates);

/* all->table must be set before (the operator's state owns it); all other members are made here. groups: of the instance
 * (operator_context.groups). */
void all_time_open(struct all_time *all, const struct aggregates *aggregates, int64_t every_us,
                   const struct group_set *groups);
/* Allowed on a zeroed struct. */
void all_time_close(struct all_time *all);

/* Adds the row to its group's entry. slot: of all->table, between keyed_begin and keyed_end. False: the entry
 * is full and the row was not added. */
bool all_time_update(struct all_time *all, struct keyed_slot *slot, int64_t watermark,
                     const struct column *arguments, const struct batch *batch, uint32_t row);
/* Sets `row` of each aggregate's builder to the group's value. time: event time of the reading row. */
void all_time_read(struct all_time *all, const struct keyed_slot *slot, int64_t watermark, int64_t time,
                   struct column_builder *const *builders, uint32_t row);
/* Empties the cache: call it after an entry was changed in another way than by all_time_update. */
void all_time_forget(struct all_time *all);
/* `leat state get`: lists the entry's panes; a closed pane begins at TIME_MIN, an open one with its slice. */
void all_time_describe(struct all_time *all, const struct keyed_slot *slot, struct operator_context *context,
                       struct describe *out);

#endif

/* Inside operators/window: shared by feature.c and feature_bind.c. */
#ifndef LEAT_OPERATORS_WINDOW_FEATURE_H
#define LEAT_OPERATORS_WINDOW_FEATURE_H

#include "operators/limits.h"
#include "operators/merged.h"
#include "operators/window/all_time.h"
#include "operators/window/panes.h"

struct feature {
    struct name_ref from;
    struct columns by;
    struct durations over;
    int64_t every_us;
    int including;
    struct assignments values;
    /* Set by feature_bind. */
    int *keys, *update_keys; /* key columns of the reading stream, and of STREAM (`from`) */
    struct aggregates aggregates;
    int64_t window_panes[FEATURE_WINDOWS_MAX]; /* by window: over / every */
    uint32_t by_length[FEATURE_WINDOWS_MAX];   /* windows by rising `over`; `forever` is last */
    uint32_t ending;                           /* number of windows other than `forever` */
    int64_t longest_us;                        /* the longest window other than `forever` */
    /* Owned by the lane. */
    struct keyed_table *table; /* panes by group; NULL: `forever` is the only window */
    struct panes panes;
    struct panes_sum sum;     /* scratch: the window being read */
    struct all_time all_time; /* used with `forever` */
};

/* Whether one of the windows is `forever`. */
static inline bool has_all_time(const struct feature *feature)
{
    return feature->ending < feature->over.count;
}

/* feature_bind.c: resolves windows, keys and aggregates, and makes the output's columns. */
bool feature_bind(struct operator_bind *bind);

#endif

/* Whether nearly all that comes to a step ends as dead letters: that is said while it happens, and at the
 * end. A run is no failure by it, and its exit code is what it would have been. Control thread. */
#ifndef LEAT_CONTROL_DEAD_WATCH_H
#define LEAT_CONTROL_DEAD_WATCH_H

#include "run/run.h"

enum { DEAD_WATCH_BYTES = 512 };

struct dead_watch_node {
    uint64_t begin_in, begin_dead; /* when this life began */
    uint64_t seen_in, seen_dead;   /* when it was judged last */
    bool is_bad;
    char text[DEAD_WATCH_BYTES]; /* while it is bad: what is said of it */
};

struct dead_watch {
    struct dead_watch_node nodes[PLAN_NODES_MAX];
};

/* stats: before the first record of this life. */
void dead_watch_begin(struct dead_watch *watch, const struct run_stats *stats);
/* A look at the run. Says what has become bad since the last one: true; it stands in the text of `is_new`
 * nodes, which has room for all. */
bool dead_watch_look(struct dead_watch *watch, const struct run_stats *stats, bool is_new[PLAN_NODES_MAX]);
/* The run has ended: what is bad by the counts of this life as a whole, or was at last. */
void dead_watch_end(struct dead_watch *watch, const struct run_stats *stats);

#endif

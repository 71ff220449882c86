/* Watches whether nearly all rows that come to a step end as dead letters, and makes warnings of it, while
 * the run goes on and at its end. The run does not fail because of dead letters. Control thread. */
#ifndef LEAT_CONTROL_DEAD_WATCH_H
#define LEAT_CONTROL_DEAD_WATCH_H

#include "run/run.h"

enum { DEAD_WATCH_BYTES = 512 };

struct dead_watch_node {
    uint64_t begin_in, begin_dead; /* counts when this life began */
    uint64_t seen_in, seen_dead;   /* counts when dead_watch_look looked last */
    bool is_bad;
    char text[DEAD_WATCH_BYTES]; /* while is_bad: the warning */
};

struct dead_watch {
    struct dead_watch_node nodes[PLAN_NODES_MAX];
};

/* stats: before the first record of this life. */
void dead_watch_begin(struct dead_watch *watch, const struct run_stats *stats);
/* Judges all nodes. Returns true if a node has become bad since the last look; is_new[node] marks these
 * nodes, and their texts have the warnings. */
bool dead_watch_look(struct dead_watch *watch, const struct run_stats *stats, bool is_new[PLAN_NODES_MAX]);
/* At the end of the run: judges the counts of this life as a whole; a node that was bad at the last look
 * stays bad. */
void dead_watch_end(struct dead_watch *watch, const struct run_stats *stats);

#endif

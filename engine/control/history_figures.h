/* Which figures a run's history has, and how they come into it: each second a row of them, made of the figures of the run
 * and of its nodes. A source, an operator, a learner, a learner that chooses items, a sink and the run itself have
 * eight figures each, of their own meaning (the tables of history_figures.c). */
#ifndef LEAT_CONTROL_HISTORY_FIGURES_H
#define LEAT_CONTROL_HISTORY_FIGURES_H

#include "control/bottleneck.h"
#include "control/history.h"

struct history_figure {
    const char *name, *unit;
    enum history_roll roll;
};
/* The figures of a node; of the run: NULL. Any thread. */
const struct history_figure *history_figure(const struct plan_node *node, uint32_t index);
extern const char *const history_roll_names[]; /* "mean", "last", "max" */

struct history_watch;

/* Opens the history, whose file lies in that folder ("": it has none); says on stderr what is amiss. NULL: there is no memory.
 * plan: must outlive the watch. Control thread. */
struct history_watch *history_watch_new(const struct plan *plan, const char *folder);
void history_watch_free(struct history_watch *watch); /* NULL is allowed */
/* Adds a row, if a second has begun since the last one. recent: of the last seconds, NULL: not known. Control thread. */
void history_watch_look(struct history_watch *watch, const struct run_stats *stats,
                        const struct bottleneck_found *recent);
/* For history_read, by any thread: column 0 is the run's, 1 + place a node's. */
struct history *history_watch_rings(struct history_watch *watch);

#endif

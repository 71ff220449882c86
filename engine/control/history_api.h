/* GET /api/v1/history: a node's figures, or the run's, over time, as JSON.
 *
 * The answer has the columns `ticks` (they rise, by more than 1 where a row stands for several; resolution_s seconds each),
 * `times` (the wall clock's at the end of each, in milliseconds; they fall where the clock was set back), and the `values` of
 * eight `figures`: null where a figure is not known. A gap is one entry of nulls. At most HISTORY_POINTS_MAX entries, about
 * 1 MB. What is wrong with the query (history_query.h) is said with status 400, which nodes there are with 404. */
#ifndef LEAT_CONTROL_HISTORY_API_H
#define LEAT_CONTROL_HISTORY_API_H

#include "control/history_figures.h"
#include "net/net.h"

/* Answers; any thread. watch NULL: 503, there is no history. */
void history_serve(struct history_watch *watch, const struct plan *plan, struct net_exchange *exchange);

#endif

/* GET /api/v1/history: a node's figures, or the run's, over time, as JSON.
 *
 *   node=PART       plan_node.part, percent-encoded where needed; without it: the run
 *   span=1h         1h (the default), 12h or 30d
 *   from=MS, to=MS  Unix time in milliseconds: what the ring of that span has of [from, to), instead of its last span
 *
 * The answer has the columns `ticks` (they rise, by more than 1 where a row stands for several seconds; resolution_s each), `times` (the wall clock's at the end of each,
 * in milliseconds; they fall where the clock was set back), and the `values` of eight `figures`: null where a figure is not
 * known. A gap is one entry of nulls. At most HISTORY_POINTS_MAX entries, about 1 MB. Parameters are strict: an unknown
 * one, one given twice, and one that is malformed are refused (400); so is an unknown node (404). Any thread. */
#ifndef LEAT_CONTROL_HISTORY_API_H
#define LEAT_CONTROL_HISTORY_API_H

#include "control/history_figures.h"
#include "net/net.h"

enum { HISTORY_NODE_BYTES_MAX = 512 };

struct history_query {
    char node[HISTORY_NODE_BYTES_MAX + 1]; /* "": the run */
    struct history_ask ask;                /* without the column */
};

/* What is wrong with the query, in words for the client; NULL: nothing. */
const char *history_query_parse(struct str query, struct history_query *parsed);
/* Answers. watch NULL: 503, there is no history. */
void history_serve(struct history_watch *watch, const struct plan *plan, struct net_exchange *exchange);

#endif

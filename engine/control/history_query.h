/* The query of GET /api/v1/history, the bytes behind the `?`.
 *
 *   node=PART       plan_node.part, percent-encoded where needed; without it: the run
 *   span=1h         1h (the default), 12h or 30d
 *   from=MS, to=MS  Unix time in milliseconds: what the ring of that span has of [from, to), instead of its last span
 *
 * Strict: an unknown parameter, one given twice, and one that is malformed are refused. Any thread. */
#ifndef LEAT_CONTROL_HISTORY_QUERY_H
#define LEAT_CONTROL_HISTORY_QUERY_H

#include "control/history.h"

enum { HISTORY_NODE_BYTES_MAX = 512 };

struct history_query {
    char node[HISTORY_NODE_BYTES_MAX + 1]; /* "": the run */
    struct history_ask ask;                /* without the column */
};

/* What is wrong with the query, in words for the client; NULL: nothing. */
const char *history_query_parse(struct str query, struct history_query *parsed);

#endif

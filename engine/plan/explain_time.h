/* What `leat explain --time` says, as text and as a picture: how far each node's watermark stays behind the
 * newest event, and because of which nodes. Private to this folder. */
#ifndef LEAT_PLAN_EXPLAIN_TIME_H
#define LEAT_PLAN_EXPLAIN_TIME_H

#include "plan/explain.h"

/* What is known of how far a watermark is behind; the later in this list, the less is known. */
enum behind_tag {
    BEHIND_NONE,    /* the node has no event time */
    BEHIND_EXACTLY, /* by behind_us, once events have come for a while */
    BEHIND_AT_MOST, /* at most by behind_us: the slowest key decides */
    BEHIND_AS_SAID, /* rows of a source carry the watermark: behind_us counts from the newest such row */
    BEHIND_ARRIVAL, /* the watermark is the arrival clock: it waits for no event */
    BEHIND_END,     /* the node gives its rows when the input has ended */
};

struct time_row {
    const struct plan_node *node;
    enum behind_tag tag;
    int64_t input_us;    /* how far the slowest input's watermark is behind, in microseconds */
    int64_t behind_us;   /* how far the node's own watermark is behind */
    int64_t lateness_us; /* allowed lateness: rows further behind than input_us plus this are late */
    uint32_t slowest;    /* place of the node that is the slowest input; UINT32_MAX: a source */
    bool has_slower;     /* another input is less far behind */
    const char *why;     /* what the node does about time; "": nothing */
};

/* One row for each node of the plan, in the plan's order. */
struct time_row *explain_times(const struct plan *plan, struct arena *arena);
/* "5s", "up to 10m", "as its rows say", "by arrival". */
const char *explain_behind(const struct time_row *row, struct arena *arena);

#endif

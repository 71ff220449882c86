/* What keeps a run from going faster: where the time of its lanes went lately, and the node, or the wait, that took most
 * of it. It looks for the cause: a lane that is busy while others wait for it, not one that waits. The share of a node is
 * that of its fullest lane, because a mean over lanes hides a lane that is full. Control thread. */
#ifndef LEAT_CONTROL_BOTTLENECK_H
#define LEAT_CONTROL_BOTTLENECK_H

#include "run/run.h"

enum { BOTTLENECK_BYTES = 256 };

struct bottleneck_found {
    double shares[RUN_LANE_TIMES]; /* of the time of all lanes together */
    double node_shares
        [PLAN_NODES_MAX]; /* by place: of the fullest lane; of a node that any lane runs, of all lanes */
    int32_t node;         /* place of the node that is the cause; -1: none is */
    char text[BOTTLENECK_BYTES]; /* the cause, in one sentence without a full stop; "": nothing is slow */
};

struct bottleneck;
/* When the run starts. run: the caller's, used until bottleneck_free. */
struct bottleneck *bottleneck_new(const struct plan *plan, const struct run *run);
void bottleneck_free(struct bottleneck *b); /* NULL is allowed */
/* Takes figures, at most once a second; stats: fresh ones. Call now and then. */
void bottleneck_look(struct bottleneck *b, const struct run_stats *stats);
/* Of the last seconds. False: the run has not gone on for a second yet. */
bool bottleneck_recent(const struct bottleneck *b, struct bottleneck_found *found);
/* The text, if there is one, and "lanes: 61 % process, 5 % decode, ...", shares of their time. */
void bottleneck_describe(const struct bottleneck_found *found, struct byte_buffer *out);
/* Of this life as a whole; stats: its last ones. */
void bottleneck_whole(struct bottleneck *b, const struct run_stats *stats, struct bottleneck_found *found);

#endif

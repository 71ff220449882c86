/* A worker of a cluster leaves in order. */
#ifndef LEAT_CLI_RUN_LEAVE_H
#define LEAT_CLI_RUN_LEAVE_H

#include "cli/run_life.h"
#include "cluster/worker.h"

struct run_leave {
    bool is_interrupted; /* by Ctrl-C or SIGTERM, else by `leat cluster drain` */
    bool has_ended;      /* its own part has, with the last checkpoint as the head */
    int64_t within_us;   /* for how long it waits for the others */
};

/* This worker leaves in order: the round comes to a planned end, and nobody need do its work again. Call again and again, first with
 * *since_us 0. Returns whether within_us is over, and it leaves at once. Control thread. */
bool run_leave_in_order(struct worker *worker, struct run_life *life, const struct run_leave *how,
                        int64_t *since_us);
/* This worker's part of the round has ended, with the last checkpoint as the head: tells the others. is_for_all: where the job was to come
 * no further (--until), workers that wait for a place are to end, too: they would wait for those that have ended. Control thread. */
void run_leave_at_end(struct worker *worker, struct run_life *life, bool is_for_all);

#endif

/* Follows a job that runs in another process: reads its delta log (run/publish) and brings nodes that were restored from a
 * checkpoint up to it, micro-batch by micro-batch. One thread. */
#ifndef LEAT_RUN_FOLLOW_H
#define LEAT_RUN_FOLLOW_H

#include "plan/plan.h"

enum { FOLLOW_COPIES_MAX = 64, FOLLOW_WHY_BYTES = 200 };

struct follow_ask {
    const struct plan *plan;
    const char *directory; /* of the checkpoints */
    uint32_t generation;   /* of the checkpoint */
    uint64_t next;         /* the first micro-batch behind the checkpoint */
    struct batch_pool *pool;
    /* The context of a node in one of the copies of the nodes that are kept, each restored from that checkpoint; NULL:
     * the copy does not have the node. */
    uint32_t copies;
    struct operator_context *(*context)(void *argument, uint32_t copy, uint32_t node);
    void *argument;
};

enum follow_state {
    FOLLOW_APART, /* nobody publishes, or not from the checkpoint on yet: the nodes are as the checkpoint has them */
    FOLLOW_LIVE, /* the nodes are brought up */
    /* It cannot go on: what it needs next is not there, or the process that publishes has ended. The nodes stay where they
     * are; a newer checkpoint has to be restored. follow_why says why. */
    FOLLOW_LOST,
    FOLLOW_BROKEN, /* FOLLOW_LOST, and the nodes may not be used any more */
};

struct follow_figures {
    uint64_t next; /* all nodes have the rows of the micro-batches below this */
    uint64_t cut;  /* learners are as they were behind this micro-batch, or later; 0: as in the checkpoint */
    int64_t seen_us; /* wall clock: all that the job did before this moment is there; 0: nothing yet */
    uint64_t entries, rows, cuts, bytes; /* applied so far */
    const int64_t *sources; /* [sources of the plan + 1] watermarks; TIME_MIN where none came yet */
};

struct follow;

/* Copies the ask; what it points to must outlive the result. Never NULL. */
struct follow *follow_new(const struct follow_ask *ask);
void follow_free(struct follow *follow); /* NULL is allowed */
/* Reads and applies what is there, for about budget_us. *is_more: there is more to read now. */
enum follow_state follow_step(struct follow *follow, int64_t budget_us, bool *is_more);
struct follow_figures follow_figures(const struct follow *follow);
/* What keeps it from going on, in words; "" if nothing does. */
const char *follow_why(const struct follow *follow);
/* Whether a process publishes, or has published, in the checkpoint's life. */
bool follow_has_log(const struct follow *follow);
/* Whether a checkpoint of the job that is taken from now on could be followed, where this one cannot. */
bool follow_wants_checkpoint(const struct follow *follow);

#endif

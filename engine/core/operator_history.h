/* For operators that read external data beside their input (a table file that is replaced while the
 * job runs): what they need to know to use the same version of the data in every life of a run, and
 * in a replay. */
#ifndef LEAT_CORE_OPERATOR_HISTORY_H
#define LEAT_CORE_OPERATOR_HISTORY_H

#include "core/operator.h"

struct operator_history {
    const char *directory; /* the operator's own, beside the run's checkpoints; NULL: the run
                              has no checkpoints */
    const char *replayed;  /* the same directory of the run whose order log is replayed; NULL: no replay */
    bool is_live;          /* some source never ends */
    bool will_restore;     /* `restore` follows `open` */
    /* `restore` does not follow: the run resumes from a checkpoint that does not contain the operator. */
    bool is_added;
    bool is_traced; /* `leat trace`: nothing may be written */
    uint32_t life;  /* number of this life (generation) of the run; part of the names of temporary
                       files in `directory` */
    uint64_t first; /* first micro-batch of this life; 0 before `restore` */
    uint64_t until; /* micro-batches below this are executed again, exactly as before; 0: none */
    uint64_t ahead; /* add this to a micro-batch number of this run to get the number in the
                       replayed order log */
};

/* Call in open: fills `history`; its texts live as long as the run. */
void operator_history(const struct operator_context *context, struct operator_history *history);
/* Call in restore: sets history->first, until and ahead. */
void operator_history_micro_batches(const struct operator_context *context, struct operator_history *history);
/* First micro-batch that a restore from any checkpoint of the run may execute again; 0: not known. Any
 * thread, until close. */
uint64_t operator_history_oldest(const struct operator_context *context);
/* Call before each change in `directory` that other processes can see. Returns 0: go ahead; ESTALE: another
 * process has taken over, the operator must change nothing more there, and the run reports why; another
 * errno: the check itself failed for now. Any thread, until close. */
int operator_check(const struct operator_context *context);
/* Ends the run with this diagnostic; the texts are copied. Call only in process and snapshot. */
void operator_fail(const struct operator_context *context, enum diag_code code, struct span span,
                   const char *what, const char *hint);

#endif

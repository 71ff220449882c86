/* For operators that read something of the world beside their input (a table that is replaced while the job
 * runs): what they must know to use the same of it in every life of a run, and in a replay. */
#ifndef LEAT_CORE_OPERATOR_HISTORY_H
#define LEAT_CORE_OPERATOR_HISTORY_H

#include "core/operator.h"

struct operator_history {
    const char *directory; /* the operator's own, beside the run's checkpoints; NULL: it has no checkpoints */
    const char *obeyed;    /* that of the run whose order log is obeyed; NULL: none is */
    bool is_live;          /* a source goes on for ever */
    bool will_restore;     /* after open comes restore */
    bool is_added;  /* it does not: the checkpoint that the run goes on from does not have the operator */
    bool is_traced; /* nothing may be written */
    uint32_t life;  /* of the run: part of the names of temporary files in `directory` */
    uint64_t first; /* the number that this life begins with: in restore, 0 before */
    uint64_t until; /* numbers below are executed again, as they were then; 0: none */
    uint64_t ahead; /* what must be added to a number here to get that of the order log */
};

/* In open; texts live as long as the run. */
void operator_history(const struct operator_context *context, struct operator_history *history);
/* In restore: sets first, until and ahead. */
void operator_history_numbers(const struct operator_context *context, struct operator_history *history);
/* No checkpoint of the run goes back to a number before this one; 0: not known. Any thread, until close. */
uint64_t operator_history_oldest(const struct operator_context *context);
/* Before each step in `directory` that other processes can see: 0: this process may. ESTALE: another one has
 * taken over; the operator does nothing more there, and the run says why. Another errno: that cannot be told
 * now. Any thread, until close. */
int operator_check(const struct operator_context *context);
/* The run ends, and says why. In process and snapshot. */
void operator_fail(const struct operator_context *context, enum diag_code code, struct span span,
                   const char *what, const char *hint);

#endif

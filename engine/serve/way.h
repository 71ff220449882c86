/* The way of requests through a job (plan_serve): rows of a source go through the operators' `read` and become
 * answers, and change nothing.
 *
 * The operators' state comes from a checkpoint (way_open), or from the lanes of a run that stands still
 * (way_attach). One thread uses a way. */
#ifndef LEAT_SERVE_WAY_H
#define LEAT_SERVE_WAY_H

#include "plan/plan.h"
#include "state/checkpoint.h"

struct way;

/* Opens the operators of the way and restores them. directory: of the checkpoint, for versions of lookup
 * tables. All arguments must outlive the way. NULL after diagnostics. */
struct way *way_open(const struct plan *plan, const struct plan_serve *serve, struct checkpoint *checkpoint,
                     const char *directory, struct diag_list *diags);

/* The context of a node's only instance, between two micro-batches. */
typedef const struct operator_context *way_context(void *argument, uint32_t place);
/* A way through operators that are open: `live` says where they are. */
struct way *way_attach(const struct plan *plan, const struct plan_serve *serve, way_context *live,
                       void *argument, struct batch_pool *pool);
void way_close(struct way *way); /* NULL is allowed */

/* For followers, of a way from a checkpoint: the first micro-batch behind it; the context of a node, NULL: it is no step
 * of the way; and the watermark of the requests' source from now on. */
uint64_t way_micro_batch(const struct way *way);
struct operator_context *way_context_of(struct way *way, uint32_t node);
void way_set_watermark(struct way *way, int64_t watermark);

struct batch_pool *way_pool(const struct way *way);
/* Of a way from a checkpoint: the watermark of the requests' source; older rows come too late. */
int64_t way_watermark(const struct way *way);
/* Of a way from a checkpoint: whether the job's input had ended, and with it all windows. */
bool way_has_ended(const struct way *way);
enum way_status { WAY_NOT_ASKED, /* the row is not selected */ WAY_ANSWERED, WAY_FILTERED, WAY_FAILED };

/* What became of one request. */
struct way_result {
    enum way_status status;
    const struct batch *batch;    /* WAY_ANSWERED: of the serve's answers (plan_answer_schema) */
    uint32_t row;                 /* physical */
    const struct plan_node *node; /* WAY_FILTERED, WAY_FAILED: the step that left the row out */
    const char *reason;           /* WAY_FAILED */
};

/* Answers the selected rows of a batch of requests, whose event times are set. results: [requests->rows], by
 * physical row; valid until the next call. The caller keeps its reference. */
const struct way_result *way_run(struct way *way, struct batch *requests);
/* The same for rows that have come as far as the step of that index (plan_serve.steps). */
const struct way_result *way_run_from(struct way *way, uint32_t step, struct batch *rows);
/* Whether all that was read can be trusted: false after a diagnostic, if the state store failed. */
LEAT_CHECKED bool way_is_well(const struct way *way);

#endif

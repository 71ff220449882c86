/* Reads the contents of a checkpoint without running its job: for `leat model`, `leat state` and `leat
 * checkpoint`. Control thread. All functions return false after diagnostics. */
#ifndef LEAT_RUN_INSPECT_H
#define LEAT_RUN_INSPECT_H

#include "core/describe.h"
#include "plan/plan.h"
#include "state/checkpoint.h"

/* Reads the job that the checkpoint was taken of, into the arena. *text: the job file's text. *settings: the
 * values of --set, one NAME=VALUE a line. */
LEAT_CHECKED bool model_job(struct checkpoint *checkpoint, struct arena *arena, struct str *text,
                            struct str *settings, struct diag_list *diags);
/* Restores one learner of the plan and shows its model to the visitor. A learner without a model is skipped.
 * Returns false also if the visitor fails. */
LEAT_CHECKED bool model_visit(const struct plan *plan, const struct plan_node *learner,
                              struct checkpoint *checkpoint, struct model_visitor *visitor,
                              struct diag_list *diags);

/*
 * The state of a checkpoint, from which nodes are restored to be read. One thread.
 *   - inspection_open: NULL after a diagnostic. The plan is that of the checkpoint's job; plan, checkpoint and
 *     diags must outlive the inspection.
 *   - inspection_restore: opens the node, and restores what the checkpoint has of it. The caller sets lanes,
 *     groups, reader and history of *context, and zeroes all else. Call inspection_end even if it failed.
 *   - inspection_is_well: false after a diagnostic: the database failed, and what was read is wrong.
 */
struct inspection;
struct inspection *inspection_open(const struct plan *plan, struct checkpoint *checkpoint,
                                   struct diag_list *diags);
LEAT_CHECKED bool inspection_restore(struct inspection *inspection, const struct plan_node *node,
                                     struct operator_context *context);
void inspection_end(const struct plan_node *node, struct operator_context *context);
/* Finds the id under which the node's state is saved; false after E0702: the checkpoint has no such part. */
LEAT_CHECKED bool inspection_id(const struct inspection *inspection, const struct plan_node *node,
                                uint16_t *id);
LEAT_CHECKED bool inspection_is_well(const struct inspection *inspection);
/* The watermark of a source after the checkpoint's last micro-batch, microseconds; the number of the next one. */
int64_t inspection_watermark(const struct inspection *inspection, const struct plan_node *source);
uint64_t inspection_micro_batch(const struct inspection *inspection);
/* inspection_is_final: whether the run had finished: then all windows were closed, and their state is gone.
 * inspection_has_ended: whether all sources had ended, if only for operators that go on (operator_kind.wants_more). */
bool inspection_is_final(const struct inspection *inspection);
bool inspection_has_ended(const struct inspection *inspection);
struct batch_pool *inspection_pool(const struct inspection *inspection);
void inspection_close(struct inspection *inspection); /* NULL is allowed */

/* One operator or learner of the checkpoint, restored. */
struct inspect_query {
    const struct plan *plan; /* the plan of the checkpoint's job */
    const struct plan_node *node;
    struct checkpoint *checkpoint;
    const struct group_set *groups; /* restores these key groups; NULL: all */
};

/* Opens the node, restores it, calls `use`, and closes the node. Returns false also if `use` does. */
typedef bool inspect_use(void *argument, const struct operator_kind *kind, struct operator_context *context);
LEAT_CHECKED bool inspect_call(const struct inspect_query *query, inspect_use *use, void *argument,
                               struct diag_list *diags);

/* Sets the key columns of a row of the node's input 0 to the values of `words`, a text for each column; data NULL: null.
 * *key: what the row's key is; 0 in a node without key columns. False after a diagnostic, in the arena. Any thread. */
LEAT_CHECKED bool state_key_parse(const struct plan_node *node, const struct str *words, uint32_t count,
                                  struct batch *row, struct key *key, struct arena *arena,
                                  struct diag_list *diags);
/* Describes the node's state for a key. words, count: values of the key's columns. *is_found: the node has
 * state for the key. *looked_for: what was looked for, in words, in the arena; NULL: the node's kind does not
 * say. */
LEAT_CHECKED bool state_describe(const struct plan *plan, const struct plan_node *node,
                                 struct checkpoint *checkpoint, const struct str *words, uint32_t count,
                                 struct describe *out, bool *is_found, const char **looked_for,
                                 struct arena *arena, struct diag_list *diags);

#endif

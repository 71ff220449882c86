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

/* One operator or learner of the checkpoint, restored. */
struct inspect_query {
    const struct plan *plan; /* the plan of the checkpoint's job */
    const struct plan_node *node;
    struct checkpoint *checkpoint;
    uint32_t lane, lanes; /* restores the key groups that lane number `lane` of `lanes` would have */
};

/* Opens the node, restores it, calls `use`, and closes the node. Returns false also if `use` does. */
typedef bool inspect_use(void *argument, const struct operator_kind *kind, struct operator_context *context);
LEAT_CHECKED bool inspect_call(const struct inspect_query *query, inspect_use *use, void *argument,
                               struct diag_list *diags);

/* Describes the node's state for a key. words, count: values of the key's columns. *is_found: the node has
 * state for the key. *looked_for: what was looked for, in words, in the arena; NULL: the node's kind does not
 * say. */
LEAT_CHECKED bool state_describe(const struct plan *plan, const struct plan_node *node,
                                 struct checkpoint *checkpoint, const struct str *words, uint32_t count,
                                 struct describe *out, bool *is_found, const char **looked_for,
                                 struct arena *arena, struct diag_list *diags);

#endif

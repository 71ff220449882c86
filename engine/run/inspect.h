/* What a checkpoint has, without running its job: for `leat model`, `leat state` and `leat checkpoint`. Control
 * thread. */
#ifndef LEAT_RUN_INSPECT_H
#define LEAT_RUN_INSPECT_H

#include "core/describe.h"
#include "plan/plan.h"
#include "state/checkpoint.h"

/* The job as the checkpoint keeps it, in the arena: its text, and its `--set`s, one NAME=VALUE a line. */
LEAT_CHECKED bool model_job(struct checkpoint *checkpoint, struct arena *arena, struct str *text,
                            struct str *settings, struct diag_list *diags);
/* Restores one learner of the plan and shows it to the visitor. */
LEAT_CHECKED bool model_visit(const struct plan *plan, const struct plan_node *learner,
                              struct checkpoint *checkpoint, struct model_visitor *visitor,
                              struct diag_list *diags);

/* One operator or learner of the checkpoint, restored. */
struct inspect_query {
    const struct plan *plan; /* the plan of the checkpoint's job */
    const struct plan_node *node;
    struct checkpoint *checkpoint;
    uint32_t lane, lanes; /* the key groups of this lane are restored */
};

/* Opens the node, restores it, and calls `use`. Returns false if `use` did, or after diagnostics. */
typedef bool inspect_use(void *argument, const struct operator_kind *kind, struct operator_context *context);
LEAT_CHECKED bool inspect_call(const struct inspect_query *query, inspect_use *use, void *argument,
                               struct diag_list *diags);

/* Describes the node's state for a key. words, count: values of the key's columns. If nothing is found,
 * is_found is false and looked_for says, in the arena, what was looked for. Returns false after
 * diagnostics. */
LEAT_CHECKED bool state_describe(const struct plan *plan, const struct plan_node *node,
                                 struct checkpoint *checkpoint, const struct str *words, uint32_t count,
                                 struct describe *out, bool *is_found, const char **looked_for,
                                 struct arena *arena, struct diag_list *diags);

#endif

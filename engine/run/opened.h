/* Opens one operator or learner from a checkpoint, without running its job: for `leat model` and `leat
 * state`. Control thread. */
#ifndef LEAT_RUN_OPENED_H
#define LEAT_RUN_OPENED_H

#include "core/describe.h"
#include "plan/plan.h"
#include "state/checkpoint.h"

struct opened_query {
    const struct plan *plan; /* the plan of the checkpoint's job */
    const struct plan_node *node;
    struct checkpoint *checkpoint;
    uint32_t lane, lanes; /* the key groups of this lane are restored */
};

/* Opens the node, restores it, and calls `use`. Returns false if `use` did, or after diagnostics. */
typedef bool opened_use(void *argument, const struct operator_kind *kind, struct operator_context *context);
LEAT_CHECKED bool opened_call(const struct opened_query *query, opened_use *use, void *argument,
                              struct diag_list *diags);

/* Describes the node's state for a key. words, count: values of the key's columns. If nothing is found,
 * is_found is false and looked_for says, in the arena, what was looked for. Returns false after
 * diagnostics. */
LEAT_CHECKED bool state_describe(const struct plan *plan, const struct plan_node *node,
                                 struct checkpoint *checkpoint, const struct str *words, uint32_t count,
                                 struct describe *out, bool *is_found, const char **looked_for,
                                 struct arena *arena, struct diag_list *diags);

#endif

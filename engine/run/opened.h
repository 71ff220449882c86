/* One operator or learner out of a checkpoint, without running its job: for `leat model` and `leat state`.
 * Control thread. */
#ifndef LEAT_RUN_OPENED_H
#define LEAT_RUN_OPENED_H

#include "core/describe.h"
#include "plan/plan.h"
#include "state/checkpoint.h"

struct opened_query {
    const struct plan *plan; /* of the checkpoint's job */
    const struct plan_node *node;
    struct checkpoint *checkpoint;
    uint32_t lane, lanes; /* what is restored: the key groups of this lane */
};

/* Opens the node, restores it, and calls `use`; false: that did, or there are diagnostics. */
typedef bool opened_use(void *argument, const struct operator_kind *kind, struct operator_context *context);
LEAT_CHECKED bool opened_call(const struct opened_query *query, opened_use *use, void *argument,
                              struct diag_list *diags);

/* What the node has for a key, as words. is_found: something is; else looked_for says what was, in the arena.
 * false: diagnostics. */
LEAT_CHECKED bool state_describe(const struct plan *plan, const struct plan_node *node,
                                 struct checkpoint *checkpoint, const struct str *words, uint32_t count,
                                 struct describe *out, bool *is_found, const char **looked_for,
                                 struct arena *arena, struct diag_list *diags);

#endif

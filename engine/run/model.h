/* Reading a model from a checkpoint, without running its job; and where models keep their cold rows.
 * Control thread. */
#ifndef LEAT_RUN_MODEL_H
#define LEAT_RUN_MODEL_H

#include "plan/plan.h"
#include "state/checkpoint.h"

/* The job as the checkpoint keeps it, in the arena: its text, and its `--set`s, one NAME=VALUE a line. */
LEAT_CHECKED bool model_job(struct checkpoint *checkpoint, struct arena *arena, struct str *text,
                            struct str *settings, struct diag_list *diags);
/* Restores one learner of the plan and shows it to the visitor. */
LEAT_CHECKED bool model_visit(const struct plan *plan, const struct plan_node *learner,
                              struct checkpoint *checkpoint, struct model_visitor *visitor,
                              struct diag_list *diags);

/* Implements operator_context.cold_store, over the context's state store. table, row_bytes: as
 * cold_store_new has them. */
struct cold_store *model_cold_store(struct operator_context *context, uint32_t table, size_t row_bytes);

#endif

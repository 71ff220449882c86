#include "run/model.h"

#include "run/opened.h"
#include "state/state.h"

bool model_job(struct checkpoint *checkpoint, struct arena *arena, struct str *text, struct str *settings,
               struct diag_list *diags)
{
    struct snapshot_reader *reader = checkpoint_reader(checkpoint, "job", 0, 0, diags);
    if (reader == NULL)
        return false;
    uint32_t group, records = 0;
    struct str data;
    *text = *settings = (struct str){"", 0};
    /* A chain of checkpoints has the two records once per checkpoint; all copies are the same. */
    while (snapshot_get(reader, &group, &data))
        *(records++ % 2 == 0 ? text : settings) = arena_str(arena, data);
    if (records < 2)
        diag_error(diags, DIAG_E0702, (struct span){0}, "the checkpoint does not say what its job is");
    return checkpoint_reader_close(reader) && records >= 2;
}

struct cold_store *model_cold_store(struct operator_context *context, uint32_t table, size_t row_bytes)
{
    return cold_store_new(context->state_store, context->id, table, row_bytes);
}

static bool show(void *argument, const struct operator_kind *kind, struct operator_context *context)
{
    return kind->visit(context, argument);
}

bool model_visit(const struct plan *plan, const struct plan_node *learner, struct checkpoint *checkpoint,
                 struct model_visitor *visitor, struct diag_list *diags)
{
    if (learner->operator_kind->visit == NULL || learner->operator_kind->restore == NULL)
        return true;
    struct opened_query query = {.plan = plan, .node = learner, .checkpoint = checkpoint, .lanes = 1};
    return opened_call(&query, show, visitor, diags);
}

/*
 * Features that are lists: the first `list_max` ids of each list are read, and the ids left out are
 * counted. Where the plan knows how long a list can be (core/schema.h), checking the job warns of lists
 * that can be longer.
 */
#include "learners/learner/learner.h"

void learner_bind_list(struct operator_bind *bind, struct learner_config *c, uint32_t field, struct span span)
{
    const struct field *column = &bind->inputs[0].schema->fields[c->sparse_columns[field]];
    if (!c->model.is_list[field])
        return;
    c->lists[field] = (struct learner_list){
        .lists_cut = arena_printf(bind->arena, "lists_cut.%.*s", STR_ARGS(column->name)),
        .ids_cut = arena_printf(bind->arena, "ids_cut.%.*s", STR_ARGS(column->name)),
    };
    if (column->type.length_max <= (uint64_t)c->list_max)
        return;
    struct diag *d =
        diag_warning(bind->diags, DIAG_E0905, span,
                     "`%.*s` holds up to %u ids, and this learner reads the first %lld of a list",
                     STR_ARGS(column->name), column->type.length_max, (long long)c->list_max);
    diag_hint(bind->diags, d,
              column->type.length_max <= MODEL_LIST_MAX
                  ? "`list_max: %u` reads them all; `ids_cut` of the report counts those that are left out"
                  : "`list_max` goes to %u; `ids_cut` of the report counts ids that are left out",
              MIN(column->type.length_max, (uint32_t)MODEL_LIST_MAX));
}

bool learner_check_lists(struct operator_bind *bind, const struct learner_config *c)
{
    uint64_t ids = 0, examples = MAX(c->model.batch, (uint32_t)MODEL_ROWS_MAX);
    for (uint32_t f = 0; f < c->sparse_count; f++)
        ids += model_field_ids(&c->model, f);
    if (ids * examples <= MODEL_STEP_IDS_MAX)
        return true;
    struct diag *d =
        diag_error(bind->diags, DIAG_E0901, bind->span,
                   "a step of %llu examples would have up to %llu ids of each, and has at most %d",
                   (unsigned long long)examples, (unsigned long long)ids, MODEL_STEP_IDS_MAX);
    diag_hint(bind->diags, d, "take a smaller `list_max`, or fewer examples a step: `batch`, `accumulate`");
    return false;
}

/* Omitted with the default, so that a shape without this option stays the same. */
void learner_shape_lists(const struct learner_config *c, struct byte_buffer *out)
{
    bool has_lists = memchr(c->model.is_list, 1, c->sparse_count) != NULL;
    if (has_lists && c->list_max != MODEL_LIST_DEFAULT)
        buffer_printf(out, "~list_max: %lld\n", (long long)c->list_max);
}

void learner_report_lists(const struct learner_config *c, struct report *report)
{
    for (uint32_t f = 0; f < c->sparse_count; f++) {
        if (!c->model.is_list[f])
            continue;
        report_add(report, c->lists[f].lists_cut, (double)c->state->lists_cut[f], false);
        report_add(report, c->lists[f].ids_cut, (double)c->state->ids_cut[f], false);
    }
}

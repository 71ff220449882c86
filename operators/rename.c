/* rename: gives columns other names; order, types and values stay. */
#include "operators/expr/compute.h"

struct rename {
    struct assignments names;
    struct compute compute;
};

static const struct option rename_options[] = {
    OPTION_ASSIGNMENTS(struct rename, names, "names", OPTION_REQUIRED | OPTION_POSITIONAL,
                       "`new = old`; two columns may swap their names"),
    OPTIONS_END,
};

/* For each input column the assignment that renames it, or -1. */
static bool resolve(struct operator_bind *bind, const struct rename *rename, int *renamed_by)
{
    const struct schema *input = bind->inputs[0].schema;
    bool is_good = true;
    for (uint32_t i = 0; i < input->count; i++)
        renamed_by[i] = -1;
    for (uint32_t k = 0; k < rename->names.count; k++) {
        const struct assignment *a = &rename->names.items[k];
        if (a->value->tag != AST_NAME) {
            struct diag *d = diag_error(bind->diags, DIAG_OPTION_TYPE, a->value->span,
                                        "`rename` needs the name of a column here");
            diag_hint(bind->diags, d, "use `with` or `select` to compute columns");
            is_good = false;
            continue;
        }
        struct column_ref old = {a->value->text, a->value->span, -1};
        if (!column_resolve(&old, input, bind->arena, bind->diags)) {
            is_good = false;
        } else if (renamed_by[old.index] >= 0) {
            diag_error(bind->diags, DIAG_OPTION_TWICE, old.span, "`%.*s` is renamed twice",
                       STR_ARGS(old.name));
            is_good = false;
        } else {
            renamed_by[old.index] = (int)k;
        }
    }
    return is_good;
}

static bool rename_bind(struct operator_bind *bind)
{
    struct rename *rename = bind->config;
    const struct schema *input = bind->inputs[0].schema;
    int *renamed_by = arena_array(bind->arena, int, input->count);
    if (!resolve(bind, rename, renamed_by) || compute_schema(bind, &rename->compute, input->count) == NULL)
        return false;
    for (uint32_t i = 0; i < input->count; i++) {
        struct str name = input->fields[i].name;
        struct span span = bind->span;
        if (renamed_by[i] >= 0) {
            name = rename->names.items[renamed_by[i]].name;
            span = rename->names.items[renamed_by[i]].name_span;
        }
        if (!compute_keep(bind, &rename->compute, (int)i, name, span))
            return false;
    }
    return compute_done(bind, &rename->compute);
}

static void rename_process(struct operator_context *context, uint32_t input, struct batch *batch)
{
    (void)input;
    const struct rename *rename = context->config;
    compute_process(context, &rename->compute, batch);
}

const struct operator_kind operator_rename = {
    .name = "rename",
    .summary = "gives columns other names",
    .example = "events | rename user = user_id, item = item_id",
    .options = rename_options,
    .size = sizeof(struct rename),
    .determinism = DETERMINISM_BY_ROW,
    .inputs_min = 1,
    .inputs_max = 1,
    .bind = rename_bind,
    .process = rename_process,
    .read = rename_process,
};

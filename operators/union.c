/* union: rows of several streams as one stream, in the job's order of rows. */
#include "core/operator.h"

struct union_config {
    struct columns streams;
    int *sources[OPERATOR_INPUTS_MAX]; /* sources[i][c]: the column of input i for output column c */
};

_Static_assert(OPERATOR_INPUTS_MAX == 64, "the help says how many streams there can be");

static const struct option union_options[] = {
    OPTION_STREAMS(
        struct union_config, streams, "streams", OPTION_REQUIRED | OPTION_POSITIONAL,
        "the streams to add, at most 63; their columns have the names and types of the first stream's, in "
        "any order"),
    OPTIONS_END,
};

/* Finds for each column of input 0 the column of `input` with that name and type. Returns false after
 * diagnostics. */
static bool match(struct operator_bind *bind, uint32_t input)
{
    struct union_config *config = bind->config;
    const struct operator_input *to = &bind->inputs[0], *from = &bind->inputs[input];
    int *sources = arena_array(bind->arena, int, to->schema->count);
    struct span span = input == 0 ? bind->span : config->streams.items[input - 1].span;
    bool is_good = true;
    config->sources[input] = sources;
    for (uint32_t i = 0; i < to->schema->count; i++) {
        const struct field *field = &to->schema->fields[i];
        sources[i] = schema_find(from->schema, field->name);
        if (sources[i] < 0) {
            diag_error(bind->diags, DIAG_SCHEMAS_DIFFER, span, "`%.*s` has no column `%.*s`",
                       STR_ARGS(from->stream), STR_ARGS(field->name));
            is_good = false;
            continue;
        }
        const struct type *type = &from->schema->fields[sources[i]].type;
        if (type_equal(type, &field->type))
            continue;
        diag_error(bind->diags, DIAG_SCHEMAS_DIFFER, span, "`%.*s` is %s here and %s in `%.*s`",
                   STR_ARGS(field->name), type_name(bind->arena, &field->type), type_name(bind->arena, type),
                   STR_ARGS(from->stream));
        is_good = false;
    }
    for (uint32_t i = 0; i < from->schema->count; i++)
        if (schema_find(to->schema, from->schema->fields[i].name) < 0) {
            diag_error(bind->diags, DIAG_SCHEMAS_DIFFER, span,
                       "`%.*s` has a column `%.*s` that `%.*s` does not have", STR_ARGS(from->stream),
                       STR_ARGS(from->schema->fields[i].name), STR_ARGS(to->stream));
            is_good = false;
        }
    return is_good;
}

/* Whether a record can come through both streams. */
static bool shares_source(const struct schema *a, const struct schema *b)
{
    for (uint32_t i = 0; i < a->count; i++)
        for (uint32_t k = 0; k < b->count; k++)
            if (lineage_intersects(&a->fields[i].lineage, &b->fields[k].lineage))
                return true;
    return false;
}

static bool union_bind(struct operator_bind *bind)
{
    struct union_config *config = bind->config;
    struct schema *output = operator_extend(bind, 0);
    bool is_good = true;
    leat_assert(bind->inputs_count == config->streams.count + 1);
    for (uint32_t k = 0; k < bind->inputs_count; k++) {
        is_good &= match(bind, k);
        output->repeats |= bind->inputs[k].schema->repeats;
        for (uint32_t other = 0; other < k; other++)
            output->repeats |= shares_source(bind->inputs[k].schema, bind->inputs[other].schema);
        lineage_merge(&output->rows_lineage, &bind->inputs[k].schema->rows_lineage);
    }
    if (!is_good) {
        struct diag *d = &bind->diags->items[bind->diags->count - 1];
        diag_hint(bind->diags, d, "make the columns the same with `select` and `cast` before the union");
        return false;
    }
    /* Each value depends on which rows there are, so it gets the lineage of the rows. */
    for (uint32_t i = 0; i < output->count; i++) {
        for (uint32_t k = 1; k < bind->inputs_count; k++) {
            const struct field *from = &bind->inputs[k].schema->fields[config->sources[k][i]];
            field_merge(&output->fields[i], from);
            output->fields[i].type.length_max = type_length_max(&output->fields[i].type, &from->type);
            output->fields[i].is_required &= from->is_required;
        }
        field_chosen(&output->fields[i], &output->rows_lineage);
    }
    bind->outputs[0] = output;
    return true;
}

static void union_process(struct operator_context *context, uint32_t input, struct batch *batch)
{
    const struct union_config *config = context->config;
    struct batch *out = batch_derive(batch, context->output);
    for (uint32_t i = 0; i < context->output->count; i++)
        out->columns[i] = batch->columns[config->sources[input][i]];
    context->counters.passed += batch->selected;
    operator_emit(context, 0, out);
}

const struct operator_kind operator_union = {
    .name = "union",
    .summary = "combines the rows of several streams into one stream",
    .example = "events | union more_events",
    .details = "Rows are emitted in the order of the job (arrival, else event time), as if one source had "
               "them all. The streams must have columns of the same names and types.",
    .options = union_options,
    .size = sizeof(struct union_config),
    .determinism = DETERMINISM_BY_ROW,
    .inputs_min = 2,
    .inputs_max = OPERATOR_INPUTS_MAX,
    .bind = union_bind,
    .process = union_process,
};

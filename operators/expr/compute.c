#include "operators/expr/compute.h"

struct schema *compute_schema(struct operator_bind *bind, struct compute *compute, uint32_t count)
{
    if (count > SCHEMA_FIELDS_MAX) {
        diag_error(bind->diags, DIAG_TOO_MANY, bind->span, "a stream has at most %d columns",
                   SCHEMA_FIELDS_MAX);
        return NULL;
    }
    struct schema *schema = arena_new(bind->arena, struct schema);
    schema->fields = arena_array(bind->arena, struct field, count);
    schema->rows_lineage = bind->inputs[0].schema->rows_lineage;
    schema->repeats = bind->inputs[0].schema->repeats;
    compute->schema = schema;
    compute->columns = arena_array(bind->arena, struct compute_column, count);
    return schema;
}

static struct field *add_field(struct operator_bind *bind, struct compute *compute, struct str name,
                               struct type type, struct span span)
{
    struct field *field = operator_add_column(bind, (struct schema *)compute->schema, name, type, span);
    compute->count += field != NULL;
    return field;
}

bool compute_keep(struct operator_bind *bind, struct compute *compute, int source, struct str name,
                  struct span span)
{
    const struct field *from = &bind->inputs[0].schema->fields[source];
    compute->columns[compute->count] = (struct compute_column){NULL, source};
    struct field *field = add_field(bind, compute, name, from->type, span);
    if (field == NULL)
        return false;
    field->lineage = from->lineage;
    field->rows_only = from->rows_only;
    field->is_required = from->is_required;
    return true;
}

bool compute_add(struct operator_bind *bind, struct compute *compute, const struct ast *ast,
                 const struct schema *schema, struct str name, struct span span)
{
    struct expr *expr = expr_compile(ast, schema, bind->arena, bind->diags);
    if (expr == NULL)
        return false;
    compute->columns[compute->count] = (struct compute_column){expr, -1};
    struct field *field = add_field(bind, compute, name, expr_type(expr), span);
    if (field == NULL)
        return false;
    field->lineage = *expr_lineage(expr);
    return true;
}

bool compute_extend(struct operator_bind *bind, struct compute *compute, uint32_t extra)
{
    const struct schema *input = bind->inputs[0].schema;
    if (compute_schema(bind, compute, input->count + extra) == NULL)
        return false;
    for (uint32_t i = 0; i < input->count; i++)
        if (!compute_keep(bind, compute, (int)i, input->fields[i].name, bind->span))
            return false;
    compute->sees_own = true;
    return true;
}

bool compute_done(struct operator_bind *bind, struct compute *compute)
{
    if (compute->count == 0) {
        diag_error(bind->diags, DIAG_OPTIONS_CLASH, bind->span, "no column is left after this step");
        return false;
    }
    bind->outputs[0] = compute->schema;
    return true;
}

void compute_reject(struct operator_context *context, const struct batch *batch,
                    const struct expr_errors *errors)
{
    for (uint32_t row = 0; row < batch->rows && errors->count > 0; row++)
        if (bit_get(errors->rows, row))
            operator_reject(context, batch, row, errors->reasons[row]);
}

struct batch *compute_batch(struct operator_context *context, const struct compute *compute,
                            struct batch *batch, struct expr_errors *errors)
{
    struct batch *out = batch_derive(batch, compute->schema);
    for (uint32_t i = 0; i < compute->count; i++)
        if (compute->columns[i].expr == NULL)
            out->columns[i] = batch->columns[compute->columns[i].source];
    for (uint32_t i = 0; i < compute->count; i++)
        if (compute->columns[i].expr != NULL)
            expr_eval(compute->columns[i].expr, compute->sees_own ? out : batch, context->scratch,
                      &out->arena, &out->columns[i], errors);
    return out;
}

void compute_emit(struct operator_context *context, const struct batch *input, struct batch *out,
                  struct expr_errors *errors)
{
    if (errors->count > 0) {
        compute_reject(context, input, errors);
        uint16_t *sel = arena_alloc(&out->arena, (out->selected + 1) * sizeof(*sel));
        uint32_t count = 0;
        for (uint32_t i = 0; i < out->selected; i++) {
            sel[count] = (uint16_t)batch_row(out, i);
            count += !bit_get(errors->rows, sel[count]);
        }
        out->sel = sel;
        out->selected = count;
    }
    compute_pass(context, out);
}

void compute_pass(struct operator_context *context, struct batch *batch)
{
    context->counters.passed += batch->selected;
    operator_emit(context, 0, batch);
}

void compute_process(struct operator_context *context, const struct compute *compute, struct batch *batch)
{
    struct expr_errors errors = {0};
    struct batch *out = compute_batch(context, compute, batch, &errors);
    compute_emit(context, batch, out, &errors);
}

struct ast *compute_name(struct arena *arena, struct str name, struct span span)
{
    struct ast *ast = arena_new(arena, struct ast);
    *ast = (struct ast){.tag = AST_NAME, .span = span, .text_span = span, .text = name, .height = 1};
    return ast;
}

struct ast *compute_call(struct arena *arena, const char *function, struct span span,
                         const struct ast *const *args, uint32_t count)
{
    struct ast *ast = arena_new(arena, struct ast);
    *ast = (struct ast){
        .tag = AST_CALL, .span = span, .text_span = span, .text = str_from(function), .count = count};
    ast->children = arena_array(arena, struct ast *, count);
    for (uint32_t i = 0; i < count; i++) {
        ast->children[i] =
            (struct ast *)args[i]; /* trees are never changed; the cast only fits the field's type */
        ast->height = MAX(ast->height, args[i]->height + 1);
    }
    return ast;
}

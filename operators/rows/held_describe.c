/* Held rows, as `leat state get` shows them. */
#include "core/describe.h"
#include "core/operator.h"
#include "operators/rows/held.h"

void held_describe_columns(const struct schema *schema, const struct batch *batch,
                           struct operator_context *context, struct describe *out)
{
    for (uint32_t k = 0; k < schema->count; k++) {
        const struct field *field = &schema->fields[k];
        describe_value(out, arena_strndup(context->scratch, field->name.data, field->name.length),
                       &batch->columns[k], &field->type, 0);
    }
}

void held_describe(const struct held_layout *layout, struct held_rows *rows, struct str row,
                   struct operator_context *context, struct describe *out)
{
    struct batch *batch = batch_new(context->pool, layout->schema, BATCH_ROWS);
    (void)held_add(layout, rows, row);
    held_unpack(layout, rows, batch);
    held_describe_columns(layout->schema, batch, context, out);
    batch_release(batch);
}

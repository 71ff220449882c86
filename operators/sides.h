/* Sends rows of a batch to an output, above all to a side output. */
#ifndef LEAT_OPERATORS_SIDES_H
#define LEAT_OPERATORS_SIDES_H

#include "core/operator.h"

/* Emits the rows sel[0..count) of the batch (physical, rising) to an output whose columns are the batch's
 * first columns. Emits no batch if count is 0. */
static inline void sides_emit(struct operator_context *context, uint32_t output, struct batch *batch,
                              const struct schema *schema, const uint16_t *sel, uint32_t count)
{
    if (count == 0)
        return;
    struct batch *out = batch_derive(batch, schema);
    if (count < batch->rows) {
        out->sel = arena_copy(&out->arena, sel, count * sizeof(*sel));
        out->selected = count;
    } else {
        out->sel = NULL;
        out->selected = out->rows;
    }
    operator_emit(context, output, out);
}

/* Counts the rows as late and sends them to NAME.late. */
static inline void sides_emit_late(struct operator_context *context, struct batch *batch, const uint16_t *sel,
                                   uint32_t count)
{
    context->counters.late += count;
    sides_emit(context, 1, batch, batch->schema, sel, count);
}

/* Writes the selected rows that are neither in `taken` nor in `failed` to `rest` and returns their number.
 * taken: physical rows, rising like the selected rows. */
static inline uint32_t sides_rest(const struct batch *batch, const uint16_t *taken, uint32_t taken_count,
                                  const uint64_t *failed, uint16_t *rest)
{
    uint32_t count = 0, at = 0;
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        if (at < taken_count && taken[at] == row)
            at++;
        else if (!bit_get(failed, row))
            rest[count++] = (uint16_t)row;
    }
    return count;
}

#endif

/* The panes of a group, for `leat state get`. */
#include "core/describe.h"
#include "operators/window/panes.h"

/* The aggregates' values, as a batch of one row. */
static struct batch *finish(const struct panes *panes, const struct panes_sum *sum, int64_t time,
                            struct operator_context *context)
{
    const struct aggregates *aggregates = panes->aggregates;
    struct schema empty = {0};
    struct schema *schema = schema_copy(context->scratch, &empty, aggregates->count);
    for (uint32_t i = 0; i < aggregates->count; i++)
        (void)schema_add(schema, aggregates->items[i].name, aggregates->items[i].result);
    struct batch *batch = batch_new(context->pool, schema, 1);
    struct column_builder builders[AGGREGATES_MAX + 1], *places[AGGREGATES_MAX + 1];
    for (uint32_t i = 0; i < aggregates->count; i++) {
        places[i] = &builders[i];
        builder_init(&builders[i], batch, &batch->columns[i], schema->fields[i].type);
    }
    panes_finish(panes, sum, time, places, 0);
    for (uint32_t i = 0; i < aggregates->count; i++)
        builder_finish(&builders[i]);
    return batch;
}

void panes_describe(const struct panes *panes, struct panes_sum *sum, const struct keyed_slot *slot,
                    uint32_t first, panes_edges *edges, const void *argument,
                    struct operator_context *context, struct describe *out)
{
    describe_list(out, "panes");
    for (uint32_t i = first; i < panes_count(slot); i++) {
        int64_t pane = panes_index(panes, slot, i), start, end;
        panes_sum_clear(panes, sum);
        panes_read(panes, slot, pane, pane, sum);
        edges(argument, pane, sum->fixed, &start, &end);
        struct batch *batch = finish(panes, sum, end - 1, context);
        describe_record(out, NULL);
        describe_time(out, "start", start);
        describe_time(out, "end", end);
        for (uint32_t k = 0; k < batch->schema->count; k++) {
            const struct field *field = &batch->schema->fields[k];
            if (field->name.length > 0)
                describe_value(out, arena_strndup(context->scratch, field->name.data, field->name.length),
                               &batch->columns[k], &field->type, 0);
        }
        describe_close(out);
        batch_release(batch);
    }
    describe_close(out);
}

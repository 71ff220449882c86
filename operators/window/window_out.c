/* The output of `window`: the facts (struct window_facts, an aggregate of the operator's own that is no
 * output column), and the batches that output rows are written to. */
#include "operators/window/window.h"

/* --- Facts --- */

/* argument: its element 0 is the operator's current tick. */
static void facts_update(char *partial, const struct column *argument, uint32_t row, int64_t time)
{
    (void)row;
    struct window_facts *facts = (struct window_facts *)(void *)partial;
    int64_t tick = argument->ints[0];
    if (facts->rows++ == 0) {
        facts->first_time = facts->last_time = time;
        facts->first_tick = tick;
    }
    facts->first_time = MIN(facts->first_time, time);
    facts->last_time = MAX(facts->last_time, time);
    facts->last_tick = tick;
}

static void facts_merge(char *into, const char *from)
{
    struct window_facts *a = (struct window_facts *)(void *)into;
    const struct window_facts *b = (const struct window_facts *)(const void *)from;
    if (b->rows == 0)
        return;
    if (a->rows == 0) {
        *a = *b;
        return;
    }
    a->rows += b->rows;
    a->first_time = MIN(a->first_time, b->first_time);
    a->last_time = MAX(a->last_time, b->last_time);
    a->first_tick = MIN(a->first_tick, b->first_tick);
    a->last_tick = MAX(a->last_tick, b->last_tick);
    a->armed = MIN(a->armed, b->armed);
}

static void facts_finish(const char *partial, int64_t time, struct column_builder *out, uint32_t row)
{
    (void)partial, (void)time, (void)out, (void)row;
}

static const struct aggregate_kind facts_kind = {.name = "facts",
                                                 .argument = AGGREGATE_NONE,
                                                 .bytes = sizeof(struct window_facts),
                                                 .update = facts_update,
                                                 .merge = facts_merge,
                                                 .finish = facts_finish};

void window_add_facts(struct operator_bind *bind, struct window *window)
{
    struct aggregates *aggregates = &window->aggregates;
    struct aggregate *items = arena_array(bind->arena, struct aggregate, aggregates->count + 1);
    memcpy(items, aggregates->items, aggregates->count * sizeof(*items));
    items[aggregates->count] = (struct aggregate){.kind = &facts_kind, .offset = aggregates->bytes};
    aggregates->items = items;
    aggregates->count++;
    window->facts_offset = aggregates->bytes;
    aggregates->bytes += (uint32_t)sizeof(struct window_facts);
    aggregates->is_additive = false;
}

/* --- Rows --- */

/* Begins a batch of BATCH_ROWS output rows: out->batch. */
static void begin(struct operator_context *context, const struct window *window, struct window_out *out)
{
    const struct schema *schema = context->output;
    struct batch *batch = out->batch = batch_new(context->pool, schema, BATCH_ROWS);
    out->rows = 0;
    out->orders = arena_alloc(&batch->arena, BATCH_ROWS * sizeof(*out->orders));
    out->builders = arena_array(&batch->arena, struct column_builder, schema->count);
    for (uint32_t i = 0; i < schema->count; i++)
        builder_init(&out->builders[i], batch, &batch->columns[i], schema->fields[i].type);
    uint32_t first = window->by.count + (window->has_bounds ? 2 : 0);
    for (uint32_t i = 0; i < window->aggregates.count; i++)
        out->aggregates[i] = &out->builders[MIN(first + i, schema->count - 1)]; /* facts write no column */
}

/* Ends out->batch, if there is one, and appends it to out->full. */
static void finish(struct operator_context *context, struct window_out *out)
{
    struct batch *batch = out->batch;
    if (batch == NULL)
        return;
    for (uint32_t i = 0; i < context->output->count; i++)
        builder_finish(&out->builders[i]);
    batch->rows = batch->selected = out->rows;
    batch->orders = out->orders;
    ready_add(&out->full, batch);
    context->counters.emitted += batch->rows;
    out->batch = NULL;
}

void window_out_end(struct operator_context *context, struct window_out *out)
{
    finish(context, out);
    ready_emit(&out->full, context);
}

/* Writes the aggregates' values to output row `row`: from->values, decoded; if these are empty, the values of
 * window->sum. Appends the encoded values to from->keep, unless that is NULL. */
static void set_values(const struct window *window, struct window_out *out, const struct window_row *from,
                       uint32_t row)
{
    uint32_t count = window->aggregates.count - window->has_facts;
    const char *at = from->values.data, *end = at + from->values.length;
    if (from->values.length == 0)
        panes_finish(&window->panes, &window->sum, from->time, out->aggregates, row);
    for (uint32_t i = 0; i < count && from->values.length > 0; i++)
        if (!builder_decode(out->aggregates[i], row, &at, end))
            builder_null(out->aggregates[i], row);
    for (uint32_t i = 0; i < count && from->keep != NULL; i++)
        builder_encode(out->aggregates[i], row, from->keep);
}

void window_out_add(struct operator_context *context, struct window *window, struct window_out *out,
                    const struct window_row *from)
{
    if (out->batch == NULL)
        begin(context, window, out);
    uint32_t row = out->rows++, keys = window->by.count;
    const char *at = from->prefix.data, *end = at + from->prefix.length;
    for (uint32_t i = 0; i < keys; i++)
        if (!builder_decode(&out->builders[i], row, &at, end))
            builder_null(&out->builders[i], row);
    if (window->has_bounds) {
        out->batch->columns[keys].ints[row] = from->start;
        out->batch->columns[keys + 1].ints[row] = from->end;
    }
    if (window->has_changes)
        builder_text(&out->builders[context->output->count - 1], row, change_text(from->change));
    out->batch->event_time[row] = from->time;
    out->orders[row] = from->order;
    set_values(window, out, from, row);
    if (out->rows == BATCH_ROWS)
        finish(context, out);
}

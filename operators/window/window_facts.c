/* The facts of `window`: an aggregate that the operator adds, and that is no output column. */
#include "operators/window/window.h"

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

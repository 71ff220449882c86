#include "serve/request.h"

const char request_too_far[] =
    "the event time lies further in the future than the source's `max_jump` allows";

struct schema *request_schema(const struct plan_node *source, const struct plan_serve *serve,
                              struct arena *arena)
{
    struct schema *schema = schema_copy(arena, source->outputs[0], 0);
    for (uint32_t i = 0; i < schema->count; i++)
        schema->fields[i].is_required &=
            serve->is_needed[i] && !str_equal(schema->fields[i].name, source->common->event_time.name);
    return schema;
}

int64_t request_latest_us(const struct plan_node *source, int64_t now_us, int64_t newest_us)
{
    const struct source_common *common = source->common;
    int64_t jump_us = common->max_jump_us == 0 && source->has_arrival ? US_PER_DAY : common->max_jump_us;
    bool is_limited = common->event_time.name.length > 0 && jump_us > 0;
    return is_limited ? time_add(MAX(now_us, newest_us), jump_us) : TIME_MAX;
}

void request_set_time(const struct plan_node *source, struct batch *batch, uint32_t row, int64_t now_us)
{
    const struct source_common *common = source->common;
    if (common->event_time.name.length == 0) {
        batch->event_time[row] = 0;
        return;
    }
    struct column *times = &batch->columns[common->event_time.index];
    if (!column_is_valid(times, row)) {
        times->ints[row] = now_us;
        bit_set(times->valid, row);
    }
    batch->event_time[row] = times->ints[row];
}

void request_set_source(const struct plan_node *source, struct batch *batch)
{
    batch->order_time = batch->event_time;
    batch->arrival_time = source->has_arrival ? batch->event_time : NULL;
    batch->schema = source->outputs[0];
}

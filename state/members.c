#include "state/members.h"

/* --- Keyed tables --- */

static bool table_open(const struct state_member *row, const struct operator_context *context, void *member)
{
    struct state_plan plan = state_plan_of(row, context);
    if (plan.is_absent)
        return true;
    struct keyed_table *table = keyed_table_new(&(struct keyed_options){.store = context->state_store,
                                                                        .id = context->id,
                                                                        .kind = (uint8_t)row->tag,
                                                                        .budget_bytes = plan.memory_bytes,
                                                                        .groups = context->groups});
    memcpy(member, &table, sizeof(table));
    return true;
}

static bool table_snapshot(const struct state_member *row LEAT_UNUSED,
                           struct operator_context *context LEAT_UNUSED, void *table,
                           struct snapshot_writer *writer)
{
    return keyed_table_snapshot(table, writer);
}

static bool table_restore(const struct state_member *row LEAT_UNUSED, struct operator_context *context,
                          void *table, struct snapshot_reader *reader, struct str record)
{
    return keyed_table_restore(table, reader, record, context->diags);
}

/* A key group at a time; *next: the next one. */
static bool table_give_base(void *table, const struct group_set *leaving, uint32_t round LEAT_UNUSED,
                            int64_t *next, struct byte_buffer *out)
{
    uint32_t group = group_set_next(leaving, *next == INT64_MIN ? 0 : (uint32_t)*next);
    bool is_good = group == KEY_GROUPS || keyed_table_give_base(table, group, out);
    *next = group == KEY_GROUPS ? INT64_MAX : (int64_t)group + 1;
    return is_good;
}

static bool table_take_base(void *table, const struct group_set *coming, struct str record)
{
    return keyed_table_take_base(table, coming, record);
}

static void table_regroup(void *table)
{
    keyed_table_regroup(table);
}

static bool table_give(const struct state_member *row LEAT_UNUSED,
                       struct operator_context *context LEAT_UNUSED, void *table,
                       const struct group_set *leaving, struct byte_buffer *out)
{
    return keyed_table_give(table, leaving, out);
}

static bool table_take(const struct state_member *row LEAT_UNUSED,
                       struct operator_context *context LEAT_UNUSED, void *table, struct str record)
{
    return keyed_table_take(table, record);
}

static bool table_import(void *table, struct state_store *from)
{
    return keyed_table_import(table, from);
}

static bool table_forget_groups(void *table, const struct group_set *groups)
{
    return keyed_table_forget_groups(table, groups);
}

static void table_set_watermark(void *table, int64_t watermark)
{
    keyed_set_watermark(table, watermark);
}

static void table_weigh(void *table, struct state_weight *weight)
{
    keyed_table_weigh(table, weight->groups);
}

static void table_report(const struct state_member *row, void *table, struct report *report)
{
    struct keyed_stats stats;
    keyed_table_stats(table, &stats);
    if (row->figure != NULL) {
        report_add(report, row->figure, (double)stats.memory_bytes, false);
        return;
    }
    const struct report_item items[] = {
        {.name = "state_bytes", .value = (double)stats.memory_bytes},
        {.name = "state_entries", .value = (double)stats.resident},
        {.name = "state_lookups", .value = (double)stats.lookups},
        {.name = "state_misses", .value = (double)stats.misses},
        {.name = "state_loaded", .value = (double)stats.loaded},
        {.name = "state_evicted", .value = (double)stats.evicted},
    };
    for (size_t i = 0; i < ARRAY_COUNT(items); i++)
        report_merge(report, &items[i]);
}

static void table_close(void *table)
{
    keyed_table_free(table);
}

const struct state_kind state_table = {.is_pointer = true,
                                       .open = table_open,
                                       .snapshot = table_snapshot,
                                       .restore = table_restore,
                                       .give_base = table_give_base,
                                       .take_base = table_take_base,
                                       .give = table_give,
                                       .regroup = table_regroup,
                                       .take = table_take,
                                       .import = table_import,
                                       .forget_groups = table_forget_groups,
                                       .set_watermark = table_set_watermark,
                                       .weigh = table_weigh,
                                       .report = table_report,
                                       .close = table_close};

/* --- Time queues --- */

/* Records with an earlier time have left at the watermark. */
static int64_t left_before(const struct state_plan *plan, int64_t watermark)
{
    return time_add(watermark, -plan->hold_us);
}

static bool queue_open(const struct state_member *row, const struct operator_context *context, void *member)
{
    struct state_plan plan = state_plan_of(row, context);
    if (plan.is_absent)
        return true;
    struct time_queue *queue = time_queue_new(&(struct time_queue_options){.store = context->state_store,
                                                                           .id = context->id,
                                                                           .kind = (uint8_t)row->tag,
                                                                           .budget_bytes = plan.memory_bytes,
                                                                           .bucket_us = plan.bucket_us,
                                                                           .groups = context->groups});
    memcpy(member, &queue, sizeof(queue));
    return time_queue_restored(queue, TIME_MIN);
}

static bool queue_snapshot(const struct state_member *row LEAT_UNUSED,
                           struct operator_context *context LEAT_UNUSED, void *queue,
                           struct snapshot_writer *writer)
{
    return time_queue_snapshot(queue, writer);
}

static bool queue_restore(const struct state_member *row, struct operator_context *context, void *queue,
                          struct snapshot_reader *reader, struct str record)
{
    struct state_plan plan = state_plan_of(row, context);
    return time_queue_restore(queue, reader, record, left_before(&plan, context->watermark), context->diags);
}

static bool queue_restored(const struct state_member *row, struct operator_context *context, void *queue)
{
    struct state_plan plan = state_plan_of(row, context);
    return time_queue_restored(queue, left_before(&plan, context->watermark));
}

static bool queue_give_base(void *queue, const struct group_set *leaving, uint32_t round, int64_t *next,
                            struct byte_buffer *out)
{
    return time_queue_give_base(queue, leaving, round, next, out);
}

static bool queue_take_base(void *queue, const struct group_set *coming, struct str record)
{
    return time_queue_take_base(queue, coming, record);
}

static bool queue_give(const struct state_member *row LEAT_UNUSED,
                       struct operator_context *context LEAT_UNUSED, void *queue,
                       const struct group_set *leaving, struct byte_buffer *out)
{
    return time_queue_give(queue, leaving, out);
}

static void queue_regroup(void *queue)
{
    time_queue_regroup(queue);
}

static bool queue_take(const struct state_member *row LEAT_UNUSED,
                       struct operator_context *context LEAT_UNUSED, void *queue, struct str record)
{
    return time_queue_take(queue, record);
}

static bool queue_import(void *queue, struct state_store *from)
{
    return time_queue_import(queue, from);
}

static void queue_weigh(void *queue, struct state_weight *weight)
{
    weight->queued += time_queue_weight(queue);
}

static bool queue_forget_groups(void *queue, const struct group_set *groups)
{
    return time_queue_forget_groups(queue, groups);
}

static void queue_report(const struct state_member *row, void *queue, struct report *report)
{
    report_add(report, row->figure, (double)time_queue_bytes(queue), false);
}

static void queue_close(void *queue)
{
    time_queue_free(queue);
}

const struct state_kind state_queue = {.is_pointer = true,
                                       .open = queue_open,
                                       .snapshot = queue_snapshot,
                                       .restore = queue_restore,
                                       .restored = queue_restored,
                                       .give_base = queue_give_base,
                                       .take_base = queue_take_base,
                                       .give = queue_give,
                                       .regroup = queue_regroup,
                                       .take = queue_take,
                                       .import = queue_import,
                                       .weigh = queue_weigh,
                                       .forget_groups = queue_forget_groups,
                                       .report = queue_report,
                                       .close = queue_close};

#include "core/operator_state.h"

#include "core/moved.h"

static const struct state_member no_state[] = {STATES_END};

static const struct state_member *rows_of(const struct operator_kind *kind)
{
    return kind->state == NULL ? no_state : kind->state;
}

/* The object that the row's functions get; NULL: this configuration has no such member. */
static void *object_of(const struct state_member *row, const struct operator_context *context)
{
    void *member = (char *)context->config + row->offset, *object = member;
    if (row->kind->is_pointer)
        memcpy(&object, member, sizeof(object));
    return object;
}

struct state_plan state_plan_of(const struct state_member *row, const struct operator_context *context)
{
    if (row->plan != NULL)
        return row->plan(context);
    return (struct state_plan){.memory_bytes = (size_t)context->memory_bytes};
}

bool operator_open(const struct operator_kind *kind, struct operator_context *context)
{
    bool is_good = true;
    for (const struct state_member *row = rows_of(kind); row->kind != NULL; row++)
        if (row->kind->open != NULL)
            is_good &= row->kind->open(row, context, (char *)context->config + row->offset);
    return (kind->open == NULL || kind->open(context)) &&
           is_good; /* `open` is called even if a member failed: `close` relies on that */
}

static void set_watermark(const struct operator_kind *kind, struct operator_context *context,
                          int64_t watermark)
{
    for (const struct state_member *row = rows_of(kind); row->kind != NULL; row++) {
        void *object = object_of(row, context);
        if (object != NULL && row->kind->set_watermark != NULL)
            row->kind->set_watermark(object, watermark);
    }
}

void operator_on_watermark(const struct operator_kind *kind, struct operator_context *context,
                           int64_t watermark)
{
    if (kind->on_watermark != NULL)
        kind->on_watermark(context, watermark);
    set_watermark(kind, context, watermark);
}

bool operator_snapshot(const struct operator_kind *kind, struct operator_context *context,
                       struct snapshot_writer *writer)
{
    if (kind->snapshot != NULL)
        return kind->snapshot(context, writer);
    bool is_good = true;
    for (const struct state_member *row = rows_of(kind); is_good && row->kind != NULL; row++) {
        void *object = object_of(row, context);
        is_good = object == NULL || row->kind->snapshot(row, context, object, writer);
    }
    return is_good;
}

static bool restore_record(const struct operator_kind *kind, struct operator_context *context,
                           struct snapshot_reader *reader, struct str record)
{
    for (const struct state_member *row = rows_of(kind); row->kind != NULL && record.length > 0; row++) {
        void *object = object_of(row, context);
        if (object != NULL && row->tag == record.data[0])
            return row->kind->restore(row, context, object, reader, record);
    }
    snapshot_corrupt(reader, context->diags, "a record of an unknown kind in the operator's state");
    return false;
}

bool operator_restore(const struct operator_kind *kind, struct operator_context *context,
                      struct snapshot_reader *reader)
{
    uint32_t group;
    struct str record;
    if (kind->restore != NULL)
        return kind->restore(context, reader);
    if (kind->state == NULL)
        return true;
    set_watermark(kind, context, context->watermark);
    while (snapshot_get(reader, &group, &record))
        if (!restore_record(kind, context, reader, record))
            return false;
    bool is_good = true;
    for (const struct state_member *row = rows_of(kind); is_good && row->kind != NULL; row++) {
        void *object = object_of(row, context);
        is_good = object == NULL || row->kind->restored == NULL || row->kind->restored(row, context, object);
    }
    return is_good;
}

void operator_report(const struct operator_kind *kind, struct operator_context *context,
                     struct report *report)
{
    for (const struct state_member *row = rows_of(kind); row->kind != NULL; row++) {
        void *object = object_of(row, context);
        if (object != NULL && row->kind->report != NULL)
            row->kind->report(row, object, report);
    }
    if (kind->report != NULL)
        kind->report(context, report);
}

void operator_close(const struct operator_kind *kind, struct operator_context *context)
{
    if (kind->close != NULL)
        kind->close(context);
    for (const struct state_member *row = rows_of(kind); row->kind != NULL; row++) {
        void *object = object_of(row, context);
        if (object != NULL && row->kind->close != NULL)
            row->kind->close(object);
        if (row->kind->is_pointer)
            memset((char *)context->config + row->offset, 0, sizeof(object));
    }
}

/* --- Moves of key groups --- */

bool operator_can_give(const struct operator_kind *kind)
{
    return kind->snapshot == NULL || kind->give != NULL || kind->keeps_figures_alone;
}

bool operator_give_base(const struct operator_kind *kind, struct operator_context *context,
                        const struct group_set *leaving, uint32_t round, struct operator_base *at,
                        struct byte_buffer *out)
{
    const struct state_member *row = &rows_of(kind)[at->row];
    at->is_done = row->kind == NULL;
    if (at->is_done)
        return true;
    void *object = object_of(row, context);
    if (!at->has_begun)
        at->next = INT64_MIN;
    at->has_begun = object != NULL && row->kind->give_base != NULL;
    bool is_good = !at->has_begun || row->kind->give_base(object, leaving, round, &at->next, out);
    if (!at->has_begun || at->next == INT64_MAX || !is_good)
        *at = (struct operator_base){.row = at->row + 1};
    return is_good;
}

bool operator_take_base(const struct operator_kind *kind, struct operator_context *context,
                        const struct group_set *coming, struct str record)
{
    for (const struct state_member *row = rows_of(kind); row->kind != NULL && record.length > 0; row++) {
        void *object = object_of(row, context);
        if (object != NULL && row->tag == record.data[0] && row->kind->take_base != NULL)
            return row->kind->take_base(object, coming, record);
    }
    return false;
}

bool operator_give(const struct operator_kind *kind, struct operator_context *context,
                   const struct group_set *leaving, struct byte_buffer *out)
{
    if (kind->give != NULL)
        return kind->give(context, leaving, out);
    bool is_good = true;
    for (const struct state_member *row = rows_of(kind); row->kind != NULL; row++) {
        void *object = object_of(row, context);
        if (object != NULL && row->kind->give != NULL)
            is_good &= row->kind->give(row, context, object, leaving, out);
    }
    return is_good;
}

void operator_regroup(const struct operator_kind *kind, struct operator_context *context)
{
    for (const struct state_member *row = rows_of(kind); row->kind != NULL; row++) {
        void *object = object_of(row, context);
        if (object != NULL && row->kind->regroup != NULL)
            row->kind->regroup(object);
    }
}

static bool take_record(const struct operator_kind *kind, struct operator_context *context, struct str record)
{
    if (kind->take != NULL)
        return kind->take(context, record);
    for (const struct state_member *row = rows_of(kind); row->kind != NULL && record.length > 0; row++) {
        void *object = object_of(row, context);
        if (object != NULL && row->tag == record.data[0] && row->kind->take != NULL)
            return row->kind->take(row, context, object, record);
    }
    return false;
}

bool operator_take(const struct operator_kind *kind, struct operator_context *context, struct str given)
{
    uint32_t group;
    struct str record;
    while (moved_next(&given, &group, &record))
        if (!take_record(kind, context, record))
            return false;
    return given.length == 0;
}

bool operator_import(const struct operator_kind *kind, struct operator_context *context,
                     struct state_store *from)
{
    bool is_good = true;
    for (const struct state_member *row = rows_of(kind); row->kind != NULL; row++) {
        void *object = object_of(row, context);
        if (object != NULL && row->kind->import != NULL)
            is_good &= row->kind->import(object, from);
    }
    return is_good;
}

void operator_weigh(const struct operator_kind *kind, struct operator_context *context,
                    struct state_weight *weight)
{
    for (const struct state_member *row = rows_of(kind); row->kind != NULL; row++) {
        void *object = object_of(row, context);
        if (object != NULL && row->kind->weigh != NULL)
            row->kind->weigh(object, weight);
    }
}

bool operator_forget_groups(const struct operator_kind *kind, struct operator_context *context,
                            const struct group_set *groups)
{
    bool is_good = true;
    for (const struct state_member *row = rows_of(kind); row->kind != NULL; row++) {
        void *object = object_of(row, context);
        if (object != NULL && row->kind->forget_groups != NULL)
            is_good &= row->kind->forget_groups(object, groups);
    }
    return is_good;
}

/* --- Records of the operator's own --- */

static bool record_snapshot(const struct state_member *row, struct operator_context *context,
                            void *object LEAT_UNUSED, struct snapshot_writer *writer)
{
    const struct state_record *callbacks = row->argument;
    struct byte_buffer record = {0};
    buffer_append(&record, &row->tag, sizeof(row->tag));
    bool is_good = callbacks->write(context, &record) &&
                   snapshot_put(writer, SNAPSHOT_GLOBAL, record.data, record.length);
    buffer_free(&record);
    return is_good;
}

static bool record_restore(const struct state_member *row, struct operator_context *context,
                           void *object LEAT_UNUSED, struct snapshot_reader *reader, struct str record)
{
    const struct state_record *callbacks = row->argument;
    return callbacks->read(context, reader, record);
}

static bool record_restored(const struct state_member *row, struct operator_context *context,
                            void *object LEAT_UNUSED)
{
    const struct state_record *callbacks = row->argument;
    return callbacks->restored == NULL || callbacks->restored(context);
}

static bool record_give(const struct state_member *row, struct operator_context *context,
                        void *object LEAT_UNUSED, const struct group_set *leaving LEAT_UNUSED,
                        struct byte_buffer *out)
{
    const struct state_record *callbacks = row->argument;
    struct byte_buffer record = {0};
    buffer_append(&record, &row->tag, sizeof(row->tag));
    bool is_good = !callbacks->moves || callbacks->write(context, &record);
    if (callbacks->moves && is_good)
        moved_put(out, SNAPSHOT_GLOBAL, record.data, record.length);
    buffer_free(&record);
    return is_good;
}

static bool record_take(const struct state_member *row, struct operator_context *context,
                        void *object LEAT_UNUSED, struct str record)
{
    const struct state_record *callbacks = row->argument;
    return callbacks->moves && callbacks->read(context, NULL, record);
}

const struct state_kind state_record = {.snapshot = record_snapshot,
                                        .restore = record_restore,
                                        .restored = record_restored,
                                        .give = record_give,
                                        .take = record_take};

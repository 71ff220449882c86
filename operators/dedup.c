/* dedup: drops events whose identity was seen before.
 *
 * An identity is remembered from its first sighting at event time f: a row with the same identity is a
 * duplicate if its event time is in (f - within, f + within). Rows are judged in record order, so "first" is
 * the one that arrived first; a row at or after f + within passes and is remembered in turn; a row at or
 * before f - within passes, and what is remembered stays. An identity is forgotten when the watermark has
 * reached f + within: a row that comes later than the watermark allows can then pass again. State: the
 * table's expiry time alone, f + within - 1, no value. */
#include "operators/keys.h"

struct dedup {
    struct columns by;
    int64_t within_us;
    int keep;
    int *columns;
    struct keyed_table *table;
};

enum { DEDUP_TABLE = 'k' };

static const struct option dedup_options[] = {
    OPTION_COLUMNS(struct dedup, by, "by", OPTION_REQUIRED, "the columns that identify an event"),
    OPTION_DURATION(struct dedup, within_us, "within", OPTION_REQUIRED, NULL, "1ms", "3650d",
                    "how long an identity is remembered after its first sighting, in event time"),
    OPTION_ENUM(struct dedup, keep, "keep", 0, "first", "first", "which of the duplicates goes on"),
    OPTIONS_END,
};

static bool dedup_bind(struct operator_bind *bind)
{
    struct dedup *dedup = bind->config;
    if (!keys_bind(bind, 0, &dedup->by, &dedup->columns))
        return false;
    struct schema *output = operator_extend(bind, 0);
    /* Which rows are there depends on the identities. */
    keys_lineage(bind, 0, &output->rows_lineage);
    bind->outputs[0] = output;
    bind->needs_memory = true;
    return true;
}

static bool dedup_open(struct operator_context *context)
{
    struct dedup *dedup = context->config;
    dedup->table = keyed_table_new(&(struct keyed_options){.store = context->state_store,
                                                           .id = context->id,
                                                           .kind = DEDUP_TABLE,
                                                           .budget_bytes = (size_t)context->memory_bytes});
    return true;
}

/* Whether the row is a duplicate; a first sighting is remembered. */
static bool is_duplicate(const struct operator_context *context, const struct dedup *dedup,
                         struct keyed_slot *slot, int64_t time)
{
    int64_t expire = time_add(time, dedup->within_us - 1);
    if (slot->expire_us != TIME_MIN) {
        int64_t first = slot->expire_us - dedup->within_us + 1;
        if (time < first)
            return time > time_add(first, -dedup->within_us);
        if (time <= slot->expire_us)
            return true;
    }
    /* What is dead already is not remembered: whether it would be seen must not depend on where a batch ends.
     */
    if (expire >= context->watermark)
        (void)keyed_write(dedup->table, slot, 0, expire);
    return false;
}

static void dedup_process(struct operator_context *context, uint32_t input, struct batch *batch)
{
    (void)input;
    struct dedup *dedup = context->config;
    struct row_keys keys = keys_of(batch, dedup->columns, dedup->by.count, context->scratch);
    struct keyed_slot *slots[BATCH_ROWS];
    uint16_t sel[BATCH_ROWS];
    uint32_t count = 0;
    keyed_begin(dedup->table, keys.keys, keys.hashes, batch->selected, slots);
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        context->counters.null_keys += keys.has_null[i];
        if (keys.has_null[i] || !is_duplicate(context, dedup, slots[i], batch->event_time[row]))
            sel[count++] = (uint16_t)row;
    }
    keyed_end(dedup->table);
    context->counters.passed += count;
    context->counters.duplicate += batch->selected - count;
    if (count == 0)
        return;
    struct batch *out = batch_derive(batch, context->output);
    if (count < batch->selected) {
        out->sel = arena_copy(&out->arena, sel, count * sizeof *sel);
        out->selected = count;
    }
    operator_emit(context, 0, out);
}

static void dedup_facts(struct operator_context *context, uint32_t input LEAT_UNUSED,
                        const struct batch *batch, struct row_facts *facts)
{
    struct dedup *dedup = context->config;
    struct row_keys keys = keys_of(batch, dedup->columns, dedup->by.count, context->scratch);
    struct keyed_slot *slot;
    keyed_look(dedup->table, keys.keys, keys.hashes, 1, &slot);
    if (slot != NULL && slot->expire_us != TIME_MIN && !keys.has_null[0]) {
        row_facts_add_time(facts, "first seen", slot->expire_us - dedup->within_us + 1);
        row_facts_add_time(facts, "remembered until", slot->expire_us);
    }
    keyed_end(dedup->table);
}

static void dedup_on_watermark(struct operator_context *context, int64_t watermark)
{
    struct dedup *dedup = context->config;
    keyed_set_watermark(dedup->table, watermark);
}

static bool dedup_snapshot(struct operator_context *context, struct snapshot_writer *writer)
{
    struct dedup *dedup = context->config;
    return keyed_table_snapshot(dedup->table, writer);
}

static bool dedup_restore(struct operator_context *context, struct snapshot_reader *reader)
{
    struct dedup *dedup = context->config;
    keyed_set_watermark(dedup->table, context->watermark);
    uint32_t group;
    struct str record;
    while (snapshot_get(reader, &group, &record))
        if (!keyed_table_restore(dedup->table, reader, record, context->diags))
            return false;
    return true;
}

static bool dedup_describe(struct operator_context *context, struct state_query *query, struct describe *out)
{
    struct dedup *dedup = context->config;
    struct keyed_slot *slot = keys_look(context, query, dedup->table, dedup->columns, dedup->by.count);
    bool is_there = slot != NULL && slot->expire_us != TIME_MIN;
    if (is_there) {
        describe_time(out, "seen", slot->expire_us - dedup->within_us + 1);
        describe_time(out, "until", slot->expire_us);
    }
    keyed_end(dedup->table);
    return is_there;
}

static void dedup_report(struct operator_context *context, struct report *report)
{
    keys_report(((struct dedup *)context->config)->table, report);
}

static void dedup_close(struct operator_context *context)
{
    struct dedup *dedup = context->config;
    keyed_table_free(dedup->table);
    dedup->table = NULL;
}

const struct operator_kind operator_dedup = {
    .name = "dedup",
    .summary = "drops events whose identity was seen before",
    .example = "events | dedup by user_id, item_id within 1h",
    .details =
        "The first of the rows with the same identity goes on, in the order of records. It is remembered by "
        "event time: from its own until `within` later, and for rows that come out of order as long "
        "before. A row whose identity is null, in any of the columns, passes and is counted.",
    .options = dedup_options,
    .size = sizeof(struct dedup),
    .determinism = DETERMINISM_BY_RECORD_ORDER,
    .keeps_columns = true,
    .uses_time = true,
    .inputs_min = 1,
    .inputs_max = 1,
    .bind = dedup_bind,
    .open = dedup_open,
    .process = dedup_process,
    .facts = dedup_facts,
    .on_watermark = dedup_on_watermark,
    .snapshot = dedup_snapshot,
    .restore = dedup_restore,
    .report = dedup_report,
    .describe = dedup_describe,
    .close = dedup_close,
};

/* window: one row for each group and window, when the window closes.
 *
 * A tumbling window is [start, end). It closes when the watermark reaches its end + lateness: the rows of all
 * groups then come out in the order (window end, hash of the key), in batches of at most 1,024. A row is late
 * when the watermark of the number before had closed its window: it goes to the second output. State: the
 * windows of a group are the panes of one keyed entry, whose prefix holds the values of the key columns; an
 * entry expires with its last window. To close a window the lane goes over its key groups, which rise with
 * the hash, and sorts what each has: the memory this takes is that of one key group, in RocksDB or not. */
#include "operators/expr/compute.h"
#include "operators/keys.h"
#include "operators/panes.h"

#include <stdlib.h>

enum { WINDOW_TABLE = 'k', WINDOW_ENDS = 'e' };

/* The first byte says what a record of a snapshot is; ends follow it after 8 bytes. */
enum { ENDS_HEAD = 8 };

struct window {
    struct columns by;
    struct expression over;
    int64_t lateness_us;
    struct assignments values;
    /* Made by bind. */
    int64_t size_us;
    int *keys;
    struct aggregates aggregates;
    /* The lane's. */
    struct keyed_table *table;
    struct panes panes;
    struct panes_sum sum;
    int64_t *open; /* window indices that may have rows, rising */
    uint32_t open_count, open_capacity;
    struct byte_buffer prefix, closing;
    struct closing_entry *entries;
    uint32_t entries_count, entries_capacity;
};

/* A group's entry with a window that closes: a copy of its value, as keyed_read wants it, in `closing`. */
struct closing_entry {
    uint64_t hash;
    struct key key;
    size_t offset;
};

static const struct option window_options[] = {
    OPTION_COLUMNS(struct window, by, "by", OPTION_REQUIRED, "the columns that make a group"),
    OPTION_EXPRESSION(struct window, over, "over", OPTION_REQUIRED, "the windows: tumbling(1h)"),
    OPTION_DURATION(struct window, lateness_us, "lateness", 0, "0s", "0s", "365d",
                    "how long after its end a window still takes rows in"),
    OPTION_ASSIGNMENTS(struct window, values, "values", OPTION_REQUIRED | OPTION_BODY,
                       "the new columns and their aggregates"),
    OPTIONS_END,
};

/* --- Binding --- */

static bool bind_tumbling(struct operator_bind *bind, struct window *window, const struct ast *call)
{
    if (call->count == 1 && call->children[0]->tag == AST_DURATION && call->children[0]->integer >= 1000 &&
        call->children[0]->integer <= 3650 * US_PER_DAY) {
        window->size_us = call->children[0]->integer;
        return true;
    }
    diag_error(bind->diags, DIAG_E0404, call->span,
               "tumbling wants one duration from 1ms to 3650d: tumbling(1h)");
    return false;
}

/* Kinds of windows. */
static const struct shape {
    const char *name;
    bool (*bind)(struct operator_bind *bind, struct window *window, const struct ast *call);
} shapes[] = {{"tumbling", bind_tumbling}};

static bool bind_shape(struct operator_bind *bind, struct window *window)
{
    const struct ast *call = window->over.ast;
    const char *names[ARRAY_COUNT(shapes)];
    for (size_t i = 0; i < ARRAY_COUNT(shapes); i++) {
        if (call->tag == AST_CALL && str_is(call->text, shapes[i].name))
            return shapes[i].bind(bind, window, call);
        names[i] = shapes[i].name;
    }
    struct diag *diag =
        diag_error(bind->diags, DIAG_E0405, call->span, "no such kind of window; there is tumbling(1h)");
    const char *near = call->tag == AST_CALL ? diag_nearest(call->text, names, ARRAY_COUNT(names)) : NULL;
    if (near != NULL)
        diag_hint(bind->diags, diag, "did you mean `%s`?", near);
    return false;
}

static struct field *add_field(struct operator_bind *bind, struct schema *output, struct str name,
                               struct type type, struct span span)
{
    if (schema_find(output, name) >= 0) {
        diag_error(bind->diags, DIAG_E0306, span, "there is a column `%.*s` already", STR_ARGS(name));
        return NULL;
    }
    struct field *field = schema_add(output, name, type);
    field_chosen(field, &output->rows_lineage);
    return field;
}

/* The keys, window_start, window_end, the aggregates. */
static bool bind_output(struct operator_bind *bind, struct window *window)
{
    const struct schema *input = bind->inputs[0].schema;
    struct schema empty = {.rows_lineage = input->rows_lineage};
    struct schema *output = schema_copy(bind->arena, &empty, window->by.count + window->aggregates.count + 2);
    keys_lineage(bind, 0, &output->rows_lineage); /* which rows there are depends on the keys */
    bool is_good = true;
    for (uint32_t i = 0; i < window->by.count; i++) {
        const struct field *field = &input->fields[window->keys[i]];
        struct field *key = add_field(bind, output, field->name, field->type, window->by.items[i].span);
        is_good &= key != NULL;
        if (key != NULL)
            field_merge(key, field);
    }
    is_good &= add_field(bind, output, STR("window_start"), type_of(TYPE_TIME), bind->span) != NULL;
    is_good &= add_field(bind, output, STR("window_end"), type_of(TYPE_TIME), bind->span) != NULL;
    for (uint32_t i = 0; i < window->aggregates.count; i++) {
        const struct aggregate *aggregate = &window->aggregates.items[i];
        struct field *field = add_field(bind, output, aggregate->name, aggregate->result, aggregate->span);
        is_good &= field != NULL;
        if (field != NULL)
            field_merge(field, &(struct field){.lineage = aggregate->lineage});
    }
    bind->outputs[0] = output;
    bind->outputs[1] = input;
    return is_good;
}

static bool window_bind(struct operator_bind *bind)
{
    struct window *window = bind->config;
    bool is_good = bind_shape(bind, window);
    is_good &= keys_bind(bind, 0, &window->by, &window->keys);
    is_good &= aggregates_bind(bind, &window->values, bind->inputs[0].schema, false, &window->aggregates);
    bind->is_timer_kind = true;
    bind->sets_time = true;
    bind->needs_memory = true;
    bind->hold_us = window->lateness_us;
    return is_good && bind_output(bind, window);
}

static bool window_open(struct operator_context *context)
{
    struct window *window = context->config;
    window->table = keyed_table_new(&(struct keyed_options){.store = context->state_store,
                                                            .id = context->id,
                                                            .kind = WINDOW_TABLE,
                                                            .budget_bytes = (size_t)context->memory_bytes});
    panes_init(&window->panes, &window->aggregates, window->table, 1);
    panes_sum_init(&window->panes, &window->sum);
    return true;
}

/* --- Rows in --- */

/* When the window is closed: the watermark is not below this. */
static int64_t closed_at(const struct window *window, int64_t index)
{
    return pane_end(index, window->size_us, window->lateness_us);
}

static void note_open(struct window *window, int64_t index)
{
    uint32_t at = window->open_count;
    while (at > 0 && window->open[at - 1] > index)
        at--;
    if (at > 0 && window->open[at - 1] == index)
        return;
    if (window->open_count == window->open_capacity) {
        window->open_capacity = MAX(window->open_capacity * 2, 16);
        window->open = realloc(window->open, window->open_capacity * sizeof *window->open);
        leat_assert(window->open != NULL);
    }
    memmove(&window->open[at + 1], &window->open[at], (window->open_count - at) * sizeof *window->open);
    window->open[at] = index;
    window->open_count++;
}

static bool add_row(struct operator_context *context, struct window *window, const struct batch *batch,
                    uint32_t row, const struct column *arguments, struct keyed_slot *slot)
{
    int64_t time = batch->event_time[row], passed = time_add(context->watermark, -window->lateness_us);
    struct panes_row update = {.pane = pane_of(time, window->size_us),
                               .first_alive =
                                   passed == TIME_MIN ? INT64_MIN : pane_of(passed, window->size_us),
                               .arguments = arguments,
                               .row = row,
                               .time = time};
    update.expire_us = closed_at(window, update.pane) - 1;
    uint32_t bytes;
    keyed_read(slot, &bytes);
    if (bytes == 0) {
        buffer_clear(&window->prefix);
        for (uint32_t i = 0; i < window->by.count; i++)
            row_encode_value(&window->prefix, &batch->columns[window->keys[i]],
                             &batch->schema->fields[window->keys[i]].type, row);
        update.prefix = (struct str){window->prefix.data, window->prefix.length};
    }
    if (!panes_update(&window->panes, slot, &update))
        return false;
    note_open(window, update.pane);
    return true;
}

static void emit_late(struct operator_context *context, struct batch *batch, const uint16_t *sel,
                      uint32_t count)
{
    context->counters.late += count;
    if (count == 0)
        return;
    struct batch *late = batch_derive(batch, batch->schema);
    late->sel = arena_copy(&late->arena, sel, count * sizeof *sel);
    late->selected = count;
    operator_emit(context, 1, late);
}

static void window_process(struct operator_context *context, uint32_t input, struct batch *batch)
{
    (void)input;
    struct window *window = context->config;
    struct row_keys keys = keys_of(batch, window->keys, window->by.count, context->scratch);
    struct expr_errors errors = {0};
    struct column *arguments = aggregates_evaluate(&window->aggregates, batch, context->scratch, &errors);
    struct keyed_slot *slots[BATCH_ROWS];
    uint16_t late[BATCH_ROWS], full[BATCH_ROWS];
    uint32_t late_count = 0, full_count = 0;
    keyed_begin(window->table, keys.keys, keys.hashes, batch->selected, slots);
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        context->counters.null_keys += keys.has_null[i];
        if (errors.count > 0 && bit_get(errors.rows, row))
            continue;
        if (closed_at(window, pane_of(batch->event_time[row], window->size_us)) <= context->watermark)
            late[late_count++] = (uint16_t)row;
        else if (add_row(context, window, batch, row, arguments, slots[i]))
            context->counters.absorbed++;
        else
            full[full_count++] = (uint16_t)row;
    }
    keyed_end(window->table);
    compute_reject(context, batch, &errors);
    for (uint32_t i = 0; i < full_count; i++)
        operator_reject(context, batch, full[i],
                        "the group's open windows hold more state than an entry may have");
    emit_late(context, batch, late, late_count);
}

static void window_facts(struct operator_context *context, uint32_t input LEAT_UNUSED,
                         const struct batch *batch, struct row_facts *facts)
{
    const struct window *window = context->config;
    int64_t index = pane_of(batch->event_time[batch_row(batch, 0)], window->size_us);
    row_facts_add_time(facts, "window start", pane_end(index - 1, window->size_us, 0));
    row_facts_add_time(facts, "window end", pane_end(index, window->size_us, 0));
    row_facts_add_time(facts, "closes at watermark", closed_at(window, index));
}

/* --- Rows out --- */

/* A batch that is being filled. */
struct emission {
    struct batch *batch;
    struct column_builder *builders;
    struct column_builder *aggregates[AGGREGATES_MAX];
    struct row_order *orders;
    uint32_t rows;
};

struct visit {
    struct window *window;
    int64_t index;
};

static void visit_entry(void *argument, const struct keyed_slot *slot)
{
    struct visit *visit = argument;
    struct window *window = visit->window;
    if (!panes_has(&window->panes, slot, visit->index))
        return;
    if (window->entries_count == window->entries_capacity) {
        window->entries_capacity = MAX(window->entries_capacity * 2, 64);
        window->entries = realloc(window->entries, window->entries_capacity * sizeof *window->entries);
        leat_assert(window->entries != NULL);
    }
    uint32_t bytes, head[2] = {0, 0};
    const char *data = keyed_read(slot, &bytes);
    head[0] = bytes;
    window->entries[window->entries_count++] =
        (struct closing_entry){key_hash(slot->key), slot->key, window->closing.length};
    buffer_append(&window->closing, head, sizeof head);
    buffer_append(&window->closing, data, bytes);
    buffer_reserve(&window->closing, 8);
    window->closing.length = (window->closing.length + 7) & ~(size_t)7;
}

static int by_hash(const void *a, const void *b)
{
    const struct closing_entry *x = a, *y = b;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    return memcmp(&x->key, &y->key, sizeof x->key);
}

static void begin_emission(struct operator_context *context, const struct window *window,
                           struct emission *emission)
{
    const struct schema *schema = context->output;
    struct batch *batch = emission->batch = batch_new(context->pool, schema, BATCH_ROWS);
    emission->rows = 0;
    emission->orders = arena_alloc(&batch->arena, BATCH_ROWS * sizeof *emission->orders);
    emission->builders = arena_array(&batch->arena, struct column_builder, schema->count);
    for (uint32_t i = 0; i < schema->count; i++)
        builder_init(&emission->builders[i], batch, &batch->columns[i], schema->fields[i].type);
    for (uint32_t i = 0; i < window->aggregates.count; i++)
        emission->aggregates[i] = &emission->builders[window->by.count + 2 + i];
}

static void end_emission(struct operator_context *context, struct emission *emission)
{
    struct batch *batch = emission->batch;
    emission->batch = NULL;
    if (batch == NULL)
        return;
    for (uint32_t i = 0; i < context->output->count; i++)
        builder_finish(&emission->builders[i]);
    batch->rows = batch->selected = emission->rows;
    batch->orders = emission->orders;
    context->counters.emitted += emission->rows;
    operator_emit(context, 0, batch);
}

static void emit_entry(struct operator_context *context, struct window *window, struct emission *emission,
                       const struct closing_entry *entry, int64_t index)
{
    if (emission->batch == NULL)
        begin_emission(context, window, emission);
    uint32_t row = emission->rows++;
    int64_t start, end = pane_end(index, window->size_us, 0);
    if (__builtin_mul_overflow(index, window->size_us, &start))
        start = TIME_MIN;
    struct keyed_slot slot = {.bits = (uint64_t)(uintptr_t)(window->closing.data + entry->offset)};
    struct str prefix = panes_prefix(&slot);
    const char *at = prefix.data;
    for (uint32_t i = 0; i < window->by.count; i++)
        if (!builder_decode(&emission->builders[i], row, &at, prefix.data + prefix.length))
            builder_null(&emission->builders[i], row);
    emission->batch->columns[window->by.count].ints[row] = start;
    emission->batch->columns[window->by.count + 1].ints[row] = end;
    emission->batch->event_time[row] = end - 1;
    emission->orders[row] = (struct row_order){.place = 1 + context->place, .time = end, .tie = entry->hash};
    panes_sum_clear(&window->panes, &window->sum);
    panes_read(&window->panes, &slot, index, index, &window->sum);
    panes_finish(&window->panes, &window->sum, end - 1, emission->aggregates, row);
    if (emission->rows == BATCH_ROWS)
        end_emission(context, emission);
}

static void close_window(struct operator_context *context, struct window *window, int64_t index)
{
    struct emission emission = {0};
    struct visit visit = {window, index};
    uint32_t first, limit;
    keyed_groups(context->lane, context->lanes, &first, &limit);
    for (uint32_t group = first; group < limit; group++) {
        buffer_clear(&window->closing);
        window->entries_count = 0;
        keyed_scan_group(window->table, group, visit_entry, &visit);
        if (window->entries_count > 1)
            qsort(window->entries, window->entries_count, sizeof *window->entries, by_hash);
        for (uint32_t i = 0; i < window->entries_count; i++)
            emit_entry(context, window, &emission, &window->entries[i], index);
    }
    end_emission(context, &emission);
}

static void window_on_watermark(struct operator_context *context, int64_t watermark)
{
    struct window *window = context->config;
    uint32_t closed = 0;
    while (closed < window->open_count && closed_at(window, window->open[closed]) <= watermark)
        close_window(context, window, window->open[closed++]);
    if (closed > 0) {
        window->open_count -= closed;
        memmove(window->open, window->open + closed, window->open_count * sizeof *window->open);
    }
    keyed_set_watermark(window->table, watermark);
}

/* --- Checkpoints, the end --- */

static bool window_snapshot(struct operator_context *context, struct snapshot_writer *writer)
{
    struct window *window = context->config;
    struct byte_buffer record = {0};
    char head[ENDS_HEAD] = {WINDOW_ENDS};
    buffer_append(&record, head, sizeof head);
    buffer_append(&record, window->open, window->open_count * sizeof *window->open);
    bool is_good = snapshot_put(writer, SNAPSHOT_GLOBAL, record.data, record.length);
    buffer_free(&record);
    return is_good && keyed_table_snapshot(window->table, writer);
}

/* The windows that any lane had open; one that this lane has nothing of closes without a row. */
static bool restore_open(struct operator_context *context, struct window *window,
                         struct snapshot_reader *reader, struct str record)
{
    if (record.length < ENDS_HEAD || (record.length - ENDS_HEAD) % sizeof(int64_t) != 0) {
        snapshot_corrupt(reader, context->diags, "a list of open windows has an impossible length");
        return false;
    }
    for (size_t at = ENDS_HEAD; at < record.length; at += sizeof(int64_t)) {
        int64_t index;
        memcpy(&index, record.data + at, sizeof index);
        if (closed_at(window, index) > context->watermark)
            note_open(window, index);
    }
    return true;
}

static bool window_restore(struct operator_context *context, struct snapshot_reader *reader)
{
    struct window *window = context->config;
    keyed_set_watermark(window->table, context->watermark);
    uint32_t group;
    struct str record;
    while (snapshot_get(reader, &group, &record)) {
        bool is_open = record.length > 0 && record.data[0] == WINDOW_ENDS;
        if (is_open ? !restore_open(context, window, reader, record)
                    : !keyed_table_restore(window->table, reader, record, context->diags))
            return false;
    }
    return true;
}

static bool window_describe(struct operator_context *context, struct state_query *query, struct describe *out)
{
    struct window *window = context->config;
    struct keyed_slot *slot = keys_look(context, query, window->table, window->keys, window->by.count);
    bool is_there = slot != NULL && panes_count(slot) > 0;
    if (is_there)
        panes_describe(&window->panes, &window->sum, slot, window->size_us, context, out);
    keyed_end(window->table);
    return is_there;
}

static void window_report(struct operator_context *context, struct report *report)
{
    keys_report(((struct window *)context->config)->table, report);
}

static void window_close(struct operator_context *context)
{
    struct window *window = context->config;
    if (window->table == NULL)
        return;
    panes_sum_free(&window->panes, &window->sum);
    panes_free(&window->panes);
    keyed_table_free(window->table);
    buffer_free(&window->prefix);
    buffer_free(&window->closing);
    free(window->open);
    free(window->entries);
    window->table = NULL;
}

const struct operator_kind operator_window = {
    .name = "window",
    .summary = "makes one row for each group and window of time",
    .example = "events | window by item_id over tumbling(1h) { n: count(), total: sum(price) }",
    .details =
        "Columns: the keys, window_start, window_end, the aggregates. A window is [start, end); its row "
        "comes when "
        "the watermark reaches its end + `lateness` and has the event time end - 1us. Rows for a window that "
        "was closed before go to `NAME.late`, which a sink can take. Null is a group of its own. A sum of "
        "ints "
        "that does not fit is null.",
    .options = window_options,
    .size = sizeof(struct window),
    .determinism = DETERMINISM_BY_RECORD_ORDER,
    .uses_time = true,
    .inputs_min = 1,
    .inputs_max = 1,
    .bind = window_bind,
    .open = window_open,
    .process = window_process,
    .facts = window_facts,
    .on_watermark = window_on_watermark,
    .snapshot = window_snapshot,
    .restore = window_restore,
    .report = window_report,
    .describe = window_describe,
    .close = window_close,
};

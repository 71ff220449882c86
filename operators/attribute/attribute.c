/* attribute: the label join. A row of event time t gets the label 1 if a row of the other stream (an answer)
 * with an equal key has an event time in [t, t + within], else 0; on request also columns of the answers.
 *
 * `emit at_deadline` holds each row until t + within, when the label is certain. `at_once` and
 * `fake_negative` emit rows earlier: attribute_early.c says what that does to the order and distribution of
 * rows. With these two, and with `take all`, not only the label column but also the number and order of rows
 * depend on the label: the output's lineage says so (rows_lineage). */
#include "operators/attribute/attribute.h"

enum { BUCKETS = 64 };

static const struct option attribute_options[] = {
    OPTION_STREAM(struct attribute, stream, "stream", OPTION_REQUIRED | OPTION_POSITIONAL,
                  "the stream whose rows are the answers"),
    OPTION_COLUMNS(struct attribute, on, "on", OPTION_REQUIRED,
                   "the key columns, which both streams must have: an answer matches a row if they "
                   "are equal"),
    OPTION_DURATION(struct attribute, within_us, "within", OPTION_REQUIRED, NULL, "1ms", "365d",
                    "how long after a row its answers count, in event time"),
    OPTION_NAME(struct attribute, label, "as", OPTION_REQUIRED,
                "the new column, the label: 1 if an answer came in time, else 0"),
    OPTION_ENUM(
        struct attribute, take, "take", 0, "any", "any|first|last|all",
        "the answer whose columns are added: first (also `any`) or last by event time; all: one row for "
        "each answer"),
    OPTION_ENUM(struct attribute, emit, "emit", 0, "at_deadline", "at_deadline|at_once|fake_negative",
                "at_deadline: when the label is certain; at_once: as soon as there is an answer, else at the "
                "deadline; fake_negative: at once with 0, and again with 1 when an answer comes"),
    OPTION_ASSIGNMENTS(struct attribute, values, "values", OPTION_BODY,
                       "new columns from the answer, null in a row without one: `{ clicked_at: ts }`"),
    OPTIONS_END,
};

/* Table, waiting rows and queue have equal shares of the memory. */
static struct state_plan plan_of(const struct operator_context *context, bool is_there)
{
    const struct attribute *attribute = context->config;
    bool has_all = attribute->emit == ATTRIBUTE_AT_ONCE;
    return (struct state_plan){.is_absent = !is_there,
                               .memory_bytes = (size_t)context->memory_bytes / (has_all ? 3 : 2),
                               .bucket_us = MAX(attribute->within_us / BUCKETS, 1)};
}

static struct state_plan plan_table(const struct operator_context *context)
{
    return plan_of(context, true);
}

static struct state_plan plan_waiting(const struct operator_context *context)
{
    return plan_of(context, ((const struct attribute *)context->config)->emit != ATTRIBUTE_AT_DEADLINE);
}

static struct state_plan plan_queue(const struct operator_context *context)
{
    return plan_of(context, ((const struct attribute *)context->config)->emit != ATTRIBUTE_FAKE_NEGATIVE);
}

static const struct tally_figure attribute_figures[TALLY_VALUES] = {
    [ATTRIBUTE_ANSWERS_DROPPED] = {"answers_dropped", .is_rare = true},
    [ATTRIBUTE_ROWS_DROPPED] = {"fake_negatives_dropped", .is_rare = true},
    [ATTRIBUTE_ROWS_LEFT_OUT] = {"not_at_once", .is_rare = true},
};

static const struct state_member attribute_state[] = {
    STATE_LAYOUTS(struct attribute, layouts, 'L', input),
    STATE_TALLY(struct attribute, tally, 't', attribute_figures),
    STATE_HOT_KEYS(struct attribute, hot, 'H'),
    STATE_TABLE(struct attribute, table, 'k', plan_table),
    STATE_TABLE_APART(struct attribute, waiting, 'w', plan_waiting, "state_waiting_bytes"),
    STATE_QUEUE(struct attribute, queue, 'q', plan_queue, "state_held_bytes"),
    STATES_END,
};

/* --- Binding --- */

static bool check_options(struct operator_bind *bind, const struct attribute *attribute)
{
    struct diag *d = NULL;
    bool is_early = attribute->emit != ATTRIBUTE_AT_DEADLINE;
    if (is_early && (attribute->take == ATTRIBUTE_LAST || attribute->take == ATTRIBUTE_ALL)) {
        d = diag_error(bind->diags, DIAG_OPTIONS_CLASH, bind->span,
                       "`emit at_once` and `emit fake_negative` take the answer that arrives first: later "
                       "answers are not known yet");
        diag_hint(bind->diags, d, "`take last` and `take all` need `emit at_deadline`");
    } else if (attribute->values.count == 0 &&
               (attribute->take == ATTRIBUTE_FIRST || attribute->take == ATTRIBUTE_LAST)) {
        d = diag_error(bind->diags, DIAG_OPTIONS_CLASH, bind->span,
                       "`take` chooses the answer whose columns are added, but no columns are named");
        diag_hint(bind->diags, d, "name the columns, for example `{ answered_at: ts }`, or leave `take` out");
    }
    return d == NULL;
}

/* The answer's columns get the label's lineage too: their values give the label away. */
static bool bind_output(struct operator_bind *bind, struct attribute *attribute)
{
    const struct schema *answers = bind->inputs[1].schema;
    struct schema *output = operator_extend(bind, 1 + attribute->values.count);
    struct lineage root = {0};
    bit_set(root.words, bind->label_root);
    schema_add(output, attribute->label.name, type_of(TYPE_INT))->lineage = root;
    if (attribute->emit != ATTRIBUTE_AT_DEADLINE || attribute->take == ATTRIBUTE_ALL) {
        lineage_merge(&output->rows_lineage, &root);
        output->repeats |= attribute->emit == ATTRIBUTE_FAKE_NEGATIVE || attribute->take == ATTRIBUTE_ALL;
    }
    attribute->keeps_rows = attribute->values.count > 0 || attribute->take == ATTRIBUTE_ALL ||
                            attribute->emit != ATTRIBUTE_AT_DEADLINE;
    bind->outputs[0] = output;
    bind->outputs[1] = attribute->input;
    bind->hold_us = attribute->within_us;
    bind->is_timer_kind = attribute->emit != ATTRIBUTE_FAKE_NEGATIVE;
    bind->needs_memory = true;
    return version_columns_add(bind, &attribute->columns, &root, answers, output);
}

static bool attribute_bind(struct operator_bind *bind)
{
    struct attribute *attribute = bind->config;
    bool is_good = keys_bind_both(bind, &attribute->on, &attribute->keys, &attribute->answer_keys);
    attribute->input = bind->inputs[0].schema;
    is_good &= check_options(bind, attribute);
    if (schema_find(attribute->input, attribute->label.name) >= 0) {
        diag_error(bind->diags, DIAG_COLUMN_TAKEN, attribute->label.span, "there is a column `%.*s` already",
                   STR_ARGS(attribute->label.name));
        is_good = false;
    } else {
        is_good &= operator_has_room(bind, 1 + attribute->values.count);
    }
    is_good &= version_columns_bind(bind, &attribute->values, bind->inputs[1].schema, &attribute->columns);
    return is_good && bind_output(bind, attribute);
}

static void attribute_shape(const struct operator_bind *bind, struct byte_buffer *out)
{
    const struct attribute *attribute = bind->config;
    buffer_printf(out, "=answers: %.*s within %lld us\n", STR_ARGS(attribute->stream.name),
                  (long long)attribute->within_us);
    for (uint32_t i = 0; i < attribute->on.count; i++)
        buffer_printf(out, "=on %.*s: %s\n", STR_ARGS(attribute->on.items[i].name),
                      type_name(bind->arena, &attribute->input->fields[attribute->keys[i]].type));
    held_shape(attribute->input, bind->arena, out);
    if (attribute->keeps_rows) /* no line where keys keep only event times */
        buffer_printf(out, "=answers kept: all of them\n");
    if (attribute->emit != ATTRIBUTE_AT_DEADLINE)
        buffer_printf(out, "=emit: %s\n", attribute->emit == ATTRIBUTE_AT_ONCE ? "at_once" : "fake_negative");
    version_columns_shape(bind, &attribute->columns, &attribute->values, out);
}

/* --- Rows --- */

static void attribute_process_merged(struct operator_context *context, struct merge *merge)
{
    struct attribute *attribute = context->config;
    if (attribute->emit != ATTRIBUTE_AT_DEADLINE) {
        attribute_early(context, attribute, merge);
        return;
    }
    /* The order of the two inputs' rows does not matter: a row gets its label at its deadline. */
    for (const struct batch *batch = merge_batches(merge, 1); batch != NULL; batch = batch->next)
        attribute_take_answers(context, attribute, batch);
    for (struct batch *batch = merge_batches(merge, 0); batch != NULL; batch = batch->next)
        attribute_hold(context, attribute, batch);
}

/* Nobody has answered a request yet: its row passes, with nulls as label and columns of the answer. */
static void attribute_read(struct operator_context *context, uint32_t input LEAT_UNUSED, struct batch *batch)
{
    struct batch *out = batch_derive(batch, context->output);
    for (uint32_t i = batch->schema->count; i < out->schema->count; i++) {
        struct column_builder builder;
        batch_column_init(out, &out->columns[i], out->schema->fields[i].type, batch->rows);
        builder_init(&builder, out, &out->columns[i], out->schema->fields[i].type);
        for (uint32_t k = 0; k < batch->selected; k++)
            builder_null(&builder, batch_row(batch, k));
        builder_finish(&builder);
    }
    operator_emit(context, 0, out);
}

static void attribute_facts(struct operator_context *context, uint32_t input, const struct batch *batch,
                            struct row_facts *facts)
{
    const struct attribute *attribute = context->config;
    int64_t time = batch->event_time[batch_row(batch, 0)];
    if (input == 0)
        row_facts_add_time(facts, "deadline", time_add(time, attribute->within_us));
    else
        row_facts_add_time(facts, "answers rows from", time_add(time, -attribute->within_us));
}

static void attribute_on_watermark(struct operator_context *context, int64_t watermark)
{
    struct attribute *attribute = context->config;
    if (attribute->emit == ATTRIBUTE_AT_DEADLINE)
        attribute_release(context, attribute, watermark);
    else if (attribute->emit == ATTRIBUTE_AT_ONCE)
        attribute_early_release(context, attribute, watermark);
}

/* --- Description, close --- */

/* Describes a waiting row. data: the row as packed (held.h). */
static void describe_row(struct operator_context *context, struct attribute *attribute, struct str data,
                         struct describe *out)
{
    describe_record(out, NULL);
    describe_time(out, "deadline", time_add(held_head_of(data).event_time, attribute->within_us));
    held_describe(attribute->layouts, data, context, out);
    describe_close(out);
}

/* Describes all rows that wait for the query's key; with at_deadline this empties the queue. */
static bool describe_held(struct operator_context *context, struct attribute *attribute,
                          struct state_query *query, struct describe *out)
{
    struct row_keys keys = keys_of(query->row, attribute->keys, attribute->on.count, context->scratch);
    struct time_record record;
    bool is_there = false;
    describe_list(out, "held");
    while (attribute->emit == ATTRIBUTE_AT_DEADLINE && time_queue_pop(attribute->queue, TIME_MAX, &record)) {
        if (!key_equal(record.key, keys.keys[0]))
            continue;
        describe_row(context, attribute, record.data, out);
        is_there = true;
    }
    if (attribute->waiting != NULL) {
        const struct keyed_slot *slot =
            keys_peek(context, query, attribute->waiting, attribute->keys, attribute->on.count);
        const struct version *row = versions_first(slot), *last = versions_last(slot);
        for (; row != NULL && !describe_is_full(out); row = row == last ? NULL : version_after(row)) {
            describe_row(context, attribute, (struct str){row->data, row->bytes}, out);
            is_there = true;
        }
        keyed_peek_end(attribute->waiting);
    }
    describe_close(out);
    return is_there;
}

static bool attribute_describe(struct operator_context *context, struct state_query *query,
                               struct describe *out)
{
    struct attribute *attribute = context->config;
    if (query->is_live && attribute->emit == ATTRIBUTE_AT_DEADLINE) {
        query->refused =
            "its rows wait in the order of their deadlines, not by key: `leat state get` on a checkpoint shows "
            "those of a key";
        return false;
    }
    const struct keyed_slot *slot =
        keys_peek(context, query, attribute->table, attribute->keys, attribute->on.count);
    uint32_t bytes = 0;
    const int64_t *times = slot == NULL ? NULL : keyed_read(slot, &bytes);
    bool is_there = bytes > 0;
    if (attribute->keeps_rows) {
        versions_describe(&attribute->columns, slot, "answers", context, out);
    } else {
        describe_list(out, "answers");
        for (uint32_t i = 0; i < bytes / sizeof(int64_t) && !describe_is_full(out); i++)
            describe_time(out, NULL, times[i]);
        describe_close(out);
    }
    keyed_peek_end(attribute->table);
    return describe_held(context, attribute, query, out) || is_there;
}

static void attribute_close(struct operator_context *context)
{
    struct attribute *attribute = context->config;
    buffer_free(&attribute->packed);
    buffer_free(&attribute->encoded);
    buffer_free(&attribute->popped);
    held_rows_free(&attribute->released);
}

const struct operator_kind operator_attribute = {
    .name = "attribute",
    .summary = "labels each row: 1 if the other stream has an answer to it in time, else 0",
    .example = "events | attribute clicks on item_id within 30m as was_clicked",
    .details =
        "Every row is held until its event time + `within`. It then gets the label 1 if the other stream has "
        "a row with equal key columns and an event time in [t, t + within], where t is the row's own event "
        "time, else 0. Rows are emitted in the order of their deadlines. Null matches nothing. A row whose "
        "deadline is already behind the watermark when it arrives goes to `NAME.late`; an answer that is too "
        "late for every row still held is counted in late_updates. `emit at_once` emits a row when its first "
        "answer arrives, with the columns of that answer. Positives are then emitted earlier than negatives "
        "of the same event time, and a learner's bias follows the share of positives of the moment. `emit "
        "fake_negative` emits every answered row twice: first with 0, then with 1. If a share p of the rows "
        "is answered, the share of positives among the emitted rows is b = p / (1 + p); a learner of these "
        "rows predicts b, which is less than p. There are two ways to correct this (Ktena et al. 2019, "
        "arXiv:1907.06558). Fake negative weighted: the learner's option `fake_negatives: true` weighs its "
        "examples. Fake negative calibration: a step after the learner corrects its predictions, `with rate "
        "= clamp(prediction / (1.0 - prediction), 0.0, 1.0)`. jobs/ctr_fresh.leat shows both. For `leat "
        "check`, the number and order of rows that are emitted early depend on the label: a learner's input "
        "made of them, such as a count, is refused.",
    .options = attribute_options,
    .state = attribute_state,
    .size = sizeof(struct attribute),
    .determinism = DETERMINISM_BY_RECORD_ORDER,
    .keeps_columns = true,
    .uses_time = true,
    .makes_label = true,
    .inputs_min = 2,
    .inputs_max = 2,
    .bind = attribute_bind,
    .shape = attribute_shape,
    .process_merged = attribute_process_merged,
    .read = attribute_read,
    .reading = READING_PASS,
    .facts = attribute_facts,
    .on_watermark = attribute_on_watermark,
    .describe = attribute_describe,
    .close = attribute_close,
};

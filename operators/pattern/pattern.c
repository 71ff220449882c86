/* pattern: a short sequence of rows of one key.
 *
 * The steps are conditions, in order; rows are taken in the order of records. For each number of steps a key
 * remembers one beginning: rows that fit that many first steps. A row that fits the next step, with an event
 * time not before the beginning's last row and not more than `within` after its first, makes the beginning
 * one step longer. Of two beginnings with as many steps the one whose first row is later by event time is
 * kept, of equal ones the newer: it can be continued at least as long as the other. A row is tried for the
 * last step first, so that it never follows itself. A row that fits the last step completes a match: the key
 * then forgets all beginnings, and no row is in two matches.
 *
 * With `unless`, a match waits until the watermark has passed its deadline, first row + within. It comes out
 * if no row of the key for which `unless` is true has arrived by then with an event time from the last step's
 * to the deadline. Rows of the key between first row and deadline begin no other match, so that a key's state
 * is at most steps - 1 beginnings and, for each `within` that its rows are ahead of the watermark, one match
 * (or two, where rows are out of order; never more than SEQUENCE_WAITING_MAX). Beginnings are forgotten when
 * the watermark has passed their deadline. A row is late when the watermark has passed its own time + within:
 * it could then begin or end nothing. */
#include "operators/expr/compute.h"
#include "operators/keys.h"
#include "operators/limits.h"
#include "operators/pattern/sequence.h"
#include "operators/rows/held.h"
#include "operators/sides.h"

enum {
    PATTERN_LATE = 1,
    STEPS_MAX = SEQUENCE_STEPS_MAX,
    KEPT_BYTES_MAX = 64 << 10,
    BUCKETS = 64,
};

struct pattern {
    struct columns by;
    int64_t within_us;
    struct expression unless;
    struct columns keep;
    struct assignments steps;
    /* Made by bind. */
    int *keys;
    const struct schema *input, *output, *waiting; /* waiting: of matches that wait; NULL: none do */
    struct expr *programs[STEPS_MAX + 1];          /* the last one: `unless` */
    uint32_t programs_count;
    struct sequence sequence;
    /* Owned by the lane. */
    struct keyed_table *table;
    struct time_queue *queue; /* matches that wait for their deadlines */
    struct held_layouts *layouts;
    struct byte_buffer kept, entry, packed;
    struct held_rows released;
};

static const struct option pattern_options[] = {
    OPTION_COLUMNS(struct pattern, by, "by", OPTION_REQUIRED, "the columns that make a key"),
    OPTION_DURATION(struct pattern, within_us, "within", OPTION_REQUIRED, NULL, "1ms", "365d",
                    "the longest time from the first step's row to the last step's, in event time"),
    OPTION_EXPRESSION(
        struct pattern, unless, "unless", 0,
        "a condition: a row for which it is true, after the last step's row and within the time, cancels "
        "the match"),
    OPTION_COLUMNS(struct pattern, keep, "keep", 0,
                   "columns to add from the rows of the earlier steps, named STEP_COLUMN"),
    OPTION_ASSIGNMENTS(struct pattern, steps, "steps", OPTION_REQUIRED | OPTION_BODY,
                       "the steps in order, and the conditions of their rows"),
    OPTIONS_END,
};

/* With `unless` table and queue share the memory. */
static struct state_plan plan_table(const struct operator_context *context)
{
    const struct pattern *pattern = context->config;
    return (struct state_plan){.memory_bytes =
                                   (size_t)context->memory_bytes / (pattern->waiting != NULL ? 2 : 1)};
}

static struct state_plan plan_queue(const struct operator_context *context)
{
    const struct pattern *pattern = context->config;
    return (struct state_plan){.is_absent = pattern->waiting == NULL,
                               .memory_bytes = (size_t)context->memory_bytes / 2,
                               .bucket_us = MAX(pattern->within_us / BUCKETS, 1)};
}

static const struct state_member pattern_state[] = {
    STATE_LAYOUTS(struct pattern, layouts, 'L', waiting),
    STATE_TABLE(struct pattern, table, 'k', plan_table),
    STATE_QUEUE(struct pattern, queue, 'q', plan_queue, "state_held_bytes"),
    STATES_END,
};

/* --- Binding --- */

static bool bind_conditions(struct operator_bind *bind, struct pattern *pattern, struct schema *output)
{
    const struct schema *input = bind->inputs[0].schema;
    bool has_unless = pattern->unless.ast != NULL, is_good = true;
    uint32_t least = has_unless ? 1 : 2;
    if (pattern->steps.count < least || pattern->steps.count > STEPS_MAX) {
        diag_error(bind->diags, pattern->steps.count < least ? DIAG_OPTION_MISSING : DIAG_TOO_MANY,
                   bind->span,
                   "expected %u to %d steps, for example { view: kind = \"view\", cart: kind = \"cart\" }",
                   least, STEPS_MAX);
        return false;
    }
    pattern->sequence = (struct sequence){pattern->steps.count, pattern->within_us, has_unless};
    pattern->programs_count = pattern->steps.count + has_unless;
    for (uint32_t i = 0; i < pattern->programs_count; i++) {
        const struct ast *ast =
            i < pattern->steps.count ? pattern->steps.items[i].value : pattern->unless.ast;
        pattern->programs[i] = expr_compile_condition(ast, "pattern", input, bind->arena, bind->diags);
        is_good &= pattern->programs[i] != NULL;
        if (pattern->programs[i] != NULL)
            lineage_merge(&output->rows_lineage, expr_lineage(pattern->programs[i]));
    }
    return is_good;
}

/* Adds the steps' times behind the input's columns, then for each step but the last its `keep` columns. */
static bool bind_output(struct operator_bind *bind, struct pattern *pattern, struct schema *output)
{
    bool is_good = true;
    for (uint32_t i = 0; i < pattern->steps.count; i++) {
        const struct assignment *step = &pattern->steps.items[i];
        const char *name = arena_printf(bind->arena, "%.*s_time", STR_ARGS(step->name));
        is_good &=
            operator_add_chosen(bind, output, str_from(name), type_of(TYPE_TIME), step->name_span) != NULL;
    }
    for (uint32_t i = 0; i + 1 < pattern->steps.count; i++)
        for (uint32_t k = 0; k < pattern->keep.count; k++) {
            const struct column_ref *ref = &pattern->keep.items[k];
            const struct field *from = &pattern->input->fields[ref->index];
            const char *name = arena_printf(bind->arena, "%.*s_%.*s", STR_ARGS(pattern->steps.items[i].name),
                                            STR_ARGS(ref->name));
            struct field *field = operator_add_chosen(bind, output, str_from(name), from->type, ref->span);
            is_good &= field != NULL;
            if (field != NULL)
                field_merge(field, from);
        }
    pattern->output = bind->outputs[0] = output;
    pattern->waiting = pattern->unless.ast != NULL ? output : NULL;
    return is_good;
}

static bool pattern_bind(struct operator_bind *bind)
{
    struct pattern *pattern = bind->config;
    pattern->input = bind->inputs[0].schema;
    uint32_t extra = STEPS_MAX * (pattern->keep.count + 1);
    if (pattern->keep.count > PATTERN_KEPT_COLUMNS_MAX || pattern->input->count + extra > SCHEMA_FIELDS_MAX) {
        diag_error(bind->diags, DIAG_TOO_MANY, bind->span,
                   "`keep` takes at most %d columns, and with them a stream may have at most %d",
                   PATTERN_KEPT_COLUMNS_MAX, SCHEMA_FIELDS_MAX);
        return false;
    }
    struct schema *output = operator_extend(bind, extra);
    bool is_good = keys_bind(bind, 0, &pattern->by, &pattern->keys);
    is_good &= columns_resolve(&pattern->keep, pattern->input, bind->arena, bind->diags);
    is_good &= bind_conditions(bind, pattern, output);
    if (!is_good)
        return false;
    keys_lineage(bind, 0, &output->rows_lineage);
    bind->outputs[PATTERN_LATE] = pattern->input;
    bind->is_timer_kind = pattern->unless.ast != NULL;
    bind->hold_us = pattern->unless.ast != NULL ? pattern->within_us : 0;
    bind->needs_memory = true;
    return bind_output(bind, pattern, output);
}

static void pattern_shape(const struct operator_bind *bind, struct byte_buffer *out)
{
    const struct pattern *pattern = bind->config;
    buffer_printf(out, "=within: %lld us\n", (long long)pattern->within_us);
    for (uint32_t i = 0; i < pattern->by.count; i++)
        buffer_printf(out, "=by %.*s: %s\n", STR_ARGS(pattern->by.items[i].name),
                      type_name(bind->arena, &pattern->input->fields[pattern->keys[i]].type));
    for (uint32_t i = 0; i < pattern->keep.count; i++)
        buffer_printf(out, "=keep %.*s: %s\n", STR_ARGS(pattern->keep.items[i].name),
                      type_name(bind->arena, &pattern->input->fields[pattern->keep.items[i].index].type));
    for (uint32_t i = 0; i < pattern->programs_count; i++) {
        bool is_step = i < pattern->steps.count;
        struct str name = is_step ? pattern->steps.items[i].name : STR("unless");
        buffer_printf(out, "=step %u %.*s: ", i, STR_ARGS(name));
        ast_print(out, is_step ? pattern->steps.items[i].value : pattern->unless.ast);
        buffer_append(out, "\n", 1);
    }
    if (pattern->unless.ast != NULL)
        held_shape(pattern->output, bind->arena, out);
}

/* --- Rows in --- */

/* The selected rows of a batch, by what becomes of them. */
struct sorting {
    uint16_t fits[BATCH_ROWS];   /* by physical row: bits of the steps, SEQUENCE_UNLESS */
    struct str kept[BATCH_ROWS]; /* by selected index: the `keep` columns, in pattern->kept */
    uint16_t used[BATCH_ROWS];   /* selected indices of rows that fit a step or `unless` */
    uint16_t late[BATCH_ROWS];   /* physical rows */
    uint16_t large[BATCH_ROWS];  /* physical rows */
    uint16_t full[BATCH_ROWS];   /* physical rows */
    uint32_t used_count, late_count, large_count, full_count, unused_count;
};

/* Appends the row's `keep` columns to pattern->kept; false, with nothing appended, if they are too long. */
static bool keep_row(struct pattern *pattern, const struct batch *batch, uint32_t row)
{
    size_t from = pattern->kept.length;
    for (uint32_t k = 0; k < pattern->keep.count; k++) {
        int column = pattern->keep.items[k].index;
        row_encode_value(&pattern->kept, &batch->columns[column], &pattern->input->fields[column].type, row);
    }
    if (pattern->kept.length - from <= KEPT_BYTES_MAX)
        return true;
    pattern->kept.length = from;
    return false;
}

static void sort_rows(struct operator_context *context, struct pattern *pattern, const struct batch *batch,
                      struct sorting *sorting, struct expr_errors *errors)
{
    uint32_t begins = (1U << (pattern->steps.count - 1)) - 1; /* bits of all steps but the last */
    for (uint32_t i = 0; i < pattern->programs_count; i++) {
        uint16_t sel[BATCH_ROWS];
        uint32_t count = expr_filter(pattern->programs[i], batch, context->scratch, sel, errors);
        for (uint32_t k = 0; k < count; k++)
            sorting->fits[sel[k]] |= (uint16_t)(i < pattern->steps.count ? 1U << i : SEQUENCE_UNLESS);
    }
    buffer_clear(&pattern->kept);
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        if (bit_get(errors->rows, row))
            continue;
        size_t from = pattern->kept.length;
        if (time_add(batch->event_time[row], pattern->within_us) < context->watermark)
            sorting->late[sorting->late_count++] = (uint16_t)row;
        else if (sorting->fits[row] == 0)
            sorting->unused_count++;
        else if ((sorting->fits[row] & begins) != 0 && !keep_row(pattern, batch, row))
            sorting->large[sorting->large_count++] = (uint16_t)row;
        else
            sorting->used[sorting->used_count++] = (uint16_t)i;
        sorting->kept[i] = (struct str){NULL, pattern->kept.length - from};
    }
    const char *at = pattern->kept.data;
    for (uint32_t i = 0; i < batch->selected; i++)
        if (!bit_get(errors->rows, batch_row(batch, i))) {
            sorting->kept[i].data = at;
            at += sorting->kept[i].length;
        }
}

/* A match of this batch. */
struct match {
    struct sequence_match match; /* match.kept lies in the scratch arena */
    uint32_t index;              /* the match's last row is the index-th selected one */
};

/* Makes the output's batch: the matches' last rows, with the columns that the steps add. */
static struct batch *match_batch(struct operator_context *context, const struct pattern *pattern,
                                 struct batch *batch, const struct match *matches, uint32_t count)
{
    struct batch *out = batch_derive(batch, pattern->output);
    uint32_t base = batch->schema->count, extra = pattern->output->count - base;
    struct column_builder *builders = arena_array(context->scratch, struct column_builder, extra);
    uint16_t *sel = arena_alloc(&out->arena, count * sizeof(*sel));
    for (uint32_t c = 0; c < extra; c++) {
        struct type type = pattern->output->fields[base + c].type;
        batch_column_init(out, &out->columns[base + c], type, batch->rows);
        builder_init(&builders[c], out, &out->columns[base + c], type);
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct match *match = &matches[i];
        uint32_t row = sel[i] = (uint16_t)batch_row(batch, match->index);
        for (uint32_t c = 0; c < pattern->steps.count; c++)
            out->columns[base + c].ints[row] = match->match.times[c];
        const char *at = match->match.kept.data, *end = at + match->match.kept.length;
        for (uint32_t c = pattern->steps.count; c < extra; c++)
            if (!builder_decode(&builders[c], row, &at, end))
                builder_null(&builders[c], row);
    }
    for (uint32_t c = 0; c < extra; c++)
        builder_finish(&builders[c]);
    out->sel = sel;
    out->selected = count;
    return out;
}

/* Puts matches that `unless` may undo into the time queue until their deadlines. A record is the match's id
 * (8 bytes), then the row. */
static void hold_matches(struct operator_context *context, struct pattern *pattern, const struct batch *out,
                         const struct row_keys *keys, const struct match *matches, uint32_t count)
{
    size_t offsets[BATCH_ROWS + 1];
    held_pack(pattern->layouts, out, out->sel, count, context->scratch, &pattern->packed, offsets);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t id = matches[i].match.id;
        buffer_clear(&pattern->entry);
        buffer_append(&pattern->entry, &id, sizeof(id));
        buffer_append(&pattern->entry, pattern->packed.data + offsets[i], offsets[i + 1] - offsets[i]);
        time_queue_push(pattern->queue, time_add(matches[i].match.times[0], pattern->within_us),
                        keys->keys[matches[i].index], keys->hashes[matches[i].index],
                        (struct str){pattern->entry.data, pattern->entry.length});
    }
    context->counters.held += count;
}

static uint32_t take_rows(struct operator_context *context, struct pattern *pattern, struct batch *batch,
                          const struct row_keys *keys, struct sorting *sorting, struct match *matches)
{
    struct keyed_slot *slots[BATCH_ROWS];
    struct key *used = arena_alloc(context->scratch, BATCH_ROWS * sizeof(*used));
    uint64_t hashes[BATCH_ROWS];
    uint32_t count = 0;
    for (uint32_t i = 0; i < batch->selected; i++)
        context->counters.null_keys += keys->has_null[i];
    for (uint32_t i = 0; i < sorting->used_count; i++) {
        used[i] = keys->keys[sorting->used[i]];
        hashes[i] = keys->hashes[sorting->used[i]];
    }
    keyed_begin(pattern->table, used, hashes, sorting->used_count, slots);
    for (uint32_t i = 0; i < sorting->used_count; i++) {
        uint32_t index = sorting->used[i], row = batch_row(batch, index);
        struct match *match = &matches[count];
        struct sequence_state state;
        sequence_load(&pattern->sequence, slots[i], &state);
        enum sequence_fate fate =
            sequence_take(&pattern->sequence, &state, context->watermark, sorting->fits[row],
                          batch->event_time[row], sorting->kept[index], &match->match);
        context->counters.absorbed += fate == SEQUENCE_TAKEN || fate == SEQUENCE_UNDONE;
        sorting->unused_count += fate == SEQUENCE_UNUSED;
        if (fate == SEQUENCE_UNDONE) {
            context->counters.held--;
            context->counters.filtered++; /* the undone match's row */
        }
        if (fate == SEQUENCE_FULL)
            sorting->full[sorting->full_count++] = (uint16_t)row;
        if (fate == SEQUENCE_MATCH) {
            match->match.kept = arena_str(context->scratch, match->match.kept);
            match->index = index;
            count++;
        }
        if (fate != SEQUENCE_UNUSED && fate != SEQUENCE_FULL)
            sequence_save(&pattern->sequence, pattern->table, slots[i], &state, context->watermark,
                          &pattern->entry);
    }
    keyed_end(pattern->table);
    return count;
}

static void pattern_process(struct operator_context *context, uint32_t input, struct batch *batch)
{
    (void)input;
    struct pattern *pattern = context->config;
    struct expr_errors errors = {0};
    struct sorting *sorting = arena_new(context->scratch, struct sorting);
    struct match *matches = arena_array(context->scratch, struct match, BATCH_ROWS);
    sort_rows(context, pattern, batch, sorting, &errors);
    compute_reject(context, batch, &errors);
    struct row_keys keys = keys_of(batch, pattern->keys, pattern->by.count, context->scratch);
    uint32_t count = take_rows(context, pattern, batch, &keys, sorting, matches);
    for (uint32_t i = 0; i < sorting->large_count; i++)
        operator_reject(context, batch, sorting->large[i], "the columns of `keep` are longer than 64 KiB");
    for (uint32_t i = 0; i < sorting->full_count; i++)
        operator_reject(context, batch, sorting->full[i],
                        "the key already has 1,024 matches that wait, which is the limit");
    context->counters.filtered += sorting->unused_count;
    context->counters.late += sorting->late_count;
    sides_emit(context, PATTERN_LATE, batch, batch->schema, sorting->late, sorting->late_count);
    if (count == 0)
        return;
    struct batch *out = match_batch(context, pattern, batch, matches, count);
    if (pattern->unless.ast != NULL) {
        hold_matches(context, pattern, out, &keys, matches, count);
        batch_release(out);
        return;
    }
    context->counters.passed += count;
    operator_emit(context, 0, out);
}

/* --- Releasing the matches that waited --- */

struct emission {
    struct row_order *orders; /* in the batch's arena */
    struct row_order last;
    struct batch *batch; /* NULL: no row yet */
    struct key keys[BATCH_ROWS];
    uint64_t hashes[BATCH_ROWS], ids[BATCH_ROWS];
};

static void begin_emission(struct operator_context *context, struct emission *emission)
{
    struct batch *batch = emission->batch = batch_new(context->pool, context->output, BATCH_ROWS);
    emission->orders = arena_alloc(&batch->arena, BATCH_ROWS * sizeof(*emission->orders));
}

static void release_match(struct operator_context *context, struct pattern *pattern,
                          struct emission *emission, const struct time_record *record)
{
    uint32_t row = pattern->released.count;
    uint64_t id = 0;
    leat_assert(record->data.length >= sizeof(id));
    memcpy(&id, record->data.data, sizeof(id));
    struct str data = {record->data.data + sizeof(id), record->data.length - sizeof(id)};
    (void)held_add(pattern->layouts, &pattern->released, data);
    emission->orders[row] =
        row_order_of_timer(&emission->last, 1 + context->place, record->time_us, record->hash);
    emission->keys[row] = record->key;
    emission->hashes[row] = record->hash;
    emission->ids[row] = id;
}

/* Emits the released matches that no row has undone. */
static void end_emission(struct operator_context *context, struct pattern *pattern, struct emission *emission)
{
    struct batch *batch = emission->batch;
    emission->batch = NULL;
    if (batch == NULL)
        return;
    uint32_t count = pattern->released.count, kept = 0;
    held_unpack(pattern->layouts, &pattern->released, batch);
    struct keyed_slot *slots[BATCH_ROWS];
    uint16_t *sel = arena_alloc(&batch->arena, count * sizeof(*sel));
    keyed_look(pattern->table, emission->keys, emission->hashes, count, slots);
    for (uint32_t i = 0; i < count; i++)
        if (sequence_waits(&pattern->sequence, slots[i], emission->ids[i]))
            sel[kept++] = (uint16_t)i;
    keyed_end(pattern->table);
    batch->rows = count;
    batch->sel = sel;
    batch->selected = kept;
    batch->orders = emission->orders;
    context->counters.held -= kept;
    context->counters.passed += kept;
    operator_emit(context, 0, batch);
}

static void pattern_on_watermark(struct operator_context *context, int64_t watermark)
{
    struct pattern *pattern = context->config;
    if (pattern->queue == NULL)
        return;
    struct emission *emission = arena_alloc(context->scratch, sizeof(*emission));
    emission->batch = NULL;
    emission->last = (struct row_order){0};
    struct time_record record;
    while (time_queue_pop(pattern->queue, watermark, &record)) {
        if (emission->batch == NULL)
            begin_emission(context, emission);
        release_match(context, pattern, emission, &record);
        if (held_is_full(&pattern->released))
            end_emission(context, pattern, emission);
    }
    end_emission(context, pattern, emission);
}

/* --- Description, close --- */

static bool pattern_describe(struct operator_context *context, struct state_query *query,
                             struct describe *out)
{
    struct pattern *pattern = context->config;
    const struct keyed_slot *slot =
        keys_peek(context, query, pattern->table, pattern->keys, pattern->by.count);
    struct sequence_state state;
    sequence_load(&pattern->sequence, slot, &state);
    const char *names[STEPS_MAX];
    for (uint32_t i = 0; i < pattern->steps.count; i++)
        names[i] = arena_strndup(context->scratch, pattern->steps.items[i].name.data,
                                 pattern->steps.items[i].name.length);
    bool is_there = sequence_describe(&pattern->sequence, &state, context->watermark, names, out);
    keyed_peek_end(pattern->table);
    return is_there;
}

static void pattern_close(struct operator_context *context)
{
    struct pattern *pattern = context->config;
    buffer_free(&pattern->kept);
    buffer_free(&pattern->entry);
    buffer_free(&pattern->packed);
    held_rows_free(&pattern->released);
}

const struct operator_kind operator_pattern = {
    .name = "pattern",
    .summary = "finds sequences of rows of a key, also those that a certain row does not follow",
    .example =
        "events | pattern by user_id within 1h unless clicked { cheap: price < 1.0, dear: price > 9.0 }",
    .details =
        "The entries are the steps, in order. A match has one row for each step, in the order of records; "
        "their event times do not decrease, and all are at most `within` after the first. Rows that fit no "
        "step do not matter. If several rows could begin a match, or continue one, the beginning with the "
        "latest event time counts. A match uses up all that its key has begun: no row is in two matches. A "
        "match is emitted when its last row arrives, as that row, with a column STEP_time for each step. "
        "With `unless`, a match waits until the watermark has passed the first row's event time + `within`, "
        "and is emitted only if no row for which `unless` is true came after the last step's. The key's rows "
        "from the first row's event time until then begin no other match, and a row that cancels a match "
        "does nothing else. Rows that begin, lengthen or cancel a match count as absorbed, others that are "
        "in no match as filtered; rows more than `within` behind the watermark go to `NAME.late`. Null is a "
        "key of its own. If the order of records is not that of event time, put `sort within` before "
        "this step.",
    .options = pattern_options,
    .state = pattern_state,
    .size = sizeof(struct pattern),
    .determinism = DETERMINISM_BY_RECORD_ORDER,
    .keeps_columns = true,
    .uses_time = true,
    .inputs_min = 1,
    .inputs_max = 1,
    .bind = pattern_bind,
    .shape = pattern_shape,
    .process = pattern_process,
    .on_watermark = pattern_on_watermark,
    .describe = pattern_describe,
    .close = pattern_close,
};

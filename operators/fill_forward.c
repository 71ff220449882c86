/* fill_forward: a null in a column becomes the last value of the column that a row of the same key had.
 *
 * For each key and column the value with the latest event time v is kept, of equal times the one whose record
 * came last. A row of event time t, when it has its turn in the order of records, takes the kept value for
 * its null if v is in [t - within, t]. A row that comes out of order and is older than the kept value keeps
 * its null: the value before the kept one is not known any more, and a later value must not be read. A filled
 * null is no value of its own: the age of a value counts from the row that had the value.
 *
 * A row behind the watermark may read a value only until the watermark is more than `within` after the
 * value's event time, whether the entry is still stored or not: no row shows when an entry was evicted or a
 * checkpoint was taken.
 *
 * A key's state: for each column an event time (TIME_MIN: no value yet), then the values (rows/codec.h). */
#include "operators/keys.h"
#include "operators/limits.h"
#include "operators/rows/codec.h"
#include "operators/tally.h"

/* Indices into tally.values. */
enum { FILL_FILLED, FILL_TOO_LONG };

struct fill_forward {
    struct columns columns, by;
    int64_t within_us;
    /* Made by bind. */
    int *keys;
    struct type *types; /* of the columns */
    /* Of the lane. */
    struct keyed_table *table;
    struct byte_buffer entry; /* the next value of a key */
    struct tally tally;
};

static const struct option fill_forward_options[] = {
    OPTION_COLUMNS(struct fill_forward, columns, "columns", OPTION_REQUIRED | OPTION_POSITIONAL,
                   "the columns whose nulls are filled"),
    OPTION_COLUMNS(struct fill_forward, by, "by", OPTION_REQUIRED, "the columns that make a key"),
    OPTION_DURATION(struct fill_forward, within_us, "within", OPTION_REQUIRED | OPTION_FOREVER, NULL, "1ms",
                    "3650d", "the largest age of a value that fills a null, by event time"),
    OPTIONS_END,
};

static const struct tally_figure fill_forward_figures[TALLY_VALUES] = {
    [FILL_FILLED] = {.name = "filled"},
    [FILL_TOO_LONG] = {.name = "values_too_long", .is_rare = true},
};

static const struct state_member fill_forward_state[] = {
    STATE_TALLY(struct fill_forward, tally, 't', fill_forward_figures),
    STATE_TABLE(struct fill_forward, table, 'k', NULL),
    STATES_END,
};

/* --- Binding --- */

/* Sets the column's type and lineage in the output. Returns false after a diagnostic. */
static bool bind_column(struct operator_bind *bind, struct fill_forward *fill, uint32_t i,
                        struct schema *output)
{
    const struct column_ref *ref = &fill->columns.items[i];
    struct field *field = &output->fields[ref->index];
    for (uint32_t k = 0; k < fill->by.count; k++)
        if (fill->keys[k] == ref->index) {
            struct diag *d = diag_error(bind->diags, DIAG_OPTIONS_CLASH, ref->span,
                                        "`%.*s` is a column of the key", STR_ARGS(ref->name));
            diag_hint(bind->diags, d,
                      "all rows of a key have the same value in this column, or all have null: there is "
                      "nothing to fill");
            return false;
        }
    if (field->type.tag == TYPE_LIST) {
        struct diag *d = diag_error(bind->diags, DIAG_TYPE_CLASH, ref->span,
                                    "`%.*s` is a list: lists are not filled", STR_ARGS(ref->name));
        diag_hint(bind->diags, d, "`fill_forward` fills numbers, times, bools, texts and bytes");
        return false;
    }
    fill->types[i] = field->type;
    /* The value comes from an earlier row; the keys decide from which row. */
    keys_lineage(bind, 0, &field->lineage);
    return true;
}

static bool fill_forward_bind(struct operator_bind *bind)
{
    struct fill_forward *fill = bind->config;
    bool is_good = keys_bind(bind, 0, &fill->by, &fill->keys);
    is_good &= columns_resolve(&fill->columns, bind->inputs[0].schema, bind->arena, bind->diags);
    if (fill->columns.count > FILL_COLUMNS_MAX) {
        diag_error(bind->diags, DIAG_TOO_MANY, bind->span,
                   "`fill_forward` takes at most %d columns; use a second step `fill_forward` for the others",
                   FILL_COLUMNS_MAX);
        return false;
    }
    if (!is_good)
        return false;
    struct schema *output = operator_extend(bind, 0);
    fill->types = arena_array(bind->arena, struct type, fill->columns.count);
    for (uint32_t i = 0; i < fill->columns.count; i++)
        is_good &= bind_column(bind, fill, i, output);
    bind->outputs[0] = output;
    bind->needs_memory = true;
    return is_good;
}

/* --- Rows --- */

/* The last event time at which a value of time `time` may be read. */
static int64_t valid_until(const struct fill_forward *fill, int64_t time)
{
    return fill->within_us == INT64_MAX ? TIME_MAX : time_add(time, fill->within_us);
}

/* A column's kept value: its event time and its bytes (rows/codec.h); no bytes: the key has none. */
struct kept_value {
    int64_t time;
    struct str bytes;
};

/* How many bytes the encoded value at the start of `text` takes; 0: the bytes are not valid. */
static size_t encoded_bytes(const struct type *type, struct str text)
{
    uint32_t length = 0;
    size_t bytes = 1 + sizeof(int64_t);
    bool is_null = text.length > 0 && *text.data == 0;
    if (is_null)
        bytes = 1;
    else if (type->tag == TYPE_BOOL)
        bytes = 2;
    else if (type->tag == TYPE_TEXT || type->tag == TYPE_BYTES)
        bytes = 1 + sizeof(length);
    if (text.length < bytes)
        return 0;
    if (bytes == 1 + sizeof(length))
        memcpy(&length, text.data + 1, sizeof(length));
    return length <= text.length - bytes ? bytes + length : 0;
}

/* Takes a key's state apart. values: one for each column. */
static void read_entry(const struct fill_forward *fill, const struct keyed_slot *slot,
                       struct kept_value *values)
{
    uint32_t bytes, count = fill->columns.count;
    const char *entry = keyed_read(slot, &bytes);
    size_t at = count * sizeof(int64_t);
    for (uint32_t i = 0; i < count; i++) {
        values[i] = (struct kept_value){.time = TIME_MIN};
        size_t length = at < bytes ? encoded_bytes(&fill->types[i], (struct str){entry + at, bytes - at}) : 0;
        if (length > 1) { /* 1: a null, which stands for none */
            memcpy(&values[i].time, entry + i * sizeof(int64_t), sizeof(int64_t));
            values[i].bytes = (struct str){entry + at, length};
        }
        at = length > 0 ? at + length : bytes;
    }
}

/* Keeps the row's own values, in place of older ones. */
static void keep_row(struct fill_forward *fill, const struct batch *batch, uint32_t row,
                     struct keyed_slot *slot, const struct kept_value *values)
{
    int64_t time = batch->event_time[row], latest = time;
    bool is_newer[FILL_COLUMNS_MAX], has_newer = false;
    for (uint32_t i = 0; i < fill->columns.count; i++) {
        const struct column *column = &batch->columns[fill->columns.items[i].index];
        is_newer[i] = column_is_valid(column, row) && values[i].time <= time;
        if (is_newer[i] && (fill->types[i].tag == TYPE_TEXT || fill->types[i].tag == TYPE_BYTES) &&
            column->texts[row].length > FILL_VALUE_BYTES_MAX) {
            is_newer[i] = false;
            fill->tally.values[FILL_TOO_LONG]++;
        }
        has_newer |= is_newer[i];
    }
    if (!has_newer)
        return;
    buffer_clear(&fill->entry);
    for (uint32_t i = 0; i < fill->columns.count; i++) {
        int64_t kept = is_newer[i] ? time : values[i].time;
        latest = MAX(latest, kept);
        buffer_append(&fill->entry, &kept, sizeof(kept));
    }
    for (uint32_t i = 0; i < fill->columns.count; i++)
        if (is_newer[i])
            row_encode_value(&fill->entry, &batch->columns[fill->columns.items[i].index], &fill->types[i],
                             row);
        else
            buffer_append(&fill->entry, values[i].bytes.length > 0 ? values[i].bytes.data : "",
                          MAX(values[i].bytes.length, 1));
    char *to = keyed_write(fill->table, slot, (uint32_t)fill->entry.length, valid_until(fill, latest));
    memcpy(to, fill->entry.data, fill->entry.length);
}

static void copy_value(struct column_builder *builder, const struct column *from, uint32_t row)
{
    switch (builder->type.tag) {
    case TYPE_TEXT:
    case TYPE_BYTES: builder_text(builder, row, column_text(from, row)); break;
    case TYPE_BOOL: builder->column->bools[row] = from->bools[row]; break;
    default: builder->column->ints[row] = from->ints[row]; break;
    }
}

/* Sets the columns of a row: its own values and, for nulls, the kept values that are not too old. */
static void fill_row(const struct operator_context *context, struct fill_forward *fill,
                     const struct batch *batch, uint32_t row, struct column_builder *builders,
                     const struct kept_value *values)
{
    int64_t time = batch->event_time[row];
    for (uint32_t i = 0; i < fill->columns.count; i++) {
        const struct column *from = &batch->columns[fill->columns.items[i].index];
        const char *at = values[i].bytes.data;
        if (column_is_valid(from, row)) {
            copy_value(&builders[i], from, row);
        } else if (values[i].bytes.length > 0 && values[i].time <= time &&
                   valid_until(fill, values[i].time) >= MAX(time, context->watermark) &&
                   builder_decode(&builders[i], row, &at, at + values[i].bytes.length)) {
            fill->tally.values[FILL_FILLED]++;
        } else {
            builder_null(&builders[i], row);
        }
    }
}

static void fill_forward_process(struct operator_context *context, uint32_t input LEAT_UNUSED,
                                 struct batch *batch)
{
    struct fill_forward *fill = context->config;
    struct row_keys keys = keys_of(batch, fill->keys, fill->by.count, context->scratch);
    struct keyed_slot *slots[BATCH_ROWS];
    struct kept_value values[FILL_COLUMNS_MAX];
    struct column_builder builders[FILL_COLUMNS_MAX];
    struct batch *out = batch_derive(batch, context->output);
    for (uint32_t i = 0; i < fill->columns.count; i++) {
        struct column *column = &out->columns[fill->columns.items[i].index];
        batch_column_init(out, column, fill->types[i], batch->rows);
        builder_init(&builders[i], out, column, fill->types[i]);
    }
    keyed_begin(fill->table, keys.keys, keys.hashes, batch->selected, slots);
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        context->counters.null_keys += keys.has_null[i];
        read_entry(fill, slots[i], values);
        fill_row(context, fill, batch, row, builders, values);
        keep_row(fill, batch, row, slots[i], values);
    }
    keyed_end(fill->table);
    for (uint32_t i = 0; i < fill->columns.count; i++)
        builder_finish(&builders[i]);
    context->counters.passed += batch->selected;
    operator_emit(context, 0, out);
}

/* --- Description, close --- */

static bool fill_forward_describe(struct operator_context *context, struct state_query *query,
                                  struct describe *out)
{
    struct fill_forward *fill = context->config;
    const struct keyed_slot *slot = keys_peek(context, query, fill->table, fill->keys, fill->by.count);
    struct kept_value values[FILL_COLUMNS_MAX];
    uint32_t bytes = 0, shown = 0;
    if (slot == NULL || keyed_read(slot, &bytes) == NULL) {
        keyed_peek_end(fill->table);
        return false;
    }
    read_entry(fill, slot, values);
    struct batch *batch = batch_new(context->pool, context->output, 1);
    for (uint32_t i = 0; i < fill->columns.count; i++) {
        const struct column_ref *ref = &fill->columns.items[i];
        struct column_builder builder;
        const char *at = values[i].bytes.data;
        builder_init(&builder, batch, &batch->columns[ref->index], fill->types[i]);
        bool is_good =
            values[i].bytes.length > 0 && builder_decode(&builder, 0, &at, at + values[i].bytes.length);
        builder_finish(&builder);
        if (!is_good)
            continue;
        describe_record(out, arena_strndup(context->scratch, ref->name.data, ref->name.length));
        describe_value(out, "value", builder.column, &fill->types[i], 0);
        describe_time(out, "time", values[i].time);
        describe_close(out);
        shown++;
    }
    batch_release(batch);
    keyed_peek_end(fill->table);
    return shown > 0;
}

static void fill_forward_close(struct operator_context *context)
{
    buffer_free(&((struct fill_forward *)context->config)->entry);
}

const struct operator_kind operator_fill_forward = {
    .name = "fill_forward",
    .summary = "fills a null in a column with the last value that a row of the same key had in it",
    .example = "events | fill_forward device, price by user_id within 1h",
    .details =
        "A null becomes the value of the newest row before it, in the order of records, that has the same "
        "key and a value in this column, if that row's event time is not after the row's own and at most "
        "`within` before it; else it stays null. A filled value is not passed on to later rows as a new "
        "value: its age counts from the row that had it. A row that comes out of order and is older than the "
        "newest value keeps its null. Null is a key of its own. A text of more than 64 KiB is not "
        "kept (`values_too_long`).",
    .options = fill_forward_options,
    .state = fill_forward_state,
    .size = sizeof(struct fill_forward),
    .determinism = DETERMINISM_BY_RECORD_ORDER,
    .uses_time = true,
    .inputs_min = 1,
    .inputs_max = 1,
    .bind = fill_forward_bind,
    .process = fill_forward_process,
    .describe = fill_forward_describe,
    .close = fill_forward_close,
};

#include "connectors/kafka/meta.h"

#include "connectors/kafka/client.h"
#include "connectors/kafka/recording_form.h"
#include "formats/text.h"

#include <stdlib.h>

const struct option kafka_meta_options[] = {
    OPTION_COLUMN(struct kafka_meta, key, "key", 0,
                  "text or bytes: the record's key; null: the record has no key"),
    OPTION_COLUMN(struct kafka_meta, topic, "topic", 0, "text: the record's topic"),
    OPTION_COLUMN(struct kafka_meta, partition, "partition", 0, "int: the number of the record's partition"),
    OPTION_COLUMN(struct kafka_meta, offset, "offset", 0, "int: the record's offset in the partition"),
    OPTION_COLUMN(
        struct kafka_meta, timestamp, "timestamp", 0,
        "time: the record's timestamp at the broker: time of creation, or of appending if the topic is "
        "set to that"),
    OPTION_ASSIGNMENTS(
        struct kafka_meta, headers, "headers", 0,
        "text or bytes, as { trace: \"x-trace-id\" }: columns, each with the last header of that name; null: "
        "the record has no such header"),
    OPTION_COLUMN(struct kafka_meta, all_headers, "all_headers", 0,
                  "list({ key: text, value: bytes }): all headers of the record, in their order"),
    OPTIONS_END,
};

/* --- bind --- */

static bool is_text(enum type_tag tag)
{
    return tag == TYPE_TEXT || tag == TYPE_BYTES;
}

/* Resolves the column of an option and marks it as not the payload's. what: for messages, "the key". Returns
 * false after a diagnostic. */
static bool take_column(struct column_ref *ref, const char *what, enum type_tag wanted, bool *is_taken,
                        const struct schema *schema, struct arena *arena, struct diag_list *diags)
{
    static const char *const hints[] = {[TYPE_INT] = "int", [TYPE_TIME] = "time(ms)", [TYPE_TEXT] = "text"};
    if (ref->name.length == 0)
        return true;
    if (!column_resolve(ref, schema, arena, diags))
        return false;
    const struct type *type = &schema->fields[ref->index].type;
    bool is_fit = type->tag == wanted || (wanted == TYPE_BYTES && is_text(type->tag));
    if (!is_fit) {
        struct diag *d =
            diag_error(diags, DIAG_TYPE_CLASH, ref->span, "%s cannot be %s", what, type_name(arena, type));
        diag_hint(diags, d, "declare it as `%.*s: %s` in the schema", STR_ARGS(ref->name),
                  wanted == TYPE_BYTES ? "text` or `bytes" : hints[wanted]);
        return false;
    }
    if (is_taken[ref->index]) {
        diag_error(diags, DIAG_OPTION_TWICE, ref->span, "column `%.*s` is named twice in `meta`",
                   STR_ARGS(ref->name));
        return false;
    }
    is_taken[ref->index] = true;
    return true;
}

static bool take_headers(struct kafka_meta *meta, bool *is_taken, const struct schema *schema,
                         struct arena *arena, struct diag_list *diags)
{
    bool is_good = true;
    for (uint32_t i = 0; i < meta->headers.count; i++) {
        const struct assignment *header = &meta->headers.items[i];
        if (meta->headers_count == KAFKA_HEADERS_MAX) {
            diag_error(diags, DIAG_TOO_MANY, header->name_span, "there can be at most %d columns of headers",
                       KAFKA_HEADERS_MAX);
            return false;
        }
        if (header->value->tag != AST_TEXT || header->value->text.length == 0) {
            struct diag *d = diag_error(diags, DIAG_OPTION_TYPE, header->value->span,
                                        "the name of a header must be a text");
            diag_hint(diags, d, "for example `headers: { trace: \"x-trace-id\" }`");
            is_good = false;
            continue;
        }
        struct column_ref *column = &meta->header_columns[meta->headers_count];
        *column = (struct column_ref){header->name, header->name_span, -1};
        meta->header_names[meta->headers_count++] =
            arena_strndup(arena, header->value->text.data, header->value->text.length);
        is_good &= take_column(column, "a header", TYPE_BYTES, is_taken, schema, arena, diags);
    }
    return is_good;
}

static bool take_list(struct kafka_meta *meta, bool *is_taken, const struct schema *schema,
                      struct arena *arena, struct diag_list *diags)
{
    struct column_ref *ref = &meta->all_headers;
    if (ref->name.length == 0)
        return true;
    if (!column_resolve(ref, schema, arena, diags))
        return false;
    const struct type *type = &schema->fields[ref->index].type;
    const struct schema *fields =
        type->tag == TYPE_LIST && type->element->tag == TYPE_RECORD ? type->element->fields : NULL;
    int name = fields == NULL ? -1 : schema_find(fields, STR("key"));
    int value = fields == NULL ? -1 : schema_find(fields, STR("value"));
    bool is_fit = name >= 0 && value >= 0 && fields->count == 2 &&
                  fields->fields[name].type.tag == TYPE_TEXT && is_text(fields->fields[value].type.tag);
    if (!is_fit) {
        struct diag *d = diag_error(diags, DIAG_TYPE_CLASH, ref->span, "a list of headers cannot be %s",
                                    type_name(arena, type));
        diag_hint(diags, d, "declare it as `%.*s: list({ key: text, value: bytes })` in the schema",
                  STR_ARGS(ref->name));
        return false;
    }
    if (is_taken[ref->index]) {
        diag_error(diags, DIAG_OPTION_TWICE, ref->span, "column `%.*s` is named twice in `meta`",
                   STR_ARGS(ref->name));
        return false;
    }
    meta->list_name = (uint32_t)name;
    meta->list_value = (uint32_t)value;
    return is_taken[ref->index] = true;
}

bool kafka_meta_bind(struct kafka_meta *meta, const struct schema *schema, struct span span,
                     struct arena *arena, struct diag_list *diags)
{
    bool is_taken[SCHEMA_FIELDS_MAX] = {false};
    bool is_good = take_column(&meta->key, "the key", TYPE_BYTES, is_taken, schema, arena, diags);
    is_good &= take_column(&meta->topic, "the topic", TYPE_TEXT, is_taken, schema, arena, diags);
    is_good &= take_column(&meta->partition, "the partition", TYPE_INT, is_taken, schema, arena, diags);
    is_good &= take_column(&meta->offset, "the offset", TYPE_INT, is_taken, schema, arena, diags);
    is_good &= take_column(&meta->timestamp, "the broker's time", TYPE_TIME, is_taken, schema, arena, diags);
    is_good &= take_headers(meta, is_taken, schema, arena, diags);
    is_good &= take_list(meta, is_taken, schema, arena, diags);
    if (!is_good)
        return false;
    struct schema *payload = arena_new(arena, struct schema);
    payload->fields = arena_array(arena, struct field, schema->count);
    meta->payload_columns = arena_array(arena, uint32_t, schema->count);
    for (uint32_t i = 0; i < schema->count; i++) {
        if (is_taken[i])
            continue;
        if (schema->fields[i].is_required && meta->required == NULL)
            meta->required = arena_strndup(arena, schema->fields[i].name.data, schema->fields[i].name.length);
        meta->payload_columns[payload->count] = i;
        payload->fields[payload->count++] = schema->fields[i];
    }
    meta->payload = payload;
    meta->has_columns = payload->count < schema->count;
    if (payload->count > 0)
        return true;
    struct diag *d = diag_error(diags, DIAG_OPTION_MISSING, span, "no column is left for the payload");
    diag_hint(diags, d, "with `format: raw` a column of type bytes takes the payload unchanged");
    return false;
}

void kafka_meta_open(struct kafka_meta *meta, bool has_dead_letters)
{
    meta->keeps_originals = has_dead_letters || meta->all_headers.name.length > 0;
}

/* --- decode --- */

struct fill {
    const struct kafka_meta *meta;
    const struct kafka_frame *frame;
    struct batch *batch;
    uint32_t rows;
    const char **reasons; /* by row; NULL: no row has one. `good`: ignore the payload decoder's error */
};

static const char good[] = "";

static void set_reason(struct fill *fill, uint32_t row, const char *reason)
{
    if (fill->reasons == NULL)
        fill->reasons = arena_calloc(&fill->batch->arena, fill->rows, sizeof(*fill->reasons));
    fill->reasons[row] = reason;
}

static const struct field *field_of(const struct fill *fill, const struct column *column)
{
    return &fill->batch->schema->fields[column - fill->batch->columns];
}

static void missing(struct fill *fill, struct column *column, uint32_t row)
{
    const struct field *field = field_of(fill, column);
    batch_set_null(fill->batch, column, row);
    if (field->is_required)
        set_reason(fill, row,
                   arena_printf(&fill->batch->arena, "`%.*s` is missing", (int)MIN(field->name.length, 64),
                                field->name.data));
}

/* Fills a column with the key (which 0) or header number `which` of each record. heap: a copy of the frame's
 * heap in the batch. */
static void fill_texts(struct fill *fill, struct column *column, uint32_t which, const char *heap)
{
    uint32_t each = 1 + fill->meta->headers_count;
    column->heap = heap;
    for (uint32_t row = 0; row < fill->rows; row++) {
        struct text_ref ref = fill->frame->texts[row * each + which];
        bool is_null = ref.length == KAFKA_TEXT_NULL;
        column->texts[row] = is_null ? (struct text_ref){0, 0} : ref;
        if (is_null) {
            missing(fill, column, row);
        } else if (column->tag == TYPE_TEXT && !text_is_utf8(heap + ref.offset, ref.length)) {
            const struct field *field = field_of(fill, column);
            set_reason(fill, row,
                       arena_printf(&fill->batch->arena, "`%.*s`: not valid UTF-8",
                                    (int)MIN(field->name.length, 64), field->name.data));
            batch_set_null(fill->batch, column, row);
            column->texts[row] = (struct text_ref){0, 0};
        }
    }
}

/* Sets name or value of a header in the list. offset: of `part` in the heap. Returns false if the text is not
 * valid UTF-8. */
static bool fill_part(struct column *column, uint32_t at, const char *heap, struct str part, size_t offset)
{
    bool is_null = part.data == NULL;
    column->texts[at] =
        is_null ? (struct text_ref){0, 0} : (struct text_ref){(uint32_t)offset, (uint32_t)part.length};
    if (is_null)
        bit_clear(column->valid, at);
    return is_null || column->tag != TYPE_TEXT || text_is_utf8(heap + offset, part.length);
}

/* Sets the headers of one record from list element `at` on. Returns their count. */
static uint32_t fill_headers(struct fill *fill, uint32_t row, struct column *children, uint32_t at,
                             const char *heap, size_t offset)
{
    const struct kafka_meta *meta = fill->meta;
    const struct str all = fill->frame->headers[row];
    struct str rest = all, name, value;
    uint32_t count = 0;
    bool is_good = true;
    while (count < KAFKA_LIST_MAX && record_take_header(&rest, &name, &value)) {
        is_good &= fill_part(&children[meta->list_name], at + count, heap, name,
                             offset + (size_t)(name.data - all.data));
        is_good &= fill_part(&children[meta->list_value], at + count, heap, value,
                             value.data == NULL ? 0 : offset + (size_t)(value.data - all.data));
        count++;
    }
    if (record_take_header(&rest, &name, &value))
        set_reason(fill, row, "more than 1,024 headers");
    else if (!is_good)
        set_reason(fill, row, "a header: not valid UTF-8");
    return count;
}

static void fill_list(struct fill *fill)
{
    struct batch *batch = fill->batch;
    const struct kafka_meta *meta = fill->meta;
    struct column *list = &batch->columns[meta->all_headers.index];
    const struct schema *fields = batch->schema->fields[meta->all_headers.index].type.element->fields;
    uint32_t total = 0;
    struct byte_buffer bytes = {0};
    for (uint32_t row = 0; row < fill->rows; row++) {
        struct str rest = fill->frame->headers[row], name, value;
        buffer_append(&bytes, rest.data, rest.length);
        for (uint32_t i = 0; i < KAFKA_LIST_MAX && record_take_header(&rest, &name, &value); i++)
            total++;
    }
    const char *heap = arena_copy(&batch->arena, bytes.data, bytes.length);
    buffer_free(&bytes);
    for (uint32_t i = 0; i < list->children_count; i++) {
        batch_column_init(batch, &list->children[i], fields->fields[i].type, total);
        list->children[i].heap = heap;
        list->children[i].valid = batch_valid_new(batch, total);
    }
    size_t offset = 0;
    list->child_rows = total;
    for (uint32_t row = 0, at = 0; row < fill->rows; row++) {
        list->lists[row].offset = at;
        list->lists[row].length = fill_headers(fill, row, list->children, at, heap, offset);
        at += list->lists[row].length;
        offset += fill->frame->headers[row].length;
    }
}

static struct column *column_at(const struct fill *fill, const struct column_ref *ref)
{
    return ref->name.length == 0 ? NULL : &fill->batch->columns[ref->index];
}

static void fill_columns(struct fill *fill)
{
    const struct kafka_meta *meta = fill->meta;
    const struct kafka_frame *frame = fill->frame;
    struct arena *arena = &fill->batch->arena;
    struct column *column = column_at(fill, &meta->topic);
    if (column != NULL) {
        column->heap = arena_strdup(arena, frame->topic);
        for (uint32_t row = 0; row < fill->rows; row++)
            column->texts[row] = (struct text_ref){0, (uint32_t)strlen(frame->topic)};
    }
    column = column_at(fill, &meta->partition);
    for (uint32_t row = 0; column != NULL && row < fill->rows; row++)
        column->ints[row] = frame->partition;
    column = column_at(fill, &meta->offset);
    if (column != NULL)
        memcpy(column->ints, frame->offsets, fill->rows * sizeof(int64_t));
    column = column_at(fill, &meta->timestamp);
    for (uint32_t row = 0; column != NULL && row < fill->rows; row++) {
        column->ints[row] = frame->times[row];
        if (unlikely(frame->times[row] == 0))
            missing(fill, column, row);
    }
    if (meta->all_headers.name.length > 0)
        fill_list(fill);
    if (frame->texts == NULL)
        return;
    const char *heap = arena_copy(arena, frame->heap, frame->heap_bytes);
    column = column_at(fill, &meta->key);
    if (column != NULL)
        fill_texts(fill, column, 0, heap);
    for (uint32_t i = 0; i < meta->headers_count; i++)
        fill_texts(fill, column_at(fill, &meta->header_columns[i]), 1 + i, heap);
}

static void null_value(struct batch *batch, struct column *column, uint32_t row)
{
    batch_set_null(batch, column, row);
    if (column->tag == TYPE_BOOL)
        column->bools[row] = 0;
    else /* all other types have 8 bytes */
        column->ints[row] = 0;
}

/* A record without a payload (a tombstone) says that its key has no value any more: it becomes a row whose
 * payload columns are null. Without a column for the key the record is bad. */
static void judge_flags(struct fill *fill)
{
    const struct kafka_meta *meta = fill->meta;
    struct arena *arena = &fill->batch->arena;
    for (uint32_t row = 0; row < fill->rows; row++) {
        if (fill->frame->flags[row] == KAFKA_TOO_LONG)
            set_reason(fill, row, "a record longer than 1 MiB");
        if (fill->frame->flags[row] != KAFKA_TOMBSTONE)
            continue;
        for (uint32_t i = 0; i < meta->payload->count; i++)
            null_value(fill->batch, &fill->batch->columns[meta->payload_columns[i]], row);
        if (meta->key.name.length == 0)
            set_reason(fill, row, "no payload (a tombstone), and the source has no column for the key");
        else if (meta->required != NULL)
            set_reason(fill, row,
                       arena_printf(arena, "no payload (a tombstone): `%.64s` is missing", meta->required));
        else if (fill->reasons == NULL || fill->reasons[row] == NULL)
            set_reason(fill, row, good);
    }
}

/* Merges the payload decoder's bad records and the reasons in `fill` into one list, ordered by row. */
static void merge_reasons(const struct fill *fill, struct decode_output *output)
{
    const struct bad_record *theirs =
        arena_copy(&fill->batch->arena, output->bad, output->bad_count * sizeof(*theirs));
    uint32_t count = output->bad_count, at = 0;
    output->bad_count = 0;
    for (uint32_t row = 0; row < fill->rows; row++) {
        const char *reason = fill->reasons[row];
        const struct bad_record *bad = at < count && theirs[at].row == row ? &theirs[at++] : NULL;
        if (reason == NULL && bad != NULL)
            output->bad[output->bad_count++] = *bad;
        else if (reason != NULL && reason != good)
            output->bad[output->bad_count++] =
                (struct bad_record){.row = row, .column = UINT32_MAX, .reason = reason};
    }
    leat_assert(at == count);
}

/* Sets all columns of bad rows to null. */
static void null_bad_rows(const struct fill *fill, const struct decode_output *output)
{
    for (uint32_t i = 0; i < output->bad_count; i++)
        for (uint32_t k = 0; k < fill->batch->schema->count; k++)
            null_value(fill->batch, &fill->batch->columns[k], output->bad[i].row);
}

void kafka_frame_keep(struct kafka_frame *frame, uint32_t row, uint32_t rows, struct str key,
                      struct str headers, struct arena *arena)
{
    if (frame->keys == NULL) {
        frame->keys = arena_array(arena, struct str, rows);
        frame->headers = arena_array(arena, struct str, rows);
    }
    frame->keys[row] = key.data == NULL ? key : arena_str(arena, key);
    frame->headers[row] = headers.length == 0 ? (struct str){NULL, 0} : arena_str(arena, headers);
}

/* Adds key and headers to bad records, and marks those whose payload is not in the raw batch as it was. */
static void add_originals(const struct fill *fill, struct decode_output *output)
{
    const struct kafka_frame *frame = fill->frame;
    struct arena *arena = &fill->batch->arena;
    for (uint32_t i = 0; i < output->bad_count; i++) {
        struct bad_record *bad = &output->bad[i];
        bad->has_no_bytes = frame->flags != NULL && frame->flags[bad->row] != 0;
        if (frame->keys == NULL)
            continue;
        struct str key = frame->keys[bad->row], headers = frame->headers[bad->row];
        bad->key = key.data == NULL ? key : arena_str(arena, key);
        if (headers.length == 0)
            continue;
        struct byte_buffer text = {0};
        recorded_put_headers(headers, &text);
        bad->headers = arena_str(arena, (struct str){text.data, text.length});
        buffer_free(&text);
    }
}

static void decode_payload(const struct kafka_meta *meta, void *format, struct raw_batch *raw,
                           struct decode_output *output)
{
    struct batch *batch = output->batch;
    if (!meta->has_columns) {
        format_decode(format, raw, output);
        return;
    }
    /* The decoder sees a batch that has only the payload's columns. */
    const struct schema *schema = batch->schema;
    struct column *columns = batch->columns;
    struct column *own = arena_array(&batch->arena, struct column, meta->payload->count);
    for (uint32_t i = 0; i < meta->payload->count; i++)
        own[i] = columns[meta->payload_columns[i]];
    batch->schema = meta->payload;
    batch->columns = own;
    format_decode(format, raw, output);
    batch->schema = schema;
    batch->columns = columns;
    for (uint32_t i = 0; i < meta->payload->count; i++)
        columns[meta->payload_columns[i]] = own[i];
}

void kafka_meta_decode(const struct kafka_meta *meta, void *format, struct raw_batch *raw,
                       struct decode_output *output)
{
    struct fill fill = {.meta = meta, .frame = raw->extra, .batch = output->batch, .rows = raw->count};
    decode_payload(meta, format, raw, output);
    fill.batch->arrival_time =
        arena_copy(&fill.batch->arena, fill.frame->times, raw->count * sizeof(*fill.frame->times));
    if (meta->has_columns)
        fill_columns(&fill);
    if (fill.frame->flags != NULL)
        judge_flags(&fill);
    if (fill.reasons != NULL)
        merge_reasons(&fill, output);
    if (unlikely(output->bad_count > 0)) {
        null_bad_rows(&fill, output);
        add_originals(&fill, output);
    }
}

/* MessagePack -> columns. Bad records are the same as in JSON: see README.md. */
#include "formats/msgpack.h"
#include "formats/rows.h"
#include "formats/text.h"

#include "core/civil.h"
#include "core/mem.h"
#include "core/utf8.h"

#include <stdlib.h>

enum { TIMESTAMP_TYPE = -1 };

struct msgpack_decoder {
    struct rows *rows;
    const char *begin, *end;
    const char *reason, *at;
};

static const char *fail(struct msgpack_decoder *decoder, const char *at, const struct row_column *column,
                        const char *what)
{
    decoder->at = at;
    decoder->reason = column == NULL || column->name.length == 0
                          ? what
                          : arena_printf(&decoder->rows->output->batch->arena, "`%.*s`: %s",
                                         (int)MIN(column->name.length, 64), column->name.data, what);
    return NULL;
}

static const char *read_value(struct msgpack_decoder *decoder, struct row_column *column, uint32_t row,
                              const struct row_list *list, const char *at);
static const char *read_map(struct msgpack_decoder *decoder, struct row_fields *fields, uint32_t row,
                            const struct row_list *list, uint32_t pairs, const char *at);

static const char *read_int(struct msgpack_decoder *decoder, const struct row_column *column,
                            const struct msgpack_head *head, int64_t *value, const char *at,
                            const char *behind)
{
    *value = head->integer;
    if (head->kind == MSGPACK_INT)
        return behind;
    if (head->kind == MSGPACK_UNSIGNED)
        return fail(decoder, at, column, "a number out of range");
    if (head->kind != MSGPACK_FLOAT)
        return fail(decoder, at, column, "an int was expected");
    /* Some writers write 17 as the float 17.0. */
    if (!(head->real > -0x1p53 && head->real < 0x1p53) || head->real != (double)(int64_t)head->real)
        return fail(decoder, at, column, "not a whole number");
    *value = (int64_t)head->real;
    return behind;
}

/* Reads MessagePack's own timestamp: 4, 8 or 12 bytes. */
static bool read_timestamp(const char *at, uint32_t length, int64_t *microseconds)
{
    uint64_t words[3] = {0};
    for (uint32_t i = 0; i < length && i < 12; i++)
        words[i / 4] = words[i / 4] << 8 | (unsigned char)at[i];
    uint64_t seconds = words[0], nanoseconds = 0;
    if (length == 8) {
        nanoseconds = words[0] >> 2;
        seconds = (words[0] & 3) << 32 | words[1];
    } else if (length == 12) {
        nanoseconds = words[0];
        seconds = words[1] << 32 | words[2];
    }
    return (length == 4 || length == 8 || length == 12) && nanoseconds < 1000000000 &&
           !__builtin_mul_overflow((int64_t)seconds, US_PER_SECOND, microseconds) &&
           !__builtin_add_overflow(*microseconds, (int64_t)(nanoseconds / 1000), microseconds);
}

static const char *read_time(struct msgpack_decoder *decoder, struct row_column *column, uint32_t row,
                             const struct msgpack_head *head, const char *at, const char *behind)
{
    int64_t *value = &column->ints[row];
    bool has_bytes = head->kind == MSGPACK_TEXT || head->kind == MSGPACK_EXTENSION;
    if (has_bytes && (size_t)(decoder->end - behind) < head->length)
        return fail(decoder, at, column, "the record ends inside a value");
    if (head->kind == MSGPACK_EXTENSION && head->integer == TIMESTAMP_TYPE) {
        if (!read_timestamp(behind, head->length, value))
            return fail(decoder, at, column, "not a timestamp");
        return behind + head->length;
    }
    int64_t unit_us = text_unit_us(column->unit);
    if (unit_us == 0) {
        if (head->kind != MSGPACK_TEXT || !civil_parse((struct str){behind, head->length}, value))
            return fail(decoder, at, column, "not a time like 2015-09-12T00:46:58Z");
        return behind + head->length;
    }
    behind = read_int(decoder, column, head, value, at, behind);
    if (behind != NULL && !time_from_units(*value, unit_us, value))
        return fail(decoder, at, column, "a number out of range");
    return behind;
}

static const char *read_text(struct msgpack_decoder *decoder, struct row_column *column, uint32_t row,
                             const struct msgpack_head *head, const char *at, const char *behind)
{
    bool is_text = column->tag == TYPE_TEXT;
    if (head->kind != MSGPACK_TEXT && (is_text || head->kind != MSGPACK_BYTES))
        return fail(decoder, at, column, is_text ? "a text was expected" : "bytes were expected");
    if ((size_t)(decoder->end - behind) < head->length)
        return fail(decoder, at, column, "the record ends inside a value");
    if (is_text && !text_is_utf8(behind, head->length))
        return fail(decoder, behind + utf8_error(behind, head->length), column, "not valid UTF-8");
    memcpy(decoder->rows->heap, behind, head->length);
    rows_text(decoder->rows, column, row, head->length);
    return behind + head->length;
}

static const char *read_list(struct msgpack_decoder *decoder, struct row_column *column, uint32_t row,
                             const struct msgpack_head *head, const char *at, const char *behind)
{
    struct row_list *list = column->list;
    uint32_t first = list->rows;
    if (head->kind != MSGPACK_LIST)
        return fail(decoder, at, column, "a list was expected");
    for (uint32_t i = 0; i < head->length && behind != NULL; i++) {
        uint32_t element = rows_element(decoder->rows, list);
        if (element == UINT32_MAX)
            return fail(decoder, at, column, "too many values in lists");
        if (!list->is_record) {
            behind = read_value(decoder, &list->fields.columns[0], element, list, behind);
            continue;
        }
        struct msgpack_head record;
        const char *inside = msgpack_head(behind, decoder->end, &record);
        if (record.kind == MSGPACK_NIL) {
            for (uint32_t j = 0; j < list->fields.count; j++)
                rows_null(decoder->rows, &list->fields.columns[j], element, list);
            behind = inside;
        } else if (record.kind != MSGPACK_MAP) {
            return fail(decoder, behind, column, "a map was expected in the list");
        } else {
            behind = read_map(decoder, &list->fields, element, list, record.length, inside);
        }
    }
    column->lists[row] = (struct list_ref){first, list->rows - first};
    return behind;
}

static const char *read_value(struct msgpack_decoder *decoder, struct row_column *column, uint32_t row,
                              const struct row_list *list, const char *at)
{
    struct msgpack_head head;
    const char *behind = msgpack_head(at, decoder->end, &head);
    if (head.kind == MSGPACK_MORE || head.kind == MSGPACK_BAD)
        return fail(decoder, at, column, "the record ends inside a value");
    if (head.kind == MSGPACK_NIL) {
        if (column->is_required)
            return fail(decoder, at, column, "null, but the schema requires a value");
        rows_null(decoder->rows, column, row, list);
        return behind;
    }
    switch (column->tag) {
    case TYPE_BOOL:
        column->bools[row] = (uint8_t)(head.integer & 1);
        return head.kind == MSGPACK_BOOL ? behind : fail(decoder, at, column, "a bool was expected");
    case TYPE_INT: return read_int(decoder, column, &head, &column->ints[row], at, behind);
    case TYPE_FLOAT:
        column->floats[row] = head.kind == MSGPACK_FLOAT ? head.real : (double)head.integer;
        return head.kind == MSGPACK_FLOAT || head.kind == MSGPACK_INT
                   ? behind
                   : fail(decoder, at, column, "a float was expected");
    case TYPE_TIME: return read_time(decoder, column, row, &head, at, behind);
    case TYPE_LIST: return read_list(decoder, column, row, &head, at, behind);
    default: return read_text(decoder, column, row, &head, at, behind);
    }
}

static const char *read_map(struct msgpack_decoder *decoder, struct row_fields *fields, uint32_t row,
                            const struct row_list *list, uint32_t pairs, const char *at)
{
    uint64_t object = ++decoder->rows->objects;
    uint32_t guess = 0;
    for (uint32_t i = 0; i < pairs; i++) {
        struct msgpack_head head;
        const char *name = msgpack_head(at, decoder->end, &head);
        if (head.kind != MSGPACK_TEXT || (size_t)(decoder->end - name) < head.length)
            return fail(decoder, at, NULL, "a name was expected in the map");
        struct row_column *column = guess < fields->count ? &fields->columns[guess] : NULL;
        if (column == NULL || !str_equal(column->name, (struct str){name, head.length}))
            column = rows_find(fields, name, head.length);
        const char *value = name + head.length;
        bool is_bad = false;
        if (column != NULL && column->seen == object)
            return fail(decoder, at, column, "given twice");
        if (column != NULL) {
            column->seen = object;
            guess = (uint32_t)(column - fields->columns) + 1;
            at = read_value(decoder, column, row, list, value);
        } else {
            at = msgpack_skip(value, decoder->end, &is_bad);
        }
        if (at == NULL)
            return column != NULL ? NULL : fail(decoder, value, NULL, "the record ends inside a value");
    }
    const struct row_column *missing = rows_missing(decoder->rows, fields, object, row, list);
    return missing == NULL ? at : fail(decoder, at, missing, "missing, but the schema requires it");
}

static const char *read_record(struct msgpack_decoder *decoder, uint32_t row)
{
    struct msgpack_head head;
    const char *at = msgpack_head(decoder->begin, decoder->end, &head);
    if (head.kind != MSGPACK_MAP)
        return fail(decoder, decoder->begin, NULL, "a map was expected as the record");
    at = read_map(decoder, &decoder->rows->fields, row, NULL, head.length, at);
    if (at != NULL && at != decoder->end)
        return fail(decoder, at, NULL, "something follows the record");
    return at;
}

void msgpack_decode(void *self, struct raw_batch *raw, struct decode_output *output)
{
    struct msgpack_decoder *decoder = self;
    rows_begin(decoder->rows, raw, output, raw->data_bytes);
    for (uint32_t row = 0; row < raw->count; row++) {
        decoder->begin = raw->data + raw->records[row].offset;
        decoder->end = decoder->begin + raw->records[row].length;
        rows_mark(decoder->rows);
        if (read_record(decoder, row) == NULL)
            rows_bad(decoder->rows, row, (uint32_t)(decoder->at - decoder->begin), decoder->reason);
    }
    rows_end(decoder->rows);
}

void *msgpack_decoder_new(const struct schema *schema, const void *config LEAT_UNUSED)
{
    struct msgpack_decoder *decoder = mem_calloc(1, sizeof(*decoder));
    decoder->rows = rows_new(schema);
    return decoder;
}

void msgpack_decoder_free(void *self)
{
    struct msgpack_decoder *decoder = self;
    if (decoder == NULL)
        return;
    rows_free(decoder->rows);
    free(decoder);
}

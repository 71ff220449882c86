#include "formats/json_read.h"
#include "formats/text.h"

#include "core/base64.h"
#include "core/civil.h"

#include <stdarg.h>
#include <stdio.h>

static const char *const type_words[] = {"a bool", "an int", "a float", "a text",
                                         "bytes",  "a time", "a list",  "a record"};

const char *json_fail(struct json_reader *reader, const char *at, const char *format, ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    reader->reason =
        arena_printf(reader->arena, "%s%s", text, at >= reader->end ? " (the record ends here)" : "");
    reader->at = at < reader->end ? at : reader->end;
    return NULL;
}

/* Fails with "`user`: an int was expected, not a text". Elements of a list have no name. */
static const char *wrong_type(struct json_reader *reader, const struct row_column *column, const char *at)
{
    char c = json_peek(reader, at);
    const char *found = c == '"'                             ? "a text"
                        : c == '{'                           ? "a record"
                        : c == '['                           ? "a list"
                        : c == 't' || c == 'f'               ? "a bool"
                        : c == 'n'                           ? "null"
                        : c == '-' || (c >= '0' && c <= '9') ? "a number"
                        : at >= reader->end                  ? "nothing"
                                                             : "something that is not a JSON value";
    return json_fail(reader, at, "`%.*s`: %s was expected, not %s", (int)MIN(column->name.length, 64),
                     column->name.length == 0 ? "" : column->name.data, type_words[column->tag], found);
}

static const char *bad_value(struct json_reader *reader, const struct row_column *column, const char *at,
                             const char *what)
{
    return json_fail(reader, at, "`%.*s`: %s", (int)MIN(column->name.length, 64),
                     column->name.length == 0 ? "" : column->name.data, what);
}

static bool starts_with(const struct json_reader *reader, const char *at, const char *word)
{
    size_t length = strlen(word);
    return (size_t)(reader->end - at) >= length && memcmp(at, word, length) == 0;
}

/* --- values that no column takes --- */

static const char *skip_scalar(struct json_reader *reader, const char *at)
{
    struct text_number number;
    size_t length;
    char c = json_peek(reader, at);
    if (c == '"')
        return json_text(reader, at + 1, &length);
    if (c == 't' && starts_with(reader, at, "true"))
        return at + 4;
    if (c == 'f' && starts_with(reader, at, "false"))
        return at + 5;
    if (c == 'n' && starts_with(reader, at, "null"))
        return at + 4;
    const char *behind = text_number(at, reader->end, &number);
    return behind != NULL ? behind : json_fail(reader, at, "something that is not a JSON value");
}

/* Skips `"name" :`, and the space before and inside. */
static const char *skip_name(struct json_reader *reader, const char *at)
{
    size_t length;
    at = json_space(at, reader->end);
    if (json_peek(reader, at) != '"')
        return json_fail(reader, at, "a name in quotes was expected");
    at = json_text(reader, at + 1, &length);
    if (at == NULL)
        return NULL;
    at = json_space(at, reader->end);
    if (json_peek(reader, at) != ':')
        return json_fail(reader, at, "`:` was expected");
    return at + 1;
}

const char *json_skip(struct json_reader *reader, const char *at)
{
    uint64_t is_object[BIT_WORDS(JSON_DEPTH_MAX)];
    uint32_t depth = 0;
    for (;;) {
        /* Skip a scalar, or open a list or object. */
        at = json_space(at, reader->end);
        char c = json_peek(reader, at);
        bool is_open = c == '{' || c == '[';
        if (is_open) {
            if (depth == JSON_DEPTH_MAX)
                return json_fail(reader, at, "nested more than %d deep", JSON_DEPTH_MAX);
            (c == '{' ? bit_set : bit_clear)(is_object, depth++);
            at = json_space(at + 1, reader->end);
            is_open = json_peek(reader, at) != (c == '{' ? '}' : ']');
        } else {
            at = skip_scalar(reader, at);
            if (at == NULL)
                return NULL;
        }
        /* Behind a value: close the lists and objects that end here, then take a comma. */
        while (!is_open && depth > 0) {
            at = json_space(at, reader->end);
            c = json_peek(reader, at);
            bool in_object = bit_get(is_object, depth - 1);
            is_open = c == ',';
            if (!is_open && c != (in_object ? '}' : ']'))
                return json_fail(reader, at, "`,` or `%c` was expected", in_object ? '}' : ']');
            depth -= !is_open;
            at++;
        }
        if (!is_open)
            return at;
        if (bit_get(is_object, depth - 1) && (at = skip_name(reader, at)) == NULL)
            return NULL;
    }
}

/* --- values of a column --- */

static const char *number_result(struct json_reader *reader, const struct row_column *column, const char *at,
                                 enum text_result result, const char *behind)
{
    if (result == TEXT_GOOD)
        return behind;
    return bad_value(reader, column, at,
                     result == TEXT_OUT_OF_RANGE ? "a number out of range" : "not a whole number");
}

static const char *read_number(struct json_reader *reader, struct row_column *column, uint32_t row,
                               const char *at)
{
    struct text_number number;
    const char *behind = text_number(at, reader->end, &number);
    if (behind == NULL)
        return wrong_type(reader, column, at);
    enum text_result result = column->tag == TYPE_FLOAT ? text_number_double(&number, &column->floats[row])
                              : column->tag == TYPE_INT
                                  ? text_number_int(&number, &column->ints[row])
                                  : text_number_time(&number, column->unit, &column->ints[row]);
    return number_result(reader, column, at, result, behind);
}

static const char *read_text(struct json_reader *reader, struct row_column *column, uint32_t row,
                             const char *at)
{
    struct rows *rows = reader->rows;
    size_t length;
    if (json_peek(reader, at) != '"')
        return wrong_type(reader, column, at);
    const char *behind = json_text(reader, at + 1, &length);
    if (behind == NULL)
        return NULL;
    if (column->tag == TYPE_TIME) {
        if (!civil_parse((struct str){rows->heap, length}, &column->ints[row]))
            return bad_value(reader, column, at, "not a time like 2015-09-12T00:46:58Z");
        return behind;
    }
    if (column->tag == TYPE_BYTES) {
        length = base64_decode(rows->heap, length, rows->heap);
        if (length == SIZE_MAX)
            return bad_value(reader, column, at, "not base64");
    }
    rows_text(rows, column, row, length);
    return behind;
}

static const char *read_bool(struct json_reader *reader, struct row_column *column, uint32_t row,
                             const char *at)
{
    bool value = starts_with(reader, at, "true");
    if (!value && !starts_with(reader, at, "false"))
        return wrong_type(reader, column, at);
    column->bools[row] = value;
    return at + (value ? 4 : 5);
}

/* Reads one element of a list; at: its first byte. */
static const char *read_element(struct json_reader *reader, struct row_list *list, const char *at)
{
    struct rows *rows = reader->rows;
    uint32_t row = rows_element(rows, list);
    if (row == UINT32_MAX)
        return json_fail(reader, at, "more than %d values in lists", ROWS_LIST_VALUES_MAX);
    if (!list->is_record)
        return json_value(reader, &list->fields.columns[0], row, list, at);
    if (starts_with(reader, at, "null")) {
        for (uint32_t i = 0; i < list->fields.count; i++)
            rows_null(rows, &list->fields.columns[i], row, list);
        return at + 4;
    }
    if (json_peek(reader, at) != '{')
        return json_fail(reader, at, "a record was expected in the list");
    return json_members(reader, &list->fields, row, list, at + 1);
}

static const char *read_list(struct json_reader *reader, struct row_column *column, uint32_t row,
                             const char *at)
{
    struct row_list *list = column->list;
    uint32_t first = list->rows;
    if (json_peek(reader, at) != '[')
        return wrong_type(reader, column, at);
    at = json_space(at + 1, reader->end);
    bool is_open = json_peek(reader, at) != ']';
    at += !is_open;
    while (is_open) {
        at = read_element(reader, list, json_space(at, reader->end));
        if (at == NULL)
            return NULL;
        at = json_space(at, reader->end);
        char c = json_peek(reader, at);
        if (c != ',' && c != ']')
            return json_fail(reader, at, "`,` or `]` was expected");
        is_open = c == ',';
        at++;
    }
    column->lists[row] = (struct list_ref){first, list->rows - first};
    return at;
}

const char *json_value(struct json_reader *reader, struct row_column *column, uint32_t row,
                       const struct row_list *list, const char *at)
{
    if (json_peek(reader, at) == 'n' && starts_with(reader, at, "null")) {
        if (column->is_required)
            return bad_value(reader, column, at, "null, but the schema requires a value");
        rows_null(reader->rows, column, row, list);
        return at + 4;
    }
    switch (column->tag) {
    case TYPE_BOOL: return read_bool(reader, column, row, at);
    case TYPE_LIST: return read_list(reader, column, row, at);
    case TYPE_TEXT:
    case TYPE_BYTES: return read_text(reader, column, row, at);
    case TYPE_TIME:
        if (text_unit_us(column->unit) == 0)
            return read_text(reader, column, row, at);
        return read_number(reader, column, row, at);
    default: return read_number(reader, column, row, at);
    }
}

/* --- objects --- */

const char *json_name(struct json_reader *reader, struct row_fields *fields, uint32_t guess,
                      struct row_column **column, const char *at)
{
    size_t length;
    at = json_space(at, reader->end);
    if (json_peek(reader, at) != '"')
        return json_fail(reader, at, "a name in quotes was expected");
    const char *behind = json_text(reader, at + 1, &length);
    if (behind == NULL)
        return NULL;
    const char *name = reader->rows->heap;
    struct row_column *guessed = guess < fields->count ? &fields->columns[guess] : NULL;
    if (guessed != NULL && guessed->name.length == length && memcmp(guessed->name.data, name, length) == 0)
        *column = guessed;
    else
        *column = rows_find(fields, name, length);
    behind = json_space(behind, reader->end);
    if (json_peek(reader, behind) != ':')
        return json_fail(reader, behind, "`:` was expected");
    return json_space(behind + 1, reader->end);
}

static const char *read_member(struct json_reader *reader, struct row_fields *fields, uint64_t object,
                               uint32_t *guess, uint32_t row, const struct row_list *list, const char *at)
{
    struct row_column *column;
    at = json_space(at, reader->end);
    const char *value = json_name(reader, fields, *guess, &column, at);
    if (value == NULL)
        return NULL;
    if (column == NULL)
        return json_skip(reader, value);
    if (column->seen == object)
        return bad_value(reader, column, at, "given twice");
    column->seen = object;
    *guess = (uint32_t)(column - fields->columns) + 1;
    return json_value(reader, column, row, list, value);
}

const char *json_members(struct json_reader *reader, struct row_fields *fields, uint32_t row,
                         const struct row_list *list, const char *at)
{
    uint64_t object = ++reader->rows->objects;
    uint32_t guess = 0;
    at = json_space(at, reader->end);
    bool is_open = json_peek(reader, at) != '}';
    at += !is_open;
    while (is_open) {
        at = read_member(reader, fields, object, &guess, row, list, at);
        if (at == NULL)
            return NULL;
        at = json_space(at, reader->end);
        char c = json_peek(reader, at);
        if (c != ',' && c != '}')
            return json_fail(reader, at, "`,` or `}` was expected");
        is_open = c == ',';
        at++;
    }
    const struct row_column *missing = rows_missing(reader->rows, fields, object, row, list);
    return missing == NULL ? at : bad_value(reader, missing, at - 1, "missing, but the schema requires it");
}

#include "core/describe.h"

#include "core/civil.h"
#include "core/hex.h"
#include "core/option.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void put_string(struct byte_buffer *out, struct str text)
{
    size_t plain = 0; /* where the bytes begin that stand for themselves */
    buffer_append(out, "\"", 1);
    for (size_t i = 0; i < text.length; i++) {
        unsigned char c = (unsigned char)text.data[i];
        bool is_special = c == '"' || c == '\\' || c < 0x20 || c == 0x7f;
        if (!is_special)
            continue;
        buffer_append(out, text.data + plain, i - plain);
        buffer_printf(out, c == '"' || c == '\\' ? "\\%c" : "\\u%04x", c);
        plain = i + 1;
    }
    buffer_append(out, text.data + plain, text.length - plain);
    buffer_append(out, "\"", 1);
}

static void put_int(struct byte_buffer *out, int64_t value)
{
    if (value < 0)
        buffer_append(out, "-", 1);
    buffer_count(out, value < 0 ? -(uint64_t)value : (uint64_t)value);
}

/* Whether the current item lies inside an element of a list; such an element stands on one line. */
static bool is_inline(const struct describe *d)
{
    for (uint32_t i = 0; i <= d->depth; i++)
        if (d->is_list[i] && i < d->depth)
            return true;
    return false;
}

/* Writes what comes before a value: separator, indentation and name. */
static void begin_item(struct describe *d, const char *name, bool is_record)
{
    struct byte_buffer *out = d->out;
    bool is_first = !d->has_item[d->depth], is_list = d->is_list[d->depth];
    d->has_item[d->depth] = true;
    if (d->is_json) {
        if (!is_first)
            buffer_append(out, ", ", 2);
        if (name != NULL) {
            put_string(out, str_from(name));
            buffer_append(out, ": ", 2);
        }
        return;
    }
    if (is_inline(d)) {
        if (!is_first)
            buffer_printf(out, ", ");
    } else if (is_list && is_record) {
        buffer_printf(out, "\n%*s- ", (int)(2 * d->depth), "");
    } else if (is_list) {
        buffer_printf(out, is_first ? " " : ", ");
    } else {
        buffer_printf(out, "%s%*s", out->length == 0 ? "" : "\n", (int)(2 * d->depth), "");
    }
    if (name != NULL)
        buffer_printf(out, "%s:%s", name, is_record ? "" : " ");
}

void describe_begin(struct describe *d, struct byte_buffer *out, bool is_json)
{
    *d = (struct describe){.out = out, .is_json = is_json};
    if (is_json)
        buffer_append(out, "{", 1);
}

void describe_end(struct describe *d)
{
    leat_assert(d->depth == 0);
    buffer_printf(d->out, d->is_json ? "}\n" : "\n");
}

static void open_item(struct describe *d, const char *name, bool is_list)
{
    begin_item(d, name, true);
    leat_assert(d->depth + 1 < DESCRIBE_DEPTH_MAX);
    d->depth++;
    d->is_list[d->depth] = is_list;
    d->has_item[d->depth] = false;
    if (d->is_json)
        buffer_append(d->out, is_list ? "[" : "{", 1);
}

void describe_record(struct describe *d, const char *name)
{
    open_item(d, name, false);
}

void describe_list(struct describe *d, const char *name)
{
    open_item(d, name, true);
}

void describe_close(struct describe *d)
{
    leat_assert(d->depth > 0);
    if (d->is_json)
        buffer_append(d->out, d->is_list[d->depth] ? "]" : "}", 1);
    else if (!d->has_item[d->depth])
        buffer_printf(d->out, " none");
    d->depth--;
}

void describe_int(struct describe *d, const char *name, int64_t value)
{
    begin_item(d, name, false);
    put_int(d->out, value);
}

enum { FLOAT_BYTES = 320 };

/* Writes so many digits of the number; whether they read back as the same number. */
static bool is_enough(char text[FLOAT_BYTES], int digits, double value, bool is_single)
{
    snprintf(text, FLOAT_BYTES, "%.*g", digits, value);
    double read = strtod(text, NULL);
    return is_single ? (float)read == (float)value : read == value;
}

static void put_float(struct describe *d, double value, bool is_single)
{
    char text[FLOAT_BYTES];
    int low = 6, high = is_single ? 9 : 17; /* `high` digits are always enough */
    if (!isfinite(value)) {
        buffer_printf(d->out, d->is_json ? "null" : isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
        return;
    }
    if (fabs(value) < 1e6 && (double)(int64_t)value == value && !(value == 0.0 && signbit(value))) {
        put_int(d->out, (int64_t)value); /* as %g writes it */
        return;
    }
    /* The fewest digits that read back as the same number. */
    if (!is_enough(text, low, value, is_single)) {
        while (low + 1 < high) {
            int middle = (low + high) / 2;
            *(is_enough(text, middle, value, is_single) ? &high : &low) = middle;
        }
        (void)is_enough(text, high, value, is_single);
    }
    buffer_append(d->out, text, strlen(text));
}

void describe_float(struct describe *d, const char *name, double value)
{
    begin_item(d, name, false);
    put_float(d, value, false);
}

void describe_float32(struct describe *d, const char *name, float value)
{
    begin_item(d, name, false);
    put_float(d, (double)value, true);
}

static void put_text(struct describe *d, struct str text)
{
    bool is_plain = !d->is_json && text.length > 0;
    for (size_t i = 0; is_plain && i < text.length; i++)
        is_plain = (unsigned char)text.data[i] > 0x20 && (unsigned char)text.data[i] < 0x7f &&
                   text.data[i] != '"' && text.data[i] != ',';
    if (is_plain)
        buffer_append(d->out, text.data, text.length);
    else
        put_string(d->out, text);
}

void describe_text(struct describe *d, const char *name, struct str value)
{
    begin_item(d, name, false);
    put_text(d, value);
}

static void put_time(struct describe *d, int64_t value)
{
    char text[34];
    if (value == TIME_MIN || value == TIME_MAX) {
        buffer_printf(d->out, "null");
        return;
    }
    size_t length = civil_format(value, text + 1);
    text[0] = text[length + 1] = '"';
    buffer_append(d->out, d->is_json ? text : text + 1, d->is_json ? length + 2 : length);
}

void describe_time(struct describe *d, const char *name, int64_t value)
{
    begin_item(d, name, false);
    put_time(d, value);
}

/* Writes bytes as hexadecimal digits. */
static void put_bytes(struct describe *d, struct str bytes)
{
    if (d->is_json)
        buffer_append(d->out, "\"", 1);
    hex_text(bytes.data, bytes.length, buffer_reserve(d->out, 2 * bytes.length + 1));
    d->out->length += 2 * bytes.length;
    if (d->is_json)
        buffer_append(d->out, "\"", 1);
}

static void put_list(struct describe *d, const char *name, const struct column *column,
                     const struct type *type, uint32_t row)
{
    struct list_ref list = column->lists[row];
    const struct type *element = type->element;
    describe_list(d, name);
    for (uint32_t i = 0; i < list.length; i++) {
        if (element->tag != TYPE_RECORD) {
            describe_value(d, NULL, &column->children[0], element, list.offset + i);
            continue;
        }
        describe_record(d, NULL);
        for (uint32_t k = 0; k < element->fields->count; k++) {
            const struct field *field = &element->fields->fields[k];
            char own[256];
            snprintf(own, sizeof(own), "%.*s", STR_ARGS(field->name));
            describe_value(d, own, &column->children[k], &field->type, list.offset + i);
        }
        describe_close(d);
    }
    describe_close(d);
}

void describe_value(struct describe *d, const char *name, const struct column *column,
                    const struct type *type, uint32_t row)
{
    if (column_is_valid(column, row) && type->tag == TYPE_LIST) {
        put_list(d, name, column, type, row);
        return;
    }
    begin_item(d, name, false);
    if (!column_is_valid(column, row)) {
        buffer_printf(d->out, "null");
        return;
    }
    switch (type->tag) {
    case TYPE_BOOL: buffer_printf(d->out, column->bools[row] != 0 ? "true" : "false"); break;
    case TYPE_INT: put_int(d->out, column->ints[row]); break;
    case TYPE_FLOAT: put_float(d, column->floats[row], false); break;
    case TYPE_TEXT: put_text(d, column_text(column, row)); break;
    case TYPE_BYTES: put_bytes(d, column_text(column, row)); break;
    case TYPE_TIME: put_time(d, column->ints[row]); break;
    case TYPE_LIST:
    case TYPE_RECORD: buffer_printf(d->out, "null"); break;
    }
}

bool describe_parse(struct batch *batch, struct column *column, const struct type *type, uint32_t row,
                    struct str text)
{
    if (type->tag != TYPE_TEXT && type->tag != TYPE_BYTES && str_is(text, "null")) {
        column->ints[row] = 0;
        batch_set_null(batch, column, row);
        return true;
    }
    switch (type->tag) {
    case TYPE_BOOL:
        column->bools[row] = str_is(text, "true");
        return str_is(text, "true") || str_is(text, "false");
    case TYPE_INT: return literal_int(text, &column->ints[row]);
    case TYPE_FLOAT: return literal_float(text, &column->floats[row]);
    case TYPE_TIME: return civil_parse(text, &column->ints[row]);
    case TYPE_TEXT:
    case TYPE_BYTES: {
        struct str copy = arena_str(&batch->arena, text);
        column->heap = copy.data;
        column->texts[row] = (struct text_ref){0, (uint32_t)copy.length};
        return true;
    }
    case TYPE_LIST:
    case TYPE_RECORD: break;
    }
    return false;
}

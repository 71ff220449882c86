/* Casts. A text must be a value as a whole, without white space around it (`trim` and `clean` remove that),
 * so that "12abc" and "" fail instead of becoming 12 and 0. */
#include "operators/expr/loops.h"

#include "core/civil.h"
#include "core/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

LOOP_UNARY(kernel_bool_to_int, uint8_t, int64_t, x)
LOOP_UNARY(kernel_bool_to_float, uint8_t, double, x)
LOOP_UNARY(kernel_int_to_bool, int64_t, uint8_t, x != 0)

/* Multiplies floats by a scale (core/base.h), or divides them by a negative scale's absolute value, and makes
 * the products ints by rounding towards zero, the quotients by rounding down. A row whose value does not fit
 * an int, or is NaN, fails. */
static void floats_to_ints(struct expr_call *call, int64_t scale)
{
    const struct expr_vec *a = &call->args[0];
    for (uint32_t i = 0; i < call->rows.count; i++) {
        uint32_t row = rows_at(&call->rows, i);
        double x = a->column.floats[row & a->mask];
        x = scale > 0 ? x * (double)scale : floor(x / (double)-scale);
        bool fits = x >= -0x1p63 && x < 0x1p63;
        call->out->column.ints[row] = fits ? (int64_t)x : 0;
        if (!fits && vec_is_valid(call->out, row))
            call_fail(call, row);
    }
}

void kernel_float_to_int(struct expr_call *call)
{
    floats_to_ints(call, 1);
}

/* aux: the unit's scale (core/base.h). */
void kernel_float_to_time(struct expr_call *call)
{
    floats_to_ints(call, *(const int64_t *)call->node->aux);
}

void kernel_int_to_time(struct expr_call *call)
{
    int64_t unit_us = *(const int64_t *)call->node->aux;
    const struct expr_vec *a = &call->args[0];
    for (uint32_t i = 0; i < call->rows.count; i++) {
        uint32_t row = rows_at(&call->rows, i);
        int64_t *out = &call->out->column.ints[row];
        if (time_from_units(a->column.ints[row & a->mask], unit_us, out))
            continue;
        *out = 0;
        if (vec_is_valid(call->out, row))
            call_fail(call, row);
    }
}

/* --- Reading --- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool read_int(struct str text, int64_t *value)
{
    size_t at = text.length > 0 && (text.data[0] == '-' || text.data[0] == '+');
    bool is_negative = at == 1 && text.data[0] == '-';
    if (at == text.length)
        return false;
    *value = 0;
    for (; at < text.length; at++) {
        if (!is_digit(text.data[at]))
            return false;
        int digit = text.data[at] - '0';
        if (__builtin_mul_overflow(*value, 10, value) ||
            __builtin_add_overflow(*value, is_negative ? -digit : digit, value))
            return false;
    }
    return true;
}

static size_t skip_digits(struct str text, size_t at)
{
    while (at < text.length && is_digit(text.data[at]))
        at++;
    return at;
}

/* [+-] digits [. digits] [e [+-] digits], a digit before or after the point; inf, infinity, nan. */
static bool is_float(struct str text)
{
    size_t at = text.length > 0 && (text.data[0] == '-' || text.data[0] == '+');
    struct str word = {text.data + at, text.length - at};
    if ((word.length == 3 &&
         (strncasecmp(word.data, "inf", 3) == 0 || strncasecmp(word.data, "nan", 3) == 0)) ||
        (word.length == 8 && strncasecmp(word.data, "infinity", 8) == 0))
        return true;
    size_t whole = skip_digits(text, at), digits = whole - at;
    at = whole;
    if (at < text.length && text.data[at] == '.') {
        size_t end = skip_digits(text, at + 1);
        digits += end - at - 1;
        at = end;
    }
    if (digits == 0)
        return false;
    if (at < text.length && (text.data[at] == 'e' || text.data[at] == 'E')) {
        at++;
        at += at < text.length && (text.data[at] == '-' || text.data[at] == '+');
        size_t end = skip_digits(text, at);
        if (end == at)
            return false;
        at = end;
    }
    return at == text.length;
}

enum { FLOAT_TEXT_MAX = 400 };

static bool read_float(struct str text, double *value)
{
    char copy[FLOAT_TEXT_MAX + 1];
    if (text.length > FLOAT_TEXT_MAX || !is_float(text))
        return false;
    memcpy(copy, text.data, text.length);
    copy[text.length] = '\0';
    *value = strtod(copy, NULL);
    if (*value != *value)
        *value = (double)NAN; /* one NaN, whatever the sign in the text */
    return true;
}

void kernel_text_to_int(struct expr_call *call)
{
    for (uint32_t i = 0; i < call->live_count; i++) {
        uint32_t row = call->live[i];
        int64_t value = 0;
        bool is_good = read_int(vec_text(&call->args[0], row), &value);
        call->out->column.ints[row] = is_good ? value : 0;
        if (!is_good)
            call_fail(call, row);
    }
}

void kernel_text_to_float(struct expr_call *call)
{
    for (uint32_t i = 0; i < call->live_count; i++) {
        uint32_t row = call->live[i];
        double value = 0;
        bool is_good = read_float(vec_text(&call->args[0], row), &value);
        call->out->column.floats[row] = value;
        if (!is_good)
            call_fail(call, row);
    }
}

void kernel_text_to_bool(struct expr_call *call)
{
    for (uint32_t i = 0; i < call->live_count; i++) {
        uint32_t row = call->live[i];
        struct str text = vec_text(&call->args[0], row);
        bool is_true = str_is(text, "true") || str_is(text, "1");
        call->out->column.bools[row] = is_true;
        if (!is_true && !str_is(text, "false") && !str_is(text, "0"))
            call_fail(call, row);
    }
}

void kernel_text_to_time(struct expr_call *call)
{
    for (uint32_t i = 0; i < call->live_count; i++) {
        uint32_t row = call->live[i];
        int64_t value = 0;
        bool is_good = civil_parse(vec_text(&call->args[0], row), &value);
        call->out->column.ints[row] = is_good ? value : 0;
        if (!is_good)
            call_fail(call, row);
    }
}

/* --- Writing --- */

void kernel_copy_text(struct expr_call *call)
{
    const struct expr_vec *a = &call->args[0];
    call->out->column.heap = a->column.heap;
    for (uint32_t i = 0; i < call->live_count; i++)
        call->out->column.texts[call->live[i]] = a->column.texts[call->live[i] & a->mask];
}

void kernel_bytes_to_text(struct expr_call *call)
{
    kernel_copy_text(call);
    for (uint32_t i = 0; i < call->live_count; i++) {
        uint32_t row = call->live[i];
        if (utf8_is_valid(vec_text(&call->args[0], row)))
            continue;
        call->out->column.texts[row] = (struct text_ref){0, 0};
        call_fail(call, row);
    }
}

/* The fewest digits that read back as the same number. */
static size_t write_float(double value, char out[32])
{
    if (value != value)
        return (size_t)snprintf(out, 32, "nan");
    for (int digits = 15; digits <= 17; digits++) {
        size_t length = (size_t)snprintf(out, 32, "%.*g", digits, value);
        if (digits == 17 || strtod(out, NULL) == value)
            return length;
    }
    return 0;
}

static size_t write_value(const struct expr_vec *vec, uint32_t row, char out[32])
{
    const struct column *column = &vec->column;
    row &= vec->mask;
    switch (column->tag) {
    case TYPE_INT: return (size_t)snprintf(out, 32, "%lld", (long long)column->ints[row]);
    case TYPE_FLOAT: return write_float(column->floats[row], out);
    case TYPE_TIME: return civil_format(column->ints[row], out);
    default: return (size_t)snprintf(out, 32, "%s", column->bools[row] != 0 ? "true" : "false");
    }
}

static void to_text(struct expr_call *call)
{
    struct expr_writer writer;
    writer_init(&writer, call, (size_t)call->live_count * 8);
    for (uint32_t i = 0; i < call->live_count; i++) {
        char text[32];
        size_t length = write_value(&call->args[0], call->live[i], text);
        writer_append(&writer, text, length);
        writer_end(&writer, call->live[i]);
    }
    writer_finish(&writer);
}

void kernel_int_to_text(struct expr_call *call)
{
    to_text(call);
}

void kernel_float_to_text(struct expr_call *call)
{
    to_text(call);
}

void kernel_time_to_text(struct expr_call *call)
{
    to_text(call);
}

void kernel_bool_to_text(struct expr_call *call)
{
    to_text(call);
}

/* --- Decimals --- */

enum { PLACES_MAX = 18 };

bool prepare_places(struct expr_compiler *c, struct expr_node *node)
{
    int64_t places = expr_constant_arg(node, 1)->ints[0];
    if (places >= 0 && places <= PLACES_MAX)
        return true;
    diag_error(c->diags, DIAG_BAD_ARGUMENTS, node->args[1]->ast->span, "the number of places must be 0 to %d",
               PLACES_MAX);
    return false;
}

/* Writes the text to the end of `out`; returns its length. */
static size_t write_decimal(int64_t units, int64_t places, char out[32])
{
    uint64_t rest = units < 0 ? 0 - (uint64_t)units : (uint64_t)units;
    char *end = out + 32, *at = end;
    do {
        *--at = (char)('0' + rest % 10);
        rest /= 10;
        if (end - at == places)
            *--at = '.';
    } while (rest > 0 || end - at <= places + (places > 0));
    if (units < 0)
        *--at = '-';
    return (size_t)(end - at);
}

void kernel_decimal(struct expr_call *call)
{
    struct expr_writer writer;
    const struct expr_vec *units = &call->args[0];
    int64_t places = call->args[1].column.ints[0];
    writer_init(&writer, call, (size_t)call->live_count * 12);
    for (uint32_t i = 0; i < call->live_count; i++) {
        char text[32];
        size_t length = write_decimal(units->column.ints[call->live[i] & units->mask], places, text);
        writer_append(&writer, text + sizeof(text) - length, length);
        writer_end(&writer, call->live[i]);
    }
    writer_finish(&writer);
}

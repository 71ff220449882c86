/* Avro's binary encoding -> columns, by a plan (avro_plan.c). Nothing in a payload is trusted: varints end
 * after ten bytes, lengths are compared with the bytes left, and numbers of values and depths are limited. */
#include "formats/avro.h"
#include "formats/text.h"

#include "core/civil.h"
#include "core/utf8.h"

static const char beyond_32[] = "an int of more than 32 bits";
static const char no_symbol[] = "a symbol that the enum does not have";
static const char symbol_beyond_32[] = "a symbol number of more than 32 bits";

/* Why `value` is not the number of a symbol. */
static const char *symbol_fault(int64_t value)
{
    return value == (int32_t)value ? no_symbol : symbol_beyond_32;
}
static const char wrong_block[] = "a block with a wrong length";

static inline const char *number(struct payload_decoder *decoder, const char *at, int64_t *value)
{
    uint64_t bits = 0;
    const char *behind = payload_number(decoder, at, decoder->end, &bits);
    *value = (int64_t)(bits >> 1 ^ (0 - (bits & 1)));
    return behind;
}

/* Reads a length and checks that as many bytes follow. Returns the first of these bytes, or NULL after
 * payload_fail. */
static inline const char *length_of(struct payload_decoder *decoder, const char *at, size_t *length)
{
    int64_t value = 0;
    const char *behind = number(decoder, at, &value);
    if (behind == NULL)
        return NULL;
    if (unlikely(value < 0))
        return payload_fail(decoder, at, "a negative length");
    if (unlikely(value > decoder->end - behind))
        return payload_fail(decoder, at, payload_ends_inside);
    *length = (size_t)value;
    return behind;
}

/* --- values that no column takes --- */

static const char *skip(struct payload_decoder *decoder, const struct avro_type *type, const char *at,
                        int depth);

/* Reads the head of the next block of a list or map. *count: its items, 0 at the end of the list; *behind:
 * where the block ends, or NULL where its head does not say. */
static const char *block(struct payload_decoder *decoder, const char *at, int64_t *count, const char **behind)
{
    int64_t bytes = 0;
    const char *head = number(decoder, at, count);
    *behind = NULL;
    if (head == NULL || *count >= 0)
        return head;
    if (*count == INT64_MIN)
        return payload_fail(decoder, at, "an impossible number of items");
    *count = -*count;
    head = number(decoder, head, &bytes);
    if (head == NULL)
        return NULL;
    if (bytes < 0 || bytes > decoder->end - head)
        return payload_fail(decoder, at, wrong_block);
    *behind = head + bytes;
    return head;
}

static const char *skip_items(struct payload_decoder *decoder, const struct avro_type *type, const char *at,
                              int depth)
{
    for (;;) {
        int64_t count = 0;
        const char *behind;
        size_t length;
        at = block(decoder, at, &count, &behind);
        if (at == NULL || count == 0)
            return at;
        for (; count > 0 && at != NULL; count--) {
            if (type->tag == AVRO_MAP) {
                at = length_of(decoder, at, &length);
                if (at == NULL)
                    return NULL;
                at += length;
            }
            at = skip(decoder, type->items[0], at, depth + 1);
        }
        if (at == NULL)
            return NULL;
        if (behind != NULL && at != behind)
            return payload_fail(decoder, at, wrong_block);
    }
}

static const char *skip_bytes(struct payload_decoder *decoder, const char *at, int64_t bytes)
{
    return likely(bytes <= decoder->end - at) ? at + bytes : payload_fail(decoder, at, payload_ends_inside);
}

static const char *skip(struct payload_decoder *decoder, const struct avro_type *type, const char *at,
                        int depth)
{
    int64_t value = 0;
    size_t length;
    if (depth > AVRO_DEPTH_MAX)
        return payload_fail(decoder, at, "values are nested more than 200 deep");
    if (--decoder->budget < 0)
        return payload_fail(decoder, at, "too many values for the length of the payload");
    switch (type->tag) {
    case AVRO_NULL: return at;
    case AVRO_BOOLEAN: return skip_bytes(decoder, at, 1);
    case AVRO_FLOAT: return skip_bytes(decoder, at, 4);
    case AVRO_DOUBLE: return skip_bytes(decoder, at, 8);
    case AVRO_FIXED: return skip_bytes(decoder, at, type->size);
    case AVRO_LONG: return number(decoder, at, &value);
    case AVRO_INT:
    case AVRO_ENUM: {
        const char *behind = number(decoder, at, &value);
        if (behind == NULL)
            return NULL;
        if (type->tag == AVRO_INT ? value != (int32_t)value : value < 0 || value >= type->count)
            return payload_fail(decoder, at, type->tag == AVRO_INT ? beyond_32 : symbol_fault(value));
        return behind;
    }
    case AVRO_BYTES:
    case AVRO_STRING: at = length_of(decoder, at, &length); return at == NULL ? NULL : at + length;
    case AVRO_ARRAY:
    case AVRO_MAP: return skip_items(decoder, type, at, depth);
    case AVRO_UNION: {
        const char *behind = number(decoder, at, &value);
        if (behind == NULL)
            return NULL;
        if (value < 0 || value >= type->count)
            return payload_fail(decoder, at, "a branch that the union does not have");
        return skip(decoder, type->items[value], behind, depth + 1);
    }
    case AVRO_RECORD:
        for (uint32_t i = 0; i < type->count && at != NULL; i++)
            at = skip(decoder, type->fields[i].type, at, depth + 1);
        return at;
    }
    return NULL;
}

/* --- values of columns --- */

static const char *run(struct payload_decoder *decoder, const struct avro_step *step,
                       struct row_fields *fields, uint32_t row, const struct row_list *list, const char *at);

static const char *run_null(struct payload_decoder *decoder, const struct avro_step *step,
                            struct row_column *column, uint32_t row, const struct row_list *list,
                            const char *at)
{
    if (step->is_required)
        return payload_fail_column(decoder, at, column, "null, but the schema requires a value");
    rows_null(decoder->rows, column, row, list);
    return at;
}

static const char *run_text(struct payload_decoder *decoder, const struct avro_step *step,
                            struct row_column *column, uint32_t row, const char *at)
{
    size_t length = (size_t)step->number;
    const char *text = step->op != AVRO_OP_FIXED           ? length_of(decoder, at, &length)
                       : step->number <= decoder->end - at ? at
                                                           : payload_fail(decoder, at, payload_ends_inside);
    if (text == NULL)
        return NULL;
    if (step->op == AVRO_OP_CIVIL)
        return civil_parse((struct str){text, length}, &column->ints[row])
                   ? text + length
                   : payload_fail_column(decoder, at, column, "not a time like 2015-09-12T00:46:58Z");
    if (step->op == AVRO_OP_TEXT && !text_is_ascii(text, length) && !text_is_utf8(text, length))
        return payload_fail_column(decoder, text + utf8_error(text, length), column, "not valid UTF-8");
    memcpy(decoder->rows->heap, text, length);
    rows_text(decoder->rows, column, row, length);
    return text + length;
}

static const char *run_whole(struct payload_decoder *decoder, const struct avro_step *step,
                             struct row_column *column, uint32_t row, const char *at)
{
    int64_t value = 0;
    const char *behind = number(decoder, at, &value);
    bool is_32 = step->op == AVRO_OP_INT || step->op == AVRO_OP_DATE ||
                 (step->op == AVRO_OP_TIME && step->count == 32) ||
                 (step->op == AVRO_OP_WHOLE && step->number == 32);
    if (behind == NULL)
        return NULL;
    if (is_32 && value != (int32_t)value)
        return payload_fail_column(decoder, at, column, beyond_32);
    if (step->op == AVRO_OP_WHOLE)
        column->floats[row] = (double)value;
    else if (step->op == AVRO_OP_DATE)
        column->ints[row] = value * US_PER_DAY;
    else if (step->op != AVRO_OP_TIME)
        column->ints[row] = value;
    else if (!time_from_units(value, step->number, &column->ints[row]))
        return payload_fail_column(decoder, at, column, "a time out of range");
    return behind;
}

static const char *run_float(struct payload_decoder *decoder, const struct avro_step *step,
                             struct row_column *column, uint32_t row, const char *at)
{
    int64_t bytes = step->op == AVRO_OP_FLOAT ? 4 : 8;
    if (bytes > decoder->end - at)
        return payload_fail(decoder, at, payload_ends_inside);
    if (bytes == 4) {
        float single;
        memcpy(&single, at, 4);
        column->floats[row] = (double)single;
    } else {
        memcpy(&column->floats[row], at, 8);
    }
    return at + bytes;
}

static const char *run_enum(struct payload_decoder *decoder, const struct avro_step *step,
                            struct row_column *column, uint32_t row, const char *at)
{
    int64_t value = 0;
    const char *behind = number(decoder, at, &value);
    if (behind == NULL)
        return NULL;
    if (value < 0 || value >= step->count)
        return payload_fail_column(decoder, at, column, symbol_fault(value));
    column->texts[row] = step->texts[value];
    column->texts[row].offset += decoder->base;
    return behind;
}

static const char *run_list(struct payload_decoder *decoder, const struct avro_step *step,
                            struct row_column *column, uint32_t row, const char *at)
{
    struct row_list *list = column->list;
    uint32_t first = list->rows;
    for (;;) {
        int64_t count = 0;
        const char *begin = at, *behind;
        at = block(decoder, at, &count, &behind);
        if (at == NULL)
            return NULL;
        if (count == 0)
            break;
        for (; count > 0 && at != NULL; count--) {
            uint32_t element = --decoder->budget < 0 ? UINT32_MAX : rows_element(decoder->rows, list);
            if (element == UINT32_MAX)
                return payload_fail_column(decoder, at, column, "too many values in lists");
            at = run(decoder, &step->steps[0], &list->fields, element, list, at);
            if (at != NULL && step->op == AVRO_OP_MAP)
                at = run(decoder, &step->steps[1], &list->fields, element, list, at);
        }
        if (at != NULL && behind != NULL && at != behind)
            return payload_fail_column(decoder, begin, column, wrong_block);
        if (at == NULL)
            return NULL;
    }
    column->lists[row] = (struct list_ref){first, list->rows - first};
    return at;
}

static const char *run_constant(struct payload_decoder *decoder, const struct avro_step *step,
                                struct row_column *column, uint32_t row, const char *at)
{
    switch (step->op) {
    case AVRO_OP_CONSTANT_BOOL: column->bools[row] = (uint8_t)step->number; break;
    case AVRO_OP_CONSTANT_INT: column->ints[row] = step->number; break;
    case AVRO_OP_CONSTANT_TEXT:
        column->texts[row] = *step->texts;
        column->texts[row].offset += decoder->base;
        break;
    default: column->lists[row] = (struct list_ref){column->list->rows, 0}; break;
    }
    return at;
}

static const char *run_skip(struct payload_decoder *decoder, const struct avro_step *step, const char *at)
{
    int64_t value;
    size_t length;
    switch (step->op) {
    case AVRO_OP_SKIP_VARINT: return number(decoder, at, &value);
    case AVRO_OP_SKIP_TEXT: at = length_of(decoder, at, &length); return at == NULL ? NULL : at + length;
    case AVRO_OP_SKIP_FIXED: return skip_bytes(decoder, at, step->number);
    default: return skip(decoder, step->type, at, 0);
    }
}

static const char *run(struct payload_decoder *decoder, const struct avro_step *step,
                       struct row_fields *fields, uint32_t row, const struct row_list *list, const char *at)
{
    while (step->op == AVRO_OP_UNION) {
        int64_t branch = 0;
        const char *behind = number(decoder, at, &branch);
        if (behind == NULL)
            return NULL;
        if (branch < 0 || branch >= step->count)
            return payload_fail(decoder, at, "a branch that the union does not have");
        step = &step->steps[branch];
        at = behind;
    }
    struct row_column *column = &fields->columns[step->column];
    switch (step->op) {
    case AVRO_OP_NULL:
    case AVRO_OP_CONSTANT_NULL: return run_null(decoder, step, column, row, list, at);
    case AVRO_OP_BOOL:
        if (at == decoder->end)
            return payload_fail(decoder, at, payload_ends_inside);
        column->bools[row] = (uint8_t)(*at & 1);
        return (*at & ~1) == 0 ? at + 1 : payload_fail_column(decoder, at, column, "neither true nor false");
    case AVRO_OP_INT:
    case AVRO_OP_LONG:
    case AVRO_OP_TIME:
    case AVRO_OP_DATE:
    case AVRO_OP_WHOLE: return run_whole(decoder, step, column, row, at);
    case AVRO_OP_FLOAT:
    case AVRO_OP_DOUBLE: return run_float(decoder, step, column, row, at);
    case AVRO_OP_CIVIL:
    case AVRO_OP_TEXT:
    case AVRO_OP_BYTES:
    case AVRO_OP_FIXED: return run_text(decoder, step, column, row, at);
    case AVRO_OP_ENUM: return run_enum(decoder, step, column, row, at);
    case AVRO_OP_LIST:
    case AVRO_OP_MAP: return run_list(decoder, step, column, row, at);
    case AVRO_OP_RECORD:
        for (uint32_t i = 0; i < step->count && at != NULL; i++)
            at = run(decoder, &step->steps[i], fields, row, list, at);
        return at;
    case AVRO_OP_CONSTANT_BOOL:
    case AVRO_OP_CONSTANT_INT:
    case AVRO_OP_CONSTANT_TEXT:
    case AVRO_OP_CONSTANT_LIST: return run_constant(decoder, step, column, row, at);
    default: return run_skip(decoder, step, at);
    }
}

/* --- a batch --- */

static bool decode_record(struct payload_decoder *decoder, const struct payload_plan *plan, uint32_t row,
                          const char *body)
{
    decoder->budget = AVRO_VALUES_MAX + AVRO_VALUES_PER_BYTE * (decoder->end - decoder->begin);
    const char *at =
        run(decoder, &((const struct avro_plan *)plan)->record, &decoder->rows->fields, row, NULL, body);
    if (at != NULL && at != decoder->end)
        return payload_fail(decoder, at, "something follows the record") != NULL;
    return at != NULL;
}

void avro_decode(void *decoder, struct raw_batch *raw, struct decode_output *output)
{
    payload_decode(decoder, raw, output, decode_record);
}

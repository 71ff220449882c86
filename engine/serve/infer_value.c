/* Elements of tensors as values of columns. A tensor's values need not be aligned. */
#include "core/base64.h"
#include "core/civil.h"
#include "formats/text.h"
#include "serve/infer_model.h"

#include <inttypes.h>

/* Whole numbers up to this are exact as a float. */
static const int64_t float_whole_max = INT64_C(1) << 53;

#define LOAD(type)                                                                                           \
    ({                                                                                                       \
        type loaded;                                                                                         \
        memcpy(&loaded, (const char *)tensor->values + i * sizeof(loaded), sizeof(loaded));                  \
        loaded;                                                                                              \
    })

bool infer_value_bool(const struct infer_tensor *tensor, uint64_t i)
{
    leat_assert(tensor->type == INFER_BOOL);
    return LOAD(uint8_t) != 0;
}

bool infer_value_int(const struct infer_tensor *tensor, uint64_t i, int64_t *value)
{
    switch (tensor->type) {
    case INFER_UINT8: *value = LOAD(uint8_t); return true;
    case INFER_UINT16: *value = LOAD(uint16_t); return true;
    case INFER_UINT32: *value = LOAD(uint32_t); return true;
    case INFER_UINT64: {
        uint64_t number = LOAD(uint64_t);
        *value = (int64_t)number;
        return number <= INT64_MAX;
    }
    case INFER_INT8: *value = LOAD(int8_t); return true;
    case INFER_INT16: *value = LOAD(int16_t); return true;
    case INFER_INT32: *value = LOAD(int32_t); return true;
    case INFER_INT64: *value = LOAD(int64_t); return true;
    default: leat_assert(false); return false;
    }
}

static bool is_whole(enum infer_type type)
{
    return type >= INFER_UINT8 && type <= INFER_INT64;
}

bool infer_type_fits(enum infer_type tensor, const struct type *type)
{
    switch (type->tag) {
    case TYPE_BOOL: return tensor == INFER_BOOL;
    case TYPE_INT: return is_whole(tensor);
    case TYPE_FLOAT: return is_whole(tensor) || tensor == INFER_FP32 || tensor == INFER_FP64;
    case TYPE_TIME: return text_unit_us(type->unit) == 0 ? tensor == INFER_BYTES : is_whole(tensor);
    default: return tensor == INFER_BYTES;
    }
}

bool infer_is_sure(enum infer_type tensor, const struct type *type)
{
    bool is_long = tensor == INFER_UINT64 || tensor == INFER_INT64;
    return (type->tag == TYPE_INT && tensor != INFER_UINT64) || (type->tag == TYPE_FLOAT && !is_long);
}

static const char *read_number(const struct infer_tensor *tensor, uint64_t i, int64_t *value,
                               struct arena *arena)
{
    if (infer_value_int(tensor, i, value))
        return NULL;
    return arena_printf(arena, "%" PRIu64 " is out of range: the largest int is 9223372036854775807",
                        (uint64_t)*value);
}

static const char *read_real(const struct infer_tensor *tensor, uint64_t i, double *value,
                             struct arena *arena)
{
    int64_t whole;
    if (tensor->type == INFER_FP64 || tensor->type == INFER_FP32) {
        *value = tensor->type == INFER_FP64 ? LOAD(double) : (double)LOAD(float);
        return NULL;
    }
    const char *why = read_number(tensor, i, &whole, arena);
    *value = (double)whole;
    if (why == NULL && (whole > float_whole_max || whole < -float_whole_max))
        return arena_printf(
            arena, "%" PRId64 " is out of range: whole numbers beyond 2^53 are not exact as a float", whole);
    return why;
}

static const char *read_time(const struct infer_tensor *tensor, uint64_t i, const struct type *type,
                             int64_t *value, struct arena *arena)
{
    if (tensor->type == INFER_BYTES)
        return civil_parse(tensor->texts[i], value)
                   ? NULL
                   : arena_printf(arena, "`%s` is not a time like 2015-09-12T00:46:58Z",
                                  infer_shown(tensor->texts[i], arena));
    const char *why = read_number(tensor, i, value, arena);
    int64_t units = *value;
    if (why == NULL && !time_from_units(units, text_unit_us(type->unit), value))
        return arena_printf(arena, "%" PRId64 " is out of range for a time", units);
    return why;
}

static const char *check_text(const struct infer_tensor *tensor, uint64_t i, const struct type *type,
                              struct arena *arena)
{
    struct str text = tensor->texts[i];
    if (text.length > SOURCE_RECORD_BYTES_MAX)
        return arena_printf(arena, "%zu bytes; a value has at most %d", text.length, SOURCE_RECORD_BYTES_MAX);
    if (type->tag == TYPE_TEXT && !tensor->is_json && !text_is_utf8(text.data, text.length))
        return "the text is not valid UTF-8";
    if (type->tag == TYPE_BYTES && tensor->is_json) {
        char *scratch = arena_alloc(arena, text.length);
        if (base64_decode(text.data, text.length, scratch) == SIZE_MAX)
            return "the bytes are not base64, as JSON has them";
    }
    return NULL;
}

const char *infer_value_read(const struct infer_tensor *tensor, uint64_t i, const struct type *type,
                             union infer_value *value, struct arena *arena)
{
    switch (type->tag) {
    case TYPE_BOOL:
        value->boolean = infer_value_bool(tensor, i);
        return LOAD(uint8_t) > 1 ? "a BOOL is one byte, 0 or 1" : NULL;
    case TYPE_INT: return read_number(tensor, i, &value->integer, arena);
    case TYPE_FLOAT: return read_real(tensor, i, &value->real, arena);
    case TYPE_TIME: return read_time(tensor, i, type, &value->integer, arena);
    default: value->text = tensor->texts[i]; return check_text(tensor, i, type, arena);
    }
}

bool infer_has_value(const struct infer_given *given, bool is_list, uint64_t row)
{
    const struct infer_tensor *values = given->parts[INFER_VALUES], *valid = given->parts[INFER_VALID];
    if (values == NULL || (valid != NULL && !infer_value_bool(valid, infer_at(valid, row))))
        return false;
    return is_list || !infer_is_null(values, infer_at(values, row));
}

/* The wire format of Protocol Buffers -> columns, by a plan (protobuf_plan.c). Nothing in a payload is
 * trusted: varints end after ten bytes, lengths are compared with the bytes left, depths are limited. Fields
 * come in any order, and any number of times: of the values of one field that is not repeated, or of one
 * oneof, the last counts. */
#include "formats/protobuf.h"
#include "formats/text.h"

#include "core/civil.h"
#include "core/utf8.h"

enum { TAG_BYTES_MAX = 5 };
enum wire { WIRE_VARINT, WIRE_64, WIRE_BYTES, WIRE_GROUP, WIRE_END, WIRE_32 };
/* Seconds of a google.protobuf.Timestamp: years 1 to 9999. */
#define TIMESTAMP_SECONDS_MIN (-INT64_C(62135596800))
#define TIMESTAMP_SECONDS_MAX INT64_C(253402300799)

/* The row that values are written to: in the batch's columns, or in those of a list's elements. */
struct protobuf_place {
    struct row_fields *fields;
    const struct row_list *list;
    uint32_t row;
};

static inline const char *length_of(struct payload_decoder *decoder, const char *at, const char *end,
                                    size_t *length)
{
    uint64_t value = 0;
    const char *behind = payload_number(decoder, at, end, &value);
    if (behind == NULL)
        return NULL;
    if (unlikely(value > (uint64_t)(end - behind)))
        return payload_fail(decoder, at, payload_ends_inside);
    *length = (size_t)value;
    return behind;
}

static inline const char *tag(struct payload_decoder *decoder, const char *at, const char *end,
                              uint32_t *field, enum wire *wire)
{
    uint64_t value = 0;
    const char *behind = payload_number(decoder, at, end, &value);
    if (behind == NULL)
        return NULL;
    *field = (uint32_t)(value >> 3);
    *wire = (enum wire)(value & 7);
    if (unlikely(value > UINT32_MAX || behind - at > TAG_BYTES_MAX))
        return payload_fail(decoder, at, "a field number of more than 32 bits");
    if (unlikely(*field == 0 || *wire > WIRE_32))
        return payload_fail(decoder, at, "an impossible field number or wire type");
    return behind;
}

/* Skips a value that no column takes. */
static const char *skip(struct payload_decoder *decoder, uint32_t field, enum wire wire, const char *at,
                        const char *end, int depth)
{
    uint64_t value;
    size_t length = 0;
    uint32_t inner;
    const char *begin = at;
    switch (wire) {
    case WIRE_VARINT: return payload_number(decoder, at, end, &value);
    case WIRE_64: return end - at < 8 ? payload_fail(decoder, at, payload_ends_inside) : at + 8;
    case WIRE_32: return end - at < 4 ? payload_fail(decoder, at, payload_ends_inside) : at + 4;
    case WIRE_BYTES: at = length_of(decoder, at, end, &length); return at == NULL ? NULL : at + length;
    case WIRE_END: return payload_fail(decoder, at, "the end of a group that was not begun");
    case WIRE_GROUP: break;
    }
    if (depth > PROTOBUF_DEPTH_MAX)
        return payload_fail(decoder, at, "groups are nested more than 100 deep");
    while (at != NULL && at < end) {
        at = tag(decoder, at, end, &inner, &wire);
        if (at == NULL)
            return NULL;
        if (wire == WIRE_END)
            return inner == field ? at : payload_fail(decoder, at, "the end of another group");
        at = skip(decoder, inner, wire, at, end, depth + 1);
    }
    return at == NULL ? NULL : payload_fail(decoder, begin, payload_ends_inside);
}

/* --- single values --- */

static enum wire wire_of(enum protobuf_type type)
{
    switch (type) {
    case PROTOBUF_DOUBLE:
    case PROTOBUF_FIXED64:
    case PROTOBUF_SFIXED64: return WIRE_64;
    case PROTOBUF_FLOAT:
    case PROTOBUF_FIXED32:
    case PROTOBUF_SFIXED32: return WIRE_32;
    case PROTOBUF_STRING:
    case PROTOBUF_BYTES:
    case PROTOBUF_MESSAGE: return WIRE_BYTES;
    case PROTOBUF_GROUP: return WIRE_GROUP;
    default: return WIRE_VARINT;
    }
}

/* Reads a number's bits as they are on the wire, without zigzag or sign extension. */
static inline const char *bits_of(struct payload_decoder *decoder, enum wire wire, const char *at,
                                  const char *end, uint64_t *bits)
{
    size_t bytes = wire == WIRE_64 ? 8 : 4;
    if (wire == WIRE_VARINT)
        return payload_number(decoder, at, end, bits);
    if ((size_t)(end - at) < bytes)
        return payload_fail(decoder, at, payload_ends_inside);
    *bits = 0;
    memcpy(bits, at, bytes);
    return at + bytes;
}

static inline int64_t whole_of(enum protobuf_type type, uint64_t bits)
{
    uint32_t low = (uint32_t)bits;
    switch (type) {
    case PROTOBUF_INT32:
    case PROTOBUF_SFIXED32:
    case PROTOBUF_ENUM: return (int32_t)low;
    case PROTOBUF_UINT32:
    case PROTOBUF_FIXED32: return low;
    case PROTOBUF_SINT32: return (int32_t)(low >> 1 ^ (0 - (low & 1)));
    case PROTOBUF_SINT64: return (int64_t)(bits >> 1 ^ (0 - (bits & 1)));
    default: return (int64_t)bits;
    }
}

static inline double float_of(enum protobuf_type type, uint64_t bits)
{
    uint32_t low = (uint32_t)bits;
    float single;
    double real;
    switch (type) {
    case PROTOBUF_FLOAT: memcpy(&single, &low, sizeof(single)); return (double)single;
    case PROTOBUF_DOUBLE: memcpy(&real, &bits, sizeof(real)); return real;
    case PROTOBUF_UINT64:
    case PROTOBUF_FIXED64: return (double)bits;
    default: return (double)whole_of(type, bits);
    }
}

/* The index of the number among the enum's values, or -1. */
static int value_index(const struct protobuf_enum *enumeration, int64_t value)
{
    uint32_t low = 0, high = enumeration->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (enumeration->values[middle].number < value)
            low = middle + 1;
        else
            high = middle;
    }
    return low < enumeration->count && enumeration->values[low].number == value ? (int)low : -1;
}

/* Stores a number in its column. *is_set: false where a closed enum does not have the number, which then
 * counts as absent. */
static bool set_number(struct payload_decoder *decoder, const struct protobuf_step *step,
                       struct row_column *column, uint32_t row, const char *at, uint64_t bits, bool *is_set)
{
    int64_t value = whole_of(step->type, bits);
    bool is_beyond = value < 0 && (step->type == PROTOBUF_UINT64 || step->type == PROTOBUF_FIXED64);
    int index = step->enumeration == NULL ? 0 : value_index(step->enumeration, value);
    *is_set = index >= 0 || !step->enumeration->is_closed;
    if (!*is_set)
        return true;
    switch (step->target) {
    case PROTOBUF_TO_BOOL: column->bools[row] = bits != 0; return true;
    case PROTOBUF_TO_FLOAT: column->floats[row] = float_of(step->type, bits); return true;
    case PROTOBUF_TO_NAME:
        if (index < 0)
            return payload_fail_column(decoder, at, column, "a number that the enum does not have") != NULL;
        column->texts[row] = step->names[index];
        column->texts[row].offset += decoder->base;
        return true;
    case PROTOBUF_TO_TIME:
        if (!is_beyond && time_from_units(value, step->unit_us, &column->ints[row]))
            return true;
        return payload_fail_column(decoder, at, column, "a time out of range") != NULL;
    default:
        column->ints[row] = value;
        return !is_beyond || payload_fail_column(decoder, at, column, "a number out of range") != NULL;
    }
}

static bool set_text(struct payload_decoder *decoder, const struct protobuf_step *step,
                     struct row_column *column, uint32_t row, const char *text, size_t length)
{
    if (step->target == PROTOBUF_TO_CIVIL)
        return civil_parse((struct str){text, length}, &column->ints[row]) ||
               payload_fail_column(decoder, text, column, "not a time like 2015-09-12T00:46:58Z") != NULL;
    if (step->target == PROTOBUF_TO_TEXT && !text_is_ascii(text, length) && !text_is_utf8(text, length))
        return payload_fail_column(decoder, text + utf8_error(text, length), column, "not valid UTF-8") !=
               NULL;
    memcpy(decoder->rows->heap, text, length);
    rows_text(decoder->rows, column, row, length);
    return true;
}

static void set_absent(struct payload_decoder *decoder, const struct protobuf_step *step,
                       struct row_column *column, const struct protobuf_place *place)
{
    uint32_t row = place->row;
    switch (step->absent) {
    case PROTOBUF_ABSENT_NULL: rows_null(decoder->rows, column, row, place->list); break;
    case PROTOBUF_ABSENT_LIST: break;
    case PROTOBUF_ABSENT_TEXT:
        column->texts[row] = (struct text_ref){decoder->base + step->text.offset, step->text.length};
        break;
    case PROTOBUF_ABSENT_VALUE:
        if (column->tag == TYPE_BOOL)
            column->bools[row] = (uint8_t)step->value;
        else
            column->ints[row] = step->value;
        break;
    }
}

/* --- messages --- */

static const char *read_record(struct payload_decoder *decoder, const struct protobuf_record *record,
                               const struct protobuf_place *place, const char *at, const char *end);

/* Reads a google.protobuf.Timestamp. was_set: the field came before in this message; parts that are missing
 * now keep their values. */
static bool read_timestamp(struct payload_decoder *decoder, struct row_column *column, uint32_t row,
                           const char *at, const char *end, bool was_set)
{
    const char *begin = at;
    int64_t seconds = 0, nanoseconds = 0;
    if (was_set) {
        int64_t rest = column->ints[row] % US_PER_SECOND;
        seconds = column->ints[row] / US_PER_SECOND - (rest < 0);
        nanoseconds = (rest + (rest < 0 ? US_PER_SECOND : 0)) * 1000;
    }
    while (at < end) {
        uint32_t field;
        enum wire wire;
        uint64_t value = 0;
        at = tag(decoder, at, end, &field, &wire);
        if (at == NULL)
            return false;
        bool is_known = field <= 2 && wire == WIRE_VARINT;
        at = is_known ? payload_number(decoder, at, end, &value) : skip(decoder, field, wire, at, end, 0);
        if (at == NULL)
            return false;
        if (is_known && field == 1)
            seconds = (int64_t)value;
        else if (is_known)
            nanoseconds = (int32_t)(uint32_t)value;
    }
    if (seconds < TIMESTAMP_SECONDS_MIN || seconds > TIMESTAMP_SECONDS_MAX || nanoseconds < 0 ||
        nanoseconds >= 1000000000)
        return payload_fail_column(decoder, begin, column, "a time out of range") != NULL;
    column->ints[row] = seconds * US_PER_SECOND + nanoseconds / 1000;
    return true;
}

/* Reads a value of the step's type at `at` into `column` at place->row. was_set: the field came before in
 * this message. *is_set: as in set_number. */
static const char *read_value(struct payload_decoder *decoder, const struct protobuf_step *step,
                              struct row_column *column, const struct protobuf_place *place, const char *at,
                              const char *end, bool was_set, bool *is_set);

static bool read_wrapped(struct payload_decoder *decoder, const struct protobuf_step *step,
                         struct row_column *column, const struct protobuf_place *place, const char *at,
                         const char *end, bool was_set)
{
    const struct protobuf_step *inner = &step->record->steps[0];
    bool is_set;
    if (!was_set)
        set_absent(decoder, inner, column, place);
    while (at < end) {
        uint32_t field;
        enum wire wire;
        at = tag(decoder, at, end, &field, &wire);
        if (at == NULL)
            return false;
        at = field == inner->number && wire == wire_of(inner->type)
                 ? read_value(decoder, inner, column, place, at, end, false, &is_set)
                 : skip(decoder, field, wire, at, end, 0);
        if (at == NULL)
            return false;
    }
    return true;
}

static const char *read_value(struct payload_decoder *decoder, const struct protobuf_step *step,
                              struct row_column *column, const struct protobuf_place *place, const char *at,
                              const char *end, bool was_set, bool *is_set)
{
    enum wire wire = wire_of(step->type);
    *is_set = true;
    if (wire != WIRE_BYTES) {
        uint64_t bits = 0;
        const char *behind = bits_of(decoder, wire, at, end, &bits);
        if (behind == NULL || !set_number(decoder, step, column, place->row, at, bits, is_set))
            return NULL;
        return behind;
    }
    size_t length = 0;
    bool is_good;
    at = length_of(decoder, at, end, &length);
    if (at == NULL)
        return NULL;
    switch (step->target) {
    case PROTOBUF_TO_TIMESTAMP:
        is_good = read_timestamp(decoder, column, place->row, at, at + length, was_set);
        break;
    case PROTOBUF_TO_WRAPPED:
        is_good = read_wrapped(decoder, step, column, place, at, at + length, was_set);
        break;
    case PROTOBUF_TO_RECORD:
        is_good = read_record(decoder, step->record, place, at, at + length) != NULL;
        break;
    default: is_good = set_text(decoder, step, column, place->row, at, length); break;
    }
    return is_good ? at + length : NULL;
}

/* Reads one element of a list. A number that a closed enum does not have is left out of the list. */
static const char *read_element(struct payload_decoder *decoder, const struct protobuf_step *step,
                                struct row_column *column, uint32_t row, const char *at, const char *end)
{
    struct row_list *list = column->list;
    bool is_set = true;
    struct protobuf_place place = {.fields = &list->fields, .list = list};
    place.row = rows_element(decoder->rows, list);
    if (place.row == UINT32_MAX)
        return payload_fail_column(decoder, at, column, "too many values in lists");
    at = read_value(decoder, step, &list->fields.columns[0], &place, at, end, false, &is_set);
    if (is_set)
        column->lists[row].length++;
    else
        list->rows--;
    return at;
}

static const char *read_list(struct payload_decoder *decoder, const struct protobuf_step *step,
                             struct row_column *column, uint32_t row, enum wire wire, const char *at,
                             const char *end)
{
    size_t length = 0;
    if (wire == wire_of(step->type))
        return read_element(decoder, step, column, row, at, end);
    /* A packed list. */
    at = length_of(decoder, at, end, &length);
    if (at == NULL)
        return NULL;
    for (end = at + length; at != NULL && at < end;)
        at = read_element(decoder, step, column, row, at, end);
    return at;
}

static const struct protobuf_step *find_step(const struct protobuf_record *record, uint32_t field)
{
    if (likely(field < PROTOBUF_DIRECT_MAX))
        return record->direct[field] == 0 ? NULL : &record->steps[record->direct[field] - 1];
    uint32_t low = 0, high = record->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (record->steps[middle].number != 0 && record->steps[middle].number < field)
            low = middle + 1;
        else
            high = middle;
    }
    return low < record->count && record->steps[low].number == field ? &record->steps[low] : NULL;
}

static const char *read_field(struct payload_decoder *decoder, const struct protobuf_record *record,
                              const struct protobuf_step *step, const struct protobuf_place *place,
                              uint64_t object, enum wire wire, const char *at, const char *end)
{
    struct row_column *column = &place->fields->columns[step->column];
    enum wire expected = wire_of(step->type);
    bool was_set = column->seen == object, is_set = true;
    if (unlikely(wire != expected && !(step->is_list && wire == WIRE_BYTES)))
        return payload_fail_column(decoder, at, column, "the field has another type than in the schema");
    if (step->is_list)
        return read_list(decoder, step, column, place->row, wire, at, end);
    at = read_value(decoder, step, column, place, at, end, was_set, &is_set);
    if (!is_set)
        return at;
    for (uint32_t i = 0; step->oneof >= 0 && i < record->count; i++)
        if (record->steps[i].oneof == step->oneof)
            place->fields->columns[record->steps[i].column].seen = 0;
    column->seen = object;
    return at;
}

/* Call behind the record's last field: sets columns whose field is absent to the default or null. */
static const char *finish_record(struct payload_decoder *decoder, const struct protobuf_record *record,
                                 const struct protobuf_place *place, uint64_t object, const char *end)
{
    for (uint32_t i = 0; i < record->count; i++) {
        const struct protobuf_step *step = &record->steps[i];
        struct row_column *column = &place->fields->columns[step->column];
        if (column->seen == object || step->is_list)
            continue;
        if (step->is_message_required)
            return payload_fail_column(decoder, end, column, "missing, but its message requires it");
        if (step->is_required && step->absent == PROTOBUF_ABSENT_NULL)
            return payload_fail_column(decoder, end, column, "missing, but the schema requires it");
        set_absent(decoder, step, column, place);
    }
    return end;
}

static const char *read_record(struct payload_decoder *decoder, const struct protobuf_record *record,
                               const struct protobuf_place *place, const char *at, const char *end)
{
    uint64_t object = ++decoder->rows->objects;
    for (uint32_t i = 0; i < record->count; i++) {
        struct row_column *column = &place->fields->columns[record->steps[i].column];
        if (record->steps[i].is_list)
            column->lists[place->row] = (struct list_ref){column->list->rows, 0};
    }
    while (at < end) {
        uint32_t field;
        enum wire wire;
        at = tag(decoder, at, end, &field, &wire);
        if (at == NULL)
            return NULL;
        const struct protobuf_step *step = find_step(record, field);
        at = step == NULL ? skip(decoder, field, wire, at, end, 0)
                          : read_field(decoder, record, step, place, object, wire, at, end);
        if (at == NULL)
            return NULL;
    }
    return finish_record(decoder, record, place, object, end);
}

/* --- a batch --- */

static bool decode_record(struct payload_decoder *decoder, const struct payload_plan *plan, uint32_t row,
                          const char *body)
{
    struct protobuf_place place = {.fields = &decoder->rows->fields, .row = row};
    return read_record(decoder, &((const struct protobuf_plan *)plan)->record, &place, body, decoder->end) !=
           NULL;
}

void protobuf_decode(void *decoder, struct raw_batch *raw, struct decode_output *output)
{
    payload_decode(decoder, raw, output, decode_record);
}

/* Columns -> MessagePack: a map with every field in the schema's order. Times are MessagePack's timestamps,
 * or ints where the config has a unit. */
#include "formats/msgpack.h"
#include "formats/text.h"

#include "core/mem.h"

#include <stdlib.h>

struct msgpack_encoder {
    const struct schema *schema;
    enum time_unit times;
};

static void put(struct byte_buffer *out, unsigned first, uint64_t number, unsigned bytes)
{
    char *to = buffer_reserve(out, 9);
    *to = (char)first;
    for (unsigned i = 0; i < bytes; i++)
        to[1 + i] = (char)(number >> (8 * (bytes - 1 - i)));
    out->length += 1 + bytes;
}

static void put_int(struct byte_buffer *out, int64_t value)
{
    uint64_t bits = (uint64_t)value;
    if (value >= -32 && value <= 127)
        put(out, (unsigned)(value & 0xff), 0, 0);
    else if (value >= 0)
        put(out,
            value <= 0xff         ? 0xcc
            : value <= 0xffff     ? 0xcd
            : value <= 0xffffffff ? 0xce
                                  : 0xcf,
            bits,
            value <= 0xff         ? 1
            : value <= 0xffff     ? 2
            : value <= 0xffffffff ? 4
                                  : 8);
    else
        put(out,
            value >= INT8_MIN    ? 0xd0
            : value >= INT16_MIN ? 0xd1
            : value >= INT32_MIN ? 0xd2
                                 : 0xd3,
            bits,
            value >= INT8_MIN    ? 1
            : value >= INT16_MIN ? 2
            : value >= INT32_MIN ? 4
                                 : 8);
}

static void put_text(struct byte_buffer *out, struct str text)
{
    uint64_t length = text.length;
    if (length <= 31)
        put(out, 0xa0 | (unsigned)length, 0, 0);
    else
        put(out,
            length <= 0xff     ? 0xd9
            : length <= 0xffff ? 0xda
                               : 0xdb,
            length,
            length <= 0xff     ? 1
            : length <= 0xffff ? 2
                               : 4);
    buffer_append(out, text.data, text.length);
}

static void put_bytes(struct byte_buffer *out, struct str bytes)
{
    uint64_t length = bytes.length;
    put(out,
        length <= 0xff     ? 0xc4
        : length <= 0xffff ? 0xc5
                           : 0xc6,
        length,
        length <= 0xff     ? 1
        : length <= 0xffff ? 2
                           : 4);
    buffer_append(out, bytes.data, bytes.length);
}

static void put_count(struct byte_buffer *out, bool is_map, uint32_t count)
{
    unsigned small = is_map ? 0x80 : 0x90, large = is_map ? 0xde : 0xdc;
    if (count <= 15)
        put(out, small | count, 0, 0);
    else
        put(out, count <= 0xffff ? large : large + 1, count, count <= 0xffff ? 2 : 4);
}

static void put_time(struct byte_buffer *out, int64_t microseconds, enum time_unit unit)
{
    int64_t unit_us = text_unit_us(unit);
    __int128 units = unit_us == 0 ? 0 : time_to_units(microseconds, unit_us);
    /* A count beyond 64 bits is written as MessagePack's timestamp. */
    if (unit_us != 0 && units >= INT64_MIN && units <= INT64_MAX) {
        put_int(out, (int64_t)units);
        return;
    }
    int64_t seconds = microseconds / US_PER_SECOND, rest = microseconds % US_PER_SECOND;
    if (rest < 0) {
        seconds--;
        rest += US_PER_SECOND;
    }
    uint64_t nanoseconds = (uint64_t)rest * 1000;
    if (seconds >= 0 && seconds < INT64_C(1) << 34) {
        uint64_t both = nanoseconds << 34 | (uint64_t)seconds;
        put(out, 0xd7, 0xff, 1);
        put(out, (unsigned)(both >> 56), both, 7);
        return;
    }
    put(out, 0xc7, 12 << 8 | 0xff, 2);
    put(out, (unsigned)(nanoseconds >> 24), nanoseconds, 3);
    put(out, (unsigned)((uint64_t)seconds >> 56), (uint64_t)seconds, 7);
}

static void put_value(const struct msgpack_encoder *encoder, const struct type *type,
                      const struct column *column, uint32_t row, struct byte_buffer *out);

static void put_list(const struct msgpack_encoder *encoder, const struct type *element,
                     const struct column *column, uint32_t row, struct byte_buffer *out)
{
    struct list_ref list = column->lists[row];
    put_count(out, false, list.length);
    for (uint32_t i = 0; i < list.length; i++) {
        if (element->tag != TYPE_RECORD) {
            put_value(encoder, element, column->children, list.offset + i, out);
            continue;
        }
        put_count(out, true, element->fields->count);
        for (uint32_t j = 0; j < element->fields->count; j++) {
            put_text(out, element->fields->fields[j].name);
            put_value(encoder, &element->fields->fields[j].type, &column->children[j], list.offset + i, out);
        }
    }
}

static void put_value(const struct msgpack_encoder *encoder, const struct type *type,
                      const struct column *column, uint32_t row, struct byte_buffer *out)
{
    if (!column_is_valid(column, row)) {
        put(out, 0xc0, 0, 0);
        return;
    }
    switch (column->tag) {
    case TYPE_BOOL: put(out, column->bools[row] ? 0xc3 : 0xc2, 0, 0); break;
    case TYPE_INT: put_int(out, column->ints[row]); break;
    case TYPE_FLOAT: put(out, 0xcb, (uint64_t)column->ints[row], 8); break;
    case TYPE_TEXT: put_text(out, column_text(column, row)); break;
    case TYPE_BYTES: put_bytes(out, column_text(column, row)); break;
    case TYPE_TIME: put_time(out, column->ints[row], encoder->times); break;
    default: put_list(encoder, type->element, column, row, out); break;
    }
}

void *msgpack_encoder_new(const struct schema *schema, const void *config)
{
    struct msgpack_encoder *encoder = mem_calloc(1, sizeof(*encoder));
    encoder->schema = schema;
    encoder->times = config == NULL ? TIME_UNIT_RFC3339 : ((const struct format_config *)config)->times;
    return encoder;
}

void msgpack_encoder_free(void *self)
{
    free(self);
}

void msgpack_encode(void *self, const struct batch *batch, uint32_t first, uint32_t count,
                    struct byte_buffer *out)
{
    const struct msgpack_encoder *encoder = self;
    for (uint32_t i = first; i < first + count; i++) {
        put_count(out, true, encoder->schema->count);
        for (uint32_t j = 0; j < encoder->schema->count; j++) {
            const struct field *field = &encoder->schema->fields[j];
            put_text(out, field->name);
            put_value(encoder, &field->type, &batch->columns[j], batch_row(batch, i), out);
        }
    }
}

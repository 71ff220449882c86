/* Columns -> JSON lines. Members stand in the schema's order, null members included; floats are the shortest
 * that read back the same; NaN and the infinities (which JSON lacks) are null; bytes are base64. */
#include "formats/formats.h"
#include "formats/json.h"
#include "formats/json_escape.h"
#include "formats/text.h"
#include "formats/text_write.h"

#include "core/base64.h"
#include "core/mem.h"

#include <math.h>
#include <stdlib.h>

struct json_member {
    struct str head; /* `,"name":` with the name escaped; the first member has no comma */
    const struct type *type;
    /* For a list of records: their members; for a list of values: one member without a name. */
    struct json_member *children;
    uint32_t children_count;
};

struct json_encoder {
    struct arena arena;
    struct json_member *members;
    uint32_t count;
    enum time_unit times;
};

static void make_members(struct json_encoder *encoder, struct json_member **members,
                         const struct schema *schema);

static void make_member(struct json_encoder *encoder, struct json_member *member, const struct type *type)
{
    member->type = type;
    if (type->tag != TYPE_LIST)
        return;
    if (type->element->tag == TYPE_RECORD) {
        member->children_count = type->element->fields->count;
        make_members(encoder, &member->children, type->element->fields);
        return;
    }
    /* A list of values has one child without a name, its element. */
    member->children = arena_new(&encoder->arena, struct json_member);
    make_member(encoder, member->children, type->element);
}

static void make_members(struct json_encoder *encoder, struct json_member **members,
                         const struct schema *schema)
{
    *members = arena_array(&encoder->arena, struct json_member, schema->count);
    for (uint32_t i = 0; i < schema->count; i++) {
        struct byte_buffer head = {0};
        buffer_append(&head, ",", i > 0);
        json_quote(&head, schema->fields[i].name);
        buffer_append(&head, ":", 1);
        (*members)[i].head = arena_str(&encoder->arena, (struct str){head.data, head.length});
        buffer_free(&head);
        make_member(encoder, &(*members)[i], &schema->fields[i].type);
    }
}

void *json_encoder_new(const struct schema *schema, const void *config)
{
    struct json_encoder *encoder = mem_calloc(1, sizeof(*encoder));
    encoder->times = config == NULL ? TIME_UNIT_RFC3339 : ((const struct format_config *)config)->times;
    encoder->count = schema->count;
    make_members(encoder, &encoder->members, schema);
    return encoder;
}

void json_encoder_free(void *self)
{
    struct json_encoder *encoder = self;
    if (encoder == NULL)
        return;
    arena_free(&encoder->arena);
    free(encoder);
}

static void write_value(const struct json_encoder *encoder, const struct json_member *member,
                        const struct column *column, uint32_t row, struct byte_buffer *out);

static void write_list(const struct json_encoder *encoder, const struct json_member *member,
                       const struct column *column, uint32_t row, struct byte_buffer *out)
{
    struct list_ref list = column->lists[row];
    buffer_append(out, "[", 1);
    for (uint32_t i = 0; i < list.length; i++) {
        buffer_append(out, ",", i > 0);
        if (member->children_count == 0) {
            write_value(encoder, member->children, column->children, list.offset + i, out);
            continue;
        }
        buffer_append(out, "{", 1);
        for (uint32_t j = 0; j < member->children_count; j++) {
            const struct json_member *child = &member->children[j];
            buffer_append(out, child->head.data, child->head.length);
            write_value(encoder, child, &column->children[j], list.offset + i, out);
        }
        buffer_append(out, "}", 1);
    }
    buffer_append(out, "]", 1);
}

static void write_value(const struct json_encoder *encoder, const struct json_member *member,
                        const struct column *column, uint32_t row, struct byte_buffer *out)
{
    char *to = buffer_reserve(out, TEXT_WRITE_MAX);
    if (!column_is_valid(column, row) || (column->tag == TYPE_FLOAT && !isfinite(column->floats[row]))) {
        buffer_append(out, "null", 4);
        return;
    }
    switch (column->tag) {
    case TYPE_BOOL:
        buffer_append(out, column->bools[row] ? "true" : "false", column->bools[row] ? 4 : 5);
        break;
    case TYPE_INT: out->length += (size_t)(text_write_int(to, column->ints[row]) - to); break;
    case TYPE_FLOAT: out->length += (size_t)(text_write_float(to, column->floats[row]) - to); break;
    case TYPE_TEXT: json_quote(out, column_text(column, row)); break;
    case TYPE_BYTES: {
        struct str bytes = column_text(column, row);
        buffer_append(out, "\"", 1);
        base64_encode(bytes.data, bytes.length, out);
        buffer_append(out, "\"", 1);
        break;
    }
    case TYPE_TIME: {
        bool is_text = text_unit_us(encoder->times) == 0;
        buffer_append(out, "\"", is_text);
        to = buffer_reserve(out, TEXT_WRITE_MAX);
        out->length += (size_t)(text_write_time(to, column->ints[row], encoder->times) - to);
        buffer_append(out, "\"", is_text);
        break;
    }
    default: write_list(encoder, member, column, row, out); break;
    }
}

void json_encode(void *self, const struct batch *batch, uint32_t first, uint32_t count,
                 struct byte_buffer *out)
{
    const struct json_encoder *encoder = self;
    for (uint32_t i = first; i < first + count; i++) {
        uint32_t row = batch_row(batch, i);
        buffer_append(out, "{", 1);
        for (uint32_t j = 0; j < encoder->count; j++) {
            const struct json_member *member = &encoder->members[j];
            buffer_append(out, member->head.data, member->head.length);
            write_value(encoder, member, &batch->columns[j], row, out);
        }
        buffer_append(out, "}\n", 2);
    }
}

void format_json_value(const struct column *column, const struct type *type, uint32_t row,
                       struct byte_buffer *out)
{
    struct json_encoder encoder = {.times = TIME_UNIT_RFC3339};
    struct json_member member = {0};
    make_member(&encoder, &member, type);
    write_value(&encoder, &member, column, row, out);
    arena_free(&encoder.arena);
}

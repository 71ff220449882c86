/* Held rows across changes of a job: converts rows from an earlier schema to the current one. */
#include "operators/rows/held.h"

#include "core/mem.h"

#include <stddef.h>
#include <stdlib.h>

enum { TYPE_DEPTH_MAX = 8 };

void held_shape(const struct schema *schema, struct arena *arena, struct byte_buffer *out)
{
    for (uint32_t i = 0; i < schema->count; i++)
        buffer_printf(out, "?column %.*s of rows held: %s\n", STR_ARGS(schema->fields[i].name),
                      type_name(arena, &schema->fields[i].type));
}

static struct held_layout layout_of(const struct schema *schema)
{
    struct held_layout layout = {.schema = schema};
    layout.fixed_bytes = (uint32_t)held_column_at(&layout, schema->count);
    return layout;
}

void held_layouts_init(struct held_layouts *layouts, const struct schema *schema)
{
    layouts->count = 1;
    layouts->current = layouts->numbers[0] = 0;
    layouts->now = layouts->items[0] = layout_of(schema);
}

void held_layouts_free(struct held_layouts *layouts)
{
    buffer_free(&layouts->row);
    arena_free(&layouts->arena);
}

/* --- Layouts as bytes: number, column count, then name length, name and type of each column --- */

static void put_schema(struct byte_buffer *out, const struct schema *schema);

static void put_type(struct byte_buffer *out, const struct type *type)
{
    uint8_t tag = (uint8_t)type->tag;
    buffer_append(out, &tag, 1);
    if (type->tag == TYPE_LIST)
        put_type(out, type->element);
    else if (type->tag == TYPE_RECORD)
        put_schema(out, type->fields);
}

static void put_schema(struct byte_buffer *out, const struct schema *schema)
{
    buffer_append(out, &schema->count, sizeof(schema->count));
    for (uint32_t i = 0; i < schema->count; i++) {
        uint32_t length = (uint32_t)schema->fields[i].name.length;
        buffer_append(out, &length, sizeof(length));
        buffer_append(out, schema->fields[i].name.data, length);
        put_type(out, &schema->fields[i].type);
    }
}

void held_layouts_save(const struct held_layouts *layouts, struct byte_buffer *out)
{
    for (uint32_t i = 0; i < layouts->count; i++) {
        buffer_append(out, &layouts->numbers[i], sizeof(layouts->numbers[i]));
        put_schema(out, layouts->items[i].schema);
    }
}

struct bytes {
    const char *at, *end;
    bool is_bad;
};

static void take(struct bytes *bytes, void *value, size_t count)
{
    bytes->is_bad |= (size_t)(bytes->end - bytes->at) < count;
    if (bytes->is_bad) {
        memset(value, 0, count);
        return;
    }
    memcpy(value, bytes->at, count);
    bytes->at += count;
}

static struct schema *take_schema(struct bytes *bytes, struct arena *arena, int depth);

static struct type take_type(struct bytes *bytes, struct arena *arena, int depth)
{
    uint8_t tag;
    take(bytes, &tag, 1);
    bytes->is_bad |= tag > TYPE_RECORD || depth > TYPE_DEPTH_MAX;
    struct type type = type_of(bytes->is_bad ? TYPE_INT : (enum type_tag)tag);
    if (type.tag == TYPE_LIST) {
        struct type *element = arena_new(arena, struct type);
        *element = take_type(bytes, arena, depth + 1);
        type.element = element;
    } else if (type.tag == TYPE_RECORD) {
        type.fields = take_schema(bytes, arena, depth + 1);
    }
    return type;
}

static struct schema *take_schema(struct bytes *bytes, struct arena *arena, int depth)
{
    uint32_t count, length;
    take(bytes, &count, sizeof(count));
    bytes->is_bad |= count > SCHEMA_FIELDS_MAX;
    struct schema *schema = arena_new(arena, struct schema);
    schema->fields = arena_array(arena, struct field, bytes->is_bad ? 1 : count + 1);
    for (uint32_t i = 0; i < count && !bytes->is_bad; i++) {
        take(bytes, &length, sizeof(length));
        bytes->is_bad |= length > (size_t)(bytes->end - bytes->at);
        if (bytes->is_bad)
            break;
        struct str name = arena_str(arena, (struct str){bytes->at, length});
        bytes->at += length;
        (void)schema_add(schema, name, take_type(bytes, arena, depth));
    }
    return schema;
}

bool held_layouts_load(struct held_layouts *layouts, struct str data, const struct schema *schema)
{
    struct bytes bytes = {data.data, data.data + data.length, false};
    uint32_t own = UINT32_MAX;
    uint16_t newest = 0;
    arena_reset(&layouts->arena);
    layouts->count = 0;
    while (bytes.at < bytes.end && !bytes.is_bad && layouts->count < HELD_LAYOUTS_MAX) {
        take(&bytes, &layouts->numbers[layouts->count], sizeof(newest));
        layouts->items[layouts->count] = layout_of(take_schema(&bytes, &layouts->arena, 0));
        newest = MAX(newest, layouts->numbers[layouts->count]);
        if (!bytes.is_bad && schema_equal(layouts->items[layouts->count].schema, schema))
            own = layouts->count;
        layouts->count++;
    }
    if (bytes.is_bad || bytes.at != bytes.end || layouts->count == 0)
        return false;
    if (own == UINT32_MAX) {
        if (layouts->count == HELD_LAYOUTS_MAX) {
            layouts->count--;
            memmove(layouts->items, layouts->items + 1, layouts->count * sizeof(layouts->items[0]));
            memmove(layouts->numbers, layouts->numbers + 1, layouts->count * sizeof(layouts->numbers[0]));
        }
        own = layouts->count++;
        layouts->numbers[own] = (uint16_t)(newest + 1);
        layouts->items[own] = layout_of(schema);
    }
    layouts->now = layout_of(schema);
    layouts->current = layouts->numbers[own];
    return true;
}

/* --- Converting rows --- */

struct converting {
    const struct held_layout *from, *to;
    struct str row;
    struct byte_buffer *out;
};

/* Sets a column of the new row: its 8 bytes, and the part of the tail that they refer to. source: index of
 * the same column in the old layout; -1: the old layout does not have it, and the new row gets a null. */
static void convert_column(struct converting *c, uint32_t column, int source)
{
    size_t nulls = sizeof(struct held_head);
    const struct field *field = &c->to->schema->fields[column];
    uint64_t bits = 0, null_word = 0;
    if (source >= 0)
        memcpy(&null_word, c->row.data + nulls + (size_t)source / 64 * sizeof(null_word), sizeof(null_word));
    bool is_null = source < 0 || (null_word >> source % 64 & 1) != 0;
    if (!is_null) {
        memcpy(&bits, c->row.data + held_column_at(c->from, (uint32_t)source), sizeof(bits));
        bool has_tail =
            field->type.tag == TYPE_TEXT || field->type.tag == TYPE_BYTES || field->type.tag == TYPE_LIST;
        struct text_ref ref;
        memcpy(&ref, &bits, sizeof(ref));
        size_t tail = c->row.length - c->from->fixed_bytes;
        is_null = has_tail && (ref.offset > tail || ref.length > tail - ref.offset);
        if (has_tail && !is_null) {
            struct text_ref moved = {(uint32_t)(c->out->length - c->to->fixed_bytes), ref.length};
            if (ref.length > 0)
                buffer_append(c->out, c->row.data + c->from->fixed_bytes + ref.offset, ref.length);
            memcpy(&bits, &moved, sizeof(bits));
        }
    }
    if (is_null)
        bit_set((uint64_t *)(void *)(c->out->data + nulls), column);
    else
        memcpy(c->out->data + held_column_at(c->to, column), &bits, sizeof(bits));
}

struct str held_layouts_convert(struct held_layouts *layouts, struct str row)
{
    const struct held_layout *now = &layouts->now;
    struct held_head head;
    if (row.length < sizeof(head))
        return row;
    memcpy(&head.layout, row.data + offsetof(struct held_head, layout), sizeof(head.layout));
    if (likely(head.layout == layouts->current))
        return row;
    memcpy(&head, row.data, sizeof(head));
    uint32_t i = 0;
    while (i < layouts->count && layouts->numbers[i] != head.layout)
        i++;
    if (i == layouts->count || row.length < layouts->items[i].fixed_bytes)
        return (struct str){row.data, 0}; /* damaged: unpacked as a row of nulls */
    struct byte_buffer *out = &layouts->row;
    struct converting c = {&layouts->items[i], now, row, out};
    buffer_clear(out);
    memset(buffer_reserve(out, now->fixed_bytes), 0, now->fixed_bytes);
    out->length = now->fixed_bytes;
    head.layout = layouts->current;
    memcpy(out->data, &head, sizeof(head));
    for (uint32_t k = 0; k < now->schema->count; k++) {
        const struct field *field = &now->schema->fields[k];
        int source = schema_find(c.from->schema, field->name);
        if (source >= 0 && !type_equal(&c.from->schema->fields[source].type, &field->type))
            source = -1;
        convert_column(&c, k, source);
    }
    return (struct str){out->data, out->length};
}

/* --- A member of an operator's state, in checkpoints one record: the tag, then the layouts --- */

static bool layouts_open(const struct state_member *row, const struct operator_context *context, void *member)
{
    const struct schema *schema;
    memcpy(&schema, (char *)context->config + row->schema, sizeof(schema));
    if (schema == NULL)
        return true;
    struct held_layouts *layouts = mem_calloc(1, sizeof(*layouts));
    held_layouts_init(layouts, schema);
    memcpy(member, &layouts, sizeof(layouts));
    return true;
}

static bool layouts_snapshot(const struct state_member *row, struct operator_context *context LEAT_UNUSED,
                             void *layouts, struct snapshot_writer *writer)
{
    struct byte_buffer record = {0};
    buffer_append(&record, &row->tag, sizeof(row->tag));
    held_layouts_save(layouts, &record);
    bool is_good = snapshot_put(writer, SNAPSHOT_GLOBAL, record.data, record.length);
    buffer_free(&record);
    return is_good;
}

static bool layouts_restore(const struct state_member *row LEAT_UNUSED, struct operator_context *context,
                            void *object, struct snapshot_reader *reader, struct str record)
{
    struct held_layouts *layouts = object;
    if (held_layouts_load(layouts, (struct str){record.data + 1, record.length - 1}, layouts->now.schema))
        return true;
    snapshot_corrupt(reader, context->diags, "the columns of rows that wait or are kept are not valid");
    return false;
}

static void layouts_close(void *layouts)
{
    held_layouts_free(layouts);
    free(layouts);
}

const struct state_kind state_layouts = {.is_pointer = true,
                                         .open = layouts_open,
                                         .snapshot = layouts_snapshot,
                                         .restore = layouts_restore,
                                         .close = layouts_close};

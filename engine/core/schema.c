#include "core/schema.h"

struct schema *schema_copy(struct arena *arena, const struct schema *schema, uint32_t extra)
{
    struct schema *copy = arena_new(arena, struct schema);
    copy->fields = arena_array(arena, struct field, schema->count + extra);
    if (schema->count > 0)
        memcpy(copy->fields, schema->fields, schema->count * sizeof(*copy->fields));
    copy->count = schema->count;
    copy->rows_lineage = schema->rows_lineage;
    copy->repeats = schema->repeats;
    return copy;
}

struct field *schema_add(struct schema *schema, struct str name, struct type type)
{
    struct field *field = &schema->fields[schema->count++];
    *field = (struct field){.name = name, .type = type};
    return field;
}

int schema_find(const struct schema *schema, struct str name)
{
    for (uint32_t i = 0; i < schema->count; i++)
        if (str_equal(schema->fields[i].name, name))
            return (int)i;
    return -1;
}

bool type_equal(const struct type *a, const struct type *b)
{
    if (a->tag != b->tag)
        return false;
    if (a->tag == TYPE_LIST)
        return type_equal(a->element, b->element);
    return a->tag != TYPE_RECORD || schema_equal(a->fields, b->fields);
}

bool schema_equal(const struct schema *a, const struct schema *b)
{
    if (a->count != b->count)
        return false;
    for (uint32_t i = 0; i < a->count; i++)
        if (!str_equal(a->fields[i].name, b->fields[i].name) ||
            !type_equal(&a->fields[i].type, &b->fields[i].type))
            return false;
    return true;
}

const char *type_name(struct arena *arena, const struct type *type)
{
    static const char *const names[] = {"bool", "int", "float", "text", "bytes", "time"};
    if (type->tag < TYPE_LIST)
        return names[type->tag];
    if (type->tag == TYPE_LIST)
        return arena_printf(arena, "list(%s)", type_name(arena, type->element));
    const char *text = "{ ";
    for (uint32_t i = 0; i < type->fields->count; i++) {
        const struct field *field = &type->fields->fields[i];
        text = arena_printf(arena, "%s%s%.*s: %s", text, i > 0 ? ", " : "", STR_ARGS(field->name),
                            type_name(arena, &field->type));
    }
    return arena_printf(arena, "%s }", text);
}

const char **schema_names(struct arena *arena, const struct schema *schema)
{
    const char **names = arena_alloc(arena, (schema->count + 1) * sizeof(*names));
    for (uint32_t i = 0; i < schema->count; i++)
        names[i] = arena_strndup(arena, schema->fields[i].name.data, schema->fields[i].name.length);
    names[schema->count] = NULL;
    return names;
}

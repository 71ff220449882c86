/* An Avro schema (JSON) -> a tree of types, by the specification's chapter on schemas. Names refer to types
 * that were defined before, so the tree has a cycle where a record can hold itself. Logical types, defaults
 * and aliases are kept. The schemas of Avro C lack these three, so Avro C is not used here. */
#include "formats/avro.h"

struct avro_parser {
    struct arena *arena;
    struct avro_names *names;
    const char *why;
    struct str field; /* the field that is being parsed, for messages */
};

static struct avro_type *parse_type(struct avro_parser *parser, const json_t *json, struct str space,
                                    int depth);

static void *refuse(struct avro_parser *parser, const char *what)
{
    if (parser->why == NULL)
        parser->why = parser->field.length == 0
                          ? what
                          : arena_printf(parser->arena, "%s (in the field `%.*s`)", what,
                                         (int)MIN(parser->field.length, 64), parser->field.data);
    return NULL;
}

static struct str json_text_of(const json_t *json)
{
    return json_is_string(json) ? (struct str){json_string_value(json), json_string_length(json)}
                                : (struct str){"", 0};
}

static struct str member(const json_t *json, const char *name)
{
    return json_text_of(json_object_get(json, name));
}

/* Whether `name` is [A-Za-z_][A-Za-z0-9_]*, or, with may_have_points, several of these joined by points. */
static bool is_name(struct str name, bool may_have_points)
{
    bool is_start = true;
    for (size_t i = 0; i < name.length; i++) {
        char c = name.data[i];
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (c == '.' ? !may_have_points || is_start : !is_letter && (is_start || c < '0' || c > '9'))
            return false;
        is_start = c == '.';
    }
    return !is_start;
}

static struct str full_name(struct avro_parser *parser, struct str name, struct str space)
{
    if (space.length == 0 || memchr(name.data, '.', name.length) != NULL)
        return arena_str(parser->arena, name);
    return str_from(arena_printf(parser->arena, "%.*s.%.*s", STR_ARGS(space), STR_ARGS(name)));
}

static struct avro_type *find_named(const struct avro_names *names, struct str name)
{
    for (uint32_t i = 0; i < names->count; i++)
        if (str_equal(names->types[i]->name, name))
            return names->types[i];
    return NULL;
}

static const struct {
    const char *name;
    enum avro_tag tag;
} primitives[] = {
    {"null", AVRO_NULL},   {"boolean", AVRO_BOOLEAN}, {"int", AVRO_INT},     {"long", AVRO_LONG},
    {"float", AVRO_FLOAT}, {"double", AVRO_DOUBLE},   {"bytes", AVRO_BYTES}, {"string", AVRO_STRING},
};

/* The type of that name: a primitive type, or one that was defined before. */
static struct avro_type *named_type(struct avro_parser *parser, struct str name, struct str space)
{
    for (size_t i = 0; i < ARRAY_COUNT(primitives); i++) {
        if (!str_is(name, primitives[i].name))
            continue;
        struct avro_type *type = arena_new(parser->arena, struct avro_type);
        type->tag = primitives[i].tag;
        return type;
    }
    struct avro_type *type = find_named(parser->names, full_name(parser, name, space));
    if (type == NULL) /* the name may be that of a type without namespace */
        type = find_named(parser->names, name);
    if (type == NULL)
        return refuse(parser, arena_printf(parser->arena,
                                           "`%.*s` is not a type, and no type of this name was "
                                           "defined before",
                                           (int)MIN(name.length, 128), name.data));
    return type;
}

static enum avro_logical logical_of(const json_t *json, enum avro_tag tag)
{
    struct str name = member(json, "logicalType");
    if (tag == AVRO_INT && str_is(name, "date"))
        return AVRO_DATE;
    if (tag == AVRO_LONG && (str_is(name, "timestamp-millis") || str_is(name, "local-timestamp-millis")))
        return AVRO_TIMESTAMP_MS;
    if (tag == AVRO_LONG && (str_is(name, "timestamp-micros") || str_is(name, "local-timestamp-micros")))
        return AVRO_TIMESTAMP_US;
    if (tag == AVRO_LONG && (str_is(name, "timestamp-nanos") || str_is(name, "local-timestamp-nanos")))
        return AVRO_TIMESTAMP_NS;
    return AVRO_PLAIN; /* the specification: an unknown logical type is ignored */
}

/* Gives the type its full name and adds it to the known types before its fields are parsed, so that they can
 * refer to it. *space: the namespace for names inside the type. */
static bool define(struct avro_parser *parser, struct avro_type *type, const json_t *json, struct str *space)
{
    struct str name = member(json, "name"), own_space = member(json, "namespace");
    if (!is_name(name, true) || (own_space.length > 0 && !is_name(own_space, true)))
        return refuse(parser, "a record, enum or fixed without a valid `name` or `namespace`") != NULL;
    type->name = full_name(parser, name, own_space.length > 0 ? own_space : *space);
    if (find_named(parser->names, type->name) != NULL)
        return refuse(parser, arena_printf(parser->arena, "`%.*s` is defined twice",
                                           (int)MIN(type->name.length, 128), type->name.data)) != NULL;
    if (parser->names->count == AVRO_TYPES_MAX)
        return refuse(parser, "more than 1024 named types") != NULL;
    parser->names->types[parser->names->count++] = type;
    size_t length = type->name.length;
    while (length > 0 && type->name.data[length - 1] != '.')
        length--;
    *space = (struct str){type->name.data, length > 0 ? length - 1 : 0};
    return true;
}

static struct avro_type *parse_enum(struct avro_parser *parser, const json_t *json, struct str space)
{
    struct avro_type *type = arena_new(parser->arena, struct avro_type);
    const json_t *symbols = json_object_get(json, "symbols");
    type->tag = AVRO_ENUM;
    if (!define(parser, type, json, &space))
        return NULL;
    if (!json_is_array(symbols) || json_array_size(symbols) == 0 ||
        json_array_size(symbols) > AVRO_FIELDS_MAX)
        return refuse(parser, "an enum needs `symbols`, 1 to 4096 of them");
    type->count = (uint32_t)json_array_size(symbols);
    type->symbols = arena_array(parser->arena, struct str, type->count);
    for (uint32_t i = 0; i < type->count; i++) {
        type->symbols[i] = json_text_of(json_array_get(symbols, i));
        if (!is_name(type->symbols[i], false))
            return refuse(parser, "a symbol of an enum is not a valid name");
    }
    return type;
}

static struct avro_type *parse_fixed(struct avro_parser *parser, const json_t *json, struct str space)
{
    struct avro_type *type = arena_new(parser->arena, struct avro_type);
    const json_t *size = json_object_get(json, "size");
    type->tag = AVRO_FIXED;
    if (!define(parser, type, json, &space))
        return NULL;
    if (!json_is_integer(size) || json_integer_value(size) < 0 ||
        json_integer_value(size) > SOURCE_RECORD_BYTES_MAX)
        return refuse(parser, "a fixed needs a `size` of 0 to 1 MiB");
    type->size = (uint32_t)json_integer_value(size);
    return type;
}

int avro_field_find(const struct avro_type *record, struct str name)
{
    for (uint32_t i = 0; i < record->count; i++)
        if (str_equal(record->fields[i].name, name))
            return (int)i;
    return -1;
}

static struct avro_type *parse_record(struct avro_parser *parser, const json_t *json, struct str space,
                                      int depth)
{
    struct avro_type *type = arena_new(parser->arena, struct avro_type);
    const json_t *fields = json_object_get(json, "fields");
    struct str outer = parser->field;
    type->tag = AVRO_RECORD;
    if (!define(parser, type, json, &space))
        return NULL;
    if (!json_is_array(fields) || json_array_size(fields) > AVRO_FIELDS_MAX)
        return refuse(parser, "a record needs `fields`, at most 4096 of them");
    type->fields = arena_array(parser->arena, struct avro_field, json_array_size(fields));
    for (uint32_t i = 0; i < json_array_size(fields); i++) {
        const json_t *item = json_array_get(fields, i), *aliases = json_object_get(item, "aliases");
        struct avro_field *field = &type->fields[i];
        field->name = member(item, "name");
        if (!is_name(field->name, false))
            return refuse(parser, "a field of a record without a valid `name`");
        parser->field = field->name;
        if (avro_field_find(type, field->name) >= 0)
            return refuse(parser, "a record has two fields of this name");
        field->type = parse_type(parser, json_object_get(item, "type"), space, depth + 1);
        if (field->type == NULL)
            return NULL;
        field->default_value = json_object_get(item, "default");
        field->aliases = json_is_array(aliases) ? aliases : NULL;
        type->count++;
        parser->field = outer;
    }
    return type;
}

static struct avro_type *parse_items(struct avro_parser *parser, const json_t *json, struct str space,
                                     int depth, enum avro_tag tag)
{
    struct avro_type *type = arena_new(parser->arena, struct avro_type);
    type->tag = tag;
    type->count = 1;
    type->items = arena_array(parser->arena, struct avro_type *, 1);
    type->items[0] =
        parse_type(parser, json_object_get(json, tag == AVRO_ARRAY ? "items" : "values"), space, depth + 1);
    return type->items[0] == NULL ? NULL : type;
}

static struct avro_type *parse_union(struct avro_parser *parser, const json_t *json, struct str space,
                                     int depth)
{
    struct avro_type *type = arena_new(parser->arena, struct avro_type);
    type->tag = AVRO_UNION;
    if (json_array_size(json) == 0 || json_array_size(json) > AVRO_FIELDS_MAX)
        return refuse(parser, "a union of no types, or of more than 4096");
    type->count = (uint32_t)json_array_size(json);
    type->items = arena_array(parser->arena, struct avro_type *, type->count);
    for (uint32_t i = 0; i < type->count; i++) {
        type->items[i] = parse_type(parser, json_array_get(json, i), space, depth + 1);
        if (type->items[i] == NULL)
            return NULL;
        if (type->items[i]->tag == AVRO_UNION)
            return refuse(parser, "a union directly contains a union");
    }
    return type;
}

static struct avro_type *parse_type(struct avro_parser *parser, const json_t *json, struct str space,
                                    int depth)
{
    if (depth > AVRO_NESTING_MAX)
        return refuse(parser, "types are nested more than 64 deep");
    if (json_is_string(json))
        return named_type(parser, json_text_of(json), space);
    if (json_is_array(json))
        return parse_union(parser, json, space, depth);
    if (!json_is_object(json))
        return refuse(parser, "a type is missing, or is not a name, an object or a list");
    const json_t *inner = json_object_get(json, "type");
    struct str name = json_text_of(inner);
    if (str_is(name, "record") || str_is(name, "error"))
        return parse_record(parser, json, space, depth);
    if (str_is(name, "enum"))
        return parse_enum(parser, json, space);
    if (str_is(name, "fixed"))
        return parse_fixed(parser, json, space);
    if (str_is(name, "array") || str_is(name, "map"))
        return parse_items(parser, json, space, depth, str_is(name, "array") ? AVRO_ARRAY : AVRO_MAP);
    /* The type is given as {"type": "long", "logicalType": ...}. */
    struct avro_type *type = parse_type(parser, inner, space, depth + 1);
    if (type != NULL && type->logical == AVRO_PLAIN)
        type->logical = logical_of(json, type->tag);
    return type;
}

static void forget(void *json)
{
    json_decref(json);
}

enum { MARK_NONE, MARK_INSIDE, MARK_DONE };

/* Whether the type is a record that always contains itself: no payload of it could end. */
static bool is_endless(struct avro_type *type)
{
    if (type->tag != AVRO_RECORD || type->mark == MARK_DONE)
        return false;
    if (type->mark == MARK_INSIDE)
        return true;
    type->mark = MARK_INSIDE;
    for (uint32_t i = 0; i < type->count; i++)
        if (is_endless(type->fields[i].type))
            return true;
    type->mark = MARK_DONE;
    return false;
}

struct avro_type *avro_type_parse(struct arena *arena, struct str text, struct avro_names *names,
                                  const char **why)
{
    json_error_t error;
    struct avro_parser parser = {.arena = arena, .names = names};
    json_t *json = json_loadb(text.data, text.length, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (json == NULL) {
        *why = arena_printf(arena, "line %d: %s", error.line, error.text);
        return NULL;
    }
    arena_defer(arena, forget, json);
    struct avro_type *type = parse_type(&parser, json, (struct str){"", 0}, 0);
    for (uint32_t i = 0; type != NULL && i < names->count; i++)
        if (is_endless(names->types[i]))
            type = refuse(&parser, "a record that always contains itself has no end");
    *why = parser.why;
    return type;
}

const char *avro_type_name(struct arena *arena, const struct avro_type *type)
{
    static const char *const names[] = {
        [AVRO_FIXED] = "fixed", [AVRO_ENUM] = "enum",   [AVRO_ARRAY] = "array",
        [AVRO_MAP] = "map",     [AVRO_UNION] = "union", [AVRO_RECORD] = "record",
    };
    static const char *const logicals[] = {"", " (date)", " (timestamp-millis)", " (timestamp-micros)",
                                           " (timestamp-nanos)"};
    if (type->tag <= AVRO_STRING)
        return arena_printf(arena, "%s%s", primitives[type->tag].name, logicals[type->logical]);
    if (type->name.length == 0)
        return names[type->tag];
    return arena_printf(arena, "%s %.*s", names[type->tag], (int)MIN(type->name.length, 128),
                        type->name.data);
}

#include "core/option_schema.h"

enum { SCHEMA_NESTING_MAX = 4 };

/* In the order of enum type_tag and enum time_unit. */
const struct type_help option_schema_types[] = {
    {"bool", "true or false"},
    {"int", "a whole number of 64 bits, with a sign"},
    {"float", "a number of 64 bits, IEEE 754"},
    {"text", "UTF-8"},
    {"bytes", "any bytes; in JSON and CSV as base64"},
    {"time", "an instant, in microseconds since 1970, UTC"},
    {NULL, NULL},
};
const struct type_help option_schema_units[] = {
    {"us", "a number: microseconds since 1970"},
    {"ms", "a number: milliseconds since 1970"},
    {"s", "a number: seconds since 1970"},
    {"rfc3339",
     "a text: 2015-09-12T00:46:58.771Z, or with +02:00; also without seconds, fraction or zone (then UTC)"},
    {"datetime", "a text: 2015-09-12 00:46:58, UTC"},
    {"ns", "a number: nanoseconds since 1970, rounded down to whole microseconds"},
    {NULL, NULL},
};

static int find_type(const struct type_help *types, struct str name)
{
    for (int i = 0; types[i].name != NULL; i++)
        if (str_is(name, types[i].name))
            return i;
    return -1;
}

static bool not_a_type(const struct ast *value, struct option_env *env)
{
    struct diag *d = diag_error(env->diags, DIAG_OPTION_TYPE, value->span, "this is not a type");
    const char *names[ARRAY_COUNT(option_schema_types)];
    size_t count = 0;
    for (; option_schema_types[count].name != NULL; count++)
        names[count] = option_schema_types[count].name;
    const char *near =
        value->tag == AST_NAME || value->tag == AST_CALL ? diag_nearest(value->text, names, count) : NULL;
    if (near != NULL)
        diag_hint(env->diags, d, "did you mean `%s`?", near);
    else
        diag_hint(env->diags, d,
                  "types are bool, int, float, text, bytes, time(s|ms|us|ns|rfc3339|datetime), list(...), "
                  "list({ ... })");
    return false;
}

static bool schema_at(const struct ast *value, struct option_env *env, struct schema **schema, int depth);

static bool type_at(const struct ast *value, struct option_env *env, struct type *type, int depth)
{
    *type = (struct type){0};
    if (value->tag == AST_NAME) {
        int tag = find_type(option_schema_types, value->text);
        type->tag = (enum type_tag)MAX(tag, 0);
        return tag >= 0 || not_a_type(value, env);
    }
    if (value->tag != AST_CALL || value->count != 1 || depth > SCHEMA_NESTING_MAX)
        return not_a_type(value, env);
    const struct ast *inner = value->children[0];
    if (str_is(value->text, "time") && inner->tag == AST_NAME) {
        type->tag = TYPE_TIME;
        int unit = find_type(option_schema_units, inner->text);
        type->unit = (enum time_unit)MAX(unit, 0);
        return unit >= 0 || not_a_type(inner, env);
    }
    if (!str_is(value->text, "list"))
        return not_a_type(value, env);
    struct type *element = arena_new(env->arena, struct type);
    type->tag = TYPE_LIST;
    type->element = element;
    if (inner->tag != AST_BLOCK)
        return type_at(inner, env, element, depth + 1);
    struct schema *fields;
    element->tag = TYPE_RECORD;
    if (!schema_at(inner, env, &fields, depth + 1))
        return false;
    element->fields = fields;
    return true;
}

static bool schema_at(const struct ast *value, struct option_env *env, struct schema **schema, int depth)
{
    if (value->tag != AST_BLOCK || value->entries_count == 0) {
        struct diag *d =
            diag_error(env->diags, DIAG_OPTION_TYPE, value->span, "a schema is a block of columns");
        diag_hint(env->diags, d, "for example `{ user_id: int, ts: time(ms) }`");
        return false;
    }
    if (value->entries_count > SCHEMA_FIELDS_MAX) {
        diag_error(env->diags, DIAG_TOO_MANY, value->span,
                   "%u columns are more than the %d that a stream can have", value->entries_count,
                   SCHEMA_FIELDS_MAX);
        return false;
    }
    struct schema *made = arena_new(env->arena, struct schema);
    made->fields = arena_array(env->arena, struct field, value->entries_count);
    bool is_good = true;
    for (uint32_t i = 0; i < value->entries_count; i++) {
        const struct ast_entry *entry = &value->entries[i];
        const struct ast *type_ast = entry->value;
        if (schema_find(made, entry->name) >= 0) {
            diag_error(env->diags, DIAG_COLUMN_TAKEN, entry->name_span, "column `%.*s` is declared twice",
                       STR_ARGS(entry->name));
            is_good = false;
            continue;
        }
        bool is_required = type_ast != NULL && type_ast->tag == AST_UNARY && type_ast->op == AST_OP_NOT;
        if (is_required)
            type_ast = type_ast->children[0];
        struct type type;
        if (type_ast == NULL || !type_at(type_ast, env, &type, depth)) {
            is_good = false;
            continue;
        }
        schema_add(made, entry->name, type)->is_required = is_required;
    }
    *schema = made;
    return is_good;
}

bool option_schema(const struct ast *value, struct option_env *env, struct schema **schema)
{
    return schema_at(value, env, schema, 0);
}

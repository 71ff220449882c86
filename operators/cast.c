/* cast: changes the types of columns in place. */
#include "operators/expr/compute.h"

struct cast {
    struct assignments types;
    struct compute compute;
};

static const struct option cast_options[] = {
    OPTION_ASSIGNMENTS(
        struct cast, types, "types", OPTION_REQUIRED | OPTION_POSITIONAL,
        "`column = type`: int, float, bool, text, time, time(ms), or try_int ... for null where "
        "the cast fails"),
    OPTIONS_END,
};

static bool is_cast(struct str name)
{
    static const char *const names[] = {"int",     "float",     "bool",     "text",     "time",
                                        "try_int", "try_float", "try_bool", "try_text", "try_time"};
    for (size_t i = 0; i < ARRAY_COUNT(names); i++)
        if (str_is(name, names[i]))
            return true;
    return false;
}

/* The call that casts the column: int(column), to_time(column, "ms") for `time(ms)`. NULL + diagnostic. */
static struct ast *cast_call(struct operator_bind *bind, const struct assignment *a)
{
    const struct ast *type = a->value;
    bool has_unit = type->tag == AST_CALL && str_is(type->text, "time") && type->count == 1 &&
                    (type->children[0]->tag == AST_NAME || type->children[0]->tag == AST_TEXT);
    struct span span = {a->name_span.begin, type->span.end};
    const struct ast *args[2] = {compute_name(bind->arena, a->name, a->name_span)};
    if (has_unit) {
        struct ast *unit = arena_copy(bind->arena, type->children[0], sizeof(*unit));
        unit->tag = AST_TEXT;
        args[1] = unit;
        return compute_call(bind->arena, "to_time", span, args, 2);
    }
    if (type->tag == AST_NAME && is_cast(type->text)) {
        const char *function = arena_strndup(bind->arena, type->text.data, type->text.length);
        return compute_call(bind->arena, function, span, args, 1);
    }
    struct diag *d = diag_error(bind->diags, DIAG_OPTION_TYPE, type->span, "`cast` has no such type");
    diag_hint(bind->diags, d,
              "the types are int, float, bool, text, time, time(s), time(ms), time(us), time(ns), try_int, "
              "try_float ...");
    return NULL;
}

static const struct assignment *find_cast(const struct cast *cast, struct str column)
{
    for (uint32_t i = 0; i < cast->types.count; i++)
        if (str_equal(cast->types.items[i].name, column))
            return &cast->types.items[i];
    return NULL;
}

static bool cast_bind(struct operator_bind *bind)
{
    struct cast *cast = bind->config;
    const struct schema *input = bind->inputs[0].schema;
    bool is_good = compute_schema(bind, &cast->compute, input->count) != NULL;
    for (uint32_t i = 0; i < cast->types.count; i++) {
        struct column_ref ref = {cast->types.items[i].name, cast->types.items[i].name_span, -1};
        is_good &= column_resolve(&ref, input, bind->arena, bind->diags);
    }
    for (uint32_t i = 0; is_good && i < input->count; i++) {
        struct str name = input->fields[i].name;
        const struct assignment *a = find_cast(cast, name);
        if (a == NULL) {
            is_good = compute_keep(bind, &cast->compute, (int)i, name, bind->span);
            continue;
        }
        struct ast *call = cast_call(bind, a);
        is_good = call != NULL && compute_add(bind, &cast->compute, call, input, name, a->name_span);
    }
    return is_good && compute_done(bind, &cast->compute);
}

static void cast_process(struct operator_context *context, uint32_t input, struct batch *batch)
{
    (void)input;
    const struct cast *cast = context->config;
    compute_process(context, &cast->compute, batch);
}

const struct operator_kind operator_cast = {
    .name = "cast",
    .summary = "changes the types of columns in place",
    .example = "events | cast user_id = text, price = try_int",
    .details = "A row for which a cast fails goes to dead letters; `try_int` and the other `try_` types give "
               "null instead. `time(ms)` reads a number of milliseconds since 1970; the other units are s, "
               "us and ns.",
    .options = cast_options,
    .size = sizeof(struct cast),
    .determinism = DETERMINISM_BY_ROW,
    .inputs_min = 1,
    .inputs_max = 1,
    .bind = cast_bind,
    .process = cast_process,
    .read = cast_process,
};

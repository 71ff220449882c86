#include "core/option.h"

#include "core/option_schema.h"

static const char *const type_texts[] = {
    [OPTION_BOOL_T] = "true or false",
    [OPTION_INT_T] = "int",
    [OPTION_FLOAT_T] = "float",
    [OPTION_TEXT_T] = "text",
    [OPTION_TEXTS_T] = "text or list of texts",
    [OPTION_DURATION_T] = "duration",
    [OPTION_DURATIONS_T] = "duration or list of durations",
    [OPTION_BYTES_T] = "size in bytes",
    [OPTION_ENUM_T] = "word",
    [OPTION_INTS_T] = "list of ints",
    [OPTION_COLUMN_T] = "column",
    [OPTION_COLUMNS_T] = "columns",
    [OPTION_EXPRESSION_T] = "expression",
    [OPTION_EXPRESSIONS_T] = "list of expressions",
    [OPTION_ASSIGNMENTS_T] = "name = expression, ...",
    [OPTION_NAME_T] = "name",
    [OPTION_STREAM_T] = "stream",
    [OPTION_STREAMS_T] = "streams",
    [OPTION_SCHEMA_T] = "{ column: type, ... }",
    [OPTION_BLOCK_T] = "{ option: value, ... }",
    [OPTION_KIND_T] = "kind { option: value, ... }",
};

const char *option_type_name(const struct option_row *option)
{
    if ((option->flags & OPTION_FOREVER) != 0)
        return option->type == OPTION_DURATIONS_T ? "duration or `forever`, or a list of durations"
                                                  : "duration or `forever`";
    return option->type == OPTION_ENUM_T ? option->choices : type_texts[option->type];
}

/* What the functions below need to bind one value: its row, the text for messages (option_bind), the
 * environment. */
struct binding {
    const struct option_row *option;
    const char *what;
    struct option_env *env;
};

/* The terms of a sum, comma-separated as arguments of concat. */
static const char *terms_text(struct arena *arena, const struct ast *sum)
{
    if (sum->tag != AST_BINARY || sum->op != AST_OP_ADD)
        return ast_text(arena, sum);
    return arena_printf(arena, "%s, %s", terms_text(arena, sum->children[0]),
                        terms_text(arena, sum->children[1]));
}

static bool wrong_type(const struct binding *b, const struct ast *value)
{
    struct diag *d =
        diag_error(b->env->diags, DIAG_OPTION_TYPE, value->span, "`%s` of %s takes a value of type %s",
                   b->option->name, b->what, option_type_name(b->option));
    if (value->tag == AST_BINARY && value->op == AST_OP_ADD)
        diag_hint(b->env->diags, d, "texts are joined by `concat`: write `concat(%s)`",
                  terms_text(b->env->arena, value));
    else if (option_example(b->option) != NULL)
        diag_hint(b->env->diags, d, "for example `%s: %s`", b->option->name, option_example(b->option));
    else
        diag_hint(b->env->diags, d, "%s", b->option->help);
    return false;
}

/* Parses the text of a bound of the option's type. The text is in our own tables, so a failure is our bug. */
static int64_t bound_integer(enum option_type type, const char *text)
{
    int64_t value = 0;
    struct str s = str_from(text);
    bool is_good = type == OPTION_DURATION_T || type == OPTION_DURATIONS_T ? literal_duration(s, &value)
                   : type == OPTION_BYTES_T                                ? literal_bytes(s, &value)
                                                                           : literal_int(s, &value);
    leat_assert(is_good || str_is(s, "0")); /* zero may have no unit */
    return value;
}

/* Whether the literal is within the option's bounds. */
static bool is_within(const struct option_row *o, const char *text)
{
    double value = 0, bound = 0;
    int64_t whole = 0;
    struct str s = str_from(text);
    if (o->type == OPTION_FLOAT_T)
        return literal_float(s, &value) &&
               (o->min_text == NULL || (literal_float(str_from(o->min_text), &bound) && value >= bound)) &&
               (o->max_text == NULL || (literal_float(str_from(o->max_text), &bound) && value <= bound));
    bool is_good = o->type == OPTION_DURATION_T || o->type == OPTION_DURATIONS_T ? literal_duration(s, &whole)
                   : o->type == OPTION_BYTES_T                                   ? literal_bytes(s, &whole)
                                                                                 : literal_int(s, &whole);
    return is_good && (o->min_text == NULL || whole >= bound_integer(o->type, o->min_text)) &&
           (o->max_text == NULL || whole <= bound_integer(o->type, o->max_text));
}

/* An example value for an option whose default means "none": the first sample within the
 * bounds; NULL: none. */
static const char *sample_of(const struct option_row *o)
{
    static const char *const
        sizes[] = {"64MiB", "1MiB", "4KiB", NULL},
        *const durations[] = {"10s", "1h", "100ms", "1d", NULL}, *const wholes[] = {"4",   "1",    "16",
                                                                                    "100", "1000", NULL},
        *const reals[] = {"0.1", "0.5", "1.0", "2.0", "10.0", NULL}, *const none[] = {NULL};
    const char *const *samples = o->type == OPTION_BYTES_T                                       ? sizes
                                 : o->type == OPTION_DURATION_T || o->type == OPTION_DURATIONS_T ? durations
                                 : o->type == OPTION_INT_T || o->type == OPTION_INTS_T           ? wholes
                                 : o->type == OPTION_FLOAT_T                                     ? reals
                                                                                                 : none;
    while (*samples != NULL && !is_within(o, *samples))
        samples++;
    return *samples;
}

const char *option_example(const struct option_row *o)
{
    const char *value = o->default_text;
    double real = 1;
    if (value == NULL || strcmp(value, "\"\"") == 0 || strcmp(value, "[]") == 0)
        return NULL;
    bool is_none =
        o->type == OPTION_FLOAT_T ? literal_float(str_from(value), &real) && real == 0 : value[0] == '0';
    return is_none ? sample_of(o) : value;
}

static bool out_of_range(const struct binding *b, const struct ast *value)
{
    const struct option_row *o = b->option;
    struct diag *d = diag_error(b->env->diags, DIAG_OUT_OF_RANGE, value->span, "`%s` of %s is out of range",
                                o->name, b->what);
    diag_hint(b->env->diags, d, "allowed is %s%s%s%s", o->min_text != NULL ? o->min_text : "anything up",
              o->max_text != NULL ? " to " : " or more", o->max_text != NULL ? o->max_text : "",
              (o->flags & OPTION_FOREVER) != 0 ? ", or forever" : "");
    return false;
}

static bool integer_in_range(const struct binding *b, const struct ast *value, int64_t number)
{
    const struct option_row *o = b->option;
    if (o->min_text != NULL && number < bound_integer(o->type, o->min_text))
        return out_of_range(b, value);
    if (o->max_text != NULL && number > bound_integer(o->type, o->max_text))
        return out_of_range(b, value);
    return true;
}

static bool bind_integer(const struct binding *b, const struct ast *value, int64_t *target)
{
    enum ast_tag wanted = b->option->type == OPTION_DURATION_T || b->option->type == OPTION_DURATIONS_T
                              ? AST_DURATION
                          : b->option->type == OPTION_BYTES_T ? AST_SIZE
                                                              : AST_INT;
    if ((b->option->flags & OPTION_FOREVER) != 0 && value->tag == AST_NAME &&
        str_is(value->text, "forever")) {
        *target = INT64_MAX;
        return true;
    }
    bool is_plain_zero = wanted != AST_INT && value->tag == AST_INT && value->integer == 0;
    if (value->tag != wanted && !is_plain_zero)
        return wrong_type(b, value);
    *target = value->integer;
    return integer_in_range(b, value, value->integer);
}

static bool bind_float(const struct binding *b, const struct ast *value, double *target)
{
    if (value->tag != AST_FLOAT && value->tag != AST_INT)
        return wrong_type(b, value);
    *target = value->tag == AST_FLOAT ? value->real : (double)value->integer;
    double bound = 0;
    if (b->option->min_text != NULL && literal_float(str_from(b->option->min_text), &bound) &&
        *target < bound)
        return out_of_range(b, value);
    if (b->option->max_text != NULL && literal_float(str_from(b->option->max_text), &bound) &&
        *target > bound)
        return out_of_range(b, value);
    return true;
}

static bool bind_enum(const struct binding *b, const struct ast *value, int *target)
{
    if (value->tag != AST_NAME && value->tag != AST_TEXT)
        return wrong_type(b, value);
    int index = 0;
    const char *at = b->option->choices;
    while (true) {
        size_t length = strcspn(at, "|");
        if (str_equal(value->text, (struct str){at, length})) {
            *target = index;
            return true;
        }
        if (at[length] == '\0')
            break;
        at += length + 1;
        index++;
    }
    struct diag *d = diag_error(b->env->diags, DIAG_NOT_A_CHOICE, value->span, "`%s` of %s cannot be `%.*s`",
                                b->option->name, b->what, STR_ARGS(value->text));
    /* A text is what a user wrote in quotes, or what a name in the job stands for. */
    diag_hint(b->env->diags, d, "choose one of %s%s", b->option->choices,
              value->tag == AST_TEXT ? ", in quotes if a `param` or a `let` has the same name" : "");
    return false;
}

/* Sets *items to the items of a list, or to the single value as a list of one; returns their number. */
static uint32_t list_items(struct ast *const *value, struct ast *const **items)
{
    if ((*value)->tag != AST_LIST) {
        *items = value;
        return 1;
    }
    *items = (*value)->children;
    return (*value)->count;
}

static bool bind_integers(const struct binding *b, struct ast *value, int64_t **items_out,
                          uint32_t *count_out, struct span **spans_out)
{
    struct ast *const *items;
    uint32_t count = list_items(&value, &items);
    *items_out = arena_array(b->env->arena, int64_t, count);
    if (spans_out != NULL)
        *spans_out = arena_array(b->env->arena, struct span, count);
    *count_out = count;
    bool is_good = true;
    for (uint32_t i = 0; i < count; i++) {
        is_good &= bind_integer(b, items[i], &(*items_out)[i]);
        if (spans_out != NULL)
            (*spans_out)[i] = items[i]->span;
    }
    return is_good;
}

static bool bind_texts(const struct binding *b, struct ast *value, struct texts *target)
{
    struct ast *const *items;
    uint32_t count = list_items(&value, &items);
    *target = (struct texts){arena_array(b->env->arena, struct str, count), count};
    for (uint32_t i = 0; i < count; i++) {
        if (items[i]->tag != AST_TEXT)
            return wrong_type(b, items[i]);
        target->items[i] = items[i]->text;
    }
    return true;
}

/* The text of a name; for stream options also of `NAME.OUTPUT`. Empty: the value is neither. */
static struct str name_in(const struct binding *b, const struct ast *value)
{
    bool is_stream = b->option->type == OPTION_STREAM_T || b->option->type == OPTION_STREAMS_T;
    if (value->tag == AST_NAME)
        return value->text;
    if (is_stream && value->tag == AST_FIELD && value->children[0]->tag == AST_NAME)
        return str_from(arena_printf(b->env->arena, "%.*s.%.*s", STR_ARGS(value->children[0]->text),
                                     STR_ARGS(value->text)));
    return (struct str){NULL, 0};
}

static bool bind_columns(const struct binding *b, struct ast *value, struct columns *target)
{
    struct ast *const *items;
    uint32_t count = list_items(&value, &items);
    *target = (struct columns){arena_array(b->env->arena, struct column_ref, count), count};
    for (uint32_t i = 0; i < count; i++) {
        struct str name = name_in(b, items[i]);
        if (name.length == 0)
            return wrong_type(b, items[i]);
        target->items[i] = (struct column_ref){name, items[i]->span, -1};
        for (uint32_t j = 0; j < i; j++)
            if (str_equal(target->items[j].name, name)) {
                diag_error(b->env->diags, DIAG_OPTION_TWICE, items[i]->span, "`%.*s` is listed twice",
                           STR_ARGS(name));
                return false;
            }
    }
    return true;
}

static bool add_assignment(const struct binding *b, struct assignments *target, struct assignment item)
{
    for (uint32_t i = 0; i < target->count; i++)
        if (str_equal(target->items[i].name, item.name)) {
            struct diag *d = diag_error(b->env->diags, DIAG_OPTION_TWICE, item.name_span,
                                        "`%.*s` is set twice", STR_ARGS(item.name));
            diag_label(b->env->diags, d, target->items[i].name_span, "first here");
            return false;
        }
    target->items[target->count++] = item;
    return true;
}

static bool bind_assignments(const struct binding *b, struct ast *value, struct assignments *target)
{
    struct ast *const *items = NULL;
    uint32_t count = value->tag == AST_BLOCK ? value->entries_count : list_items(&value, &items);
    *target = (struct assignments){arena_array(b->env->arena, struct assignment, count), 0};
    bool is_good = true;
    for (uint32_t i = 0; i < count; i++) {
        if (value->tag == AST_BLOCK) {
            const struct ast_entry *e = &value->entries[i];
            is_good &= add_assignment(b, target, (struct assignment){e->name, e->name_span, e->value});
        } else if (items[i]->tag == AST_ASSIGN) {
            is_good &= add_assignment(
                b, target, (struct assignment){items[i]->text, items[i]->text_span, items[i]->children[0]});
        } else if (items[i]->tag == AST_NAME) { /* `select a` is `select a = a` */
            is_good &=
                add_assignment(b, target, (struct assignment){items[i]->text, items[i]->span, items[i]});
        } else {
            struct diag *d = diag_error(b->env->diags, DIAG_OPTION_TYPE, items[i]->span,
                                        "an expression in %s needs a name", b->what);
            diag_hint(b->env->diags, d, "write `name = ...`");
            is_good = false;
        }
    }
    return is_good;
}

static bool bind_expressions(const struct binding *b, struct ast *value, struct expressions *target)
{
    struct ast *const *items;
    target->count = list_items(&value, &items);
    target->items = arena_array(b->env->arena, const struct ast *, target->count);
    for (uint32_t i = 0; i < target->count; i++)
        target->items[i] = items[i];
    return true;
}

static bool bind_kind(const struct binding *b, struct ast *value, struct kind_ref *target)
{
    if (value->tag != AST_NAME && value->tag != AST_KIND)
        return wrong_type(b, value);
    const char *names[32];
    size_t count = 0;
    for (const struct kind_choice *k = b->option->kinds; k->name != NULL && count < ARRAY_COUNT(names); k++) {
        names[count++] = k->name;
        if (!str_is(value->text, k->name))
            continue;
        target->choice = (int)(k - b->option->kinds);
        target->config = arena_calloc(b->env->arena, 1, MAX(k->size, 1));
        const char *what = arena_printf(b->env->arena, "%s `%s`", b->option->name, k->name);
        return option_bind(k->options, what, value->span, value->entries, value->entries_count,
                           target->config, b->env);
    }
    struct diag *d = diag_error(b->env->diags, DIAG_NOT_A_CHOICE, value->span, "no %s is called `%.*s`",
                                b->option->name, STR_ARGS(value->text));
    const char *near = diag_nearest(value->text, names, count);
    if (near != NULL) {
        diag_hint(b->env->diags, d, "did you mean `%s`?", near);
        return false;
    }
    const char *all = names[0];
    for (size_t i = 1; i < count; i++)
        all = arena_printf(b->env->arena, "%s, %s", all, names[i]);
    diag_hint(b->env->diags, d, "choose one of %s", all);
    return false;
}

static bool bind_name(const struct binding *b, const struct ast *value, struct name_ref *target)
{
    struct str name = name_in(b, value);
    if (name.length == 0)
        return wrong_type(b, value);
    *target = (struct name_ref){name, value->span};
    return true;
}

/* Reports a secret written into the job file, which is shared and printed. */
static bool check_secret(const struct binding *b, const struct ast *value)
{
    if ((b->option->flags & OPTION_SECRET) == 0 || value->origin.length > 0)
        return true;
    struct diag *d = diag_error(b->env->diags, DIAG_OPEN_SECRET, value->span, "`%s` of %s is a secret",
                                b->option->name, b->what);
    diag_hint(b->env->diags, d, "write `%s: env(\"NAME\")` or `%s: file(\"path\")`", b->option->name,
              b->option->name);
    return false;
}

static bool bind_value(const struct binding *b, struct ast *value, void *member)
{
    if (!check_secret(b, value))
        return false;
    switch (b->option->type) {
    case OPTION_BOOL_T:
        if (value->tag != AST_BOOL)
            return wrong_type(b, value);
        *(bool *)member = value->boolean;
        return true;
    case OPTION_INT_T:
    case OPTION_DURATION_T:
    case OPTION_BYTES_T: return bind_integer(b, value, member);
    case OPTION_FLOAT_T: return bind_float(b, value, member);
    case OPTION_TEXT_T:
        if (value->tag != AST_TEXT)
            return wrong_type(b, value);
        *(struct str *)member = value->text;
        return true;
    case OPTION_TEXTS_T: return bind_texts(b, value, member);
    case OPTION_ENUM_T: return bind_enum(b, value, member);
    case OPTION_INTS_T: {
        struct ints *ints = member;
        return bind_integers(b, value, &ints->items, &ints->count, NULL);
    }
    case OPTION_DURATIONS_T: {
        struct durations *durations = member;
        return bind_integers(b, value, &durations->items, &durations->count, &durations->spans);
    }
    case OPTION_COLUMN_T:
        if (value->tag != AST_NAME)
            return wrong_type(b, value);
        *(struct column_ref *)member = (struct column_ref){value->text, value->span, -1};
        return true;
    case OPTION_COLUMNS_T:
    case OPTION_STREAMS_T: return bind_columns(b, value, member);
    case OPTION_EXPRESSION_T: ((struct expression *)member)->ast = value; return true;
    case OPTION_EXPRESSIONS_T: return bind_expressions(b, value, member);
    case OPTION_ASSIGNMENTS_T: return bind_assignments(b, value, member);
    case OPTION_NAME_T:
    case OPTION_STREAM_T: return bind_name(b, value, member);
    case OPTION_SCHEMA_T: return option_schema(value, b->env, member);
    case OPTION_BLOCK_T:
        if (value->tag != AST_BLOCK)
            return wrong_type(b, value);
        return option_bind(b->option->block, arena_printf(b->env->arena, "`%s`", b->option->name),
                           value->span, value->entries, value->entries_count, member, b->env);
    case OPTION_KIND_T: return bind_kind(b, value, member);
    }
    return wrong_type(b, value);
}

static void unknown_option(const struct option *table, const char *what, const struct ast_entry *entry,
                           struct option_env *env)
{
    const char *names[128];
    size_t count = 0;
    for (struct option_walk w = option_walk(table); option_next(&w) && count < ARRAY_COUNT(names);)
        if ((w.row.flags & (OPTION_POSITIONAL | OPTION_BODY)) == 0)
            names[count++] = w.row.name;
    const char *name = entry->name.length > 0 ? "" : "a value here";
    bool is_body = str_is(entry->name, "{}");
    struct diag *d =
        is_body ? diag_error(env->diags, DIAG_NO_OPTION, entry->value->span, "%s takes no { } block", what)
                : diag_error(env->diags, DIAG_NO_OPTION, entry->name_span, "%s has no option `%.*s%s`", what,
                             STR_ARGS(entry->name), name);
    const char *near = diag_nearest(entry->name, names, count);
    if (near != NULL) {
        diag_hint(env->diags, d, "did you mean `%s`?", near);
        return;
    }
    const char *all = count > 0 ? names[0] : "it has no options";
    for (size_t i = 1; i < count; i++)
        all = arena_printf(env->arena, "%s, %s", all, names[i]);
    diag_hint(env->diags, d, count > 0 ? "its options are: %s" : "%s", all);
}

/* A walk that stands on the row for an entry: the name "" stands for the positional option, "{}" for the body.
 * At the end: there is no such row. */
static struct option_walk find_row(const struct option *table, struct str name)
{
    unsigned flag = name.length == 0 ? OPTION_POSITIONAL : str_is(name, "{}") ? OPTION_BODY : 0;
    struct option_walk w = option_walk(table);
    while (option_next(&w) && !(flag == 0 ? str_is(name, w.row.name) : (w.row.flags & flag) != 0))
        ;
    return w;
}

/* Applies the default of an option that was not given, or reports that a required option is missing. */
static bool apply_default(const struct option_row *option, const char *what, struct span place, void *target,
                          struct option_env *env)
{
    if (option->default_text != NULL) {
        /* Parsing a default never fails, and gets a list of diagnostics of its own, since the job's may be
         * full. */
        struct diag_list none;
        diag_list_init(&none, env->arena);
        struct ast *value = env->parse(env->arena, &none, str_from(option->default_text));
        leat_assert(value != NULL);
        struct binding b = {option, what, env};
        return bind_value(&b, value, (char *)target + option->offset);
    }
    if (option->type == OPTION_BLOCK_T && (option->flags & OPTION_REQUIRED) == 0)
        return option_bind(option->block, what, place, NULL, 0, (char *)target + option->offset, env);
    if ((option->flags & OPTION_REQUIRED) == 0)
        return true;
    bool is_value = (option->flags & OPTION_POSITIONAL) != 0;
    struct diag *d = diag_error(env->diags, DIAG_OPTION_MISSING, place, "%s needs %s`%s`", what,
                                is_value ? "a value: " : "", option->name);
    diag_hint(env->diags, d, "%s%s: %s", option_type_name(option),
              is_value ? ", directly after the name" : "", option->help);
    return false;
}

/* Reports an empty list for a required option: operators rely on at least one item. */
static bool check_not_empty(const struct binding *b, const struct ast *value)
{
    if ((b->option->flags & OPTION_REQUIRED) == 0 || value->tag != AST_LIST || value->count > 0)
        return true;
    struct diag *d = diag_error(b->env->diags, DIAG_OPTION_MISSING, value->span,
                                "`%s` of %s is an empty list", b->option->name, b->what);
    diag_hint(b->env->diags, d, "%s: %s", option_type_name(b->option), b->option->help);
    return false;
}

enum { OPTION_ROWS_MAX = 128 };

bool option_bind(const struct option *table, const char *what, struct span place,
                 const struct ast_entry *entries, uint32_t count, void *target, struct option_env *env)
{
    const struct ast_entry *given[OPTION_ROWS_MAX] = {0};
    bool is_good = true;
    for (uint32_t i = 0; i < count; i++) {
        struct option_walk w = find_row(table, entries[i].name);
        if (w.row.name == NULL) {
            unknown_option(table, what, &entries[i], env);
            is_good = false;
            continue;
        }
        uint32_t row = w.count - 1;
        leat_assert(row < OPTION_ROWS_MAX);
        if (given[row] != NULL) {
            struct diag *d = diag_error(env->diags, DIAG_OPTION_TWICE, entries[i].name_span,
                                        "`%s` is given twice to %s", w.row.name, what);
            diag_label(env->diags, d, given[row]->name_span, "first here");
            is_good = false;
            continue;
        }
        given[row] = &entries[i];
        struct binding b = {&w.row, what, env};
        if (entries[i].value == NULL)
            is_good = false; /* the parser has already reported the error */
        else
            is_good &= check_not_empty(&b, entries[i].value) &&
                       bind_value(&b, entries[i].value, (char *)target + w.row.offset);
    }
    for (struct option_walk w = option_walk(table); option_next(&w);)
        if (given[w.count - 1] == NULL)
            is_good &= apply_default(&w.row, what, place, target, env);
    return is_good;
}

bool column_resolve(struct column_ref *ref, const struct schema *schema, struct arena *arena,
                    struct diag_list *diags)
{
    ref->index = schema_find(schema, ref->name);
    if (ref->index >= 0)
        return true;
    struct diag *d =
        diag_error(diags, DIAG_NO_COLUMN, ref->span, "there is no column `%.*s` here", STR_ARGS(ref->name));
    const char **names = schema_names(arena, schema);
    const char *near = diag_nearest(ref->name, names, schema->count);
    if (near != NULL) {
        diag_hint(diags, d, "did you mean `%s`?", near);
        return false;
    }
    const char *all = schema->count > 0 ? names[0] : "none";
    for (uint32_t i = 1; i < schema->count && i < 20; i++)
        all = arena_printf(arena, "%s, %s", all, names[i]);
    diag_hint(diags, d, "the columns are: %s%s", all, schema->count > 20 ? ", ..." : "");
    return false;
}

bool columns_resolve(struct columns *refs, const struct schema *schema, struct arena *arena,
                     struct diag_list *diags)
{
    bool is_good = true;
    for (uint32_t i = 0; i < refs->count; i++)
        is_good &= column_resolve(&refs->items[i], schema, arena, diags);
    return is_good;
}

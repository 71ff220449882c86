/* Checks what a library declares before its callbacks are called; turns its option tables into leat's. */
#include "operators/user/user.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>

/* A job's options are written straight into the user's struct, so both layouts must agree. */
_Static_assert(sizeof(struct leat_text) == sizeof(struct str) &&
                   offsetof(struct leat_text, length) == offsetof(struct str, length),
               "texts lie alike");
_Static_assert(sizeof(struct leat_column_ref) == sizeof(struct column_ref) &&
                   offsetof(struct leat_column_ref, begin) == offsetof(struct column_ref, span) &&
                   offsetof(struct leat_column_ref, index) == offsetof(struct column_ref, index),
               "names of columns lie alike");
_Static_assert(sizeof(struct leat_column_refs) == sizeof(struct columns) &&
                   offsetof(struct leat_column_refs, count) == offsetof(struct columns, count),
               "lists of them lie alike");

static const struct {
    enum option_type type;
    size_t bytes;
} option_types[] = {
    [LEAT_OPTION_BOOL] = {OPTION_BOOL_T, sizeof(bool)},
    [LEAT_OPTION_INT] = {OPTION_INT_T, sizeof(int64_t)},
    [LEAT_OPTION_FLOAT] = {OPTION_FLOAT_T, sizeof(double)},
    [LEAT_OPTION_DURATION] = {OPTION_DURATION_T, sizeof(int64_t)},
    [LEAT_OPTION_TEXT] = {OPTION_TEXT_T, sizeof(struct leat_text)},
    [LEAT_OPTION_COLUMN] = {OPTION_COLUMN_T, sizeof(struct leat_column_ref)},
    [LEAT_OPTION_COLUMNS] = {OPTION_COLUMNS_T, sizeof(struct leat_column_refs)},
};

enum { OPTIONS_MAX = 64 };

const struct option *user_options(const struct leat_option *options, size_t base, struct arena *arena)
{
    uint32_t count = 0;
    while (options != NULL && options[count].name != NULL)
        count++;
    struct option *rows = arena_array(arena, struct option, count + 1);
    for (uint32_t i = 0; i < count; i++) {
        const struct leat_option *o = &options[i];
        rows[i].written =
            (struct option_row){.name = o->name,
                                .type = option_types[o->type].type,
                                .flags = ((o->flags & LEAT_REQUIRED) != 0 ? OPTION_REQUIRED : 0u) |
                                         ((o->flags & LEAT_POSITIONAL) != 0 ? OPTION_POSITIONAL : 0u),
                                .offset = base + o->offset,
                                .default_text = o->default_text,
                                .min_text = o->min_text,
                                .max_text = o->max_text,
                                .help = o->help};
    }
    return rows;
}

/* The first fault found in a library. */
struct checking {
    struct arena *arena;
    const char *wrong; /* the fault; NULL: none so far */
};

static bool is_name(const char *name)
{
    if (name == NULL || !(isalpha((unsigned char)name[0]) || name[0] == '_') || strlen(name) > 64)
        return false;
    for (; *name != '\0'; name++)
        if (!isalnum((unsigned char)*name) && *name != '_')
            return false;
    return true;
}

/* Keeps the message, unless a fault was found before. */
static void LEAT_PRINTF(2, 3) say(struct checking *c, const char *format, ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    c->wrong = c->wrong != NULL ? c->wrong : arena_strdup(c->arena, text);
}

static bool is_literal(int type, const char *text)
{
    int64_t integer;
    double real;
    struct str s = str_from(text);
    switch (type) {
    case LEAT_OPTION_BOOL: return str_is(s, "true") || str_is(s, "false");
    case LEAT_OPTION_INT: return literal_int(s, &integer);
    case LEAT_OPTION_FLOAT: return literal_float(s, &real) || literal_int(s, &integer);
    case LEAT_OPTION_DURATION: return literal_duration(s, &integer);
    case LEAT_OPTION_TEXT:
        return s.length >= 2 && s.data[0] == '"' && s.data[s.length - 1] == '"' &&
               memchr(s.data + 1, '"', s.length - 2) == NULL && memchr(s.data, '\\', s.length) == NULL;
    default: return false;
    }
}

static void check_option(struct checking *c, const struct leat_operator *op, const struct leat_option *o)
{
    const char *const texts[] = {o->default_text, o->min_text, o->max_text};
    if (!is_name(o->name) || o->type < 0 || o->type > LEAT_OPTION_COLUMNS || o->help == NULL) {
        say(c, "an option of operator `%s` has no proper name, type or help", op->name);
        return;
    }
    size_t bytes = option_types[o->type].bytes;
    if (o->offset > op->size || bytes > op->size - o->offset)
        say(c, "option `%s` of operator `%s` lies outside of its struct", o->name, op->name);
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++)
        if (texts[i] != NULL && !is_literal(o->type, texts[i]))
            say(c,
                "option `%s` of operator `%s` has the default or bound `%s`, which is not a value of "
                "its type",
                o->name, op->name, texts[i]);
}

static void check_operator(struct checking *c, const struct leat_operator *op)
{
    if (!is_name(op->name) || op->summary == NULL || op->process == NULL) {
        say(c, "operator `%s` lacks a proper name, a summary or `process`", op->name == NULL ? "" : op->name);
        return;
    }
    if ((op->snapshot == NULL) != (op->restore == NULL))
        say(c, "operator `%s` has only one of `snapshot` and `restore`", op->name);
    if ((op->give == NULL) != (op->take == NULL))
        say(c, "operator `%s` has only one of `give` and `take`", op->name);
    if (op->give != NULL && (op->snapshot == NULL || op->key == NULL))
        say(c, "operator `%s` has `give`, but no key, or no `snapshot`", op->name);
    if (op->order != LEAT_ALL_ROWS && op->order != LEAT_BY_ROW)
        say(c, "operator `%s` has an order that this leat does not know", op->name);
    bool has_key = op->key == NULL;
    uint32_t count = 0;
    for (const struct leat_option *o = op->options; o != NULL && o->name != NULL; o++, count++) {
        if (count == OPTIONS_MAX) {
            say(c, "operator `%s` has more than %d options", op->name, OPTIONS_MAX);
            return;
        }
        check_option(c, op, o);
        has_key |= op->key != NULL && strcmp(o->name, op->key) == 0 && o->type == LEAT_OPTION_COLUMNS &&
                   (o->flags & LEAT_REQUIRED) != 0;
    }
    if (!has_key)
        say(c, "the key `%s` of operator `%s` is not the name of a required option of columns", op->key,
            op->name);
}

static void check_function(struct checking *c, const struct leat_function *f)
{
    static const char letters[] = "biftym";
    if (!is_name(f->name) || f->call == NULL || f->arguments == NULL || f->signature == NULL ||
        f->summary == NULL || f->example == NULL) {
        say(c, "function `%s` lacks a proper name, `call`, its arguments or its help",
            f->name == NULL ? "" : f->name);
        return;
    }
    if (f->arguments[0] == '\0' || strspn(f->arguments, letters) != strlen(f->arguments) ||
        strlen(f->arguments) > 16)
        say(c, "function `%s` has the arguments `%s`, but 1 to 16 of the letters %s are expected", f->name,
            f->arguments, letters);
    if (f->result == '\0' || strchr(letters, f->result) == NULL)
        say(c, "function `%s` has a result of an unknown type", f->name);
    if ((f->flags & ~(unsigned)LEAT_SEES_NULLS) != 0)
        say(c, "function `%s` has flags that this leat does not know", f->name);
}

static bool is_taken(const struct registry *registry, const char *name, bool is_function)
{
    for (const struct function_help *f = registry->functions; is_function && f->name != NULL; f++)
        if (strcmp(f->name, name) == 0)
            return true;
    return !is_function && registry_operator(registry, str_from(name)) != NULL;
}

static void check_names(struct checking *c, const struct leat_library *library,
                        const struct registry *registry)
{
    for (const struct leat_function *f = library->functions; f != NULL && f->name != NULL; f++) {
        if (is_taken(registry, f->name, true))
            say(c, "there is a function `%s` already", f->name);
        for (const struct leat_function *other = library->functions; other < f; other++)
            if (strcmp(f->name, other->name) == 0)
                say(c, "it has two functions `%s`", f->name);
    }
    for (const struct leat_operator *op = library->operators; op != NULL && op->name != NULL; op++) {
        if (is_taken(registry, op->name, false))
            say(c, "there is an operator `%s` already", op->name);
        for (const struct leat_operator *other = library->operators; other < op; other++)
            if (strcmp(op->name, other->name) == 0)
                say(c, "it has two operators `%s`", op->name);
    }
}

bool user_check(const struct user_library *library, const struct registry *registry, struct span span,
                struct arena *arena, struct diag_list *diags)
{
    const struct leat_library *l = library->library;
    struct checking c = {.arena = arena};
    if (l->name == NULL)
        say(&c, "it has no name");
    for (const struct leat_function *f = l->functions; c.wrong == NULL && f != NULL && f->name != NULL; f++)
        check_function(&c, f);
    for (const struct leat_operator *op = l->operators; c.wrong == NULL && op != NULL && op->name != NULL;
         op++)
        check_operator(&c, op);
    if (c.wrong == NULL)
        check_names(&c, l, registry);
    if (c.wrong == NULL)
        return true;
    struct diag *d = diag_error(diags, DIAG_BAD_LIBRARY, span, "the library `%s` cannot be used: %s",
                                library->path, c.wrong);
    diag_hint(diags, d, "leat.h describes each member");
    return false;
}

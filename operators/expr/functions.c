/* Calls: the table of functions.def, choice of an overload, special forms, aggregates. */
#include "operators/expr/node.h"

struct overload {
    const char *name, *args;
    char result;
    expr_kernel *kernel;
    expr_prepare *prepare;
    unsigned flags;
    const char *fails;
    const void *aux; /* the node's aux, if there is no `prepare` */
};

static const struct overload overloads[] = {
#define FUNCTION(name, signature, summary, example)
#define AGGREGATE(name, signature, summary, example)
#define OVERLOAD(name, args, result, kernel, prepare, flags, fails)                                          \
    {name, args, result, kernel, prepare, flags, fails, NULL},
#define SPECIAL(name, build)
#include "operators/expr/functions.def"
#undef OVERLOAD
#undef SPECIAL
};

static const struct {
    const char *name;
    expr_special *build;
} specials[] = {
#define OVERLOAD(name, args, result, kernel, prepare, flags, fails)
#define SPECIAL(name, build) {name, build},
#include "operators/expr/functions.def"
#undef FUNCTION
#undef AGGREGATE
#undef SPECIAL
};

const struct function_help expr_functions[] = {
#define FUNCTION(name, signature, summary, example)  {name, signature, summary, example, false},
#define AGGREGATE(name, signature, summary, example) {name, signature, summary, example, true},
#define SPECIAL(name, build)
#include "operators/expr/functions.def"
#undef FUNCTION
#undef AGGREGATE
#undef OVERLOAD
#undef SPECIAL
    {0},
};

const struct expr_extra *(*expr_find_extra)(struct str name);

static const struct function_help *find_help(struct str name, bool is_aggregate)
{
    for (const struct function_help *f = expr_functions; f->name != NULL; f++)
        if (f->is_aggregate == is_aggregate && str_is(name, f->name))
            return f;
    const struct expr_extra *extra = is_aggregate || expr_find_extra == NULL ? NULL : expr_find_extra(name);
    return extra == NULL ? NULL : &extra->help;
}

bool expr_is_aggregate(const struct ast *ast)
{
    return ast->tag == AST_CALL && find_help(ast->text, true) != NULL;
}

bool expr_has_aggregate(const struct ast *ast)
{
    if (expr_is_aggregate(ast))
        return true;
    for (uint32_t i = 0; i < ast->count; i++)
        if (ast->children[i] != NULL && expr_has_aggregate(ast->children[i]))
            return true;
    return false;
}

/* --- Overloads --- */

enum { NO_MATCH = 1000 };

/* The cost of an argument: 0 if it has the letter's type, 1 if it is an int for a float, else NO_MATCH. */
static int letter_cost(char letter, const struct expr_node *node)
{
    int tag = (int)node->type.tag;
    if (tag == TYPE_UNKNOWN)
        return letter >= 'A' && letter <= 'Z' ? NO_MATCH : 0;
    int element = tag == TYPE_LIST ? (int)node->type.element->tag : -1;
    switch (letter) {
    case 'b': return tag == TYPE_BOOL ? 0 : NO_MATCH;
    case 'i': return tag == TYPE_INT ? 0 : NO_MATCH;
    case 'f': return tag == TYPE_FLOAT ? 0 : tag == TYPE_INT ? 1 : NO_MATCH;
    case 't': return tag == TYPE_TEXT ? 0 : NO_MATCH;
    case 'y': return tag == TYPE_BYTES ? 0 : NO_MATCH;
    case 'm': return tag == TYPE_TIME ? 0 : NO_MATCH;
    case '*': return tag < TYPE_LIST ? 0 : NO_MATCH;
    case 'L': return tag == TYPE_LIST ? 0 : NO_MATCH;
    case 'I': return element == TYPE_INT ? 0 : NO_MATCH;
    case 'F': return element == TYPE_FLOAT ? 0 : NO_MATCH;
    case 'T': return element == TYPE_TEXT ? 0 : NO_MATCH;
    }
    leat_assert(false && "a letter of functions.def");
    return NO_MATCH;
}

static struct type letter_type(struct expr_compiler *c, char letter)
{
    static const char letters[] = "biftym"; /* in the order of enum type_tag */
    const char *at = strchr(letters, letter);
    if (at != NULL && letter != '\0')
        return type_of((enum type_tag)(at - letters));
    leat_assert(letter == 'T');
    return expr_list_of(c, type_of(TYPE_TEXT));
}

/* The letter of argument i, and whether the argument must be a constant; 0 if there is no such argument. */
static char letter_at(const char *args, uint32_t i, bool *is_constant)
{
    char letter = 0;
    for (; *args != '\0'; args++) {
        if (*args == '+')
            return letter;
        if (*args == '=')
            continue;
        letter = *args;
        *is_constant = args[1] == '=';
        if (i-- == 0)
            return letter;
    }
    return 0;
}

/* The cost of calling the overload with these arguments, or NO_MATCH. */
static int overload_cost(const struct overload *o, struct expr_node *const *args, uint32_t count)
{
    int cost = 0;
    bool is_constant;
    for (uint32_t i = 0; i < count; i++) {
        char letter = letter_at(o->args, i, &is_constant);
        cost += letter == 0 ? NO_MATCH : letter_cost(letter, args[i]);
        if (cost >= NO_MATCH)
            return NO_MATCH;
    }
    bool is_variadic = strchr(o->args, '+') != NULL;
    if (!is_variadic && letter_at(o->args, count, &is_constant) != 0)
        return NO_MATCH;
    uint32_t least = 0;
    for (const char *p = o->args; *p != '\0'; p++)
        least += *p != '=' && *p != '+';
    return count < least ? NO_MATCH : cost;
}

static struct expr_node *call_overload(struct expr_compiler *c, const struct ast *ast,
                                       const struct overload *o, struct expr_node **args, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        bool is_constant = false;
        char letter = letter_at(o->args, i, &is_constant);
        if (strchr("biftym", letter) != NULL)
            args[i] = expr_convert(c, args[i], letter_type(c, letter));
        else if ((int)args[i]->type.tag == TYPE_UNKNOWN)
            args[i] = expr_null(c, args[i]->ast, type_of(TYPE_INT));
        if (is_constant && (args[i]->constant == NULL || !column_is_valid(&args[i]->constant->column, 0))) {
            struct diag *d = diag_error(c->diags, DIAG_BAD_ARGUMENTS, args[i]->ast->span,
                                        "argument %u of `%s` must be a constant", i + 1, o->name);
            diag_hint(c->diags, d, "%s", find_help(str_from(o->name), false)->signature);
            return NULL;
        }
    }
    struct type type = o->result == '?' ? type_of(TYPE_INT) : letter_type(c, o->result);
    struct expr_node *node = expr_node_new(c, ast, type, args, count);
    node->aux = o->aux;
    if (o->prepare != NULL && !o->prepare(c, node))
        return NULL;
    return expr_strict(c, node, o->kernel, o->flags, o->fails);
}

static struct expr_node *wrong_arguments(struct expr_compiler *c, const struct ast *ast, const char *name,
                                         struct expr_node *const *args, uint32_t count)
{
    const char *types = "nothing";
    for (uint32_t i = 0; i < count; i++)
        types = arena_printf(c->arena, "%s%s%s", i > 0 ? types : "", i > 0 ? ", " : "",
                             expr_type_name(c, &args[i]->type));
    const struct function_help *help = find_help(str_from(name), false);
    struct diag *d =
        diag_error(c->diags, DIAG_BAD_ARGUMENTS, ast->span, "`%s` cannot take (%s)", name, types);
    diag_hint(c->diags, d, "the function is %s: %s", help->signature, help->summary);
    return NULL;
}

struct expr_node *expr_call_named(struct expr_compiler *c, const struct ast *ast, const char *name,
                                  struct expr_node **args, uint32_t count)
{
    for (size_t i = 0; i < ARRAY_COUNT(specials); i++)
        if (strcmp(specials[i].name, name) == 0)
            return specials[i].build(c, ast, args, count);
    const struct overload *best = NULL;
    int best_cost = NO_MATCH;
    for (size_t i = 0; i < ARRAY_COUNT(overloads); i++) {
        if (strcmp(overloads[i].name, name) != 0)
            continue;
        int cost = overload_cost(&overloads[i], args, count);
        if (cost < best_cost) {
            best = &overloads[i];
            best_cost = cost;
        }
    }
    const struct expr_extra *extra = expr_find_extra == NULL ? NULL : expr_find_extra(str_from(name));
    struct overload only;
    if (best == NULL && extra != NULL) {
        only = (struct overload){extra->help.name, extra->args, extra->result, extra->kernel, NULL,
                                 extra->flags,     "it failed", extra->aux};
        best = overload_cost(&only, args, count) < NO_MATCH ? &only : NULL;
    }
    return best == NULL ? wrong_arguments(c, ast, name, args, count)
                        : call_overload(c, ast, best, args, count);
}

/* --- Calls --- */

static struct expr_node *unknown_function(struct expr_compiler *c, const struct ast *ast)
{
    const char *names[ARRAY_COUNT(expr_functions)];
    size_t count = 0;
    for (const struct function_help *f = expr_functions; f->name != NULL; f++)
        names[count++] = f->name;
    struct span span = ast->text_span.end > ast->text_span.begin ? ast->text_span : ast->span;
    struct diag *d =
        diag_error(c->diags, DIAG_NO_FUNCTION, span, "there is no function `%.*s`", STR_ARGS(ast->text));
    const char *near = diag_nearest(ast->text, names, count);
    if (near != NULL)
        diag_hint(c->diags, d, "did you mean `%s`?", near);
    else
        diag_hint(c->diags, d, "`leat help functions` lists the functions; `let` defines one of your own");
    return NULL;
}

static struct expr_node *misplaced_aggregate(struct expr_compiler *c, const struct ast *ast)
{
    struct diag *d = diag_error(c->diags, DIAG_BAD_AGGREGATE, ast->span,
                                "`%.*s` is an aggregate, which cannot be used here", STR_ARGS(ast->text));
    diag_hint(c->diags, d, "aggregates are used in the { } of `feature` and `window`, for example %s",
              find_help(ast->text, true)->example);
    return NULL;
}

struct expr_node *expr_build_call(struct expr_compiler *c, const struct ast *ast)
{
    bool is_aggregate = expr_is_aggregate(ast);
    const struct function_help *help = find_help(ast->text, false);
    if (help == NULL)
        return is_aggregate ? misplaced_aggregate(c, ast) : unknown_function(c, ast);
    if (ast->count > EXPR_ARGS_MAX) {
        diag_error(c->diags, DIAG_BAD_ARGUMENTS, ast->span, "a function has at most %d arguments",
                   EXPR_ARGS_MAX);
        return NULL;
    }
    struct expr_node *args[EXPR_ARGS_MAX];
    bool is_good = true;
    for (uint32_t i = 0; i < ast->count; i++)
        is_good &= (args[i] = expr_build(c, ast->children[i])) != NULL;
    if (!is_good)
        return NULL;
    if (is_aggregate && (ast->count == 0 || args[0]->type.tag != TYPE_LIST))
        return misplaced_aggregate(c, ast);
    return expr_call_named(c, ast, help->name, args, ast->count);
}

/* --- Special forms --- */

static bool check_scalar(struct expr_compiler *c, const struct ast *ast, const struct type *type)
{
    if (type->tag < TYPE_LIST)
        return true;
    diag_error(c->diags, DIAG_BAD_ARGUMENTS, ast->span, "`%.*s` cannot choose between lists",
               STR_ARGS(ast->text));
    return false;
}

struct expr_node *special_coalesce(struct expr_compiler *c, const struct ast *ast, struct expr_node **args,
                                   uint32_t count)
{
    struct type type;
    if (count < 1)
        return wrong_arguments(c, ast, "coalesce", args, count);
    if (!expr_unify(c, ast, "the values", args, count, &type) || !check_scalar(c, ast, &type))
        return NULL;
    return expr_lazy(c, ast, expr_evaluate_coalesce, type, args, count);
}

struct expr_node *special_if_null(struct expr_compiler *c, const struct ast *ast, struct expr_node **args,
                                  uint32_t count)
{
    return count != 2 ? wrong_arguments(c, ast, "if_null", args, count)
                      : special_coalesce(c, ast, args, count);
}

/* null_if(a, b). Arguments of the kernel: a, and the bool a = b. */
static void kernel_null_if(struct expr_call *call)
{
    const struct expr_vec *a = &call->args[0], *equal = &call->args[1];
    struct column *out = &call->out->column;
    bool is_bool = out->tag == TYPE_BOOL;
    out->heap = a->column.heap;
    for (uint32_t i = 0; i < call->rows.count; i++) {
        uint32_t row = rows_at(&call->rows, i);
        bool is_equal = vec_is_valid(equal, row) && equal->column.bools[row & equal->mask] != 0;
        if (is_equal || !vec_is_valid(a, row)) {
            call_null(call, row);
            continue;
        }
        if (is_bool)
            out->bools[row] = a->column.bools[row & a->mask];
        else
            out->ints[row] = a->column.ints[row & a->mask];
    }
}

struct expr_node *special_null_if(struct expr_compiler *c, const struct ast *ast, struct expr_node **args,
                                  uint32_t count)
{
    struct type type;
    if (count != 2)
        return wrong_arguments(c, ast, "null_if", args, count);
    if (!expr_unify(c, ast, "the values", args, count, &type) || !check_scalar(c, ast, &type))
        return NULL;
    struct expr_node *equal = expr_compare(c, ast, AST_OP_EQUAL, args[0], args[1]);
    if (equal == NULL)
        return NULL;
    struct expr_node *both[] = {args[0], equal};
    struct expr_node *node = expr_node_new(c, ast, type, both, 2);
    return expr_strict(c, node, kernel_null_if, EXPR_OWN_NULLS | EXPR_SHARES, NULL);
}

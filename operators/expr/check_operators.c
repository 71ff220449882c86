/* Type checks of operators, `case` and `in`. */
#include "core/buffer.h"
#include "operators/expr/node.h"

enum { CONCAT_SHOWN_MAX = 100 };

static const char *const operator_texts[] = {
    [AST_OP_NEGATE] = "-",
    [AST_OP_NOT] = "not",
    [AST_OP_IS_NULL] = "is null",
    [AST_OP_ADD] = "+",
    [AST_OP_SUBTRACT] = "-",
    [AST_OP_MULTIPLY] = "*",
    [AST_OP_DIVIDE] = "/",
    [AST_OP_MODULO] = "%",
    [AST_OP_EQUAL] = "=",
    [AST_OP_NOT_EQUAL] = "!=",
    [AST_OP_LESS] = "<",
    [AST_OP_LESS_EQUAL] = "<=",
    [AST_OP_GREATER] = ">",
    [AST_OP_GREATER_EQUAL] = ">=",
    [AST_OP_AND] = "and",
    [AST_OP_OR] = "or",
    [AST_OP_IN] = "in",
    [AST_OP_NOT_IN] = "not in",
    [AST_OP_IS_NOT_NULL] = "is not null",
};

struct arithmetic {
    expr_kernel *kernels[2]; /* int, float */
    const char *fails;       /* int only */
};

static const struct arithmetic arithmetic[] = {
    [AST_OP_ADD] = {{kernel_add_int, kernel_add_float}, "integer overflow"},
    [AST_OP_SUBTRACT] = {{kernel_subtract_int, kernel_subtract_float}, "integer overflow"},
    [AST_OP_MULTIPLY] = {{kernel_multiply_int, kernel_multiply_float}, "integer overflow"},
    [AST_OP_DIVIDE] = {{kernel_divide_int, kernel_divide_float}, "integer division by zero"},
    [AST_OP_MODULO] = {{kernel_modulo_int, kernel_modulo_float}, "integer division by zero"},
};

/* The whole sum that the node `part` of the tree `at` belongs to: `a + "-" + b` is two nodes, and this
 * returns the outer one. NULL if `part` is not in the tree. */
static const struct ast *whole_sum(const struct ast *at, const struct ast *part)
{
    const struct ast *found = at == part ? at : NULL;
    for (uint32_t i = 0; found == NULL && i < at->count; i++) {
        found = whole_sum(at->children[i], part);
        if (found != NULL && found == at->children[i] && at->tag == AST_BINARY && at->op == AST_OP_ADD)
            found = at;
    }
    for (uint32_t i = 0; found == NULL && i < at->entries_count; i++)
        found = whole_sum(at->entries[i].value, part);
    return found;
}

/* The type of a term: known for the refused operands, columns and numbers; any other term counts as text. */
static enum type_tag term_type(const struct expr_compiler *c, const struct ast *term,
                               const struct expr_node *a, const struct expr_node *b)
{
    int column = term->tag == AST_NAME ? schema_find(c->schema, term->text) : -1;
    if (term == a->ast || term == b->ast)
        return (term == a->ast ? a : b)->type.tag;
    if (column >= 0)
        return c->schema->fields[column].type.tag;
    return term->tag == AST_INT ? TYPE_INT : term->tag == AST_FLOAT ? TYPE_FLOAT : TYPE_TEXT;
}

/* Prints the sum as a call that users can copy into the job: concat(a, "-", text(b)). Returns false if a term
 * cannot become text. */
static bool print_concat(struct expr_compiler *c, struct byte_buffer *out, const struct ast *sum,
                         const struct expr_node *a, const struct expr_node *b)
{
    if (sum->tag == AST_BINARY && sum->op == AST_OP_ADD) {
        bool has_left = print_concat(c, out, sum->children[0], a, b);
        buffer_append(out, ", ", 2);
        return print_concat(c, out, sum->children[1], a, b) && has_left;
    }
    enum type_tag type = term_type(c, sum, a, b);
    if (type != TYPE_TEXT)
        buffer_append(out, "text(", 5);
    ast_print(out, sum);
    if (type != TYPE_TEXT)
        buffer_append(out, ")", 1);
    return type != TYPE_LIST && type != TYPE_RECORD;
}

static void hint_concat(struct expr_compiler *c, struct diag *d, const struct ast *ast,
                        const struct expr_node *a, const struct expr_node *b)
{
    struct byte_buffer joined = {0};
    const struct ast *sum = whole_sum(c->root, ast);
    bool is_good = print_concat(c, &joined, sum == NULL ? ast : sum, a, b);
    if (is_good && joined.length <= CONCAT_SHOWN_MAX)
        diag_hint(c->diags, d, "texts are joined by `concat`: write `concat(%.*s)`", (int)joined.length,
                  joined.data);
    else
        diag_hint(c->diags, d, "texts are joined by concat(a, b, ...); a number becomes text by text(x)");
    buffer_free(&joined);
}

static struct expr_node *wrong_operands(struct expr_compiler *c, const struct ast *ast,
                                        const struct expr_node *a, const struct expr_node *b)
{
    struct diag *d =
        diag_error(c->diags, DIAG_TYPE_CLASH, ast->span, "`%s` cannot take %s and %s",
                   operator_texts[ast->op], expr_type_name(c, &a->type), expr_type_name(c, &b->type));
    diag_label(c->diags, d, a->ast->span, "this is %s", expr_type_name(c, &a->type));
    diag_label(c->diags, d, b->ast->span, "this is %s", expr_type_name(c, &b->type));
    bool is_time = a->type.tag == TYPE_TIME || b->type.tag == TYPE_TIME;
    if (ast->op == AST_OP_ADD && !is_time && (a->type.tag == TYPE_TEXT || b->type.tag == TYPE_TEXT))
        hint_concat(c, d, ast, a, b);
    else if (ast->op == AST_OP_ADD && (a->type.tag == TYPE_TEXT || b->type.tag == TYPE_TEXT))
        diag_hint(c->diags, d, "time + duration: `ts + 1h`; texts are joined by concat(text(ts), \"-\", b)");
    else if (a->type.tag == TYPE_TEXT || b->type.tag == TYPE_TEXT)
        diag_hint(c->diags, d, "a text becomes a number by int(x) or float(x), a time by time(x)");
    else if (is_time)
        diag_hint(c->diags, d, "with times there are: time - time, time + duration, time - duration");
    else if (a->type.tag == TYPE_BOOL || b->type.tag == TYPE_BOOL)
        diag_hint(c->diags, d, "a bool becomes 0 or 1 by int(x)");
    return NULL;
}

/* time - time is int; time + int, int + time, time - int are time. Returns false for other operands. */
static bool time_result(enum ast_operator op, enum type_tag a, enum type_tag b, enum type_tag *result)
{
    if (op == AST_OP_SUBTRACT && a == TYPE_TIME && b == TYPE_TIME)
        *result = TYPE_INT;
    else if ((op == AST_OP_ADD || op == AST_OP_SUBTRACT) && a == TYPE_TIME && b == TYPE_INT)
        *result = TYPE_TIME;
    else if (op == AST_OP_ADD && a == TYPE_INT && b == TYPE_TIME)
        *result = TYPE_TIME;
    else
        return false;
    return true;
}

static struct expr_node *build_arithmetic(struct expr_compiler *c, const struct ast *ast, struct expr_node *a,
                                          struct expr_node *b)
{
    const struct arithmetic *row = &arithmetic[ast->op];
    struct expr_node *args[] = {a, b};
    enum type_tag result;
    if ((int)a->type.tag == TYPE_UNKNOWN || (int)b->type.tag == TYPE_UNKNOWN) {
        struct type common;
        if (!expr_unify(c, ast, "both sides", args, 2, &common))
            return NULL;
    }
    if (time_result(ast->op, args[0]->type.tag, args[1]->type.tag, &result))
        return expr_strict(c, expr_node_new(c, ast, type_of(result), args, 2), row->kernels[0], 0,
                           "time out of range");
    if (!type_is_number(args[0]->type) || !type_is_number(args[1]->type))
        return wrong_operands(c, ast, args[0], args[1]);
    bool is_float = args[0]->type.tag == TYPE_FLOAT || args[1]->type.tag == TYPE_FLOAT;
    struct type type = type_of(is_float ? TYPE_FLOAT : TYPE_INT);
    for (int i = 0; i < 2; i++)
        args[i] = expr_convert(c, args[i], type);
    struct expr_node *node = expr_node_new(c, ast, type, args, 2);
    if (ast->op == AST_OP_DIVIDE && !is_float)
        node->aux = expr_reason(c, ast, "integer overflow");
    return expr_strict(c, node, row->kernels[is_float], 0, is_float ? NULL : row->fails);
}

/* Comparisons by kind of value; a > b is computed as b < a. */
enum compare_kind { COMPARE_INT, COMPARE_FLOAT, COMPARE_BOOL, COMPARE_TEXT, COMPARE_KINDS };

static const struct {
    expr_kernel *kernels[COMPARE_KINDS];
    bool is_swapped;
} comparisons[] = {
    [AST_OP_EQUAL] = {{kernel_equal_int, kernel_equal_float, kernel_equal_bool, kernel_equal_text}, false},
    [AST_OP_NOT_EQUAL] = {{kernel_not_equal_int, kernel_not_equal_float, kernel_not_equal_bool,
                           kernel_not_equal_text},
                          false},
    [AST_OP_LESS] = {{kernel_less_int, kernel_less_float, kernel_less_bool, kernel_less_text}, false},
    [AST_OP_LESS_EQUAL] = {{kernel_less_equal_int, kernel_less_equal_float, kernel_less_equal_bool,
                            kernel_less_equal_text},
                           false},
    [AST_OP_GREATER] = {{kernel_less_int, kernel_less_float, kernel_less_bool, kernel_less_text}, true},
    [AST_OP_GREATER_EQUAL] = {{kernel_less_equal_int, kernel_less_equal_float, kernel_less_equal_bool,
                               kernel_less_equal_text},
                              true},
};

static bool is_null_literal(const struct expr_node *node)
{
    return node->ast->tag == AST_NULL;
}

struct expr_node *expr_compare(struct expr_compiler *c, const struct ast *ast, enum ast_operator op,
                               struct expr_node *a, struct expr_node *b)
{
    static const enum compare_kind kinds[] = {COMPARE_BOOL, COMPARE_INT,  COMPARE_FLOAT,
                                              COMPARE_TEXT, COMPARE_TEXT, COMPARE_INT};
    bool is_known = (int)a->type.tag != TYPE_UNKNOWN && (int)b->type.tag != TYPE_UNKNOWN;
    bool are_numbers = type_is_number(a->type) && type_is_number(b->type);
    if (is_known && !are_numbers && (!type_equal(&a->type, &b->type) || a->type.tag >= TYPE_LIST))
        return wrong_operands(c, ast, a, b);
    struct expr_node *args[] = {a, b};
    struct type type;
    if (!expr_unify(c, ast, "both sides", args, 2, &type))
        return NULL;
    if (type.tag >= TYPE_LIST)
        return wrong_operands(c, ast, args[0], args[1]);
    if (is_null_literal(a) || is_null_literal(b)) {
        struct diag *d =
            diag_warning(c->diags, DIAG_TYPE_CLASH, ast->span, "a comparison with null is never true");
        diag_hint(c->diags, d, "write `... is null` or `... is not null`");
    }
    bool is_swapped = comparisons[op].is_swapped;
    return expr_strict2(c, ast, type_of(TYPE_BOOL), comparisons[op].kernels[kinds[type.tag]],
                        type.tag == TYPE_TEXT || type.tag == TYPE_BYTES ? EXPR_LIVE : 0, args[is_swapped],
                        args[!is_swapped]);
}

static struct expr_node *build_logic(struct expr_compiler *c, const struct ast *ast, struct expr_node *a,
                                     struct expr_node *b)
{
    struct expr_node *args[] = {a, b};
    for (int i = 0; i < 2; i++) {
        struct expr_node *as_bool = expr_convert(c, args[i], type_of(TYPE_BOOL));
        if (as_bool == NULL) {
            struct diag *d =
                diag_error(c->diags, DIAG_TYPE_CLASH, args[i]->ast->span, "`%s` takes bools, but this is %s",
                           operator_texts[ast->op], expr_type_name(c, &args[i]->type));
            diag_hint(c->diags, d, "compare the value with another, for example `... > 0`");
            return NULL;
        }
        args[i] = as_bool;
    }
    return expr_lazy(c, ast, ast->op == AST_OP_AND ? expr_evaluate_and : expr_evaluate_or, type_of(TYPE_BOOL),
                     args, 2);
}

static struct expr_node *negate_bool(struct expr_compiler *c, const struct ast *ast, struct expr_node *node)
{
    return expr_strict1(c, ast, type_of(TYPE_BOOL), kernel_not, 0, node);
}

/* x in [a, b]: a set if all items are constants, else a chain of comparisons. */
static struct expr_node *build_in_items(struct expr_compiler *c, const struct ast *ast, struct expr_node *x)
{
    const struct ast *list = ast->children[1];
    uint32_t count = list->count;
    struct expr_node **nodes = arena_array(c->arena, struct expr_node *, count + 1);
    bool is_good = true, is_constant = true;
    nodes[0] = x;
    for (uint32_t i = 0; i < count; i++) {
        nodes[i + 1] = expr_build(c, list->children[i]);
        is_good &= nodes[i + 1] != NULL;
    }
    struct type type;
    if (!is_good || !expr_unify(c, ast, "the values of `in`", nodes, count + 1, &type))
        return NULL;
    if (type.tag >= TYPE_LIST)
        return wrong_operands(c, ast, nodes[0], nodes[count]);
    for (uint32_t i = 1; i <= count; i++)
        is_constant &= nodes[i]->constant != NULL;
    if (is_constant) {
        struct expr_node *node = expr_node_new(c, ast, type_of(TYPE_BOOL), nodes, 1);
        node->aux = expr_set_new(c->arena, type, nodes + 1, count);
        return expr_strict(c, node, kernel_in_set, EXPR_LIVE, NULL);
    }
    struct expr_node *any = NULL;
    for (uint32_t i = 1; i <= count; i++) {
        struct expr_node *equal = expr_compare(c, ast, AST_OP_EQUAL, nodes[0], nodes[i]);
        struct expr_node *both[] = {any, equal};
        any = any == NULL ? equal : expr_lazy(c, ast, expr_evaluate_or, type_of(TYPE_BOOL), both, 2);
    }
    return any;
}

static struct expr_node *build_in(struct expr_compiler *c, const struct ast *ast)
{
    const struct ast *list = ast->children[1];
    struct expr_node *x = expr_build(c, ast->children[0]), *node = NULL;
    if (list->tag == AST_LIST) {
        node = x == NULL ? NULL : build_in_items(c, ast, x);
    } else {
        struct expr_node *values = expr_build(c, list);
        struct expr_node *args[] = {values, x};
        if (x != NULL && values != NULL)
            node = expr_call_named(c, ast, "contains", args, 2);
    }
    return node == NULL || ast->op == AST_OP_IN ? node : negate_bool(c, ast, node);
}

struct expr_node *expr_build_binary(struct expr_compiler *c, const struct ast *ast)
{
    if (ast->op == AST_OP_IN || ast->op == AST_OP_NOT_IN)
        return build_in(c, ast);
    struct expr_node *a = expr_build(c, ast->children[0]), *b = expr_build(c, ast->children[1]);
    if (a == NULL || b == NULL)
        return NULL;
    switch (ast->op) {
    case AST_OP_ADD:
    case AST_OP_SUBTRACT:
    case AST_OP_MULTIPLY:
    case AST_OP_DIVIDE:
    case AST_OP_MODULO: return build_arithmetic(c, ast, a, b);
    case AST_OP_AND:
    case AST_OP_OR: return build_logic(c, ast, a, b);
    default: return expr_compare(c, ast, ast->op, a, b);
    }
}

static struct expr_node *wrong_operand(struct expr_compiler *c, const struct ast *ast,
                                       const struct expr_node *a, const char *wanted)
{
    diag_error(c->diags, DIAG_TYPE_CLASH, ast->span, "`%s` takes %s, not %s", operator_texts[ast->op], wanted,
               expr_type_name(c, &a->type));
    return NULL;
}

struct expr_node *expr_build_unary(struct expr_compiler *c, const struct ast *ast)
{
    struct expr_node *a = expr_build(c, ast->children[0]);
    if (a == NULL)
        return NULL;
    bool is_unknown = (int)a->type.tag == TYPE_UNKNOWN;
    switch (ast->op) {
    case AST_OP_IS_NULL:
    case AST_OP_IS_NOT_NULL:
        if (is_unknown)
            a = expr_null(c, a->ast, type_of(TYPE_INT));
        return expr_strict1(c, ast, type_of(TYPE_BOOL),
                            ast->op == AST_OP_IS_NULL ? kernel_is_null : kernel_is_not_null, EXPR_OWN_NULLS,
                            a);
    case AST_OP_NOT: {
        struct expr_node *as_bool = expr_convert(c, a, type_of(TYPE_BOOL));
        return as_bool == NULL ? wrong_operand(c, ast, a, "a bool") : negate_bool(c, ast, as_bool);
    }
    default:
        if (is_unknown)
            a = expr_null(c, a->ast, type_of(TYPE_INT));
        if (!type_is_number(a->type))
            return wrong_operand(c, ast, a, "a number");
        bool is_float = a->type.tag == TYPE_FLOAT;
        return expr_strict(c, expr_node_new(c, ast, a->type, &a, 1),
                           is_float ? kernel_negate_float : kernel_negate_int, 0,
                           is_float ? NULL : "integer overflow");
    }
}

struct expr_node *expr_build_case(struct expr_compiler *c, const struct ast *ast)
{
    /* The order that expr_evaluate_case takes: conditions, values, `else` (a null if there is none). */
    uint32_t branches = ast->count / 2;
    struct expr_node **nodes = arena_array(c->arena, struct expr_node *, ast->count + 1);
    struct expr_node **values = nodes + branches;
    bool is_good = true;
    for (uint32_t i = 0; i < branches; i++) {
        struct expr_node *condition = expr_build(c, ast->children[2 * i]);
        nodes[i] = condition == NULL ? NULL : expr_convert(c, condition, type_of(TYPE_BOOL));
        if (condition != NULL && nodes[i] == NULL)
            diag_error(c->diags, DIAG_TYPE_CLASH, condition->ast->span,
                       "`when` needs a condition (bool), but this is %s",
                       expr_type_name(c, &condition->type));
        values[i] = expr_build(c, ast->children[2 * i + 1]);
        is_good &= nodes[i] != NULL && values[i] != NULL;
    }
    bool has_else = ast->count % 2 == 1;
    values[branches] = has_else ? expr_build(c, ast->children[ast->count - 1])
                                : expr_null(c, ast, (struct type){.tag = (enum type_tag)TYPE_UNKNOWN});
    struct type type;
    if (!is_good || values[branches] == NULL ||
        !expr_unify(c, ast, "the values of `case`", values, branches + 1, &type))
        return NULL;
    if (type.tag >= TYPE_LIST) {
        diag_error(c->diags, DIAG_TYPE_CLASH, ast->span, "`case` cannot choose between lists");
        return NULL;
    }
    return expr_lazy(c, ast, expr_evaluate_case, type, nodes, 2 * branches + 1);
}

/* Folds arithmetic over literals, so that `2 * days * 24h` is a duration, and concat of texts. A folded
 * literal equals the expression's value at run time; expressions that would fail at run time, or that would
 * be rounded then, are not folded. */
#include "lang/internal.h"

static bool is_whole(const struct ast *ast)
{
    return ast->tag == AST_INT || ast->tag == AST_DURATION || ast->tag == AST_SIZE;
}

static bool is_number(const struct ast *ast)
{
    return is_whole(ast) || ast->tag == AST_FLOAT;
}

static double as_float(const struct ast *ast)
{
    return ast->tag == AST_FLOAT ? ast->real : (double)ast->integer;
}

/* The tag of `a op b`; AST_NULL if the units do not fit together. */
static enum ast_tag result_tag(enum ast_operator op, const struct ast *a, const struct ast *b)
{
    bool is_float = a->tag == AST_FLOAT || b->tag == AST_FLOAT;
    if (is_float && a->tag != AST_INT && b->tag != AST_INT && a->tag != b->tag && op != AST_OP_MULTIPLY)
        return op == AST_OP_DIVIDE && b->tag == AST_FLOAT ? a->tag : AST_NULL;
    switch (op) {
    case AST_OP_ADD:
    case AST_OP_SUBTRACT:
        if (a->tag == b->tag)
            return a->tag;
        return is_float ? AST_FLOAT : AST_NULL;
    case AST_OP_MULTIPLY:
        if (a->tag == AST_DURATION || a->tag == AST_SIZE)
            return b->tag == AST_INT || b->tag == AST_FLOAT ? a->tag : AST_NULL;
        if (b->tag == AST_DURATION || b->tag == AST_SIZE)
            return b->tag;
        return is_float ? AST_FLOAT : AST_INT;
    case AST_OP_DIVIDE:
    case AST_OP_MODULO:
        if (is_float)
            return op == AST_OP_DIVIDE && (a->tag == AST_INT || a->tag == AST_FLOAT) ? AST_FLOAT : AST_NULL;
        if (b->tag == AST_INT)
            return a->tag;
        return a->tag == b->tag ? AST_INT : AST_NULL;
    default: return AST_NULL;
    }
}

static bool fold_whole(enum ast_operator op, int64_t a, int64_t b, bool is_exact, int64_t *result)
{
    switch (op) {
    case AST_OP_ADD: return !__builtin_add_overflow(a, b, result);
    case AST_OP_SUBTRACT: return !__builtin_sub_overflow(a, b, result);
    case AST_OP_MULTIPLY: return !__builtin_mul_overflow(a, b, result);
    case AST_OP_DIVIDE:
        if (b == 0 || (a == INT64_MIN && b == -1) || (is_exact && a % b != 0) ||
            (a % b != 0 && (a < 0 || b < 0)))
            return false;
        *result = a / b;
        return true;
    default:
        if (b <= 0 || a < 0)
            return false;
        *result = a % b;
        return true;
    }
}

static bool fold_float(enum ast_operator op, double a, double b, double *result)
{
    *result = op == AST_OP_ADD        ? a + b
              : op == AST_OP_SUBTRACT ? a - b
              : op == AST_OP_MULTIPLY ? a * b
                                      : a / b;
    return __builtin_isfinite(*result);
}

/* Computes the literal that `node` equals; false: it cannot be folded. */
static bool fold_value(const struct ast *node, struct ast *value)
{
    const struct ast *a = node->children[0];
    if (node->tag == AST_UNARY) {
        *value = (struct ast){.tag = a->tag, .real = -as_float(a)};
        return a->tag == AST_FLOAT || !__builtin_sub_overflow(INT64_C(0), a->integer, &value->integer);
    }
    const struct ast *b = node->children[1];
    enum ast_tag tag = result_tag(node->op, a, b);
    *value = (struct ast){.tag = tag};
    if (tag == AST_NULL)
        return false;
    if (tag == AST_FLOAT)
        return fold_float(node->op, as_float(a), as_float(b), &value->real);
    if (is_whole(a) && is_whole(b))
        return fold_whole(node->op, a->integer, b->integer, a->tag != AST_INT, &value->integer);
    /* 0.5 * 1h: folded only if the result is whole. */
    double real;
    if (!fold_float(node->op, as_float(a), as_float(b), &real) || !(real > -9e15 && real < 9e15) ||
        real != (double)(int64_t)real)
        return false;
    value->integer = (int64_t)real;
    return true;
}

static bool is_arithmetic(const struct ast *node)
{
    if (node->tag == AST_UNARY)
        return node->op == AST_OP_NEGATE;
    return node->tag == AST_BINARY && node->op >= AST_OP_ADD && node->op <= AST_OP_MODULO;
}

/* Folds concat("a", "b"), so that paths can be built from parameters; results over BYTES_MAX are left
 * for run time. */
static struct ast *fold_concat(struct arena *arena, struct ast *node)
{
    enum { BYTES_MAX = 4096 };
    size_t bytes = 0;
    bool has_origin = false;
    for (uint32_t i = 0; i < node->count; i++) {
        if (node->children[i]->tag != AST_TEXT || node->children[i]->text.length > BYTES_MAX - bytes)
            return node;
        bytes += node->children[i]->text.length;
        has_origin = has_origin || node->children[i]->origin.length > 0;
    }
    struct ast *folded = lang_node(arena, AST_TEXT, node->span);
    char *text = arena_alloc(arena, bytes + 1), *at = text;
    for (uint32_t i = 0; i < node->count; i++) {
        if (node->children[i]->text.length > 0)
            memcpy(at, node->children[i]->text.data, node->children[i]->text.length);
        at += node->children[i]->text.length;
    }
    folded->text = (struct str){text, bytes};
    if (has_origin)
        folded->origin = str_from(ast_text(arena, node));
    return folded;
}

/* Folds one node whose children are already folded. */
static struct ast *fold_node(struct arena *arena, struct ast *node)
{
    struct ast value;
    if (node->tag == AST_CALL && node->count > 0 && str_is(node->text, "concat"))
        return fold_concat(arena, node);
    if (!is_arithmetic(node) || !is_number(node->children[0]) ||
        (node->tag == AST_BINARY && !is_number(node->children[1])) || !fold_value(node, &value))
        return node;
    struct ast *folded = lang_node(arena, value.tag, node->span);
    if (value.tag == AST_FLOAT)
        folded->real = value.real;
    else
        folded->integer = value.integer;
    for (uint32_t i = 0; i < node->count; i++)
        if (node->children[i]->origin.length > 0)
            folded->origin = str_from(ast_text(arena, node));
    return folded;
}

struct ast *lang_fold(struct arena *arena, struct ast *node)
{
    struct ast *copy = NULL;
    for (uint32_t i = 0; i < node->count; i++) {
        struct ast *child = lang_fold(arena, node->children[i]);
        if (child == node->children[i])
            continue;
        if (copy == NULL) {
            copy = arena_copy(arena, node, sizeof(*node));
            copy->children = arena_copy(arena, node->children, node->count * sizeof(*node->children));
        }
        copy->children[i] = child;
    }
    bool has_own_entries = false;
    for (uint32_t i = 0; i < node->entries_count; i++) {
        struct ast *child = lang_fold(arena, node->entries[i].value);
        if (child == node->entries[i].value)
            continue;
        if (copy == NULL)
            copy = arena_copy(arena, node, sizeof(*node));
        if (!has_own_entries)
            copy->entries = arena_copy(arena, node->entries, node->entries_count * sizeof(*node->entries));
        has_own_entries = true;
        copy->entries[i].value = child;
    }
    return fold_node(arena, copy != NULL ? copy : node);
}

static bool is_constant_arithmetic(const struct ast *ast)
{
    if (is_number(ast))
        return true;
    if (!is_arithmetic(ast))
        return false;
    for (uint32_t i = 0; i < ast->count; i++)
        if (!is_constant_arithmetic(ast->children[i]))
            return false;
    return true;
}

const char *lang_fold_failure(const struct ast *ast)
{
    if (!is_arithmetic(ast) || !is_constant_arithmetic(ast))
        return NULL;
    for (uint32_t i = 0; i < ast->count; i++) {
        const char *reason = lang_fold_failure(ast->children[i]);
        if (reason != NULL)
            return reason;
    }
    if (ast->tag == AST_UNARY)
        return "the result does not fit into 64 bits";
    const struct ast *a = ast->children[0], *b = ast->children[1];
    enum ast_tag tag = result_tag(ast->op, a, b);
    if (tag == AST_NULL)
        return "these units cannot be combined";
    if ((ast->op == AST_OP_DIVIDE || ast->op == AST_OP_MODULO) && as_float(b) == 0)
        return "division by zero";
    if (tag == AST_FLOAT)
        return "the result is too large";
    bool is_rounding = ast->op == AST_OP_DIVIDE || ast->op == AST_OP_MODULO || !is_whole(a) || !is_whole(b);
    /* -7 / 2, for example: at run time the expression decides how to round. */
    if (is_rounding && tag == AST_INT)
        return NULL;
    return is_rounding ? "the result is not a whole number" : "the result does not fit into 64 bits";
}

const char *lang_param_type_name(enum param_type type)
{
    static const char *const names[] = {"int", "float", "bool", "text", "duration", "bytes"};
    return names[type];
}

struct ast *lang_literal(struct arena *arena, enum param_type type, struct str text, struct span span)
{
    static const enum ast_tag tags[] = {AST_INT, AST_FLOAT, AST_BOOL, AST_TEXT, AST_DURATION, AST_SIZE};
    struct ast *node = lang_node(arena, tags[type], span);
    bool is_good = true;
    switch (type) {
    case PARAM_INT: is_good = literal_int(text, &node->integer); break;
    case PARAM_FLOAT: is_good = literal_float(text, &node->real); break;
    case PARAM_BOOL:
        node->boolean = str_is(text, "true");
        is_good = node->boolean || str_is(text, "false");
        break;
    case PARAM_TEXT: node->text = text; break;
    case PARAM_DURATION: is_good = literal_duration(text, &node->integer); break;
    case PARAM_BYTES: is_good = literal_bytes(text, &node->integer); break;
    }
    return is_good ? node : NULL;
}

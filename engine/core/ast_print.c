/* The syntax tree as canonical text, and its comparison; part of core/ast.h. */
#include "core/ast.h"
#include "core/buffer.h"

#include <stdlib.h>

/* How tightly a node binds; an operand that binds less tightly than its operator gets parentheses. */
enum tightness {
    LOOSE,
    TIGHT_OR,
    TIGHT_AND,
    TIGHT_NOT,
    TIGHT_COMPARE,
    TIGHT_ADD,
    TIGHT_MULTIPLY,
    TIGHT_UNARY,
    TIGHT_WHOLE
};

static const struct {
    const char *text;
    enum tightness tightness;
} operators[] = {
    [AST_OP_NEGATE] = {"-", TIGHT_UNARY},
    [AST_OP_NOT] = {"not ", TIGHT_NOT},
    [AST_OP_IS_NULL] = {" is null", TIGHT_COMPARE},
    [AST_OP_IS_NOT_NULL] = {" is not null", TIGHT_COMPARE},
    [AST_OP_ADD] = {" + ", TIGHT_ADD},
    [AST_OP_SUBTRACT] = {" - ", TIGHT_ADD},
    [AST_OP_MULTIPLY] = {" * ", TIGHT_MULTIPLY},
    [AST_OP_DIVIDE] = {" / ", TIGHT_MULTIPLY},
    [AST_OP_MODULO] = {" % ", TIGHT_MULTIPLY},
    [AST_OP_EQUAL] = {" = ", TIGHT_COMPARE},
    [AST_OP_NOT_EQUAL] = {" != ", TIGHT_COMPARE},
    [AST_OP_LESS] = {" < ", TIGHT_COMPARE},
    [AST_OP_LESS_EQUAL] = {" <= ", TIGHT_COMPARE},
    [AST_OP_GREATER] = {" > ", TIGHT_COMPARE},
    [AST_OP_GREATER_EQUAL] = {" >= ", TIGHT_COMPARE},
    [AST_OP_AND] = {" and ", TIGHT_AND},
    [AST_OP_OR] = {" or ", TIGHT_OR},
    [AST_OP_IN] = {" in ", TIGHT_COMPARE},
    [AST_OP_NOT_IN] = {" not in ", TIGHT_COMPARE},
};

bool ast_is_reserved(struct str word)
{
    static const char *const words[] = {"and",  "or",    "not",  "in",   "is",   "between", "null",
                                        "true", "false", "case", "when", "then", "else",    "end"};
    for (size_t i = 0; i < ARRAY_COUNT(words); i++)
        if (str_is(word, words[i]))
            return true;
    return false;
}

static void append(struct byte_buffer *out, const char *text)
{
    buffer_append(out, text, strlen(text));
}

static void append_name(struct byte_buffer *out, struct str name)
{
    bool is_plain = name.length > 0 && !ast_is_reserved(name);
    for (size_t i = 0; i < name.length && is_plain; i++) {
        char c = name.data[i];
        is_plain =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (i > 0 && c >= '0' && c <= '9');
    }
    if (!is_plain)
        append(out, "`");
    buffer_append(out, name.data, name.length);
    if (!is_plain)
        append(out, "`");
}

static void append_text(struct byte_buffer *out, struct str text)
{
    append(out, "\"");
    for (size_t i = 0; i < text.length; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if (c == '"' || c == '\\')
            buffer_printf(out, "\\%c", c);
        else if (c == '\n')
            append(out, "\\n");
        else if (c == '\r')
            append(out, "\\r");
        else if (c == '\t')
            append(out, "\\t");
        else if (c < 0x20 || c == 0x7F)
            buffer_printf(out, "\\u{%X}", c);
        else
            buffer_append(out, &text.data[i], 1);
    }
    append(out, "\"");
}

/* Appends the fewest digits that read back as the same number, always recognisable as a float. */
static void append_float(struct byte_buffer *out, double value)
{
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    append(out, text);
    if (strpbrk(text, ".en") == NULL)
        append(out, ".0");
}

struct unit {
    const char *name;
    int64_t factor;
};

/* Appends the value in the largest unit that divides it; one day is written 24h, as windows usually are. */
static void append_unit(struct byte_buffer *out, int64_t value, const struct unit *units)
{
    while (value % units->factor != 0 || (units->factor == US_PER_DAY && value == US_PER_DAY))
        units++;
    buffer_printf(out, "%lld%s", (long long)(value / units->factor), units->name);
}

static void append_literal(struct byte_buffer *out, const struct ast *ast)
{
    static const struct unit durations[] = {{"d", US_PER_DAY},    {"h", US_PER_HOUR}, {"m", US_PER_MINUTE},
                                            {"s", US_PER_SECOND}, {"ms", 1000},       {"us", 1}};
    static const struct unit sizes[] = {
        {"TiB", INT64_C(1) << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}};
    if (ast->origin.length > 0) {
        buffer_append(out, ast->origin.data, ast->origin.length);
        return;
    }
    switch (ast->tag) {
    case AST_NULL: append(out, "null"); break;
    case AST_BOOL: append(out, ast->boolean ? "true" : "false"); break;
    case AST_INT: buffer_printf(out, "%lld", (long long)ast->integer); break;
    case AST_FLOAT: append_float(out, ast->real); break;
    case AST_TEXT: append_text(out, ast->text); break;
    case AST_DURATION:
        if (ast->integer == 0)
            append(out, "0s");
        else
            append_unit(out, ast->integer, durations);
        break;
    default:
        if (ast->integer == 0)
            append(out, "0B");
        else
            append_unit(out, ast->integer, sizes);
    }
}

static void print_node(struct byte_buffer *out, const struct ast *ast);

static enum tightness tightness_of(const struct ast *ast)
{
    if (ast->tag == AST_UNARY || ast->tag == AST_BINARY)
        return operators[ast->op].tightness;
    bool is_negative = (ast->tag == AST_INT || ast->tag == AST_DURATION || ast->tag == AST_SIZE)
                           ? ast->integer < 0
                           : ast->tag == AST_FLOAT && __builtin_signbit(ast->real);
    return ast->tag == AST_ASSIGN ? LOOSE : is_negative ? TIGHT_UNARY : TIGHT_WHOLE;
}

static void print_operand(struct byte_buffer *out, const struct ast *ast, enum tightness least)
{
    bool is_loose = tightness_of(ast) < least;
    if (is_loose)
        append(out, "(");
    print_node(out, ast);
    if (is_loose)
        append(out, ")");
}

static void print_items(struct byte_buffer *out, const char *open, struct ast *const *items, uint32_t count,
                        const char *close)
{
    append(out, open);
    for (uint32_t i = 0; i < count; i++) {
        if (i > 0)
            append(out, ", ");
        print_node(out, items[i]);
    }
    append(out, close);
}

/* Whether the node is a required type (`int!` in a schema), which the parser stores as `not int`. */
static bool is_required_type(const struct ast *ast)
{
    static const char *const types[] = {"bool", "int", "float", "text", "bytes", "time", "list"};
    if (ast->tag != AST_UNARY || ast->op != AST_OP_NOT ||
        (ast->children[0]->tag != AST_NAME && ast->children[0]->tag != AST_CALL))
        return false;
    for (size_t i = 0; i < ARRAY_COUNT(types); i++)
        if (str_is(ast->children[0]->text, types[i]))
            return true;
    return false;
}

static void print_entries(struct byte_buffer *out, const struct ast *ast)
{
    if (ast->entries_count == 0) {
        append(out, "{}");
        return;
    }
    append(out, "{ ");
    for (uint32_t i = 0; i < ast->entries_count; i++) {
        if (i > 0)
            append(out, ", ");
        append_name(out, ast->entries[i].name);
        append(out, ": ");
        const struct ast *value = ast->entries[i].value;
        bool is_required = is_required_type(value);
        print_node(out, is_required ? value->children[0] : value);
        if (is_required)
            append(out, "!");
    }
    append(out, " }");
}

static void print_case(struct byte_buffer *out, const struct ast *ast)
{
    append(out, "case");
    for (uint32_t i = 0; i + 1 < ast->count; i += 2) {
        append(out, " when ");
        print_node(out, ast->children[i]);
        append(out, " then ");
        print_node(out, ast->children[i + 1]);
    }
    if (ast->count % 2 == 1) {
        append(out, " else ");
        print_node(out, ast->children[ast->count - 1]);
    }
    append(out, " end");
}

static void print_operator(struct byte_buffer *out, const struct ast *ast)
{
    enum tightness own = operators[ast->op].tightness;
    const char *text = operators[ast->op].text;
    if (ast->tag == AST_BINARY) {
        /* Operators are left-associative; comparisons cannot be chained. */
        print_operand(out, ast->children[0], own == TIGHT_COMPARE ? own + 1 : own);
        append(out, text);
        print_operand(out, ast->children[1], own + 1);
    } else if (ast->op == AST_OP_IS_NULL || ast->op == AST_OP_IS_NOT_NULL) {
        print_operand(out, ast->children[0], own + 1);
        append(out, text);
    } else {
        append(out, text);
        print_operand(out, ast->children[0], ast->op == AST_OP_NEGATE ? TIGHT_WHOLE : own);
    }
}

static void print_node(struct byte_buffer *out, const struct ast *ast)
{
    switch (ast->tag) {
    case AST_NAME: append_name(out, ast->text); break;
    case AST_FIELD:
        print_operand(out, ast->children[0], TIGHT_WHOLE);
        append(out, ".");
        append_name(out, ast->text);
        break;
    case AST_CALL:
        append_name(out, ast->text);
        print_items(out, "(", ast->children, ast->count, ")");
        break;
    case AST_UNARY:
    case AST_BINARY: print_operator(out, ast); break;
    case AST_CASE: print_case(out, ast); break;
    case AST_LIST: print_items(out, "[", ast->children, ast->count, "]"); break;
    case AST_ASSIGN:
        append_name(out, ast->text);
        append(out, " = ");
        print_node(out, ast->children[0]);
        break;
    case AST_BLOCK: print_entries(out, ast); break;
    case AST_KIND:
        append_name(out, ast->text);
        append(out, " ");
        print_entries(out, ast);
        break;
    default: append_literal(out, ast);
    }
}

void ast_print(struct byte_buffer *out, const struct ast *ast)
{
    print_node(out, ast);
}

const char *ast_text(struct arena *arena, const struct ast *ast)
{
    struct byte_buffer out = {0};
    print_node(&out, ast);
    const char *text = arena_strndup(arena, out.data, out.length);
    buffer_free(&out);
    return text;
}

static bool value_equal(const struct ast *a, const struct ast *b)
{
    switch (a->tag) {
    case AST_BOOL: return a->boolean == b->boolean;
    case AST_INT:
    case AST_DURATION:
    case AST_SIZE: return a->integer == b->integer;
    case AST_FLOAT: return memcmp(&a->real, &b->real, sizeof(a->real)) == 0;
    default: return true;
    }
}

bool ast_equal(const struct ast *a, const struct ast *b)
{
    if (a == b)
        return true;
    if (a == NULL || b == NULL || a->tag != b->tag || a->op != b->op || a->count != b->count ||
        a->entries_count != b->entries_count || !str_equal(a->text, b->text) || !value_equal(a, b) ||
        !str_equal(a->origin, b->origin))
        return false;
    for (uint32_t i = 0; i < a->count; i++)
        if (!ast_equal(a->children[i], b->children[i]))
            return false;
    for (uint32_t i = 0; i < a->entries_count; i++)
        if (!str_equal(a->entries[i].name, b->entries[i].name) ||
            !ast_equal(a->entries[i].value, b->entries[i].value))
            return false;
    return true;
}

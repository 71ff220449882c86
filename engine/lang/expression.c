/* Expressions, by precedence climbing. From loose to tight: or; and; not; comparisons (which do not chain); +
 * -; * / %; unary minus; field access and calls. */
#include "lang/internal.h"

#include <stdio.h>

enum precedence {
    LOOSEST,
    OR_LEVEL,
    AND_LEVEL,
    NOT_LEVEL,
    COMPARE_LEVEL,
    ADD_LEVEL,
    MULTIPLY_LEVEL,
    UNARY_LEVEL
};

/* `x between a and b` uses x twice; a longer operand x is refused. */
enum { BETWEEN_NODES_MAX = 1000 };

static struct ast *parse_level(struct parser *parser, enum precedence level);

static struct ast *node_of(struct parser *parser, enum ast_tag tag, enum ast_operator op, struct span span,
                           struct ast *const *children, uint32_t count)
{
    struct ast *node = lang_node(parser->arena, tag, span);
    node->op = op;
    node = lang_node_children(parser->arena, parser->diags, node, children, count);
    if (node == NULL) {
        parser->is_broken = true;
        parser->error_at = parser->at;
    }
    return node;
}

static struct ast *unary(struct parser *parser, enum ast_operator op, struct span span, struct ast *operand)
{
    return node_of(parser, AST_UNARY, op, span, &operand, 1);
}

static struct ast *binary(struct parser *parser, enum ast_operator op, struct ast *left, struct ast *right)
{
    struct ast *children[] = {left, right};
    return node_of(parser, AST_BINARY, op, span_join(left->span, right->span), children, 2);
}

static struct ast *parse_number(struct parser *parser)
{
    struct token *token = parser_next(parser);
    struct ast *node = lang_node(parser->arena, AST_INT, token->span);
    bool is_digits = true;
    for (size_t i = 0; i < token->text.length; i++)
        is_digits = is_digits && ((token->text.data[i] >= '0' && token->text.data[i] <= '9') ||
                                  token->text.data[i] == '_');
    if (literal_int(token->text, &node->integer))
        return node;
    node->tag = AST_FLOAT;
    if (!is_digits && literal_float(token->text, &node->real))
        return node;
    node->tag = AST_DURATION;
    if (literal_duration(token->text, &node->integer))
        return node;
    node->tag = AST_SIZE;
    if (literal_bytes(token->text, &node->integer))
        return node;
    parser->error_at = parser->at - 1;
    bool is_large = is_digits && token->text.data[token->text.length - 1] != '_';
    struct diag *d =
        parser_error(parser, DIAG_BAD_NUMBER, token->span, "`%.*s` %s", (int)MIN(token->text.length, 40),
                     token->text.data, is_large ? "does not fit into 64 bits" : "is not a number");
    if (!is_large)
        diag_hint(parser->diags, d,
                  "numbers are 42, 1.5, 1e-3; units are us ms s m h d w and B KB MB GB TB KiB MiB "
                  "GiB TiB, directly after the number");
    /* Return a number, so that the surrounding entry can still be parsed. */
    *node = (struct ast){.tag = AST_INT, .span = token->span, .text_span = token->span, .height = 1};
    return node;
}

/* Parses a minus and its operand. A minus before a literal becomes part of it, so that -5 is a literal. */
static struct ast *parse_negation(struct parser *parser)
{
    struct token *minus = parser_next(parser);
    minus->role = ROLE_UNARY;
    struct token *next = parser_token(parser);
    if (next->tag == TOKEN_NUMBER && str_is(next->text, "9223372036854775808")) {
        struct ast *node = lang_node(parser->arena, AST_INT, span_join(minus->span, next->span));
        node->integer = INT64_MIN;
        parser_next(parser);
        return node;
    }
    if (!parser_enter(parser))
        return NULL;
    struct ast *operand = parse_level(parser, UNARY_LEVEL);
    parser_leave(parser);
    if (operand == NULL)
        return NULL;
    struct span span = span_join(minus->span, operand->span);
    bool is_whole = operand->tag == AST_INT || operand->tag == AST_DURATION || operand->tag == AST_SIZE;
    if (!(is_whole && operand->integer >= 0) &&
        !(operand->tag == AST_FLOAT && !__builtin_signbit(operand->real)))
        return unary(parser, AST_OP_NEGATE, span, operand);
    struct ast *node = lang_node(parser->arena, operand->tag, span);
    if (is_whole)
        node->integer = -operand->integer;
    else
        node->real = -operand->real;
    return node;
}

/* Parses expressions between the current token, an opening bracket, and `closer`. what: names
 * the expected closer. */
static bool parse_items(struct parser *parser, enum token_tag closer, const char *what, struct ast ***items,
                        uint32_t *count, struct span *span)
{
    struct token *opener = parser_next(parser);
    parser->open++;
    *items = NULL;
    *count = 0;
    while (parser_token(parser)->tag != closer) {
        parser_token(parser)->role = ROLE_ITEM;
        struct ast *item = parse_expression(parser);
        if (item == NULL)
            return false;
        *items = lang_grow(parser->arena, *items, *count, sizeof(**items));
        (*items)[(*count)++] = item;
        struct token *comma = parser_token(parser);
        if (!parser_accept(parser, TOKEN_COMMA))
            break;
        if (parser_token(parser)->tag == closer)
            comma->role = ROLE_TRAILING;
    }
    struct token *end = parser_token(parser);
    if (!parser_take(parser, closer, what, opener))
        return false;
    parser->open--;
    *span = span_join(opener->span, end->span);
    return true;
}

static bool parse_bracketed(struct parser *parser, enum token_tag closer, const char *what,
                            struct ast ***items, uint32_t *count, struct span *span)
{
    if (!parser_enter(parser))
        return false;
    bool had_no_kinds = parser->no_kinds;
    parser->no_kinds = false;
    bool is_good = parse_items(parser, closer, what, items, count, span);
    parser->no_kinds = had_no_kinds;
    parser_leave(parser);
    return is_good;
}

static struct ast *parse_list(struct parser *parser)
{
    struct ast **items;
    uint32_t count;
    struct span span;
    if (!parse_bracketed(parser, TOKEN_RIGHT_BRACKET, "`,` or `]`", &items, &count, &span))
        return NULL;
    return node_of(parser, AST_LIST, AST_OP_NONE, span, items, count);
}

static struct ast *parse_parenthesis(struct parser *parser)
{
    if (!parser_enter(parser))
        return NULL;
    struct token *opener = parser_next(parser);
    parser->open++;
    bool had_no_kinds = parser->no_kinds;
    parser->no_kinds = false;
    struct ast *inner = parse_expression(parser);
    parser->no_kinds = had_no_kinds;
    parser_leave(parser);
    if (inner == NULL || !parser_take(parser, TOKEN_RIGHT_PAREN, "`)`", opener))
        return NULL;
    parser->open--;
    return inner;
}

static struct ast *parse_block_node(struct parser *parser, enum ast_tag tag, const struct token *kind)
{
    if (!parser_enter(parser))
        return NULL;
    bool had_no_kinds = parser->no_kinds;
    parser->no_kinds = false;
    struct span begin = parser_token(parser)->span;
    struct ast_entry *entries;
    uint32_t count;
    parse_block(parser, &entries, &count);
    parser->no_kinds = had_no_kinds;
    parser_leave(parser);
    struct span span = span_join(kind != NULL ? kind->span : begin, parser->tokens[parser->at - 1].span);
    struct ast *node = lang_node(parser->arena, tag, span);
    if (kind != NULL) {
        node->text = kind->text;
        node->text_span = kind->span;
    }
    node = lang_node_entries(parser->diags, node, entries, count);
    parser->is_broken |= node == NULL;
    return node;
}

static struct ast *parse_call(struct parser *parser, const struct token *name)
{
    parser_token(parser)->role = ROLE_CALL;
    struct ast **items;
    uint32_t count;
    struct span span;
    if (!parse_bracketed(parser, TOKEN_RIGHT_PAREN, "`,` or `)`", &items, &count, &span))
        return NULL;
    struct ast *node = node_of(parser, AST_CALL, AST_OP_NONE, span_join(name->span, span), items, count);
    if (node != NULL) {
        node->text = name->text;
        node->text_span = name->span;
    }
    return node;
}

/* Parses the children of a `case`, in order; false after a diagnostic. */
static bool parse_branches(struct parser *parser, struct ast ***items, uint32_t *count)
{
    bool is_last = false;
    while (!is_last) {
        is_last = parser_accept_word(parser, "else");
        if (!is_last && !parser_take_word(parser, "when"))
            return false;
        for (int part = is_last ? 1 : 0; part < 2; part++) {
            struct ast *item = parse_expression(parser);
            if (item == NULL || (part == 0 && !parser_take_word(parser, "then")))
                return false;
            *items = lang_grow(parser->arena, *items, *count, sizeof(**items));
            (*items)[(*count)++] = item;
        }
        is_last = is_last || !(parser_is_word(parser_token(parser), "when") ||
                               parser_is_word(parser_token(parser), "else"));
    }
    return true;
}

static struct ast *parse_case(struct parser *parser)
{
    if (!parser_enter(parser))
        return NULL;
    struct token *opener = parser_next(parser);
    struct ast **items = NULL;
    uint32_t count = 0;
    bool is_good = parse_branches(parser, &items, &count);
    parser_leave(parser);
    if (!is_good)
        return NULL;
    struct token *end = parser_token(parser);
    if (!parser_accept_word(parser, "end")) {
        struct diag *d = parser_expected(parser, "`when`, `else` or `end`");
        if (d != NULL)
            diag_label(parser->diags, d, opener->span, "the `case` begins here");
        return NULL;
    }
    return node_of(parser, AST_CASE, AST_OP_NONE, span_join(opener->span, end->span), items, count);
}

static struct ast *parse_name_node(struct parser *parser)
{
    struct token *token = parser_next(parser);
    struct ast *node = lang_node(parser->arena, AST_NAME, token->span);
    node->text = token->text;
    return node;
}

static struct ast *expected_value(struct parser *parser)
{
    struct token *token = parser_token(parser);
    struct diag *d = parser_expected(parser, "a value or an expression");
    if (d != NULL && token->tag == TOKEN_WORD && !token->begins_line)
        diag_hint(parser->diags, d, "`%.*s` is a keyword; as a name, write it in backticks: `` `%.*s` ``",
                  STR_ARGS(token->text), STR_ARGS(token->text));
    else if (d != NULL && token->tag == TOKEN_ASSIGN)
        diag_hint(parser->diags, d, "write equality as `a = b`");
    return NULL;
}

static struct ast *parse_word(struct parser *parser)
{
    struct token *token = parser_token(parser);
    if (parser_is_word(token, "case"))
        return parse_case(parser);
    if (parser_is_word(token, "null") || parser_is_word(token, "true") || parser_is_word(token, "false")) {
        struct ast *node =
            lang_node(parser->arena, token->text.data[0] == 'n' ? AST_NULL : AST_BOOL, token->span);
        node->boolean = token->text.data[0] == 't';
        parser_next(parser);
        return node;
    }
    if (token->tag == TOKEN_WORD && ast_is_reserved(token->text))
        return expected_value(parser);
    struct token *next = parser_peek(parser, 1);
    if (token->tag == TOKEN_WORD && !next->begins_line && next->tag == TOKEN_LEFT_PAREN) {
        parser_next(parser);
        return parse_call(parser, token);
    }
    if (token->tag == TOKEN_WORD && !next->begins_line && next->tag == TOKEN_LEFT_BRACE &&
        !parser->no_kinds) {
        parser_next(parser);
        return parse_block_node(parser, AST_KIND, token);
    }
    return parse_name_node(parser);
}

static struct ast *parse_primary(struct parser *parser)
{
    struct token *token = parser_token(parser);
    if (parser_at_declaration(parser))
        return expected_value(parser);
    switch (token->tag) {
    case TOKEN_WORD:
    case TOKEN_QUOTED: return parse_word(parser);
    case TOKEN_NUMBER: return parse_number(parser);
    case TOKEN_TEXT: {
        struct ast *node = lang_node(parser->arena, AST_TEXT, token->span);
        node->text = token->text;
        parser_next(parser);
        return node;
    }
    case TOKEN_LEFT_PAREN: return parse_parenthesis(parser);
    case TOKEN_LEFT_BRACKET: return parse_list(parser);
    case TOKEN_LEFT_BRACE:
        return parser->no_kinds ? expected_value(parser) : parse_block_node(parser, AST_BLOCK, NULL);
    default: return expected_value(parser);
    }
}

static struct ast *parse_postfix(struct parser *parser)
{
    struct ast *node = parse_primary(parser);
    while (node != NULL && parser_token(parser)->tag == TOKEN_DOT) {
        parser_next(parser);
        struct token *field = parser_token(parser);
        if (field->tag != TOKEN_WORD && field->tag != TOKEN_QUOTED) {
            parser_expected(parser, "a field's name after `.`");
            return NULL;
        }
        parser_next(parser);
        struct ast *object = node;
        node = node_of(parser, AST_FIELD, AST_OP_NONE, span_join(object->span, field->span), &object, 1);
        if (node != NULL) {
            node->text = field->text;
            node->text_span = field->span;
        }
    }
    return node;
}

static struct ast *parse_prefix(struct parser *parser, enum precedence level)
{
    struct token *token = parser_token(parser);
    if (token->tag == TOKEN_MINUS)
        return parse_negation(parser);
    if (!parser_is_word(token, "not") || level > NOT_LEVEL)
        return parse_postfix(parser);
    parser_next(parser);
    if (!parser_enter(parser))
        return NULL;
    struct ast *operand = parse_level(parser, NOT_LEVEL);
    parser_leave(parser);
    return operand == NULL ? NULL : unary(parser, AST_OP_NOT, span_join(token->span, operand->span), operand);
}

struct infix {
    enum ast_operator op;
    enum precedence level;
};

/* The operator that begins at the current token; level LOOSEST: none. */
static struct infix infix_at(struct parser *parser)
{
    struct token *token = parser_token(parser);
    switch (token->tag) {
    case TOKEN_ASSIGN:
    case TOKEN_EQUAL: return (struct infix){AST_OP_EQUAL, COMPARE_LEVEL};
    case TOKEN_NOT_EQUAL: return (struct infix){AST_OP_NOT_EQUAL, COMPARE_LEVEL};
    case TOKEN_LESS: return (struct infix){AST_OP_LESS, COMPARE_LEVEL};
    case TOKEN_LESS_EQUAL: return (struct infix){AST_OP_LESS_EQUAL, COMPARE_LEVEL};
    case TOKEN_GREATER: return (struct infix){AST_OP_GREATER, COMPARE_LEVEL};
    case TOKEN_GREATER_EQUAL: return (struct infix){AST_OP_GREATER_EQUAL, COMPARE_LEVEL};
    case TOKEN_PLUS: return (struct infix){AST_OP_ADD, ADD_LEVEL};
    case TOKEN_MINUS: return (struct infix){AST_OP_SUBTRACT, ADD_LEVEL};
    case TOKEN_STAR: return (struct infix){AST_OP_MULTIPLY, MULTIPLY_LEVEL};
    case TOKEN_SLASH: return (struct infix){AST_OP_DIVIDE, MULTIPLY_LEVEL};
    case TOKEN_PERCENT: return (struct infix){AST_OP_MODULO, MULTIPLY_LEVEL};
    case TOKEN_WORD: break;
    default: return (struct infix){AST_OP_NONE, LOOSEST};
    }
    if (str_is(token->text, "or"))
        return (struct infix){AST_OP_OR, OR_LEVEL};
    if (str_is(token->text, "and"))
        return (struct infix){AST_OP_AND, AND_LEVEL};
    static const char *const words[] = {"in", "not", "is", "between"};
    for (size_t i = 0; i < ARRAY_COUNT(words); i++)
        if (str_is(token->text, words[i]))
            return (struct infix){AST_OP_IN, COMPARE_LEVEL};
    return (struct infix){AST_OP_NONE, LOOSEST};
}

static struct ast *parse_between(struct parser *parser, struct ast *left)
{
    struct ast *low = parse_level(parser, ADD_LEVEL);
    if (low == NULL || !parser_take_word(parser, "and"))
        return NULL;
    struct ast *high = parse_level(parser, ADD_LEVEL);
    if (high == NULL)
        return NULL;
    if (lang_node_count(left, BETWEEN_NODES_MAX) >= BETWEEN_NODES_MAX) {
        parser->error_at = parser->at;
        parser_error(parser, DIAG_TOO_DEEP, left->span, "the expression before `between` is too long");
        return NULL;
    }
    struct ast *from = binary(parser, AST_OP_GREATER_EQUAL, left, low);
    struct ast *to = binary(parser, AST_OP_LESS_EQUAL, left, high);
    return from == NULL || to == NULL ? NULL : binary(parser, AST_OP_AND, from, to);
}

/* Parses `is [not] null`, `[not] in [...]` or `[not] between a and b`; the current token is the first
 * of these words. */
static struct ast *parse_word_comparison(struct parser *parser, struct ast *left)
{
    if (parser_accept_word(parser, "is")) {
        bool is_negated = parser_accept_word(parser, "not");
        struct token *end = parser_token(parser);
        if (!parser_take_word(parser, "null"))
            return NULL;
        return unary(parser, is_negated ? AST_OP_IS_NOT_NULL : AST_OP_IS_NULL,
                     span_join(left->span, end->span), left);
    }
    bool is_negated = parser_accept_word(parser, "not");
    if (parser_accept_word(parser, "between")) {
        struct ast *inside = parse_between(parser, left);
        return inside == NULL || !is_negated ? inside : unary(parser, AST_OP_NOT, inside->span, inside);
    }
    if (!parser_accept_word(parser, "in")) {
        parser_expected(parser, "`in` or `between` after `not`");
        return NULL;
    }
    if (parser_token(parser)->tag != TOKEN_LEFT_BRACKET) {
        parser_expected(parser, "a list in brackets after `in`");
        return NULL;
    }
    struct ast *list = parse_list(parser);
    return list == NULL ? NULL : binary(parser, is_negated ? AST_OP_NOT_IN : AST_OP_IN, left, list);
}

static struct ast *parse_infix(struct parser *parser, struct infix infix, struct ast *left)
{
    if (infix.op == AST_OP_IN)
        return parse_word_comparison(parser, left);
    parser_next(parser);
    struct ast *right = parse_level(parser, infix.level + 1);
    return right == NULL ? NULL : binary(parser, infix.op, left, right);
}

static struct ast *parse_level(struct parser *parser, enum precedence level)
{
    struct ast *left = parse_prefix(parser, level);
    bool is_comparison = false;
    while (left != NULL) {
        struct infix infix = infix_at(parser);
        if (infix.level == LOOSEST || infix.level < level)
            break;
        if (infix.level == COMPARE_LEVEL && is_comparison) {
            struct diag *d = parser_expected(parser, "`and`, `or` or the end of the comparison");
            if (d != NULL)
                diag_hint(parser->diags, d, "comparisons do not chain: write `a < b and b < c`");
            return NULL;
        }
        is_comparison = infix.level == COMPARE_LEVEL;
        left = parse_infix(parser, infix, left);
    }
    return left;
}

struct ast *parse_expression(struct parser *parser)
{
    return parse_level(parser, OR_LEVEL);
}

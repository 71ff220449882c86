/* Blocks: `{ name: value, ... }`, entries separated by commas or new lines. */
#include "lang/internal.h"

/* Parses a value, and the `!` of a required type. */
static struct ast *parse_entry_value(struct parser *parser)
{
    struct ast *value = parse_expression(parser);
    struct token *bang = parser_token(parser);
    if (value == NULL || bang->tag != TOKEN_BANG || bang->begins_line)
        return value;
    parser_next(parser);
    struct ast *node = lang_node(parser->arena, AST_UNARY, span_join(value->span, bang->span));
    node->op = AST_OP_NOT;
    return lang_node_children(parser->arena, parser->diags, node, &value, 1);
}

/* Reads `{ price }` as `{ price: price }`; false: the name is not alone. */
static bool parse_name_alone(struct parser *parser, const struct token *name, struct ast_entry *entry)
{
    const struct token *behind = parser_token(parser);
    bool is_behind = behind->tag == TOKEN_COMMA || behind->tag == TOKEN_RIGHT_BRACE || behind->begins_line;
    if (!is_behind || behind->tag == TOKEN_COLON)
        return false;
    struct ast *value = lang_node(parser->arena, AST_NAME, name->span);
    value->text = name->text;
    value->text_span = name->span;
    *entry = (struct ast_entry){name->text, name->span, value};
    return true;
}

static bool parse_entry(struct parser *parser, bool takes_names, struct ast_entry *entry)
{
    struct token *name = parser_token(parser);
    if (name->tag != TOKEN_WORD && name->tag != TOKEN_QUOTED) {
        struct diag *d = parser_expected_item(parser, "`name: value`");
        if (d != NULL && name->tag == TOKEN_TEXT)
            diag_hint(parser->diags, d, "write names without quotes, or in backticks");
        return false;
    }
    name->role = ROLE_ITEM;
    parser_next(parser);
    if (takes_names && parse_name_alone(parser, name, entry))
        return true;
    if (!parser_accept(parser, TOKEN_COLON)) {
        struct diag *d =
            parser_expected(parser, arena_printf(parser->arena, "`:` after `%.*s`", STR_ARGS(name->text)));
        if (d != NULL && parser_token(parser)->tag == TOKEN_ASSIGN)
            diag_hint(parser->diags, d, "entries of a block are written `%.*s: value`", STR_ARGS(name->text));
        return false;
    }
    *entry = (struct ast_entry){name->text, name->span, parse_entry_value(parser)};
    return entry->value != NULL;
}

/* Reads what follows an entry: a comma, a new line or the closing brace. */
static void parse_separator(struct parser *parser)
{
    struct token *token = parser_token(parser);
    if (token->tag == TOKEN_COMMA) {
        token->role = ROLE_SEPARATOR;
        parser_next(parser);
    } else if (token->tag != TOKEN_RIGHT_BRACE && !token->begins_line) {
        struct diag *d = parser_expected(parser, "`,`, a new line or `}`");
        if (d != NULL && (token->tag == TOKEN_WORD || token->tag == TOKEN_QUOTED) &&
            parser_peek(parser, 1)->tag == TOKEN_COLON)
            diag_hint(parser->diags, d, "entries on one line are separated by commas");
        parser_skip_entry(parser, parser->open);
        token = parser_token(parser);
        if (token->tag == TOKEN_COMMA)
            parser_next(parser);
    }
}

void parse_block(struct parser *parser, struct ast_entry **entries, uint32_t *count)
{
    struct token *opener = parser_next(parser);
    uint32_t open = ++parser->open;
    bool takes_names = parser->takes_names;
    parser->takes_names = false;
    *entries = NULL;
    *count = 0;
    while (parser_token(parser)->tag != TOKEN_RIGHT_BRACE) {
        if (parser_token(parser)->tag == TOKEN_END || parser_at_declaration(parser)) {
            parser_take(parser, TOKEN_RIGHT_BRACE, "`}`", opener);
            break;
        }
        uint32_t begin = parser->at;
        struct ast_entry entry;
        if (parse_entry(parser, takes_names, &entry)) {
            *entries = lang_grow(parser->arena, *entries, *count, sizeof(**entries));
            (*entries)[(*count)++] = entry;
            parse_separator(parser);
            continue;
        }
        parser->is_broken = true;
        if (parser->at == begin)
            parser_next(parser);
        parser_skip_entry(parser, open);
        parser_accept(parser, TOKEN_COMMA);
    }
    parser_accept(parser, TOKEN_RIGHT_BRACE);
    parser->open = open - 1;
}

/* The parser's token stream: looking ahead, taking tokens, reporting and skipping unexpected ones. */
#include "lang/internal.h"

#include <stdarg.h>

const char *const lang_declaration_words[] = {"param",   "let",  "job",   "source", "stream",
                                              "learner", "sink", "serve", "use"};
_Static_assert(ARRAY_COUNT(lang_declaration_words) == LANG_DECLARATION_WORDS, "one word per declaration");

struct token *parser_token(struct parser *parser)
{
    return &parser->tokens[parser->at];
}

struct token *parser_peek(struct parser *parser, uint32_t ahead)
{
    struct token *token = parser_token(parser);
    while (ahead-- > 0 && token->tag != TOKEN_END)
        token++;
    return token;
}

struct token *parser_next(struct parser *parser)
{
    struct token *token = parser_token(parser);
    parser->at += token->tag != TOKEN_END;
    return token;
}

bool parser_is_word(const struct token *token, const char *word)
{
    return token->tag == TOKEN_WORD && str_is(token->text, word);
}

bool parser_accept_word(struct parser *parser, const char *word)
{
    if (!parser_is_word(parser_token(parser), word))
        return false;
    parser_next(parser);
    return true;
}

bool parser_accept(struct parser *parser, enum token_tag tag)
{
    if (parser_token(parser)->tag != tag)
        return false;
    parser_next(parser);
    return true;
}

struct diag *parser_error(struct parser *parser, enum diag_code code, struct span span, const char *format,
                          ...)
{
    va_list arguments;
    va_start(arguments, format);
    char message[512];
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    parser->is_broken = true;
    return diag_error(parser->diags, code, span, "%s", message);
}

/* The token as messages show it, cut to SHOWN bytes at a character's border. */
static const char *found_text(struct parser *parser, const struct token *token, struct str source)
{
    enum { SHOWN = 40 };
    if (token->tag == TOKEN_END)
        return "the end of the file";
    size_t length = source.length;
    if (length <= SHOWN)
        return arena_printf(parser->arena, "`%.*s`", STR_ARGS(source));
    length = SHOWN;
    while (length > 0 && ((unsigned char)source.data[length] & 0xC0) == 0x80)
        length--;
    return arena_printf(parser->arena, "`%.*s...`", (int)length, source.data);
}

static struct diag *expected(struct parser *parser, const char *what, bool is_item)
{
    struct token *token = parser_token(parser);
    bool is_said = token->tag == TOKEN_BAD || parser->error_at == parser->at;
    parser->error_at = parser->at;
    parser->is_broken = true;
    if (is_said)
        return NULL;
    struct str source = {parser->source.data + token->span.begin, token->span.end - token->span.begin};
    struct span span = token->span;
    /* A token missing at the end of a line is reported there, not where the next line begins. */
    if (token->begins_line && parser->at > 0 && !is_item) {
        uint32_t end = parser->tokens[parser->at - 1].span.end;
        span = (struct span){end, end};
        if (token->tag != TOKEN_END)
            return parser_error(parser, DIAG_UNEXPECTED, span, "expected %s, found a new line and %s", what,
                                found_text(parser, token, source));
    }
    return parser_error(parser, DIAG_UNEXPECTED, span, "expected %s, found %s", what,
                        found_text(parser, token, source));
}

struct diag *parser_expected(struct parser *parser, const char *what)
{
    return expected(parser, what, false);
}

struct diag *parser_expected_item(struct parser *parser, const char *what)
{
    return expected(parser, what, true);
}

bool parser_take(struct parser *parser, enum token_tag tag, const char *what, const struct token *opener)
{
    if (parser_accept(parser, tag))
        return true;
    struct diag *d = parser_expected(parser, what);
    if (d != NULL && opener != NULL)
        diag_label(parser->diags, d, opener->span, "opened here");
    return false;
}

bool parser_take_word(struct parser *parser, const char *word)
{
    if (parser_accept_word(parser, word))
        return true;
    parser_expected(parser, arena_printf(parser->arena, "`%s`", word));
    return false;
}

bool parser_looks_like_declaration(struct parser *parser)
{
    struct token *token = parser_token(parser), *name = parser_peek(parser, 1),
                 *after = parser_peek(parser, 2);
    if (token->tag != TOKEN_WORD || name->begins_line ||
        (name->tag != TOKEN_WORD && name->tag != TOKEN_QUOTED) ||
        (after->tag != TOKEN_ASSIGN && after->tag != TOKEN_COLON && after->tag != TOKEN_LEFT_PAREN &&
         after->tag != TOKEN_LEFT_BRACE))
        return false;
    for (size_t i = 0; i < LANG_DECLARATION_WORDS; i++)
        if (str_is(token->text, lang_declaration_words[i]))
            return true;
    return false;
}

bool parser_at_declaration(struct parser *parser)
{
    return parser_token(parser)->begins_line && parser_looks_like_declaration(parser);
}

bool parser_at_recovery(struct parser *parser)
{
    struct token *token = parser_token(parser), *name = parser_peek(parser, 1);
    if (token->tag == TOKEN_END)
        return true;
    if (token->tag != TOKEN_WORD || !token->begins_line || name->begins_line)
        return false;
    bool is_word = name->tag == TOKEN_WORD &&
                   (!ast_is_reserved(name->text) || parser_peek(parser, 2)->tag == TOKEN_ASSIGN);
    if (!is_word && name->tag != TOKEN_QUOTED && name->tag != TOKEN_ASSIGN)
        return false;
    for (size_t i = 0; i < LANG_DECLARATION_WORDS; i++)
        if (str_is(token->text, lang_declaration_words[i]))
            return true;
    return false;
}

/* Whether the current token is the name of a `name:` at the beginning of a line: there an entry begins even
 * if an earlier bracket is not closed. */
static bool at_entry(struct parser *parser)
{
    struct token *token = parser_token(parser);
    return token->begins_line && (token->tag == TOKEN_WORD || token->tag == TOKEN_QUOTED) &&
           parser_peek(parser, 1)->tag == TOKEN_COLON;
}

void parser_skip_entry(struct parser *parser, uint32_t open)
{
    uint32_t depth = parser->open > open ? parser->open - open : 0, braces = 0;
    for (; !parser_at_recovery(parser); parser_next(parser)) {
        const struct token *token = parser_token(parser);
        enum token_tag tag = token->tag;
        if ((braces == 0 && (tag == TOKEN_RIGHT_BRACE || at_entry(parser))) ||
            (depth == 0 && (tag == TOKEN_COMMA || token->begins_line)))
            break;
        if (tag == TOKEN_LEFT_BRACE || tag == TOKEN_LEFT_BRACKET || tag == TOKEN_LEFT_PAREN)
            depth++;
        else if (depth > 0 &&
                 (tag == TOKEN_RIGHT_BRACE || tag == TOKEN_RIGHT_BRACKET || tag == TOKEN_RIGHT_PAREN))
            depth--;
        braces += tag == TOKEN_LEFT_BRACE;
        braces -= tag == TOKEN_RIGHT_BRACE;
    }
    parser->open = open;
}

void parser_skip_step(struct parser *parser)
{
    while (parser_token(parser)->tag != TOKEN_PIPE && !parser_at_recovery(parser))
        parser_next(parser);
    parser->open = 0;
}

void parser_skip_declaration(struct parser *parser)
{
    do
        parser_next(parser);
    while (!parser_at_recovery(parser));
    parser->open = 0;
}

bool parser_enter(struct parser *parser)
{
    if (parser->nesting < LANG_NESTING_MAX) {
        parser->nesting++;
        return true;
    }
    if (parser->error_at != parser->at)
        parser_error(parser, DIAG_TOO_DEEP, parser_token(parser)->span, "nested more than %d deep",
                     LANG_NESTING_MAX);
    parser->error_at = parser->at;
    return false;
}

void parser_leave(struct parser *parser)
{
    leat_assert(parser->nesting > 0);
    parser->nesting--;
}

/* One step of a stream: `| KIND [value] (OPTION value[, value]...)* [{ entries }]`. The kind's option table
 * tells option names from values. */
#include "lang/internal.h"

static void add_entry(struct parser *parser, struct step_decl *step, struct ast_entry entry)
{
    step->entries = lang_grow(parser->arena, step->entries, step->count, sizeof(*step->entries));
    step->entries[step->count++] = entry;
}

/* The option that the token names; its name is NULL: none. */
static struct option_row keyword(const struct step_decl *step, const struct token *token)
{
    struct option_row none = {0}, option = none;
    if (token->tag == TOKEN_WORD && step->descriptor != NULL)
        option = option_find(step->descriptor->options, token->text);
    return (option.flags & (OPTION_POSITIONAL | OPTION_BODY)) == 0 ? option : none;
}

static bool is_keyword(const struct step_decl *step, const struct token *token)
{
    return keyword(step, token).name != NULL;
}

static struct ast *parse_value(struct parser *parser, const struct option_row *option)
{
    struct token *name = parser_token(parser);
    name->role = ROLE_ITEM;
    if (option->type != OPTION_ASSIGNMENTS_T || (name->tag != TOKEN_WORD && name->tag != TOKEN_QUOTED) ||
        parser_peek(parser, 1)->tag != TOKEN_ASSIGN)
        return parse_expression(parser);
    if (name->tag == TOKEN_WORD && ast_is_reserved(name->text)) {
        struct diag *d = parser_expected(parser, "a column's name");
        if (d != NULL)
            diag_hint(parser->diags, d, "`%.*s` is a keyword; as a name, write it in backticks",
                      STR_ARGS(name->text));
        return NULL;
    }
    parser_next(parser);
    parser_next(parser);
    struct ast *value = parse_expression(parser);
    if (value == NULL)
        return NULL;
    struct ast *node = lang_node(parser->arena, AST_ASSIGN, span_join(name->span, value->span));
    node->text = name->text;
    node->text_span = name->span;
    return lang_node_children(parser->arena, parser->diags, node, &value, 1);
}

/* Parses one value, or several as an AST_LIST. */
static struct ast *parse_values(struct parser *parser, const struct option_row *option)
{
    struct ast **items = NULL;
    uint32_t count = 0;
    parser->no_kinds = option->type != OPTION_KIND_T;
    do {
        struct ast *item = parse_value(parser, option);
        if (item == NULL) {
            parser->is_broken = true;
            return NULL;
        }
        items = lang_grow(parser->arena, items, count, sizeof(*items));
        items[count++] = item;
    } while (parser_accept(parser, TOKEN_COMMA));
    if (count == 1 && option->type != OPTION_ASSIGNMENTS_T)
        return items[0];
    struct ast *list = lang_node(parser->arena, AST_LIST, span_join(items[0]->span, items[count - 1]->span));
    return lang_node_children(parser->arena, parser->diags, list, items, count);
}

/* The kind's option names as a list "`by`, `within`, `keep`"; also fills `names` and *count. */
static const char *keywords_text(struct parser *parser, const struct option *table, const char **names,
                                 size_t max, size_t *count)
{
    const char *all = NULL;
    *count = 0;
    for (struct option_walk w = option_walk(table); option_next(&w) && *count < max;) {
        if ((w.row.flags & (OPTION_POSITIONAL | OPTION_BODY)) != 0)
            continue;
        names[(*count)++] = w.row.name;
        all = all == NULL ? arena_printf(parser->arena, "`%s`", w.row.name)
                          : arena_printf(parser->arena, "%s, `%s`", all, w.row.name);
    }
    return all;
}

static void unknown_option(struct parser *parser, const struct step_decl *step)
{
    const struct token *token = parser_token(parser);
    const char *names[64];
    size_t count;
    const char *all = keywords_text(parser, step->descriptor->options, names, ARRAY_COUNT(names), &count);
    struct diag *d;
    if (token->tag == TOKEN_WORD && !token->begins_line && !ast_is_reserved(token->text)) {
        if (parser->error_at == parser->at)
            return;
        parser->error_at = parser->at;
        d = parser_error(parser, DIAG_NO_OPTION, token->span, "`%s` has no option `%.*s`",
                         step->descriptor->name, STR_ARGS(token->text));
        const char *near = diag_nearest(token->text, names, count);
        if (near != NULL) {
            diag_hint(parser->diags, d, "did you mean `%s`?", near);
            return;
        }
    } else {
        d = parser_expected(parser, "an option, `|` or the end of the stream");
    }
    if (d != NULL && token->tag == TOKEN_PIPE)
        diag_hint(parser->diags, d,
                  "the boolean operator is written `or`, and texts are joined by concat(a, b)");
    else if (d != NULL && all != NULL)
        diag_hint(parser->diags, d, "options of `%s` are %s", step->descriptor->name, all);
    else if (d != NULL)
        diag_hint(parser->diags, d, "`%s` has no options", step->descriptor->name);
}

/* Skips an unknown option and its values: to the next option, the body or the next step. */
static void skip_option(struct parser *parser, const struct step_decl *step)
{
    parser_next(parser);
    while (true) {
        const struct token *token = parser_token(parser);
        if (token->tag == TOKEN_PIPE || token->tag == TOKEN_LEFT_BRACE || parser_at_recovery(parser) ||
            is_keyword(step, token))
            break;
        parser_next(parser);
    }
    parser->open = 0;
}

static void parse_body(struct parser *parser, struct step_decl *step)
{
    struct token *opener = parser_token(parser);
    struct option_row body = option_find_flag(step->descriptor->options, OPTION_BODY);
    parser->takes_names = body.type == OPTION_ASSIGNMENTS_T;
    if (body.name == NULL)
        parser_error(parser, DIAG_UNEXPECTED, opener->span, "`%s` takes no `{ }`", step->descriptor->name);
    parser->no_kinds = false;
    struct ast *node = lang_node(parser->arena, AST_BLOCK, opener->span);
    struct ast_entry *entries;
    uint32_t count;
    parse_block(parser, &entries, &count);
    node->span = node->text_span = span_join(opener->span, parser->tokens[parser->at - 1].span);
    node = lang_node_entries(parser->diags, node, entries, count);
    if (node != NULL)
        add_entry(parser, step, (struct ast_entry){STR("{}"), opener->span, node});
}

static bool step_ends(struct parser *parser)
{
    const struct token *token = parser_token(parser);
    return token->tag == TOKEN_END || token->tag == TOKEN_PIPE || parser_at_declaration(parser);
}

/* Whether values of the type are never bare words, unlike column names. */
static bool is_number(const struct option_row *option)
{
    return option->type == OPTION_INT_T || option->type == OPTION_FLOAT_T ||
           option->type == OPTION_DURATION_T || option->type == OPTION_BYTES_T;
}

static void parse_positional(struct parser *parser, struct step_decl *step, const struct option_row *option)
{
    const struct token *token = parser_token(parser);
    bool is_required = (option->flags & OPTION_REQUIRED) != 0;
    if (is_number(option) && is_keyword(step, token))
        return; /* option_bind reports the missing value */
    if (!is_required && (step_ends(parser) || token->tag == TOKEN_LEFT_BRACE || is_keyword(step, token)))
        return;
    uint32_t begin = parser->at;
    struct ast *value = parse_values(parser, option);
    if (value != NULL)
        add_entry(parser, step, (struct ast_entry){STR(""), step->kind.span, value});
    else if (!step_ends(parser) && parser->at == begin && token->tag != TOKEN_LEFT_BRACE)
        skip_option(parser, step);
    else if (!step_ends(parser))
        parser_skip_step(parser);
}

/* Parses one option or the body; false at the end of the step. */
static bool parse_option(struct parser *parser, struct step_decl *step)
{
    if (step_ends(parser))
        return false;
    struct token *token = parser_token(parser);
    if (token->tag == TOKEN_LEFT_BRACE) {
        parse_body(parser, step);
        if (step_ends(parser) || parser_token(parser)->begins_line)
            return false;
        parser_expected(parser, "`|` or a new line after `}`");
        parser_skip_step(parser);
        return false;
    }
    struct option_row option = keyword(step, token);
    if (option.name == NULL && (token->begins_line || parser_looks_like_declaration(parser)))
        return false;
    if (option.name == NULL) {
        unknown_option(parser, step);
        skip_option(parser, step);
        return true;
    }
    parser_next(parser);
    struct ast *value = parse_values(parser, &option);
    if (value != NULL)
        add_entry(parser, step, (struct ast_entry){token->text, token->span, value});
    else if (!step_ends(parser) && !is_keyword(step, parser_token(parser)))
        skip_option(parser, step);
    return true;
}

static void unknown_kind(struct parser *parser, const struct token *kind)
{
    const struct operator_kind *const *all = parser->registry->operators;
    const char *names[256];
    size_t count = 0;
    for (; all != NULL && all[count] != NULL && count < ARRAY_COUNT(names); count++)
        names[count] = all[count]->name;
    struct diag *d =
        parser_error(parser, DIAG_NO_KIND, kind->span, "there is no operator `%.*s`", STR_ARGS(kind->text));
    const char *near = diag_nearest(kind->text, names, count);
    if (near != NULL)
        diag_hint(parser->diags, d, "did you mean `%s`?", near);
    else
        diag_hint(parser->diags, d, "`leat help operators` lists all operators");
}

void parse_step(struct parser *parser, struct step_decl *step)
{
    struct token *bar = parser_next(parser), *kind = parser_token(parser);
    bar->role = ROLE_STEP;
    bool was_broken = parser->is_broken;
    parser->is_broken = false;
    parser->open = 0;
    *step = (struct step_decl){.span = bar->span};
    if (kind->tag != TOKEN_WORD || parser_at_declaration(parser)) {
        struct diag *d = parser_expected(parser, "the name of an operator after `|`");
        if (d != NULL && kind->tag == TOKEN_PIPE)
            diag_hint(parser->diags, d,
                      "the boolean operator is written `or`, and texts are joined by concat(a, b)");
        if (kind->tag == TOKEN_PIPE)
            parser_next(parser);
        parser_skip_step(parser);
    } else {
        parser_next(parser);
        step->kind = (struct lang_name){kind->text, kind->span};
        step->descriptor = registry_operator(parser->registry, kind->text);
        if (step->descriptor == NULL) {
            unknown_kind(parser, kind);
            parser_skip_step(parser);
        } else {
            struct option_row positional = option_find_flag(step->descriptor->options, OPTION_POSITIONAL);
            if (positional.name != NULL)
                parse_positional(parser, step, &positional);
            while (parse_option(parser, step))
                ;
        }
    }
    step->span = span_join(kind->span, parser->tokens[parser->at - 1].span);
    step->is_broken = parser->is_broken;
    parser->is_broken |= was_broken;
}

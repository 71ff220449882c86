/* Declarations: the outermost level of a job file. */
#include "lang/internal.h"

/* Parses the name that a declaration introduces. */
static bool parse_new_name(struct parser *parser, const char *what, struct lang_name *name)
{
    struct token *token = parser_token(parser);
    bool is_reserved = token->tag == TOKEN_WORD && ast_is_reserved(token->text);
    if (token->tag != TOKEN_WORD || is_reserved) {
        struct diag *d = parser_expected(parser, arena_printf(parser->arena, "the name of the %s", what));
        if (d != NULL && is_reserved)
            diag_hint(parser->diags, d, "`%.*s` is a keyword", STR_ARGS(token->text));
        else if (d != NULL && token->tag == TOKEN_QUOTED)
            diag_hint(parser->diags, d, "this name takes letters, digits and `_` only, without backticks");
        return false;
    }
    *name = (struct lang_name){token->text, token->span};
    parser_next(parser);
    return true;
}

static bool parse_kind_name(struct parser *parser, const char *what, struct lang_name *kind)
{
    struct token *token = parser_token(parser);
    if (token->tag != TOKEN_WORD || token->begins_line) {
        parser_expected(parser, arena_printf(parser->arena, "the kind of the %s", what));
        return false;
    }
    *kind = (struct lang_name){token->text, token->span};
    parser_next(parser);
    return true;
}

/* Parses NAME or NAME.OUTPUT. */
static bool parse_stream_ref(struct parser *parser, struct stream_ref *ref)
{
    struct token *token = parser_token(parser);
    if (token->tag != TOKEN_WORD || parser_at_declaration(parser)) {
        parser_expected(parser, "the name of a stream");
        return false;
    }
    token->role = ROLE_INPUT;
    *ref = (struct stream_ref){.name = token->text, .span = token->span};
    parser_next(parser);
    if (!parser_accept(parser, TOKEN_DOT))
        return true;
    struct token *output = parser_token(parser);
    if (output->tag != TOKEN_WORD || output->begins_line) {
        parser_expected(parser, "the name of an output after `.`");
        return false;
    }
    parser_next(parser);
    ref->output = output->text;
    ref->output_span = output->span;
    ref->span = span_join(token->span, output->span);
    return true;
}

static bool parse_param(struct parser *parser, struct job_file *job)
{
    struct param_decl param = {0};
    if (!parse_new_name(parser, "parameter", &param.name) ||
        !parser_take(parser, TOKEN_COLON, "`:` and a type", NULL))
        return false;
    struct token *token = parser_token(parser);
    const char *names[PARAM_BYTES + 1];
    for (int i = 0; i <= PARAM_BYTES; i++)
        names[i] = lang_param_type_name((enum param_type)i);
    while (param.type <= PARAM_BYTES && !parser_is_word(token, names[param.type]))
        param.type++;
    if (param.type > PARAM_BYTES) {
        struct diag *d = parser_expected(parser, "a type: int, float, bool, text, duration or bytes");
        const char *near =
            token->tag == TOKEN_WORD ? diag_nearest(token->text, names, ARRAY_COUNT(names)) : NULL;
        if (d != NULL && near != NULL)
            diag_hint(parser->diags, d, "did you mean `%s`?", near);
        return false;
    }
    parser_next(parser);
    if (parser_accept(parser, TOKEN_ASSIGN)) {
        param.value = parse_expression(parser);
        param.is_broken = param.value == NULL;
    }
    job->params = lang_grow(parser->arena, job->params, job->params_count, sizeof(param));
    job->params[job->params_count++] = param;
    return !param.is_broken;
}

static bool parse_let_parameters(struct parser *parser, struct let_decl *let)
{
    struct token *opener = parser_token(parser);
    opener->role = ROLE_CALL;
    if (!parser_take(parser, TOKEN_LEFT_PAREN, "`(` and the function's arguments", NULL))
        return false;
    while (parser_token(parser)->tag != TOKEN_RIGHT_PAREN) {
        struct lang_name name;
        parser_token(parser)->role = ROLE_ITEM;
        if (!parse_new_name(parser, "argument", &name))
            return false;
        let->parameters = lang_grow(parser->arena, let->parameters, let->count, sizeof(name));
        let->parameters[let->count++] = name;
        struct token *comma = parser_token(parser);
        if (!parser_accept(parser, TOKEN_COMMA))
            break;
        if (parser_token(parser)->tag == TOKEN_RIGHT_PAREN)
            comma->role = ROLE_TRAILING;
    }
    return parser_take(parser, TOKEN_RIGHT_PAREN, "`,` or `)`", opener);
}

static bool parse_let(struct parser *parser, struct job_file *job)
{
    struct let_decl let = {0};
    if (!parse_new_name(parser, "function", &let.name))
        return false;
    bool is_good = parse_let_parameters(parser, &let) && parser_take(parser, TOKEN_ASSIGN, "`=`", NULL);
    if (is_good)
        let.body = parse_expression(parser);
    job->lets = lang_grow(parser->arena, job->lets, job->lets_count, sizeof(let));
    job->lets[job->lets_count++] = let;
    return let.body != NULL;
}

/* Parses the declaration's block, if there is one. */
static void parse_options(struct parser *parser, struct ast_entry **entries, uint32_t *count)
{
    if (parser_token(parser)->tag == TOKEN_LEFT_BRACE)
        parse_block(parser, entries, count);
}

static bool parse_job(struct parser *parser, struct job_file *job)
{
    struct lang_name name;
    if (!parse_new_name(parser, "job", &name))
        return false;
    if (parser_token(parser)->tag != TOKEN_LEFT_BRACE) {
        parser_expected(parser, "`{` and the job's settings");
        return false;
    }
    struct ast_entry *entries;
    uint32_t count;
    parse_block(parser, &entries, &count);
    if (job->name.text.length > 0) {
        struct diag *d = parser_error(parser, DIAG_NAME_TAKEN, name.span, "a second `job` block");
        diag_label(parser->diags, d, job->name.span, "the first `job` block is here");
        return true;
    }
    job->name = name;
    job->job_entries = entries;
    job->job_entries_count = count;
    return true;
}

/* Reports E0203 with "did you mean". names: the known kinds. */
static void unknown_kind(struct parser *parser, const char *what, const struct lang_name *kind,
                         const char *const *names, size_t count)
{
    struct diag *d = parser_error(parser, DIAG_NO_KIND, kind->span, "there is no kind of %s called `%.*s`",
                                  what, STR_ARGS(kind->text));
    const char *near = diag_nearest(kind->text, names, count);
    if (near != NULL)
        diag_hint(parser->diags, d, "did you mean `%s`?", near);
    else
        diag_hint(parser->diags, d, "`leat help` lists all kinds");
}

/* The names of the kinds in a list of descriptors; the name is a descriptor's first member. */
static size_t kind_names(const void *const *kinds, const char **names, size_t max)
{
    size_t count = 0;
    for (; kinds != NULL && kinds[count] != NULL && count < max; count++)
        names[count] = *(const char *const *)kinds[count];
    return count;
}

_Static_assert(offsetof(struct source_kind, name) == 0 && offsetof(struct sink_kind, name) == 0 &&
                   offsetof(struct operator_kind, name) == 0,
               "kind_names reads the first member");

static bool parse_source(struct parser *parser, struct job_file *job)
{
    struct source_decl source = {0};
    if (!parse_new_name(parser, "source", &source.name))
        return false;
    bool is_good =
        parser_take(parser, TOKEN_ASSIGN, "`=`", NULL) && parse_kind_name(parser, "source", &source.kind);
    if (is_good) {
        source.descriptor = registry_source(parser->registry, source.kind.text);
        const char *names[256];
        size_t count = kind_names((const void *const *)parser->registry->sources, names, ARRAY_COUNT(names));
        if (source.descriptor == NULL)
            unknown_kind(parser, "source", &source.kind, names, count);
        parse_options(parser, &source.entries, &source.count);
    }
    job->sources = lang_grow(parser->arena, job->sources, job->sources_count, sizeof(source));
    job->sources[job->sources_count++] = source;
    return is_good;
}

static bool parse_stream(struct parser *parser, struct job_file *job)
{
    struct stream_decl stream = {0};
    if (!parse_new_name(parser, "stream", &stream.name))
        return false;
    bool is_good = parser_take(parser, TOKEN_ASSIGN, "`=`", NULL) && parse_stream_ref(parser, &stream.input);
    while (is_good && parser_token(parser)->tag == TOKEN_PIPE && parser->diags->count < DIAG_MAX) {
        stream.steps = lang_grow(parser->arena, stream.steps, stream.steps_count, sizeof(*stream.steps));
        parse_step(parser, &stream.steps[stream.steps_count++]);
    }
    job->streams = lang_grow(parser->arena, job->streams, job->streams_count, sizeof(stream));
    job->streams[job->streams_count++] = stream;
    return is_good;
}

/* Parses the common part of learners and sinks: = KIND from STREAM. */
static bool parse_consumer(struct parser *parser, const char *what, struct lang_name *kind,
                           struct stream_ref *input)
{
    return parser_take(parser, TOKEN_ASSIGN, "`=`", NULL) && parse_kind_name(parser, what, kind) &&
           parser_take_word(parser, "from") && parse_stream_ref(parser, input);
}

static bool parse_learner(struct parser *parser, struct job_file *job)
{
    struct learner_decl learner = {0};
    if (!parse_new_name(parser, "learner", &learner.name))
        return false;
    bool is_good = parse_consumer(parser, "learner", &learner.kind, &learner.input);
    if (is_good) {
        learner.descriptor = registry_learner(parser->registry, learner.kind.text);
        const char *names[256];
        size_t count = kind_names((const void *const *)parser->registry->learners, names, ARRAY_COUNT(names));
        if (learner.descriptor == NULL)
            unknown_kind(parser, "learner", &learner.kind, names, count);
        parse_options(parser, &learner.entries, &learner.count);
    }
    job->learners = lang_grow(parser->arena, job->learners, job->learners_count, sizeof(learner));
    job->learners[job->learners_count++] = learner;
    return is_good;
}

static bool parse_sink(struct parser *parser, struct job_file *job)
{
    struct sink_decl sink = {0};
    if (!parse_new_name(parser, "sink", &sink.name))
        return false;
    bool is_good = parse_consumer(parser, "sink", &sink.kind, &sink.input);
    if (is_good) {
        sink.descriptor = registry_sink(parser->registry, sink.kind.text);
        const char *names[256];
        size_t count = kind_names((const void *const *)parser->registry->sinks, names, ARRAY_COUNT(names));
        if (sink.descriptor == NULL)
            unknown_kind(parser, "sink", &sink.kind, names, count);
        parse_options(parser, &sink.entries, &sink.count);
    }
    job->sinks = lang_grow(parser->arena, job->sinks, job->sinks_count, sizeof(sink));
    job->sinks[job->sinks_count++] = sink;
    return is_good;
}

static bool parse_serve(struct parser *parser, struct job_file *job)
{
    struct serve_decl serve = {0};
    if (!parse_new_name(parser, "serve", &serve.name))
        return false;
    bool is_good = parser_token(parser)->tag == TOKEN_LEFT_BRACE;
    if (is_good)
        parse_block(parser, &serve.entries, &serve.count);
    else
        parser_expected(parser, "`{` and what is served: from, request");
    job->serves = lang_grow(parser->arena, job->serves, job->serves_count, sizeof(serve));
    job->serves[job->serves_count++] = serve;
    return is_good;
}

/* Loads the library at once: its kinds are known in the declarations after it. */
static bool parse_use(struct parser *parser, struct job_file *job)
{
    struct token *token = parser_token(parser);
    if (token->tag != TOKEN_TEXT || token->begins_line) {
        struct diag *d = parser_expected(parser, "the path of a library");
        if (d != NULL)
            diag_hint(parser->diags, d, "for example: use \"lib/libmine.so\"");
        return false;
    }
    struct use_decl use = {token->text, token->span};
    parser_next(parser);
    job->uses = lang_grow(parser->arena, job->uses, job->uses_count, sizeof(use));
    job->uses[job->uses_count++] = use;
    if (parser->registry->use == NULL) {
        parser_error(parser, DIAG_BAD_LIBRARY, use.span, "libraries cannot be used here");
        return true;
    }
    const struct registry *more =
        parser->registry->use(parser->registry, use.path, use.span, parser->arena, parser->diags);
    parser->is_broken |= more == NULL;
    parser->registry = more != NULL ? more : parser->registry;
    return true;
}

/* Sets span and is_broken of the declaration just parsed. before: the job before it, whose counts show
 * which array grew. */
static void finish_declaration(struct job_file *job, const struct job_file *before, struct span span,
                               bool is_broken)
{
    if (job->params_count > before->params_count) {
        job->params[before->params_count].span = span;
        job->params[before->params_count].is_broken = is_broken;
    } else if (job->lets_count > before->lets_count) {
        job->lets[before->lets_count].span = span;
        if (is_broken)
            job->lets[before->lets_count].body = NULL;
    } else if (job->sources_count > before->sources_count) {
        job->sources[before->sources_count].span = span;
        job->sources[before->sources_count].is_broken = is_broken;
    } else if (job->streams_count > before->streams_count) {
        job->streams[before->streams_count].span = span;
        job->streams[before->streams_count].is_broken = is_broken;
    } else if (job->learners_count > before->learners_count) {
        job->learners[before->learners_count].span = span;
        job->learners[before->learners_count].is_broken = is_broken;
    } else if (job->sinks_count > before->sinks_count) {
        job->sinks[before->sinks_count].span = span;
        job->sinks[before->sinks_count].is_broken = is_broken;
    } else if (job->serves_count > before->serves_count) {
        job->serves[before->serves_count].span = span;
        job->serves[before->serves_count].is_broken = is_broken;
    } else if (job->name.text.length > before->name.text.length) {
        job->job_span = span;
        job->job_is_broken = is_broken;
    }
}

static void unknown_declaration(struct parser *parser)
{
    const struct token *token = parser_token(parser);
    struct diag *d = parser_expected_item(
        parser, "a declaration (param, let, job, source, stream, learner, sink, serve or use)");
    const char *near = token->tag == TOKEN_WORD
                           ? diag_nearest(token->text, lang_declaration_words, LANG_DECLARATION_WORDS)
                           : NULL;
    if (d != NULL && near != NULL)
        diag_hint(parser->diags, d, "did you mean `%s`?", near);
}

static void parse_declaration(struct parser *parser, struct job_file *job)
{
    static bool (*const parsers[])(struct parser *, struct job_file *) = {
        parse_param,   parse_let,  parse_job,   parse_source, parse_stream,
        parse_learner, parse_sink, parse_serve, parse_use};
    _Static_assert(ARRAY_COUNT(parsers) == LANG_DECLARATION_WORDS, "one parser per word");
    struct token *token = parser_token(parser);
    size_t which = 0;
    while (which < ARRAY_COUNT(parsers) && !parser_is_word(token, lang_declaration_words[which]))
        which++;
    if (!token->begins_line)
        parser_expected_item(parser, "a new line");
    else if (which == ARRAY_COUNT(parsers))
        unknown_declaration(parser);
    if (which == ARRAY_COUNT(parsers)) {
        parser_skip_declaration(parser);
        return;
    }
    token->role = ROLE_DECLARATION;
    parser_next(parser);
    parser->is_broken = parser->no_kinds = false;
    parser->open = 0;
    struct job_file before = *job;
    bool is_good = parsers[which](parser, job);
    struct span span = span_join(token->span, parser->tokens[parser->at - 1].span);
    finish_declaration(job, &before, span, parser->is_broken);
    if (!is_good && !parser_at_recovery(parser))
        parser_skip_declaration(parser);
}

static uint32_t declarations(const struct job_file *job)
{
    return job->params_count + job->lets_count + job->sources_count + job->streams_count +
           job->learners_count + job->sinks_count + job->serves_count + job->uses_count;
}

struct job_file *lang_parse_tokens(struct arena *arena, struct diag_list *diags,
                                   const struct registry *registry, struct str text, struct token_list *list)
{
    static const struct registry empty = {0};
    struct job_file *job = arena_new(arena, struct job_file);
    job->text = text;
    struct parser parser = {.arena = arena,
                            .diags = diags,
                            .registry = registry != NULL ? registry : &empty,
                            .source = text.length > 0 ? text : STR(""),
                            .tokens = list->tokens,
                            .error_at = UINT32_MAX};
    while (parser_token(&parser)->tag != TOKEN_END && diags->count < DIAG_MAX) {
        if (declarations(job) == LANG_DECLARATIONS_MAX) {
            parser_error(&parser, DIAG_TOO_DEEP, parser_token(&parser)->span, "more than %d declarations",
                         LANG_DECLARATIONS_MAX);
            break;
        }
        parse_declaration(&parser, job);
    }
    job->registry = parser.registry;
    lang_check_names(job, parser.registry, arena, diags);
    return job;
}

struct job_file *lang_parse(struct arena *arena, struct diag_list *diags, const struct registry *registry,
                            struct str text)
{
    struct token_list list;
    lang_tokenize(arena, diags, text, &list);
    return lang_parse_tokens(arena, diags, registry, text, &list);
}

struct ast *lang_parse_value(struct arena *arena, struct diag_list *diags, struct str text)
{
    struct token_list list;
    unsigned errors = diags->errors;
    lang_tokenize(arena, diags, text, &list);
    if (list.count == 0 && diags->errors > errors)
        return NULL;
    static const struct registry empty = {0};
    struct parser parser = {.arena = arena,
                            .diags = diags,
                            .registry = &empty,
                            .source = text.length > 0 ? text : STR(""),
                            .tokens = list.tokens,
                            .error_at = UINT32_MAX};
    struct ast *value = parse_expression(&parser);
    if (value != NULL && parser_token(&parser)->tag != TOKEN_END)
        parser_expected(&parser, "the end of the value");
    return value == NULL || diags->errors > errors ? NULL : lang_fold(arena, value);
}

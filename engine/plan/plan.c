/* plan_make: collects names, resolves each before the first node that refers to it, leaves out unused
 * nodes. */
#include "plan/build.h"

struct plan_node *build_node(struct plan_build *b, enum plan_node_tag tag, struct str name, const char *kind,
                             struct span span)
{
    struct plan *plan = b->plan;
    if (plan->nodes_count == PLAN_NODES_MAX) {
        diag_error(b->diags, DIAG_TOO_MANY, span, "a job can have %d steps, sources and sinks",
                   PLAN_NODES_MAX);
        return NULL;
    }
    struct plan_node *node = &plan->nodes[plan->nodes_count];
    *node = (struct plan_node){
        .tag = tag,
        .place = plan->nodes_count++,
        .name = name,
        .label = arena_printf(b->arena, "%.*s: %s", STR_ARGS(name), kind),
        .span = span,
    };
    return node;
}

static struct symbol *find_symbol(struct plan_build *b, struct str name)
{
    for (uint32_t i = 0; i < b->symbols_count; i++)
        if (str_equal(b->symbols[i].name, name))
            return &b->symbols[i];
    return NULL;
}

static void add_symbol(struct plan_build *b, const struct lang_name *name, enum symbol_tag tag,
                       uint32_t index, bool is_broken)
{
    if (name->text.length == 0 || find_symbol(b, name->text) != NULL)
        return; /* the parser has reported it */
    b->symbols[b->symbols_count++] = (struct symbol){
        .name = name->text,
        .span = name->span,
        .tag = tag,
        .index = index,
        .state = is_broken ? SYMBOL_BROKEN : SYMBOL_NEW,
    };
}

static void collect_symbols(struct plan_build *b)
{
    const struct job_file *job = b->job;
    b->symbols =
        arena_array(b->arena, struct symbol, job->sources_count + job->streams_count + job->learners_count);
    for (uint32_t i = 0; i < job->sources_count; i++)
        add_symbol(b, &job->sources[i].name, SYMBOL_SOURCE, i,
                   job->sources[i].is_broken || job->sources[i].descriptor == NULL);
    for (uint32_t i = 0; i < job->streams_count; i++)
        add_symbol(b, &job->streams[i].name, SYMBOL_STREAM, i, job->streams[i].is_broken);
    for (uint32_t i = 0; i < job->learners_count; i++)
        add_symbol(b, &job->learners[i].name, SYMBOL_LEARNER, i,
                   job->learners[i].is_broken || job->learners[i].descriptor == NULL);
}

static bool open_symbol(struct plan_build *b, struct symbol *symbol)
{
    if (symbol->state != SYMBOL_NEW)
        return symbol->state == SYMBOL_DONE;
    symbol->state = SYMBOL_OPEN;
    bool is_good = false;
    struct plan_edge edge = {0};
    switch (symbol->tag) {
    case SYMBOL_SOURCE: is_good = build_source(b, &b->job->sources[symbol->index], &edge.node); break;
    case SYMBOL_STREAM: is_good = build_stream(b, &b->job->streams[symbol->index], &edge); break;
    case SYMBOL_LEARNER: is_good = build_learner(b, &b->job->learners[symbol->index], &edge.node); break;
    }
    symbol->node = edge.node;
    symbol->output = edge.output;
    symbol->state = is_good ? SYMBOL_DONE : SYMBOL_BROKEN;
    return is_good;
}

static bool unknown_name(struct plan_build *b, const struct stream_ref *ref)
{
    struct diag *d =
        diag_error(b->diags, DIAG_NO_STREAM, ref->span, "there is no stream `%.*s`", STR_ARGS(ref->name));
    const char **names = arena_array(b->arena, const char *, b->symbols_count + 1);
    for (uint32_t i = 0; i < b->symbols_count; i++)
        names[i] = arena_strndup(b->arena, b->symbols[i].name.data, b->symbols[i].name.length);
    names[b->symbols_count] = "dead_letters";
    const char *near = diag_nearest(ref->name, names, b->symbols_count + 1);
    if (near != NULL)
        diag_hint(b->diags, d, "did you mean `%s`?", near);
    else
        diag_hint(b->diags, d, "declare it with `stream %.*s = ...` or `source %.*s = ...`",
                  STR_ARGS(ref->name), STR_ARGS(ref->name));
    return false;
}

/* The node and output of `NAME.output`: in a stream, of the last step that has such an output. */
static bool find_output(const struct plan_build *b, const struct symbol *symbol, struct str output,
                        struct plan_edge *edge)
{
    const struct plan_node *own = &b->plan->nodes[symbol->node];
    if (output.length == 0) {
        *edge = (struct plan_edge){own->place, symbol->output};
        return symbol->tag != SYMBOL_LEARNER;
    }
    for (uint32_t place = own->place + 1; place-- > 0 && symbol->output == 0;) {
        const struct plan_node *node = &b->plan->nodes[place];
        if (node->tag != own->tag || !str_equal(node->name, own->name))
            continue;
        for (uint32_t i = 0; i < OPERATOR_OUTPUTS_MAX; i++)
            if (node->output_names[i] != NULL && str_is(output, node->output_names[i])) {
                *edge = (struct plan_edge){place, i};
                return true;
            }
    }
    return false;
}

/* The outputs of a symbol, for a hint: "`hourly.late`, `hourly.rest`"; NULL: none. */
static const char *outputs_text(const struct plan_build *b, const struct symbol *symbol)
{
    const struct plan_node *own = &b->plan->nodes[symbol->node];
    const char *text = NULL;
    for (uint32_t place = 0; place <= own->place && symbol->output == 0; place++) {
        const struct plan_node *node = &b->plan->nodes[place];
        bool is_of_it = node->tag == own->tag && str_equal(node->name, own->name);
        for (uint32_t i = 0; is_of_it && i < OPERATOR_OUTPUTS_MAX; i++) {
            const char *name = node->output_names[i];
            struct plan_edge edge;
            if (name == NULL || !find_output(b, symbol, str_from(name), &edge) || edge.node != place)
                continue; /* no such output, or a later step has one of that name */
            text = arena_printf(b->arena, "%s%s`%.*s.%s`", text == NULL ? "" : text, text == NULL ? "" : ", ",
                                STR_ARGS(symbol->name), name);
        }
    }
    return text;
}

static bool no_output(struct plan_build *b, const struct stream_ref *ref, const struct symbol *symbol)
{
    struct diag *d = ref->output.length == 0
                         ? diag_error(b->diags, DIAG_NO_STREAM, ref->span,
                                      "`%.*s` is a learner, not a stream", STR_ARGS(ref->name))
                         : diag_error(b->diags, DIAG_NO_STREAM, ref->span, "`%.*s` has no output `%.*s`",
                                      STR_ARGS(ref->name), STR_ARGS(ref->output));
    const char *outputs = outputs_text(b, symbol);
    if (outputs != NULL)
        diag_hint(b->diags, d, "its outputs are %s", outputs);
    else
        diag_hint(b->diags, d,
                  "steps such as `window` (`.late`), `split` (`.rest`) and `route` have side outputs");
    return false;
}

bool build_resolve(struct plan_build *b, const struct stream_ref *ref, struct plan_edge *edge)
{
    if (str_is(ref->name, "dead_letters")) {
        *edge = (struct plan_edge){PLAN_NODE_DEAD, PLAN_OUTPUT_DEAD};
        return true;
    }
    struct symbol *symbol = find_symbol(b, ref->name);
    if (symbol == NULL)
        return unknown_name(b, ref);
    symbol->is_used = true;
    if (symbol->state == SYMBOL_OPEN) {
        struct diag *d =
            diag_error(b->diags, DIAG_STREAM_CIRCLE, ref->span, "`%.*s` feeds itself", STR_ARGS(ref->name));
        diag_label(b->diags, d, symbol->span, "the stream is declared here");
        diag_hint(b->diags, d, "streams must not form a circle");
        return false;
    }
    if (!open_symbol(b, symbol))
        return false;
    return find_output(b, symbol, ref->output, edge) || no_output(b, ref, symbol);
}

const struct schema *build_schema(const struct plan_build *b, struct plan_edge edge)
{
    return edge.node == PLAN_NODE_DEAD ? &plan_dead_schema : b->plan->nodes[edge.node].outputs[edge.output];
}

/* Whether the node gives the answers of a `serve`. */
static bool is_answer(const struct plan *plan, uint32_t place)
{
    for (uint32_t i = 0; i < plan->serves_count; i++)
        if (plan_answer(&plan->serves[i]).node == place)
            return true;
    return false;
}

/* Leaves out nodes that no learner, sink or `serve` needs; warns of names that nothing uses. */
static void prune(struct plan_build *b)
{
    struct plan *plan = b->plan;
    bool *is_needed = arena_array(b->arena, bool, plan->nodes_count);
    for (uint32_t i = plan->nodes_count; i-- > 0;) {
        struct plan_node *node = &plan->nodes[i];
        is_needed[i] |= node->tag == PLAN_SINK || node->tag == PLAN_LEARNER || is_answer(plan, i);
        for (uint32_t k = 0; is_needed[i] && k < node->inputs_count; k++)
            if (node->inputs[k].node != PLAN_NODE_DEAD)
                is_needed[node->inputs[k].node] = true;
    }
    uint32_t *moved = arena_array(b->arena, uint32_t, plan->nodes_count);
    uint32_t kept = 0;
    plan->sources_count = 0;
    for (uint32_t i = 0; i < plan->nodes_count; i++) {
        if (!is_needed[i])
            continue;
        moved[i] = kept;
        struct plan_node *node = &plan->nodes[kept];
        *node = plan->nodes[i];
        node->place = kept;
        for (uint32_t k = 0; k < node->inputs_count; k++)
            if (node->inputs[k].node != PLAN_NODE_DEAD)
                node->inputs[k].node = moved[node->inputs[k].node];
        if (node->tag == PLAN_SOURCE) {
            node->source_index = plan->sources_count;
            plan->sources[plan->sources_count++] = kept;
        }
        kept++;
    }
    plan->nodes_count = kept;
    for (uint32_t i = 0; i < plan->serves_count; i++) {
        struct plan_serve *serve = &plan->serves[i];
        serve->request = moved[serve->request];
        for (uint32_t k = 0; k < serve->steps_count; k++)
            serve->steps[k] = moved[serve->steps[k]];
    }
    for (uint32_t i = 0; i < b->symbols_count; i++)
        if (!b->symbols[i].is_used && b->symbols[i].tag != SYMBOL_LEARNER)
            diag_warning(b->diags, DIAG_NO_SINK, b->symbols[i].span,
                         "`%.*s` is not used by any sink, learner or `serve`", STR_ARGS(b->symbols[i].name));
}

/* The store has copies of what is in the checkpoint directory; a replay makes none. */
static void check_store(struct plan_build *b)
{
    struct job_checkpoint *checkpoint = &b->plan->config.checkpoint;
    if (b->options->is_replay) {
        checkpoint->store = (struct str){0};
        checkpoint->commit = COMMIT_LOCAL;
    }
    if (checkpoint->store.length == 0 && checkpoint->commit == COMMIT_STORE) {
        struct diag *d = diag_error(b->diags, DIAG_OPTIONS_CLASH, b->job->job_span,
                                    "`commit: store` waits for a store, and the job has none");
        diag_hint(b->diags, d, "add `store: \"s3://bucket/prefix\"` to `checkpoint`, or leave `commit` out");
    }
    if (checkpoint->store.length == 0 || checkpoint->directory.length > 0)
        return;
    struct diag *d = diag_error(b->diags, DIAG_OPTIONS_CLASH, b->job->job_span,
                                "`store` copies checkpoints, and the job takes none");
    diag_hint(b->diags, d, "add `dir: \"state/NAME\"` to `checkpoint`");
}

static void check_sources(struct plan_build *b)
{
    const struct job_config *config = &b->plan->config;
    for (uint32_t i = 0; i < b->plan->sources_count; i++) {
        const struct plan_node *node = &b->plan->nodes[b->plan->sources[i]];
        if (config->checkpoint.directory.length > 0 && !node->is_replayable) {
            struct diag *d = diag_error(
                b->diags, DIAG_SOURCE_CANNOT, node->span,
                "source `%.*s` cannot be read a second time, so a run could not resume from a checkpoint",
                STR_ARGS(node->name));
            diag_hint(b->diags, d,
                      "leave `checkpoint:` out of the job, or record the stream to a file first");
        }
    }
}

/* The parameters that were set, as the command line would write them, one a line. */
static struct str print_settings(const struct job_file *job, struct arena *arena)
{
    struct byte_buffer text = {0};
    for (uint32_t i = 0; i < job->params_count; i++) {
        const struct param_decl *param = &job->params[i];
        if (!param->is_set || param->value == NULL)
            continue;
        buffer_printf(&text, "%.*s=", STR_ARGS(param->name.text));
        if (param->value->tag == AST_TEXT)
            buffer_append(&text, param->value->text.data, param->value->text.length);
        else
            ast_print(&text, param->value);
        buffer_append(&text, "\n", 1);
    }
    struct str copy = arena_str(arena, (struct str){text.data == NULL ? "" : text.data, text.length});
    buffer_free(&text);
    return copy;
}

struct plan *plan_make(const struct job_file *job, const struct plan_options *options, struct arena *arena,
                       struct diag_list *diags)
{
    struct plan *plan = arena_new(arena, struct plan);
    plan->arena = arena;
    plan->name = job->name.text.length > 0 ? job->name.text : STR("job");
    plan->nodes = arena_array(arena, struct plan_node, PLAN_NODES_MAX);
    plan->job_text = job->text;
    plan->job_settings = print_settings(job, arena);
    /* The registry that the job was parsed with has the kinds of the libraries that the job uses. */
    struct plan_options *own = arena_copy(arena, options, sizeof(*options));
    own->registry = job->uses_count > 0 ? job->registry : options->registry;
    struct plan_build b = {
        .plan = plan,
        .job = job,
        .options = own,
        .arena = arena,
        .diags = diags,
        .env = {arena, diags, lang_parse_value},
    };
    unsigned errors_at_begin = diags->errors;
    if (!job->job_is_broken && !option_bind(job_options, "the job", job->job_span, job->job_entries,
                                            job->job_entries_count, &plan->config, &b.env))
        leat_assert(diags->errors > errors_at_begin);
    struct str *directory = &plan->config.checkpoint.directory;
    if (options->is_replay && directory->length > 0)
        *directory = str_from(arena_printf(arena, "%.*s.replay", STR_ARGS(*directory)));
    check_store(&b);
    collect_symbols(&b);
    for (uint32_t i = 0; i < b.symbols_count; i++)
        if (!open_symbol(&b, &b.symbols[i]))
            leat_assert(diags->errors > 0);
    for (uint32_t i = 0; i < job->sinks_count; i++)
        if (!job->sinks[i].is_broken && job->sinks[i].descriptor != NULL && !build_sink(&b, &job->sinks[i]))
            leat_assert(diags->errors > 0);
    plan->serves = arena_array(arena, struct plan_serve, MAX(job->serves_count, 1));
    for (uint32_t i = 0; i < job->serves_count; i++)
        if (!job->serves[i].is_broken && !build_serve(&b, &job->serves[i]))
            leat_assert(diags->errors > 0);
    bool is_told_why = errors_at_begin > 0 && job->sources_count == 0; /* a text that is no job at all */
    if (job->sinks_count + job->learners_count == 0 && !is_told_why) {
        struct diag *d =
            diag_error(diags, DIAG_NO_SINK, job->job_span, "the job has neither a sink nor a learner");
        diag_hint(diags, d, "add a sink, for example `sink out = console from NAME`, or a learner");
    }
    plan->claims = options->claims;
    if (!build_claims(&b) || diags->errors > 0)
        return NULL;
    prune(&b);
    check_sources(&b);
    build_parts(&b);
    build_stages(&b);
    build_fingerprint(&b);
    build_inputs(&b);
    return diags->errors > 0 ? NULL : plan;
}

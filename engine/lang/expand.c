/* Expansion: replaces parameters and functions by their definitions, reads env() and file(), folds arithmetic
 * over literals. It is hygienic: arguments are expanded in the caller's scope and inserted whole; a
 * function's body sees only its arguments and the job's parameters. */
#include "lang/internal.h"

#include <stdlib.h>

static int compare_params(const void *left, const void *right)
{
    const struct param_decl *const *a = left, *const *b = right;
    int order = str_compare((*a)->name.text, (*b)->name.text);
    return order != 0 ? order : *a < *b ? -1 : *a > *b;
}

static int compare_lets(const void *left, const void *right)
{
    const struct let_decl *const *a = left, *const *b = right;
    int order = str_compare((*a)->name.text, (*b)->name.text);
    return order != 0 ? order : *a < *b ? -1 : *a > *b;
}

static int compare_name_param(const void *name, const void *item)
{
    return str_compare(*(const struct str *)name, (*(const struct param_decl *const *)item)->name.text);
}

static int compare_name_let(const void *name, const void *item)
{
    return str_compare(*(const struct str *)name, (*(const struct let_decl *const *)item)->name.text);
}

struct param_decl *expand_find_param(const struct expander *expander, struct str name)
{
    struct param_decl **found = expander->job->params_count == 0
                                    ? NULL
                                    : bsearch(&name, expander->params, expander->job->params_count,
                                              sizeof(*expander->params), compare_name_param);
    return found == NULL ? NULL : *found;
}

struct let_decl *expand_find_let(const struct expander *expander, struct str name)
{
    struct let_decl **found = expander->job->lets_count == 0
                                  ? NULL
                                  : bsearch(&name, expander->lets, expander->job->lets_count,
                                            sizeof(*expander->lets), compare_name_let);
    return found == NULL ? NULL : *found;
}

const char *expand_nearest_param(const struct expander *expander, struct str name)
{
    const struct job_file *job = expander->job;
    const char **names = arena_array(expander->arena, const char *, job->params_count);
    for (uint32_t i = 0; i < job->params_count; i++)
        names[i] =
            arena_strndup(expander->arena, job->params[i].name.text.data, job->params[i].name.text.length);
    return diag_nearest(name, names, job->params_count);
}

/* Counts the tree's nodes towards LANG_EXPANDED_NODES_MAX; false after E0105. */
static bool take_nodes(struct expander *expander, const struct ast *ast, struct span span)
{
    uint32_t left = LANG_EXPANDED_NODES_MAX - expander->nodes;
    uint32_t count = expander->is_full ? left : lang_node_count(ast, left);
    if (count < left) {
        expander->nodes += count;
        return true;
    }
    if (!expander->is_full) {
        struct diag *d =
            diag_error(expander->diags, DIAG_TOO_DEEP, span,
                       "with its functions expanded, the job has more than %d expression nodes here",
                       LANG_EXPANDED_NODES_MAX);
        diag_hint(
            expander->diags, d,
            "a function that uses an argument several times copies it each time; compute the argument as a "
            "column with `with` first");
    }
    expander->is_full = true;
    return false;
}

static void note_expansion(struct expander *expander, struct span use, const struct lang_name *definition)
{
    struct job_file *job = expander->job;
    job->expansions =
        lang_grow(expander->arena, job->expansions, job->expansions_count, sizeof(*job->expansions));
    job->expansions[job->expansions_count++] =
        (struct lang_expansion){use, definition->span, definition->text};
}

static struct ast *expand_param(struct expander *expander, const struct ast *name, struct param_decl *param,
                                struct span span)
{
    if (expander->params_end != NULL && param >= expander->params_end) {
        struct diag *d = diag_error(expander->diags, DIAG_NO_PARAMETER, name->span,
                                    "parameter `%.*s` has no value yet", STR_ARGS(name->text));
        diag_hint(expander->diags, d, "a default can use the parameters that are declared before it");
        return NULL;
    }
    if (param->is_broken)
        return NULL;
    struct ast *node = arena_copy(expander->arena, param->value, sizeof(*node));
    node->span = node->text_span = span;
    note_expansion(expander, span, &param->name);
    return node;
}

static struct ast *expand_name(struct expander *expander, struct ast *name, const struct expand_scope *scope)
{
    struct span span = scope != NULL ? scope->use : name->span;
    for (uint32_t i = 0; scope != NULL && i < scope->let->count; i++)
        if (str_equal(scope->let->parameters[i].text, name->text))
            return take_nodes(expander, scope->arguments[i], span) ? scope->arguments[i] : NULL;
    struct param_decl *param = expand_find_param(expander, name->text);
    if (param != NULL)
        return expand_param(expander, name, param, span);
    if (expander->params_end != NULL) {
        struct diag *d = diag_error(expander->diags, DIAG_NO_PARAMETER, span, "there is no parameter `%.*s`",
                                    STR_ARGS(name->text));
        const char *near = expand_nearest_param(expander, name->text);
        if (near != NULL)
            diag_hint(expander->diags, d, "did you mean `%s`?", near);
        return NULL;
    }
    return name;
}

/* Expands the children. Returns a copy of the node if a child changed or scope is set (the span changes),
 * else the node itself. */
static struct ast *expand_children(struct expander *expander, struct ast *ast,
                                   const struct expand_scope *scope)
{
    struct ast **children = arena_array(expander->arena, struct ast *, ast->count);
    struct ast_entry *entries = arena_array(expander->arena, struct ast_entry, ast->entries_count);
    bool is_good = true, is_changed = scope != NULL;
    for (uint32_t i = 0; i < ast->count; i++) {
        children[i] = expand_ast(expander, ast->children[i], scope);
        is_good = is_good && children[i] != NULL;
        is_changed = is_changed || children[i] != ast->children[i];
    }
    for (uint32_t i = 0; i < ast->entries_count; i++) {
        entries[i] = ast->entries[i];
        entries[i].value = expand_ast(expander, ast->entries[i].value, scope);
        is_good = is_good && entries[i].value != NULL;
        is_changed = is_changed || entries[i].value != ast->entries[i].value;
    }
    if (!is_good || !is_changed)
        return is_good ? ast : NULL;
    const struct ast leaf = {.tag = ast->tag};
    struct span span = scope != NULL ? scope->use : ast->span;
    if (!take_nodes(expander, &leaf, span))
        return NULL;
    struct ast *copy = arena_copy(expander->arena, ast, sizeof(*ast));
    copy->span = span;
    copy->text_span = scope != NULL ? span : ast->text_span;
    if (ast->entries_count > 0)
        return lang_node_entries(expander->diags, copy, entries, ast->entries_count);
    return lang_node_children(expander->arena, expander->diags, copy, children, ast->count);
}

static struct ast *call_let(struct expander *expander, struct ast *call, struct let_decl *let,
                            const struct expand_scope *scope)
{
    struct span use = scope != NULL ? scope->use : call->span;
    if (let->body == NULL)
        return NULL;
    if (call->count != let->count) {
        struct diag *d =
            diag_error(expander->diags, DIAG_BAD_LET, use, "`%.*s` takes %u argument%s, not %u",
                       STR_ARGS(call->text), let->count, let->count == 1 ? "" : "s", call->count);
        diag_label(expander->diags, d, let->name.span, "the function is defined here");
        return NULL;
    }
    struct expand_scope inner = {
        .let = let, .arguments = call->children, .use = use, .depth = scope != NULL ? scope->depth + 1 : 1};
    leat_assert(inner.depth <= LANG_LET_DEPTH_MAX);
    note_expansion(expander, use, &let->name);
    return expand_ast(expander, let->body, &inner);
}

struct ast *expand_ast(struct expander *expander, struct ast *ast, const struct expand_scope *scope)
{
    if (expander->is_full)
        return NULL;
    if (ast->tag == AST_NAME) {
        struct ast *found = expand_name(expander, ast, scope);
        leat_assert(scope == NULL || found != ast); /* expand_check_lets has reported free names */
        return found;
    }
    struct param_decl *param = ast->tag == AST_ASSIGN ? expand_find_param(expander, ast->text) : NULL;
    if (param != NULL) {
        struct diag *d =
            diag_error(expander->diags, DIAG_NAME_TAKEN, ast->text_span,
                       "a column cannot have the name of the parameter `%.*s`", STR_ARGS(ast->text));
        diag_label(expander->diags, d, param->name.span, "the parameter is declared here");
        return NULL;
    }
    struct ast *expanded = expand_children(expander, ast, scope);
    if (expanded == NULL || expanded->tag != AST_CALL)
        return expanded;
    struct let_decl *let = expand_find_let(expander, expanded->text);
    if (let != NULL)
        return call_let(expander, expanded, let, scope);
    return expand_is_secret(expanded) ? expand_secret(expander, expanded, expanded->span) : expanded;
}

/* Reports arithmetic that has no result (E0209), where the arithmetic is the whole value, or a whole element
 * or entry of the value. */
static bool check_value(struct expander *expander, const struct ast *value)
{
    bool is_good = true;
    if (value->tag == AST_LIST || value->tag == AST_ASSIGN)
        for (uint32_t i = 0; i < value->count; i++)
            is_good &= check_value(expander, value->children[i]);
    for (uint32_t i = 0; i < value->entries_count; i++)
        is_good &= check_value(expander, value->entries[i].value);
    const char *reason = lang_fold_failure(value);
    if (reason == NULL)
        return is_good;
    diag_error(expander->diags, DIAG_NO_RESULT, value->span, "this cannot be computed: %s", reason);
    return false;
}

/* Reports columns of a schema or body that have the name of a parameter. */
static bool check_columns(struct expander *expander, const struct ast *block)
{
    bool is_good = true;
    for (uint32_t i = 0; i < block->entries_count; i++) {
        const struct ast_entry *entry = &block->entries[i];
        struct param_decl *param = expand_find_param(expander, entry->name);
        if (param == NULL)
            continue;
        struct diag *d =
            diag_error(expander->diags, DIAG_NAME_TAKEN, entry->name_span,
                       "a column cannot have the name of the parameter `%.*s`", STR_ARGS(entry->name));
        diag_label(expander->diags, d, param->name.span, "the parameter is declared here");
        is_good = false;
    }
    return is_good;
}

/* Whether the entry is a schema: types are not expressions, so nothing in them is expanded. */
static bool is_schema(const struct option *table, struct str name)
{
    return str_is(name, "schema") || option_find(table, name).type == OPTION_SCHEMA_T;
}

/* Expands the entries of one declaration or step. false: an entry could not be expanded; it stays
 * as it was. */
static bool expand_entries(struct expander *expander, const struct option *table, struct ast_entry *entries,
                           uint32_t count)
{
    bool is_good = true;
    for (uint32_t i = 0; i < count; i++) {
        if (is_schema(table, entries[i].name)) {
            is_good &= check_columns(expander, entries[i].value);
            continue;
        }
        if (str_is(entries[i].name, "{}"))
            is_good &= check_columns(expander, entries[i].value);
        struct ast *value = expand_ast(expander, entries[i].value, NULL);
        if (value == NULL) {
            is_good = false;
            continue;
        }
        entries[i].value = lang_fold(expander->arena, value);
        is_good &= check_value(expander, entries[i].value);
    }
    return is_good;
}

static void expand_stream(struct expander *expander, struct stream_decl *stream)
{
    for (uint32_t i = 0; i < stream->steps_count; i++) {
        struct step_decl *step = &stream->steps[i];
        const struct option *table = step->descriptor != NULL ? step->descriptor->options : NULL;
        if (!expand_entries(expander, table, step->entries, step->count))
            step->is_broken = stream->is_broken = true;
    }
}

static void expand_declarations(struct expander *expander)
{
    struct job_file *job = expander->job;
    if (!expand_entries(expander, NULL, job->job_entries, job->job_entries_count))
        job->job_is_broken = true;
    for (uint32_t i = 0; i < job->sources_count; i++) {
        struct source_decl *source = &job->sources[i];
        const struct option *table = source->descriptor != NULL ? source->descriptor->options : NULL;
        if (!expand_entries(expander, table, source->entries, source->count))
            source->is_broken = true;
    }
    for (uint32_t i = 0; i < job->streams_count; i++)
        expand_stream(expander, &job->streams[i]);
    for (uint32_t i = 0; i < job->learners_count; i++) {
        struct learner_decl *learner = &job->learners[i];
        const struct option *table = learner->descriptor != NULL ? learner->descriptor->options : NULL;
        if (!expand_entries(expander, table, learner->entries, learner->count))
            learner->is_broken = true;
    }
    for (uint32_t i = 0; i < job->sinks_count; i++) {
        struct sink_decl *sink = &job->sinks[i];
        const struct option *table = sink->descriptor != NULL ? sink->descriptor->options : NULL;
        if (!expand_entries(expander, table, sink->entries, sink->count))
            sink->is_broken = true;
    }
    for (uint32_t i = 0; i < job->serves_count; i++)
        if (!expand_entries(expander, NULL, job->serves[i].entries, job->serves[i].count))
            job->serves[i].is_broken = true;
}

bool lang_expand(struct job_file *job, struct arena *arena, struct diag_list *diags,
                 const struct lang_settings *settings)
{
    unsigned errors = diags->errors;
    struct expander expander = {.arena = arena, .diags = diags, .job = job, .settings = settings};
    expander.params = arena_array(arena, struct param_decl *, job->params_count);
    expander.lets = arena_array(arena, struct let_decl *, job->lets_count);
    for (uint32_t i = 0; i < job->params_count; i++)
        expander.params[i] = &job->params[i];
    for (uint32_t i = 0; i < job->lets_count; i++)
        expander.lets[i] = &job->lets[i];
    if (job->params_count > 0)
        qsort(expander.params, job->params_count, sizeof(*expander.params), compare_params);
    if (job->lets_count > 0)
        qsort(expander.lets, job->lets_count, sizeof(*expander.lets), compare_lets);
    expand_check_lets(&expander);
    expand_params(&expander);
    expand_declarations(&expander);
    return diags->errors == errors;
}

void lang_label_expansions(const struct job_file *job, struct diag_list *diags)
{
    for (unsigned i = 0; i < diags->count; i++) {
        struct diag *d = &diags->items[i];
        for (uint32_t j = 0; j < job->expansions_count && d->labels_count < DIAG_LABELS_MAX; j++) {
            const struct lang_expansion *e = &job->expansions[j];
            bool is_there = e->use.begin == d->span.begin && e->use.end == d->span.end;
            for (unsigned k = 0; k < d->labels_count; k++)
                is_there = is_there && d->labels[k].span.begin != e->definition.begin;
            if (is_there)
                diag_label(diags, d, e->definition, "`%.*s` is defined here", STR_ARGS(e->name));
        }
    }
}

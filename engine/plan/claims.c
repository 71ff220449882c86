/* Claims of a plan: what its nodes and its checkpoints read and write in the file system. */
#include "plan/build.h"

struct span build_place(const struct option *table, const struct ast_entry *entries, uint32_t count,
                        struct span otherwise)
{
    for (uint32_t i = 0; i < count; i++) {
        struct option_row option = option_find(table, entries[i].name);
        if ((option.flags & (OPTION_READS | OPTION_WRITES)) != 0 && entries[i].value != NULL)
            return entries[i].value->span;
    }
    return otherwise;
}

static void claim_node(struct plan_build *b, const struct plan_node *node)
{
    struct claims *claims = b->options->claims;
    bool is_source = node->tag == PLAN_SOURCE, is_sink = node->tag == PLAN_SINK;
    const char *who =
        is_source || is_sink
            ? arena_printf(b->arena, "%s `%.*s`", is_source ? "source" : "sink", STR_ARGS(node->name))
            : arena_printf(b->arena, "`%s` in `%.*s`", node->operator_kind->name, STR_ARGS(node->name));
    const struct option *table = is_source ? node->source_kind->options
                                 : is_sink ? node->sink_kind->options
                                           : node->operator_kind->options;
    claims_add_options(claims, table, node->config, who, node->path_span);
    if (is_source)
        claims_add_input(claims, node->recording, who, node->path_span);
    if (is_sink && node->owns.length > 0)
        claims_add(claims, CLAIM_WRITES_PART, node->owns_glob,
                   arena_strndup(b->arena, node->owns.data, node->owns.length), who, node->path_span);
}

/* The log of a `serve`: PATH-000001.jsonl and so on, or files that another kind of log reads. */
static void claim_log(struct plan_build *b, const struct plan_serve *serve)
{
    const struct plan_serve_log *log = &serve->serving.log;
    struct str path = log->path;
    const char *who = arena_printf(b->arena, "the log of `serve %.*s`", STR_ARGS(serve->name));
    if (log->kind != NULL)
        claims_add_options(b->options->claims, log->kind->options, log->config, who, serve->span);
    if (path.length == 0)
        return;
    const char *glob =
        arena_printf(b->arena, "%s-[0-9][0-9][0-9][0-9][0-9][0-9]*.jsonl", claims_literal(b->arena, path));
    claims_add(b->options->claims, CLAIM_WRITES, glob,
               arena_printf(b->arena, "%.*s-000001.jsonl", STR_ARGS(path)), who, serve->span);
}

/* The directory of a store `file:/DIR`, whose files are pruned. */
static void claim_store(struct plan_build *b, struct str url, struct span span)
{
    static const char scheme[] = "file:";
    const char *text = arena_strndup(b->arena, url.data, url.length);
    if (strncmp(text, scheme, strlen(scheme)) != 0)
        return;
    const char *path = text + strlen(scheme);
    claims_add(b->options->claims, CLAIM_OWNS, path, path, "the checkpoints' store", span);
}

bool build_claims(struct plan_build *b)
{
    struct claims *claims = b->options->claims;
    if (claims == NULL)
        return true;
    for (uint32_t i = 0; i < b->plan->nodes_count; i++)
        if (b->plan->nodes[i].config != NULL && b->plan->nodes[i].tag != PLAN_LEARNER)
            claim_node(b, &b->plan->nodes[i]);
    struct str directory = b->plan->config.checkpoint.directory;
    struct span span = b->job->job_span;
    for (uint32_t i = 0; i < b->job->job_entries_count; i++)
        if (str_is(b->job->job_entries[i].name, "checkpoint") && b->job->job_entries[i].value != NULL)
            span = b->job->job_entries[i].value->span;
    if (directory.length > 0) {
        const char *path = arena_strndup(b->arena, directory.data, directory.length);
        claims_add(claims, CLAIM_OWNS, path, path, "the checkpoint directory", span);
    }
    claim_store(b, b->plan->config.checkpoint.store, span);
    for (uint32_t i = 0; i < b->plan->serves_count; i++)
        claim_log(b, &b->plan->serves[i]);
    return claims_check(claims, b->diags);
}

/* Whether two jobs are equal, ignoring spans. */
#include "lang/lang.h"

static bool entries_equal(const struct ast_entry *a, uint32_t a_count, const struct ast_entry *b,
                          uint32_t b_count)
{
    if (a_count != b_count)
        return false;
    for (uint32_t i = 0; i < a_count; i++)
        if (!str_equal(a[i].name, b[i].name) || !ast_equal(a[i].value, b[i].value))
            return false;
    return true;
}

static bool names_equal(const struct lang_name *a, const struct lang_name *b)
{
    return str_equal(a->text, b->text);
}

static bool inputs_equal(const struct stream_ref *a, const struct stream_ref *b)
{
    return str_equal(a->name, b->name) && str_equal(a->output, b->output);
}

static bool param_equal(const struct param_decl *a, const struct param_decl *b)
{
    return names_equal(&a->name, &b->name) && a->type == b->type && ast_equal(a->value, b->value);
}

static bool let_equal(const struct let_decl *a, const struct let_decl *b)
{
    if (!names_equal(&a->name, &b->name) || a->count != b->count || !ast_equal(a->body, b->body))
        return false;
    for (uint32_t i = 0; i < a->count; i++)
        if (!names_equal(&a->parameters[i], &b->parameters[i]))
            return false;
    return true;
}

static bool source_equal(const struct source_decl *a, const struct source_decl *b)
{
    return names_equal(&a->name, &b->name) && names_equal(&a->kind, &b->kind) &&
           entries_equal(a->entries, a->count, b->entries, b->count);
}

static bool stream_equal(const struct stream_decl *a, const struct stream_decl *b)
{
    if (!names_equal(&a->name, &b->name) || !inputs_equal(&a->input, &b->input) ||
        a->steps_count != b->steps_count)
        return false;
    for (uint32_t i = 0; i < a->steps_count; i++)
        if (!names_equal(&a->steps[i].kind, &b->steps[i].kind) ||
            !entries_equal(a->steps[i].entries, a->steps[i].count, b->steps[i].entries, b->steps[i].count))
            return false;
    return true;
}

static bool learner_equal(const struct learner_decl *a, const struct learner_decl *b)
{
    return names_equal(&a->name, &b->name) && names_equal(&a->kind, &b->kind) &&
           inputs_equal(&a->input, &b->input) && entries_equal(a->entries, a->count, b->entries, b->count);
}

static bool sink_equal(const struct sink_decl *a, const struct sink_decl *b)
{
    return names_equal(&a->name, &b->name) && names_equal(&a->kind, &b->kind) &&
           inputs_equal(&a->input, &b->input) && entries_equal(a->entries, a->count, b->entries, b->count);
}

static bool serve_equal(const struct serve_decl *a, const struct serve_decl *b)
{
    return names_equal(&a->name, &b->name) && entries_equal(a->entries, a->count, b->entries, b->count);
}

bool lang_job_equal(const struct job_file *a, const struct job_file *b)
{
    bool is_equal = names_equal(&a->name, &b->name) && a->params_count == b->params_count &&
                    a->lets_count == b->lets_count && a->sources_count == b->sources_count &&
                    a->streams_count == b->streams_count && a->learners_count == b->learners_count &&
                    a->sinks_count == b->sinks_count && a->serves_count == b->serves_count &&
                    a->uses_count == b->uses_count &&
                    entries_equal(a->job_entries, a->job_entries_count, b->job_entries, b->job_entries_count);
    for (uint32_t i = 0; is_equal && i < a->uses_count; i++)
        is_equal = str_equal(a->uses[i].path, b->uses[i].path);
    for (uint32_t i = 0; is_equal && i < a->params_count; i++)
        is_equal = param_equal(&a->params[i], &b->params[i]);
    for (uint32_t i = 0; is_equal && i < a->lets_count; i++)
        is_equal = let_equal(&a->lets[i], &b->lets[i]);
    for (uint32_t i = 0; is_equal && i < a->sources_count; i++)
        is_equal = source_equal(&a->sources[i], &b->sources[i]);
    for (uint32_t i = 0; is_equal && i < a->streams_count; i++)
        is_equal = stream_equal(&a->streams[i], &b->streams[i]);
    for (uint32_t i = 0; is_equal && i < a->learners_count; i++)
        is_equal = learner_equal(&a->learners[i], &b->learners[i]);
    for (uint32_t i = 0; is_equal && i < a->sinks_count; i++)
        is_equal = sink_equal(&a->sinks[i], &b->sinks[i]);
    for (uint32_t i = 0; is_equal && i < a->serves_count; i++)
        is_equal = serve_equal(&a->serves[i], &b->serves[i]);
    return is_equal;
}

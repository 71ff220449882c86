/* Checks functions before they are expanded: no recursion, no free names. */
#include "lang/internal.h"

enum visit { VISIT_NONE, VISIT_OPEN, VISIT_DONE };

struct let_walk {
    struct expander *expander;
    uint8_t *visits;   /* one per function of the job */
    uint32_t *heights; /* height of the tree of calls below each function, itself included */
    struct let_decl *current;
    uint32_t depth;
};

static void visit_let(struct let_walk *walk, struct let_decl *let);

static uint32_t *height_of(struct let_walk *walk, const struct let_decl *let)
{
    return &walk->heights[let - walk->expander->job->lets];
}

static bool is_parameter(const struct let_decl *let, struct str name)
{
    for (uint32_t i = 0; i < let->count; i++)
        if (str_equal(let->parameters[i].text, name))
            return true;
    return false;
}

static void free_name(struct let_walk *walk, const struct ast *name)
{
    struct expander *expander = walk->expander;
    struct let_decl *let = walk->current;
    struct diag *d = diag_error(expander->diags, DIAG_BAD_LET, name->span,
                                "`%.*s` is neither an argument of `%.*s` nor a parameter of the job",
                                STR_ARGS(name->text), STR_ARGS(let->name.text));
    const char **names = arena_array(expander->arena, const char *, let->count);
    for (uint32_t i = 0; i < let->count; i++)
        names[i] =
            arena_strndup(expander->arena, let->parameters[i].text.data, let->parameters[i].text.length);
    const char *near = diag_nearest(name->text, names, let->count);
    if (near != NULL)
        diag_hint(expander->diags, d, "did you mean `%s`?", near);
    else
        diag_hint(
            expander->diags, d,
            "a function can use its arguments and the job's parameters only: pass a column as an argument");
}

/* Visits one call within a function's body. */
static void visit_call(struct let_walk *walk, const struct ast *call, bool *is_good)
{
    struct expander *expander = walk->expander;
    struct let_decl *callee = expand_find_let(expander, call->text);
    if (callee == NULL || callee->body == NULL) {
        *is_good = *is_good && callee == NULL;
        return;
    }
    uint8_t *visit = &walk->visits[callee - expander->job->lets];
    if (*visit == VISIT_OPEN) {
        struct diag *d = diag_error(expander->diags, DIAG_BAD_LET, call->text_span, "`%.*s` calls itself%s",
                                    STR_ARGS(callee->name.text),
                                    callee == walk->current ? "" : " through other functions");
        diag_label(expander->diags, d, callee->name.span, "the function is defined here");
        diag_hint(expander->diags, d,
                  "each call is replaced by the function's body, so functions cannot be recursive");
        *is_good = false;
    } else if (*visit == VISIT_NONE) {
        visit_let(walk, callee);
    }
    uint32_t *height = height_of(walk, walk->current);
    *height = MAX(*height, *height_of(walk, callee) + 1);
    *is_good = *is_good && callee->body != NULL;
}

static void visit_node(struct let_walk *walk, const struct ast *ast, bool *is_good)
{
    if (ast->tag == AST_NAME && !is_parameter(walk->current, ast->text) &&
        expand_find_param(walk->expander, ast->text) == NULL) {
        free_name(walk, ast);
        *is_good = false;
    }
    if (ast->tag == AST_CALL)
        visit_call(walk, ast, is_good);
    for (uint32_t i = 0; i < ast->count; i++)
        visit_node(walk, ast->children[i], is_good);
    for (uint32_t i = 0; i < ast->entries_count; i++)
        visit_node(walk, ast->entries[i].value, is_good);
}

/* Visits a function. Expansion recurses into calls, so both the depth of this walk and the height of
 * functions visited earlier are limited. */
static void visit_let(struct let_walk *walk, struct let_decl *let)
{
    struct let_decl *caller = walk->current;
    uint8_t *visit = &walk->visits[let - walk->expander->job->lets];
    bool is_good = walk->depth < LANG_LET_DEPTH_MAX, is_shallow = is_good;
    *visit = VISIT_OPEN;
    *height_of(walk, let) = 1;
    walk->current = let;
    walk->depth++;
    if (is_good)
        visit_node(walk, let->body, &is_good);
    walk->depth--;
    walk->current = caller;
    *visit = VISIT_DONE;
    if (!is_shallow || (is_good && *height_of(walk, let) > LANG_LET_DEPTH_MAX)) {
        diag_error(walk->expander->diags, DIAG_TOO_DEEP, let->name.span,
                   "calls of functions nested more than %d deep", LANG_LET_DEPTH_MAX);
        is_good = false;
    }
    if (!is_good)
        let->body = NULL;
}

void expand_check_lets(struct expander *expander)
{
    struct job_file *job = expander->job;
    struct let_walk walk = {.expander = expander,
                            .visits = arena_array(expander->arena, uint8_t, job->lets_count),
                            .heights = arena_array(expander->arena, uint32_t, job->lets_count)};
    for (uint32_t i = 0; i < job->lets_count; i++)
        if (job->lets[i].body != NULL && walk.visits[i] == VISIT_NONE)
            visit_let(&walk, &job->lets[i]);
}

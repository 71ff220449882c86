/* The option `device`: reads it, opens the GPU, and tells of a GPU that cannot be used or has failed. */
#include "learners/learner/where.h"

#include "core/operator_history.h"

#include <stdio.h>

/* --- The option --- */

static bool read_where(const struct ast *ast, struct learner_where *w)
{
    w->kind = DEVICE_AUTO, w->number = 0;
    if (ast == NULL || (ast->tag == AST_NAME && str_equal(ast->text, STR("auto"))))
        return true;
    if (ast->tag == AST_NAME && str_equal(ast->text, STR("cpu"))) {
        w->kind = DEVICE_CPU;
        return true;
    }
    w->kind = DEVICE_CUDA;
    if (ast->tag == AST_NAME && str_equal(ast->text, STR("cuda")))
        return true;
    if (ast->tag != AST_CALL || !str_equal(ast->text, STR("cuda")) || ast->count != 1 ||
        ast->children[0]->tag != AST_INT || ast->children[0]->integer < 0 ||
        ast->children[0]->integer >= GPU_DEVICES_MAX)
        return false;
    w->number = (int)ast->children[0]->integer;
    return true;
}

bool learner_where_bind(struct operator_bind *bind, struct learner_where *w)
{
    if (read_where(w->option.ast, w))
        return true;
    struct diag *d = diag_error(bind->diags, DIAG_BAD_LEARNER, w->option.ast->span,
                                "`device` must be `auto`, `cpu` or a GPU by its number, for "
                                "example `cuda(0)`");
    diag_hint(bind->diags, d, "`leat help device` lists the devices of this machine");
    return false;
}

struct span learner_where_span(const struct learner_where *w)
{
    return w->option.ast ? w->option.ast->span : (struct span){0, 0};
}

/* --- The GPU --- */

bool learner_gpu_open(struct learner_gpu *g, int number, struct gpu_error *error)
{
    *error = (struct gpu_error){.failure = GPU_OK};
    g->api = gpu_open_library(NULL, error);
    g->gpu = g->api != NULL ? g->api->open(number, error) : NULL;
    g->stream = g->gpu != NULL ? g->api->stream(g->gpu, error) : NULL;
    if (g->stream != NULL)
        return true;
    learner_gpu_close(g);
    return false;
}

void learner_gpu_close(struct learner_gpu *g)
{
    if (g->api != NULL && g->gpu != NULL && g->stream != NULL)
        g->api->stream_free(g->gpu, g->stream);
    if (g->api != NULL)
        g->api->close(g->gpu);
    *g = (struct learner_gpu){0};
}

/* --- What is told --- */

bool learner_where_refuse(struct operator_context *context, const struct learner_where *w,
                          const struct gpu_error *error)
{
    struct diag *d = diag_error(context->diags, DIAG_BAD_LEARNER, learner_where_span(w),
                                "the learner cannot use its GPU: %s", error->text);
    diag_hint(context->diags, d,
              "`leat help device` shows the devices of this machine; with `device: cpu` the learner needs "
              "no GPU");
    return false;
}

/* After GPU_NO_MEMORY a mere restart would fail again, so the hint says what to change. */
static const char *hint_of(struct operator_context *context, const struct gpu_error *error,
                           const char *change)
{
    return error->failure == GPU_NO_MEMORY
               ? arena_printf(context->scratch,
                              "change %s, and run the job again: it goes on from its last checkpoint", change)
               : "start the job again: it goes on from its last checkpoint (`leat run --supervise` starts it by "
                 "itself)";
}

void learner_where_failed(struct operator_context *context, const struct learner_where *w,
                          const struct gpu_error *error, const char *change)
{
    operator_fail(context, DIAG_DEVICE_FAILED, learner_where_span(w), error->text,
                  hint_of(context, error, change));
}

void learner_where_unrestored(struct operator_context *context, const struct learner_where *w,
                              const struct gpu_error *error, const char *change)
{
    diag_hint(context->diags,
              diag_error(context->diags, DIAG_DEVICE_FAILED, learner_where_span(w),
                         "the learner cannot be restored from the checkpoint: %s", error->text),
              "%s", hint_of(context, error, change));
}

void learner_where_plan(struct memory_plan *plan, const struct learner_where *w, bool is_open,
                        const struct gpu_error *error)
{
    if (is_open)
        snprintf(plan->where, sizeof(plan->where), "of cuda(%d)", w->number);
    else if (error == NULL)
        snprintf(plan->where, sizeof(plan->where), "on the CPU");
    else
        snprintf(plan->where, sizeof(plan->where), "as on a CPU, because cuda(%d) cannot be used here (%s)",
                 w->number, gpu_failure_name(error->failure));
}

/* A learner's GPU: which one this start uses, the memory that it takes there, and its failures. A learner that only reads
 * a checkpoint needs no GPU, because checkpoints and cuts have the CPU's form. */
#include "learners/sequential/internal_learner.h"

#include "core/os.h"

/* What may be changed where there is too little memory. */
static const char CHANGE[] = "`layers`, `dim` or another option that the message names";

/* Whether the GPU that is open can be used; cuBLASLt may be missing. */
static bool can_learn(const struct learner_gpu *g, struct gpu_error *error)
{
    return g->api->can_matmul(g->gpu, error);
}

/* Opens the GPU that `device` asks for, if it asks for one. False: it demands a GPU that cannot be used. */
static bool open_gpu(const struct sequential_config *c, struct learner_gpu *g, struct gpu_error *error)
{
    const struct learner_where *w = &c->device;
    if (w->kind == DEVICE_CPU)
        return true;
    bool is_open = learner_gpu_open(g, w->number, error);
    if (is_open && can_learn(g, error))
        return true;
    if (is_open)
        learner_gpu_close(g);
    return w->kind == DEVICE_AUTO;
}

static struct train_device device_of(const struct learner_gpu *g)
{
    return (struct train_device){
        .kernels = g->api->kernels, .api = g->api, .gpu = g->gpu, .stream = g->stream};
}

/* --- Memory --- */

/* Fills the plan with the parts of the model; of a network on a GPU they are there. */
static void plan_parts(const struct sequential_options *options, struct memory_plan *plan)
{
    struct sequential_plan parts;
    bool is_on_gpu = options->device != NULL;
    plan->count = 0;
    sequential_plan(options, &parts);
    if (is_on_gpu)
        memory_plan_add(plan, "input", parts.input, false);
    memory_plan_add(plan, "activations", parts.activations, false);
    memory_plan_add(plan, "parameters", parts.parameters, false);
    memory_plan_add(plan, "scratch", parts.scratch, false);
    if (is_on_gpu)
        memory_plan_add(plan, "pinned input and output", parts.pinned, true);
    memory_plan_add(plan, "the largest step", parts.step, is_on_gpu);
    memory_plan_add(plan, "windows of a batch", parts.call, is_on_gpu);
}

void sequential_memory(void *config, struct memory_plan *plan)
{
    const struct sequential_config *c = config;
    struct sequential_options options = c->model;
    struct learner_gpu gpu = {0};
    struct gpu_error error = {.failure = GPU_OK};
    bool is_there = open_gpu(c, &gpu, &error);
    struct train_device device;
    *plan = (struct memory_plan){.count = 0};
    if (gpu.api != NULL) {
        device = device_of(&gpu);
        options.device = &device;
    }
    plan_parts(&options, plan);
    learner_where_plan(plan, &c->device, gpu.api != NULL, is_there ? NULL : &error);
    learner_gpu_close(&gpu);
}

/* Refuses a network that needs more memory of the GPU than is free. */
static bool check_memory(struct operator_context *context, const struct sequential_config *c)
{
    const struct learner_gpu *g = &c->state->gpu;
    struct memory_plan plan;
    plan_parts(&c->model, &plan);
    uint64_t there = g->api->memory_free(g->gpu);
    if (memory_plan_bytes(&plan, false) <= there)
        return true;
    struct arena arena = {0};
    struct diag *d = diag_error(context->diags, DIAG_LEARNER_MEMORY, learner_where_span(&c->device),
                                "the learner needs more memory of its GPU than the %s that are free: %s",
                                memory_bytes_text(there, &arena), memory_plan_text(&plan, false, &arena));
    diag_hint(context->diags, d,
              "make `layers`, `dim` or `history` smaller, or use `recompute: true`, which keeps fewer "
              "activations; `leat explain` shows the memory of each part");
    arena_free(&arena);
    return false;
}

/* --- Open --- */

bool sequential_pick_device(struct operator_context *context)
{
    struct sequential_config *c = context->config;
    struct sequential_state *s = c->state;
    struct gpu_error error = {.failure = GPU_OK};
    c->model.device = NULL;
    if (context->only_reads)
        return true;
    if (!open_gpu(c, &s->gpu, &error))
        return learner_where_refuse(context, &c->device, &error);
    if (s->gpu.api == NULL)
        return true;
    if (context->compares) {
        struct diag *d =
            diag_error(context->diags, DIAG_BAD_LEARNER, learner_where_span(&c->device),
                       "`--compare cpu` does not know sequence models, and this one learns on a GPU");
        diag_hint(
            context->diags, d,
            "run the job without `--compare`, or the learner with `device: cpu` and again with a GPU, and "
            "compare the two outputs");
        return false;
    }
    s->device = device_of(&s->gpu);
    s->opened_us = os_monotonic_us();
    c->model.device = &s->device;
    return check_memory(context, c);
}

bool sequential_refuse_device(struct operator_context *context)
{
    const struct sequential_config *c = context->config;
    return learner_where_refuse(context, &c->device, sequential_error(c->state->model));
}

/* --- Failures --- */

bool sequential_check_device(struct operator_context *context)
{
    const struct sequential_config *c = context->config;
    const struct gpu_error *error = sequential_error(c->state->model);
    if (error == NULL)
        return true;
    if (!c->state->has_failed)
        learner_where_failed(context, &c->device, error, CHANGE);
    c->state->has_failed = true;
    return false;
}

bool sequential_check_restored(struct operator_context *context)
{
    const struct sequential_config *c = context->config;
    const struct gpu_error *error = sequential_error(c->state->model);
    if (error != NULL)
        learner_where_unrestored(context, &c->device, error, CHANGE);
    return error == NULL;
}

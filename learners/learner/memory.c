/*
 * How much memory a learner takes, by part: shown by `leat explain`, and checked before a learner opens, so
 * that one that does not fit says so instead of ending the process.
 */
#include "learners/learner/internal.h"

#include "core/mem.h"
#include "core/memory_plan.h"
#include "core/os.h"
#include "kernels/gpu.h"

#include <stdlib.h>

/* Sketches of a CPU's tables, taken at the start; the tables themselves grow within the learner's memory. */
static void add_sketches(const struct learner_config *c, struct memory_plan *plan)
{
    if (c->model.admit_after > 1)
        memory_plan_add(plan, "sketches", (uint64_t)c->model.sketch_bytes * c->inputs.sparse_count, false);
}

/* Fills `plan` with the parts that the learner takes: on the device that is open in s, or on the CPU if none
 * is (s->device.api NULL). */
static void plan_parts(const struct learner_config *c, const struct learner_state *s,
                       struct memory_plan *plan)
{
    struct model_device device = {.api = s->device.api, .gpu = s->device.gpu, .stream = s->device.stream};
    struct model_plan parts;
    plan->count = 0;
    if (!model_plan(&c->model, s->kernels, s->device.api != NULL ? &device : NULL, &parts))
        return;
    memory_plan_add(plan, "input", parts.input, false);
    memory_plan_add(plan, "rows", parts.rows, false);
    memory_plan_add(plan, "activations", parts.activations, false);
    memory_plan_add(plan, "parameters", parts.parameters, false);
    memory_plan_add(plan, "scratch", parts.scratch, false);
    if (s->device.api == NULL) {
        add_sketches(c, plan);
        return;
    }
    memory_plan_add(plan, "tables", learner_device_memory(c, s), false);
    memory_plan_add(plan, "pinned input", parts.pinned, true);
    memory_plan_add(plan, "pinned rows below the tables", (uint64_t)c->device.pinned, true);
}

void learner_memory(void *config, struct memory_plan *plan)
{
    const struct learner_config *c = config;
    struct learner_state *s = mem_calloc(1, sizeof(*s));
    const char *reason;
    struct gpu_error error = {.failure = GPU_OK};
    *plan = (struct memory_plan){.count = 0};
    s->kernels = kernels_pick_env(&reason);
    bool is_there = learner_open_device(c, s, &error);
    if (s->kernels != NULL)
        plan_parts(c, s, plan);
    learner_where_plan(plan, &c->device.where, s->device.api != NULL, is_there ? NULL : &error);
    learner_gpu_close(&s->device);
    free(s);
}

static void refuse(struct operator_context *context, const struct memory_plan *plan, uint64_t there)
{
    const struct learner_config *c = context->config;
    bool is_device = c->state->device.api != NULL;
    struct span span = learner_where_span(&c->device.where);
    struct arena arena = {0};
    struct diag *d = diag_error(context->diags, DIAG_LEARNER_MEMORY, span,
                                "the learner needs more memory %s than the %s that are free: %s",
                                is_device ? "of its GPU" : "for its batches",
                                memory_bytes_text(there, &arena), memory_plan_text(plan, false, &arena));
    diag_hint(context->diags, d,
              is_device ? "make `device_memory` (the tables) or `batch` smaller, then `dim` and the layers"
                        : "make `batch` smaller (all parts but parameters and sketches shrink with it), then "
                          "`dim` and the layers; `leat explain` shows the memory of each part");
    arena_free(&arena);
}

bool learner_check_memory(struct operator_context *context)
{
    const struct learner_config *c = context->config;
    const struct learner_state *s = c->state;
    struct memory_plan plan;
    plan_parts(c, s, &plan);
    int64_t there = s->device.api ? (int64_t)learner_device_free(s) : os_memory_available();
    if (there < 0 || memory_plan_bytes(&plan, false) <= (uint64_t)there)
        return true;
    refuse(context, &plan, (uint64_t)there);
    return false;
}

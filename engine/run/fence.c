/* What a run does when another process has taken over its checkpoint directory, and how it finds out.
 *
 * The run asks before each step that others can see (state/checkpoint_lock.c says why, and what becomes of a
 * step that still comes too late): the coordinator before it begins, publishes and prunes checkpoints, and
 * once a second besides; sinks by sink_context.check, before a file gets its final name and before a
 * transaction. A fenced run reports E0709 alone: its other errors (files that are gone, a producer that is
 * fenced) come from the other process.
 *
 * A run that begins shuts out the sinks of its predecessor before it chooses a checkpoint (fence_sinks):
 * rows that these sinks sent while it chooses would lie behind the chosen checkpoint, and their order would
 * be unknown. */
#include "run/barrier.h"

#include <errno.h>

/* Replaces all diagnostics by E0709: earlier ones (a checkpoint or a file that is gone) come from the other
 * process. */
static void say_fenced(struct run *run)
{
    char holder[CHECKPOINT_HOLDER_BYTES];
    struct run_checkpoints *c = run->checkpoints;
    diag_list_init(run->diags, run->diags->arena);
    checkpoint_dir_holder(c->dir, holder);
    struct diag *d = diag_error(run->diags, DIAG_E0709, (struct span){0},
                                "another process has taken over `%s` (%s): this one stops", c->path, holder);
    diag_hint(
        run->diags, d,
        "the other process goes on from the last checkpoint that counts, and nothing is lost or doubled; if "
        "this one is to run, stop the other one and start this one again");
}

int run_check(struct run *run)
{
    struct run_checkpoints *c = run->checkpoints;
    int error = c == NULL || c->dir == NULL ? 0 : checkpoint_dir_check(c->dir);
    if (error != ESTALE)
        return error;
    pthread_mutex_lock(&run->diags_mutex);
    if (!atomic_exchange(&run->is_fenced, true))
        say_fenced(run);
    pthread_mutex_unlock(&run->diags_mutex);
    run_fail(run);
    return error;
}

bool run_is_fenced(struct run *run)
{
    return run_check(run) == ESTALE || atomic_load(&run->is_fenced);
}

void run_ends_fenced(struct run *run)
{
    if (!run_is_fenced(run))
        return;
    pthread_mutex_lock(&run->diags_mutex);
    say_fenced(run);
    pthread_mutex_unlock(&run->diags_mutex);
}

int fence_check(void *engine)
{
    return run_check(engine);
}

/* Implements sink_context.known_next. */
static uint64_t known_next(void *engine)
{
    const struct run *run = engine;
    return checkpoint_order_next(run->checkpoints->dir);
}

bool fence_sinks(struct run *run)
{
    struct run_id before;
    bool goes_on = run->options.mode == RUN_AUTO || run->options.mode == RUN_RESUME;
    if (!checkpoint_newest_run(run->checkpoints->dir, &before))
        return true;
    for (uint32_t i = 0; i < run->plan->nodes_count; i++) {
        const struct plan_node *node = &run->plan->nodes[i];
        if (node->tag != PLAN_SINK || node->sink_kind->fence == NULL)
            continue;
        struct sink_context context = {.config = node->config,
                                       .input = node->bound[0].schema,
                                       .arena = &run->arena,
                                       .diags = run->diags,
                                       .has_checkpoints = true,
                                       .check = fence_check,
                                       .engine = run,
                                       .known_next = goes_on ? known_next : NULL,
                                       .job = run->plan->name,
                                       .name = node->name};
        memcpy(context.run_id, before.bytes, sizeof(context.run_id));
        if (!node->sink_kind->fence(&context))
            return false;
    }
    return true;
}

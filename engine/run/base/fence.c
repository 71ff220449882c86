/* Fencing: how a run notices that another process has taken over its checkpoint directory, and stops.
 *
 * The run calls run_check before each step that other processes can see (state/checkpoint_lock.c says why,
 * and why a step does no harm that comes after the take-over). The coordinator calls it before it begins,
 * publishes or prunes a checkpoint, and once a second besides; sinks call it as sink_context.check before
 * they give a file its final name and before a transaction. A fenced run reports E0709 alone, because its
 * other errors (files that are gone, a producer that is fenced) are effects of the other process. */
#include "run/base/base.h"

#include "state/checkpoint.h"

#include <errno.h>

/* Replaces all diagnostics by E0709: earlier ones (a missing checkpoint or file) are effects of the other
 * process. */
static void say_fenced(struct run *run)
{
    char holder[CHECKPOINT_HOLDER_BYTES];
    diag_list_init(run->diags, run->diags->arena);
    checkpoint_dir_holder(run->dir, holder);
    struct diag *d =
        diag_error(run->diags, DIAG_TAKEN_OVER, (struct span){0},
                   "another process has taken over `%s` (%s): this process stops", run->path, holder);
    diag_hint(
        run->diags, d,
        "the other process resumes from the last valid checkpoint, and no row is lost or written twice; to "
        "run this process instead, stop the other process and start this one again");
}

int run_check(struct run *run)
{
    const struct run_peers *peers = run->options.peers;
    int error = run->dir == NULL ? 0 : checkpoint_dir_check(run->dir);
    if (error == 0 && peers != NULL && peers->is_replaced != NULL && peers->is_replaced(peers->engine))
        error = ESTALE;
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

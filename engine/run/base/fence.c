/* Fencing: how a run notices that another process has taken over its checkpoint directory, and stops.
 *
 * The run calls run_check before each step that other processes can see (state/checkpoint_lock.c says why,
 * and why a step does no harm that comes after the take-over). The coordinator calls it before it begins,
 * publishes or prunes a checkpoint, and once a second besides; sinks call it as sink_context.check before
 * they give a file its final name and before a transaction. A fenced run reports E0709 alone, because its
 * other errors (files that are gone, a producer that is fenced) are effects of the other process. A worker
 * whose directory nobody has taken over keeps those that came before: it may have failed by itself, and stop
 * only because it does not know whether it still has its part. */
#include "run/base/base.h"

#include "core/diag_copy.h"
#include "state/checkpoint.h"

#include <errno.h>

/* Adds E0709 to what was said before, or removes what was said since. */
static void say_round_over(struct diag_list *diags)
{
    unsigned at = 0, errors = 0;
    for (; at < diags->count && diags->items[at].code != DIAG_TAKEN_OVER; at++)
        errors += diags->items[at].severity == DIAG_ERROR;
    if (at < diags->count) {
        diags->count = at + 1;
        diags->errors = errors + 1;
        diags->dropped = 0;
        return;
    }
    diag_make_room(diags);
    diag_hint(diags,
              diag_error(diags, DIAG_TAKEN_OVER, (struct span){0},
                         "the workers of the job begin again, from the newest head: this run stops"),
              "nothing need be done: no row is lost or written twice");
}

/* Replaces all diagnostics by E0709: earlier ones (a missing checkpoint or file) are effects of the other
 * process. */
static void say_fenced(struct run *run)
{
    char holder[CHECKPOINT_HOLDER_BYTES];
    if (run->options.peers != NULL && checkpoint_dir_check(run->dir) != ESTALE) {
        say_round_over(run->diags);
        return;
    }
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

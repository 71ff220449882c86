#include "cli/run_leave.h"

#include "core/log.h"
#include "core/os.h"

bool run_leave_in_order(struct worker *worker, struct run_life *life, const struct run_leave *how,
                        int64_t *since_us)
{
    int64_t now = os_monotonic_us();
    if (*since_us == 0) {
        run_life_say(
            life,
            how->is_interrupted
                ? "leaving at a checkpoint; the other workers go on; a second Ctrl-C stops at once"
                : "leaving at a checkpoint, as `leat cluster drain` has asked; the other workers go on");
        worker_leave(worker);
        *since_us = now;
    }
    if (now - *since_us < how->within_us)
        return false;
    log_say(
        LOG_LEVEL_WARNING,
        how->has_ended
            ? "other workers have not come to the last checkpoint within %.1f s (--drain-within): leaving without them"
            : "no checkpoint within %.1f s (--drain-within): leaving without one; the other workers go back to the head",
        (double)how->within_us / 1e6);
    return true;
}

void run_leave_at_end(struct worker *worker, struct run_life *life, bool is_for_all)
{
    bool is_finished = run_life_stats(life)->is_finished;
    if (is_for_all && !is_finished && !worker_changes(worker) && !worker_must_stop(worker))
        worker_ask_stop(worker);
    worker_say_ended(worker, is_finished);
}

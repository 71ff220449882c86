/* Backpressure: when the sources must wait, because sinks are full, because evictions wait for a checkpoint,
 * because the disk is nearly full, or because the store takes no checkpoints and sinks wait for it. Under the sequencer's mutex. */
#include "run/sequencer/internal.h"

#include "core/log.h"
#include "core/os.h"
#include "run/base/barrier.h"
#include "state/state.h"

#include <stdio.h>

enum { DISK_LOOK_US = 200000 };

/* Whether a sink is full. sends_checkpoints: look only at sinks that send rows once a checkpoint has them. */
static bool has_full_sink(const struct run *run, bool sends_checkpoints)
{
    for (uint32_t i = 0; i < run->sinks_count; i++) {
        const struct sink_context *sink = run->sinks[i];
        if (atomic_load_explicit(&sink->is_full, memory_order_acquire) &&
            (sink->sends_checkpoints || !sends_checkpoints))
            return true;
    }
    return false;
}

bool hold_sinks_are_full(const struct run *run)
{
    return has_full_sink(run, false);
}

/* A full sink that sends rows only once a checkpoint has them needs a barrier: one micro-batch is formed to
 * carry the barrier. */
bool hold_may_form(struct run *run, uint64_t micro_batch)
{
    if (!has_full_sink(run, true) || run->barrier == NULL || micro_batch == run->sequencer->last_barrier)
        return false;
    barrier_ask(run);
    return barrier_is_waiting(run);
}

bool hold_state_is_pressed(struct run *run)
{
    return run->stores.count > 0 && run->barrier != NULL &&
           state_stores_pressure(&run->stores) > (size_t)run->operator_memory_bytes / 4 &&
           barrier_is_busy(run);
}

bool hold_store_is_behind(const struct run *run)
{
    return run->barrier != NULL && barrier_uncommitted(run) > (uint64_t)run->plan->config.checkpoint.behind;
}

bool hold_disk_is_low(struct run *run)
{
    struct sequencer *s = run->sequencer;
    const struct job_checkpoint *config = &run->plan->config.checkpoint;
    int64_t now = os_monotonic_us();
    if (now - s->disk_looked_us < DISK_LOOK_US)
        return s->disk_is_low;
    s->disk_looked_us = now;
    int64_t left = os_free_bytes(run->path);
    bool is_low = left >= 0 && left < config->free_bytes;
    if (is_low && !s->disk_is_low)
        log_say(LOG_LEVEL_WARNING,
                "the disk of `%.*s` has %lld MiB left, less than `min_free` (%lld MiB): the sources pause "
                "until there is more space",
                STR_ARGS(config->directory), (long long)(left >> 20), (long long)(config->free_bytes >> 20));
    if (!is_low && s->disk_is_low)
        log_say(LOG_LEVEL_INFO, "the disk of `%.*s` has %lld MiB left: the sources continue",
                STR_ARGS(config->directory), (long long)(left >> 20));
    s->disk_is_low = is_low;
    return is_low;
}

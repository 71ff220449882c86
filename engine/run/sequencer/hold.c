/* Backpressure: when the sources must wait, because sinks are full, because evictions wait for a checkpoint,
 * because the disk is nearly full, because the order log has not reached it, or because the store takes no checkpoints and sinks wait for it. Under the sequencer's mutex. */
#include "run/sequencer/internal.h"

#include "core/log.h"
#include "core/os.h"
#include "run/base/barrier.h"
#include "run/order/order.h"
#include "state/state.h"

#include <stdio.h>

enum { DISK_LOOK_US = 200000 };

/* HOLD_SINKS if a sink is full, and HOLD_SENDERS if one is that sends rows only once a checkpoint has them. */
static unsigned full_sinks(const struct run *run)
{
    unsigned holds = 0;
    for (uint32_t i = 0; i < run->sinks_count; i++) {
        const struct sink_context *sink = run->sinks[i];
        if (!atomic_load_explicit(&sink->is_full, memory_order_acquire))
            continue;
        holds |= HOLD_SINKS;
        if (sink->sends_checkpoints && run->barrier != NULL)
            return holds | HOLD_SENDERS;
    }
    return holds;
}

/* A full sink that sends rows only once a checkpoint has them needs a barrier: one micro-batch is formed to
 * carry the barrier. A barrier behind the sink's last row is on its way, if the last micro-batch has it. */
bool hold_may_form(struct run *run, uint64_t micro_batch, unsigned holds)
{
    if (!(holds & HOLD_SENDERS) || micro_batch == run->sequencer->last_barrier)
        return false;
    barrier_ask(run);
    return barrier_is_waiting(run);
}

static bool state_is_pressed(struct run *run)
{
    return run->stores.count > 0 && run->barrier != NULL &&
           state_stores_pressure(&run->stores) > (size_t)run->operator_memory_bytes / 4 &&
           barrier_is_busy(run);
}

static bool store_is_behind(const struct run *run)
{
    return run->barrier != NULL && barrier_uncommitted(run) > (uint64_t)run->plan->config.checkpoint.behind;
}

static bool disk_is_low(struct run *run)
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
                "the disk of `%s` has %lld MiB left, less than `min_free` (%lld MiB): the sources pause "
                "until there is more space",
                run->path, (long long)(left >> 20), (long long)(config->free_bytes >> 20));
    if (!is_low && s->disk_is_low)
        log_say(LOG_LEVEL_INFO, "the disk of `%s` has %lld MiB left: the sources continue", run->path,
                (long long)(left >> 20));
    s->disk_is_low = is_low;
    return is_low;
}

unsigned hold_own(struct run *run, bool is_stop)
{
    unsigned holds = state_is_pressed(run) ? HOLD_STATE : 0;
    holds |= order_is_full(run) ? HOLD_ORDER : 0;
    if (is_stop)
        return holds;
    holds |= full_sinks(run);
    holds |= run->barrier != NULL && disk_is_low(run) ? HOLD_DISK : 0;
    return holds | (store_is_behind(run) ? HOLD_STORE : 0);
}

enum run_lane_time hold_cause(unsigned holds)
{
    return holds & HOLD_STATE   ? RUN_LANE_BEHIND_CHECKPOINT
           : holds & HOLD_ORDER ? RUN_LANE_BEHIND_ORDER
           : holds & HOLD_SINKS ? RUN_LANE_BEHIND_SINKS
           : holds & HOLD_DISK  ? RUN_LANE_BEHIND_DISK
           : holds & HOLD_STORE ? RUN_LANE_BEHIND_STORE
                                : RUN_LANE_WAITS;
}

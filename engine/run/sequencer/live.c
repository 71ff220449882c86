/* Decisions by a clock, for live sources: which records these have depends on the time of the read. No other
 * file decides by a clock what a micro-batch holds.
 *
 * A partition is dry when its last read answered READ_QUIET (all records were read) or READ_LATER (there are
 * more, but they have not come yet). Micro-batches are formed without a quiet partition. For a partition that
 * answered READ_LATER they wait, up to `order_wait`: so after an hour without the job running, the partitions
 * are merged in the order of their arrival at the broker, and no partition runs ahead of the others. A dry
 * partition is read again when its source wakes the engine, or when a lane has slept without work.
 *
 * Decisions by the clock go into the order log: which rows a micro-batch has, which partition has become idle
 * (is left out of the watermark until its next row), which partition was added, and the arrival clock's time
 * in a lull. All under the sequencer's mutex, except sequencer_wake. */
#include "run/sequencer/internal.h"

#include "core/log.h"
#include "core/os.h"
#include "run/order/order.h"

void sequencer_wake(void *engine)
{
    struct run *run = engine;
    atomic_fetch_add(&run->sequencer->wakes, 1);
    run_wake(run);
}

bool live_was_read(struct partition *p, enum read_status status, uint64_t wakes)
{
    bool was_quiet = p->is_quiet;
    if (status != READ_LATER && status != READ_QUIET) {
        p->dry_at = 0;
        p->dry_us = 0;
        p->is_quiet = false;
        return true;
    }
    p->dry_at = wakes;
    p->is_quiet = status == READ_QUIET;
    if (p->dry_us == 0 || p->is_quiet != was_quiet)
        p->dry_us = os_monotonic_us();
    return p->is_quiet != was_quiet;
}

bool live_may_read(const struct run *run, const struct partition *p)
{
    return p->dry_at != atomic_load_explicit(&run->sequencer->wakes, memory_order_relaxed);
}

bool live_goes_without(struct run *run, const struct partition *p, bool is_quiet, int64_t dry_us)
{
    const struct plan_node *node = run_source_node(run, p->source);
    if (!node->is_live || dry_us == 0)
        return false;
    return is_quiet || os_monotonic_us() - dry_us > node->common->order_wait_us;
}

/* A source that ends is given up by a stop once it has said for so long that its records have not come yet: a broker does not answer, or
 * nobody writes to a file. The time that a read takes does not count, so that a slow machine does not show. */
enum { SILENT_US = 3000 * 1000 };

bool live_is_silent(int64_t dry_us)
{
    return dry_us != 0 && os_monotonic_us() - dry_us > SILENT_US;
}

bool live_becomes_idle(struct run *run, const struct partition *p)
{
    const struct plan_node *node = run_source_node(run, p->source);
    return node->is_live && node->common->idle_after_us > 0 && p->offer.tag == OFFER_NONE &&
           p->offer.quiet_us != 0 && os_monotonic_us() - p->offer.quiet_us >= node->common->idle_after_us;
}

/* Windows over arrival time end without records when the arrival clock passes their end. In a lull, when
 * everything was read, the clock follows the wall clock CLOCK_BEHIND_US behind it, in steps of
 * CLOCK_STEP_US at least (arrival_clock.c: what a wall clock that is set does to it). Records stamped by a
 * machine whose clock is further behind come late. */
enum { CLOCK_BEHIND_US = 1000 * 1000, CLOCK_STEP_US = 1000 * 1000 };

/* The wall clock for ticks, in microseconds. arrived: the arrival clock. */
static int64_t trusted_wall_us(struct sequencer *s, int64_t arrived)
{
    enum arrival_news news;
    int64_t now = os_monotonic_us(), wall = os_wall_us();
    int64_t trusted = arrival_clock_look(&s->arrival_clock, now, wall, arrived, &news);
    long long step_s = (wall - trusted) / US_PER_SECOND; /* at twice the speed, also how long it takes */
    if (news == ARRIVAL_CATCHES_UP)
        log_say(
            LOG_LEVEL_WARNING,
            "the wall clock was set forward, or this machine slept: the arrival clock is %lld s behind it, and "
            "catches up at twice the speed, which takes about %lld s; until then windows over arrival close "
            "later where no rows come",
            step_s, step_s);
    if (news == ARRIVAL_STANDS)
        log_say(
            LOG_LEVEL_WARNING,
            "the wall clock is %lld s behind the arrival clock, which never goes back: until it is there, "
            "windows over arrival close by the arrival of rows alone; set the clock of this machine",
            (long long)((arrived - wall) / US_PER_SECOND));
    return trusted;
}

int64_t live_tick(struct run *run)
{
    struct sequencer *s = run->sequencer;
    int64_t clock = s->source_watermarks[run->plan->sources_count];
    if (!run->plan->has_arrival_clock || !s->is_live || clock == TIME_MIN)
        return TIME_MIN;
    int64_t time = trusted_wall_us(s, clock) - CLOCK_BEHIND_US;
    return time - CLOCK_STEP_US >= clock ? time : TIME_MIN;
}

void live_set_clock(struct run *run, int64_t time)
{
    int64_t *clock = &run->sequencer->source_watermarks[run->plan->sources_count];
    *clock = MAX(*clock, time);
    order_tick(run, time);
}

/* Sets the load: log2 of the number of examples that a step of a learner should have. A step has as many as
 * the micro-batch has rows, so that the model is as new as it can be. If the micro-batch is half full there
 * are more rows to come, and the steps double until the stream is caught up. The load falls by one at a
 * time, so that one small micro-batch in a rush changes little. */
void live_follow_load(struct run *run, uint32_t rows)
{
    const struct sequencer *s = run->sequencer;
    uint32_t load = 0;
    if (!run->plan->follows_load || !s->is_live)
        return;
    while (load < ORDER_LOAD_MAX && rows > 1U << load)
        load++;
    if (rows >= BATCH_ROWS / 2)
        load = MIN(MAX(load, s->load + 1), (uint32_t)ORDER_LOAD_MAX);
    live_set_load(run, MAX(load, s->load - (s->load > 0)));
}

void live_set_load(struct run *run, uint32_t load)
{
    if (run->sequencer->load == load)
        return;
    run->sequencer->load = load;
    order_load(run, load);
}

static bool is_known(const struct sequencer *s, uint32_t source, uint32_t local)
{
    for (uint32_t i = 0; i < s->partitions_count; i++)
        if (s->partitions[i].source == source && s->partitions[i].local == local)
            return true;
    return false;
}

bool live_ask_sources(struct run *run)
{
    for (uint32_t i = 0; i < run->plan->sources_count; i++) {
        const struct source_kind *kind = run_source_node(run, i)->source_kind;
        uint32_t found = run->sources[i].partitions_count;
        if (kind->discover == NULL)
            continue;
        if (!kind->discover(&run->sources[i])) {
            run_fail(run);
            return false;
        }
        leat_assert(run->sources[i].partitions_count >= found);
    }
    return true;
}

/* Adds the source's partitions that were found, up to `count` of them. False after a diagnostic. */
static bool add_found(struct run *run, uint32_t source, uint32_t count)
{
    struct sequencer *s = run->sequencer;
    for (uint32_t local = s->known[source]; local < count; local++) {
        if (is_known(s, source, local))
            continue;
        struct partition *p = sequencer_add_partition(run, source, local);
        if (p == NULL) {
            run_fail(run);
            return false;
        }
        log_added(run, p);
    }
    s->known[source] = count;
    return true;
}

bool live_discover(struct run *run)
{
    struct sequencer *s = run->sequencer;
    uint64_t wakes = atomic_load_explicit(&s->wakes, memory_order_relaxed);
    if (!s->is_live || s->is_replaying || s->discovered_at == wakes)
        return true;
    if (!live_ask_sources(run) || (unlikely(s->peers != NULL) && !peers_may_add(run)))
        return false;
    s->discovered_at = wakes;
    for (uint32_t i = 0; i < run->plan->sources_count; i++) {
        uint32_t count = unlikely(s->peers != NULL) ? peers_found(run, i) : run->sources[i].partitions_count;
        if (sequencer_is_named(run, i) && !add_found(run, i, count))
            return false;
    }
    return true;
}

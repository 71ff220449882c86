#include "control/bottleneck.h"

#include "core/buffer.h"
#include "core/mem.h"
#include "core/os.h"

#include <stdarg.h>
#include <stdlib.h>

enum { SAMPLES = 4, EVERY_US = 1000 * 1000 }; /* the last three seconds */

/* From this share of a lane's time on a node, decoding, or a wait for something behind the sources is named; from WAITING on
 * waiting for records. */
static const double NAMED = 0.5, WAITING = 0.5, DISK = 0.05;

struct sample {
    struct run_times *times;
    double lookups[PLAN_NODES_MAX], loaded[PLAN_NODES_MAX]; /* of state; loaded: from disk */
};

struct bottleneck {
    const struct plan *plan;
    const struct run *run;
    struct sample first, ring[SAMPLES];
    uint64_t taken; /* samples so far, behind the first */
    int64_t looked_us;
    bool is_full[PLAN_NODES_MAX];
    double fill[PLAN_STAGES_MAX];
};

static void take(struct bottleneck *b, const struct run_stats *stats, struct sample *sample)
{
    if (sample->times == NULL)
        sample->times = run_times_new(b->run);
    run_times(b->run, sample->times);
    for (uint32_t i = 0; stats != NULL && i < stats->nodes_count; i++) {
        const struct report *report = &stats->nodes[i].report;
        const struct report_item *lookups = report_find(report, "state_lookups");
        const struct report_item *loaded = report_find(report, "state_loaded");
        sample->lookups[i] = lookups != NULL ? lookups->value : 0;
        sample->loaded[i] = loaded != NULL ? loaded->value : 0;
    }
}

struct bottleneck *bottleneck_new(const struct plan *plan, const struct run *run)
{
    struct bottleneck *b = mem_calloc(1, sizeof(*b));
    b->plan = plan;
    b->run = run;
    take(b, NULL, &b->first);
    b->looked_us = os_monotonic_us();
    return b;
}

void bottleneck_free(struct bottleneck *b)
{
    if (b == NULL)
        return;
    run_times_free(b->first.times);
    for (uint32_t i = 0; i < SAMPLES; i++)
        run_times_free(b->ring[i].times);
    free(b);
}

static void note_queues(struct bottleneck *b, const struct run_stats *stats)
{
    for (uint32_t i = 0; i < stats->nodes_count; i++)
        b->is_full[i] = stats->nodes[i].is_full;
    memcpy(b->fill, stats->queue_fill, sizeof(b->fill));
}

void bottleneck_look(struct bottleneck *b, const struct run_stats *stats)
{
    int64_t now = os_monotonic_us();
    note_queues(b, stats);
    if (now - b->looked_us < EVERY_US)
        return;
    b->looked_us = now;
    take(b, stats, &b->ring[b->taken++ % SAMPLES]);
}

/* --- Between two samples --- */

struct span_of_time {
    const struct sample *from, *to;
    double ns; /* of a lane */
};

/* The node that takes most, and the lane that it is on. */
struct taken {
    double share;
    uint32_t node, lane;
};

/* Sets the shares of the nodes; returns the largest. A node's share is that of its fullest lane; in stage 0, which any lane
 * may run, that of all lanes. */
static struct taken set_node_shares(const struct bottleneck *b, const struct span_of_time *s,
                                    struct bottleneck_found *found)
{
    struct taken most = {0};
    for (uint32_t i = 0; i < s->to->times->instances_count; i++) {
        const struct run_instance_time *instance = &s->to->times->instances[i];
        /* What begins before the span counts in it as a whole when it ends. */
        double share = MIN((double)(instance->ns - s->from->times->instances[i].ns) / s->ns, 1.0);
        double *of = &found->node_shares[instance->node];
        *of = b->plan->nodes[instance->node].stage == 0 ? *of + share / s->to->times->lanes_count
                                                        : MAX(*of, share);
        if (*of > most.share)
            most = (struct taken){*of, instance->node, instance->lane};
    }
    return most;
}

static void set_shares(const struct span_of_time *s, struct bottleneck_found *found)
{
    const struct run_times *to = s->to->times;
    for (uint32_t t = 0; t < RUN_LANE_TIMES; t++) {
        double sum = 0;
        for (uint32_t lane = 0; lane < to->lanes_count; lane++)
            sum += (double)(to->lanes[lane].ns[t] - s->from->times->lanes[lane].ns[t]);
        found->shares[t] = sum / (s->ns * to->lanes_count);
    }
}

/* "; 23 % of its look-ups read the disk" */
static void add_cause(const struct bottleneck *b, const struct span_of_time *s, uint32_t node, char *text,
                      size_t at)
{
    double lookups = s->to->lookups[node] - s->from->lookups[node];
    double share = lookups > 0 ? (s->to->loaded[node] - s->from->loaded[node]) / lookups : 0;
    if (share >= DISK)
        snprintf(text + at, BOTTLENECK_BYTES - at, "; %.0f %% of its look-ups read the disk", share * 100);
    else if (b->fill[b->plan->nodes[node].stage] >= NAMED)
        snprintf(text + at, BOTTLENECK_BYTES - at, ", and what comes before it waits");
}

static size_t say(struct bottleneck_found *found, const char *format, ...) LEAT_PRINTF(2, 3);
static size_t say(struct bottleneck_found *found, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(found->text, sizeof(found->text), format, arguments);
    va_end(arguments);
    return MIN((size_t)MAX(length, 0), sizeof(found->text) - 1);
}

/* The waits for something that no node does. False: none of them is long. */
static bool say_wait(const struct bottleneck *b, struct bottleneck_found *found)
{
    static const char *const what[RUN_LANE_TIMES] = {
        [RUN_LANE_BEHIND_CHECKPOINT] = "wait until a checkpoint is written",
        [RUN_LANE_BEHIND_ORDER] = "wait for the disk to take the order log",
        [RUN_LANE_BEHIND_SINKS] = "wait for a sink that is full",
        [RUN_LANE_BEHIND_DISK] = "wait for room on the disk of the checkpoints",
        [RUN_LANE_BEHIND_STORE] = "wait for the store to take checkpoints (`commit: store`)"};
    for (uint32_t t = RUN_LANE_BEHIND_CHECKPOINT; t < RUN_LANE_TIMES; t++) {
        if (found->shares[t] < NAMED)
            continue;
        size_t at = say(found, "the lanes %s for %.0f %% of the time", what[t], found->shares[t] * 100);
        for (uint32_t i = 0; t == RUN_LANE_BEHIND_SINKS && i < b->plan->nodes_count; i++) {
            if (!b->is_full[i])
                continue;
            found->node = (int32_t)i;
            snprintf(found->text + at, sizeof(found->text) - at, ": `%s`", b->plan->nodes[i].part);
            break;
        }
        return true;
    }
    return false;
}

static void judge(const struct bottleneck *b, const struct sample *from, const struct sample *to, double ns,
                  struct bottleneck_found *found)
{
    struct span_of_time s = {from, to, ns};
    *found = (struct bottleneck_found){.node = -1};
    if (ns <= 0)
        return;
    set_shares(&s, found);
    struct taken most = set_node_shares(b, &s, found);
    uint32_t node = most.node, lanes = to->times->lanes_count;
    bool is_node = most.share >= NAMED && most.share > found->shares[RUN_LANE_DECODES];
    if (is_node) {
        bool is_anywhere = b->plan->nodes[node].stage == 0 && lanes > 1;
        found->node = (int32_t)node;
        size_t at = is_anywhere ? say(found, "`%s` takes %.0f %% of all lanes", b->plan->nodes[node].part,
                                      most.share * 100)
                                : say(found, "`%s` takes %.0f %% of lane %u", b->plan->nodes[node].part,
                                      most.share * 100, most.lane + 1);
        add_cause(b, &s, node, found->text, at);
    } else if (say_wait(b, found)) {
        return;
    } else if (found->shares[RUN_LANE_DECODES] >= NAMED) {
        say(found, "reading and decoding records takes %.0f %% of the lanes' time",
            found->shares[RUN_LANE_DECODES] * 100);
    } else if (found->shares[RUN_LANE_WAITS] >= WAITING) {
        say(found, "the lanes wait for records");
    }
}

void bottleneck_describe(const struct bottleneck_found *found, struct byte_buffer *out)
{
    double blocked = 0;
    for (uint32_t t = RUN_LANE_BEHIND_NODES; t < RUN_LANE_TIMES; t++)
        blocked += found->shares[t];
    if (found->text[0] != '\0') /* first, because a terminal may cut the line */
        buffer_printf(out, "%s   ", found->text);
    buffer_printf(out, "lanes: %.0f %% process, %.0f %% decode, %.0f %% blocked, %.0f %% wait for records",
                  found->shares[RUN_LANE_PROCESSES] * 100, found->shares[RUN_LANE_DECODES] * 100,
                  blocked * 100, found->shares[RUN_LANE_WAITS] * 100);
}

bool bottleneck_recent(const struct bottleneck *b, struct bottleneck_found *found)
{
    *found = (struct bottleneck_found){.node = -1};
    if (b->taken == 0)
        return false;
    const struct sample *from = b->taken < SAMPLES ? &b->first : &b->ring[b->taken % SAMPLES];
    const struct sample *to = &b->ring[(b->taken - 1) % SAMPLES];
    judge(b, from, to, (double)(to->times->at_ns - from->times->at_ns), found);
    return true;
}

/* How long a lane was there, of lanes that have ended: all that they did adds up to it. They begin behind the run, and end
 * before its last checkpoint is written and its sinks are closed. */
static double lanes_ns(const struct run_times *times)
{
    double sum = 0;
    for (uint32_t lane = 0; lane < times->lanes_count; lane++)
        for (uint32_t t = 0; t < RUN_LANE_TIMES; t++)
            sum += (double)times->lanes[lane].ns[t];
    return sum / MAX(times->lanes_count, 1);
}

void bottleneck_whole(struct bottleneck *b, const struct run_stats *stats, struct bottleneck_found *found)
{
    struct sample *last = &b->ring[b->taken++ % SAMPLES];
    note_queues(b, stats);
    take(b, stats, last);
    judge(b, &b->first, last, lanes_ns(last->times), found);
}

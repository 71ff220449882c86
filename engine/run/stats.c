/* Figures for the live view, the summary and tests. Counters are read while lanes write them: they may be
 * stale, never torn. */
#include "run/barrier.h"
#include "run/order.h"

#include <stdio.h>

static void describe_sink(const struct node_instance *instance, struct run_node_stats *node)
{
    const struct sink_kind *kind = instance->node->sink_kind;
    if (kind->describe == NULL)
        return;
    struct byte_buffer text = {0};
    kind->describe((struct sink_context *)(uintptr_t)&instance->sink, &text);
    size_t length = MIN(text.length, sizeof(node->note) - 1);
    memcpy(node->note, text.data, length);
    node->note[length] = '\0';
    buffer_free(&text);
}

static void add_node(struct run *run, struct run_stats *stats, uint32_t place)
{
    const struct plan_node *plan_node = &run->plan->nodes[place];
    struct run_node_stats *node = &stats->nodes[stats->nodes_count++];
    *node = (struct run_node_stats){.node = plan_node, .dead_reason = ""};
    for (uint32_t i = 0; i < run->stage_instances[plan_node->stage]; i++) {
        const struct stage_instance *stage = run->stages[run->stage_first[plan_node->stage] + i];
        for (uint32_t k = 0; k < stage->stage->nodes_count; k++) {
            const struct node_instance *instance = &stage->nodes[k];
            if (instance->node != plan_node)
                continue;
            counters_add(&node->counters, &instance->context.counters);
            if (node->dead_reason[0] == '\0' && atomic_load(&instance->has_dead))
                node->dead_reason = instance->dead_reason;
            if (plan_node->tag == PLAN_SINK && plan_node->sink_kind->report != NULL && run->trace == NULL)
                plan_node->sink_kind->report((struct sink_context *)(uintptr_t)&instance->sink,
                                             &node->report);
            if (plan_node->tag == PLAN_SINK && run->is_joined && run->trace == NULL)
                describe_sink(instance, node);
            pthread_mutex_lock(&run->reports_mutex);
            for (uint32_t r = 0; r < instance->report.count; r++)
                report_merge(&node->report, &instance->report.items[r]);
            pthread_mutex_unlock(&run->reports_mutex);
        }
    }
}

/* Watermarks and newest events. Under the sequencer's mutex. */
static void add_times(struct run *run, struct run_stats *stats)
{
    const struct sequencer *s = &run->sequencer;
    const struct plan *plan = run->plan;
    int64_t sources[PLAN_SOURCES_MAX + 1], after[PLAN_NODES_MAX + 1];
    bool is_over = s->has_ended && s->is_finished;
    for (uint32_t i = 0; i <= plan->sources_count; i++)
        sources[i] = is_over ? TIME_MAX : s->source_watermarks[i];
    plan_watermarks(plan, sources, after);
    for (uint32_t i = 0; i < stats->nodes_count; i++)
        stats->nodes[i].time = (struct run_time){.watermark = after[i], .newest = TIME_MIN};
    stats->watermark = TIME_MAX;
    stats->newest_event = TIME_MIN;
    for (uint32_t i = 0; i < plan->sources_count; i++) {
        struct run_node_stats *node = &stats->nodes[plan->sources[i]];
        const struct watermark_holder *holder = &s->holders[i];
        node->time.newest = holder->newest;
        stats->newest_event = MAX(stats->newest_event, holder->newest);
        if (stats->held_by == NULL || s->source_watermarks[i] < stats->watermark)
            stats->held_by = node;
        stats->watermark = MIN(stats->watermark, s->source_watermarks[i]);
        bool is_alone = plan->nodes[plan->sources[i]].has_time && holder->partition != UINT32_MAX &&
                        s->partitions[holder->partition].has_own_order;
        if (is_alone && !is_over)
            snprintf(node->time.held_by, sizeof(node->time.held_by), "%.*s",
                     STR_ARGS(sequencer_partition_name(run, &s->partitions[holder->partition])));
    }
}

static void add_sources(struct run *run, struct run_stats *stats)
{
    struct sequencer *s = &run->sequencer;
    pthread_mutex_lock(&s->mutex);
    for (uint32_t i = 0; i < s->partitions_count; i++)
        stats->records += s->partitions[i].records;
    add_times(run, stats);
    stats->is_finished = s->has_ended && s->is_finished;
    pthread_mutex_unlock(&s->mutex);
    stats->records_life = stats->records - run->records_before;
    for (uint32_t i = 0; i < run->plan->sources_count; i++) {
        const struct source_kind *kind = run->plan->nodes[run->plan->sources[i]].source_kind;
        if (kind->report != NULL)
            kind->report(&run->sources[i], &stats->nodes[run->plan->sources[i]].report);
        struct source_progress progress = {-1, -1, -1};
        if (kind->progress != NULL)
            kind->progress(&run->sources[i], &progress);
        bool is_known = progress.bytes_total >= 0 && stats->progress.bytes_total >= 0;
        stats->progress.bytes_total = is_known ? stats->progress.bytes_total + progress.bytes_total : -1;
        stats->progress.bytes_done += MAX(progress.bytes_done, 0);
        is_known = progress.records_total >= 0 && stats->progress.records_total >= 0;
        stats->progress.records_total =
            is_known ? stats->progress.records_total + progress.records_total : -1;
    }
}

static void add_checkpoints(struct run *run, struct run_stats *stats)
{
    stats->checkpoint_age_us = stats->checkpoint_us = -1;
    struct run_checkpoints *c = run->checkpoints;
    if (c == NULL)
        return;
    pthread_mutex_lock(&c->mutex);
    stats->checkpoints = c->count;
    stats->checkpoint_epoch = atomic_load(&c->published);
    if (c->count > 0) {
        stats->checkpoint_age_us = os_monotonic_us() - c->published_us;
        stats->checkpoint_us = c->duration_us;
        stats->checkpoint_bytes = c->bytes;
        stats->checkpoint_stop_us = c->stop_us;
        stats->checkpoint_stop_max_us = c->stop_max_us;
    }
    pthread_mutex_unlock(&c->mutex);
}

/* Number of the micro-batch that the stage's slowest instance runs next. */
static uint64_t stage_progress(struct run *run, uint32_t stage)
{
    if (stage == 0)
        return atomic_load(&run->sequencer.claimed);
    uint64_t next = UINT64_MAX;
    for (uint32_t i = 0; i < run->stage_instances[stage]; i++)
        next = MIN(next, __atomic_load_n(&run->stages[run->stage_first[stage] + i]->next, __ATOMIC_RELAXED));
    return next;
}

/* Per stage, the micro-batches that are ready for it and wait, as a share of SLOTS: the bottleneck is where
 * they pile up. */
static void add_queues(struct run *run, struct run_stats *stats)
{
    stats->numbers = atomic_load(&run->sequencer.formed);
    for (uint32_t stage = 1; stage < run->plan->stages_count; stage++) {
        const struct stage_instance *any = run->stages[run->stage_first[stage]];
        uint64_t ready = stats->numbers, next = stage_progress(run, stage);
        for (uint32_t i = 0; i < any->feeders_count; i++)
            ready = MIN(ready, stage_progress(run, any->feeders[i]));
        stats->queue_fill[stage] = ready > next ? (double)(ready - next) / SLOTS : 0;
    }
}

static void add_dead_examples(struct run *run, struct run_stats *stats)
{
    for (uint32_t i = 0; i < run->stages_total; i++)
        for (uint32_t k = 0; k < run->stages[i]->examples_count; k++) {
            const struct run_dead_example *example = &run->stages[i]->examples[k];
            struct run_dead_example *room =
                dead_example_room(stats->dead, &stats->dead_count, &example->order);
            if (room != NULL)
                *room = *example;
        }
}

void run_stats(struct run *run, struct run_stats *stats)
{
    *stats = (struct run_stats){.is_resumed = run->is_resumed,
                                .was_finished = run->was_finished,
                                .is_from = run->is_from,
                                .notes = run->notes.data == NULL ? "" : run->notes.data,
                                .lanes = run->lanes_count};
    atomic_fetch_add(&run->report_epoch, 1);
    if (run->is_joined)
        for (uint32_t i = 0; i < run->stages_total; i++)
            stage_reports(run->stages[i]);
    for (uint32_t place = 0; place < run->plan->nodes_count; place++)
        add_node(run, stats, place);
    add_sources(run, stats);
    stats->is_finished |= run->was_finished;
    add_checkpoints(run, stats);
    add_queues(run, stats);
    stats->resumed_generation = run->resumed_generation;
    stats->resumed_epoch = run->resumed_epoch;
    stats->order = run->order->script.identity == 0 ? NULL : run->order->script.name;
    stats->order_next = run->order->script.next;
    stats->has_order_run_out = run->order->script.has_run_out;
    stats->redo_next = run->order->script.redo_next;
    stats->elapsed_us = (run->is_joined ? run->ended_us : os_monotonic_us()) - run->started_us;
    if (run->is_joined)
        add_dead_examples(run, stats);
}

/* Figures of nodes and queues, read while lanes work: they may be as old as the last micro-batch, never torn. */
#include "run/lanes/internal.h"

void stage_show_counters(struct stage_instance *stage)
{
    for (uint32_t i = 0; i < stage->stage->nodes_count; i++) {
        struct node_instance *node = &stage->nodes[i];
        const uint64_t *counters = (const uint64_t *)&node->context.counters;
        for (size_t k = 0; k < COUNTERS_COUNT; k++)
            atomic_store_explicit(&node->shown[k], counters[k], memory_order_relaxed);
    }
}

static void add_shown(struct counters *into, const struct node_instance *node)
{
    uint64_t *counters = (uint64_t *)into;
    for (size_t k = 0; k < COUNTERS_COUNT; k++)
        counters[k] += atomic_load_explicit(&node->shown[k], memory_order_relaxed);
}

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

static void add_instance(struct run *run, const struct node_instance *instance, struct run_node_stats *node)
{
    const struct sink_kind *sink_kind = node->node->tag == PLAN_SINK ? node->node->sink_kind : NULL;
    add_shown(&node->counters, instance);
    if (node->dead_reason[0] == '\0' && atomic_load(&instance->has_dead))
        node->dead_reason = instance->dead_reason;
    if (sink_kind != NULL) {
        node->is_full |= atomic_load_explicit(&instance->sink.is_full, memory_order_relaxed);
        if (sink_kind->report != NULL && run->trace == NULL)
            sink_kind->report((struct sink_context *)(uintptr_t)&instance->sink, &node->report);
        if (run->is_joined && run->trace == NULL)
            describe_sink(instance, node);
    }
    pthread_mutex_lock(&run->lanes->reports_mutex);
    for (uint32_t r = 0; r < instance->report.count; r++)
        report_merge(&node->report, &instance->report.items[r]);
    pthread_mutex_unlock(&run->lanes->reports_mutex);
}

static void add_node(struct run *run, struct run_stats *stats, uint32_t place)
{
    const struct plan_node *plan_node = &run->plan->nodes[place];
    struct run_node_stats *node = &stats->nodes[stats->nodes_count++];
    struct stage_instance *const *stages = &run->lanes->stages[run->lanes->stage_first[plan_node->stage]];
    const struct restored *restored = &run->lanes->restored[place];
    *node = (struct run_node_stats){
        .node = plan_node, .begin_in = restored->in, .begin_dead = restored->dead, .dead_reason = ""};
    uint32_t at = 0; /* of the node in each instance of its stage */
    if (run->stage_instances[plan_node->stage] == 0)
        return;
    while (stages[0]->nodes[at].node != plan_node)
        at++;
    for (uint32_t i = 0; i < run->stage_instances[plan_node->stage]; i++)
        add_instance(run, &stages[i]->nodes[at], node);
}

/* Number of the micro-batch that the stage's slowest instance runs next. */
static uint64_t stage_progress(struct run *run, uint32_t stage)
{
    if (stage == 0)
        return sequencer_claimed(run);
    uint64_t next = UINT64_MAX;
    for (uint32_t i = 0; i < run->stage_instances[stage]; i++)
        next = MIN(next, atomic_load_explicit(&run->lanes->stages[run->lanes->stage_first[stage] + i]->next,
                                              memory_order_relaxed));
    return next;
}

/* Sets each stage's queue_fill: micro-batches that its feeders have finished and it has not, divided by
 * SLOTS. The stage with the fullest queue is the bottleneck. */
static void add_queues(struct run *run, struct run_stats *stats)
{
    stats->micro_batches = sequencer_formed(run);
    for (uint32_t stage = 1; stage < run->plan->stages_count; stage++) {
        if (run->stage_instances[stage] == 0)
            continue;
        const struct stage_instance *any = run->lanes->stages[run->lanes->stage_first[stage]];
        uint64_t ready = stats->micro_batches, next = stage_progress(run, stage);
        for (uint32_t i = 0; i < any->feeders_count; i++)
            ready = MIN(ready, stage_progress(run, any->feeders[i]));
        stats->queue_fill[stage] = ready > next ? (double)(ready - next) / SLOTS : 0;
    }
}

static void add_dead_examples(struct run *run, struct run_stats *stats)
{
    for (uint32_t i = 0; i < run->lanes->stages_total; i++)
        for (uint32_t k = 0; k < run->lanes->stages[i]->examples_count; k++) {
            const struct run_dead_example *example = &run->lanes->stages[i]->examples[k];
            struct run_dead_example *room =
                dead_example_room(stats->dead, &stats->dead_count, &example->order);
            if (room != NULL)
                *room = *example;
        }
}

void lanes_stats(struct run *run, struct run_stats *stats)
{
    atomic_fetch_add(&run->lanes->report_epoch, 1);
    for (uint32_t i = 0; run->is_joined && i < run->lanes->stages_total; i++) {
        stage_reports(run->lanes->stages[i]);
        stage_show_counters(run->lanes->stages[i]);
    }
    for (uint32_t place = 0; place < run->plan->nodes_count; place++)
        add_node(run, stats, place);
    add_queues(run, stats);
    stats->moved_groups = atomic_load(&run->lanes->moved_groups);
    stats->moved_operators = atomic_load(&run->lanes->moved_operators);
    stats->moved_bytes = atomic_load(&run->lanes->moved_bytes);
    stats->moved_changes = atomic_load(&run->lanes->moved_changes);
    stats->move_stop_us = atomic_load(&run->lanes->move_stop_us);
    if (run->is_joined)
        add_dead_examples(run, stats);
}

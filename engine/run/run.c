/* The public functions: build, start, wait, free. */
#include "run/barrier.h"
#include "run/order.h"

#include "core/refused.h"
#include "core/wait.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static uint32_t choose_lanes(const struct plan *plan, const struct run_options *options)
{
    if (options->lanes > 0)
        return options->lanes;
    if (plan->config.workers > 0)
        return (uint32_t)plan->config.workers;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores > 0 ? (uint32_t)MIN(cores, 256) : 1;
}

static void init_stage_counts(struct run *run)
{
    const struct plan *plan = run->plan;
    run->stage_first = arena_array(&run->arena, uint32_t, plan->stages_count);
    run->stage_instances = arena_array(&run->arena, uint32_t, plan->stages_count);
    for (uint32_t stage = 0; stage < plan->stages_count; stage++) {
        run->stage_first[stage] = run->stages_total;
        run->stage_instances[stage] = plan->stages[stage].tag == STAGE_SINGLE ? 1 : run->lanes_count;
        run->stages_total += run->stage_instances[stage];
    }
    run->stages = arena_array(&run->arena, struct stage_instance *, run->stages_total);
}

static void init_lanes(struct run *run)
{
    run->lanes = arena_array(&run->arena, struct lane, run->lanes_count);
    for (uint32_t i = 0; i < run->lanes_count; i++) {
        run->lanes[i].run = run;
        run->lanes[i].index = i;
        run->lanes[i].decoders = arena_array(&run->arena, void *, MAX(run->plan->sources_count, 1));
    }
}

struct run *run_new(const struct plan *plan, const struct run_options *options, struct diag_list *diags)
{
    struct run *run = calloc(1, sizeof(*run));
    leat_assert(run != NULL);
    run->plan = plan;
    run->options = *options;
    run->diags = diags;
    run->trace = options->trace;
    run->lanes_count = run->trace != NULL ? 1 : choose_lanes(plan, options);
    pthread_mutex_init(&run->diags_mutex, NULL);
    pthread_mutex_init(&run->idle_mutex, NULL);
    pthread_mutex_init(&run->reports_mutex, NULL);
    pthread_cond_init(&run->idle_condition, NULL);
    run->pool = batch_pool_new();
    run->sources = arena_array(&run->arena, struct source, MAX(plan->sources_count, 1));
    init_stage_counts(run);
    init_lanes(run);
    refused_budget(plan->config.memory_bytes);
    bool is_good = checkpoints_init(run) && checkpoints_open_state(run);
    is_good = is_good && sequencer_init(run) && order_init(run);
    if (is_good && !run->is_resumed && obey_identity(run) == 0)
        sequencer_add_partitions(run);
    is_good = is_good && stages_init(run);
    is_good = is_good && (!run->is_resumed || checkpoints_restore(run)) && order_begin(run);
    /* Nothing refuses the run any more: what is written from here on is this run's own. */
    if (is_good && options->has_begun != NULL)
        options->has_begun();
    is_good = is_good && stages_begin(run);
    if (is_good && run->trace != NULL)
        trace_begin(run);
    if (is_good)
        return run;
    run_ends_fenced(run);
    run_free(run);
    return NULL;
}

static bool refuse_threads(struct run *run)
{
    struct diag *d = diag_error(run->diags, DIAG_E0505, (struct span){0},
                                "the system refuses to start %u threads", run->lanes_count);
    diag_hint(run->diags, d, "lower --workers, or raise the limits that `ulimit -a` shows");
    run_fail(run);
    return false;
}

bool run_start(struct run *run)
{
    leat_assert(!run->is_started);
    run->started_us = os_monotonic_us();
    run->is_started = true;
    if (run->was_finished)
        return true;
    if (run->checkpoints != NULL && !checkpoints_start(run))
        return refuse_threads(run);
    atomic_store(&run->lanes_running, run->lanes_count);
    atomic_store(&run->lanes_at_work, run->lanes_count);
    for (uint32_t i = 0; i < run->lanes_count; i++)
        if (pthread_create(&run->lanes[i].thread, NULL, lane_main, &run->lanes[i]) != 0) {
            atomic_fetch_sub(&run->lanes_running, run->lanes_count - i);
            run->lanes_started = i;
            return refuse_threads(run);
        }
    run->lanes_started = run->lanes_count;
    return true;
}

void run_stop(struct run *run)
{
    atomic_store(&run->sequencer.stop_requested, true);
    run_wake(run);
}

bool run_has_ended(const struct run *run)
{
    return atomic_load(&run->lanes_running) == 0;
}

/* After the lanes: files that the last checkpoint covers get their names, and sinks finish and send the
 * rest. */
static bool finish_sinks(struct run *run)
{
    bool is_good = true;
    for (uint32_t i = 0; i < run->stages_total; i++)
        for (uint32_t k = 0; k < run->stages[i]->stage->nodes_count; k++) {
            struct node_instance *node = &run->stages[i]->nodes[k];
            if (node->node->tag != PLAN_SINK)
                continue;
            const struct sink_kind *kind = node->node->sink_kind;
            bool is_node_good = true;
            uint64_t epoch = checkpoints_published(run);
            if (epoch != node->published_seen && kind->published != NULL)
                is_node_good = kind->published(&node->sink, epoch);
            if (is_node_good && (run->sequencer.is_finished || run->was_finished) && kind->finish != NULL)
                is_node_good = kind->finish(&node->sink);
            if (is_node_good && kind->drain != NULL)
                is_node_good = kind->drain(&node->sink);
            if (!is_node_good && !run_is_fenced(run))
                sink_say(node, "could not be finished");
            is_good &= is_node_good;
        }
    return is_good;
}

bool run_wait(struct run *run)
{
    for (uint32_t i = 0; !run->is_joined && i < run->lanes_started; i++)
        pthread_join(run->lanes[i].thread, NULL);
    run->is_joined = true;
    if (run->checkpoints != NULL && !run->was_finished)
        checkpoints_join(run);
    bool is_good = !atomic_load(&run->has_failed) && !run_is_fenced(run);
    if (is_good && run->checkpoints != NULL && !run->was_finished && !run->checkpoints->last_is_published) {
        struct diag *d =
            diag_error(run->diags, DIAG_E0708, (struct span){0}, "the last checkpoint could not be written");
        if (run->checkpoints->why[0] != '\0')
            diag_cause(run->diags, d, "%s", run->checkpoints->why);
        diag_hint(run->diags, d,
                  "mend the cause and start again: the run goes on from the checkpoint before");
        is_good = false;
    }
    if (is_good)
        is_good = order_finish(run) && (run->trace != NULL || finish_sinks(run));
    const char *error = run->state_store != NULL ? state_store_error(run->state_store) : NULL;
    if (error != NULL && !run_is_fenced(run))
        diag_cause(run->diags, diag_error(run->diags, DIAG_E0801, (struct span){0}, "the state store failed"),
                   "%s", error);
    is_good &= error == NULL;
    run->ended_us = os_monotonic_us();
    if (!is_good)
        run_ends_fenced(run);
    return is_good;
}

void run_free(struct run *run)
{
    if (run == NULL)
        return;
    leat_assert(!run->is_started || run->is_joined);
    stages_free(run);
    for (uint32_t i = 0; i < run->lanes_count; i++) {
        for (uint32_t k = 0; k < run->plan->sources_count; k++) {
            const struct source_kind *kind = run->plan->nodes[run->plan->sources[k]].source_kind;
            if (run->lanes[i].decoders[k] != NULL && kind->decoder_free != NULL)
                kind->decoder_free(run->lanes[i].decoders[k]);
        }
        arena_free(&run->lanes[i].scratch);
    }
    sequencer_free(run);
    order_free(run);
    if (run->state_store != NULL)
        state_store_close(run->state_store);
    checkpoints_free(run);
    temporary_directory_remove(&run->temporary);
    batch_pool_free(run->pool);
    buffer_free(&run->notes);
    pthread_mutex_destroy(&run->diags_mutex);
    pthread_mutex_destroy(&run->idle_mutex);
    pthread_mutex_destroy(&run->reports_mutex);
    pthread_cond_destroy(&run->idle_condition);
    arena_free(&run->arena);
    free(run);
}

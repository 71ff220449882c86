/* The sequencer's functions for other modules: begin, stop, wake, state of micro-batches and partitions,
 * figures. */
#include "run/sequencer/internal.h"

#include "run/base/placements.h"

#include "core/mem.h"
#include "run/base/peers.h"
#include "run/order/order.h"

#include <stdio.h>
#include <stdlib.h>

/* Summed over the sources; totals of -1: unknown. */
static struct source_progress progress_of_sources(struct run *run)
{
    struct source_progress sum = {0};
    for (uint32_t i = 0; i < run->plan->sources_count; i++) {
        const struct source_kind *kind = run_source_node(run, i)->source_kind;
        struct source_progress progress = {-1, -1, -1};
        if (kind->progress != NULL)
            kind->progress(&run->sources[i], &progress);
        bool is_known = progress.bytes_total >= 0 && sum.bytes_total >= 0;
        sum.bytes_total = is_known ? sum.bytes_total + progress.bytes_total : -1;
        sum.bytes_done += MAX(progress.bytes_done, 0);
        is_known = progress.records_total >= 0 && sum.records_total >= 0;
        sum.records_total = is_known ? sum.records_total + progress.records_total : -1;
    }
    return sum;
}

bool sequencer_begin(struct run *run)
{
    struct sequencer *s = run->sequencer;
    if (run_was_over(run))
        sequencer_peers_begin(run);
    else if (!replay_begin(run))
        return false;
    for (uint32_t i = 0; i < s->partitions_count; i++)
        log_known(&s->partitions[i]);
    if (!order_begin(run, s->first))
        return false;
    log_begin(run);
    s->bytes_before = progress_of_sources(run).bytes_done;
    return true;
}

void decoding_init(struct run *run, struct decoding *decoding)
{
    decoding->decoders = arena_array(&run->arena, void *, MAX(run->plan->sources_count, 1));
}

void decoding_free(struct run *run, struct decoding *decoding)
{
    for (uint32_t i = 0; i < run->plan->sources_count; i++) {
        const struct source_kind *kind = run_source_node(run, i)->source_kind;
        if (decoding->decoders[i] != NULL && kind->decoder_free != NULL)
            kind->decoder_free(decoding->decoders[i]);
    }
    arena_free(&decoding->scratch);
}

struct slot *sequencer_slot(const struct run *run, uint64_t micro_batch)
{
    return &run->sequencer->slots[micro_batch & (SLOTS - 1)];
}

uint64_t sequencer_formed(const struct run *run)
{
    return atomic_load_explicit(&run->sequencer->formed, memory_order_acquire);
}

uint64_t sequencer_claimed(const struct run *run)
{
    return atomic_load_explicit(&run->sequencer->claimed, memory_order_relaxed);
}

uint64_t sequencer_first(const struct run *run)
{
    return run->sequencer->first;
}

enum run_lane_time sequencer_held(const struct run *run)
{
    return (enum run_lane_time)atomic_load_explicit(&run->sequencer->held, memory_order_relaxed);
}

bool sequencer_has_ended(struct run *run, uint64_t *formed)
{
    struct sequencer *s = run->sequencer;
    pthread_mutex_lock(&s->mutex);
    *formed = atomic_load(&s->formed);
    bool has_ended = s->has_ended && atomic_load(&s->claimed) == *formed;
    pthread_mutex_unlock(&s->mutex);
    return has_ended;
}

bool sequencer_is_finished(const struct run *run)
{
    return run->sequencer->is_finished;
}

int64_t *sequencer_watermarks(const struct run *run)
{
    return run->sequencer->source_watermarks;
}

bool sequencer_place(const struct run *run, uint32_t id, struct partition_place *place)
{
    const struct sequencer *s = run->sequencer;
    *place = (struct partition_place){.name = ""};
    if (id >= s->partitions_count)
        return false;
    const struct partition *p = &s->partitions[id];
    place->node = run_source_node(run, p->source);
    place->source = &run->sources[p->source];
    place->local = p->local;
    if (place->node->source_kind->partition_name != NULL)
        place->name = place->node->source_kind->partition_name(place->source, p->local);
    return true;
}

void sequencer_stop(struct run *run)
{
    if (!peers_is_leader(run)) {
        struct byte_buffer message = {0};
        peers_begin(&message, PEER_STOP);
        peers_send(run, run->options.peers->leader, &message);
        buffer_free(&message);
        return;
    }
    atomic_store(&run->sequencer->stop_requested, true);
    run_wake(run);
}

void sequencer_look_again(struct run *run)
{
    if (run->sequencer->is_live)
        atomic_fetch_add(&run->sequencer->wakes, 1);
}

void sequencer_forget_barrier(struct run *run)
{
    pthread_mutex_lock(&run->sequencer->mutex);
    run->sequencer->last_barrier = 0;
    pthread_mutex_unlock(&run->sequencer->mutex);
}

/* --- Figures --- */

/* Adds the watermarks and newest event times to the figures. Under the mutex. */
static void add_times(struct run *run, struct run_stats *stats)
{
    const struct sequencer *s = run->sequencer;
    const struct plan *plan = run->plan;
    int64_t sources[PLAN_SOURCES_MAX + 1], after[PLAN_NODES_MAX + 1];
    bool is_over = s->has_ended && s->is_finished;
    for (uint32_t i = 0; i <= plan->sources_count; i++)
        sources[i] = is_over ? TIME_MAX : s->source_watermarks[i];
    base_watermarks(plan, sources, after);
    if (s->has_input_ended && !is_over)
        base_watermarks_ended(plan, s->is_done, after);
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
        if (s->has_input_ended)
            continue;
        bool is_alone = run_source_node(run, i)->has_time && holder->partition != NO_PARTITION &&
                        s->partitions[holder->partition].has_own_order;
        if (is_alone && !is_over)
            snprintf(node->time.held_by, sizeof(node->time.held_by), "%.*s",
                     STR_ARGS(sequencer_partition_name(run, &s->partitions[holder->partition])));
    }
    if (s->has_input_ended && !is_over)
        stats->watermark = TIME_MAX;
}

void sequencer_stats(struct run *run, struct run_stats *stats)
{
    struct sequencer *s = run->sequencer;
    pthread_mutex_lock(&s->mutex);
    for (uint32_t i = 0; i < s->partitions_count; i++)
        stats->records += s->partitions[i].records;
    add_times(run, stats);
    stats->order_next = order_replay_log(run)->next;
    stats->has_order_run_out = order_replay_log(run)->has_run_out;
    stats->has_order_log = order_place_now(run, &stats->order_log_next, &stats->order_log_bytes);
    stats->is_finished = s->has_ended && s->is_finished;
    stats->has_input_ended = s->has_input_ended || stats->is_finished;
    pthread_mutex_unlock(&s->mutex);
    stats->records_life = stats->records - s->records_before;
    stats->progress = progress_of_sources(run);
    stats->bytes_life = (uint64_t)MAX(stats->progress.bytes_done - s->bytes_before, 0);
    for (uint32_t i = 0; i < run->plan->sources_count; i++) {
        const struct source_kind *kind = run_source_node(run, i)->source_kind;
        if (kind->report != NULL)
            kind->report(&run->sources[i], &stats->nodes[run->plan->sources[i]].report);
    }
}

void run_partitions(struct run *run, struct run_partitions *partitions)
{
    struct sequencer *s = run->sequencer;
    pthread_mutex_lock(&s->mutex);
    if (s->partitions_count > partitions->room) {
        partitions->room = MAX(s->partitions_count, partitions->room * 2);
        partitions->items = mem_realloc(partitions->items, partitions->room * sizeof(*partitions->items));
    }
    for (uint32_t i = 0; i < s->partitions_count; i++) {
        const struct partition *p = &s->partitions[i];
        struct run_partition *item = &partitions->items[i];
        if (i >= partitions->count)
            *item = (struct run_partition){.node = run->plan->sources[p->source],
                                           .name = mem_str(sequencer_partition_name(run, p))};
        item->records = p->records;
    }
    partitions->count = s->partitions_count;
    pthread_mutex_unlock(&s->mutex);
}

void run_partitions_free(struct run_partitions *partitions)
{
    for (uint32_t i = 0; i < partitions->count; i++)
        free(partitions->items[i].name);
    free(partitions->items);
    *partitions = (struct run_partitions){0};
}

void sequencer_own(const struct run *run, uint32_t *partitions, uint32_t *groups)
{
    struct sequencer *s = run->sequencer;
    *partitions = *groups = 0;
    pthread_mutex_lock(&s->mutex);
    for (uint32_t i = 0; i < s->partitions_count; i++)
        *partitions += s->partitions[i].owner == peers_self(run);
    for (uint32_t g = 0; g < KEY_GROUPS; g++)
        *groups += peers_has_instance(run, placements_now(run)->instance[g]);
    pthread_mutex_unlock(&s->mutex);
}

uint32_t sequencer_instance(const struct run *run, uint64_t hash)
{
    pthread_mutex_lock(&run->sequencer->mutex);
    uint32_t instance = placement_instance(placements_now(run), hash);
    pthread_mutex_unlock(&run->sequencer->mutex);
    return instance;
}

/* Stage instances: running one micro-batch through their nodes.
 *
 * For each micro-batch, stage_run visits the nodes in the order of the plan. A node first takes the rows from
 * its exchanges (rows from a node of the same stage were given to it directly, when that node ran), then
 * merges its inputs if it has several, then gets the watermark. So a node processes the micro-batch's rows
 * before its timers fire, and an upstream node's timers fire before those of the nodes behind it. */
#include "run/lanes/internal.h"

#include "run/base/barrier.h"
#include "run/base/peers.h"

#include "core/operator_state.h"

#include <stdio.h>
#include <stdlib.h>

/* --- Calls of nodes --- */

static void give_sink(struct node_instance *node, struct batch *batch)
{
    node->context.counters.in += batch->selected;
    if (run_has_failed(node->stage->run))
        return;
    if (unlikely(node->stage->run->trace != NULL)) /* in a run with a trace no sink is open */
        node->context.counters.absorbed += batch->selected;
    else if (node->node->sink_kind->write(&node->sink, batch))
        node->context.counters.absorbed += batch->selected;
    else
        sink_failed(node);
}

void stage_give(struct node_instance *node, uint32_t input, struct batch *batch)
{
    if (node->node->tag == PLAN_SINK) {
        give_sink(node, batch);
        return;
    }
    node->context.counters.in += batch->selected;
    if (unlikely(node->stage->publishes) && node->following == FOLLOWING_ROWS)
        stage_publish_rows(node, input, batch);
    node->node->operator_kind->process(&node->context, input, batch);
    arena_reset(&node->scratch);
}

/* Gives rows to a node that another one calls: the time is this node's meanwhile. */
static void give_in_time(struct node_instance *node, uint32_t input, struct batch *batch)
{
    struct node_instance *caller = time_switch(node->stage, node);
    stage_give(node, input, batch);
    time_switch(node->stage, caller);
}

static void tell_before(const struct node_instance *node, struct batch *batch)
{
    struct run *run = node->stage->run;
    if (unlikely(run->options.before != NULL))
        run->options.before(run->options.before_argument, run, node->node, batch);
}

static void give(struct node_instance *node, uint32_t input, struct batch *batch)
{
    stage_look(node, batch);
    if (node->node->inputs_count > 1 && node->node->tag != PLAN_SINK)
        batch_list_add(&node->queues[input], batch_derive(batch, batch->schema));
    else if (likely(node->stage->run->trace == NULL) || !trace_give(node, input, batch)) {
        tell_before(node, batch);
        give_in_time(node, input, batch);
    }
}

void operator_emit(struct operator_context *context, uint32_t output, struct batch *batch)
{
    leat_assert(output < OPERATOR_OUTPUTS_MAX);
    if (unlikely(context->reader != NULL)) {
        context->reader->emit(context, output, batch);
        return;
    }
    struct node_instance *node = context->engine;
    if (unlikely(node->stage->run->trace != NULL))
        trace_emit(node, output, batch);
    if (batch->selected > 0)
        for (uint32_t i = 0; i < node->consumers_count[output]; i++) {
            struct consumer *consumer = &node->consumers[output][i];
            if (consumer->exchange != NULL)
                exchange_push(consumer->exchange, node->stage, batch);
            else
                give(consumer->node, consumer->input, batch);
        }
    batch_release(batch);
}

/* For an operator with several inputs and no process_merged: merges the queued rows by row_order, and calls
 * `process` for each run of successive rows from the same batch. The operator itself does not need this
 * order, but the nodes behind it do. */
static void process_runs(struct node_instance *node, struct merge *merge)
{
    struct merge_row row, next;
    bool has_next = merge_next(merge, &next);
    while (has_next) {
        row = next;
        uint16_t sel[BATCH_ROWS];
        uint32_t count = 0;
        do {
            sel[count++] = (uint16_t)next.row;
            has_next = merge_next(merge, &next);
        } while (has_next && next.batch == row.batch);
        struct batch *run = batch_derive(row.batch, row.batch->schema);
        run->sel = arena_copy(&run->arena, sel, count * sizeof(*sel));
        run->selected = count;
        node->node->operator_kind->process(&node->context, row.input, run);
        batch_release(run);
        arena_reset(&node->scratch);
    }
}

void stage_merge(struct node_instance *node)
{
    struct merge merge;
    bool is_in_order = node->node->operator_kind->process_merged != NULL;
    for (uint32_t i = 0; i < node->node->inputs_count; i++)
        for (const struct batch *batch = node->queues[i].first; batch != NULL; batch = batch->next)
            if (i == 0 || !is_in_order)
                node->context.counters.in += batch->selected;
    merge_init(&merge, node->queues, node->node);
    if (is_in_order)
        node->node->operator_kind->process_merged(&node->context, &merge);
    else
        process_runs(node, &merge);
    arena_reset(&node->scratch);
    for (uint32_t i = 0; i < node->node->inputs_count; i++)
        batch_list_release(&node->queues[i]);
}

static void run_merged(struct node_instance *node)
{
    bool has_rows = false;
    for (uint32_t i = 0; i < node->node->inputs_count; i++) {
        /* The rows of a producer with several chains of operators are not in row_order: sort them. */
        struct batch_list sorted;
        merge_lists(node->stage->run->pool, &node->queues[i], node->queues[i].count > 0, &sorted);
        node->queues[i] = sorted;
        has_rows |= sorted.count > 0;
        if (unlikely(node->stage->publishes) && node->following == FOLLOWING_ROWS)
            for (const struct batch *batch = sorted.first; batch != NULL; batch = batch->next)
                stage_publish_rows(node, i, batch);
    }
    if (has_rows && (likely(node->stage->run->trace == NULL) || !trace_merged(node)))
        stage_merge(node);
}

/* --- One micro-batch --- */

static void run_source(struct node_instance *node, struct slot *slot)
{
    uint32_t source = node->node->source_index;
    node->watermark = slot->watermarks[source];
    for (uint32_t i = 0; i < slot->slices_count; i++) {
        struct slice *slice = &slot->slices[i];
        if (slice->source != source)
            continue;
        struct counters *counters = &node->context.counters;
        counters->in += slice->end - slice->begin;
        counters->passed += slice->batch->selected;
        /* The rest, neither selected nor bad: punctuation rows that the source drops. */
        counters->filtered += slice->end - slice->begin - slice->batch->selected - slice->bad_count;
        for (uint32_t k = 0; k < slice->bad_count; k++) {
            char reason[256];
            const struct bad_record *bad = &slice->bad[k];
            int length = bad->column == UINT32_MAX
                             ? snprintf(reason, sizeof(reason), "%s", bad->reason)
                             : snprintf(reason, sizeof(reason), "%s, at byte %u", bad->reason, bad->column);
            struct row_origin origin = batch_origin(slice->batch, bad->row);
            struct row_order order = batch_order(slice->batch, bad->row);
            struct dead_letter letter = {.reason = {reason, MIN((size_t)length, sizeof(reason) - 1)},
                                         .raw = slice->bad_raw[k],
                                         .key = bad->key,
                                         .headers = bad->headers,
                                         .time_us = dead_time(slice->batch, bad->row)};
            dead_add(node, &origin, &order, &letter, NULL, 0);
        }
        tell_before(node, slice->batch);
        stage_look(node, slice->batch);
        operator_emit(&node->context, 0, slice->batch);
        slice->batch = NULL;
    }
}

int64_t stage_input_watermark(const struct node_instance *node)
{
    return base_input_watermark(node->stage->run->plan, node->node, node->stage->slot_watermarks);
}

static void take_exchanges(struct node_instance *node)
{
    for (uint32_t input = 0; input < MAX(node->node->inputs_count, 1); input++) {
        if (node->exchanges_count[input] == 0)
            continue;
        struct fan_in fan_in;
        fan_in_open(node, input, &fan_in);
        for (struct batch *batch = fan_in_next(&fan_in); batch != NULL; batch = fan_in_next(&fan_in)) {
            give(node, input, batch);
            batch_release(batch);
        }
    }
}

static void run_node(struct node_instance *node)
{
    struct slot *slot = node->stage->slot;
    if (node->node->tag == PLAN_SOURCE) {
        run_source(node, slot);
        return;
    }
    if (node->node->tag == PLAN_SINK)
        sink_tell_published(node);
    if (node->context.team != NULL)
        atomic_store_explicit(&node->stage->run->lanes->learning, slot->micro_batch, memory_order_relaxed);
    take_exchanges(node);
    if (node->node->tag == PLAN_SINK)
        return;
    if (node->node->inputs_count > 1)
        run_merged(node);
    int64_t watermark = stage_input_watermark(node);
    leat_assert(watermark >= node->context.watermark);
    operator_on_watermark(node->node->operator_kind, &node->context, watermark);
    arena_reset(&node->scratch);
    node->context.watermark = watermark;
    if (unlikely(node->stage->publishes))
        stage_publish_node(node);
}

void stage_set_watermarks(struct stage_instance *stage, const int64_t *sources, const bool *is_done)
{
    base_watermarks(stage->run->plan, sources, stage->slot_watermarks);
    if (unlikely(is_done != NULL))
        base_watermarks_ended(stage->run->plan, is_done, stage->slot_watermarks);
}

void stage_ask(struct stage_instance *stage, const bool *is_done)
{
    for (uint32_t i = 0; i < stage->stage->nodes_count; i++) {
        const struct node_instance *node = &stage->nodes[i];
        if (node->node->goes_on && node->context.watermark == TIME_MAX && !is_done[node->node->place])
            sequencer_answers(stage->run, node->node, node->node->operator_kind->wants_more(&node->context));
    }
}

bool stage_node_is_held(const struct node_instance *node)
{
    const struct operator_kind *kind = node->node->operator_kind;
    return kind != NULL && kind->is_held != NULL && kind->is_held(&node->context);
}

bool stage_is_held(const struct stage_instance *stage)
{
    for (uint32_t i = 0; i < stage->stage->nodes_count; i++)
        if (stage_node_is_held(&stage->nodes[i]))
            return true;
    return false;
}

bool stage_is_ready(const struct stage_instance *stage)
{
    struct run *run = stage->run;
    uint64_t next = atomic_load_explicit(&stage->next, memory_order_relaxed);
    if (next >= sequencer_formed(run))
        return false;
    struct slot *slot = sequencer_slot(run, next);
    for (uint32_t i = 0; i < stage->feeders_count; i++) {
        uint32_t feeder = stage->feeders[i];
        if (atomic_load_explicit(&slot->stage_done[feeder], memory_order_acquire) !=
                run_stage_pieces(run, feeder) ||
            !peers_have_done(run, feeder, next))
            return false;
    }
    return stage_is_placed(stage, slot->placement) && !stage_is_held(stage);
}

void stage_run(struct stage_instance *stage, struct slot *slot)
{
    stage->slot = slot;
    if (unlikely(slot->placement->version != stage->placement_version))
        stage_take(stage, slot->placement);
    /* Set the contexts of all nodes before the first node runs, because a node calls the nodes behind it in
     * the stage directly. */
    for (uint32_t i = 0; i < stage->stage->nodes_count; i++) {
        stage->nodes[i].context.micro_batch = stage->nodes[i].sink.micro_batch = slot->micro_batch;
        stage->nodes[i].context.load = slot->load;
    }
    stage_set_watermarks(stage, slot->watermarks, slot->is_done);
    if (stage->is_followed)
        stage_publish_begin(stage);
    for (uint32_t i = 0; i < stage->stage->nodes_count; i++) {
        time_switch(stage, &stage->nodes[i]);
        run_node(&stage->nodes[i]);
    }
    time_switch(stage, NULL);
    if (unlikely(stage->publishes))
        stage_publish_end(stage);
    if (unlikely(slot->is_done != NULL))
        stage_ask(stage, slot->is_done);
    dead_flush(stage);
    arena_reset(&stage->number_arena);
    stage_reports(stage);
    if (unlikely(slot->next != NULL) && !run_has_failed(stage->run))
        stage_move(stage, slot->next);
    if (slot->barrier != 0 && !run_has_failed(stage->run)) {
        stage_snapshot(stage);
        stage_weigh(stage);
    }
    if (unlikely(slot->announced != NULL))
        stage_announce(stage, slot->announced);
    if (unlikely(slot->next != NULL) && !run_has_failed(stage->run))
        stage_leave(stage, slot->next);
    stage_show_counters(stage);
    uint64_t micro_batch =
        slot->micro_batch; /* the slot may be another one's as soon as it is counted below */
    atomic_store_explicit(&stage->next, micro_batch + 1, memory_order_release);
    unsigned done = atomic_fetch_add_explicit(&slot->stage_done[stage->index], 1, memory_order_acq_rel) + 1;
    if (unlikely(stage->run->options.peers != NULL) && done == run_stage_pieces(stage->run, stage->index))
        peers_say_done(stage->run, stage->index, micro_batch);
    if (unlikely(stage->run->trace != NULL))
        trace_stage(stage->run);
}

/* Follows a record through a run (run/trace.h). The run's only lane calls all functions, except trace_finish
 * and trace_release, which are for the control thread. */
#include "run/lanes/internal.h"

#include "core/mem.h"

#include <stdlib.h>

/* --- Rows of the record --- */

static bool is_traced(const struct trace *trace, const struct batch *batch, uint32_t row)
{
    struct row_origin origin = batch_origin(batch, row);
    return origin.partition == trace->origin.partition && origin.record == trace->origin.record;
}

/* The first selected index from `first` on whose row was made from the record; batch->selected: none. */
static uint32_t find_row(const struct trace *trace, const struct batch *batch, uint32_t first)
{
    if (!trace->is_found)
        return batch->selected;
    while (first < batch->selected && !is_traced(trace, batch, batch_row(batch, first)))
        first++;
    return first;
}

/* `count` selected rows from `first` on, as a batch of their own. */
static struct batch *view_of(struct batch *batch, uint32_t first, uint32_t count)
{
    struct batch *view = batch_derive(batch, batch->schema);
    uint16_t *sel = arena_alloc(&view->arena, count * sizeof(*sel));
    for (uint32_t i = 0; i < count; i++)
        sel[i] = (uint16_t)batch_row(batch, first + i);
    view->sel = sel;
    view->selected = count;
    return view;
}

/* --- Steps --- */

/* Adds a step; returns its index plus 1, or 0 if there is no room for it or the trace is over. */
static uint32_t add_step(struct trace *trace, const struct node_instance *node, enum trace_tag tag)
{
    trace->last = node->stage->slot->micro_batch;
    if (trace->is_over || trace->steps_count == TRACE_STEPS_MAX) {
        trace->steps_left += !trace->is_over;
        return 0;
    }
    if (trace->steps == NULL)
        trace->steps = mem_calloc(TRACE_STEPS_MAX, sizeof(*trace->steps));
    bool has_watermark = node->node->operator_kind != NULL;
    trace->steps[trace->steps_count] =
        (struct trace_step){.tag = tag,
                            .node = node->node,
                            .micro_batch = node->stage->slot->micro_batch,
                            .watermark = has_watermark ? node->context.watermark : TIME_MIN};
    return ++trace->steps_count;
}

static void add_row(struct trace_step *step, uint32_t output, const struct batch *batch, uint32_t index)
{
    if (step->rows_count == TRACE_ROWS_MAX) {
        step->rows_left++;
        return;
    }
    step->rows[step->rows_count].output = output;
    step->rows[step->rows_count++].batch = view_of((struct batch *)(uintptr_t)batch, index, 1);
}

static void counters_subtract(struct counters *from, const struct counters *what)
{
    uint64_t *a = (uint64_t *)from;
    const uint64_t *b = (const uint64_t *)what;
    for (size_t i = 0; i < COUNTERS_COUNT; i++)
        a[i] -= b[i];
}

/* Call begin_step before the node gets the record's row, in a batch of its own, and end_step afterwards.
 * begin_step returns the step for end_step, as add_step does. */
static uint32_t begin_step(struct node_instance *node, uint32_t input, struct batch *row)
{
    struct trace *trace = node->stage->run->trace;
    const struct operator_kind *kind = node->node->operator_kind;
    uint32_t at = add_step(trace, node, TRACE_GIVEN);
    if (at == 0)
        return 0;
    struct trace_step *step = &trace->steps[at - 1];
    step->input = input;
    step->row = row;
    batch_hold(row);
    step->counts = node->context.counters; /* counters before the call */
    if (kind != NULL && kind->facts != NULL)
        kind->facts(&node->context, input, row, &step->facts);
    trace->open[node->node->place] = at;
    return at;
}

static void end_step(struct node_instance *node, uint32_t at)
{
    struct trace *trace = node->stage->run->trace;
    if (at == 0)
        return;
    struct trace_step *step = &trace->steps[at - 1];
    struct counters before = step->counts;
    step->counts = node->context.counters;
    counters_subtract(&step->counts, &before);
    trace->held[node->node->place] += step->counts.held;
    trace->open[node->node->place] = 0;
}

/* --- Calls by the engine --- */

bool trace_give(struct node_instance *node, uint32_t input, struct batch *batch)
{
    const struct trace *trace = node->stage->run->trace;
    uint32_t begin = 0, at = find_row(trace, batch, 0);
    if (at == batch->selected)
        return false;
    for (; begin < batch->selected; at = find_row(trace, batch, begin)) {
        bool is_row = at == begin;
        struct batch *part = view_of(batch, begin, is_row ? 1 : at - begin);
        uint32_t step = is_row ? begin_step(node, input, part) : 0;
        stage_give(node, input, part);
        end_step(node, step);
        begin += part->selected;
        batch_release(part);
    }
    return true;
}

/* Rows that follow each other in row_order, and go into the node's queues together. inputs: the rows of each
 * input's current batch, which are not in its queue yet. */
struct part {
    struct node_instance *node;
    struct {
        struct batch *batch;
        uint32_t count;
        uint16_t sel[BATCH_ROWS];
    } inputs[OPERATOR_INPUTS_MAX];
    uint64_t rows;
};

static void queue_batch(struct part *part, uint32_t input)
{
    struct batch *batch = part->inputs[input].batch;
    uint32_t count = part->inputs[input].count;
    part->inputs[input].batch = NULL;
    part->inputs[input].count = 0;
    if (count == 0)
        return;
    struct batch *view = batch_derive(batch, batch->schema);
    view->sel = arena_copy(&view->arena, part->inputs[input].sel, count * sizeof(uint16_t));
    view->selected = count;
    batch_list_add(&part->node->queues[input], view);
}

static void part_add(struct part *part, const struct merge_row *row)
{
    if (part->inputs[row->input].batch != row->batch)
        queue_batch(part, row->input);
    part->inputs[row->input].batch = row->batch;
    part->inputs[row->input].sel[part->inputs[row->input].count++] = (uint16_t)row->row;
    part->rows++;
}

static void part_run(struct part *part)
{
    for (uint32_t i = 0; i < part->node->node->inputs_count; i++)
        queue_batch(part, i);
    if (part->rows > 0)
        stage_merge(part->node);
    part->rows = 0;
}

bool trace_merged(struct node_instance *node)
{
    const struct trace *trace = node->stage->run->trace;
    struct batch_list lists[OPERATOR_INPUTS_MAX];
    bool is_there = false;
    for (uint32_t i = 0; i < node->node->inputs_count; i++)
        for (const struct batch *batch = node->queues[i].first; batch != NULL; batch = batch->next)
            is_there |= find_row(trace, batch, 0) < batch->selected;
    if (!is_there)
        return false;
    memcpy(lists, node->queues, sizeof(lists));
    memset(node->queues, 0, sizeof(node->queues));
    struct part *part = mem_calloc(1, sizeof(*part));
    part->node = node;
    struct merge merge;
    struct merge_row row;
    merge_init(&merge, lists, node->node);
    while (merge_next(&merge, &row)) {
        bool is_row = is_traced(trace, row.batch, row.row);
        if (is_row)
            part_run(part);
        part_add(part, &row);
        if (!is_row)
            continue;
        struct batch *view = view_of(row.batch, row.index, 1);
        uint32_t step = begin_step(node, row.input, view);
        part_run(part);
        end_step(node, step);
        batch_release(view);
    }
    part_run(part);
    for (uint32_t i = 0; i < node->node->inputs_count; i++)
        batch_list_release(&lists[i]);
    free(part);
    return true;
}

void trace_emit(struct node_instance *node, uint32_t output, const struct batch *batch)
{
    struct trace *trace = node->stage->run->trace;
    uint32_t place = node->node->place, at = trace->open[place];
    for (uint32_t i = 0; at != 0 && i < batch->selected; i++)
        add_row(&trace->steps[at - 1], output, batch, i);
    if (at != 0)
        return;
    bool is_source = node->node->tag == PLAN_SOURCE;
    for (uint32_t i = find_row(trace, batch, 0); i < batch->selected; i = find_row(trace, batch, i + 1)) {
        if (is_source)
            trace->micro_batch = node->stage->slot->micro_batch;
        trace->held[place] -= trace->held[place] > 0;
        at = add_step(trace, node, is_source ? TRACE_READ : TRACE_LATER);
        if (at != 0)
            add_row(&trace->steps[at - 1], output, batch, i);
    }
}

static const char *copy_text(struct trace *trace, struct str text)
{
    return text.data == NULL ? NULL : arena_strndup(&trace->arena, text.data, text.length);
}

void trace_dead(struct node_instance *node, const struct row_origin *origin, const struct dead_letter *letter)
{
    struct trace *trace = node->stage->run->trace;
    if (!trace->is_found || origin->partition != trace->origin.partition ||
        origin->record != trace->origin.record)
        return;
    uint32_t at = trace->open[node->node->place];
    if (at == 0) {
        bool is_source = node->node->tag == PLAN_SOURCE;
        if (is_source)
            trace->micro_batch = node->stage->slot->micro_batch;
        at = add_step(trace, node, is_source ? TRACE_READ : TRACE_LATER);
        if (at == 0)
            return;
        trace->steps[at - 1].counts.dead = 1;
    }
    trace->steps[at - 1].reason = copy_text(trace, letter->reason);
    trace->steps[at - 1].raw = copy_text(trace, letter->raw);
}

/* --- Finding the record, and the end --- */

static void stop(struct run *run, enum trace_end end)
{
    run->trace->is_over = true;
    run->trace->end = end;
    sequencer_stop(run);
}

static void has_read(struct run *run, uint32_t source, uint32_t local, const struct raw_batch *raw,
                     const struct batch *batch)
{
    struct trace *trace = run->trace;
    if (trace->is_found || trace->is_over || source != trace->source_index || local != trace->partition)
        return;
    bool has_offsets = trace->by == TRACE_BY_OFFSET;
    leat_assert(!has_offsets || raw->offsets != NULL);
    uint32_t row = 0;
    if (has_offsets)
        while (row < raw->count && raw->offsets[row] < trace->at)
            row++;
    else
        row = (uint32_t)MIN((uint64_t)trace->at - raw->position.record, raw->count);
    if (row == raw->count)
        return;
    if (has_offsets && raw->offsets[row] != trace->at) {
        stop(run, TRACE_NOTHING);
        return;
    }
    trace->is_found = true;
    trace->record = raw->position.record + row;
    trace->origin = batch_origin(batch, row);
    trace->micro_batch = UINT64_MAX;
}

static void has_reached(struct run *run, uint32_t source, uint32_t local, int64_t offset)
{
    const struct trace *trace = run->trace;
    if (!trace->is_found && !trace->is_over && source == trace->source_index && local == trace->partition &&
        trace->by == TRACE_BY_OFFSET && offset > trace->at)
        stop(run, TRACE_NOTHING);
}

const struct run_observer trace_observer = {.has_read = has_read, .has_reached = has_reached};

static bool is_held(const struct trace *trace)
{
    bool is_held = false;
    for (uint32_t i = 0; i < PLAN_NODES_MAX; i++)
        is_held |= trace->held[i] > 0;
    return is_held;
}

void trace_stage(struct run *run)
{
    const struct trace *trace = run->trace;
    if (!trace->is_found || trace->is_over || trace->micro_batch == UINT64_MAX || is_held(trace))
        return;
    for (uint32_t i = 0; i < run->lanes->stages_total; i++)
        if (run->lanes->stages[i]->next <= trace->last)
            return;
    stop(run, TRACE_FOLLOWED);
}

void trace_finish(struct trace *trace)
{
    if (!trace->is_over)
        trace->end = !trace->is_found ? TRACE_BEYOND : is_held(trace) ? TRACE_HELD : TRACE_FOLLOWED;
    trace->is_over = true;
}

void trace_release(struct trace *trace)
{
    for (uint32_t i = 0; i < trace->steps_count; i++) {
        batch_release(trace->steps[i].row);
        for (uint32_t k = 0; k < trace->steps[i].rows_count; k++)
            batch_release(trace->steps[i].rows[k].batch);
    }
    free(trace->steps);
    trace->steps = NULL;
    trace->steps_count = 0;
    trace->steps_left = 0;
    trace->is_found = trace->is_over = false;
    memset(trace->held, 0, sizeof(trace->held));
    memset(trace->open, 0, sizeof(trace->open));
    trace->from = (struct checkpoint_id){0};
}

/* Each step has a context of its own for `read`; what the step emits goes to the next step directly. */
#include "serve/way.h"

#include "core/mem.h"
#include "core/operator_history.h"
#include "run/inspect.h"

#include <stdlib.h>

struct way_step {
    struct operator_context context; /* first: the operators' calls are given it */
    struct way *way;
    const struct plan_node *node;
    uint32_t index, input, output;
    uint64_t passed[BATCH_VALID_WORDS]; /* requests of which the step has emitted a row */
};

struct way {
    const struct plan *plan;
    const struct plan_serve *serve;
    struct inspection *inspection; /* of way_open */
    way_context *live;             /* of way_attach */
    void *argument;
    struct batch_pool *pool;
    struct arena arena, run_arena; /* run_arena: of one way_run */
    int64_t watermark;
    struct way_result results[BATCH_ROWS];
    struct batch **answers; /* of the last way_run */
    uint32_t answers_count;
    struct way_step steps[];
};

static struct way_step *step_of(struct operator_context *context)
{
    return (struct way_step *)(void *)context;
}

/* The request from which a row came: requests are numbered by their place in the batch. */
static uint32_t request_of(const struct batch *batch, uint32_t row)
{
    uint64_t record = batch_origin(batch, row).record;
    leat_assert(record < BATCH_ROWS);
    return (uint32_t)record;
}

static void give(struct way *way, uint32_t index, struct batch *batch)
{
    struct way_step *step = &way->steps[index];
    step->node->operator_kind->read(&step->context, step->input, batch);
    arena_reset(step->context.scratch);
}

/* No more rows come: lets the steps from `first` on emit what waited. */
static void end_rows(struct way *way, uint32_t first)
{
    for (uint32_t i = first; i < way->serve->steps_count; i++) {
        struct way_step *step = &way->steps[i];
        if (step->node->operator_kind->read_end == NULL)
            continue;
        step->node->operator_kind->read_end(&step->context);
        arena_reset(step->context.scratch);
    }
}

/* Keeps a batch of answers. A request has one answer: a second row of it, from a step of a user, is a failure. */
static void keep(struct way *way, struct batch *batch)
{
    struct batch **grown = arena_array(&way->run_arena, struct batch *, way->answers_count + 1);
    if (way->answers_count > 0)
        memcpy(grown, way->answers, way->answers_count * sizeof(*grown));
    grown[way->answers_count] = batch;
    way->answers = grown;
    way->answers_count++;
    batch_hold(batch);
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        struct way_result *result = &way->results[request_of(batch, row)];
        if (result->status == WAY_FILTERED)
            *result = (struct way_result){.status = WAY_ANSWERED, .batch = batch, .row = row};
        else
            *result = (struct way_result){.status = WAY_FAILED,
                                          .node = way->steps[way->serve->steps_count - 1].node,
                                          .reason = "the steps made several rows of the request"};
    }
}

static void emit(struct operator_context *context, uint32_t output, struct batch *batch)
{
    struct way_step *step = step_of(context);
    struct way *way = step->way;
    if (output == step->output && batch->selected > 0) {
        for (uint32_t i = 0; i < batch->selected; i++)
            bit_set(step->passed, request_of(batch, batch_row(batch, i)));
        if (step->index + 1 == way->serve->steps_count)
            keep(way, batch);
        else
            give(way, step->index + 1, batch);
    }
    batch_release(batch);
}

static void reject(struct operator_context *context, const struct batch *batch, uint32_t row,
                   const char *reason)
{
    struct way_step *step = step_of(context);
    step->way->results[request_of(batch, row)] = (struct way_result){
        .status = WAY_FAILED, .node = step->node, .reason = arena_strdup(&step->way->run_arena, reason)};
}

static const struct operator_reader reader = {.emit = emit, .reject = reject};

/* --- Open and close --- */

static struct way *way_new(const struct plan *plan, const struct plan_serve *serve)
{
    struct way *way = mem_calloc(1, sizeof(*way) + serve->steps_count * sizeof(*way->steps));
    way->plan = plan;
    way->serve = serve;
    for (uint32_t i = 0; i < serve->steps_count; i++) {
        struct way_step *step = &way->steps[i];
        step->way = way;
        step->node = &plan->nodes[serve->steps[i]];
        step->index = i;
        step->input = serve->inputs[i];
        step->output = serve->outputs[i];
    }
    return way;
}

/* What the step learns of the run: as `leat trace` does, it writes nothing beside the checkpoints. */
static struct operator_history *history_of(struct way *way, uint16_t id, const char *directory)
{
    struct operator_history *history = arena_new(&way->arena, struct operator_history);
    *history =
        (struct operator_history){.directory = arena_printf(&way->arena, "%s/tables/%u", directory, id),
                                  .will_restore = true,
                                  .is_traced = true,
                                  .first = inspection_micro_batch(way->inspection),
                                  .until = UINT64_MAX};
    for (uint32_t i = 0; i < way->plan->sources_count; i++)
        history->is_live |= way->plan->nodes[way->plan->sources[i]].is_live;
    return history;
}

static bool open_step(struct way *way, struct way_step *step, const char *directory)
{
    uint16_t id = 0;
    if (step->node->has_state && !inspection_id(way->inspection, step->node, &id))
        return false;
    step->context =
        (struct operator_context){.lanes = 1, .reader = &reader, .history = history_of(way, id, directory)};
    if (!inspection_restore(way->inspection, step->node, &step->context))
        return false;
    if (inspection_has_ended(way->inspection))
        step->context.watermark =
            TIME_MAX; /* all windows are closed, whether the checkpoint still has their panes or not */
    return true;
}

struct way *way_open(const struct plan *plan, const struct plan_serve *serve, struct checkpoint *checkpoint,
                     const char *directory, struct diag_list *diags)
{
    struct way *way = way_new(plan, serve);
    way->inspection = inspection_open(plan, checkpoint, diags);
    bool is_good = way->inspection != NULL;
    if (is_good) {
        way->pool = inspection_pool(way->inspection);
        way->watermark = inspection_watermark(way->inspection, &plan->nodes[serve->request]);
    }
    for (uint32_t i = 0; i < serve->steps_count && is_good; i++)
        is_good = open_step(way, &way->steps[i], directory);
    if (is_good)
        return way;
    way_close(way);
    return NULL;
}

struct way *way_attach(const struct plan *plan, const struct plan_serve *serve, way_context *live,
                       void *argument, struct batch_pool *pool)
{
    struct way *way = way_new(plan, serve);
    way->live = live;
    way->argument = argument;
    way->pool = pool;
    for (uint32_t i = 0; i < serve->steps_count; i++)
        way->steps[i].context.scratch = arena_new(&way->arena, struct arena);
    return way;
}

/* Takes the contexts as they are now, with scratch memory and counters of the way's own. */
static void look_again(struct way *way)
{
    for (uint32_t i = 0; i < way->serve->steps_count; i++) {
        struct operator_context *context = &way->steps[i].context;
        struct arena *scratch = context->scratch;
        *context = *way->live(way->argument, way->serve->steps[i]);
        context->scratch = scratch;
        context->reader = &reader;
        context->counters = (struct counters){0};
    }
}

static void release_answers(struct way *way)
{
    for (uint32_t i = 0; i < way->answers_count; i++)
        batch_release(way->answers[i]);
    way->answers_count = 0;
    arena_reset(&way->run_arena);
}

void way_close(struct way *way)
{
    if (way == NULL)
        return;
    release_answers(way);
    for (uint32_t i = 0; i < way->serve->steps_count; i++) {
        if (way->live == NULL)
            inspection_end(way->steps[i].node, &way->steps[i].context);
        else
            arena_free(way->steps[i].context.scratch);
    }
    inspection_close(way->inspection);
    arena_free(&way->run_arena);
    arena_free(&way->arena);
    free(way);
}

struct batch_pool *way_pool(const struct way *way)
{
    return way->pool;
}

int64_t way_watermark(const struct way *way)
{
    return way->watermark;
}

uint64_t way_micro_batch(const struct way *way)
{
    return inspection_micro_batch(way->inspection);
}

struct operator_context *way_context_of(struct way *way, uint32_t node)
{
    for (uint32_t i = 0; i < way->serve->steps_count; i++)
        if (way->serve->steps[i] == node)
            return &way->steps[i].context;
    return NULL;
}

void way_set_watermark(struct way *way, int64_t watermark)
{
    way->watermark = MAX(way->watermark, watermark);
}

bool way_has_ended(const struct way *way)
{
    return inspection_is_final(way->inspection);
}

bool way_is_well(const struct way *way)
{
    return way->inspection == NULL || inspection_is_well(way->inspection);
}

/* --- Requests --- */

/* The first step from `first` on that has emitted nothing of the request. */
static const struct plan_node *lost_at(const struct way *way, uint32_t first, uint32_t request)
{
    uint32_t i = first;
    while (i + 1 < way->serve->steps_count && bit_get(way->steps[i].passed, request))
        i++;
    return way->steps[i].node;
}

const struct way_result *way_run(struct way *way, struct batch *requests)
{
    return way_run_from(way, 0, requests);
}

const struct way_result *way_run_from(struct way *way, uint32_t step, struct batch *requests)
{
    release_answers(way);
    if (way->live != NULL)
        look_again(way);
    leat_assert(requests->origins == NULL && requests->first_record == 0);
    memset(way->results, 0, requests->rows * sizeof(*way->results));
    for (uint32_t i = 0; i < requests->selected; i++)
        way->results[batch_row(requests, i)].status = WAY_FILTERED;
    for (uint32_t i = 0; i < way->serve->steps_count; i++)
        memset(way->steps[i].passed, 0, sizeof(way->steps[i].passed));
    if (requests->selected > 0)
        give(way, step, requests);
    end_rows(way, step);
    for (uint32_t i = 0; i < requests->selected; i++) {
        struct way_result *result = &way->results[batch_row(requests, i)];
        if (result->status == WAY_FILTERED)
            result->node = lost_at(way, step, batch_row(requests, i));
    }
    return way->results;
}

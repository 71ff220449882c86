/* A running learner: each batch, each request, watermarks, report, close. */
#include "learners/sequential/internal_learner.h"

#include "core/mem.h"
#include "core/os.h"
#include "kernels/num.h"
#include "learners/learner/learner.h"
#include "learners/learner/optimizer_options.h"

#include <math.h>
#include <stdlib.h>

enum {
    RATES_EVERY = 1024, /* targets between two decisions about learning rates */
    PASS_BATCHES = 8,   /* batches of held rows in a micro-batch */
};

static void removed(void *of, uint32_t number)
{
    ranks_removed(((struct sequential_state *)of)->choices.ranks, number);
}

static struct cold_store *make_cold(void *of, uint32_t number, size_t row_bytes)
{
    struct operator_context *context = of;
    return context->cold_store(context, number, row_bytes);
}

bool sequential_open(struct operator_context *context)
{
    struct sequential_config *c = context->config;
    const char *reason;
    const struct kernels *kernels = kernels_pick_env(&reason);
    if (kernels == NULL) {
        diag_error(context->diags, DIAG_BAD_ENVIRONMENT, (struct span){0, 0}, "LEAT_KERNELS: %s", reason);
        return false;
    }
    struct sequential_state *s = mem_calloc(1, sizeof(*s));
    c->state = s;
    c->model.kernels = kernels;
    c->model.removed = removed, c->model.removed_of = s;
    if (!sequential_pick_device(context))
        return false;
    s->model = sequential_new(&c->model);
    if (sequential_error(s->model) != NULL)
        return sequential_refuse_device(context);
    sequential_set_team(s->model, context->team);
    if (context->cold_store != NULL)
        sequential_set_cold(s->model, make_cold, context);
    choices_init(&s->choices, &c->ranks, c->model.dim);
    s->held.pool = context->pool, s->held.schema = c->schema;
    s->takes_unlabelled = c->unlabelled_input > 0;
    sequential_stored_init(s);
    return true;
}

/* --- From rows to events --- */

static uint64_t identity_of(const struct sequential_config *c, const struct sequential_event *e)
{
    uint64_t hash = num_mix((uint64_t)e->time_us ^ (uint64_t)c->seed << 32);
    hash = num_mix(hash * 31 + e->user);
    return num_mix(hash * 31 + e->item.key);
}

/* Reads the batch's selected rows that have a user and, with has_items, an item. s->places[i]: number among the selected
 * rows of event i. */
static uint32_t read_events(struct sequential_config *c, uint32_t input, const struct batch *batch,
                            bool has_items)
{
    struct sequential_state *s = c->state;
    const struct column *columns = batch->columns, *by = &columns[c->by_columns[input]];
    const struct column *item = has_items ? &columns[c->item_columns[input]] : NULL;
    bool has_labels = input == LEARNER_EXAMPLES;
    uint32_t n = 0;
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        bool is_whole = column_is_valid(by, row) && (item == NULL || column_is_valid(item, row));
        if (!is_whole)
            continue;
        struct sequential_event *e = &s->events[n];
        *e = (struct sequential_event){.user = learner_id(by, row), .time_us = batch->event_time[row]};
        for (uint32_t k = 0; k < c->contexts.count && (has_labels || !has_items); k++)
            e->contexts[k] = choices_value(&columns[c->context_columns[input][k]], row);
        if (has_items) {
            const struct column *learn =
                has_labels && c->learn_column >= 0 ? &columns[c->learn_column] : NULL;
            e->item = choices_value(item, row);
            e->teaches = learn == NULL || (column_is_valid(learn, row) && learn->bools[row] != 0);
            for (uint32_t k = 0; k < c->sides.count; k++)
                e->sides[k] = choices_value(&columns[c->side_columns[input][k]], row);
            e->is_unlabelled = !has_labels;
        }
        e->identity = identity_of(c, e);
        s->places[n++] = i;
    }
    return n;
}

/* --- Events that come --- */

/* What is to be chosen for a piece's events. */
static const struct choice *choose(struct sequential_state *s, const struct sequential_piece_work *p)
{
    for (uint32_t i = 0; i < p->n; i++) {
        const struct sequential_seen *seen = &p->seen[i];
        s->piece_choices[i] = (struct choice){.query = seen->query,
                                              .is_known = seen->is_known,
                                              .number = seen->item.number,
                                              .seen = seen->history,
                                              .seen_count = seen->history_length,
                                              .place = s->places[p->at + i],
                                              .time_us = s->events[p->at + i].time_us,
                                              .is_ranked = p->is_ranked[i] != 0,
                                              .is_listed = p->is_listed[i] != 0};
    }
    return s->piece_choices;
}

static void set_rates(struct sequential_config *c)
{
    uint64_t taught = sequential_counts(c->state->model).targets / RATES_EVERY * RATES_EVERY;
    sequential_set_rates(c->state->model, optimizer_rate(&c->embedding.optimizer, taught, RATES_EVERY),
                         optimizer_rate(&c->hidden_optimizer, taught, RATES_EVERY));
}

/* False: the device has failed, and the piece's events are not counted. */
static bool take_piece(struct operator_context *context, struct sequential_config *c,
                       struct sequential_piece_work *p)
{
    struct sequential_state *s = c->state;
    struct sequential_event *events = s->events + p->at;
    const struct items_index *index = catalogue_index(sequential_items(s->model));
    size_t items = items_index_live(index);
    bool makes_lists = choices_makes_lists(&s->choices, context);
    for (uint32_t i = 0; i < p->n; i++) {
        p->is_ranked[i] = ranks_is_ranked(s->choices.ranks, events[i].identity, items);
        p->is_listed[i] = p->is_ranked[i] || makes_lists;
    }
    uint64_t steps = sequential_counts(s->model).steps;
    sequential_read(s->model, events, p->n, p->is_listed, p->seen);
    if (!sequential_check_device(context))
        return false;
    choices_judge(&s->choices, context, p->batch, index, choose(s, p), p->n);
    for (uint32_t i = 0; i < p->n; i++) {
        s->learned += events[i].teaches;
        s->predicted += !events[i].teaches;
        s->without_history += p->seen[i].length == 0;
    }
    set_rates(c);
    sequential_take(s->model);
    if (sequential_counts(s->model).steps != steps)
        catalogue_refresh(sequential_items(s->model));
    return sequential_check_device(context);
}

static void emit(struct operator_context *context, struct sequential_config *c, uint32_t output,
                 const struct schema *schema, struct batch *batch)
{
    struct sequential_state *s = c->state;
    choices_emit(&s->choices, context, output, schema, batch, catalogue_numbers(sequential_items(s->model)));
}

/* Learns or predicts all rows of a batch that have a user and an item, and emits the batch. */
static void take_events(struct operator_context *context, struct sequential_config *c, struct batch *batch)
{
    struct sequential_state *s = c->state;
    struct sequential_piece_work *piece = &s->piece;
    uint64_t learned = s->learned;
    uint32_t n = read_events(c, LEARNER_EXAMPLES, batch, true);
    choices_begin(&s->choices, batch->selected);
    for (uint32_t at = 0; at < n; at += piece->n) {
        piece->batch = batch, piece->at = at;
        piece->n = sequential_piece(s->model, s->events + at, n - at);
        if (!take_piece(context, c, piece))
            return;
    }
    s->rejected += batch->selected - n;
    context->counters.absorbed += s->learned - learned;
    context->counters.filtered += n - (s->learned - learned);
    context->counters.dead += batch->selected - n;
    emit(context, c, LEARNER_PREDICTIONS, c->top, batch);
}

/* Rows of `unlabelled`: they become part of the histories, and their windows teach by what is hidden of them. */
static void take_unlabelled(struct operator_context *context, struct sequential_config *c,
                            struct batch *batch)
{
    struct sequential_state *s = c->state;
    uint64_t steps = sequential_counts(s->model).steps;
    uint32_t n = read_events(c, c->unlabelled_input, batch, true), piece;
    for (uint32_t at = 0; at < n; at += piece) {
        piece = sequential_piece(s->model, s->events + at, n - at);
        sequential_read(s->model, s->events + at, piece, NULL, s->piece.seen);
        set_rates(c);
        sequential_take(s->model);
    }
    if (!sequential_check_device(context))
        return;
    if (sequential_counts(s->model).steps != steps)
        catalogue_refresh(sequential_items(s->model));
    s->unlabelled += n;
    s->rejected += batch->selected - n;
    context->counters.absorbed += n;
    context->counters.dead += batch->selected - n;
}

/* With `passes`: rows that teach become part of the histories, the others wait. */
static void collect_events(struct operator_context *context, struct sequential_config *c, struct batch *batch)
{
    struct sequential_state *s = c->state;
    uint32_t n = read_events(c, LEARNER_EXAMPLES, batch, true), kept = 0, held = 0;
    uint16_t rows[BATCH_ROWS];
    for (uint32_t i = 0; i < n; i++) {
        if (s->events[i].teaches)
            s->events[kept++] = s->events[i];
        else
            rows[held++] = (uint16_t)batch_row(batch, s->places[i]);
    }
    if (kept > 0) {
        sequential_read(s->model, s->events, kept, NULL, s->piece.seen);
        sequential_take(s->model);
    }
    sequential_hold(context, c, batch, rows, held);
    s->learned += kept;
    s->rejected += batch->selected - n;
    context->counters.absorbed += kept;
    context->counters.held += held;
    context->counters.dead += batch->selected - n;
}

/* A part of the work behind the end of the input: a step of the passes, or some of the rows that wait. */
static void go_on(struct operator_context *context, struct sequential_config *c)
{
    struct sequential_state *s = c->state;
    if (sequential_has_passes(s->model)) {
        set_rates(c);
        sequential_learn_pass(s->model);
        (void)sequential_check_device(context);
        return;
    }
    for (uint32_t i = 0; i < PASS_BATCHES && sequential_has_held(&s->held) && !s->has_failed; i++) {
        struct batch *batch = sequential_take_held(context, &s->held);
        context->counters.held -= batch->selected;
        take_events(context, c, batch);
        batch_release(batch);
    }
}

bool sequential_wants_more(const struct operator_context *context)
{
    const struct sequential_config *c = context->config;
    const struct sequential_state *s = c->state;
    return !s->has_failed && (sequential_has_passes(s->model) || sequential_has_held(&s->held));
}

/* Lists for rows without an item, which change nothing; `n` events were read. */
static void answer(struct sequential_config *c, uint32_t n)
{
    struct sequential_state *s = c->state;
    struct sequential_piece_work *piece = &s->piece;
    piece->at = 0, piece->n = n;
    memset(piece->is_listed, 1, n);
    memset(piece->is_ranked, 0, n);
    sequential_ask(s->model, s->events, n, piece->is_listed, piece->seen);
    choices_answer(&s->choices, catalogue_index(sequential_items(s->model)), choose(s, piece), n);
}

static void take_scored(struct operator_context *context, struct sequential_config *c, struct batch *batch)
{
    struct sequential_state *s = c->state;
    uint32_t n = read_events(c, LEARNER_SCORED, batch, false);
    choices_begin(&s->choices, batch->selected);
    answer(c, n);
    if (!sequential_check_device(context))
        return;
    s->scored += n;
    s->rejected += batch->selected - n;
    context->counters.filtered += n;
    context->counters.dead += batch->selected - n;
    emit(context, c, LEARNER_SCORES, c->scores, batch);
}

void sequential_process(struct operator_context *context, uint32_t input, struct batch *batch)
{
    struct sequential_config *c = context->config;
    stored_settle(&c->state->stored, false);
    sequential_cache_clear(c->state->model);
    sequential_keep(c->state->model, (size_t)context->memory_bytes);
    kernels_count(&c->state->calls, c->model.kernels);
    if (input == LEARNER_EXAMPLES)
        (c->passes > 0 ? collect_events : take_events)(context, c, batch);
    else
        (input == c->scored_input ? take_scored : take_unlabelled)(context, c, batch);
}

void sequential_answer(struct operator_context *context, uint32_t input, struct batch *batch)
{
    struct sequential_config *c = context->config;
    bool is_scored = input == LEARNER_SCORED;
    if (!c->state->has_cache && c->model.device == NULL)
        sequential_set_cache(c->state->model, (size_t)c->cache, c->cache_format == ROW_BF16);
    c->state->has_cache = true;
    uint32_t n = read_events(c, input, batch, false);
    choices_begin(&c->state->choices, batch->selected);
    answer(c, n);
    const struct gpu_error *error = sequential_error(c->state->model); /* the next `process` ends the run */
    for (uint32_t i = 0; i < batch->selected && error != NULL; i++)
        operator_reject(context, batch, batch_row(batch, i), error->text);
    if (error != NULL)
        return;
    emit(context, c, is_scored ? LEARNER_SCORES : LEARNER_PREDICTIONS, is_scored ? c->scores : c->top, batch);
}

void sequential_on_watermark(struct operator_context *context, int64_t watermark)
{
    struct sequential_config *c = context->config;
    struct catalogue *items = sequential_items(c->state->model);
    stored_settle(&c->state->stored, false);
    sequential_cache_clear(c->state->model);
    sequential_set_watermark(c->state->model, watermark);
    sequential_keep(c->state->model, (size_t)context->memory_bytes);
    if (watermark == TIME_MAX)
        go_on(context, c);
    if (c->state->has_failed)
        return;
    if (!sequential_has_passes(c->state->model)) /* before they are through nothing is searched */
        catalogue_refresh(items);
    if (watermark == TIME_MAX && !sequential_wants_more(context))
        ranks_end(c->state->choices.ranks, context, LEARNER_METRICS,
                  items_index_live(catalogue_index(items)));
}

/* --- Report, close --- */

void sequential_report(struct operator_context *context, struct report *report)
{
    struct sequential_config *c = context->config;
    struct sequential_state *s = c->state;
    struct catalogue *items = sequential_items(s->model);
    struct sequential_counts counts = sequential_counts(s->model);
    ranks_report(s->choices.ranks, report, items_index_live(catalogue_index(items)));
    report_add(report, "learned", (double)s->learned, false);
    report_add(report, "predicted", (double)s->predicted, false);
    report_add(report, "rejected", (double)s->rejected, false);
    if (c->scores != NULL)
        report_add(report, "scored", (double)s->scored, false);
    if (c->unlabelled_input > 0)
        report_add(report, "unlabelled", (double)s->unlabelled, false);
    report_add(report, "without_history", (double)s->without_history, false);
    if (s->gpu.api != NULL)
        report_add(report, "device_busy",
                   sequential_busy_ms(s->model) * 1e3 / (double)(os_monotonic_us() - s->opened_us + 1),
                   false);
    if (c->passes > 0)
        report_add(report, "end_share_done", sequential_passes_share(s->model), false);
    report_add(report, "steps", (double)counts.steps, false);
    report_add(report, "targets", (double)counts.targets, false);
    if (c->also.config != NULL)
        report_add(report, "targets_masked", (double)counts.masked, false);
    report_add(report, "targets_rejected", (double)counts.rejected, false);
    report_add(report, "rows_refused", (double)counts.rows_refused, false);
    report_add(report, "step_loss", counts.targets > counts.masked ? counts.loss : (double)NAN, false);
    if (c->also.config != NULL)
        report_add(report, "masked_loss", counts.masked > 0 ? counts.masked_loss : (double)NAN, false);
    sequential_report_memory(s, report);
    learner_report_calls(&s->calls, report);
}

void sequential_close(struct operator_context *context)
{
    struct sequential_config *c = context->config;
    struct sequential_state *s = c->state;
    if (s == NULL)
        return;
    stored_settle(&s->stored, true);
    sequential_held_free(&s->held);
    sequential_free(s->model);
    learner_gpu_close(&s->gpu);
    choices_free(&s->choices);
    free(s);
    c->state = NULL;
}

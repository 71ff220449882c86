/* A running learner: each batch, each request, watermarks, report, close. */
#include "learners/learner/learner.h"
#include "core/change.h"
#include "core/mem.h"
#include "kernels/num.h"
#include "learners/learner/optimizer_options.h"
#include "learners/towers/internal_learner.h"

#include <math.h>
#include <stdlib.h>

enum { RATES_EVERY = 1024 }; /* events between two decisions about learning rates */

static void removed(void *of, uint32_t number)
{
    ranks_removed(((struct towers_state *)of)->choices.ranks, number);
}

bool towers_open(struct operator_context *context)
{
    struct towers_config *c = context->config;
    const char *reason;
    const struct kernels *kernels = kernels_pick_env(&reason);
    if (kernels == NULL) {
        diag_error(context->diags, DIAG_BAD_ENVIRONMENT, (struct span){0, 0}, "LEAT_KERNELS: %s", reason);
        return false;
    }
    struct towers_state *s = mem_calloc(1, sizeof(*s));
    c->state = s;
    c->model.kernels = kernels;
    c->model.removed = removed, c->model.removed_of = s;
    s->model = towers_new(&c->model);
    towers_set_team(s->model, context->team);
    choices_init(&s->choices, &c->ranks, towers_width(&c->model));
    s->has_users = c->history > 0;
    towers_stored_init(s);
    return true;
}

static const struct items_index *index_of(const struct towers_state *s)
{
    return catalogue_index(towers_items(s->model));
}

/* --- From rows to events --- */

static void add_id(struct towers_read_events *r, uint64_t id)
{
    if (r->ids_count == r->ids_room) {
        r->ids_room = MAX(2 * r->ids_room, (size_t)BATCH_ROWS);
        r->ids = mem_realloc(r->ids, r->ids_room * sizeof(*r->ids));
    }
    r->ids[r->ids_count++] = id;
}

/* Reads a row's ids of a column: a single value, null or not, or the first list_max ones of a list; returns how many. */
static uint16_t read_ids(struct towers_config *c, const struct column *column, uint32_t row)
{
    struct towers_state *s = c->state;
    uint32_t count = 0;
    if (column->tag != TYPE_LIST) {
        add_id(&s->read, learner_id(column, row));
        return 1;
    }
    if (column_is_valid(column, row)) {
        struct list_ref list = column->lists[row];
        count = MIN(list.length, c->model.list_max);
        s->ids_cut += list.length - count;
        for (uint32_t k = 0; k < count; k++)
            add_id(&s->read, learner_id(&column->children[0], list.offset + k));
    }
    return (uint16_t)count;
}

static void read_query(struct towers_config *c, uint32_t input, const struct column *columns, uint32_t row,
                       uint32_t i)
{
    struct towers_read_events *r = &c->state->read;
    r->query_at[i] = r->ids_count;
    for (uint32_t f = 0; f < c->query.count; f++)
        r->query_counts[i][f] = read_ids(c, &columns[c->query_columns[input][f]], row);
}

/* The id of a query's value; 0: it is null, or there is no such value. */
static uint64_t query_id(const struct towers_config *c, uint32_t input, const struct column *columns,
                         uint32_t row, uint32_t field)
{
    if (field >= c->query.count)
        return 0;
    const struct column *column = &columns[c->query_columns[input][field]];
    return column_is_valid(column, row) ? learner_id(column, row) : 0;
}

static void read_features(struct towers_config *c, const struct column *columns, uint32_t row, uint32_t i)
{
    struct towers_read_events *r = &c->state->read;
    r->features_at[i] = r->ids_count;
    for (uint32_t f = 0; f < c->features.count; f++)
        r->features_counts[i][f] = read_ids(c, &columns[c->feature_columns[f]], row);
}

static uint64_t identity_of(const struct towers_config *c, const struct towers_event *e)
{
    uint64_t hash = num_mix((uint64_t)e->time_us ^ (uint64_t)c->seed << 32);
    for (uint32_t f = 0, at = 0; f < c->query.count; at += e->query.counts[f++])
        if (!c->is_list[f])
            hash = num_mix(hash * 31 + e->query.ids[at]);
    return num_mix(hash * 31 + e->item.key);
}

/* The ids have their place when all have been read. */
static void finish_events(struct towers_config *c, uint32_t n)
{
    struct towers_read_events *r = &c->state->read;
    for (uint32_t i = 0; i < n; i++) {
        struct towers_event *e = &r->events[i];
        e->query = (struct towers_ids){r->ids + r->query_at[i], r->query_counts[i]};
        if (e->has_features)
            e->features = (struct towers_ids){r->ids + r->features_at[i], r->features_counts[i]};
        e->identity = identity_of(c, e);
    }
}

/* Reads the batch's selected rows; of events (has_items) those that have an item, and a user where the kind has users. */
static uint32_t read_events(struct towers_config *c, uint32_t input, const struct batch *batch,
                            bool has_items)
{
    struct towers_read_events *r = &c->state->read;
    const struct column *columns = batch->columns;
    const struct column *learn = c->learn_column >= 0 && has_items ? &columns[c->learn_column] : NULL;
    uint32_t n = 0;
    r->ids_count = 0;
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        if (has_items && !column_is_valid(&columns[c->item_column], row))
            continue;
        struct towers_event *e = &r->events[n];
        *e = (struct towers_event){.time_us = batch->event_time[row]};
        if (c->history > 0) {
            e->user = query_id(c, input, columns, row, 0), e->asked = query_id(c, input, columns, row, 1);
            if (has_items && e->user == 0)
                continue;
        }
        read_query(c, input, columns, row, n);
        if (has_items) {
            e->item = choices_value(&columns[c->item_column], row);
            e->teaches = learn == NULL || (column_is_valid(learn, row) && learn->bools[row] != 0);
            e->has_features = c->features_input == LEARNER_EXAMPLES && c->features.count > 0;
            if (e->has_features)
                read_features(c, columns, row, n);
        }
        r->places[n++] = i;
    }
    finish_events(c, n);
    return n;
}

/* --- Ranks and lists --- */

static void leave_out(struct towers_state *s, uint32_t number)
{
    if (s->left_out_count == s->left_out_room) {
        s->left_out_room = MAX(2 * s->left_out_room, (size_t)BATCH_ROWS);
        s->left_out = mem_realloc(s->left_out, s->left_out_room * sizeof(*s->left_out));
    }
    s->left_out[s->left_out_count++] = number;
}

/* What `seen: dropped` leaves out: items in lists of the query, or those of the user's window. */
static void leave_out_seen(struct towers_config *c, const struct towers_event *e,
                           const struct towers_seen *seen)
{
    struct towers_state *s = c->state;
    const uint64_t *ids = e->query.ids;
    struct items_ref ref;
    for (uint32_t k = 0; k < seen->window_count; k++)
        leave_out(s, seen->window[k]);
    for (uint32_t f = 0; f < c->query.count; ids += e->query.counts[f++])
        for (uint32_t k = 0; k < e->query.counts[f] && c->is_seen[f]; k++)
            if (catalogue_find(towers_items(s->model), ids[k], &ref))
                leave_out(s, ref.number);
}

/* What is to be chosen for n events from `at` on. */
static const struct choice *choose(struct towers_config *c, uint32_t at, uint32_t n)
{
    struct towers_state *s = c->state;
    s->left_out_count = 0;
    for (uint32_t i = 0; i < n; i++) {
        s->left_out_at[i] = s->left_out_count;
        if (s->seen[i].is_asked) /* an item is the most alike to itself */
            leave_out(s, s->seen[i].asked);
        if (c->ranks.seen == RANKS_SEEN_DROPPED && s->is_listed[i])
            leave_out_seen(c, &s->read.events[at + i], &s->seen[i]);
        s->piece_choices[i] = (struct choice){.query = s->seen[i].query,
                                              .is_known = s->seen[i].is_known,
                                              .number = s->seen[i].number,
                                              .seen_count = (uint32_t)(s->left_out_count - s->left_out_at[i]),
                                              .always_out = s->seen[i].is_asked,
                                              .place = s->read.places[at + i],
                                              .time_us = s->read.events[at + i].time_us,
                                              .is_ranked = s->is_ranked[i] != 0,
                                              .is_listed = s->is_listed[i] != 0};
    }
    for (uint32_t i = 0; i < n && s->left_out_count > 0; i++)
        s->piece_choices[i].seen = s->left_out + s->left_out_at[i];
    return s->piece_choices;
}

static void emit(struct operator_context *context, struct towers_config *c, uint32_t output,
                 const struct schema *schema, struct batch *batch)
{
    struct towers_state *s = c->state;
    choices_emit(&s->choices, context, output, schema, batch, catalogue_numbers(towers_items(s->model)));
}

/* --- Events that come --- */

static void set_rates(struct towers_config *c)
{
    uint64_t taught = c->state->learned / RATES_EVERY * RATES_EVERY;
    towers_set_rates(c->state->model, optimizer_rate(&c->embedding.optimizer, taught, RATES_EVERY),
                     optimizer_rate(&c->hidden_optimizer, taught, RATES_EVERY));
}

static void take_piece(struct operator_context *context, struct towers_config *c, const struct batch *batch,
                       uint32_t at, uint32_t n)
{
    struct towers_state *s = c->state;
    const struct towers_event *events = s->read.events + at;
    size_t items = items_index_live(index_of(s));
    bool makes_lists = choices_makes_lists(&s->choices, context);
    for (uint32_t i = 0; i < n; i++) {
        s->is_ranked[i] = ranks_is_ranked(s->choices.ranks, events[i].identity, items);
        s->is_listed[i] = s->is_ranked[i] || makes_lists;
    }
    towers_read(s->model, events, n, s->is_listed, s->seen);
    choices_judge(&s->choices, context, batch, index_of(s), choose(c, at, n), n);
    for (uint32_t i = 0; i < n; i++) {
        s->learned += s->seen[i].teaches;
        s->predicted += !s->seen[i].teaches;
        s->unlisted += c->model.is_listed && !s->seen[i].is_known;
    }
    set_rates(c);
    kernels_count(&s->calls, c->model.kernels);
    towers_take(s->model);
}

static void take_events(struct operator_context *context, struct towers_config *c, struct batch *batch)
{
    struct towers_state *s = c->state;
    uint64_t learned = s->learned;
    uint32_t n = read_events(c, LEARNER_EXAMPLES, batch, true);
    choices_begin(&s->choices, batch->selected);
    for (uint32_t at = 0, piece; at < n; at += piece) {
        piece = towers_piece(s->model, s->read.events + at, n - at);
        take_piece(context, c, batch, at, piece);
    }
    s->rejected += batch->selected - n;
    context->counters.absorbed += s->learned - learned;
    context->counters.filtered += n - (s->learned - learned);
    context->counters.dead += batch->selected - n;
    emit(context, c, LEARNER_PREDICTIONS, c->top, batch);
}

/* Lists for n rows without an item, which change nothing. */
static void answer(struct towers_config *c, uint32_t n)
{
    struct towers_state *s = c->state;
    kernels_count(&s->calls, c->model.kernels);
    memset(s->is_listed, 1, n);
    memset(s->is_ranked, 0, n);
    towers_ask(s->model, s->read.events, n, s->is_listed, s->seen);
    choices_answer(&s->choices, index_of(s), choose(c, 0, n), n);
}

static void take_scored(struct operator_context *context, struct towers_config *c, struct batch *batch)
{
    struct towers_state *s = c->state;
    uint32_t n = read_events(c, c->scored_input, batch, false);
    choices_begin(&s->choices, batch->selected);
    answer(c, n);
    s->scored += n;
    context->counters.filtered += n;
    emit(context, c, LEARNER_SCORES, c->scores, batch);
}

/* --- The catalogue --- */

/* What a row does to the catalogue. Rows without `_op` are as inserted ones; false: it is no change that there is. */
static bool change_of(const struct towers_config *c, const struct batch *batch, uint32_t row,
                      enum change *change)
{
    const struct column *op = c->op_column >= 0 ? &batch->columns[c->op_column] : NULL;
    *change = CHANGE_INSERT;
    if (op == NULL || !column_is_valid(op, row))
        return true;
    while (*change <= CHANGE_DELETE && !str_equal(column_text(op, row), change_text(*change)))
        (*change)++;
    return *change <= CHANGE_DELETE;
}

static void take_item(struct towers_config *c, const struct batch *batch, uint32_t row, enum change change)
{
    struct towers_state *s = c->state;
    struct items_value item = choices_value(&batch->columns[c->catalogued_column], row);
    s->read.ids_count = 0;
    if (change == CHANGE_DELETE) {
        s->removed += towers_remove(s->model, item.key);
        return;
    }
    read_features(c, batch->columns, row, 0);
    struct towers_ids features = {s->read.ids, s->read.features_counts[0]};
    (void)towers_put(s->model, &item, &features, batch->event_time[row]);
}

static void take_items(struct operator_context *context, struct towers_config *c, const struct batch *batch)
{
    struct towers_state *s = c->state;
    uint32_t n = 0;
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        enum change change;
        if (!column_is_valid(&batch->columns[c->catalogued_column], row) ||
            !change_of(c, batch, row, &change))
            continue;
        take_item(c, batch, row, change);
        n++;
    }
    towers_encode_new(s->model);
    s->catalogued += n;
    s->rejected += batch->selected - n;
    context->counters.filtered += n;
    context->counters.dead += batch->selected - n;
}

/* --- Calls --- */

void towers_process(struct operator_context *context, uint32_t input, struct batch *batch)
{
    struct towers_config *c = context->config;
    stored_settle(&c->state->stored, false);
    if (input == LEARNER_EXAMPLES)
        take_events(context, c, batch);
    else if (input == c->items_input)
        take_items(context, c, batch);
    else
        take_scored(context, c, batch);
}

void towers_answer(struct operator_context *context, uint32_t input, struct batch *batch)
{
    struct towers_config *c = context->config;
    bool is_scored = input > 0 && input == c->scored_input;
    uint32_t n = read_events(c, input, batch, false);
    choices_begin(&c->state->choices, batch->selected);
    answer(c, n);
    emit(context, c, is_scored ? LEARNER_SCORES : LEARNER_PREDICTIONS, is_scored ? c->scores : c->top, batch);
}

void towers_on_watermark(struct operator_context *context, int64_t watermark)
{
    struct towers_config *c = context->config;
    struct towers_state *s = c->state;
    stored_settle(&s->stored, false);
    towers_set_watermark(s->model, watermark);
    if (watermark == TIME_MAX)
        ranks_end(s->choices.ranks, context, LEARNER_METRICS, items_index_live(index_of(s)));
}

/* --- Report, close --- */

void towers_report(struct operator_context *context, struct report *report)
{
    struct towers_config *c = context->config;
    struct towers_state *s = c->state;
    struct towers_counts counts = towers_counts(s->model);
    ranks_report(s->choices.ranks, report, items_index_live(index_of(s)));
    report_add(report, "learned", (double)s->learned, false);
    report_add(report, "predicted", (double)s->predicted, false);
    report_add(report, "rejected", (double)s->rejected, false);
    if (c->scores != NULL)
        report_add(report, "scored", (double)s->scored, false);
    if (c->items_input > 0) {
        report_add(report, "catalogued", (double)s->catalogued, false);
        report_add(report, "removed", (double)s->removed, false);
        report_add(report, "unlisted", (double)s->unlisted, false);
    }
    report_add(report, "ids_cut", (double)s->ids_cut, false);
    report_add(report, "steps", (double)counts.steps, false);
    report_add(report, "targets", (double)counts.targets, false);
    report_add(report, "targets_rejected", (double)counts.rejected, false);
    report_add(report, "step_loss", counts.steps > 0 ? counts.loss : (double)NAN, false);
    towers_report_memory(s, report);
}

void towers_close(struct operator_context *context)
{
    struct towers_config *c = context->config;
    struct towers_state *s = c->state;
    if (s == NULL)
        return;
    stored_settle(&s->stored, true);
    towers_free(s->model);
    choices_free(&s->choices);
    free(s->read.ids), free(s->left_out);
    free(s);
    c->state = NULL;
}

/* A running learner: each batch, each request, watermarks, report, close. */
#include "learners/sequential/internal_learner.h"

#include "core/mem.h"
#include "kernels/num.h"
#include "learners/learner/learner.h"
#include "learners/learner/optimizer_options.h"

#include <math.h>
#include <stdlib.h>

enum {
    SEARCHED_TOGETHER = ITEMS_QUERIES_MAX,
    RATES_EVERY = 1024, /* targets between two decisions about learning rates */
    PASS_STEPS = 1,     /* steps of passes in a micro-batch */
    PASS_BATCHES = 8,   /* batches of held rows in a micro-batch */
};

static void removed(void *of, uint32_t number)
{
    ranks_removed(((struct sequential_state *)of)->ranks, number);
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
    s->model = sequential_new(&c->model);
    sequential_set_team(s->model, context->team);
    s->ranks = ranks_create(&c->ranks);
    s->search = items_search_create();
    s->list = c->ranks.top > 0 ? (size_t)c->ranks.top : SEQUENTIAL_ANSWER_TOP;
    for (uint32_t i = 0; i < c->ranks.at.count; i++)
        s->at_most = MAX(s->at_most, (size_t)c->ranks.at.items[i]);
    s->held.pool = context->pool, s->held.schema = c->schema;
    s->covered = mem_calloc(s->at_most, sizeof(*s->covered));
    s->row_lists = mem_alloc(BATCH_ROWS * s->list * sizeof(*s->row_lists));
    sequential_stored_init(s);
    return true;
}

/* --- From rows to events --- */

static struct items_value value_of(const struct column *column, uint32_t row)
{
    struct items_value v = {0};
    if (!column_is_valid(column, row))
        return v;
    v.key = learner_id(column, row);
    v.is_text = column->tag == TYPE_TEXT || column->tag == TYPE_BYTES;
    if (v.is_text)
        v.text = column_text(column, row);
    else if (column->tag == TYPE_BOOL)
        v.integer = column->bools[row];
    else if (column->tag == TYPE_FLOAT)
        memcpy(&v.integer, &column->floats[row], sizeof(v.integer));
    else
        v.integer = column->ints[row];
    return v;
}

static uint64_t identity_of(const struct sequential_config *c, const struct sequential_event *e)
{
    uint64_t hash = num_mix((uint64_t)e->time_us ^ (uint64_t)c->seed << 32);
    hash = num_mix(hash * 31 + e->user);
    return num_mix(hash * 31 + e->item.key);
}

/* Reads the batch's selected rows that have a user and, of input 0 with has_items, an item. s->places[i]: number among
 * the selected rows of event i. */
static uint32_t read_events(struct sequential_config *c, uint32_t input, const struct batch *batch,
                            bool has_items)
{
    struct sequential_state *s = c->state;
    const struct column *columns = batch->columns, *by = &columns[c->by_columns[input]];
    uint32_t n = 0;
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        bool is_whole =
            column_is_valid(by, row) && (!has_items || column_is_valid(&columns[c->item_column], row));
        if (!is_whole)
            continue;
        struct sequential_event *e = &s->events[n];
        *e = (struct sequential_event){.user = learner_id(by, row), .time_us = batch->event_time[row]};
        for (uint32_t k = 0; k < c->contexts.count; k++)
            e->contexts[k] = value_of(&columns[c->context_columns[input][k]], row);
        if (has_items) {
            const struct column *learn = c->learn_column >= 0 ? &columns[c->learn_column] : NULL;
            e->item = value_of(&columns[c->item_column], row);
            e->teaches = learn == NULL || (column_is_valid(learn, row) && learn->bools[row] != 0);
            for (uint32_t k = 0; k < c->sides.count; k++)
                e->sides[k] = value_of(&columns[c->side_columns[k]], row);
        }
        e->identity = identity_of(c, e);
        s->places[n++] = i;
    }
    return n;
}

/* --- Lists --- */

/* Makes room for a piece's lists of that many items. */
static void lists_width(struct sequential_state *s, size_t width)
{
    if (width <= s->lists_width)
        return;
    s->lists_width = width;
    free(s->lists);
    s->lists = mem_alloc(BATCH_ROWS * width * sizeof(*s->lists));
}

/* Copies the first `most` items of a search, without those of the window. */
static uint32_t without_seen(const struct sequential_seen *seen, const struct items_scored *found,
                             size_t count, size_t most, struct items_scored *list)
{
    uint32_t n = 0;
    for (size_t i = 0; i < count && n < most; i++) {
        bool is_seen = false;
        for (uint32_t k = 0; k < seen->history_length && !is_seen; k++)
            is_seen = seen->history[k] == found[i].number;
        if (!is_seen)
            list[n++] = found[i];
    }
    return n;
}

static void lists_room(struct sequential_state *s, size_t floats, size_t found)
{
    if (s->queries_room < floats) {
        s->queries_room = floats;
        s->queries = mem_realloc(s->queries, floats * sizeof(*s->queries));
    }
    if (s->found_room < found) {
        s->found_room = found;
        s->found = mem_realloc(s->found, found * sizeof(*s->found));
    }
}

/* Searches lists of `most` items for the events chosen[count], at most SEARCHED_TOGETHER. */
static void search_some(struct sequential_config *c, const struct sequential_seen *seen,
                        const uint32_t *chosen, uint32_t count, size_t most, struct items_scored *lists,
                        uint32_t *counts)
{
    struct sequential_state *s = c->state;
    size_t dim = c->model.dim, extra = 0;
    bool is_out = c->ranks.seen == RANKS_SEEN_DROPPED;
    for (uint32_t i = 0; i < count && is_out; i++)
        extra = MAX(extra, seen[chosen[i]].history_length);
    size_t k = MIN(most + extra, (size_t)ITEMS_TOP_MAX);
    lists_room(s, count * dim, count * k);
    for (uint32_t i = 0; i < count; i++)
        memcpy(s->queries + i * dim, seen[chosen[i]].query, dim * sizeof(float));
    size_t found = items_index_top(catalogue_index(sequential_items(s->model)), s->search, s->queries, count,
                                   k, s->found);
    for (uint32_t i = 0; i < count && found != SIZE_MAX; i++) {
        static const struct sequential_seen none;
        counts[chosen[i]] = without_seen(is_out ? &seen[chosen[i]] : &none, s->found + i * k, found, most,
                                         lists + chosen[i] * most);
    }
}

/* Lists of the events with wants[i]: lists[i][most], counts[i]; UINT32_MAX: none. */
static void search_lists(struct sequential_config *c, const struct sequential_seen *seen, uint32_t n,
                         const uint8_t *wants, size_t most, struct items_scored *lists, uint32_t *counts)
{
    uint32_t chosen[SEARCHED_TOGETHER], count = 0;
    for (uint32_t i = 0; i < n; i++) {
        counts[i] = UINT32_MAX;
        if (wants[i] && seen[i].query != NULL)
            chosen[count++] = i;
        if (count == SEARCHED_TOGETHER || (i + 1 == n && count > 0)) {
            search_some(c, seen, chosen, count, most, lists, counts);
            count = 0;
        }
    }
}

/* --- Events that come --- */

/* Ranks one event, and adds it to the figures. list: of its items, by which the catalogue's coverage is counted. */
static double rank_one(struct operator_context *context, struct sequential_config *c,
                       const struct sequential_piece_work *p, uint32_t i, const struct items_scored *list,
                       uint32_t listed)
{
    struct sequential_state *s = c->state;
    const struct sequential_seen *seen = &p->seen[i];
    const struct items_index *index = catalogue_index(sequential_items(s->model));
    bool is_out = c->ranks.seen == RANKS_SEEN_DROPPED;
    double rank = (double)INFINITY;
    if (seen->is_known && !items_index_rank(index, s->search, seen->query, seen->item.number, seen->history,
                                            is_out ? seen->history_length : 0, &rank))
        rank = (double)INFINITY;
    uint32_t row = batch_row(p->batch, s->places[p->at + i]);
    struct ranks_value value;
    if (ranks_has_by(&c->ranks))
        value = ranks_value_of(&p->batch->columns[c->ranks.by.index], row);
    size_t covered = listed == UINT32_MAX ? 0 : MIN((size_t)listed, s->at_most);
    for (size_t k = 0; k < covered; k++)
        s->covered[k] = list[k].number;
    struct ranks_event event = {.time_us = s->events[p->at + i].time_us,
                                .rank = rank,
                                .value = ranks_has_by(&c->ranks) ? &value : NULL,
                                .top = listed == UINT32_MAX ? NULL : s->covered,
                                .top_count = covered};
    if (ranks_add(s->ranks, &event))
        ranks_emit(s->ranks, context, LEARNER_METRICS, items_index_live(index));
    return rank;
}

/* Ranks and lists of a piece, into the arrays by row of the batch. */
static void judge(struct operator_context *context, struct sequential_config *c,
                  struct sequential_piece_work *p)
{
    struct sequential_state *s = c->state;
    size_t most = MAX(c->ranks.top > 0 ? s->list : 0, s->at_most);
    lists_width(s, most);
    search_lists(c, p->seen, p->n, p->is_listed, most, s->lists, s->counts);
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t place = s->places[p->at + i];
        const struct items_scored *list = s->lists + (size_t)i * most;
        if (p->is_ranked[i] && p->seen[i].query != NULL)
            s->row_ranks[place] = rank_one(context, c, p, i, list, s->counts[i]);
        if (c->ranks.top > 0 && s->counts[i] != UINT32_MAX) {
            s->row_counts[place] = MIN(s->counts[i], (uint32_t)s->list);
            memcpy(s->row_lists + place * s->list, list, s->row_counts[place] * sizeof(*list));
        }
    }
}

static void set_rates(struct sequential_config *c)
{
    uint64_t taught = sequential_counts(c->state->model).targets / RATES_EVERY * RATES_EVERY;
    sequential_set_rates(c->state->model, optimizer_rate(&c->embedding.optimizer, taught, RATES_EVERY),
                         optimizer_rate(&c->hidden_optimizer, taught, RATES_EVERY));
}

static void take_piece(struct operator_context *context, struct sequential_config *c,
                       struct sequential_piece_work *p)
{
    struct sequential_state *s = c->state;
    struct sequential_event *events = s->events + p->at;
    size_t items = items_index_live(catalogue_index(sequential_items(s->model)));
    for (uint32_t i = 0; i < p->n; i++) {
        p->is_ranked[i] = ranks_is_ranked(s->ranks, events[i].identity, items);
        p->is_listed[i] = p->is_ranked[i] || c->ranks.top > 0;
    }
    uint64_t steps = sequential_counts(s->model).steps;
    sequential_read(s->model, events, p->n, p->is_listed, p->seen);
    judge(context, c, p);
    for (uint32_t i = 0; i < p->n; i++) {
        s->learned += events[i].teaches;
        s->predicted += !events[i].teaches;
        s->without_history += p->seen[i].length == 0;
    }
    set_rates(c);
    sequential_take(s->model);
    if (sequential_counts(s->model).steps != steps)
        catalogue_refresh(sequential_items(s->model));
}

static void begin_rows(struct sequential_state *s, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        s->row_ranks[i] = (double)NAN;
        s->row_counts[i] = UINT32_MAX;
    }
}

static void emit(struct operator_context *context, struct sequential_config *c, uint32_t output,
                 const struct schema *schema, struct batch *batch)
{
    struct sequential_state *s = c->state;
    struct lists_rows rows = {
        .ranks = s->row_ranks, .top = s->row_lists, .counts = s->row_counts, .most = s->list};
    lists_emit(context, output, schema, batch, &rows, catalogue_numbers(sequential_items(s->model)));
    context->counters.emitted += batch->selected;
}

/* Learns or predicts all rows of a batch that have a user and an item, and emits the batch. */
static void take_events(struct operator_context *context, struct sequential_config *c, struct batch *batch)
{
    struct sequential_state *s = c->state;
    struct sequential_piece_work *piece = &s->piece;
    uint64_t learned = s->learned;
    uint32_t n = read_events(c, LEARNER_EXAMPLES, batch, true);
    begin_rows(s, batch->selected);
    for (uint32_t at = 0; at < n; at += piece->n) {
        piece->batch = batch, piece->at = at;
        piece->n = sequential_piece(s->model, s->events + at, n - at);
        take_piece(context, c, piece);
    }
    s->rejected += batch->selected - n;
    context->counters.absorbed += s->learned - learned;
    context->counters.filtered += n - (s->learned - learned);
    context->counters.dead += batch->selected - n;
    emit(context, c, LEARNER_PREDICTIONS, c->top, batch);
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

/* A part of the work behind the end of the input. */
static void go_on(struct operator_context *context, struct sequential_config *c)
{
    struct sequential_state *s = c->state;
    if (sequential_has_passes(s->model)) {
        for (uint32_t i = 0; i < PASS_STEPS; i++) {
            set_rates(c);
            sequential_learn_passes(s->model, 1);
        }
        return;
    }
    for (uint32_t i = 0; i < PASS_BATCHES && sequential_has_held(&s->held); i++) {
        struct batch *batch = sequential_take_held(context, &s->held);
        context->counters.held -= batch->selected;
        take_events(context, c, batch);
        batch_release(batch);
    }
}

bool sequential_wants_more(const struct operator_context *context)
{
    const struct sequential_config *c = context->config;
    return sequential_has_passes(c->state->model) || sequential_has_held(&c->state->held);
}

/* Lists for rows without an item, which change nothing; `n` events were read. */
static void answer(struct sequential_config *c, uint32_t n)
{
    struct sequential_state *s = c->state;
    struct sequential_piece_work *piece = &s->piece;
    memset(piece->is_listed, 1, n);
    sequential_ask(s->model, s->events, n, piece->is_listed, piece->seen);
    lists_width(s, s->list);
    search_lists(c, piece->seen, n, piece->is_listed, s->list, s->lists, s->counts);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t place = s->places[i];
        s->row_counts[place] = s->counts[i];
        if (s->counts[i] != UINT32_MAX)
            memcpy(s->row_lists + place * s->list, s->lists + i * s->list, s->counts[i] * sizeof(*s->lists));
    }
}

static void take_scored(struct operator_context *context, struct sequential_config *c, struct batch *batch)
{
    struct sequential_state *s = c->state;
    uint32_t n = read_events(c, LEARNER_SCORED, batch, false);
    begin_rows(s, batch->selected);
    answer(c, n);
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
    kernels_count(&c->state->calls, c->model.kernels);
    (input == LEARNER_SCORED ? take_scored : c->passes > 0 ? collect_events : take_events)(context, c, batch);
}

void sequential_answer(struct operator_context *context, uint32_t input, struct batch *batch)
{
    struct sequential_config *c = context->config;
    (void)input;
    if (!c->state->has_cache)
        sequential_set_cache(c->state->model, (size_t)c->cache, c->cache_format == ROW_BF16);
    c->state->has_cache = true;
    uint32_t n = read_events(c, LEARNER_EXAMPLES, batch, false);
    begin_rows(c->state, batch->selected);
    answer(c, n);
    emit(context, c, LEARNER_PREDICTIONS, c->top, batch);
}

void sequential_on_watermark(struct operator_context *context, int64_t watermark)
{
    struct sequential_config *c = context->config;
    struct catalogue *items = sequential_items(c->state->model);
    stored_settle(&c->state->stored, false);
    sequential_set_watermark(c->state->model, watermark);
    if (watermark == TIME_MAX)
        go_on(context, c);
    catalogue_refresh(items);
    if (watermark == TIME_MAX && !sequential_wants_more(context))
        ranks_end(c->state->ranks, context, LEARNER_METRICS, items_index_live(catalogue_index(items)));
}

/* --- Report, close --- */

void sequential_report(struct operator_context *context, struct report *report)
{
    struct sequential_config *c = context->config;
    struct sequential_state *s = c->state;
    struct catalogue *items = sequential_items(s->model);
    struct sequential_counts counts = sequential_counts(s->model);
    ranks_report(s->ranks, report, items_index_live(catalogue_index(items)));
    report_add(report, "learned", (double)s->learned, false);
    report_add(report, "predicted", (double)s->predicted, false);
    report_add(report, "rejected", (double)s->rejected, false);
    if (c->scores != NULL)
        report_add(report, "scored", (double)s->scored, false);
    report_add(report, "without_history", (double)s->without_history, false);
    if (c->passes > 0)
        report_add(report, "end_share_done", sequential_passes_share(s->model), false);
    report_add(report, "steps", (double)counts.steps, false);
    report_add(report, "targets", (double)counts.targets, false);
    report_add(report, "targets_rejected", (double)counts.rejected, false);
    report_add(report, "step_loss", counts.steps > 0 ? counts.loss : (double)NAN, false);
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
    ranks_free(s->ranks);
    items_search_free(s->search);
    free(s->queries), free(s->found), free(s->lists), free(s->row_lists), free(s->covered);
    free(s);
    c->state = NULL;
}

/* Searches for the events of a batch, and their ranks and lists by row. */
#include "learners/retrieval/choices.h"

#include "core/learner.h"
#include "core/mem.h"
#include "learners/learner/learner.h"

#include <math.h>
#include <stdlib.h>

enum { SEARCHED_TOGETHER = ITEMS_QUERIES_MAX };

void choices_init(struct choices *c, const struct ranks_config *config, uint32_t dim)
{
    c->config = config, c->dim = dim;
    c->ranks = ranks_create(config);
    c->search = items_search_create();
    c->list = choices_list(config);
    for (uint32_t i = 0; i < config->at.count; i++)
        c->at_most = MAX(c->at_most, (size_t)config->at.items[i]);
    c->covered = mem_calloc(c->at_most, sizeof(*c->covered));
    c->row_lists = mem_alloc(BATCH_ROWS * c->list * sizeof(*c->row_lists));
}

void choices_free(struct choices *c)
{
    ranks_free(c->ranks);
    items_search_free(c->search);
    free(c->queries), free(c->found), free(c->lists), free(c->row_lists), free(c->covered);
}

void choices_begin(struct choices *c, uint32_t rows)
{
    for (uint32_t i = 0; i < rows; i++) {
        c->row_ranks[i] = (double)NAN;
        c->row_counts[i] = UINT32_MAX;
    }
}

struct items_value choices_value(const struct column *column, uint32_t row)
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

/* --- Lists --- */

/* Makes room for lists of that many items. */
static void lists_width(struct choices *c, size_t width)
{
    if (width <= c->lists_width)
        return;
    c->lists_width = width;
    free(c->lists);
    c->lists = mem_alloc(BATCH_ROWS * width * sizeof(*c->lists));
}

static uint32_t left_out(const struct choices *c, const struct choice *of)
{
    return c->config->seen == RANKS_SEEN_DROPPED ? of->seen_count : of->always_out;
}

/* Copies the first `most` items of a search, without the `out` first ones of those that were seen. */
static uint32_t without_seen(const struct choice *of, uint32_t out, const struct items_scored *found,
                             size_t count, size_t most, struct items_scored *list)
{
    uint32_t n = 0;
    for (size_t i = 0; i < count && n < most; i++) {
        bool is_seen = false;
        for (uint32_t k = 0; k < out && !is_seen; k++)
            is_seen = of->seen[k] == found[i].number;
        if (!is_seen)
            list[n++] = found[i];
    }
    return n;
}

static void search_room(struct choices *c, size_t floats, size_t found)
{
    if (c->queries_room < floats) {
        c->queries_room = floats;
        c->queries = mem_realloc(c->queries, floats * sizeof(*c->queries));
    }
    if (c->found_room < found) {
        c->found_room = found;
        c->found = mem_realloc(c->found, found * sizeof(*c->found));
    }
}

/* Searches lists of `most` items for events[chosen[count]], at most SEARCHED_TOGETHER. */
static void search_some(struct choices *c, const struct items_index *index, const struct choice *events,
                        const uint32_t *chosen, uint32_t count, size_t most)
{
    size_t dim = c->dim, extra = 0;
    for (uint32_t i = 0; i < count; i++)
        extra = MAX(extra, left_out(c, &events[chosen[i]]));
    size_t k = MIN(most + extra, (size_t)ITEMS_TOP_MAX);
    search_room(c, count * dim, count * k);
    for (uint32_t i = 0; i < count; i++)
        memcpy(c->queries + i * dim, events[chosen[i]].query, dim * sizeof(float));
    size_t found = items_index_top(index, c->search, c->queries, count, k, c->found);
    for (uint32_t i = 0; i < count && found != SIZE_MAX; i++) {
        const struct choice *of = &events[chosen[i]];
        c->counts[chosen[i]] =
            without_seen(of, left_out(c, of), c->found + i * k, found, most, c->lists + chosen[i] * most);
    }
}

/* Lists of the events with is_listed: c->lists[i][most], c->counts[i]; UINT32_MAX: none. */
static void search_lists(struct choices *c, const struct items_index *index, const struct choice *events,
                         uint32_t n, size_t most)
{
    uint32_t chosen[SEARCHED_TOGETHER], count = 0;
    lists_width(c, most);
    for (uint32_t i = 0; i < n; i++) {
        c->counts[i] = UINT32_MAX;
        if (events[i].is_listed && events[i].query != NULL)
            chosen[count++] = i;
        if (count == SEARCHED_TOGETHER || (i + 1 == n && count > 0)) {
            search_some(c, index, events, chosen, count, most);
            count = 0;
        }
    }
}

/* --- Events --- */

static bool is_ranked(const struct choice *event)
{
    return event->is_ranked && event->query != NULL;
}

/* Ranks events[chosen[count]], at most SEARCHED_TOGETHER; one without a rank is a miss. */
static void rank_some(struct choices *c, const struct items_index *index, const struct choice *events,
                      const uint32_t *chosen, uint32_t count)
{
    struct items_ranked ranked[SEARCHED_TOGETHER];
    for (uint32_t i = 0; i < count; i++) {
        const struct choice *event = &events[chosen[i]];
        ranked[i] = (struct items_ranked){.query = event->query,
                                          .number = event->number,
                                          .left_out = event->seen,
                                          .left_out_count = left_out(c, event)};
    }
    items_index_ranks(index, c->search, ranked, count);
    for (uint32_t i = 0; i < count; i++)
        if (ranked[i].has_rank)
            c->ranks_of[chosen[i]] = ranked[i].rank;
}

/* Ranks the events with is_ranked: c->ranks_of[i]; INFINITY: a miss. */
static void rank_all(struct choices *c, const struct items_index *index, const struct choice *events,
                     uint32_t n)
{
    uint32_t chosen[SEARCHED_TOGETHER], count = 0;
    for (uint32_t i = 0; i < n; i++) {
        c->ranks_of[i] = (double)INFINITY;
        if (is_ranked(&events[i]) && events[i].is_known)
            chosen[count++] = i;
        if (count == SEARCHED_TOGETHER || (i + 1 == n && count > 0)) {
            rank_some(c, index, events, chosen, count);
            count = 0;
        }
    }
}

/* Adds an event to the figures. list: of its items, by which the catalogue's coverage is counted. */
static void add_one(struct choices *c, struct operator_context *context, const struct batch *batch,
                    const struct items_index *index, const struct choice *event, double rank,
                    const struct items_scored *list, uint32_t listed)
{
    struct ranks_value value;
    if (ranks_has_by(c->config))
        value = ranks_value_of(&batch->columns[c->config->by.index], batch_row(batch, event->place));
    size_t covered = listed == UINT32_MAX ? 0 : MIN((size_t)listed, c->at_most);
    for (size_t k = 0; k < covered; k++)
        c->covered[k] = list[k].number;
    struct ranks_event ranked = {.time_us = event->time_us,
                                 .rank = rank,
                                 .value = ranks_has_by(c->config) ? &value : NULL,
                                 .top = listed == UINT32_MAX ? NULL : c->covered,
                                 .top_count = covered};
    if (ranks_add(c->ranks, &ranked))
        ranks_emit(c->ranks, context, LEARNER_METRICS, items_index_live(index));
}

bool choices_makes_lists(const struct choices *c, const struct operator_context *context)
{
    return c->config->top > 0 && (context->outputs_read >> LEARNER_PREDICTIONS & 1) != 0;
}

/* The list of event i, of `most` items, becomes that of its row. */
static void keep_list(struct choices *c, uint32_t i, uint32_t place, size_t most)
{
    if (c->counts[i] == UINT32_MAX)
        return;
    c->row_counts[place] = MIN(c->counts[i], (uint32_t)c->list);
    memcpy(c->row_lists + place * c->list, c->lists + i * most, c->row_counts[place] * sizeof(*c->row_lists));
}

void choices_judge(struct choices *c, struct operator_context *context, const struct batch *batch,
                   const struct items_index *index, const struct choice *events, uint32_t n)
{
    bool makes_lists = choices_makes_lists(c, context);
    size_t most = MAX(makes_lists ? c->list : 0, c->at_most);
    leat_assert(n <= BATCH_ROWS);
    search_lists(c, index, events, n, most);
    rank_all(c, index, events, n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t place = events[i].place;
        if (is_ranked(&events[i])) {
            c->row_ranks[place] = c->ranks_of[i];
            add_one(c, context, batch, index, &events[i], c->ranks_of[i], c->lists + i * most, c->counts[i]);
        }
        if (makes_lists)
            keep_list(c, i, place, most);
    }
}

void choices_answer(struct choices *c, const struct items_index *index, const struct choice *requests,
                    uint32_t n)
{
    leat_assert(n <= BATCH_ROWS);
    search_lists(c, index, requests, n, c->list);
    for (uint32_t i = 0; i < n; i++)
        keep_list(c, i, requests[i].place, c->list);
}

void choices_emit(struct choices *c, struct operator_context *context, uint32_t output,
                  const struct schema *schema, struct batch *batch, const struct items_numbers *numbers)
{
    struct lists_rows rows = {
        .ranks = c->row_ranks, .top = c->row_lists, .counts = c->row_counts, .most = c->list};
    lists_emit(context, output, schema, batch, &rows, numbers);
    context->counters.emitted += batch->selected;
}

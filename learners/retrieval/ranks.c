/*
 * The running sums of ranked events, by period and by value of metrics_by; and which items were in lists. What an
 * item has of that is a byte for each k, with the slice that saw it last; each state's number of items is
 * counted along, so that coverage is known at any time, and a slice that leaves the window looks through the
 * bytes once, if it saw items last at all.
 */
#include "learners/retrieval/internal.h"

#include "core/mem.h"
#include "kernels/num.h"
#include "learners/items/numbers.h"
#include "learners/learner/learner.h"

#include <math.h>
#include <stdlib.h>

static const uint64_t SHARE_SALT = UINT64_C(0x7261d6f5e5a1c0de);

struct ranks *ranks_create(const struct ranks_config *config)
{
    leat_assert(config->at.count >= 1 && config->at.count <= RANKS_AT_MAX);
    struct ranks *r = mem_calloc(1, sizeof(*r));
    r->config = *config;
    r->slice_events = (uint64_t)MAX(config->window / RANKS_SLICES, 1);
    bool has_by = ranks_has_by(config);
    r->kept = has_by ? mem_calloc(RANKS_VALUES_MAX, sizeof(*r->kept)) : NULL;
    r->scopes = mem_calloc(has_by ? RANKS_SCOPES : 1, sizeof(*r->scopes));
    r->last_us = TIME_MIN;
    return r;
}

void ranks_free(struct ranks *r)
{
    if (r == NULL)
        return;
    free(r->kept);
    free(r->scopes);
    free(r->covered);
    free(r);
}

void ranks_clear(struct ranks *r)
{
    r->emitted = 0;
    r->last_us = TIME_MIN;
    r->slice = r->values = 0;
    memset(r->scopes, 0, ranks_scopes(r) * sizeof(*r->scopes));
    r->covered_numbers = 0;
    memset(r->covered_by, 0, sizeof(r->covered_by));
}

bool ranks_is_ranked(const struct ranks *r, uint64_t identity, size_t items)
{
    double share = r->config.share;
    if (share <= 0.0)
        share = items <= RANKS_ALL_ITEMS ? 1.0 : RANKS_SHARE_PERCENT / 100.0;
    return (double)(num_chance(SHARE_SALT, identity, 0) >> 11) * 0x1p-53 < share;
}

/* --- Values of metrics_by --- */

struct ranks_value ranks_value_of(const struct column *column, uint32_t row)
{
    struct ranks_value value = {.hash = learner_id(column, row), .is_null = !column_is_valid(column, row)};
    if (value.is_null)
        return value;
    switch (column->tag) {
    case TYPE_BOOL: value.integer = column->bools[row]; break;
    case TYPE_TEXT: value.text = column_text(column, row); break;
    default: value.integer = column->ints[row]; break;
    }
    return value;
}

/* The bytes of a text that are kept: whole code points. */
static uint32_t kept_bytes(struct str text)
{
    size_t bytes = MIN(text.length, (size_t)RANKS_TEXT_MAX);
    while (bytes > 0 && bytes < text.length && ((unsigned char)text.data[bytes] & 0xc0) == 0x80)
        bytes--;
    return (uint32_t)bytes;
}

/* The scope of a value, which it gets if there is room. */
static uint32_t scope_of(struct ranks *r, const struct ranks_value *value)
{
    for (uint32_t i = 0; i < r->values; i++)
        if (r->hashes[i] == value->hash)
            return 1 + i;
    if (r->values == RANKS_VALUES_MAX)
        return RANKS_OTHERS;
    struct ranks_kept *kept = &r->kept[r->values];
    kept->is_null = value->is_null;
    kept->integer = value->integer;
    kept->text_bytes = kept_bytes(value->text);
    if (kept->text_bytes > 0)
        memcpy(kept->text, value->text.data, kept->text_bytes);
    r->hashes[r->values] = value->hash;
    return 1 + r->values++;
}

/* --- Items in lists --- */

void ranks_cover_room(struct ranks *r, size_t numbers)
{
    size_t each = r->config.at.count;
    if (numbers <= r->covered_numbers)
        return;
    if (numbers > r->covered_room) {
        r->covered_room = MAX(numbers, 2 * r->covered_room);
        r->covered = mem_realloc(r->covered, r->covered_room * each);
    }
    memset(r->covered + r->covered_numbers * each, RANKS_COVERED_NEVER,
           (numbers - r->covered_numbers) * each);
    r->covered_numbers = numbers;
}

static void cover(struct ranks *r, const uint32_t *top, size_t count)
{
    size_t each = r->config.at.count;
    uint8_t now = (uint8_t)(RANKS_COVERED_SLICE + r->slice);
    count = MIN(count, (size_t)r->config.at.items[each - 1]);
    for (size_t i = 0; i < count; i++) {
        leat_assert(top[i] <= ITEMS_NUMBERS_MAX);
        ranks_cover_room(r, (size_t)top[i] + 1);
        uint8_t *states = r->covered + top[i] * each;
        for (size_t k = each; k-- > 0 && i < (size_t)r->config.at.items[k];) {
            r->covered_by[k][states[k]] -= states[k] != RANKS_COVERED_NEVER;
            r->covered_by[k][now]++;
            states[k] = now;
        }
    }
}

/* A slice leaves the window: what it saw last was seen before the window. */
static void uncover(struct ranks *r, uint32_t slice)
{
    uint8_t gone = (uint8_t)(RANKS_COVERED_SLICE + slice);
    uint64_t last = 0;
    for (size_t k = 0; k < r->config.at.count; k++) {
        last += r->covered_by[k][gone];
        r->covered_by[k][RANKS_COVERED_BEFORE] += r->covered_by[k][gone];
        r->covered_by[k][gone] = 0;
    }
    size_t bytes = last > 0 ? r->covered_numbers * r->config.at.count : 0;
    for (size_t i = 0; i < bytes; i++)
        r->covered[i] = r->covered[i] == gone ? RANKS_COVERED_BEFORE : r->covered[i];
}

void ranks_removed(struct ranks *r, uint32_t number)
{
    if (number >= r->covered_numbers)
        return;
    uint8_t *states = r->covered + number * (size_t)r->config.at.count;
    for (size_t k = 0; k < r->config.at.count; k++) {
        r->covered_by[k][states[k]] -= states[k] != RANKS_COVERED_NEVER;
        states[k] = RANKS_COVERED_NEVER;
    }
}

/* --- Sums --- */

void ranks_clear_window(struct ranks *r)
{
    for (uint32_t i = 0; i < RANKS_SLICES; i++)
        uncover(r, i);
    for (uint32_t s = 0; s < ranks_scopes(r); s++)
        memset(r->scopes[s].slices, 0, sizeof(r->scopes[s].slices));
    r->slice = 0;
}

static void sums_add(struct ranks_sums *into, const struct ranks_sums *from)
{
    into->count += from->count;
    into->misses += from->misses;
    into->listed += from->listed;
    for (size_t k = 0; k < RANKS_AT_MAX; k++) {
        into->hits[k] += from->hits[k];
        into->gain[k] += from->gain[k];
        into->reciprocal[k] += from->reciprocal[k];
    }
}

static void scope_add(struct ranks_scope *scope, uint32_t slice, const struct ranks_sums *event)
{
    sums_add(&scope->slices[slice], event);
    sums_add(&scope->open, event);
    if (scope->open.count == RANKS_BLOCK) {
        sums_add(&scope->whole, &scope->open);
        scope->open = (struct ranks_sums){0};
    }
}

static struct ranks_sums sums_of(const struct ranks *r, const struct ranks_event *event)
{
    const struct ints *at = &r->config.at;
    struct ranks_sums sums = {.count = 1, .misses = isinf(event->rank) != 0, .listed = event->top != NULL};
    if (event->rank > (double)at->items[at->count - 1])
        return sums;
    double gain = num_log(2.0) / num_log(event->rank + 1.0), reciprocal = 1.0 / event->rank;
    for (size_t k = at->count; k-- > 0 && event->rank <= (double)at->items[k];) {
        sums.hits[k] = 1;
        sums.gain[k] = gain;
        sums.reciprocal[k] = reciprocal;
    }
    return sums;
}

/* Slices are cut by the number of events alone. */
static void turn(struct ranks *r)
{
    if (r->scopes[0].slices[r->slice].count < r->slice_events)
        return;
    r->slice = (r->slice + 1) % RANKS_SLICES;
    uncover(r, r->slice);
    for (uint32_t s = 0; s < ranks_scopes(r); s++)
        r->scopes[s].slices[r->slice] = (struct ranks_sums){0};
}

bool ranks_add(struct ranks *r, const struct ranks_event *event)
{
    leat_assert(event->rank >= 1.0);
    leat_assert((event->value != NULL) == (r->kept != NULL));
    turn(r);
    struct ranks_sums sums = sums_of(r, event);
    scope_add(&r->scopes[0], r->slice, &sums);
    if (event->value != NULL)
        scope_add(&r->scopes[scope_of(r, event->value)], r->slice, &sums);
    if (event->top != NULL)
        cover(r, event->top, event->top_count);
    r->last_us = event->time_us;
    return ranks_examples(&r->scopes[0]) % (uint64_t)MAX(r->config.metrics_every, 1) == 0;
}

/* --- Figures --- */

static double coverage(const struct ranks *r, size_t k, bool is_window, size_t items)
{
    uint64_t seen = 0;
    for (size_t state = is_window ? RANKS_COVERED_SLICE : RANKS_COVERED_BEFORE; state < RANKS_COVERED_STATES;
         state++)
        seen += r->covered_by[k][state];
    return (double)seen / (double)items;
}

struct ranks_figures ranks_figures_of(const struct ranks *r, uint32_t scope, bool is_window, size_t items)
{
    const struct ranks_scope *of = &r->scopes[scope];
    struct ranks_sums s = of->whole;
    sums_add(&s, &of->open);
    if (is_window) {
        s = (struct ranks_sums){0};
        for (uint32_t i = 0; i < RANKS_SLICES; i++)
            sums_add(&s, &of->slices[(r->slice + 1 + i) % RANKS_SLICES]); /* oldest first */
    }
    struct ranks_figures f = {.examples = s.count, .misses = s.misses};
    double n = s.count > 0 ? (double)s.count : (double)NAN;
    bool has_coverage = scope == 0 && s.listed > 0 && items > 0;
    for (size_t k = 0; k < RANKS_AT_MAX; k++) {
        f.hr[k] = (double)s.hits[k] / n;
        f.ndcg[k] = s.gain[k] / n;
        f.mrr[k] = s.reciprocal[k] / n;
        f.coverage[k] = has_coverage ? coverage(r, k, is_window, items) : (double)NAN;
    }
    return f;
}

struct ranks_figures ranks_figures(const struct ranks *r, bool is_window, size_t items)
{
    return ranks_figures_of(r, 0, is_window, items);
}

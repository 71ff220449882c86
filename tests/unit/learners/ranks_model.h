/* A plain model of evaluation by ranks, a list of all events; and the surroundings of a learner. For tests of
 * learners/retrieval/ranks.h; each has operator_emit from here. */
#ifndef LEAT_TESTS_UNIT_LEARNERS_RANKS_MODEL_H
#define LEAT_TESTS_UNIT_LEARNERS_RANKS_MODEL_H

#include "learners/retrieval/ranks.h"

#include "core/buffer.h"
#include "lang/lang.h"
#include "tests/unit/support/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { EVENTS = 6000, ITEMS = 500, LIST = 20, VALUES = 90, WINDOW = 800, SLICE = WINDOW / 16, EVERY = 700 };
enum { FIGURES = 4, SCOPES = 1 + RANKS_VALUES_MAX + 1 };

static const char all_options[] =
    "metrics_at: [1, 5, 20], metrics_by: country, window: 800, metrics_every: 700";

/* --- A learner's surroundings --- */

struct rig {
    struct arena arena;
    struct diag_list diags;
    struct ranks_config config;
    struct operator_context context;
};

static struct batch *emitted;
static uint32_t emissions;

void operator_emit(struct operator_context *context, uint32_t output, struct batch *batch)
{
    (void)context;
    assert_int_equal(output, 1);
    batch_release(emitted);
    emitted = batch;
    emissions++;
}

void operator_reject(struct operator_context *context, const struct batch *batch, uint32_t row,
                     const char *reason)
{
    (void)context, (void)batch, (void)row, (void)reason;
    fail();
}

static inline const struct schema *input_schema(struct arena *arena)
{
    static const struct schema empty;
    struct schema *schema = schema_copy(arena, &empty, 6);
    schema_add(schema, STR("country"), type_of(TYPE_TEXT))->lineage.words[0] = 5;
    schema_add(schema, STR("level"), type_of(TYPE_INT));
    schema_add(schema, STR("paid"), type_of(TYPE_BOOL));
    schema_add(schema, STR("price"), type_of(TYPE_FLOAT));
    schema_add(schema, STR("scope"), type_of(TYPE_TEXT));
    schema_add(schema, STR("mrr_10_window"), type_of(TYPE_INT));
    return schema;
}

/* Whether options like "metrics_at: [1, 10]" are taken. */
static inline bool rig_open(struct rig *g, const char *options)
{
    *g = (struct rig){.context = {.place = 7}};
    arena_init(&g->arena, 1 << 16);
    diag_list_init(&g->diags, &g->arena);
    const char *block = arena_printf(&g->arena, "{ %s }", options);
    struct ast *value = lang_parse_value(&g->arena, &g->diags, str_from(block));
    struct option_env env = {&g->arena, &g->diags, lang_parse_value};
    if (!option_bind(ranks_options, "the learner", value->span, value->entries, value->entries_count,
                     &g->config, &env))
        return false;
    struct operator_bind bind = {.arena = &g->arena, .diags = &g->diags, .inputs_count = 1};
    bind.inputs[0].schema = input_schema(&g->arena);
    bool is_good = ranks_bind(&bind, &g->config);
    assert_true(is_good == (g->diags.errors == 0));
    if (is_good)
        g->context.pool = batch_pool_new();
    return is_good;
}

static inline void rig_close(struct rig *g)
{
    batch_release(emitted);
    emitted = NULL;
    if (g->context.pool != NULL)
        batch_pool_free(g->context.pool);
    arena_free(&g->arena);
}

/* --- The model: all events in a list --- */

struct event {
    double rank;
    int value;
    bool has_list;
    uint32_t top[LIST], count;
};

struct model {
    uint32_t n;
    struct event events[EVENTS];
    int scopes[EVENTS];           /* of each event's value */
    int value_of[SCOPES], values; /* in the order of coming */
    int64_t last[FIGURES][ITEMS]; /* the event that listed the item last, for each k; -1: none */
    int64_t at[RANKS_AT_MAX];
    uint32_t at_count;
};

static struct model model;

static inline void model_start(const struct ranks_config *c)
{
    memset(&model, 0, sizeof(model));
    memset(model.last, 0xff, sizeof(model.last));
    model.at_count = c->at.count;
    memcpy(model.at, c->at.items, c->at.count * sizeof(*c->at.items));
}

static inline void model_add(const struct event *e)
{
    int scope = 1;
    while (scope <= model.values && model.value_of[scope] != e->value)
        scope++;
    if (scope > model.values && model.values < RANKS_VALUES_MAX)
        model.value_of[++model.values] = e->value;
    model.scopes[model.n] = scope <= RANKS_VALUES_MAX ? scope : SCOPES - 1;
    for (uint32_t k = 0; k < model.at_count; k++)
        for (uint32_t i = 0; e->has_list && i < e->count && i < model.at[k]; i++)
            model.last[k][e->top[i]] = model.n;
    model.events[model.n++] = *e;
}

/* Events of the newest slice, and of the fifteen before it. */
static inline uint32_t window_begin(void)
{
    uint32_t slices = (model.n + SLICE - 1) / SLICE;
    return slices <= 16 ? 0 : (slices - 16) * SLICE;
}

static inline struct ranks_figures model_figures(int scope, bool is_window)
{
    struct ranks_figures f = {0};
    uint32_t begin = is_window ? window_begin() : 0, lists = 0;
    for (uint32_t i = begin; i < model.n; i++) {
        const struct event *e = &model.events[i];
        if (scope != 0 && model.scopes[i] != scope)
            continue;
        f.examples++;
        f.misses += isinf(e->rank) != 0;
        lists += e->has_list;
        for (uint32_t k = 0; k < model.at_count; k++) {
            if (e->rank > (double)model.at[k])
                continue;
            f.hr[k] += 1.0, f.ndcg[k] += 1.0 / log2(e->rank + 1.0), f.mrr[k] += 1.0 / e->rank;
        }
    }
    for (uint32_t k = 0; k < model.at_count; k++) {
        double n = f.examples > 0 ? (double)f.examples : (double)NAN;
        f.hr[k] /= n, f.ndcg[k] /= n, f.mrr[k] /= n;
        for (uint32_t i = 0; i < ITEMS; i++)
            f.coverage[k] += model.last[k][i] >= (int64_t)begin;
        f.coverage[k] = scope != 0 || lists == 0 ? (double)NAN : f.coverage[k] / ITEMS;
    }
    return f;
}

static inline void assert_near(double found, double expected)
{
    if (isnan(found) != isnan(expected) || fabs(found - expected) > 1e-12)
        fail_msg("found %.17g, expected %.17g", found, expected);
}

static inline void assert_figures(const struct ranks_figures *found, const struct ranks_figures *expected)
{
    assert_int_equal(found->examples, expected->examples);
    assert_int_equal(found->misses, expected->misses);
    for (uint32_t k = 0; k < model.at_count; k++) {
        assert_near(found->hr[k], expected->hr[k]);
        assert_near(found->ndcg[k], expected->ndcg[k]);
        assert_near(found->mrr[k], expected->mrr[k]);
        assert_near(found->coverage[k], expected->coverage[k]);
    }
}

static inline void assert_all(const struct ranks *r)
{
    for (int is_window = 0; is_window < 2; is_window++) {
        struct ranks_figures found = ranks_figures(r, is_window, ITEMS),
                             expected = model_figures(0, is_window);
        assert_figures(&found, &expected);
    }
}

/* --- Events --- */

static inline struct event random_event(struct test_random *random)
{
    struct event e = {.rank = 1.0 + random_below(random, 60) / 2.0,
                      .value = (int)random_below(random, VALUES)};
    if (random_chance(random, 60))
        e.value = (int)random_below(random, 3);
    if (random_chance(random, 5))
        e.rank = (double)INFINITY;
    e.has_list = random_chance(random, 30);
    e.count = random_below(random, LIST + 1);
    uint32_t first = random_below(random, ITEMS), step = 1 + random_below(random, 20);
    for (uint32_t i = 0; i < e.count; i++)
        e.top[i] = (first + i * step) % ITEMS;
    return e;
}

/* The text of a value; value 0 is null. Of value 2 byte 256 is the second one of a code point. */
static inline const char *text_of(int value)
{
    static char text[300];
    snprintf(text, sizeof(text), "value %d", value);
    if (value == 2) {
        memset(text, 'x', sizeof(text) - 1);
        memcpy(text + RANKS_TEXT_MAX - 1, "\xc3\xa4", 2);
    }
    return text;
}

static inline bool add(struct ranks *r, const struct event *e, bool has_by)
{
    const char *text = text_of(e->value);
    struct ranks_value value = {.hash = (uint64_t)e->value + 1000, .is_null = e->value == 0};
    if (!value.is_null)
        value.text = str_from(text);
    struct ranks_event event = {.time_us = 1000 * (int64_t)model.n,
                                .rank = e->rank,
                                .value = has_by ? &value : NULL,
                                .top = e->has_list ? e->top : NULL,
                                .top_count = e->count};
    return ranks_add(r, &event);
}

/* An item leaves, and perhaps another one gets its number. */
static inline void remove_one(struct test_random *random, struct ranks *r)
{
    uint32_t number = random_below(random, ITEMS + 100);
    ranks_removed(r, number);
    for (uint32_t k = 0; k < model.at_count && number < ITEMS; k++)
        model.last[k][number] = -1;
}

static inline struct ranks *restored(const struct rig *g, struct ranks *r)
{
    struct byte_buffer first = {0}, second = {0};
    struct ranks *fresh = ranks_create(&g->config);
    ranks_save(r, &first);
    assert_null(ranks_load(fresh, first.data, first.length));
    ranks_save(fresh, &second);
    assert_int_equal(first.length, second.length);
    assert_memory_equal(first.data, second.data, first.length);
    buffer_free(&first);
    buffer_free(&second);
    ranks_free(r);
    return fresh;
}

#endif

/* Sets of options that learner kinds are tested with, and cold stores in memory. */
#ifndef LEAT_TESTS_UNIT_LEARNERS_LEARNER_SETS_H
#define LEAT_TESTS_UNIT_LEARNERS_LEARNER_SETS_H

#include "learner_bench.h"
#include "learners/model/internal.h"
#include "learners/tables/cold.h"

enum { LABELS = 2, NUMBERS = 2, EVENTS = NUMBERS * ROWS };

/* --- Options --- */

static const struct options {
    const char *name;
    int64_t batch, hidden_batch, list_max, admit_after, rows_max, expire_s, accumulate;
    int precision; /* enum learner_precision: of kinds with dense layers that learn by batches */
    double keep, positive, negative;
    bool is_weighted, is_centered, is_ftrl, freezes, is_cold;
} sets[] = {
    {.name = "plain", .hidden_batch = 1},
    {.name = "admission", .hidden_batch = 16, .admit_after = 3},
    {.name = "expiry", .hidden_batch = 16, .admit_after = 2, .expire_s = 300},
    {.name = "bounded", .hidden_batch = 3, .admit_after = 2, .rows_max = 40, .expire_s = 900},
    /* fewer rows than tags: the rows that a list names are spared while its new ids look for room */
    {.name = "tight", .hidden_batch = 16, .rows_max = 4},
    {.name = "balance", .hidden_batch = 16, .keep = 0.3, .positive = 3.0, .negative = 0.5},
    {.name = "weights", .hidden_batch = 16, .list_max = 1, .is_weighted = true},
    {.name = "mean", .hidden_batch = 1, .is_weighted = true, .is_centered = true},
    {.name = "ftrl", .hidden_batch = 16, .list_max = 1, .is_ftrl = true},
    {.name = "freeze", .hidden_batch = 16, .admit_after = 2, .expire_s = 700, .keep = 0.5, .freezes = true},
    {.name = "batches", .batch = 64, .admit_after = 3, .rows_max = 60, .keep = 0.3, .positive = 2.0},
    {.name = "batches, expiry", .batch = 48, .expire_s = 300, .is_weighted = true, .list_max = 1},
    {.name = "accumulate", .batch = 32, .accumulate = 2, .admit_after = 2},
    {.name = "bf16", .batch = 64, .precision = PRECISION_BF16},
    {.name = "fp16", .batch = 64, .precision = PRECISION_FP16},
    {.name = "trial", .batch = 64, .precision = PRECISION_AUTO},
    {.name = "cold", .hidden_batch = 16, .admit_after = 2, .expire_s = 900, .is_cold = true},
    {.name = "cold batches", .batch = 64, .expire_s = 900, .is_cold = true},
};
static const struct options *now;

static void set_balance(struct learner_config *c)
{
    c->balance.keep_negatives = now->keep > 0.0 ? now->keep : 1.0;
    c->balance.positive_weight = now->positive > 0.0 ? now->positive : 1.0;
    c->balance.negative_weight = now->negative > 0.0 ? now->negative : 1.0;
}

/* A model of vectors and dense layers that are not a network cannot learn by batches with FFM's products. */
static void set_layers(const struct operator_kind *kind, struct learner_config *c)
{
    int64_t *block = own_option(kind, c, "hidden_batch"), *accumulate = own_option(kind, c, "accumulate"),
            *trial = own_option(kind, c, "precision_trial");
    int *precision = own_option(kind, c, "precision");
    struct ints *hidden = own_option(kind, c, "hidden");
    bool is_ffm = strcmp(kind->name, "ffm") == 0;
    if (is_ffm && now->batch > 1)
        hidden->count = 0;
    if (block != NULL)
        *block = now->batch > 1 ? 16 : now->hidden_batch;
    if (precision == NULL || is_ffm)
        return;
    *precision = now->precision;
    *accumulate = MAX(now->accumulate, 1);
    *trial = EVENTS / 2;
}

static inline void set_options(const struct operator_kind *kind, struct learner_config *c,
                               struct arena *arena)
{
    static struct optimizer_config ftrl = {.rate = 0.1, .beta = 1.0, .l1 = 0.01, .l2 = 0.01};
    c->steps.batch = MAX(now->batch, 1);
    c->inputs.list_max = now->list_max;
    c->embedding.admit_after = MAX(now->admit_after, 1);
    c->embedding.rows_max = now->rows_max;
    c->embedding.expire_after_us = now->expire_s * US_PER_SECOND;
    if (now->is_weighted)
        c->inputs.weight.ast = name_ast(arena, "weight");
    if (now->is_centered && own_option(kind, c, "mean_bias") != NULL)
        c->loss = LOSS_SQUARED, c->mean_bias = true, c->bias = 0.25;
    if (now->is_ftrl && c->linear.config != NULL)
        c->linear = (struct kind_ref){.choice = OPT_FTRL, .config = &ftrl};
    set_balance(c);
    set_layers(kind, c);
    c->evaluation.freeze = (struct freeze_config){.label_mean_max = now->freezes ? 0.01 : 0.0};
}

/* --- Cold stores, in memory --- */

enum { STORE_SLOTS = 1 << 13 };

struct store {
    struct cold_store store;
    uint64_t keys[STORE_SLOTS]; /* 0: free */
    unsigned char *rows;
    uint32_t count;
    size_t row_bytes;
    struct store *copy; /* as of the last barrier; NULL: there was none */
};
static struct store
    *inherited[MODEL_FIELDS_MAX]; /* by table: what stores that are made have; NULL: nothing */

static size_t slot_of(const struct store *s, uint64_t key)
{
    size_t at = num_mix(key) % STORE_SLOTS;
    while (s->keys[at] != 0 && s->keys[at] != key)
        at = (at + 1) % STORE_SLOTS;
    return at;
}

static bool store_takes_rows(void *self)
{
    return self != NULL;
}

static bool store_put(void *self, const uint64_t *keys, const int64_t *times_us, const void *rows,
                      size_t row_bytes, size_t count)
{
    struct store *s = self;
    (void)times_us;
    for (size_t i = 0; i < count; i++) {
        size_t at = slot_of(s, keys[i]);
        s->count += s->keys[at] == 0;
        leat_assert(s->count < STORE_SLOTS / 2);
        s->keys[at] = keys[i];
        memcpy(s->rows + at * row_bytes, (const char *)rows + i * row_bytes, row_bytes);
    }
    return true;
}

static bool store_get(void *self, const uint64_t *keys, void *rows, size_t row_bytes, size_t count,
                      bool *found)
{
    const struct store *s = self;
    for (size_t i = 0; i < count; i++) {
        size_t at = slot_of(s, keys[i]);
        found[i] = s->keys[at] != 0;
        if (found[i])
            memcpy((char *)rows + i * row_bytes, s->rows + at * row_bytes, row_bytes);
    }
    return true;
}

static void store_free(void *self)
{
    struct store *s = self;
    if (s->copy != NULL)
        store_free(s->copy);
    free(s->rows);
    free(s);
}

static void store_fill(struct store *s, const struct store *from)
{
    memcpy(s->keys, from->keys, sizeof(s->keys));
    memcpy(s->rows, from->rows, STORE_SLOTS * s->row_bytes);
    s->count = from->count;
}

static void store_barrier(void *self, int64_t expired_us)
{
    struct store *s = self;
    (void)expired_us;
    if (s->copy == NULL) {
        s->copy = calloc(1, sizeof(*s->copy));
        assert_non_null(s->copy);
        s->copy->row_bytes = s->row_bytes;
        s->copy->rows = calloc(STORE_SLOTS, s->row_bytes);
    }
    store_fill(s->copy, s);
}

static inline struct cold_store *store_new(struct operator_context *context, uint32_t table, size_t row_bytes)
{
    struct store *s = calloc(1, sizeof(*s));
    const struct store *from = inherited[table];
    (void)context;
    assert_non_null(s);
    s->rows = calloc(STORE_SLOTS, row_bytes);
    s->row_bytes = row_bytes;
    if (from != NULL)
        store_fill(s, from);
    s->store = (struct cold_store){.self = s,
                                   .takes_rows = store_takes_rows,
                                   .put = store_put,
                                   .get = store_get,
                                   .barrier = store_barrier,
                                   .free = store_free};
    return &s->store;
}

static inline void evict(struct bench *t, uint32_t count)
{
    const struct learner_config *c = t->context.config;
    struct model *m = c->state->model;
    for (uint32_t f = 0; f < c->inputs.sparse_count; f++)
        assert_true(table_evict(model_table(m, f), count, (uint32_t)m->steps + 1, m->pending > 0));
}

#endif

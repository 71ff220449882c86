/* Learner kinds on a bench: bound to a schema and opened, with batches of events, and checkpoints in memory. The
 * test has its own operator_emit. Variables change the options of learners that start. */
#ifndef LEAT_TESTS_UNIT_LEARNERS_LEARNER_BENCH_H
#define LEAT_TESTS_UNIT_LEARNERS_LEARNER_BENCH_H

#include "core/operator_history.h"
#include "learners/learner/internal.h"
#include "memory_checkpoint.h"

#include "core/buffer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* The kinds that predict labels, whose options begin with a struct learner_config. */
#define LEARNER(name) extern const struct operator_kind learner_##name;
#define LEARNER_OF_ITEMS(name)
#include "learners/registry.def"
#undef LEARNER

static const struct operator_kind *const kinds[] = {
#define LEARNER(name) &learner_##name,
#define LEARNER_OF_ITEMS(name)
#include "learners/registry.def"
#undef LEARNER
};

enum { ROWS = 1000, BATCHES = 12 };
enum { COLUMN_CLICKED, COLUMN_USER, COLUMN_ITEM, COLUMN_TAGS, COLUMN_PRICE, COLUMN_WEIGHT, COLUMNS };

static enum loss_kind loss = LOSS_LOGISTIC;
static struct freeze_config freeze; /* for learners that start */
static struct optimizer_config schedule = {.rate = 0.1};
static int64_t network_batch = 48;
static double negatives_kept = 0.9;
static const char *third_feature = "tags"; /* a list feature; NULL: no third feature */
static uint32_t copies = 1; /* rows of a batch with the same features and label, one after the other */
static bool opens_to_read;  /* as the engine opens a learner for requests */
/* Changes the options of a learner before its bind; NULL: nothing. */
static void (*adjust)(const struct operator_kind *kind, struct learner_config *c, struct arena *arena);
static struct cold_store *(*cold_store)(struct operator_context *context, uint32_t table, size_t row_bytes);

/* No learner here may fail: there is no device. */
void operator_fail(const struct operator_context *context, enum diag_code code, struct span span,
                   const char *message, const char *hint)
{
    (void)context, (void)code, (void)span, (void)hint;
    fail_msg("%s", message);
}

/* Expressions in this test are column names. */
static inline int add_column(struct operator_bind *bind, uint32_t input, const struct ast *expression)
{
    return schema_find(bind->inputs[input].schema, expression->text);
}

static inline struct ast *name_ast(struct arena *arena, const char *name)
{
    struct ast *ast = arena_new(arena, struct ast);
    ast->tag = AST_NAME;
    ast->text = str_from(name);
    return ast;
}

static inline struct expressions names(struct arena *arena, const char *a, const char *b, const char *c)
{
    const char *const all[] = {a, b, c};
    struct expressions list = {.items = arena_array(arena, const struct ast *, 3)};
    for (size_t i = 0; i < 3 && all[i]; i++)
        list.items[list.count++] = name_ast(arena, all[i]);
    return list;
}

static inline struct schema *make_schema(struct arena *arena)
{
    static struct schema empty;
    static struct type integer = {.tag = TYPE_INT};
    struct schema *schema = schema_copy(arena, &empty, COLUMNS);
    schema_add(schema, STR("clicked"), type_of(TYPE_BOOL));
    schema_add(schema, STR("user"), type_of(TYPE_INT));
    schema_add(schema, STR("item"), type_of(TYPE_TEXT));
    schema_add(schema, STR("tags"), (struct type){.tag = TYPE_LIST, .element = &integer});
    schema_add(schema, STR("price"), type_of(TYPE_FLOAT));
    schema_add(schema, STR("weight"), type_of(TYPE_INT));
    return schema;
}

static inline struct batch *make_batch(struct batch_pool *pool, const struct schema *schema, uint64_t number)
{
    struct batch *b = batch_new(pool, schema, ROWS);
    struct column *tags = &b->columns[COLUMN_TAGS], *item = &b->columns[COLUMN_ITEM];
    tags->children = arena_new(&b->arena, struct column);
    tags->children_count = 1;
    tags->child_rows = 2 * ROWS;
    batch_column_init(b, tags->children, type_of(TYPE_INT), 2 * ROWS);
    char *heap = arena_alloc(&b->arena, 4 * ROWS);
    item->heap = heap;
    for (uint32_t i = 0; i < ROWS; i++) {
        uint64_t r = num_mix(number * ROWS + i / copies + 1);
        b->event_time[i] = (int64_t)(number * ROWS + i) * US_PER_SECOND;
        b->columns[COLUMN_USER].ints[i] =
            (int64_t)(r % 3000); /* many rows change in one epoch and not in the next */
        memcpy(heap + 4 * (size_t)i, (char[]){'i', (char)('a' + r % 16), (char)('a' + (r >> 8) % 4), 'x'}, 4);
        item->texts[i] = (struct text_ref){4 * i, 4};
        tags->lists[i] = (struct list_ref){2 * i, (uint32_t)(r >> 16) % 3};
        tags->children->ints[2 * i] = (int64_t)(r >> 20) % 9;
        tags->children->ints[2 * i + 1] = (int64_t)(r >> 30) % 9;
        b->columns[COLUMN_PRICE].floats[i] = (double)(r >> 40 & 1023) / 1024.0; /* also a label */
        b->columns[COLUMN_WEIGHT].ints[i] = (int64_t)(r >> 44) % 3;
        b->columns[COLUMN_CLICKED].bools[i] = (r >> 50) % 100 < 15 + (r % 16) * 3;
    }
    batch_set_null(b, &b->columns[COLUMN_PRICE], 3);
    batch_set_null(b, &b->columns[COLUMN_CLICKED], 5); /* no label: the row is rejected */
    batch_set_null(b, &b->columns[COLUMN_ITEM], 7);
    return b;
}

struct bench {
    struct arena arena;
    struct diag_list diags;
    struct batch_pool *pool;
    struct operator_bind bind;
    struct operator_context context;
    struct learner_columns learner;
};

/* The member of a kind's option struct that an option is bound into; NULL: the kind has no such option. */
static inline void *own_option(const struct operator_kind *kind, struct learner_config *c, const char *name)
{
    struct option_row option = option_find(kind->options, str_from(name));
    return option.name != NULL ? (char *)c + option.offset : NULL;
}

static inline struct kind_ref adagrad(void)
{
    static struct optimizer_config config;
    config = schedule;
    config.accumulator = config.decay = config.step_max = config.beta = 1.0;
    return (struct kind_ref){.choice = OPT_ADAGRAD, .config = &config};
}

static inline void common_defaults(struct learner_config *c, struct arena *arena, bool is_mf)
{
    c->inputs.label.ast = name_ast(arena, "clicked");
    c->inputs.sparse = is_mf ? (struct expressions){0} : names(arena, "user", "item", third_feature);
    c->inputs.dense = names(arena, "price", NULL, NULL);
    c->embedding = (struct embedding_config){.dim = 8,
                                             .init = 0.1,
                                             .admit_after = 2,
                                             .sketch_bytes = 65536,
                                             .rows_max = 1500,
                                             .expire_after_us = 3000 * US_PER_SECOND};
    c->embedding.optimizer = c->linear = adagrad();
    c->loss = (int)loss;
    c->evaluation.freeze = freeze;
    c->evaluation.metrics_every = 1700;
    c->steps.batch = 1, c->evaluation.window = 2000, c->seed = 1;
    c->balance.positive_weight = c->balance.negative_weight = 1.0;
    c->balance.keep_negatives = negatives_kept;
}

/* Options of parts that not every kind has: a layer of 8 outputs, and a value for each of the networks' own. */
static inline void own_options(const struct operator_kind *kind, struct learner_config *c)
{
    static const char *const numbers[] = {"cross_layers", "experts", "attention"};
    static const char *const widths[] = {"hidden", "bottom", "towers"};
    static int64_t width = 8;
    static struct optimizer_config still;
    int64_t *block = own_option(kind, c, "hidden_batch");
    struct kind_ref *layers = own_option(kind, c, "hidden_optimizer"),
                    *pairs = own_option(kind, c, "pair_weights");
    if (block != NULL)
        *block = 16;
    if (layers != NULL)
        *layers = adagrad();
    if (pairs != NULL)
        *pairs = (struct kind_ref){.choice = OPT_SGD, .config = &still};
    for (size_t i = 0; i < ARRAY_COUNT(numbers); i++) {
        int64_t *number = own_option(kind, c, numbers[i]);
        if (number != NULL)
            *number = 4;
    }
    for (size_t i = 0; i < ARRAY_COUNT(widths); i++) {
        struct ints *list = own_option(kind, c, widths[i]);
        if (list != NULL)
            *list = (struct ints){.items = &width, .count = 1};
    }
}

static inline void start(struct bench *t, const struct operator_kind *kind)
{
    *t = (struct bench){.pool = batch_pool_new()};
    arena_init(&t->arena, 1 << 16);
    diag_list_init(&t->diags, &t->arena);
    struct learner_config *c = arena_alloc(&t->arena, kind->size);
    memset(c, 0, kind->size);
    common_defaults(c, &t->arena, str_is(STR("mf"), kind->name));
    /* Required expressions of a kind: mf's user and item. */
    struct expression *user = own_option(kind, c, "user"), *item = own_option(kind, c, "item");
    if (user != NULL && item != NULL)
        user->ast = name_ast(&t->arena, "user"), item->ast = name_ast(&t->arena, "item");
    bool is_network = strcmp(kind->name, "dcnv2") == 0 || strcmp(kind->name, "dlrm") == 0 ||
                      strcmp(kind->name, "mmoe") == 0 || strcmp(kind->name, "afm") == 0;
    if (is_network)
        c->steps.batch = network_batch;
    if (is_network && own_option(kind, c, "linear") == NULL)
        c->linear = (struct kind_ref){0};
    own_options(kind, c);
    if (strcmp(kind->name, "mmoe") == 0) {
        c->inputs.label.ast = NULL;
        c->inputs.labels = names(&t->arena, "clicked", "price", NULL);
        c->inputs.known_early = (struct columns){0};
    }
    if (adjust != NULL)
        adjust(kind, c, &t->arena);
    t->bind = (struct operator_bind){.config = c,
                                     .arena = &t->arena,
                                     .diags = &t->diags,
                                     .inputs_count = 1,
                                     .add_column = add_column,
                                     .learner = &t->learner};
    t->bind.inputs[0].schema = make_schema(&t->arena);
    assert_true(kind->bind(&t->bind));
    assert_int_equal(t->learner.labels[0], COLUMN_CLICKED);
    assert_int_equal(t->learner.count, strcmp(kind->name, "mf") == 0 || third_feature == NULL ? 3 : 4);
    t->context = (struct operator_context){.config = c,
                                           .pool = t->pool,
                                           .output = t->bind.outputs[0],
                                           .diags = &t->diags,
                                           .only_reads = opens_to_read,
                                           .cold_store = cold_store};
    assert_true(kind->open(&t->context));
}

static inline void feed(struct bench *t, const struct operator_kind *kind, uint64_t begin, uint64_t end)
{
    for (uint64_t n = begin; n < end; n++) {
        struct batch *batch = make_batch(t->pool, t->bind.inputs[0].schema, n);
        t->context.counters.in += batch->selected; /* as the engine does */
        kind->process(&t->context, 0, batch);
        batch_release(batch);
        kind->on_watermark(&t->context, (int64_t)((n + 1) * ROWS) * US_PER_SECOND);
    }
}

static inline void stop(struct bench *t, const struct operator_kind *kind)
{
    kind->close(&t->context);
    kind->close(&t->context); /* a second close must be tolerated */
    batch_pool_free(t->pool);
    arena_free(&t->arena);
}

static inline struct snapshot_writer checkpoint(struct bench *t, const struct operator_kind *kind,
                                                uint64_t epoch, bool base)
{
    struct snapshot_writer w = {.epoch = epoch, .is_base = base};
    assert_true(kind->snapshot(&t->context, &w));
    return w;
}

static inline double reported(struct bench *t, const struct operator_kind *kind, const char *name)
{
    struct report report = {0};
    kind->report(&t->context, &report);
    for (uint32_t i = 0; i < report.count; i++)
        if (strcmp(report.items[i].name, name) == 0 && !report.items[i].is_window)
            return report.items[i].value;
    fail_msg("the report has no %s", name);
    return 0.0;
}

#endif

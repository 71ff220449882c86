/* The learner kinds as the engine uses them: bound to a schema, fed with batches, stopped at a checkpoint,
 * resumed; with this test's own snapshot writer and operator_emit. */
#include "core/operator_history.h"
#include "learners/learner/internal.h"

#include "core/buffer.h"

#include <malloc.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define LEARNER(name) extern const struct operator_kind learner_##name;
#include "learners/registry.def"
#undef LEARNER

static const struct operator_kind *const kinds[] = {
#define LEARNER(name) &learner_##name,
#include "learners/registry.def"
#undef LEARNER
};

enum { ROWS = 1000, BATCHES = 12 };
enum { COLUMN_CLICKED, COLUMN_USER, COLUMN_ITEM, COLUMN_TAGS, COLUMN_PRICE, COLUMNS };

/* A checkpoint in this test: records in memory; the test runs the deferred job. */
struct snapshot_writer {
    struct byte_buffer *records;
    uint32_t count, room;
    uint64_t epoch;
    bool is_base;
    snapshot_job *write;
    snapshot_done *done;
    void *argument;
};
struct snapshot_reader {
    const struct snapshot_writer *parts[4];
    uint32_t part, next;
    bool was_corrupt;
};

bool snapshot_put(struct snapshot_writer *w, uint32_t group, const void *data, size_t bytes)
{
    assert_int_equal(group, SNAPSHOT_GLOBAL);
    if (w->count == w->room)
        w->records = realloc(w->records, (w->room = w->room * 2 + 16) * sizeof(*w->records));
    w->records[w->count] = (struct byte_buffer){0};
    buffer_append(&w->records[w->count++], data, bytes);
    return true;
}
void snapshot_defer(struct snapshot_writer *w, snapshot_job *write, snapshot_done *done, void *argument)
{
    w->write = write, w->done = done, w->argument = argument;
}
uint64_t snapshot_epoch(const struct snapshot_writer *w)
{
    return w->epoch;
}
bool snapshot_is_base(const struct snapshot_writer *w)
{
    return w->is_base;
}
bool snapshot_get(struct snapshot_reader *r, uint32_t *group, struct str *data)
{
    while (r->parts[r->part] != NULL && r->next == r->parts[r->part]->count)
        r->part++, r->next = 0;
    if (r->parts[r->part] == NULL)
        return false;
    const struct byte_buffer *record = &r->parts[r->part]->records[r->next++];
    *group = SNAPSHOT_GLOBAL;
    *data = (struct str){record->data, record->length};
    return true;
}
void snapshot_corrupt(struct snapshot_reader *r, struct diag_list *diags, const char *what)
{
    (void)diags, (void)what;
    r->was_corrupt = true;
}

/* The number of predictions, and a digest of the bits of predictions and metrics. */
static uint64_t emitted, digest, metrics_rows, metrics_nulls;
static enum loss_kind loss = LOSS_LOGISTIC;
static struct freeze_config freeze; /* for learners that start */
static struct optimizer_config schedule = {.rate = 0.1};
static int64_t network_batch = 48;
static double negatives_kept = 0.9;
static const char *third_feature = "tags"; /* a list feature; NULL: no third feature */
static double last_prediction;

void operator_emit(struct operator_context *context, uint32_t output, struct batch *batch)
{
    if (output == 1) { /* metrics are part of the digest */
        for (uint32_t i = 0; i < batch->schema->count; i++)
            digest = num_mix(digest ^ (uint64_t)batch->columns[i].ints[0]);
        for (uint32_t i = 0; i < batch->schema->count; i++)
            metrics_nulls += !column_is_valid(&batch->columns[i], 0);
        metrics_rows++;
        batch_release(batch);
        return;
    }
    assert_int_equal(batch->schema->count, context->output->count);
    const struct column *column = &batch->columns[batch->schema->count - 1];
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        uint64_t bits;
        memcpy(&bits, &column->floats[row], sizeof(bits));
        digest = num_mix(digest ^ bits ^ column_is_valid(column, row));
        last_prediction = column->floats[row];
    }
    emitted += batch->selected;
    batch_release(batch);
}

/* No learner here may fail: there is no device. */
void operator_fail(const struct operator_context *context, enum diag_code code, struct span span,
                   const char *message, const char *hint)
{
    (void)context, (void)code, (void)span, (void)hint;
    fail_msg("%s", message);
}

/* Expressions in this test are column names. */
static int add_column(struct operator_bind *bind, const struct ast *expression)
{
    return schema_find(bind->inputs[0].schema, expression->text);
}

static struct ast *name_ast(struct arena *arena, const char *name)
{
    struct ast *ast = arena_new(arena, struct ast);
    ast->tag = AST_NAME;
    ast->text = str_from(name);
    return ast;
}

static struct expressions names(struct arena *arena, const char *a, const char *b, const char *c)
{
    const char *const all[] = {a, b, c};
    struct expressions list = {.items = arena_array(arena, const struct ast *, 3)};
    for (size_t i = 0; i < 3 && all[i]; i++)
        list.items[list.count++] = name_ast(arena, all[i]);
    return list;
}

static struct schema *make_schema(struct arena *arena)
{
    static struct schema empty;
    static struct type integer = {.tag = TYPE_INT};
    struct schema *schema = schema_copy(arena, &empty, COLUMNS);
    schema_add(schema, STR("clicked"), type_of(TYPE_BOOL));
    schema_add(schema, STR("user"), type_of(TYPE_INT));
    schema_add(schema, STR("item"), type_of(TYPE_TEXT));
    schema_add(schema, STR("tags"), (struct type){.tag = TYPE_LIST, .element = &integer});
    schema_add(schema, STR("price"), type_of(TYPE_FLOAT));
    return schema;
}

static struct batch *make_batch(struct batch_pool *pool, const struct schema *schema, uint64_t number)
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
        uint64_t r = num_mix(number * ROWS + i + 1);
        b->event_time[i] = (int64_t)(number * ROWS + i) * US_PER_SECOND;
        b->columns[COLUMN_USER].ints[i] =
            (int64_t)(r % 3000); /* many rows change in one epoch and not in the next */
        memcpy(heap + 4 * (size_t)i, (char[]){'i', (char)('a' + r % 16), (char)('a' + (r >> 8) % 4), 'x'}, 4);
        item->texts[i] = (struct text_ref){4 * i, 4};
        tags->lists[i] = (struct list_ref){2 * i, (uint32_t)(r >> 16) % 3};
        tags->children->ints[2 * i] = (int64_t)(r >> 20) % 9;
        tags->children->ints[2 * i + 1] = (int64_t)(r >> 30) % 9;
        b->columns[COLUMN_PRICE].floats[i] = (double)(r >> 40 & 1023) / 1024.0; /* also a label */
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
static void *own_option(const struct operator_kind *kind, struct learner_config *c, const char *name)
{
    struct option_row option = option_find(kind->options, str_from(name));
    return option.name != NULL ? (char *)c + option.offset : NULL;
}

static struct kind_ref adagrad(void)
{
    static struct optimizer_config config;
    config = schedule;
    config.accumulator = config.decay = config.step_max = config.beta = 1.0;
    return (struct kind_ref){.choice = OPT_ADAGRAD, .config = &config};
}

static void common_defaults(struct learner_config *c, struct arena *arena, bool is_mf)
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
static void own_options(const struct operator_kind *kind, struct learner_config *c)
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

static void start(struct bench *t, const struct operator_kind *kind)
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
    t->context = (struct operator_context){
        .config = c, .pool = t->pool, .output = t->bind.outputs[0], .diags = &t->diags};
    assert_true(kind->open(&t->context));
}

static void feed(struct bench *t, const struct operator_kind *kind, uint64_t begin, uint64_t end)
{
    for (uint64_t n = begin; n < end; n++) {
        struct batch *batch = make_batch(t->pool, t->bind.inputs[0].schema, n);
        t->context.counters.in += batch->selected; /* as the engine does */
        kind->process(&t->context, 0, batch);
        batch_release(batch);
        kind->on_watermark(&t->context, (int64_t)((n + 1) * ROWS) * US_PER_SECOND);
    }
}

static void stop(struct bench *t, const struct operator_kind *kind)
{
    kind->close(&t->context);
    kind->close(&t->context); /* a second close must be tolerated */
    batch_pool_free(t->pool);
    arena_free(&t->arena);
}

/* Learners of several labels have no class weights, and learn every row. */
static bool is_several(const struct bench *t)
{
    return t->learner.labels_count > 1;
}

static void check_counts(const struct bench *t)
{
    const struct counters *c = &t->context.counters;
    assert_true(counters_balance(c));
    assert_int_equal(c->in, c->emitted);
    assert_true(c->dead >= 1 && (c->filtered > 0 || is_several(t)) && c->absorbed > 3 * ROWS);
}

static struct snapshot_writer checkpoint(struct bench *t, const struct operator_kind *kind, uint64_t epoch,
                                         bool base)
{
    struct snapshot_writer w = {.epoch = epoch, .is_base = base};
    assert_true(kind->snapshot(&t->context, &w));
    return w;
}

static void finish(struct snapshot_writer *w, bool is_published)
{
    assert_true(w->write(w->argument, w));
    w->done(w->argument, is_published);
}

static void checkpoint_free(struct snapshot_writer *w)
{
    for (uint32_t i = 0; i < w->count; i++)
        buffer_free(&w->records[i]);
    free(w->records);
}

/* Takes a base, an abandoned checkpoint, and a delta while the learner goes on; a learner resumed from base
 * and delta must continue the same. */
static void check_resume(const struct operator_kind *kind)
{
    struct bench whole, first, second;
    start(&whole, kind);
    emitted = digest = metrics_rows = 0;
    feed(&whole, kind, 0, BATCHES);
    check_counts(&whole);
    assert_int_equal(metrics_rows, BATCHES * ROWS / 1700 * whole.learner.labels_count);
    uint64_t expected = digest;
    struct report reports[2] = {{0}, {0}};
    kind->report(&whole.context, &reports[0]);
    assert_int_equal(emitted, BATCHES * ROWS);

    start(&first, kind);
    emitted = digest = 0;
    feed(&first, kind, 0, 3);
    struct snapshot_writer base = checkpoint(&first, kind, 1, true);
    feed(&first, kind, 3, 4);
    finish(&base, true);
    feed(&first, kind, 4, 5);
    struct snapshot_writer lost = checkpoint(&first, kind, 2, false);
    finish(&lost, false);
    feed(&first, kind, 5, 7);
    struct snapshot_writer delta = checkpoint(&first, kind, 3, false);
    uint64_t at_delta = digest;
    feed(&first, kind, 7, 8);
    finish(&delta, true);
    stop(&first, kind);

    start(&second, kind);
    struct snapshot_reader reader = {.parts = {&base, &delta}};
    assert_true(kind->restore(&second.context, &reader));
    digest = at_delta;
    feed(&second, kind, 7, BATCHES);
    assert_true(digest == expected);
    kind->report(&second.context, &reports[1]);
    for (uint32_t i = 0; i < reports[0].count; i++) {
        const char *name = reports[0].items[i].name;
        if (strcmp(name, "logloss") == 0 || strcmp(name, "auc") == 0 || strcmp(name, "rmse") == 0 ||
            strcmp(name, "learned") == 0 || strcmp(name, "frozen") == 0)
            assert_true(reports[0].items[i].value == reports[1].items[i].value);
    }
    stop(&second, kind);
    stop(&whole, kind); /* the report's names are the learner's memory */

    start(&second, kind); /* a torn record must be refused */
    base.records[0].length -= 3;
    struct snapshot_reader torn = {.parts = {&base}};
    assert_false(kind->restore(&second.context, &torn));
    assert_true(torn.was_corrupt);
    stop(&second, kind);
    checkpoint_free(&base);
    checkpoint_free(&lost);
    checkpoint_free(&delta);
}

static void test_kinds(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++) {
        assert_non_null(kinds[i]->example);
        check_resume(kinds[i]);
    }
}

static double reported(struct bench *t, const struct operator_kind *kind, const char *name)
{
    struct report report = {0};
    kind->report(&t->context, &report);
    for (uint32_t i = 0; i < report.count; i++)
        if (strcmp(report.items[i].name, name) == 0 && !report.items[i].is_window)
            return report.items[i].value;
    fail_msg("the report has no %s", name);
    return 0.0;
}

/* Networks can learn by batches of one example: its ids must reach the model and their rows must learn. */
static void test_batches_of_one(void **state)
{
    (void)state;
    network_batch = 1, negatives_kept = 1.0,
    third_feature = NULL; /* sampling and lists read all ids at once */
    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++) {
        struct bench t;
        start(&t, kinds[i]);
        feed(&t, kinds[i], 0, 2);
        if (reported(&t, kinds[i], "rows") < 300.0)
            fail_msg("%s: %g rows", kinds[i]->name, reported(&t, kinds[i], "rows"));
        stop(&t, kinds[i]);
    }
    network_batch = 48, negatives_kept = 0.9, third_feature = "tags";
}

/* The same with rates that change, and a freezing band that the window's label mean crosses several times. */
static void test_scheduled_kinds(void **state)
{
    (void)state;
    schedule = (struct optimizer_config){.rate = 0.1, .warmup = 3000, .halve_every = 4000, .rate_min = 0.03};
    freeze = (struct freeze_config){.label_mean_min = 0.37, .after = 1500};
    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++) {
        check_resume(kinds[i]);
        struct bench t;
        start(&t, kinds[i]);
        uint32_t turns = 0;
        for (uint64_t n = 0, was = 0, is; n < BATCHES; n++, was = is) {
            feed(&t, kinds[i], n, n + 1);
            is = reported(&t, kinds[i], "is_frozen") > 0.0;
            turns += is != was;
            assert_true(n != 6 || is); /* frozen when check_resume takes its delta */
        }
        assert_true(turns >= 2); /* it froze and thawed */
        stop(&t, kinds[i]);
    }
    schedule = (struct optimizer_config){.rate = 0.1};
    freeze = (struct freeze_config){0};
}

/* A digest of each batch's predictions by one learner; from batch 3 on, the same batch is fed again. */
static void digests(const struct operator_kind *kind, uint64_t out[BATCHES], double *frozen)
{
    struct bench t;
    start(&t, kind);
    /* No metrics: only predictions are in the digest. */
    ((struct learner_config *)t.bind.config)->evaluation.metrics_every = INT64_MAX;
    for (uint64_t n = 0; n < BATCHES; n++) {
        digest = 0;
        feed(&t, kind, n < 3 ? n : 3, (n < 3 ? n : 3) + 1); /* from 3 on the same batch again */
        out[n] = digest;
    }
    assert_true(counters_balance(&t.context.counters));
    *frozen = reported(&t, kind, "frozen");
    stop(&t, kind);
}

static void test_freeze(void **state)
{
    (void)state;
    uint64_t plain[BATCHES], other[BATCHES];
    double frozen;
    digests(&learner_linear, plain, &frozen);
    assert_true(frozen == 0.0 && plain[BATCHES - 1] != plain[BATCHES - 2]);
    freeze = (struct freeze_config){.calibration_min = 1e-3, .calibration_max = 1e3, .label_mean_max = 0.9};
    digests(&learner_linear, other, &frozen); /* within its bands the learner is not affected */
    assert_true(frozen == 0.0);
    assert_memory_equal(plain, other, sizeof(plain));
    static const struct freeze_config left[] = {{.label_mean_max = 0.2, .after = 2000},
                                                {.label_mean_min = 0.6, .after = 2000},
                                                {.calibration_max = 0.5, .after = 2000},
                                                {.calibration_min = 1.5, .after = 2000}};
    for (size_t i = 0; i < ARRAY_COUNT(left); i++) {
        freeze = left[i];
        digests(&learner_linear, other, &frozen);
        assert_memory_equal(plain, other, 2 * sizeof(*plain));
        /* Frozen from example 2,048 on (in each batch, one row has no label): predictions repeat. */
        assert_true(frozen == BATCHES * ROWS - 2048 - (BATCHES - 3));
        assert_true(other[BATCHES - 1] == other[BATCHES - 2] && other[3] != plain[3]);
    }
    freeze = (struct freeze_config){0};
}

static void test_schedule(void **state)
{
    (void)state;
    uint64_t plain[BATCHES], other[BATCHES];
    double frozen;
    digests(&learner_fm, plain, &frozen);
    schedule = (struct optimizer_config){.rate = 0.1, .halve_every = 1 << 30, .rate_min = 0.1};
    digests(&learner_fm, other, &frozen); /* the floor keeps the rate unchanged */
    assert_memory_equal(plain, other, sizeof(plain));
    schedule.rate_min = 0.0;
    schedule.halve_every = 8;
    digests(&learner_fm, other, &frozen); /* 128 halvings from example 1,024 on: the rate is 0 */
    assert_true(other[0] == plain[0] && other[BATCHES - 1] == other[BATCHES - 2]);
    schedule = (struct optimizer_config){.rate = 0.1, .warmup = 2048};
    digests(&learner_fm, other, &frozen); /* half the rate for the first 1,024 examples, then the full rate */
    assert_true(other[0] != plain[0]);
    schedule = (struct optimizer_config){.rate = 0.05};
    digests(&learner_fm, plain, &frozen);
    assert_true(other[0] == plain[0] && other[1] != plain[1]);
    schedule = (struct optimizer_config){.rate = 0.1};
}

/* `pairs` and `init_of` reach the model at the indices of the features they name. */
static void test_fields(void **state)
{
    (void)state;
    struct bench t;
    start(&t, &learner_fm);
    struct learner_config *c = t.bind.config;
    for (int i = 0; i < 3; i++)
        assert_true(c->model.pair_is_off[i] == 0 && c->model.field_init[i] == 0.0F);
    struct ast *sides[2] = {name_ast(&t.arena, "tags"), name_ast(&t.arena, "user")};
    struct ast pair = {.tag = AST_LIST, .children = sides, .count = 2};
    const struct ast *pairs[1] = {&pair};
    c->pairs->chosen = (struct expressions){.items = pairs, .count = 1};
    struct ast half = {.tag = AST_FLOAT, .real = 0.5}, zero = {.tag = AST_INT};
    struct assignment inits[2] = {{.name = STR("item"), .value = &half},
                                  {.name = STR("tags"), .value = &zero}};
    c->embedding.init_of = (struct assignments){.items = inits, .count = 2};
    assert_true(learner_bind_pairs(&t.bind, c));
    assert_true(learner_bind_inits(&t.bind, c));
    assert_memory_equal(c->model.pair_is_off, ((uint8_t[]){1, 0, 1}), 3); /* (0, 1), (0, 2), (1, 2) */
    assert_true(c->model.field_init[0] == 0.0F && c->model.field_init[1] == 0.5F);
    assert_true(c->model.field_init[2] < 0.0F); /* zeros, not the common bound */
    stop(&t, &learner_fm);
}

/* A squared loss has no logloss, AUC, entropy or calibration, over the run or the window: these metrics are
 * null, not 0. */
static void test_nulls(void **state)
{
    (void)state;
    for (loss = LOSS_LOGISTIC; loss <= LOSS_SQUARED; loss++) {
        struct bench t;
        start(&t, &learner_mf);
        metrics_rows = metrics_nulls = 0;
        feed(&t, &learner_mf, 0, 4);
        assert_true(metrics_rows > 0);
        assert_int_equal(metrics_nulls, loss == LOSS_SQUARED ? 8 * metrics_rows : 0);
        stop(&t, &learner_mf);
    }
    loss = LOSS_LOGISTIC;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),           cmocka_unit_test(test_batches_of_one),
        cmocka_unit_test(test_scheduled_kinds), cmocka_unit_test(test_freeze),
        cmocka_unit_test(test_schedule),        cmocka_unit_test(test_nulls),
        cmocka_unit_test(test_fields)};
    (void)mallopt(M_PERTURB, 0xa5); /* so that uninitialized memory holds no id of an earlier test */
    return cmocka_run_group_tests(tests, NULL, NULL);
}

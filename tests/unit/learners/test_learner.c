/* The learner kinds as the engine uses them: bound to a schema, fed with batches, stopped at a checkpoint,
 * resumed; with learner_bench.h's snapshot writer and this test's own operator_emit. */
#include "learner_bench.h"

#include <malloc.h>

/* The number of predictions, and a digest of the bits of predictions and metrics. */
static uint64_t emitted, digest, metrics_rows, metrics_nulls;
static double last_prediction;

void operator_reject(struct operator_context *context, const struct batch *batch, uint32_t row,
                     const char *reason)
{
    (void)context, (void)batch, (void)row;
    fail_msg("%s", reason);
}

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

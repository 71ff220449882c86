/* Source `ctr`: its columns are the events that the generator's world makes, from any position,
 * with any decoder. */
#include "connectors/generator/ctr_clicks.h"
#include "core/connector.h"
#include "core/operator.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

extern const struct source_kind source_ctr;

enum { IMPRESSIONS, CLICKS, LABELLED, EVENTS = 5000 };

struct fixture {
    struct arena arena;
    struct diag_list diags;
    struct source source;
    struct batch_pool *pool;
    void *decoder;
    struct raw_batch raw;
};

static void *option_place(void *config, const char *name)
{
    struct option_row option = option_find(source_ctr.options, str_from(name));
    assert_non_null(option.name);
    return (char *)config + option.offset;
}

static struct source_bind bind_of(struct fixture *fixture, int64_t events, int stream, double rate)
{
    arena_init(&fixture->arena, 0);
    diag_list_init(&fixture->diags, &fixture->arena);
    void *config = arena_calloc(&fixture->arena, 1, source_ctr.size);
    *(int64_t *)option_place(config, "events") = events;
    *(int64_t *)option_place(config, "seed") = 5;
    *(int *)option_place(config, "stream") = stream;
    *(double *)option_place(config, "rate") = rate;
    return (struct source_bind){
        .config = config, .arena = &fixture->arena, .diags = &fixture->diags, .streams_count = 1};
}

static void open_stream(struct fixture *fixture, int stream)
{
    memset(fixture, 0, sizeof(*fixture));
    struct source_bind bind = bind_of(fixture, EVENTS, stream, 50.0);
    assert_true(source_ctr.bind(&bind));
    assert_true(bind.is_bounded && bind.is_replayable);
    fixture->source = (struct source){
        .config = bind.config, .schema = bind.schema, .arena = &fixture->arena, .diags = &fixture->diags};
    assert_true(source_ctr.open(&fixture->source));
    assert_int_equal(fixture->source.partitions_count, 1);
    fixture->pool = batch_pool_new();
    fixture->decoder = source_ctr.decoder_new(&fixture->source);
    assert_non_null(fixture->decoder);
}

static void close_stream(struct fixture *fixture)
{
    source_ctr.decoder_free(fixture->decoder);
    source_ctr.close(&fixture->source);
    source_ctr.close(&fixture->source); /* a second close is allowed */
    batch_pool_free(fixture->pool);
    arena_free(&fixture->raw.arena);
    arena_free(&fixture->arena);
}

static bool read_raw(struct fixture *fixture)
{
    arena_reset(&fixture->raw.arena);
    enum read_status status = source_ctr.read(&fixture->source, 0, &fixture->raw);
    assert_true(status == READ_BATCH || status == READ_END);
    return status == READ_BATCH;
}

static const struct column *column_of(const struct batch *batch, const char *name)
{
    int index = schema_find(batch->schema, str_from(name));
    assert_true(index >= 0);
    return &batch->columns[index];
}

static struct batch *decode(struct fixture *fixture)
{
    struct batch *batch = batch_new(fixture->pool, fixture->source.schema, fixture->raw.count);
    struct decode_output output = {.batch = batch, .bad_count = 99};
    source_ctr.decode(&fixture->source, fixture->decoder, &fixture->raw, &output);
    assert_int_equal(output.bad_count, 0);
    memcpy(batch->event_time, column_of(batch, "ts")->ints,
           batch->rows * sizeof(int64_t)); /* as the engine does */
    return batch;
}

static void check_row(const struct batch *batch, uint32_t row, const struct ctr_event *event)
{
    char text[16];
    assert_int_equal(column_of(batch, "ts")->ints[row], event->ts_ms * 1000);
    for (uint32_t f = 0; f < CTR_FIELDS; f++) {
        const struct column *column = column_of(batch, ctr_fields[f].name);
        if (ctr_fields[f].prefix == 0) {
            assert_int_equal(column->ints[row], event->field[f]);
            continue;
        }
        snprintf(text, sizeof(text), "%c%u", ctr_fields[f].prefix, event->field[f]);
        assert_true(str_is(column_text(column, row), text));
    }
    for (uint32_t d = 0; d < CTR_DENSE; d++)
        assert_true(column_of(batch, ctr_dense_names[d])->floats[row] == event->dense[d] / 1000.0);
}

static void test_columns_are_what_the_world_makes(void **state)
{
    (void)state;
    struct ctr_world *world = ctr_world_new(5, ctr_gap_us(50.0));
    struct ctr_maker *maker = ctr_maker_new(world);
    for (int stream = IMPRESSIONS; stream <= LABELLED; stream += LABELLED) {
        struct fixture fixture;
        open_stream(&fixture, stream);
        uint64_t number = 0;
        while (read_raw(&fixture)) {
            assert_int_equal(fixture.raw.position.record, number);
            struct batch *batch = decode(&fixture);
            assert_int_equal(schema_find(batch->schema, STR("clicked")) >= 0, stream == LABELLED);
            for (uint32_t row = 0; row < batch->rows; row++, number++) {
                struct ctr_event event;
                ctr_make(maker, number, &event, NULL);
                check_row(batch, row, &event);
                if (stream == LABELLED)
                    assert_int_equal(column_of(batch, "clicked")->ints[row], event.is_clicked);
                else
                    assert_int_equal(column_of(batch, "imp_id")->ints[row], number);
            }
            batch_release(batch);
        }
        assert_int_equal(number, EVENTS);
        close_stream(&fixture);
    }
    ctr_maker_free(maker);
    ctr_world_free(world);
}

/* Each click has the user and the item of the impression with its imp_id. */
static void test_clicks_name_their_impressions(void **state)
{
    (void)state;
    struct ctr_world *world = ctr_world_new(5, ctr_gap_us(50.0));
    struct ctr_maker *maker = ctr_maker_new(world);
    struct fixture fixture;
    open_stream(&fixture, CLICKS);
    uint64_t count = 0;
    while (read_raw(&fixture)) {
        struct batch *batch = decode(&fixture);
        for (uint32_t row = 0; row < batch->rows; row++, count++) {
            struct ctr_event event;
            ctr_make(maker, (uint64_t)column_of(batch, "imp_id")->ints[row], &event, NULL);
            assert_true(event.is_clicked);
            assert_int_equal(column_of(batch, "ts")->ints[row], event.click_ms * 1000);
            assert_int_equal(column_of(batch, "user")->ints[row], event.field[CTR_USER]);
            assert_int_equal(column_of(batch, "item")->ints[row], event.field[CTR_ITEM]);
        }
        batch_release(batch);
    }
    assert_true(count > EVENTS / 10);
    close_stream(&fixture);
    ctr_maker_free(maker);
    ctr_world_free(world);
}

/* After a seek to any batch, that batch reads the same as the first time. */
static void test_seeking_equals_reading_on(void **state)
{
    (void)state;
    for (int stream = IMPRESSIONS; stream <= LABELLED; stream++) {
        struct fixture fixture;
        open_stream(&fixture, stream);
        struct source_position positions[EVENTS / 64];
        char digests[EVENTS / 64][33];
        uint32_t batches = 0;
        while (read_raw(&fixture)) {
            positions[batches] = fixture.raw.position;
            struct batch *batch = decode(&fixture);
            struct batch_digest *digest = batch_digest_new();
            batch_digest_add(digest, batch);
            batch_digest_hex(digest, digests[batches++]);
            batch_digest_free(digest);
            batch_release(batch);
        }
        assert_true(stream == CLICKS ? batches == 1 : batches == (EVENTS + BATCH_ROWS - 1) / BATCH_ROWS);
        for (uint32_t i = batches; i-- > 0;) {
            assert_true(source_ctr.seek(&fixture.source, 0, &positions[i]));
            assert_true(read_raw(&fixture));
            struct batch *batch = decode(&fixture);
            struct batch_digest *digest = batch_digest_new();
            char hex[33];
            batch_digest_add(digest, batch);
            batch_digest_hex(digest, hex);
            assert_string_equal(hex, digests[i]);
            batch_digest_free(digest);
            batch_release(batch);
        }
        close_stream(&fixture);
    }
}

/* The report adds up the decoders, also those that were freed, and equals the truth of all events. */
static void test_the_report_is_the_truth(void **state)
{
    (void)state;
    struct ctr_world *world = ctr_world_new(5, ctr_gap_us(50.0));
    struct ctr_maker *maker = ctr_maker_new(world);
    struct ctr_truth *truth = calloc(1, sizeof(*truth));
    struct ctr_event event;
    for (uint64_t i = 0; i < EVENTS; i++)
        ctr_make(maker, i, &event, truth);
    struct ctr_scores scores = ctr_truth_scores(truth);
    for (int stream = IMPRESSIONS; stream <= LABELLED; stream++) {
        struct fixture fixture;
        open_stream(&fixture, stream);
        for (uint32_t i = 0; read_raw(&fixture); i++) {
            if (i == 2) {
                source_ctr.decoder_free(fixture.decoder);
                fixture.decoder = source_ctr.decoder_new(&fixture.source);
            }
            batch_release(decode(&fixture));
        }
        struct report report = {0};
        source_ctr.report(&fixture.source, &report);
        assert_int_equal(report.count, stream == IMPRESSIONS ? 0 : 3);
        if (stream != IMPRESSIONS) {
            assert_string_equal(report.items[0].name, "bayes_logloss");
            assert_true(report.items[0].value == scores.logloss);
            assert_true(report.items[1].value == scores.auc);
        }
        struct source_progress progress;
        source_ctr.progress(&fixture.source, &progress);
        assert_int_equal(progress.records_total, stream == CLICKS ? -1 : EVENTS);
        close_stream(&fixture);
    }
    free(truth);
    ctr_maker_free(maker);
    ctr_world_free(world);
}

static void test_bad_jobs_and_positions_are_refused(void **state)
{
    (void)state;
    struct fixture fixture = {0};
    struct source_bind bind = bind_of(&fixture, INT64_C(1000000000000), LABELLED, 0.001);
    assert_false(source_ctr.bind(&bind));
    assert_int_equal(fixture.diags.items[0].code, DIAG_OPTIONS_CLASH);
    assert_non_null(fixture.diags.items[0].hint);
    arena_free(&fixture.arena);

    memset(&fixture, 0, sizeof(fixture));
    bind = bind_of(&fixture, 10, LABELLED, 1.0);
    const struct schema declared = {0};
    bind.declared = &declared;
    assert_false(source_ctr.bind(&bind));
    arena_free(&fixture.arena);

    for (int stream = IMPRESSIONS; stream <= CLICKS; stream++) {
        open_stream(&fixture, stream);
        const struct source_position bad[] = {
            {.a = -1}, {.a = EVENTS + 1, .record = EVENTS + 1}, {.a = 3, .b = 9, .record = 4}};
        for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
            unsigned errors = fixture.diags.errors;
            assert_false(source_ctr.seek(&fixture.source, 0, &bad[i]));
            assert_int_equal(fixture.diags.errors, errors + 1);
        }
        close_stream(&fixture);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_columns_are_what_the_world_makes),
        cmocka_unit_test(test_clicks_name_their_impressions),
        cmocka_unit_test(test_seeking_equals_reading_on),
        cmocka_unit_test(test_the_report_is_the_truth),
        cmocka_unit_test(test_bad_jobs_and_positions_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

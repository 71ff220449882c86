/* Nexmark: the bytes of the lines, and the columns of the source, which give the same events
 * from any position. */
#include "connectors/generator/nexmark_write.h"
#include "core/connector.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <xxhash.h>

#include <cmocka.h>

extern const struct source_kind source_nexmark;

enum { EVENTS = 5000 };

/* xxh3-64 of the lines of events 0 to 4999 of seed 1: what gen.c of the Nexmark peers writes. */
#define LINES_HASH UINT64_C(0x143a7ff5fb96a021)

static const struct nexmark_options options = {
    .seed = 1, .rate = 10000, .person_bytes = 200, .auction_bytes = 500, .bid_bytes = 100};

static void test_lines_are_what_they_always_were(void **state)
{
    (void)state;
    struct nexmark_event event;
    char line[NEXMARK_LINE_BYTES];
    XXH3_state_t *hash = XXH3_createState();
    XXH3_64bits_reset(hash);
    for (int64_t i = 0; i < EVENTS; i++) {
        nexmark_make(&options, i, &event);
        char *end = nexmark_line(&event, line);
        assert_true(end - line < NEXMARK_LINE_BYTES && end[-1] == '\n');
        XXH3_64bits_update(hash, line, (size_t)(end - line));
    }
    assert_int_equal(XXH3_64bits_digest(hash), LINES_HASH);
    XXH3_freeState(hash);
}

struct fixture {
    struct arena arena;
    struct diag_list diags;
    struct source source;
    struct batch_pool *pool;
    void *decoder;
    struct raw_batch raw;
};

static void set_option(void *config, const char *name, int64_t value)
{
    struct option_row option = option_find(source_nexmark.options, str_from(name));
    assert_non_null(option.name);
    *(int64_t *)(void *)((char *)config + option.offset) = value;
}

static void open_source(struct fixture *fixture)
{
    memset(fixture, 0, sizeof(*fixture));
    diag_list_init(&fixture->diags, &fixture->arena);
    void *config = arena_calloc(&fixture->arena, 1, source_nexmark.size);
    set_option(config, "events", EVENTS);
    set_option(config, "seed", options.seed);
    set_option(config, "rate", options.rate);
    set_option(config, "person_size", options.person_bytes);
    set_option(config, "auction_size", options.auction_bytes);
    set_option(config, "bid_size", options.bid_bytes);
    struct source_bind bind = {.config = config, .arena = &fixture->arena, .diags = &fixture->diags};
    assert_true(source_nexmark.bind(&bind) && bind.is_bounded && bind.is_replayable);
    fixture->source = (struct source){
        .config = config, .schema = bind.schema, .arena = &fixture->arena, .diags = &fixture->diags};
    assert_true(source_nexmark.open(&fixture->source));
    fixture->pool = batch_pool_new();
    fixture->decoder = source_nexmark.decoder_new(&fixture->source);
}

static void close_source(struct fixture *fixture)
{
    source_nexmark.decoder_free(fixture->decoder);
    batch_pool_free(fixture->pool);
    arena_free(&fixture->raw.arena);
    arena_free(&fixture->arena);
}

static struct batch *read_batch(struct fixture *fixture)
{
    arena_reset(&fixture->raw.arena);
    if (source_nexmark.read(&fixture->source, 0, &fixture->raw) == READ_END)
        return NULL;
    struct batch *batch = batch_new(fixture->pool, fixture->source.schema, fixture->raw.count);
    struct decode_output output = {.batch = batch, .bad_count = 99};
    source_nexmark.decode(&fixture->source, fixture->decoder, &fixture->raw, &output);
    assert_int_equal(output.bad_count, 0);
    memset(batch->event_time, 0, batch->rows * sizeof(int64_t)); /* as the engine does */
    return batch;
}

static const struct column *column_of(const struct batch *batch, const char *name)
{
    int index = schema_find(batch->schema, str_from(name));
    assert_true(index >= 0);
    return &batch->columns[index];
}

static void check_text(const struct batch *batch, uint32_t row, const char *name, const struct str *text)
{
    const struct column *column = column_of(batch, name);
    assert_int_equal(column_is_valid(column, row), text != NULL);
    assert_true(text == NULL || str_equal(column_text(column, row), *text));
}

static void check_int(const struct batch *batch, uint32_t row, const char *name, bool is_there, int64_t value)
{
    const struct column *column = column_of(batch, name);
    assert_int_equal(column_is_valid(column, row), is_there);
    assert_true(!is_there || column->ints[row] == value);
}

static void check_row(const struct batch *batch, uint32_t row, const struct nexmark_event *event)
{
    static const struct str types[] = {STR("person"), STR("auction"), STR("bid")};
    bool is_person = event->type == NEXMARK_PERSON, is_bid = event->type == NEXMARK_BID;
    bool is_auction = event->type == NEXMARK_AUCTION;
    check_text(batch, row, "type", &types[event->type]);
    check_text(batch, row, "extra", &event->extra);
    check_int(batch, row, "date_time", true, event->time_ms * 1000);
    check_int(batch, row, "id", !is_bid, event->id);
    check_text(batch, row, "name", is_person ? &event->name : NULL);
    check_text(batch, row, "credit_card", is_person ? &event->credit_card : NULL);
    check_text(batch, row, "state", is_person ? &event->state : NULL);
    check_text(batch, row, "description", is_auction ? &event->description : NULL);
    check_int(batch, row, "expires", is_auction, event->expires_ms * 1000);
    check_int(batch, row, "category", is_auction, event->category);
    check_int(batch, row, "auction", is_bid, event->auction);
    check_int(batch, row, "price", is_bid, event->price);
    check_text(batch, row, "url", is_bid ? &event->url : NULL);
}

static void test_columns_are_the_events_from_any_position(void **state)
{
    (void)state;
    static const uint64_t starts[] = {0, 1, 2048, EVENTS - 1, EVENTS};
    struct fixture fixture;
    struct nexmark_event event;
    open_source(&fixture);
    for (size_t i = 0; i < ARRAY_COUNT(starts); i++) {
        uint64_t number = starts[i];
        assert_true(source_nexmark.seek(&fixture.source, 0, &(struct source_position){.record = number}));
        for (struct batch *batch; (batch = read_batch(&fixture)) != NULL; batch_release(batch)) {
            assert_int_equal(fixture.raw.position.record, number);
            for (uint32_t row = 0; row < batch->rows; row++, number++) {
                nexmark_make(&options, (int64_t)number, &event);
                check_row(batch, row, &event);
            }
            assert_int_equal(fixture.raw.next.record, number);
        }
        assert_int_equal(number, EVENTS);
    }
    struct source_position beyond = {.record = EVENTS + 1};
    assert_false(source_nexmark.seek(&fixture.source, 0, &beyond));
    assert_int_equal(fixture.diags.items[0].code, DIAG_FILE_CHANGED);
    close_source(&fixture);
}

static void test_a_schema_is_refused(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    struct schema declared = {0};
    void *config = arena_calloc(&arena, 1, source_nexmark.size);
    struct source_bind bind = {.config = config, .arena = &arena, .diags = &diags, .declared = &declared};
    assert_false(source_nexmark.bind(&bind));
    assert_int_equal(diags.items[0].code, DIAG_OPTIONS_CLASH);
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_are_what_they_always_were),
        cmocka_unit_test(test_columns_are_the_events_from_any_position),
        cmocka_unit_test(test_a_schema_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

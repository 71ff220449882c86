/* The state tables of operators: what the engine does with their rows, in which order, and that the tables of all
 * registered operators are sound. */
#include "harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

/* An operator with three members that note what is done with them: `a`, a value; `b`, a pointer; `c`, a pointer that
 * its configuration lacks. */
struct noted {
    char a;
    char *b, *c;
};

static char b_object = 'b', notes[256];
static bool reads_badly;

static void note(const char *what, const void *object)
{
    size_t length = strlen(notes);
    snprintf(notes + length, sizeof(notes) - length, "%s(%c) ", what,
             object == NULL ? '-' : *(const char *)object);
}

static struct state_plan plan_absent(const struct operator_context *context LEAT_UNUSED)
{
    return (struct state_plan){.is_absent = true};
}

static bool noted_open(const struct state_member *row, const struct operator_context *context, void *member)
{
    struct state_plan plan = state_plan_of(row, context);
    char *object = plan.is_absent ? NULL : &b_object;
    if (row->kind->is_pointer)
        memcpy(member, &object, sizeof(object));
    else
        *(char *)member = row->tag;
    if (!plan.is_absent)
        assert_int_equal(plan.memory_bytes, 5000);
    note("open", row->kind->is_pointer ? object : member);
    return true;
}

static bool noted_snapshot(const struct state_member *row, struct operator_context *context LEAT_UNUSED,
                           void *object, struct snapshot_writer *writer)
{
    char record[] = {row->tag, '!'};
    note("save", object);
    return snapshot_put(writer, SNAPSHOT_GLOBAL, record, sizeof(record));
}

static bool noted_restore(const struct state_member *row, struct operator_context *context LEAT_UNUSED,
                          void *object, struct snapshot_reader *reader LEAT_UNUSED, struct str record)
{
    assert_true(record.length == 2 && record.data[0] == row->tag);
    note("read", object);
    return !reads_badly;
}

static bool noted_restored(const struct state_member *row LEAT_UNUSED,
                           struct operator_context *context LEAT_UNUSED, void *object)
{
    note("read all", object);
    return true;
}

static void noted_watermark(void *object, int64_t watermark)
{
    note(watermark == 7 ? "watermark 7" : "watermark", object);
}

static void noted_report(const struct state_member *row LEAT_UNUSED, void *object, struct report *report)
{
    note("report", object);
    report_add(report, "of a member", 1, false);
}

static void noted_close(void *object)
{
    note("close", object);
}

#define NOTED(is_pointer_)                                                                                   \
    {                                                                                                        \
        .is_pointer = is_pointer_, .open = noted_open, .snapshot = noted_snapshot, .restore = noted_restore, \
        .restored = noted_restored, .set_watermark = noted_watermark, .report = noted_report,                \
        .close = noted_close                                                                                 \
    }
static const struct state_kind by_value = NOTED(false), by_pointer = NOTED(true),
                               bare = {.snapshot = noted_snapshot, .restore = noted_restore};

static bool own_open(struct operator_context *context)
{
    note("own open", ((struct noted *)context->config)->b);
    return true;
}

static void own_watermark(struct operator_context *context LEAT_UNUSED, int64_t watermark LEAT_UNUSED)
{
    note("own watermark", NULL);
}

static void own_report(struct operator_context *context LEAT_UNUSED, struct report *report)
{
    report_add(report, "of the operator", 1, false);
}

static void own_close(struct operator_context *context)
{
    note("own close", ((struct noted *)context->config)->b);
}

static const struct state_member noted_state[] = {
    {.kind = &by_value, .offset = offsetof(struct noted, a), .tag = 'a'},
    {.kind = &by_pointer, .offset = offsetof(struct noted, b), .tag = 'b'},
    {.kind = &by_pointer, .offset = offsetof(struct noted, c), .tag = 'c', .plan = plan_absent},
    {.kind = &bare, .offset = offsetof(struct noted, a), .tag = 'd'},
    STATES_END,
};
static const struct operator_kind noted_kind = {.name = "noted",
                                                .size = sizeof(struct noted),
                                                .state = noted_state,
                                                .open = own_open,
                                                .on_watermark = own_watermark,
                                                .report = own_report,
                                                .close = own_close};

static void assert_notes(const char *expected)
{
    assert_string_equal(notes, expected);
    notes[0] = '\0';
}

struct life {
    struct arena arena;
    struct diag_list diags;
    struct noted noted;
    struct operator_context context;
};

static void life_init(struct life *life)
{
    *life = (struct life){.context = {.memory_bytes = 5000, .watermark = 7}};
    diag_list_init(&life->diags, &life->arena);
    life->context.config = &life->noted;
    life->context.diags = &life->diags;
    notes[0] = '\0';
    reads_badly = false;
}

static void test_members_of_a_life(void **state)
{
    (void)state;
    struct life life;
    life_init(&life);
    assert_true(operator_has_state(&noted_kind));
    assert_true(operator_open(&noted_kind, &life.context));
    assert_notes("open(a) open(b) open(-) own open(b) ");
    operator_on_watermark(&noted_kind, &life.context, 9);
    assert_notes("own watermark(-) watermark(a) watermark(b) ");
    struct snapshot_writer writer = {{0}};
    assert_true(operator_snapshot(&noted_kind, &life.context, &writer));
    assert_notes("save(a) save(b) save(a) ");
    struct snapshot_reader reader = {.parts = &writer.records, .count = 1};
    assert_true(operator_restore(&noted_kind, &life.context, &reader));
    assert_notes("watermark 7(a) watermark 7(b) read(a) read(b) read(a) read all(a) read all(b) ");
    struct report report = {0};
    operator_report(&noted_kind, &life.context, &report);
    assert_notes("report(a) report(b) ");
    assert_int_equal(report.count, 3);
    assert_string_equal(report.items[2].name, "of the operator");
    operator_close(&noted_kind, &life.context);
    assert_notes("own close(b) close(a) close(b) ");
    assert_null(life.noted.b);
    operator_close(&noted_kind, &life.context); /* allowed again */
    assert_notes("own close(-) close(a) ");
    buffer_free(&writer.records);
    arena_free(&life.arena);
}

/* A record that no row has, one of a member that is absent, and an empty one are diagnostics; so is a record that its
 * member refuses. */
static void test_records_of_no_member(void **state)
{
    (void)state;
    static const struct str records[] = {STR("x!"), STR("c!"), STR("")};
    for (size_t i = 0; i < ARRAY_COUNT(records); i++) {
        struct life life;
        life_init(&life);
        assert_true(operator_open(&noted_kind, &life.context));
        struct snapshot_writer writer = {{0}};
        assert_true(snapshot_put(&writer, SNAPSHOT_GLOBAL, records[i].data, records[i].length));
        struct snapshot_reader reader = {.parts = &writer.records, .count = 1};
        assert_false(operator_restore(&noted_kind, &life.context, &reader));
        assert_true(reader.is_corrupt && life.diags.errors == 1);
        operator_close(&noted_kind, &life.context);
        buffer_free(&writer.records);
        arena_free(&life.arena);
    }
    struct life life;
    life_init(&life);
    assert_true(operator_open(&noted_kind, &life.context));
    struct snapshot_writer writer = {{0}};
    assert_true(operator_snapshot(&noted_kind, &life.context, &writer));
    struct snapshot_reader reader = {.parts = &writer.records, .count = 1};
    reads_badly = true;
    assert_false(operator_restore(&noted_kind, &life.context, &reader));
    operator_close(&noted_kind, &life.context);
    buffer_free(&writer.records);
    arena_free(&life.arena);
}

static void test_tables_of_all_operators(void **state)
{
    (void)state;
    uint32_t tables = 0;
    for (size_t k = 0; fake_operators[k] != NULL; k++) {
        const struct operator_kind *kind = fake_operators[k];
        bool has_tag[256] = {false};
        for (const struct state_member *row = kind->state; row != NULL && row->kind != NULL; row++) {
            if (row->tag == '\0' || has_tag[(uint8_t)row->tag] || row->offset >= kind->size ||
                row->kind->snapshot == NULL || row->kind->restore == NULL)
                fail_msg("%s: the row `%c` of its state", kind->name, row->tag);
            has_tag[(uint8_t)row->tag] = true;
        }
        tables += kind->state != NULL;
        if (kind->state != NULL && (kind->snapshot != NULL || kind->restore != NULL))
            fail_msg("%s has a state table, and saves by itself too", kind->name);
    }
    assert_true(tables > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_members_of_a_life),
                                       cmocka_unit_test(test_records_of_no_member),
                                       cmocka_unit_test(test_tables_of_all_operators)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

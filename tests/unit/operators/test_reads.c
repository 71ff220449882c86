/* Requests (operator_kind.read): what a step answers about a row equals what it then makes of that row, bit for
 * bit, and a step that was asked goes on as a twin that nobody asked: the same output, figures, and bytes in a
 * checkpoint. A step that lets all rows pass is compared with the row itself. */
#include "keyed_script.h"

#include "core/connector.h"
#include "core/registry.h"
#include "unit/support/temporary.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

extern const struct source_kind source_file;
static const struct source_kind *const sources[] = {&source_file, NULL};
static const struct registry registry = {.sources = sources};

enum { PLENTY_BYTES = 64 << 20, TINY_BYTES = 12000 };

struct read_case {
    const char *step; /* TABLE stands for the path of the table of `lookup` */
    uint32_t inputs;
    const char *added;   /* of a step that lets all rows pass: what stands behind the row's own columns */
    bool is_little;      /* also with a budget that evicts nearly everything */
    bool caches;         /* `read` uses scratch memory in the option struct */
    uint32_t dead_least; /* so many rows must be rejected, over all seeds */
    bool is_live;        /* the job never ends, and keeps versions of tables */
};

#define EXACT "n: count(), c: count(s), t: sum(v), m: mean(v), lo: min(v), hi: max(ts), p: since_last()"
#define MANY                                                                                                 \
    EXACT ", d: variance(v), e: variance(x), l: last(v), f: first(s), u: distinct(id), w: top(s, 3), q: "    \
          "quantile(v, 0.5), a: argmax(s, v), z: collect(id, 5), y: top_n(x, 3, v)"

static const struct read_case cases[] = {
    {.step = "where 100 / (x % 9) > 5", .inputs = 1, .dead_least = 20},
    {.step = "with p = 100 / (x % 9), q = concat(s, s), r = p + k, t = v * 2.0",
     .inputs = 1,
     .dead_least = 20},
    {.step = "select id, k, z = 100 / (x % 9), l", .inputs = 1, .dead_least = 20},
    {.step = "split where 100 / (x % 9) > 5", .inputs = 1, .dead_least = 20},
    {.step = "route { some: 100 / (x % 9) > 5, dear: v > 50.0, set: b }", .inputs = 1, .dead_least = 20},
    {.step = "route match all { some: 100 / (x % 9) > 5, dear: v > 50.0, set: b }",
     .inputs = 1,
     .dead_least = 20},
    {.step = "cast s = int, x = float, v = text, k = bool", .inputs = 1, .dead_least = 20},
    {.step = "cast s = try_int, ts = int", .inputs = 1},
    {.step = "clean { s: [upper, fill(\"none\")], x: clamp(0, 100), v: null_if(0.0) }", .inputs = 1},
    {.step = "bucketize v at [-100.0, 0.0, 100.0] as band", .inputs = 1},
    {.step = "cross k, s as pair", .inputs = 1},
    {.step = "hash s into 100 as spot", .inputs = 1},
    {.step = "rename key = k, text = s", .inputs = 1},
    {.step = "drop v, l", .inputs = 1},
    {.step = "sample 0.3", .inputs = 1, .added = ""},
    {.step = "sample 0.3 by k", .inputs = 1, .added = ""},
    {.step = "dedup by k within 5s", .inputs = 1, .added = "", .is_little = true},
    {.step = "dedup by k, s within forever", .inputs = 1, .added = ""},
    {.step = "dedup by k within forever keep last emit final", .inputs = 1, .added = ""},
    {.step = "attribute other on k, s within 25s as label", .inputs = 2, .added = "|null", .is_little = true},
    {.step = "attribute other on k within 25s as label take last { when: ts, ot: s, ol: l, ob: b }",
     .inputs = 2,
     .added = "|null|null|null|null|null"},
    {.step = "attribute other on k within 25s as label emit at_once { ot: s }",
     .inputs = 2,
     .added = "|null|null"},
    {.step = "enrich from other on k within 25s { oid: id, ox: x + 1, os: s, tags: l, at: ts, ob: b }",
     .inputs = 2,
     .is_little = true},
    {.step = "enrich from other on k, s within forever { oid: id, ov: v, tags: l }",
     .inputs = 2,
     .is_little = true},
    {.step = "feature by k over 30s every 1s { n: count(), t: sum(x) }",
     .inputs = 1,
     .is_little = true,
     .caches = true},
    {.step = "feature by k over [200s, 10s] every 500ms { n: count(), t: sum(v), o: distinct_exact(x) }",
     .inputs = 1,
     .caches = true},
    {.step = "feature by k, b over [20s, 10m] every 1s { " MANY " }",
     .inputs = 1,
     .is_little = true,
     .caches = true},
    {.step = "feature by k over [20s, 10m] every 1s including self { " MANY " }",
     .inputs = 1,
     .is_little = true,
     .caches = true},
    {.step = "feature by k over [20s, forever] every 1s { " MANY " }",
     .inputs = 1,
     .is_little = true,
     .caches = true},
    {.step = "feature by k over [20s, forever] every 1s including self { " MANY " }",
     .inputs = 1,
     .is_little = true,
     .caches = true},
    {.step = "feature by k over forever every 20s including self { " EXACT " }", .inputs = 1, .caches = true},
    {.step = "feature from other by k over [10s, 10m, forever] every 1s { " MANY " }",
     .inputs = 2,
     .is_little = true,
     .caches = true},
    {.step = "feature from other by k over 1m every 1s { n: count(), r: sum(100 / (x % 9)) }",
     .inputs = 2,
     .caches = true},
    {.step = "feature by k over [1m, forever] every 1s { n: count(), r: sum(100 / (x % 9)) }",
     .inputs = 1,
     .caches = true,
     .dead_least = 20},
    {.step = "feature by k over [1m, forever] every 1s including self { n: count(), r: sum(100 / (x % 9)) }",
     .inputs = 1,
     .caches = true,
     .dead_least = 20},
    {.step = "lookup \"TABLE\" on k { name: text, score: float }", .inputs = 1},
    {.step = "lookup \"TABLE\" on k kind inner { name: text, score: float }", .inputs = 1},
    {.step = "lookup \"TABLE\" on k refresh 1h { name: text }", .inputs = 1, .is_live = true},
};

/* --- Two operators side by side --- */

struct side {
    struct fake_engine engine;
    char path[TEMPORARY_PATH_BYTES];
};

static char directory[TEMPORARY_PATH_BYTES];

static const char *step_of(const struct read_case *one, char *text, size_t bytes)
{
    const char *table = strstr(one->step, "TABLE");
    if (table == NULL)
        return one->step;
    snprintf(text, bytes, "%.*s%s/table.csv%s", (int)(table - one->step), one->step, directory,
             table + strlen("TABLE"));
    return text;
}

static void side_open(struct side *side, const struct read_case *one, int64_t memory_bytes)
{
    char text[TEMPORARY_PATH_BYTES + 128], kept[TEMPORARY_PATH_BYTES + 16];
    temporary_make(side->path);
    fake_open(&side->engine, side->path, one->inputs);
    side->engine.registry = &registry;
    if (one->is_live) {
        snprintf(kept, sizeof(kept), "%s/kept", side->path);
        side->engine.calls.history =
            (struct operator_history){.directory = arena_strdup(&side->engine.arena, kept), .is_live = true};
    }
    if (!fake_bind(&side->engine, step_of(one, text, sizeof(text)), one->inputs)) {
        diag_print(stderr, &side->engine.diags, NULL, false);
        fail_msg("%s does not bind", one->step);
    }
    fake_start(&side->engine, 1, memory_bytes);
}

static void side_close(struct side *side)
{
    fake_close(&side->engine);
    temporary_remove(side->path);
}

static void compare_buffers(const struct read_case *one, const char *what, struct byte_buffer *got,
                            struct byte_buffer *expected)
{
    char text[256];
    snprintf(text, sizeof(text), "%.160s: %s", one->step, what);
    script_compare(text, fake_text(got), fake_text(expected));
}

/* Figures that tell how often state was looked up, and where it lies. */
static bool is_of_state(const char *name)
{
    return strncmp(name, "state_", strlen("state_")) == 0;
}

static void compare_reports(const struct read_case *one, struct side *asked, struct side *twin)
{
    struct report got = {0}, expected = {0};
    operator_report(asked->engine.kind, &asked->engine.lanes[0], &got);
    operator_report(twin->engine.kind, &twin->engine.lanes[0], &expected);
    assert_int_equal(got.count, expected.count);
    for (uint32_t i = 0; i < got.count; i++)
        if (!is_of_state(got.items[i].name) && got.items[i].value != expected.items[i].value)
            fail_msg("%s: %s is %g, %g where nobody asked", one->step, got.items[i].name, got.items[i].value,
                     expected.items[i].value);
}

/* With a tiny budget, requests must have met state that lay on disk. */
static void check_loaded(const struct read_case *one, struct side *asked)
{
    struct report report = {0};
    operator_report(asked->engine.kind, &asked->engine.lanes[0], &report);
    if (report_find(&report, "state_loaded")->value == 0)
        fail_msg("%s: nothing was read from disk", one->step);
}

static void compare_saved(const struct read_case *one, struct side *asked, struct side *twin)
{
    struct byte_buffer got = {0}, expected = {0};
    fake_barrier(&asked->engine);
    fake_publish(&asked->engine, false);
    fake_barrier(&twin->engine);
    fake_publish(&twin->engine, false);
    fake_saved(&asked->engine, &got);
    fake_saved(&twin->engine, &expected);
    if (got.length != expected.length || memcmp(fake_text(&got), fake_text(&expected), got.length) != 0)
        fail_msg("%s: asking changed the checkpoint: %zu bytes, %zu", one->step, got.length, expected.length);
    buffer_free(&got);
    buffer_free(&expected);
}

/* --- Requests --- */

/* Asks, and fails if that changes the operator's struct or the lane's counters. */
static void ask(const struct read_case *one, struct fake_engine *engine, const struct fake_row *rows,
                uint32_t count, struct fake_answers *answers)
{
    struct operator_context before = engine->lanes[0];
    void *config = memcpy(malloc(engine->kind->size), before.config, engine->kind->size);
    fake_ask(engine, rows, count, answers);
    assert_memory_equal(&engine->lanes[0], &before, sizeof(before));
    if (!one->caches && memcmp(config, before.config, engine->kind->size) != 0)
        fail_msg("%s: asking changes the operator's struct", one->step);
    free(config);
}

enum { ALIKE_US = 4 * US_PER_SECOND };

/* Several rows asked at once, some of one key, and some of these of one time, get the answers that each gets alone. */
static void ask_together(const struct read_case *one, struct fake_engine *engine, const struct fake_row *rows,
                         uint32_t count)
{
    static struct fake_row readers[SCRIPT_ROWS_MAX];
    uint32_t readers_count = 0;
    struct fake_answers together = {0}, alone = {0};
    for (uint32_t i = 0; i < count; i++)
        if (rows[i].input == 0) {
            readers[readers_count] = rows[i];
            readers[readers_count++].ts -= i % 4 == 0 ? 0 : rows[i].ts % ALIKE_US;
        }
    if (readers_count > 0)
        ask(one, engine, readers, readers_count, &together);
    for (uint32_t i = 0; i < readers_count; i++)
        ask(one, engine, &readers[i], 1, &alone);
    compare_buffers(one, "rows asked together", &together.output, &alone.output);
    script_compare_sorted(one->step, &together.late, &alone.late); /* each side's rows come together */
    compare_buffers(one, "reasons asked together", &together.dead, &alone.dead);
    fake_answers_free(&together);
    fake_answers_free(&alone);
}

static void append_from(struct byte_buffer *out, const struct byte_buffer *from, size_t begin)
{
    if (from->length > begin)
        buffer_append(out, from->data + begin, from->length - begin);
}

/* Gives the row to the operator; `made` gets what it makes of the row. */
static void give_asked(struct fake_engine *engine, const struct fake_row *row, int64_t watermark,
                       struct fake_answers *made)
{
    size_t output = engine->output.length, late = engine->late.length, dead = engine->dead.length;
    fake_micro_batch(engine, row, 1, watermark);
    append_from(&made->output, &engine->output, output);
    append_from(&made->late, &engine->late, late);
    append_from(&made->dead, &engine->dead, dead);
}

/* Asks about the row, gives it to the operator, and compares. Returns whether it was rejected. */
static bool check_row(const struct read_case *one, struct fake_engine *engine, const struct fake_row *row,
                      int64_t watermark)
{
    struct fake_answers answers = {0}, made = {0};
    if (row->input == 0)
        ask(one, engine, row, 1, &answers);
    give_asked(engine, row, watermark, &made);
    bool is_dead = made.dead.length > 0;
    if (row->input == 0 && one->added != NULL) {
        struct byte_buffer expected = {0};
        script_show_row(&expected, row);
        buffer_printf(&expected, "%s\n", one->added);
        compare_buffers(one, "a row that passes", &answers.output, &expected);
        assert_true(answers.late.length == 0 && answers.dead.length == 0);
        buffer_free(&expected);
    } else if (row->input == 0) {
        compare_buffers(one, "an answer", &answers.output, &made.output);
        compare_buffers(one, "an answer of a side", &answers.late, &made.late);
        compare_buffers(one, "a reason", &answers.dead, &made.dead);
    }
    fake_answers_free(&answers);
    fake_answers_free(&made);
    return is_dead && row->input == 0;
}

/* Both get the script row by row; before each row, one of them is asked. Returns how many were rejected. */
static uint32_t run_both(const struct read_case *one, const struct script *script, struct side *asked,
                         struct side *twin, bool is_little)
{
    uint32_t dead = 0;
    for (uint32_t n = 0; n < script->micro_batches; n++) {
        int64_t before = script_watermark_before(script, n);
        uint32_t first = script->first[n], limit = script->first[n + 1];
        if (n + 1 == script->micro_batches && !is_little)
            compare_saved(one, asked, twin);
        ask_together(one, &asked->engine, script->rows + first, limit - first);
        for (uint32_t i = first; i < limit; i++) {
            dead += check_row(one, &asked->engine, &script->rows[i], before);
            fake_micro_batch(&twin->engine, &script->rows[i], 1, before);
        }
        fake_micro_batch(&asked->engine, NULL, 0, script->watermarks[n]);
        fake_micro_batch(&twin->engine, NULL, 0, script->watermarks[n]);
    }
    return dead;
}

static uint32_t check_case(const struct read_case *one, uint64_t seed, bool is_little)
{
    static struct script script;
    static struct side asked, twin;
    struct script_options options = {.seed = seed,
                                     .inputs = one->inputs,
                                     .micro_batches = 40,
                                     .rows_per_number = 24,
                                     .keys = is_little       ? 150
                                             : seed % 2 == 0 ? 3
                                                             : 30,
                                     .step_us = 400000,
                                     .jitter_us = 5 * US_PER_SECOND,
                                     .delay_us = 8 * US_PER_SECOND,
                                     .has_odd_floats = seed % 3 == 0};
    script_make(&script, &options);
    side_open(&asked, one, is_little ? TINY_BYTES : PLENTY_BYTES);
    side_open(&twin, one, is_little ? TINY_BYTES : PLENTY_BYTES);
    uint32_t dead = run_both(one, &script, &asked, &twin, is_little);
    compare_buffers(one, "the output", &asked.engine.output, &twin.engine.output);
    compare_buffers(one, "the side outputs", &asked.engine.late, &twin.engine.late);
    struct counters got = fake_counters(&asked.engine), expected = fake_counters(&twin.engine);
    assert_memory_equal(&got, &expected, sizeof(got));
    compare_reports(one, &asked, &twin);
    if (is_little)
        check_loaded(one, &asked);
    side_close(&asked);
    side_close(&twin);
    return dead;
}

static void test_asked_and_twin(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        uint32_t dead = 0;
        for (uint64_t seed = 1; seed <= 3; seed++)
            dead += check_case(&cases[i], seed, false);
        if (dead < cases[i].dead_least)
            fail_msg("%s: only %u rows were rejected", cases[i].step, dead);
    }
}

/* Requests read entries that lie on disk. */
static void test_little_memory(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
        if (cases[i].is_little)
            (void)check_case(&cases[i], 5, true);
}

/* A kind that answers has a case above, and its `reading` is what the case shows. Those of a fan answer together, which
 * tests/serve/test_choosers.py shows. */
static void test_every_kind(void **state)
{
    (void)state;
    for (const struct operator_kind *const *kind = fake_operators; *kind != NULL; kind++) {
        size_t length = strlen((*kind)->name), found = 0;
        for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
            if (strncmp(cases[i].step, (*kind)->name, length) != 0 || cases[i].step[length] != ' ')
                continue;
            found++;
            if (((*kind)->reading == READING_PASS) != (cases[i].added != NULL))
                fail_msg("`reading` of `%s`", (*kind)->name);
        }
        if ((found > 0) != ((*kind)->read != NULL && (*kind)->fan == OPERATOR_FAN_NONE))
            fail_msg("`%s` has %zu cases", (*kind)->name, found);
    }
}

static int make_table(void **state)
{
    (void)state;
    char path[TEMPORARY_PATH_BYTES + 16];
    temporary_make(directory);
    snprintf(path, sizeof(path), "%s/table.csv", directory);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("k,name,score\n-1,below,0.5\n0,,1.5\n3,three,\n4,four,4.25\n17,a longer name,-1\n", file);
    fclose(file);
    return 0;
}

static int remove_table(void **state)
{
    (void)state;
    temporary_remove(directory);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_kind),
                                       cmocka_unit_test(test_asked_and_twin),
                                       cmocka_unit_test(test_little_memory)};
    return cmocka_run_group_tests(tests, make_table, remove_table);
}

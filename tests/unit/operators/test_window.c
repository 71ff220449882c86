/* window against a model that keeps every row. */
#include "keyed_script.h"

#include "operators/window/windows.h"

#include "unit/support/temporary.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* A part is a window or session of one group, with its own list of rows. */
enum { MEMBERS_MAX = 1 << 17, PARTS_MAX = 1 << 15 };

struct part {
    uint32_t key_row; /* a row of the group */
    int64_t start, end, last;
    uint32_t first_member, last_member; /* indices into `members`, linked by `next` */
    bool is_gone;
};

struct model {
    const struct script *script;
    enum windows_tag tag;
    int64_t size, slide, lateness;
    struct part parts[PARTS_MAX];
    uint32_t parts_count;
    uint32_t members[MEMBERS_MAX], next[MEMBERS_MAX];
    uint32_t members_count;
    struct byte_buffer out;
    struct counters counters;
};

static bool is_same_group(const struct fake_row *a, const struct fake_row *b)
{
    return a->has_k == b->has_k && (!a->has_k || a->k == b->k) && a->b == b->b;
}

static void add_member(struct model *m, struct part *part, uint32_t row)
{
    uint32_t at = ++m->members_count; /* index 0 means no member */
    assert_true(at < MEMBERS_MAX);
    m->members[at] = row;
    m->next[at] = 0;
    if (part->last_member == 0)
        part->first_member = at;
    else
        m->next[part->last_member] = at;
    part->last_member = at;
}

static struct part *add_part(struct model *m, uint32_t row, int64_t start, int64_t end)
{
    assert_true(m->parts_count < PARTS_MAX);
    struct part *part = &m->parts[m->parts_count++];
    *part = (struct part){.key_row = row, .start = start, .end = end, .last = m->script->rows[row].ts};
    return part;
}

static void emit_part(struct model *m, struct part *part)
{
    int64_t n = 0, last = INT64_MIN;
    double total = 0;
    const char *word = NULL;
    const struct fake_row *key = &m->script->rows[part->key_row];
    for (uint32_t at = part->first_member; at != 0; at = m->next[at]) {
        const struct fake_row *row = &m->script->rows[m->members[at]];
        n++;
        total += row->has_v ? row->v : 0;
        if (row->s != NULL && row->ts >= last) {
            last = row->ts;
            word = row->s;
        }
    }
    part->is_gone = true;
    m->counters.emitted++;
    script_show_value(&m->out, key->has_k, key->k);
    buffer_printf(&m->out, "|%d|", key->b);
    if (m->tag != WINDOWS_FOREVER)
        buffer_printf(&m->out, "%lld|%lld|", (long long)part->start, (long long)part->end);
    buffer_printf(&m->out, "%lld|%.17g|%s\n", (long long)n, total, word == NULL ? "null" : word);
}

/* Adds the row to a window. Returns false if the window is closed. */
static bool add_to_window(struct model *m, uint32_t row, int64_t start, int64_t end, int64_t watermark)
{
    if (watermark != TIME_MIN && time_add(end, m->lateness) <= watermark)
        return false;
    for (uint32_t i = 0; i < m->parts_count; i++) {
        struct part *part = &m->parts[i];
        if (part->start != start || part->end != end ||
            !is_same_group(&m->script->rows[part->key_row], &m->script->rows[row]))
            continue;
        add_member(m, part, row);
        return true;
    }
    add_member(m, add_part(m, row, start, end), row);
    return true;
}

static bool add_to_windows(struct model *m, uint32_t row, int64_t watermark)
{
    int64_t ts = m->script->rows[row].ts, slide = m->slide, first = ts / slide * slide;
    bool is_in = false;
    switch (m->tag) {
    case WINDOWS_CUMULATING:
        first = ts / m->size * m->size;
        for (int64_t end = first + slide; end <= first + m->size; end += slide)
            if (end > ts)
                is_in |= add_to_window(m, row, first, end, watermark);
        return is_in;
    case WINDOWS_FOREVER: return add_to_window(m, row, TIME_MIN, TIME_MAX, TIME_MIN);
    default:
        for (int64_t start = first; start > ts - m->size; start -= slide)
            is_in |= add_to_window(m, row, start, start + m->size, watermark);
        return is_in;
    }
}

static bool add_to_session(struct model *m, uint32_t row, int64_t watermark)
{
    const struct fake_row *r = &m->script->rows[row];
    struct part *into = NULL;
    for (uint32_t i = 0; i < m->parts_count; i++) {
        struct part *part = &m->parts[i];
        if (part->is_gone || !is_same_group(&m->script->rows[part->key_row], r) ||
            r->ts < part->start - m->size || r->ts > part->last + m->size)
            continue;
        if (into == NULL) {
            into = part;
            continue;
        }
        into->start = MIN(into->start, part->start);
        into->last = MAX(into->last, part->last);
        m->next[into->last_member] = part->first_member;
        into->last_member = part->last_member;
        part->is_gone = true;
    }
    if (into == NULL && watermark != TIME_MIN && r->ts + m->size + m->lateness < watermark)
        return false;
    if (into == NULL)
        into = add_part(m, row, r->ts, 0);
    into->start = MIN(into->start, r->ts);
    into->last = MAX(into->last, r->ts);
    into->end = into->last + m->size;
    add_member(m, into, row);
    return true;
}

static bool add_to_counts(struct model *m, uint32_t row)
{
    /* Window k of a group begins at its row k * slide; `last` of the group's first part counts
     * the group's rows. */
    struct part *first = NULL;
    for (uint32_t i = 0; i < m->parts_count && first == NULL; i++)
        if (is_same_group(&m->script->rows[m->parts[i].key_row], &m->script->rows[row]))
            first = &m->parts[i];
    if (first == NULL) {
        first = add_part(m, row, INT64_MAX, INT64_MIN);
        first->last = 0;
        first->is_gone = true;
    }
    add_member(m, first, row);
    int64_t count = ++first->last;
    if (count < m->size || (count - m->size) % m->slide != 0)
        return true;
    struct part window = {.key_row = row, .start = INT64_MAX, .end = INT64_MIN};
    uint32_t at = first->first_member;
    for (int64_t i = 0; i < count - m->size; i++)
        at = m->next[at];
    window.first_member = at;
    for (; at != 0; at = m->next[at]) {
        window.start = MIN(window.start, m->script->rows[m->members[at]].ts);
        window.end = MAX(window.end, m->script->rows[m->members[at]].ts + 1);
    }
    emit_part(m, &window);
    return true;
}

/* Writes the lines that the step must emit, unsorted. */
static void model_run(struct model *m)
{
    const struct script *script = m->script;
    for (uint32_t n = 0, row = 0; n < script->micro_batches; n++) {
        int64_t before = script_watermark_before(script, n), after = script->watermarks[n];
        for (; row < script->count && script->micro_batch_of[row] == n; row++) {
            bool is_in = m->tag == WINDOWS_SESSION ? add_to_session(m, row, before)
                         : m->tag == WINDOWS_COUNT ? add_to_counts(m, row)
                                                   : add_to_windows(m, row, before);
            m->counters.in++;
            m->counters.null_keys += !script->rows[row].has_k;
            m->counters.late += !is_in;
            m->counters.absorbed += is_in;
        }
        for (uint32_t i = 0; i < m->parts_count; i++)
            if (!m->parts[i].is_gone &&
                (m->tag == WINDOWS_SESSION ? m->parts[i].end + m->lateness < after
                                           : time_add(m->parts[i].end, m->lateness) <= after))
                emit_part(m, &m->parts[i]);
    }
    fake_text(&m->out);
}

static const struct {
    const char *over;
    enum windows_tag tag;
    int64_t size, slide; /* in seconds, or in rows */
    bool can_be_late;
} shapes[] = {{"tumbling(20s)", WINDOWS_TUMBLING, 20, 20, true},
              {"sliding(20s, 5s)", WINDOWS_SLIDING, 20, 5, true},
              {"sliding(20s, 8s)", WINDOWS_SLIDING, 20, 8, true},
              {"cumulating(60s, 10s)", WINDOWS_CUMULATING, 60, 10, true},
              {"session(2s)", WINDOWS_SESSION, 2, 0, true},
              {"count(7) expire_after forever", WINDOWS_COUNT, 7, 7, false},
              {"count(12, 4) expire_after forever", WINDOWS_COUNT, 12, 4, false},
              {"count(10, 3) expire_after forever", WINDOWS_COUNT, 10, 3, false},
              {"forever", WINDOWS_FOREVER, 0, 1, false}};

static void test_against_model(void **state)
{
    (void)state;
    static struct script script;
    static struct model m;
    for (uint64_t seed = 1; seed <= ARRAY_COUNT(shapes); seed++) {
        struct script_options options = {.seed = seed,
                                         .inputs = 1,
                                         .micro_batches = 40,
                                         .rows_per_number = 50,
                                         .keys = seed % 3 == 0 ? 5 : 60};
        size_t shape = seed % ARRAY_COUNT(shapes);
        bool has_lateness = shapes[shape].can_be_late && seed % 2 == 1;
        int64_t unit = shapes[shape].tag == WINDOWS_COUNT ? 1 : US_PER_SECOND;
        script_make(&script, &options);
        m = (struct model){.script = &script,
                           .tag = shapes[shape].tag,
                           .size = shapes[shape].size * unit,
                           .slide = shapes[shape].slide * unit,
                           .lateness = has_lateness ? 7 * US_PER_SECOND : 0};
        model_run(&m);
        char step[256];
        snprintf(step, sizeof(step), "window by k, b over %s %s { n: count(), total: sum(v), word: last(s) }",
                 shapes[shape].over, has_lateness ? "lateness 7s" : "");
        struct script_result plain;
        script_check_variants(step, &script, &options, &plain);
        script_compare_sorted(step, &plain.output, &m.out);
        assert_memory_equal(&plain.counters, &m.counters, sizeof(m.counters));
        assert_true(m.counters.emitted > 0);
        assert_true((m.counters.late > 0) == shapes[shape].can_be_late);
        buffer_free(&m.out);
        script_free(&plain);
    }
}

/* --- Results that change --- */

/* Applying all changes, with any `emit`, must give the rows that the model emits once. */
static void test_changes_against_model(void **state)
{
    (void)state;
    static struct script script;
    static struct model m;
    static const char *const emits[] = {"on_change", "every(5s)", "on_end"};
    uint64_t seed = 100;
    for (size_t shape = 0; shape < ARRAY_COUNT(shapes); shape++)
        for (size_t e = 0; e < ARRAY_COUNT(emits); e++) {
            bool is_forever = shapes[shape].tag == WINDOWS_FOREVER;
            bool is_chosen = shapes[shape].tag == WINDOWS_SESSION || (shape + e) % 3 == 0;
            if (shapes[shape].tag == WINDOWS_COUNT || (is_forever && e == 2) || !is_chosen)
                continue;
            struct script_options options = {.seed = ++seed,
                                             .inputs = 1,
                                             .micro_batches = 40,
                                             .rows_per_number = 40,
                                             .keys = e == 0 ? 5 : 30,
                                             .step_us = 200000,
                                             .jitter_us = 4 * US_PER_SECOND,
                                             .delay_us = 3 * US_PER_SECOND};
            script_make(&script, &options);
            m = (struct model){.script = &script,
                               .tag = shapes[shape].tag,
                               .size = shapes[shape].size * US_PER_SECOND,
                               .slide = shapes[shape].slide * US_PER_SECOND,
                               .lateness = is_forever || seed % 4 == 0 ? 0 : 11 * US_PER_SECOND};
            model_run(&m);
            char step[256];
            snprintf(step, sizeof(step),
                     "window by k, b over %s %s emit %s { n: count(), total: sum(v), word: last(s) }",
                     shapes[shape].over, m.lateness > 0 ? "lateness 11s" : "", emits[e]);
            struct script_result plain;
            struct byte_buffer table = {0};
            script_check_variants(step, &script, &options, &plain);
            script_apply_changes(&plain.output,
                                 is_forever                             ? 2
                                 : shapes[shape].tag == WINDOWS_SESSION ? 3
                                                                        : 4,
                                 &table);
            script_compare_sorted(step, &table, &m.out);
            assert_int_equal(plain.counters.late, m.counters.late);
            assert_true(is_forever || plain.counters.emitted > m.counters.emitted || e == 2);
            buffer_free(&table);
            buffer_free(&m.out);
            script_free(&plain);
        }
}

/* Runs one step on a story of micro-batches: `@W` ends one with watermark W in seconds; other numbers are
 * event times of rows in seconds. A `.` line in `expected` ends the output of a micro-batch. */
static void check_story(const char *step, const char *story, const char *expected)
{
    struct fake_engine engine;
    fake_open(&engine, NULL, 1);
    char text[256];
    snprintf(text, sizeof(text), "window by s %s { n: count() }", step);
    if (!fake_bind(&engine, text, 1)) {
        diag_print(stderr, &engine.diags, NULL, false);
        fail_msg("%s", text);
    }
    fake_start(&engine, 1, 1 << 20);
    struct fake_row rows[32];
    uint32_t count = 0;
    for (const char *at = story; *at != '\0';) {
        char *end;
        bool is_watermark = *at == '@';
        double second = strtod(at + is_watermark, &end);
        at = *end == ' ' ? end + 1 : end;
        if (!is_watermark) {
            rows[count++] = (struct fake_row){.ts = (int64_t)(second * 1e6), .s = "a"};
            continue;
        }
        fake_micro_batch(&engine, rows, count, second < 0 ? TIME_MAX : (int64_t)(second * 1e6));
        buffer_printf(&engine.output, ".\n");
        count = 0;
    }
    if (strcmp(fake_text(&engine.output), expected) != 0)
        fail_msg("%s with %s:\n%s\nexpected\n%s", step, story, fake_text(&engine.output), expected);
    fake_close(&engine);
}

static void test_stories(void **state)
{
    (void)state;
    /* on_end: a row at the window's end, corrections with each micro-batch, none after end + lateness. */
    check_story("over tumbling(10s) lateness 5s emit on_end", "1 2 @9 3 @10 4 5 @12 @16 6 @17",
                ".\na|0|10000000|3|insert\n.\na|0|10000000|5|update\n.\n.\n.\n");
    check_story("over tumbling(10s) lateness 5s", "1 2 @9 3 @10 4 5 @12 @16 6 @17",
                ".\n.\n.\na|0|10000000|5\n.\n.\n");
    check_story("over tumbling(10s) emit on_change", "1 11 @2 1 2 @3 11 @11",
                "a|0|10000000|1|insert\na|10000000|20000000|1|insert\n.\na|0|10000000|3|update\n.\n"
                "a|10000000|20000000|2|update\n.\n");
    /* every: by the watermark; only groups that changed, and at a window's end no repetition
     * of unchanged ones. */
    check_story("over tumbling(10s) emit every(4s)", "1 @1 2 @2 @5 @8 3 @9 @10",
                "a|0|10000000|1|insert\n.\n.\na|0|10000000|2|update\n.\n.\n.\na|0|10000000|3|update\n.\n");
    check_story("over tumbling(10s) emit final", "1 @9 11 @20 2 @30 @-1",
                ".\n.\n.\na|0|10000000|2\na|10000000|20000000|1\n.\n");
    check_story("over forever", "1 @9 11 @20 2 @30 @-1", ".\n.\n.\na|3\n.\n");
    check_story("over forever emit on_change", "1 @9 @20 2 3 @30 @-1",
                "a|1|insert\n.\n.\na|3|update\n.\n.\n");
    check_story("over count(3) expire_after forever", "1 5 3 9 @9 4 2 @-1",
                "a|1000000|5000001|3\n.\na|2000000|9000001|3\n.\n");
    check_story("over count(3, 1) expire_after forever", "1 5 3 9 @9",
                "a|1000000|5000001|3\na|3000000|9000001|3\n.\n");
    /* A group lives until the watermark is beyond its newest row + 10 s; then its rows are counted anew. */
    check_story("over count(2) expire_after 10s", "1 @11 2 @12", ".\na|1000000|2000001|2\n.\n");
    check_story("over count(2) expire_after 10s", "1 @11.000001 3 @12 4 @13",
                ".\n.\na|3000000|4000001|2\n.\n");
    check_story("over count(2, 1) expire_after 10s", "1 2 @12.000001 3 @13 4 @14",
                "a|1000000|2000001|2\n.\n.\na|3000000|4000001|2\n.\n");
    check_story("over count(3) expire_after 10s", "1 @2 9 @3 5 @19 9 @20",
                ".\n.\na|1000000|9000001|3\n.\n.\n");
    /* A row that is that far behind the watermark is late. */
    check_story("over count(2) expire_after 10s", "20 @12 1 1.999999 2 @13", ".\na|2000000|20000001|2\n.\n");
    check_story("over sliding(4s, 2s)", "1 3 @2 @4 @6",
                "a|-2000000|2000000|1\n.\na|0|4000000|2\n.\na|2000000|6000000|1\n.\n");
    check_story("over cumulating(4s, 2s)", "1 3 @2 @4 @6", "a|0|2000000|1\n.\na|0|4000000|2\n.\n.\n");
    /* Rows arrive 5 s after their event time. */
    check_story("over tumbling(10s) time arrival", "1 2 6 @10 5 @20",
                "a|0|10000000|2\n.\na|10000000|20000000|2\n.\n");
    check_story("over session(10s) time arrival", "1 11 @25 @27", ".\na|6000000|26000000|2\n.\n");
    /* An event exactly one gap after the last one joins; a session closes when the watermark is
     * beyond its end. */
    check_story("over session(10s)", "1 11 @21 21 @31 @31.000001", ".\n.\na|1000000|31000000|3\n.\n");
    check_story("over session(10s)", "1 11.000001 @11 @11.000001 @21.000002",
                ".\na|1000000|11000000|1\n.\na|11000001|21000001|1\n.\n");
    /* A late row joins two sessions that were emitted: one is deleted, the other one updated. */
    check_story("over session(10s) lateness 60s emit on_end", "1 21 @32 11 @33 @100",
                "a|1000000|11000000|1|insert\na|21000000|31000000|1|insert\n.\n"
                "a|1000000|31000000|3|update\na|21000000|31000000|1|delete\n.\n.\n");
    /* A late row prolongs a session that was emitted: it is emitted again at its new end. */
    check_story("over session(10s) lateness 60s emit on_end", "1 @12 8 @13 @19 @100",
                "a|1000000|11000000|1|insert\n.\n.\na|1000000|18000000|2|update\n.\n.\n");
    /* A session that ends and closes at the same watermark: a row that comes afterwards is late. */
    check_story("over session(10s) lateness 5s emit on_end", "1 39 @40 2 @41",
                "a|1000000|11000000|1|insert\n.\n.\n");
    check_story(
        "over session(10s) emit on_change", "5 @0 1 @0 20 @1 12 @2",
        "a|5000000|15000000|1|insert\n.\na|1000000|15000000|2|insert\na|5000000|15000000|1|delete\n.\n"
        "a|20000000|30000000|1|insert\n.\n"
        "a|1000000|30000000|4|update\na|20000000|30000000|1|delete\n.\n");
    check_story("over session(10s) emit every(5s)", "1 @3 2 @4 @6 @12 @12.1",
                "a|1000000|11000000|1|insert\n.\n.\na|1000000|12000000|2|update\n.\n.\n.\n");
    check_story("over session(10s) emit final", "1 @30 11 30 @40 @-1",
                ".\n.\na|1000000|21000000|2\na|30000000|40000000|1\n.\n");
}

/* Rows come in order of window end, also when several windows close at once; their event time is end
 * - 1 us. */
static void test_order_of_closing(void **state)
{
    (void)state;
    struct fake_engine engine;
    fake_open(&engine, NULL, 1);
    assert_true(fake_bind(&engine, "window by s over tumbling(10s) { n: count() }", 1));
    assert_true(engine.bind.is_timer_kind && engine.bind.outputs[1] == engine.schema[0]);
    fake_start(&engine, 1, 1 << 20);
    struct fake_row rows[4] = {{.ts = 25 * US_PER_SECOND, .s = "a text of more than fifteen bytes"},
                               {.ts = 9999999, .s = "a text of more than fifteen bytes"},
                               {.ts = 10 * US_PER_SECOND, .s = NULL},
                               {.ts = -1, .s = ""}};
    fake_micro_batch(&engine, rows, 4, 9999999);
    assert_string_equal(fake_text(&engine.output), "|-10000000|0|1\n");
    fake_micro_batch(&engine, rows, 0, 20 * US_PER_SECOND);
    fake_micro_batch(&engine, rows, 0, 25 * US_PER_SECOND); /* no window ends at 25 s */
    assert_string_equal(
        fake_text(&engine.output),
        "|-10000000|0|1\na text of more than fifteen bytes|0|10000000|1\nnull|10000000|20000000|1\n");
    struct fake_row late = {.ts = 19999999, .s = "z"};
    fake_micro_batch(&engine, &late, 1, TIME_MAX);
    assert_int_equal(engine.lanes[0].counters.late, 1);
    assert_string_equal(fake_text(&engine.late), "0|null|null|null|z|0|19999999|[]\n");
    assert_int_equal(engine.lanes[0].counters.emitted, 4);
    fake_close(&engine);
}

/* A hundred thousand groups close at once: output batches have at most 1,024 rows. */
static void test_many_at_once(void **state)
{
    (void)state;
    enum { GROUPS = 100000, STEP = 5000 };
    static struct fake_row rows[STEP];
    struct fake_engine engine;
    fake_open(&engine, NULL, 1);
    assert_true(fake_bind(&engine, "window by k over tumbling(1h) { n: count() }", 1));
    fake_start(&engine, 1, 64 << 20);
    for (int64_t at = 0; at < GROUPS; at += STEP) {
        for (int64_t i = 0; i < STEP; i++)
            rows[i] = (struct fake_row){.id = at + i, .k = at + i, .has_k = true};
        fake_micro_batch(&engine, rows, STEP, TIME_MIN + 1);
    }
    fake_micro_batch(&engine, rows, 0, TIME_MAX);
    assert_int_equal(engine.lanes[0].counters.emitted, GROUPS);
    assert_int_equal(engine.batch_rows_max, BATCH_ROWS);
    assert_false(engine.is_out_of_order);
    fake_close(&engine);
}

/* Closes many sessions at once, most of them on disk: some have been prolonged, some keys have several, and
 * one key has more timers than a batch takes. */
static void close_sessions(const char *step, bool is_small, uint32_t lanes, struct byte_buffer *out)
{
    enum { KEYS = 12000, SESSIONS = 1500, STEP = 4000 };
    static struct fake_row rows[5 * KEYS + SESSIONS];
    char path[TEMPORARY_PATH_BYTES], text[128];
    struct fake_engine engine;
    uint32_t count = 0;
    temporary_make(path);
    fake_open(&engine, path, 1);
    snprintf(text, sizeof(text), "window by k %s { n: count(), s: sum(x) }", step);
    assert_true(fake_bind(&engine, text, 1));
    fake_start(&engine, lanes, is_small ? 256 << 10 : 64 << 20);
    for (int64_t i = 0; i < KEYS; i++) {
        static const int64_t starts[] = {0, 7, 14, 30, 300};
        static const int64_t every[] = {1, 5, 500, 3, 7};
        for (size_t k = 0; k < ARRAY_COUNT(starts); k++)
            if (i % every[k] == 0)
                rows[count++] = (struct fake_row){.k = i,
                                                  .has_k = true,
                                                  .x = count,
                                                  .has_x = true,
                                                  .ts = starts[k] * US_PER_SECOND + i * 7};
    }
    for (int64_t i = 0; i < SESSIONS; i++)
        rows[count++] = (struct fake_row){.k = KEYS, .has_k = true, .ts = (100 + 11 * i) * US_PER_SECOND};
    for (uint32_t at = 0; at < count; at += STEP)
        fake_micro_batch(&engine, rows + at, MIN(count - at, STEP), TIME_MIN + 1);
    fake_barrier(&engine);
    fake_publish(&engine, false);
    fake_stop(&engine);
    fake_start(&engine, lanes, is_small ? 256 << 10 : 64 << 20);
    fake_micro_batch(&engine, rows, 0, 20 * US_PER_SECOND);
    /* Closes few: the sessions prolonged after their timer was set. */
    fake_micro_batch(&engine, rows, 0, 25 * US_PER_SECOND);
    for (uint32_t i = 0; i < 500; i++) /* some rows join open sessions, some are late */
        rows[i].ts = (24 + i % 15) * US_PER_SECOND;
    fake_micro_batch(&engine, rows, 500, 250 * US_PER_SECOND);
    fake_barrier(&engine);
    fake_publish(&engine, false);
    fake_stop(&engine);
    fake_start(&engine, lanes, is_small ? 256 << 10 : 64 << 20);
    fake_micro_batch(&engine, rows, 0, TIME_MAX);
    struct counters counters = fake_counters(&engine);
    assert_true(counters_balance(&counters) && counters.emitted > 0);
    assert_false(engine.is_out_of_order);
    buffer_append(out, engine.output.data, engine.output.length);
    buffer_append(out, "", 1);
    fake_close(&engine);
    temporary_remove(path);
}

static void test_sessions_at_once(void **state)
{
    (void)state;
    static const char *const steps[] = {"over session(10s)", "over session(10s) emit final",
                                        "over session(10s) lateness 5s emit on_end"};
    for (size_t i = 0; i < ARRAY_COUNT(steps); i++) {
        struct byte_buffer small = {0}, large = {0}, lanes = {0};
        close_sessions(steps[i], false, 1, &large);
        close_sessions(steps[i], true, 1, &small);
        close_sessions(steps[i], true, 3, &lanes);
        script_compare(steps[i], small.data, large.data);
        script_compare(steps[i], lanes.data, large.data);
        buffer_free(&small);
        buffer_free(&large);
        buffer_free(&lanes);
    }
}

static void test_diagnostics(void **state)
{
    (void)state;
    static const struct script_refusal cases[] = {
        {"window by k over tumbling(0s) { n: count() }", DIAG_OUT_OF_RANGE},
        {"window by k over tumbling() { n: count() }", DIAG_OUT_OF_RANGE},
        {"window by k over 1h { n: count() }", DIAG_NOT_A_CHOICE},
        {"window by k over forever emit on_close { n: count() }", DIAG_OPTIONS_CLASH},
        {"window by k over forever emit on_end { n: count() }", DIAG_OPTIONS_CLASH},
        {"window by k over count(5) expire_after 1d emit final { n: count() }", DIAG_OPTIONS_CLASH},
        {"window by k over count(5) expire_after 1d lateness 1s { n: count() }", DIAG_OPTIONS_CLASH},
        {"window by k over tumbling(1h) lateness 1s emit final { n: count() }", DIAG_OPTIONS_CLASH},
        {"window by k over tumbling(1h) emit every { n: count() }", DIAG_OUT_OF_RANGE},
        {"window by k over tumbling(1h) emit every(0s) { n: count() }", DIAG_OUT_OF_RANGE},
        {"window by k over tumbling(1h) emit on_close(1s) { n: count() }", DIAG_OUT_OF_RANGE},
        {"window by k over tumbling(1h) emit on_clothes { n: count() }", DIAG_NOT_A_CHOICE},
        {"window by k over tumbling(1h) emit on_end { _op: count() }", DIAG_COLUMN_TAKEN},
        {"window by k over thumbling(1h) { n: count() }", DIAG_NOT_A_CHOICE},
        {"window by k over tumbling(1h) { n: since_last() }", DIAG_BAD_AGGREGATE},
        {"window by k over tumbling(1h) { k: count() }", DIAG_COLUMN_TAKEN},
        {"window by k over tumbling(1h) { window_end: count() }", DIAG_COLUMN_TAKEN},
        {"window by k over tumbling(1h)", DIAG_OPTION_MISSING},
        {"window by k over count(5) { n: count() }", DIAG_OPTION_MISSING},
        {"window by k over count(5) expire_after 0s { n: count() }", DIAG_OUT_OF_RANGE},
        {"window by k over forever expire_after 1d { n: count() }", DIAG_OPTIONS_CLASH},
        {"window over tumbling(1h) { n: count() }", DIAG_OPTION_MISSING}};
    script_check_refusals(cases, ARRAY_COUNT(cases), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_of_closing), cmocka_unit_test(test_diagnostics),
        cmocka_unit_test(test_stories),          cmocka_unit_test(test_changes_against_model),
        cmocka_unit_test(test_many_at_once),     cmocka_unit_test(test_against_model),
        cmocka_unit_test(test_sessions_at_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

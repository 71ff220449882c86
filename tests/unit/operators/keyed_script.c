#include "keyed_script.h"

#include "unit/support/scan.h"
#include "unit/support/temporary.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { LANES_MAX = 5, TINY_BYTES = 12000, PLENTY_BYTES = 64 << 20, STEPS_ON = 8 };

static const char *const words[] = {"mobile", "desktop", "", "tv", "a longer text than fits into a key", "x"};

void script_make(struct script *script, const struct script_options *options)
{
    struct test_random random = {options->seed * 7919};
    int64_t now = 1000 * US_PER_DAY, largest = now;
    int64_t step_us = options->step_us == 0 ? 300000 : options->step_us;
    int64_t jitter_us = options->jitter_us == 0 ? 4 * US_PER_SECOND : options->jitter_us;
    int64_t delay_us = options->delay_us == 0 ? 6 * US_PER_SECOND : options->delay_us;
    memset(script, 0, sizeof(*script));
    script->micro_batches = options->micro_batches;
    for (uint32_t n = 0; n < options->micro_batches; n++) {
        script->first[n] = script->count;
        uint32_t rows = random_below(&random, options->rows_per_number + 1);
        for (uint32_t i = 0; i < rows && script->count < SCRIPT_ROWS_MAX; i++) {
            struct fake_row *row = &script->rows[script->count];
            *row = (struct fake_row){.input = random_below(&random, options->inputs), .id = script->count};
            now += random_chance(&random, 30) ? 0 : random_below(&random, (uint32_t)step_us * 2);
            row->ts = now - jitter_us + random_below(&random, (uint32_t)jitter_us * 2 + 1);
            if (random_chance(&random, 2))
                row->ts -= delay_us * (random_chance(&random, 50) ? 3 : 15); /* late */
            if (random_chance(&random, 1))
                row->ts += delay_us * 20; /* far ahead; does not move the watermark */
            else
                largest = MAX(largest, row->ts);
            row->k = (int64_t)random_below(&random, options->keys) - 2;
            row->x = (int64_t)random_below(&random, 1000) - 300;
            row->v = options->has_odd_floats
                         ? (double)random_next(&random) * 1e-15 * (random_chance(&random, 50) ? 1 : 1e6)
                         : (double)random_below(&random, 4000) * 0.25 - 200;
            row->s = random_chance(&random, 10) ? NULL : words[random_below(&random, ARRAY_COUNT(words))];
            row->b = random_chance(&random, 50);
            row->has_k = !random_chance(&random, 5);
            row->has_x = !random_chance(&random, 10);
            row->has_v = !random_chance(&random, 10);
            row->list = random_chance(&random, 10) ? UINT32_MAX : random_below(&random, 4);
            script->micro_batch_of[script->count++] = n;
        }
        script->watermarks[n] = largest - delay_us;
    }
    script->first[script->micro_batches] = script->count;
    script->watermarks[script->micro_batches - 1] = TIME_MAX; /* the sources have ended */
}

int64_t script_watermark_before(const struct script *script, uint32_t micro_batch)
{
    return micro_batch == 0 ? TIME_MIN : script->watermarks[micro_batch - 1];
}

/* The state to continue from after a kill: the next micro-batch, and the lengths of both outputs. */
struct saved {
    uint32_t micro_batch;
    size_t output, late;
};

static void give(struct fake_engine *engine, const struct script *script, uint32_t micro_batch)
{
    fake_micro_batch(engine, script->rows + script->first[micro_batch],
                     script->first[micro_batch + 1] - script->first[micro_batch],
                     script->watermarks[micro_batch]);
}

/* Most changes take groups from one lane alone, which then gets nothing; others from all lanes. */
static void announce_moves(struct fake_engine *engine, struct test_random *random)
{
    struct placement next = engine->placement;
    uint32_t giver = random_below(random, engine->lanes_count + 1);
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        if ((giver == engine->lanes_count || next.instance[group] == giver) && random_chance(random, 40))
            placement_move(&next, group, random_below(random, engine->lanes_count));
    next.version++;
    fake_announce(engine, &next);
}

static void take_barrier(struct fake_engine *engine, struct test_random *random, struct script_result *result)
{
    while (engine->is_announced && engine->round < FAKE_ROUNDS)
        fake_bases(engine);
    fake_barrier(engine);
    if (engine->is_announced) {
        fake_change(engine);
        result->moves++;
    } else if (engine->lanes_count > 1) {
        announce_moves(engine, random);
    }
}

static void run_with_kills(struct fake_engine *engine, const struct script *script,
                           struct test_random *random, struct script_result *result)
{
    struct saved published = {0}, pending = {0};
    for (uint32_t n = 0; n < script->micro_batches;) {
        give(engine, script, n);
        n++;
        if (engine->is_announced && engine->round < FAKE_ROUNDS && random_chance(random, 50))
            fake_bases(engine);
        bool is_late =
            result->moves == 0 && n > script->micro_batches / 4; /* then steps to a move follow each other */
        uint32_t what = is_late ? STEPS_ON : random_below(random, 100);
        if (engine->writer != NULL && what < 50) {
            bool is_abandoned = what < STEPS_ON;
            fake_publish(engine, is_abandoned);
            if (!is_abandoned)
                published = pending;
        } else if (engine->writer == NULL && what < 40) {
            take_barrier(engine, random, result);
            pending = (struct saved){n, engine->output.length, engine->late.length};
        } else if (n < script->micro_batches && result->moves > 0 &&
                   (what < 50 || (result->kills == 0 && n > script->micro_batches / 2))) {
            fake_stop(engine);
            engine->output.length = published.output;
            engine->late.length = published.late;
            engine->watermark = TIME_MIN;
            engine->micro_batch = engine->rows_given = 0;
            n = published.micro_batch;
            fake_start(engine, 1 + random_below(random, LANES_MAX),
                       random_chance(random, 50) ? TINY_BYTES : PLENTY_BYTES);
            result->kills++;
        }
    }
}

void script_run(const char *step, const struct script *script, const struct script_options *options,
                enum script_variant variant, struct script_result *result)
{
    struct fake_engine engine;
    struct test_random random = {options->seed * 31 + variant};
    char path[TEMPORARY_PATH_BYTES];
    temporary_make(path);
    fake_open(&engine, variant >= SCRIPT_TINY ? path : NULL, options->inputs);
    engine.random.state = options->seed + variant;
    if (!fake_bind(&engine, step, options->inputs)) {
        diag_print(stderr, &engine.diags, NULL, false);
        fail_msg("%s does not bind", step);
    }
    *result = (struct script_result){0};
    uint32_t least = variant == SCRIPT_KILLS ? 2 : 1,
             lanes = least + random_below(&random, LANES_MAX + 1 - least);
    bool is_tiny = variant == SCRIPT_TINY || (variant == SCRIPT_KILLS && random_chance(&random, 50));
    fake_start(&engine, variant == SCRIPT_PLAIN ? 1 : lanes, is_tiny ? TINY_BYTES : PLENTY_BYTES);
    if (variant == SCRIPT_KILLS)
        run_with_kills(&engine, script, &random, result);
    else
        for (uint32_t n = 0; n < script->micro_batches; n++)
            give(&engine, script, n);
    result->counters = fake_counters(&engine);
    result->batch_rows_max = engine.batch_rows_max;
    result->is_out_of_order = engine.is_out_of_order;
    buffer_append(&result->output, engine.output.data, engine.output.length);
    buffer_append(&result->late, engine.late.data, engine.late.length);
    fake_text(&result->output);
    fake_text(&result->late);
    fake_close(&engine);
    temporary_remove(path);
}

void script_free(struct script_result *result)
{
    buffer_free(&result->output);
    buffer_free(&result->late);
}

static int by_bytes(const void *a, const void *b)
{
    return str_compare(*(const struct str *)a, *(const struct str *)b);
}

char *script_sorted(const struct byte_buffer *text)
{
    size_t lines = 0, at = 0;
    for (size_t i = 0; i < text->length; i++)
        lines += text->data[i] == '\n';
    struct str *items = malloc(MAX(lines, 1) * sizeof(*items));
    char *sorted = malloc(text->length + 1);
    assert_true(items != NULL && sorted != NULL);
    for (size_t i = 0, begin = 0, n = 0; i < text->length; i++)
        if (text->data[i] == '\n') {
            items[n++] = (struct str){text->data + begin, i + 1 - begin};
            begin = i + 1;
        }
    qsort(items, lines, sizeof(*items), by_bytes);
    for (size_t n = 0; n < lines; n++) {
        memcpy(sorted + at, items[n].data, items[n].length);
        at += items[n].length;
    }
    sorted[at] = '\0';
    free(items);
    return sorted;
}

void script_compare(const char *what, const char *got, const char *expected)
{
    size_t line = 1, begin = 0, i = 0;
    while (got[i] == expected[i] && got[i] != '\0') {
        if (got[i++] == '\n') {
            line++;
            begin = i;
        }
    }
    if (got[i] == expected[i])
        return;
    fail_msg("%s, line %zu:\n%.*s\nexpected\n%.*s", what, line, (int)strcspn(got + begin, "\n"), got + begin,
             (int)strcspn(expected + begin, "\n"), expected + begin);
}

void script_compare_sorted(const char *what, const struct byte_buffer *got,
                           const struct byte_buffer *expected)
{
    char *a = script_sorted(got), *b = script_sorted(expected);
    script_compare(what, a, b);
    free(a);
    free(b);
}

void script_check_variants(const char *step, const struct script *script,
                           const struct script_options *options, struct script_result *plain)
{
    script_run(step, script, options, SCRIPT_PLAIN, plain);
    assert_true(counters_balance(&plain->counters) && !plain->is_out_of_order);
    assert_true(plain->counters.held == 0 && plain->counters.in > 0);
    for (int variant = SCRIPT_LANES; variant < SCRIPT_VARIANTS; variant++) {
        struct script_result other;
        char what[64];
        snprintf(what, sizeof(what), "variant %d, seed %llu", variant, (unsigned long long)options->seed);
        script_run(step, script, options, (enum script_variant)variant, &other);
        script_compare(what, other.output.data, plain->output.data);
        script_compare_sorted(what, &other.late, &plain->late);
        assert_false(other.is_out_of_order);
        assert_true(variant != SCRIPT_KILLS || (other.kills > 0 && other.moves > 0));
        assert_memory_equal(&other.counters, &plain->counters, sizeof(other.counters));
        script_free(&other);
    }
}

/* --- What models write and tests read back --- */

void script_show_value(struct byte_buffer *out, bool has, int64_t value)
{
    if (has)
        buffer_printf(out, "%lld", (long long)value);
    else
        buffer_printf(out, "null");
}

void script_show_list(struct byte_buffer *out, const struct fake_row *row)
{
    if (row->list == UINT32_MAX) {
        buffer_printf(out, "null");
        return;
    }
    buffer_printf(out, "[");
    for (uint32_t i = 0; i < row->list; i++)
        buffer_printf(out, "%s%lld", i == 0 ? "" : " ", (long long)(row->id + i));
    buffer_printf(out, "]");
}

void script_show_row(struct byte_buffer *out, const struct fake_row *row)
{
    buffer_printf(out, "%lld|", (long long)row->id);
    script_show_value(out, row->has_k, row->k);
    buffer_printf(out, "|");
    script_show_value(out, row->has_x, row->x);
    if (row->has_v)
        buffer_printf(out, "|%.17g", row->v);
    else
        buffer_printf(out, "|null");
    buffer_printf(out, "|%s|%d|%lld|", row->s == NULL ? "null" : row->s, row->b, (long long)row->ts);
    script_show_list(out, row);
}

void script_ids(const struct byte_buffer *rows, struct byte_buffer *ids)
{
    for (size_t i = 0; i < rows->length; i += scan_until(rows->data + i, "\n") + 1)
        buffer_printf(ids, "%.*s\n", (int)scan_until(rows->data + i, "|"), rows->data + i);
    fake_text(ids);
}

struct table {
    char **lines;
    size_t count;
};

static size_t id_length(const char *line, uint32_t columns)
{
    size_t at = 0;
    for (; columns > 0; at++)
        columns -= line[at] == '|';
    return at;
}

/* line: zero-terminated, without the newline. */
static void apply_change(struct table *table, char *line, uint32_t id_columns)
{
    char *op = strrchr(line, '|');
    *op++ = '\0';
    size_t id = id_length(line, id_columns), at = 0;
    while (at < table->count && strncmp(table->lines[at], line, id) != 0)
        at++;
    bool is_there = at < table->count, is_delete = strcmp(op, "delete") == 0;
    if (is_there == (strcmp(op, "insert") == 0) ||
        (is_there && is_delete != (strcmp(table->lines[at], line) == 0)))
        fail_msg("%s of %s, where %s is", op, line, is_there ? table->lines[at] : "nothing");
    if (is_there)
        free(table->lines[at]);
    if (is_delete) {
        table->lines[at] = table->lines[--table->count];
        return;
    }
    if (!is_there) {
        table->lines = realloc(table->lines, ++table->count * sizeof(*table->lines));
        assert_non_null(table->lines);
    }
    table->lines[at] = strdup(line);
}

void script_apply_changes(const struct byte_buffer *changes, uint32_t id_columns, struct byte_buffer *rows)
{
    struct table table = {0};
    char *copy = strdup(changes->data);
    for (char *line = strtok(copy, "\n"); line != NULL; line = strtok(NULL, "\n"))
        apply_change(&table, line, id_columns);
    for (size_t i = 0; i < table.count; i++) {
        buffer_printf(rows, "%s\n", table.lines[i]);
        free(table.lines[i]);
    }
    free(table.lines);
    free(copy);
    fake_text(rows);
}

/* --- Diagnostics --- */

void script_check_refusals(const struct script_refusal *refusals, size_t count, uint32_t inputs)
{
    for (size_t i = 0; i < count; i++) {
        struct fake_engine engine;
        fake_open(&engine, NULL, inputs);
        if (fake_bind(&engine, refusals[i].step, inputs) || fake_diag(&engine, refusals[i].code) == NULL) {
            diag_print(stderr, &engine.diags, NULL, false);
            fail_msg("%s", refusals[i].step);
        }
        fake_close(&engine);
    }
}

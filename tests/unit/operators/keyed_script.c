#include "keyed_script.h"

#include "unit/support/temporary.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { LANES_MAX = 5, TINY_BYTES = 12000, PLENTY_BYTES = 64 << 20 };

static const char *const words[] = {"mobile", "desktop", "", "tv", "a longer text than fits into a key", "x"};

void script_make(struct script *script, const struct script_options *options)
{
    struct test_random random = {options->seed * 7919};
    int64_t now = 1000 * US_PER_DAY, largest = now;
    memset(script, 0, sizeof *script);
    script->numbers = options->numbers;
    for (uint32_t n = 0; n < options->numbers; n++) {
        script->first[n] = script->count;
        uint32_t rows = random_below(&random, options->rows_per_number + 1);
        for (uint32_t i = 0; i < rows && script->count < SCRIPT_ROWS_MAX; i++) {
            struct fake_row *row = &script->rows[script->count];
            *row = (struct fake_row){.input = random_below(&random, options->inputs), .id = script->count};
            now += random_chance(&random, 30) ? 0 : random_below(&random, (uint32_t)options->step_us * 2);
            row->ts = now - options->jitter_us + random_below(&random, (uint32_t)options->jitter_us * 2 + 1);
            if (random_chance(&random, 2))
                row->ts -= options->delay_us * (random_chance(&random, 50) ? 3 : 15); /* late */
            if (random_chance(&random, 1))
                row->ts += options->delay_us * 20; /* far ahead; does not move the watermark */
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
            script->number_of[script->count++] = n;
        }
        script->watermarks[n] = largest - options->delay_us;
    }
    script->first[script->numbers] = script->count;
    script->watermarks[script->numbers - 1] = TIME_MAX; /* the sources have ended */
}

int64_t script_watermark_before(const struct script *script, uint32_t number)
{
    return number == 0 ? TIME_MIN : script->watermarks[number - 1];
}

/* Where to go on after a kill. */
struct saved {
    uint32_t number;
    size_t output, late;
};

static void give(struct fake_engine *engine, const struct script *script, uint32_t number)
{
    fake_number(engine, script->rows + script->first[number],
                script->first[number + 1] - script->first[number], script->watermarks[number]);
}

static void run_with_kills(struct fake_engine *engine, const struct script *script,
                           struct test_random *random, struct script_result *result)
{
    struct saved published = {0}, pending = {0};
    for (uint32_t n = 0; n < script->numbers;) {
        give(engine, script, n);
        n++;
        uint32_t what = random_below(random, 100);
        if (engine->writer != NULL && what < 50) {
            bool is_abandoned = what < 8;
            fake_publish(engine, is_abandoned);
            if (!is_abandoned)
                published = pending;
        } else if (engine->writer == NULL && what < 40) {
            fake_barrier(engine);
            pending = (struct saved){n, engine->output.length, engine->late.length};
        } else if (n < script->numbers && (what < 50 || (result->kills == 0 && n > script->numbers / 2))) {
            fake_stop(engine);
            engine->output.length = published.output;
            engine->late.length = published.late;
            engine->watermark = TIME_MIN;
            engine->number = engine->rows_given = 0;
            n = published.number;
            fake_start(engine, 1 + random_below(random, LANES_MAX), TINY_BYTES);
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
    fake_start(&engine, variant == SCRIPT_PLAIN ? 1 : 1 + random_below(&random, LANES_MAX),
               variant >= SCRIPT_TINY ? TINY_BYTES : PLENTY_BYTES);
    if (variant == SCRIPT_KILLS)
        run_with_kills(&engine, script, &random, result);
    else
        for (uint32_t n = 0; n < script->numbers; n++)
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
    struct str *items = malloc(MAX(lines, 1) * sizeof *items);
    char *sorted = malloc(text->length + 1);
    assert_true(items != NULL && sorted != NULL);
    for (size_t i = 0, begin = 0, n = 0; i < text->length; i++)
        if (text->data[i] == '\n') {
            items[n++] = (struct str){text->data + begin, i + 1 - begin};
            begin = i + 1;
        }
    qsort(items, lines, sizeof *items, by_bytes);
    for (size_t n = 0; n < lines; n++) {
        memcpy(sorted + at, items[n].data, items[n].length);
        at += items[n].length;
    }
    sorted[at] = '\0';
    free(items);
    return sorted;
}

/* Fails with the first line that differs. */
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

void script_check_variants(const char *step, const struct script *script,
                           const struct script_options *options, struct script_result *plain)
{
    script_run(step, script, options, SCRIPT_PLAIN, plain);
    assert_true(counters_balance(&plain->counters) && !plain->is_out_of_order);
    assert_true(plain->counters.held == 0 && plain->counters.in > 0);
    for (int variant = SCRIPT_LANES; variant < SCRIPT_VARIANTS; variant++) {
        struct script_result other;
        char what[64];
        snprintf(what, sizeof what, "variant %d, seed %llu", variant, (unsigned long long)options->seed);
        script_run(step, script, options, (enum script_variant)variant, &other);
        script_compare(what, other.output.data, plain->output.data);
        char *late = script_sorted(&other.late), *plain_late = script_sorted(&plain->late);
        script_compare(what, late, plain_late);
        free(late);
        free(plain_late);
        assert_false(other.is_out_of_order);
        assert_true(variant != SCRIPT_KILLS || other.kills > 0);
        assert_memory_equal(&other.counters, &plain->counters, sizeof other.counters);
        script_free(&other);
    }
}

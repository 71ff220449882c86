/* Hot keys: the reported key, its rows, and the most rows that a key had at a time are kept through
 * checkpoints, with the same and with other numbers of lanes. */
#include "keyed_script.h"

#include "unit/support/temporary.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum {
    NUMBERS = 24,
    PER_NUMBER = 1024,
    HOT_KEY = 77,
    /* Tolerance: one row in 16 is sampled, and batches are cut elsewhere. */
    NEAR = 600
};

static const char *const steps[] = {
    "enrich from other on k within 1h { of: id }",
    "join other on k within [0s, 10s] prefix \"r_\" kind semi",
    "attribute other on k within 1m as w",
    "attribute other on k within 1m as w emit at_once",
    "attribute other on k within 1m as w emit fake_negative",
};

/* The figures that the summary would report, over all lanes. */
struct said {
    char key[256];
    double rows, rows_max;
};

static void ask(struct fake_engine *engine, struct said *said)
{
    struct report all = {0};
    *said = (struct said){0};
    for (uint32_t lane = 0; lane < engine->lanes_count; lane++) {
        struct report report = {0};
        operator_report(engine->kind, &engine->lanes[lane], &report);
        for (uint32_t i = 0; i < report.count; i++)
            report_merge(&all, &report.items[i]);
    }
    const struct report_item *key = report_find(&all, "hot_key"),
                             *rows = report_find(&all, "hot_key_rows_max"),
                             *most = report_find(&all, "state_key_rows_max");
    if (key != NULL)
        snprintf(said->key, sizeof(said->key), "%s", key->text);
    said->rows = rows == NULL ? 0 : rows->value;
    said->rows_max = most == NULL ? 0 : most->value;
}

static void give(struct fake_engine *engine, int64_t number)
{
    static struct fake_row rows[PER_NUMBER];
    bool is_hot = number < NUMBERS / 2; /* then the key does not come any more, and its rows are forgotten */
    struct test_random random = {(uint64_t)number * 7919 + 1};
    for (int64_t i = 0; i < PER_NUMBER; i++)
        rows[i] = (struct fake_row){.input = random_below(&random, 2),
                                    .id = number * PER_NUMBER + i,
                                    .k = is_hot && random_chance(&random, 40) ? HOT_KEY
                                                                              : 1000 + i * NUMBERS + number,
                                    .has_k = !random_chance(&random, 3),
                                    .ts = number * US_PER_SECOND + i};
    fake_micro_batch(engine, rows, PER_NUMBER, (number - 5) * US_PER_SECOND);
}

/* stop_every: micro-batches between stops; 0: the run is never stopped. lanes: at first, and after each stop
 * by turns. */
static void run(const char *step, uint32_t stop_every, const uint32_t lanes[2], struct said *said)
{
    char path[TEMPORARY_PATH_BYTES];
    struct fake_engine engine;
    uint32_t stops = 0;
    temporary_make(path);
    fake_open(&engine, path, 2);
    engine.random.state = 5;
    if (!fake_bind(&engine, step, 2))
        fail_msg("%s does not bind", step);
    fake_start(&engine, lanes[0], 64 << 20);
    for (uint32_t n = 0; n < NUMBERS; n++) {
        give(&engine, n);
        if (stop_every == 0 || n % stop_every != stop_every - 1)
            continue;
        fake_barrier(&engine);
        fake_publish(&engine, false);
        if (n % 3 == 0) /* lost, because it follows the checkpoint, and given again */
            give(&engine, n + 1);
        fake_stop(&engine);
        fake_start(&engine, lanes[++stops % 2], 64 << 20);
    }
    ask(&engine, said);
    fake_close(&engine);
    temporary_remove(path);
}

static void test_goes_on(void **state)
{
    (void)state;
    for (size_t s = 0; s < ARRAY_COUNT(steps); s++) {
        struct said whole, other;
        for (uint32_t lanes = 1; lanes <= 3; lanes += 2) {
            run(steps[s], 0, (const uint32_t[]){lanes, lanes}, &whole);
            /* 40 % of 12,288 rows have the key, less rows without a key and rows of other keys counted
             * in its place. */
            if (strncmp(whole.key, "77 has more than 10 %", 21) != 0 || whole.rows < 4000 ||
                whole.rows > 5300)
                fail_msg("%s: %s, %g rows", steps[s], whole.key, whole.rows);
            for (uint32_t every = 1; every <= 7; every += 3) {
                run(steps[s], every, (const uint32_t[]){lanes, lanes}, &other);
                if (strcmp(whole.key, other.key) != 0 || fabs(whole.rows - other.rows) > NEAR ||
                    whole.rows_max != other.rows_max)
                    fail_msg("%s, %u lanes, stopped every %u: %s, %g rows, %g at a time; whole: %g, %g",
                             steps[s], lanes, every, other.key, other.rows, other.rows_max, whole.rows,
                             whole.rows_max);
            }
        }
        run(steps[s], 2, (const uint32_t[]){2, 5}, &other);
        if (strcmp(whole.key, other.key) != 0 || fabs(whole.rows - other.rows) > NEAR ||
            whole.rows_max != other.rows_max)
            fail_msg("%s, lanes that change: %s, %g rows, %g at a time; whole: %g, %g", steps[s], other.key,
                     other.rows, other.rows_max, whole.rows, whole.rows_max);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_goes_on)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

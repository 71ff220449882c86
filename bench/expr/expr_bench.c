/*
 * Nanoseconds a row for typical conditions and expressions, from batches of 1,024 rows that stay in the
 * cache.
 *
 *     expr_bench [words]      only expressions that contain the words
 *
 * Each figure is the median of 5 rounds; beside it the share of rows that a condition keeps.
 */
#include "lang/lang.h"
#include "operators/expr/expr.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 5, PASSES = 2000 };

static const char *const expressions[] = {
    "user_id > 0 and position <= 100",
    "user_id > 0",
    "user_id > 500000 and price < 50.0 or clicked",
    "device = \"mobile\"",
    "device in [\"mobile\", \"tablet\", \"tv\"]",
    "position != 0 and 100 / position > 3",
    "regex_match(device, \"^(mob|tab)\")",
    "score > 0.5 and user_id > 0",
    "user_id + position",
    "price * 2.0 + score",
    "(position + 1.0) / (user_id + 20.0)",
    "user_id * position",
    "user_id / position",
    "case when position < 10 then 1.0 when position < 50 then 0.5 else 0.1 end",
    "coalesce(score, 0.0)",
    "log1p(price)",
    "exp(score)",
    "log(price)",
    "pow(price, 0.5)",
    "hour_of_day(ts)",
    "year(ts)",
    "hash(user_id)",
    "cross(user_id, device)",
    "bucketize(price, [1.0, 2.0, 5.0, 10.0, 20.0, 50.0])",
    "lower(device)",
    "concat(device, \"-\", device)",
    "text(position)",
    "int(text(position))",
};

static double now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static struct schema *make_schema(struct arena *arena)
{
    static const struct {
        const char *name;
        enum type_tag tag;
    } fields[] = {{"user_id", TYPE_INT}, {"position", TYPE_INT}, {"price", TYPE_FLOAT}, {"score", TYPE_FLOAT},
                  {"device", TYPE_TEXT}, {"clicked", TYPE_BOOL}, {"ts", TYPE_TIME}};
    struct schema empty = {0};
    struct schema *schema = schema_copy(arena, &empty, ARRAY_COUNT(fields));
    for (size_t i = 0; i < ARRAY_COUNT(fields); i++)
        schema_add(schema, str_from(fields[i].name), type_of(fields[i].tag));
    return schema;
}

static struct batch *make_batch(struct batch_pool *pool, const struct schema *schema)
{
    static const char *const devices[] = {"mobile", "desktop", "tablet", "tv"};
    struct batch *batch = batch_new(pool, schema, BATCH_ROWS);
    char *heap = arena_alloc(&batch->arena, BATCH_ROWS * 8);
    uint64_t seed = 1;
    uint32_t used = 0;
    for (uint32_t i = 0; i < BATCH_ROWS; i++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint64_t r = seed >> 20;
        batch->columns[0].ints[i] = (int64_t)(r % 1000000);
        batch->columns[1].ints[i] = (int64_t)(r / 7 % 120);
        batch->columns[2].floats[i] = (double)(r % 10000) / 100 + 0.01;
        batch->columns[3].floats[i] = (double)(r % 1000) / 1000;
        const char *device = devices[r % 4];
        batch->columns[4].texts[i] = (struct text_ref){used, (uint32_t)strlen(device)};
        memcpy(heap + used, device, strlen(device));
        used += (uint32_t)strlen(device);
        batch->columns[5].bools[i] = r % 3 == 0;
        batch->columns[6].ints[i] = INT64_C(1700000000000000) + (int64_t)(r % 100000000) * 1000;
        batch->event_time[i] = 0;
        if (r % 10 == 0)
            batch_set_null(batch, &batch->columns[3], i); /* only score has nulls */
    }
    batch->columns[4].heap = heap;
    return batch;
}

static int compare(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

/* One round; returns ns a row. *kept: rows that the condition keeps, or rows without an error. */
static double measure(const struct expr *expr, const struct batch *batch, uint32_t *kept)
{
    struct arena scratch = {0}, memory = {0};
    double begin = now_ns();
    for (int i = 0; i < PASSES; i++) {
        struct expr_errors errors = {0};
        if (expr_type(expr).tag == TYPE_BOOL) {
            uint16_t sel[BATCH_ROWS];
            *kept = expr_filter(expr, batch, &scratch, sel, &errors);
        } else {
            struct column out;
            expr_eval(expr, batch, &scratch, &memory, &out, &errors);
            *kept = BATCH_ROWS - errors.count;
        }
        arena_reset(&scratch);
        arena_reset(&memory);
    }
    double ns = (now_ns() - begin) / ((double)PASSES * batch->selected);
    arena_free(&scratch);
    arena_free(&memory);
    return ns;
}

int main(int argc, char **argv)
{
    struct arena arena = {0};
    struct diag_list diags;
    struct batch_pool *pool = batch_pool_new();
    diag_list_init(&diags, &arena);
    const struct schema *schema = make_schema(&arena);
    struct batch *batch = make_batch(pool, schema);
    int result = 0;
    for (size_t i = 0; i < ARRAY_COUNT(expressions); i++) {
        if (argc > 1 && strstr(expressions[i], argv[1]) == NULL)
            continue;
        struct ast *ast = lang_parse_value(&arena, &diags, str_from(expressions[i]));
        struct expr *expr = ast == NULL ? NULL : expr_compile(ast, schema, &arena, &diags);
        if (expr == NULL) {
            diag_print(stderr, &diags, NULL, false);
            result = 1;
            continue;
        }
        double rounds[ROUNDS];
        uint32_t kept = 0;
        for (int k = 0; k < ROUNDS; k++)
            rounds[k] = measure(expr, batch, &kept);
        qsort(rounds, ROUNDS, sizeof(rounds[0]), compare);
        printf("%8.2f ns/row  %5.1f %%  %s\n", rounds[ROUNDS / 2], 100.0 * kept / BATCH_ROWS, expressions[i]);
    }
    batch_release(batch);
    batch_pool_free(pool);
    arena_free(&arena);
    return result;
}

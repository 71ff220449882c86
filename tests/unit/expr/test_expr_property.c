/* Random expressions over random batches, with nulls and selections, must give what the naive
 * interpreter of naive.c gives. LEAT_SEED=N: the first seed (default 1); LEAT_EXPRESSIONS=N: how many
 * expressions (default 6000). */
#include "naive.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>

/* --- A grammar that makes well-typed expressions --- */

struct generator {
    struct fixture *f;
    uint64_t seed;
};

static uint32_t pick(struct generator *g, uint32_t count)
{
    return (uint32_t)(fixture_random(&g->seed) % count);
}

#define MAKE(...) arena_printf(&g->f->scratch, __VA_ARGS__)

static const char *make_bool(struct generator *g, int depth);
static const char *make_int(struct generator *g, int depth);
static const char *make_float(struct generator *g, int depth);
static const char *make_text(struct generator *g, int depth);
static const char *make_time(struct generator *g, int depth);

static const char *make_number(struct generator *g, int depth)
{
    return pick(g, 3) == 0 ? make_float(g, depth) : make_int(g, depth);
}

static const char *make_leaf_int(struct generator *g)
{
    static const char *const leaves[] = {"a",         "b", "0", "1", "-3", "7", "9223372036854775807",
                                         "int(null)", "a", "b", "1s"};
    return leaves[pick(g, ARRAY_COUNT(leaves))];
}

static const char *make_int(struct generator *g, int depth)
{
    if (depth <= 0)
        return make_leaf_int(g);
    int d = depth - 1;
    switch (pick(g, 20)) {
    case 0: return MAKE("(%s + %s)", make_int(g, d), make_int(g, d));
    case 1: return MAKE("(%s - %s)", make_int(g, d), make_int(g, d));
    case 2: return MAKE("(%s * %s)", make_int(g, d), make_int(g, d));
    case 3: return MAKE("(%s / %s)", make_int(g, d), make_int(g, d));
    case 4: return MAKE("(%s %% %s)", make_int(g, d), make_int(g, d));
    case 5: return MAKE("(-%s)", make_int(g, d));
    case 6: return MAKE("abs(%s)", make_int(g, d));
    case 7: return MAKE("case when %s then %s else %s end", make_bool(g, d), make_int(g, d), make_int(g, d));
    case 8: return MAKE("coalesce(%s, %s, %s)", make_int(g, d), make_int(g, d), make_int(g, d));
    case 9: return MAKE("int(%s)", make_float(g, d));
    case 10: return MAKE("%s(%s)", pick(g, 2) == 0 ? "int" : "try_int", make_text(g, d));
    case 11: return MAKE("length(%s)", make_text(g, d));
    case 12:
        return MAKE("%s(%s, %s)", pick(g, 2) == 0 ? "least" : "greatest", make_int(g, d), make_int(g, d));
    case 13: return MAKE("(%s - %s)", make_time(g, d), make_time(g, d));
    case 14: return MAKE("hour_of_day(%s)", make_time(g, d));
    case 15: return MAKE("try_add(%s, %s)", make_int(g, d), make_int(g, d));
    case 16: return MAKE("null_if(%s, %s)", make_int(g, d), make_int(g, d));
    case 17:
        return pick(g, 2) == 0   ? MAKE("get(li, %s)", make_int(g, d))
               : pick(g, 2) == 0 ? "sum(li)"
                                 : "len(lt)";
    case 18: return MAKE("bucketize(%s, [-5, 0, 7])", make_int(g, d));
    default: return make_leaf_int(g);
    }
}

static const char *make_float(struct generator *g, int depth)
{
    static const char *const leaves[] = {"x", "y", "0.5", "-2.0", "1e300", "0.0", "float(null)", "x", "y"};
    if (depth <= 0)
        return leaves[pick(g, ARRAY_COUNT(leaves))];
    int d = depth - 1;
    static const char operators[] = "+-*/%";
    switch (pick(g, 12)) {
    case 0:
    case 1:
    case 2: return MAKE("(%s %c %s)", make_float(g, d), operators[pick(g, 5)], make_number(g, d));
    case 3: return MAKE("(%s %c %s)", make_int(g, d), operators[pick(g, 5)], make_float(g, d));
    case 4: return MAKE("%s(%s)", pick(g, 2) == 0 ? "floor" : "round", make_float(g, d));
    case 5:
        return MAKE("case when %s then %s when %s then %s else %s end", make_bool(g, d), make_int(g, d),
                    make_bool(g, d), make_float(g, d), make_number(g, d));
    case 6: return MAKE("if_null(%s, %s)", make_float(g, d), make_number(g, d));
    case 7: return MAKE("float(%s)", make_int(g, d));
    case 8: return MAKE("greatest(%s, %s, %s)", make_number(g, d), make_float(g, d), make_number(g, d));
    case 9: return MAKE("sqrt(%s)", make_number(g, d));
    case 10: return MAKE("abs(-%s)", make_float(g, d));
    default: return leaves[pick(g, ARRAY_COUNT(leaves))];
    }
}

static const char *make_text(struct generator *g, int depth)
{
    static const char *const leaves[] = {"s", "t", "\"a\"", "\"\"", "\"a,b\"", "text(null)", "s", "t"};
    if (depth <= 0)
        return leaves[pick(g, ARRAY_COUNT(leaves))];
    int d = depth - 1;
    switch (pick(g, 11)) {
    case 0: return MAKE("concat(%s, %s)", make_text(g, d), make_text(g, d));
    case 1: return MAKE("substr(%s, %s, %s)", make_text(g, d), make_int(g, 0), make_int(g, 0));
    case 2: return MAKE("trim(%s)", make_text(g, d));
    case 3: return MAKE("lower(%s)", make_text(g, d));
    case 4: return MAKE("replace(%s, %s, %s)", make_text(g, d), make_text(g, 0), make_text(g, 0));
    case 5: return MAKE("split_part(%s, \",\", %s)", make_text(g, d), make_int(g, 0));
    case 6:
        return MAKE("case when %s then %s when %s then %s end", make_bool(g, d), make_text(g, d),
                    make_bool(g, d), make_text(g, d));
    case 7: return MAKE("coalesce(%s, %s)", make_text(g, d), make_text(g, d));
    case 8: return MAKE("text(%s)", pick(g, 2) == 0 ? make_int(g, d) : make_bool(g, d));
    case 9:
        return MAKE("%s(%s, %s)", pick(g, 2) == 0 ? "least" : "null_if", make_text(g, d), make_text(g, d));
    default: return leaves[pick(g, ARRAY_COUNT(leaves))];
    }
}

static const char *make_time(struct generator *g, int depth)
{
    if (depth <= 0 || pick(g, 2) == 0)
        return pick(g, 2) == 0 ? "m" : "n";
    return MAKE("(%s %c %s)", make_time(g, depth - 1), pick(g, 2) == 0 ? '+' : '-', make_int(g, depth - 1));
}

static const char *make_comparison(struct generator *g, int d)
{
    static const char *const operators[] = {"=", "!=", "<", "<=", ">", ">="};
    const char *op = operators[pick(g, 6)];
    switch (pick(g, 5)) {
    case 0: return MAKE("(%s %s %s)", make_int(g, d), op, make_int(g, d));
    case 1: return MAKE("(%s %s %s)", make_number(g, d), op, make_number(g, d));
    case 2: return MAKE("(%s %s %s)", make_text(g, d), op, make_text(g, d));
    case 3: return MAKE("(%s %s %s)", make_time(g, d), op, make_time(g, d));
    default: return MAKE("(%s %s %s)", make_bool(g, d), op, make_bool(g, d));
    }
}

static const char *make_bool(struct generator *g, int depth)
{
    static const char *const leaves[] = {"p", "q", "true", "false", "bool(null)", "p", "q"};
    if (depth <= 0)
        return leaves[pick(g, 4 + 3 * pick(g, 2))];
    int d = depth - 1;
    switch (pick(g, 14)) {
    case 0:
    case 1:
    case 2: return MAKE("(%s and %s)", make_bool(g, d), make_bool(g, d));
    case 3:
    case 4: return MAKE("(%s or %s)", make_bool(g, d), make_bool(g, d));
    case 5: return MAKE("(not %s)", make_bool(g, d));
    case 6: return MAKE("(%s is %snull)", make_int(g, d), pick(g, 2) == 0 ? "not " : "");
    case 7:
        return MAKE("(%s %sin [1, %s, -3, %s])", make_int(g, d), pick(g, 2) == 0 ? "not " : "",
                    pick(g, 2) == 0 ? "5" : "b", pick(g, 3) == 0 ? "null" : "0");
    case 8: return MAKE("(%s in [\"a\", \"abc\", \"\", \"x1\"])", make_text(g, d));
    case 9:
        return MAKE("%s(%s, %s)", pick(g, 2) == 0 ? "contains" : "starts_with", make_text(g, d),
                    make_text(g, d));
    case 10: return MAKE("is_nan(%s)", make_float(g, d));
    default: return make_comparison(g, d);
    }
}

/* --- The comparison --- */

struct evaluation {
    struct arena memory, scratch;
    struct expr_errors errors;
    struct column out;
    bool has_filter;
    uint64_t kept[BATCH_VALID_WORDS];
};

static void evaluate(struct evaluation *e, const struct expr *expr, const struct batch *batch)
{
    struct expr_errors again = {0};
    uint16_t sel[BATCH_ROWS];
    *e = (struct evaluation){0};
    expr_eval(expr, batch, &e->scratch, &e->memory, &e->out, &e->errors);
    if (expr_type(expr).tag != TYPE_BOOL)
        return;
    uint32_t count = expr_filter(expr, batch, &e->scratch, sel, &again);
    e->has_filter = true;
    for (uint32_t i = 0; i < count; i++)
        bit_set(e->kept, sel[i]);
    assert_int_equal(again.count, e->errors.count);
    assert_memory_equal(again.rows, e->errors.rows, sizeof(again.rows));
}

static void check_row(struct fixture *f, const struct ast *ast, const struct expr *expr, const char *text,
                      const struct batch *batch, uint32_t row, const struct evaluation *e)
{
    struct type type = expr_type(expr);
    bool is_failed = bit_get(e->errors.rows, row);
    struct naive expected = naive_eval(f, ast, batch, row);
    const char *wanted = naive_show(f, &expected);
    const char *got = is_failed ? "error" : fixture_show(f, &e->out, row, &type);
    if (strcmp(wanted, got) != 0)
        fail_msg("%s: row %u is %s, the naive interpreter says %s", text, row, got, wanted);
    if (e->has_filter && bit_get(e->kept, row) != (expected.tag == NAIVE_BOOL && expected.integer != 0))
        fail_msg("%s: row %u is %s, and the filter thinks otherwise", text, row, wanted);
    if (!is_failed && !column_is_valid(&e->out, row) && type.tag != TYPE_BOOL)
        assert_int_equal(e->out.ints[row], 0); /* the value of a null row is zero */
}

static void check_expression(struct generator *g, const char *text, struct batch *const *batches,
                             size_t count)
{
    struct fixture *f = g->f;
    struct ast *ast = fixture_parse(f, text);
    struct expr *expr = ast == NULL ? NULL : expr_compile(ast, f->schema, &f->arena, &f->diags);
    if (expr == NULL) {
        diag_print(stderr, &f->diags, NULL, false);
        fail_msg("does not compile: %s", text);
        return;
    }
    for (size_t b = 0; b < count; b++) {
        struct evaluation e;
        evaluate(&e, expr, batches[b]);
        for (uint32_t i = 0; i < batches[b]->selected; i++)
            check_row(f, ast, expr, text, batches[b], batch_row(batches[b], i), &e);
        arena_free(&e.scratch);
        arena_free(&e.memory);
    }
}

static void test_random_expressions(void **state)
{
    (void)state;
    const char *seed = getenv("LEAT_SEED"), *wanted = getenv("LEAT_EXPRESSIONS");
    uint64_t first = seed == NULL ? 1 : strtoull(seed, NULL, 10);
    long expressions = wanted == NULL ? 6000 : strtol(wanted, NULL, 10), rows = 0;
    for (long done = 0; done < expressions; first++) {
        struct fixture f;
        fixture_init(&f);
        struct generator g = {&f, first * 1000003};
        struct batch *batches[] = {
            fixture_batch(&f, &g.seed, 70, false), fixture_batch(&f, &g.seed, 65, true),
            fixture_batch(&f, &g.seed, 130, true), fixture_batch(&f, &g.seed, 90, false)};
        fixture_select(batches[2], &g.seed);
        fixture_select(batches[3], &g.seed);
        for (int i = 0; i < 50; i++, done++) {
            int depth = 1 + (int)pick(&g, 4);
            const char *text = NULL;
            switch (pick(&g, 5)) {
            case 0: text = make_int(&g, depth); break;
            case 1: text = make_float(&g, depth); break;
            case 2: text = make_text(&g, depth); break;
            case 3: text = make_time(&g, depth); break;
            default: text = make_bool(&g, depth); break;
            }
            check_expression(&g, arena_strdup(&f.arena, text), batches, ARRAY_COUNT(batches));
            arena_reset(&f.scratch);
        }
        for (size_t i = 0; i < ARRAY_COUNT(batches); i++) {
            rows += 50 * (long)batches[i]->selected;
            batch_release(batches[i]);
        }
        fixture_free(&f);
    }
    print_message("%ld expressions, %ld values\n", expressions, rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_expressions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Expressions that do not compile, with the diagnostic's code and words; types and lineage of
 * those that do. */
#include "fixture.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const struct {
    const char *text;
    enum diag_code code;
    const char *words; /* in the message or the hint */
} bad[] = {
    {"usr", DIAG_NO_COLUMN, "no column `usr`"},
    {"lii", DIAG_NO_COLUMN, "did you mean"},
    {"a + s", DIAG_TYPE_CLASH, "concat"},
    {"a * s", DIAG_TYPE_CLASH, "int(x)"},
    {"p + 1", DIAG_TYPE_CLASH, "int(x)"},
    {"m + n", DIAG_TYPE_CLASH, "times"},
    {"m * 2", DIAG_TYPE_CLASH, "times"},
    {"1 - m", DIAG_TYPE_CLASH, "times"},
    {"m > \"2024-01-01\"", DIAG_TYPE_CLASH, "time(x)"},
    {"s = 1", DIAG_TYPE_CLASH, "`=` cannot take text and int"},
    {"li = li", DIAG_TYPE_CLASH, "cannot take list(int)"},
    {"p < 1", DIAG_TYPE_CLASH, "int(x)"},
    {"a and p", DIAG_TYPE_CLASH, "`and` takes bools"},
    {"p or s", DIAG_TYPE_CLASH, "`or` takes bools"},
    {"not a", DIAG_TYPE_CLASH, "a bool"},
    {"-s", DIAG_TYPE_CLASH, "a number"},
    {"null", DIAG_TYPE_CLASH, "bare `null`"},
    {"case when a then 1 end", DIAG_TYPE_CLASH, "`when` needs a condition"},
    {"case when p then 1 else s end", DIAG_TYPE_CLASH, "different types"},
    {"case when p then null end", DIAG_TYPE_CLASH, "bare `null`"},
    {"case when p then li end", DIAG_TYPE_CLASH, "lists"},
    {"coalesce(a, s)", DIAG_TYPE_CLASH, "different types"},
    {"coalesce()", DIAG_BAD_ARGUMENTS, "coalesce(a, b, ...)"},
    {"if_null(a)", DIAG_BAD_ARGUMENTS, "if_null(a, b)"},
    {"coalesce(li, li)", DIAG_BAD_ARGUMENTS, "lists"},
    {"a in [1, s]", DIAG_TYPE_CLASH, "different types"},
    {"s in [1, 2]", DIAG_TYPE_CLASH, "different types"},
    {"contains(li, s)", DIAG_TYPE_CLASH, "the list has items of type int"},
    {"contains(s, a)", DIAG_BAD_ARGUMENTS, "contains"},
    {"flor(x)", DIAG_NO_FUNCTION, "did you mean `floor`"},
    {"qqqq(x)", DIAG_NO_FUNCTION, "no function `qqqq`"},
    {"floor(s)", DIAG_BAD_ARGUMENTS, "cannot take (text)"},
    {"floor()", DIAG_BAD_ARGUMENTS, "cannot take (nothing)"},
    {"decimal(a, 19)", DIAG_BAD_ARGUMENTS, "0 to 18"},
    {"substr(s)", DIAG_BAD_ARGUMENTS, "substr(t, start"},
    {"substr(s, 1, 2, 3)", DIAG_BAD_ARGUMENTS, "substr(t, start"},
    {"concat(s, a)", DIAG_BAD_ARGUMENTS, "cannot take (text, int)"},
    {"cross(a)", DIAG_BAD_ARGUMENTS, "cross(a, b"},
    {"regex_match(s, t)", DIAG_BAD_ARGUMENTS, "must be a constant"},
    {"regex_match(s, \"a(b\")", DIAG_BAD_REGEX, "at byte 3"},
    {"regex_match(s, \"[z-a]\")", DIAG_BAD_REGEX, "at byte 3"},
    {"regex_extract(s, \"(a)\", 2)", DIAG_BAD_ARGUMENTS, "1 groups"},
    {"regex_replace(s, \"a\", \"${\")", DIAG_BAD_REGEX, "does not compile"},
    {"date_trunc(\"fortnight\", m)", DIAG_BAD_ARGUMENTS, "quarter"},
    {"time_format(m, \"%Q\")", DIAG_BAD_ARGUMENTS, "begins no field"},
    {"time_format(m, \"%\")", DIAG_BAD_ARGUMENTS, "begins no field"},
    {"to_time(a, \"h\")", DIAG_BAD_ARGUMENTS, "s, ms, us, ns"},
    {"hash_mod(a, 0)", DIAG_BAD_ARGUMENTS, "1 or more"},
    {"hash_mod(a, b)", DIAG_BAD_ARGUMENTS, "must be a constant"},
    {"hash(li)", DIAG_BAD_ARGUMENTS, "cannot take"},
    {"bucketize(x, [2, 1])", DIAG_BAD_ARGUMENTS, "must rise"},
    {"bucketize(x, [1, null])", DIAG_BAD_ARGUMENTS, "must rise"},
    {"bucketize(x, lf)", DIAG_BAD_ARGUMENTS, "must be a constant"},
    {"log_bucket(x, 0)", DIAG_BAD_ARGUMENTS, "1 to 64"},
    {"get(lr, 0)", DIAG_BAD_ARGUMENTS, "records"},
    {"lr.nope", DIAG_NO_COLUMN, "no column `nope`"},
    {"a.b", DIAG_TYPE_CLASH, "has no fields"},
    {"sum(a)", DIAG_BAD_AGGREGATE, "aggregate"},
    {"count()", DIAG_BAD_AGGREGATE, "feature"},
    {"1 + distinct(a)", DIAG_BAD_AGGREGATE, "aggregate"},
    {"[]", DIAG_TYPE_CLASH, "1 to"},
    {"[a, s]", DIAG_TYPE_CLASH, "different types"},
    {"[li, li]", DIAG_TYPE_CLASH, "lists of lists"},
};

static void test_errors(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        struct fixture f;
        fixture_init(&f);
        struct expr *expr = fixture_compile(&f, bad[i].text);
        if (expr != NULL)
            fail_msg("%s compiles", bad[i].text);
        bool is_found = false;
        for (unsigned k = 0; k < f.diags.count; k++) {
            const struct diag *d = &f.diags.items[k];
            bool has_words = strstr(d->message, bad[i].words) != NULL ||
                             (d->hint != NULL && strstr(d->hint, bad[i].words) != NULL);
            is_found |= d->severity == DIAG_ERROR && d->code == bad[i].code && has_words &&
                        d->span.end > d->span.begin;
        }
        if (!is_found) {
            diag_print(stderr, &f.diags, NULL, false);
            fail_msg("%s: %s with `%s` was expected", bad[i].text, diag_code_name(bad[i].code), bad[i].words);
        }
        fixture_free(&f);
    }
}

/* The expression that a hint ("write `...`") proposes instead of a refused sum of texts; NULL:
 * no such hint. */
static const char *advice_of(struct fixture *f)
{
    static const char mark[] = "write `";
    for (unsigned i = 0; i < f->diags.count; i++) {
        const char *hint = f->diags.items[i].hint;
        const char *begin = hint == NULL ? NULL : strstr(hint, mark);
        if (begin != NULL)
            return arena_printf(&f->arena, "%.*s", (int)(strlen(begin + sizeof(mark) - 1) - 1),
                                begin + sizeof(mark) - 1);
    }
    return NULL;
}

/* Sums of three terms of any types: an expression that a hint proposes compiles. If the first two terms are
 * texts and the third can become a text, there is such a hint. */
static void test_sums_of_texts(void **state)
{
    (void)state;
    static const char *const terms[] = {"s", "\"-\"", "lower(t)", "a", "x", "p", "z", "2", "li", "m", "null"};
    enum { TERMS = ARRAY_COUNT(terms), TEXTS = 3, PLAIN = 8 };
    unsigned advised = 0;
    for (unsigned i = 0; i < TERMS * TERMS * TERMS * 2; i++) {
        unsigned a = i / 2 % TERMS, b = i / 2 / TERMS % TERMS, c = i / 2 / TERMS / TERMS;
        struct fixture f, again;
        fixture_init(&f);
        fixture_init(&again);
        const char *text = arena_printf(&f.arena, i % 2 == 0 ? "%s + %s + %s" : "%s + (%s + %s)", terms[a],
                                        terms[b], terms[c]);
        const char *advice = fixture_compile(&f, text) == NULL ? advice_of(&f) : NULL;
        bool is_plain = a < TEXTS && b < TEXTS && c < PLAIN;
        if (is_plain && advice == NULL)
            fail_msg("%s: no hint at concat", text);
        if (advice != NULL && fixture_compile(&again, advice) == NULL) {
            diag_print(stderr, &again.diags, NULL, false);
            fail_msg("%s: the hint says %s", text, advice);
        }
        advised += advice != NULL;
        fixture_free(&again);
        fixture_free(&f);
    }
    assert_true(advised > 500);
}

/* Several errors of one expression are reported together. */
static void test_all_errors_at_once(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    assert_null(fixture_compile(&f, "(nope + 1) * flor(x) + (s * 2)"));
    assert_int_equal(f.diags.errors, 3);
    fixture_free(&f);
}

static void test_conditions(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    assert_non_null(
        expr_compile_condition(fixture_parse(&f, "a > 1"), "where", f.schema, &f.arena, &f.diags));
    assert_non_null(expr_compile_condition(fixture_parse(&f, "null"), "where", f.schema, &f.arena, &f.diags));
    assert_null(expr_compile_condition(fixture_parse(&f, "a"), "where", f.schema, &f.arena, &f.diags));
    assert_int_equal(f.diags.items[f.diags.count - 1].code, DIAG_TYPE_CLASH);
    assert_non_null(strstr(f.diags.items[f.diags.count - 1].message, "`where` needs a condition"));
    fixture_free(&f);
}

static void test_warnings(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    assert_non_null(fixture_compile(&f, "a = null"));
    assert_int_equal(f.diags.count, 1);
    assert_int_equal(f.diags.items[0].severity, DIAG_WARNING);
    assert_non_null(fixture_compile(&f, "case when a > 0 then int(\"x\") else 1 end"));
    assert_int_equal(f.diags.count, 2);
    assert_non_null(strstr(f.diags.items[1].message, "fails for every row"));
    assert_int_equal(f.diags.errors, 0);
    fixture_free(&f);
}

static void test_types_and_lineage(void **state)
{
    (void)state;
    static const struct {
        const char *text, *type;
        uint64_t columns;
    } cases[] = {
        {"a + 1", "int", 1 << COLUMN_A},
        {"a / 2.0", "float", 1 << COLUMN_A},
        {"a + x", "float", 1 << COLUMN_A | 1 << COLUMN_X},
        {"m - n", "int", 1 << COLUMN_M | 1 << COLUMN_N},
        {"m + 1h", "time", 1 << COLUMN_M},
        {"case when p then a else x end", "float", 1 << COLUMN_P | 1 << COLUMN_A | 1 << COLUMN_X},
        {"s in [\"a\", t]", "bool", 1 << COLUMN_S | 1 << COLUMN_T},
        {"lr.aid", "list(int)", 1 << COLUMN_LR},
        {"get(lr.tag, a)", "text", 1 << COLUMN_LR | 1 << COLUMN_A},
        {"split(s, \",\")", "list(text)", 1 << COLUMN_S},
        {"cross(a, s, z)", "int", 1 << COLUMN_A | 1 << COLUMN_S | 1 << COLUMN_Z},
        {"coalesce(null, m)", "time", 1 << COLUMN_M},
        {"null_if(a, 1.5)", "float", 1 << COLUMN_A},
        {"1 + 2", "int", 0},
        {"len(lr)", "int", 1 << COLUMN_LR},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct fixture f;
        fixture_init(&f);
        struct expr *expr = fixture_compile(&f, cases[i].text);
        assert_non_null(expr);
        struct type type = expr_type(expr);
        assert_string_equal(type_name(&f.arena, &type), cases[i].type);
        assert_int_equal(expr_lineage(expr)->words[0], cases[i].columns);
        fixture_free(&f);
    }
}

static void test_constants(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    assert_true(expr_is_constant(fixture_compile(&f, "2 * 3s")));
    assert_false(expr_is_constant(fixture_compile(&f, "a")));
    fixture_free(&f);
}

static void test_aggregates(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    assert_true(expr_is_aggregate(fixture_parse(&f, "count()")));
    assert_true(expr_is_aggregate(fixture_parse(&f, "since_last()")));
    assert_false(expr_is_aggregate(fixture_parse(&f, "abs(count())")));
    assert_true(expr_has_aggregate(fixture_parse(&f, "1 + abs(sum(a))")));
    assert_false(expr_has_aggregate(fixture_parse(&f, "1 + abs(a)")));
    assert_non_null(fixture_compile(&f, "sum(li) + max(li)")); /* over a list both are functions */
    fixture_free(&f);
}

/* A tree that is too deep gives a diagnostic, and its text is cut. */
static void test_limits(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    struct ast *ast = fixture_parse(&f, "a");
    for (int i = 0; i < EXPR_DEPTH_MAX + 10; i++) {
        struct ast *minus = arena_new(&f.arena, struct ast);
        *minus = (struct ast){.tag = AST_UNARY, .op = AST_OP_NEGATE, .count = 1, .span = {0, 1}};
        minus->children = arena_array(&f.arena, struct ast *, 1);
        minus->children[0] = ast;
        ast = minus;
    }
    assert_null(expr_compile(ast, f.schema, &f.arena, &f.diags));
    assert_int_equal(f.diags.items[0].code, DIAG_TOO_DEEP);
    assert_int_equal(f.diags.errors, 1);
    assert_true(strlen(expr_text(&f.arena, ast)) <= 64);
    fixture_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_sums_of_texts),
        cmocka_unit_test(test_all_errors_at_once),
        cmocka_unit_test(test_conditions),
        cmocka_unit_test(test_warnings),
        cmocka_unit_test(test_types_and_lineage),
        cmocka_unit_test(test_constants),
        cmocka_unit_test(test_aggregates),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Expressions and values: how they are parsed, seen by their canonical text, and which are refused. */
#include "unit/lang/support.h"

static const struct {
    const char *text, *printed;
} good[] = {
    /* precedence and associativity */
    {"a + b * c - d", "a + b * c - d"},
    {"(a + b) * c", "(a + b) * c"},
    {"a - (b - c)", "a - (b - c)"},
    {"a - b - c", "a - b - c"},
    {"(a - b) - c", "a - b - c"},
    {"a / (b * c)", "a / (b * c)"},
    {"a or b and not c = d", "a or b and not c = d"},
    {"(a or b) and c", "(a or b) and c"},
    {"not (a and b)", "not (a and b)"},
    {"(not a) = b", "(not a) = b"},
    {"-a * b", "-a * b"},
    {"-(a * b)", "-(a * b)"},
    {"a == b", "a = b"},
    {"a != b or a <= b or a >= b or a < b or a > b", "a != b or a <= b or a >= b or a < b or a > b"},
    {"(a < b) = (c < d)", "(a < b) = (c < d)"},
    {"a % 2", "a % 2"},
    /* words */
    {"x is null", "x is null"},
    {"x is not null and y", "x is not null and y"},
    {"x + 1 is null", "x + 1 is null"},
    {"x in [1, 2]", "x in [1, 2]"},
    {"x not in [\"a\"]", "x not in [\"a\"]"},
    {"x between 1 and 2 and y", "x >= 1 and x <= 2 and y"},
    {"x not between 1 and 2", "not (x >= 1 and x <= 2)"},
    {"case when a then 1 when b then 2 else 3 end", "case when a then 1 when b then 2 else 3 end"},
    {"case when a then 1 end", "case when a then 1 end"},
    /* literals */
    {"0", "0"},
    {"-5", "-5"},
    {"-(5)", "-5"},
    {"--5", "5"},
    {"1_000_000", "1000000"},
    {"-9223372036854775808", "-9223372036854775808"},
    {"1.5", "1.5"},
    {"2.0", "2.0"},
    {"1e3", "1000.0"},
    {"1e-3", "0.001"},
    {"1E+30", "1e+30"},
    {"0.1", "0.1"},
    {"10s", "10s"},
    {"90m", "90m"},
    {"24h", "24h"},
    {"1d", "24h"},
    {"48h", "2d"},
    {"1.5h", "90m"},
    {"0s", "0s"},
    {"64MiB", "64MiB"},
    {"1024B", "1KiB"},
    {"1000KB", "1000000B"},
    {"true", "true"},
    {"false", "false"},
    {"null", "null"},
    {"\"\"", "\"\""},
    {"\"a\\n\\t\\r\\0\\\"\\\\\\u{e9}\\u{1F600}\"", "\"a\\n\\t\\r\\u{0}\\\"\\\\\xC3\xA9\xF0\x9F\x98\x80\""},
    /* arithmetic over literals */
    {"2 * 30 * 24h", "60d"},
    {"0.5 * 1h", "30m"},
    {"1h / 2", "30m"},
    {"1h / 30m", "2"},
    {"7 / 2", "3"},
    {"-7 / 2", "-7 / 2"},
    {"7 % 4", "3"},
    {"1h + 30m - 1m", "89m"},
    {"2 + 0.5", "2.5"},
    {"1 / 0", "1 / 0"},
    {"9223372036854775807 + 1", "9223372036854775807 + 1"},
    {"1h + 1", "1h + 1"},
    {"1h * 1h", "1h * 1h"},
    {"1h / 7s", "1h / 7s"},
    {"x + (1 + 2)", "x + 3"},
    {"x + 1 + 2", "x + 1 + 2"},
    {"concat(\"a\", \"b\")", "\"ab\""},
    {"concat(\"a\", b)", "concat(\"a\", b)"},
    /* names, fields, calls, lists, blocks */
    {"`odd name` + `end`", "`odd name` + `end`"},
    {"`plain`", "plain"},
    {"a.b.c", "a.b.c"},
    {"a.`end`", "a.`end`"},
    {"(a + b).c", "(a + b).c"},
    {"f()", "f()"},
    {"f(a, g(b), [c, d],)", "f(a, g(b), [c, d])"},
    {"[]", "[]"},
    {"[1, 2,]", "[1, 2]"},
    {"{}", "{}"},
    {"{ a: 1, b: [x]\n c: { d: true } }", "{ a: 1, b: [x], c: { d: true } }"},
    {"adagrad { rate: 0.05 }", "adagrad { rate: 0.05 }"},
    {"[sgd {}, adam { rate: 1 }]", "[sgd {}, adam { rate: 1 }]"},
    {"{ id: text!, t: time(ms)!, e: list({ a: int }) }", "{ id: text!, t: time(ms)!, e: list({ a: int }) }"},
    {"{ end: 1, in: 2 }", "{ `end`: 1, `in`: 2 }"},
    {"a # comment\n + b", "a + b"},
};

static void test_good(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < ARRAY_COUNT(good); i++) {
        struct ast *value = lang_parse_value(&f->arena, &f->diags, str_from(good[i].text));
        if (value == NULL)
            print_error("%s: %s\n", good[i].text, f->diags.items[0].message);
        assert_non_null(value);
        assert_string_equal(ast_text(&f->arena, value), good[i].printed);
        /* The canonical text parses to the same tree. */
        struct ast *again = lang_parse_value(&f->arena, &f->diags, str_from(good[i].printed));
        assert_non_null(again);
        if (!ast_equal(value, again))
            print_error("%s: not the same tree\n", good[i].text);
        assert_true(ast_equal(value, again));
    }
    assert_int_equal(f->diags.count, 0);
}

static const struct {
    const char *text, *codes;
} bad[] = {
    {"", "E0104"},
    {"a b", "E0104"},
    {"a +", "E0104"},
    {"a < b < c", "E0104"},
    {"a = b is null", "E0104"},
    {"a = not b", "E0104"},
    {"a in b", "E0104"},
    {"a in (1, 2)", "E0104"},
    {"a is 5", "E0104"},
    {"a not b", "E0104"},
    {"case a when 1 then 2 end", "E0104"},
    {"case end", "E0104"},
    {"case when a then b else c", "E0104"},
    {"f(a", "E0104"},
    {"f(a b)", "E0104"},
    {"f(,)", "E0104"},
    {"[1, 2", "E0104"},
    {"(a", "E0104"},
    {"a)", "E0104"},
    {"a.", "E0104"},
    {"a.5", "E0104"},
    {"end", "E0104"},
    {"{ a }", "E0104"},
    {"{ a: 1 b: 2 }", "E0104"},
    {"{ a: 1", "E0104"},
    {"{ a:, b:, c: 1 }", "E0104 E0104"},
    {"``", "E0104"},
    {"1x", "E0103"},
    {"9223372036854775808", "E0103"},
    {"1e999", "E0103"},
    {"99999999999d", "E0103"},
    {"1h30m", "E0103"},
    {"0x10", "E0103"},
    {"\"abc", "E0102"},
    {"`abc", "E0102"},
    {"\"\\q\"", "E0107"},
    {"\"\\u{110000}\" + \"\\u{d800}\"", "E0107 E0107"},
    {"\"a\x01\"", "E0101"},
    {"a ; b", "E0101"},
    {"a && b", "E0101"},
    {"'a'", "E0101"},
    {"\"\xFF\"", "E0106"},
    {"\xC0\x80", "E0106"},
    {"\"\xED\xA0\x80\"", "E0106"},
    {"\"\xF4\x90\x80\x80\"", "E0106"},
    {"\"\xE2\x82", "E0106 E0102"},
};

static void test_bad(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        forget_diags(f);
        struct ast *value = lang_parse_value(&f->arena, &f->diags, str_from(bad[i].text));
        if (value != NULL || strcmp(codes(f), bad[i].codes) != 0)
            print_error("%s\n", bad[i].text);
        assert_null(value);
        assert_string_equal(codes(f), bad[i].codes);
    }
}

/* `count` copies of `open`, x, `count` copies of `close`. */
static struct str repeated(struct arena *arena, const char *open, const char *close, size_t count)
{
    size_t length = count * (strlen(open) + strlen(close)) + 1;
    char *text = arena_alloc(arena, length + 1), *at = text;
    for (size_t i = 0; i < count; i++)
        at = stpcpy(at, open);
    *at++ = 'x';
    for (size_t i = 0; i < count; i++)
        at = stpcpy(at, close);
    *at = '\0';
    return (struct str){text, (size_t)(at - text)};
}

static void test_nesting(void **state)
{
    static const char *const pairs[][2] = {
        {"(", ")"},     {"[", "]"},   {"f(", ")"},      {"{ a: ", "}"},
        {"-", ""},      {"not ", ""}, {"k { a: ", "}"}, {"case when ", " then 1 end"},
        {"x in [", "]"}};
    struct fixture *f = *state;
    for (size_t i = 0; i < ARRAY_COUNT(pairs); i++) {
        struct str deep = repeated(&f->arena, pairs[i][0], pairs[i][1], LANG_NESTING_MAX);
        forget_diags(f);
        assert_non_null(lang_parse_value(&f->arena, &f->diags, deep));
        assert_int_equal(f->diags.count, 0);
        struct str too_deep = repeated(&f->arena, pairs[i][0], pairs[i][1], 40000);
        assert_null(lang_parse_value(&f->arena, &f->diags, too_deep));
        assert_string_equal(codes(f), "E0105");
    }
}

static void test_height(void **state)
{
    struct fixture *f = *state;
    struct str chain = repeated(&f->arena, "", " + x", AST_HEIGHT_MAX - 1);
    struct ast *value = lang_parse_value(&f->arena, &f->diags, chain);
    assert_non_null(value);
    assert_int_equal(value->height, AST_HEIGHT_MAX);
    chain = repeated(&f->arena, "", " + x", AST_HEIGHT_MAX);
    assert_null(lang_parse_value(&f->arena, &f->diags, chain));
    assert_string_equal(codes(f), "E0105");
    /* `between` has its operand twice in the tree: nested ones must not grow without limit. */
    forget_diags(f);
    chain = repeated(&f->arena, "(", " between 1 and 2)", 60);
    assert_null(lang_parse_value(&f->arena, &f->diags, chain));
    assert_string_equal(codes(f), "E0105");
}

static void test_spans(void **state)
{
    struct fixture *f = *state;
    struct ast *value = lang_parse_value(&f->arena, &f->diags, STR("a + smooth(b, 1) * c.d"));
    assert_int_equal(value->span.begin, 0);
    assert_int_equal(value->span.end, 22);
    const struct ast *product = value->children[1], *call = product->children[0],
                     *field = product->children[1];
    assert_int_equal(call->span.begin, 4);
    assert_int_equal(call->span.end, 16);
    assert_int_equal(call->text_span.end, 10);
    assert_int_equal(field->span.begin, 19);
    assert_int_equal(field->text_span.begin, 21);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_case(test_good),   test_case(test_bad),   test_case(test_nesting),
        test_case(test_height), test_case(test_spans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

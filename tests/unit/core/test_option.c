/* option_bind: each type, defaults, bounds; required, unknown and repeated names; included tables;
 * columns_resolve. */
#include "cmocka_all.h"
#include "core/option.h"
#include "core/option_schema.h"
#include "lang/lang.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

struct inner {
    int64_t depth;
    struct str name;
};

struct ada {
    double rate;
};

struct all {
    bool flag;
    int64_t count, wait_us, bytes;
    double rate;
    struct str text, secret;
    struct texts texts;
    struct durations durations;
    int mode;
    struct ints ints;
    struct column_ref column;
    struct columns columns, streams;
    struct expression expression;
    struct expressions expressions;
    struct assignments assignments, body;
    struct name_ref name, stream;
    struct schema *schema;
    struct inner inner;
    struct kind_ref kind;
};

static const struct option inner_options[] = {
    OPTION_INT(struct inner, depth, "depth", 0, "4", "1", "9", "how deep"),
    OPTION_TEXT(struct inner, name, "name", 0, "\"in\"", "a name"),
    OPTIONS_END,
};
static const struct option ada_options[] = {
    OPTION_FLOAT(struct ada, rate, "rate", 0, "0.1", "0.0", "1.0", "learning rate"),
    OPTIONS_END,
};
static const struct kind_choice kinds[] = {
    {"plain", NULL, 0, "nothing"},
    {"ada", ada_options, sizeof(struct ada), "with a rate"},
    {0},
};
static const struct option options[] = {
    OPTION_BOOL(struct all, flag, "flag", "true", "a flag"),
    OPTION_INT(struct all, count, "count", 0, "7", "-5", "10", "a count"),
    OPTION_DURATION(struct all, wait_us, "wait", 0, "10s", "1ms", "1d", "a wait"),
    OPTION_BYTES(struct all, bytes, "bytes", 0, "64MiB", "1KiB", "1GiB", "a size"),
    OPTION_FLOAT(struct all, rate, "rate", 0, "0.5", "0.0", "1.0", "a rate"),
    OPTION_TEXT(struct all, text, "text", 0, "\"abc\"", "a text"),
    OPTION_TEXT(struct all, secret, "secret", OPTION_SECRET, NULL, "a password"),
    OPTION_TEXTS(struct all, texts, "texts", 0, NULL, "texts"),
    OPTION_DURATIONS(struct all, durations, "over", 0, "1s", "1d", "windows"),
    OPTION_ENUM(struct all, mode, "mode", 0, "second", "first|second|third", "a mode"),
    OPTION_INTS(struct all, ints, "ints", 0, "[128, 64]", "1", "4096", "widths"),
    OPTION_COLUMN(struct all, column, "column", 0, "a column"),
    OPTION_COLUMNS(struct all, columns, "by", 0, "columns"),
    OPTION_STREAMS(struct all, streams, "streams", 0, "streams"),
    OPTION_EXPRESSION(struct all, expression, "where", 0, "a condition"),
    OPTION_EXPRESSIONS(struct all, expressions, "sparse", 0, "features"),
    OPTION_ASSIGNMENTS(struct all, assignments, "items", OPTION_POSITIONAL, "new columns"),
    OPTION_ASSIGNMENTS(struct all, body, "values", OPTION_BODY, "aggregates"),
    OPTION_NAME(struct all, name, "as", 0, "a name"),
    OPTION_STREAM(struct all, stream, "from", 0, "a stream"),
    OPTION_SCHEMA(struct all, schema, "schema", 0, "columns"),
    OPTION_BLOCK(struct all, inner, struct inner, "inner", 0, inner_options, "a block"),
    OPTION_KIND(struct all, kind, "optimizer", 0, "ada", kinds, "a kind"),
    OPTIONS_END,
};

struct needs {
    struct columns by;
    struct expression value;
};
static const struct option needs_options[] = {
    OPTION_EXPRESSION(struct needs, value, "value", OPTION_REQUIRED | OPTION_POSITIONAL, "what"),
    OPTION_COLUMNS(struct needs, by, "by", OPTION_REQUIRED, "the key"),
    OPTIONS_END,
};

/* --- Binding a block of job text --- */

struct bound {
    struct arena arena;
    struct diag_list diags;
    bool is_good;
    const char *codes; /* "E0403 E0404 " */
};

static void bind(struct bound *b, const struct option *table, const char *block, void *target)
{
    *b = (struct bound){.codes = ""};
    diag_list_init(&b->diags, &b->arena);
    struct ast *value = lang_parse_value(&b->arena, &b->diags, str_from(block));
    assert_non_null(value);
    assert_int_equal(value->tag, AST_BLOCK);
    struct option_env env = {&b->arena, &b->diags, lang_parse_value};
    b->is_good =
        option_bind(table, "the test", value->span, value->entries, value->entries_count, target, &env);
    for (unsigned i = 0; i < b->diags.count; i++)
        b->codes = arena_printf(&b->arena, "%s%s ", b->codes, diag_code_name(b->diags.items[i].code));
    assert_int_equal(b->is_good, b->diags.errors == 0);
}

static void check_codes(const char *block, const char *codes)
{
    struct all all = {0};
    struct bound b;
    bind(&b, options, block, &all);
    if (strcmp(b.codes, codes) != 0)
        fail_msg("%s: said %s, expected %s", block, b.codes, codes);
    for (unsigned i = 0; i < b.diags.count; i++) {
        const struct diag *d = &b.diags.items[i];
        bool speaks_for_itself = d->code == DIAG_OPTION_TWICE || d->code == DIAG_COLUMN_TAKEN;
        assert_true(d->hint != NULL || speaks_for_itself);
        assert_true(d->span.end <= strlen(block));
    }
    arena_free(&b.arena);
}

static void test_defaults(void **state)
{
    (void)state;
    struct all all = {0};
    struct bound b;
    bind(&b, options, "{}", &all);
    assert_true(b.is_good);
    assert_true(all.flag);
    assert_int_equal(all.count, 7);
    assert_int_equal(all.wait_us, 10 * US_PER_SECOND);
    assert_int_equal(all.bytes, 64 << 20);
    assert_true(all.rate == 0.5);
    assert_true(str_is(all.text, "abc"));
    assert_int_equal(all.secret.length, 0);
    assert_int_equal(all.texts.count, 0);
    assert_int_equal(all.mode, 1);
    assert_int_equal(all.ints.count, 2);
    assert_int_equal(all.ints.items[1], 64);
    assert_null(all.schema);
    assert_null(all.expression.ast);
    assert_int_equal(all.inner.depth, 4);
    assert_true(str_is(all.inner.name, "in"));
    assert_int_equal(all.kind.choice, 1);
    assert_true(((struct ada *)all.kind.config)->rate == 0.1);
    arena_free(&b.arena);
}

static void test_every_type(void **state)
{
    (void)state;
    struct all all = {0};
    struct bound b;
    bind(&b, options,
         "{ flag: false, count: -5, wait: 1d, bytes: 1KiB, rate: 1, text: \"x\\ny\", texts: [\"a\", \"b\"],\n"
         "  over: [1h, 24h], mode: third, ints: 5, column: user_id, by: [a, b], streams: s1, where: x > 1 "
         "and y,\n"
         "  sparse: [a, cross(a, b)], as: clicked, from: clicks, schema: { a: int!, ts: time(ms), l: list({ "
         "x: text }) },\n"
         "  inner: { depth: 9 }, optimizer: ada { rate: 0.25 } }",
         &all);
    assert_true(b.is_good);
    assert_false(all.flag);
    assert_int_equal(all.count, -5);
    assert_int_equal(all.wait_us, US_PER_DAY);
    assert_int_equal(all.bytes, 1024);
    assert_true(all.rate == 1.0);
    assert_true(str_is(all.text, "x\ny"));
    assert_int_equal(all.texts.count, 2);
    assert_true(str_is(all.texts.items[1], "b"));
    assert_int_equal(all.durations.count, 2);
    assert_int_equal(all.durations.items[1], US_PER_DAY);
    assert_true(all.durations.spans[1].end > all.durations.spans[1].begin);
    assert_int_equal(all.mode, 2);
    assert_int_equal(all.ints.count, 1);
    assert_true(str_is(all.column.name, "user_id") && all.column.index == -1);
    assert_int_equal(all.columns.count, 2);
    assert_int_equal(all.streams.count, 1);
    assert_int_equal(all.expression.ast->tag, AST_BINARY);
    assert_int_equal(all.expressions.count, 2);
    assert_true(str_is(all.name.name, "clicked") && str_is(all.stream.name, "clicks"));
    assert_int_equal(all.schema->count, 3);
    assert_true(all.schema->fields[0].is_required && !all.schema->fields[1].is_required);
    assert_int_equal(all.schema->fields[1].type.unit, TIME_UNIT_MS);
    assert_string_equal(type_name(&b.arena, &all.schema->fields[2].type), "list({ x: text })");
    assert_int_equal(all.inner.depth, 9);
    assert_true(str_is(all.inner.name, "in"));
    assert_true(((struct ada *)all.kind.config)->rate == 0.25);
    arena_free(&b.arena);
}

static void test_wrong_types(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "{ flag: 1 }",
        "{ count: 1.5 }",
        "{ count: \"1\" }",
        "{ count: 10s }",
        "{ wait: 5 }",
        "{ wait: 5MiB }",
        "{ bytes: 5 }",
        "{ bytes: 5s }",
        "{ rate: \"1\" }",
        "{ rate: true }",
        "{ text: abc }",
        "{ text: 5 }",
        "{ texts: [1] }",
        "{ texts: [\"a\", b] }",
        "{ over: [1h, 5] }",
        "{ mode: 5 }",
        "{ ints: [1, a] }",
        "{ column: 5 }",
        "{ column: a + b }",
        "{ by: [a, 5] }",
        "{ as: \"x\" }",
        "{ from: 5 }",
        "{ schema: 5 }",
        "{ schema: { a: number } }",
        "{ schema: { a: list(x) } }",
        "{ schema: { a: time(h) } }",
        "{ schema: {} }",
        "{ inner: 5 }",
        "{ optimizer: 5 }",
        "{ optimizer: \"ada\" }",
        "{ inner: { name: 5 } }",
        "{ optimizer: ada { rate: \"x\" } }",
        "{ schema: { a: list(list(list(list(list(list(int)))))) } }",
    };
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++)
        check_codes(bad[i], "E0403 ");
}

static void test_ranges(void **state)
{
    (void)state;
    check_codes("{ count: 10, wait: 1ms, bytes: 1GiB, rate: 0.0 }", "");
    check_codes("{ count: 11 }", "E0404 ");
    check_codes("{ count: -6 }", "E0404 ");
    check_codes("{ wait: 999us }", "E0404 ");
    check_codes("{ wait: 2d }", "E0404 ");
    check_codes("{ wait: 0 }", "E0404 ");
    check_codes("{ bytes: 1023B }", "E0404 ");
    check_codes("{ bytes: 2GiB }", "E0404 ");
    check_codes("{ rate: 1.0001 }", "E0404 ");
    check_codes("{ rate: -1 }", "E0404 ");
    check_codes("{ over: [1h, 1ms, 2d] }", "E0404 E0404 ");
    check_codes("{ ints: [0, 5000, 1] }", "E0404 E0404 ");
    check_codes("{ inner: { depth: 10 } }", "E0404 ");
    check_codes("{ optimizer: ada { rate: 1.5 } }", "E0404 ");
}

static void test_names(void **state)
{
    (void)state;
    check_codes("{ cuont: 1 }", "E0401 ");
    check_codes("{ inner: { depht: 1 } }", "E0401 ");
    check_codes("{ optimizer: ada { rat: 1 } }", "E0401 ");
    check_codes("{ optimizer: plain { rate: 1 } }", "E0401 ");
    check_codes("{ optimizer: adda }", "E0405 ");
    check_codes("{ mode: fourth }", "E0405 ");
    check_codes("{ mode: firs }", "E0405 ");
    check_codes("{ by: [a, b, a] }", "E0406 ");
    check_codes("{ schema: { a: int, a: text } }", "E0306 ");
    /* All errors are reported at once. */
    check_codes("{ cuont: 1, count: 99, flag: 3, mode: none, rate: 7 }", "E0401 E0404 E0403 E0405 E0404 ");
}

static void test_secret(void **state)
{
    (void)state;
    check_codes("{ secret: \"hunter2\" }", "E0408 ");
    /* A text from env() or file() says so in `origin`, and may be a secret. */
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    struct ast value = {.tag = AST_TEXT, .text = STR("hunter2"), .origin = STR("env(\"PASSWORD\")")};
    struct ast_entry entry = {STR("secret"), {0}, &value};
    struct all all = {0};
    struct option_env env = {&arena, &diags, lang_parse_value};
    assert_true(option_bind(options, "the test", (struct span){0}, &entry, 1, &all, &env));
    assert_true(str_is(all.secret, "hunter2"));
    arena_free(&arena);
}

static void test_repeated_and_required(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    struct option_env env = {&arena, &diags, lang_parse_value};
    struct ast one = {.tag = AST_INT, .integer = 1, .span = {4, 5}};
    struct ast_entry twice[] = {{STR("count"), {1, 2}, &one}, {STR("count"), {7, 9}, &one}};
    struct all all = {0};
    assert_false(option_bind(options, "the test", (struct span){0}, twice, 2, &all, &env));
    assert_int_equal(diags.count, 1);
    assert_int_equal(diags.items[0].code, DIAG_OPTION_TWICE);
    assert_int_equal(diags.items[0].span.begin, 7);
    assert_int_equal(diags.items[0].labels[0].span.begin, 1);
    struct needs needs = {{0}, {0}};
    assert_false(option_bind(needs_options, "`step`", (struct span){20, 24}, NULL, 0, &needs, &env));
    assert_int_equal(diags.count, 3);
    for (unsigned i = 1; i < 3; i++) {
        assert_int_equal(diags.items[i].code, DIAG_OPTION_MISSING);
        assert_int_equal(diags.items[i].span.begin, 20);
        assert_non_null(diags.items[i].hint);
    }
    /* A positional value and a block for a kind that has no options. */
    struct ast block = {.tag = AST_BLOCK, .span = {30, 32}};
    struct ast_entry entries[] = {{STR(""), {0}, &one}, {STR("{}"), {0}, &block}};
    assert_false(option_bind(NULL, "`step`", (struct span){0}, entries, 2, &all, &env));
    assert_int_equal(diags.count, 5);
    assert_int_equal(diags.items[3].code, DIAG_NO_OPTION);
    assert_int_equal(diags.items[4].code, DIAG_NO_OPTION);
    /* A value that did not parse was reported by the parser: no second diagnostic. */
    struct ast_entry broken = {STR("count"), {0}, NULL};
    assert_false(option_bind(options, "the test", (struct span){0}, &broken, 1, &all, &env));
    assert_int_equal(diags.count, 5);
    arena_free(&arena);
}

static void test_positional_and_body(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    struct option_env env = {&arena, &diags, lang_parse_value};
    struct ast x = {.tag = AST_NAME, .text = STR("x")};
    struct ast *operand = &x;
    struct ast assign = {.tag = AST_ASSIGN, .text = STR("a"), .children = &operand, .count = 1};
    struct ast *items[] = {&assign, &x, &assign};
    struct ast list = {.tag = AST_LIST, .children = items, .count = 2};
    struct ast_entry in_block = {STR("n"), {0}, &x};
    struct ast block = {.tag = AST_BLOCK, .entries = &in_block, .entries_count = 1};
    struct ast_entry entries[] = {{STR(""), {0}, &list}, {STR("{}"), {0}, &block}};
    struct all all = {0};
    assert_true(option_bind(options, "the test", (struct span){0}, entries, 2, &all, &env));
    assert_int_equal(all.assignments.count, 2);
    assert_true(str_is(all.assignments.items[0].name, "a") && all.assignments.items[0].value == &x);
    assert_true(str_is(all.assignments.items[1].name, "x"));
    assert_int_equal(all.body.count, 1);
    assert_true(str_is(all.body.items[0].name, "n"));
    list.count = 3; /* `a` twice */
    assert_false(option_bind(options, "the test", (struct span){0}, entries, 2, &all, &env));
    assert_int_equal(diags.items[0].code, DIAG_OPTION_TWICE);
    struct ast five = {.tag = AST_INT, .integer = 5};
    items[0] = &five; /* an expression without a name */
    list.count = 1;
    assert_false(option_bind(options, "the test", (struct span){0}, entries, 2, &all, &env));
    assert_int_equal(diags.items[1].code, DIAG_OPTION_TYPE);
    arena_free(&arena);
}

/* --- Included tables --- */

struct leaf {
    double pad;
    int64_t low, high;
};
struct branch {
    struct str pad;
    struct leaf leaf;
    int64_t middle;
};
struct tree {
    int64_t first;
    struct branch branch;
    int64_t last, own;
};
static const struct option leaf_options[] = {
    OPTION_INT(struct leaf, low, "low", 0, "1", "0", "9", "a number"),
    OPTION_INT(struct leaf, high, "high", OPTION_REQUIRED, NULL, "0", "9", "a number"),
    OPTIONS_END,
};
static const struct option branch_options[] = {
    OPTION_INCLUDE(struct branch, leaf, leaf_options),
    OPTION_INT(struct branch, middle, "middle", 0, "2", "0", "9", "a number"),
    OPTIONS_END,
};
static const struct option own_options[] = {
    OPTION_INT(struct tree, own, "own", 0, "5", "0", "9", "a number"),
    OPTIONS_END,
};
static const struct option no_options[] = {OPTIONS_END};
static const struct option tree_options[] = {
    OPTION_INT(struct tree, first, "first", 0, "3", "0", "9", "a number"),
    OPTION_INCLUDE(struct tree, branch, branch_options),
    OPTION_INCLUDE_ROWS(no_options),
    OPTION_INT(struct tree, last, "last", 0, "4", "0", "9", "a number"),
    OPTION_INCLUDE_ROWS(own_options),
    OPTIONS_END,
};

static void test_included_rows_are_found(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t offset;
    } expected[] = {
        {"first", offsetof(struct tree, first)},
        {"low", offsetof(struct tree, branch.leaf.low)},
        {"high", offsetof(struct tree, branch.leaf.high)},
        {"middle", offsetof(struct tree, branch.middle)},
        {"last", offsetof(struct tree, last)},
        {"own", offsetof(struct tree, own)},
    };
    struct option_walk w = option_walk(tree_options);
    for (uint32_t i = 0; i < ARRAY_COUNT(expected); i++) {
        assert_true(option_next(&w));
        assert_string_equal(w.row.name, expected[i].name);
        assert_int_equal(w.row.offset, expected[i].offset);
        assert_int_equal(w.count, i + 1);
        struct option_row found = option_find(tree_options, str_from(expected[i].name));
        assert_string_equal(found.name, expected[i].name);
        assert_int_equal(found.offset, expected[i].offset);
    }
    for (int again = 0; again < 2; again++) {
        assert_false(option_next(&w));
        assert_null(w.row.name);
    }
    assert_null(option_find(tree_options, STR("branch")).name);
    assert_string_equal(option_find_flag(tree_options, OPTION_REQUIRED).name, "high");
    assert_null(option_find_flag(tree_options, OPTION_BODY).name);
    static const struct option around_nothing[] = {OPTION_INCLUDE_ROWS(no_options), OPTIONS_END};
    assert_false(option_has_rows(around_nothing));
    assert_false(option_has_rows(NULL));
    assert_true(option_has_rows(branch_options));
}

static void test_included_rows_are_bound(void **state)
{
    (void)state;
    struct tree tree = {0};
    struct bound b;
    bind(&b, tree_options, "{ high: 8, middle: 7, own: 6 }", &tree);
    assert_true(b.is_good);
    assert_int_equal(tree.branch.leaf.high, 8);
    assert_int_equal(tree.branch.middle, 7);
    assert_int_equal(tree.own, 6);
    assert_int_equal(tree.branch.leaf.low, 1); /* the following are defaults */
    assert_int_equal(tree.first, 3);
    assert_int_equal(tree.last, 4);
    arena_free(&b.arena);
}

static void check_tree(const char *block, const char *code, const char *message, const char *hint)
{
    struct tree tree = {0};
    struct bound b;
    bind(&b, tree_options, block, &tree);
    assert_string_equal(b.codes, code);
    assert_string_equal(b.diags.items[0].message, message);
    assert_string_equal(b.diags.items[0].hint, hint);
    arena_free(&b.arena);
}

static void test_included_rows_are_reported(void **state)
{
    (void)state;
    check_tree("{}", "E0402 ", "the test needs `high`", "int: a number");
    check_tree("{ high: 10 }", "E0404 ", "`high` of the test is out of range", "allowed is 0 to 9");
    check_tree("{ high: 1, midle: 1 }", "E0401 ", "the test has no option `midle`", "did you mean `middle`?");
    check_tree("{ high: 1, zebra: 1 }", "E0401 ", "the test has no option `zebra`",
               "its options are: first, low, high, middle, last, own");
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    struct option_env env = {&arena, &diags, lang_parse_value};
    struct ast one = {.tag = AST_INT, .integer = 1};
    struct ast_entry entries[] = {
        {STR("high"), {1, 2}, &one}, {STR("own"), {3, 4}, &one}, {STR("high"), {5, 6}, &one}};
    struct tree tree = {0};
    assert_false(option_bind(tree_options, "the test", (struct span){0}, entries, 3, &tree, &env));
    assert_int_equal(diags.count, 1);
    assert_string_equal(diags.items[0].message, "`high` is given twice to the test");
    assert_int_equal(diags.items[0].span.begin, 5);
    assert_int_equal(diags.items[0].labels[0].span.begin, 1);
    arena_free(&arena);
}

/* Includes nest OPTION_INCLUDES_MAX deep; a table that includes itself fails an assertion. */
static void test_depth_of_includes(void **state)
{
    (void)state;
    struct option chain[OPTION_INCLUDES_MAX + 1][2] = {{OPTIONS_END}};
    for (int i = 0; i < OPTION_INCLUDES_MAX; i++)
        chain[i][0].include = chain[i + 1];
    chain[OPTION_INCLUDES_MAX][0] = own_options[0];
    assert_string_equal(option_find(chain[0], STR("own")).name, "own");
    chain[OPTION_INCLUDES_MAX][0] = (struct option)OPTION_INCLUDE_ROWS(chain[0]);
    pid_t child = fork();
    if (child == 0) {
        bool is_silent = freopen("/dev/null", "w", stderr) != NULL;
        _exit(!is_silent || option_has_rows(chain[0]));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
}

static void test_columns(void **state)
{
    (void)state;
    static struct field fields[] = {{.name = {"user_id", 7}, .type = {.tag = TYPE_INT}},
                                    {.name = {"ts", 2}, .type = {.tag = TYPE_TIME}}};
    static const struct schema schema = {.fields = fields, .count = 2};
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    struct column_ref refs[] = {{STR("ts"), {0}, -1}, {STR("user_di"), {3, 9}, -1}, {STR("zebra"), {0}, -1}};
    struct columns columns = {refs, 3};
    assert_false(columns_resolve(&columns, &schema, &arena, &diags));
    assert_int_equal(refs[0].index, 1);
    assert_int_equal(diags.count, 2);
    assert_int_equal(diags.items[0].code, DIAG_NO_COLUMN);
    assert_int_equal(diags.items[0].span.begin, 3);
    assert_string_equal(diags.items[0].hint, "did you mean `user_id`?");
    assert_string_equal(diags.items[1].hint, "the columns are: user_id, ts");
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_every_type),
        cmocka_unit_test(test_wrong_types),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_secret),
        cmocka_unit_test(test_repeated_and_required),
        cmocka_unit_test(test_positional_and_body),
        cmocka_unit_test(test_included_rows_are_found),
        cmocka_unit_test(test_included_rows_are_bound),
        cmocka_unit_test(test_included_rows_are_reported),
        cmocka_unit_test(test_depth_of_includes),
        cmocka_unit_test(test_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

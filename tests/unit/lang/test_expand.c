/* lang_expand: parameters, functions, env() and file(), constants. */
#include "unit/lang/support.h"

#include <errno.h>

static const char *test_env(void *argument, const char *name)
{
    (void)argument;
    return strcmp(name, "USER_NAME") == 0  ? "hunter2"
           : strcmp(name, "WORKERS") == 0  ? "3"
           : strcmp(name, "NOT_UTF8") == 0 ? "\xFF"
           : strcmp(name, "EMPTY") == 0    ? ""
                                           : NULL;
}

static int test_file(void *argument, const char *path, size_t max_bytes, char **data, size_t *bytes)
{
    (void)argument;
    if (strcmp(path, "missing") == 0)
        return ENOENT;
    assert_int_equal(max_bytes, LANG_SECRET_BYTES_MAX);
    *data = strdup("s3cret\r\n");
    *bytes = strlen(*data);
    return 0;
}

static struct job_file *expand(struct fixture *f, const char *text, const struct lang_setting *items,
                               uint32_t count)
{
    struct lang_settings settings = {
        .items = items, .count = count, .get_env = test_env, .read_file = test_file};
    struct job_file *job = parse_job(f, text);
    unsigned errors = f->diags.errors;
    bool is_good = lang_expand(job, &f->arena, &f->diags, &settings);
    assert_int_equal(is_good, f->diags.errors == errors);
    return job;
}

/* The value of `v` in a job block after `declarations` as text, or the codes of the diagnostics if
 * there are any. */
static const char *value_of(struct fixture *f, const char *declarations, const char *value)
{
    forget_diags(f);
    const char *text = arena_printf(&f->arena, "%s\njob j { v: %s }\n", declarations, value);
    struct job_file *job = expand(f, text, NULL, 0);
    assert_int_equal(job->job_is_broken && f->diags.count == 0, false);
    return f->diags.count > 0 ? codes(f) : entry_text(f, job->job_entries, job->job_entries_count, "v");
}

static const struct {
    const char *declarations, *value, *expected;
} expansions[] = {
    {"param days: int = 30", "2 * days * 24h", "60d"},
    {"param a: int = 2\nparam b: int = a * 3", "b - a", "4"},
    {"param f: float = 2", "f", "2.0"},
    {"param d: duration = 0", "d", "0s"},
    {"param t: text = \"x\"", "[t, concat(t, \"/y\"), { a: t }, k { a: t }]",
     "[\"x\", \"x/y\", { a: \"x\" }, k { a: \"x\" }]"},
    {"param b: bool = true", "b", "true"},
    {"param s: bytes = 64 * 1MiB", "s / 2", "32MiB"},
    {"let f(x) = x + 1", "f(2)", "3"},
    {"let f(x) = x + 1", "f(a * 2)", "a * 2 + 1"},
    {"let f(x) = x * 2", "f(a + 1)", "(a + 1) * 2"},
    {"let f(x) = -x", "f(5)", "-5"},
    {"let f(x, n) = (x + 1.0) / (n + 20.0)", "f(clicks, imps)", "(clicks + 1.0) / (imps + 20.0)"},
    {"let f() = 7", "f() + f()", "14"},
    {"let f(x) = case when x is null then 0 else x end", "f(a.b)",
     "case when a.b is null then 0 else a.b end"},
    /* functions of functions, in either order of declaration */
    {"let g(y) = f(y) * f(2)\nlet f(x) = x + 1", "g(a)", "(a + 1) * 3"},
    /* hygiene: a function's parameters replace no names of the caller, and hide the job's parameters */
    {"let f(x, y) = x - y\nlet g(y) = f(y, 1)", "g(x)", "x - 1"},
    {"let f(x, y) = x - y", "f(y, x)", "y - x"},
    {"param x: int = 9\nlet f(x) = x + 1", "f(a)", "a + 1"},
    {"param x: int = 9\nlet f(y) = x + y", "f(x)", "18"},
    {"let f(x) = x.y", "f(a)", "a.y"},
    /* a function's name is no value, a parameter's name no function */
    {"let f(x) = x", "f", "f"},
    {"param p: int = 1", "p(2)", "p(2)"},
    /* secrets are printed as the calls that they come from */
    {"", "env(\"USER_NAME\")", "env(\"USER_NAME\")"},
    {"", "env(\"NONE\", \"default\")", "env(\"NONE\")"},
    {"", "env(\"EMPTY\", \"default\")", "env(\"EMPTY\")"},
    {"", "file(\"a/b\")", "file(\"a/b\")"},
    {"", "concat(\"user=\", env(\"USER_NAME\"))", "concat(\"user=\", env(\"USER_NAME\"))"},
    {"param w: int = env(\"WORKERS\")", "w * 2", "env(\"WORKERS\") * 2"},
    {"param w: text = env(\"USER_NAME\")\nlet f(x) = [x]", "f(w)", "[env(\"USER_NAME\")]"},
    /* errors */
    {"param p: int = 1.5", "1", "E0208"},
    {"param p: text = 1", "1", "E0208"},
    {"param p: int", "p", "E0208"},
    {"param p: int = p", "p", "E0205"},
    {"param p: int = q\nparam q: int = 1", "p", "E0205"},
    {"param p: int = 1 / 0", "p", "E0209"},
    {"param p: int = a + 1", "p", "E0205"},
    {"param p: int = env(\"USER_NAME\")", "p", "E0208"},
    {"let f(x) = f(x)", "f(1)", "E0206"},
    {"let f(x) = g(x)\nlet g(x) = h(x)\nlet h(x) = f(x)", "g(1)", "E0206"},
    {"let f(x) = y", "f(1)", "E0206"},
    {"let f(x) = x", "f(1, 2)", "E0206"},
    {"let f(x) = x", "[f(), f(1, 2)]", "E0206 E0206"},
    {"", "[1 / 0, 9223372036854775807 * 2]", "E0209 E0209"},
    {"", "1h + 1MiB", "E0209"},
    {"", "env(\"NONE\")", "E0207"},
    {"", "env(\"NOT_UTF8\")", "E0207"},
    {"", "file(\"missing\")", "E0207"},
    {"",
     "[env(), env(1), env(\"\"), env(\"A=B\"), env(\"A\", \"b\", \"c\"), file(\"a\", \"b\"), "
     "file(env(\"USER_NAME\"))]",
     "E0305 E0305 E0305 E0305 E0305 E0305 E0305"},
};

static void test_expansions(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < ARRAY_COUNT(expansions); i++) {
        const char *value = value_of(f, expansions[i].declarations, expansions[i].value);
        if (strcmp(value, expansions[i].expected) != 0)
            print_error("%s / %s: %s\n", expansions[i].declarations, expansions[i].value,
                        f->diags.count > 0 ? f->diags.items[0].message : "");
        assert_string_equal(value, expansions[i].expected);
    }
}

/* Secrets have the right values, but are in no printed value and no diagnostic. */
static void test_secrets(void **state)
{
    struct fixture *f = *state;
    struct job_file *job =
        expand(f,
               "param u: text = env(\"USER_NAME\")\njob j { a: u, b: file(\"x\"), c: concat(u, \"!\") }\n"
               "param n: int = env(\"USER_NAME\")\n",
               NULL, 0);
    assert_true(str_is(job->job_entries[0].value->text, "hunter2"));
    assert_true(str_is(job->job_entries[1].value->text, "s3cret"));
    assert_true(str_is(job->job_entries[2].value->text, "hunter2!"));
    assert_string_equal(codes(f), "E0208");
    lang_label_expansions(job, &f->diags);
    char *memory = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&memory, &bytes);
    struct diag_source source = {"job", job->text};
    diag_print(out, &f->diags, &source, false);
    diag_print_json(out, &f->diags, &source);
    for (uint32_t i = 0; i < job->job_entries_count; i++)
        fputs(ast_text(&f->arena, job->job_entries[i].value), out);
    fclose(out);
    assert_null(strstr(memory, "hunter2"));
    assert_null(strstr(memory, "s3cret"));
    free(memory);
}

static void test_settings(void **state)
{
    static const char text[] =
        "param i: int = 1\nparam f: float = 1\nparam b: bool = false\nparam t: text = \"\"\n"
        "param d: duration\nparam s: bytes = 1B\njob j { v: [i, f, b, t, d, s] }\n";
    const struct lang_setting good[] = {
        {STR("i"), STR("1")},     {STR("i"), STR("-7")}, {STR("f"), STR("0.5")}, {STR("b"), STR("true")},
        {STR("t"), STR("a \"b")}, {STR("d"), STR("2h")}, {STR("s"), STR("3KiB")}};
    struct fixture *f = *state;
    struct job_file *job = expand(f, text, good, ARRAY_COUNT(good));
    assert_string_equal(codes(f), "");
    assert_string_equal(ast_text(&f->arena, job->job_entries[0].value),
                        "[-7, 0.5, true, \"a \\\"b\", 2h, 3KiB]");
    assert_true(job->params[0].is_set);
    const struct lang_setting bad[] = {{STR("i"), STR("1.5")},  {STR("f"), STR("x")}, {STR("b"), STR("yes")},
                                       {STR("t"), STR("\xFF")}, {STR("d"), STR("2")}, {STR("s"), STR("2h")},
                                       {STR("j"), STR("1")},    {STR(""), STR("1")}};
    expand(f, text, bad, ARRAY_COUNT(bad));
    assert_string_equal(codes(f), "E0208 E0208 E0208 E0208 E0208 E0208 E0205 E0205");
    assert_string_equal(f->diags.items[0].hint, "values of type int are written 42");
}

/* What comes from a function's body has the span of the call, and a diagnostic about it gets a label at the
 * definition; a parameter's value has the span of its use. */
static void test_places(void **state)
{
    struct fixture *f = *state;
    static const char text[] = "let f(x) = x + y2k(1)\nparam p: int = 3\nstream s = a | where f(abc) > p\n";
    struct job_file *job = expand(f, text, NULL, 0);
    assert_string_equal(codes(f), "");
    const struct ast *where = job->streams[0].steps[0].entries[0].value;
    uint32_t use = (uint32_t)(strstr(text, "f(abc)") - text);
    assert_int_equal(where->children[0]->span.begin, use);
    assert_int_equal(where->children[0]->span.end, use + 6);
    assert_int_equal(where->children[0]->children[1]->span.begin, use);
    assert_int_equal(where->children[0]->children[0]->span.begin, use + 2); /* the argument keeps its span */
    assert_int_equal(where->children[1]->span.begin, (uint32_t)(strstr(text, "> p\n") - text) + 2);
    assert_int_equal(where->children[1]->tag, AST_INT);
    diag_error(&f->diags, DIAG_NO_FUNCTION, where->children[0]->children[1]->span, "no function y2k");
    diag_error(&f->diags, DIAG_TYPE_CLASH, where->children[1]->span, "an int");
    diag_error(&f->diags, DIAG_TYPE_CLASH, where->span, "all of it");
    lang_label_expansions(job, &f->diags);
    assert_int_equal(f->diags.items[0].labels_count, 1);
    assert_int_equal(f->diags.items[0].labels[0].span.begin, 4);
    assert_string_equal(f->diags.items[0].labels[0].message, "`f` is defined here");
    assert_int_equal(f->diags.items[1].labels_count, 1);
    assert_int_equal(f->diags.items[2].labels_count, 0);
}

/* Declarations and steps with errors are marked, the others are expanded; the types of a schema
 * are left alone. */
static void test_marks(void **state)
{
    struct fixture *f = *state;
    struct job_file *job =
        expand(f,
               "param ms: int = 1\nsource a = file { schema: { t: time(ms) }, path: env(\"NONE\") }\n"
               "source b = file { schema: { t: time(ms) } }\n"
               "stream s = b | where x > ms | where x > f(1, 2) | with ms = 1\n"
               "let f(x) = x\nsink n = null from s { p: ms }\n",
               NULL, 0);
    assert_string_equal(codes(f), "E0207 E0206 E0201");
    assert_true(job->sources[0].is_broken);
    assert_false(job->sources[1].is_broken);
    assert_entry(f, &job->sources[1], "schema", "{ t: time(ms) }");
    assert_true(job->streams[0].is_broken);
    assert_false(job->streams[0].steps[0].is_broken);
    assert_entry(f, &job->streams[0].steps[0], "", "x > 1");
    assert_true(job->streams[0].steps[1].is_broken);
    assert_true(job->streams[0].steps[2].is_broken);
    assert_entry(f, &job->sinks[0], "p", "1");
}

/* With `unset`, variables of the environment need no values: for commands that only look at a job. */
static void test_unset(void **state)
{
    struct fixture *f = *state;
    struct lang_settings settings = {.get_env = test_env, .unset = "unknown"};
    struct job_file *job =
        parse_job(f, "job j { a: env(\"NONE\"), b: env(\"NONE\", \"d\"), c: env(\"USER_NAME\") }\n");
    static const char *const expected[] = {"unknown", "d", "hunter2"};
    assert_true(lang_expand(job, &f->arena, &f->diags, &settings));
    for (uint32_t i = 0; i < 3; i++)
        assert_true(str_is(job->job_entries[i].value->text, expected[i]));
}

/* Functions that double their argument again and again, or that call each other too deep, end in one
 * diagnostic, and soon. */
static void test_growth(void **state)
{
    struct fixture *f = *state;
    const char *text = "let f0(x) = x + x\n";
    for (int i = 1; i < 60; i++)
        text = arena_printf(&f->arena, "%slet f%d(x) = f%d(f%d(x))\n", text, i, i - 1, i - 1);
    expand(f, arena_printf(&f->arena, "%sstream s = a | where f59(a) > 1 | where f58(a) > 1\n", text), NULL,
           0);
    assert_string_equal(codes(f), "E0105");
    forget_diags(f);
    text = "let f0(x) = x\n";
    for (int i = 1; i <= 150; i++)
        text = arena_printf(&f->arena, "%slet f%d(x) = f%d(x)\n", text, i, i - 1);
    expand(f, arena_printf(&f->arena, "%sstream s = a | where f99(a) > 1 | where f149(a) > 1\n", text), NULL,
           0);
    assert_string_equal(codes(f), "E0105");
    forget_diags(f);
    text = "";
    for (int i = 150; i > 0; i--)
        text = arena_printf(&f->arena, "%slet f%d(x) = f%d(x)\n", text, i, i - 1);
    expand(f, arena_printf(&f->arena, "%slet f0(x) = x\nstream s = a | where f150(a) > 1\n", text), NULL, 0);
    assert_string_equal(codes(f), "E0105");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_case(test_expansions), test_case(test_secrets), test_case(test_settings), test_case(test_places),
        test_case(test_marks),      test_case(test_unset),   test_case(test_growth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

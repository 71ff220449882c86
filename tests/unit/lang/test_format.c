/* The formatter: the layout that it gives; it keeps the meaning of a job; formatting twice gives the
 * same as once. */
#include "core/os.h"
#include "unit/lang/support.h"

#include <dirent.h>

/* The formatted job, after checks that formatting it again changes nothing and that it means the same; NULL:
 * it has errors. */
static const char *format(struct fixture *f, struct str text)
{
    struct byte_buffer once = {0}, twice = {0};
    forget_diags(f);
    if (!lang_format(&f->arena, &f->diags, &lang_test_registry, text, &once)) {
        assert_int_equal(once.length, 0);
        return NULL;
    }
    struct str formatted =
        arena_str(&f->arena, (struct str){once.data == NULL ? "" : once.data, once.length});
    assert_true(lang_format(&f->arena, &f->diags, &lang_test_registry, formatted, &twice));
    struct str again = {twice.data, twice.length};
    if (!str_equal(formatted, again))
        print_error("once:\n%s\ntwice:\n%.*s\n", formatted.data, STR_ARGS(again));
    assert_true(str_equal(formatted, again));
    struct job_file *before = lang_parse(&f->arena, &f->diags, &lang_test_registry, text);
    struct job_file *after = lang_parse(&f->arena, &f->diags, &lang_test_registry, formatted);
    assert_true(lang_job_equal(before, after));
    buffer_free(&once);
    buffer_free(&twice);
    return formatted.data;
}

static const struct {
    const char *text, *formatted;
} layouts[] = {
    {"", ""},
    {"\n\n  # alone\n\n\n", "# alone\n"},
    {"\xEF\xBB\xBF# mark\r\nstream a=b\r\n", "# mark\nstream a = b\n"},
    {"param   x:int=3", "param x: int = 3\n"},
    {"param x:int=-(3)+ - 4%2\nlet f( a,b ,)=a .b", "param x: int = -(3) + -4 % 2\nlet f(a, b) = a.b\n"},
    {"let f(a) =\nnot(a)and a!=[1,2,]", "let f(a) =\n    not (a) and a != [1, 2]\n"},
    /* blocks: on one line, or spread */
    {"job j{a:1,b:2,}", "job j { a: 1, b: 2 }\n"},
    {"job j{}", "job j {}\n"},
    {"job j{\n}", "job j {}\n"},
    {"job j{a:1\nb:2}", "job j {\n  a: 1\n  b: 2\n}\n"},
    {"job j\n{a:1,b:2,\n\n\n c:3\n\n}", "job j {\n  a: 1, b: 2\n\n  c: 3\n}\n"},
    {"job j{a:1 # one\n,b:{c:2\n,d:3}}", "job j {\n  a: 1  # one\n  b: {\n    c: 2\n    d: 3\n  }\n}\n"},
    {"job j { # first\na: k\n{b:1}}", NULL},
    {"job j { # first\na: k {b:1}}", "job j {  # first\n  a: k { b: 1 }\n}\n"},
    {"job j # first\n{a:1}", "job j {  # first\n  a: 1\n}\n"},
    {"job j { a: [1,\n2, # two\n3\n], b:f(x,\ny) }",
     "job j { a: [1,\n  2,  # two\n  3\n], b: f(x,\n  y) }\n"},
    {"job j {\n\n# before\na: list({b:int!,c:time( ms )!})\n# after\n\n}",
     "job j {\n  # before\n  a: list({ b: int!, c: time(ms)! })\n  # after\n}\n"},
    /* streams: on one line, or a step on each */
    {"stream a=b|feature by x over 1h{n,m : count( )}",
     "stream a = b | feature by x over 1h { n, m: count() }\n"},
    {"stream a=b|where x>0|with y=1,z=2", "stream a = b | where x > 0 | with y = 1, z = 2\n"},
    {"stream a=b|where x>0\n|with y=1,\nz=2",
     "stream a = b\n  | where x > 0\n  | with y = 1,\n      z = 2\n"},
    {"stream a=\nb # in\n# note\n|where x\n\n|feature by x over 1h\nevery 1m\n{n:count()\n}|drop x",
     "stream a =\n    b  # in\n  # note\n  | where x\n  | feature by x over 1h\n      every 1m {\n        n: "
     "count()\n      }\n"
     "  | drop x\n"},
    {"stream a=b|where case when x then 1 else 2 end is not null",
     "stream a = b | where case when x then 1 else 2 end is not null\n"},
    /* comments are aligned within a run of lines */
    {"param a:int=1#a\nparam bcd:int=1 # b\n\n# own\nparam e:int=1#   e  \nsource s=file",
     "param a: int = 1    #a\nparam bcd: int = 1  # b\n\n# own\nparam e: int = 1  #   e\nsource s = file\n"},
    {"param \xC3\xA9: int = 1", NULL},
    {"sink o=null from `x`", NULL},
    {"sink o = null from t . late{}# end", "sink o = null from t.late {}  # end\n"},
    {"stream a = b | select `\xC3\xA9` # x\n | drop c # y",
     "stream a = b\n  | select `\xC3\xA9`  # x\n  | drop c      # y\n"},
};

static void test_layouts(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < ARRAY_COUNT(layouts); i++) {
        const char *formatted = format(f, str_from(layouts[i].text));
        if (layouts[i].formatted == NULL) {
            assert_null(formatted);
            assert_true(f->diags.errors > 0);
            continue;
        }
        if (formatted == NULL)
            print_error("%s\n%s\n", layouts[i].text, f->diags.items[0].message);
        assert_non_null(formatted);
        assert_string_equal(formatted, layouts[i].formatted);
    }
}

/* Formats the jobs of a folder, which must keep their meaning. is_canonical: they must be
 * formatted already. */
static void check_folder(struct fixture *f, const char *folder, bool is_canonical)
{
    DIR *directory = opendir(folder);
    assert_non_null(directory);
    unsigned count = 0;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        const char *suffix = strrchr(entry->d_name, '.');
        if (suffix == NULL || strcmp(suffix, ".leat") != 0)
            continue;
        char *text = NULL;
        size_t bytes = 0;
        assert_int_equal(
            os_read_file(arena_printf(&f->arena, "%s/%s", folder, entry->d_name), 1 << 20, &text, &bytes), 0);
        const char *formatted = format(f, (struct str){text, bytes});
        if (is_canonical && formatted != NULL)
            assert_string_equal(formatted, text);
        count += formatted != NULL;
        free(text);
    }
    closedir(directory);
    assert_true(count > 0);
}

static void test_jobs(void **state)
{
    check_folder(*state, LEAT_SOURCE_DIR "/jobs", true);
    check_folder(*state, LEAT_SOURCE_DIR "/tests/unit/lang", false);
    check_folder(*state, LEAT_SOURCE_DIR "/tests/fuzz/corpus/lang", false);
}

/* --- Random jobs, with spaces, line breaks and comments wherever the language allows them --- */

struct writer {
    struct byte_buffer out;
    uint64_t random;
};

static uint32_t choose(struct writer *w, uint32_t below)
{
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return (uint32_t)(w->random >> 33) % below;
}

/* Random white space; with `may_break` also line breaks and comments. */
static void space(struct writer *w, bool may_break)
{
    static const char *const breaks[] = {"\n",     "\n\n\n", " # c\n", "# \xE2\x82\xAC \"x\n  ",
                                         "\r\n\t", " ",      "  "};
    buffer_printf(&w->out, "%s",
                  may_break && choose(w, 3) == 0 ? breaks[choose(w, ARRAY_COUNT(breaks))]
                  : choose(w, 2) == 0            ? " "
                                                 : "");
}

static void word(struct writer *w, const char *text)
{
    buffer_printf(&w->out, " %s ", text);
}

static void expression(struct writer *w, int depth)
{
    static const char *const leaves[] = {"a",     "b_1",      "`odd name`", "12",   "1.5", "10s",
                                         "64MiB", "\"t\\n\"", "true",       "null", "c.d"};
    static const char *const infixes[] = {"+", "-", "*", "/", "%"};
    uint32_t form = depth <= 0 ? 0 : choose(w, 8);
    space(w, depth > 0);
    switch (form) {
    case 1:
    case 2:
        expression(w, depth - 1);
        space(w, true);
        word(w, infixes[choose(w, ARRAY_COUNT(infixes))]);
        expression(w, depth - 1);
        break;
    case 3:
        word(w, "- (");
        expression(w, depth - 1);
        word(w, ")");
        break;
    case 4:
        buffer_printf(&w->out, " f%s(", choose(w, 2) == 0 ? " " : "");
        expression(w, depth - 1);
        buffer_printf(&w->out, ",");
        expression(w, depth - 1);
        space(w, true);
        buffer_printf(&w->out, choose(w, 4) == 0 ? ",)" : ")");
        break;
    case 5:
        buffer_printf(&w->out, "(");
        expression(w, depth - 1);
        word(w, choose(w, 2) == 0 ? "is not null" : "not in [ 1,\n 2 , ]");
        buffer_printf(&w->out, ")");
        break;
    case 6:
        word(w, "case when");
        expression(w, depth - 1);
        word(w, "then");
        expression(w, depth - 1);
        space(w, true);
        word(w, "end");
        break;
    default: word(w, leaves[choose(w, ARRAY_COUNT(leaves))]);
    }
}

static void block(struct writer *w, int depth)
{
    buffer_printf(&w->out, "{");
    for (uint32_t i = 0, count = choose(w, 4); i < count; i++) {
        space(w, true);
        buffer_printf(&w->out, "k%u", i);
        space(w, true);
        buffer_printf(&w->out, ":");
        uint32_t form = depth <= 0 ? 0 : choose(w, 4);
        if (form == 1)
            buffer_printf(&w->out, " kind ");
        if (form == 1 || form == 2)
            block(w, depth - 1);
        else
            expression(w, depth);
        space(w, true);
        buffer_printf(&w->out, choose(w, 2) == 0 ? "," : "\n");
    }
    space(w, true);
    buffer_printf(&w->out, "}");
}

static void step(struct writer *w)
{
    space(w, true);
    buffer_printf(&w->out, "|");
    space(w, true);
    switch (choose(w, 4)) {
    case 0:
        word(w, "where");
        expression(w, 3);
        break;
    case 1:
        word(w, "with a =");
        expression(w, 2);
        buffer_printf(&w->out, ",");
        space(w, true);
        word(w, "b =");
        expression(w, 2);
        break;
    case 2:
        word(w, "dedup by a, b");
        space(w, true);
        word(w, "within 1h");
        break;
    default: word(w, "feature by a over [1h,2h]"); block(w, 1);
    }
}

static void declaration(struct writer *w, unsigned number)
{
    buffer_printf(&w->out, choose(w, 3) == 0 ? "\n\n" : "\n");
    space(w, true);
    buffer_printf(&w->out, "\n");
    switch (choose(w, 4)) {
    case 0:
        buffer_printf(&w->out, "param p%u : int =", number);
        expression(w, 2);
        break;
    case 1:
        buffer_printf(&w->out, "let f%u ( x , y ) =", number);
        expression(w, 3);
        break;
    case 2:
        buffer_printf(&w->out, "source s%u = file", number);
        space(w, true);
        block(w, 3);
        break;
    default:
        buffer_printf(&w->out, "stream t%u =", number);
        space(w, true);
        buffer_printf(&w->out, "s.late");
        for (uint32_t i = choose(w, 4); i > 0; i--)
            step(w);
    }
    space(w, false);
}

static void test_random_jobs(void **state)
{
    enum { JOBS = 3000 };
    struct fixture *f = *state;
    struct writer w = {.random = UINT64_C(0x9E3779B97F4A7C15)};
    unsigned formatted = 0;
    for (unsigned i = 0; i < JOBS; i++) {
        buffer_clear(&w.out);
        for (uint32_t j = 0, count = 1 + choose(&w, 5); j < count; j++)
            declaration(&w, j);
        const char *text = format(f, (struct str){w.out.data, w.out.length});
        if (text == NULL)
            print_error("%s\n%.*s\n", f->diags.items[0].message, (int)w.out.length, w.out.data);
        formatted += text != NULL;
        arena_reset(&f->arena);
    }
    buffer_free(&w.out);
    assert_int_equal(formatted, JOBS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {test_case(test_layouts), test_case(test_jobs),
                                       test_case(test_random_jobs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

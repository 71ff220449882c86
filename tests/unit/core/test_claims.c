/* Claims: when two names mean one file, when two patterns meet, and which files may not be replaced. */
#include "cmocka_all.h"
#include "core/claims.h"
#include "core/glob_meet.h"
#include "core/os.h"
#include "unit/support/random.h"
#include "unit/support/temporary.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <sys/stat.h>
#include <unistd.h>

static void put(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    close(fd);
}

static void test_globs(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        bool meet;
    } cases[] = {
        {"", "", true},
        {"a", "", false},
        {"a", "a", true},
        {"a", "b", false},
        {"a*", "*b", true},
        {"a*c", "*b", false},
        {"*", "a/b", false},
        {"*/*", "a/b", true},
        {"a/*.jsonl", "a/b.csv", false},
        {"a/*.jsonl", "a/b.jsonl", true},
        {"a/*.jsonl", "a/out-[0-9][0-9]*.jsonl", true},
        {"a/part-*.jsonl", "a/out-[0-9][0-9]*.jsonl", false},
        {"?", "[a-c]", true},
        {"[!a-c]", "[b]", false},
        {"[!a-c]", "[b-d]", true},
        {"[]x]", "]", true},
        {"[a", "\\[a", true},
        {"[a", "a", false},
        {"\\*", "a", false},
        {"\\*", "*", true},
        {"x*y*z", "*1*2*", true},
        {"*a", "*b", false},
        {"**", "***", true},
        {"a-[0-9][0-9]*", "a-[0-9]", false},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        if (globs_meet(cases[i].a, cases[i].b) != cases[i].meet ||
            globs_meet(cases[i].b, cases[i].a) != cases[i].meet)
            fail_msg("`%s` and `%s`", cases[i].a, cases[i].b);
    }
}

/* globs_meet, for short random patterns, agrees with fnmatch(3) over all short names of a small alphabet. */
static void test_globs_at_random(void **state)
{
    (void)state;
    static const char *const pieces[] = {"a", "b", "/", "*", "?", "[ab]", "[!a]", "\\*", "[a-b/]"};
    static const char letters[] = "ab*/[";
    enum { ROUNDS = 3000, LONGEST = 4, LETTERS = sizeof(letters) - 1 };
    struct test_random random = {3};
    for (int round = 0; round < ROUNDS; round++) {
        char patterns[2][64] = {"", ""};
        bool meet = false;
        for (int p = 0; p < 2; p++)
            for (uint32_t n = random_below(&random, 5); n > 0; n--)
                strcat(patterns[p], pieces[random_below(&random, ARRAY_COUNT(pieces))]);
        for (int length = 0; length <= LONGEST && !meet; length++) {
            int names = 1;
            for (int i = 0; i < length; i++)
                names *= LETTERS;
            for (int number = 0; number < names && !meet; number++) {
                char name[LONGEST + 1] = "";
                for (int i = 0, left = number; i < length; i++, left /= LETTERS)
                    name[i] = letters[left % LETTERS];
                meet = fnmatch(patterns[0], name, FNM_PATHNAME) == 0 &&
                       fnmatch(patterns[1], name, FNM_PATHNAME) == 0;
            }
        }
        if (meet && !globs_meet(patterns[0], patterns[1]))
            fail_msg("`%s` and `%s` have a name in common", patterns[0], patterns[1]);
        if (!meet && globs_meet(patterns[0], patterns[1]) && strstr(patterns[0], "[a-b/]") == NULL &&
            strstr(patterns[1], "[a-b/]") == NULL)
            fail_msg("`%s` and `%s` have no name in common", patterns[0], patterns[1]);
    }
}

/* Checks a job that reads `input` and writes `output`; returns the codes of its diagnostics,
 * in static memory. */
static const char *compare(const char *output, const char *input)
{
    static char codes[64];
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    struct claims *claims = claims_new(&arena);
    claims_add_input(claims, str_from(input), "an input", (struct span){0, 0});
    claims_add(claims, CLAIM_WRITES_PART, output, output, "an output", (struct span){0, 0});
    codes[0] = '\0';
    bool is_good = claims_check(claims, &diags);
    assert_int_equal(is_good, diags.errors == 0);
    for (unsigned i = 0; i < diags.count; i++)
        strcat(codes, diag_code_name(diags.items[i].code));
    arena_free(&arena);
    return codes;
}

static void test_names(void **state)
{
    char absolute[600];
    assert_int_equal(os_mkdirs("d/e"), 0);
    assert_int_equal(symlink("d", "l"), 0);
    snprintf(absolute, sizeof(absolute), "%s/d/in", (const char *)*state);
    static const char *const same[] = {"d/in", "./d/in", "d/./in", "d/e/../in", "l/in", "l/e/../in", "d//in"};
    static const char *const other[] = {"in", "d/e/in", "d/in2", "l/e/in", "none/d/in", "none/in"};
    for (int is_there = 0; is_there < 2; is_there++) {
        if (is_there)
            put("d/in");
        for (size_t i = 0; i < ARRAY_COUNT(same); i++)
            assert_string_equal(compare(same[i], "d/in"), "E0617");
        assert_string_equal(compare(absolute, "l/in"), "E0617");
        for (size_t i = 0; i < ARRAY_COUNT(other); i++)
            assert_string_equal(compare(other[i], "d/in"), "");
        assert_string_equal(compare("d/in", "d/in.part"), "E0617");
        assert_string_equal(compare("d/in", "d/in.part.new-0000000012"), "E0617");
        assert_string_equal(compare("d/in", "d/in.part.new-12"), "");
        assert_string_equal(compare("d/in", "d/in.part.old"), "");
        assert_string_equal(compare("d/in", "*/in"), "E0617");
        assert_string_equal(compare("d/in", "d/*/in"), "");
    }
    /* Directories that do not exist yet. */
    assert_string_equal(compare("new/x/../in", "new/in"), "E0617");
    assert_string_equal(compare("new/in", "l/../new/in"), "E0617");
    assert_string_equal(compare("new/in", "newer/in"), "");
    /* A hard link: two names of one file. */
    assert_int_equal(link("d/in", "hard"), 0);
    assert_string_equal(compare("hard", "d/in"), "E0617");
    assert_int_equal(unlink("hard"), 0);
    /* Brackets in an input's name are literal if a file has that name, else a pattern. */
    put("d/[x]");
    assert_string_equal(compare("d/x", "d/[x]"), "");
    assert_string_equal(compare("d/\\[x\\]", "d/[x]"), "E0617");
    assert_int_equal(unlink("d/[x]"), 0);
    assert_string_equal(compare("d/x", "d/[x]"), "E0617");
    /* An input directory claims its manifest and leat's checkpoint files, but no other files. */
    assert_string_equal(compare("d/manifest.json", "d"), "E0617");
    assert_string_equal(compare("l/gen-000001/ckpt-000000000001/state.bin", "d"), "E0617");
    assert_string_equal(compare("d/rows.jsonl", "d"), "");
}

static void test_refuse(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    struct claims *claims = claims_new(&arena);
    put("input");
    put("output");
    claims_add_input(claims, STR("input"), "an input", (struct span){0, 0});
    claims_add(claims, CLAIM_WRITES_PART, "output", "output", "an output", (struct span){0, 0});
    assert_true(claims_check(claims, &diags));
    assert_null(claims_refuse(claims, "output", NULL));
    assert_null(claims_refuse(claims, "nothing", NULL));
    enum diag_code code = DIAG_NONE;
    assert_string_equal(claims_refuse(claims, "input", &code), "is read by an input");
    assert_int_equal(code, DIAG_OUTPUT_DESTROYS);
    assert_string_equal(claims_refuse(claims, ".", &code), "is a directory");
    assert_int_equal(code, DIAG_OUTPUT_FAILED);
    assert_string_equal(claims_refuse(NULL, "/dev/null", NULL), "is a device");
    /* Changes after the check: the output's name leads to the input; a file that was opened as
     * input is renamed. */
    assert_int_equal(unlink("output"), 0);
    assert_int_equal(link("input", "output"), 0);
    assert_string_equal(claims_refuse(claims, "output", NULL), "is read by an input");
    put("late");
    int fd = open("late", O_RDONLY);
    assert_null(claims_refuse(claims, "late", NULL));
    claims_opened(claims, fd);
    close(fd);
    assert_int_equal(rename("late", "later"), 0);
    assert_string_equal(claims_refuse(claims, "later", &code), "is read by a source");
    assert_int_equal(code, DIAG_OUTPUT_DESTROYS);
    assert_int_equal(symlink("input", "link"), 0);
    assert_string_equal(claims_refuse(claims, "link", NULL), "is a symbolic link");
    claims_opened(NULL, fd);
    arena_free(&arena);
}

static void test_inside(void **state)
{
    (void)state;
    assert_int_equal(os_mkdirs("state/gen"), 0);
    assert_int_equal(symlink("state", "other"), 0);
    assert_true(claims_inside("state/x", "./state"));
    assert_true(claims_inside("other/gen/x", "state"));
    assert_true(claims_inside("state/new/x", "other/"));
    assert_false(claims_inside("state2/x", "state"));
    assert_false(claims_inside("x", "state"));
    assert_false(claims_inside("state/../x", "state"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_globs),  cmocka_unit_test(test_globs_at_random), cmocka_unit_test(test_names),
        cmocka_unit_test(test_refuse), cmocka_unit_test(test_inside),
    };
    return cmocka_run_group_tests(tests, temporary_enter, temporary_leave);
}

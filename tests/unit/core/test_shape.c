/* shape_compare: how a job differs from that of a checkpoint, and which differences are allowed. */
#include "core/buffer.h"
#include "core/shape.h"

#include "cmocka_all.h"

static struct byte_buffer said;

static void tell(void *argument, bool is_allowed, const char *sentence)
{
    (void)argument;
    buffer_printf(&said, "%s %s\n", is_allowed ? "may" : "NOT", sentence);
}

static void assert_differences(const char *checkpoint, const char *job, const char *expected)
{
    struct arena arena = {0};
    buffer_clear(&said);
    buffer_printf(&said, "%s", "");
    shape_compare(str_from(checkpoint), str_from(job), &arena, tell, NULL);
    if (strcmp(said.length == 0 ? "" : said.data, expected) != 0)
        fail_msg("expected:\n%s\nfound:\n%s", expected, said.data);
    arena_free(&arena);
}

static void test_differences(void **state)
{
    (void)state;
    assert_differences("", "", "");
    assert_differences("=a: 1\n?b: 2\n~c: 3\n", "~c: 3\n=a: 1\n?b: 2\n", "");
    assert_differences("=a: 1\n", "=a: 2\n", "NOT a: the checkpoint has `1`, the job has `2`\n");
    assert_differences("=a: 1\n", "", "NOT a: the checkpoint has `1`, the job has none\n");
    assert_differences("", "=a: 1\n", "NOT a: the checkpoint has none, the job has `1`\n");
    assert_differences("?a: 1\n?b: 1\n", "?b: 2\n?c: 1\n",
                       "may a: the checkpoint has `1`, the job has none\n"
                       "NOT b: the checkpoint has `1`, the job has `2`\n"
                       "may c: the checkpoint has none, the job has `1`\n");
    assert_differences("~a: 1\n~b: 1\n", "~b: 2\n~c: 1\n",
                       "may a: the checkpoint has `1`, the job has none\n"
                       "may b: the checkpoint has `1`, the job has `2`\n"
                       "may c: the checkpoint has none, the job has `1`\n");
    assert_differences("=a: x: y", "=a: x: z\n", "NOT a: the checkpoint has `x: y`, the job has `x: z`\n");
    assert_differences("=a:\n", "=a: \n", "");
}

/* Malformed shapes: nothing is read beyond the text, and what differs is reported. */
static void test_garbage(void **state)
{
    (void)state;
    assert_differences("\n", "=a: 1\n",
                       "NOT : the checkpoint has ``, the job has none\n"
                       "NOT a: the checkpoint has none, the job has `1`\n");
    assert_differences("no colon", "", "NOT no colon: the checkpoint has ``, the job has none\n");
    assert_differences("x", "x", "");
    assert_differences(":", "", "NOT : the checkpoint has ``, the job has none\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_differences), cmocka_unit_test(test_garbage)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    buffer_free(&said);
    return failed;
}

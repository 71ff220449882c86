/* Jobs that are refused although they parse, for names, columns, options or the plan. The diagnostics of
 * `leat check` for refused/NAME.leat must be the text of refused/NAME.txt. LEAT_UPDATE_GOLDEN=1 writes the
 * texts anew: read the difference before you commit it. (Jobs that do not parse: test_bad_jobs.c.) */
#include "cli/commands.h"
#include "core/os.h"
#include "unit/plan/toys.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#define REFUSED_JOBS LEAT_SOURCE_DIR "/tests/golden/refused"

enum { FILE_BYTES_MAX = 1 << 20 };

/* The diagnostics of the job as text, malloc'd. */
static char *diagnose(const char *name, const char *text)
{
    struct toy_job toy;
    toy_plan(&toy, &builtin_registry, text);
    assert_null(toy.plan);
    lang_label_expansions(toy.job, &toy.diags);
    struct diag_source source = {name, str_from(text)};
    char *memory = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&memory, &bytes);
    diag_print(out, &toy.diags, &source, false);
    fclose(out);
    for (unsigned i = 0; i < toy.diags.count; i++) {
        const struct diag *d = &toy.diags.items[i];
        bool is_about_all = d->code == DIAG_E0501; /* it is about the whole job, and has no place */
        if (!is_about_all && (d->span.end == 0 || d->span.begin >= d->span.end))
            fail_msg("%s: `%s` points nowhere", name, d->message);
    }
    toy_free(&toy);
    return memory;
}

static void check_job(const char *name)
{
    char path[512], code[16];
    char *text = NULL, *expected = NULL;
    size_t bytes = 0, expected_bytes = 0;
    snprintf(path, sizeof(path), "%s/%s", REFUSED_JOBS, name);
    assert_int_equal(os_read_file(path, FILE_BYTES_MAX, &text, &bytes), 0);
    char *said = diagnose(name, text);
    memcpy(path + strlen(path) - strlen("leat"), "txt", sizeof("txt"));
    if (getenv("LEAT_UPDATE_GOLDEN") != NULL) {
        FILE *out = fopen(path, "w");
        assert_non_null(out);
        fputs(said, out);
        fclose(out);
    }
    assert_int_equal(os_read_file(path, FILE_BYTES_MAX, &expected, &expected_bytes), 0);
    if (strcmp(said, expected) != 0)
        fail_msg("%s: said\n%s\nexpected\n%s", name, said, expected);
    /* The file's name begins with a code that it provokes. */
    snprintf(code, sizeof(code), "[%.5s]", name);
    assert_non_null(strstr(said, code));
    free(said);
    free(expected);
    free(text);
}

static int is_job(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);
    return length > 5 && strcmp(entry->d_name + length - 5, ".leat") == 0;
}

static void test_refused_jobs(void **state)
{
    (void)state;
    struct dirent **entries;
    int count = scandir(REFUSED_JOBS, &entries, is_job, alphasort);
    assert_true(count > 0);
    for (int i = 0; i < count; i++) {
        check_job(entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
}

/* The codes that a job file can provoke, except those of lang, which bad/ has, and E0408, which
 * tests/unit/core/test_option.c provokes. */
static void test_every_code_has_a_job(void **state)
{
    (void)state;
    static const char *const codes[] = {"E0201", "E0202", "E0204", "E0302", "E0303", "E0304",
                                        "E0305", "E0306", "E0307", "E0308", "E0401", "E0402",
                                        "E0403", "E0404", "E0405", "E0406", "E0407", "E0501",
                                        "E0502", "E0503", "E0504", "E0506", "E0507", "E0616"};
    struct dirent **entries;
    int count = scandir(REFUSED_JOBS, &entries, is_job, alphasort);
    for (size_t c = 0; c < ARRAY_COUNT(codes); c++) {
        bool is_found = false;
        for (int i = 0; i < count; i++)
            is_found = is_found || strncmp(entries[i]->d_name, codes[c], strlen(codes[c])) == 0;
        if (!is_found)
            fail_msg("no refused job for %s", codes[c]);
    }
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_jobs),
        cmocka_unit_test(test_every_code_has_a_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

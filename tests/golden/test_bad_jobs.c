/* Each job under tests/golden/bad has errors: the diagnostics of NAME.leat must be the text of NAME.txt.
 * Comments `# --set NAME=VALUE` at the beginning of a job are settings. LEAT_UPDATE_GOLDEN=1 writes the texts
 * anew: read the difference before you commit it. */
#include "core/os.h"
#include "lang/lang.h"
#include "unit/lang/kinds.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define BAD_JOBS LEAT_SOURCE_DIR "/tests/golden/bad"

enum { FILE_BYTES_MAX = 1 << 20, SETTINGS_MAX = 8 };

static uint32_t read_settings(struct str text, struct lang_setting *settings)
{
    static const char prefix[] = "# --set ";
    uint32_t count = 0;
    while (count < SETTINGS_MAX && text.length > strlen(prefix) &&
           memcmp(text.data, prefix, strlen(prefix)) == 0) {
        const char *name = text.data + strlen(prefix), *end = memchr(name, '\n', text.length);
        const char *equal = memchr(name, '=', (size_t)(end - name));
        settings[count++] =
            (struct lang_setting){{name, (size_t)(equal - name)}, {equal + 1, (size_t)(end - equal - 1)}};
        text.length -= (size_t)(end + 1 - text.data);
        text.data = end + 1;
    }
    return count;
}

/* The diagnostics of the job as text, malloc'd. */
static char *diagnose(const char *name, struct str text)
{
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    struct lang_setting items[SETTINGS_MAX];
    struct lang_settings settings = {.items = items, .count = read_settings(text, items)};
    struct job_file *job = lang_parse(&arena, &diags, &lang_test_registry, text);
    bool is_good = lang_expand(job, &arena, &diags, &settings);
    assert_true(!is_good || diags.errors > 0);
    lang_label_expansions(job, &diags);
    struct diag_source source = {name, text};
    char *memory = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&memory, &bytes);
    diag_print(out, &diags, &source, false);
    fclose(out);
    arena_free(&arena);
    return memory;
}

static void check_job(const char *name)
{
    char path[512];
    char *text = NULL, *expected = NULL;
    size_t bytes = 0, expected_bytes = 0;
    snprintf(path, sizeof(path), "%s/%s", BAD_JOBS, name);
    assert_int_equal(os_read_file(path, FILE_BYTES_MAX, &text, &bytes), 0);
    char *said = diagnose(name, (struct str){text, bytes});
    memcpy(path + strlen(path) - strlen("leat"), "txt", sizeof("txt"));
    if (getenv("LEAT_UPDATE_GOLDEN") != NULL) {
        FILE *out = fopen(path, "w");
        assert_non_null(out);
        fputs(said, out);
        fclose(out);
    }
    assert_int_equal(os_read_file(path, FILE_BYTES_MAX, &expected, &expected_bytes), 0);
    if (strcmp(said, expected) != 0)
        print_error("%s: said\n%s\nexpected\n%s\n", name, said, expected);
    assert_string_equal(said, expected);
    /* The file's name begins with a code that it provokes. */
    char code[16];
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

static void test_bad_jobs(void **state)
{
    (void)state;
    struct dirent **entries;
    int count = scandir(BAD_JOBS, &entries, is_job, alphasort);
    assert_true(count > 0);
    for (int i = 0; i < count; i++) {
        check_job(entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
}

/* The codes that lang reports by itself. */
static bool is_lang_code(const char *code)
{
    static const char *const others[] = {"E0201", "E0203", "E0205", "E0206", "E0207", "E0208", "E0209"};
    bool is_lang = strncmp(code, "E01", 3) == 0;
    for (size_t i = 0; i < ARRAY_COUNT(others); i++)
        is_lang = is_lang || strcmp(code, others[i]) == 0;
    return is_lang;
}

static void test_every_code_has_a_job(void **state)
{
    (void)state;
    struct dirent **entries;
    int count = scandir(BAD_JOBS, &entries, is_job, alphasort);
    unsigned codes = 0;
    for (int code = DIAG_NONE + 1; code < DIAG_CODE_COUNT; code++) {
        const char *name = diag_code_name((enum diag_code)code);
        bool is_found = !is_lang_code(name);
        codes += !is_found;
        for (int i = 0; i < count; i++)
            is_found = is_found || strncmp(entries[i]->d_name, name, strlen(name)) == 0;
        if (!is_found)
            print_error("no bad job for %s (%s)\n", name, diag_code_summary((enum diag_code)code));
        assert_true(is_found);
    }
    assert_true(codes >= 14);
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_jobs),
        cmocka_unit_test(test_every_code_has_a_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

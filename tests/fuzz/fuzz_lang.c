/* Arbitrary bytes as a job file: parsing, expansion, formatting and printing must neither crash nor leak, and
 * - formatting keeps the meaning, and formatting again changes nothing;
 * - a printed value is parsed to one that prints the same; it is UTF-8 if the job was;
 * - the diagnostics can always be written as text and as JSON. */
#include "core/utf8.h"
#include "fuzz.h"
#include "lang/lang.h"
#include "unit/lang/kinds.h"

#include <errno.h>
#include <stdlib.h>

/* Block size of arenas: small, so that most of the time is spent on the language, not on memory. */
enum { BLOCK_BYTES = 4096 };

/* The input must not reach the environment or the disk. */
static const char *no_env(void *argument, const char *name)
{
    (void)argument;
    return strlen(name) % 2 == 0 ? "7" : NULL;
}

static int no_file(void *argument, const char *path, size_t max_bytes, char **data, size_t *bytes)
{
    (void)argument;
    (void)max_bytes;
    if (strlen(path) % 2 == 0)
        return ENOENT;
    *data = strdup("secret\n");
    *bytes = *data == NULL ? 0 : strlen(*data);
    return 0;
}

static bool input_is_utf8;

static void check_value(struct arena *arena, const struct ast *value)
{
    struct diag_list diags;
    arena_reset(arena);
    diag_list_init(&diags, arena);
    const char *text = ast_text(arena, value);
    must(!input_is_utf8 || utf8_is_valid(str_from(text)), "a printed value is UTF-8");
    bool is_list =
        value->tag == AST_LIST || value->tag == AST_ASSIGN; /* of assignments: no value by itself */
    struct ast *again = is_list || strlen(text) > LANG_SOURCE_BYTES_MAX
                            ? NULL
                            : lang_parse_value(arena, &diags, str_from(text));
    /* The text may differ once (the parser folds constants), or not parse (the print may add parentheses
     * beyond the limit of nesting). */
    if (again != NULL) {
        const char *twice = ast_text(arena, again);
        struct ast *third = lang_parse_value(arena, &diags, str_from(twice));
        must(third != NULL && strcmp(ast_text(arena, third), twice) == 0,
             "a printed value prints the same again");
    }
}

static void check_entries(struct arena *arena, const struct ast_entry *entries, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        check_value(arena, entries[i].value);
}

static void check_values(const struct job_file *job)
{
    struct arena arena;
    arena_init(&arena, BLOCK_BYTES);
    check_entries(&arena, job->job_entries, job->job_entries_count);
    for (uint32_t i = 0; i < job->sources_count; i++)
        check_entries(&arena, job->sources[i].entries, job->sources[i].count);
    for (uint32_t i = 0; i < job->learners_count; i++)
        check_entries(&arena, job->learners[i].entries, job->learners[i].count);
    for (uint32_t i = 0; i < job->sinks_count; i++)
        check_entries(&arena, job->sinks[i].entries, job->sinks[i].count);
    for (uint32_t i = 0; i < job->streams_count; i++)
        for (uint32_t j = 0; j < job->streams[i].steps_count; j++)
            check_entries(&arena, job->streams[i].steps[j].entries, job->streams[i].steps[j].count);
    arena_free(&arena);
}

static void check_format(struct str text)
{
    struct arena arena;
    arena_init(&arena, BLOCK_BYTES);
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    struct byte_buffer once = {0}, twice = {0};
    if (lang_format(&arena, &diags, &lang_test_registry, text, &once)) {
        struct str formatted = {once.data, once.length};
        must(lang_format(&arena, &diags, &lang_test_registry, formatted, &twice), "a formatted job parses");
        must(twice.length == once.length &&
                 (once.length == 0 || memcmp(once.data, twice.data, once.length) == 0),
             "a formatted job stays as it is");
        must(lang_job_equal(lang_parse(&arena, &diags, &lang_test_registry, text),
                            lang_parse(&arena, &diags, &lang_test_registry, formatted)),
             "formatting keeps the meaning");
    } else {
        must(diags.errors > 0 && once.length == 0, "what is not formatted has a diagnostic");
    }
    buffer_free(&once);
    buffer_free(&twice);
    arena_free(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str text = {(const char *)data, size};
    input_is_utf8 = utf8_is_valid(text);
    struct arena arena;
    arena_init(&arena, BLOCK_BYTES);
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    struct job_file *job = lang_parse(&arena, &diags, &lang_test_registry, text);
    check_values(job);
    const struct lang_setting set[] = {{STR("days"), STR("7")}, {STR("x"), STR("1h")}};
    struct lang_settings settings = {
        .items = set, .count = ARRAY_COUNT(set), .get_env = no_env, .read_file = no_file};
    bool is_good = lang_expand(job, &arena, &diags, &settings);
    must(is_good || diags.errors > 0, "what is not expanded has a diagnostic");
    check_values(job);
    lang_label_expansions(job, &diags);
    fuzz_print(&diags, text);
    check_format(text);
    arena_free(&arena);
    return 0;
}

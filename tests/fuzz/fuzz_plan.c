/* Arbitrary bytes as a job, up to the checked plan, with all kinds, functions and formats that are built in.
 * Nothing may crash or leak, and nothing is opened; a job without a plan has an error; every diagnostic can
 * be written; a plan can be explained as text and pictures; a formatted job has the same fingerprint. */
#include "cli/commands.h"
#include "fuzz.h"
#include "plan/plan.h"

#include <errno.h>
#include <stdlib.h>

enum { BLOCK_BYTES = 16 << 10, JOB_BYTES_MAX = 16 << 10 };

/* The input must not reach the environment or the disk. */
static const char *no_env(void *argument LEAT_UNUSED, const char *name)
{
    return strlen(name) % 2 == 0 ? "7" : NULL;
}

static int no_file(void *argument LEAT_UNUSED, const char *path LEAT_UNUSED, size_t max_bytes LEAT_UNUSED,
                   char **data LEAT_UNUSED, size_t *bytes LEAT_UNUSED)
{
    return ENOENT;
}

/* The built-in registry without `use`: the input must not load libraries. */
static const struct registry *kinds(void)
{
    static struct registry registry;
    registry = builtin_registry;
    registry.use = NULL;
    return &registry;
}

static struct plan *make_plan(struct str text, struct arena *arena, struct diag_list *diags)
{
    struct lang_settings settings = {.get_env = no_env, .read_file = no_file};
    struct job_file *job = lang_parse(arena, diags, kinds(), text);
    if (!lang_expand(job, arena, diags, &settings))
        return NULL;
    struct plan_options options = {.registry = kinds()};
    return plan_make(job, &options, arena, diags);
}

static void explain(const struct plan *plan)
{
    struct byte_buffer out = {0};
    plan_explain(plan, &out);
    plan_dot(plan, &out);
    plan_svg(plan, &out);
    plan_explain_time(plan, &out);
    plan_time_svg(plan, &out);
    buffer_free(&out);
}

static void check_formatted(const struct plan *plan, struct str text)
{
    struct arena arena;
    arena_init(&arena, BLOCK_BYTES);
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    struct byte_buffer formatted = {0};
    must(lang_format(&arena, &diags, kinds(), text, &formatted), "a job with a plan is formatted");
    struct plan *again = make_plan((struct str){formatted.data, formatted.length}, &arena, &diags);
    must(again != NULL, "a formatted job has a plan");
    must(strcmp(plan->fingerprint, again->fingerprint) == 0, "formatting keeps the fingerprint");
    buffer_free(&formatted);
    arena_free(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > JOB_BYTES_MAX)
        return -1;
    struct str text = {(const char *)data, size};
    struct arena arena;
    arena_init(&arena, BLOCK_BYTES);
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    struct plan *plan = make_plan(text, &arena, &diags);
    must((plan == NULL) == (diags.errors > 0), "what has no plan has an error, and what has one has none");
    fuzz_print(&diags, text);
    if (plan != NULL) {
        explain(plan);
        check_formatted(plan, text);
    }
    arena_free(&arena);
    return 0;
}

/* leat state list|get DIR: shows which parts of a job keep state in a checkpoint, and the state
 * of one key. */
#include "cli/argp.h"
#include "cli/checkpoint_job.h"
#include "cli/commands.h"
#include "control/summary.h"
#include "core/civil.h"
#include "run/inspect.h"
#include "run/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

enum { KEY_JSON = 256, KEY_CHECKPOINT, WORDS_MAX = 64 };

struct state_arguments {
    const char *verb, *part;
    bool is_json;
    struct str words[WORDS_MAX];
    uint32_t count;
    struct checkpoint_job job;
};

static const struct argp_option options_table[] = {
    {"json", KEY_JSON, NULL, 0, "as JSON", 0},
    {"checkpoint", KEY_CHECKPOINT, "NAME", 0,
     "a checkpoint, as `leat checkpoint list` prints its name (default: the newest)", 0},
    {0},
};

static void take_argument(struct state_arguments *a, char *argument, struct argp_state *state)
{
    if (a->verb == NULL)
        a->verb = argument;
    else if (a->job.directory == NULL)
        a->job.directory = argument;
    else if (a->part == NULL)
        a->part = argument;
    else if (a->count < WORDS_MAX)
        a->words[a->count++] = str_from(argument);
    else
        argp_error(state, "too many arguments");
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct state_arguments *a = state->input;
    switch (key) {
    case KEY_JSON: a->is_json = true; return 0;
    case KEY_CHECKPOINT: a->job.which = argument; return 0;
    case ARGP_KEY_ARG: take_argument(a, argument, state); return 0;
    case ARGP_KEY_END:
        if (a->verb == NULL || a->job.directory == NULL)
            argp_error(state, "give an action and a directory, for example `leat state list DIR`");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* The key columns of the node, for people: "user_id int, item_id int". */
static const char *key_of(struct arena *arena, const struct plan_node *node)
{
    const struct operator_input *input = &node->bound[0];
    if (node->tag == PLAN_LEARNER)
        return "FEATURE VALUE";
    const char *all = "";
    for (uint32_t i = 0; i < input->key_count; i++) {
        const struct field *field = &input->schema->fields[input->key_columns[i]];
        all = arena_printf(arena, "%s%s%.*s %s", all, i > 0 ? ", " : "", STR_ARGS(field->name),
                           type_name(arena, &field->type));
    }
    return all;
}

static bool can_be_asked(const struct plan_node *node)
{
    return node->operator_kind != NULL && node->operator_kind->describe != NULL;
}

static bool list(struct state_arguments *a)
{
    const struct plan *plan = a->job.plan;
    struct byte_buffer out = {0};
    struct describe d;
    describe_begin(&d, &out, true);
    describe_list(&d, "parts");
    for (uint32_t i = 0; i < plan->nodes_count; i++) {
        const struct plan_node *node = &plan->nodes[i];
        if (!can_be_asked(node))
            continue;
        const char *key = key_of(&a->job.arena, node);
        if (!a->is_json)
            printf("%-32s %-12s by %s\n", node->part, node->operator_kind->name, key);
        describe_record(&d, NULL);
        describe_text(&d, "part", str_from(node->part));
        describe_text(&d, "kind", str_from(node->operator_kind->name));
        describe_text(&d, "key", str_from(key));
        describe_close(&d);
    }
    describe_close(&d);
    describe_end(&d);
    if (a->is_json)
        fwrite(out.data, 1, out.length, stdout);
    buffer_free(&out);
    return true;
}

/* The node of the part that the arguments name; NULL after a diagnostic. */
static const struct plan_node *find_part(struct state_arguments *a)
{
    const struct plan *plan = a->job.plan;
    struct arena *arena = &a->job.arena;
    const char *names[PLAN_NODES_MAX], *all = "";
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->nodes_count; i++) {
        const struct plan_node *node = &plan->nodes[i];
        if (!can_be_asked(node))
            continue;
        if (a->part != NULL && strcmp(node->part, a->part) == 0)
            return node;
        all = arena_printf(arena, "%s%s%s", all, count > 0 ? ", " : "", node->part);
        names[count++] = node->part;
    }
    struct diag *d =
        a->part == NULL ? diag_error(&a->job.diags, DIAG_NO_COMMAND, (struct span){0},
                                     "name a part of the job: `leat state get %s PART KEY`", a->job.directory)
                        : diag_error(&a->job.diags, DIAG_NO_COMMAND, (struct span){0},
                                     "the job of this checkpoint has no part `%s`", a->part);
    const char *near = a->part == NULL ? NULL : diag_nearest(str_from(a->part), names, count);
    if (near != NULL)
        diag_hint(&a->job.diags, d, "did you mean `%s`? Its parts are: %s", near, all);
    else
        diag_hint(&a->job.diags, d,
                  count == 0 ? "no part of the job keeps state by key%s" : "its parts are: %s", all);
    return NULL;
}

static const char *words_of(struct state_arguments *a)
{
    const char *all = "";
    for (uint32_t i = 0; i < a->count; i++)
        all = arena_printf(&a->job.arena, "%s%s%.*s", all, i > 0 ? " " : "", STR_ARGS(a->words[i]));
    return all;
}

static void put_head(struct state_arguments *a, const struct plan_node *node, struct describe *d)
{
    const struct checkpoint_info *info = checkpoint_info(a->job.checkpoint);
    describe_text(d, "part", str_from(node->part));
    describe_text(d, "key_given", str_from(words_of(a)));
    describe_text(d, "checkpoint",
                  str_from(arena_printf(&a->job.arena, "%u-%" PRIu64, info->id.generation, info->id.epoch)));
    describe_time(d, "taken", info->created_us);
}

static bool get(struct state_arguments *a)
{
    const struct plan_node *node = find_part(a);
    if (node == NULL)
        return false;
    struct byte_buffer out = {0};
    struct describe d;
    bool is_found = false;
    const char *looked_for = NULL;
    describe_begin(&d, &out, a->is_json);
    put_head(a, node, &d);
    bool is_good = state_describe(a->job.plan, node, a->job.checkpoint, a->words, a->count, &d, &is_found,
                                  &looked_for, &a->job.arena, &a->job.diags);
    if (is_good && is_found) {
        describe_end(&d);
        fwrite(out.data, 1, out.length, stdout);
    } else if (is_good) {
        const struct checkpoint_info *info = checkpoint_info(a->job.checkpoint);
        printf("nothing is stored for `%s` in `%s` of checkpoint %u-%" PRIu64 " (%s)\n", words_of(a),
               node->part, info->id.generation, info->id.epoch, looked_for == NULL ? "" : looked_for);
    }
    buffer_free(&out);
    return is_good && is_found;
}

static const struct {
    const char *name;
    bool (*run)(struct state_arguments *a);
} verbs[] = {{"list", list}, {"get", get}};

static bool run_verb(struct state_arguments *a)
{
    for (size_t i = 0; i < ARRAY_COUNT(verbs); i++)
        if (strcmp(a->verb, verbs[i].name) == 0)
            return checkpoint_job_open(&a->job) && verbs[i].run(a);
    struct diag *d = diag_error(&a->job.diags, DIAG_NO_COMMAND, (struct span){0},
                                "`leat state` has no action `%s`", a->verb);
    diag_hint(&a->job.diags, d, "the actions are list and get");
    return false;
}

int cmd_state(int argc, char **argv)
{
    static const struct argp argp = {
        options_table,
        parse,
        "list DIR|JOB\nget DIR|JOB PART KEY...",
        "Shows what a checkpoint stores for a key.\v`list` lists the parts of the job that keep state, and "
        "their keys. `get` takes a value for each key column; for a learner, the name of a sparse feature "
        "and a value of it, or of one that chooses items, a user, or the item's column and an item. Write "
        "times like 2024-05-01T00:00:00Z. DIR is a checkpoint directory, a "
        "savepoint, or the file of a head, of several workers; the job may run meanwhile. The status is 1 if nothing is stored for the key.",
        0,
        0,
        0};
    struct state_arguments arguments = {0};
    checkpoint_job_init(&arguments.job);
    argp_command(&argp, argc, argv, &arguments);
    bool is_good = run_verb(&arguments);
    diag_print(stderr, &arguments.job.diags, NULL, isatty(STDERR_FILENO) != 0);
    checkpoint_job_close(&arguments.job);
    return is_good ? EXIT_GOOD : EXIT_FAILED;
}

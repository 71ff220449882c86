/* leat model show|top|export DIR: looks inside the models of a checkpoint. */
#include "cli/argp.h"
#include "cli/commands.h"
#include "cli/model_export.h"
#include "control/summary.h"
#include "core/civil.h"
#include "run/model.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { KEY_TOP = 256, KEY_OUT, KEY_CSV, TOP_MAX = 1000, FIELDS_MAX = 512 };

struct model_arguments {
    const char *verb, *directory, *out;
    int64_t top;
    bool is_csv;
    struct arena arena;
    struct diag_list diags;
    struct checkpoint_dir *dir;
    struct checkpoint *checkpoint;
    struct plan *plan;
};

static const struct argp_option options_table[] = {
    {"top", KEY_TOP, "N", 0, "top: how many rows of each table (default: 10)", 0},
    {"out", KEY_OUT, "PATH", 0, "export: the file to write (default: LEARNER.safetensors or LEARNER.csv)", 0},
    {"csv", KEY_CSV, NULL, 0, "export: as CSV instead of safetensors", 0},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct model_arguments *a = state->input;
    switch (key) {
    case KEY_TOP:
        if (!literal_int(str_from(argument), &a->top) || a->top < 1 || a->top > TOP_MAX)
            argp_error(state, "--top wants a number from 1 to %d, not `%s`", TOP_MAX, argument);
        return 0;
    case KEY_OUT: a->out = argument; return 0;
    case KEY_CSV: a->is_csv = true; return 0;
    case ARGP_KEY_ARG:
        if (a->verb == NULL)
            a->verb = argument;
        else if (a->directory == NULL)
            a->directory = argument;
        else
            argp_error(state, "too many arguments");
        return 0;
    case ARGP_KEY_END:
        if (a->verb == NULL || a->directory == NULL)
            argp_error(state, "say what to do and where: `leat model show DIR`");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* --- Opening: newest checkpoint, its job, a plan
 * ---------------------------------------------------------------------- */

static const char *no_environment(void *argument, const char *name)
{
    (void)argument;
    (void)name;
    return ""; /* a model does not depend on where brokers are */
}

static int no_file(void *argument, const char *path, size_t max_bytes, char **data, size_t *bytes)
{
    (void)argument;
    (void)path;
    (void)max_bytes;
    *data = calloc(1, 1);
    *bytes = 0;
    return *data == NULL ? ENOMEM : 0;
}

static struct lang_settings settings_of(struct arena *arena, struct str lines)
{
    uint32_t count = 0;
    for (size_t i = 0; i < lines.length; i++)
        count += lines.data[i] == '\n';
    struct lang_setting *items = arena_array(arena, struct lang_setting, count);
    const char *at = lines.data;
    for (uint32_t i = 0; i < count; i++) {
        const char *end = memchr(at, '\n', (size_t)(lines.data + lines.length - at));
        const char *equals = memchr(at, '=', (size_t)(end - at));
        leat_assert(equals != NULL);
        items[i].name = (struct str){at, (size_t)(equals - at)};
        items[i].value = (struct str){equals + 1, (size_t)(end - equals - 1)};
        at = end + 1;
    }
    return (struct lang_settings){
        .items = items, .count = count, .get_env = no_environment, .read_file = no_file};
}

static bool open_model(struct model_arguments *a)
{
    if (access(a->directory, F_OK) != 0) {
        diag_error(&a->diags, DIAG_E0701, (struct span){0}, "there is no directory `%s`", a->directory);
        return false;
    }
    struct checkpoint_dir_options options = {.path = a->directory, .read_only = true};
    a->dir = checkpoint_dir_open(&options, &a->diags);
    if (a->dir == NULL)
        return false;
    struct checkpoint_list found;
    if (!checkpoint_list(a->dir, &a->arena, &found, &a->diags))
        return false;
    if (found.count == 0) {
        diag_error(&a->diags, DIAG_E0705, (struct span){0}, "there is no checkpoint in `%s`", a->directory);
        return false;
    }
    a->checkpoint = checkpoint_open(a->dir, found.items[0].id, &a->diags);
    struct str text, lines;
    if (a->checkpoint == NULL || !model_job(a->checkpoint, &a->arena, &text, &lines, &a->diags))
        return false;
    struct lang_settings settings = settings_of(&a->arena, lines);
    struct job_file *job = lang_parse(&a->arena, &a->diags, &builtin_registry, text);
    struct plan_options plan_options = {.registry = &builtin_registry};
    if (!lang_expand(job, &a->arena, &a->diags, &settings))
        return false;
    a->plan = plan_make(job, &plan_options, &a->arena, &a->diags);
    return a->plan != NULL;
}

/* One learner, as a model_walk. */
struct learner_walk {
    struct model_arguments *arguments;
    const struct plan_node *learner;
};

static bool walk(void *argument, struct model_visitor *visitor)
{
    struct learner_walk *w = argument;
    return model_visit(w->arguments->plan, w->learner, w->arguments->checkpoint, visitor,
                       &w->arguments->diags);
}

/* --- show
 * ------------------------------------------------------------------------------------------------------------
 */

static bool show_tensor(void *argument, const char *name, const float *data, size_t rows, size_t columns)
{
    (void)argument;
    double squares = 0;
    for (size_t i = 0; i < rows * columns; i++)
        squares += (double)data[i] * (double)data[i];
    printf("  dense  %-32s %zu x %zu, norm %.6g\n", name, rows, columns, sqrt(squares));
    return true;
}

static bool show_table(void *argument, const char *name, size_t dim, uint64_t rows)
{
    char bytes[32];
    (void)argument;
    printf("  table  %-32s %" PRIu64 " rows x %zu, %s of weights\n", name, rows, dim,
           format_bytes((double)rows * (double)dim * sizeof(float), bytes));
    return true;
}

static bool ignore_row(void *argument, uint64_t key, const float *weights, uint64_t count, int64_t seen_us)
{
    (void)argument;
    (void)key;
    (void)weights;
    (void)count;
    (void)seen_us;
    return true;
}

static bool show(struct learner_walk *w)
{
    printf("%.*s: %s\n", STR_ARGS(w->learner->name), w->learner->operator_kind->name);
    struct model_visitor visitor = {w, show_tensor, show_table, ignore_row};
    return walk(w, &visitor);
}

/* --- top: the heaviest rows of each table
 * ------------------------------------------------------------------------------ */

struct heavy_row {
    uint64_t key, count;
    int64_t seen_us;
    double norm;
};

struct top {
    struct heavy_row rows[TOP_MAX];
    size_t count, limit, dim;
    char name[256];
};

static bool is_heavier(const struct heavy_row *a, const struct heavy_row *b)
{
    return a->norm != b->norm ? a->norm > b->norm : a->key < b->key;
}

static void print_top(const struct top *top)
{
    if (top->name[0] == '\0')
        return;
    printf("  %s\n", top->name);
    for (size_t i = 0; i < top->count; i++) {
        char time[32];
        const struct heavy_row *row = &top->rows[i];
        printf("    %016" PRIx64 "  norm %-10.6g seen %" PRIu64 " times, last %.*s\n", row->key, row->norm,
               row->count, (int)civil_format(row->seen_us, time), time);
    }
}

static bool ignore_tensor(void *argument, const char *name, const float *data, size_t rows, size_t columns)
{
    (void)argument;
    (void)name;
    (void)data;
    (void)rows;
    (void)columns;
    return true;
}

static bool top_table(void *argument, const char *name, size_t dim, uint64_t rows)
{
    struct top *top = argument;
    (void)rows;
    print_top(top);
    top->count = 0;
    top->dim = dim;
    snprintf(top->name, sizeof(top->name), "%s", name);
    return true;
}

static bool top_row(void *argument, uint64_t key, const float *weights, uint64_t count, int64_t seen_us)
{
    struct top *top = argument;
    struct heavy_row row = {.key = key, .count = count, .seen_us = seen_us};
    for (size_t i = 0; i < top->dim; i++)
        row.norm += (double)weights[i] * (double)weights[i];
    row.norm = sqrt(row.norm);
    size_t at = top->count;
    if (top->count == top->limit && !is_heavier(&row, &top->rows[top->count - 1]))
        return true;
    top->count = MIN(top->count + 1, top->limit);
    at = MIN(at, top->limit - 1);
    for (; at > 0 && is_heavier(&row, &top->rows[at - 1]); at--)
        top->rows[at] = top->rows[at - 1];
    top->rows[at] = row;
    return true;
}

static bool show_top(struct learner_walk *w)
{
    printf("%.*s: %s, rows with the largest weights\n", STR_ARGS(w->learner->name),
           w->learner->operator_kind->name);
    struct top *top = calloc(1, sizeof(*top));
    leat_assert(top != NULL);
    top->limit = (size_t)w->arguments->top;
    struct model_visitor visitor = {top, ignore_tensor, top_table, top_row};
    bool is_good = walk(w, &visitor);
    print_top(top);
    free(top);
    return is_good;
}

/* --- export
 * ----------------------------------------------------------------------------------------------------------
 */

static bool export(struct learner_walk *w)
{
    struct model_arguments *a = w->arguments;
    const char *path = a->out;
    if (path == NULL)
        path =
            arena_printf(&a->arena, "%.*s.%s", STR_ARGS(w->learner->name), a->is_csv ? "csv" : "safetensors");
    int error;
    bool is_good = a->is_csv ? model_csv(walk, w, path, &error) : model_safetensors(walk, w, path, &error);
    if (error != 0)
        diag_errno(&a->diags,
                   diag_error(&a->diags, DIAG_E0605, (struct span){0}, "`%s` cannot be written", path),
                   error);
    if (is_good)
        printf("%s\n", path);
    return is_good;
}

static const struct {
    const char *name;
    bool (*run)(struct learner_walk *w);
} verbs[] = {{"show", show}, {"top", show_top}, {"export", export}};

static bool run_verb(struct model_arguments *a)
{
    for (size_t i = 0; i < ARRAY_COUNT(verbs); i++) {
        if (strcmp(a->verb, verbs[i].name) != 0)
            continue;
        if (!open_model(a))
            return false;
        bool is_good = true;
        uint32_t learners = 0;
        for (uint32_t k = 0; k < a->plan->nodes_count; k++)
            if (a->plan->nodes[k].tag == PLAN_LEARNER) {
                struct learner_walk w = {a, &a->plan->nodes[k]};
                learners++;
                is_good &= verbs[i].run(&w);
            }
        if (learners == 0)
            printf("the job of this checkpoint has no learner\n");
        return is_good;
    }
    struct diag *d = diag_error(&a->diags, DIAG_E1001, (struct span){0}, "`leat model` cannot `%s`", a->verb);
    diag_hint(&a->diags, d, "it can show, top and export");
    return false;
}

int cmd_model(int argc, char **argv)
{
    static const struct argp argp = {options_table,
                                     parse,
                                     "show|top|export DIR",
                                     "Looks inside the models of the newest checkpoint in DIR.",
                                     0,
                                     0,
                                     0};
    struct model_arguments arguments = {.top = 10};
    diag_list_init(&arguments.diags, &arguments.arena);
    argp_command(&argp, argc, argv, &arguments);
    bool is_good = run_verb(&arguments);
    diag_print(stderr, &arguments.diags, NULL, isatty(STDERR_FILENO) != 0);
    checkpoint_close(arguments.checkpoint);
    checkpoint_dir_close(arguments.dir);
    arena_free(&arguments.arena);
    return is_good ? EXIT_GOOD : EXIT_FAILED;
}

/* leat model show|top|export DIR: looks inside the models of a checkpoint. */
#include "cli/argp.h"
#include "cli/checkpoint_job.h"
#include "cli/commands.h"
#include "cli/model_export.h"
#include "control/summary.h"
#include "core/civil.h"
#include "core/mem.h"
#include "run/inspect.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { KEY_TOP = 256, KEY_OUT, KEY_CSV, KEY_LEARNER, TOP_MAX = 1000, FIELDS_MAX = 512 };

struct model_arguments {
    const char *verb, *out, *learner;
    int64_t top;
    bool is_csv;
    struct checkpoint_job job;
};

static const struct argp_option options_table[] = {
    {"top", KEY_TOP, "N", 0, "top: how many rows of each table (default: 10)", 0},
    {"out", KEY_OUT, "PATH", 0, "export: the file to write (default: LEARNER.safetensors or LEARNER.csv)", 0},
    {"csv", KEY_CSV, NULL, 0, "export: as CSV instead of safetensors", 0},
    {"learner", KEY_LEARNER, "NAME", 0, "only this learner (default: all)", 0},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct model_arguments *a = state->input;
    switch (key) {
    case KEY_TOP:
        if (!literal_int(str_from(argument), &a->top) || a->top < 1 || a->top > TOP_MAX)
            argp_error(state, "--top takes a number from 1 to %d, not `%s`", TOP_MAX, argument);
        return 0;
    case KEY_OUT: a->out = argument; return 0;
    case KEY_CSV: a->is_csv = true; return 0;
    case KEY_LEARNER: a->learner = argument; return 0;
    case ARGP_KEY_ARG:
        if (a->verb == NULL)
            a->verb = argument;
        else if (a->job.directory == NULL)
            a->job.directory = argument;
        else
            argp_error(state, "too many arguments");
        return 0;
    case ARGP_KEY_END:
        if (a->verb == NULL || a->job.directory == NULL)
            argp_error(state, "give an action and a directory, for example `leat model show DIR`");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* --- Learners --- */

/* Argument of `walk`, the model_walk of one learner. */
struct learner_walk {
    struct model_arguments *arguments;
    const struct plan_node *learner;
};

static bool walk(void *argument, struct model_visitor *visitor)
{
    struct learner_walk *w = argument;
    struct checkpoint_job *job = &w->arguments->job;
    return model_visit(job->plan, w->learner, job->checkpoint, visitor, &job->diags);
}

/* --- show --- */

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

/* --- top: the rows with the largest weights, for each table --- */

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
    struct top *top = mem_calloc(1, sizeof(*top));
    top->limit = (size_t)w->arguments->top;
    struct model_visitor visitor = {top, ignore_tensor, top_table, top_row};
    bool is_good = walk(w, &visitor);
    print_top(top);
    free(top);
    return is_good;
}

/* --- export --- */

static bool export(struct learner_walk *w)
{
    struct model_arguments *a = w->arguments;
    const char *path = a->out;
    if (path == NULL)
        path = arena_printf(&a->job.arena, "%.*s.%s", STR_ARGS(w->learner->name),
                            a->is_csv ? "csv" : "safetensors");
    if (claims_inside(path, a->job.directory)) {
        struct diag *d = diag_error(&a->job.diags, DIAG_OUTPUT_DESTROYS, (struct span){0},
                                    "`%s` lies in `%s`, the checkpoint directory", path, a->job.directory);
        diag_hint(&a->job.diags, d, "give --out another directory");
        return false;
    }
    int error;
    bool is_good = a->is_csv ? model_csv(walk, w, path, &error) : model_safetensors(walk, w, path, &error);
    if (error != 0)
        diag_errno(
            &a->job.diags,
            diag_error(&a->job.diags, DIAG_OUTPUT_FAILED, (struct span){0}, "`%s` cannot be written", path),
            error);
    if (is_good)
        printf("%s\n", path);
    return is_good;
}

static const struct {
    const char *name;
    bool (*run)(struct learner_walk *w);
} verbs[] = {{"show", show}, {"top", show_top}, {"export", export}};

static bool is_meant(const struct model_arguments *a, const struct plan_node *node)
{
    return node->tag == PLAN_LEARNER && (a->learner == NULL || str_is(node->name, a->learner));
}

/* Counts the learners that the arguments name. false: there is none, or --out is given and
 * there are several. */
static bool count_learners(struct model_arguments *a, uint32_t *count)
{
    const char *all = "";
    *count = 0;
    for (uint32_t k = 0; k < a->job.plan->nodes_count; k++) {
        const struct plan_node *node = &a->job.plan->nodes[k];
        if (node->tag == PLAN_LEARNER)
            all =
                arena_printf(&a->job.arena, "%s%s%.*s", all, *all != '\0' ? ", " : "", STR_ARGS(node->name));
        *count += is_meant(a, node);
    }
    struct diag *d = NULL;
    if (a->learner != NULL && *count == 0)
        d = diag_error(&a->job.diags, DIAG_NO_COMMAND, (struct span){0},
                       "the job of this checkpoint has no learner `%s`", a->learner);
    else if (a->out != NULL && *count > 1)
        d = diag_error(&a->job.diags, DIAG_NO_COMMAND, (struct span){0},
                       "--out names one file, and the job of this checkpoint has %u learners", *count);
    if (d != NULL)
        diag_hint(&a->job.diags, d, *all != '\0' ? "choose one with --learner: %s" : "it has none%s", all);
    return d == NULL;
}

static bool run_verb(struct model_arguments *a)
{
    for (size_t i = 0; i < ARRAY_COUNT(verbs); i++) {
        if (strcmp(a->verb, verbs[i].name) != 0)
            continue;
        uint32_t learners;
        if (!checkpoint_job_open(&a->job) || !count_learners(a, &learners))
            return false;
        bool is_good = true;
        for (uint32_t k = 0; k < a->job.plan->nodes_count; k++)
            if (is_meant(a, &a->job.plan->nodes[k])) {
                struct learner_walk w = {a, &a->job.plan->nodes[k]};
                is_good &= verbs[i].run(&w);
            }
        if (learners == 0)
            printf("the job of this checkpoint has no learner\n");
        return is_good;
    }
    struct diag *d = diag_error(&a->job.diags, DIAG_NO_COMMAND, (struct span){0},
                                "`leat model` has no action `%s`", a->verb);
    diag_hint(&a->job.diags, d, "the actions are show, top and export");
    return false;
}

#define EXPORT_HELP                                                                                          \
    "`export` writes all that is needed to compute the predictions of `linear`, `fm`, `ffm` and `mf` "       \
    "outside leat (docs/model.md does it in thirty lines of numpy):\n\n"                                     \
    "  dense.weights     weights of `dense`, in order; last the bias, which includes `bias`\n"               \
    "  FEATURE.keys      u64, ascending: the keys that have rows (`leat hash`)\n"                            \
    "  FEATURE.weights   f32, a row for each key: the linear weight, then the vector\n"                      \
    "  FEATURE.count     u64: occurrences\n"                                                                 \
    "  FEATURE.seen_us   i64: event time of the last occurrence\n"                                           \
    "  pairs             weights of pairs (1, 2), (1, 3) ... (2, 3) ..., if any\n"                           \
    "  hidden.N.weights  a dense layer, outputs x inputs; hidden.N.bias\n\n"                                 \
    "FEATURE is the feature as written in the job, with spaces as `leat fmt` sets them; a feature `dense` "  \
    "is named `table.dense`. Features of `wide` have no vector. A vector has `dim` floats; for `ffm` it "    \
    "has `dim` floats for each feature that it can meet: with n features in `sparse` and b = n rounded up "  \
    "to a multiple of 4, float i for feature g, both from 0, is float (i / 4) * 4 b + 4 g + i % 4 of the "   \
    "vector. A key without a row has zeros.\n\nAs CSV: lines `tensor,NAME,ROW,,,w0,w1...` and "              \
    "`row,FEATURE,KEY,COUNT,SEEN_US,w0,w1...`."

int cmd_model(int argc, char **argv)
{
    static const struct argp argp = {options_table,
                                     parse,
                                     "show|top|export DIR",
                                     "Looks inside the models of the newest checkpoint in DIR.\v" EXPORT_HELP,
                                     0,
                                     0,
                                     0};
    struct model_arguments arguments = {.top = 10};
    checkpoint_job_init(&arguments.job);
    argp_command(&argp, argc, argv, &arguments);
    bool is_good = run_verb(&arguments);
    diag_print(stderr, &arguments.job.diags, NULL, isatty(STDERR_FILENO) != 0);
    checkpoint_job_close(&arguments.job);
    return is_good ? EXIT_GOOD : EXIT_FAILED;
}

/* leat score JOB REQUESTS: answers requests from the newest checkpoint, with the features and the model that
 * training has then. */
#include "cli/argp.h"
#include "cli/checkpoint_job.h"
#include "cli/commands.h"
#include "cli/job.h"
#include "cli/kafka.h"
#include "cli/score_input.h"
#include "cli/score_output.h"

#include "core/civil.h"
#include "core/os.h"
#include "serve/loaded.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { KEY_SET = 256, KEY_AT, KEY_CHECKPOINT, KEY_SERVE, KEY_COLUMNS, WRITE_BYTES = 64 << 10 };

struct score_arguments {
    struct job_load load;
    const char *requests, *checkpoint, *serve, *columns;
    int64_t at_us; /* TIME_MIN: the clock */
};

static const struct argp_option options_table[] = {
    {"set", KEY_SET, "NAME=VALUE", 0, "as given to the run", 0},
    {"at", KEY_AT, "TIME", 0,
     "the event time of requests that give none, for example 2026-11-20T00:00:00Z (default: now)", 0},
    {"checkpoint", KEY_CHECKPOINT, "NAME", 0,
     "a checkpoint, as `leat checkpoint list` prints its name (default: the newest)", 0},
    {"serve", KEY_SERVE, "NAME", 0, "which `serve` of the job, if it has several", 0},
    {"columns", KEY_COLUMNS, "NAME,...", 0, "the columns of the answers (default: all)", 0},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct score_arguments *a = state->input;
    switch (key) {
    case KEY_SET:
        if (!job_pair_add(&a->load.settings, argument))
            argp_error(state, "--set takes NAME=VALUE, not `%s`", argument);
        return 0;
    case KEY_AT:
        if (!civil_parse(str_from(argument), &a->at_us))
            argp_error(state, "--at takes a time like 2026-11-20T00:00:00Z, not `%s`", argument);
        return 0;
    case KEY_CHECKPOINT: a->checkpoint = argument; return 0;
    case KEY_SERVE: a->serve = argument; return 0;
    case KEY_COLUMNS: a->columns = argument; return 0;
    case ARGP_KEY_ARG:
        if (a->load.path == NULL)
            a->load.path = argument;
        else if (a->requests == NULL)
            a->requests = argument;
        else
            argp_error(state, "give one file of requests only");
        return 0;
    case ARGP_KEY_END:
        if (a->requests == NULL)
            argp_error(state, "give a job and a file of requests, for example `leat score jobs/ctr.leat "
                              "requests.jsonl`; `-` is standard input");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* --- The checkpoint --- */

static void say_none(struct score_arguments *a)
{
    struct diag *d = diag_error(&a->load.diags, DIAG_NO_CHECKPOINT, (struct span){0},
                                "there is no checkpoint in `%.*s` yet",
                                STR_ARGS(a->load.plan->config.checkpoint.directory));
    diag_hint(&a->load.diags, d, "`leat run %s` takes checkpoints", a->load.path);
}

static struct loaded *open_checkpoint(struct score_arguments *a, const struct plan_serve *serve,
                                      const char *directory)
{
    struct loaded_ask ask = {.plan = a->load.plan, .directory = directory, .only = serve};
    bool is_none = false;
    if (a->checkpoint != NULL && !checkpoint_named(a->checkpoint, directory, &ask.id, &a->load.diags))
        return NULL;
    struct loaded *loaded = loaded_open(&ask, &is_none, &a->load.diags);
    if (is_none)
        say_none(a);
    return loaded;
}

/* --- Scoring --- */

static volatile sig_atomic_t is_interrupted;

static void on_signal(int number LEAT_UNUSED)
{
    is_interrupted = 1;
}

static bool write_out(struct byte_buffer *out, size_t least, struct diag_list *diags)
{
    if (out->length < least || out->length == 0)
        return true;
    bool is_good = fwrite(out->data, 1, out->length, stdout) == out->length && fflush(stdout) == 0;
    if (!is_good)
        diag_errno(diags,
                   diag_error(diags, DIAG_OUTPUT_FAILED, (struct span){0}, "the answers cannot be written"),
                   errno);
    buffer_clear(out);
    return is_good;
}

/* Waits a moment for more requests. */
static void wait_for_more(void)
{
    enum { REST_MS = 100 };
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    (void)poll(&input, 1, REST_MS);
}

static void show_progress(struct progress_line *line, int64_t *shown_us, uint64_t requests)
{
    char text[96];
    if (os_monotonic_us() - *shown_us < US_PER_SECOND)
        return;
    *shown_us = os_monotonic_us();
    snprintf(text, sizeof(text), "%" PRIu64 " requests", requests);
    progress_line_show(line, text, "", false);
}

/* Answers all requests, in their order. Nobody waits for the answer to a request that was read. */
static bool answer_all(struct way *way, struct score_input *input, struct score_output *output,
                       struct score_counts *counts, struct diag_list *diags)
{
    struct progress_line line = {0};
    struct byte_buffer out = {0};
    struct score_requests requests;
    int64_t shown_us = os_monotonic_us();
    enum score_input_status status = INPUT_REQUESTS;
    bool is_good = true;
    while (is_good && !is_interrupted && status != INPUT_ENDS) {
        status = score_input_next(input, &requests);
        if (status == INPUT_REQUESTS) {
            const struct way_result *results = way_run(way, requests.rows);
            is_good = way_is_well(way);
            if (is_good)
                score_output_write(output, &requests, results, way_watermark(way), counts, &out);
            batch_release(requests.rows);
        }
        is_good = is_good && write_out(&out, status == INPUT_REQUESTS ? WRITE_BYTES : 1, diags);
        if (status == INPUT_WAITS)
            wait_for_more();
        show_progress(&line, &shown_us, counts->answered + counts->filtered + counts->failed);
    }
    if (line.is_drawn)
        progress_line_show(&line, "", "", true);
    is_good = write_out(&out, 1, diags) && is_good && diags->errors == 0;
    buffer_free(&out);
    return is_good;
}

static bool score_with(struct score_arguments *a, const struct plan_serve *serve, struct way *way,
                       struct score_counts *counts)
{
    struct diag_list *diags = &a->load.diags;
    if (way_has_ended(way))
        fprintf(
            stderr,
            "leat: at this checkpoint the input had ended: all windows are closed, and features over time "
            "are empty; score from an earlier checkpoint (--checkpoint), or from a run that --until stopped\n");
    struct score_output *output = score_output_new(a->load.plan, serve, a->columns, diags);
    const struct source_common *common = a->load.plan->nodes[serve->request].common;
    struct score_input *input =
        output == NULL
            ? NULL
            : score_input_open(a->load.plan, serve, &builtin_registry, a->requests, a->at_us,
                               time_add(way_watermark(way), common->max_delay_us), way_pool(way), diags);
    bool is_good = input != NULL && answer_all(way, input, output, counts, diags);
    score_input_close(input);
    score_output_free(output);
    return is_good;
}

static bool score(struct score_arguments *a, struct score_counts *counts)
{
    const struct plan_serve *serve = job_serve(&a->load, a->serve);
    if (serve == NULL)
        return false;
    struct str directory = a->load.plan->config.checkpoint.directory;
    struct loaded *loaded =
        open_checkpoint(a, serve, arena_strndup(&a->load.arena, directory.data, directory.length));
    bool is_good = loaded != NULL && score_with(a, serve, loaded->ways[serve - a->load.plan->serves], counts);
    if (is_good)
        fprintf(stderr,
                "checkpoint %u-%" PRIu64 ": answered %" PRIu64 " (late %" PRIu64 "), filtered %" PRIu64
                ", failed %" PRIu64 "\n",
                loaded->id.generation, loaded->id.epoch, counts->answered, counts->late, counts->filtered,
                counts->failed);
    loaded_close(loaded);
    return is_good;
}

int cmd_score(int argc, char **argv)
{
    static const struct argp argp = {
        options_table,
        parse,
        "JOB REQUESTS",
        "Answers requests with the features and the model of the job's newest checkpoint.\vREQUESTS is a file "
        "of rows with columns of the `serve`'s source, in any format that the file source reads; `-` is "
        "standard input, as JSON lines. `leat explain --serve JOB` shows the columns. Prints a JSON line for "
        "each request, in their order: the answer, or {\"_status\":\"filtered\"...} where a step leaves the row "
        "out, or {\"_status\":\"failed\"...} with the reason. Nothing is changed; the job may run meanwhile. The "
        "status is 0 if all requests were read, whatever became of them.",
        0,
        0,
        0};
    struct score_arguments arguments = {.at_us = TIME_MIN};
    struct score_counts counts = {0};
    argp_command(&argp, argc, argv, &arguments);
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    int status = EXIT_BAD_JOB;
    if (job_load(&arguments.load))
        status = score(&arguments, &counts) ? EXIT_GOOD : EXIT_FAILED;
    job_print_diags(&arguments.load);
    job_free(&arguments.load);
    return is_interrupted ? EXIT_INTERRUPTED : status;
}

/* leat trace JOB SOURCE RECORD: explains why a record was late, filtered, duplicate or dead, or
 * where it went. */
#include "cli/argp.h"
#include "cli/commands.h"
#include "cli/job.h"
#include "cli/kafka.h"
#include "cli/trace_print.h"

#include "core/mem.h"
#include "core/os.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { KEY_SET = 256, KEY_JSON, KEY_REPLAY, KEY_ORDER };

struct trace_arguments {
    struct job_load load;
    const char *source, *place, *order;
};

static const struct argp_option options_table[] = {
    {"set", KEY_SET, "NAME=VALUE", 0, "as given to the run", 0},
    {"replay", KEY_REPLAY, "SOURCE=GLOB", OPTION_ARG_OPTIONAL, "as given to the run", 1},
    {"order", KEY_ORDER, "PATH", 0, "as given to the run", 2},
    {"json", KEY_JSON, NULL, 0, "the result and diagnostics as JSON", 3},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct trace_arguments *a = state->input;
    switch (key) {
    case KEY_SET:
        if (!job_pair_add(&a->load.settings, argument))
            argp_error(state, "--set takes NAME=VALUE, not `%s`", argument);
        return 0;
    case KEY_REPLAY:
        a->load.is_replay = true;
        if (argument != NULL && !job_pair_add(&a->load.replays, argument))
            argp_error(state, "--replay takes SOURCE=GLOB, not `%s`", argument);
        return 0;
    case KEY_ORDER: a->order = argument; return 0;
    case KEY_JSON: a->load.is_json = true; return 0;
    case ARGP_KEY_ARG:
        if (a->load.path == NULL)
            a->load.path = argument;
        else if (a->source == NULL)
            a->source = argument;
        else if (a->place == NULL)
            a->place = argument;
        else
            argp_error(state, "give one record only");
        return 0;
    case ARGP_KEY_END:
        if (a->place == NULL)
            argp_error(state, "which record? For example `leat trace jobs/ctr.leat clicks clicks/3@1234`, or "
                              "`leat trace jobs/ctr.leat clicks data/clicks.jsonl:17`");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static bool refuse_missing(struct job_load *load, const struct trace *trace)
{
    struct diag *d =
        diag_error(&load->diags, DIAG_NO_COMMAND, (struct span){0}, "source `%.*s` has no record at `%.*s`",
                   STR_ARGS(trace->source), STR_ARGS(trace->place));
    diag_hint(&load->diags, d,
              trace->end == TRACE_BEYOND
                  ? "the partition ends before this record"
                  : "the partition has later records: the offset belongs to a transaction marker, an aborted "
                    "record, or a record that was compacted away or deleted since");
    return false;
}

static volatile sig_atomic_t is_interrupted;

static void on_signal(int number)
{
    (void)number;
    is_interrupted = 1;
}

/* Shows progress until the run ends. Ctrl-C stops the run cleanly, too, so that its temporary data on
 * disk is removed. */
static void watch(struct run *run)
{
    struct run_stats *stats = mem_calloc(1, sizeof(*stats));
    struct progress_line line = {0};
    int64_t shown_us = os_monotonic_us();
    while (!run_has_ended(run)) {
        struct timespec rest = {0, 2 * 1000 * 1000};
        nanosleep(&rest, NULL);
        if (is_interrupted)
            run_stop(run);
        if (os_monotonic_us() - shown_us < US_PER_SECOND)
            continue;
        shown_us = os_monotonic_us();
        char text[96];
        run_stats(run, stats);
        snprintf(text, sizeof(text), "%llu records executed again", (unsigned long long)stats->records_life);
        progress_line_show(&line, text, "", false);
    }
    if (line.is_drawn)
        progress_line_show(&line, "", "", true);
    free(stats);
}

static bool follow(struct job_load *load, struct trace *trace, const char *order)
{
    struct run_options options = {.until_us = TIME_MAX, .trace = trace, .order = order};
    struct run *run = run_new(load->plan, &options, &load->diags);
    if (run == NULL)
        return false;
    struct run_stats *stats = mem_calloc(1, sizeof(*stats));
    bool is_good = run_start(run);
    if (is_good)
        watch(run);
    is_good &= run_wait(run);
    trace_finish(trace);
    run_stats(run, stats);
    if (is_interrupted)
        is_good = false;
    else if (is_good && (trace->end == TRACE_NOTHING || trace->end == TRACE_BEYOND))
        is_good = refuse_missing(load, trace);
    else if (is_good && load->is_json)
        trace_json(load->plan, trace, stats->records_life, stdout);
    else if (is_good)
        trace_text(load->plan, trace, stats->records_life, stdout);
    trace_release(trace);
    free(stats);
    run_free(run);
    return is_good;
}

/* Loads the job and resolves the record, or, once it is resolved, follows it. A plan can be opened only once,
 * so each pass loads the job anew. */
static int pass(const struct trace_arguments *arguments, struct trace *trace)
{
    struct job_load load = arguments->load;
    int status = EXIT_BAD_JOB;
    bool is_resolved = trace->partition_name != NULL;
    if (job_load(&load)) {
        bool is_good = is_resolved ? follow(&load, trace, arguments->order)
                                   : trace_resolve(trace, load.plan, &load.diags);
        status = is_good ? EXIT_GOOD : EXIT_FAILED;
    }
    load.is_json &= load.diags.errors > 0; /* with a good result, stdout has the answer */
    if (load.diags.errors > 0 || is_resolved)
        job_print_diags(&load);
    job_free(&load);
    return status;
}

int cmd_trace(int argc, char **argv)
{
    static const struct argp argp = {
        options_table,
        parse,
        "JOB SOURCE RECORD",
        "Shows why one record was late, filtered, duplicate or dead, or where it went.\vRECORD is "
        "topic/partition@offset of a topic, path:line of a file, or partition@record with the number that "
        "dead letters have. The job is executed again in its original order, from the newest checkpoint "
        "before the record; nothing is written, and the job may run meanwhile.",
        0,
        0,
        0};
    struct trace_arguments arguments = {0};
    argv = job_join_values(&argc, argv);
    argp_command(&argp, argc, argv, &arguments);
    struct trace trace = {.source = str_from(arguments.source), .place = str_from(arguments.place)};
    struct sigaction action = {.sa_handler = on_signal};
    int status = pass(&arguments, &trace);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (status == EXIT_GOOD)
        status = pass(&arguments, &trace);
    arena_free(&trace.arena);
    return is_interrupted ? EXIT_INTERRUPTED : status;
}

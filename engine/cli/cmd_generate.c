/* leat generate KIND: writes recorded events of a built-in generator. */
#include "cli/argp.h"
#include "cli/commands.h"
#include "connectors/generator/ctr_world.h"
#include "connectors/generator/ctr_write.h"
#include "core/os.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    KEY_SEED = 256,
    KEY_OUT,
    KEY_LABELLED,
    KEY_RATE,
    KEY_DUPLICATES,
    KEY_LATE,
    KEY_LATE_BY,
    KEY_MALFORMED,
    KEY_FORCE
};

static const char help[] =
    "Writes recorded events of a built-in generator.\v"
    "KIND is `ctr`: impressions and the clicks on them. A hidden model decides who clicks; truth.json tells "
    "what a model that knew each probability would score, and how many rows of each kind were planted.\n\n"
    "    leat generate ctr --events 1000000 --seed 7 --out rec\n\n"
    "The same options give the same bytes on any machine.";

static const struct argp_option options_table[] = {
    {"events", 'n', "N", 0, "impressions to make (default: 100000)", 0},
    {"seed", KEY_SEED, "S", 0, "which world (default: 7)", 0},
    {"out", KEY_OUT, "DIR", 0, "folder to write into (default: .)", 0},
    {"labelled", KEY_LABELLED, NULL, 0, "one file ctr.jsonl with a column `clicked` instead of two files", 0},
    {"rate", KEY_RATE, "R", 0,
     "impressions per second of event time (default: " CTR_RATE_TEXT ", a million in 7 days)", 0},
    {"duplicates", KEY_DUPLICATES, "SHARE", 0, "share of rows written twice, e.g. 0.01", 1},
    {"late", KEY_LATE, "SHARE", 0, "share of rows that come late", 1},
    {"late-by", KEY_LATE_BY, "TIME", 0, "how late (default: 2h)", 1},
    {"malformed", KEY_MALFORMED, "SHARE", 0, "share of rows with a broken line before them", 1},
    {"force", KEY_FORCE, NULL, 0, "replace files that are there", 2},
    {0},
};

/* Ends the process with a message where the text is not in range. */
static uint64_t count_of(struct argp_state *state, const char *name, const char *text, int64_t least,
                         int64_t most)
{
    int64_t value;
    if (!literal_int(str_from(text), &value) || value < least || value > most)
        argp_error(state, "--%s: `%s` is not a whole number from %" PRId64 " to %" PRId64, name, text, least,
                   most);
    return (uint64_t)value;
}

static double share_of(struct argp_state *state, const char *name, const char *text, double least,
                       double most)
{
    double value;
    int64_t whole;
    if (literal_int(str_from(text), &whole))
        value = (double)whole;
    else if (!literal_float(str_from(text), &value))
        value = most + 1.0;
    if (!(value >= least && value <= most))
        argp_error(state, "--%s: `%s` is not a number from %g to %g", name, text, least, most);
    return value;
}

static error_t parse_option(int key, char *text, struct argp_state *state)
{
    struct ctr_write_options *options = state->input;
    switch (key) {
    case 'n': options->events = count_of(state, "events", text, 1, INT64_C(1000000000000)); break;
    case KEY_SEED: options->seed = count_of(state, "seed", text, 0, INT64_MAX); break;
    case KEY_OUT: options->directory = text; break;
    case KEY_LABELLED: options->is_labelled = true; break;
    case KEY_RATE: options->rate = share_of(state, "rate", text, 0.001, 100000.0); break;
    case KEY_DUPLICATES: options->duplicates = share_of(state, "duplicates", text, 0.0, 1.0); break;
    case KEY_LATE: options->late = share_of(state, "late", text, 0.0, 0.5); break;
    case KEY_MALFORMED: options->malformed = share_of(state, "malformed", text, 0.0, 1.0); break;
    case KEY_LATE_BY:
        if (!literal_duration(str_from(text), &options->late_ms) || options->late_ms < US_PER_SECOND ||
            options->late_ms > 30 * US_PER_DAY)
            argp_error(state, "--late-by: `%s` is not a duration from 1s to 30d, e.g. 2h", text);
        options->late_ms /= 1000;
        break;
    case KEY_FORCE: options->is_forced = true; break;
    case ARGP_KEY_ARG:
        if (state->arg_num > 0)
            argp_error(state, "one KIND, not `%s` as well", text);
        if (strcmp(text, "ctr") != 0)
            argp_error(state, "no generator `%s`; there is `ctr`", text);
        break;
    case ARGP_KEY_NO_ARGS: argp_error(state, "which KIND? there is `ctr`"); break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static void show_progress(uint64_t done, uint64_t total)
{
    static int64_t begin_us, shown_us;
    int64_t now_us = os_monotonic_us();
    if (begin_us == 0)
        begin_us = now_us;
    if (done < total && now_us - shown_us < US_PER_SECOND / 10)
        return;
    shown_us = now_us;
    fprintf(stderr, "\r%3.0f %%  %" PRIu64 " of %" PRIu64 " events%s", 100.0 * (double)done / (double)total,
            done, total, done == total ? "\n" : "");
}

int cmd_generate(int argc, char **argv)
{
    static const struct argp argp = {options_table, parse_option, "KIND", help, NULL, NULL, NULL};
    struct ctr_write_options options = {
        .events = 100000, .seed = 7, .directory = ".", .late_ms = 2 * 3600 * 1000};
    literal_float(STR(CTR_RATE_TEXT), &options.rate);
    argp_command(&argp, argc, argv, &options);
    if ((int64_t)options.events > CTR_SPAN_MAX_US / ctr_gap_us(options.rate)) {
        fprintf(stderr, "leat generate: that many events at this rate are more than 100 years: fewer "
                        "--events, or a higher --rate\n");
        return EXIT_USAGE;
    }
    options.on_progress = isatty(STDERR_FILENO) ? show_progress : NULL;
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    bool is_written = ctr_write(&options, &diags);
    if (!is_written)
        diag_print(stderr, &diags, &(struct diag_source){.path = "leat generate"}, isatty(STDERR_FILENO));
    else
        printf("%s: %s, truth.json\n", options.directory,
               options.is_labelled ? "ctr.jsonl" : "impressions.jsonl, clicks.jsonl");
    arena_free(&arena);
    return is_written ? EXIT_GOOD : EXIT_FAILED;
}

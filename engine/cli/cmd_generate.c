/* leat generate KIND: writes recorded events of a built-in generator. */
#include "cli/argp.h"
#include "cli/commands.h"
#include "connectors/generator/ctr_world.h"
#include "connectors/generator/ctr_write.h"
#include "connectors/generator/nexmark_write.h"
#include "control/progress.h"
#include "core/os.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
    KEY_TPS,
    KEY_PART,
    KEY_PERSON_SIZE,
    KEY_AUCTION_SIZE,
    KEY_BID_SIZE,
    KEY_FORCE,
    KEYS_END
};

/* The generators, as bits; the first positional argument names one. */
enum { CTR = 1, NEXMARK = 2 };

static const struct {
    const char *name;
    unsigned kind;
} kinds[] = {{"ctr", CTR}, {"nexmark", NEXMARK}};

#define KINDS_TEXT "the kinds are `ctr` and `nexmark`"

static const char help[] =
    "Writes recorded events of a built-in generator.\vKIND is `ctr` or `nexmark`. The same options give the "
    "same bytes on any machine.\n\n"
    "    leat generate ctr --events 1000000 --seed 7 --out rec\n\n"
    "Impressions and the clicks on them. A hidden model decides who clicks; truth.json contains the scores "
    "of a model that knows each probability, and the number of planted rows of each kind.\n\n"
    "    leat generate nexmark --events 5000000 --out events.jsonl\n\n"
    "The persons, auctions and bids of an auction site, for the queries of the Nexmark benchmark "
    "(jobs/nexmark). `--part P/K` writes only the lines of partition P of K.";

static const struct argp_option options_table[] = {
    {"events", 'n', "N", 0, "number of events; of ctr: impressions (default: 100000)", 0},
    {"seed", KEY_SEED, "S", 0, "seed of the random numbers (default: ctr 7, nexmark 1)", 0},
    {"out", KEY_OUT, "PATH", 0,
     "ctr: folder to write into (default: .); nexmark: file (default: standard output)", 0},
    {"force", KEY_FORCE, NULL, 0, "replace existing files", 0},
    {NULL, 0, NULL, 0, "ctr alone:", 1},
    {"labelled", KEY_LABELLED, NULL, 0, "one file ctr.jsonl with a column `clicked` instead of two files", 1},
    {"rate", KEY_RATE, "R", 0,
     "impressions per second of event time (default: " CTR_RATE_TEXT ", a million in 7 days)", 1},
    {"duplicates", KEY_DUPLICATES, "SHARE", 0, "share of rows written twice, e.g. 0.01", 1},
    {"late", KEY_LATE, "SHARE", 0, "share of rows that come late", 1},
    {"late-by", KEY_LATE_BY, "TIME", 0, "how late these rows come (default: 2h)", 1},
    {"malformed", KEY_MALFORMED, "SHARE", 0, "share of rows with a broken line before them", 1},
    {NULL, 0, NULL, 0, "nexmark alone:", 2},
    {"tps", KEY_TPS, "T", 0, "events per second of event time (default: " NEXMARK_RATE_TEXT ")", 2},
    {"part", KEY_PART, "P/K", 0, "only partition P of K, e.g. 0/2", 2},
    {"person-size", KEY_PERSON_SIZE, "BYTES", 0,
     "nominal size of a person, without column names (default: 200)", 2},
    {"auction-size", KEY_AUCTION_SIZE, "BYTES", 0, "nominal size of an auction (default: 500)", 2},
    {"bid-size", KEY_BID_SIZE, "BYTES", 0, "nominal size of a bid (default: 100)", 2},
    {0},
};

struct generate {
    unsigned kind; /* 0: not named yet */
    bool given[KEYS_END - KEY_SEED];
    int64_t events; /* 0: the default */
    char *out;
    struct ctr_write_options ctr;
    struct nexmark_write_options nexmark;
};

/* Parses a whole number. Ends the process with a message if it is not from `least` to `most`. */
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

/* Parses "1/4": part and number of parts. */
static bool read_part(const char *text, int64_t *part, int64_t *parts)
{
    struct str whole = str_from(text);
    const char *slash = memchr(text, '/', whole.length);
    if (slash == NULL)
        return false;
    struct str first = {text, (size_t)(slash - text)}, second = str_from(slash + 1);
    return literal_int(first, part) && literal_int(second, parts) && *part >= 0 && *parts > *part;
}

static void name_kind(struct generate *generate, const char *text, struct argp_state *state)
{
    if (generate->kind != 0)
        argp_error(state, "give one KIND only, not `%s` as well", text);
    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++)
        if (strcmp(text, kinds[i].name) == 0)
            generate->kind = kinds[i].kind;
    if (generate->kind == 0)
        argp_error(state, "no generator `%s`; " KINDS_TEXT, text);
}

/* Call when all options were read: checks that none belongs to the other generator, and that the time span is
 * not too long. */
static void check_options(const struct generate *generate, struct argp_state *state)
{
    static const struct {
        int key;
        unsigned kind;
    } owners[] = {{KEY_LABELLED, CTR},        {KEY_RATE, CTR},
                  {KEY_DUPLICATES, CTR},      {KEY_LATE, CTR},
                  {KEY_LATE_BY, CTR},         {KEY_MALFORMED, CTR},
                  {KEY_TPS, NEXMARK},         {KEY_PART, NEXMARK},
                  {KEY_PERSON_SIZE, NEXMARK}, {KEY_AUCTION_SIZE, NEXMARK},
                  {KEY_BID_SIZE, NEXMARK}};
    for (size_t i = 0; i < ARRAY_COUNT(owners); i++) {
        if (!generate->given[owners[i].key - KEY_SEED] || owners[i].kind == generate->kind)
            continue;
        const char *name = "";
        for (const struct argp_option *option = options_table; option->name != NULL || option->doc != NULL;
             option++)
            if (option->key == owners[i].key)
                name = option->name;
        argp_error(state, "--%s is not an option of this KIND", name);
    }
    if (generate->kind == CTR && generate->events > CTR_SPAN_MAX_US / ctr_gap_us(generate->ctr.rate))
        argp_error(
            state,
            "the events would take more than 100 years of event time at this rate: give fewer --events, or a "
            "higher --rate");
}

static error_t parse_ctr(int key, char *text, struct argp_state *state, struct ctr_write_options *options)
{
    switch (key) {
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
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static error_t parse_nexmark(int key, char *text, struct argp_state *state,
                             struct nexmark_write_options *options)
{
    struct nexmark_options *events = &options->events;
    switch (key) {
    case KEY_TPS: events->rate = (int64_t)count_of(state, "tps", text, 1, 1000000000); break;
    case KEY_PERSON_SIZE:
        events->person_bytes = (int64_t)count_of(state, "person-size", text, 0, NEXMARK_PERSON_BYTES_MAX);
        break;
    case KEY_AUCTION_SIZE:
        events->auction_bytes = (int64_t)count_of(state, "auction-size", text, 0, NEXMARK_AUCTION_BYTES_MAX);
        break;
    case KEY_BID_SIZE:
        events->bid_bytes = (int64_t)count_of(state, "bid-size", text, 0, NEXMARK_BID_BYTES_MAX);
        break;
    case KEY_PART:
        if (!read_part(text, &options->part, &options->parts))
            argp_error(state, "--part: `%s` is not a part like 0/2, counted from 0", text);
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static error_t parse_option(int key, char *text, struct argp_state *state)
{
    struct generate *generate = state->input;
    if (key >= KEY_SEED && key < KEYS_END)
        generate->given[key - KEY_SEED] = true;
    switch (key) {
    case 'n': generate->events = (int64_t)count_of(state, "events", text, 1, INT64_C(1000000000000)); break;
    case KEY_SEED:
        generate->ctr.seed = count_of(state, "seed", text, 0, INT64_MAX);
        generate->nexmark.events.seed = (int64_t)generate->ctr.seed;
        break;
    case KEY_OUT: generate->out = text; break;
    case KEY_FORCE: generate->ctr.is_forced = generate->nexmark.is_forced = true; break;
    case ARGP_KEY_ARG: name_kind(generate, text, state); break;
    case ARGP_KEY_NO_ARGS: argp_error(state, "which KIND? " KINDS_TEXT); break;
    case ARGP_KEY_SUCCESS: check_options(generate, state); break;
    default:
        return parse_ctr(key, text, state, &generate->ctr) == 0
                   ? 0
                   : parse_nexmark(key, text, state, &generate->nexmark);
    }
    return 0;
}

static void show_progress(uint64_t done, uint64_t total)
{
    static int64_t shown_us;
    static struct progress progress;
    int64_t now_us = os_monotonic_us();
    bool is_terminal = isatty(STDERR_FILENO) != 0, is_last = done == total;
    if (is_terminal ? !is_last && now_us - shown_us < US_PER_SECOND / 10
                    : is_last || !progress_is_due(&progress, now_us, ""))
        return;
    shown_us = now_us;
    fprintf(stderr, "%s%3.0f %%  %" PRIu64 " of %" PRIu64 " events%s",
            is_terminal ? "\r" : "leat: ", 100.0 * (double)done / (double)total, done, total,
            is_last || !is_terminal ? "\n" : "");
}

static bool write_ctr(const struct generate *generate, struct diag_list *diags)
{
    struct ctr_write_options options = generate->ctr;
    options.events = generate->events > 0 ? (uint64_t)generate->events : 100000;
    options.directory = generate->out != NULL ? generate->out : ".";
    options.on_progress = show_progress;
    if (!ctr_write(&options, diags))
        return false;
    printf("%s: %s, truth.json\n", options.directory,
           options.is_labelled ? "ctr.jsonl" : "impressions.jsonl, clicks.jsonl");
    return true;
}

static bool write_nexmark(const struct generate *generate, struct diag_list *diags)
{
    struct nexmark_write_options options = generate->nexmark;
    options.count = generate->events > 0 ? generate->events : 100000;
    options.path = generate->out != NULL ? generate->out : "-";
    options.on_progress = isatty(STDERR_FILENO) && isatty(STDOUT_FILENO) ? NULL : show_progress;
    return nexmark_write(&options, diags);
}

int cmd_generate(int argc, char **argv)
{
    static const struct argp argp = {options_table, parse_option, "KIND", help, NULL, NULL, NULL};
    struct generate generate = {
        .ctr = {.seed = 7, .late_ms = 2 * 3600 * 1000},
        .nexmark = {.events = {.seed = 1, .person_bytes = 200, .auction_bytes = 500, .bid_bytes = 100},
                    .parts = 1}};
    literal_float(STR(CTR_RATE_TEXT), &generate.ctr.rate);
    literal_int(STR(NEXMARK_RATE_TEXT), &generate.nexmark.events.rate);
    argp_command(&argp, argc, argv, &generate);
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    bool is_written = generate.kind == CTR ? write_ctr(&generate, &diags) : write_nexmark(&generate, &diags);
    if (!is_written)
        diag_print(stderr, &diags, &(struct diag_source){.path = "leat generate"}, isatty(STDERR_FILENO));
    arena_free(&arena);
    return is_written ? EXIT_GOOD : EXIT_FAILED;
}

/* leat record TOPICS... --to DIR: records topics to files. */
#include "cli/commands.h"
#include "cli/kafka.h"
#include "connectors/kafka/recorder.h"
#include "control/summary.h"
#include "core/civil.h"
#include "core/os.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    KEY_TO = 256,
    KEY_FROM,
    KEY_UNTIL,
    KEY_FORMAT,
    KEY_SPAN_RECORDS,
    KEY_SPAN_BYTES,
    KEY_SPAN_TIME,
};
enum { TOPICS_MAX = 256, OFFSETS_MAX = 4096 };

static const char help[] =
    "Records topics of Kafka: the committed records, each partition in order, with offsets, times, keys and "
    "headers, byte for byte.\v    leat record impressions clicks --to rec --until latest\n"
    "    leat run jobs/ctr_live.leat --replay impressions=rec --replay clicks=rec\n\n"
    "A topic that begins with ^ is a pattern. The same command continues where the recording ends, also "
    "after a crash: no record is lost or recorded twice. Ctrl-C ends the recording cleanly. DIR/TOPIC/ has "
    "one file for each partition and span (zstd), DIR/manifest.json lists what is complete. With an order "
    "log in DIR/order, which `leat run --record-order DIR/order/` writes, a replay follows the order log and "
    "repeats the live run bit for bit.";

static const struct argp_option options_table[] = {
    {"to", KEY_TO, "DIR", 0, "the recording's directory", 0},
    {"from", KEY_FROM, "WHERE", 0,
     "where to begin in partitions that are not in the recording yet: earliest (default), latest, a time "
     "like 2026-01-31T12:00:00Z, or, for one topic, an offset for each partition, for example 0,17",
     0},
    {"until", KEY_UNTIL, "WHEN", 0,
     "latest: end at the records that exist at the start; or a time: each partition ends before its first "
     "record at or after this time (default: record until Ctrl-C)",
     0},
    {"format", KEY_FORMAT, "NAME", 0, "jsonl (default), readable, or msgpack, which is smaller", 1},
    {"span-records", KEY_SPAN_RECORDS, "N", 0, "largest number of records in a file (default: 1000000)", 1},
    {"span-bytes", KEY_SPAN_BYTES, "BYTES", 0, "largest size of a file before compression (default: 512MiB)",
     1},
    {"span-time", KEY_SPAN_TIME, "TIME", 0,
     "how long a file stays open; a crash loses the open file, and its records are recorded again (default: "
     "5m)",
     1},
    CLUSTER_OPTIONS(2),
    PROGRESS_OPTIONS(3),
    {0},
};

struct record_arguments {
    struct cluster cluster;
    struct recorder_options options;
    struct str topics[TOPICS_MAX];
    uint32_t topics_count;
    int64_t offsets[OFFSETS_MAX];
    struct progress_line line;
    int64_t begin_us, drawn_us;
    uint64_t drawn_records;
    double rate;
};

static void parse_from(struct record_arguments *a, const char *text, struct argp_state *state)
{
    struct kafka_start *from = &a->options.from;
    int64_t time_us;
    if (strcmp(text, "earliest") == 0 || strcmp(text, "latest") == 0) {
        from->tag = text[0] == 'e' ? KAFKA_EARLIEST : KAFKA_LATEST;
        return;
    }
    if (civil_parse(str_from(text), &time_us) && time_us >= 0) {
        from->tag = KAFKA_AT_TIME;
        from->time_ms = (time_us + 999) / 1000;
        return;
    }
    from->tag = KAFKA_AT_OFFSETS;
    from->offsets = a->offsets;
    from->offsets_count = 0;
    for (const char *at = text; at != NULL;) {
        size_t length = strcspn(at, ",");
        if (from->offsets_count == OFFSETS_MAX ||
            !literal_int((struct str){at, length}, &from->offsets[from->offsets_count]) ||
            from->offsets[from->offsets_count] < 0)
            argp_error(
                state,
                "--from takes earliest, latest, a time like 2026-01-31T12:00:00Z, or offsets like 0,17; not "
                "`%s`",
                text);
        from->offsets_count++;
        at = at[length] == ',' ? at + length + 1 : NULL;
    }
}

static void parse_span(struct record_arguments *a, int key, const char *text, struct argp_state *state)
{
    struct recorder_options *o = &a->options;
    struct str value = str_from(text);
    if (key == KEY_SPAN_RECORDS && (!literal_int(value, &o->span_records) || o->span_records < 1))
        argp_error(state, "--span-records takes a number from 1, not `%s`", text);
    if (key == KEY_SPAN_BYTES && (!literal_bytes(value, &o->span_bytes) || o->span_bytes < 1))
        argp_error(state, "--span-bytes takes a size like 512MiB, not `%s`", text);
    if (key == KEY_SPAN_TIME && (!literal_duration(value, &o->span_us) || o->span_us < 1))
        argp_error(state, "--span-time takes a duration like 5m, not `%s`", text);
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct record_arguments *a = state->input;
    struct recorder_options *o = &a->options;
    if (cluster_parse(&a->cluster, key, argument, state))
        return 0;
    switch (key) {
    case KEY_TO: o->directory = argument; return 0;
    case KEY_FROM: parse_from(a, argument, state); return 0;
    case KEY_UNTIL:
        o->until_latest = strcmp(argument, "latest") == 0;
        if (!o->until_latest && !civil_parse(str_from(argument), &o->until_us))
            argp_error(state, "--until takes latest, or a time like 2026-01-31T12:00:00Z; not `%s`",
                       argument);
        return 0;
    case KEY_FORMAT:
        if (strcmp(argument, "jsonl") != 0 && strcmp(argument, "msgpack") != 0)
            argp_error(state, "--format takes jsonl or msgpack, not `%s`", argument);
        o->format = argument[0] == 'j' ? RECORDING_JSONL : RECORDING_MSGPACK;
        return 0;
    case KEY_SPAN_RECORDS:
    case KEY_SPAN_BYTES:
    case KEY_SPAN_TIME: parse_span(a, key, argument, state); return 0;
    case ARGP_KEY_ARG:
        if (a->topics_count == TOPICS_MAX)
            argp_error(state, "more than %d topics: name the topics by patterns", TOPICS_MAX);
        a->topics[a->topics_count++] = str_from(argument);
        return 0;
    case ARGP_KEY_END:
        if (o->directory == NULL)
            argp_error(state, "which directory? For example `leat record clicks --to rec`");
        if (a->topics_count == 0 && a->cluster.source == NULL)
            argp_error(state, "which topics? For example `leat record clicks --to rec`");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static void show(void *argument, const struct recorder_figures *f, bool is_last)
{
    struct record_arguments *a = argument;
    char text[768], rate[32], bytes[32], took[32];
    int64_t now = os_monotonic_us(), since = now - a->drawn_us;
    if (since >= US_PER_SECOND) {
        a->rate = (double)(f->records - a->drawn_records) * 1e6 / (double)since;
        a->drawn_us = now;
        a->drawn_records = f->records;
    }
    if (is_last)
        a->rate = (double)f->records * 1e6 / (double)MAX(now - a->begin_us, 1);
    snprintf(text, sizeof(text), "%" PRIu64 " records  %s  %" PRId64 " behind  %s in %u files  %s%s%s",
             f->records, format_rate(a->rate, rate), MAX(f->lag, 0), format_bytes((double)f->bytes, bytes),
             f->spans, format_duration(now - a->begin_us, took),
             f->waits == NULL ? "" : "  waiting: ", f->waits == NULL ? "" : f->waits);
    progress_line_show(&a->line, text, f->waits == NULL ? "" : f->waits, is_last);
}

static void sum_up(const struct record_arguments *a, const struct recorder_figures *f, bool is_good,
                   bool was_stopped)
{
    char bytes[32];
    if (a->cluster.load.is_json)
        printf("{\"finished\":%s,\"stopped\":%s,\"records\":%" PRIu64 ",\"records_before\":%" PRIu64
               ",\"bytes\":%" PRId64 ",\"topics\":%u,\"partitions\":%u,\"files\":%u}\n",
               is_good && !was_stopped ? "true" : "false", was_stopped ? "true" : "false", f->records,
               f->before, f->bytes, f->topics, f->partitions, f->spans);
    else if (is_good)
        printf("%s: %" PRIu64 " records of %u partition%s, %s in %u file%s%s; %" PRIu64 " in all\n",
               a->options.directory, f->records, f->partitions, f->partitions == 1 ? "" : "s",
               format_bytes((double)f->bytes, bytes), f->spans, f->spans == 1 ? "" : "s",
               was_stopped ? "; stopped, the same command continues" : "", f->before + f->records);
}

int cmd_record(int argc, char **argv)
{
    static const struct argp argp = {options_table, parse, "TOPICS...", help, NULL, NULL, NULL};
    static struct record_arguments a = {.options = {.until_us = TIME_MAX,
                                                    .span_records = 1000000,
                                                    .span_bytes = INT64_C(512) << 20,
                                                    .span_us = 5 * US_PER_MINUTE}};
    cluster_init(&a.cluster);
    argp_command(&argp, argc, argv, &a);
    struct recorder_figures figures = {0};
    struct diag_list *diags = &a.cluster.load.diags;
    a.options.stop = stop_signals();
    a.options.client = &a.cluster.client;
    a.options.patience_us = a.cluster.patience_us;
    a.options.show = show;
    a.options.argument = &a;
    a.line.is_quiet = a.cluster.is_quiet || a.cluster.load.is_json;
    a.line.progress = a.cluster.progress;
    a.begin_us = a.drawn_us = os_monotonic_us();
    int status = EXIT_BAD_JOB;
    bool is_good = cluster_open(&a.cluster, RD_KAFKA_CONSUMER);
    if (is_good && a.topics_count > 0)
        a.options.topics = (struct texts){a.topics, a.topics_count};
    else
        a.options.topics = a.cluster.topics;
    if (is_good && kafka_topics_check(a.options.topics, (struct span){0, 0}, diags)) {
        is_good = recorder_run(&a.options, &figures, diags);
        status = is_good                                     ? EXIT_GOOD
                 : *a.options.stop > 0 && diags->errors == 0 ? EXIT_INTERRUPTED
                                                             : EXIT_FAILED;
        sum_up(&a, &figures, is_good, *a.options.stop > 0);
    }
    cluster_print_diags(&a.cluster, status == EXIT_BAD_JOB);
    cluster_free(&a.cluster);
    return status;
}

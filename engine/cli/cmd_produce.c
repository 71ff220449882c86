/* leat produce TOPIC FILES...: sends recordings, files or dead letters to a topic. */
#include "cli/commands.h"
#include "cli/kafka.h"
#include "connectors/kafka/produce_letters.h"
#include "control/summary.h"
#include "core/os.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

enum {
    KEY_RATE = 256,
    KEY_SPEED,
    KEY_KEY,
    KEY_TIME,
    KEY_FORMAT,
    KEY_DELIMITER,
    KEY_NO_HEADER,
    KEY_FROM_TOPIC,
    KEY_TOPIC,
    KEY_DEAD,
    KEY_SKIP_LOST,
    KEY_REPARTITION,
    KEY_KEEP_TIMES,
    KEY_CREATE,
    KEY_NAME,
    KEY_PROGRESS_TOPIC,
    KEY_COMPRESSION,
};
enum { ARGUMENTS_MAX = 4096 };

static const char help[] =
    "Sends recordings, files or dead letters to a topic, each record once: after a stop or a crash the same "
    "command continues after the last record that was sent.\v    leat produce impressions rec --speed 10x\n"
    "    leat produce clicks clicks.jsonl --key user --rate 1000/s --create 4\n"
    "    leat produce clicks clicks.csv --time ts:s --speed 60x\n"
    "    leat produce --dead-letters out/dead.jsonl\n\n"
    "A recording (leat record) keeps keys, headers and partitions; each record of a jsonl, csv or msgpack "
    "file is sent as the payload, unchanged. Records are sent in transactions, which also write the position "
    "to the topic TOPIC.leat-produce: a reader of committed records sees each record once. Partitions are "
    "chosen by key as the Java client does.\n\n"
    "With --dead-letters the original records of dead letters are sent back to the topics that they came "
    "from, with the same bytes, key, headers and partition; --from-topic takes the dead letters from a "
    "topic, and the same command later sends those that were added since.";

static const struct argp_option options_table[] = {
    {"rate", KEY_RATE, "N/s", 0, "send at most N records per second", 0},
    {"speed", KEY_SPEED, "Nx", 0, "keep the time between records as recorded (1x), or N times faster", 0},
    {"key", KEY_KEY, "COLUMN", 0, "files: the column with the record's key", 1},
    {"time", KEY_TIME, "COLUMN", 0,
     "files: the column with the record's time, for --speed and --keep-times: text like "
     "2026-01-31T12:00:00Z, or milliseconds; COLUMN:s, COLUMN:us and COLUMN:ns for other units",
     1},
    {"format", KEY_FORMAT, "NAME", 0, "files: json, csv or msgpack (default: by the file's suffix)", 1},
    {"delimiter", KEY_DELIMITER, "C", 0, "csv: the separator of fields (default: ,)", 1},
    {"no-header", KEY_NO_HEADER, NULL, 0, "csv: there is no header, the first line is a record", 1},
    {"from-topic", KEY_FROM_TOPIC, "NAME", 0,
     "the topic to take from a recording of several topics (default: TOPIC); with --dead-letters: the topic "
     "that contains the dead letters",
     2},
    {"dead-letters", KEY_DEAD, NULL, 0, "the arguments are files of dead letters (jsonl)", 2},
    {"topic", KEY_TOPIC, "NAME", 0,
     "dead letters: the topic to send all records to (default: the topic that each record came from)", 2},
    {"skip-lost", KEY_SKIP_LOST, NULL, 0,
     "dead letters: skip and count dead letters whose original records no longer exist", 2},
    {"repartition", KEY_REPARTITION, NULL, 0, "choose partitions by key, not as recorded", 3},
    {"keep-times", KEY_KEEP_TIMES, NULL, 0, "keep the times of records (default: the time of sending)", 3},
    {"create", KEY_CREATE, "N", 0, "create the topic with N partitions if it does not exist", 3},
    {"name", KEY_NAME, "NAME", 0,
     "name under which the position is noted; another name sends the same files again (default: produce)", 3},
    {"progress-topic", KEY_PROGRESS_TOPIC, "NAME", 0,
     "topic that the position is noted in (default: TOPIC.leat-produce)", 3},
    {"compression", KEY_COMPRESSION, "NAME", 0, "none, gzip, snappy, lz4 (default) or zstd", 3},
    CLUSTER_OPTIONS(4),
    PROGRESS_OPTIONS(5),
    {0},
};

struct produce_arguments {
    struct cluster cluster;
    struct produce_options options;
    struct produce_files_options files;
    struct str paths[ARGUMENTS_MAX];
    uint32_t paths_count;
    const char *topic, *from_topic, *name, *progress_topic;
    bool is_letters, skips_lost, is_by_key;
    /* Sums over all inputs so far. */
    struct produce_figures total;
    uint64_t lost;
    struct progress_line line;
    /* When the command began; when the first record was ready to be sent, 0: not yet. Monotonic clock. */
    int64_t begin_us, first_us;
    uint64_t records; /* number of records in the input; 0: not known */
};

/* --- Arguments --- */

/* Parses a positive number; `unit` may follow it. */
static double parse_amount(const char *name, const char *text, const char *unit, struct argp_state *state)
{
    struct str value = str_from(text);
    size_t length = strlen(unit);
    double amount;
    int64_t whole;
    if (value.length > length && strcmp(text + value.length - length, unit) == 0)
        value.length -= length;
    if (literal_int(value, &whole))
        amount = (double)whole;
    else if (!literal_float(value, &amount))
        amount = 0;
    if (!(amount > 0 && amount <= 1e12))
        argp_error(state, "--%s takes a number above 0, for example 10%s, not `%s`", name, unit, text);
    return amount;
}

/* Parses COLUMN or COLUMN:UNIT. */
static void parse_time(struct produce_files_options *files, const char *text)
{
    static const struct {
        const char *suffix;
        int64_t per_s;
    } units[] = {{":s", 1}, {":ms", 1000}, {":us", US_PER_SECOND}, {":ns", 1000 * US_PER_SECOND}};
    files->time = str_from(text);
    files->time_per_s = 1000;
    for (size_t i = 0; i < ARRAY_COUNT(units); i++) {
        size_t length = strlen(units[i].suffix);
        if (files->time.length <= length || strcmp(text + files->time.length - length, units[i].suffix) != 0)
            continue;
        files->time.length -= length;
        files->time_per_s = units[i].per_s;
        return;
    }
}

static void parse_file_option(struct produce_arguments *a, int key, const char *text,
                              struct argp_state *state)
{
    struct produce_files_options *f = &a->files;
    switch (key) {
    case KEY_KEY: f->key = str_from(text); return;
    case KEY_TIME: parse_time(f, text); return;
    case KEY_NO_HEADER: f->has_header = false; return;
    case KEY_DELIMITER:
        if (strlen(text) != 1 || text[0] == '"' || text[0] == '\n' || text[0] == '\r')
            argp_error(state, "--delimiter takes one byte, not `%s`", text);
        f->delimiter = text[0];
        return;
    default:
        if (strcmp(text, "json") != 0 && strcmp(text, "csv") != 0 && strcmp(text, "msgpack") != 0)
            argp_error(state, "--format takes json, csv or msgpack, not `%s`", text);
        f->format = str_from(text);
    }
}

static void parse_compression(struct produce_arguments *a, const char *text, struct argp_state *state)
{
    static const char *const names[] = {"none", "gzip", "snappy", "lz4", "zstd"};
    for (size_t i = 0; i < ARRAY_COUNT(names); i++)
        if (strcmp(text, names[i]) == 0) {
            a->options.compression = names[i];
            return;
        }
    argp_error(state, "--compression takes none, gzip, snappy, lz4 or zstd, not `%s`", text);
}

static void check_arguments(struct produce_arguments *a, struct argp_state *state)
{
    if (a->is_letters && a->from_topic == NULL && a->paths_count == 0)
        argp_error(state, "which dead letters? For example `leat produce --dead-letters dead.jsonl`");
    if (a->is_letters && a->from_topic != NULL && a->paths_count > 0)
        argp_error(state, "give files of dead letters or --from-topic, not both");
    if (a->is_letters)
        return;
    if (a->paths_count < 2)
        argp_error(state, "which topic, and which files? For example `leat produce clicks clicks.jsonl`");
    if (a->topic != NULL || a->skips_lost)
        argp_error(state, "--topic and --skip-lost are for --dead-letters");
    if (a->files.time.length > 0 && a->options.speed == 0 && !a->options.keeps_times)
        argp_error(state, "--time needs --speed or --keep-times");
    a->topic = a->paths[0].data;
    a->paths_count--;
    memmove(a->paths, a->paths + 1, a->paths_count * sizeof(a->paths[0]));
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct produce_arguments *a = state->input;
    int64_t partitions;
    if (cluster_parse(&a->cluster, key, argument, state))
        return 0;
    switch (key) {
    case KEY_RATE: a->options.rate = parse_amount("rate", argument, "/s", state); return 0;
    case KEY_SPEED: a->options.speed = parse_amount("speed", argument, "x", state); return 0;
    case KEY_KEY:
    case KEY_TIME:
    case KEY_FORMAT:
    case KEY_DELIMITER:
    case KEY_NO_HEADER: parse_file_option(a, key, argument, state); return 0;
    case KEY_FROM_TOPIC: a->from_topic = argument; return 0;
    case KEY_TOPIC: a->topic = argument; return 0;
    case KEY_DEAD: a->is_letters = true; return 0;
    case KEY_SKIP_LOST: a->skips_lost = true; return 0;
    case KEY_REPARTITION: a->is_by_key = true; return 0;
    case KEY_KEEP_TIMES: a->options.keeps_times = true; return 0;
    case KEY_CREATE:
        if (!literal_int(str_from(argument), &partitions) || partitions < 1 || partitions > 100000)
            argp_error(state, "--create takes a number of partitions, not `%s`", argument);
        a->options.create = (int32_t)partitions;
        return 0;
    case KEY_NAME: a->name = argument; return 0;
    case KEY_PROGRESS_TOPIC: a->progress_topic = argument; return 0;
    case KEY_COMPRESSION: parse_compression(a, argument, state); return 0;
    case ARGP_KEY_ARG:
        if (a->paths_count == ARGUMENTS_MAX)
            argp_error(state, "more than %d files: give a glob in quotes", ARGUMENTS_MAX);
        a->paths[a->paths_count++] = str_from(argument);
        return 0;
    case ARGP_KEY_END: check_arguments(a, state); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* --- Sending one input after the other --- */

static void show(void *argument, const struct produce_figures *f, bool is_last LEAT_UNUSED)
{
    struct produce_arguments *a = argument;
    char text[256], rate[32], bytes[32], took[32];
    uint64_t sent = a->total.sent + f->sent, before = a->total.there_before + f->there_before;
    int64_t now = os_monotonic_us();
    if (a->first_us == 0 && f->taken > 0)
        a->first_us = now;
    double rate_now = a->first_us == 0 ? 0 : (double)sent * 1e6 / (double)MAX(now - a->first_us, 1);
    int length = snprintf(text, sizeof(text), "%" PRIu64 " records sent  %s  %s  %s", sent,
                          format_rate(rate_now, rate),
                          format_bytes((double)(a->total.sent_bytes + f->sent_bytes), bytes),
                          format_duration(now - a->begin_us, took));
    if (a->records > 0)
        length += snprintf(text + length, sizeof(text) - (size_t)length, "  %.0f %%",
                           100.0 * (double)(sent + before) / (double)a->records);
    if (before > 0)
        snprintf(text + length, sizeof(text) - (size_t)length, "  %" PRIu64 " were there", before);
    progress_line_show(&a->line, text, "", false);
}

/* Sets the sender's name and identity for the progress topic. Other files or another key column make another
 * sender. */
static void name_input(struct produce_arguments *a, const char *topic, const char *what)
{
    struct arena *arena = &a->cluster.load.arena;
    struct byte_buffer text = {0};
    const char *name = a->name == NULL ? "produce" : a->name;
    buffer_printf(&text, "%s\n%s\n%.*s\n%d\n", topic, what, STR_ARGS(a->files.key), a->is_by_key);
    for (uint32_t i = 0; i < a->paths_count; i++) {
        const char *path = arena_strndup(arena, a->paths[i].data, a->paths[i].length);
        char *whole = realpath(path, NULL);
        buffer_printf(&text, "%s\n", whole == NULL ? path : whole);
        free(whole);
    }
    a->options.name =
        str_from(arena_printf(arena, "%s-%016" PRIx64, name, (uint64_t)XXH3_64bits(text.data, text.length)));
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(text.data, text.length));
    memcpy(a->options.identity, canonical.digest, sizeof(a->options.identity));
    buffer_free(&text);
    a->options.topic = topic;
    a->options.progress_topic =
        a->progress_topic != NULL ? a->progress_topic : arena_printf(arena, "%s.leat-produce", topic);
}

/* Adds the recording's contents to the identity: a recording that has grown merges its records in another
 * order, so it is another input. */
static void identify_recording(struct produce_arguments *a, const struct recording *recording)
{
    XXH3_state_t state;
    XXH128_canonical_t canonical;
    XXH3_128bits_reset(&state);
    XXH3_128bits_update(&state, a->options.identity, sizeof(a->options.identity));
    for (uint32_t i = 0; i < recording->partitions_count; i++) {
        const struct recording_partition *p = &recording->partitions[i];
        const int64_t facts[] = {p->id, p->first, p->next, (int64_t)p->records};
        XXH3_128bits_update(&state, p->topic, strlen(p->topic));
        XXH3_128bits_update(&state, facts, sizeof(facts));
    }
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state));
    memcpy(a->options.identity, canonical.digest, sizeof(a->options.identity));
}

static bool run_input(struct produce_arguments *a, struct produce_input *input)
{
    struct produce_figures figures;
    bool is_good = produce_run(&a->options, input, &figures, &a->cluster.load.diags);
    a->total.sent += figures.sent;
    a->total.sent_bytes += figures.sent_bytes;
    a->total.there_before += figures.there_before;
    a->total.transactions += figures.transactions;
    a->total.is_done &= is_good && figures.is_done;
    return is_good;
}

/* --- Recordings and files --- */

static bool choose_topic(struct produce_arguments *a, const struct recording *recording, const char **topic)
{
    struct job_load *load = &a->cluster.load;
    const char *all = "", *last = NULL;
    uint32_t count = 0;
    const char *wanted = a->from_topic != NULL ? a->from_topic : a->topic;
    bool is_there = false;
    for (uint32_t i = 0; i < recording->partitions_count; i++) {
        const char *name = recording->partitions[i].topic;
        is_there |= strcmp(name, wanted) == 0;
        if (last == NULL || strcmp(name, last) != 0) {
            all = arena_printf(&load->arena, "%s%s%s", all, count == 0 ? "" : ", ", name);
            count++;
        }
        last = name;
    }
    *topic = is_there ? wanted : last;
    if (is_there || (count == 1 && a->from_topic == NULL))
        return true;
    struct diag *d = diag_error(&load->diags, DIAG_NO_FILE, (struct span){0, 0},
                                "the recording has no topic `%s`", wanted);
    diag_hint(&load->diags, d,
              count == 0 ? "it has none%s" : "choose a topic with --from-topic; the recording has: %s", all);
    return false;
}

static bool produce_recorded(struct produce_arguments *a)
{
    struct job_load *load = &a->cluster.load;
    struct recording recording;
    struct produce_input input;
    const char *topic;
    if (!recording_open(&recording, a->paths, a->paths_count, NULL, 0, &load->arena, &load->diags) ||
        !choose_topic(a, &recording, &topic))
        return false;
    struct str only = str_from(topic);
    if (!recording_open(&recording, a->paths, a->paths_count, &only, 1, &load->arena, &load->diags))
        return false;
    for (uint32_t i = 0; i < recording.partitions_count; i++) {
        a->records += recording.partitions[i].records;
        if (!a->is_by_key)
            a->options.partitions = MAX(a->options.partitions, recording.partitions[i].id + 1);
    }
    name_input(a, a->topic, topic);
    identify_recording(a, &recording);
    produce_recording(&input, &recording, a->is_by_key, &load->diags);
    bool is_good = run_input(a, &input);
    input.close(input.self);
    return is_good;
}

static bool produce_plain(struct produce_arguments *a)
{
    struct job_load *load = &a->cluster.load;
    struct produce_input input;
    if (a->files.time.length == 0 && (a->options.speed > 0 || a->options.keeps_times)) {
        struct diag *d = diag_error(&load->diags, DIAG_NO_COMMAND, (struct span){0, 0},
                                    "--speed and --keep-times need the times of records");
        diag_hint(
            &load->diags, d,
            "name the column of times with --time COLUMN, or send a recording; --rate 1000/s sends records "
            "evenly, without times");
        return false;
    }
    name_input(a, a->topic, "files");
    bool is_good = produce_files(&input, &a->files, &load->arena, &load->diags) && run_input(a, &input);
    input.close(input.self);
    return is_good;
}

/* --- Dead letters --- */

static bool send_letters(struct produce_arguments *a, const struct produce_input *bytes, const char *from,
                         const char *what, struct topic_reader *reader)
{
    struct produce_input input;
    const struct letters_options options = {.topic = a->topic == NULL ? from : NULL,
                                            .keeps_partition = a->topic == NULL && !a->is_by_key,
                                            .skips_lost = a->skips_lost,
                                            .reader = reader,
                                            .lost = &a->lost};
    name_input(a, a->topic == NULL ? from : a->topic, what);
    produce_letters(&input, bytes, &options, &a->cluster.load.diags);
    bool is_good = run_input(a, &input);
    input.close(input.self);
    return is_good;
}

static bool check_sources(struct produce_arguments *a, const struct texts *topics)
{
    for (uint32_t i = 0; i < topics->count; i++)
        if (topics->items[i].length == 0 && a->topic == NULL) {
            struct diag *d = diag_error(&a->cluster.load.diags, DIAG_NO_FILE, (struct span){0, 0},
                                        "some of the dead letters belong to records that came from no topic");
            diag_hint(&a->cluster.load.diags, d, "name a topic for all records: --topic NAME");
            return false;
        }
    return true;
}

/* Opens the letters' bytes from their beginning: they are read once for each topic that letters go to. */
static bool open_letters(struct produce_arguments *a, struct topic_reader *reader, uint32_t partition,
                         const struct kafka_range *range, struct produce_input *bytes)
{
    struct job_load *load = &a->cluster.load;
    *bytes = (struct produce_input){0};
    if (a->from_topic != NULL)
        return produce_topic(bytes, reader, a->from_topic, (int32_t)partition, range->low, range->high);
    return produce_files(bytes, &a->files, &load->arena, &load->diags);
}

/* Sends the letters of the files, or of one partition of the letters' topic. */
static bool produce_each(struct produce_arguments *a, struct topic_reader *reader,
                         struct topic_reader *originals, uint32_t partition, const struct kafka_range *range)
{
    struct job_load *load = &a->cluster.load;
    struct produce_input bytes;
    struct texts topics;
    bool is_good = open_letters(a, reader, partition, range, &bytes) &&
                   letters_topics(&bytes, &load->arena, &topics, &load->diags);
    if (bytes.close != NULL)
        bytes.close(bytes.self);
    if (!is_good || !check_sources(a, &topics))
        return false;
    const char *what = a->from_topic == NULL
                           ? "letters"
                           : arena_printf(&load->arena, "letters of %s/%u", a->from_topic, partition);
    uint32_t count = a->topic != NULL ? MIN(topics.count, 1u) : topics.count;
    for (uint32_t i = 0; is_good && i < count && !*a->options.stop; i++) {
        const char *from = arena_strndup(&load->arena, topics.items[i].data, topics.items[i].length);
        is_good = open_letters(a, reader, partition, range, &bytes);
        if (is_good)
            is_good = send_letters(a, &bytes, from, what, originals); /* closes `bytes` */
        else if (bytes.close != NULL)
            bytes.close(bytes.self);
    }
    return is_good;
}

static bool produce_dead(struct produce_arguments *a)
{
    struct job_load *load = &a->cluster.load;
    struct kafka_range *ranges = NULL, none = {0};
    uint32_t count = 1;
    struct topic_reader *originals =
        topic_reader_new(&a->cluster.client, a->cluster.patience_us, a->options.stop, &load->diags);
    struct topic_reader *reader =
        originals == NULL
            ? NULL
            : topic_reader_new(&a->cluster.client, a->cluster.patience_us, a->options.stop, &load->diags);
    if (reader != NULL && a->from_topic != NULL)
        count = topic_reader_partitions(reader, str_from(a->from_topic), &load->arena, &ranges);
    bool is_good = reader != NULL && count > 0;
    for (uint32_t i = 0; is_good && i < count && !*a->options.stop; i++)
        is_good = produce_each(a, reader, originals, i, ranges == NULL ? &none : &ranges[i]);
    topic_reader_free(reader);
    topic_reader_free(originals);
    return is_good;
}

/* --- The command --- */

static bool produce(struct produce_arguments *a)
{
    uint32_t recordings = 0;
    for (uint32_t i = 0; i < a->paths_count; i++)
        recordings += recording_is(a->paths[i]);
    if (a->is_letters)
        return produce_dead(a);
    if (recordings == a->paths_count)
        return produce_recorded(a);
    if (recordings == 0)
        return produce_plain(a);
    diag_hint(&a->cluster.load.diags,
              diag_error(&a->cluster.load.diags, DIAG_NO_COMMAND, (struct span){0, 0},
                         "some of the arguments are recordings, and some are plain files"),
              "send recordings and plain files with two commands");
    return false;
}

static void sum_up(const struct produce_arguments *a, bool is_good)
{
    const struct produce_figures *f = &a->total;
    char bytes[32];
    bool was_stopped = *a->options.stop > 0;
    if (a->cluster.load.is_json) {
        printf("{\"finished\":%s,\"stopped\":%s,\"records\":%" PRIu64 ",\"records_before\":%" PRIu64
               ",\"bytes\":%" PRIu64 ",\"transactions\":%" PRIu64 ",\"lost\":%" PRIu64 "}\n",
               f->is_done && is_good ? "true" : "false", was_stopped ? "true" : "false", f->sent,
               f->there_before, f->sent_bytes, f->transactions, a->lost);
        return;
    }
    if (!is_good)
        return;
    printf("%" PRIu64 " records sent, %s in %" PRIu64 " transactions", f->sent,
           format_bytes((double)f->sent_bytes, bytes), f->transactions);
    if (f->there_before > 0)
        printf("; %" PRIu64 " were already there", f->there_before);
    if (a->lost > 0)
        printf("; %" PRIu64 " dead letters whose original records no longer exist", a->lost);
    printf("%s\n", was_stopped ? "; stopped, the same command continues" : "");
}

int cmd_produce(int argc, char **argv)
{
    static const struct argp argp = {
        options_table, parse, "TOPIC FILES...\n--dead-letters [FILES...]", help, NULL, NULL, NULL};
    static struct produce_arguments a = {.files = {.delimiter = ',', .has_header = true},
                                         .options = {.compression = "lz4"},
                                         .total = {.is_done = true}};
    cluster_init(&a.cluster);
    argp_command(&argp, argc, argv, &a);
    a.options.stop = stop_signals();
    a.options.client = &a.cluster.client;
    a.options.patience_us = a.cluster.patience_us;
    a.options.show = show;
    a.options.argument = &a;
    a.files.paths = (struct texts){a.paths, a.paths_count};
    a.line.is_quiet = a.cluster.is_quiet || a.cluster.load.is_json;
    a.line.progress = a.cluster.progress;
    a.begin_us = os_monotonic_us();
    int status = EXIT_BAD_JOB;
    if (cluster_open(&a.cluster, RD_KAFKA_PRODUCER)) {
        bool is_good = produce(&a);
        progress_line_show(&a.line, "", "", true);
        bool is_stopped = *a.options.stop > 0 && a.cluster.load.diags.errors == 0;
        status = is_good ? EXIT_GOOD : is_stopped ? EXIT_INTERRUPTED : EXIT_FAILED;
        sum_up(&a, is_good);
    }
    cluster_print_diags(&a.cluster, status == EXIT_BAD_JOB);
    cluster_free(&a.cluster);
    return status;
}

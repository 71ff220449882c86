/* Source `kafka`: the partitions of topics, live or up to their present end. */
#include "connectors/kafka/source.h"

#include "connectors/kafka/backfill.h"

#include "core/log.h"
#include "core/os.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    /* About what librdkafka keeps of a record beside its payload. */
    RECORD_BYTES = 512,
    PARTITION_BYTES_MIN = 64 << 10,
    FETCH_BYTES_MIN = 16 << 10,
    FETCH_BYTES_MAX = 1 << 20,
};

#define FORMATS "json|csv|msgpack|raw|avro|protobuf"

const struct option kafka_source_options[] = {
    KAFKA_CLIENT_OPTIONS(struct kafka_source, client),
    OPTION_TEXTS(
        struct kafka_source, topic, "topic", OPTION_REQUIRED, NULL,
        "one or several topics; a name that begins with ^ is a pattern (POSIX extended regular expression), "
        "and topics that match it later are read too"),
    OPTION_ENUM(
        struct kafka_source, format, "format", 0, "json", FORMATS,
        "format of a record's payload; raw: the payload's bytes, in one column of type text or bytes; avro, "
        "protobuf: with a schema from `schema_file` or `registry`"),
    PAYLOAD_OPTIONS(struct kafka_source, payload),
    OPTION_TEXT(struct kafka_source, delimiter, "delimiter", 0, "\",\"",
                "csv: the character between fields; the fields are in the order of the schema's columns"),
    OPTION_BOOL(struct kafka_source, trims, "trim", "false",
                "csv: ignore spaces and tabs around fields, and accept numbers that begin with +"),
    OPTION_BLOCK(
        struct kafka_source, meta, struct kafka_meta, "meta", 0, kafka_meta_options,
        "columns of the schema that come from a record's key, headers or position, not from its payload"),
    OPTION_ROW(
        EXPRESSION, struct expression, struct kafka_source, start, "start",
        "where a job without a checkpoint begins: earliest, latest, time(\"2026-01-31T12:00:00Z\"), or "
        "offsets(0, 17), one for each partition",
        .flags = OPTION_RUNTIME, .default_text = "earliest"),
    OPTION_TEXTS(
        struct kafka_source, backfill, "backfill", OPTION_RUNTIME | OPTION_READS, "[]",
        "recordings of the topics, made by `leat record`: each partition is read from its recording first, "
        "then from its topic, behind the recording's last record; no record is read twice, and if the "
        "topic has lost records in between, the job does not begin"),
    OPTION_ENUM(struct kafka_source, until, "until", OPTION_RUNTIME, "never", "never|latest",
                "latest: reads the records that exist when the job begins, and ends"),
    OPTION_BYTES(struct kafka_source, queue_bytes, "queue", OPTION_RUNTIME, "64MiB", "1MiB", "64GiB",
                 "memory for records that are fetched ahead, shared among the partitions"),
    OPTION_INT(struct kafka_source, rate, "max_rate", OPTION_RUNTIME, "0", "0", "1000000000",
               "maximum number of records read per second; 0: no limit"),
    OPTION_DURATION(struct kafka_source, refresh_us, "refresh", OPTION_RUNTIME, "5s", "1s", "1h",
                    "how often the source looks for new partitions, and for new topics that match a pattern"),
    OPTION_DURATION(struct kafka_source, patience_us, "patience", OPTION_RUNTIME, KAFKA_PATIENCE, "1s", "1d",
                    "how long the start of a job waits for brokers; a running job waits without limit"),
    OPTION_TEXT(struct kafka_source, group, "group", OPTION_RUNTIME, "\"\"",
                "several processes that share the partitions: not possible yet"),
    OPTIONS_END,
};

/* --- bind --- */

static const struct format_kind *format_of(const struct kafka_source *kafka)
{
    const char *at = FORMATS;
    for (int i = 0; i < kafka->format; i++)
        at = strchr(at, '|') + 1;
    const struct format_kind *format = format_find((struct str){at, strcspn(at, "|")});
    leat_assert(format != NULL);
    return format;
}

static bool refuse_group(const struct kafka_source *kafka, struct source_bind *bind)
{
    if (kafka->group.length == 0)
        return true;
    struct diag *d =
        diag_error(bind->diags, DIAG_OPTIONS_CLASH, bind->span,
                   "`group`: several processes cannot yet share a job's partitions exactly once");
    diag_hint(
        bind->diags, d,
        "leave `group` out: this process reads all partitions, and its checkpoints hold the offsets; to "
        "split the work, give each job topics of its own");
    return false;
}

/* Refuses `start` beside `backfill`, which itself says where a job begins. */
static bool check_backfill(const struct kafka_source *kafka, struct source_bind *bind)
{
    if (kafka->backfill.count == 0 || kafka->first.tag == KAFKA_EARLIEST)
        return true;
    struct diag *d =
        diag_error(bind->diags, DIAG_OPTIONS_CLASH, bind->span,
                   "with `backfill` a job begins where the recording begins, not where `start` says");
    diag_hint(bind->diags, d, "leave one of them out");
    return false;
}

bool kafka_bind(struct source_bind *bind)
{
    struct kafka_source *kafka = bind->config;
    if (bind->declared == NULL) {
        struct diag *d =
            diag_error(bind->diags, DIAG_OPTION_MISSING, bind->span, "a kafka source needs a `schema:`");
        diag_hint(bind->diags, d, "for example `schema: { user_id: int, ts: time(ms) }`");
        return false;
    }
    kafka->format_kind = format_of(kafka);
    kafka->format_config = (struct format_config){.has_no_header = true, .trims = kafka->trims};
    bool is_good = kafka_client_check(&kafka->client, RD_KAFKA_CONSUMER, bind->span, bind->diags);
    is_good &= kafka_topics_check(kafka->topic, bind->span, bind->diags);
    is_good &= refuse_group(kafka, bind);
    is_good &= kafka_start_bind(&kafka->first, kafka->start.ast, kafka->topic, bind->arena, bind->diags);
    is_good = is_good && check_backfill(kafka, bind);
    is_good &= format_delimiter_check(kafka->delimiter, bind->diags, bind->span);
    is_good &= payload_bind(kafka->format_kind, &kafka->payload, bind->diags, bind->span);
    is_good = kafka_meta_bind(&kafka->meta, bind->declared, bind->span, bind->arena, bind->diags) && is_good;
    if (!is_good || !format_schema_check(kafka->format_kind, kafka->meta.payload, bind->diags, bind->span))
        return false;
    kafka->format_config.delimiter = kafka->delimiter.data[0];
    bind->schema = bind->declared;
    kafka->recording = bind->recording;
    bind->is_bounded = kafka->until == UNTIL_LATEST || bind->recording.length > 0;
    bind->is_replayable = bind->has_arrival = true;
    bind->is_live = !bind->is_bounded;
    return true;
}

/* --- open --- */

/* Prints how many records wait for open transactions: a bounded source ends before these. */
static void find_open(struct kafka_source *kafka, struct source *source, const struct kafka_place *places,
                      uint32_t count, struct kafka_range *ranges)
{
    static const struct kafka_property fixed[] = {{"isolation.level", "read_uncommitted"}, {NULL, NULL}};
    struct kafka_errors *errors;
    rd_kafka_t *client = kafka_client_new(&kafka->client, RD_KAFKA_CONSUMER, fixed, NULL, source->job,
                                          source->name, &errors, source->diags);
    if (client == NULL)
        return;
    kafka_start_find_open(client, errors, places, count, ranges);
    kafka_client_free(client, errors);
    for (uint32_t i = 0; i < count; i++)
        if (ranges[i].open_end > ranges[i].high)
            log_say(LOG_LEVEL_INFO,
                    "source `%.*s`: `%s/%d` ends at offset %lld for this job (`until: latest`): up to %lld "
                    "records behind this offset wait for an open transaction of another producer",
                    STR_ARGS(source->name), places[i].topic, (int)places[i].id, (long long)ranges[i].high,
                    (long long)(ranges[i].open_end - ranges[i].high));
}

/* Finds the partitions and their ranges with a client of its own: how much a partition may fetch ahead is a
 * setting of the reading client, and depends on the number of partitions. Returns NULL after a diagnostic, or
 * without one if the user stopped the run. */
static struct kafka_place *survey(struct kafka_source *kafka, struct source *source, uint32_t *count,
                                  struct kafka_range **ranges)
{
    struct kafka_errors *errors;
    struct kafka_place *places = NULL;
    struct kafka_patience patience =
        kafka_patience_begin(kafka->patience_us, source->stop, "source", source->name);
    rd_kafka_t *client = kafka_client_new(&kafka->client, RD_KAFKA_CONSUMER, NULL, NULL, source->job,
                                          source->name, &errors, source->diags);
    const struct rd_kafka_metadata *metadata =
        client == NULL ? NULL : kafka_client_metadata(client, errors, NULL, &patience, source->diags);
    if (metadata != NULL) {
        places = kafka_topics_find(&kafka->topics, metadata, count, source->arena, source->diags);
        rd_kafka_metadata_destroy(metadata);
    }
    if (places != NULL && *count > KAFKA_PARTITIONS_MAX) {
        diag_error(source->diags, DIAG_TOO_MANY, (struct span){0, 0},
                   "the topics have %u partitions, and a source can have at most %d", *count,
                   KAFKA_PARTITIONS_MAX);
        places = NULL;
    }
    if (places != NULL) {
        *ranges = arena_array(source->arena, struct kafka_range, *count);
        if (!kafka_start_find(&kafka->first, client, errors, places, *count, *ranges, &patience,
                              source->diags))
            places = NULL;
    }
    kafka_client_free(client, errors);
    if (places != NULL && kafka->until == UNTIL_LATEST)
        find_open(kafka, source, places, *count, *ranges);
    return places;
}

/* Makes the reading client. What it fetches ahead of all `count` partitions stays within `queue`, with
 * reserve for partitions found later. */
static bool connect_reader(struct kafka_source *kafka, struct source *source, uint32_t count)
{
    char records[24], kilobytes[24], fetch[24];
    struct kafka_shared *shared = &kafka->shared;
    int64_t each = MAX(kafka->queue_bytes / (count + MAX(count / 4, 2)), PARTITION_BYTES_MIN);
    shared->queue_records = MAX(each / 2 / RECORD_BYTES, 1);
    shared->queue_bytes = each / 2 / 1024 * 1024;
    snprintf(records, sizeof(records), "%lld", (long long)MIN(shared->queue_records, 10000000));
    snprintf(kilobytes, sizeof(kilobytes), "%lld", (long long)MIN(shared->queue_bytes / 1024, 2097151));
    snprintf(fetch, sizeof(fetch), "%lld", (long long)MIN(MAX(each / 4, FETCH_BYTES_MIN), FETCH_BYTES_MAX));
    const struct kafka_property fixed[] = {
        {"queued.min.messages", records},
        {"queued.max.messages.kbytes", kilobytes},
        {"fetch.message.max.bytes", fetch},
        KAFKA_STATISTICS,
        {NULL, NULL},
    };
    const struct kafka_hooks hooks = {.argument = &kafka->watch, .statistics = kafka_watch_statistics};
    shared->client = kafka_client_new(&kafka->client, RD_KAFKA_CONSUMER, fixed, &hooks, source->job,
                                      source->name, &shared->errors, source->diags);
    return shared->client != NULL;
}

static bool kafka_open(struct source *source)
{
    struct kafka_source *kafka = source->config;
    uint32_t count = 0;
    struct kafka_range *ranges = NULL;
    pthread_mutex_init(&kafka->shared.mutex, NULL);
    kafka->has_mutex = true;
    kafka_meta_open(&kafka->meta, source->has_dead_letters);
    if (!payload_open(kafka->format_kind, &kafka->payload, kafka->meta.payload, source->wake, source->engine,
                      source->diags, &kafka->shared.payload))
        return false;
    kafka->format_config.payload = kafka->shared.payload;
    kafka_topics_open(&kafka->topics, kafka->topic, source->arena);
    /* After a resume, partitions that no checkpoint knows are new: none of their records was read. */
    if (source->is_resumed)
        kafka->first = (struct kafka_start){.tag = KAFKA_EARLIEST};
    struct kafka_place *places = survey(kafka, source, &count, &ranges);
    kafka->shared.options = &kafka->client;
    kafka->shared.meta = &kafka->meta;
    kafka->shared.source = source;
    kafka->shared.is_bounded = kafka->until == UNTIL_LATEST;
    kafka->shared.rate = kafka->rate;
    kafka->shared.rate_at_us = os_monotonic_us();
    if (places == NULL ||
        (kafka->backfill.count > 0 && !kafka_backfill_open(&kafka->recorded, kafka->backfill, &kafka->topics,
                                                           source, places, count, ranges)))
        return false;
    if (!connect_reader(kafka, source, count))
        return false;
    kafka->watch.shared = &kafka->shared;
    kafka->watch.topics = &kafka->topics;
    kafka->watch.refresh_us = kafka->refresh_us;
    kafka->watch.partitions = arena_array(source->arena, struct kafka_partition *, KAFKA_PARTITIONS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        kafka_watch_add(&kafka->watch, &places[i], &ranges[i]);
        if (kafka->backfill.count > 0 && !kafka_backfill_attach(kafka->watch.partitions[i], &kafka->recorded))
            return false;
    }
    source->partitions_count = count;
    kafka_watch_start(&kafka->watch);
    return true;
}

void kafka_source_close_shared(struct kafka_source *kafka)
{
    kafka_topics_close(&kafka->topics);
    payload_close(kafka->shared.payload);
    kafka->shared.payload = NULL;
    if (kafka->has_mutex)
        pthread_mutex_destroy(&kafka->shared.mutex);
    kafka->has_mutex = false;
}

static void kafka_close(struct source *source)
{
    struct kafka_source *kafka = source->config;
    kafka_watch_close(&kafka->watch);
    kafka_client_free(kafka->shared.client, kafka->shared.errors);
    kafka->shared.client = NULL;
    kafka->shared.errors = NULL;
    kafka_source_close_shared(kafka);
}

/* --- Partitions --- */

static struct kafka_partition *partition_at(const struct source *source, uint32_t index)
{
    return ((struct kafka_source *)source->config)->watch.partitions[index];
}

static const char *kafka_partition_name(struct source *source, uint32_t partition)
{
    return partition_at(source, partition)->name;
}

static const char *kafka_partition_topic(struct source *source, uint32_t partition, int32_t *number)
{
    const struct kafka_partition *p = partition_at(source, partition);
    *number = p->id;
    return p->topic;
}

static bool kafka_discover(struct source *source)
{
    struct kafka_source *kafka = source->config;
    source->partitions_count = atomic_load_explicit(&kafka->watch.partitions_count, memory_order_acquire);
    if (!atomic_load(&kafka->watch.are_too_many))
        return true;
    pthread_mutex_lock(&kafka->shared.mutex);
    diag_error(source->diags, DIAG_TOO_MANY, (struct span){0, 0},
               "the topics of a source have more than %d partitions by now", KAFKA_PARTITIONS_MAX);
    pthread_mutex_unlock(&kafka->shared.mutex);
    return false;
}

static void kafka_begin(struct source *source, uint32_t partition, struct source_position *position)
{
    const struct kafka_partition *p = partition_at(source, partition);
    *position = (struct source_position){.b = p->next, .record = p->records};
}

static bool kafka_seek(struct source *source, uint32_t partition, const struct source_position *position)
{
    return kafka_partition_seek(partition_at(source, partition), position);
}

static size_t kafka_mark(struct source *source, uint32_t partition, const struct source_position *position,
                         char out[SOURCE_MARK_BYTES])
{
    return kafka_partition_mark(partition_at(source, partition), position, out);
}

static bool kafka_mark_check(struct source *source, uint32_t partition,
                             const struct source_position *position LEAT_UNUSED, struct str mark)
{
    return kafka_partition_mark_check(partition_at(source, partition), mark);
}

static enum read_status kafka_read(struct source *source, uint32_t partition, struct raw_batch *raw)
{
    return kafka_partition_read(partition_at(source, partition), raw);
}

void *kafka_decoder_new(struct source *source)
{
    const struct kafka_source *kafka = source->config;
    return format_decoder_new(kafka->format_kind, kafka->meta.payload, &kafka->format_config);
}

void kafka_decode(struct source *source, void *decoder, struct raw_batch *raw, struct decode_output *output)
{
    kafka_meta_decode(&((struct kafka_source *)source->config)->meta, decoder, raw, output);
}

/* --- Figures --- */

static void kafka_progress(struct source *source, struct source_progress *progress)
{
    const struct kafka_source *kafka = source->config;
    *progress = (struct source_progress){.bytes_total = -1, .bytes_done = -1, .records_total = -1};
    if (kafka->until != UNTIL_LATEST)
        return;
    uint32_t count = atomic_load_explicit(&kafka->watch.partitions_count, memory_order_acquire);
    progress->records_total = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct kafka_partition *p = kafka->watch.partitions[i];
        /* Records that were read, and at most one for each offset that is left. */
        int64_t left = p->end - __atomic_load_n(&p->next, __ATOMIC_RELAXED);
        progress->records_total += (int64_t)__atomic_load_n(&p->records, __ATOMIC_RELAXED) + MAX(left, 0);
    }
}

/* How far reading is behind the end of the log: in records, and in time, from the last record read to the
 * newest record of its partition, by the broker's timestamps. The worst partition is the one furthest behind
 * in time, then in records. */
struct lag {
    int64_t records, worst_records, worst_us; /* worst_us -1: not measured yet */
    const char *worst;
    bool has_gaps;                 /* offsets have gaps: there may be fewer records */
    int64_t open_records, open_us; /* records behind open transactions; how long the oldest is open */
    const char *open;              /* partition of the oldest open transaction */
};

/* Adds the records behind an open transaction. They do not count as lag: nobody may read them yet. */
static void add_open(struct lag *lag, const struct kafka_partition *p)
{
    int64_t end = __atomic_load_n(&p->open_end, __ATOMIC_RELAXED);
    int64_t us = os_monotonic_us() - __atomic_load_n(&p->open_since_us, __ATOMIC_RELAXED);
    if (end == 0)
        return;
    lag->open_records += end - MAX(__atomic_load_n(&p->open_first, __ATOMIC_RELAXED),
                                   __atomic_load_n(&p->next, __ATOMIC_RELAXED));
    if (lag->open != NULL && us <= lag->open_us)
        return;
    lag->open = p->name;
    lag->open_us = us;
}

static void add_lag(struct lag *lag, struct kafka_partition *p)
{
    int64_t records = kafka_partition_lag(p), us = -1;
    int64_t time = __atomic_load_n(&p->time_us, __ATOMIC_RELAXED);
    int64_t newest = __atomic_load_n(&p->newest_us, __ATOMIC_RELAXED);
    if (records == 0)
        return;
    if (time > 0 && newest > 0)
        us = MAX(newest - time, 0);
    if (lag->worst == NULL || us > lag->worst_us || (us == lag->worst_us && records > lag->worst_records)) {
        lag->worst = p->name;
        lag->worst_records = records;
        lag->worst_us = us;
    }
    lag->records += records;
    lag->has_gaps |= atomic_load_explicit(&p->has_gaps, memory_order_relaxed);
}

/* Of several workers' partitions, that with the largest value is shown (report_merge). */
static void add_partition(struct report *report, const char *name, const char *partition, double value)
{
    report_add_text(report, name, partition == NULL ? "" : partition);
    report->items[report->count - 1].value = value;
}

static void kafka_report(struct source *source, struct report *report)
{
    struct kafka_source *kafka = source->config;
    const struct kafka_shared *shared = &kafka->shared;
    uint32_t count = atomic_load_explicit(&kafka->watch.partitions_count, memory_order_acquire);
    int64_t records = 0, bytes = 0;
    struct lag lag = {0};
    for (uint32_t i = 0; i < count; i++) {
        add_lag(&lag, kafka->watch.partitions[i]);
        add_open(&lag, kafka->watch.partitions[i]);
        records += __atomic_load_n(&kafka->watch.partitions[i]->fetched_records, __ATOMIC_RELAXED);
        bytes += __atomic_load_n(&kafka->watch.partitions[i]->fetched_bytes, __ATOMIC_RELAXED);
    }
    double share = MAX((double)records / (double)(shared->queue_records * MAX(count, 1)),
                       (double)bytes / (double)(shared->queue_bytes * MAX(count, 1)));
    report_add(report, "lag_records", (double)lag.records, false);
    report_add(report, "lag_seconds", lag.worst_us < 0 ? (double)NAN : (double)lag.worst_us / 1e6, false);
    add_partition(report, "lag_worst_partition", lag.worst, (double)lag.worst_records);
    report_add(report, "lag_worst_records", (double)lag.worst_records, false);
    report_add(report, "lag_has_gaps", lag.has_gaps, false);
    report_add(report, "open_transaction_records", (double)lag.open_records, false);
    report_add(report, "open_transaction_seconds", (double)lag.open_us / 1e6, false);
    add_partition(report, "open_transaction_partition", lag.open, (double)lag.open_us);
    report_add(report, "fetched_records", (double)records, false);
    report_add(report, "fetched_bytes", (double)bytes, false);
    report_add(report, "fetched_share", share, false);
    kafka_round_trip_report(&kafka->watch.round_trip, report);
    kafka_errors_why(shared->errors, report->error, sizeof(report->error));
}

const struct kafka_client *kafka_source_client(const void *config)
{
    return &((const struct kafka_source *)config)->client;
}

struct texts kafka_source_topics(const void *config)
{
    return ((const struct kafka_source *)config)->topic;
}

const struct source_kind source_kafka = {
    .name = "kafka",
    .summary = "records of Kafka topics, each record exactly once",
    .example =
        "source clicks = kafka { brokers: env(\"KAFKA_BROKERS\", \"localhost:9092\"), topic: \"clicks\", "
        "schema: { user_id: int, ts: time(ms) }, event_time: ts, max_delay: 5s }",
    .details =
        "The committed records of each partition are read in order. The positions where reading continues "
        "are in the job's checkpoints, never in a consumer group of the brokers. Partitions are merged by "
        "the brokers' timestamps. A record without payload (a tombstone) is a row of nulls if `meta` has a "
        "column for the key, else a dead letter. If records were lost unread, or a topic was deleted or "
        "created again, the job stops with an error; it never skips records. The lag is shown in records and "
        "in seconds. In records it is an upper bound if offsets have gaps (markers of transactions, records "
        "aborted or compacted away). In seconds it is the time between the last record read and the newest "
        "record of its partition, by the broker's timestamps. Records that nobody can read yet, because a "
        "transaction of another producer is open before them, are counted apart. Dead letters of this source "
        "have topic, partition, offset, key and headers, so that `leat produce --dead-letters` can send "
        "the records again.",
    .options = kafka_source_options,
    .size = sizeof(struct kafka_source),
    .has_offsets = true,
    .replay = &source_kafka_recording,
    .is_recording = recording_is,
    .bind = kafka_bind,
    .open = kafka_open,
    .partition_name = kafka_partition_name,
    .partition_topic = kafka_partition_topic,
    .discover = kafka_discover,
    .begin = kafka_begin,
    .seek = kafka_seek,
    .read = kafka_read,
    .decode = kafka_decode,
    .decoder_new = kafka_decoder_new,
    .decoder_free = format_decoder_free,
    .progress = kafka_progress,
    .report = kafka_report,
    .mark = kafka_mark,
    .mark_check = kafka_mark_check,
    .close = kafka_close,
};

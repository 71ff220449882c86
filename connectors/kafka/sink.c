/* Sink `kafka`: rows to a topic, each once.
 *
 * Exactly once (exact.c): rows become records in an outbox, a checkpoint holds the outbox, and once the
 * checkpoint is published a transaction sends the records together with a note in the sink's progress topic.
 * A reader that reads only committed records sees each row once, whatever crashed; a row becomes visible when
 * the checkpoint behind it is published.
 *
 * At least once (direct.c): rows are sent as they come, and the checkpoint waits for their acknowledgement;
 * after a crash the rows since the last checkpoint are sent again. */
#include "connectors/kafka/sink.h"
#include "connectors/kafka/direct.h"
#include "connectors/kafka/encode.h"
#include "connectors/kafka/exact.h"
#include "connectors/kafka/sink_topics.h"

#include "core/change.h"
#include "core/os.h"

#include <inttypes.h>
#include <stdio.h>

enum delivery { EXACTLY_ONCE, AT_LEAST_ONCE };
enum { RECORD_NAMES = 'N' };

struct kafka_sink {
    struct kafka_client client;
    struct str topic, progress_topic, delimiter;
    int delivery, format, compression, times;
    struct column_ref key, partition;
    struct columns headers;
    struct kafka_create create;
    int64_t outbox_bytes, linger_us, timeout_us, patience_us;

    int change;                  /* index of the change column; -1: rows are not changes */
    const struct schema *values; /* the input schema without that column */
    const char *topic_name, *progress_name;
    int64_t batch_bytes;                     /* most bytes of one batch that the topic takes; 0: not known */
    int32_t partitions, progress_partitions; /* of the two topics, at the start */
    char linger_ms[32];
    struct encode encode;
    uint32_t resume_row; /* next row of the batch that could not be written completely */
    struct exact exact;
    struct direct direct;
};

static const struct option create_options[] = {
    OPTION_INT(struct kafka_create, partitions, "partitions", 0, "0", "0", "100000",
               "number of partitions of the new topic; 0: a missing topic is an error"),
    OPTION_INT(struct kafka_create, replication, "replication", 0, "0", "0", "100",
               "replicas of each partition; 0: the cluster's default"),
    OPTION_DURATION(struct kafka_create, retention_us, "retention", 0, "0s", "0s", "36500d",
                    "how long records are kept; 0: the cluster's default"),
    OPTIONS_END,
};

static const struct option kafka_options[] = {
    KAFKA_CLIENT_OPTIONS(struct kafka_sink, client),
    OPTION_TEXT(struct kafka_sink, topic, "topic", OPTION_REQUIRED | OPTION_RUNTIME, NULL,
                "the topic to write to"),
    OPTION_ENUM(struct kafka_sink, format, "format", 0, "json", "json|csv|msgpack",
                "format of a record's value, which is one row without a line end"),
    OPTION_COLUMN(
        struct kafka_sink, key, "key", 0,
        "the column with the record's key: rows of one key stay in order; without `key`, keys are null"),
    OPTION_COLUMNS(struct kafka_sink, headers, "headers", 0,
                   "columns that are also sent as headers of the same names; a null gives no header"),
    OPTION_COLUMN(
        struct kafka_sink, partition, "partition", 0,
        "the column with the partition's number; without `partition`, or for a null, the key chooses the "
        "partition, as with the Java client; rows without a key go by the number of their micro-batch, modulo "
        "the partitions"),
    OPTION_ENUM(
        struct kafka_sink, delivery, "delivery", 0, "exactly_once", "exactly_once|at_least_once",
        "exactly_once: rows are sent in transactions, after a checkpoint contains them; at_least_once: rows "
        "are sent as they come, and after a crash some rows are sent again"),
    OPTION_ENUM(struct kafka_sink, compression, "compression", OPTION_RUNTIME, "lz4",
                "none|gzip|snappy|lz4|zstd", "compression of the records sent"),
    OPTION_BYTES(
        struct kafka_sink, outbox_bytes, "outbox", OPTION_RUNTIME, "64MiB", "1MiB", "1TiB",
        "memory for rows that brokers have not acknowledged yet; when it is full, sources wait, and a "
        "checkpoint is taken soon"),
    OPTION_TEXT(
        struct kafka_sink, progress_topic, "progress_topic", OPTION_RUNTIME, "\"\"",
        "exactly_once: the topic in which transactions note which rows were sent, with a partition for each "
        "shard; created if missing; by default TOPIC.leat-SINK, from the names of topic and sink"),
    OPTION_DURATION(struct kafka_sink, timeout_us, "transaction_timeout", OPTION_RUNTIME, "60s", "1s", "15m",
                    "exactly_once: after this time brokers abort a transaction that is still open"),
    OPTION_DURATION(struct kafka_sink, linger_us, "linger", OPTION_RUNTIME, "1ms", "0ms", "10s",
                    "at_least_once: how long a record waits for further records, to be sent together"),
    OPTION_DURATION(
        struct kafka_sink, patience_us, "patience", OPTION_RUNTIME, KAFKA_PATIENCE, "1s", "1d",
        "how long the start, and the end of a run, wait for brokers; in between there is no limit"),
    OPTION_BLOCK(struct kafka_sink, create, struct kafka_create, "create", OPTION_RUNTIME, create_options,
                 "create the topic if it is missing"),
    OPTION_TEXT(struct kafka_sink, delimiter, "delimiter", 0, "\",\"", "csv: the character between fields"),
    OPTION_ENUM(struct kafka_sink, times, "times", 0, "rfc3339", "rfc3339|s|ms|us|ns",
                "how times are written"),
    OPTIONS_END,
};

/* --- Binding --- */

static bool bind_columns(struct kafka_sink *sink, struct sink_bind *bind)
{
    bool is_good = columns_resolve(&sink->headers, bind->input, bind->arena, bind->diags);
    for (uint32_t i = 0; i < sink->headers.count && is_good; i++)
        is_good = encode_check_text(&sink->headers.items[i], bind->input, bind->diags);
    if (sink->headers.count > RECORD_HEADERS_MAX) {
        diag_error(bind->diags, DIAG_OUT_OF_RANGE, sink->headers.items[RECORD_HEADERS_MAX].span,
                   "a record can have at most %d headers", RECORD_HEADERS_MAX);
        is_good = false;
    }
    if (sink->key.name.length > 0)
        is_good &= column_resolve(&sink->key, bind->input, bind->arena, bind->diags) &&
                   encode_check_text(&sink->key, bind->input, bind->diags);
    if (sink->partition.name.length > 0)
        is_good &= column_resolve(&sink->partition, bind->input, bind->arena, bind->diags) &&
                   encode_check_partition(&sink->partition, bind->input, bind->diags);
    return is_good;
}

/* Finds the change column; a stream of changes needs a `key`. Returns false after a diagnostic. */
static bool bind_changes(struct kafka_sink *sink, struct sink_bind *bind)
{
    sink->change = change_column(bind->input);
    sink->values = encode_values(bind->input, sink->change, bind->arena);
    if (sink->change < 0)
        return true;
    const struct type *type = &bind->input->fields[sink->change].type;
    if (type->tag != TYPE_TEXT) {
        diag_hint(bind->diags,
                  diag_error(bind->diags, DIAG_TYPE_CLASH, bind->span,
                             "column `" CHANGE_COLUMN
                             "` must be a text that says how a row changes its key, and is %s",
                             type_name(bind->arena, type)),
                  "the texts are insert, update and delete; rename the column if it has another meaning");
        return false;
    }
    if (sink->key.name.length > 0)
        return true;
    diag_hint(bind->diags,
              diag_error(bind->diags, DIAG_OPTION_MISSING, bind->span,
                         "rows of this stream are changes (they have `" CHANGE_COLUMN
                         "`), and without `key` a record cannot replace an older record"),
              "`key: COLUMN` writes changes as upserts, and deletes as tombstones; or `drop " CHANGE_COLUMN
              "` to write each change as a row");
    return false;
}

static const struct format_kind *format_of(const struct kafka_sink *sink)
{
    static const char *const names[] = {"json", "csv", "msgpack"};
    return format_find(str_from(names[sink->format]));
}

static bool kafka_bind(struct sink_bind *bind)
{
    struct kafka_sink *sink = bind->config;
    bool is_good = kafka_client_check(&sink->client, RD_KAFKA_PRODUCER, bind->span, bind->diags);
    is_good &= kafka_topic_check("topic", sink->topic, bind->span, bind->diags);
    if (sink->progress_topic.length > 0)
        is_good &= kafka_topic_check("progress_topic", sink->progress_topic, bind->span, bind->diags);
    if (sink->progress_topic.length > 0 && str_equal(sink->progress_topic, sink->topic)) {
        diag_error(bind->diags, DIAG_OPTIONS_CLASH, bind->span,
                   "`progress_topic` cannot be the `topic` itself");
        is_good = false;
    }
    is_good &= bind_changes(sink, bind);
    is_good &= format_delimiter_check(sink->delimiter, bind->diags, bind->span);
    is_good &= format_schema_check(format_of(sink), sink->values, bind->diags, bind->span);
    return is_good && bind_columns(sink, bind);
}

/* The values' columns are not part of the shape: a topic may have values with any columns. */
static void kafka_shape(const struct sink_bind *bind, struct byte_buffer *out)
{
    static const char *const deliveries[] = {"exactly_once", "at_least_once"};
    const struct kafka_sink *sink = bind->config;
    buffer_printf(out, "=topic: %.*s\n=delivery: %s\n", STR_ARGS(sink->topic), deliveries[sink->delivery]);
    if (sink->delivery == EXACTLY_ONCE)
        buffer_printf(out, "=progress_topic: %.*s\n", STR_ARGS(sink->progress_topic));
}

/* --- Opening --- */

static void open_encoder(struct kafka_sink *sink)
{
    static const enum time_unit units[] = {TIME_UNIT_RFC3339, TIME_UNIT_S, TIME_UNIT_MS, TIME_UNIT_US,
                                           TIME_UNIT_NS};
    struct encode_options options = {
        .schema = sink->values,
        .format = format_of(sink),
        .config = {.delimiter = sink->delimiter.data[0], .has_no_header = true, .times = units[sink->times]},
        .key = sink->key.name.length > 0 ? sink->key.index : -1,
        .partition = sink->partition.name.length > 0 ? sink->partition.index : -1,
        .change = sink->change,
        .headers = &sink->headers};
    encode_open(&sink->encode, &options);
}

static const char *compression_name(const struct kafka_sink *sink)
{
    static const char *const names[] = {"none", "gzip", "snappy", "lz4", "zstd"};
    return names[sink->compression];
}

static bool open_direct(struct kafka_sink *sink, struct sink_context *context)
{
    snprintf(sink->linger_ms, sizeof(sink->linger_ms), "%" PRId64 ".%03" PRId64, sink->linger_us / 1000,
             sink->linger_us % 1000);
    struct direct_options options = {.client = &sink->client,
                                     .job = context->job,
                                     .sink = context->name,
                                     .topic = sink->topic_name,
                                     .compression = compression_name(sink),
                                     .batch_bytes = sink->batch_bytes,
                                     .linger_ms = sink->linger_ms,
                                     .budget_bytes = (uint64_t)sink->outbox_bytes,
                                     .patience_us = sink->patience_us,
                                     .stop = context->stop,
                                     .is_full = &context->is_full,
                                     .wake = context->wake,
                                     .engine = context->engine};
    return direct_open(&sink->direct, &options) ||
           sink_cannot_open(context, sink->direct.error, "mend the cause and start again");
}

static struct sender_options sender_options_of(const struct kafka_sink *sink,
                                               const struct sink_context *context)
{
    struct sender_options options = {.client = &sink->client,
                                     .job = context->job,
                                     .sink = context->name,
                                     .topic = sink->topic_name,
                                     .progress_topic = sink->progress_name,
                                     .compression = compression_name(sink),
                                     .batch_bytes = sink->batch_bytes,
                                     .timeout_us = sink->timeout_us,
                                     .patience_us = sink->patience_us,
                                     .stop = context->stop,
                                     .is_new_run = context->is_new_run,
                                     .check = context->check,
                                     .engine = context->engine};
    memcpy(options.run_id, context->run_id, sizeof(options.run_id));
    return options;
}

static struct exact_options exact_options_of(const struct kafka_sink *sink,
                                             const struct sink_context *context)
{
    return (struct exact_options){.sender = sender_options_of(sink, context),
                                  .budget_bytes = (uint64_t)sink->outbox_bytes,
                                  .partitions = sink->partitions,
                                  .progress_partitions = sink->progress_partitions};
}

static bool open_exact(struct kafka_sink *sink, struct sink_context *context)
{
    struct exact_options options = exact_options_of(sink, context);
    if (!context->is_resumed)
        return exact_open(&sink->exact, context, &options);
    exact_prepare(&sink->exact, context, &options);
    return true;
}

static bool name_topics(struct kafka_sink *sink, struct sink_context *context)
{
    sink->topic_name = arena_strndup(context->arena, sink->topic.data, sink->topic.length);
    sink->progress_name =
        sink->progress_topic.length > 0
            ? arena_strndup(context->arena, sink->progress_topic.data, sink->progress_topic.length)
            : arena_printf(context->arena, "%s.leat-%.*s", sink->topic_name, STR_ARGS(context->name));
    if (strlen(sink->progress_name) <= TOPIC_NAME_MAX)
        return true;
    return sink_cannot_open(context, "the name of its progress topic is too long",
                            "set `progress_topic` to a shorter name");
}

static struct kafka_patience patience_of(const struct kafka_sink *sink, const struct sink_context *context)
{
    return kafka_patience_begin(sink->patience_us, context->stop, "sink", context->name);
}

static struct admin_call admin_call_of(struct kafka_sink *sink, const struct sink_context *context,
                                       struct kafka_patience *patience, _Atomic bool *must_stop)
{
    return (struct admin_call){.client = &sink->client,
                               .job = context->job,
                               .name = context->name,
                               .deadline_us = patience->deadline_us,
                               .patience = patience,
                               .must_stop = must_stop};
}

/* If the progress topic is missing, nobody has sent for the run. */
static bool kafka_fence(struct sink_context *context)
{
    struct kafka_sink *sink = context->config;
    _Atomic bool never = false;
    if (sink->delivery != EXACTLY_ONCE)
        return true;
    if (!name_topics(sink, context))
        return false;
    struct kafka_patience patience = patience_of(sink, context);
    struct admin_call call = admin_call_of(sink, context, &patience, &never);
    enum admin_answer answer = admin_partitions(&call, sink->progress_name, &sink->progress_partitions, NULL);
    if (answer != ADMIN_GOOD)
        return answer == ADMIN_MISSING ||
               sink_cannot_open(context, call.why, "mend the cause and start again");
    struct exact_options options = exact_options_of(sink, context);
    return exact_fence(context, &options);
}

static bool kafka_open(struct sink_context *context)
{
    struct kafka_sink *sink = context->config;
    bool is_exact = sink->delivery == EXACTLY_ONCE;
    _Atomic bool never = false;
    if (is_exact && !context->has_checkpoints) {
        struct diag *d = diag_error(
            context->diags, DIAG_OPTIONS_CLASH, (struct span){0, 0},
            "sink `%.*s` delivers exactly once, and the job has no checkpoints, which must keep the rows "
            "until they are sent",
            STR_ARGS(context->name));
        diag_hint(context->diags, d,
                  "say `checkpoint: { dir: \"state/%.*s\" }` in the job block, or `delivery: at_least_once`",
                  STR_ARGS(context->job));
        return false;
    }
    if (!name_topics(sink, context))
        return false;
    struct kafka_patience patience = patience_of(sink, context);
    struct admin_call call = admin_call_of(sink, context, &patience, &never);
    if (!sink_topic_ensure(context, &call, sink->topic_name, &sink->create, &sink->partitions,
                           &sink->batch_bytes))
        return false;
    bool is_new =
        !context->is_resumed || context->is_from; /* else the checkpoint says how many shards there are */
    if (is_exact &&
        !sink_progress_ensure(context, &call, sink->progress_name, sink->topic_name,
                              is_new ? shards_of(sink->partitions) : 0, &sink->progress_partitions))
        return false;
    atomic_store(&sink->client.was_well, true);
    open_encoder(sink);
    return is_exact ? open_exact(sink, context) : open_direct(sink, context);
}

/* --- Rows --- */

/* Whether the sink can go on; else sets context->error. */
static bool is_well(struct sink_context *context)
{
    struct kafka_sink *sink = context->config;
    if (sink->delivery == EXACTLY_ONCE)
        return exact_is_well(&sink->exact, context->error, sizeof(context->error));
    if (!atomic_load(&sink->direct.has_failed))
        return true;
    pthread_mutex_lock(&sink->direct.mutex); /* the lane and the coordinator may both set the error */
    snprintf(context->error, sizeof(context->error), "%s", sink->direct.error);
    pthread_mutex_unlock(&sink->direct.mutex);
    return false;
}

static bool kafka_write(struct sink_context *context, const struct batch *batch)
{
    struct kafka_sink *sink = context->config;
    bool is_good = is_well(context);
    for (; is_good && sink->resume_row < batch->selected; sink->resume_row += is_good) {
        struct kafka_record record = encode_row(&sink->encode, batch, sink->resume_row);
        is_good = sink->delivery == EXACTLY_ONCE ? exact_write(&sink->exact, &record)
                                                 : direct_write(&sink->direct, &record);
    }
    if (sink->delivery == EXACTLY_ONCE)
        exact_account(&sink->exact);
    if (is_good)
        sink->resume_row = 0;
    return is_good || is_well(context);
}

/* --- Checkpoints --- */

/* The names come first in a snapshot, for is_other: rows before the checkpoint went to these topics. */
static void put_names(const struct kafka_sink *sink, struct byte_buffer *out)
{
    const char head[] = {RECORD_NAMES, (char)('0' + sink->delivery)};
    buffer_append(out, head, sizeof(head));
    buffer_append(out, sink->topic_name, strlen(sink->topic_name) + 1);
    if (sink->delivery == EXACTLY_ONCE)
        buffer_append(out, sink->progress_name, strlen(sink->progress_name));
}

static bool kafka_snapshot(struct sink_context *context, struct snapshot_writer *writer)
{
    struct kafka_sink *sink = context->config;
    struct byte_buffer names = {0};
    put_names(sink, &names);
    bool is_good = snapshot_put(writer, SNAPSHOT_GLOBAL, names.data, names.length);
    buffer_free(&names);
    if (!is_good)
        return false;
    if (sink->delivery == EXACTLY_ONCE)
        return exact_snapshot(&sink->exact, writer);
    direct_snapshot(&sink->direct, writer);
    return true;
}

static bool is_other(struct sink_context *context, const struct byte_buffer *names)
{
    struct kafka_sink *sink = context->config;
    struct byte_buffer now = {0};
    put_names(sink, &now);
    bool is_same = now.length == names->length && memcmp(now.data, names->data, now.length) == 0;
    buffer_free(&now);
    if (is_same)
        return false;
    static const char *const deliveries[] = {"exactly_once", "at_least_once"};
    struct diag *d = diag_error(
        context->diags, DIAG_RESUME_OR_FRESH, (struct span){0, 0},
        "sink `%.*s` wrote to topic `%.*s` with `delivery: %s` until the checkpoint, and `topic`, `delivery` "
        "or `progress_topic` has changed",
        STR_ARGS(context->name), (int)strnlen(names->data + 2, names->length - 2), names->data + 2,
        deliveries[names->data[1] == '1']);
    diag_hint(
        context->diags, d,
        "set the options back; or give the sink another name: a sink of a new name begins with the rows "
        "after the checkpoint; or start anew with --fresh");
    return true;
}

static bool kafka_restore(struct sink_context *context, struct snapshot_reader *reader)
{
    struct kafka_sink *sink = context->config;
    struct byte_buffer names = {0};
    struct str record;
    uint32_t group;
    bool is_good = true;
    while (is_good && snapshot_get(reader, &group, &record)) {
        if (record.length > 3 && record.data[0] == RECORD_NAMES) {
            buffer_clear(&names);
            buffer_append(&names, record.data, record.length);
        } else {
            is_good =
                names.length > 0 && (names.data[1] != '0' + EXACTLY_ONCE || sink->delivery != EXACTLY_ONCE ||
                                     exact_restore_record(&sink->exact, record));
        }
    }
    if (!is_good || names.length == 0) {
        snapshot_corrupt(reader, context->diags, "the state of a Kafka sink is not valid");
        is_good = false;
    }
    is_good = is_good && !is_other(context, &names);
    buffer_free(&names);
    if (!is_good || sink->delivery != EXACTLY_ONCE)
        return is_good;
    return exact_restored(&sink->exact, reader);
}

static bool kafka_committed(struct sink_context *context, uint64_t epoch, struct str order)
{
    struct kafka_sink *sink = context->config;
    if (sink->delivery == EXACTLY_ONCE)
        return exact_committed(&sink->exact, epoch, order);
    return is_well(context);
}

static void kafka_stored(struct sink_context *context, uint64_t epoch)
{
    struct kafka_sink *sink = context->config;
    if (sink->delivery == EXACTLY_ONCE)
        exact_stored(&sink->exact, epoch);
}

static bool kafka_drain(struct sink_context *context)
{
    struct kafka_sink *sink = context->config;
    if (sink->delivery == EXACTLY_ONCE)
        return exact_drain(&sink->exact);
    return direct_drain(&sink->direct) || is_well(context);
}

static void kafka_describe(struct sink_context *context, struct byte_buffer *out)
{
    struct kafka_sink *sink = context->config;
    if (sink->delivery == EXACTLY_ONCE)
        exact_describe(&sink->exact, out);
    else
        buffer_printf(out, "sent %" PRIu64 " records, %" PRIu64 " bytes", atomic_load(&sink->direct.records),
                      atomic_load(&sink->direct.bytes));
}

static void kafka_report(struct sink_context *context, struct report *report)
{
    struct kafka_sink *sink = context->config;
    if (sink->delivery == EXACTLY_ONCE)
        exact_report(&sink->exact, report);
    else
        direct_report(&sink->direct, report);
}

static void kafka_close(struct sink_context *context)
{
    struct kafka_sink *sink = context->config;
    exact_close(&sink->exact);
    direct_close(&sink->direct);
    encode_close(&sink->encode);
}

const struct kafka_client *kafka_sink_client(const void *config)
{
    return &((const struct kafka_sink *)config)->client;
}

const struct sink_kind sink_kafka = {
    .name = "kafka",
    .summary = "rows to a Kafka topic, each row exactly once, even after crashes",
    .example =
        "sink scored = kafka from features { brokers: \"localhost:9092\", topic: \"scores\", key: user_id }",
    .details =
        "With `delivery: exactly_once`, readers of committed records (`isolation.level: read_committed`) see "
        "a row after a checkpoint contains it: at the interval of checkpoints, not at once. A sink has as many "
        "shards as its topic had partitions when the run began, 8 at most; shard P modulo the shards sends the "
        "rows of partition P by transactions of its own, so readers may see the rows of a checkpoint in one "
        "partition before those in another. The transactions that send the rows also note in the sink's progress topic which rows were sent; leave that topic "
        "alone. With `at_least_once`, rows are visible within milliseconds, and after a crash the rows since "
        "the last checkpoint are sent again. Records of one key go to one partition, which is the partition "
        "that the Java client would choose. If rows have a column `_op`, a delete is written as a tombstone, "
        "and any other row as an upsert without that column; this needs a `key`. If brokers check rights, "
        "exactly_once needs Write and Describe on the topic; Read, Write and Describe on the progress topic; "
        "Alter on the progress topic, if it has fewer partitions than a new run has shards; and Write and "
        "Describe on transactional ids that begin with `leat.JOB.SINK.` (the names of "
        "job and sink). With DescribeConfigs on the topic, leat makes no batch of records larger than the "
        "topic's `max.message.bytes`.",
    .options = kafka_options,
    .size = sizeof(struct kafka_sink),
    .bind = kafka_bind,
    .shape = kafka_shape,
    .fence = kafka_fence,
    .open = kafka_open,
    .write = kafka_write,
    .is_well = is_well,
    .snapshot = kafka_snapshot,
    .restore = kafka_restore,
    .committed = kafka_committed,
    .stored = kafka_stored,
    .drain = kafka_drain,
    .report = kafka_report,
    .describe = kafka_describe,
    .close = kafka_close,
};

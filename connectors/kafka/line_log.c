/* A log of lines in a topic (core/line_log.h): what a `serve` logs, one record for each line, with a producer of its own.
 *
 * At most once. The producer is not idempotent and sends nothing again (message.send.max.retries 0): after an attempt
 * whose answer is lost, the brokers may have the line or not, and a second attempt could write it twice. Such a line
 * counts as lost. Lines that were not sent yet wait for brokers that are away, MESSAGE_MS at most. `acks: all`, so that a
 * line counts as written when a broker that fails cannot take it along.
 *
 * Records have no key: lines of one request name it by `_id`, which as a key would let compaction leave one line of each
 * request. Brokers refuse records without keys for a compacted topic (INVALID_RECORD).
 *
 * Memory: at most QUEUE_BYTES of lines and QUEUE_LINES records wait in librdkafka. While that is full, the log's thread
 * waits with the lines that it holds, and serve's buffer fills and loses what does not fit. */
#include "connectors/kafka/client.h"
#include "connectors/kafka/sink_topics.h"

#include "core/line_log.h"
#include "core/mem.h"
#include "core/os.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    QUEUE_BYTES = 8 << 20,
    QUEUE_LINES = 100000,
    MESSAGE_MS = 10000, /* how long a line waits for brokers */
    TOPIC_MS = 5000,    /* how long a line waits for its topic, which brokers do not know */
    POLL_MS = 20,
    POLL_LINES = 256,        /* between two looks at the brokers' answers */
    FINISH_US = 3 * 1000000, /* how long the end waits for answers */
    PURGED_US = 1000000,     /* and for librdkafka to give back the lines that are left */
    BROKERS_SHOWN = 200,
};

struct line_log_options {
    struct kafka_client client;
    struct str topic;
};
_Static_assert(sizeof(struct line_log_options) <= LINE_LOG_CONFIG_BYTES, "a plan has room for the options");

struct line_log {
    const struct line_log_options *options;
    rd_kafka_t *producer;
    struct kafka_errors *errors;
    rd_kafka_topic_t *topic;
    uint64_t waiting;         /* in librdkafka, without a delivery report */
    uint64_t written, lost;   /* not settled yet */
    rd_kafka_resp_err_t last; /* why the last of the lost ones was lost */
    int64_t end_us;           /* monotonic: when the end waits no longer; 0: the log goes on */
};

static const struct option line_log_options[] = {
    OPTION_TEXT(
        struct line_log_options, topic, "topic", OPTION_RUNTIME, "\"\"",
        "instead of `path`: the topic of Kafka to which lines go, as values of records without keys; if "
        "empty, there is no topic"),
    KAFKA_CLIENT_ROWS(struct line_log_options, client, 0, "\"\""),
    OPTIONS_END,
};

static bool line_log_check(const void *config, struct span span, struct diag_list *diags)
{
    const struct line_log_options *options = config;
    if (options->client.brokers.length == 0) {
        struct diag *d = diag_error(diags, DIAG_OPTION_MISSING, span, "`log` with `topic` needs `brokers`");
        diag_hint(diags, d, "for example `brokers: \"kafka-1:9092, kafka-2:9092\"`");
        return false;
    }
    bool is_good = kafka_topic_check("topic", options->topic, span, diags);
    is_good &= kafka_client_check(&options->client, RD_KAFKA_PRODUCER, span, diags);
    return is_good;
}

/* On the thread that polls, which is that of write and finish. */
static void delivered(void *argument, const rd_kafka_message_t *message)
{
    struct line_log *log = argument;
    log->waiting--;
    if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
        log->written++;
        return;
    }
    log->lost++;
    log->last = message->err;
}

static void line_log_close(void *argument)
{
    struct line_log *log = argument;
    if (log->topic != NULL)
        rd_kafka_topic_destroy(log->topic);
    kafka_client_free(log->producer, log->errors);
    free(log);
}

static void *line_log_open(const struct line_log_open *open)
{
    char bytes[16], lines[16], message_ms[16], topic_ms[16];
    struct line_log *log = mem_calloc(1, sizeof(*log));
    log->options = open->config;
    snprintf(bytes, sizeof(bytes), "%d", QUEUE_BYTES >> 10);
    snprintf(lines, sizeof(lines), "%d", QUEUE_LINES);
    snprintf(message_ms, sizeof(message_ms), "%d", MESSAGE_MS);
    snprintf(topic_ms, sizeof(topic_ms), "%d", TOPIC_MS);
    const struct kafka_property properties[] = {{"enable.idempotence", "false"},
                                                {"message.send.max.retries", "0"},
                                                {"acks", "all"},
                                                {"compression.codec", "lz4"},
                                                {"message.timeout.ms", message_ms},
                                                {"topic.metadata.propagation.max.ms", topic_ms},
                                                {"queue.buffering.max.kbytes", bytes},
                                                {"queue.buffering.max.messages", lines},
                                                {NULL, NULL}};
    const struct kafka_hooks hooks = {.argument = log, .delivered = delivered};
    log->producer = kafka_client_new(&log->options->client, RD_KAFKA_PRODUCER, properties, &hooks, open->job,
                                     open->name, &log->errors, open->diags);
    if (log->producer != NULL) {
        char *topic = mem_str(log->options->topic);
        log->topic = rd_kafka_topic_new(log->producer, topic, NULL);
        if (log->topic == NULL)
            diag_error(open->diags, DIAG_KAFKA_FAILED, (struct span){0}, "the log's topic `%s`: %s", topic,
                       rd_kafka_err2str(rd_kafka_last_error()));
        free(topic);
    }
    if (log->topic != NULL)
        return log;
    line_log_close(log);
    return NULL;
}

/* Whether the log ends, and the time for that is over. */
static bool is_over(struct line_log *log, bool is_ending)
{
    if (is_ending && log->end_us == 0)
        log->end_us = os_monotonic_us() + FINISH_US;
    return is_ending && os_monotonic_us() >= log->end_us;
}

/* Hands a line to librdkafka, and waits for room in its queue. */
static void put(struct line_log *log, const char *line, size_t length, const atomic_bool *is_ending)
{
    while (rd_kafka_produce(log->topic, RD_KAFKA_PARTITION_UA, RD_KAFKA_MSG_F_COPY, (void *)(uintptr_t)line,
                            length, NULL, 0, NULL) != 0) {
        rd_kafka_resp_err_t error = rd_kafka_last_error();
        if (error != RD_KAFKA_RESP_ERR__QUEUE_FULL || is_over(log, atomic_load(is_ending))) {
            log->lost++;
            log->last = error;
            return;
        }
        rd_kafka_poll(log->producer, POLL_MS);
    }
    log->waiting++;
}

/* --- What became of the lines --- */

static bool is_about_topic(rd_kafka_resp_err_t error)
{
    return error == RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC || error == RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION ||
           error == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
}

/* What to do about an error by which a broker answered; NULL: the error is of connections, which librdkafka's messages
 * explain. */
static const char *remedy_of(rd_kafka_resp_err_t error)
{
    if (is_about_topic(error))
        return "create the topic, or correct `topic`";
    switch (error) {
    case RD_KAFKA_RESP_ERR__QUEUE_FULL:
        return "lines come faster than brokers take them: log a smaller `sample`";
    case RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE:
    case RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE:
        return "raise the topic's `max.message.bytes`, and `properties: { message_max_bytes: BYTES }`";
    case RD_KAFKA_RESP_ERR_INVALID_RECORD:
        return "lines have no keys, which a compacted topic refuses: set its `cleanup.policy` to `delete`";
    case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED:
        return "allow the user of `security` to WRITE and DESCRIBE the topic";
    default: return error > 0 ? "see the brokers' log" : NULL;
    }
}

static void describe(struct line_log *log, char failure[LINE_LOG_FAILURE_BYTES])
{
    struct arena arena = {0};
    struct diag_list diags;
    const struct str topic = log->options->topic, brokers = log->options->client.brokers;
    const char *remedy = remedy_of(log->last), *more = brokers.length > BROKERS_SHOWN ? "..." : "";
    diag_list_init(&diags, &arena);
    if (remedy == NULL)
        kafka_errors_report(log->errors, log->last, &diags, "write to topic `%.*s` at %.*s%s",
                            STR_ARGS(topic), (int)MIN(brokers.length, BROKERS_SHOWN), brokers.data, more);
    else
        diag_hint(
            &diags,
            diag_error(&diags, DIAG_KAFKA_FAILED, (struct span){0},
                       "cannot write to topic `%.*s` at %.*s%s: %s", STR_ARGS(topic),
                       (int)MIN(brokers.length, BROKERS_SHOWN), brokers.data, more,
                       is_about_topic(log->last) ? "the topic does not exist" : rd_kafka_err2str(log->last)),
            "%s", remedy);
    snprintf(failure, LINE_LOG_FAILURE_BYTES, "%s; %s", diags.items[0].message, diags.items[0].hint);
    arena_free(&arena);
}

static void settle(struct line_log *log, struct line_log_settled *settled)
{
    settled->written += log->written;
    settled->lost += log->lost;
    if (log->lost > 0)
        describe(log, settled->failure);
    log->written = log->lost = 0;
}

static void line_log_write(void *argument, struct str lines, uint32_t count, const atomic_bool *is_ending,
                           struct line_log_settled *settled)
{
    struct line_log *log = argument;
    const char *at = lines.data, *end = lines.data + lines.length;
    for (uint32_t i = 0; i < count; i++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        leat_assert(newline != NULL);
        put(log, at, (size_t)(newline - at), is_ending);
        at = newline + 1;
        if (i % POLL_LINES == 0)
            rd_kafka_poll(log->producer, 0);
    }
    leat_assert(at == end);
    rd_kafka_poll(log->producer, 0);
    settle(log, settled);
}

static void line_log_finish(void *argument, struct line_log_settled *settled)
{
    struct line_log *log = argument;
    while (log->waiting > 0 && !is_over(log, true))
        rd_kafka_poll(log->producer, POLL_MS);
    rd_kafka_resp_err_t last = log->lost > 0 ? log->last : RD_KAFKA_RESP_ERR__TIMED_OUT;
    if (log->waiting > 0)
        rd_kafka_purge(log->producer, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    int64_t end_us = os_monotonic_us() + PURGED_US;
    while (log->waiting > 0 && os_monotonic_us() < end_us)
        rd_kafka_poll(log->producer, POLL_MS);
    log->lost += log->waiting; /* whose reports librdkafka still owes */
    log->waiting = 0;
    log->last = last; /* rather than that they were given up */
    settle(log, settled);
}

const struct line_log_kind line_log_kafka = {
    .name = "a topic of Kafka",
    .options = line_log_options,
    .size = sizeof(struct line_log_options),
    .choice = "topic",
    .check = line_log_check,
    .open = line_log_open,
    .write = line_log_write,
    .finish = line_log_finish,
    .close = line_log_close,
};

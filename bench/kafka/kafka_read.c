/*
 * Reads the committed records that a job wrote to a topic, for the benchmarks of Kafka.
 *
 *     kafka_read BROKERS TOPIC all COUNT [SKIP]
 *         from the beginning, until COUNT records have come; more records are an error. For the records
 *         whose `id` is at least SKIP it prints the latency since the broker appended their input
 *         (`appended`, whole milliseconds), and since their input was sent (`sent`, microseconds)
 *     kafka_read BROKERS TOPIC first AFTER
 *         from now on, until a record comes that was sent after the time AFTER; "-": that time comes by the
 *         standard input, once the first record has come and a line has been printed that says so
 *
 * Values are JSON objects with the ints id, sent and appended, written without blanks. Prints one JSON line.
 * The digest does not depend on the order of records; the order within a key shows in the running values of
 * its records.
 */
#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { SILENT_MS = 240000, TOO_MANY_MS = 300, APPENDED_UNIT_US = 1000 };

struct reader {
    rd_kafka_t *client;
    rd_kafka_topic_t *topic;
    rd_kafka_queue_t *queue;
    int partitions;
};

struct figures {
    uint64_t count, room;
    uint64_t digest, ids;
    int64_t first_us;    /* when the first record came here */
    int64_t skip;        /* records with a lower id are not timed; -1: none is timed */
    int64_t *written_ms; /* by the broker's time of appending */
    int64_t *from_append_us, *from_send_us;
    uint64_t timed;
};

static void start(struct reader *reader, const char *brokers, const char *topic, int64_t offset)
{
    static const char *const settings[] = {"isolation.level",
                                           "read_committed",
                                           "enable.auto.offset.store",
                                           "false",
                                           "enable.auto.commit",
                                           "false",
                                           "check.crcs",
                                           "true",
                                           "fetch.wait.max.ms",
                                           "100",
                                           NULL};
    reader->client = client_new(RD_KAFKA_CONSUMER, brokers, settings, NULL);
    reader->topic = rd_kafka_topic_new(reader->client, topic, NULL);
    reader->queue = rd_kafka_queue_new(reader->client);
    reader->partitions = client_partitions(reader->client, reader->topic);
    for (int i = 0; i < reader->partitions; i++)
        if (rd_kafka_consume_start_queue(reader->topic, i, offset, reader->queue) != 0)
            fail(topic, rd_kafka_err2str(rd_kafka_last_error()));
}

static void stop(struct reader *reader)
{
    for (int i = 0; i < reader->partitions; i++)
        rd_kafka_consume_stop(reader->topic, i);
    rd_kafka_queue_destroy(reader->queue);
    rd_kafka_topic_destroy(reader->topic);
    rd_kafka_destroy(reader->client);
}

/* The int behind `name`, which is given as "\"id\":"; -1: the message has no such field. */
static int64_t field(const rd_kafka_message_t *message, const char *name, size_t length)
{
    const char *at = memmem(message->payload, message->len, name, length);
    const char *end = (const char *)message->payload + message->len;
    int64_t value = 0;
    if (at == NULL)
        return -1;
    for (at += length; at < end && *at >= '0' && *at <= '9'; at++)
        value = value * 10 + (*at - '0');
    return value;
}

#define FIELD(message, name) field((message), "\"" name "\":", sizeof("\"" name "\":") - 1)

/* Passes the available records to the callback; waits if there are none. */
static void serve(const struct reader *reader, void (*callback)(rd_kafka_message_t *, void *), void *argument)
{
    if (rd_kafka_consume_callback_queue(reader->queue, SILENT_MS, callback, argument) <= 0)
        fail(rd_kafka_topic_name(reader->topic), "no record comes any more");
}

static void expect_no_more(const struct reader *reader)
{
    rd_kafka_message_t *message;
    if (rd_kafka_consume_batch_queue(reader->queue, TOO_MANY_MS, &message, 1) > 0)
        fail(rd_kafka_topic_name(reader->topic), "more records than there should be");
}

static void take(rd_kafka_message_t *message, void *argument)
{
    struct figures *figures = argument;
    rd_kafka_timestamp_type_t type;
    if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR)
        return;
    if (figures->count == figures->room)
        fail(rd_kafka_topic_name(message->rkt), "more records than there should be");
    figures->written_ms[figures->count++] = rd_kafka_message_timestamp(message, &type);
    figures->digest +=
        XXH3_64bits_withSeed(message->payload, message->len, XXH3_64bits(message->key, message->key_len));
    int64_t id = FIELD(message, "id"), now = wall_us();
    figures->ids += mix((uint64_t)id);
    if (figures->skip < 0 || id < figures->skip)
        return;
    figures->from_append_us[figures->timed] = now - FIELD(message, "appended") * APPENDED_UNIT_US;
    figures->from_send_us[figures->timed++] = now - FIELD(message, "sent");
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static void print_latency(const char *name, int64_t *values, uint64_t count)
{
    qsort(values, count, sizeof(*values), compare);
    printf(", \"%s_ms\": {\"p50\": %.3f, \"p99\": %.3f, \"p999\": %.3f, \"max\": %.3f}", name,
           (double)values[count / 2] / 1e3, (double)values[count / 100 * 99] / 1e3,
           (double)values[count / 1000 * 999] / 1e3, (double)values[count - 1] / 1e3);
}

/* The rate is that of the last two thirds, by the broker's clock, so that a program has time to warm up. */
static void print_figures(struct figures *figures)
{
    qsort(figures->written_ms, figures->count, sizeof(int64_t), compare);
    int64_t first = figures->written_ms[0], third = figures->written_ms[figures->count / 3],
            last = figures->written_ms[figures->count - 1];
    printf(
        "{\"records\": %llu, \"digest\": \"%016llx\", \"ids\": %llu, \"first_ms\": %lld, \"last_ms\": %lld, "
        "\"steady_per_s\": %.0f",
        (unsigned long long)figures->count, (unsigned long long)figures->digest,
        (unsigned long long)figures->ids, (long long)first, (long long)last,
        (double)(figures->count - figures->count / 3) * 1e3 / (double)MAX(last - third, 1));
    if (figures->timed > 0) {
        print_latency("append", figures->from_append_us, figures->timed);
        print_latency("send", figures->from_send_us, figures->timed);
    }
    printf("}\n");
}

static void read_all(const struct reader *reader, uint64_t count, int64_t skip)
{
    struct figures figures = {.room = count, .skip = skip};
    int64_t **arrays[] = {&figures.written_ms, &figures.from_append_us, &figures.from_send_us};
    for (size_t i = 0; i < ARRAY_COUNT(arrays); i++)
        if ((*arrays[i] = malloc(MAX(count, 1) * sizeof(int64_t))) == NULL)
            fail("memory", "there is none");
    while (figures.count < count)
        serve(reader, take, &figures);
    expect_no_more(reader);
    print_figures(&figures);
    for (size_t i = 0; i < ARRAY_COUNT(arrays); i++)
        free(*arrays[i]);
}

struct first {
    int64_t after;
    int64_t any_us, first_us; /* when the first record came; the first sent after `after`; 0: none yet */
};

static void look(rd_kafka_message_t *message, void *argument)
{
    struct first *first = argument;
    if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR)
        return;
    int64_t now = wall_us();
    first->any_us = first->any_us == 0 ? now : first->any_us;
    if (first->first_us == 0 && FIELD(message, "sent") > first->after)
        first->first_us = now;
}

/* after: NULL: read from the standard input. */
static void read_first(const struct reader *reader, const char *after)
{
    struct first first = {.after = after != NULL ? strtoll(after, NULL, 10) : INT64_MAX};
    if (after == NULL) {
        char line[32];
        while (first.any_us == 0)
            serve(reader, look, &first);
        printf("reading\n");
        fflush(stdout);
        if (fgets(line, sizeof(line), stdin) == NULL)
            fail("standard input", "has no time");
        first = (struct first){.after = strtoll(line, NULL, 10)};
    }
    while (first.first_us == 0)
        serve(reader, look, &first);
    printf("{\"any_us\": %lld, \"first_us\": %lld}\n", (long long)first.any_us, (long long)first.first_us);
}

int main(int count, char **arguments)
{
    bool is_all = (count == 5 || count == 6) && strcmp(arguments[3], "all") == 0;
    struct reader reader;
    if (!is_all && (count != 5 || strcmp(arguments[3], "first") != 0))
        fail("usage", "kafka_read BROKERS TOPIC all COUNT [SKIP] | first AFTER|-");
    start(&reader, arguments[1], arguments[2], is_all ? RD_KAFKA_OFFSET_BEGINNING : RD_KAFKA_OFFSET_END);
    if (is_all)
        read_all(&reader, strtoull(arguments[4], NULL, 10),
                 count == 6 ? strtoll(arguments[5], NULL, 10) : -1);
    else
        read_first(&reader, strcmp(arguments[4], "-") == 0 ? NULL : arguments[4]);
    stop(&reader);
    return 0;
}

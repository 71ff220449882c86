/*
 * The throughput of a plain consumer of librdkafka: it reads a topic from its beginning to the end at the
 * start, looks at each record's length and first byte, and releases the record. Prints one JSON line.
 *
 *     limit_kafka BROKERS TOPIC
 *
 * Settings are the library's defaults, except read_committed, and checksums as leat has them.
 */
#include "core/base.h"

#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BATCH = 1024, WAIT_MS = 10000, TURN_MS = 20 }; /* a turn ends when its batch is full */

static double now(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void fail(const char *what)
{
    fprintf(stderr, "limit_kafka: %s\n", what);
    exit(1);
}

static rd_kafka_t *consumer_new(const char *brokers)
{
    static const char *const settings[][2] = {{"isolation.level", "read_committed"},
                                              {"enable.partition.eof", "true"},
                                              {"check.crcs", "true"},
                                              {"enable.auto.offset.store", "false"},
                                              {"enable.auto.commit", "false"}};
    char reason[256];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    if (rd_kafka_conf_set(conf, "bootstrap.servers", brokers, reason, sizeof(reason)) != RD_KAFKA_CONF_OK)
        fail(reason);
    for (size_t i = 0; i < ARRAY_COUNT(settings); i++)
        if (rd_kafka_conf_set(conf, settings[i][0], settings[i][1], reason, sizeof(reason)) !=
            RD_KAFKA_CONF_OK)
            fail(reason);
    rd_kafka_t *client = rd_kafka_new(RD_KAFKA_CONSUMER, conf, reason, sizeof(reason));
    if (client == NULL)
        fail(reason);
    return client;
}

int main(int count, char **arguments)
{
    if (count != 3)
        fail("limit_kafka BROKERS TOPIC");
    rd_kafka_t *client = consumer_new(arguments[1]);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, arguments[2], NULL);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    const struct rd_kafka_metadata *metadata;
    if (rd_kafka_metadata(client, 0, topic, &metadata, WAIT_MS) != RD_KAFKA_RESP_ERR_NO_ERROR)
        fail("no such cluster");
    int partitions = metadata->topics[0].partition_cnt, at_end = 0;
    if (partitions == 0)
        fail("no such topic");
    for (int i = 0; i < partitions; i++)
        if (rd_kafka_consume_start_queue(topic, i, RD_KAFKA_OFFSET_BEGINNING, queue) != 0)
            fail("the topic cannot be read");
    static rd_kafka_message_t *messages[BATCH];
    uint64_t records = 0, bytes = 0, sum = 0;
    double begin = now(CLOCK_MONOTONIC);
    for (int silent = 0; at_end < partitions;) {
        ssize_t got = rd_kafka_consume_batch_queue(queue, TURN_MS, messages, BATCH);
        silent = got > 0 ? 0 : silent + 1;
        if (got < 0 || silent == WAIT_MS / TURN_MS)
            fail("nothing comes");
        for (ssize_t i = 0; i < got; i++) {
            rd_kafka_message_t *message = messages[i];
            at_end += message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF;
            if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
                records++;
                bytes += message->len;
                sum += message->len > 0 ? *(unsigned char *)message->payload : 0;
            }
            rd_kafka_message_destroy(message);
        }
    }
    double wall = now(CLOCK_MONOTONIC) - begin;
    for (int i = 0; i < partitions; i++)
        rd_kafka_consume_stop(topic, i);
    rd_kafka_metadata_destroy(metadata);
    rd_kafka_queue_destroy(queue);
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(client);
    double cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    printf("{\"records\": %llu, \"bytes\": %llu, \"sum\": %llu, \"wall_s\": %.3f, \"cpu_s\": %.3f, "
           "\"per_cpu_s\": "
           "%.0f}\n",
           (unsigned long long)records, (unsigned long long)bytes, (unsigned long long)sum, wall, cpu,
           (double)records / cpu);
    return 0;
}

/*
 * Records for the benchmarks of Kafka.
 *
 *     kafka_load BROKERS TOPIC lines FILE COUNT
 *         each line of FILE is a record without a key, sent to the partitions in turn; the file is repeated
 *     kafka_load BROKERS TOPIC events COUNT KEYS RATE FIRST
 *         generated events, numbered from FIRST, of KEYS random users (0: a new user for each event); RATE a
 *         second, sent each millisecond (0: as fast as possible); key and partition by the user
 *
 * An event is {"id":17,"ts":1700000000000,"user":42,"value":7,"sent":...}. `sent` is the wall-clock time, in
 * microseconds, when the event was given to the producer; all other fields follow from its number. Prints one
 * JSON line.
 */
#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TICK_NS = 1000000, EVENTS_A_MS = 100 };
#define FIRST_TIME_MS INT64_C(1700000000000)

static uint64_t refused;

static void delivered(rd_kafka_t *client LEAT_UNUSED, const rd_kafka_message_t *message,
                      void *opaque LEAT_UNUSED)
{
    refused += message->err != RD_KAFKA_RESP_ERR_NO_ERROR;
}

struct load {
    rd_kafka_t *client;
    rd_kafka_topic_t *topic;
    uint32_t partitions;
    uint64_t ids;      /* sum of mix(id) over the sent events, as kafka_read computes it */
    int64_t behind_us; /* the longest time between two ticks */
};

static void produce(struct load *load, uint32_t partition, const char *key, size_t key_bytes,
                    const char *value, size_t bytes)
{
    while (rd_kafka_produce(load->topic, (int32_t)partition, RD_KAFKA_MSG_F_COPY, (void *)(uintptr_t)value,
                            bytes, key, key_bytes, NULL) != 0) {
        if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL)
            fail("a record", rd_kafka_err2str(rd_kafka_last_error()));
        rd_kafka_poll(load->client, 10);
    }
}

static uint64_t load_lines(struct load *load, const char *path, uint64_t count)
{
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    uint64_t sent = 0;
    if (file == NULL)
        fail(path, "cannot be read");
    for (; sent < count; sent++) {
        ssize_t length = getline(&line, &room, file);
        if (length <= 0 && sent == 0)
            fail(path, "is empty");
        if (length <= 0) {
            rewind(file);
            length = getline(&line, &room, file);
        }
        size_t bytes = (size_t)length - (line[length - 1] == '\n');
        produce(load, (uint32_t)(sent % load->partitions), NULL, 0, line, bytes);
        if (sent % 1024 == 0)
            rd_kafka_poll(load->client, 0);
    }
    free(line);
    fclose(file);
    return sent;
}

static void send_event(struct load *load, uint64_t id, uint64_t keys)
{
    char key[24], value[160];
    uint64_t user = keys == 0 ? id : mix(id) % keys;
    int key_bytes = snprintf(key, sizeof(key), "%llu", (unsigned long long)user);
    int bytes =
        snprintf(value, sizeof(value), "{\"id\":%llu,\"ts\":%lld,\"user\":%s,\"value\":%llu,\"sent\":%lld}",
                 (unsigned long long)id, (long long)(FIRST_TIME_MS + (int64_t)(id / EVENTS_A_MS)), key,
                 (unsigned long long)(mix(~id) % 100), (long long)wall_us());
    produce(load, (uint32_t)(user % load->partitions), key, (size_t)key_bytes, value, (size_t)bytes);
}

static uint64_t load_events(struct load *load, uint64_t count, uint64_t keys, double rate, uint64_t first)
{
    int64_t begin = wall_us(), last = begin;
    uint64_t sent = 0;
    while (sent < count) {
        int64_t now = wall_us();
        load->behind_us = MAX(load->behind_us, now - last);
        last = now;
        uint64_t due = rate > 0 ? (uint64_t)((double)(now - begin) * rate / 1e6) : sent + 1024;
        for (; sent < MIN(due, count); sent++) {
            send_event(load, first + sent, keys);
            load->ids += mix(first + sent);
        }
        rd_kafka_poll(load->client, 0);
        struct timespec tick = {0, TICK_NS};
        if (rate > 0)
            nanosleep(&tick, NULL);
    }
    return sent;
}

int main(int count, char **arguments)
{
    bool is_lines = count == 6 && strcmp(arguments[3], "lines") == 0;
    if (!is_lines && (count != 8 || strcmp(arguments[3], "events") != 0))
        fail("usage", "kafka_load BROKERS TOPIC lines FILE COUNT | events COUNT KEYS RATE FIRST");
    double rate = is_lines ? 0 : strtod(arguments[6], NULL);
    const char *settings[] = {"linger.ms", rate > 0 ? "0.5" : "20",        "acks",   "1", "batch.size",
                              "500000",    "queue.buffering.max.messages", "500000", NULL};
    struct load load = {.client = client_new(RD_KAFKA_PRODUCER, arguments[1], settings, delivered)};
    load.topic = rd_kafka_topic_new(load.client, arguments[2], NULL);
    load.partitions = (uint32_t)client_partitions(load.client, load.topic);
    int64_t begin = wall_us();
    uint64_t sent =
        is_lines ? load_lines(&load, arguments[4], strtoull(arguments[5], NULL, 10))
                 : load_events(&load, strtoull(arguments[4], NULL, 10), strtoull(arguments[5], NULL, 10),
                               rate, strtoull(arguments[7], NULL, 10));
    double wall = (double)(wall_us() - begin) / 1e6;
    if (rd_kafka_flush(load.client, 6 * CLIENT_WAIT_MS) != RD_KAFKA_RESP_ERR_NO_ERROR || refused > 0)
        fail(arguments[2], "records were not delivered");
    rd_kafka_topic_destroy(load.topic);
    rd_kafka_destroy(load.client);
    printf("{\"sent\": %llu, \"ids\": %llu, \"wall_s\": %.3f, \"behind_ms\": %.1f}\n",
           (unsigned long long)sent, (unsigned long long)load.ids, wall, (double)load.behind_us / 1e3);
    return 0;
}

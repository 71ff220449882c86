#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void fail(const char *what, const char *why)
{
    fprintf(stderr, "kafka bench: %s: %s\n", what, why);
    exit(1);
}

rd_kafka_t *client_new(rd_kafka_type_t type, const char *brokers, const char *const *settings,
                       void (*delivered)(rd_kafka_t *, const rd_kafka_message_t *, void *))
{
    char reason[256];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    if (rd_kafka_conf_set(conf, "bootstrap.servers", brokers, reason, sizeof(reason)) != RD_KAFKA_CONF_OK)
        fail("bootstrap.servers", reason);
    for (; settings[0] != NULL; settings += 2)
        if (rd_kafka_conf_set(conf, settings[0], settings[1], reason, sizeof(reason)) != RD_KAFKA_CONF_OK)
            fail(settings[0], reason);
    if (delivered != NULL)
        rd_kafka_conf_set_dr_msg_cb(conf, delivered);
    rd_kafka_t *client = rd_kafka_new(type, conf, reason, sizeof(reason));
    if (client == NULL)
        fail("client", reason);
    return client;
}

int client_partitions(rd_kafka_t *client, rd_kafka_topic_t *topic)
{
    const struct rd_kafka_metadata *metadata;
    rd_kafka_resp_err_t error = rd_kafka_metadata(client, 0, topic, &metadata, CLIENT_WAIT_MS);
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR)
        fail("metadata", rd_kafka_err2str(error));
    int partitions = metadata->topic_cnt == 1 ? metadata->topics[0].partition_cnt : 0;
    rd_kafka_metadata_destroy(metadata);
    if (partitions == 0)
        fail(rd_kafka_topic_name(topic), "no such topic");
    return partitions;
}

int64_t wall_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (int64_t)time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

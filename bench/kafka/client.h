/* The common part of the benchmarks' own producer and consumer. */
#ifndef LEAT_BENCH_KAFKA_CLIENT_H
#define LEAT_BENCH_KAFKA_CLIENT_H

#include "core/base.h"

#include <librdkafka/rdkafka.h>

enum { CLIENT_WAIT_MS = 10000 };

/* Prints `what` and `why`, and ends the process. */
_Noreturn void fail(const char *what, const char *why);

/* settings: name, value, name, value ... NULL. */
rd_kafka_t *client_new(rd_kafka_type_t type, const char *brokers, const char *const *settings,
                       void (*delivered)(rd_kafka_t *, const rd_kafka_message_t *, void *));
/* The number of partitions of a topic, which must exist. */
int client_partitions(rd_kafka_t *client, rd_kafka_topic_t *topic);

/* Microseconds of CLOCK_REALTIME, the clock by which a broker on the same machine stamps records. */
int64_t wall_us(void);

/* The finalizer of splitmix64: makes users from numbers; sums of it identify sets of numbers. */
static inline uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

#endif

/* A source's own thread: serves librdkafka's callbacks, looks regularly for new partitions and topics,
 * notices deleted topics, and wakes the engine after the rate limit has held a read back. Private to
 * connectors/kafka. */
#ifndef LEAT_CONNECTORS_KAFKA_WATCH_H
#define LEAT_CONNECTORS_KAFKA_WATCH_H

#include "connectors/kafka/figures.h"
#include "connectors/kafka/partition.h"
#include "connectors/kafka/start.h"

enum { KAFKA_PARTITIONS_MAX = 4096 };

struct kafka_topic {
    rd_kafka_topic_t *handle;
    int32_t partitions; /* count of known partitions, whose numbers are 0, 1 ... */
    uint32_t missing;   /* consecutive checks in which the topic was missing */
};

struct kafka_watch {
    /* Set by the owner. */
    struct kafka_shared *shared;
    const struct kafka_topics *topics;
    int64_t refresh_us;

    struct kafka_topic *known;
    uint32_t known_count, known_room;
    struct kafka_partition **partitions; /* KAFKA_PARTITIONS_MAX entries, which never move */
    _Atomic uint32_t partitions_count;   /* complete entries of `partitions` */
    atomic_bool are_too_many;
    struct kafka_round_trip round_trip;
    bool has_statistics; /* new statistics came; used by the thread only */

    pthread_t thread;
    atomic_bool is_stopping;
    bool is_running;
};

/* Adds a partition; the first ones are added before the thread runs. */
void kafka_watch_add(struct kafka_watch *watch, const struct kafka_place *place,
                     const struct kafka_range *range);
void kafka_watch_start(struct kafka_watch *watch);
/* Ends the thread; frees partitions and handles. Accepts a zeroed watch. */
void kafka_watch_close(struct kafka_watch *watch);

/* For kafka_hooks.statistics; argument: the struct kafka_watch. */
void kafka_watch_statistics(void *argument, const char *json, size_t bytes);

#endif

/* A source's own thread: serves librdkafka's callbacks, looks for new partitions and topics now and then,
 * sees when a topic is gone, and wakes the engine where a rate held it back. Private to connectors/kafka. */
#ifndef LEAT_CONNECTORS_KAFKA_WATCH_H
#define LEAT_CONNECTORS_KAFKA_WATCH_H

#include "connectors/kafka/figures.h"
#include "connectors/kafka/partition.h"
#include "connectors/kafka/start.h"

enum { KAFKA_PARTITIONS_MAX = 4096 };

struct kafka_topic {
    rd_kafka_topic_t *handle;
    int32_t partitions; /* known: 0 to this - 1 */
    uint32_t missing;   /* times in a row that it was not there */
};

struct kafka_watch {
    /* Given by the owner. */
    struct kafka_shared *shared;
    const struct kafka_topics *topics;
    int64_t refresh_us;

    struct kafka_topic *known;
    uint32_t known_count, known_room;
    struct kafka_partition **partitions; /* KAFKA_PARTITIONS_MAX: entries never move */
    _Atomic uint32_t partitions_count;   /* entries that are complete */
    atomic_bool are_too_many;
    struct kafka_round_trip round_trip;
    bool has_statistics; /* new ones: of the thread */

    pthread_t thread;
    atomic_bool is_stopping;
    bool is_running;
};

/* Adds a partition; the first ones before the thread runs. */
void kafka_watch_add(struct kafka_watch *watch, const struct kafka_place *place,
                     const struct kafka_range *range);
void kafka_watch_start(struct kafka_watch *watch);
/* Ends the thread; frees partitions and handles. Tolerates a zeroed one. */
void kafka_watch_close(struct kafka_watch *watch);

/* For kafka_hooks; argument: the struct kafka_watch. */
void kafka_watch_statistics(void *argument, const char *json, size_t bytes);

#endif

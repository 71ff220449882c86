/* What sources and sinks of Kafka say of themselves beside their own counts: how long brokers take to answer,
 * and how far partitions are behind in time. Private to connectors/kafka. */
#ifndef LEAT_CONNECTORS_KAFKA_FIGURES_H
#define LEAT_CONNECTORS_KAFKA_FIGURES_H

#include "core/operator.h"

#include <jansson.h>
#include <librdkafka/rdkafka.h>
#include <stdatomic.h>

/* From librdkafka's statistics (STATISTICS.md: brokers, rtt), of the last second in which brokers answered:
 * the mean over all of them, and the slowest one's 99th percentile. A fetch counts too, and a broker that has
 * nothing new holds it back for up to fetch.wait.max.ms (0.5 s): a source that is not behind shows that time.
 */
struct kafka_round_trip {
    _Atomic int64_t average_us, p99_us; /* 0: unknown */
};

/* Each second, where statistics.interval.ms is 1000. */
#define KAFKA_STATISTICS                                                                                     \
    {                                                                                                        \
        "statistics.interval.ms", "1000"                                                                     \
    }

/* As the hook `statistics` gives it; argument: the struct kafka_round_trip. */
void kafka_round_trip_statistics(void *argument, const char *json, size_t bytes);
/* The same from the parsed text. */
void kafka_round_trip_take(struct kafka_round_trip *trip, const json_t *statistics);
/* round_trip_ms and round_trip_p99_ms; NaN: unknown. */
void kafka_round_trip_report(struct kafka_round_trip *trip, struct report *report);

/* The newest time of a partition's records, for one that is behind. */
struct kafka_newest {
    const char *topic;
    int32_t partition;
    int64_t known_ms;  /* in: there is a record of that time or later. out: the newest, within 50 ms */
    bool is_known;     /* out: brokers have answered */
    int64_t behind_ms; /* no record is known there; kafka_newest_find's own */
};

/* Brokers tell the first record at or after a time, and not the time of the last one: so that is searched, by
 * halves, with one request a step for all partitions together. Where nothing came since the last search, and
 * known_ms is its result, that is one request. */
void kafka_newest_find(rd_kafka_t *client, struct kafka_newest *partitions, uint32_t count, int64_t now_ms);

#endif

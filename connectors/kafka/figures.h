/* Figures for the live view that sources and sinks share: how long brokers take to answer, and how far
 * partitions are behind in time. Private to connectors/kafka. */
#ifndef LEAT_CONNECTORS_KAFKA_FIGURES_H
#define LEAT_CONNECTORS_KAFKA_FIGURES_H

#include "core/operator.h"

#include <jansson.h>
#include <librdkafka/rdkafka.h>
#include <stdatomic.h>

/* Round-trip times from librdkafka's statistics (STATISTICS.md: brokers, rtt) of the last second with
 * answers: the mean over all brokers, and the slowest broker's 99th percentile. Fetches count too, and a
 * broker without new records holds a fetch back for up to fetch.wait.max.ms (0.1 s by default): a source that
 * is not behind shows that time. */
struct kafka_round_trip {
    _Atomic int64_t average_us, p99_us; /* 0: unknown */
};

/* The property that makes librdkafka emit statistics each second. */
#define KAFKA_STATISTICS                                                                                     \
    {                                                                                                        \
        "statistics.interval.ms", "1000"                                                                     \
    }

/* For kafka_hooks.statistics; argument: the struct kafka_round_trip. */
void kafka_round_trip_statistics(void *argument, const char *json, size_t bytes);
/* The same from parsed JSON. */
void kafka_round_trip_take(struct kafka_round_trip *trip, const json_t *statistics);
/* How many partitions of the topic librdkafka knows, by its statistics; 0: none yet. */
int32_t kafka_statistics_partitions(const json_t *statistics, const char *topic);
/* Reports round_trip_ms and round_trip_p99_ms; NaN: unknown. */
void kafka_round_trip_report(struct kafka_round_trip *trip, struct report *report);

/* Search for the time of a partition's newest record, for partitions that are behind. */
struct kafka_newest {
    const char *topic;
    int32_t partition;
    int64_t known_ms;  /* in: a record of this time or later exists. out: the newest record's time, at most 50
                          ms too early */
    bool is_known;     /* out: brokers have answered */
    int64_t behind_ms; /* no record has this time or a later one; used by kafka_newest_find */
};

/* Finds the newest times. Brokers cannot tell the time of the last record, only the first record at or after
 * a time: so the search bisects, with one request per step for all partitions together. If no record came
 * since the last search, and known_ms is its result, one request is enough. */
void kafka_newest_find(rd_kafka_t *client, struct kafka_newest *partitions, uint32_t count, int64_t now_ms);

#endif

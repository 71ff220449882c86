#include "connectors/kafka/figures.h"

#include <math.h>

enum { NEAR_MS = 50, STEPS_MAX = 40, ASK_MS = 1000 };

/* --- Round trips --- */

static int64_t number_of(const json_t *object, const char *name)
{
    return (int64_t)json_integer_value(json_object_get(object, name));
}

void kafka_round_trip_take(struct kafka_round_trip *trip, const json_t *statistics)
{
    const char *name;
    json_t *broker;
    int64_t sum = 0, answers = 0, slowest = 0;
    json_object_foreach(json_object_get(statistics, "brokers"), name, broker)
    {
        const json_t *rtt = json_object_get(broker, "rtt");
        int64_t count = number_of(rtt, "cnt");
        sum += number_of(rtt, "avg") * count;
        answers += count;
        slowest = count > 0 ? MAX(slowest, number_of(rtt, "p99")) : slowest;
    }
    if (answers == 0)
        return;
    atomic_store(&trip->average_us, sum / answers);
    atomic_store(&trip->p99_us, slowest);
}

void kafka_round_trip_statistics(void *argument, const char *json, size_t bytes)
{
    json_t *root = json_loadb(json, bytes, 0, NULL);
    kafka_round_trip_take(argument, root);
    json_decref(root);
}

int32_t kafka_statistics_partitions(const json_t *statistics, const char *topic)
{
    const json_t *known =
        json_object_get(json_object_get(json_object_get(statistics, "topics"), topic), "partitions");
    size_t count = json_object_size(known);
    count -= json_object_get(known, "-1") != NULL; /* of records that have no partition yet */
    return (int32_t)MIN(count, (size_t)INT32_MAX);
}

static double milliseconds(int64_t us)
{
    return us == 0 ? (double)NAN : (double)us / 1e3;
}

void kafka_round_trip_report(struct kafka_round_trip *trip, struct report *report)
{
    report_add(report, "round_trip_ms", milliseconds(atomic_load(&trip->average_us)), false);
    report_add(report, "round_trip_p99_ms", milliseconds(atomic_load(&trip->p99_us)), false);
}

/* --- The newest record --- */

/* The time to ask about next: is there a record at this time or later? */
static int64_t next_time(const struct kafka_newest *p, bool is_first)
{
    return is_first ? p->known_ms + 1 : p->known_ms + (p->behind_ms - p->known_ms) / 2;
}

static bool is_searched(const struct kafka_newest *p, bool is_first)
{
    return is_first || (p->is_known && p->behind_ms - p->known_ms > NEAR_MS);
}

/* One step of the search for all partitions that still need it. Returns false if there are none, or brokers
 * do not answer. */
static bool search(rd_kafka_t *client, struct kafka_newest *partitions, uint32_t count, bool is_first)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)count);
    for (uint32_t i = 0; i < count; i++)
        if (is_searched(&partitions[i], is_first))
            rd_kafka_topic_partition_list_add(list, partitions[i].topic, partitions[i].partition)->offset =
                next_time(&partitions[i], is_first);
    bool is_good =
        list->cnt > 0 && rd_kafka_offsets_for_times(client, list, ASK_MS) == RD_KAFKA_RESP_ERR_NO_ERROR;
    for (uint32_t i = 0; is_good && i < count; i++) {
        struct kafka_newest *p = &partitions[i];
        if (!is_searched(p, is_first))
            continue;
        int64_t asked = next_time(p, is_first);
        const rd_kafka_topic_partition_t *found =
            rd_kafka_topic_partition_list_find(list, p->topic, p->partition);
        p->is_known = found != NULL && found->err == RD_KAFKA_RESP_ERR_NO_ERROR;
        if (!p->is_known)
            continue;
        if (found->offset >= 0)
            p->known_ms = asked;
        else
            p->behind_ms = asked;
    }
    rd_kafka_topic_partition_list_destroy(list);
    return is_good;
}

void kafka_newest_find(rd_kafka_t *client, struct kafka_newest *partitions, uint32_t count, int64_t now_ms)
{
    for (uint32_t i = 0; i < count; i++) {
        partitions[i].is_known = false;
        /* tolerance for clocks that differ */
        partitions[i].behind_ms = MAX(now_ms, partitions[i].known_ms) + 1000;
    }
    bool is_first = true;
    for (int step = 0; step < STEPS_MAX && search(client, partitions, count, is_first); step++)
        is_first = false;
}

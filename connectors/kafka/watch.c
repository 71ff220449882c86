#include "connectors/kafka/watch.h"

#include "core/mem.h"
#include "core/os.h"
#include "core/refused.h"

#include <stdlib.h>

enum {
    POLL_MS = 100,
    POLL_HELD_MS = 10, /* if the source has a rate limit */
    METADATA_MS = 2000,
    ENDS_MS =
        1000, /* once a second: below KAFKA_PAUSE_US, or brokers that do not answer would look like a pause */
    PATIENCE_US = 15000000,
    MISSING_TIMES = 3, /* a broker that has just started may not know all topics yet */
    MISSING_US = 1000000,
    ASK_ALL_ABOVE = 8, /* topics: above this, one request for all is cheaper than one for each */
    NEWEST_MAX = 256,  /* most partitions whose lag in time is measured */
};

/* --- Known topics and partitions --- */

static struct kafka_topic *find_topic(struct kafka_watch *watch, const char *name)
{
    for (uint32_t i = 0; i < watch->known_count; i++)
        if (strcmp(rd_kafka_topic_name(watch->known[i].handle), name) == 0)
            return &watch->known[i];
    return NULL;
}

static struct kafka_topic *add_topic(struct kafka_watch *watch, const char *name)
{
    if (watch->known_count == watch->known_room) {
        watch->known_room = MAX(2 * watch->known_room, 8);
        watch->known = mem_realloc(watch->known, watch->known_room * sizeof(*watch->known));
    }
    struct kafka_topic *topic = &watch->known[watch->known_count++];
    *topic = (struct kafka_topic){.handle = rd_kafka_topic_new(watch->shared->client, name, NULL)};
    leat_assert(topic->handle != NULL);
    return topic;
}

void kafka_watch_add(struct kafka_watch *watch, const struct kafka_place *place,
                     const struct kafka_range *range)
{
    uint32_t count = atomic_load(&watch->partitions_count);
    if (count == KAFKA_PARTITIONS_MAX) {
        atomic_store(&watch->are_too_many, true);
        return;
    }
    struct kafka_topic *topic = find_topic(watch, place->topic);
    if (topic == NULL)
        topic = add_topic(watch, place->topic);
    struct kafka_partition *p = kafka_partition_new(watch->shared, topic->handle, place->id);
    p->low = range->low;
    p->high = p->log_end = range->high;
    kafka_partition_open(p, range->high, range->open_end);
    p->next = range->first;
    if (watch->shared->is_bounded)
        p->end = MAX(range->high, range->first);
    topic->partitions = MAX(topic->partitions, place->id + 1);
    watch->partitions[count] = p;
    atomic_store_explicit(&watch->partitions_count, count + 1, memory_order_release);
}

static void wake(const struct kafka_watch *watch)
{
    const struct source *source = watch->shared->source;
    if (source->wake != NULL)
        source->wake(source->engine);
}

/* --- Looking again --- */

/* Adds the new partitions of a topic, if brokers tell their first offsets; if one of them has no leader yet,
 * adds none: the next look tries again. */
static void add_partitions(struct kafka_watch *watch, const struct rd_kafka_metadata_topic *found,
                           int32_t known)
{
    static const struct kafka_start earliest = {.tag = KAFKA_EARLIEST};
    struct arena arena = {0};
    struct diag_list unheard;
    diag_list_init(&unheard, &arena);
    uint32_t count = (uint32_t)(found->partition_cnt - known);
    struct kafka_place *places = arena_array(&arena, struct kafka_place, count);
    struct kafka_range *ranges = arena_array(&arena, struct kafka_range, count);
    for (uint32_t i = 0; i < count; i++)
        places[i] = (struct kafka_place){found->topic, known + (int32_t)i};
    struct kafka_patience patience = kafka_patience_silent(PATIENCE_US);
    if (kafka_start_find(&earliest, watch->shared->client, watch->shared->errors, places, count, ranges,
                         &patience, &unheard)) {
        for (uint32_t i = 0; i < count; i++)
            kafka_watch_add(watch, &places[i], &ranges[i]);
        wake(watch);
    }
    arena_free(&arena);
}

static void lose(struct kafka_watch *watch, const struct kafka_topic *topic)
{
    uint32_t count = atomic_load(&watch->partitions_count);
    for (uint32_t i = 0; i < count; i++)
        if (watch->partitions[i]->handle == topic->handle)
            atomic_store(&watch->partitions[i]->is_lost, true);
    wake(watch);
}

static void look_at(struct kafka_watch *watch, const struct rd_kafka_metadata_topic *found)
{
    struct kafka_topic *topic = find_topic(watch, found->topic);
    bool is_there = found->err == RD_KAFKA_RESP_ERR_NO_ERROR && found->partition_cnt > 0;
    if (topic != NULL && found->err == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART) {
        topic->missing++;
        return;
    }
    if (topic != NULL && is_there)
        topic->missing = found->partition_cnt < topic->partitions ? topic->missing + 1 : 0;
    int32_t known = topic == NULL ? 0 : topic->partitions;
    if (is_there && found->partition_cnt > known && !watch->shared->is_bounded)
        add_partitions(watch, found, known);
}

static void look_at_all(struct kafka_watch *watch)
{
    const struct rd_kafka_metadata *metadata = NULL;
    if (rd_kafka_metadata(watch->shared->client, 1, NULL, &metadata, METADATA_MS) !=
        RD_KAFKA_RESP_ERR_NO_ERROR)
        return;
    uint32_t known = watch->known_count;
    for (uint32_t i = 0; i < known; i++) {
        const char *name = rd_kafka_topic_name(watch->known[i].handle);
        bool is_listed = false;
        for (int k = 0; k < metadata->topic_cnt && !is_listed; k++)
            is_listed = strcmp(metadata->topics[k].topic, name) == 0;
        watch->known[i].missing += !is_listed;
    }
    for (int i = 0; i < metadata->topic_cnt; i++)
        if (kafka_topics_match(watch->topics, metadata->topics[i].topic))
            look_at(watch, &metadata->topics[i]);
    rd_kafka_metadata_destroy(metadata);
}

/* Asks about topics one by one: if asked for "all that this client knows", librdkafka lets brokers create
 * deleted topics again. */
static void look_at_each(struct kafka_watch *watch)
{
    uint32_t known = watch->known_count;
    for (uint32_t i = 0; i < known && !atomic_load(&watch->is_stopping); i++) {
        const struct rd_kafka_metadata *metadata = NULL;
        if (rd_kafka_metadata(watch->shared->client, 0, watch->known[i].handle, &metadata, METADATA_MS) !=
            RD_KAFKA_RESP_ERR_NO_ERROR)
            return;
        if (metadata->topic_cnt == 1)
            look_at(watch, &metadata->topics[0]);
        rd_kafka_metadata_destroy(metadata);
    }
}

/* Checks all topics. Returns when to check again: soon if a topic seems to be gone. */
static int64_t look(struct kafka_watch *watch)
{
    if (kafka_topics_have_patterns(watch->topics) || watch->known_count > ASK_ALL_ABOVE)
        look_at_all(watch);
    else
        look_at_each(watch);
    bool is_missing = false;
    for (uint32_t i = 0; i < watch->known_count; i++) {
        is_missing |= watch->known[i].missing > 0;
        if (watch->known[i].missing >= MISSING_TIMES)
            lose(watch, &watch->known[i]);
    }
    return os_monotonic_us() + (is_missing ? MIN(MISSING_US, watch->refresh_us) : watch->refresh_us);
}

/* Asks brokers for the ends of the logs of partitions that are behind. The statistics have the end of the last fetch, and
 * nothing is fetched while the queue is full, which is when a job falls behind. False: no broker answered. */
static bool measure_ends(struct kafka_watch *watch)
{
    uint32_t all = atomic_load(&watch->partitions_count);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)all);
    for (uint32_t i = 0; i < all; i++)
        if (kafka_partition_lag(watch->partitions[i]) > 0)
            rd_kafka_topic_partition_list_add(list, watch->partitions[i]->topic, watch->partitions[i]->id)
                ->offset = RD_KAFKA_OFFSET_END;
    bool is_good = list->cnt == 0 || rd_kafka_offsets_for_times(watch->shared->client, list, ENDS_MS) ==
                                         RD_KAFKA_RESP_ERR_NO_ERROR;
    for (uint32_t i = 0, at = 0; i < all; i++) {
        struct kafka_partition *p = watch->partitions[i];
        const rd_kafka_topic_partition_t *found =
            is_good && at < (uint32_t)list->cnt ? &list->elems[at] : NULL;
        bool is_it = found != NULL && found->partition == p->id && strcmp(found->topic, p->topic) == 0;
        at += is_it;
        p->asked_end = is_it && found->err == RD_KAFKA_RESP_ERR_NO_ERROR ? found->offset : -1;
        if (p->asked_end > __atomic_load_n(&p->log_end, __ATOMIC_RELAXED))
            __atomic_store_n(&p->log_end, p->asked_end, __ATOMIC_RELAXED);
    }
    rd_kafka_topic_partition_list_destroy(list);
    return is_good;
}

/* Measures the ends of the logs, and the newest record times, of partitions that are behind; once a second, after
 * statistics. */
static void measure(struct kafka_watch *watch)
{
    if (!measure_ends(watch))
        return;
    struct kafka_newest found[NEWEST_MAX];
    struct kafka_partition *of[NEWEST_MAX];
    uint32_t all = atomic_load(&watch->partitions_count), count = 0;
    for (uint32_t i = 0; i < all && count < NEWEST_MAX; i++) {
        struct kafka_partition *p = watch->partitions[i];
        int64_t time = MAX(__atomic_load_n(&p->time_us, __ATOMIC_RELAXED), p->newest_us);
        if (kafka_partition_lag(p) == 0 || time == INT64_MIN)
            continue;
        of[count] = p;
        found[count++] = (struct kafka_newest){p->topic, p->id, time / 1000, false, 0};
    }
    kafka_newest_find(watch->shared->client, found, count, os_wall_us() / 1000);
    for (uint32_t i = 0; i < count; i++)
        if (found[i].is_known)
            __atomic_store_n(&of[i]->newest_us, found[i].known_ms * 1000, __ATOMIC_RELAXED);
}

static void *run(void *argument)
{
    struct kafka_watch *watch = argument;
    struct kafka_shared *shared = watch->shared;
    int64_t look_at_us = os_monotonic_us() + watch->refresh_us;
    while (!atomic_load(&watch->is_stopping)) {
        if (os_monotonic_us() - atomic_load(&shared->alive_us) >= KAFKA_PAUSE_US)
            atomic_fetch_add(&shared->pauses, 1);
        atomic_store(&shared->alive_us, os_monotonic_us());
        rd_kafka_poll(shared->client, shared->rate > 0 ? POLL_HELD_MS : POLL_MS);
        if (atomic_exchange(&shared->is_held, false))
            wake(watch);
        if (watch->has_statistics)
            measure(watch);
        watch->has_statistics = false;
        if (os_monotonic_us() >= look_at_us)
            look_at_us = look(watch);
    }
    return NULL;
}

void kafka_watch_start(struct kafka_watch *watch)
{
    atomic_store(&watch->shared->alive_us, os_monotonic_us());
    refused_unless_begun(pthread_create(&watch->thread, NULL, run, watch));
    watch->is_running = true;
}

void kafka_watch_close(struct kafka_watch *watch)
{
    atomic_store(&watch->is_stopping, true);
    if (watch->is_running)
        pthread_join(watch->thread, NULL);
    watch->is_running = false;
    for (uint32_t i = 0; i < atomic_load(&watch->partitions_count); i++)
        kafka_partition_free(watch->partitions[i]);
    for (uint32_t i = 0; i < watch->known_count; i++)
        rd_kafka_topic_destroy(watch->known[i].handle);
    free(watch->known);
    watch->known = NULL;
    watch->known_count = 0;
    atomic_store(&watch->partitions_count, 0);
}

/* --- Statistics: their form is librdkafka's STATISTICS.md --- */

static int64_t number_of(const json_t *object, const char *name)
{
    return (int64_t)json_integer_value(json_object_get(object, name));
}

void kafka_watch_statistics(void *argument, const char *text, size_t bytes)
{
    struct kafka_watch *watch = argument;
    json_t *root = json_loadb(text, bytes, 0, NULL);
    watch->has_statistics = true;
    kafka_round_trip_take(&watch->round_trip, root);
    const json_t *topics = json_object_get(root, "topics");
    uint32_t count = atomic_load_explicit(&watch->partitions_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        struct kafka_partition *p = watch->partitions[i];
        const json_t *partitions = json_object_get(json_object_get(topics, p->topic), "partitions");
        char id[16];
        snprintf(id, sizeof(id), "%d", (int)p->id);
        const json_t *partition = json_object_get(partitions, id);
        if (partition == NULL)
            continue;
        int64_t end = number_of(partition, "ls_offset");
        if (!watch->shared->is_bounded)
            kafka_partition_open(p, end, number_of(partition, "hi_offset"));
        end = MAX(end, p->asked_end);
        __atomic_store_n(&p->log_end, end >= 0 ? end : -1, __ATOMIC_RELAXED);
        __atomic_store_n(&p->fetched_records, number_of(partition, "fetchq_cnt"), __ATOMIC_RELAXED);
        __atomic_store_n(&p->fetched_bytes, number_of(partition, "fetchq_size"), __ATOMIC_RELAXED);
    }
    json_decref(root);
}

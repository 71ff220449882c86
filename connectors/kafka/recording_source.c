/* Source `kafka` with --replay: reads recordings instead of brokers. Columns, partition names, offsets, and
 * the brokers' times as arrival times are the same as live; so live runs and replays can use each other's
 * checkpoints. */
#include "connectors/kafka/recording_feed.h"
#include "connectors/kafka/source.h"

#include <stdlib.h>

static bool refuse_topic(const struct kafka_source *kafka, struct source *source, struct str topic)
{
    struct diag *d =
        diag_error(source->diags, DIAG_NO_FILE, (struct span){0, 0},
                   "the recording `%.*s` has no topic `%.*s`", STR_ARGS(kafka->recording), STR_ARGS(topic));
    const char *all = "", *last = "";
    for (uint32_t i = 0; i < kafka->recorded.partitions_count; i++) {
        const char *name = kafka->recorded.partitions[i].topic;
        if (strcmp(name, last) != 0)
            all = arena_printf(source->arena, "%s%s%s", all, all[0] == '\0' ? "" : ", ", name);
        last = name;
    }
    diag_hint(source->diags, d, "its topics are: %s", all[0] == '\0' ? "none" : all);
    return false;
}

/* Keeps the partitions of this source's topics. False after a diagnostic: a named topic is missing. */
static bool choose_partitions(struct kafka_source *kafka, struct source *source)
{
    struct recording *recorded = &kafka->recorded;
    struct recording all = *recorded;
    for (uint32_t i = 0; i < kafka->topic.count; i++) {
        struct str topic = kafka->topic.items[i];
        bool is_there = topic.data[0] == '^';
        for (uint32_t k = 0; k < all.partitions_count && !is_there; k++)
            is_there = str_is(topic, all.partitions[k].topic);
        if (!is_there)
            return refuse_topic(kafka, source, topic);
    }
    recorded->partitions = arena_array(source->arena, struct recording_partition, all.partitions_count);
    recorded->partitions_count = 0;
    for (uint32_t i = 0; i < all.partitions_count; i++)
        if (kafka_topics_match(&kafka->topics, all.partitions[i].topic))
            recorded->partitions[recorded->partitions_count++] = all.partitions[i];
    return recorded->partitions_count > 0 || refuse_topic(kafka, source, kafka->topic.items[0]);
}

static bool recording_source_open(struct source *source)
{
    struct kafka_source *kafka = source->config;
    pthread_mutex_init(&kafka->shared.mutex, NULL);
    kafka->has_mutex = true;
    kafka_meta_open(&kafka->meta, source->has_dead_letters);
    kafka_topics_open(&kafka->topics, kafka->topic, source->arena);
    if (!payload_open(kafka->format_kind, &kafka->payload, kafka->meta.payload, source->wake, source->engine,
                      source->diags, &kafka->shared.payload) ||
        !recording_open(&kafka->recorded, &kafka->recording, 1, NULL, 0, source->arena, source->diags) ||
        !choose_partitions(kafka, source))
        return false;
    kafka->format_config.payload = kafka->shared.payload;
    kafka->feeds_count = kafka->recorded.partitions_count;
    kafka->feeds = arena_array(source->arena, struct recording_feed *, kafka->feeds_count);
    for (uint32_t i = 0; i < kafka->feeds_count; i++)
        kafka->feeds[i] = recording_feed_new(&kafka->recorded.partitions[i], &kafka->meta,
                                             kafka->shared.payload, source->diags, &kafka->shared.mutex);
    source->partitions_count = kafka->feeds_count;
    source->order_log = kafka->recorded.order_log;
    return true;
}

static void recording_source_close(struct source *source)
{
    struct kafka_source *kafka = source->config;
    for (uint32_t i = 0; i < kafka->feeds_count; i++)
        recording_feed_free(kafka->feeds[i]);
    kafka->feeds_count = 0;
    kafka_source_close_shared(kafka);
}

static struct recording_feed *feed_at(const struct source *source, uint32_t partition)
{
    return ((struct kafka_source *)source->config)->feeds[partition];
}

static const char *recording_source_name(struct source *source, uint32_t partition)
{
    return ((struct kafka_source *)source->config)->recorded.partitions[partition].name;
}

static const char *recording_source_topic(struct source *source, uint32_t partition, int32_t *number)
{
    const struct kafka_source *kafka = source->config;
    *number = kafka->recorded.partitions[partition].id;
    return kafka->recorded.partitions[partition].topic;
}

/* A recording gains no partitions; but having `discover` identifies partitions by name, as live. */
static bool recording_source_discover(struct source *source LEAT_UNUSED)
{
    return true;
}

static void recording_source_begin(struct source *source, uint32_t partition,
                                   struct source_position *position)
{
    *position = recording_feed_position(feed_at(source, partition));
}

static bool recording_source_seek(struct source *source, uint32_t partition,
                                  const struct source_position *position)
{
    return recording_feed_seek(feed_at(source, partition), position);
}

static enum read_status recording_source_read(struct source *source, uint32_t partition,
                                              struct raw_batch *raw)
{
    return recording_feed_read(feed_at(source, partition), raw);
}

static size_t recording_source_mark(struct source *source, uint32_t partition,
                                    const struct source_position *position, char out[SOURCE_MARK_BYTES])
{
    return recording_feed_mark(feed_at(source, partition), position, out);
}

static bool recording_source_mark_check(struct source *source, uint32_t partition,
                                        const struct source_position *position LEAT_UNUSED, struct str mark)
{
    return recording_feed_mark_check(feed_at(source, partition), mark);
}

static void recording_source_progress(struct source *source, struct source_progress *progress)
{
    const struct kafka_source *kafka = source->config;
    *progress = (struct source_progress){0};
    for (uint32_t i = 0; i < kafka->feeds_count; i++) {
        const struct recording_partition *p = &kafka->recorded.partitions[i];
        progress->records_total += (int64_t)p->records;
        progress->bytes_done += recording_feed_done_bytes(kafka->feeds[i]);
        for (uint32_t k = 0; k < p->spans_count; k++)
            progress->bytes_total += p->spans[k].bytes;
    }
}

const struct source_kind source_kafka_recording = {
    .name = "kafka",
    .summary = "recordings of Kafka topics",
    .options = kafka_source_options,
    .size = sizeof(struct kafka_source),
    .has_offsets = true,
    .bind = kafka_bind,
    .open = recording_source_open,
    .partition_name = recording_source_name,
    .partition_topic = recording_source_topic,
    .discover = recording_source_discover,
    .begin = recording_source_begin,
    .seek = recording_source_seek,
    .read = recording_source_read,
    .decode = kafka_decode,
    .decoder_new = kafka_decoder_new,
    .decoder_free = format_decoder_free,
    .progress = recording_source_progress,
    .mark = recording_source_mark,
    .mark_check = recording_source_mark_check,
    .close = recording_source_close,
};

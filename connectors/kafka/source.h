/* The source `kafka`: its options, and what reading topics and reading recordings of them share. */
#ifndef LEAT_CONNECTORS_KAFKA_SOURCE_H
#define LEAT_CONNECTORS_KAFKA_SOURCE_H

#include "connectors/kafka/meta.h"
#include "connectors/kafka/partition.h"
#include "connectors/kafka/start.h"
#include "connectors/kafka/watch.h"

enum kafka_until { UNTIL_NEVER, UNTIL_LATEST };

struct recording_feed;

struct kafka_source {
    struct kafka_client client;
    struct texts topic;
    int format, until;
    struct str delimiter, group;
    bool trims;
    struct kafka_meta meta;
    struct expression start;
    struct texts backfill;
    int64_t queue_bytes, rate, refresh_us, patience_us;

    struct payload_options payload;

    const struct format_kind *format_kind;
    struct format_config format_config;
    struct kafka_start first;

    struct kafka_shared shared;
    struct kafka_topics topics;
    struct kafka_watch watch;
    bool has_mutex;

    struct recording recorded; /* recordings of `backfill` or of --replay */

    /* Used by source_kafka_recording only: */
    struct str recording;          /* the path that --replay names */
    struct recording_feed **feeds; /* one per partition */
    uint32_t feeds_count;
};

extern const struct source_kind source_kafka;
extern const struct option kafka_source_options[];
/* The kind that replaces source_kafka with --replay: reads recordings of its topics (recording_source.c). */
extern const struct source_kind source_kafka_recording;

/* Callbacks of source_kind that both kinds share. */
bool kafka_bind(struct source_bind *bind);
void *kafka_decoder_new(struct source *source);
void kafka_decode(struct source *source, void *decoder, struct raw_batch *raw, struct decode_output *output);

/* Frees what both kinds hold: topics, schemas, the mutex. Call last. */
void kafka_source_close_shared(struct kafka_source *kafka);

/* config: of a bound source; for commands that use the same brokers. */
const struct kafka_client *kafka_source_client(const void *config);
struct texts kafka_source_topics(const void *config);

#endif

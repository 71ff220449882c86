/* Key, headers, partition, offset and time of a Kafka record as columns, beside those of its payload. Private
 * to connectors/kafka.
 *
 * The job declares these columns in the source's `schema:` like all others, and says in `meta:` which of them
 * come from where; so a recording of the topic, which has them as fields, can take the topic's place. */
#ifndef LEAT_CONNECTORS_KAFKA_META_H
#define LEAT_CONNECTORS_KAFKA_META_H

#include "formats/formats.h"

#include <librdkafka/rdkafka.h>

/* Columns of headers; headers of a record in a list of all. */
enum { KAFKA_HEADERS_MAX = 32, KAFKA_LIST_MAX = 1024 };

/* The option block; resolved by kafka_meta_bind. */
struct kafka_meta {
    struct column_ref key, topic, partition, offset, timestamp, all_headers;
    struct assignments headers;

    uint32_t headers_count;
    struct column_ref header_columns[KAFKA_HEADERS_MAX];
    const char *header_names[KAFKA_HEADERS_MAX];
    uint32_t list_name, list_value; /* all_headers: which fields of its records */
    const struct schema *payload;   /* the columns that the payload fills */
    uint32_t *payload_columns;      /* their indices in the source's schema */
    bool has_columns;               /* any but those of the payload */
    const char *required;           /* a payload's column that must not be null, or NULL */
    bool keeps_originals;           /* keys and headers of all records are in the frame */
};

extern const struct option kafka_meta_options[];

LEAT_CHECKED bool kafka_meta_bind(struct kafka_meta *meta, const struct schema *schema, struct span span,
                                  struct arena *arena, struct diag_list *diags);

/* When the source is opened: whether dead letters need keys and headers. */
void kafka_meta_open(struct kafka_meta *meta, bool has_dead_letters);

/* raw_batch.extra: what the records have beside their payload. */
enum kafka_record_flag { KAFKA_TOMBSTONE = 1, KAFKA_TOO_LONG = 2 };
struct kafka_frame {
    const char *topic;
    int32_t partition;
    int64_t *times; /* microseconds; 0 where the broker knows none */
    int64_t *offsets;
    uint8_t *flags;         /* NULL: none in the whole batch */
    struct text_ref *texts; /* of record i: key and headers from i * (1 + headers_count); NULL: not wanted */
    const char *heap;       /* of the texts */
    size_t heap_bytes;
    struct str *keys, *headers; /* meta->keeps_originals: of each record; headers as in record.h */
};

/* Keeps key and headers of a record; rows: of the batch. They are copied into the arena. */
void kafka_frame_keep(struct kafka_frame *frame, uint32_t row, uint32_t rows, struct str key,
                      struct str headers, struct arena *arena);

enum { KAFKA_TEXT_NULL = UINT32_MAX }; /* text_ref.length: there is none */

/* The columns of a raw batch of the source; format: from format_decoder_new over meta->payload. */
void kafka_meta_decode(const struct kafka_meta *meta, void *format, struct raw_batch *raw,
                       struct decode_output *output);

#endif

/* Columns for key, headers, partition, offset and time of a Kafka record, beside those of its payload.
 * Private to connectors/kafka.
 *
 * The job declares these columns in the source's `schema:` like all others, and says in `meta:` which of them
 * are filled from where. So a recording of the topic, which has them as fields, can replace the topic. */
#ifndef LEAT_CONNECTORS_KAFKA_META_H
#define LEAT_CONNECTORS_KAFKA_META_H

#include "formats/formats.h"

#include <librdkafka/rdkafka.h>

/* Limits: columns for headers; headers of one record in all_headers. */
enum { KAFKA_HEADERS_MAX = 32, KAFKA_LIST_MAX = 1024 };

/* The option block `meta`; resolved by kafka_meta_bind. */
struct kafka_meta {
    struct column_ref key, topic, partition, offset, timestamp, all_headers;
    struct assignments headers;

    uint32_t headers_count;
    struct column_ref header_columns[KAFKA_HEADERS_MAX];
    const char *header_names[KAFKA_HEADERS_MAX];
    uint32_t list_name, list_value; /* all_headers: indices of the name and value fields in its records */
    const struct schema *payload;   /* schema of the columns that the payload fills */
    uint32_t *payload_columns;      /* indices of these columns in the source's schema */
    bool has_columns;               /* there are columns that the payload does not fill */
    const char *required;           /* name of a payload column that must not be null; NULL: none */
    bool keeps_originals;           /* the frame keeps key and headers of all records */
};

extern const struct option kafka_meta_options[];

/* Resolves the block's columns in the source's schema, and makes the schema of the other columns, which the
 * payload fills, in the arena. span: of the source, for messages. Returns false after a diagnostic. */
LEAT_CHECKED bool kafka_meta_bind(struct kafka_meta *meta, const struct schema *schema, struct span span,
                                  struct arena *arena, struct diag_list *diags);

/* Call when the source is opened. has_dead_letters: dead letters need keys and headers. */
void kafka_meta_open(struct kafka_meta *meta, bool has_dead_letters);

/* raw_batch.extra: the parts of records beside their payloads. */
enum kafka_record_flag { KAFKA_TOMBSTONE = 1, KAFKA_TOO_LONG = 2 };
struct kafka_frame {
    const char *topic;
    int32_t partition;
    int64_t *times; /* microseconds; 0: the broker knows none */
    int64_t *offsets;
    uint8_t *flags;         /* kafka_record_flag of each record; NULL: all 0 */
    struct text_ref *texts; /* key and headers of record i, from index i * (1 + headers_count) on; NULL: no
                               column needs them */
    const char *heap;       /* bytes of the texts */
    size_t heap_bytes;
    struct str *keys, *headers; /* if meta->keeps_originals: of each record; headers as in record.h */
};

/* Keeps key and headers of record `row`, copied into the arena. rows: room for records of the batch. */
void kafka_frame_keep(struct kafka_frame *frame, uint32_t row, uint32_t rows, struct str key,
                      struct str headers, struct arena *arena);

enum { KAFKA_TEXT_NULL = UINT32_MAX }; /* text_ref.length of a missing text */

/* Decodes a raw batch of the source into columns. format: from format_decoder_new over meta->payload. */
void kafka_meta_decode(const struct kafka_meta *meta, void *format, struct raw_batch *raw,
                       struct decode_output *output);

#endif

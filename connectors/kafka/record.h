/* One record on its way to a topic. */
#ifndef LEAT_CONNECTORS_KAFKA_RECORD_H
#define LEAT_CONNECTORS_KAFKA_RECORD_H

#include "core/batch.h"
#include "core/buffer.h"

#include <librdkafka/rdkafka.h>
#define XXH_STATIC_LINKING_ONLY /* for XXH3_state_t as a value */
#include <xxhash.h>

/* key, value: data NULL means null. */
struct kafka_record {
    struct str key, value;
    struct str headers;       /* as appended by record_put_header */
    int32_t partition;        /* -1: chosen by the key */
    int64_t time_ms;          /* milliseconds since 1970; 0: the time of sending */
    struct row_origin origin; /* the row's, for messages; not part of the record */
};

/* Appends a header to `headers`. value.data NULL: a null value. */
void record_put_header(struct byte_buffer *headers, struct str name, struct str value);
/* Appends all headers of a consumed message. */
void record_put_headers_of(const rd_kafka_message_t *message, struct byte_buffer *headers);
/* Removes the first header from `headers`. Returns false if there is none, or the bytes are not valid. */
bool record_take_header(struct str *headers, struct str *name, struct str *value);

enum { RECORD_HEADERS_MAX = 32 }; /* most columns of a sink that can be headers */

/* Hands the record to a producer. flags: RD_KAFKA_MSG_F_COPY, or 0 if key and value stay in memory until the
 * delivery report. */
rd_kafka_resp_err_t record_produce(rd_kafka_t *producer, rd_kafka_topic_t *topic,
                                   const struct kafka_record *record, int flags, void *opaque);

/* Adds the record to a digest: key, value, headers and partition. */
void record_digest(XXH3_state_t *state, const struct kafka_record *record);
void record_digest_end(const XXH3_state_t *state, uint8_t digest[16]);

#endif

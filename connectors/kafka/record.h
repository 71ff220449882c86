/* One record on its way to a topic: what sinks make of rows. */
#ifndef LEAT_CONNECTORS_KAFKA_RECORD_H
#define LEAT_CONNECTORS_KAFKA_RECORD_H

#include "core/batch.h"
#include "core/buffer.h"

#include <librdkafka/rdkafka.h>
#define XXH_STATIC_LINKING_ONLY /* the state as a value */
#include <xxhash.h>

/* data NULL: null. */
struct kafka_record {
    struct str key, value;
    struct str headers;       /* as record_put_header makes them */
    int32_t partition;        /* -1: by the key */
    int64_t time_ms;          /* 0: when it is sent */
    struct row_origin origin; /* of the row, for messages; not part of the record */
};

/* Appends a header; a null value's data is NULL. */
void record_put_header(struct byte_buffer *headers, struct str name, struct str value);
/* Appends all headers of a message that was read. */
void record_put_headers_of(const rd_kafka_message_t *message, struct byte_buffer *headers);
/* Takes the first header off; false: there is none, or the bytes are none. */
bool record_take_header(struct str *headers, struct str *name, struct str *value);

enum { RECORD_HEADERS_MAX = 32 }; /* columns of a sink that can be headers */

/* Gives the record to a producer. flags: RD_KAFKA_MSG_F_COPY, or 0 where key and value stay until the
 * delivery report. */
rd_kafka_resp_err_t record_produce(rd_kafka_t *producer, rd_kafka_topic_t *topic,
                                   const struct kafka_record *record, int flags, void *opaque);

/* Everything but the origin goes into the digest. */
void record_digest(XXH3_state_t *state, const struct kafka_record *record);
void record_digest_end(const XXH3_state_t *state, uint8_t digest[16]);

#endif

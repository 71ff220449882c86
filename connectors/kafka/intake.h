/* Collects records from librdkafka's queue for a raw batch, copying each once. Private to connectors/kafka.
 *
 * librdkafka passes a record to a callback and frees it afterwards. That is the cheapest way to get records:
 * the queue is locked once for many, and librdkafka's memory is freed while it is in the cache. So the
 * callback copies the bytes straight to their place in memory that becomes the raw batch's. */
#ifndef LEAT_CONNECTORS_KAFKA_INTAKE_H
#define LEAT_CONNECTORS_KAFKA_INTAKE_H

#include "connectors/kafka/meta.h"

#include "core/connector.h"

struct kafka_intake {
    struct arena arena; /* holds everything but `heap` and `headers` */
    uint32_t count;
    size_t payload_bytes;
    struct raw_record *records;
    char *data;
    size_t room, used;
    size_t usual; /* estimated bytes of a batch */
    struct kafka_frame *frame;
    struct byte_buffer heap;    /* texts of `frame` */
    struct byte_buffer headers; /* scratch: headers of the record being added */
    /* The part of the same batch that was given before: before a resume, or by a recording that ended in the
     * middle of a batch (backfill.h). */
    struct batch_share carried;
};

/* Bytes that a record takes of a batch. A record that is too long is cut one byte above the limit. */
static inline size_t kafka_payload_bytes(const rd_kafka_message_t *message)
{
    return MIN(message->len, (size_t)SOURCE_RECORD_BYTES_MAX + 1);
}

/* The broker's time in milliseconds; 0: it knows none. */
static inline int64_t kafka_time_ms(const rd_kafka_message_t *message)
{
    rd_kafka_timestamp_type_t type;
    return MAX(rd_kafka_message_timestamp(message, &type), 0);
}

/* Whether one more record of that many bytes belongs to the same batch. */
static inline bool kafka_intake_fits(const struct kafka_intake *intake, size_t bytes)
{
    uint32_t count = intake->count + intake->carried.records;
    return count == 0 || (count < BATCH_ROWS &&
                          intake->payload_bytes + intake->carried.bytes + bytes <= SOURCE_BATCH_BYTES);
}

void kafka_intake_add(struct kafka_intake *intake, const struct kafka_meta *meta,
                      const rd_kafka_message_t *message);
/* Adds record number `row` of another intake. */
void kafka_intake_move(struct kafka_intake *intake, const struct kafka_meta *meta,
                       const struct kafka_intake *from, uint32_t row);
/* Moves the records into the raw batch (data, records, count, extra, offsets); the intake is empty then. */
void kafka_intake_give(struct kafka_intake *intake, struct raw_batch *raw);
void kafka_intake_clear(struct kafka_intake *intake);
void kafka_intake_free(struct kafka_intake *intake);

#endif

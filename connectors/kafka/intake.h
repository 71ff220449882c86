/* Records on their way from librdkafka's queue to a raw batch, each copied once. Private to connectors/kafka.
 *
 * librdkafka gives a record in a callback and takes it back behind that, which is the cheapest way to get
 * one: its queue is locked once for many, and what it allocated goes while it is in the cache. So the bytes
 * go straight to where the batch has them, in memory that becomes the raw batch's. */
#ifndef LEAT_CONNECTORS_KAFKA_INTAKE_H
#define LEAT_CONNECTORS_KAFKA_INTAKE_H

#include "connectors/kafka/meta.h"

#include "core/connector.h"

struct kafka_intake {
    struct arena arena; /* of all but the heap */
    uint32_t count;
    size_t payload_bytes;
    struct raw_record *records;
    char *data;
    size_t room, used;
    size_t usual; /* bytes of a batch, as it seems */
    struct kafka_frame *frame;
    struct byte_buffer heap;    /* the frame's */
    struct byte_buffer headers; /* of the record that is being added */
    /* Of the same batch, and given already: before a resume, or by a recording, which ended in the middle
     * (backfill.h). */
    struct batch_share carried;
};

/* Bytes that a record takes of a batch: one byte of those that are too long is enough to see it. */
static inline size_t kafka_payload_bytes(const rd_kafka_message_t *message)
{
    return MIN(message->len, (size_t)SOURCE_RECORD_BYTES_MAX + 1);
}

/* Milliseconds; 0 where the broker knows none. */
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
/* Adds a record of another. */
void kafka_intake_move(struct kafka_intake *intake, const struct kafka_meta *meta,
                       const struct kafka_intake *from, uint32_t row);
/* The records as a raw batch: data, records, count, extra. The intake is empty afterwards. */
void kafka_intake_give(struct kafka_intake *intake, struct raw_batch *raw);
void kafka_intake_clear(struct kafka_intake *intake);
void kafka_intake_free(struct kafka_intake *intake);

#endif

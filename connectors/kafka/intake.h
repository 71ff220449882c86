/* Makes raw batches of records, live ones and recorded ones: both are made here, so that a replay has the
 * same batches as the live run. Private to connectors/kafka. One thread at a time.
 *
 * Each record is copied once, straight to its place in memory that becomes the raw batch's. A live record is
 * copied within librdkafka's callback, and librdkafka frees it afterwards: the cheapest way to get records,
 * because the queue is locked once for many, and librdkafka's memory is freed while it is in the cache. */
#ifndef LEAT_CONNECTORS_KAFKA_INTAKE_H
#define LEAT_CONNECTORS_KAFKA_INTAKE_H

#include "connectors/kafka/marks.h"
#include "connectors/kafka/meta.h"

#include "core/connector.h"

struct kafka_intake {
    struct arena arena; /* holds everything but `heap` and `headers` */
    uint32_t count;
    size_t payload_bytes;
    struct raw_record *records;
    char *data;
    size_t room, used; /* bytes of `data`: allocated, and filled */
    size_t usual;      /* estimated bytes of a batch */
    struct kafka_frame *frame;
    struct byte_buffer heap;    /* texts of `frame` */
    struct byte_buffer headers; /* scratch: headers of the record being added */
    /* Records and bytes of the batch that an earlier raw batch has already delivered: before a resume, or
     * from a recording that ended in the middle of the batch (backfill.h). */
    struct batch_share carried;
};

/* The partition whose records a batch has, and the position where the batch begins. */
struct kafka_begin {
    const char *name, *topic; /* "topic/3" and "topic"; as long-lived as the source */
    int32_t partition;
    int64_t next;     /* offset */
    uint64_t records; /* of the partition before this batch */
};

/* The broker's time in milliseconds; 0: it knows none. */
static inline int64_t kafka_time_ms(const rd_kafka_message_t *message)
{
    rd_kafka_timestamp_type_t type;
    return MAX(rd_kafka_message_timestamp(message, &type), 0);
}

/* Bytes of a batch that a payload of `bytes` bytes takes. A payload that is too long is cut one byte above
 * the limit. */
static inline size_t kafka_payload_bytes(size_t bytes)
{
    return MIN(bytes, (size_t)SOURCE_RECORD_BYTES_MAX + 1);
}

/* Whether the batch, with the part carried over, has BATCH_ROWS records. */
static inline bool kafka_intake_is_full(const struct kafka_intake *intake)
{
    return intake->count + intake->carried.records >= BATCH_ROWS;
}

/* Whether the partition's next record, with a payload of `bytes` bytes, belongs to the same batch. If the
 * part carried over turns out to be a whole batch, forgets that part and begins a new batch. */
static inline bool kafka_intake_takes(struct kafka_intake *intake, size_t bytes)
{
    uint32_t count = intake->count + intake->carried.records;
    if (likely(count == 0 || (count < BATCH_ROWS &&
                              intake->payload_bytes + intake->carried.bytes + kafka_payload_bytes(bytes) <=
                                  SOURCE_BATCH_BYTES)))
        return true;
    if (intake->count > 0)
        return false;
    intake->carried = (struct batch_share){0};
    return true;
}

/* Add one record, live or recorded, copied. Call after kafka_intake_takes, or on an empty intake. */
void kafka_intake_add(struct kafka_intake *intake, const struct kafka_meta *meta,
                      const rd_kafka_message_t *message);
void kafka_intake_add_recorded(struct kafka_intake *intake, const struct kafka_meta *meta,
                               const struct recorded *recorded);
/* Adds record number `row` of another intake. */
void kafka_intake_move(struct kafka_intake *intake, const struct kafka_meta *meta,
                       const struct kafka_intake *from, uint32_t row);

/* Moves the records, at least one, into the raw batch; the intake is empty then. is_cut: the batch ends here;
 * false: the log or the recording ends here, and records that follow may belong to the same batch. Returns
 * the mark of the last record. */
struct kafka_mark kafka_intake_give(struct kafka_intake *intake, const struct kafka_begin *begin, bool is_cut,
                                    struct raw_batch *raw);
void kafka_intake_clear(struct kafka_intake *intake);
void kafka_intake_free(struct kafka_intake *intake);

#endif

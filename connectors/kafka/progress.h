/* The progress topic of a sink: the transaction that sends rows also writes there which rows are out.
 *
 * There are records of four kinds, told apart by their keys; several runs, sinks and jobs may share a topic:
 *
 *     life   which process sends now; written when a process begins to send, so a topic without
 *            a run's life record has lost the run's records
 *     part   the records [from, to) of the `total` records that the micro-batches [first, next)
 *            gave to the sink
 *
 *     order  a piece of a segment of the order log (progress_order.h); `first` is its first micro-batch, `from` the
 *            piece's number
 *
 * and tombstones of parts and segments that no checkpoint can fall back to. Keys: "leat", format version, kind, length of
 * the name, run id, first, from, the name: "JOB/SINK" of a sink. Values: the fields below, then xxh3-64 of
 * key and fields. Words are little-endian. The notes of a shard (exact.h) are in the partition with its
 * number.
 *
 * Parts are identified by micro-batch numbers, not epochs: a run that fell back counts its epochs anew, while
 * a micro-batch number has the same rows in every life of the run. */
#ifndef LEAT_CONNECTORS_KAFKA_PROGRESS_H
#define LEAT_CONNECTORS_KAFKA_PROGRESS_H

#include "connectors/kafka/partitioner.h"
#include "connectors/kafka/progress_order.h"
#include "core/buffer.h"

enum {
    PROGRESS_KEPT = 4096,         /* most parts of a run that are kept; older ones get tombstones */
    PROGRESS_PARTS_MAX = 1 << 18, /* more parts than this mean damage */
    PROGRESS_NAME_MAX = 1024,
    PROGRESS_HOLDER_BYTES = 96,
};

/* The record `part`; `first` to `total` are explained above. Format version 1 ends before `layout`. */
struct progress_part {
    uint64_t epoch, first, next; /* epoch: of the checkpoint that closed the outbox's epoch */
    uint64_t from, to, total;
    uint64_t bytes;     /* of the records [from, to), as counted for the outbox's budget */
    uint8_t digest[16]; /* of the records [from, to) */
    /* The layout of the partitions (partitioner.h) behind the part's last record. Parts before leat chose the
     * partitions have zeros; they are written without these fields. */
    struct layout layout;
};

struct progress_life {
    uint8_t id[16];
    char holder[PROGRESS_HOLDER_BYTES]; /* "host mill-3, process 4711": for people */
};

/* The contents of a progress topic for one run and name. */
struct progress {
    uint8_t run[16];
    struct str name;
    struct progress_part *parts; /* parts[begin .. begin + count - 1], sorted by first, then from */
    uint32_t begin, count, capacity;
    bool has_life;
    struct progress_life life;
    uint64_t others; /* parts of other runs with the same name */
    struct {         /* the last part of another run */
        uint8_t run[16];
        uint64_t epoch;
        int64_t time_ms; /* the record's time; set by the reader of the topic */
    } other;
    uint64_t foreign; /* records that leat did not write */
    struct progress_orders orders;
};

/* name: whose progress it is, "JOB/SINK", the same in each run. The caller owns its bytes and keeps them
 * until progress_free. */
void progress_init(struct progress *progress, const uint8_t run[16], struct str name);
/* Forgets what was read; keeps run and name. */
void progress_clear(struct progress *progress);
void progress_free(struct progress *progress);

enum progress_read { PROGRESS_READ, PROGRESS_IGNORED, PROGRESS_DAMAGED, PROGRESS_NEWER };
/* Adds one record of the topic; its bytes may be anything. value.data NULL: a tombstone. */
enum progress_read progress_apply(struct progress *progress, struct str key, struct str value);

/* The last part, or NULL if there is none. */
const struct progress_part *progress_last(const struct progress *progress);
static inline const struct progress_part *progress_at(const struct progress *progress, uint32_t index)
{
    return &progress->parts[progress->begin + index];
}

/* Append key and value of a record. */
void progress_put_life(const struct progress *progress, const struct progress_life *life,
                       struct byte_buffer *key, struct byte_buffer *value);
void progress_put_part(const struct progress *progress, const struct progress_part *part,
                       struct byte_buffer *key, struct byte_buffer *value);
/* A piece of a segment of the order log; segment: all its bytes. value NULL: the key alone, for its tombstone. */
void progress_put_order(const struct progress *progress, const struct progress_order *order, uint32_t piece,
                        struct str segment, struct byte_buffer *key, struct byte_buffer *value);
/* Appends the key of a part, for its tombstone. */
void progress_put_key(const struct progress *progress, const struct progress_part *part,
                      struct byte_buffer *key);

#endif

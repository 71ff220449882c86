/* What a sink writes into its progress topic, in the transaction that sends the rows: which of them are out.
 *
 * Records of three kinds, told apart by their keys; several runs, sinks and jobs may share a topic.
 *
 *     life   who sends now; written when a process begins to, so a topic without it is not the one of the run
 *     part   the records [from, to) of the `total` that the numbers [first, next) gave to the sink
 *
 * and tombstones of parts that no checkpoint goes back to. Keys: "leat", format version, kind, length of the
 * name, run id, first, from, the name: "JOB/SINK" of a sink. Values: the fields below, then xxh3-64 of key
 * and fields. Words are little-endian.
 *
 * Numbers, not epochs, say what is out: a run that fell back counts its epochs anew, while a number has the
 * same rows in every life of the run. */
#ifndef LEAT_CONNECTORS_KAFKA_PROGRESS_H
#define LEAT_CONNECTORS_KAFKA_PROGRESS_H

#include "core/buffer.h"

enum {
    PROGRESS_KEPT = 4096,         /* parts of a run that stay; older ones get tombstones */
    PROGRESS_PARTS_MAX = 1 << 18, /* more are damage */
    PROGRESS_NAME_MAX = 1024,
    PROGRESS_HOLDER_BYTES = 96,
};

struct progress_part {
    uint64_t epoch, first, next;
    uint64_t from, to, total;
    uint64_t bytes;
    uint8_t digest[16]; /* of the records [from, to) */
};

struct progress_life {
    uint8_t id[16];
    char holder[PROGRESS_HOLDER_BYTES]; /* "host mill-3, process 4711": for people */
};

/* What a topic says of one run and name. */
struct progress {
    uint8_t run[16];
    struct str name;
    struct progress_part *parts; /* parts[begin .. begin + count - 1], by first, then from */
    uint32_t begin, count, capacity;
    bool has_life;
    struct progress_life life;
    uint64_t others; /* parts of other runs of that name */
    struct {         /* the last of these */
        uint8_t run[16];
        uint64_t epoch;
        int64_t time_ms; /* the record's; set by who reads the topic */
    } other;
    uint64_t foreign; /* records that are none of leat's */
};

/* name: whose progress it is, the same in each run; stays the caller's. */
void progress_init(struct progress *progress, const uint8_t run[16], struct str name);
/* Forgets what was read. */
void progress_clear(struct progress *progress);
void progress_free(struct progress *progress);

enum progress_read { PROGRESS_READ, PROGRESS_IGNORED, PROGRESS_DAMAGED, PROGRESS_NEWER };
/* Takes one record of the topic in; any bytes may come in. value.data NULL: a tombstone. */
enum progress_read progress_apply(struct progress *progress, struct str key, struct str value);

/* The last part that is out, or NULL. */
const struct progress_part *progress_last(const struct progress *progress);
static inline const struct progress_part *progress_at(const struct progress *progress, uint32_t index)
{
    return &progress->parts[progress->begin + index];
}

/* Key and value of a record, appended. */
void progress_put_life(const struct progress *progress, const struct progress_life *life,
                       struct byte_buffer *key, struct byte_buffer *value);
void progress_put_part(const struct progress *progress, const struct progress_part *part,
                       struct byte_buffer *key, struct byte_buffer *value);
/* The key alone: of a tombstone. */
void progress_put_key(const struct progress *progress, const struct progress_part *part,
                      struct byte_buffer *key);

#endif

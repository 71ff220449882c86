/* One partition of a topic: from librdkafka's queue to raw batches. Private to connectors/kafka.
 *
 * Each partition has a queue of its own that `kafka_partition_read` takes records from, without waiting.
 * librdkafka's threads fetch ahead into it within a budget of bytes and records. We use its "simple consumer"
 * (rd_kafka_consume_start), not assign(): partitions are then independent of each other, one can be added
 * while others are read, there is nothing to rebalance, and no group whose rights are needed. */
#ifndef LEAT_CONNECTORS_KAFKA_PARTITION_H
#define LEAT_CONNECTORS_KAFKA_PARTITION_H

#include "connectors/kafka/client.h"
#include "connectors/kafka/intake.h"
#include "connectors/kafka/marks.h"

#include "formats/payload.h"

#include "core/connector.h"

#include <pthread.h>

enum { KAFKA_PAUSE_US = 1500000 };

/* What all partitions of a source share. */
struct kafka_shared {
    rd_kafka_t *client;
    struct kafka_errors *errors;
    const struct kafka_client *options;
    const struct kafka_meta *meta;
    struct payload *payload; /* schemas of payloads; NULL: they need none */
    struct source *source;
    int64_t queue_records, queue_bytes; /* what is fetched ahead of one partition */
    pthread_mutex_t mutex;              /* of the source's diagnostics and of `rate` */
    bool is_bounded;                    /* until: latest */

    int64_t rate;        /* records a second; 0: no limit */
    double allowance;    /* records that may be read now */
    int64_t rate_at_us;  /* when it was counted */
    atomic_bool is_held; /* the rate held a read back: the watching thread wakes the engine */
    /* When the watching thread last went round, and how often that was long ago: the process stood still, or
     * brokers did not answer. */
    _Atomic int64_t alive_us;
    _Atomic uint64_t pauses;
};

struct kafka_history;

struct kafka_partition {
    struct kafka_shared *shared;
    const char *topic; /* as long as the source */
    int32_t id;
    char *name;        /* "topic/3" */
    int64_t low, high; /* the log's ends when it was found */
    int64_t end;       /* until: latest; else INT64_MAX */

    struct kafka_history *history; /* what a recording has, until that is read (backfill.h); NULL: none */

    rd_kafka_topic_t *handle;
    rd_kafka_queue_t *queue;    /* NULL: not begun */
    struct kafka_intake intake; /* taken from the queue, and not yet in a batch */
    struct kafka_intake beyond; /* what came when that was full: a record, if any */
    uint32_t wanted;            /* records that the queue is asked for now */
    uint32_t nudges;            /* that its broker may still get, since the queue was full */
    int64_t next;     /* what is before it is in batches, or holds nothing; atomic for the live view */
    int64_t eof;      /* the log ended there, and nothing has come since; -1: unknown */
    int64_t time_us;  /* of the last record read; atomic; INT64_MIN: none */
    uint64_t records; /* in batches, over all lives; atomic likewise */
    bool is_failed, must_start_again;
    int64_t paused_us; /* alive_us, and pauses, when it was last read from its mark again */
    uint64_t pauses;
    struct {
        rd_kafka_resp_err_t code; /* what came instead of a record; NO_ERROR: nothing */
        int64_t offset;
        char text[256];
    } event;
    atomic_bool is_quiet; /* the last read found it at its end */
    atomic_bool has_gaps; /* offsets that no record has were seen: there are fewer records than offsets */
    atomic_bool is_lost;  /* the topic is gone: the watching thread has seen it */

    struct kafka_marks marks;
    struct kafka_mark check; /* of the checkpoint, until its record has been seen; offset -1: none */

    /* From librdkafka's statistics; atomic. */
    int64_t log_end, fetched_records, fetched_bytes; /* log_end -1: unknown */
    /* Records that no reader of committed ones may have yet, as a transaction of another producer is open
     * before them: offsets [open_first, open_end), since when (monotonic); open_end 0: none. */
    int64_t open_first, open_end, open_since_us;
    int64_t newest_us; /* of the watching thread: time of the log's last record; atomic; INT64_MIN: unknown */
};

/* How many offsets of the log were not read when the broker was last heard: so many records, or fewer where
 * it has gaps. Any thread. */
static inline int64_t kafka_partition_lag(struct kafka_partition *partition)
{
    int64_t end = __atomic_load_n(&partition->log_end, __ATOMIC_RELAXED);
    int64_t next = __atomic_load_n(&partition->next, __ATOMIC_RELAXED);
    bool is_behind = end > next && !atomic_load_explicit(&partition->is_quiet, memory_order_relaxed);
    return is_behind ? end - next : 0;
}

/* handle: the topic's, as long as the partition. */
struct kafka_partition *kafka_partition_new(struct kafka_shared *shared, rd_kafka_topic_t *handle,
                                            int32_t id);
/* NULL is allowed. After the last read. */
void kafka_partition_free(struct kafka_partition *partition);

/* Begins to fetch from the offset on. False after a diagnostic. */
LEAT_CHECKED bool kafka_partition_start(struct kafka_partition *partition, int64_t offset);

/* Where the committed part of the log ends, and the log: what is between waits behind an open transaction.
 * Any thread, one at a time. */
void kafka_partition_open(struct kafka_partition *partition, int64_t committed, int64_t end);

/* A batch is given: what was read, for the next position and the live view. */
void kafka_partition_pass(struct kafka_partition *partition, const struct raw_batch *raw);

/* The rate (rate.c): how many records it allows now, at most `wanted`; those of them that were not there. */
uint32_t kafka_rate_ask(struct kafka_shared *shared, uint32_t wanted);
void kafka_rate_give_back(struct kafka_shared *shared, uint32_t unused);
/* For batches whose size is known only when they are there: whether one may be read; that it was. */
bool kafka_rate_has(struct kafka_shared *shared);
void kafka_rate_take(struct kafka_shared *shared, uint32_t records);

/* As source_kind.read, seek, mark, mark_check. */
enum read_status kafka_partition_read(struct kafka_partition *partition, struct raw_batch *raw);
bool kafka_partition_seek(struct kafka_partition *partition, const struct source_position *position);
size_t kafka_partition_mark(struct kafka_partition *partition, const struct source_position *position,
                            char out[SOURCE_MARK_BYTES]);
bool kafka_partition_mark_check(struct kafka_partition *partition, struct str mark);

#endif

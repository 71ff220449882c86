/* One partition of a topic: from librdkafka's queue to raw batches. Private to connectors/kafka.
 *
 * Each partition has its own queue; `kafka_partition_read` takes records from it without waiting.
 * librdkafka's threads fetch ahead into the queue within a budget of bytes and records. librdkafka's "simple
 * consumer" (rd_kafka_consume_start) is used instead of assign(): so partitions are independent of each
 * other, one can be added while others are read, nothing is rebalanced, and no rights on a group are
 * needed. */
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
    struct payload *payload; /* schemas of payloads; NULL: the format needs none */
    struct source *source;
    int64_t queue_records, queue_bytes; /* limits of what is fetched ahead of one partition */
    pthread_mutex_t mutex;              /* guards the source's diagnostics and the rate */
    bool is_bounded;                    /* until: latest */

    int64_t rate;        /* records a second; 0: no limit */
    double allowance;    /* records that may be read now; negative: too many were read */
    int64_t rate_at_us;  /* when `allowance` was last computed */
    atomic_bool is_held; /* the rate held a read back: the watching thread must wake the engine */
    /* When the watching thread last ran its loop (monotonic), and how often its loop came late: the process
     * stood still, or brokers did not answer. */
    _Atomic int64_t alive_us;
    _Atomic uint64_t pauses;
};

struct kafka_history;

struct kafka_partition {
    struct kafka_shared *shared;
    const char *topic; /* lives as long as the source */
    int32_t id;
    char *name;        /* "topic/3" */
    int64_t low, high; /* the log's first offset and its end when the partition was found */
    int64_t end;       /* until: latest: offset where reading ends; else INT64_MAX */

    struct kafka_history *history; /* the recording, until it is read to its end (backfill.h); NULL: none */

    rd_kafka_topic_t *handle;
    rd_kafka_queue_t *queue;    /* NULL: fetching has not begun */
    struct kafka_intake intake; /* records taken from the queue, for the next batch */
    struct kafka_intake beyond; /* the record that the full intake had no place for, if any */
    uint32_t wanted;            /* records that may still be taken in this read */
    uint32_t nudges;            /* how often its broker's thread may still be woken */
    int64_t next;               /* next offset: each one before it was given, or has no record; atomic */
    int64_t eof;                /* the end of the log if no record came since; -1: unknown */
    int64_t time_us;            /* time of the last record read; atomic; INT64_MIN: none */
    uint64_t records;           /* in batches, over all lives of the run; atomic */
    bool is_failed, must_start_again;
    int64_t paused_us; /* shared->alive_us and, below, shared->pauses at the last pause that was noticed */
    uint64_t pauses;
    struct {
        rd_kafka_resp_err_t code; /* error that came instead of a record; NO_ERROR: none */
        int64_t offset;
        char text[256];
    } event;
    atomic_bool is_quiet; /* the last read was at the end of the log */
    atomic_bool has_gaps; /* offsets without a record were seen: there are fewer records than offsets */
    atomic_bool is_lost;  /* the watching thread found that the topic is gone */

    struct kafka_marks marks;
    struct kafka_mark check; /* the checkpoint's mark, until its record was compared; offset -1: none */

    int64_t asked_end; /* the log's end as brokers last answered; -1: not asked; of the watching thread */
    /* From librdkafka's statistics, and log_end from asked_end; atomic. */
    int64_t log_end, fetched_records, fetched_bytes; /* log_end -1: unknown */
    /* Records that readers of committed records may not have yet, because another producer's transaction is
     * open before them: offsets [open_first, open_end), and since when (monotonic); open_end 0: none. */
    int64_t open_first, open_end, open_since_us;
    int64_t newest_us; /* time of the log's last record, by the watching thread; atomic; INT64_MIN: unknown */
};

/* Offsets that are not read yet, by the log's end when the broker last answered: as many records, or fewer
 * where offsets have gaps. Any thread. */
static inline int64_t kafka_partition_lag(struct kafka_partition *partition)
{
    int64_t end = __atomic_load_n(&partition->log_end, __ATOMIC_RELAXED);
    int64_t next = __atomic_load_n(&partition->next, __ATOMIC_RELAXED);
    bool is_behind = end > next && !atomic_load_explicit(&partition->is_quiet, memory_order_relaxed);
    return is_behind ? end - next : 0;
}

/* handle: the topic's; it must outlive the partition. */
struct kafka_partition *kafka_partition_new(struct kafka_shared *shared, rd_kafka_topic_t *handle,
                                            int32_t id);
/* NULL is allowed. Call after the last read. */
void kafka_partition_free(struct kafka_partition *partition);

/* Begins to fetch at `offset`. Returns false after a diagnostic. */
LEAT_CHECKED bool kafka_partition_start(struct kafka_partition *partition, int64_t offset);

/* Sets the ends of the log's committed part and of the whole log; records between them wait for an open
 * transaction. Any thread, one at a time. */
void kafka_partition_open(struct kafka_partition *partition, int64_t committed, int64_t end);

/* Notes that a batch was given: advances the next offset and the live view's figures. */
void kafka_partition_pass(struct kafka_partition *partition, const struct raw_batch *raw);

/* The rate limit (rate.c). kafka_rate_ask: returns how many records may be read now, at most `wanted`.
 * kafka_rate_give_back: returns to the limit those that were not read. */
uint32_t kafka_rate_ask(struct kafka_shared *shared, uint32_t wanted);
void kafka_rate_give_back(struct kafka_shared *shared, uint32_t unused);
/* For batches whose size is known only after reading. kafka_rate_has: whether a batch may be read now.
 * kafka_rate_take: counts its records. */
bool kafka_rate_has(struct kafka_shared *shared);
void kafka_rate_take(struct kafka_shared *shared, uint32_t records);

/* As source_kind.read, seek, mark, mark_check. */
enum read_status kafka_partition_read(struct kafka_partition *partition, struct raw_batch *raw);
bool kafka_partition_seek(struct kafka_partition *partition, const struct source_position *position);
size_t kafka_partition_mark(struct kafka_partition *partition, const struct source_position *position,
                            char out[SOURCE_MARK_BYTES]);
bool kafka_partition_mark_check(struct kafka_partition *partition, struct str mark);

#endif

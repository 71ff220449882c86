/* Topics for sinks: checks that they exist, makes them, and reads a progress topic to its end. Each call uses
 * a client of its own, and waits for brokers. Any thread. */
#ifndef LEAT_CONNECTORS_KAFKA_ADMIN_H
#define LEAT_CONNECTORS_KAFKA_ADMIN_H

#include "connectors/kafka/client.h"
#include "connectors/kafka/progress.h"

#include <stdatomic.h>

/* Who asks, how long it waits, and the reason of a failure. */
struct admin_call {
    const struct kafka_client *client;
    struct str job, name;
    int64_t deadline_us;             /* os_monotonic_us(); INT64_MAX: none */
    struct kafka_patience *patience; /* of a start, which says that it waits; NULL: waits in silence */
    _Atomic bool *must_stop;         /* true ends every wait */
    char why[400];                   /* set if the answer is not ADMIN_GOOD */
};

enum admin_answer {
    ADMIN_GOOD,
    ADMIN_MISSING,
    ADMIN_LATER,   /* brokers cannot be used now, or did not answer in time */
    ADMIN_REFUSED, /* brokers refused, and would refuse again */
};

/* Counts the partitions of the topic. batch_bytes, NULL for no such question: becomes the topic's
 * `max.message.bytes`, the most bytes of one batch of records; 0 if brokers do not tell, as without the right
 * DescribeConfigs on the topic. */
enum admin_answer admin_partitions(struct admin_call *call, const char *topic, int32_t *partitions,
                                   int64_t *batch_bytes);

struct admin_config {
    const char *name, *value;
};
/* Makes a topic; an existing one is ADMIN_GOOD. partitions, replication -1: the cluster's default. config: an
 * entry with name NULL ends it. */
enum admin_answer admin_create(struct admin_call *call, const char *topic, int32_t partitions,
                               int32_t replication, const struct admin_config *config);
/* Makes a progress topic: compacted, without retention limits. */
enum admin_answer admin_create_progress(struct admin_call *call, const char *topic, int32_t partitions);
/* Gives an existing topic more partitions, `partitions` in all. Needs the right Alter on the topic. */
enum admin_answer admin_add_partitions(struct admin_call *call, const char *topic, int32_t partitions);

/* How far a progress topic is read. */
enum progress_reach {
    PROGRESS_COMMITTED, /* all committed records up to the end as it is now; waits for transactions that are
                           open now */
    PROGRESS_STABLE, /* committed records before the first open transaction, without waiting: for a new run,
                        or to look */
    PROGRESS_ALL,    /* all records: committed, open or aborted, without waiting */
};
/* partition: of the shard whose notes are read. */
enum admin_answer admin_read_progress(struct admin_call *call, const char *topic, int32_t partition,
                                      enum progress_reach reach, struct progress *progress);

/* Whether brokers would refuse the same request again: rights, names, sizes. */
bool admin_is_refusal(rd_kafka_resp_err_t error);

#endif

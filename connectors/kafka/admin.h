/* Topics as a sink sees them: whether they are there, making them, and reading a progress topic to its end.
 */
#ifndef LEAT_CONNECTORS_KAFKA_ADMIN_H
#define LEAT_CONNECTORS_KAFKA_ADMIN_H

#include "connectors/kafka/client.h"
#include "connectors/kafka/progress.h"

#include <stdatomic.h>

/* Who asks, and how long. */
struct admin_call {
    const struct kafka_client *client;
    struct str job, name;
    int64_t deadline_us;             /* os_monotonic_us(); INT64_MAX: none */
    struct kafka_patience *patience; /* of a start; NULL: it waits in silence */
    _Atomic bool *must_stop;         /* ends every wait */
    char why[400];                   /* set where the answer is not the first */
};

enum admin_answer {
    ADMIN_GOOD,
    ADMIN_MISSING,
    ADMIN_LATER,   /* brokers cannot be used now, or not in time */
    ADMIN_REFUSED, /* and will be refused again */
};

/* Partitions of the topic. */
enum admin_answer admin_partitions(struct admin_call *call, const char *topic, int32_t *partitions);

struct admin_config {
    const char *name, *value;
};
/* Makes a topic; one that is there already is good. partitions, replication -1: the cluster's default.
 * config: ends with name NULL. */
enum admin_answer admin_create(struct admin_call *call, const char *topic, int32_t partitions,
                               int32_t replication, const struct admin_config *config);
/* Makes a progress topic: one partition, compacted, never cut. */
enum admin_answer admin_create_progress(struct admin_call *call, const char *topic);

/* How far a progress topic is read. */
enum progress_reach {
    PROGRESS_COMMITTED, /* what is committed up to its end, as that is now: transactions that are open beside
                           it are waited for */
    PROGRESS_STABLE, /* what is committed before the first open transaction, without waiting: for a run that
                        has sent nothing yet */
    PROGRESS_ALL,    /* whatever is in the topic, committed, open or aborted, without waiting */
};
enum admin_answer admin_read_progress(struct admin_call *call, const char *topic, enum progress_reach reach,
                                      struct progress *progress);

/* Whether the error says that what was asked will be refused again: rights, names, sizes. */
bool admin_is_refusal(rd_kafka_resp_err_t error);

#endif

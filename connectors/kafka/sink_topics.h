/* Checks names of topics, and when a sink opens its two topics, which are made if missing. Private to connectors/kafka. */
#ifndef LEAT_CONNECTORS_KAFKA_SINK_TOPICS_H
#define LEAT_CONNECTORS_KAFKA_SINK_TOPICS_H

#include "connectors/kafka/admin.h"

#include "core/connector.h"

struct kafka_create {
    int64_t partitions, replication, retention_us;
};

enum { TOPIC_NAME_MAX = 249 };

/* Checks that the option's text can be a topic's name. Returns false after a diagnostic. */
LEAT_CHECKED bool kafka_topic_check(const char *option, struct str topic, struct span span,
                                    struct diag_list *diags);
/* Adds E0605: "sink `NAME`: why", with a hint. Returns false. */
bool sink_cannot_open(struct sink_context *context, const char *why, const char *hint);
/* Checks the topic that rows go to. If it is missing, a first start makes it if `create` says so, and prints
 * that; a resumed job does not, because the rows it had sent there are gone. Returns false after a
 * diagnostic. *partitions, *batch_bytes: as admin_partitions says. */
LEAT_CHECKED bool sink_topic_ensure(struct sink_context *context, struct admin_call *call, const char *topic,
                                    const struct kafka_create *create, int32_t *partitions,
                                    int64_t *batch_bytes);
/* The same for the progress topic, which a first start always makes. topic: the rows', for the message. shards:
 * the partitions that the run needs; an existing topic with fewer gets them, and that is printed; 0: those that
 * it has, for a run that goes on. *partitions: how many it has now. */
LEAT_CHECKED bool sink_progress_ensure(struct sink_context *context, struct admin_call *call,
                                       const char *progress_topic, const char *topic, uint32_t shards,
                                       int32_t *partitions);

#endif

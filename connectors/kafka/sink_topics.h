/* The two topics of a sink, when it opens: whether they are there, and making them. Private to
 * connectors/kafka. */
#ifndef LEAT_CONNECTORS_KAFKA_SINK_TOPICS_H
#define LEAT_CONNECTORS_KAFKA_SINK_TOPICS_H

#include "connectors/kafka/admin.h"

#include "core/connector.h"

struct kafka_create {
    int64_t partitions, replication, retention_us;
};

/* E0605: "sink `NAME`: why", with the way out. Returns false. */
bool sink_cannot_open(struct sink_context *context, const char *why, const char *hint);
/* The topic that rows go to. A first start makes it, which is said, where `create` says so; a job that goes
 * on does not, for what it had sent there is gone. False after a diagnostic. */
LEAT_CHECKED bool sink_topic_ensure(struct sink_context *context, struct admin_call *call, const char *topic,
                                    const struct kafka_create *create);
/* The topic of its progress: likewise, but always made. topic: the other one, for the message. */
LEAT_CHECKED bool sink_progress_ensure(struct sink_context *context, struct admin_call *call,
                                       const char *progress_topic, const char *topic);

#endif

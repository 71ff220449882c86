/* The sink `kafka`, for commands that use the same brokers. */
#ifndef LEAT_CONNECTORS_KAFKA_SINK_H
#define LEAT_CONNECTORS_KAFKA_SINK_H

#include "connectors/kafka/client.h"

extern const struct sink_kind sink_kafka;

/* config: of a bound sink. */
const struct kafka_client *kafka_sink_client(const void *config);

#endif

/* The sink `kafka`, as commands see it that go to the same brokers. */
#ifndef LEAT_CONNECTORS_KAFKA_SINK_H
#define LEAT_CONNECTORS_KAFKA_SINK_H

#include "connectors/kafka/client.h"

extern const struct sink_kind sink_kafka;

/* Of a bound sink's config. */
const struct kafka_client *kafka_sink_client(const void *config);

#endif

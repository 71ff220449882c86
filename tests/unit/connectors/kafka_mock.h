/* librdkafka's own mock cluster, for tests of the source `kafka` without a broker. */
#ifndef LEAT_TESTS_UNIT_CONNECTORS_KAFKA_MOCK_H
#define LEAT_TESTS_UNIT_CONNECTORS_KAFKA_MOCK_H

#include "core/connector.h"

#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>

extern const struct source_kind source_kafka;

struct mock {
    rd_kafka_t *producer;
    rd_kafka_mock_cluster_t *cluster;
};

/* A cluster of one broker without topics; mock_tear_down frees it. */
struct mock *mock_new(void);
/* A teardown function of cmocka: frees the `struct mock` in *state. */
int mock_tear_down(void **state);

#endif

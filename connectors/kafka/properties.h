/* The settings of librdkafka that a job may change. Private to connectors/kafka. Any thread. */
#ifndef LEAT_CONNECTORS_KAFKA_PROPERTIES_H
#define LEAT_CONNECTORS_KAFKA_PROPERTIES_H

#include "core/option.h"

#include <librdkafka/rdkafka.h>

/* Sets all properties. type: RD_KAFKA_CONSUMER for those of a source, RD_KAFKA_PRODUCER for those of a sink.
 * Returns false after diagnostics for properties that are not allowed, or whose value librdkafka refuses. */
LEAT_CHECKED bool kafka_properties_set(const struct assignments *properties, rd_kafka_type_t type,
                                       rd_kafka_conf_t *conf, struct diag_list *diags);
/* The same for an additional client, such as the consumer of a sink: leaves out properties that are not for
 * its type. */
LEAT_CHECKED bool kafka_properties_set_some(const struct assignments *properties, rd_kafka_type_t type,
                                            rd_kafka_conf_t *conf, struct diag_list *diags);

#endif

/* Waits that librdkafka needs help with. Private to connectors/kafka. */
#ifndef LEAT_CONNECTORS_KAFKA_WAITS_H
#define LEAT_CONNECTORS_KAFKA_WAITS_H

#include "core/base.h"

#include <pthread.h>

/* Joins a thread that destroys a client. False: it has not ended within that time. */
LEAT_CHECKED bool kafka_waits_join(pthread_t thread, int64_t us);

#endif

/* Waiting for librdkafka by the monotonic clock, which librdkafka itself does not use (waits.c). Private to
 * connectors/kafka. */
#ifndef LEAT_CONNECTORS_KAFKA_WAITS_H
#define LEAT_CONNECTORS_KAFKA_WAITS_H

#include "core/base.h"

#include <pthread.h>

/* Joins a thread that destroys a client. Returns false if it has not ended after `us` microseconds. */
LEAT_CHECKED bool kafka_waits_join(pthread_t thread, int64_t us);

#endif

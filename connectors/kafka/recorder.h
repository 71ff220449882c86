/* Topics -> recordings: what `leat record` does. One thread. */
#ifndef LEAT_CONNECTORS_KAFKA_RECORDER_H
#define LEAT_CONNECTORS_KAFKA_RECORDER_H

#include "connectors/kafka/client.h"
#include "connectors/kafka/recording.h"
#include "connectors/kafka/start.h"

#include <signal.h>

struct recorder_figures {
    uint64_t records, before; /* taken by this process; in the recording when it began */
    int64_t bytes;            /* on disk, of spans that are complete */
    uint32_t partitions, topics, spans;
    int64_t lag;       /* records that are there and not taken; -1: not known yet */
    const char *waits; /* why nothing comes; NULL: it does */
};

struct recorder_options {
    const struct kafka_client *client;
    struct texts topics;
    int64_t patience_us;     /* how long the start waits for brokers */
    struct kafka_start from; /* of partitions that the recording does not have */
    bool until_latest;       /* ends where the logs end when it begins */
    int64_t until_us; /* ends at the first record of each partition that is not older; TIME_MAX: never */
    enum recording_format format;
    const char *directory;
    int64_t span_records, span_bytes, span_us; /* what ends a span; bytes: before they are packed */
    const volatile sig_atomic_t *stop;
    /* Now and then, and at the end. */
    void (*show)(void *argument, const struct recorder_figures *figures, bool is_last);
    void *argument;
};

/* Until the end that was asked for, or *stop. What is complete stays, whatever happens. False after a
 * diagnostic. */
LEAT_CHECKED bool recorder_run(const struct recorder_options *options, struct recorder_figures *figures,
                               struct diag_list *diags);

#endif

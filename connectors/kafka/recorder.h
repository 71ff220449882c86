/* `leat record`: topics -> recordings. One thread. */
#ifndef LEAT_CONNECTORS_KAFKA_RECORDER_H
#define LEAT_CONNECTORS_KAFKA_RECORDER_H

#include "connectors/kafka/client.h"
#include "connectors/kafka/recording.h"
#include "connectors/kafka/start.h"

#include <signal.h>

struct recorder_figures {
    uint64_t records, before; /* recorded by this process; in the recording before */
    int64_t bytes;            /* on disk, of complete spans */
    uint32_t partitions, topics, spans;
    int64_t lag;       /* records in the logs that are not recorded yet; -1: unknown */
    const char *waits; /* why no records come; NULL: they come */
};

struct recorder_options {
    const struct kafka_client *client;
    struct texts topics;
    int64_t patience_us;     /* how long the start waits for brokers */
    struct kafka_start from; /* start for partitions that the recording does not have */
    bool until_latest;       /* end where the logs ended at the start */
    int64_t until_us;        /* end each partition at its first record that is not older; TIME_MAX: never */
    enum recording_format format;
    const char *directory;
    int64_t span_records, span_bytes, span_us; /* limits of a span; bytes: before compression */
    const volatile sig_atomic_t *stop;
    /* Called regularly, and at the end, by the thread of recorder_run; may be NULL. */
    void (*show)(void *argument, const struct recorder_figures *figures, bool is_last);
    void *argument;
};

/* Records until the requested end, or until *stop is set. Complete spans are kept whatever happens. Returns
 * false after a diagnostic. */
LEAT_CHECKED bool recorder_run(const struct recorder_options *options, struct recorder_figures *figures,
                               struct diag_list *diags);

#endif

/* What everything that talks to Kafka shares: options, librdkafka's configuration, and errors as messages.
 *
 * A file that has these options embeds a struct kafka_client and puts KAFKA_CLIENT_OPTIONS into its table.
 * Properties are allow-listed; secrets are never printed, logged or checkpointed. */
#ifndef LEAT_CONNECTORS_KAFKA_CLIENT_H
#define LEAT_CONNECTORS_KAFKA_CLIENT_H

#include "core/diag.h"
#include "core/option.h"

#include <librdkafka/rdkafka.h>

/* Of one source or sink; the option table fills it. */
struct kafka_client {
    struct str brokers;
};

#define KAFKA_CLIENT_OPTIONS(structure, member)                                                              \
    OPTION_TEXT(structure, member.brokers, "brokers", OPTION_REQUIRED | OPTION_RUNTIME, NULL,                \
                "where to find the cluster: host:port, several by commas")

/* One of librdkafka's properties; the last has name NULL. */
struct kafka_property {
    const char *name, *value;
};

/* Where a message of librdkafka (log, error callback) is kept until it explains a failure; one per client. */
struct kafka_errors;

/* What librdkafka tells by callback, on the thread that polls (or flushes, commits, aborts); the client's own
 * opaque stays client.c's. Members may be NULL. */
struct kafka_hooks {
    void *argument;
    /* A delivery report, of each message that was produced. */
    void (*delivered)(void *argument, const rd_kafka_message_t *message);
};

/* A client of that type with the options, then the fixed properties. hooks: copied; NULL: none. job, name: of
 * the job and of the source or sink, for client.id. NULL after a diagnostic that says which option is wrong.
 * errors is freed by kafka_client_free. Any thread. */
rd_kafka_t *kafka_client_new(const struct kafka_client *client, rd_kafka_type_t type,
                             const struct kafka_property *fixed, const struct kafka_hooks *hooks,
                             struct str job, struct str name, struct kafka_errors **errors,
                             struct diag_list *diags);
void kafka_client_free(rd_kafka_t *client, struct kafka_errors *errors); /* NULLs are allowed */

/* The most telling reason so far why brokers cannot be used: wrong password, certificate that has expired or is
 * of another host, nobody listens, name unknown. Empty text: none is known. Copied into `out`. Any thread. */
size_t kafka_errors_why(struct kafka_errors *errors, char *out, size_t room);

#endif

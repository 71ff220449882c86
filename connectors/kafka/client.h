/* What everything that talks to Kafka shares: options, librdkafka's configuration, and errors as messages.
 *
 * A file that has these options embeds a struct kafka_client, puts KAFKA_CLIENT_OPTIONS into its table, and
 * calls kafka_client_check in `bind`. Properties are allow-listed; secrets are never printed, logged or
 * checkpointed. */
#ifndef LEAT_CONNECTORS_KAFKA_CLIENT_H
#define LEAT_CONNECTORS_KAFKA_CLIENT_H

#include "connectors/kafka/patience.h"

#include "core/diag.h"
#include "core/option.h"

#include <librdkafka/rdkafka.h>

#include <stdatomic.h>

enum kafka_protocol { KAFKA_PLAINTEXT, KAFKA_SSL, KAFKA_SASL_SSL, KAFKA_SASL_PLAINTEXT };
enum kafka_mechanism { KAFKA_SCRAM_SHA_256, KAFKA_SCRAM_SHA_512, KAFKA_PLAIN, KAFKA_OAUTHBEARER };

struct kafka_security {
    int protocol, mechanism;
    struct str user, password;
    struct str ca, certificate, key, key_password; /* paths, but for the password */
    struct str token_file;
};

/* Of one source or sink; the option table fills it. */
struct kafka_client {
    struct str brokers;
    struct kafka_security security;
    struct assignments properties;
    /* Set once brokers have let us in: what looks like a wrong protocol is a broker that goes, then. */
    _Atomic bool was_well;
};

extern const struct option kafka_security_options[];

#define KAFKA_CLIENT_OPTIONS(structure, member)                                                              \
    OPTION_TEXT(structure, member.brokers, "brokers", OPTION_REQUIRED | OPTION_RUNTIME, NULL,                \
                "where to find the cluster: host:port, several by commas"),                                  \
        OPTION_BLOCK(structure, member.security, struct kafka_security, "security", OPTION_RUNTIME,          \
                     kafka_security_options, "how to get in"),                                               \
        OPTION_ASSIGNMENTS(structure, member.properties, "properties", OPTION_RUNTIME,                       \
                           "librdkafka's own settings, with _ or . between the words, as { "                 \
                           "socket_timeout_ms: 30000 }; only ones that can do no harm")

/* Whether the options go together: for `bind`, nothing is opened. Warns where the connection to another host
 * would be open to everybody on the way. */
LEAT_CHECKED bool kafka_client_check(const struct kafka_client *client, rd_kafka_type_t type,
                                     struct span span, struct diag_list *diags);

/* One of librdkafka's properties; the last has name NULL. */
struct kafka_property {
    const char *name, *value;
};

/* Where a message of librdkafka is kept until it explains a failure; one per client. */
struct kafka_errors;

/* What librdkafka tells by callback, on the thread that polls (or flushes, commits, aborts); the client's own
 * opaque stays client.c's. Members may be NULL. */
struct kafka_hooks {
    void *argument;
    /* A delivery report, of each message that was produced. */
    void (*delivered)(void *argument, const rd_kafka_message_t *message);
    /* Statistics as JSON, where the property statistics.interval.ms is set. */
    void (*statistics)(void *argument, const char *json, size_t bytes);
};

/* A client of that type with the options, then the fixed properties. hooks: copied; NULL: none. job, name: of
 * the job and of the source or sink, for client.id. NULL after a diagnostic that says which option is wrong.
 * errors is freed by kafka_client_free. The options must outlive the client. Any thread. */
rd_kafka_t *kafka_client_new(const struct kafka_client *client, rd_kafka_type_t type,
                             const struct kafka_property *fixed, const struct kafka_hooks *hooks,
                             struct str job, struct str name, struct kafka_errors **errors,
                             struct diag_list *diags);
void kafka_client_free(rd_kafka_t *client, struct kafka_errors *errors); /* NULLs are allowed */

/* What the cluster has: all topics, or one (only). Waits for brokers that are not there yet, but not where a
 * broker has said why it will not do. NULL after a diagnostic, or without one where the user wants it to end.
 * Free it with rd_kafka_metadata_destroy. */
const struct rd_kafka_metadata *kafka_client_metadata(rd_kafka_t *client, struct kafka_errors *errors,
                                                      rd_kafka_topic_t *only, struct kafka_patience *patience,
                                                      struct diag_list *diags);
/* Who leads the topic's partitions is asked again: librdkafka does not by itself where the leader is there
 * and does not answer. Waits a second at most. */
void kafka_client_ask_leaders(rd_kafka_t *client, const char *topic);
/* Wakes librdkafka's threads that talk to brokers: one whose partitions had all they may fetch ahead sleeps
 * up to a second otherwise, however fast they are emptied. Any thread, but not in a callback. */
void kafka_client_nudge(rd_kafka_t *client, const struct kafka_client *options);

/* The most telling reason so far why brokers cannot be used: wrong password, certificate that has expired or
 * is of another host, nobody listens, name unknown. Empty text: none is known. Copied into `out`. Any thread.
 */
size_t kafka_errors_why(struct kafka_errors *errors, char *out, size_t room);
/* Whether that is a reason that waiting does not mend: a wrong password or certificate, an answer in another
 * protocol. A connection that ends at once is none: a broker that starts, or is down behind a proxy, looks
 * like that. */
bool kafka_errors_are_final(struct kafka_errors *errors);
/* Adds E0610, "cannot WHAT: why", with the way out; err: librdkafka's answer, where no broker said more. */
void kafka_errors_report(struct kafka_errors *errors, rd_kafka_resp_err_t err, struct diag_list *diags,
                         const char *format, ...) LEAT_PRINTF(4, 5);

#endif

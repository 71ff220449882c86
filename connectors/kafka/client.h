/* What all users of Kafka share: options, librdkafka's configuration, and errors as messages.
 *
 * A source or sink with these options embeds a struct kafka_client, puts KAFKA_CLIENT_OPTIONS into its option
 * table, and calls kafka_client_check in `bind`. Properties are allow-listed; secrets are never printed,
 * logged or checkpointed. */
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
    struct str ca, certificate, key, key_password; /* paths; key_password is a secret */
    struct str token_file;
};

/* Connection options of one source or sink; filled by the option table. */
struct kafka_client {
    struct str brokers;
    struct kafka_security security;
    struct assignments properties;
    /* Set once brokers have accepted the client: from then on an error that looks like a wrong protocol only
     * means that a broker shuts down. */
    _Atomic bool was_well;
};

extern const struct option kafka_security_options[];

/* The rows of a struct kafka_client. flags, def: of `brokers`. */
#define KAFKA_CLIENT_ROWS(structure, member, flags, def)                                                     \
    OPTION_TEXT(structure, member.brokers, "brokers", (flags) | OPTION_RUNTIME, def,                         \
                "addresses of the brokers: host:port, separated by commas"),                                 \
        OPTION_BLOCK(structure, member.security, struct kafka_security, "security", OPTION_RUNTIME,          \
                     kafka_security_options, "encryption and login"),                                        \
        OPTION_ASSIGNMENTS(                                                                                  \
            structure, member.properties, "properties", OPTION_RUNTIME | OPTION_PRIVATE,                     \
            "librdkafka's own settings, with _ or . between the words, as { "                                \
            "socket_timeout_ms: 30000 }; a refused setting is answered with the list of allowed ones")
#define KAFKA_CLIENT_OPTIONS(structure, member) KAFKA_CLIENT_ROWS(structure, member, OPTION_REQUIRED, NULL)

/* Checks in `bind` that the options go together; connects to nothing. Warns if a connection to another host
 * is not encrypted. Returns false after a diagnostic. */
LEAT_CHECKED bool kafka_client_check(const struct kafka_client *client, rd_kafka_type_t type,
                                     struct span span, struct diag_list *diags);

/* librdkafka's own default of batch.size. */
enum { KAFKA_BATCH_BYTES = 1000000 };

/* One of librdkafka's properties; name NULL ends a list. */
struct kafka_property {
    const char *name, *value;
};

/* Keeps librdkafka's messages until they explain a failure; one per client. */
struct kafka_errors;

/* librdkafka's callbacks, on the thread that polls (or flushes, commits, aborts). The client's own opaque
 * belongs to client.c. Members may be NULL. */
struct kafka_hooks {
    void *argument;
    /* The delivery report of one produced message. */
    void (*delivered)(void *argument, const rd_kafka_message_t *message);
    /* Statistics as JSON, if the property statistics.interval.ms is set. */
    void (*statistics)(void *argument, const char *json, size_t bytes);
};

/* Makes a client of that type with the options, then the `fixed` properties (NULL: none). A consumer reads
 * committed records only, checks their checksums, and never begins at an offset that librdkafka chose, unless
 * `fixed` says otherwise. hooks: copied; NULL: none. job, name: names of the job and of the source or sink,
 * for client.id. errors: freed by kafka_client_free. The options must outlive the client. Returns NULL after
 * a diagnostic that says which option is wrong. Any thread. */
rd_kafka_t *kafka_client_new(const struct kafka_client *client, rd_kafka_type_t type,
                             const struct kafka_property *fixed, const struct kafka_hooks *hooks,
                             struct str job, struct str name, struct kafka_errors **errors,
                             struct diag_list *diags);
void kafka_client_free(rd_kafka_t *client, struct kafka_errors *errors); /* NULLs are allowed */

/* Asks for the cluster's metadata: of all topics, or of `only`. Waits for brokers that do not answer, but not
 * if a broker gave a reason that waiting does not change. Returns NULL after a diagnostic, or without one if
 * the user stopped the run. Free the result with rd_kafka_metadata_destroy. */
const struct rd_kafka_metadata *kafka_client_metadata(rd_kafka_t *client, struct kafka_errors *errors,
                                                      rd_kafka_topic_t *only, struct kafka_patience *patience,
                                                      struct diag_list *diags);
/* Asks again which brokers lead the topic's partitions: librdkafka does not do so if a leader is connected
 * but does not answer. Waits a second at most. */
void kafka_client_ask_leaders(rd_kafka_t *client, const char *topic);
/* Asks the partition's leader where its log begins and ends; of a client that reads committed records only, *end is
 * where the first open transaction begins, if there is one. Waits timeout_ms at most for each of the two answers,
 * unlike rd_kafka_query_watermark_offsets, which waits without limit for a leader that is connected and does not
 * answer. An error leaves *begin and *end as they were. Any thread, but not within a callback. */
rd_kafka_resp_err_t kafka_client_ends(rd_kafka_t *client, const char *topic, int32_t partition,
                                      int64_t *begin, int64_t *end, int timeout_ms);
/* Wakes librdkafka's broker threads. Without this, a thread whose partitions have fetched ahead as much as
 * they may sleeps for up to a second, however fast their queues are emptied. Any thread, but not within a
 * callback. */
void kafka_client_nudge(rd_kafka_t *client, const struct kafka_client *options);

/* Copies into `out` the most informative recent reason why brokers cannot be used: wrong password,
 * certificate that has expired or belongs to another host, nobody listens, unknown host name. Returns its
 * length; 0: none is known. Any thread. */
size_t kafka_errors_why(struct kafka_errors *errors, char *out, size_t room);
/* Whether that reason is one that waiting does not change: a wrong password or certificate, an answer in
 * another protocol. A connection that is closed at once is not: a broker that starts, or is down behind a
 * proxy, behaves like that. */
bool kafka_errors_are_final(struct kafka_errors *errors);
/* Adds E0610, "cannot WHAT: why", with a hint. format: WHAT. err: says why if no broker said more. */
void kafka_errors_report(struct kafka_errors *errors, rd_kafka_resp_err_t err, struct diag_list *diags,
                         const char *format, ...) LEAT_PRINTF(4, 5);

#endif

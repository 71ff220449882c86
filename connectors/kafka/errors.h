/* librdkafka's messages, ranked by how much they explain. Private to connectors/kafka. Any thread. */
#ifndef LEAT_CONNECTORS_KAFKA_ERRORS_H
#define LEAT_CONNECTORS_KAFKA_ERRORS_H

#include "connectors/kafka/client.h"

/* Makes the opaque (rd_kafka_conf_set_opaque) of a client. hooks: copied; NULL: none. */
struct kafka_errors *kafka_errors_new(const struct kafka_client *client, const struct kafka_hooks *hooks);
void kafka_errors_free(struct kafka_errors *errors); /* NULL is allowed */
const struct kafka_hooks *kafka_errors_hooks(const struct kafka_errors *errors);
const struct kafka_client *kafka_errors_client(const struct kafka_errors *errors);

/* Adds a line that librdkafka would write to its log. */
void kafka_errors_add(struct kafka_errors *errors, const char *line);
/* Says that a broker's certificate was refused. code: OpenSSL's X509_V_ERR_... */
void kafka_errors_certificate(struct kafka_errors *errors, const char *broker, int code);
/* Says why the token of OAUTHBEARER cannot be used. */
void kafka_errors_token(struct kafka_errors *errors, const char *why);

#endif

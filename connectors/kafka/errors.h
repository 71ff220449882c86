/* librdkafka's messages, sorted by what they tell. Private to connectors/kafka. Any thread. */
#ifndef LEAT_CONNECTORS_KAFKA_ERRORS_H
#define LEAT_CONNECTORS_KAFKA_ERRORS_H

#include "connectors/kafka/client.h"

/* The opaque of every client. */
struct kafka_errors *kafka_errors_new(const struct kafka_client *client, const struct kafka_hooks *hooks);
void kafka_errors_free(struct kafka_errors *errors); /* NULL is allowed */
const struct kafka_hooks *kafka_errors_hooks(const struct kafka_errors *errors);
const struct kafka_client *kafka_errors_client(const struct kafka_errors *errors);

/* A line that librdkafka would write to its log. */
void kafka_errors_add(struct kafka_errors *errors, const char *line);
/* A broker's certificate was refused; code: OpenSSL's X509_V_ERR_... */
void kafka_errors_certificate(struct kafka_errors *errors, const char *broker, int code);
/* The token of OAUTHBEARER cannot be had. */
void kafka_errors_token(struct kafka_errors *errors, const char *why);

#endif

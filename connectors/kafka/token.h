/* OAUTHBEARER: reads the token from a file whenever librdkafka wants one. Private to connectors/kafka. */
#ifndef LEAT_CONNECTORS_KAFKA_TOKEN_H
#define LEAT_CONNECTORS_KAFKA_TOKEN_H

#include "core/base.h"

#include <librdkafka/rdkafka.h>

/* For rd_kafka_conf_set_oauthbearer_token_refresh_cb; opaque: the struct kafka_errors. Any thread. */
void kafka_token_refresh(rd_kafka_t *client, const char *config, void *opaque);

/* Reads from a JSON web token when it ends (milliseconds since 1970) and whom it is for. subject: terminated,
 * at most `room` bytes. Returns false if the token is not valid, with why (static text) set. */
LEAT_CHECKED bool kafka_token_parse(struct str token, int64_t *ends_ms, char *subject, size_t room,
                                    const char **why);

#endif

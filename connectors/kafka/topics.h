/* Finds the topics that a source reads, by names and patterns. Private to connectors/kafka. */
#ifndef LEAT_CONNECTORS_KAFKA_TOPICS_H
#define LEAT_CONNECTORS_KAFKA_TOPICS_H

#include "core/option.h"

#include <librdkafka/rdkafka.h>
#include <regex.h>

struct kafka_topics {
    struct texts specs; /* names, and patterns, which begin with ^ */
    regex_t *patterns;  /* specs.count entries; those of names are unused */
    uint32_t compiled;
};

/* One partition of a topic that exists in the cluster. */
struct kafka_place {
    const char *topic;
    int32_t id;
};

/* Checks in `bind` that names are valid and patterns compile. Returns false after a diagnostic. */
LEAT_CHECKED bool kafka_topics_check(struct texts specs, struct span span, struct diag_list *diags);
void kafka_topics_open(struct kafka_topics *topics, struct texts specs, struct arena *arena);
void kafka_topics_close(struct kafka_topics *topics);
bool kafka_topics_have_patterns(const struct kafka_topics *topics);
bool kafka_topics_match(const struct kafka_topics *topics, const char *name);
/* Lists the partitions of all topics that match, sorted by topic and number, in the arena. Returns NULL after
 * a diagnostic if a named topic does not exist, or no topic matches. */
struct kafka_place *kafka_topics_find(const struct kafka_topics *topics,
                                      const struct rd_kafka_metadata *metadata, uint32_t *count,
                                      struct arena *arena, struct diag_list *diags);

#endif

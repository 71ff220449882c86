/* The option `start`: where reading begins, and the offsets that it means. Private to connectors/kafka. */
#ifndef LEAT_CONNECTORS_KAFKA_START_H
#define LEAT_CONNECTORS_KAFKA_START_H

#include "connectors/kafka/client.h"
#include "connectors/kafka/topics.h"

enum kafka_start_tag { KAFKA_EARLIEST, KAFKA_LATEST, KAFKA_AT_TIME, KAFKA_AT_OFFSETS };

struct kafka_start {
    enum kafka_start_tag tag;
    int64_t time_ms;
    int64_t *offsets; /* of partitions 0, 1 ... of the source's only topic */
    uint32_t offsets_count;
};

/* Parses `earliest`, `latest`, time("...") or offsets(0, 17, ...). Returns false after a diagnostic. */
LEAT_CHECKED bool kafka_start_bind(struct kafka_start *start, const struct ast *ast, struct texts topics,
                                   struct arena *arena, struct diag_list *diags);

/* Offsets of one partition's log, and where to begin. */
struct kafka_range {
    int64_t low, high; /* first offset of the log, and the one behind its last committed record */
    int64_t first;     /* where `start` says to begin */
    int64_t open_end;  /* offset behind the last record, committed or not; 0: unknown */
};

/* Adds E0612: the records [offset, low) are gone, `low` being the oldest offset left. name: the partition's;
 * which: for example "this job has not read". The caller adds the hint. */
struct diag *kafka_say_gone(struct diag_list *diags, const char *name, const char *which, int64_t offset,
                            int64_t low);

/* Asks brokers for the ranges of `places`. Returns false after a diagnostic, or without one if the user
 * stopped the run. */
LEAT_CHECKED bool kafka_start_find(const struct kafka_start *start, rd_kafka_t *client,
                                   struct kafka_errors *errors, const struct kafka_place *places,
                                   uint32_t count, struct kafka_range *ranges,
                                   struct kafka_patience *patience, struct diag_list *diags);
/* Sets open_end of the ranges, to find open transactions. client: a consumer that reads uncommitted records,
 * too. Leaves open_end alone if brokers do not answer. */
void kafka_start_find_open(rd_kafka_t *client, struct kafka_errors *errors, const struct kafka_place *places,
                           uint32_t count, struct kafka_range *ranges);

#endif

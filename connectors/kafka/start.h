/* Where reading begins: the option `start`, and the offsets that it means. Private to connectors/kafka. */
#ifndef LEAT_CONNECTORS_KAFKA_START_H
#define LEAT_CONNECTORS_KAFKA_START_H

#include "connectors/kafka/client.h"
#include "connectors/kafka/topics.h"

enum kafka_start_tag { KAFKA_EARLIEST, KAFKA_LATEST, KAFKA_AT_TIME, KAFKA_AT_OFFSETS };

struct kafka_start {
    enum kafka_start_tag tag;
    int64_t time_ms;
    int64_t *offsets; /* of partitions 0, 1 ... of the only topic */
    uint32_t offsets_count;
};

/* `earliest`, `latest`, time("..."), offsets(0, 17, ...). False after a diagnostic. */
LEAT_CHECKED bool kafka_start_bind(struct kafka_start *start, const struct ast *ast, struct texts topics,
                                   struct arena *arena, struct diag_list *diags);

/* The log of one partition, and where to begin. */
struct kafka_range {
    int64_t low, high; /* its first offset, and the one behind its last (of what is committed) */
    int64_t first;     /* where `start` says */
    int64_t open_end;  /* by kafka_start_find_open: the one behind its last, committed or not; else 0 */
};

/* Says (E0612) that offsets before `low`, the oldest there is, are gone; these alone: [offset, low). name: of
 * the partition; which: "this job has not read". The caller adds what to do. */
struct diag *kafka_say_gone(struct diag_list *diags, const char *name, const char *which, int64_t offset,
                            int64_t low);

/* Asks the brokers. False after a diagnostic, or without one where the user wants it to end. */
LEAT_CHECKED bool kafka_start_find(const struct kafka_start *start, rd_kafka_t *client,
                                   struct kafka_errors *errors, const struct kafka_place *places,
                                   uint32_t count, struct kafka_range *ranges,
                                   struct kafka_patience *patience, struct diag_list *diags);
/* Whether transactions are open. client: one that reads uncommitted records, too. Where brokers do not answer
 * nothing is found. */
void kafka_start_find_open(rd_kafka_t *client, struct kafka_errors *errors, const struct kafka_place *places,
                           uint32_t count, struct kafka_range *ranges);

#endif

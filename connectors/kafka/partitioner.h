/* Which partition of its topic a record goes to, chosen before the outbox: the same in every life of a run.
 * A layout is a count of partitions, and the micro-batch from which it holds: a topic that gets more
 * partitions changes where keys go, so a checkpoint and the notes of what is out say which layout was used. */
#ifndef LEAT_CONNECTORS_KAFKA_PARTITIONER_H
#define LEAT_CONNECTORS_KAFKA_PARTITIONER_H

#include "connectors/kafka/record.h"

struct layout {
    uint64_t since;      /* number of the first micro-batch whose rows go by this layout */
    uint32_t partitions; /* 0: not known; librdkafka chooses */
    uint32_t unused;
};

enum { LAYOUTS_MAX = 64 };

/* Layouts that follow each other, sorted by `since`. Zeroed: none. One thread at a time. */
struct layouts {
    struct layout items[LAYOUTS_MAX];
    uint32_t count;
};

/* Adds a layout; one with the same `since` is replaced, and the oldest are forgotten. */
void layouts_add(struct layouts *layouts, struct layout layout);
/* The layout of that micro-batch; zeros: none is known. */
struct layout layouts_at(const struct layouts *layouts, uint64_t micro_batch);
/* The last layout; zeros: none. */
struct layout layouts_last(const struct layouts *layouts);

/* MurmurHash2 of 32 bits with the seed of Kafka's clients (Java's Utils.murmur2, librdkafka's rd_murmur2). */
uint32_t partitioner_hash(struct str key);
/* The partition of a record of micro-batch `micro_batch`: the record's own where it has one; else the one that
 * the clients of Kafka choose for its key; without a key, the number of the micro-batch modulo the count of
 * partitions. partitions 0: the record's own, or -1. */
int32_t partitioner_choose(const struct kafka_record *record, uint64_t micro_batch, uint32_t partitions);

#endif

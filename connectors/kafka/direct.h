/* Delivery `at_least_once`: rows go to the producer as they come, and a checkpoint is published once brokers
 * have acknowledged the rows before it. */
#ifndef LEAT_CONNECTORS_KAFKA_DIRECT_H
#define LEAT_CONNECTORS_KAFKA_DIRECT_H

#include "connectors/kafka/client.h"
#include "connectors/kafka/figures.h"
#include "connectors/kafka/record.h"
#include "core/snapshot.h"

#include <pthread.h>
#include <stdatomic.h>

struct direct_options {
    const struct kafka_client *client;
    struct str job, sink;
    const char *topic, *compression, *linger_ms;
    int64_t batch_bytes; /* most bytes of one batch that the topic takes; 0: not known */
    uint64_t budget_bytes;
    int64_t patience_us;
    const volatile sig_atomic_t *stop; /* sink_context.stop */
    _Atomic bool *is_full;
    void (*wake)(void *engine);
    void *engine;
};

enum { DIRECT_SLOTS = 64 };

struct direct {
    struct direct_options options;
    rd_kafka_t *producer;
    struct kafka_errors *errors;
    rd_kafka_topic_t *topic;
    pthread_t thread;
    bool has_thread;
    _Atomic bool must_stop;
    _Atomic uint64_t held_bytes; /* of records that are not acknowledged */
    _Atomic uint64_t records, bytes;
    _Atomic uint64_t answers; /* delivery reports, of successes and failures */
    struct kafka_round_trip round_trip;
    /* Counts of records that are not acknowledged. Records between two barriers share a slot. */
    _Atomic uint64_t waiting[DIRECT_SLOTS];
    uint32_t slot;             /* the lane's current slot */
    int64_t end_us;            /* when the end of the run was first seen: its patience begins; 0: not yet */
    char refusal[600];         /* why the checkpoint's wait failed */
    _Atomic int64_t said_us;   /* when the user was last told about waiting for brokers */
    _Atomic bool has_said_end; /* the user was told that the end of the run waits */
    pthread_mutex_t mutex;
    _Atomic bool has_failed; /* `error` says why, and does not change any more */
    char error[512];
};

/* `direct` is zeroed before. Returns false with direct->error set. */
bool direct_open(struct direct *direct, const struct direct_options *options);
/* On the sink's lane. Copies the record. Returns false with direct->error set. */
bool direct_write(struct direct *direct, const struct kafka_record *record);
/* At the barrier, on the sink's lane: the checkpoint waits until the records before it are acknowledged. */
void direct_snapshot(struct direct *direct, struct snapshot_writer *writer);
/* As sink_kind.drain: waits until all records are acknowledged, or patience_us have passed. Returns false
 * with direct->error set. */
bool direct_drain(struct direct *direct);
/* Any thread. */
void direct_report(struct direct *direct, struct report *report);
void direct_close(struct direct *direct);

#endif

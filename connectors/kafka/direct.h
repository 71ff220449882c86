/* At least once: rows go to the producer as they come, and a checkpoint is published once those before it are
 * acknowledged. */
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
    _Atomic uint64_t held_bytes; /* not acknowledged */
    _Atomic uint64_t records, bytes;
    _Atomic uint64_t answers; /* deliveries and failures */
    struct kafka_round_trip round_trip;
    /* Records that are not acknowledged, by the barrier they came after. */
    _Atomic uint64_t waiting[DIRECT_SLOTS];
    uint32_t slot;             /* of the lane */
    int64_t end_us;            /* when the end of the run was first seen: its patience begins; 0: not yet */
    char refusal[400];         /* why the checkpoint's wait was in vain */
    _Atomic int64_t said_us;   /* when it was last said that brokers are waited for */
    _Atomic bool has_said_end; /* and that the end of the run does */
    pthread_mutex_t mutex;
    _Atomic bool has_failed; /* then `error` says why, and stays as it is */
    char error[512];
};

/* false: direct->error. `direct` is zeroed before. */
bool direct_open(struct direct *direct, const struct direct_options *options);
/* The lane. Copies the record. false: direct->error. */
bool direct_write(struct direct *direct, const struct kafka_record *record);
/* The lane, at the barrier: the checkpoint waits for what came before it. */
void direct_snapshot(struct direct *direct, struct snapshot_writer *writer);
/* Waits until all is acknowledged; false: direct->error. */
bool direct_drain(struct direct *direct);
/* Any thread. */
void direct_report(struct direct *direct, struct report *report);
void direct_close(struct direct *direct);

#endif

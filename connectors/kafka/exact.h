/* Delivery `exactly_once` of the sink: outbox, sender, and what comes again after a fall back. */
#ifndef LEAT_CONNECTORS_KAFKA_EXACT_H
#define LEAT_CONNECTORS_KAFKA_EXACT_H

#include "connectors/kafka/outbox.h"
#include "connectors/kafka/remake.h"
#include "connectors/kafka/sender.h"
#include "core/connector.h"

struct exact {
    struct sink_context *context;
    struct sender_options options;
    struct outbox outbox;
    struct sender sender;
    struct remake remake;
    bool has_outbox;
    _Atomic bool has_differed; /* what came again is not what was sent */
    uint64_t number, index;    /* of the last record: the index-th of the number */
    uint64_t floor;            /* numbers below it cannot be sent any more */
    uint64_t rows, redone;
    /* Of the checkpoint: */
    uint64_t restored_next;    /* its next number */
    struct progress_part told; /* what was known to be out */
    bool has_told;
    struct remake_saved saved;
};

/* A new run, or a sink that is new in it: connects and begins. false after a diagnostic. */
bool exact_open(struct exact *exact, struct sink_context *context, const struct sender_options *options,
                uint64_t budget_bytes);
/* Whoever else sends for the run of the options cannot any more. Keeps nothing. */
bool exact_fence(struct sink_context *context, const struct sender_options *options);
/* As exact_open, for a sink that goes on: state comes by exact_restore_record, then exact_restored connects,
 * sees what is out, and begins. */
void exact_prepare(struct exact *exact, struct sink_context *context, const struct sender_options *options,
                   uint64_t budget_bytes);
bool exact_restore_record(struct exact *exact, struct str record);
bool exact_restored(struct exact *exact, struct snapshot_reader *reader);

/* The lane. false: context->error. */
bool exact_write(struct exact *exact, const struct kafka_record *record);
/* After the rows of a batch. */
void exact_account(struct exact *exact);
bool exact_snapshot(struct exact *exact, struct snapshot_writer *writer);
/* Any thread; false: `error`, of `room` bytes, says why. */
bool exact_is_well(struct exact *exact, char *error, size_t room);
bool exact_committed(struct exact *exact, uint64_t epoch);
bool exact_drain(struct exact *exact);
void exact_describe(struct exact *exact, struct byte_buffer *out);
/* Any thread. */
void exact_report(struct exact *exact, struct report *report);
/* Tolerates zeroed state. */
void exact_close(struct exact *exact);

#endif

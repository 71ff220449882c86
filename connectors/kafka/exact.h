/* Delivery `exactly_once` of the sink: outbox, sender, and the comparison of rows that are made again after a
 * fall back. */
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
    _Atomic bool has_differed;   /* rows made again differ from those that were sent */
    uint64_t micro_batch, index; /* the last record was the index-th one of `micro_batch` */
    uint64_t floor;              /* records of micro-batches below it cannot be sent any more */
    uint64_t rows, redone;       /* of all lives of the run; of this life, made again and not sent */
    /* Restored from the checkpoint: */
    uint64_t restored_next;    /* number of its next micro-batch */
    struct progress_part told; /* the last part that was known to be out */
    bool has_told;
    struct remake_saved saved;
};

/* Connects and begins, for a new run or a sink that is new in the run. Returns false after a diagnostic. */
bool exact_open(struct exact *exact, struct sink_context *context, const struct sender_options *options,
                uint64_t budget_bytes);
/* Fences all other senders of the run in `options`; keeps no connection. Returns false after a diagnostic. */
bool exact_fence(struct sink_context *context, const struct sender_options *options);
/* As exact_open, for a resumed sink: exact_restore_record takes its state, then exact_restored connects,
 * compares with what is out, and begins. */
void exact_prepare(struct exact *exact, struct sink_context *context, const struct sender_options *options,
                   uint64_t budget_bytes);
bool exact_restore_record(struct exact *exact, struct str record);
bool exact_restored(struct exact *exact, struct snapshot_reader *reader);

/* On the sink's lane. Returns false with context->error set. */
bool exact_write(struct exact *exact, const struct kafka_record *record);
/* Call after the rows of a batch: checks the outbox's budget. */
void exact_account(struct exact *exact);
/* As sink_kind.snapshot. */
bool exact_snapshot(struct exact *exact, struct snapshot_writer *writer);
/* Any thread. Returns false if the sink cannot go on; error: says why, in at most `room` bytes. */
bool exact_is_well(struct exact *exact, char *error, size_t room);
/* As sink_kind.committed: lets the sender send the epochs up to `epoch`. Returns false with context->error
 * set. */
bool exact_committed(struct exact *exact, uint64_t epoch);
bool exact_drain(struct exact *exact);
void exact_describe(struct exact *exact, struct byte_buffer *out);
/* Any thread. */
void exact_report(struct exact *exact, struct report *report);
/* Accepts a zeroed exact. */
void exact_close(struct exact *exact);

#endif

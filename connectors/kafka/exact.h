/* Delivery `exactly_once` of the sink: the partition of each row, its shard (shard.h), and the shards' state in
 * checkpoints. The number of shards is fixed when a run begins; a topic that gets more partitions then has more
 * of them in a shard. */
#ifndef LEAT_CONNECTORS_KAFKA_EXACT_H
#define LEAT_CONNECTORS_KAFKA_EXACT_H

#include "connectors/kafka/partitioner.h"
#include "connectors/kafka/shard.h"
#include "core/connector.h"

struct exact_options {
    struct sender_options sender;
    uint64_t budget_bytes;       /* of all shards' outboxes together */
    int32_t partitions;          /* of the topic, at the start */
    int32_t progress_partitions; /* of the progress topic */
};

struct exact {
    struct sink_context *context;
    struct exact_options options;
    struct outbox_room room; /* its mutex guards context->error, too */
    struct shard *shards;    /* [count]; NULL: not known yet, or closed */
    uint32_t count;
    bool has_room;
    struct order_notes order;  /* used where the context's notes_order is set */
    _Atomic int64_t said_us;   /* when one of the shards last told the user about waiting */
    _Atomic bool has_differed; /* rows made again differ from those that were sent */
    struct layouts layouts;    /* of the micro-batches from the checkpoint on */
    struct layout layout;      /* of `micro_batch` */
    uint64_t micro_batch;      /* of the last row; UINT64_MAX: none since the barrier */
    uint64_t out_next;         /* nothing of this micro-batch and later ones was out at the start */
    uint64_t rows, redone;     /* of all lives of the run; of this life, made again and not sent */
    /* Used while the checkpoint's records are read: */
    uint64_t restored_next; /* number of its next micro-batch */
    uint32_t restoring;     /* the shard that the last record of an epoch was of */
};

/* Connects and begins, for a new run or a sink that is new in the run. Returns false after a diagnostic. */
bool exact_open(struct exact *exact, struct sink_context *context, const struct exact_options *options);
/* Fences all other senders of the run in `options`, of all its shards; keeps no connection. Returns false after
 * a diagnostic. */
bool exact_fence(struct sink_context *context, const struct exact_options *options);
/* exact_order.c. exact_begin_order: adds what the checkpoint directory has of the order log to what the progress topic has; call
 * after the progress is read, before senders start. exact_give_order: gives the engine the segments that the progress topic has.
 * False after a diagnostic. */
void exact_begin_order(struct exact *exact);
bool exact_give_order(struct exact *exact);
/* As exact_open, for a resumed sink: exact_restore_record takes its state, then exact_restored connects,
 * compares with what is out, and begins. */
void exact_prepare(struct exact *exact, struct sink_context *context, const struct exact_options *options);
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
/* As sink_kind.committed: lets the senders send the epochs up to `epoch`. order: that epoch's segment of the order log, or
 * empty. Returns false with context->error set. */
bool exact_committed(struct exact *exact, uint64_t epoch, struct str order);
/* As sink_kind.stored. */
void exact_stored(struct exact *exact, uint64_t epoch);
bool exact_drain(struct exact *exact);
void exact_describe(struct exact *exact, struct byte_buffer *out);
/* Any thread. */
void exact_report(struct exact *exact, struct report *report);
/* Accepts a zeroed exact. */
void exact_close(struct exact *exact);

/* --- Between exact.c and exact_layouts.c: how many partitions the topic has, by micro-batch --- */

/* At the barrier before micro-batch `next`, or at a start before it: if the topic has another count of partitions,
 * rows from `next` on go by that; but not before all rows that are out already are made again. The sink's lane;
 * control thread at a start. */
void exact_take_partitions(struct exact *exact, uint64_t next);
/* At a start: adds the layouts by which rows behind the checkpoint were sent. Control thread. */
void exact_take_layouts(struct exact *exact);
/* At a start: whether the topic has the partitions of all rows that must still go by the layout of before: those
 * in the outboxes, and those from micro-batch `next` on, up to what is out in any shard. A topic that was deleted,
 * and created again with fewer partitions, may not. Returns false after a diagnostic. Control thread. */
LEAT_CHECKED bool exact_has_partitions(struct exact *exact, uint64_t next);

#endif

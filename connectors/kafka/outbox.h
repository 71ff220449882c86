/* The outbox of a sink that sends exactly once: the records of epochs that are not known to be out.
 *
 * Rows are appended to the open epoch. The barrier closes it: its records are those of the numbers
 * [first, next), first being the number of its first record. A base holds every epoch that is not known to be
 * out, a delta those that no published checkpoint has yet, and which of the earlier ones are held still:
 * while brokers are away an epoch is written once for each base, not for each checkpoint. Once a checkpoint
 * is published, what it holds is committed, and the sender takes it in order, whole epochs or parts of them,
 * and says when they are out.
 *
 * Records of closed epochs do not change. Who appends: the sink's lane. Who takes: the sender. Everything
 * else is guarded by one mutex, which is held for moments only. */
#ifndef LEAT_CONNECTORS_KAFKA_OUTBOX_H
#define LEAT_CONNECTORS_KAFKA_OUTBOX_H

#include "connectors/kafka/chunk.h"
#include "connectors/kafka/progress.h"
#include "connectors/kafka/record.h"
#include "core/snapshot.h"

#include <pthread.h>
#include <stdatomic.h>

struct outbox_epoch {
    struct outbox_epoch *following;
    uint64_t epoch;          /* of the checkpoint that closed it */
    uint64_t first, next;    /* numbers */
    uint64_t base;           /* records of number `first` before the first of it: they were out */
    uint64_t records, bytes; /* bytes: as they count for the budget */
    struct chunk *chunks, *last;
    uint32_t holds;                    /* snapshots that read it */
    bool is_out;                       /* only a snapshot still holds it */
    bool is_saved;                     /* a published checkpoint of this process has it */
    uint64_t sent_records, sent_bytes; /* out so far */
    struct chunk_cursor position;      /* behind them */
};

struct outbox {
    pthread_mutex_t mutex;
    pthread_cond_t condition; /* something was committed, or is out, or the sender is told something */
    struct outbox_epoch open; /* of the lane */
    /* Guarded by the mutex. */
    struct outbox_epoch *closed, *closed_last;
    uint64_t open_bytes, closed_bytes, held_records; /* held: closed, and not out */
    uint64_t out_records, out_bytes;                 /* since it was opened */
    uint64_t committed;                              /* epoch */
    uint64_t budget_bytes;
    bool has_failed;
    /* The sink's: raised where the budget is reached, lowered below its half. */
    _Atomic bool *is_full;
    void (*wake)(void *engine);
    void *engine;
};

void outbox_init(struct outbox *outbox, uint64_t budget_bytes, _Atomic bool *is_full,
                 void (*wake)(void *engine), void *engine);
/* Nobody holds anything any more. */
void outbox_free(struct outbox *outbox);

/* --- The lane --- */

/* A record of that number, of which it is the index-th, from 0. */
void outbox_append(struct outbox *outbox, uint64_t number, uint64_t index, const struct kafka_record *record);
/* After a batch was appended: whether the budget is reached is looked at. */
void outbox_account(struct outbox *outbox);
/* The barrier behind number next - 1: the epoch is closed, another is open. */
void outbox_close(struct outbox *outbox, uint64_t epoch, uint64_t next);
/* Writes epochs that are not out, in the background; false: the disk refused. */
bool outbox_snapshot(struct outbox *outbox, struct snapshot_writer *writer);

/* Restoring. Each record that is the outbox's (its type says so) in order; false: it is none. */
enum {
    OUTBOX_RECORD_HELD = 'H', /* of a delta, before its epochs */
    OUTBOX_RECORD_EPOCH = 'E',
    OUTBOX_RECORD_CHUNK = 'C',
    OUTBOX_RECORD_MORE = 'c',
};
bool outbox_restore(struct outbox *outbox, struct str record);
/* Forgets what was restored. */
void outbox_clear(struct outbox *outbox);
/* After the last: whether epochs are whole and in order. They count as committed. */
bool outbox_restored(struct outbox *outbox);

/* --- Any thread --- */

/* Epochs up to this one are in a published checkpoint. */
void outbox_committed(struct outbox *outbox, uint64_t epoch);
struct outbox_figures {
    uint64_t out_records, out_bytes; /* in this life */
    uint64_t epochs, records;        /* closed, and not out */
    uint64_t bytes;                  /* of these and of the open epoch, as they count for the budget */
};
struct outbox_figures outbox_figures(struct outbox *outbox);
/* No epoch that is committed is left. */
bool outbox_is_sent(struct outbox *outbox);
/* The sender gave up: nobody waits for room. */
void outbox_fail(struct outbox *outbox);

/* --- The sender --- */

/* A part of an epoch, to be sent in one transaction. */
struct outbox_part {
    struct outbox_epoch *epoch;
    struct chunk_cursor begin, end;
    uint64_t from, to; /* its records; `base` is not in them */
    uint64_t bytes;
};

/* What is committed and comes next: whole epochs together, or a part of a large one, of about `bytes`.
 * Without waiting. */
uint32_t outbox_take(struct outbox *outbox, uint64_t bytes, struct outbox_part *parts, uint32_t room);
/* Waits until there is something to take, or somebody told the condition, or `wait_us` are over. */
void outbox_wait(struct outbox *outbox, int64_t wait_us);
/* These are out. */
void outbox_sent(struct outbox *outbox, const struct outbox_part *parts, uint32_t count);
/* What the progress topic says is out, is: in order up to that part. NULL, or what does not fit. */
const char *outbox_skip(struct outbox *outbox, const struct progress_part *last);
/* What the progress topic is told of a part. */
struct progress_part outbox_part_progress(const struct outbox_part *part);

#endif

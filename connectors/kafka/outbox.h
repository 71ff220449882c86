/* The outbox of a sink that delivers exactly once: the records of epochs that are not known to be out. "Out"
 * means: sent in a committed transaction.
 *
 * Rows are appended to the open epoch. The barrier closes the epoch: its records are those of the
 * micro-batches [first, next), first being the number of the micro-batch of its first record. A base
 * checkpoint holds every epoch that is not known to be out; a delta holds the epochs that no published
 * checkpoint has yet, and says from which epoch on earlier ones are still held. So while brokers are away an
 * epoch is written once for each base, not for each checkpoint. When a checkpoint is published, the epochs in
 * it are committed: the sender takes them in order, whole or in parts, and reports when they are out.
 *
 * Records of closed epochs do not change. The sink's lane appends, the sender takes. All other state is
 * guarded by one mutex, which is held for moments only. */
#ifndef LEAT_CONNECTORS_KAFKA_OUTBOX_H
#define LEAT_CONNECTORS_KAFKA_OUTBOX_H

#include "connectors/kafka/chunk.h"
#include "connectors/kafka/progress.h"
#include "connectors/kafka/record.h"
#include "core/snapshot.h"

#include <pthread.h>
#include <stdatomic.h>

/* The memory that the outboxes of a sink's shards share. */
struct outbox_room {
    pthread_mutex_t mutex; /* taken under an outbox's mutex */
    uint64_t used_bytes, budget_bytes;
    bool has_failed;
    /* The sink context's flag: set when the budget is reached, cleared below half of it. */
    _Atomic bool *is_full;
    void (*wake)(void *engine);
    void *engine;
};

struct outbox_epoch {
    struct outbox_epoch *following;
    uint64_t epoch;          /* of the checkpoint that closed it */
    uint64_t first, next;    /* numbers of micro-batches: the epoch is [first, next) */
    uint64_t base;           /* records of micro-batch `first` that precede the epoch's first record; they
                                were out */
    uint64_t records, bytes; /* bytes: as counted for the budget */
    struct layout layout;    /* of the partitions, behind the epoch's last record */
    struct chunk *chunks, *last;
    uint32_t holds;                    /* snapshots that still read the epoch */
    bool is_out;                       /* the epoch is kept only for a snapshot */
    bool is_saved;                     /* a published checkpoint of this process has it */
    uint64_t sent_records, sent_bytes; /* of this epoch, out so far */
    struct chunk_cursor position;      /* where the next record to send is */
};

struct outbox {
    pthread_mutex_t mutex;
    pthread_cond_t condition; /* signalled when epochs are committed or out, and when the sender fails or must
                                 stop */
    struct outbox_epoch open; /* used by the sink's lane only */
    /* Guarded by the mutex. */
    struct outbox_epoch *closed, *closed_last;
    uint64_t open_bytes, closed_bytes, held_records; /* bytes, records of closed epochs that are not out */
    uint64_t out_records, out_bytes;                 /* since the outbox was opened */
    uint64_t committed;                              /* epochs up to this one are in a published checkpoint */
    uint64_t counted_bytes;                          /* what the room counts as this outbox's */
    struct outbox_room *room;
    uint8_t shard; /* written into snapshots, which hold the outboxes of all shards */
};

void outbox_room_init(struct outbox_room *room, uint64_t budget_bytes, _Atomic bool *is_full,
                      void (*wake)(void *engine), void *engine);
void outbox_room_free(struct outbox_room *room);
/* room: must outlive the outbox. */
void outbox_init(struct outbox *outbox, struct outbox_room *room, uint8_t shard);
/* Call when no snapshot and no sender uses the outbox any more. */
void outbox_free(struct outbox *outbox);

/* --- The lane --- */

/* Appends a record. micro_batch, index: it is the index-th record, from 0, of that micro-batch. */
void outbox_append(struct outbox *outbox, uint64_t micro_batch, uint64_t index,
                   const struct kafka_record *record);
/* Call after a batch was appended: checks whether the budget is reached. Cheap where nothing was appended. */
void outbox_account(struct outbox *outbox);
/* Call at the barrier behind micro-batch next - 1: closes the open epoch and begins another. layout: of
 * micro-batch next - 1. */
void outbox_close(struct outbox *outbox, uint64_t epoch, uint64_t next, struct layout layout);
/* Writes epochs that are not out, in the background. Returns false if the disk failed. */
bool outbox_snapshot(struct outbox *outbox, struct snapshot_writer *writer);

/* Restoring: call outbox_restore for each snapshot record of the types below, in order. Returns false if the
 * record is not valid. */
enum {
    OUTBOX_RECORD_HELD = 'H',  /* in a delta, before its epochs; its second byte is the shard */
    OUTBOX_RECORD_EPOCH = 'E', /* its second byte is the shard; its chunks follow it */
    OUTBOX_RECORD_CHUNK = 'C',
    OUTBOX_RECORD_MORE = 'c',
};
bool outbox_restore(struct outbox *outbox, struct str record);
/* Forgets all restored epochs. */
void outbox_clear(struct outbox *outbox);
/* Call after the last record. Returns whether the epochs are whole and in order. is_committed: they are sent at once, without
 * outbox_committed. */
bool outbox_restored(struct outbox *outbox, bool is_committed);

/* --- Any thread --- */

/* Says that epochs up to `epoch` are in a published checkpoint. */
void outbox_committed(struct outbox *outbox, uint64_t epoch);
struct outbox_figures {
    uint64_t out_records, out_bytes; /* since the outbox was opened */
    uint64_t epochs, records;        /* closed and not out */
    uint64_t bytes;                  /* of these epochs and the open one, as counted for the budget */
};
struct outbox_figures outbox_figures(struct outbox *outbox);
/* Whether all committed epochs are out. */
bool outbox_is_sent(struct outbox *outbox);
/* Says that the sender gave up: nobody waits for room any more. */
void outbox_fail(struct outbox *outbox);

/* --- The sender --- */

/* A part of an epoch, to be sent in one transaction. */
struct outbox_part {
    struct outbox_epoch *epoch;
    struct chunk_cursor begin, end;
    uint64_t from, to; /* the epoch's records [from, to), without the `base` records */
    uint64_t bytes;
};

/* Takes the next committed records, about `bytes`: whole epochs, or a part of a large one. Returns the count
 * of parts, at most `room`. Does not wait. */
uint32_t outbox_take(struct outbox *outbox, uint64_t bytes, struct outbox_part *parts, uint32_t room);
/* Waits until there is something to take, the condition is signalled, or wait_us have passed. */
void outbox_wait(struct outbox *outbox, int64_t wait_us);
/* Says that these parts are out. */
void outbox_sent(struct outbox *outbox, const struct outbox_part *parts, uint32_t count);
/* Marks as out what the progress topic says is out, up to the part `last`. Returns NULL, or why `last` does
 * not fit the outbox. */
const char *outbox_skip(struct outbox *outbox, const struct progress_part *last);
/* The record for the progress topic that describes the part. */
struct progress_part outbox_part_progress(const struct outbox_part *part);

#endif

/* Inside state/: what the files of the time queue share.
 *
 * Records are appended to blocks. Once written, a block's bytes never change, and each block has a reference
 * count, so that a checkpoint's writer can read blocks while the lane goes on. A bucket of time is a list of
 * blocks; the records of the open bucket, which is the earliest, are in a heap.
 *
 * The database has a bucket's records in streams, in the order in which records leave: one for each range of key groups
 * of a queue that ever wrote to the bucket. Mostly there is one stream that this queue reads; after a start with other
 * key groups there may be several, and a queue reads those that may have records of its groups. A stream is read in pieces,
 * pack after pack, in the order of the packs' first records. A pack that was not read begins no earlier than
 * the last pack that was read; so the next piece is read before the heap's first record is later than the
 * beginning of that last pack. Hence a record that leaves the heap is the first of all. */
#ifndef LEAT_STATE_TIME_QUEUE_H
#define LEAT_STATE_TIME_QUEUE_H

#include "core/buffer.h"
#include "state/store.h"

enum {
    QUEUE_POSITION_BYTES = 8 + 8 + 8 + 8, /* place of a pack in its stream */
    QUEUE_KEY_BYTES =
        3 + 8 + 2 + 2 + QUEUE_POSITION_BYTES /* of a pack in the database (time_queue_store.c) */
};

/* Where a visit of packs that goes piece by piece goes on; length 0: at the beginning, or it is through. */
struct queue_place {
    char key[QUEUE_KEY_BYTES + 1];
    size_t length;
};

struct queue_record {
    int64_t time_us;
    uint64_t hash;
    uint64_t sequence;
    struct key key;
    uint32_t length;
    uint32_t stay; /* of the key group (core/placement.h) */
    char data[];
};

struct queue_block {
    struct queue_block *next, *previous;
    uint32_t references; /* atomic */
    uint32_t capacity, length;
    uint32_t clean;  /* atomic: this many bytes at the beginning are in a published checkpoint */
    uint32_t alive;  /* in the open bucket: records that were not popped yet */
    bool is_stored;  /* all records of the block are in the database */
    uint64_t newest; /* the highest sequence of its records */
    _Alignas(8) char data[];
};

struct queue_bucket {
    int64_t index; /* floor(time / bucket_us) */
    struct queue_block *first, *last;
    uint64_t records;     /* in memory and in the database; an estimate after a restore */
    bool is_stored;       /* the database has records of this bucket */
    uint32_t block_bytes; /* capacity of the first block; 0: the usual */
};

/* A stream of the open bucket, and how far it was read. */
struct queue_stream {
    uint32_t first, limit; /* the range of key groups of the queue that wrote it */
    int64_t time_us;       /* of the first record of the last pack that was read */
    uint64_t hash, sequence;
    char position[QUEUE_POSITION_BYTES]; /* place of that pack */
    bool has_more;
};

struct queue_item {
    int64_t time_us;
    uint64_t hash;
    struct queue_record *record;
    struct queue_block *block;
};

struct time_queue {
    struct time_queue_options options;
    struct store_user user;
    /* In buckets_room, by rising index, behind the slots of buckets that were opened. */
    struct queue_bucket *buckets;
    uint32_t buckets_count;
    struct queue_bucket *buckets_room;
    uint32_t buckets_capacity; /* of buckets_room */
    struct queue_item *heap;
    uint32_t heap_count, heap_capacity;
    struct queue_bucket open; /* the open bucket; records pushed with a time before its end join its blocks */
    int64_t open_until;       /* buckets with a lower index are open or gone */
    struct queue_stream *streams;
    uint32_t streams_count, streams_capacity;
    struct queue_block *popped_block; /* of the last record that was popped; released at the next call */
    /* Identity of the last record that was popped, to recognize its second copy. */
    int64_t last_time;
    uint64_t last_hash, last_sequence;
    bool has_last;
    int64_t gone_before; /* records with an earlier time have left */
    uint64_t sequence;   /* of the next record */
    uint64_t epoch;
    size_t bytes;
    size_t loaded_bytes; /* part of `bytes`: blocks read from the database */
    size_t spill_bytes;  /* queue_spill is tried above this */
    int64_t pressure;
    rocksdb_writebatch_t *batch;
    struct byte_buffer pack;            /* the pack that is being filled */
    const struct queue_record **sorted; /* SPILL_RECORDS records to be written */
    /* Moves of key groups: while a base was given and not the rest, nothing is spilled. base_round: the round that is given, or was
     * last; 0: none. It has the records with sequences from base_from on and below base_until. base_open: open_until when a
     * pass over the buckets began. arrived: records of a base that was taken, in buckets that become the queue's own when their
     * groups do; NULL: none. */
    uint32_t base_round;
    uint64_t base_from, base_until;
    int64_t base_open;
    /* Of the base: how far packs of the database were given, and the bucket whose records in memory were given ahead of them. */
    struct queue_place base_place;
    int64_t base_bucket;
    struct time_queue *arrived;
    uint32_t group_first, group_limit; /* the range of options.groups: packs of others are not read */
};

static inline size_t queue_record_bytes(size_t length)
{
    return (sizeof(struct queue_record) + length + 7) & ~(size_t)7;
}

/* Whether the record is of a key group that the queue has, in its present stay. */
static inline bool queue_has(const struct time_queue *queue, const struct queue_record *record)
{
    const struct group_set *groups = queue->options.groups;
    return groups == NULL || group_set_has_stay(groups, key_group(record->hash), record->stay);
}

/* Whether the stream may have a record that leaves before `before` and before the heap's first record. */
static inline bool queue_is_due(const struct time_queue *queue, const struct queue_stream *stream,
                                int64_t before)
{
    if (!stream->has_more || stream->time_us >= before || queue->heap_count == 0)
        return stream->has_more && stream->time_us < before;
    const struct queue_item *first = &queue->heap[0];
    if (first->time_us != stream->time_us)
        return first->time_us > stream->time_us;
    if (first->hash != stream->hash)
        return first->hash > stream->hash;
    return first->record->sequence > stream->sequence;
}

int64_t queue_bucket_index(const struct time_queue *queue, int64_t time_us);
/* The bucket of that index, added where it is missing. */
struct queue_bucket *queue_bucket(struct time_queue *queue, int64_t index);
/* Appends a record to the bucket and returns it; *block: its block. is_stored: it is in the database. */
struct queue_record *queue_append(struct time_queue *queue, struct queue_bucket *bucket,
                                  const struct queue_record *head, const char *data, bool is_stored,
                                  struct queue_block **block);
/* Sets group_first and group_limit. */
void queue_set_range(struct time_queue *queue);
void queue_block_release(struct queue_block *block);
/* Takes a block out of the bucket and gives its reference back. */
void queue_block_drop(struct time_queue *queue, struct queue_bucket *bucket, struct queue_block *block);
/* Adds a record with its sequence and stay, and spills where that is due. */
void queue_add(struct time_queue *queue, const struct queue_record *head, const char *data);
/* The same for all blocks of the bucket. */
void queue_drop_blocks(struct time_queue *queue, struct queue_bucket *bucket);
/* Puts the bucket's records into the heap, and its blocks before those of the open bucket. */
void queue_enter(struct time_queue *queue, const struct queue_bucket *bucket);

/* The head of the queue's snapshot records; behind it, of QUEUE_RECORD, the record. */
enum queue_record_type { QUEUE_SEQUENCE, QUEUE_RECORD };

struct __attribute__((packed)) queue_snapshot_head {
    uint8_t kind;
    uint8_t type;
    uint8_t spare[6];
    uint64_t sequence; /* QUEUE_SEQUENCE: of the next record */
};

/* time_queue_store.c: visits what a store, the queue's own or another, has of the queue's records in these buckets, of any key
 * groups, in no order. Some may have left the queue, and some may be in memory, too, or twice in the store. place: visits a piece
 * of 256 KiB at most, from there on, and says where the next one begins; NULL: visits all. False: the store failed. */
typedef void queue_visit(void *argument, int64_t bucket, const struct queue_record *head, const char *data);
LEAT_CHECKED bool queue_visit_stored(struct time_queue *queue, struct state_store *store,
                                     int64_t first_bucket, int64_t last_bucket, struct queue_place *place,
                                     queue_visit *visit, void *argument);
/* Puts records of a bucket, which are not changed until the call returns, into the database. False: the store failed. */
LEAT_CHECKED bool queue_put(struct time_queue *queue, int64_t bucket, const struct queue_record **records,
                            uint32_t count);

/* time_queue_store.c: brings the queue below its budget, if the database may be written to now. */
void queue_spill(struct time_queue *queue);
/* Finds the streams of a bucket in the database, and reads the first piece of each into the bucket. */
void queue_load(struct time_queue *queue, struct queue_bucket *bucket);
/* Reads the next piece of each stream that queue_is_due says is due. */
void queue_refill(struct time_queue *queue, int64_t before);

#endif

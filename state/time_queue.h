/* Inside state/: what the files of the time queue share.
 *
 * Records are appended to blocks, which never change before their end and are counted by references, so that
 * a checkpoint's writer can read them while the lane goes on. A bucket of time is a list of blocks; the
 * bucket that has come up is opened: its records go into a heap.
 *
 * What the database has of a bucket lies there in streams: one for each lane that ever wrote to it, in the
 * order in which records leave. Mostly there is one; after a start at another number of lanes there may be
 * several, and a lane reads those that may have records of its key groups. A stream is read in pieces, pack
 * after pack, by their first records. A pack that was not read begins no earlier than the last one that was;
 * when the heap's first record is beyond that one's beginning, the next piece is read. So whatever leaves the
 * heap is first of all. */
#ifndef LEAT_STATE_TIME_QUEUE_H
#define LEAT_STATE_TIME_QUEUE_H

#include "core/buffer.h"
#include "state/store.h"

enum { QUEUE_POSITION_BYTES = 8 + 8 + 8 + 8 }; /* of a pack, within its stream */

struct queue_record {
    int64_t time_us;
    uint64_t hash;
    uint64_t sequence;
    struct key key;
    uint32_t length;
    uint32_t spare;
    char data[];
};

struct queue_block {
    struct queue_block *next, *previous;
    uint32_t references; /* atomic */
    uint32_t capacity, length;
    uint32_t clean; /* atomic: bytes that are in a published checkpoint */
    uint32_t alive; /* records that were not popped yet, once the bucket is open */
    bool is_stored; /* all of it is in the database */
    _Alignas(8) char data[];
};

struct queue_bucket {
    int64_t index; /* of the time: floor(time / bucket_us) */
    struct queue_block *first, *last;
    uint64_t records;     /* wherever they are; about, after a restore */
    bool is_stored;       /* the database has records of it */
    uint32_t block_bytes; /* of the first block; 0: the usual */
};

/* A stream of the open bucket, and how far it was read. */
struct queue_stream {
    uint32_t first, limit; /* the key groups of the lane that wrote it */
    int64_t time_us;       /* of the first record of the last pack that was read */
    uint64_t hash, sequence;
    char position[QUEUE_POSITION_BYTES]; /* of that pack */
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
    struct queue_bucket *buckets; /* by rising index; in buckets_room, behind those that were opened */
    uint32_t buckets_count;
    struct queue_bucket *buckets_room;
    uint32_t buckets_capacity; /* of buckets_room */
    struct queue_item *heap;
    uint32_t heap_count, heap_capacity;
    struct queue_bucket open; /* blocks of the open bucket and of late pushes */
    int64_t open_until;       /* index: buckets below are open or gone */
    struct queue_stream *streams;
    uint32_t streams_count, streams_capacity;
    struct queue_block *popped_block; /* of the last record that left; given back at the next call */
    int64_t last_time;                /* identity of that record, to leave out a second copy */
    uint64_t last_hash, last_sequence;
    bool has_last;
    int64_t gone_before; /* records before it have left */
    uint64_t sequence;   /* the next */
    uint64_t epoch;
    size_t bytes;
    size_t loaded_bytes; /* of these: of blocks read from the database */
    size_t spill_bytes;  /* tries to spill above this */
    int64_t pressure;
    rocksdb_writebatch_t *batch;
    struct byte_buffer pack;            /* being filled */
    const struct queue_record **sorted; /* of SPILL_RECORDS, for what is written */
    uint32_t group_first, group_limit;  /* of this lane, for reading the database */
};

static inline size_t queue_record_bytes(size_t length)
{
    return (sizeof(struct queue_record) + length + 7) & ~(size_t)7;
}

/* Whether the stream may have a record that leaves before the heap's first, and before `before`. */
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
/* The bucket of that index, made where it is missing. */
struct queue_bucket *queue_bucket(struct time_queue *queue, int64_t index);
/* Appends a record to the bucket and returns it; *block: where it went. is_stored: it came from the database.
 */
struct queue_record *queue_append(struct time_queue *queue, struct queue_bucket *bucket,
                                  const struct queue_record *head, const char *data, bool is_stored,
                                  struct queue_block **block);
void queue_block_release(struct queue_block *block);
/* Takes a block out of the bucket and gives it back. */
void queue_block_drop(struct time_queue *queue, struct queue_bucket *bucket, struct queue_block *block);
void queue_drop_blocks(struct time_queue *queue, struct queue_bucket *bucket);
/* The bucket's records go into the heap, its blocks to those of the open bucket. */
void queue_enter(struct time_queue *queue, const struct queue_bucket *bucket);

/* time_queue_store.c */
void queue_spill(struct time_queue *queue);
/* Finds the bucket's streams, and reads the first piece of each into it. */
void queue_load(struct time_queue *queue, struct queue_bucket *bucket);
/* Reads the pieces that are due. */
void queue_refill(struct time_queue *queue, int64_t before);

#endif

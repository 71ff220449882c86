/* One shard of a sink that delivers exactly once: outbox, sender, and the comparison of rows that are made again
 * after a fall back. A shard has the topic's partitions p with p mod (count of shards) == its number. It has a
 * transactional id and a partition of the progress topic of its own, so shards are out up to different
 * micro-batches; each compares up to its own. Private to connectors/kafka. */
#ifndef LEAT_CONNECTORS_KAFKA_SHARD_H
#define LEAT_CONNECTORS_KAFKA_SHARD_H

#include "connectors/kafka/outbox.h"
#include "connectors/kafka/remake.h"
#include "connectors/kafka/sender.h"

enum { SHARDS_MAX = 8 };

/* One shard holds the partitions of many: as many shards as partitions, and SHARDS_MAX at most. */
static inline uint32_t shards_of(int32_t partitions)
{
    return (uint32_t)MIN(MAX(partitions, 1), (int32_t)SHARDS_MAX);
}

struct shard {
    struct sender_options options; /* options.shard: the shard's number */
    struct outbox outbox;
    struct sender sender;
    struct remake remake;
    uint64_t micro_batch, index; /* the last record was the index-th one of `micro_batch` in this shard */
    uint64_t floor;              /* records of micro-batches below it cannot be sent any more */
    uint64_t looked;             /* shard_look: the micro-batch behind what is out */
    uint64_t looked_order;       /* shard_look: the micro-batch behind the order log that is noted */
    /* Restored from the checkpoint: */
    struct progress_part told; /* the last part that was known to be out */
    bool has_told;
    struct remake_saved saved;
};

/* Makes shard `number`, without connecting. */
void shard_init(struct shard *shard, uint32_t number, const struct sender_options *options,
                struct outbox_room *room);

/* Steps that wait for brokers; return false with shard->sender.error set. Each shard is one thread's at a time. */
bool shard_look(struct shard *shard);  /* sets `looked` and `looked_order`; see sender_look */
bool shard_fence(struct shard *shard); /* see sender_fence */
bool shard_open(struct shard *shard);  /* see sender_open */
bool shard_close(struct shard *shard); /* stops the sender, and frees the shard; true */
/* Runs a step of all shards at once, on threads of its own, and waits for all. Returns NULL, or the first shard
 * whose step failed. Control thread. */
struct shard *shards_each(struct shard *shards, uint32_t count, bool (*step)(struct shard *shard));

/* After shard_open: checks that the progress topic has at least the notes that the checkpoint knew, and marks in the
 * outbox what is out. Returns NULL, or why the shard cannot go on. Control thread. */
const char *shard_take_progress(struct shard *shard);
/* After shard_take_progress: begins the comparison from micro-batch `next` on. Returns NULL, or why not. */
const char *shard_begin_remake(struct shard *shard, uint64_t next);
/* The micro-batch behind the last one of which records are out; 0: none is out. Before sender_start. */
uint64_t shard_out_next(const struct shard *shard);

/* Appends a record, or compares it where it is out. On the sink's lane. */
enum remake_verdict shard_write(struct shard *shard, uint64_t micro_batch, const struct kafka_record *record);

#endif

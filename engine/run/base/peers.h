/* The workers of a cluster (run_options.peers). A run that is alone is the only worker, and the leader.
 *
 * Keyed stages have as many instances on each worker as it has lanes; they are numbered over all workers. A stage with one
 * instance is at home on one worker. Stage 0 runs on each worker, with the rows of its own partitions.
 *
 * A message is words (words.h): its tag, then what belongs to the tag; the rows of PEER_ROWS follow as bytes. Any thread, unless a comment says otherwise. */
#ifndef LEAT_RUN_BASE_PEERS_H
#define LEAT_RUN_BASE_PEERS_H

#include "run/base/base.h"
#include "run/base/words.h"

enum peer_message {
    PEER_ROWS, /* to any worker: a batch of an exchange (lanes/remote.c) */
    PEER_DONE, /* to all: the sender's instances of a stage have run a micro-batch */
    PEER_STOP, /* to the leader: the job is to stop */
    PEER_HOLD, /* to all: what holds back the sources at the sender (sequencer/peers_hold.c) */
    PEER_ANSWER, /* to the leader: whether an operator wants more, behind the end of all sources (sequencer/peers_ended.c) */
    PEER_FIGURES, /* to the leader: counters and reports of the sender's part (base/peer_figures.h) */
    /* Key groups that move (lanes/move.c, base/placements.h) */
    PEER_PIECE, /* to any worker: records of key groups for one of its instances */
    PEER_GIVEN, /* to all: the sender's instances of a stage have given all of a round, or of a change */
    PEER_ROOM,  /* to who has given: the sender has taken so many bytes */
    PEER_TAKEN, /* to the leader: the sender's instances have taken a round */
    PEER_ROUND, /* of the leader: a round begins */
    PEER_LOAD,  /* to the leader: what the sender has measured of the load (base/loads.h) */
    /* Checkpoints (checkpoints/many.c) */
    PEER_ASK,   /* to the leader: take one soon */
    PEER_BEGIN, /* of the leader: begin a checkpoint */
    PEER_READY, /* to the leader: the sender has begun it, or cannot */
    PEER_PART,  /* to the leader: the sender has written its part, or could not */
    PEER_HEAD,  /* of the leader: what became of the checkpoint */
    /* Micro-batches */
    PEER_OFFERS, /* to the leader: what partitions offer (sequencer/peers.c) */
    PEER_FOUND, /* to the leader: how many partitions of a source the sender has found (sequencer/peers_found.c) */
    PEER_DIFFERS, /* to the leader: records are not those of the log that is replayed (sequencer/peers_replay.c) */
    PEER_NUMBER,    /* of the leader: what a micro-batch holds */
    PEER_PARTITION, /* of the leader: a partition that the log names, or that was found */
    PEER_COMPUTE,   /* of the leader: the log has ended; micro-batches follow from offers */
    PEER_CUT,       /* to the leader: what the sender's rows of a micro-batch show */
    PEER_FORMED, /* of the leader: watermarks of a micro-batch, and which operators are done; stages may run it now */
    PEER_TAGS
};

static inline uint32_t peers_count(const struct run *run)
{
    return run->options.peers == NULL ? 1 : run->options.peers->count;
}

static inline uint32_t peers_self(const struct run *run)
{
    return run->options.peers == NULL ? 0 : run->options.peers->self;
}

static inline bool peers_is_leader(const struct run *run)
{
    return run->options.peers == NULL || run->options.peers->self == run->options.peers->leader;
}

/* Number of instances of a keyed stage, over all workers, and the number of this worker's first one. */
static inline uint32_t peers_instances(const struct run *run)
{
    return peers_count(run) * run->lanes_count;
}

static inline uint32_t peers_first_instance(const struct run *run)
{
    return peers_self(run) * run->lanes_count;
}

/* Whether that instance of a keyed stage is one of this worker's. */
static inline bool peers_has_instance(const struct run *run, uint32_t instance)
{
    return instance - peers_first_instance(run) < run->lanes_count;
}

/* The worker that has the one instance of a single stage. */
static inline uint32_t peers_home(const struct run *run, uint32_t stage)
{
    const struct run_peers *peers = run->options.peers;
    return peers != NULL && peers->homes != NULL ? peers->homes[stage] : stage % peers_count(run);
}

/* Whether the worker has instances of the stage. */
static inline bool peers_has_stage(const struct run *run, uint32_t worker, uint32_t stage)
{
    return stage == 0 || run->plan->stages[stage].tag != STAGE_SINGLE || peers_home(run, stage) == worker;
}

/* Control thread, while the run is built. peers_refuse: several workers cannot run a job with `what`: adds a diagnostic, and returns
 * false. */
void peers_init(struct run *run);
bool peers_refuse(struct run *run, const char *what);
void peers_free(struct run *run);

/* Begins a message; the caller adds words. */
void peers_begin(struct byte_buffer *message, enum peer_message tag);
/* Sends it to a worker that is not this one, or to all others; what a link has no room for waits (outbox.h). */
void peers_send(const struct run *run, uint32_t worker, const struct byte_buffer *message);
void peers_send_all(const struct run *run, const struct byte_buffer *message);
/* Likewise, on a lane, which calls peers_flush before it rests, and now and then: until then the message may wait, so that many leave
 * at once. */
void peers_post(const struct run *run, uint32_t worker, const struct byte_buffer *message);
void peers_post_all(const struct run *run, const struct byte_buffer *message);
void peers_flush(const struct run *run);

/* On a lane: this worker's instances of the stage have run the micro-batch: says so to all others (peers_post). */
void peers_say_done(const struct run *run, uint32_t stage, uint64_t micro_batch);
/* Takes PEER_DONE. first: number of the first micro-batch of this life; end: above all numbers that are in flight. False: it is none. */
bool peers_take_done(struct run *run, uint32_t worker, struct words *message, uint64_t first, uint64_t end);
/* Whether the worker may say now what its instances of the stage do with the micro-batch: it has instances, has said that they ran
 * the slot's earlier micro-batch, and has not said so of this one. Any thread that takes the worker's messages. */
bool peers_is_in_turn(const struct run *run, uint32_t stage, uint32_t worker, uint64_t first,
                      uint64_t micro_batch);
/* Whether all words of the message were there, and no more. */
static inline bool peers_is_whole(const struct words *message)
{
    return !message->is_short && message->left.length == 0;
}
/* Whether all other workers' instances of the stage have run the micro-batch, which is one of the newest SLOTS. */
bool peers_others_have_done(const struct run *run, uint32_t stage, uint64_t micro_batch);
static inline bool peers_have_done(const struct run *run, uint32_t stage, uint64_t micro_batch)
{
    return likely(run->options.peers == NULL) || peers_others_have_done(run, stage, micro_batch);
}

#endif

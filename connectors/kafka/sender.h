/* The sender: a thread of the Kafka sink that sends the committed epochs of one shard's outbox, exactly once.
 *
 * The sender has one transactional producer. The producer's transactional id names job, sink, run and shard, so its
 * init_transactions fences the producers of earlier processes of this run, and no others: two deployments of
 * one job file are two runs. A transaction sends the records of a few epochs, or of a part of a large epoch,
 * and writes progress records about them into the progress topic. When the transaction is committed, its
 * records are out. If the outcome of a commit is unknown, the sender closes the producer: the next producer
 * ends the old transaction, and the progress topic then says whether that transaction was committed.
 *
 * Fenced or expired? The broker gives the same answer to a producer whose transaction took too long and to a
 * producer that another process has replaced. So each process writes a life record into the progress topic
 * when it begins. A process that has lost its producer reads the topic first: if the last life record is not
 * its own, another process has replaced it. */
#ifndef LEAT_CONNECTORS_KAFKA_SENDER_H
#define LEAT_CONNECTORS_KAFKA_SENDER_H

#include "connectors/kafka/admin.h"
#include "connectors/kafka/client.h"
#include "connectors/kafka/figures.h"
#include "connectors/kafka/order_notes.h"
#include "connectors/kafka/outbox.h"
#include "connectors/kafka/patience.h"
#include "connectors/kafka/progress.h"

enum { SENDER_PARTS_MAX = 64 };

struct sender_options {
    const struct kafka_client *client;
    struct str job, sink;
    const char *topic, *progress_topic, *compression;
    int64_t batch_bytes;               /* most bytes of one batch that the topic takes; 0: not known */
    int64_t timeout_us;                /* limit of one transaction */
    int64_t patience_us;               /* how long sender_open, and sender_drain without a commit, wait */
    const volatile sig_atomic_t *stop; /* not 0: the user wants sender_open to end; NULL: nobody can */
    uint8_t run_id[16];
    uint32_t shard;           /* its notes are in the progress topic's partition of that number */
    _Atomic int64_t *said_us; /* shared by the shards of a sink, so that one of them speaks; NULL: alone */
    struct order_notes
        *order;       /* what transactions note of the order log, shared by the shards; NULL: nothing */
    bool keeps_order; /* keep the segments of the order log that the progress topic has */
    bool is_resumed;  /* the run goes on: sends nothing if the progress topic has no life record of it */
    bool is_new_run;  /* no process has sent records of this run yet */
    /* sink_context.check and its argument. The sender's thread calls it before each transaction and before it
     * replaces a producer. NULL: no check. */
    int (*check)(void *engine);
    void *engine;
};

enum sender_state {
    SENDER_IDLE,       /* no transaction in progress; the last one, if any, was committed */
    SENDER_OPEN,       /* a transaction is being filled */
    SENDER_COMMITTING, /* a transaction is being committed */
    SENDER_WAITING,    /* the last transaction failed; the sender waits before it tries again */
};                     /* of several shards, the last of these names is shown */

/* Counts since sender_open, written by the sender. Any thread reads them. */
struct sender_figures {
    _Atomic uint64_t transactions, aborted, producers;
    _Atomic int state;          /* enum sender_state */
    _Atomic int32_t partitions; /* of the topic, as shard 0's producer last heard; 0: not yet */
    struct kafka_round_trip round_trip;
};

struct sender {
    struct sender_options options;
    struct outbox *outbox;
    char *transactional_id;         /* "leat.JOB.SINK.RUN", and ".SHARD" of shards but the first */
    char *progress_name;            /* "JOB/SINK" */
    struct progress progress;       /* contents of the progress topic; after sender_start for its thread */
    struct progress_life life;      /* this process's life record */
    struct kafka_patience patience; /* of sender_fence and sender_open */
    struct kafka_patience *start;   /* &patience while they wait, else NULL */
    int64_t try_us;                 /* while they wait: how long one try waits for an answer of brokers */
    bool had_producer;              /* of the last try: brokers had given it a producer */
    bool had_life;                  /* sender_open found a life record of this run by an earlier process */
    struct sender_figures figures;
    pthread_t thread;
    bool has_thread;
    _Atomic bool must_stop;
    _Atomic bool has_failed; /* `error` says why, and does not change any more */
    _Atomic bool is_fenced;  /* the sender failed because another process has taken over this run */
    char error[512];
    /* Guarded by the outbox's mutex. */
    struct progress_part out; /* the last part that is out; set if has_out */
    bool has_out;
    char trouble[REPORT_ERROR_BYTES]; /* why the last transaction failed; empty: it was committed */
    /* Used by the sender's thread only. */
    rd_kafka_t *producer; /* written under the outbox's mutex */
    struct kafka_errors *errors;
    rd_kafka_topic_t *topic, *progress_topic;
    uint64_t part_bytes;   /* target size of one transaction; adapted to how long transactions take */
    int64_t batch_bytes;   /* most bytes of one batch of the producer */
    bool has_said_smaller; /* the user was told that batches become smaller */
    bool is_smaller;       /* brokers refused a batch as too large: make the next producer without a pause */
    char why[400];         /* text of the last failure */
    bool is_ended;         /* the last failure: brokers ended the transaction */
    int64_t said_us;       /* monotonic time of the last message to the user; 0: none since the last commit */
    int flight;            /* estimate: records that may be on the way to brokers at once */
    /* The first record of the current transaction that brokers refused: its place in the transaction, from 1;
     * 0: a progress record; and its bytes, key and value. refused_count: records that were refused as too large. */
    uint64_t refused_index, refused_count;
    int64_t refused_bytes;
    rd_kafka_resp_err_t refused;
    int32_t refused_partition;
};

/* Reads from the progress topic which records of the run are out; changes nothing. *next: the micro-batch
 * behind the last part that is out; 0: none is out. *ordered: likewise, behind the last segment of the order log. Reads up
 * to the first transaction that is still open. Returns false with `error`, of `room` bytes, set. Control thread. */
bool sender_look(const struct sender_options *options, uint64_t *next, uint64_t *ordered, char *error,
                 size_t room);
/* Makes the producer: that ends the open transaction of an earlier process, which can send nothing more. The
 * caller zeroes `sender` before. outbox must outlive the sender. Returns false with sender->error set. One
 * thread at a time. */
bool sender_fence(struct sender *sender, const struct sender_options *options, struct outbox *outbox);
/* After sender_fence, of all shards: reads the shard's partition of the progress topic, and writes the life
 * record of this process there. Returns false with sender->error set. One thread at a time. */
bool sender_open(struct sender *sender);
/* Starts the sender's thread; after sender_open has succeeded. Control thread. */
void sender_start(struct sender *sender);
/* Reports why the last transaction failed, if it did. Any thread. */
void sender_report_trouble(struct sender *sender, struct report *report);
/* Copies to *part the last part that is known to be out. Returns false if none is. Any thread. */
bool sender_out(struct sender *sender, struct progress_part *part);
/* Waits until all committed epochs are out. Returns false with sender->error set, also if no transaction was
 * committed for patience_us. Control thread. */
bool sender_drain(struct sender *sender);
/* Stops and joins the thread, and frees what sender_open made. Control thread. */
void sender_close(struct sender *sender);

/* --- Between sender.c and transaction.c --- */

/* How a transaction, or the start of a producer, ended. */
enum sent {
    SENT_GOOD,
    SENT_AGAIN,   /* aborted: none of its records are out; the same producer can try again */
    SENT_UNKNOWN, /* its outcome is not known, and the producer cannot be used any more */
    SENT_REFUSED, /* none of its records are out, and trying again cannot help */
};

/* Sends `count` parts and their progress records in one transaction; count 0: only the life record of this
 * process. Notes the segments of the order log up to the last part's epoch (count 0: all). On success adds the progress records to sender->progress; else sets sender->why. */
enum sent transaction_run(struct sender *sender, const struct outbox_part *parts, uint32_t count);
/* Makes a new producer and calls its init_transactions. deadline_us: on the monotonic clock. If the result
 * is not SENT_GOOD, sender->why is set, and the caller frees the producer. */
enum sent transaction_producer(struct sender *sender, int64_t deadline_us);
void transaction_producer_free(struct sender *sender);

#endif

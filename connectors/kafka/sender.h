/* The thread that sends committed epochs, exactly once.
 *
 * There is one transactional producer, whose id belongs to the run: its init_transactions fences every other
 * producer of the same job, sink and run, and no others, since two deployments of one job file have runs of
 * their own. A transaction sends the records of a few epochs, or of a part of a large one, and writes their
 * progress records into the progress topic; after its commit these records are out. Where the outcome of a
 * commit is not known, the producer is closed: a new one ends the old transaction, and the progress topic
 * says whether it was committed.
 *
 * Fenced or expired? The broker gives the same answer to a producer whose transaction took too long and to
 * one that another process has replaced. So each process writes its life into the progress topic when it
 * begins, and a process that lost its producer first reads whose life is the last there. */
#ifndef LEAT_CONNECTORS_KAFKA_SENDER_H
#define LEAT_CONNECTORS_KAFKA_SENDER_H

#include "connectors/kafka/admin.h"
#include "connectors/kafka/client.h"
#include "connectors/kafka/figures.h"
#include "connectors/kafka/outbox.h"
#include "connectors/kafka/progress.h"

enum { SENDER_PARTS_MAX = 64 };

struct sender_options {
    const struct kafka_client *client;
    struct str job, sink;
    const char *topic, *progress_topic, *compression;
    int64_t timeout_us;                /* of a transaction */
    int64_t patience_us;               /* how long a start, and the end of a run, wait for brokers */
    const volatile sig_atomic_t *stop; /* the user stops the start (kafka_patience); NULL: nobody can */
    uint8_t run_id[16];
    bool is_resumed; /* the progress topic must have records of this run */
    bool is_new_run; /* nobody can have sent anything for this run */
    /* sink_context.check, called before a transaction and before a new producer. NULL: no check. */
    int (*check)(void *engine);
    void *engine;
};

enum sender_state {
    SENDER_IDLE,       /* all committed epochs are out */
    SENDER_OPEN,       /* a transaction is being filled */
    SENDER_COMMITTING, /* a transaction is being committed */
    SENDER_WAITING,    /* the last transaction failed; the next try is in a moment */
};

struct sender_figures {
    _Atomic uint64_t transactions, aborted, producers;
    _Atomic int state; /* enum sender_state */
    struct kafka_round_trip round_trip;
};

struct sender {
    struct sender_options options;
    struct outbox *outbox;
    char *transactional_id;   /* "leat.JOB.SINK.RUN" */
    char *progress_name;      /* "JOB/SINK" */
    struct progress progress; /* contents of the topic; used by the sender's thread once it runs */
    struct progress_life life;
    struct kafka_patience *start; /* set while sender_open runs; else NULL */
    bool had_life;                /* the progress topic has a life of this run from an earlier process */
    struct sender_figures figures;
    pthread_t thread;
    bool has_thread;
    _Atomic bool must_stop;
    _Atomic bool has_failed; /* `error` says why, and does not change any more */
    _Atomic bool is_fenced;  /* the failure: another process sends for the same run now */
    char error[512];
    /* Guarded by the outbox's mutex. */
    struct progress_part out; /* last part that is out */
    bool has_out;
    char trouble[REPORT_ERROR_BYTES]; /* why the last try failed; empty: it succeeded */
    /* Used by the sender's thread only. */
    rd_kafka_t *producer; /* written under the outbox's mutex */
    struct kafka_errors *errors;
    rd_kafka_topic_t *topic, *progress_topic;
    uint64_t part_bytes; /* target size of one transaction */
    uint32_t batch;      /* index of the producer's batch size in batch_bytes */
    bool is_smaller;     /* the next producer uses smaller batches: make it without waiting */
    char why[400];       /* the last failure */
    bool is_ended;       /* the last failure was: brokers ended the transaction */
    int64_t said_us;     /* when the user was last told; 0: not since the last success */
    int flight;          /* about how many records may be in flight at once */
    /* The first record that brokers refused in the current transaction; index 0: a progress record. */
    uint64_t refused_index;
    rd_kafka_resp_err_t refused;
    int32_t refused_partition;
};

/* Reads how far the run is out by the progress topic, without changing anything. next: the micro-batch number
 * behind the last part committed before any open transaction; 0: nothing is out. Returns false with `error`,
 * of `room` bytes, set. Control thread. */
bool sender_look(const struct sender_options *options, uint64_t *next, char *error, size_t room);
/* Connects: makes the producer, which ends a dead process's transaction, reads the progress topic, and writes
 * this life into it. `sender` is zeroed before. Returns false with sender->error set. Control thread. */
bool sender_open(struct sender *sender, const struct sender_options *options, struct outbox *outbox);
/* Starts the thread. */
void sender_start(struct sender *sender);
/* Reports transactions, round-trip times and the last failure. Any thread. */
void sender_report(struct sender *sender, struct report *report);
/* Copies the last part that is known to be out; false: there is none. Any thread. */
bool sender_out(struct sender *sender, struct progress_part *part);
/* Waits until all committed epochs are out. Returns false with sender->error set. Control thread. */
bool sender_drain(struct sender *sender);
void sender_close(struct sender *sender);

/* --- Between sender.c and transaction.c --- */

enum sent {
    SENT_GOOD,
    SENT_AGAIN,   /* nothing of it is out; the same producer can try again */
    SENT_UNKNOWN, /* the producer is unusable, and the outcome is not known */
    SENT_REFUSED, /* nothing of it is out, and the same records would be refused again */
};

/* Sends parts and their progress records in one transaction; count 0: this life's record. On success adds
 * these records to sender->progress; else sets sender->why. */
enum sent transaction_run(struct sender *sender, const struct outbox_part *parts, uint32_t count);
/* Makes a new producer and calls its init_transactions. */
enum sent transaction_producer(struct sender *sender, int64_t deadline_us);
void transaction_producer_free(struct sender *sender);

#endif

/* The thread that sends what is committed, exactly once.
 *
 * One transactional producer whose id is the run's: its init_transactions fences whoever sent before for the
 * same job, sink and run, and nobody else: two deployments of one job file have runs of their own. A
 * transaction holds the records of a few epochs, or of a part of a large one, and in the progress topic says
 * so; after it these are out. Where the outcome of a commit is not known, the producer is given up: a new one
 * finishes the old transaction, and the progress topic says what became of it.
 *
 * Fenced or expired? The broker gives the same answer to a producer whose transaction took too long and to
 * one that another process has replaced. So each process writes its life into the progress topic when it
 * begins, and whoever lost its producer reads whose life is the last there before it makes another. */
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
    const volatile sig_atomic_t *stop; /* of the start (kafka_patience); NULL: nobody can stop it */
    uint8_t run_id[16];
    bool is_resumed; /* the progress topic must have this run */
    bool is_new_run; /* nobody can have sent anything for this run */
    /* Before a transaction, and before a producer is made anew: sink_context.check. NULL: nobody asks. */
    int (*check)(void *engine);
    void *engine;
};

enum sender_state {
    SENDER_IDLE,       /* nothing is committed that is not out */
    SENDER_OPEN,       /* a transaction is filled */
    SENDER_COMMITTING, /* and ended */
    SENDER_WAITING,    /* the last one failed; the next try is in a moment */
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
    struct progress progress; /* as the topic has it; the sender's once it runs */
    struct progress_life life;
    struct kafka_patience *start; /* while sender_open runs; else NULL */
    bool had_life;                /* an earlier process of the run wrote into the progress topic */
    struct sender_figures figures;
    pthread_t thread;
    bool has_thread;
    _Atomic bool must_stop;
    _Atomic bool has_failed; /* then `error` says why, and stays as it is */
    _Atomic bool is_fenced;  /* because another process sends for the same run now */
    char error[512];
    /* Guarded by the outbox's mutex. */
    struct progress_part out; /* the last */
    bool has_out;
    char trouble[REPORT_ERROR_BYTES]; /* why the last try failed; empty: it did not */
    /* The sender's. */
    rd_kafka_t *producer; /* written under the outbox's mutex */
    struct kafka_errors *errors;
    rd_kafka_topic_t *topic, *progress_topic;
    uint64_t part_bytes; /* of one transaction */
    uint32_t batch;      /* how small the producer's batches are: an index of its sizes */
    bool is_smaller;     /* the next producer's are: nothing has to be waited for */
    char why[400];       /* of the last failure */
    bool is_ended;       /* and it was brokers who ended the transaction */
    int64_t said_us;     /* when the user was last told */
    int flight;          /* records that may be on their way at once, about */
    /* The transaction in work: the first record that was not taken. */
    uint64_t refused_index;
    rd_kafka_resp_err_t refused;
    int32_t refused_partition;
};

/* How far the progress topic says that the run is out, changing nothing: the number behind the last part that
 * is committed before any open transaction; 0: nothing is. false: `error` says why. Control thread. */
bool sender_look(const struct sender_options *options, uint64_t *next, char *error, size_t room);
/* Connects: makes the producer, ends what a dead process left, reads the progress topic, and writes this life
 * into it. false: sender->error. Control thread; `sender` is zeroed before. */
bool sender_open(struct sender *sender, const struct sender_options *options, struct outbox *outbox);
/* The thread begins. */
void sender_start(struct sender *sender);
/* Transactions, what brokers say, what went wrong last. Any thread. */
void sender_report(struct sender *sender, struct report *report);
/* The last part that is known to be out; false: none is. Any thread. */
bool sender_out(struct sender *sender, struct progress_part *part);
/* Waits until what is committed is out; false: sender->error. Control thread. */
bool sender_drain(struct sender *sender);
void sender_close(struct sender *sender);

/* --- Between sender.c and transaction.c --- */

enum sent {
    SENT_GOOD,
    SENT_AGAIN,   /* nothing of it is out: the producer can try again */
    SENT_UNKNOWN, /* the producer is of no use any more, and the outcome is not known */
    SENT_REFUSED, /* nothing of it is out, and the same would be refused again */
};

/* Sends parts and their progress records in one transaction; count 0: this life's record. On success the
 * progress is taken into sender->progress. Else sender->why. */
enum sent transaction_run(struct sender *sender, const struct outbox_part *parts, uint32_t count);
/* A new producer whose init_transactions is done. */
enum sent transaction_producer(struct sender *sender, int64_t deadline_us);
void transaction_producer_free(struct sender *sender);

#endif

/* Runs of one job as the workers of a cluster, in one process: each gets its messages on a thread of its own, in an order that
 * a seed decides, but those of one sender in theirs. */
#ifndef LEAT_TESTS_UNIT_RUN_WORKERS_H
#define LEAT_TESTS_UNIT_RUN_WORKERS_H

#include "core/buffer.h"
#include "core/operator.h"
#include "run/run.h"

struct workers *workers_new(uint32_t count, uint64_t seed);
/* For run_options.peers of one worker. */
const struct run_peers *workers_peers(struct workers *workers, uint32_t worker);
/* Begins to deliver; runs: one for each worker. */
void workers_begin(struct workers *workers, struct run **runs);
/* Waits until all runs have ended, and delivers no more. Call it before run_free; where they take checkpoints, after run_wait of all,
 * for with the last one they wait for each other. */
void workers_end(struct workers *workers);
void workers_free(struct workers *workers);

enum { SINKS_MAX = 8, NOTE_BYTES = 160 };
/* What a job gave, by its leader's figures. */
struct outcome {
    char notes[SINKS_MAX][NOTE_BYTES]; /* of each sink: rows and digest of a null sink */
    struct counters counters[PLAN_NODES_MAX];
    uint32_t sinks, nodes;
    uint64_t micro_batches, records, moved_groups;
    uint64_t refusals; /* times that a link was full */
    bool is_finished;
};

/* How a job is run. */
struct way {
    const struct registry *registry; /* NULL: the built-in kinds */
    bool is_refused;                 /* the leader refuses to begin */
    uint64_t seed; /* of who leads, and of the order in which messages of several senders come */
    bool is_tight; /* rows that wait may take waiting_budget bytes of memory at each worker */
    size_t waiting_budget;
    size_t window;       /* bytes of messages that a link has room for, one message at least; 0: any number */
    int64_t until_us;    /* order time; 0: to its end */
    const char *order;   /* path of the order log to write; NULL: none */
    const char *replays; /* path of the order log to replay; NULL: none */
    uint64_t
        stops_after; /* the last worker stops it, once so many micro-batches are formed; 0: it does not */
    /* Called when all runs have started; returns before they are waited for. NULL: nothing is done meanwhile, but for checkpoints that
     * the last worker asks for again and again, where the job takes any. */
    void (*meanwhile)(struct run **runs, uint32_t count);
    /* With checkpoints, one behind the other. folder: worker n's lie in FOLDER/n, and the head in FOLDER/HEAD; those of a run that is
     * alone lie where the job says. NULL: the job takes none. */
    const char *folder;
    uint32_t incarnation;
    uint64_t refuses;       /* so many heads, the first ones, are not taken */
    uint64_t refuses_below; /* heads of epochs below that one are not taken */
    uint64_t stops_at; /* the last worker stops the job, once so many heads were not taken; 0: it does not */
    /* Another process takes over the leader's directory when so many were not taken; 0: none does. */
    uint64_t taken_at;
    bool is_uncertain;   /* no worker knows whether it is replaced: who fails counts as replaced */
    uint64_t dies_at;    /* the process is killed when it has published so many heads; 0: it is not */
    bool dies_before;    /* with dies_at: before the last one of them is the head */
    uint64_t waits_for;  /* the job does not come to its end before it has published so many heads */
    struct heads *heads; /* gets what was published */
    struct str head;     /* with which the job begins; length 0: none */
    enum run_start_mode mode;
    uint64_t move_seed; /* key groups move by chance; 0: none does */
    bool balances;      /* they move by load */
    uint32_t
        homes; /* stages with one instance are this many workers behind where they would be; 0: where they would be */
    const char *from; /* with RUN_FROM */
};

struct heads {
    /* A head that has come is not taken while is_late is set. */
    _Atomic bool is_late, has_come;
    _Atomic uint64_t published, refused;
    struct byte_buffer last; /* manifest; the caller's */
};

/* `gate` in a job lets rows pass, but, with way.waits_for, only while a checkpoint waits for its barrier or for stages to pass that:
 * then a checkpoint takes at most 2 * SLOTS micro-batches, and the job must have as many for each head that it waits for, but the last
 * one, which comes with the end. */
extern const struct operator_kind operator_gate;

/* Runs a job that must fail, or be refused by its leader, and returns the first error, which the caller frees. */
char *workers_fail(const char *text, uint32_t count, uint32_t lanes, const struct way *way);

/* Runs a job on so many workers, 0: alone, each with so many lanes. way: NULL: to its end. Fails the test where the job fails. */
void workers_run(const char *text, uint32_t count, uint32_t lanes, const struct way *way,
                 struct outcome *outcome);

/* Fails the test where two runs of a job, in whatever lives, differ: in what sinks got, counters, micro-batches, the end. */
void workers_same(const struct outcome *one, const struct outcome *other);
/* Starts this program again as `life TEXT`, and waits until it is killed; fails the test where it ends in another way. */
void workers_die(const char *life);

/* The first error with which the first of so many workers, 0: a run alone, refuses to begin; DIAG_NONE: it begins. */
enum diag_code workers_refusal(const char *text, uint32_t count, const struct way *way);
/* Makes the run of one of so many workers, of which the first one leads, and hands it to `look`; it does not start. */
void workers_look(const char *text, uint32_t count, uint32_t self, const struct way *way,
                  void (*look)(struct run *run));

#endif

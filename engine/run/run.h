/* Running a plan: lanes, the sequencer, exchanges, checkpoints.
 *
 *     struct run *run = run_new(plan, &options, diags);
 *     run_start(run); ... run_stats(run, &stats) now and then ... run_wait(run); run_free(run);
 *
 * All functions are for the control thread; run_stop may be called from any thread. */
#ifndef LEAT_RUN_RUN_H
#define LEAT_RUN_RUN_H

#include "plan/plan.h"

#include <signal.h>

struct run;
struct trace;

enum run_start_mode {
    RUN_AUTO,   /* resume if there is a matching checkpoint, start if the directory is empty, else refuse */
    RUN_RESUME, /* there must be a checkpoint */
    RUN_FRESH,  /* a new run, whatever is there; old checkpoints stay until `keep` drops them */
    RUN_FROM,   /* the same, with the state of another's checkpoint */
};

struct run_options {
    uint32_t lanes; /* 0: the job's `workers`, else one per core */
    int64_t
        until_us; /* stop after the number behind which all rows are at or after this time; TIME_MAX: none */
    enum run_start_mode mode;
    const volatile sig_atomic_t
        *stop;       /* while run_new waits: not 0 where the user wants to end; NULL: nobody can */
    bool take_over;  /* break another process's lock */
    bool may_repeat; /* what earlier runs of the job gave to sinks may come again: said by RUN_FRESH, RUN_FROM
                      */
    const char *from;         /* RUN_FROM: a checkpoint directory or savepoint, or DIR@3-17 */
    const char *const *drops; /* RUN_FROM: names of parts (plan_node.part) to leave behind */
    uint32_t drops_count;
    bool is_restart;          /* by the supervisor; RUN_FROM: what has begun from there goes on */
    bool had_begun;           /* is_restart: an earlier life began, so what is there was written by it */
    void (*has_begun)(void);  /* called when nothing refuses the run any more; may be NULL */
    bool compares;            /* learners on a GPU with the CPU, step by step */
    const char *record_order; /* file or directory that the order log is written to; NULL: none */
    struct trace *trace;      /* run/trace.h: follow a record, and change nothing; NULL: none */
    const char *order; /* of an order log to obey: such a file or directory, or one of checkpoints; "none":
                          not even a recording's; NULL: that, if any */
};

/* Whether --record-order writes files into a directory: one that is there, or is named as one. */
bool order_is_directory(const char *path);

/* Opens sources and sinks, restores state. NULL after diagnostics, or because of *stop. */
struct run *run_new(const struct plan *plan, const struct run_options *options, struct diag_list *diags);
bool run_start(struct run *run);
/* First call: checkpoint and stop. Any thread; async-signal-safe it is not. */
void run_stop(struct run *run);
/* Whether all lanes have ended. */
bool run_has_ended(const struct run *run);
/* Joins the lanes, writes what is left; false if the run failed (diags say why). */
bool run_wait(struct run *run);
void run_free(struct run *run); /* NULL is allowed */

/* The first bad rows of this life, in the one order: which lane had them does not show. */
enum { RUN_DEAD_EXAMPLES = 5, RUN_DEAD_REASON_BYTES = 256 };
struct run_dead_example {
    struct row_order order;
    char text[256];
};

/* Where event time stands. */
struct run_time {
    int64_t watermark; /* of what it gives; TIME_MIN: none yet, TIME_MAX: everything is through */
    int64_t newest;    /* a source: its newest event so far; TIME_MIN: none */
    char held_by[128]; /* a source: the partition that its watermark stands at; "": none alone */
};

/* Figures of one node, summed over lanes. */
struct run_node_stats {
    const struct plan_node *node;
    struct counters counters;
    struct report report;
    struct run_time time;
    const char
        *dead_reason; /* of a dead letter of this life, one of the first; as long as the run; "": none */
    char note[160];   /* what a sink says of itself, after the end */
};

struct run_stats {
    bool is_resumed, was_finished, is_finished;
    bool is_from;                /* resumed, as a new run */
    const char *notes;           /* what is to be said at the start, a line each; "" where there is nothing */
    uint32_t resumed_generation; /* checkpoint this life began with */
    uint64_t resumed_epoch;
    const char *order;   /* the order log that this life obeys; NULL: none, or what a fall back does again */
    uint64_t order_next; /* its number that comes next */
    bool has_order_run_out; /* it ended, and what comes behind it cannot be computed: the run stopped there */
    uint64_t redo_next; /* numbers below are executed again by the order log of an earlier life; 0: none */
    uint64_t numbers;
    uint64_t records;      /* over all lives of the run */
    uint64_t records_life; /* read and sequenced by this process */
    int64_t elapsed_us;
    int64_t watermark;                    /* the lowest of the sources; TIME_MIN: none yet */
    int64_t newest_event;                 /* of all sources; TIME_MIN: none yet */
    const struct run_node_stats *held_by; /* the source whose watermark is the lowest; NULL: none has one */
    struct source_progress progress;
    struct run_node_stats nodes[PLAN_NODES_MAX];
    uint32_t nodes_count;
    double queue_fill[PLAN_STAGES_MAX]; /* numbers that are ready for the stage and wait, of those that can */
    uint64_t checkpoints;               /* published by this process */
    uint64_t checkpoint_epoch;
    int64_t checkpoint_age_us, checkpoint_us; /* -1: none */
    uint64_t checkpoint_bytes;
    int64_t checkpoint_stop_us;                      /* longest that a lane stood still for the last one */
    int64_t checkpoint_stop_max_us;                  /* and for any of this process */
    struct run_dead_example dead[RUN_DEAD_EXAMPLES]; /* once the run is joined */
    uint32_t dead_count;
    uint32_t lanes;
};
void run_stats(struct run *run, struct run_stats *stats);

/* Where each partition is by now, in words: for an order log that ended. After run_wait. */
void run_describe_order_end(const struct run *run, struct byte_buffer *out);

/* Where each partition goes on, as a checkpoint_info's `sources` has it; for people. Any thread. */
void run_describe_positions(struct str positions, struct byte_buffer *out);

#endif

/* Running a plan: lanes, the sequencer, exchanges, checkpoints.
 *
 *     struct run *run = run_new(plan, &options, diags);
 *     run_start(run); ... run_stats(run, &stats) now and then ... run_wait(run); run_free(run);
 *
 * All functions are for the control thread; run_stop may be called from any thread. */
#ifndef LEAT_RUN_RUN_H
#define LEAT_RUN_RUN_H

#include "plan/plan.h"

#include "core/sketch.h"

#include <signal.h>

struct run;
struct trace;

enum run_start_mode {
    /* Resume the newest whole checkpoint, or start anew if there is none; refuse one of another job. */
    RUN_AUTO,
    RUN_RESUME, /* resume the newest whole checkpoint; refuse if there is none */
    RUN_FRESH,  /* start anew, even if there is a checkpoint; old ones stay until `keep` drops them */
    RUN_FROM,   /* start anew, with the state of another run's checkpoint */
};

/* The workers of a cluster, as the run of one of them sees the others: runs of the same plan with the same number of lanes,
 * which give each other messages. Each worker has a part of the sources' partitions and of the key groups; the leader orders
 * the rows of all. Copies of checkpoints in an object store,
 * and a replay up to until_us, are refused. All are given the same options; record_order is the leader's to write. A partition that sources find while the job runs is read once all workers have found it; at
 * the beginning all must have found the same ones.
 *
 * A checkpoint of several workers has a part of each: an ordinary checkpoint in the worker's own directory. It counts once the leader
 * has published its manifest (run/head.h) as the job's head; then sinks commit what it covers, at every worker. */
enum {
    RUN_WORKERS_MAX = 64,
    RUN_LINKS_PART =
        32, /* of `memory:`, messages under way between workers have one part in so many, at each worker */
};
struct run_traffic {
    uint64_t sent_bytes, sent_frames,
        received_bytes;     /* of this worker, to and from all others, in this round */
    int64_t round_trip_us;  /* the longest of its links; -1: not known */
    uint64_t waiting_bytes; /* of messages that lie in its links now: not come there, or not taken here */
};
struct run_peers {
    uint32_t self, count, leader; /* workers have the numbers 0 to count - 1 */
    const char *const *addresses; /* of all workers, for people; NULL: not known */
    /* For run_stats: what this worker's links have carried. NULL: not known. Control thread. */
    void (*look_at_traffic)(void *engine, struct run_traffic *traffic);
    /* Sends a message to another worker; messages to one arrive in order, each once. The bytes are copied. False: the link has no room
     * for it now; run_has_room follows. Never blocks. Any thread. */
    bool (*send)(void *engine, uint32_t worker, struct str message);
    /* Messages may wait until flush is called: then all leave that were sent before, by any thread. NULL: none waits. Any thread. */
    void (*flush)(void *engine);
    void *engine;
    /* Where the job takes checkpoints. directory: this worker's own, in place of the job's `dir`; those who begin with the head read
     * it under the same name. incarnation: from 1; rises each time that the workers begin again: the generation of all their
     * checkpoints. job_run: the job's id for sinks (struct run_id), the same at all workers; not used where they begin with a head,
     * which has it; a new one with RUN_FRESH, for sinks send nothing twice under one id. */
    const char *directory;
    uint32_t incarnation;
    uint8_t job_run[16];
    /* Of the leader: makes the manifest the job's head, in place of the one before. True: it is the head. False: it may be all the
     * same, where the answer was lost: the checkpoint is abandoned here and the next one tried, but a job that begins again may begin
     * with it. After some such in a row it is called again with the same manifest, once a second, until it is true, the job stops or
     * fails. May take long. The coordinator's thread. */
    bool (*publish)(void *engine, uint64_t epoch, struct str manifest);
    const uint8_t *
        homes; /* by stage of the plan: the worker that has it, of a stage with one instance, the same at all workers; NULL: the
                             one of the number `stage` modulo `count` */
    /* Where the job names an object store: parts lie there, and directories are each worker's own; NULL: all workers see the
     * directories. The run uses it from run_new on, in one thread at a time, so does `publish`; and cancels it when it fails. */
    struct checkpoint_store *store;
    bool
        are_parts_verified; /* with a store: parts of the head that lie on this disk, every byte, by this process, a moment ago */
    /* Whether a later incarnation has begun: then nothing that this run does may be seen any more, also where another worker has its
     * place under another number, and so another directory. Asked before each step that others can see. NULL: there is none. Any
     * thread. */
    bool (*is_replaced)(void *engine);
    /* Whether the workers are to begin again: then a run that is being made reads no more state, and is refused (E0709). Asked now and
     * then by run_new. NULL: it is not. Any thread. */
    bool (*is_over)(void *engine);
};

/* run_new copies the struct; what its pointers name stays the caller's, and must live as long as the run. */
struct run_options {
    const struct run_peers *peers; /* NULL: the run is alone */
    uint32_t lanes;                /* 0: the job's `workers`, else one per core */
    /* Stop when the next row of every partition is at or after this order time; TIME_MAX: never. */
    int64_t until_us;
    enum run_start_mode mode;
    /* Ends the waiting in run_new when it is not 0; NULL: the user cannot end it. */
    const volatile sig_atomic_t *stop;
    bool take_over; /* break the lock of another process */
    /* Rows that earlier runs gave to sinks may be sent again (set with RUN_FRESH, RUN_FROM). */
    bool may_repeat;
    /* RUN_FROM: path of a checkpoint directory or savepoint, DIR@3-17 for one checkpoint, or of a head's manifest (run/head.h). */
    const char *from;
    const char *const *drops; /* RUN_FROM: names of parts (plan_node.part) whose state is left behind */
    uint32_t drops_count;
    /* Manifest of a checkpoint of several workers, or of one that was alone (run/head.h), with which this run begins, alone or as a
     * worker, in place of what lies in its own directory; length 0: none. Refused with RUN_FRESH and RUN_FROM. Without a head workers
     * begin anew: refused with RUN_RESUME, and, but for RUN_FRESH, where the directory has a part of a head; with RUN_FROM they begin with
     * the other run's checkpoint. A directory
     * whose newest life began with a head and has taken no checkpoint is refused without one, too. */
    struct str head;
    /* The supervisor has restarted the job. With RUN_FROM: if an earlier life has begun from `from`, its run
     * goes on. */
    bool is_restart;
    bool had_begun; /* with is_restart: an earlier life has called has_begun, and wrote the output there is */
    /* Called by run_new before the sinks begin: files written from then on are this run's. May be NULL. */
    void (*has_begun)(void);
    bool looks_at_columns; /* look at samples of rows for run_column_read */
    /* For tests: key groups move between lanes and workers at barriers, by chance (--move); 0: none moves. Of several workers, all have
     * one, or none has. */
    uint64_t move_seed;
    bool
        balances; /* key groups move between lanes and workers by their load, where a job takes checkpoints */
    bool moves_when_asked; /* with `balances`: only by run_ask_moves */
    int64_t
        wall_ahead_us; /* the wall clock less the monotonic clock, as the process began: the arrival clock begins with it
                        * (sequencer/arrival_clock.c); 0: as it is now */
    bool compares;            /* compare learners on a GPU with the CPU, step by step */
    const char *record_order; /* file or directory to write the order log to; NULL: none */
    struct trace *trace;      /* follow one record and change nothing (run/trace.h); NULL: none */
    /* Path of an order log to replay: a file or directory of --record-order, or a directory of checkpoints.
     * "none": not even a recording's; NULL: the recordings' log, if they have one. */
    const char *order;
    /* For tests of requests, with one lane: called before a source lets rows go, when all stages have finished
     * the micro-batch before, and before a node of one input is given rows. NULL: not called. */
    void (*before)(void *argument, struct run *run, const struct plan_node *node, struct batch *rows);
    void *before_argument;
};

struct operator_context;
/* The context of a node's first instance. Call it from run_options.before. */
const struct operator_context *run_context(struct run *run, const struct plan_node *node);

/* Whether --record-order gets a directory: `path` is one, or ends in a slash. */
bool order_is_directory(const char *path);

/* Opens sources and sinks, restores state. NULL after diagnostics, or because *stop was set. */
struct run *run_new(const struct plan *plan, const struct run_options *options, struct diag_list *diags);
/* Takes a message from another worker. False: it is none that this run can have. From run_new to run_free's call; messages of
 * one worker come one after the other, those of several may come on several threads.
 *
 * What waits here of the messages is counted in the run's own memory (base/spill.h), and beyond that goes to a file below TMPDIR: the
 * call may write, but waits for no lane. The bytes of `message` are the transport's again when it returns. So links
 * (cluster/link.h) can release a frame then: their credits bound what has come and is not yet given to this function, and add to
 * the run's memory; the sender learns from them how fast messages are taken, not how fast rows are. */
LEAT_CHECKED bool run_receive(struct run *run, uint32_t worker, struct str message);
/* Sends what waits for room on the link to the worker, until run_peers.send refuses again. Call it after each refusal, once there is
 * room; it does nothing where nothing waits. From run_new to run_free's call; any thread. May read a file, but waits for no lane. */
void run_has_room(struct run *run, uint32_t worker);
/* Starts the threads. Returns false after a diagnostic; the caller calls run_wait even then. */
bool run_start(struct run *run);
/* Takes a last checkpoint and stops the run; further calls change nothing. Any thread, but not from a
 * signal handler. */
void run_stop(struct run *run);
/* Ends the run as if its process had been killed: nothing more is committed, and run_wait returns false; the caller calls
 * run_wait. Any thread, but not from a signal handler. */
void run_abandon(struct run *run);
/* Whether the run has failed, or was abandoned: it comes to its end. Any thread. */
bool run_is_failing(const struct run *run);
/* Asks for a checkpoint now, if the run takes any, unless one is in work. Control thread. */
void run_checkpoint(struct run *run);
/* Moves of key groups that somebody asks for. */
struct run_moves_asked {
    bool balances;           /* so that lanes have about as much work: else the groups are moved: */
    struct group_set groups; /* to lanes of the worker */
    uint32_t worker;
};
enum run_moves_state {
    RUN_MOVES_NONE,    /* nothing was asked for */
    RUN_MOVES_MEASURE, /* rows are measured, or the next checkpoint is due */
    RUN_MOVES_WORK,    /* a change is under way */
    RUN_MOVES_DONE,
};
struct run_moves {
    enum run_moves_state state;
    uint32_t changes, groups; /* so far, with the one under way */
    uint64_t bytes;           /* of their state, about */
    double before, after;     /* imbalance by the load that was measured; 1 where nothing was */
};
/* Asks the run for it, of several workers the leader's; what was asked before is forgotten. Changes follow one another, each at two
 * checkpoints, for which run_look_at_moves asks. False: groups cannot move in this run; *why, a phrase. Control thread. */
LEAT_CHECKED bool run_ask_moves(struct run *run, const struct run_moves_asked *asked, const char **why);
/* How far that is. Control thread. */
void run_look_at_moves(struct run *run, struct run_moves *moves);
/* Adds the time that the instances of each stage have taken in this life, of all workers, at the leader of a run that balances; ns: by
 * stage. Control thread. */
void run_stage_times(struct run *run, uint64_t ns[PLAN_STAGES_MAX]);
/* Where checkpoints stand, for who waits for one that was taken after a certain moment. */
enum { RUN_WHY_BYTES = 512 };
struct run_checkpoint_turn {
    uint64_t next;           /* epoch of the first checkpoint whose barrier comes after the call */
    uint64_t published;      /* epoch of the newest one that this process has published; 0: none */
    bool has_failed;         /* the last one that began has failed; the next one is tried within seconds */
    char why[RUN_WHY_BYTES]; /* why the last one that failed did; "": none has */
};
/* Control thread. False: the run takes no checkpoints. */
bool run_checkpoint_turn(struct run *run, struct run_checkpoint_turn *turn);

/* A savepoint: a copy of a checkpoint that stands alone. */
enum { RUN_SAVEPOINT_NAME_MAX = 64 };
struct run_savepoint {
    uint32_t generation; /* of the checkpoint */
    uint64_t epoch, bytes;
    char *path; /* absolute; malloc'd, the caller's */
};
/* Whether a savepoint can have that name: 1 to RUN_SAVEPOINT_NAME_MAX of a-z, 0-9, `_` and `-`. Any thread. */
bool run_savepoint_name_is_good(struct str name);
/* Whether the run has a savepoint of that name, or anything else is in its place. Any thread. */
bool run_has_savepoint(const struct run *run, const char *name);
/* Copies the newest checkpoint, which must have that epoch or a later one, to DIR/savepoints/NAME, beside the checkpoints;
 * when it returns, all of the copy is on the disk, and every byte was checked. name: good; "": the checkpoint's own name,
 * "3-17". Takes as long as reading and writing all of the checkpoint. Any thread, while nobody frees the run; false after
 * diagnostics. */
LEAT_CHECKED bool run_save(const struct run *run, uint64_t epoch, const char *name,
                           struct run_savepoint *saved, struct diag_list *diags);

/* Whether all lanes have ended. */
bool run_has_ended(const struct run *run);
/* Joins the lanes and finishes the sinks; false if the run failed (diags say why). */
bool run_wait(struct run *run);
void run_free(struct run *run); /* NULL is allowed */

/* The first bad rows of this life, by row order, so that they do not depend on which lane had them. */
enum { RUN_DEAD_EXAMPLES = 5, RUN_DEAD_REASON_BYTES = 256 };
struct run_dead_example {
    struct row_order order;
    char text[256];
};

/* Where event time stands at a node. */
struct run_time {
    /* Watermark of the node's output; TIME_MIN: none yet, TIME_MAX: all sources have ended. */
    int64_t watermark; /* microseconds */
    int64_t newest;    /* of a source: its newest event time, in microseconds; TIME_MIN: none */
    char held_by[128]; /* of a source: the partition that holds its watermark back; "": no single one */
};

/* Figures of one node, summed over lanes, and over workers in the leader's figures. */
struct run_node_stats {
    const struct plan_node *node;
    struct counters counters;
    struct report report;
    struct run_time time;
    bool is_full;                  /* of a sink: it takes no more rows now */
    uint64_t begin_in, begin_dead; /* of counters.in and .dead: what earlier lives of the run had counted */
    /* Reason of one of the first dead letters of this life; "": none. */
    const char *dead_reason;
    char note[160]; /* what a sink reports about itself after the end */
};

/* One of several workers. */
struct run_worker_stats {
    bool is_known;                      /* its figures have come */
    const char *address;                /* "": not known */
    uint32_t lanes, partitions, groups; /* partitions of sources and key groups that are its own */
    uint64_t records_life;
    double
        busy_share; /* of its lanes' time in the last second or so: they decoded or processed; NaN: not known yet */
    struct run_traffic traffic;
    /* Rows and messages that wait between lanes and workers: their bytes in memory, links' included; and those that were written to
     * spill files in this life. */
    uint64_t waiting_bytes, spilled_bytes;
};

struct run_stats {
    bool is_resumed, was_finished, is_finished;
    bool was_at_until; /* an earlier life ended at this --until, or a later one: nothing is left to do */
    /* All sources have ended; operators may have work left (operator_kind.wants_more). */
    bool has_input_ended;
    /* With has_input_ended, while the run is not finished: the share of that work that is done, 0 to 1, of the operator
     * that has done the least; NaN: not known. */
    double end_share_done;
    bool is_from;                /* resumed from another run's checkpoint, as a new run */
    const char *notes;           /* notes to show at the start, a line each; "": none */
    uint32_t resumed_generation; /* generation of the checkpoint this life began with */
    uint64_t resumed_epoch;
    /* Path of the order log that is replayed; NULL: none, or one that is replayed after a fallback. */
    const char *order;
    uint64_t order_next; /* number, in that log, of the next micro-batch */
    /* The log has ended, and the order behind it cannot be computed: the run stopped there. */
    bool has_order_run_out;
    /* Of the order log that is written: number behind its last micro-batch; bytes of entries of this life. */
    bool has_order_log;
    uint64_t order_log_next, order_log_bytes;
    uint64_t redo_next;     /* micro-batches below this number are replayed after a fallback; 0: none */
    uint64_t micro_batches; /* formed over all lives of the run */
    uint64_t records;       /* records sequenced over all lives of the run */
    uint64_t records_life;  /* records sequenced by this process */
    int64_t elapsed_us;
    int64_t watermark;                    /* lowest watermark of the sources; TIME_MIN: none yet */
    int64_t newest_event;                 /* newest event time of all sources; TIME_MIN: none yet */
    const struct run_node_stats *held_by; /* source with the lowest watermark, in `nodes`; NULL: none */
    struct source_progress progress;      /* summed over the sources; totals of -1: unknown */
    struct run_node_stats nodes[PLAN_NODES_MAX];
    uint32_t nodes_count;
    /* Per stage: micro-batches that are ready for it and wait, as a share of SLOTS. */
    double queue_fill[PLAN_STAGES_MAX];
    uint64_t checkpoints;      /* checkpoints published by this process */
    uint64_t checkpoint_epoch; /* epoch of the newest checkpoint published; 0: none */
    /* Time since this process published its last checkpoint, and from that checkpoint's barrier until then;
     * -1: it has published none. */
    int64_t checkpoint_age_us, checkpoint_us;
    uint64_t checkpoint_bytes;      /* bytes written for the last checkpoint */
    int64_t checkpoint_stop_us;     /* longest time that a lane stood still for the last checkpoint */
    int64_t checkpoint_stop_max_us; /* the same, for all checkpoints of this process */
    bool has_store;                 /* checkpoints are copied to an object store: */
    bool sinks_await_store;         /* `commit: store`: sinks commit what the store has */
    uint64_t store_behind;          /* checkpoints of this process that are newer than the store's newest */
    int64_t store_behind_us;        /* since the oldest of them was published; 0: there are none */
    uint64_t store_bytes;           /* sent to the store */
    uint64_t store_retries;         /* requests that were sent again */
    struct run_dead_example dead[RUN_DEAD_EXAMPLES]; /* set once the run is joined */
    uint32_t dead_count;
    uint64_t bytes_life;             /* of progress.bytes_done: what this process has done */
    uint32_t lanes, workers, worker; /* worker: number of this one; alone: 1 worker, of number 0 */
    bool is_part;                    /* of a worker that does not lead: these are figures of its own part */
    uint32_t leader, incarnation;    /* of several workers */
    struct run_worker_stats
        per_worker[RUN_WORKERS_MAX]; /* of several workers: of each; where is_part, of its own alone */
    /* Of key groups that moved to another lane, and of operators of stages with one instance that moved to another one's
     * database: bytes in all, and those of groups' changes, while lanes stood still; for how long one did at most. */
    uint64_t moved_groups, moved_operators, moved_bytes, moved_changes;
    int64_t move_stop_us;
    double
        imbalance; /* load of the busiest instance by the mean, as measured last; 0: not measured. Of several workers, at the leader */
    uint32_t hot_groups; /* key groups with more load than an instance's mean, likewise */
};
/* Fills *stats; texts that it points to belong to the run, and are valid until the next call.
 *
 * Of several workers, the leader's figures are the job's: its own and the newest ones that the others have sent. Another worker's are
 * of its own part (is_part); it sends them to the leader, about once a second where it calls run_stats as often, and its last ones
 * where the run is joined and has not failed. The counters of earlier lives are restored at one worker, while the rows they count as
 * held may have gone to another: until the last figures of all are there, a level that would lie below zero is shown as 0. */
void run_stats(struct run *run, struct run_stats *stats);
/* Whether the last figures of all other workers are there. True where the run is alone, or does not lead. Any thread. */
bool run_has_all_figures(const struct run *run);

/* One of the newest dead letters. There may be far more (counters.dead): of many that come at once, some are kept. Texts have
 * no NUL behind them, may have any bytes, and are cut. */
enum { RUN_DEAD_KEPT = 200, RUN_DEAD_RECORD_BYTES = 1024 };
struct run_dead_letter {
    uint64_t n;                   /* from 1, rising */
    int64_t time_us;              /* wall clock: when it was kept */
    const struct plan_node *node; /* that rejected the row */
    uint64_t record_bytes;        /* of the whole record; 0: not known, because a step rejected the row */
    uint32_t place_bytes, reason_bytes, record_kept;
    char place[256]; /* "orders-3 offset 42"; "data.jsonl record 16", counted from 0 */
    char reason[RUN_DEAD_REASON_BYTES];
    char record[RUN_DEAD_RECORD_BYTES]; /* the record's first bytes; with record_bytes 0, the row as JSON */
};
/* Copies the letters kept whose number is above `after`, oldest first, and returns how many; an `after` that no letter has had
 * is of another process: then all of them. letters: room for RUN_DEAD_KEPT. Any thread, until run_free. */
uint32_t run_dead_letters(const struct run *run, uint64_t after, struct run_dead_letter *letters);

/* What a lane's time goes to. The last ones: it has no work, because of what comes behind the sources, of several workers at any of
 * them. */
enum run_lane_time {
    RUN_LANE_DECODES,   /* reads and decodes records */
    RUN_LANE_PROCESSES, /* runs nodes, takes its part of a checkpoint, helps a learner of another lane */
    RUN_LANE_WAITS,     /* for records, or for another lane that decodes them */
    RUN_LANE_BEHIND_NODES,
    RUN_LANE_BEHIND_CHECKPOINT, /* its writer holds a node, or the state store takes no more until it is through */
    RUN_LANE_BEHIND_ORDER,      /* the order log has not reached the disk */
    RUN_LANE_BEHIND_SINKS,      /* a sink is full */
    RUN_LANE_BEHIND_DISK,       /* the disk of the checkpoints is nearly full */
    RUN_LANE_BEHIND_STORE,      /* `commit: store`, and the store lacks too many checkpoints */
    RUN_LANE_TIMES
};

extern const char
    *const run_lane_time_names[RUN_LANE_TIMES]; /* "decode", "behind_sinks": for JSON and metrics */

/* Where the time of this life went, in nanoseconds since its start. Times of nodes are their own: those of nodes that
 * they call are not in them. */
struct run_times {
    uint64_t at_ns; /* monotonic */
    uint32_t lanes_count, instances_count;
    struct run_lane_times {
        uint64_t ns[RUN_LANE_TIMES];
    } * lanes;
    struct run_instance_time {
        uint32_t node, lane; /* node: place in the plan */
        uint64_t ns;
    } * instances; /* of every node, one for each lane that may run it; in the order of lanes, then of nodes */
};
struct run_times *run_times_new(const struct run *run);
void run_times_free(struct run_times *times); /* NULL is allowed */
/* Fills *times, which is of this run. */
void run_times(const struct run *run, struct run_times *times);

/* What the columns of sources, and those that learners and sinks read, hold: by samples of the rows of this life, which
 * lanes look at (lanes/look.c). Without run_options.looks_at_columns there are none. Any thread, from run_new to run_free. */
struct run_columns {
    const struct plan_node *node;
    const struct schema *schema; /* of its rows */
    uint64_t rows;               /* looked at since the start */
};
uint32_t run_columns_count(const struct run *run);
/* index: below that number; the nodes are in the order of the plan. */
void run_columns(const struct run *run, uint32_t index, struct run_columns *columns);

/* Rows looked at in some time; sum: of what run_column.numbers are, without the not_finite of them. */
struct run_column_span {
    uint64_t rows, nulls, not_finite;
    double sum;
};
struct run_column {
    const struct field *field;
    uint64_t rows, nulls;
    struct run_column_span recent, before; /* the last minute; the ten minutes before */
    bool is_sketched;                      /* what follows is known: at most 256 columns of a job have it */
    double distinct;                       /* of a list: of its elements */
    struct sketch_numbers
        numbers;             /* ints, floats, times in microseconds; lengths of texts, bytes and lists */
    uint64_t values;         /* what `frequent` is of: values, or elements */
    uint32_t frequent_count; /* texts, bytes, bools, elements of lists */
    struct {
        uint64_t at_least; /* a lower bound of its number */
        /* A text or bytes: its first bytes; is_cut: there are more. Other elements: 8 bytes of a double or an int64, as in
         * the column. A bool: one byte. */
        char bytes[SKETCH_TEXT_BYTES];
        uint32_t length;
        bool is_cut;
    } frequent[SKETCH_ANSWER_TOPS];
};
/* Fills *out from what all lanes have seen; column: index in the schema. Allocates for the call. */
void run_column_read(const struct run *run, uint32_t index, uint32_t column, struct run_column *out);

/* Path of the folder beside whose checkpoints the run says where its control API is (`leat ctl`), and keeps its history: the job's, or of a
 * worker that does not lead, its own; "": the job takes no checkpoints. As long as the run. */
const char *run_folder(const struct run *run);

/* How many records were read of each partition. */
struct run_partitions {
    uint32_t count, room;
    struct run_partition {
        uint32_t node;    /* the source's place in the plan */
        char *name;       /* "": it has none */
        uint64_t records; /* over all lives of the run */
    } * items;            /* a partition keeps its place as long as the run */
};
/* Fills *partitions, which is all zeros or was filled from this run before. Control thread. */
void run_partitions(struct run *run, struct run_partitions *partitions);
void run_partitions_free(struct run_partitions *partitions);

/* Call after run_wait, if has_order_run_out: appends, in words, how far each partition was read. */
void run_describe_order_end(const struct run *run, struct byte_buffer *out);

/* Appends lines that say where a resume of the checkpoint goes on in each partition. positions:
 * checkpoint_info.sources; a line says if they have another format. Any thread. */
void run_describe_positions(struct str positions, struct byte_buffer *out);

#endif

/* Private to run/lanes. */
#ifndef LEAT_RUN_LANES_INTERNAL_H
#define LEAT_RUN_LANES_INTERNAL_H

#include "core/buffer.h"
#include "core/operator_state.h"
#include "core/team.h"
#include "run/base/spill.h"
#include "run/lanes/lanes.h"
#include "run/lanes/merge.h"
#include "run/sequencer/sequencer.h"
#include "run/trace.h"

/* --- Stages --- */

struct node_instance;

struct consumer {
    struct node_instance *node; /* a node of the same stage; NULL: the exchange leads to another stage */
    uint32_t input;             /* with `node`: index of its input */
    struct exchange *exchange;
};

/* What a dead letter says about a bad row, besides the row's origin. A text with data NULL is unknown or
 * absent. */
struct dead_letter {
    struct str reason, raw, key;
    struct str headers; /* JSON */
    int64_t time_us;    /* arrival time; 0: unknown */
};

struct dead_row {
    struct row_origin origin;
    struct row_order order;
    const struct plan_node *node;
    struct dead_letter letter;       /* its texts are valid UTF-8: bytes above 0x7f may be replaced by `?` */
    struct str raw_bytes, key_bytes; /* the original bytes, where they are not UTF-8 */
};

struct node_instance {
    const struct plan_node *node;
    struct stage_instance *stage;
    struct operator_context context; /* counters of all node kinds are in here */
    struct sink_context sink;
    struct arena scratch;
    struct consumer *consumers[OPERATOR_OUTPUTS_MAX];
    uint32_t consumers_count[OPERATOR_OUTPUTS_MAX];
    /* Of an operator with several inputs: rows of the micro-batch in work, by input. */
    struct batch_list queues[OPERATOR_INPUTS_MAX];
    struct exchange **exchanges[OPERATOR_INPUTS_MAX]; /* by input: the exchanges that lead to it */
    uint32_t exchanges_count[OPERATOR_INPUTS_MAX];
    int64_t watermark;       /* of a source: its watermark after the micro-batch in work, microseconds */
    uint64_t published_seen; /* of a sink: epoch of the last checkpoint that it was told of */
    bool has_failed;         /* of a sink: its error was reported; guarded by run.diags_mutex */
    /* How followers keep the node's state; FOLLOWING_NOTHING in a run that publishes nothing. */
    enum operator_following following;
    struct {
        bool is_noted, has_changed; /* has_changed: it got a micro-batch since its last cut */
        bool has_cut;               /* a cut is in stage.publish_entry */
        size_t bytes;               /* of that cut */
        int64_t noted_us,
            since_us; /* monotonic: when notes began; when the last cut was written, or notes began */
        int64_t expected_us, spent_us, cpu_us; /* what it was to take, and took, of it on a CPU */
        int64_t over_us,
            over_both_us;   /* what the last cut took more than it was to take; the last two, at least */
        int64_t us_per_mib; /* CPU time of large cuts lately; at least 1 */
    } publish;              /* of a learner */
    /* dead_reason is set; it is written once, from the first dead letter of this life. */
    atomic_bool has_dead;
    char dead_reason[RUN_DEAD_REASON_BYTES];
    uint64_t kept_since_ns; /* dead_kept.c: since when kept_count letters were kept */
    uint32_t kept_count;
    struct report report; /* guarded by lanes.reports_mutex */
    /* context.counters as they were after the last micro-batch, for other threads. */
    atomic_uint_fast64_t shown[COUNTERS_COUNT];
    _Atomic uint64_t own_ns; /* time.c; the lane's thread writes it */
    struct look *look;       /* look.c; NULL: nobody asks what its rows hold */
    uint32_t home; /* of a stage with one instance: whose store its state lies in (placements_home) */
};

struct stage_instance {
    struct run *run;
    const struct plan_stage *stage;
    uint32_t index; /* index of the stage in the plan */
    uint32_t lane;
    uint32_t instance;          /* of a keyed stage: its number over all workers */
    uint32_t local;             /* its number on this worker */
    uint32_t placement_version; /* of `groups` */
    struct stage_move *move;    /* move.c; NULL: no --move, or no stage with an instance for each lane */
    struct group_set groups;    /* the key groups that are this instance's */
    struct state_weight weight; /* load.c: as of the last barrier; guarded by lanes.reports_mutex */
    atomic_uint_fast64_t next;  /* micro-batch to run next; its lane writes it; not used by stage 0 */
    struct node_instance *nodes;
    struct slot *slot;                 /* the micro-batch in work */
    uint32_t feeders[PLAN_STAGES_MAX]; /* stages that must finish a micro-batch before this one may run it */
    uint32_t feeders_count;
    struct arena number_arena;     /* reset after each micro-batch */
    struct node_instance *at_work; /* time.c: the node at work, and since when; NULL: none */
    uint64_t at_work_ns;
    /* Per node of the plan: watermark after the micro-batch in work; behind them the arrival clock. */
    int64_t *slot_watermarks;
    int report_epoch;                 /* lanes.report_epoch at the last reports */
    bool is_followed;                 /* a node is followed */
    bool publishes;                   /* the micro-batch in work is published, too */
    struct byte_buffer publish_entry; /* what is published of the micro-batch in work */
    /* Dead letters of the micro-batch in work. */
    struct arena dead_arena;
    struct dead_row *dead;
    uint32_t dead_count, dead_capacity;
    struct exchange *dead_exchange; /* NULL: no sink takes them */
    struct run_dead_example examples[RUN_DEAD_EXAMPLES];
    uint32_t examples_count;
};

/* --- Exchanges --- */

/* A batch of a packet: in memory, or written to the producer's spill file. */
struct packet_entry {
    struct batch *batch; /* NULL: spilled, or from another worker */
    char *bytes;         /* from another worker: spill_bytes of them, malloc'd; else NULL */
    uint64_t spill_offset;
    size_t spill_bytes;
    uint32_t spill_file; /* index in exchange.spills */
    /* Index of the entry's run, a series of entries whose rows are in row_order. A producer with several
     * chains of operators makes several runs. */
    uint32_t run;
};

struct packet {
    struct packet_entry *entries;
    uint32_t count, capacity, runs; /* runs: number of runs, see packet_entry.run */
    struct row_order last;          /* order of the last entry's last row */
    size_t bytes;                   /* bytes in memory, as counted in run.waiting_bytes */
};

/* What an instance has sent to a consumer of another worker, of one micro-batch: as of the packet there. */
struct packet_sent {
    uint64_t micro_batch;
    uint32_t count, runs;
    struct row_order last;
};

/* What an instance has sent into an exchange by key. Its lane writes; the coordinator reads. */
enum { LOAD_KEY_BYTES = 80, LOAD_VOTES_MAX = 1000 };
struct exchange_load {
    _Atomic uint64_t rows[KEY_GROUPS];
    uint32_t voter;        /* the row of the next batch that votes */
    pthread_mutex_t mutex; /* guards `keys` */
    struct load_key {
        uint64_t hash;
        uint32_t votes;
        char text[LOAD_KEY_BYTES];
    } keys[KEY_GROUPS];
};

struct exchange {
    const struct plan_exchange *plan;
    const struct schema *schema;
    /* Numbers of instances over all workers; those of stage 0 on one worker count as one. Of the consumers, `taken` ones from
     * `taken_first` on are this worker's. */
    uint32_t producers, consumers, taken, taken_first;
    struct packet *packets; /* [slot][producer][consumer of this worker] */
    /* [this worker's instance of the producing stage], own_spills of them; behind them [worker], for rows that it has sent. (The
     * instances of stage 0 count as one producer of packets, because only one of them runs a micro-batch; but each has its own file.) */
    struct spill_file *spills;
    uint32_t own_spills, spills_count;
    struct exchange_load *
        load; /* [this worker's instance of the producing stage]; NULL: groups do not move by load, or it is none by key */
    struct packet_sent
        *sent; /* [this worker's instance of the producing stage][consumer]; NULL: there is one worker */
};

/* Merges the rows of several packets by row_order, a batch at a time. */
struct fan_in {
    struct run *run;
    const struct schema *schema;
    const struct placement *placement; /* of the micro-batch */
    uint32_t local;                    /* the consumer, by its number on this worker */
    struct fan_in_input *inputs;
    uint32_t count;
};

struct lane {
    struct run *run;
    uint32_t index;
    pthread_t thread;
    struct stage_instance **instances; /* of stages from 1 on, last stage first */
    uint32_t instances_count;
    struct stage_instance *sources; /* this lane's copy of stage 0 */
    struct decoding decoding;
    _Atomic uint64_t times[RUN_LANE_TIMES]; /* time.c; the lane's thread writes it */
    uint64_t since_ns;                      /* until when the lane's time is counted */
    uint64_t flush_ns; /* when messages to other workers may leave next, while the lane works */
    /* peek.c. peeks, the newest first, and takes_peeks: guarded by lanes.peeks_mutex. has_peeks: `peeks` is not empty. */
    struct run_peek_key *peeks;
    bool takes_peeks;
    atomic_bool has_peeks;
    _Atomic uint64_t peeks_paid_at; /* monotonic nanoseconds; the lane's thread writes it */
    struct arena peeks_scratch;
};

struct lanes {
    struct lane *lanes;
    uint32_t started;               /* lanes whose threads were started */
    struct stage_instance **stages; /* instances of all stages; those of a stage begin at stage_first */
    uint32_t *stage_first, stages_total;
    struct node_instance **sinks; /* sinks of all stages */
    struct exchange *exchanges;
    /* One per learner, where there are several lanes: other lanes help through it (core/team.h). */
    struct team *teams;
    uint32_t teams_count;
    struct restored {
        uint64_t in, dead;
    } * restored; /* by node: what the checkpoint had counted, where an instance of this worker has taken it over */
    struct look_place *looks; /* look.c; looks_count of them */
    uint32_t looks_count;
    _Atomic uint64_t learning; /* number of the newest micro-batch that a learner with a team has begun */
    /* at_work: lanes whose own stages have not run the last micro-batch yet. */
    atomic_uint running, at_work;
    struct dead_kept *dead_kept;
    pthread_mutex_t peeks_mutex;
    uint32_t peeks_waiting; /* peeks that are not done; guarded by peeks_mutex */
    /* move.c, move_pieces.c. Have this worker's keyed stages moves; by stage, and by what is given (enum given): how often instances of
     * this worker have given all; up to which number all of another worker have, [worker][stage][what]; by worker: bytes of bases that
     * this one has given to it, and that are not taken. */
    bool have_moves;
    _Atomic uint64_t given[PLAN_STAGES_MAX][2], *given_by, moving[RUN_WORKERS_MAX];
    struct worker_load *load_before; /* load.c: what was measured; the coordinator thread's */
    _Atomic uint64_t moved_groups, moved_operators, moved_bytes, moved_changes;
    _Atomic int64_t
        move_stop_us; /* the longest time that a lane gave or took: a piece of a base, or changes */
    pthread_mutex_t reports_mutex;
    atomic_int report_epoch; /* raised by lanes_stats, to ask for fresh reports */
};

/* exchange.c */
void exchange_init(struct run *run);
void exchange_free(struct run *run);
/* Sends the batch's selected rows, at least one, to the exchange's consumers. from: the instance that sends;
 * its micro-batch in work is the rows'. The caller keeps its reference to the batch. */
void exchange_push(struct exchange *exchange, struct stage_instance *from, struct batch *batch);
/* The packet of the micro-batch from a producer to one of this worker's consumers. */
struct packet *exchange_packet(struct exchange *exchange, uint64_t micro_batch, uint32_t producer,
                               uint32_t consumer);
/* Makes room for an entry at the packet's end, which it returns; the caller raises packet->count when it is filled in. */
struct packet_entry *exchange_entry(struct packet *packet);
/* Begins to read the rows that exchanges have for one input of the node in this micro-batch, merged by
 * row_order. */
void fan_in_open(struct node_instance *node, uint32_t input, struct fan_in *fan_in);
/* Returns the next batch, which the caller owns. NULL: there are no more, and the packets are empty now. Rows
 * that cannot be read back from a spill file are left out; the run has failed then. */
struct batch *fan_in_next(struct fan_in *fan_in);

/* remote.c */
/* Sends the batch's selected rows, at least one, to a consumer of another worker. */
void remote_push(struct exchange *exchange, struct stage_instance *from, uint32_t producer, uint32_t consumer,
                 const struct batch *batch);
/* Bytes that another worker sent are no rows of the exchange: adds a diagnostic, and fails the run. */
void remote_damaged(struct run *run, const struct exchange *exchange);

/* merge.c */
/* Merges several lists into `out` by row_order, whether or not each list is sorted. Takes the lists over:
 * their batches are moved to `out` or released. */
void merge_lists(struct batch_pool *pool, struct batch_list *lists, uint32_t count, struct batch_list *out);

/* instances.c */
struct stage_instance *lanes_instance(struct run *run, uint32_t stage, uint32_t instance);
/* Refreshes the reports of a stage's nodes if lanes_stats asked for it. */
void stage_reports(struct stage_instance *stage);

/* figures.c */
/* Copies the counters of the stage's nodes to where lanes_stats reads them. The stage's lane; any thread
 * while no lane works. */
void stage_show_counters(struct stage_instance *stage);

/* snapshot.c */
/* At the end of a micro-batch with a barrier: snapshots the nodes of the stage instance that has just run
 * it. */
void stage_snapshot(struct stage_instance *stage);
/* Whether the sink resumes, because the checkpoint has its state. A sink that the job did not have at the
 * checkpoint begins anew. */
bool snapshot_has_sink(struct run *run, const struct plan_node *sink);

/* sinks.c */
/* Fails the run; adds sink.error as a diagnostic, unless it was added before or the run is fenced. Any
 * thread. */
void sink_failed(struct node_instance *node);
/* Adds the sink's error as a diagnostic: "sink `out` stopped: ...", where `what` is "stopped". The caller
 * holds the run's diags_mutex while lanes run. */
void sink_say(struct node_instance *node, const char *what);
/* Tells the sink of a newly published checkpoint: files that it covers get their final names. */
void sink_tell_published(struct node_instance *node);
/* Implements sink_context.each_segment. */
void sink_each_segment(void *engine, uint64_t since, void (*take)(void *argument, struct str segment),
                       void *argument);

/* stage.c */
/* stage_give: gives rows to the node; the batch stays the caller's. stage_merge: gives the node the rows of
 * its queues, merged, and empties the queues. */
void stage_give(struct node_instance *node, uint32_t input, struct batch *batch);
void stage_merge(struct node_instance *node);
/* Whether the instance can run its next micro-batch: the feeders have finished it, and no node is held. */
bool stage_is_ready(const struct stage_instance *stage);
/* Runs the slot's micro-batch through the nodes, with the snapshot if it has a barrier. */
void stage_run(struct stage_instance *stage, struct slot *slot);
/* Whether the node must not get the next micro-batch yet (operator_kind.is_held). */
bool stage_node_is_held(const struct node_instance *node);
/* Sets stage->slot_watermarks from the watermarks of the sources. is_done: as slot.is_done. */
void stage_set_watermarks(struct stage_instance *stage, const int64_t *sources, const bool *is_done);
/* Behind the end of all sources: asks the nodes that are not done whether they want more. */
void stage_ask(struct stage_instance *stage, const bool *is_done);
int64_t stage_input_watermark(const struct node_instance *node);

/* move.c; the lane's thread, but for the first two. moves_init: false after a diagnostic: a node of the job cannot give key groups
 * away. moves_work: between micro-batches, gives and takes pieces of bases; false: there is nothing to do now. Call when a
 * micro-batch with a barrier was run, after its snapshot: stage_announce if a placement is announced, stage_leave if another
 * placement begins behind it. stage_is_placed: whether all instances have given what stage_take needs. stage_take: call before the
 * first micro-batch with that placement. */
bool moves_init(struct run *run);
void moves_free(struct run *run);
bool moves_work(struct lane *lane);
void stage_announce(struct stage_instance *stage, const struct placement *next);
void stage_leave(struct stage_instance *stage, const struct placement *next);
bool stage_is_placed(const struct stage_instance *stage, const struct placement *placement);
void stage_take(struct stage_instance *stage, const struct placement *placement);
/* A lane stood still from then on for a move. */
void note_move_stop(struct run *run, int64_t begin_us);
/* load.c. load_init, load_free: control thread, after exchange_init, and before exchange_free. load_vote: a row of the batch, of which
 * these are the keys, votes for its key; stage_weigh: notes the state of a keyed stage's instance, at a barrier; the lane's thread. */
void load_init(struct run *run);
void load_free(struct run *run);
void load_vote(const struct exchange *x, struct exchange_load *load, const struct batch *batch,
               const struct key *keys);
void stage_weigh(struct stage_instance *stage);
/* move_stage.c; the lane's thread. Call before the snapshot at the barrier behind which the placement `next` begins. */
void stage_move(struct stage_instance *stage, const struct placement *next);

/* time.c; the lane's thread. time_switch: from now on the time is the node's (NULL: no node's); returns the node whose
 * it was. time_spent: what the lane did since the last call. */
struct node_instance *time_switch(struct stage_instance *stage, struct node_instance *node);
void time_spent(struct lane *lane, enum run_lane_time what);
/* Whether a node of the stage is held (stage_node_is_held). */
bool stage_is_held(const struct stage_instance *stage);

/* look.c. looks_init: call when all instances are made; the control thread. */
void looks_init(struct run *run);
void looks_free(struct run *run);
/* Looks at some of the batch's selected rows. look_is_due: whether it is time to, by a reading of the clock in
 * nanoseconds. The lane's thread. */
bool look_is_due(const struct look *look, uint64_t now_ns);
void look_at(struct look *look, const struct batch *batch);
/* Call where the node gets rows, or of a source, lets them go; costs one branch where nobody asks. */
static inline void stage_look(const struct node_instance *node, const struct batch *batch)
{
    if (unlikely(node->look != NULL) && look_is_due(node->look, node->stage->at_work_ns))
        look_at(node->look, batch);
}
/* peek.c; the lane's thread. peek_begin: from now on the lane is asked; peek_end: no longer, and who waits is told so.
 * peek_serve: reads the keys that the lane is asked for; between micro-batches, if has_peeks. */
void peek_begin(struct lane *lane);
void peek_serve(struct lane *lane);
void peek_end(struct lane *lane);

/* publish.c; all but stage_publish_init where the stage is followed. */
void stage_publish_init(struct stage_instance *stage);
/* Call before the first node runs, when stage->slot is set. */
void stage_publish_begin(struct stage_instance *stage);
/* Where the micro-batch is published. stage_publish_rows: the node is about to get the batch's rows, and is of
 * FOLLOWING_ROWS. stage_publish_node: the node has its rows and its watermark. stage_publish_end: all nodes have. */
void stage_publish_rows(struct node_instance *node, uint32_t input, const struct batch *batch);
void stage_publish_node(struct node_instance *node);
void stage_publish_end(struct stage_instance *stage);
/* Between micro-batches, when the lane has nothing to do: cuts learners that changed since their last cut. Returns in how
 * many microseconds the next of them may be cut; INT64_MAX: none has changed. */
int64_t stage_publish_rest(struct stage_instance *stage);

static inline enum diag_code sink_error_code(const struct sink_context *sink)
{
    return sink->error_code != DIAG_NONE ? sink->error_code : DIAG_OUTPUT_FAILED;
}

/* dead.c */
/* Counts a bad row of the node. If a sink takes dead letters, adds one for the row; its texts are copied. batch: that has the
 * row, where the letter has no bytes of its record because a step rejected it; else NULL. */
void dead_add(struct node_instance *node, const struct row_origin *origin, const struct row_order *order,
              const struct dead_letter *letter, const struct batch *batch, uint32_t row);
/* Arrival time of the row; 0: unknown. */
static inline int64_t dead_time(const struct batch *batch, uint32_t row)
{
    return batch->arrival_time == NULL ? 0 : batch->arrival_time[row];
}
/* Sends the dead letters of the micro-batch in work to the sink that takes them. */
void dead_flush(struct stage_instance *stage);

/* dead_kept.c */
struct dead_kept *dead_kept_new(void);
void dead_kept_free(struct dead_kept *kept); /* NULL is allowed */
enum { DEAD_KEPT_TURN = 10, DEAD_KEPT_NS = 1000 * 1000 * 1000 };
/* Whether the node may keep another letter now; counts it. */
static inline bool dead_kept_has_turn(struct node_instance *node)
{
    uint64_t now =
        node->stage->at_work_ns; /* when a node got rows last: near enough, without a reading of the clock */
    if (unlikely(now - node->kept_since_ns >= DEAD_KEPT_NS)) {
        node->kept_since_ns = now;
        node->kept_count = 0;
    }
    if (likely(node->kept_count >= DEAD_KEPT_TURN))
        return false;
    node->kept_count++;
    return true;
}
/* Keeps a letter; where it has no bytes of the record, the row as JSON. batch: as of dead_add. */
void dead_kept_add(struct node_instance *node, const struct row_origin *origin,
                   const struct dead_letter *letter, const struct batch *batch, uint32_t row);

/* trace.c: call these functions only where run->trace is set; such a run has one lane. */
/* Returns false if the batch has no row of the record; else gives the batch to the node, rows of the record
 * in batches of their own, and returns true. */
bool trace_give(struct node_instance *node, uint32_t input, struct batch *batch);
/* As trace_give, for the rows in the queues of a node with several inputs. */
bool trace_merged(struct node_instance *node);
/* trace_emit: the node emits the batch. trace_dead: the node rejects a row. */
void trace_emit(struct node_instance *node, uint32_t output, const struct batch *batch);
void trace_dead(struct node_instance *node, const struct row_origin *origin,
                const struct dead_letter *letter);
/* Call when a stage has run a micro-batch: stops the run if no node holds a row of the record any more. */
void trace_stage(struct run *run);

#endif

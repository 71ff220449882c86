/* What the files of run share; private to this folder.
 *
 * One micro-batch's way: the sequencer (sequencer.c) cuts micro-batch n from the heads of all partitions and
 * puts it into a slot. Any lane takes it and runs stage 0 on it; operators push batches into exchanges
 * (exchange.c), which keep them in packets by (slot, producer instance, consumer instance). A stage instance
 * runs micro-batch n when every stage that feeds it has finished n (slot.stage_done), in the order 0, 1, 2
 * ... (stage.c, lane.c). A slot is used again, for micro-batch n + SLOTS, when all stages have finished n:
 * that alone bounds what is in flight, and because a lane asks for a free slot before a micro-batch exists
 * and never while it works on one, no cycle of full queues can form. Names in the code call a micro-batch,
 * and its number, `number`.
 *
 * Threads: lanes run stages and decode; the sequencer's state is under its mutex; a slot's plain fields are
 * written before the micro-batch is published (sequencer.formed) and read after; packets are written by
 * their producer before stage_done is raised (release) and read by their consumer after it was seen
 * (acquire). */
#ifndef LEAT_RUN_INTERNAL_H
#define LEAT_RUN_INTERNAL_H

#include "core/team.h"
#include "core/temporary.h"
#include "run/key_times.h"
#include "run/run.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    SLOTS = 64,      /* micro-batches in flight; a power of two */
    PIECES_MAX = 32, /* raw batches read ahead per partition */
    PARTITIONS_MAX = 4096,
};

_Static_assert((SLOTS & (SLOTS - 1)) == 0, "slots are found by masking");

/* --- Sequencer --- */

/* A raw batch of a partition, and what it was decoded into. */
struct piece {
    struct raw_batch raw;
    struct batch *batch; /* decoded rows; one reference is the ring's */
    struct decode_output output;
    atomic_bool is_ready;
    bool is_fixed;      /* order times include the running maximum of earlier pieces */
    bool has_own_order; /* order times are arrival or recorded times, not event times */
    /* For the source's watermark (watermark.c), indexed by physical row; in the batch's arena. */
    uint64_t *key_hashes; /* hash of the row's key; 0: null key. NULL: strategy is not per_key */
    uint64_t *marks;      /* bit set: the row is a punctuation; NULL: no row is */
};

struct partition {
    uint32_t id;     /* unique over all sources; breaks ties of order time */
    uint32_t source; /* index in plan->sources */
    uint32_t local;  /* index of the partition within its source */
    struct piece *pieces;
    uint32_t ring;       /* size of `pieces`: small, so that they stay in the CPU caches */
    uint64_t head, tail; /* pieces [head, tail) are in the ring */
    uint32_t head_row;   /* rows of the head piece that are already in micro-batches */
    bool is_reading, is_ended;
    bool is_over;       /* all rows are in micro-batches, and ORDER_ENDED is in the order log */
    bool is_live;       /* the end of every raw batch is a cut: a batch holds what had arrived */
    bool has_offsets;   /* the source kind counts by offsets (source_kind.has_offsets) */
    bool is_quiet;      /* live: the last read found that there is no more for now */
    bool is_idle;       /* live: left out of the watermark until its next row */
    uint64_t dry_at;    /* sequencer.wakes before the last read, which found nothing; 0: it found something */
    int64_t dry_us;     /* monotonic time since which reads find nothing; 0: the last one found something */
    bool has_own_order; /* a sequenced piece had piece.has_own_order */
    uint32_t since_cut; /* records sequenced since the last cut */
    int64_t order_max;  /* order time of the last sequenced row */
    int64_t order_logged; /* order time of the last slice in the order log */
    /* With has_offsets: next offset after the last sequenced record, or where the partition began. */
    int64_t offset;
    int64_t offset_logged;
    int64_t event_max;
    bool has_event;
    int64_t arrival_max; /* newest arrival time sequenced, where an arrival clock is needed; TIME_MIN: none */
    int64_t marked;      /* event time of the newest punctuation; TIME_MIN: none so far */
    struct key_times keys; /* newest event time by key, for the per_key watermark */
    bool is_held_back;     /* by `align:`: gives no rows to the next micro-batch */
    /* Pieces [head, fixed) have final order times; the running maxima at the end of piece `fixed` - 1. */
    uint64_t fixed;
    int64_t order_fixed, event_fixed;
    bool has_event_fixed;
    /* Where a resume begins when the head has no rows left: see partition_position. For kinds without
     * offsets it always begins here: at this raw batch, without its first `resume_rows` rows. */
    struct source_position resume;
    uint32_t resume_rows;
    uint32_t skip_rows; /* rows still to be skipped of the first batches after a resume */
    /* With has_offsets: offset up to which the last read that found no more has read, gaps included. */
    int64_t reach;
    int64_t saved;    /* with has_offsets: next offset in the positions that were saved last */
    uint64_t records; /* records sequenced, over all lives of the run */
};

#define PIECE_AT(partition, index) (&(partition)->pieces[(index) % (partition)->ring])

/* The rows of one partition in one micro-batch. */
struct slice {
    struct batch *batch; /* rows, with a selection of its own */
    struct partition *partition;
    uint32_t begin, end;          /* physical rows */
    const struct bad_record *bad; /* bad records of the whole batch; those in [begin, end) count */
    uint32_t bad_count;
    struct str *bad_raw; /* per bad record: its raw bytes, in the batch's arena */
};

struct slot {
    uint64_t number;
    struct slice *slices; /* room for one slice per partition at least; malloc'd */
    uint32_t slices_count, slices_room;
    int64_t *watermarks; /* per source, after this micro-batch; behind them the arrival clock */
    bool is_end;         /* the last micro-batch of this life */
    bool is_final;       /* all sources have ended: watermarks are TIME_MAX */
    uint32_t load;       /* sequencer.load after this micro-batch */
    uint64_t barrier;    /* epoch of the checkpoint after this micro-batch; 0: none */
    atomic_uint stage_done[PLAN_STAGES_MAX]; /* per stage: instances that have finished it */
};

/* The partition that holds a source's watermark back. */
struct watermark_holder {
    uint32_t partition; /* index of the partition; UINT32_MAX: no single one (merged by event time) */
    int64_t newest;     /* the source's newest event time; TIME_MIN: none yet */
};

struct sequencer {
    pthread_mutex_t mutex;
    struct partition *partitions;
    uint32_t partitions_count;
    uint32_t pieces_ahead;
    /* Watermark per source; behind them the arrival clock: no later row in order arrived before it. */
    int64_t *source_watermarks;
    int64_t wall_ahead_us; /* trusted wall clock less the monotonic clock (live.c); TIME_MIN: not yet read */
    struct watermark_holder *holders; /* per source */
    _Atomic uint64_t formed;          /* micro-batches below this number exist */
    _Atomic uint64_t claimed;         /* micro-batches below this number were taken for stage 0 */
    uint64_t first;                   /* number of the first micro-batch of this life */
    bool has_ended;                   /* the last micro-batch was formed */
    bool is_finished;                 /* the last micro-batch was final: all sources have ended */
    bool is_obeying;                  /* replay: the order log says what the next micro-batch holds */
    int64_t until_us;                 /* --until, an order time; TIME_MAX: none */
    uint32_t cut_records; /* records of a partition between two cuts: BATCH_ROWS, except in tests */
    atomic_bool stop_requested;
    /* Live sources. */
    bool is_live;           /* at least one source is live */
    _Atomic uint64_t wakes; /* starts at 1; raised when a source may have records again */
    uint64_t discovered_at; /* value of `wakes` when sources were last asked for new partitions */
    uint32_t *known;        /* per source: local partitions below this are in `partitions` */
    uint32_t partitions_room;
    uint64_t last_barrier; /* number after the micro-batch with the last barrier */
    bool has_risen;        /* since positions were saved, a partition's position rose without records */
    uint32_t load; /* 0 .. ORDER_LOAD_MAX, about log2 of the examples per step: see live_follow_load */
};

/* --- Stages --- */

struct node_instance;

struct consumer {
    struct node_instance *node; /* consumer in the same stage, or NULL */
    uint32_t input;
    struct exchange *exchange;
};

struct batch_list {
    struct batch *first, *last;
    uint32_t count;
};

/* What is known of a bad row besides its place. A text with data NULL is unknown or absent. */
struct dead_letter {
    struct str reason, raw, key;
    struct str headers; /* JSON */
    int64_t time_us;    /* arrival time; 0: unknown */
};

struct dead_row {
    struct row_origin origin;
    struct row_order order;
    const struct plan_node *node;
    struct dead_letter letter;       /* its texts are mended to UTF-8 */
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
    struct batch_list queues[OPERATOR_INPUTS_MAX]; /* of an operator with several inputs */
    struct exchange **exchanges[OPERATOR_INPUTS_MAX];
    uint32_t exchanges_count[OPERATOR_INPUTS_MAX];
    int64_t watermark; /* of a source: its watermark after the micro-batch in work */
    uint64_t published_seen;
    bool has_failed; /* a sink: under run.diags_mutex */
    /* dead_reason is set: it is written once, from the first dead letter of this life. */
    atomic_bool has_dead;
    char dead_reason[RUN_DEAD_REASON_BYTES];
    struct report report; /* under run.reports_mutex */
};

struct stage_instance {
    struct run *run;
    const struct plan_stage *stage;
    uint32_t index; /* index of the stage in the plan */
    uint32_t lane, instance;
    uint64_t next; /* micro-batch to run next; not used by stage 0 */
    struct node_instance *nodes;
    struct slot *slot;                 /* the micro-batch in work */
    uint32_t feeders[PLAN_STAGES_MAX]; /* stages that must finish a micro-batch before this one may run it */
    uint32_t feeders_count;
    struct arena number_arena; /* reset after each micro-batch */
    /* Per node of the plan: watermark after the micro-batch in work; behind them the arrival clock. */
    int64_t *slot_watermarks;
    int report_epoch; /* run.report_epoch at the last reports */
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
    struct batch *batch; /* NULL: spilled */
    uint64_t spill_offset;
    uint32_t spill_bytes;
    uint32_t spill_file;
    /* Entries of one run are in order; a producer with several chains of operators begins new runs. */
    uint32_t run;
};

struct packet {
    struct packet_entry *entries;
    uint32_t count, capacity, runs;
    struct row_order last; /* order of the last entry's last row */
    size_t bytes;          /* bytes in memory, as counted in run.exchange_bytes */
};

/* Batches beyond the budget of all exchanges: an unlinked file per producer instance. (The instances of
 * stage 0 share a packet column, because each micro-batch is run by one of them; but each has a spill
 * file.) */
struct spill_file {
    int fd; /* -1: not open */
    uint64_t end;
    /* Entries not read back yet; at 0 the file is written from its beginning again. */
    atomic_uint outstanding;
};

struct exchange {
    const struct plan_exchange *plan;
    const struct schema *schema;
    uint32_t producers, consumers; /* numbers of instances */
    struct packet *packets;        /* [slot][producer][consumer] */
    struct spill_file *spills;     /* [instance of the producing stage] */
};

/* Merges the rows of several packets into the one order, a batch at a time. */
struct merger {
    struct run *run;
    const struct schema *schema;
    struct merger_input *inputs;
    uint32_t count;
};

struct lane {
    struct run *run;
    uint32_t index;
    pthread_t thread;
    struct stage_instance **instances; /* of stages from 1 on, last stage first */
    uint32_t instances_count;
    struct stage_instance *sources; /* this lane's copy of stage 0 */
    void **decoders;                /* per source */
    struct arena scratch;
};

struct run {
    const struct plan *plan;
    struct run_options options;
    struct trace *trace; /* NULL: none */
    struct arena arena;
    struct diag_list *diags;
    pthread_mutex_t diags_mutex;
    uint32_t lanes_count;
    struct lane *lanes;
    struct source *sources; /* per source of the plan */
    struct batch_pool *pool;
    struct state_store *state_store;      /* NULL: no operator needs it */
    struct temporary_directory temporary; /* temporary directory of a state store without checkpoints */
    int64_t operator_memory_bytes;        /* budget of all keyed state together */
    bool is_resumed, was_finished;
    bool is_from;                /* resumed from another run's checkpoint, as a new one */
    uint16_t *ids;               /* per node of the plan: id of its part in checkpoints (parts.h) */
    bool *has_saved;             /* per node: the checkpoint has state that the node restores */
    uint32_t next_id;            /* lowest part id that no part has had so far */
    struct byte_buffer notes;    /* notes for people, said where the run begins; a line each */
    bool replaces_parts;         /* earlier lives of this run never published a checkpoint */
    uint32_t resumed_generation; /* generation of the checkpoint this life began with */
    uint64_t resumed_epoch;
    struct sequencer sequencer;
    struct slot slots[SLOTS];
    struct exchange *exchanges;
    _Atomic size_t exchange_bytes; /* bytes of packets in memory */
    size_t exchange_budget;
    atomic_uint spilled; /* batches spilled, for the report */
    /* One per learner, where there are several lanes: other lanes help through it (core/team.h). */
    struct team *teams;
    uint32_t teams_count;
    _Atomic uint64_t learning; /* number of the newest micro-batch that a learner with a team has begun */
    struct stage_instance **stages; /* instances of all stages; those of a stage begin at stage_first */
    struct node_instance **sinks;   /* sinks of all stages */
    uint32_t sinks_count;
    uint32_t *stage_first, *stage_instances, stages_total;
    atomic_bool has_failed;
    atomic_bool is_fenced; /* another process has taken over, and the diagnostic was added */
    /* lanes_at_work: lanes whose own stages have not run the last micro-batch yet. */
    atomic_uint lanes_running, lanes_at_work;
    /* Lanes without work sleep here until another lane makes progress. */
    pthread_mutex_t idle_mutex;
    pthread_cond_t idle_condition;
    atomic_uint idle_sleepers;
    _Atomic uint64_t progress;
    struct run_checkpoints *checkpoints; /* NULL: none */
    struct run_order *order;
    int64_t started_us, ended_us;
    pthread_mutex_t reports_mutex;
    atomic_int report_epoch; /* raised by a caller of run_stats, to ask for fresh reports */
    bool is_started, is_joined;
    uint32_t lanes_started;
    uint64_t records_before; /* records sequenced by earlier lives */
};

/* sequencer.c */
bool sequencer_init(struct run *run);
void sequencer_free(struct run *run);
/* Reads and decodes one piece; false: no partition has one to read now. */
bool sequencer_work(struct run *run, struct lane *lane);
/* Forms micro-batches while it can; returns whether it formed any. */
bool sequencer_form(struct run *run);
/* The next micro-batch for stage 0, or NULL. The caller must run it. */
struct slot *sequencer_claim(struct run *run);

/* watermark.c */
void watermark_init(struct run *run);
void watermark_free(struct run *run);
/* For a piece just decoded: rejects rows too far ahead of their arrival, and finds key hashes and
 * punctuations. Any lane. */
void watermark_decoded(struct run *run, struct lane *lane, const struct partition *p, struct piece *piece);
/* Rejects rows that jump ahead of earlier rows, and applies the partition's running maxima; pieces come in
 * their order. Returns false if a piece behind this one must be decoded first. */
bool watermark_fix(struct run *run, struct partition *p, uint64_t piece);
/* The rows [first, end) of the piece are now in a micro-batch. */
void watermark_take(struct run *run, struct partition *p, const struct piece *piece, uint32_t first,
                    uint32_t end);
static inline bool watermark_is_mark(const struct piece *piece, uint32_t row)
{
    return piece->marks != NULL && bit_get(piece->marks, row);
}
/* Index behind the next punctuation at or after `row`; `end` if there is none in [row, end). */
uint32_t watermark_next_mark(const struct piece *piece, uint32_t row, uint32_t end);
/* Sets which partitions give no rows to the next micro-batch (`align:`); all heads are decoded. */
void watermark_align(struct run *run);
/* At a cut: advances the watermarks of all sources and the arrival clock. */
void watermark_advance(struct run *run);

/* live.c */
/* live_tick: time to which the arrival clock may advance in a lull; TIME_MIN: no tick is due.
 * live_set_clock advances the clock and logs the tick. */
int64_t live_tick(struct run *run);
void live_set_clock(struct run *run, int64_t time);
/* Decides the load after a micro-batch got its rows; a changed load goes into the order log. */
void live_follow_load(struct run *run, const struct slot *slot);
void live_set_load(struct run *run, uint32_t load);
/* Implements source.wake and sink_context.wake; engine: the run. */
void live_wake(void *engine);
/* Takes in the status of a read, under the sequencer's mutex. wakes: sequencer.wakes before the read.
 * Returns whether this may let the next micro-batch form. */
bool live_was_read(struct partition *p, enum read_status status, uint64_t wakes);
/* Whether the partition may have something to read: it was not dry, or its source called wake since. */
bool live_may_read(const struct run *run, const struct partition *p);
/* Adds partitions that the sources have found. false after a diagnostic. */
bool live_discover(struct run *run);
/* Whether micro-batches are formed without rows of this partition, which has none ready. */
bool live_goes_without(struct run *run, const struct partition *p);
/* Marks partitions that have become idle; returns the last one marked, or NULL. */
struct partition *live_take_idle(struct run *run);
/* Whether a sink holds so much that the sources must wait. */
bool live_sinks_are_full(const struct run *run);
/* While sinks are full: whether a micro-batch may be formed to carry the barrier that lets them send. */
bool live_may_form_held(struct run *run, uint64_t number);

/* positions.c */
/* Adds all partitions of all sources: for a run that begins anew and replays no order log. A resume adds
 * those of its checkpoint, in its order; a replay those of the log. */
void sequencer_add_partitions(struct run *run);
/* local: the partition's index within its source. NULL after a diagnostic: there are too many. */
struct partition *sequencer_add_partition(struct run *run, uint32_t source, uint32_t local);
/* Whether the source's partitions are known by their names, not by their places: then more can be added. */
bool sequencer_is_named(const struct run *run, uint32_t source);
/* Index within its source of the partition of that name; UINT32_MAX: there is none. */
uint32_t sequencer_find_local(struct run *run, uint32_t source, struct str name);
struct str sequencer_partition_name(struct run *run, const struct partition *p);
void sequencer_save(struct run *run, bool is_finished, struct byte_buffer *out);
bool sequencer_restore(struct run *run, struct str positions);
/* sources: gets the watermarks of the plan's sources, and behind them the arrival clock; TIME_MIN where
 * `positions` have none. */
void positions_watermarks(struct str positions, const struct plan *plan, int64_t *sources);
/* Number of the first micro-batch after these positions; UINT64_MAX: they are of another format version. */
uint64_t positions_number(struct str positions);
/* Whether the traced record had not been sequenced yet. */
bool positions_are_before(struct str positions, const struct plan *plan, const struct trace *trace);
/* Whether all sources had ended. */
bool positions_are_final(struct str positions);

/* exchange.c */
void exchange_init(struct run *run);
void exchange_free(struct run *run);
void exchange_push(struct exchange *exchange, struct stage_instance *from, struct batch *batch);
/* Begins to read all rows for one input of the node in this micro-batch, in the one order. */
void exchange_open(struct node_instance *node, uint32_t input, struct merger *merger);
/* The next batch, which the caller owns; NULL: no more. */
struct batch *merger_next(struct merger *merger);
void batch_list_add(struct batch_list *list, struct batch *batch);
void batch_list_release(struct batch_list *list);

/* merge.c */
struct merge {
    struct {
        struct batch_list list;
        struct batch *batch; /* the current row's */
        uint32_t at;         /* selected index */
        struct row_order order;
    } inputs[OPERATOR_INPUTS_MAX];
    uint32_t count;
};
void merge_init(struct merge *merge, const struct batch_list *lists, uint32_t count);
/* Merges several lists into one order, whether or not each is sorted; takes over their batches. */
void merge_lists(struct batch_pool *pool, struct batch_list *lists, uint32_t count, struct batch_list *out);

/* instances.c */
bool stages_init(struct run *run);
/* Begins the sinks; after the restore. */
bool stages_begin(struct run *run);
/* Whether an earlier life of this run, without checkpoints, wrote what is there under the names of its
 * outputs. */
static inline bool run_replaces_own(const struct run *run)
{
    return run->options.is_restart && run->options.had_begun && run->checkpoints == NULL;
}
void stages_free(struct run *run);
/* Refreshes the reports of a stage's nodes if run_stats asked for it. */
void stage_reports(struct stage_instance *stage);

/* trace.c: only where run->trace is set; such a run has one lane. */
/* Chooses the checkpoint to restore, without changing the directory. false after a diagnostic. */
bool trace_choose(struct run *run);
/* After the restore: lets the checkpoint directory go. */
void trace_begin(struct run *run);
void trace_piece(struct run *run, const struct partition *p, const struct piece *piece);
/* Notes how far the partition was read, when a read found no more. */
void trace_reach(struct run *run, const struct partition *p);
/* Returns false if no row of the record is in the batch; else gives the batch to the node and returns
 * true. */
bool trace_give(struct node_instance *node, uint32_t input, struct batch *batch);
/* The same for the queues of a node with several inputs. */
bool trace_merged(struct node_instance *node);
void trace_emit(struct node_instance *node, uint32_t output, const struct batch *batch);
void trace_dead(struct node_instance *node, const struct row_origin *origin,
                const struct dead_letter *letter);
/* trace_stage: a stage has run a micro-batch. trace_lull: there is nothing to read for now. */
void trace_stage(struct run *run);
void trace_lull(struct run *run);

/* stage.c */
/* stage_give: gives rows to the node. stage_merge: gives it the rows of its queues, merged. */
void stage_give(struct node_instance *node, uint32_t input, struct batch *batch);
void stage_merge(struct node_instance *node);
/* Stops the job; sink.error says why. */
void sink_failed(struct node_instance *node);
/* Adds the sink's error as a diagnostic: "sink `out` stopped: ..."; under the run's diags_mutex where lanes
 * run. */
void sink_say(struct node_instance *node, const char *what);
bool stage_is_ready(const struct stage_instance *stage);
void stage_run(struct stage_instance *stage, struct slot *slot);
/* plan_watermarks: watermarks of all nodes after a micro-batch, a function of those of the sources alone.
 * Behind them (in both arrays) stands the arrival clock. plan_input_watermark: watermark of a node's
 * input. */
void plan_watermarks(const struct plan *plan, const int64_t *sources, int64_t *after);
int64_t plan_input_watermark(const struct plan *plan, const struct plan_node *node, const int64_t *after);
/* Sets stage->slot_watermarks from the sources' watermarks in the slot. */
void stage_set_watermarks(struct stage_instance *stage, const struct slot *slot);
int64_t stage_input_watermark(const struct node_instance *node);
static inline struct slot *run_slot(struct run *run, uint64_t number)
{
    return &run->slots[number & (SLOTS - 1)];
}
/* How many instances must finish a micro-batch before it is done for that stage. */
static inline unsigned stage_pieces(const struct run *run, uint32_t stage)
{
    return stage == 0 ? 1 : run->stage_instances[stage];
}

static inline enum diag_code sink_error_code(const struct sink_context *sink)
{
    return sink->error_code != DIAG_NONE ? sink->error_code : DIAG_E0605;
}

/* dead.c */
/* Makes room for a row of this order among the first RUN_DEAD_EXAMPLES, and sets its order; NULL: there are
 * as many earlier rows. */
struct run_dead_example *dead_example_room(struct run_dead_example *examples, uint32_t *count,
                                           const struct row_order *order);
void dead_add(struct node_instance *node, const struct row_origin *origin, const struct row_order *order,
              const struct dead_letter *letter);
/* Arrival time of the row; 0: unknown. */
static inline int64_t dead_time(const struct batch *batch, uint32_t row)
{
    return batch->arrival_time == NULL ? 0 : batch->arrival_time[row];
}
void dead_flush(struct stage_instance *stage);

/* lane.c */
void *lane_main(void *argument);
void run_wake(struct run *run);
/* Stops all lanes; the caller has added a diagnostic. */
void run_fail(struct run *run);

/* fence.c; any thread. */
/* Whether the run still holds its checkpoint directory. 0: yes. ESTALE: another process has taken over; the
 * diagnostic is added, and the run fails. Another errno: that cannot be told now. */
int run_check(struct run *run);
/* Asks once more: a fenced run does not report its other errors. */
bool run_is_fenced(struct run *run);
/* Control thread, at the end of a failed run: if it is fenced, E0709 replaces all other diagnostics. */
void run_ends_fenced(struct run *run);
/* Implements sink_context.check; engine: the run. */
int fence_check(void *engine);
/* Control thread, before a checkpoint is chosen: shuts out any process that still sends for the newest run
 * in the directory. false after a diagnostic. */
bool fence_sinks(struct run *run);

/* barrier.c */
/* Whether evictions that wait for the running checkpoint hold memory beyond the budget: then the sources
 * wait until the checkpoint is through. */
bool barrier_state_is_pressed(struct run *run);
/* Whether the disk of the checkpoints has less than `min_free` left: then the sources pause, so that it
 * never gets full in the middle of a write of the database. */
bool barrier_disk_is_low(struct run *run);
/* Whether the next micro-batch formed gets a barrier. */
bool barrier_is_waiting(struct run *run);
/* At the end of a micro-batch with a barrier: snapshots the nodes of the stage instance that has just run
 * it. */
void checkpoints_snapshot(struct stage_instance *stage, uint64_t epoch);
/* While a micro-batch is formed: epoch of the checkpoint after it, or 0. */
uint64_t barrier_at(struct run *run, const struct slot *slot);
/* Whether stages are passing a barrier, or the coordinator is writing a checkpoint. */
bool barrier_is_busy(struct run *run);
/* Whether the last micro-batch may be formed: with the barrier that waits for it, or with none if the disk
 * refuses a checkpoint. Asks for a checkpoint if none was asked for. */
bool barrier_takes_last(struct run *run);
uint64_t checkpoints_published(const struct run *run);
/* Asks for a checkpoint soon: the epoch's order log is long, or a full sink waits for one. */
void barrier_ask(struct run *run);
/* Whether the resumed checkpoint has something of the sink; a sink that the job did not have then begins
 * anew. */
bool checkpoints_have_sink(struct run *run, const struct plan_node *sink);

#endif

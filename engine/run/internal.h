/* What the files of run share. Not for others.
 *
 * One number's way: the sequencer (sequencer.c) cuts it from the heads of all partitions and puts it into a
 * slot. Any lane takes it and runs stage 0 on it; operators push batches into exchanges (exchange.c), which
 * keep them in packets by (slot, producer instance, consumer instance). A stage instance runs number n when
 * every stage that feeds it has finished n (slot.stage_done), in the order 0, 1, 2 ... (stage.c, lane.c). A
 * slot is used again, for number n + SLOTS, when all stages have finished n: that alone bounds what is in
 * flight, and because a lane asks for a free slot before a number exists and never while it works on one, no
 * cycle of full queues can form.
 *
 * Threads: lanes run stages and decode; the sequencer's state is under its mutex; a slot's plain fields are
 * written before the number is published (sequencer.formed) and read after; packets are written by their
 * producer before stage_done is raised (release) and read by their consumer after it was seen (acquire). */
#ifndef LEAT_RUN_INTERNAL_H
#define LEAT_RUN_INTERNAL_H

#include "core/team.h"
#include "core/temporary.h"
#include "run/key_times.h"
#include "run/run.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    SLOTS = 64,      /* numbers in flight; a power of two */
    PIECES_MAX = 32, /* raw batches read ahead per partition */
    PARTITIONS_MAX = 4096,
};

_Static_assert((SLOTS & (SLOTS - 1)) == 0, "slots are found by masking");

/* --- Sequencer
 * ---------------------------------------------------------------------------------------------------- */

/* One raw batch of a partition on its way to rows. */
struct piece {
    struct raw_batch raw;
    struct batch *batch; /* decoded; the ring's reference */
    struct decode_output output;
    atomic_bool is_ready;
    bool is_fixed;      /* order_time takes in what came before */
    bool has_own_order; /* by arrival, or as recorded, not by event time */
    /* For the source's watermark (watermark.c), by physical row; in the batch's arena. */
    uint64_t *key_hashes; /* per key: 0: none. NULL: not that strategy */
    uint64_t *marks;      /* bits: punctuations; NULL: there are none */
};

struct partition {
    uint32_t id;     /* over all sources: the order of ties */
    uint32_t source; /* index in plan->sources */
    uint32_t local;  /* number within the source */
    struct piece *pieces;
    uint32_t ring;       /* of them: few, so that their memory stays in the caches */
    uint64_t head, tail; /* pieces [head, tail) are in the ring */
    uint32_t head_row;   /* rows of the head that are sequenced */
    bool is_reading, is_ended;
    bool is_over;         /* all of it is in numbers; the order log says after which */
    bool is_live;         /* what is there is what has come: each end of a batch is a cut */
    bool has_offsets;     /* of the source's kind */
    bool is_quiet;        /* live: the last read found that there is no more for now */
    bool is_idle;         /* live: left out of the watermark until its next row */
    uint64_t dry_at;      /* sequencer.wakes when a read last found nothing; 0: it found something */
    int64_t dry_us;       /* since when, by the monotonic clock; 0: not dry */
    bool has_own_order;   /* of some piece so far */
    uint32_t since_cut;   /* records sequenced since the last cut */
    int64_t order_max;    /* of what is sequenced */
    int64_t order_logged; /* of the last slice in the order log */
    int64_t offset;       /* at least behind the last record that is sequenced; of kinds that have offsets */
    int64_t offset_logged;
    int64_t event_max;
    bool has_event;
    int64_t arrival_max;   /* where a clock of arrival is needed; TIME_MIN: none so far */
    int64_t marked;        /* the newest punctuation; TIME_MIN: none so far */
    struct key_times keys; /* where the watermark follows the slowest key */
    bool is_held_back;     /* from this number, by `align:` */
    /* What is fixed of its pieces: [head, fixed) are, and these are the running maxima behind them. */
    uint64_t fixed;
    int64_t order_fixed, event_fixed;
    bool has_event_fixed;
    /* Where a resume begins, when the head has no rows left: see partition_position. Of kinds without offsets
     * always: this raw batch, less its first `resume_rows` rows, and what is still to be skipped. */
    struct source_position resume;
    uint32_t resume_rows;
    uint32_t skip_rows; /* of the first batches after a resume */
    int64_t reach;      /* kinds with offsets: up to here the source was read, its last records included */
    int64_t saved;      /* likewise: the next offset in the last positions that were saved */
    uint64_t records;   /* sequenced, over all lives */
};

#define PIECE_AT(partition, index) (&(partition)->pieces[(index) % (partition)->ring])

/* The rows of one partition in one number. */
struct slice {
    struct batch *batch; /* with a selection of its own */
    struct partition *partition;
    uint32_t begin, end;          /* physical rows */
    const struct bad_record *bad; /* of the whole batch; those in [begin, end) count */
    uint32_t bad_count;
    struct str *bad_raw; /* bytes of each bad record, in the batch's arena */
};

struct slot {
    uint64_t number;
    struct slice *slices; /* room for all partitions at least; malloc'd */
    uint32_t slices_count, slices_room;
    int64_t *watermarks; /* per source, after this number, and the clock of arrival, as in the sequencer */
    bool is_end;         /* nothing follows */
    bool is_final;       /* all sources have ended: watermarks are TIME_MAX */
    uint32_t load;       /* as in the sequencer */
    uint64_t barrier;    /* epoch of the checkpoint after this number, 0: none */
    atomic_uint stage_done[PLAN_STAGES_MAX]; /* instances that have finished */
};

/* Which partition a source's watermark stands at. */
struct watermark_holder {
    uint32_t partition; /* UINT32_MAX: none; the merge by event time keeps all together */
    int64_t newest;     /* event time of the source so far; TIME_MIN: none */
};

struct sequencer {
    pthread_mutex_t mutex;
    struct partition *partitions;
    uint32_t partitions_count;
    uint32_t pieces_ahead;
    /* Per source; behind them the clock of arrival: no row that is in order arrived before it. */
    int64_t *source_watermarks;
    int64_t
        wall_ahead_us; /* of the clock of ticks (live.c) before the monotonic one; TIME_MIN: not asked yet */
    struct watermark_holder *holders; /* per source */
    _Atomic uint64_t formed;          /* numbers below this exist */
    _Atomic uint64_t claimed;         /* numbers below this were taken for stage 0 */
    uint64_t first;                   /* number this life began with */
    bool has_ended;                   /* the last number was formed */
    bool is_finished;                 /* and it was the final one */
    bool is_obeying;                  /* the order log says what the next number is */
    int64_t until_us;                 /* TIME_MAX: none */
    uint32_t cut_records;             /* of a partition, from one cut to the next: BATCH_ROWS, but in tests */
    atomic_bool stop_requested;
    /* Live sources. */
    bool is_live;           /* there is one at least */
    _Atomic uint64_t wakes; /* from 1; raised when a source may have something again */
    uint64_t discovered_at; /* wakes, when sources were last asked for new partitions */
    uint32_t *known;        /* per source: partitions below this are in the sequencer */
    uint32_t partitions_room;
    uint64_t last_barrier; /* number behind that of the last barrier */
    bool has_risen;        /* some position, without records, since positions were saved */
    uint32_t load;         /* 0 .. ORDER_LOAD_MAX: see live_follow_load */
};

/* --- Stages
 * ---------------------------------------------------------------------------------------------------------
 */

struct node_instance;

struct consumer {
    struct node_instance *node; /* in the same stage, or NULL */
    uint32_t input;
    struct exchange *exchange;
};

struct batch_list {
    struct batch *first, *last;
    uint32_t count;
};

/* What is known of a bad row beside its place. data NULL: not known, or there is none. */
struct dead_letter {
    struct str reason, raw, key;
    struct str headers; /* JSON */
    int64_t time_us;    /* of arrival; 0: not known */
};

struct dead_row {
    struct row_origin origin;
    struct row_order order;
    const struct plan_node *node;
    struct dead_letter letter;       /* texts are UTF-8 */
    struct str raw_bytes, key_bytes; /* where they are not UTF-8 */
};

struct node_instance {
    const struct plan_node *node;
    struct stage_instance *stage;
    struct operator_context context; /* counters for all tags */
    struct sink_context sink;
    struct arena scratch;
    struct consumer *consumers[OPERATOR_OUTPUTS_MAX];
    uint32_t consumers_count[OPERATOR_OUTPUTS_MAX];
    struct batch_list queues[OPERATOR_INPUTS_MAX]; /* of an operator with several inputs */
    struct exchange **exchanges[OPERATOR_INPUTS_MAX];
    uint32_t exchanges_count[OPERATOR_INPUTS_MAX];
    int64_t watermark; /* of its output, this number */
    uint64_t published_seen;
    bool has_failed;      /* a sink: under run.diags_mutex */
    atomic_bool has_dead; /* dead_reason is written, once: of its first dead letter in this life */
    char dead_reason[RUN_DEAD_REASON_BYTES];
    struct report report; /* under run.reports_mutex */
};

struct stage_instance {
    struct run *run;
    const struct plan_stage *stage;
    uint32_t index; /* of the stage */
    uint32_t lane, instance;
    uint64_t next; /* number to run; not for stage 0 */
    struct node_instance *nodes;
    struct slot *slot;                 /* in work */
    uint32_t feeders[PLAN_STAGES_MAX]; /* stages whose numbers it waits for */
    uint32_t feeders_count;
    struct arena number_arena; /* reset with each number */
    int64_t *slot_watermarks;  /* per node of the plan, after the number in work, and the clock of arrival */
    int report_epoch;          /* of the last reports */
    /* Dead letters of the number in work. */
    struct arena dead_arena;
    struct dead_row *dead;
    uint32_t dead_count, dead_capacity;
    struct exchange *dead_exchange; /* NULL: no sink takes them */
    struct run_dead_example examples[RUN_DEAD_EXAMPLES];
    uint32_t examples_count;
};

/* --- Exchanges
 * ------------------------------------------------------------------------------------------------------ */

/* A batch of a packet: in memory, or written to the producer's spill file. */
struct packet_entry {
    struct batch *batch; /* NULL: spilled */
    uint64_t spill_offset;
    uint32_t spill_bytes;
    uint32_t spill_file;
    uint32_t run; /* entries of one run are in order; a producer with several chains begins new runs */
};

struct packet {
    struct packet_entry *entries;
    uint32_t count, capacity, runs;
    struct row_order last; /* of the last entry's last row */
    size_t bytes;          /* in memory, as counted in run.exchange_bytes */
};

/* What does not fit into the budget of all exchanges: one unlinked file per instance that writes (in stage 0
 * several share one packet column, each with numbers of its own). */
struct spill_file {
    int fd; /* -1: none so far */
    uint64_t end;
    atomic_uint outstanding; /* entries not read back yet */
};

struct exchange {
    const struct plan_exchange *plan;
    const struct schema *schema;
    uint32_t producers, consumers; /* instances */
    struct packet *packets;        /* [slot][producer][consumer] */
    struct spill_file *spills;     /* [instance of the producing stage] */
};

/* Rows of several packets in the one order, a batch at a time. */
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
    struct stage_instance **instances; /* of stages 1.., last stage first */
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
    struct source *sources; /* per plan->sources */
    struct batch_pool *pool;
    struct state_store *state_store;      /* NULL: no operator needs it */
    struct temporary_directory temporary; /* of a state store without checkpoints */
    int64_t operator_memory_bytes;        /* for all keyed state together */
    bool is_resumed, was_finished;
    bool is_from;                /* resumed from another run's checkpoint, as a new one */
    uint16_t *ids;               /* per node of the plan: of its state (parts.h) */
    bool *has_saved;             /* per node: the checkpoint has something that it takes back */
    uint32_t next_id;            /* no part had it so far */
    struct byte_buffer notes;    /* for people, where the run begins */
    bool replaces_parts;         /* earlier lives of this run never published a checkpoint */
    uint32_t resumed_generation; /* the checkpoint this life began with */
    uint64_t resumed_epoch;
    struct sequencer sequencer;
    struct slot slots[SLOTS];
    struct exchange *exchanges;
    _Atomic size_t exchange_bytes; /* in packets, in memory */
    size_t exchange_budget;
    atomic_uint spilled; /* batches, for the report */
    struct team *teams;  /* of the learners, where there are several lanes */
    uint32_t teams_count;
    _Atomic uint64_t learning;      /* newest number that a learner with a team has begun */
    struct stage_instance **stages; /* [stage][instance], flat by stage_first */
    struct node_instance **sinks;   /* of all stages */
    uint32_t sinks_count;
    uint32_t *stage_first, *stage_instances, stages_total;
    atomic_bool has_failed;
    atomic_bool is_fenced;                    /* another process has taken over, and that is said */
    atomic_uint lanes_running, lanes_at_work; /* those whose own stages have not all run */
    /* Lanes that find nothing to do sleep here until somebody finishes something. */
    pthread_mutex_t idle_mutex;
    pthread_cond_t idle_condition;
    atomic_uint idle_sleepers;
    _Atomic uint64_t progress;
    struct run_checkpoints *checkpoints; /* NULL: none */
    struct run_order *order;
    int64_t started_us, ended_us;
    pthread_mutex_t reports_mutex;
    atomic_int report_epoch; /* raised by whoever wants fresh reports */
    bool is_started, is_joined;
    uint32_t lanes_started;
    uint64_t records_before; /* by earlier lives */
};

/* sequencer.c */
bool sequencer_init(struct run *run);
void sequencer_free(struct run *run);
/* Reads or decodes one piece if there is one to do. */
bool sequencer_work(struct run *run, struct lane *lane);
/* Forms numbers while it can. */
bool sequencer_form(struct run *run);
/* The next number for stage 0, or NULL. */
struct slot *sequencer_claim(struct run *run);

/* watermark.c */
void watermark_init(struct run *run);
void watermark_free(struct run *run);
/* A piece was decoded: its rows' times are known. Rows that are too far ahead of their arrival are bad; keys
 * and punctuations are found. Any lane. */
void watermark_decoded(struct run *run, struct lane *lane, const struct partition *p, struct piece *piece);
/* Judges rows that jump ahead of those before them, and takes in the running maxima: pieces in their order.
 * False: what is behind the piece must be decoded first. */
bool watermark_fix(struct run *run, struct partition *p, uint64_t piece);
/* The rows [first, end) of the piece are in a number. */
void watermark_take(struct run *run, struct partition *p, const struct piece *piece, uint32_t first,
                    uint32_t end);
static inline bool watermark_is_mark(const struct piece *piece, uint32_t row)
{
    return piece->marks != NULL && bit_get(piece->marks, row);
}
/* Behind the next punctuation at or after the row; `end` where there is none before it. */
uint32_t watermark_next_mark(const struct piece *piece, uint32_t row, uint32_t end);
/* Which partitions wait for others in the next number: heads are decoded. */
void watermark_align(struct run *run);
/* At a cut. */
void watermark_advance(struct run *run);

/* live.c */
/* In a lull: what the clock of arrival stands at from now on; TIME_MIN: no tick is due. Then that it does. */
int64_t live_tick(struct run *run);
void live_set_clock(struct run *run, int64_t time);
/* Decides the load once a number has its rows; it goes into the order log when it changes. */
void live_follow_load(struct run *run, const struct slot *slot);
void live_set_load(struct run *run, uint32_t load);
/* source.wake and sink_context.wake; engine: the run. */
void live_wake(void *engine);
/* What a read answered, under the sequencer's mutex. */
/* wakes: as it was before the read. Whether what numbers may have has changed. */
bool live_was_read(struct partition *p, enum read_status status, uint64_t wakes);
/* Whether the partition is worth a read: it was not dry, or something came since. */
bool live_may_read(const struct run *run, const struct partition *p);
/* Takes in partitions that sources have found. false after a diagnostic. */
bool live_discover(struct run *run);
/* Whether numbers go on without this partition, of which nothing is there. */
bool live_goes_without(struct run *run, const struct partition *p);
/* Notes which partitions are idle from now on; the last of them, or NULL. */
struct partition *live_take_idle(struct run *run);
/* Whether a sink holds so much that the sources wait for it. */
bool live_sinks_are_full(const struct run *run);
/* Then: whether a number may be formed all the same, to carry the barrier that lets them send. */
bool live_may_form_held(struct run *run, uint64_t number);

/* positions.c */
/* All that there are: of a run that begins anew, and whose order no log says. A resume has the partitions of
 * its checkpoint, in its order; what obeys a log has those of the log. */
void sequencer_add_partitions(struct run *run);
/* NULL after a diagnostic: there are too many. */
struct partition *sequencer_add_partition(struct run *run, uint32_t source, uint32_t local);
/* Whether its partitions are known by their names, not their places: some may be added. */
bool sequencer_is_named(const struct run *run, uint32_t source);
/* The number of the partition of that name within its source; UINT32_MAX: it has none. */
uint32_t sequencer_find_local(struct run *run, uint32_t source, struct str name);
struct str sequencer_partition_name(struct run *run, const struct partition *p);
void sequencer_save(struct run *run, bool is_finished, struct byte_buffer *out);
bool sequencer_restore(struct run *run, struct str positions);
/* Watermarks of the plan's sources, and behind them the clock of arrival; TIME_MIN where they say nothing. */
void positions_watermarks(struct str positions, const struct plan *plan, int64_t *sources);
/* The first number after them; UINT64_MAX: of another version. */
uint64_t positions_number(struct str positions);
/* Whether a record that is traced was not taken yet. */
bool positions_are_before(struct str positions, const struct plan *plan, const struct trace *trace);
/* Whether all sources had ended. */
bool positions_are_final(struct str positions);

/* exchange.c */
void exchange_init(struct run *run);
void exchange_free(struct run *run);
void exchange_push(struct exchange *exchange, struct stage_instance *from, struct batch *batch);
/* All rows for one input of the instance in this number, in the one order. */
void exchange_open(struct node_instance *node, uint32_t input, struct merger *merger);
/* The next batch, which the caller owns; NULL: no more. */
struct batch *merger_next(struct merger *merger);
void batch_list_add(struct batch_list *list, struct batch *batch);
void batch_list_release(struct batch_list *list);

/* merge.c */
struct merge {
    struct {
        struct batch_list list;
        struct batch *batch; /* of the current row */
        uint32_t at;         /* selected index */
        struct row_order order;
    } inputs[OPERATOR_INPUTS_MAX];
    uint32_t count;
};
void merge_init(struct merge *merge, const struct batch_list *lists, uint32_t count);
/* Puts several lists (each in order) into one order; takes the batches. */
void merge_lists(struct batch_pool *pool, struct batch_list *lists, uint32_t count, struct batch_list *out);

/* instances.c */
bool stages_init(struct run *run);
/* After what is restored: sinks begin. */
bool stages_begin(struct run *run);
/* Whether what is there under the names of the run's outputs was written by an earlier life of it, which left
 * no checkpoint. */
static inline bool run_replaces_own(const struct run *run)
{
    return run->options.is_restart && run->options.had_begun && run->checkpoints == NULL;
}
void stages_free(struct run *run);
/* Refreshes the reports of a stage's nodes when somebody asked. */
void stage_reports(struct stage_instance *stage);

/* trace.c: only where run->trace is set, which is on one lane. */
/* From the checkpoint directory, without changing it: what to restore. false after a diagnostic. */
bool trace_choose(struct run *run);
/* When everything is restored: the directory is of no use any more. */
void trace_begin(struct run *run);
void trace_piece(struct run *run, const struct partition *p, const struct piece *piece);
/* How far the partition was read, when there was nothing more. */
void trace_reach(struct run *run, const struct partition *p);
/* Whether rows of the record were among these, and the node has got all of them. */
bool trace_give(struct node_instance *node, uint32_t input, struct batch *batch);
/* The same of the node's queues. */
bool trace_merged(struct node_instance *node);
void trace_emit(struct node_instance *node, uint32_t output, const struct batch *batch);
void trace_dead(struct node_instance *node, const struct row_origin *origin,
                const struct dead_letter *letter);
/* A stage has run a number; there is nothing to read for now. */
void trace_stage(struct run *run);
void trace_lull(struct run *run);

/* stage.c */
/* Gives rows to the node; those of its queues. */
void stage_give(struct node_instance *node, uint32_t input, struct batch *batch);
void stage_merge(struct node_instance *node);
/* The sink has said why: the job stops. */
void sink_failed(struct node_instance *node);
/* The sink's own error as a diagnostic: "sink `out` stopped: ..."; under the run's diags_mutex where lanes
 * run. */
void sink_say(struct node_instance *node, const char *what);
bool stage_is_ready(const struct stage_instance *stage);
void stage_run(struct stage_instance *stage, struct slot *slot);
/* Watermarks of all nodes after a number: a function of those of the sources alone. Behind them (in `after`
 * of the nodes) stands the clock of arrival. Then that of a node's input. */
void plan_watermarks(const struct plan *plan, const int64_t *sources, int64_t *after);
int64_t plan_input_watermark(const struct plan *plan, const struct plan_node *node, const int64_t *after);
/* Watermarks of all nodes, from those of the sources in the slot. */
void stage_set_watermarks(struct stage_instance *stage, const struct slot *slot);
int64_t stage_input_watermark(const struct node_instance *node);
static inline struct slot *run_slot(struct run *run, uint64_t number)
{
    return &run->slots[number & (SLOTS - 1)];
}
/* How many have to finish a number before it is done for that stage. */
static inline unsigned stage_pieces(const struct run *run, uint32_t stage)
{
    return stage == 0 ? 1 : run->stage_instances[stage];
}

static inline enum diag_code sink_error_code(const struct sink_context *sink)
{
    return sink->error_code != DIAG_NONE ? sink->error_code : DIAG_E0605;
}

/* dead.c */
/* Room among the first RUN_DEAD_EXAMPLES for a row of this order, with the order set; NULL: others come
 * first. */
struct run_dead_example *dead_example_room(struct run_dead_example *examples, uint32_t *count,
                                           const struct row_order *order);
void dead_add(struct node_instance *node, const struct row_origin *origin, const struct row_order *order,
              const struct dead_letter *letter);
/* When the row arrived, or 0. */
static inline int64_t dead_time(const struct batch *batch, uint32_t row)
{
    return batch->arrival_time == NULL ? 0 : batch->arrival_time[row];
}
void dead_flush(struct stage_instance *stage);

/* lane.c */
void *lane_main(void *argument);
void run_wake(struct run *run);
/* Stops all lanes after the diagnostic was added. */
void run_fail(struct run *run);

/* fence.c; any thread. */
/* Whether the run still holds its checkpoint directory: 0; ESTALE: another process has taken over: that is
 * said, and the run fails; another errno: it cannot be told now. */
int run_check(struct run *run);
/* Asked once more: what goes wrong in a run that is fenced is not said. */
bool run_is_fenced(struct run *run);
/* Control thread, at the end of a run that failed: if it is fenced, that is all that is said. */
void run_ends_fenced(struct run *run);
/* sink_context.check; engine: the run. */
int fence_check(void *engine);
/* Control thread, before a checkpoint is chosen: whoever else sends for the newest run in the directory
 * cannot any more. false after a diagnostic. */
bool fence_sinks(struct run *run);

/* barrier.c */
/* Whether evictions that wait for a checkpoint hold memory beyond the budget: the sources wait for it as
 * well. Only until it is through: what waits is written when the lanes go on. */
bool barrier_state_is_pressed(struct run *run);
/* Whether the disk of the checkpoints has less than `min_free`: the sources pause, so that it is never full
 * in the middle of what the database writes. */
bool barrier_disk_is_low(struct run *run);
/* Whether the next number formed gets a barrier. */
bool barrier_is_waiting(struct run *run);
/* At the end of a number with a barrier, by the instance that finished it. */
void checkpoints_snapshot(struct stage_instance *stage, uint64_t epoch);
/* While the number is formed: the epoch of the checkpoint after it, or 0. */
uint64_t barrier_at(struct run *run, const struct slot *slot);
/* Whether a checkpoint is on its way that stages are passing or the coordinator is writing. */
bool barrier_is_busy(struct run *run);
/* Whether the last number may be formed: with the barrier that waits for it, or with none where the disk
 * refuses one. Asks for a checkpoint if there is none. */
bool barrier_takes_last(struct run *run);
uint64_t checkpoints_published(const struct run *run);
/* The order log of the epoch is long: a checkpoint soon. */
void barrier_ask(struct run *run);
/* Whether the checkpoint that the run resumes has something of the sink: one that the job did not have then
 * begins anew. */
bool checkpoints_have_sink(struct run *run, const struct plan_node *sink);

#endif

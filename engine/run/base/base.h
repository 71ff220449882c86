/* struct run, which all subfolders ("rooms") of engine/run share.
 *
 * Rooms, from below: base, publish, order, sequencer, lanes, checkpoints. A room includes the public headers of the
 * rooms below it, and nothing of the rooms above it (tests/tidy). The files in engine/run itself (run.c,
 * stats.c, ...) are above all rooms. Each room keeps its data in a struct that only its private header
 * defines.
 *
 * The way of a micro-batch: the sequencer cuts micro-batch n from the heads of all partitions and puts it
 * into a slot. Any lane takes the micro-batch and runs stage 0 on it. Operators push batches into exchanges,
 * which keep the batches in packets by (slot, producer instance, consumer instance). A stage instance runs
 * micro-batches in the order 0, 1, 2 ...; it runs n when every stage that feeds it has finished n
 * (slot.stage_done). When all stages have finished n, its slot is free for micro-batch n + SLOTS. Slots alone
 * bound the micro-batches in flight. No cycle of full queues can form, because a lane asks for a free slot
 * before it forms a micro-batch, never while it works on one. At a barrier the sequencer saves the sources'
 * positions, and each stage instance the state of its nodes; then the coordinator writes the checkpoint.
 *
 * Threads: lanes run stages and decode records; the coordinator is a thread of its own. All other
 * functions and members are for the control thread, before the lanes start and after they were joined,
 * unless a comment says otherwise. */
#ifndef LEAT_RUN_BASE_BASE_H
#define LEAT_RUN_BASE_BASE_H

#include "core/connector.h"
#include "core/placement.h"
#include "core/temporary.h"
#include "run/run.h"
#include "state/stores.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    SLOTS = 64, /* micro-batches in flight; a power of two */
    PARTITIONS_MAX = 4096,
};

_Static_assert((SLOTS & (SLOTS - 1)) == 0, "slots are found by masking");

struct checkpoint;
struct checkpoint_dir;

/* Callbacks by which the sequencer tells `leat trace` what it read. Called by the run's only lane. */
struct run_observer {
    /* `raw` was read from the source's partition number `local`, and decoded into `batch`. */
    void (*has_read)(struct run *run, uint32_t source, uint32_t local, const struct raw_batch *raw,
                     const struct batch *batch);
    /* A read found no more records: all records before `offset` were read. */
    void (*has_reached)(struct run *run, uint32_t source, uint32_t local, int64_t offset);
};

struct run {
    /* The job and its options: read-only once lanes have started. */
    const struct plan *plan;
    struct run_options options;
    struct arena arena;                  /* taken from while the run is built; freed with the run */
    struct trace *trace;                 /* what `leat trace` follows, with one lane; NULL: none */
    const struct run_observer *observer; /* set if `trace` is; else NULL */
    uint32_t lanes_count;
    uint32_t *stage_instances; /* by stage: number of its instances that are this worker's */
    /* Messages of other workers, that they have run a micro-batch (base/peers.h). */
    struct peer_progress *peer_progress;
    struct peer_outbox *peer_outboxes; /* by worker: messages for which its link has no room (base/peers.h) */
    struct run_busy {
        uint64_t at_ns, ns; /* the last look: when, and what lanes had worked by then */
        double share;
    } busy;                            /* of run_stats; control thread */
    struct peer_figures *peer_figures; /* base/peer_figures.h; NULL: the run is alone */
    struct loads *loads;               /* base/loads.h; NULL: key groups do not move by load */
    struct placement placement_before; /* of the checkpoint with which the run begins (placements_first) */
    const uint32_t *homes_before;      /* likewise, by stage: the worker that had it; NULL: it does not say */
    struct placement placements[2];    /* by version modulo 2 (base/placements.h) */
    /* Guarded by the sequencer's mutex: the version of the next micro-batch; a change to the one behind it is announced. */
    uint32_t placement_version;
    bool placement_is_announced;
    uint32_t
        placement_instances; /* of keyed stages, on this worker, where there are several over all workers */
    _Atomic uint64_t placement_rounds; /* rounds of changes that have begun */
    _Atomic uint64_t placement_taken;  /* how often an instance of this worker has taken one */
    _Atomic uint64_t placement_taken_by[RUN_WORKERS_MAX]; /* the leader's: rounds that all of a worker have */
    struct source *sources;                               /* by source of the plan */
    struct sink_context **sinks;
    uint32_t sinks_count;
    struct batch_pool *pool;
    struct state_stores stores;           /* rows of keyed state on disk; not open: no operator needs it */
    struct temporary_directory temporary; /* directory of `stores`, if the job has no checkpoints */
    int64_t operator_memory_bytes;        /* budget of all keyed state together */

    /* How this life begins (checkpoints/begin.c). */
    struct checkpoint_dir *dir; /* NULL: the job has no checkpoints */
    const char *path;           /* path of the checkpoint directory; NULL: none */
    const char *job_path;       /* of the job's, which is another one where there are several workers */
    struct checkpoint *resumed; /* the checkpoint to restore; NULL: none, or its state has been restored */
    bool is_resumed;            /* this life begins with a checkpoint */
    bool was_finished;          /* that checkpoint is of the end of the run: all sources had ended */
    bool was_at_until;          /* it is of the end of a run with this --until, or a later one */
    bool is_from;               /* a new run that begins with the checkpoint of another run */
    /* is_from, and an earlier life began with the same checkpoint, but published no checkpoint of its own. */
    bool is_begun_again;
    bool replaces_parts;         /* earlier lives of this run published no checkpoint: their files are void */
    uint16_t *ids;               /* by node of the plan: id of its part in checkpoints */
    bool *has_saved;             /* by node: the checkpoint has state that the node restores */
    uint32_t resumed_generation; /* this and the epoch: of the checkpoint restored; set after the restore */
    uint64_t resumed_epoch;
    int64_t started_us, ended_us;
    bool is_started, is_joined;

    /* diags: guarded by diags_mutex while lanes run. notes: lines for the user, shown when the run begins. */
    struct diag_list *diags;
    pthread_mutex_t diags_mutex;
    struct byte_buffer notes;

    /* Any thread. */
    atomic_bool has_failed;
    atomic_bool is_fenced; /* another process has taken over the checkpoint directory; E0709 was added */
    /* Lanes without work sleep on idle_condition until `progress` rises (run_wake). */
    pthread_mutex_t idle_mutex;
    pthread_cond_t idle_condition;
    atomic_uint idle_sleepers;
    _Atomic uint64_t progress;

    /* base/spill.h: bytes of rows and messages that wait in memory, and their bound, set by base_init; bytes that this life has
     * written to spill files. */
    _Atomic size_t waiting_bytes;
    size_t waiting_budget;
    _Atomic uint64_t spilled_bytes;

    /* The data of each room. */
    struct barrier *barrier;     /* NULL: the run takes no checkpoints */
    struct publisher *publisher; /* NULL: nobody can follow the job */
    struct order *order;
    struct sequencer *sequencer;
    struct lanes *lanes;
    struct checkpoints *checkpoints; /* NULL: the job has no checkpoints */
};

void base_init(struct run *run);
void base_free(struct run *run);

/* Raises run->progress and wakes sleeping lanes, so that they look for work. Any thread. */
void run_wake(struct run *run);
/* Stops all lanes; the caller has added a diagnostic. Any thread. */
void run_fail(struct run *run);
static inline bool run_has_failed(const struct run *run)
{
    return atomic_load_explicit(&run->has_failed, memory_order_relaxed);
}

/* Whether this life has nothing to read, and no micro-batch to run. */
static inline bool run_was_over(const struct run *run)
{
    return run->was_finished || run->was_at_until;
}

/* Adds a line to run->notes; the format has no newline. Control thread, while the run is built. */
void run_note(struct run *run, const char *format, ...) LEAT_PRINTF(2, 3);

/* Whether the files under the names of this run's outputs are those of an earlier life, which this life
 * replaces: the job has no checkpoints, and the supervisor restarted it. */
static inline bool run_replaces_own(const struct run *run)
{
    return run->options.is_restart && run->options.had_begun && run->dir == NULL;
}

/* Whether sinks commit the output of a checkpoint only when an object store has it; those of several workers wait for the head. */
static inline bool run_awaits_store(const struct run *run)
{
    return run->plan->config.checkpoint.commit == COMMIT_STORE && run->barrier != NULL &&
           run->options.peers == NULL;
}

/* Whether an object store has copies of checkpoints, and may be behind what sinks have given away; sinks of several workers wait for
 * the head. */
static inline bool run_notes_order(const struct run *run)
{
    const struct job_checkpoint *config = &run->plan->config.checkpoint;
    return config->store.length > 0 && config->commit == COMMIT_LOCAL && run->barrier != NULL &&
           run->options.peers == NULL;
}

static inline const struct plan_node *run_source_node(const struct run *run, uint32_t source)
{
    return &run->plan->nodes[run->plan->sources[source]];
}

/* The number of instances that must finish a micro-batch before the stage has finished it. Stage 0: one, as
 * any lane runs it. */
static inline unsigned run_stage_pieces(const struct run *run, uint32_t stage)
{
    return stage == 0 ? 1 : run->stage_instances[stage];
}

/* base_watermarks: computes the watermark of each node after a micro-batch from the watermarks of the
 * sources alone. sources: [sources_count + 1], after: [nodes_count + 1], microseconds; the last element of
 * both is the arrival clock. base_watermarks_ended: call after base_watermarks, with the watermarks of the sources
 * before they ended: sets what they are in a micro-batch behind the end of all sources. There a node that may have
 * work left (plan_node.goes_on) keeps its watermark until it is done (is_done, by node), and so do the nodes behind it;
 * all others have TIME_MAX. base_input_watermark: the watermark of a node's input, from the array `after`. */
void base_watermarks(const struct plan *plan, const int64_t *sources, int64_t *after);
void base_watermarks_ended(const struct plan *plan, const bool *is_done, int64_t *after);
int64_t base_input_watermark(const struct plan *plan, const struct plan_node *node, const int64_t *after);

/* A node's share of `bytes` for keyed state: nodes that keep state get equal shares. */
int64_t base_memory_share(const struct plan *plan, int64_t bytes);

/* Implements operator_context.cold_store: cold_store_new with the context's state store and node id. */
struct cold_store *base_cold_store(struct operator_context *context, uint32_t table, size_t row_bytes);

/* Inserts an element for a row of this row_order into the sorted examples of dead letters, and sets its `order`; NULL: there
 * are RUN_DEAD_EXAMPLES examples of earlier rows already. The caller's arrays: any thread. */
struct run_dead_example *dead_example_room(struct run_dead_example *examples, uint32_t *count,
                                           const struct row_order *order);

/* fence.c; any thread. */
/* Checks whether the run still holds its checkpoint directory. Returns 0 if it does, or if the job has no
 * checkpoints. ESTALE: another process has taken over; E0709 is added, and the run fails. Another errno: the
 * check itself failed. */
int run_check(struct run *run);
/* Calls run_check, and returns whether another process has taken over, now or before. Call before
 * reporting an error: a fenced run reports E0709 alone. */
bool run_is_fenced(struct run *run);
/* Control thread, at the end of a failed run: if it is fenced, E0709 replaces all other diagnostics. */
void run_ends_fenced(struct run *run);
/* Implements sink_context.check; engine: the run. */
int fence_check(void *engine);

#endif

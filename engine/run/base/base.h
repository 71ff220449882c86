/* What all rooms of engine/run stand on: the run as each of them sees it.
 *
 * Rooms, from below: base, order, sequencer, lanes, checkpoints. A room includes those below it, by their
 * public headers, and never one above it (tests/tidy). The run's own files (run.c, stats.c, ...) are above
 * all. Each room keeps its data in a struct of its own, which only its private header defines.
 *
 * One micro-batch's way: the sequencer cuts micro-batch n from the heads of all partitions and puts it into a
 * slot. Any lane takes it and runs stage 0 on it; operators push batches into exchanges, which keep them in
 * packets by (slot, producer instance, consumer instance). A stage instance runs micro-batch n when every
 * stage that feeds it has finished n (slot.stage_done), in the order 0, 1, 2 ... A slot is used again, for
 * micro-batch n + SLOTS, when all stages have finished n: that alone bounds what is in flight, and because a
 * lane asks for a free slot before a micro-batch exists and never while it works on one, no cycle of full
 * queues can form. At a barrier the sequencer saves positions, each stage instance its nodes' state; then the
 * coordinator writes the checkpoint.
 *
 * Threads: lanes run stages and decode; the coordinator is a thread of its own; all else is for the control
 * thread, while the run is built and after it was joined, unless said otherwise. */
#ifndef LEAT_RUN_BASE_BASE_H
#define LEAT_RUN_BASE_BASE_H

#include "core/connector.h"
#include "core/temporary.h"
#include "run/run.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    SLOTS = 64, /* micro-batches in flight; a power of two */
    PARTITIONS_MAX = 4096,
};

_Static_assert((SLOTS & (SLOTS - 1)) == 0, "slots are found by masking");

struct checkpoint;
struct checkpoint_dir;

/* What `leat trace` is told by the sequencer. Any lane; a trace has one. */
struct run_observer {
    /* A raw batch of a partition was read and decoded. */
    void (*has_read)(struct run *run, uint32_t source, uint32_t local, const struct raw_batch *raw,
                     const struct batch *batch);
    /* A read found no more records; the partition was read up to this offset. */
    void (*has_reached)(struct run *run, uint32_t source, uint32_t local, int64_t offset);
};

struct run {
    /* What is run: read-only once lanes have started. */
    const struct plan *plan;
    struct run_options options;
    struct arena arena;                  /* of the run; while it is built */
    struct trace *trace;                 /* NULL: none; a run with a trace has one lane */
    const struct run_observer *observer; /* with a trace; else NULL */
    uint32_t lanes_count;
    uint32_t *stage_instances; /* per stage: number of its instances */
    struct source *sources;    /* per source of the plan */
    struct sink_context **sinks;
    uint32_t sinks_count;
    struct batch_pool *pool;
    struct state_store *state_store;      /* NULL: no operator needs it */
    struct temporary_directory temporary; /* temporary directory of a state store without checkpoints */
    int64_t operator_memory_bytes;        /* budget of all keyed state together */

    /* How this life begins (checkpoints/begin.c). */
    struct checkpoint_dir *dir; /* NULL: the job has no checkpoints */
    const char *path;           /* path of the checkpoint directory; NULL: none */
    struct checkpoint *resumed; /* the checkpoint this life begins with; NULL: none, or it is restored */
    bool is_resumed, was_finished;
    bool is_from; /* resumed from another run's checkpoint, as a new run */
    bool
        is_begun_again; /* an earlier life began from the same checkpoint of another run, and published none */
    bool replaces_parts;         /* earlier lives of this run never published a checkpoint */
    uint16_t *ids;               /* per node of the plan: id of its part in checkpoints */
    bool *has_saved;             /* per node: the checkpoint has state that the node restores */
    uint32_t resumed_generation; /* of the checkpoint this life began with; set when it is restored */
    uint64_t resumed_epoch;
    int64_t started_us, ended_us;
    bool is_started, is_joined;

    /* Diagnostics: while lanes run, under the mutex. notes: for people, said where the run begins; a line
     * each. */
    struct diag_list *diags;
    pthread_mutex_t diags_mutex;
    struct byte_buffer notes;

    /* Any thread. */
    atomic_bool has_failed;
    atomic_bool is_fenced; /* another process has taken over, and the diagnostic was added */
    /* Lanes without work sleep here until somebody makes progress. */
    pthread_mutex_t idle_mutex;
    pthread_cond_t idle_condition;
    atomic_uint idle_sleepers;
    _Atomic uint64_t progress;

    /* The rooms. */
    struct barrier *barrier; /* NULL: the run takes no checkpoints */
    struct order *order;
    struct sequencer *sequencer;
    struct lanes *lanes;
    struct checkpoints *checkpoints; /* NULL: the job has no checkpoints */
};

void base_init(struct run *run);
void base_free(struct run *run);

/* Lets sleeping lanes look for work again. Any thread. */
void run_wake(struct run *run);
/* Stops all lanes; the caller has added a diagnostic. Any thread. */
void run_fail(struct run *run);
static inline bool run_has_failed(const struct run *run)
{
    return atomic_load_explicit(&run->has_failed, memory_order_relaxed);
}
/* Adds a line to the notes that are shown where the run begins. */
void run_note(struct run *run, const char *format, ...) LEAT_PRINTF(2, 3);

/* Whether an earlier life of this run, without checkpoints, wrote what is there under the names of its
 * outputs. */
static inline bool run_replaces_own(const struct run *run)
{
    return run->options.is_restart && run->options.had_begun && run->dir == NULL;
}

static inline const struct plan_node *run_source_node(const struct run *run, uint32_t source)
{
    return &run->plan->nodes[run->plan->sources[source]];
}

/* How many instances must finish a micro-batch before it is done for that stage. */
static inline unsigned run_stage_pieces(const struct run *run, uint32_t stage)
{
    return stage == 0 ? 1 : run->stage_instances[stage];
}

/* base_watermarks: watermarks of all nodes after a micro-batch, a function of those of the sources alone.
 * Behind them (in both arrays) stands the arrival clock. base_input_watermark: watermark of a node's input. */
void base_watermarks(const struct plan *plan, const int64_t *sources, int64_t *after);
int64_t base_input_watermark(const struct plan *plan, const struct plan_node *node, const int64_t *after);

/* Implements operator_context.cold_store, over the context's state store. table, row_bytes: as
 * cold_store_new has them. */
struct cold_store *base_cold_store(struct operator_context *context, uint32_t table, size_t row_bytes);

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

#endif

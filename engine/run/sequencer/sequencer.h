/* The sequencer: merges the rows of all partitions into one order, and cuts this order into micro-batches
 * (sequencer.c tells how). */
#ifndef LEAT_RUN_SEQUENCER_SEQUENCER_H
#define LEAT_RUN_SEQUENCER_SEQUENCER_H

#include "run/base/base.h"

/* The rows of one partition in one micro-batch. */
struct slice {
    struct batch *batch; /* rows, with a selection of its own */
    struct partition *partition;
    uint32_t source;              /* index in plan->sources */
    uint32_t begin, end;          /* physical rows */
    const struct bad_record *bad; /* bad records of the whole batch; those in [begin, end) count */
    uint32_t bad_count;
    struct str *bad_raw; /* per bad record: its raw bytes, in the batch's arena */
};

/* A micro-batch on its way. The plain fields are written before the micro-batch is published, and read
 * after. */
struct slot {
    uint64_t micro_batch;
    struct slice *slices; /* room for one slice per partition at least; malloc'd */
    uint32_t slices_count, slices_room;
    int64_t *watermarks; /* per source, after this micro-batch; then the arrival clock; microseconds */
    bool is_end;         /* the last micro-batch of this life */
    bool is_final;       /* all sources have ended, and no operator has work left: watermarks are TIME_MAX */
    /* All sources have ended, and operators may have work left: by node of the plan, whether it is done, as in
     * base_watermarks_ended; `watermarks` are those before the end. NULL: in all other micro-batches. */
    const bool *is_done;
    uint32_t load;                     /* 0 .. ORDER_LOAD_MAX, about log2 of the examples per step (live.c) */
    bool is_published;                 /* followers get what it changes (run/publish) */
    const struct placement *placement; /* by which its rows go to the instances of keyed stages */
    const struct placement *next;      /* the next micro-batch's, where that is another one; else NULL */
    const struct placement
        *announced;   /* that will come at the next barrier, where this one says so; else NULL */
    uint64_t barrier; /* epoch of the checkpoint after this micro-batch; 0: none */
    atomic_uint stage_done[PLAN_STAGES_MAX]; /* per stage: instances that have finished it */
};

/* What a lane needs to decode raw batches. */
struct decoding {
    void **decoders; /* per source */
    struct arena scratch;
};

/* --- Building: control thread --- */

/* Opens the sources. false after diagnostics, or because options.stop was set. */
bool sequencer_init(struct run *run);
void sequencer_free(struct run *run);
/* Adds all partitions of all sources. For a run that begins anew and replays no order log: a resume adds the
 * partitions of its checkpoint, in the checkpoint's order (sequencer_restore), a replay those of the log. */
void sequencer_add_partitions(struct run *run);
/* Adds the partitions of a checkpoint, each at its position. positions: checkpoint_info.sources. false after
 * a diagnostic. */
bool sequencer_restore(struct run *run, struct str positions);
/* Call once positions are restored: begins to replay an order log, and to write one. false after a
 * diagnostic. */
bool sequencer_begin(struct run *run);
void decoding_init(struct run *run, struct decoding *decoding);
void decoding_free(struct run *run, struct decoding *decoding);

/* --- Work for lanes --- */

/* Reads and decodes one raw batch. decoding: the lane's own. false: no partition has a batch to read now. */
bool sequencer_work(struct run *run, struct decoding *decoding);
/* Forms micro-batches while it can; returns whether it formed any. */
bool sequencer_form(struct run *run);
/* Returns the next micro-batch for stage 0, which the caller must run. NULL: there is none, or stage 0 must
 * first finish earlier ones because of a barrier. */
struct slot *sequencer_claim(struct run *run);
/* What a node answered (operator_kind.wants_more). Call before the stage has finished the micro-batch; or after a
 * restore, on the control thread. */
void sequencer_answers(struct run *run, const struct plan_node *node, bool wants_more);
/* Why no micro-batch was formed when one was last tried: RUN_LANE_WAITS (there were no rows), or one of those that
 * follow it. Any thread. */
enum run_lane_time sequencer_held(const struct run *run);
/* Call after a lane has slept for lack of work: partitions of live sources that had no records are read
 * again. */
void sequencer_look_again(struct run *run);

/* Takes a message of another worker to this sequencer. False: it is none that the run can have. Any thread. */
LEAT_CHECKED bool sequencer_receive(struct run *run, uint32_t worker, struct str message);

/* --- What the sequencer has done; any thread, unless a comment says otherwise --- */

/* The slot in which the micro-batch is, or will be. */
struct slot *sequencer_slot(const struct run *run, uint64_t micro_batch);
/* Micro-batches below this number are formed; their slots can be read. */
uint64_t sequencer_formed(const struct run *run);
/* Micro-batches below this number were taken for stage 0. */
uint64_t sequencer_claimed(const struct run *run);
/* How many partitions of sources, and how many key groups, are this worker's. */
void sequencer_own(const struct run *run, uint32_t *partitions, uint32_t *groups);
/* The instance that has the key with that hash in the micro-batch that is formed next. */
uint32_t sequencer_instance(const struct run *run, uint64_t hash);
/* Number of the first micro-batch of this life. */
uint64_t sequencer_first(const struct run *run);
/* Whether the last micro-batch of this life was formed and taken. *formed: number after the last formed. */
bool sequencer_has_ended(struct run *run, uint64_t *formed);
/* Whether the last micro-batch was final: all sources have ended. Call after the lanes have ended. */
bool sequencer_is_finished(const struct run *run);
/* Control thread, while the run is built. sequencer_watermarks: watermark per source, then the arrival clock;
 * microseconds. sequencer_done: as slot.is_done of the checkpoint's micro-batch. */
int64_t *sequencer_watermarks(const struct run *run);
const bool *sequencer_done(const struct run *run);

struct partition_place {
    const struct plan_node *node; /* the source's node */
    struct source *source;
    uint32_t local;   /* index of the partition within its source */
    const char *name; /* "": the partition has none */
};
/* Finds a partition by its id. false: there is none; then only place->name is set, to "". */
bool sequencer_place(const struct run *run, uint32_t id, struct partition_place *place);

/* Asks that the next micro-batch formed be the last one of this life. Any thread. */
void sequencer_stop(struct run *run);
/* Implements source.wake and sink_context.wake; engine: the run. Any thread. */
void sequencer_wake(void *engine);
/* Call after a checkpoint was abandoned. Its epoch is in no checkpoint, so the next barrier gets a
 * micro-batch even if no rows arrive, or if no rows may be taken because a full sink waits for a checkpoint.
 * Coordinator. */
void sequencer_forget_barrier(struct run *run);
/* Adds the figures of sources, and watermarks and newest event times. Call after lanes_stats, which fills
 * stats->nodes. Control thread. */
void sequencer_stats(struct run *run, struct run_stats *stats);

#endif

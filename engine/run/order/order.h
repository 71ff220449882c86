/* The order log of a run: writing what the sequencer decides, and finding what an earlier run decided
 * (core/order_log.h has the format).
 *
 * Writing. The sequencer puts entries into the open piece while it forms micro-batches. At a barrier the
 * piece is sealed: it becomes the segment that the checkpoint publishes, and a new piece begins. If a
 * checkpoint is abandoned, its segment is continued by the next one. With --record-order segments are also
 * appended to a file, or to files of a directory (file.c), before their checkpoint is published: so a resume
 * finds at least the segments it needs, and ignores those behind them.
 *
 * Replaying. The log that a run replays (replay_log.c chooses it) comes from checkpoints that a resume could
 * not use (state/checkpoint.h: redo), from --order, or from a recording's manifest. The sequencer reads the
 * log's segments, one after another, and forms the same micro-batches (sequencer/replay.c).
 *
 * Call all functions under the sequencer's mutex, or before lanes start, unless a comment says otherwise.
 * Numbers of micro-batches count from 0; order times are in microseconds. */
#ifndef LEAT_RUN_ORDER_ORDER_H
#define LEAT_RUN_ORDER_ORDER_H

#include "core/order_log.h"
#include "run/base/base.h"

/* The log that a run replays. It has micro-batch numbers of its own: a replay that is stopped and resumed has
 * one micro-batch more than its log. */
struct replay_log {
    const char *name; /* path of the log, for messages; NULL: none was named */
    /* Identity of the log of --order or of a recording, for checkpoints; 0: none, or a log that is replayed
     * after a fallback. */
    uint64_t identity;
    /* After a fallback: number after the last micro-batch that is replayed; 0: no fallback. */
    uint64_t redo_next;
    uint64_t next;    /* number, in the log, of the next micro-batch */
    bool is_live;     /* the log is of live sources: the order behind its end cannot be computed */
    bool has_run_out; /* the end of a log of live sources was reached */
    /* The segment in work. */
    bool has_segment;
    struct order_reader reader;
    uint64_t until; /* number after the segment's last micro-batch that counts */
};

/* --- The log that is written --- */

/* Call after the sources were opened: finds the log to replay. false after a diagnostic. */
bool order_init(struct run *run);
/* Call once positions are restored: opens the file or directory of --record-order. first: number of the first
 * micro-batch of this life. false after diagnostics. */
bool order_begin(struct run *run, uint64_t first);
void order_free(struct run *run);

/* Whether a log is written. The functions below may be called where none is. */
bool order_is_written(const struct run *run);
/* Begins a new piece behind the sealed one. The caller then adds all partitions, in the order of their ids,
 * and the load. */
void order_open_piece(struct run *run);
/* tag: ORDER_PARTITION, in a new piece alone, or ORDER_ADDED. */
void order_partition(struct run *run, enum order_tag tag, const struct order_partition *partition);
/* tag: ORDER_ENDED or ORDER_IDLE. */
void order_of(struct run *run, enum order_tag tag, uint32_t partition);
void order_tick(struct run *run, int64_t time);
void order_load(struct run *run, uint32_t level);
void order_slice(struct run *run, const struct order_slice *slice);
/* Ends the micro-batch. tag: ORDER_MICRO_BATCH, ORDER_ENDED_ALL, ORDER_LAST or ORDER_CUT. partition: with ORDER_CUT,
 * id of the partition at whose cut the micro-batch ends. */
void order_end(struct run *run, uint64_t micro_batch, enum order_tag tag, uint32_t partition);
/* Seals the open piece: at a barrier, or if order_wants_segment. The caller then begins a new piece. */
void order_seal_piece(struct run *run);

/* Where the log is: the number behind its last micro-batch, and the bytes of entries of this life. False: none is written. */
bool order_place_now(const struct run *run, uint64_t *micro_batch, uint64_t *bytes);

/* Whether the open piece is so long that a checkpoint must be asked for. */
bool order_wants_barrier(const struct run *run);
/* Whether the open piece is so long that the sources must wait for a checkpoint. */
bool order_is_full(const struct run *run);
/* For runs without checkpoints. order_wants_segment: whether the open piece must be written to the file of
 * --record-order. order_write: seals and writes it; false after a diagnostic. */
bool order_wants_segment(const struct run *run);
bool order_write(struct run *run, struct diag_list *diags);
/* Call after the lanes have ended without an error. In a run without checkpoints, writes the last segment.
 * false after a diagnostic. */
bool order_finish(struct run *run);

/* For the coordinator. Makes the sealed piece the segment of the checkpoint that is being written, and
 * appends it to the file of --record-order, if there is one. The bytes are valid until the next call. data
 * NULL: that file could not be written; a diagnostic was added. */
struct str order_segment(struct run *run, uint64_t epoch, struct diag_list *diags);
/* For the coordinator, when the segment's checkpoint was published. Returns the number after the segment's
 * last micro-batch. */
uint64_t order_published(struct run *run);

/* --- The log that is replayed --- */

/* Read-only, except for the sequencer. */
struct replay_log *order_replay_log(const struct run *run);
/* Whether the run replays a log. */
bool replay_log_is_there(const struct run *run);
/* Whether the replay follows a fallback; true also if there is no log. The output of such a replay has gone
 * out already, so no other micro-batch may come between those of the log. */
bool replay_log_is_redo(const struct run *run);
/* Call once replay_log.next is known: lists the files of a log that lies in a directory of checkpoints. false
 * after a diagnostic. */
bool replay_log_list(struct run *run);
/* Reads the segment that has this micro-batch; replay_log.has_segment stays false if the log ends before the
 * micro-batch. Returns false on an error, which has failed the run. */
bool replay_log_find_segment(struct run *run, uint64_t micro_batch);
/* Adds a diagnostic that the log does not fit, and fails the run. Lanes may be running: takes the run's
 * diags_mutex. replay_log_refuse adds a general hint. */
void LEAT_PRINTF(3, 4) replay_log_refuse(struct run *run, enum diag_code code, const char *format, ...);
void replay_log_refuse_so(struct run *run, enum diag_code code, const char *what, const char *hint);

#endif

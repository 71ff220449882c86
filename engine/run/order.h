/* The order log of a run: writing what the sequencer decides, and replaying what an earlier run decided
 * (core/order_log.h has the format).
 *
 * Writing. The sequencer puts entries into a buffer while it forms micro-batches. At a barrier the buffer is
 * sealed: it becomes the segment that the checkpoint publishes, and a new buffer begins. If a checkpoint is
 * abandoned, its segment is continued by the next one. With --record-order segments are also appended to a
 * file, or to files of a directory (order_file.c), before their checkpoint is published: so a resume finds at
 * least the segments it needs, and ignores those behind them.
 *
 * Replaying (names say `obey` and `script`). A script of segments, read one after another, says what each
 * micro-batch takes from each partition; the sequencer waits for these records, compares counts, order times
 * and offsets, and forms the micro-batch. Scripts come from checkpoints that a resume could not use
 * (state/checkpoint.h: redo), from --order, or from a recording's manifest (script.c). Partitions get the
 * places that they have in the log, when the log names them: these places put rows of one order time in
 * order. Behind the end of the log the order is computed again; the order of live sources cannot be computed,
 * so there the run stops. The log has micro-batch numbers of its own (script.next): a replay that is stopped
 * and resumed has one micro-batch more than its log.
 *
 * Under the sequencer's mutex, or before lanes start, unless said otherwise. */
#ifndef LEAT_RUN_ORDER_H
#define LEAT_RUN_ORDER_H

#include "core/order_log.h"
#include "run/internal.h"

enum {
    ORDER_EPOCH_BYTES = 16 << 20, /* bytes of entries at which a checkpoint is asked for */
    ORDER_HELD_BYTES = 256 << 20, /* bytes of entries without a checkpoint at which the sources wait */
    ORDER_FILE_SEGMENT = 1 << 20, /* bytes of entries per segment, without checkpoints */
};

/* Decisions for the micro-batches [first, next), as the bytes of a segment. */
struct order_piece {
    struct byte_buffer partitions, entries;
    uint64_t first, next, slices, records;
};

/* A file with segments. Its micro-batches from `until` on do not count: a later life of the run began
 * there, and has them in another file. */
struct order_path {
    const char *path;
    uint64_t until;
    bool may_be_torn; /* the file may end within a segment: its life was killed, or still runs */
};

struct order_script {
    struct order_path *paths;
    uint32_t paths_count, path; /* path: index of the file in work */
    int fd;
    uint64_t offset, bytes; /* in the file in work: next byte to read, and size */
    char *text;             /* bytes of the segment in work; malloc'd */
    uint64_t until;         /* number after the segment's last micro-batch that counts */
    struct order_reader reader;
    bool has_segment;
    const char *name; /* path of the log, for messages; NULL: none was named */
    bool is_of_checkpoints;
    uint32_t *map; /* index of a partition in the log -> index in the run */
    /* Identity of the log of --order or of a recording; 0: none, or a log that is replayed after a
     * fallback. */
    uint64_t identity;
    /* After a fallback: number after the last micro-batch that is replayed; 0: no fallback. */
    uint64_t redo_next;
    uint64_t next;    /* number, in the log, of the next micro-batch */
    bool is_live;     /* the log is of live sources: the order behind its end cannot be computed */
    bool has_run_out; /* the end of a log of live sources was reached */
    /* The next micro-batch. */
    bool has_number;
    enum order_tag tag;
    uint32_t cut;
    struct order_slice *slices; /* slice.partition: index in the run */
    uint32_t slices_count;
    bool *is_ended, *is_idle; /* per partition of the run */
    int64_t tick;             /* new time of the arrival clock; TIME_MIN: no tick */
    uint32_t load;
    uint32_t *sources_places; /* per source: how many of its partitions the segment has named so far */
};

struct run_order {
    bool is_written;
    /* From a barrier until its checkpoint is published, `sealed` has the decisions before the barrier; it
     * is the coordinator's. */
    struct order_piece open, sealed;
    struct byte_buffer segment; /* the coordinator's: bytes of the segment for the checkpoint */
    const char *file_path;      /* --record-order; NULL: none */
    /* --record-order is a directory: its path; then file_path is the file in work, or stale when file_fd is
     * -1. */
    const char *directory;
    char *part_path;   /* path of the file in work; malloc'd */
    uint32_t life;     /* generation of this life */
    int file_fd;       /* -1: no file is open */
    uint64_t file_end; /* bytes of the file whose checkpoints are published */
    struct order_script script;
};

/* order.c */
/* order_init, after the sources were opened: finds the log to replay. order_begin, once positions are
 * restored: begins the replay and opens the file of --record-order. false after diagnostics. */
bool order_init(struct run *run);
bool order_begin(struct run *run);
void order_free(struct run *run);
/* Logs the micro-batch just formed. cut: the partition at whose cut it ends, or NULL. */
void order_number(struct run *run, const struct slot *slot, const struct partition *cut);
void order_ended(struct run *run, const struct partition *p);
void order_idle(struct run *run, const struct partition *p);
void order_added(struct run *run, struct partition *p);
void order_tick(struct run *run, int64_t time);
void order_load(struct run *run, uint32_t level);
/* Seals the segment; after order_number of the micro-batch with the barrier. */
void order_barrier(struct run *run);
bool order_is_full(const struct run *run);
/* After each micro-batch: asks for a checkpoint if the epoch's log is long; without checkpoints, writes a
 * segment to the file of --record-order. false: that write failed, and so does the run. */
bool order_keep_up(struct run *run);
/* Coordinator. order_segment: the order log segment for the checkpoint that is being written; NULL data:
 * the file of --record-order could not be written. order_published: that checkpoint was published. */
struct str order_segment(struct run *run, uint64_t epoch, struct diag_list *diags);
void order_published(struct run *run);
/* After the lanes have ended well: without checkpoints, writes the last segment to the file of
 * --record-order. */
bool order_finish(struct run *run);

/* order_file.c: --record-order */
/* Once positions are restored. false after a diagnostic, also below. */
bool order_file_open(struct run *run);
/* Appends order->segment, whose first micro-batch is `first`. */
bool order_file_append(struct run *run, uint64_t first, struct diag_list *diags);
/* The appended segment is kept: its checkpoint was published. */
void order_file_published(struct run_order *order);
enum { ORDER_RUN_BYTES = 16 };
/* The files of a directory of --record-order, in the order in which they count; paths are the arena's. run:
 * gets the id of the run that wrote them. Returns NULL, or what is wrong, with *error an errno or 0. If the
 * directory is not one of --record-order, returns NULL with *count 0 and *error 0. */
const char *order_directory(const char *path, struct arena *arena, struct order_path **paths, uint32_t *count,
                            uint8_t run[ORDER_RUN_BYTES], int *error);

/* script.c */
/* After the sources were opened: chooses the log to replay, if any. */
bool script_init(struct run *run);
/* Once script.next is known: lists the files of a log that is in a directory of checkpoints. */
bool script_list(struct run *run);
/* Reads the segment that has the micro-batch `number`; script.has_segment stays false if the log ends
 * before it. Returns false on an error. */
bool script_find_segment(struct run *run, uint64_t number);

/* obey.c */
/* Once positions are restored: finds the first segment, and in a run that begins anew adds the partitions
 * that it names. */
bool obey_begin(struct run *run);
void obey_free(struct run *run);
/* Fails the run because the order log does not fit it. Lanes may be running: takes the run's diags_mutex. */
void LEAT_PRINTF(3, 4) obey_refuse(struct run *run, enum diag_code code, const char *format, ...);
/* Whether the replay follows a fallback. Its output has gone out already, so no micro-batch may be put in
 * between. */
bool obey_is_redo(const struct run *run);
enum obey_state { OBEY_WAIT, OBEY_NUMBER, OBEY_LAST, OBEY_OUT };
/* Whether the script's next micro-batch can be formed. OBEY_NUMBER: yes. OBEY_LAST: yes, and it is the
 * last. OBEY_OUT: the log has ended, and the order behind it cannot be computed. OBEY_WAIT: not yet; also
 * after an error, and at the end of a log behind which the order is computed (sequencer.is_obeying is then
 * false). */
enum obey_state obey_ready(struct run *run);
/* Whether the next micro-batch begins at or after --until. */
bool obey_is_beyond(const struct run *run);
/* Cuts the slices of the next micro-batch; returns the partition at whose cut it ends, or NULL. */
struct partition *obey_fill(struct run *run, struct slot *slot);
/* Identity of the log that is replayed, for checkpoints; 0: none, or a log that is replayed after a
 * fallback. */
uint64_t obey_identity(const struct run *run);

/* partition.c: for sequencer.c and obey.c */
bool partition_prepare(struct run *run, struct partition *p);
void partition_drop_head(struct partition *p);
/* Doubles the read-ahead ring, for a micro-batch of many small batches; false once it holds BATCH_ROWS
 * pieces, enough even if each has one record. Only when all pieces are decoded and no lane reads the
 * partition. */
bool partition_widen(struct partition *p);
void partition_cut(struct run *run, struct partition *p, uint32_t end, struct slice *slice);
/* Whether the head piece is a batch of BATCH_ROWS records, or the rest of one after a resume. */
bool partition_is_whole(const struct partition *p);
/* Where a resume goes on; for kinds without offsets, `resume_rows` rows behind this position. */
struct source_position partition_position(const struct partition *p);
/* With offsets: all records that were read are sequenced, and the position is behind the one saved last. */
bool partition_has_risen(const struct partition *p);

#endif

/* The order log of a run: writing what the sequencer decides, and obeying what was decided before
 * (core/order_log.h has the format).
 *
 * Writing. The sequencer puts entries into a buffer while it forms numbers. At a barrier the buffer is
 * sealed: it becomes the segment that the checkpoint publishes, and a new one begins. Where a checkpoint is
 * abandoned, its segment goes on with the next. With --record-order segments are appended to a file, or to
 * files of a directory, as well (order_file.c): before their checkpoint is published, so that a resume finds
 * at least what it needs, and what is behind that does not count.
 *
 * Obeying. A script of segments, read one after another, says what each number takes from each partition; the
 * sequencer waits for that, compares counts, order times and offsets, and forms the number. Scripts come from
 * checkpoints that a resume could not use (state/checkpoint.h: redo), from --order, or from a recording's
 * manifest (script.c). Partitions get the places that they have in the log, when the log names them: rows of
 * one time are put in order by these. Behind its end the order is computed again; where it is that of live
 * sources it cannot be, and the run stops there. What is obeyed has numbers of its own (script.next): a
 * replay that is stopped, and goes on, has one more.
 *
 * Under the sequencer's mutex, or before lanes start, unless said otherwise. */
#ifndef LEAT_RUN_ORDER_H
#define LEAT_RUN_ORDER_H

#include "core/order_log.h"
#include "run/internal.h"

enum {
    ORDER_EPOCH_BYTES = 16 << 20, /* of entries: a checkpoint is wanted now */
    ORDER_HELD_BYTES = 256 << 20, /* of entries that no checkpoint took: the sources wait */
    ORDER_FILE_SEGMENT = 1 << 20, /* without checkpoints */
};

/* What was decided for some numbers. */
struct order_piece {
    struct byte_buffer partitions, entries;
    uint64_t first, next, slices, records;
};

/* Files with segments. Numbers from `until` on are another file's: a later life of the run began there. */
struct order_path {
    const char *path;
    uint64_t until;
    bool may_be_torn; /* it may end within a segment: a life was killed, or goes on */
};

struct order_script {
    struct order_path *paths;
    uint32_t paths_count, path; /* the one in work */
    int fd;
    uint64_t offset, bytes; /* in the file in work */
    char *text;             /* of the segment in work; malloc'd */
    uint64_t until;         /* and where it ends */
    struct order_reader reader;
    bool has_segment;
    const char *name; /* of the log, for people */
    bool is_of_checkpoints;
    uint32_t *map;      /* partition of the log -> of the run */
    uint64_t identity;  /* of --order or a recording's; 0: what a fall back executes again, or none */
    uint64_t redo_next; /* of a fall back: the number behind it; 0: none */
    uint64_t next;      /* the log's number that comes next */
    bool is_live;       /* of live sources: what is behind its end cannot be computed */
    bool has_run_out;   /* and that was reached */
    /* The next number. */
    bool has_number;
    enum order_tag tag;
    uint32_t cut;
    struct order_slice *slices; /* partition: of the run */
    uint32_t slices_count;
    bool *is_ended, *is_idle; /* of the run's partitions */
    int64_t tick;             /* of the clock of arrival; TIME_MIN: none */
    uint32_t load;
    uint32_t *sources_places; /* per source: partitions of it that the segment has named so far */
};

struct run_order {
    bool is_written;
    struct order_piece open, sealed; /* sealed: from a barrier until it is published; of the coordinator */
    struct byte_buffer segment;      /* of the coordinator */
    const char *file_path;           /* --record-order; NULL: none */
    const char *directory;           /* where that is one; file_path is then the file in work */
    char *part_path;                 /* its name; malloc'd */
    uint32_t life;                   /* the generation */
    int file_fd;                     /* -1: none is in work */
    uint64_t file_end;               /* of what is published */
    struct order_script script;
};

/* order.c */
/* After the sources were opened: finds what to obey. Then, once positions are restored: opens the order file.
 * false after diagnostics. */
bool order_init(struct run *run);
bool order_begin(struct run *run);
void order_free(struct run *run);
/* The number is formed; cut: the partition at whose cut it ends, or NULL. */
void order_number(struct run *run, const struct slot *slot, const struct partition *cut);
void order_ended(struct run *run, const struct partition *p);
void order_idle(struct run *run, const struct partition *p);
void order_added(struct run *run, struct partition *p);
void order_tick(struct run *run, int64_t time);
void order_load(struct run *run, uint32_t level);
/* While the number with the barrier is formed, after order_number. */
void order_barrier(struct run *run);
bool order_is_full(const struct run *run);
/* After each number: asks for a checkpoint where the epoch's log is long; without checkpoints, writes to the
 * order file. false: it failed, and so does the run. */
bool order_keep_up(struct run *run);
/* Coordinator: the segment of the checkpoint that is written; NULL data: the order file refuses. Then whether
 * it was published. */
struct str order_segment(struct run *run, uint64_t epoch, struct diag_list *diags);
void order_published(struct run *run);
/* After the lanes have ended well, without checkpoints: the rest goes to the order file. */
bool order_finish(struct run *run);

/* order_file.c: --record-order */
/* Once positions are restored. false after a diagnostic, as the others. */
bool order_file_open(struct run *run);
/* Appends the segment that was sealed last; from number `first` on. */
bool order_file_append(struct run *run, uint64_t first, struct diag_list *diags);
/* It counts. */
void order_file_published(struct run_order *order);
enum { ORDER_RUN_BYTES = 16 };
/* The files of such a directory, in the order in which they count, in the arena; run: whose they are. NULL,
 * or what is wrong; *count 0 with *error 0: it is none. */
const char *order_directory(const char *path, struct arena *arena, struct order_path **paths, uint32_t *count,
                            uint8_t run[ORDER_RUN_BYTES], int *error);

/* script.c */
/* Which log is obeyed, if any: after the sources were opened. */
bool script_init(struct run *run);
/* Its files, once script.next is known. */
bool script_list(struct run *run);
/* The segment that has the number, or none: the script is through. false: an error. */
bool script_find_segment(struct run *run, uint64_t number);

/* obey.c */
/* Finds the first segment, and in a run that begins anew makes its partitions known. Once positions are
 * restored. */
bool obey_begin(struct run *run);
void obey_free(struct run *run);
/* The order log is not this run's: the run fails. Lanes may be running: the diagnostics are theirs too. */
void LEAT_PRINTF(3, 4) obey_refuse(struct run *run, enum diag_code code, const char *format, ...);
/* Whether what is obeyed has gone out already: no number may come in between. */
bool obey_is_redo(const struct run *run);
enum obey_state { OBEY_WAIT, OBEY_NUMBER, OBEY_LAST, OBEY_OUT };
/* Whether the script's next number can be formed; OUT: it ends there, and nobody can say what comes next;
 * WAIT as well after the end of one that can be gone on from, when sequencer.is_obeying is false, and after
 * an error. */
enum obey_state obey_ready(struct run *run);
/* Whether the next number begins at or after --until. */
bool obey_is_beyond(const struct run *run);
/* Cuts its slices; the partition at whose cut it ends, or NULL. */
struct partition *obey_fill(struct run *run, struct slot *slot);
/* Which order is obeyed; 0: none. Checkpoints have it. */
uint64_t obey_identity(const struct run *run);

/* partition.c: for sequencer.c and obey.c */
bool partition_prepare(struct run *run, struct partition *p);
void partition_drop_head(struct partition *p);
/* More room to read ahead, for a number of many small batches; false: each could be one record, and still it
 * would be enough for any number. Only when all that was read is decoded, and nobody reads. Under the mutex.
 */
bool partition_widen(struct partition *p);
void partition_cut(struct run *run, struct partition *p, uint32_t end, struct slice *slice);
/* Whether the head is a batch of BATCH_ROWS, or the rest of one. */
bool partition_is_whole(const struct partition *p);
/* Where a resume goes on; without offsets less the first resume_rows rows of that batch. */
struct source_position partition_position(const struct partition *p);
/* All that was read is sequenced, and its position is behind the one that was saved last. */
bool partition_has_risen(const struct partition *p);

#endif

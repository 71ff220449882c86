/* The order log of a run: writing what the sequencer decides, and obeying what was decided before
 * (core/order_log.h has the format).
 *
 * Writing. The sequencer puts entries into a buffer while it forms numbers. At a barrier the buffer is
 * sealed: it becomes the segment that the checkpoint publishes, and a new one begins. Where a checkpoint is
 * abandoned, its segment goes on with the next. With --record-order segments are appended to a file as well:
 * before their checkpoint is published, so that a resume finds at least what it needs, and cuts the rest off.
 *
 * Obeying. A script of segments, read one after another, says what each number takes from each partition; the
 * sequencer waits for that, compares counts and order times, and forms the number. Scripts come from
 * checkpoints that a resume could not use (state/checkpoint.h: redo), from --order, or from a recording's
 * manifest. Behind its end the order is computed again.
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

struct order_slice {
    uint32_t partition; /* of the run */
    uint64_t records;
    int64_t time;
};

struct order_script {
    const char **paths;
    uint32_t paths_count, path; /* the one in work */
    int fd;
    uint64_t offset, bytes; /* in the file in work */
    char *text;             /* of the segment in work; malloc'd */
    struct order_reader reader;
    bool has_segment;
    uint32_t *map;      /* partition of the log -> of the run */
    uint64_t identity;  /* of --order or a recording's; 0: what a fall back executes again, or none */
    uint64_t redo_next; /* of a fall back: the number behind it; 0: none */
    /* The next number. */
    bool has_number;
    enum order_tag tag;
    uint32_t cut;
    struct order_slice *slices;
    uint32_t slices_count;
    bool *is_ended, *is_idle; /* of the run's partitions */
    uint32_t *places;         /* per source: partitions of it that the segment has named so far */
};

struct run_order {
    bool is_written;
    struct order_piece open, sealed; /* sealed: from a barrier until it is published; of the coordinator */
    struct byte_buffer segment;      /* of the coordinator */
    const char *file_path;           /* --record-order; NULL: none */
    int file_fd;
    uint64_t file_end; /* of what is published */
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

/* obey.c */
bool obey_init(struct run *run);
void obey_free(struct run *run);
enum obey_state { OBEY_WAIT, OBEY_NUMBER, OBEY_LAST };
/* Whether the script's next number can be formed; WAIT as well after its end, when sequencer.is_obeying is
 * false, and after an error. */
enum obey_state obey_ready(struct run *run);
/* Whether the next number begins at or after --until. */
bool obey_is_beyond(const struct run *run);
/* Cuts its slices; the partition at whose cut it ends, or NULL. */
struct partition *obey_fill(struct run *run, struct slot *slot);
/* Which order is obeyed; 0: none. Checkpoints have it. */
uint64_t obey_identity(const struct run *run);

/* sequencer.c, for obey.c */
bool partition_prepare(struct partition *p);
void partition_drop_head(struct partition *p);
void partition_cut(struct partition *p, uint32_t end, struct slice *slice);

#endif

/* Private to run/order. */
#ifndef LEAT_RUN_ORDER_INTERNAL_H
#define LEAT_RUN_ORDER_INTERNAL_H

#include "run/order/order.h"

enum {
    ORDER_EPOCH_BYTES = 16 << 20, /* bytes of entries at which a checkpoint is asked for */
    ORDER_HELD_BYTES = 256 << 20, /* bytes of entries without a checkpoint at which the sources wait */
    ORDER_FILE_SEGMENT = 1 << 20, /* bytes of entries per segment, without checkpoints */
    ORDER_RUN_BYTES = 16,         /* bytes of a run's id */
};

/* Decisions for the micro-batches [first, next), as the bytes of a segment. */
struct order_piece {
    struct byte_buffer partitions, entries;
    uint64_t first, next, slices, records;
};

/* A file with segments. Its micro-batches from `until` on do not count: a later life of the run began with
 * micro-batch `until`, and its files have them. */
struct order_path {
    const char *path;
    uint64_t until;
    bool may_be_torn; /* the file may end within a segment: its life was killed, or still runs */
};

/* The files of the log that is replayed. */
struct replay_files {
    bool are_of_checkpoints; /* they lie in a directory of checkpoints */
    struct order_path *paths;
    uint32_t count, at;     /* at: index of the file in work */
    int fd;                 /* -1: no file is open */
    uint64_t offset, bytes; /* in the file in work: next byte to read, and size */
    char *text;             /* bytes of the segment in work; malloc'd */
};

struct order {
    bool is_written; /* a log is written: for checkpoints, --record-order, or both */
    uint64_t first;  /* number of the first micro-batch of this life */
    /* From a barrier until its checkpoint is published, `sealed` has the decisions before the barrier, and
     * belongs to the coordinator. */
    struct order_piece open, sealed;
    uint64_t sealed_bytes;      /* bytes of entries that this life has sealed */
    struct byte_buffer segment; /* the coordinator's: bytes of the segment for the checkpoint */
    /* The file of --record-order. */
    const char *file_path; /* NULL: none */
    /* --record-order is a directory: its path; then file_path is the file in work, or stale when file_fd is
     * -1. */
    const char *directory;
    char *part_path;   /* path of the file in work; malloc'd */
    uint32_t life;     /* generation of this life */
    int file_fd;       /* -1: no file is open */
    uint64_t file_end; /* bytes of the file's segments whose checkpoints are published */
    struct replay_log replay;
    struct replay_files files;
};

/* file.c: --record-order */
/* Opens the file or directory; call once positions are restored. false after a diagnostic, also below. */
bool order_file_open(struct run *run);
/* Appends order->segment, whose first micro-batch is `first`. */
bool order_file_append(struct run *run, uint64_t first, struct diag_list *diags);
/* Call when the checkpoint of the appended segment was published: the next segment goes behind it. */
void order_file_published(struct order *order);
/* Lists the files of a directory of --record-order whose micro-batches count, by micro-batch. The paths are
 * the arena's. run: gets the id of the run that wrote the files. Returns NULL, or what is wrong, with *error
 * an errno or 0. If the directory is not one of --record-order, returns NULL with *count 0 and *error 0. */
const char *order_directory(const char *path, struct arena *arena, struct order_path **paths, uint32_t *count,
                            uint8_t run[ORDER_RUN_BYTES], int *error);

/* replay_log.c */
/* Call after the sources were opened: chooses the log to replay, if any. false after a diagnostic. */
bool replay_log_choose(struct run *run);
void replay_log_free(struct order *order);

#endif

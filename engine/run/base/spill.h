/* Rows and messages that wait in memory between the threads of a run: batches of exchanges, rows of other workers, and messages to the
 * sequencer; messages for which a link has no room. Their bytes share a budget, an eighth of the job's memory, of which, with several
 * workers, a part is the links' own (RUN_LINKS_PART); what exceeds it is written to a spill file, and read back when it is needed.
 * Where bytes lie never changes a result. Any thread, unless a comment says otherwise. */
#ifndef LEAT_RUN_BASE_SPILL_H
#define LEAT_RUN_BASE_SPILL_H

#include "run/base/base.h"

/* A file of one writer at a time, below TMPDIR; unlinked when it is made. */
struct spill_file {
    int fd; /* -1: not open */
    uint64_t end;
    uint64_t forgotten; /* up to which the reader's pieces no longer take room on the disk */
    /* Pieces not read back yet; at 0 the file is written from its beginning again. */
    atomic_uint outstanding;
};

void spill_init(struct spill_file *file);
void spill_free(struct spill_file *file);

/* Whether so many bytes more may wait in memory; then they are counted until spill_give_room. */
LEAT_CHECKED bool spill_take_room(struct run *run, size_t bytes);
void spill_give_room(struct run *run, size_t bytes);

/* Writes the bytes; *offset: where they lie in the file. The writer's thread. False after an error, which stops the run. */
LEAT_CHECKED bool spill_write(struct run *run, struct spill_file *file, struct str bytes, uint64_t *offset);
/* Reads as many bytes into `to` as are there, `bytes` at most; *got: how many. False after an error, which stops the run. */
LEAT_CHECKED bool spill_read(struct run *run, struct spill_file *file, uint64_t offset, size_t bytes,
                             char *to, size_t *got);
/* A piece that was written was read back, or is not needed. */
void spill_done(struct spill_file *file);
/* Pieces before this offset, of a reader that takes them in order, need no room on the disk any more. Call before spill_done of the last one:
 * a file that is never empty would grow by all that goes through it. */
void spill_forget(struct spill_file *file, uint64_t offset);
/* Bytes that were read are not those that were written: adds a diagnostic, with `what` they should be, and fails the run. */
void spill_damaged(struct run *run, uint64_t offset, size_t bytes, const char *what);

#endif

/* The delta log: what changed in a job that learns, for the processes of this machine that follow it
 * (`leat serve`), milliseconds later.
 *
 * The trainer (`leat run`) appends entries to segments, files of a directory; followers read along at the
 * end. Nothing is synced: after a power failure the log is worth nothing, and a follower begins again with a
 * checkpoint. The trainer never waits for a reader: the log has a budget of bytes, and where it is exceeded
 * the oldest segments go. A reader that has one open reads on; one that has not is told that it is gone.
 *
 *     gen-000007-000000000042   segment 42 of generation 7; numbers rise, from 1
 *     WRITER                    held by the process that writes (flock), with its generation as text
 *     followers/                a file for each follower, held by it (flock)
 *
 * A server on another machine has a copy of the log (serve/link.h), byte for byte, with a WRITER of its own.
 *
 * Each life of a trainer has a generation of its own, higher than all before. A writer that opens the log
 * removes the segments it finds. core/delta_log_format.h has the segments' bytes. */
#ifndef LEAT_CORE_DELTA_LOG_H
#define LEAT_CORE_DELTA_LOG_H

#include "core/diag.h"

enum { DELTA_RUN_MAX = 64, DELTA_KIND_MAX = 0xfeff, DELTA_SEGMENT_LEAST = 4096 };
#define DELTA_ENTRY_MAX ((size_t)256 << 20) /* bytes of an entry */

/* An entry; kind, part and number mean what the caller wants. */
struct delta_entry {
    uint16_t kind; /* at most DELTA_KIND_MAX */
    uint16_t part;
    uint64_t number;
    int64_t time_us;        /* wall clock at which it was written; set by the log */
    struct str bytes, more; /* appended: `bytes`, then `more`; read: all in `bytes` */
};

/* --- Writing: the trainer. Any thread, unless it says otherwise --- */

struct delta_log_options {
    const char *directory; /* made if it is missing */
    uint32_t generation;
    struct str run;         /* the run's id, at most DELTA_RUN_MAX bytes */
    uint64_t budget_bytes;  /* of all segments; a single segment may exceed it by its last entry */
    uint64_t segment_bytes; /* a segment that has so many is complete; at least DELTA_SEGMENT_LEAST */
};

struct delta_log_figures {
    uint64_t bytes, entries; /* written since the log was opened */
    uint64_t held_bytes;     /* of the segments that there are */
    uint64_t segment;        /* number of the newest segment */
    uint64_t dropped;        /* segments that went because of the budget */
    bool is_broken;
};

struct delta_log;

/* Opens the log and begins a segment. NULL + diagnostic: the directory cannot be used, or another process
 * writes this log. The texts of the options are copied. */
struct delta_log *delta_log_open(const struct delta_log_options *options, struct diag_list *diags);
/* Appends an entry of at most DELTA_ENTRY_MAX bytes; readers can see it at once. false: the disk is full or
 * an error came before: the log is broken from here, its segments are removed so that readers learn it, and
 * the caller goes on without a log. */
bool delta_log_append(struct delta_log *log, const struct delta_entry *entry);
/* Why the log is broken; NULL: it is not. Valid until the next delta_log_restart or delta_log_close. */
const char *delta_log_error(struct delta_log *log);
/* Drops all segments and begins one with a new number: when the log is broken, or nobody reads it any more.
 * Readers learn that what comes next is gone. false: the log is broken. */
bool delta_log_restart(struct delta_log *log);
void delta_log_figures(struct delta_log *log, struct delta_log_figures *figures);
/* Appends the closing entry; the segments stay. NULL is allowed. No other thread may use the log any more. */
void delta_log_close(struct delta_log *log);

/* --- Reading along: a follower. One thread at a time; what is read is checked in full --- */

enum delta_tail_status {
    DELTA_ENTRY,
    DELTA_NOTHING_YET, /* ask again later */
    DELTA_CLOSED,      /* the writer ended in order, and everything was read */
    DELTA_GONE,        /* what comes next was dropped, or the log is of another generation now */
    DELTA_ENDED,       /* the writer is dead, or none is there, and everything was read */
    DELTA_DAMAGED,     /* delta_tail_why says more */
};

struct delta_tail;

/* Opens the log at the oldest entry there is. Where the directory or a segment of this generation is missing,
 * the tail waits for it. NULL + diagnostic: the directory cannot be read. */
struct delta_tail *delta_tail_open(const char *directory, uint32_t generation, struct diag_list *diags);
/* Reads the next entry; never waits. entry: valid until the next call, set only with DELTA_ENTRY. A status
 * from DELTA_CLOSED on is for good. That the writer is dead is noticed within 100 ms. */
enum delta_tail_status delta_tail_next(struct delta_tail *tail, struct delta_entry *entry);
/* The run's id, as the segment that is read says; empty before the first entry. */
struct str delta_tail_run(const struct delta_tail *tail);
/* What is wrong, a static text; "" where nothing is. */
const char *delta_tail_why(const struct delta_tail *tail);
/* The segment that is read, and the offset in it behind the last entry. */
void delta_tail_place(const struct delta_tail *tail, uint64_t *segment, uint64_t *offset);
/* NULL is allowed. */
void delta_tail_close(struct delta_tail *tail);

/* --- Who follows: the trainer writes the log only while somebody does --- */

struct delta_follower;

/* Makes a file under `directory`/followers that says that this process follows, and holds it; the directories
 * are made if they are missing. NULL + diagnostic: they cannot be written. */
struct delta_follower *delta_follower_enter(const char *directory, struct diag_list *diags);
/* Whether the trainer can see the file; false: it was removed with the job's directory, and a trainer that begins anew there
 * sees nobody: leave, and enter again. */
bool delta_follower_is_seen(const struct delta_follower *follower);
/* Asks the trainer for a checkpoint. Returns 0 or an errno. */
int delta_follower_ask(struct delta_follower *follower);
/* NULL is allowed. */
void delta_follower_leave(struct delta_follower *follower);
/* The trainer's look, a few times a second: the number of followers that live. Removes the files of dead
 * ones. *wanted: one that lives has asked for a checkpoint since the last look. */
uint32_t delta_followers_look(const char *directory, bool *wanted);

/* --- Copying: a log is read in pieces, as they are, and a copy of it is written elsewhere. One thread for a copy --- */

/* Whether a process writes the log; *generation: of that process. */
bool delta_log_writer(const char *directory, uint32_t *generation);
/* The number of the oldest segment of the generation; 0: there is none. */
uint64_t delta_log_oldest(const char *directory, uint32_t generation);

struct delta_piece {
    size_t got;       /* bytes read */
    bool is_gone;     /* there is no such segment: it was dropped, or never was */
    bool is_complete; /* nothing comes behind these bytes: what comes next is in the next segment */
    bool has_next;    /* the next segment's file is there */
};

/* Reads at most `room` bytes of a segment, from `offset` on. 0 or an errno. */
int delta_log_piece(const char *directory, uint32_t generation, uint64_t segment, uint64_t offset, char *data,
                    size_t room, struct delta_piece *piece);

struct delta_copy;

/* Opens the directory of a copy, and makes it if it is missing; segments that lie there go. budget_bytes: as in struct
 * delta_log_options. NULL + diagnostic: it cannot be written, or another process writes a log there. */
struct delta_copy *delta_copy_open(const char *directory, uint64_t budget_bytes, struct diag_list *diags);
/* Begins the copy anew, of a log of this generation; who reads the copy learns that what came next is gone. Until
 * delta_copy_pause, readers see a writer that lives. 0 or an errno. */
int delta_copy_begin(struct delta_copy *copy, uint32_t generation);
/* The generation; 0: the copy was not begun. */
uint32_t delta_copy_generation(const struct delta_copy *copy);
/* Where the next piece goes; *segment 0: to any one. */
void delta_copy_place(const struct delta_copy *copy, uint64_t *segment, uint64_t *offset);
/* Appends a piece that was read at delta_copy_place. 0 or an errno: the copy must be begun anew. */
int delta_copy_append(struct delta_copy *copy, uint64_t segment, const char *data,
                      const struct delta_piece *piece);
/* Removes all segments: the copy was not begun. */
void delta_copy_forget(struct delta_copy *copy);
/* The log's writer has ended, and all of it was copied. */
void delta_copy_pause(struct delta_copy *copy);
/* Removes the segments. NULL is allowed. */
void delta_copy_close(struct delta_copy *copy);

#endif

/* Checkpoint storage (design, section 8).
 *
 *     DIR/LOCK                            pid, host and a token of the process that uses it
 * (checkpoint_lock.c) DIR/gen-000007/GENERATION           run id, parent checkpoint, what it began from: one
 * generation a start DIR/gen-000007/db/                  the database's working directory; never restored
 * from DIR/gen-000007/ckpt-000000000042/   MANIFEST, state.bin, order.log, db/ (hard links; in a base:
 * copies) DIR/gen-000007/order-000000000041   order.log of a checkpoint that pruning removed
 *     DIR/gen-000007/redo-000001          order log of what this generation executes again
 *     DIR/tables/                         what operators keep beside (core/operator_history.h); nothing of it
 * here
 *
 * A checkpoint is written into `ckpt-N.tmp`: the data with a digest (xxh3-128) of each MiB, the MANIFEST that
 * names files, digests and what the job needs to know, fsync of the files and of the directory, rename, fsync
 * of the parent. After the rename it counts. A failed step abandons it; a failed fsync is never tried again.
 *
 * A delta holds what changed since the checkpoint before it (its previous); a chain is a base and the deltas
 * after it, all of one generation: the first checkpoint of a generation is a base, and so is at least one in
 * CHECKPOINT_CHAIN_MAX. A base shares no inode with any other checkpoint, so that a flipped bit on the disk
 * never hits all of them; pruning keeps the chain before the newest for that reason. checkpoint_find walks
 * from the newest generation to its parents and takes the newest checkpoint whose whole chain verifies, byte
 * for byte.
 *
 * The order log (core/order_log.h) of the epoch that a checkpoint closes lies in it, digested like its other
 * files. When pruning removes the checkpoint and keeps an older one, the segment stays: the log reaches back
 * to the oldest checkpoint kept, so that a run which must fall back to it does again what it did. Such loose
 * segments are at most CHECKPOINT_LOOSE_MAX, and CHECKPOINT_LOOSE_BYTES together; the oldest go first.
 * Falling back, redo_find takes the segments that follow each other from the restored number on (of the
 * checkpoints that were skipped, loose ones, and what the newest generation was to execute again), each by
 * its own digest, and start_generation gives the new generation links to them before it counts: a crash in
 * the middle loses none, and what a zombie writes later is not among them.
 *
 * Use: open -> find -> start_generation (restoring from what was found) -> { begin, part..., write, publish |
 * abandon }
 * -> close. Unless said otherwise: one thread at a time (control, then the writer thread). */
#ifndef LEAT_STATE_CHECKPOINT_H
#define LEAT_STATE_CHECKPOINT_H

#include "core/buffer.h"
#include "core/snapshot.h"

enum {
    CHECKPOINT_FORMAT = 8,
    CHECKPOINT_CHUNK_BYTES = 1 << 20,
    CHECKPOINT_CHAIN_MAX = 10, /* checkpoints in a chain */
    CHECKPOINT_LOOSE_MAX = 8192,
    CHECKPOINT_LOOSE_BYTES = 256 << 20,
    CHECKPOINT_HOLDER_BYTES = 320,
};

struct checkpoint_id {
    uint32_t generation; /* from 1; 0: none */
    uint64_t epoch;
};

/* "3-17" as `leat checkpoint list` prints it. */
bool checkpoint_id_parse(struct str text, struct checkpoint_id *id);

struct run_id {
    uint8_t bytes[16];
};

/* What a run began with that is not the first of its job: the checkpoint of another one. */
struct checkpoint_from {
    char *path;              /* of its directory, absolute; NULL: none */
    struct checkpoint_id id; /* generation 0: the newest that is whole */
    struct str dropped;      /* names of parts whose state was left behind, one a line */
};

/* What an engine puts into a MANIFEST, and reads from it. */
struct checkpoint_info {
    struct checkpoint_id id;
    struct checkpoint_id previous; /* of a delta; generation 0: a base */
    uint32_t format;
    struct str fingerprint; /* of the job's checked plan */
    struct str profile;     /* numerics profile */
    struct str sources;     /* source positions, as the engine encodes them */
    struct str notes;       /* for `leat checkpoint show`: the engine's own text */
    struct run_id run;
    int64_t created_us; /* wall clock; for `keep` and for people */
    uint64_t bytes;     /* of all files */
    uint32_t files;
    bool has_database;
};

struct checkpoint_keep {
    int64_t last, hourly, daily; /* the newest `last`, and the newest of each of the last hours and days */
};

struct checkpoint_dir_options {
    const char *path;
    bool take_over;                  /* although another process holds the lock */
    bool read_only;                  /* no lock: list, show, verify */
    struct str fingerprint, profile; /* fingerprint of length 0: checkpoints of any job are found */
    struct checkpoint_keep keep;
};

struct checkpoint_dir;
/* Makes the directory where it is missing, takes the lock. NULL: E0701, E0706. The strings are copied. */
struct checkpoint_dir *checkpoint_dir_open(const struct checkpoint_dir_options *options,
                                           struct diag_list *diags);
void checkpoint_dir_close(struct checkpoint_dir *dir); /* NULL is allowed; gives the lock back */
/* Whether this process still holds the directory: 0; ESTALE: another process has taken it over, or its LOCK
 * is gone, and nothing that is written from now on counts; another errno: that cannot be told now. For each
 * step that others can see. Any thread. */
int checkpoint_dir_check(const struct checkpoint_dir *dir);
/* Who holds it now, for people: "pid 4711 on mill-3". Any thread. */
void checkpoint_dir_holder(const struct checkpoint_dir *dir, char holder[CHECKPOINT_HOLDER_BYTES]);
/* Who held it when this process took it over; NULL: nobody did. */
const char *checkpoint_dir_taken_from(const struct checkpoint_dir *dir);
/* Whether there is no generation yet. */
bool checkpoint_dir_is_empty(const struct checkpoint_dir *dir);

/* --- Finding and restoring --- */

enum checkpoint_found { CHECKPOINT_NONE, CHECKPOINT_FOUND, CHECKPOINT_REFUSED };

struct checkpoint; /* an opened, verified chain */

/* The newest checkpoint that verifies whole; the ones skipped are warnings in diags. NONE: there is none at
 * all. REFUSED: E0703 (another job), E0704 (another format), E0705 (there are some, but none verifies). */
enum checkpoint_found checkpoint_find(struct checkpoint_dir *dir, struct checkpoint **found,
                                      struct diag_list *diags);
/* Where checkpoint_find found none: what the newest generation began from, if it did; the caller frees it
 * with checkpoint_from_free. Its run id: a generation that begins from there again must have it. */
bool checkpoint_find_from(const struct checkpoint_dir *dir, struct checkpoint_from *from, struct run_id *run);
void checkpoint_from_free(struct checkpoint_from *from);
/* What the first of the generations that the newest grew from began from; false: from nothing. */
bool checkpoint_first_from(const struct checkpoint_dir *dir, struct checkpoint_from *from);
/* Whether that is this directory. */
bool checkpoint_began_from(const struct checkpoint_dir *dir, const char *path);
/* That very one, for `--from` and for tests; NULL + diagnostic. */
struct checkpoint *checkpoint_open(struct checkpoint_dir *dir, struct checkpoint_id id,
                                   struct diag_list *diags);
void checkpoint_close(struct checkpoint *checkpoint);
const struct checkpoint_info *checkpoint_info(const struct checkpoint *checkpoint);

/* All records of the parts whose name begins with `prefix` ("op/3/"), base first; those of key groups that
 * another lane owns are left out. lanes = 0: everything. Several readers may be open, each used by one
 * thread. */
struct snapshot_reader *checkpoint_reader(struct checkpoint *checkpoint, const char *prefix, uint32_t lane,
                                          uint32_t lanes, struct diag_list *diags);
/* false: a diagnostic was added while reading (E0702). */
bool checkpoint_reader_close(struct snapshot_reader *reader);
/* Puts the checkpoint's database into `path` (made anew), for state_store_open(..., is_restored). */
bool checkpoint_restore_database(struct checkpoint *checkpoint, const char *path, struct diag_list *diags);

/* --- The order log of what must be executed again --- */

/* After find, before start_generation: notes the segments from the number on with which `from` goes on. What
 * is damaged or missing is a warning: behind it the order is computed again. */
void checkpoint_redo_find(struct checkpoint_dir *dir, const struct checkpoint *from, uint64_t number,
                          struct diag_list *diags);
/* Of the generation that was started: paths of its segments, in their order; NULL: no more. */
const char *checkpoint_redo(const struct checkpoint_dir *dir, uint32_t index);
/* The number behind the last of them; 0: there are none. */
uint64_t checkpoint_redo_next(const struct checkpoint_dir *dir);
/* For a replay: the segments that the directory still has from the number on, in their order, up to the first
 * that is missing or damaged (a warning), and whose they are. oldest: the least number that any has;
 * UINT64_MAX: there are none. The paths are the arena's. */
void checkpoint_order_paths(struct checkpoint_dir *dir, uint64_t number, struct arena *arena,
                            const char ***paths, uint32_t *count, uint64_t *oldest, struct run_id *run,
                            struct diag_list *diags);
/* The number behind all that the order logs in the directory tell of, whether or not their checkpoints are
 * whole; UINT64_MAX: there are none. */
uint64_t checkpoint_order_next(const struct checkpoint_dir *dir);
/* A checkpoint before this number was published: once it is beyond the last segment, they go. */
void checkpoint_redo_passed(struct checkpoint_dir *dir, uint64_t number);

/* --- Writing --- */

/* Opens a generation of its own for this process. parent: what is resumed, or NULL: a new run. Afterwards
 * checkpoint_database_path is where the state store's database goes. */
LEAT_CHECKED bool checkpoint_start_generation(struct checkpoint_dir *dir, const struct checkpoint *parent,
                                              struct diag_list *diags);
/* The same for a new run that begins with another's checkpoint. run: of an attempt before that never came to
 * a checkpoint; NULL: a new one. */
LEAT_CHECKED bool checkpoint_start_from(struct checkpoint_dir *dir, const struct checkpoint_from *from,
                                        const struct run_id *run, struct diag_list *diags);
const char *checkpoint_database_path(const struct checkpoint_dir *dir);
struct run_id checkpoint_run(const struct checkpoint_dir *dir);
/* Of the newest generation that is there, not this process's; false: there is none, or it cannot be read. */
bool checkpoint_newest_run(const struct checkpoint_dir *dir, struct run_id *run);
uint32_t checkpoint_generation(const struct checkpoint_dir *dir);
/* Whether a generation that is still there was of that run. */
bool checkpoint_had_run(const struct checkpoint_dir *dir, const struct run_id *run);

struct checkpoint_writer;
/* Whether the next one must be a base: the chain is long, or its deltas are larger than its base. */
bool checkpoint_wants_base(const struct checkpoint_dir *dir);
/* epoch: above all earlier ones of this run. NULL + E0708. */
struct checkpoint_writer *checkpoint_begin(struct checkpoint_dir *dir, uint64_t epoch, bool is_base,
                                           struct diag_list *diags);
/* The writer of one part ("op/3/lane/1"); each name once. Any thread; a part's writer is used by one at a
 * time. */
struct snapshot_writer *checkpoint_part(struct checkpoint_writer *writer, const char *name);
/* Where state_store_checkpoint puts the database's copy. */
const char *checkpoint_writer_database(const struct checkpoint_writer *writer);
/* After all parts' snapshot callbacks: writes what they put and runs their deferred jobs. Then, if
 * has_database, digests the database's files. Writer thread. */
LEAT_CHECKED bool checkpoint_write(struct checkpoint_writer *writer, bool has_database,
                                   struct diag_list *diags);
/* After checkpoint_write: the segment of the order log. false + E0708. Writer thread. */
LEAT_CHECKED bool checkpoint_write_order(struct checkpoint_writer *writer, struct str segment,
                                         struct diag_list *diags);
/* Publishes it and frees the writer, or abandons it: false + E0708. info: sources and notes. Then tells the
 * parts (snapshot_done). Writer thread. */
LEAT_CHECKED bool checkpoint_publish(struct checkpoint_writer *writer, const struct checkpoint_info *info,
                                     struct diag_list *diags);
void checkpoint_abandon(struct checkpoint_writer *writer);
/* Bytes this checkpoint wrote, known after checkpoint_write. */
uint64_t checkpoint_written_bytes(const struct checkpoint_writer *writer);

/* Removes what `keep` does not keep, and orphans of earlier lives. What a kept checkpoint needs stays. */
LEAT_CHECKED bool checkpoint_prune(struct checkpoint_dir *dir, const struct checkpoint_keep *keep,
                                   uint32_t *removed, struct diag_list *diags);

/* --- For the command line --- */

/* Copies the checkpoint, with the chain it stands on, into the directory `to`, which is not there yet or is
 * empty: a checkpoint directory that holds nothing else, whose inodes nobody shares. Every byte is checked on
 * the way; `to` is there when all of it is on the disk. id: generation 0 for the newest that is whole, which
 * it is then set to. Needs no lock: a job may run beside it. false: E0701, E0702, E0705, E0706, E0708. */
LEAT_CHECKED bool checkpoint_copy(struct checkpoint_dir *dir, struct checkpoint_id *id, const char *to,
                                  uint64_t *bytes, struct diag_list *diags);

struct checkpoint_list {
    uint32_t count;
    struct checkpoint_info *items; /* newest generation and epoch first; of a damaged one only `id` is set */
    bool *is_damaged;
};
/* Reads the MANIFESTs alone. */
bool checkpoint_list(struct checkpoint_dir *dir, struct arena *arena, struct checkpoint_list *list,
                     struct diag_list *diags);
/* The same of those that the newest run can go back to: its own, and those its generations grew from. */
bool checkpoint_walk(struct checkpoint_dir *dir, struct arena *arena, struct checkpoint_list *list,
                     struct diag_list *diags);
/* Reads every byte of the checkpoint and of its chain; false + E0702 with file and offset. */
bool checkpoint_verify(struct checkpoint_dir *dir, struct checkpoint_id id, struct diag_list *diags);
/* Files and parts with sizes, as text. */
bool checkpoint_show(struct checkpoint_dir *dir, struct checkpoint_id id, struct byte_buffer *out,
                     struct diag_list *diags);

#endif

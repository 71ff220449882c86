/* Checkpoint storage (docs/design.md, section 8).
 *
 *     DIR/LOCK                            pid, host and token of the process that uses it (checkpoint_lock.c)
 *     DIR/gen-000007/GENERATION           run id, parent, and the other run's checkpoint it began from
 *     DIR/gen-000007/db/                  the database's working directory; never restored from
 *     DIR/gen-000007/ckpt-000000000042/   MANIFEST, state.bin, order.log, db/ (hard links; in a base: copies)
 *     DIR/gen-000007/order-000000000041   order.log of a checkpoint that pruning removed
 *     DIR/gen-000007/redo-000001          order log of micro-batches that this generation executes again
 *     DIR/gen-000007/HEAD                 manifest of the head with which this generation began (run/head.h)
 *     DIR/gen-000007/doubt-000000000042   the part ckpt-000000000042 is in no head that is known (checkpoint_parts.c)
 *     DIR/gen-000007/void-000000000042    no head can name that part any more
 *     DIR/tables/                         versions of operators' table files (core/operator_history.h)
 *     DIR/SERVE, DIR/serve.log            lock and messages of the process that `leat run --serve` started
 *     DIR/CONTROL                         where a run's control API is, with its token (control/api_key.h)
 *     DIR/serve.figures                   what it does, anew each second (cli/serve_figures.h)
 *     DIR/history                         what the run did over time (control/history.h)
 *
 * Each start of a process (a life) makes one generation. A checkpoint is written into `ckpt-N.tmp`: the data
 * with a digest (xxh3-128) of each MiB; the MANIFEST, with the files, their digests, the pieces of state.bin and struct
 * checkpoint_info; fsync of the files and of the directory; rename; fsync of the parent directory. After the
 * rename the checkpoint counts. A failed step abandons the checkpoint; a failed fsync is never tried again.
 *
 * state.bin has the records of all parts, in pieces that lie one behind another: of one part, and of one key group, or of a few
 * that follow each other where a group has less than some KiB. The MANIFEST has of each piece its part, its groups, offset,
 * length and a digest of its own, so that a few groups can be read and verified by themselves.
 *
 * A delta holds what changed since the checkpoint before it (its previous); a chain is a base and the deltas
 * after it, all of one generation: the first checkpoint of a generation is a base, and so is at least one in
 * CHECKPOINT_CHAIN_MAX. A base shares no inode with any other checkpoint, so that a flipped bit on the disk
 * never damages all checkpoints (but for the first one of a worker that goes on with its databases: the base
 * after that comes sooner); for the same reason pruning keeps a checkpoint of the chain before the newest. checkpoint_find walks from the newest generation to its parents and takes the newest checkpoint
 * whose whole chain verifies, byte for byte.
 *
 * A checkpoint holds the order log (core/order_log.h) of the epoch that it closes, digested like its other
 * files. When pruning removes a checkpoint and keeps an older one, the removed one's segment stays as a loose
 * segment: so the order log reaches back to the oldest checkpoint kept, and a run that falls back to that
 * checkpoint can execute the same micro-batches again. There are at most CHECKPOINT_LOOSE_MAX loose segments
 * of CHECKPOINT_LOOSE_BYTES in all; the oldest are removed first. When a run falls back, checkpoint_redo_find
 * collects the segments that follow each other from the restored micro-batch on (those of the checkpoints
 * that were skipped, loose ones, and those that the newest generation was to execute again), each verified by
 * its own digest. checkpoint_start_generation gives the new generation links to these segments before that
 * generation counts: a crash in the middle loses no segment, and segments that a process writes after it was
 * replaced are not among them.
 *
 * Use: open -> find -> start_generation (restoring from what was found)
 *      -> { begin, part..., write, publish | abandon } -> close.
 * Unless said otherwise: one thread at a time (control, then the writer thread). */
#ifndef LEAT_STATE_CHECKPOINT_H
#define LEAT_STATE_CHECKPOINT_H

#include "core/buffer.h"
#include "core/placement.h"
#include "core/snapshot.h"

enum {
    CHECKPOINT_FORMAT = 10,
    CHECKPOINT_FORMAT_FROM = 9, /* the oldest format that --from and commands that only read take */
    CHECKPOINT_CHUNK_BYTES = 1 << 20,
    CHECKPOINT_CHAIN_MAX = 10, /* checkpoints of one chain at most */
    CHECKPOINT_LOOSE_MAX = 8192,
    CHECKPOINT_LOOSE_BYTES = 256 << 20,
    CHECKPOINT_HOLDER_BYTES = 320,
    CHECKPOINT_DIGEST_BYTES = 16,
};

struct checkpoint_id {
    uint32_t generation; /* from 1; 0: none */
    uint64_t epoch;
};

/* Parses an id as `leat checkpoint list` prints it, generation-epoch: "3-17". False: the text is no id. */
bool checkpoint_id_parse(struct str text, struct checkpoint_id *id);
static inline bool checkpoint_id_is_newer(struct checkpoint_id id, struct checkpoint_id other)
{
    return id.generation != other.generation ? id.generation > other.generation : id.epoch > other.epoch;
}
/* Returns the bytes before the `@` of "DIR@3-17" or "s3://BUCKET/PREFIX@3-17", and sets *id. All bytes, *id as before: the name has
 * no id, or there is a directory with the whole name. */
size_t checkpoint_name_split(const char *name, struct checkpoint_id *id);

struct run_id {
    uint8_t bytes[16];
};

/* The checkpoint of another run that a run began with; the first run of a job has none. */
struct checkpoint_from {
    char *path; /* of that run's checkpoint directory, absolute, or URL of an object store; NULL: none */
    struct checkpoint_id id; /* generation 0: the newest checkpoint that is whole */
    struct str dropped;      /* names of parts whose state was not taken over, each on its own line */
    uint32_t
        newest; /* the new run's generation is above this one. The newest in the object store: copies of both runs may go
                        there, and the larger generation is the newer */
};

/* What the engine writes into a MANIFEST and reads from it. */
struct checkpoint_info {
    struct checkpoint_id id;
    struct checkpoint_id previous; /* the checkpoint before a delta; generation 0: this is a base */
    uint32_t format;
    struct str fingerprint; /* of the job's checked plan */
    struct str profile;     /* numerics profile */
    struct str sources;     /* source positions, as the engine encodes them */
    struct str notes;       /* for `leat checkpoint show`: the engine's own text */
    struct run_id run;
    int64_t created_us; /* wall clock; for `keep` and for users */
    uint64_t bytes;     /* of all files */
    uint32_t files;
    uint32_t
        databases; /* state stores of the run: the first has its database in db/, the next in db-1/, ...; 0: none has one */
};

struct checkpoint_keep {
    /* The newest `last`, and the newest one of each of the last `hourly` hours and `daily` days. */
    int64_t last, hourly, daily;
};

struct checkpoint_dir_options {
    const char *path;
    bool take_over;                  /* take the lock although another process holds it */
    bool read_only;                  /* take no lock: for list, show and verify */
    struct str fingerprint, profile; /* fingerprint of length 0: checkpoints of any job are found */
    struct checkpoint_keep keep;
    /* Key groups that this process reads and writes; NULL: all. Checkpoints that lack some are refused, and those that it
     * publishes say that they have no others. The set outlives the directory. */
    const struct group_set *groups;
};

struct checkpoint_dir;
/* Makes the directory if it is missing and takes the lock. NULL after E0701, E0706. Copies the strings. */
struct checkpoint_dir *checkpoint_dir_open(const struct checkpoint_dir_options *options,
                                           struct diag_list *diags);
void checkpoint_dir_close(struct checkpoint_dir *dir); /* NULL is allowed; releases the lock */
/* Whether this process still holds the directory. 0: yes. ESTALE: another process has taken it over, or its
 * LOCK is gone; nothing that this process writes from now on counts. Another errno: the check itself failed.
 * Call it before each step that other processes can see. Any thread. */
int checkpoint_dir_check(const struct checkpoint_dir *dir);
/* Writes who holds the directory now, for users: "pid 4711 on mill-3". Any thread. */
void checkpoint_dir_holder(const struct checkpoint_dir *dir, char holder[CHECKPOINT_HOLDER_BYTES]);
/* Whether a process holds that directory, and who, as above. Takes nothing; a process of another machine counts as alive. Any thread. */
bool checkpoint_holder(const char *directory, char holder[CHECKPOINT_HOLDER_BYTES]);
/* The process from which this one took the directory over, like `holder` above; NULL: there was none. The
 * text belongs to `dir`. */
const char *checkpoint_dir_taken_from(const struct checkpoint_dir *dir);
/* Whether there is no generation yet. */
bool checkpoint_dir_is_empty(const struct checkpoint_dir *dir);

/* --- Finding and restoring --- */

enum checkpoint_found { CHECKPOINT_NONE, CHECKPOINT_FOUND, CHECKPOINT_REFUSED };

struct checkpoint; /* an opened, verified chain */

/* Opens the newest checkpoint whose chain verifies; skipped ones are warnings in `diags`. The caller closes
 * *found. NONE: there is no checkpoint at all. REFUSED: E0701 (a file cannot be opened, or it lacks key groups), E0703 (another job),
 * E0704 (another format), E0705 (there are checkpoints, but none verifies). */
enum checkpoint_found checkpoint_find(struct checkpoint_dir *dir, struct checkpoint **found,
                                      struct diag_list *diags);
/* Call where checkpoint_find found none: whether the newest generation began from another run's checkpoint.
 * *from: that checkpoint; the caller frees it with checkpoint_from_free. *run: the newest generation's run
 * id, which a new attempt to begin from that checkpoint must keep. */
bool checkpoint_find_from(const struct checkpoint_dir *dir, struct checkpoint_from *from, struct run_id *run);
void checkpoint_from_free(struct checkpoint_from *from);
/* Follows the newest generation's parents to the first generation. *from: the other run's checkpoint from
 * which that generation began; the caller frees it. False: it began from no checkpoint. */
bool checkpoint_first_from(const struct checkpoint_dir *dir, struct checkpoint_from *from);
/* Whether checkpoint_first_from names the directory `path`. */
bool checkpoint_began_from(const struct checkpoint_dir *dir, const char *path);
/* Opens and verifies one checkpoint, for `--from` and for tests; NULL after a diagnostic: as checkpoint_find's, or E0702. */
struct checkpoint *checkpoint_open(struct checkpoint_dir *dir, struct checkpoint_id id,
                                   struct diag_list *diags);
void checkpoint_close(struct checkpoint *checkpoint); /* NULL is allowed */
/* Valid until checkpoint_close. */
const struct checkpoint_info *checkpoint_info(const struct checkpoint *checkpoint);
/* How many databases part number `part` has, from 1 on (checkpoint_join), and the number of its first one; 0: of all parts. */
uint32_t checkpoint_databases(const struct checkpoint *checkpoint, uint32_t part, uint32_t *first);

/* Reads all records of the parts whose name begins with `prefix` ("op/3/"), base first, without those of key
 * groups outside of `groups`, a set that outlives the reader. NULL: everything. Several readers may be open; one thread uses
 * each. */
struct snapshot_reader *checkpoint_reader(struct checkpoint *checkpoint, const char *prefix,
                                          const struct group_set *groups, struct diag_list *diags);
/* False: a diagnostic (E0702) was added while reading. */
bool checkpoint_reader_close(struct snapshot_reader *reader);

/* The whole state of one operator on its way to another instance, in memory. One thread.
 *   - snapshot_memory_begin: a writer for operator_snapshot (core/operator_state.h), which asks for a base. epoch: of the checkpoint
 *     that comes next.
 *   - snapshot_memory_end: runs what was deferred, says that nothing was published, and frees the writer. *records: gets the
 *     records, one after another as core/moved.h says; the caller frees them. False: a part could not give its state.
 *   - snapshot_memory_reader: reads them, which must stay until checkpoint_reader_close. */
struct snapshot_writer *snapshot_memory_begin(uint64_t epoch);
LEAT_CHECKED bool snapshot_memory_end(struct snapshot_writer *writer, struct byte_buffer *records);
struct snapshot_reader *snapshot_memory_reader(struct str records);
/* Puts a database of the checkpoint, by its number over all parts, into the directory `path`, whose old content is removed,
 * for state_store_open(..., is_restored). *has_database: whether it was there; else there is no directory then. False after
 * E0702. */
LEAT_CHECKED bool checkpoint_restore_database(struct checkpoint *checkpoint, uint32_t number,
                                              const char *path, bool *has_database, struct diag_list *diags);
/* A generation of `dir` goes on with the databases of the part that has that one, as they were: its first checkpoint, a base, links their
 * table files in place of copying them, so that it costs what is new; the base after it comes all the sooner. Before the first
 * checkpoint. */
void checkpoint_share_databases(struct checkpoint_dir *dir, const struct checkpoint *checkpoint,
                                uint32_t number);

/* --- The order log of micro-batches that must be executed again --- */

/* After checkpoint_find, before checkpoint_start_generation: collects the segments from `micro_batch` on. A
 * damaged or missing segment is a warning: from there on the order is computed again. */
void checkpoint_redo_find(struct checkpoint_dir *dir, uint64_t micro_batch, struct diag_list *diags);
/* The path of the started generation's segment number `index`, counted from 0 in the order of micro-batches;
 * NULL: there are no more. The text belongs to `dir`. */
const char *checkpoint_redo(const struct checkpoint_dir *dir, uint32_t index);
/* The micro-batch number behind the last segment; 0: there are no segments. */
uint64_t checkpoint_redo_next(const struct checkpoint_dir *dir);

/* A directory that was made of a checkpoint in an object store has a file RESTORED until its first own checkpoint: what others
 * have seen since is not known there. checkpoint_redo_take: adds a segment of the order log from elsewhere to those that
 * checkpoint_redo_find finds; where two have a micro-batch, the one added later counts. False after E0702 (it is damaged) or
 * E0708. Call before checkpoint_redo_find. */
bool checkpoint_is_restored(const struct checkpoint_dir *dir);
LEAT_CHECKED bool checkpoint_redo_take(struct checkpoint_dir *dir, struct str segment,
                                       struct diag_list *diags);
/* The directory has a checkpoint of its own now. */
void checkpoint_forget_restored(const struct checkpoint_dir *dir);
/* For a replay: *paths are the segments that the directory still has from `micro_batch` on, in the order of
 * micro-batches, up to the first that is missing or damaged (a warning); the paths lie in the arena. *oldest:
 * the lowest micro-batch number in any segment; UINT64_MAX: there are no segments. *run: the newest
 * generation's run; zero: not known. */
void checkpoint_order_paths(struct checkpoint_dir *dir, uint64_t micro_batch, struct arena *arena,
                            const char ***paths, uint32_t *count, uint64_t *oldest, struct run_id *run,
                            struct diag_list *diags);
/* The micro-batch number behind all order logs in the directory, whether or not their checkpoints are whole;
 * UINT64_MAX: there are no order logs. */
uint64_t checkpoint_order_next(const struct checkpoint_dir *dir);
/* A checkpoint that ends before `micro_batch` was published: removes the segments to execute again
 * once `micro_batch` is behind them all. */
void checkpoint_redo_passed(struct checkpoint_dir *dir, uint64_t micro_batch);

/* --- Writing --- */

/* Starts a generation for this process. parent: the checkpoint that is resumed, or NULL: a new run.
 * Afterwards checkpoint_database_path says where the databases of state stores go. False after E0708. */
LEAT_CHECKED bool checkpoint_start_generation(struct checkpoint_dir *dir, const struct checkpoint *parent,
                                              struct diag_list *diags);
/* The same for a new run that begins from another run's checkpoint. run: the id of an earlier attempt that
 * never published a checkpoint; NULL: a new id. */
LEAT_CHECKED bool checkpoint_start_from(struct checkpoint_dir *dir, const struct checkpoint_from *from,
                                        const struct run_id *run, struct diag_list *diags);
char *checkpoint_database_path(const struct checkpoint_dir *dir, uint32_t number, struct arena *arena);
struct run_id checkpoint_run(const struct checkpoint_dir *dir);
/* The run of the newest generation in the directory, before this process starts its own; false: there is
 * none, or it cannot be read. */
bool checkpoint_newest_run(const struct checkpoint_dir *dir, struct run_id *run);
uint32_t checkpoint_generation(const struct checkpoint_dir *dir);
/* Whether a generation that is still in the directory belongs to the run. */
bool checkpoint_had_run(const struct checkpoint_dir *dir, const struct run_id *run);

enum { CHECKPOINT_PATH_BYTES = 4096 };
struct checkpoint_writer;
/* Whether the next checkpoint must be a base: the chain is long, or its deltas are larger than its base. */
bool checkpoint_wants_base(const struct checkpoint_dir *dir);
/* Begins a checkpoint. epoch: higher than all earlier epochs of this run. NULL after E0708. */
struct checkpoint_writer *checkpoint_begin(struct checkpoint_dir *dir, uint64_t epoch, bool is_base,
                                           struct diag_list *diags);
/* The writer of one part ("op/3/lane/1"); each name once. Any thread; a part's writer is used by one thread
 * at a time. */
struct snapshot_writer *checkpoint_part(struct checkpoint_writer *writer, const char *name);
/* Sets `path`, which has room for CHECKPOINT_PATH_BYTES, to where state_store_checkpoint puts the copy of a store's database. */
void checkpoint_writer_database(const struct checkpoint_writer *writer, uint32_t number, char *path);
/* After all parts' snapshot callbacks: writes their records and runs their deferred jobs; then digests the files of those
 * copies. databases: the number of stores. False after E0708. Writer thread. */
LEAT_CHECKED bool checkpoint_write(struct checkpoint_writer *writer, uint32_t databases,
                                   struct diag_list *diags);
/* After checkpoint_write: writes the epoch's segment of the order log. False after E0708. Writer thread. */
LEAT_CHECKED bool checkpoint_write_order(struct checkpoint_writer *writer, struct str segment,
                                         struct diag_list *diags);
/* Publishes the checkpoint; if that fails (E0708), abandons it and returns false. Either way each part's
 * snapshot_done callbacks are called and the writer is freed. info: only `sources`, `notes` and `created_us` are used;
 * created_us 0: now. Writer thread. */
LEAT_CHECKED bool checkpoint_publish(struct checkpoint_writer *writer, const struct checkpoint_info *info,
                                     struct diag_list *diags);
void checkpoint_abandon(struct checkpoint_writer *writer);
/* Bytes that this checkpoint wrote; known after checkpoint_write. */
uint64_t checkpoint_written_bytes(const struct checkpoint_writer *writer);

/* Removes checkpoints that `keep` (NULL: the directory's own) does not keep, and leftovers of earlier
 * processes. The chain of a kept checkpoint stays. Of parts of heads, `keep` counts those that a head names; checkpoint_prune.c says
 * which others stay. *removed: number of checkpoints. False after E0708. */
LEAT_CHECKED bool checkpoint_prune(struct checkpoint_dir *dir, const struct checkpoint_keep *keep,
                                   uint32_t *removed, struct diag_list *diags);

/* --- A checkpoint of several workers, each of which has a part of it in a directory of its own --- */

/* The xxh3-128 of the bytes. Any thread. */
void checkpoint_digest_of(struct str bytes, uint8_t digest[CHECKPOINT_DIGEST_BYTES]);
/* Sets *digest of a published checkpoint's MANIFEST, and *bytes, of all its files. False after E0702. Any thread. */
LEAT_CHECKED bool checkpoint_digest(const struct checkpoint_dir *dir, struct checkpoint_id id,
                                    uint8_t digest[CHECKPOINT_DIGEST_BYTES], uint64_t *bytes,
                                    struct diag_list *diags);
/* What a generation begins with that goes on from a head, or writes parts of heads. */
struct checkpoint_part_start {
    struct checkpoint_id
        parent; /* this directory's part of the head; generation 0: it has none, though the job may go on */
    struct run_id run;   /* the job's */
    uint32_t generation; /* above those in the directory */
    /* Key groups of the worker, as in checkpoint_dir_options: whoever opens its checkpoints by themselves, and wants all groups, is
     * refused. */
    const struct group_set *groups;
    struct str head; /* manifest of the head; length 0: there is none */
    bool
        awaits_head; /* its checkpoints count when a head names them: each is in doubt until checkpoint_part_named */
};
/* As checkpoint_start_generation. False after E0708. */
LEAT_CHECKED bool checkpoint_start_part(struct checkpoint_dir *dir, const struct checkpoint_part_start *start,
                                        struct diag_list *diags);
/* What became of the part of that epoch, which this process has published: a head names it, or none can do so any more. Where neither
 * is said, a head may name it all the same. Where the disk refuses to note it, the part stays in doubt, and nothing that is needed
 * is removed. Writer thread. */
void checkpoint_part_named(const struct checkpoint_dir *dir, uint64_t epoch);
void checkpoint_part_void(const struct checkpoint_dir *dir, uint64_t epoch);
/* Whether the newest run in the directory has a checkpoint that counts: a part that a head names, or one of a run that was alone. */
bool checkpoint_has_named(const struct checkpoint_dir *dir);
enum { CHECKPOINT_MANY_BYTES_MAX = 256 << 10 }; /* of the manifest of such a head */
/* Whether the newest generation in the directory, before this process starts its own, began with a head. Appends its manifest; nothing,
 * where it cannot be read. */
bool checkpoint_newest_head(const struct checkpoint_dir *dir, struct byte_buffer *manifest);
/* The highest number of a generation in the directory; 0: there is none. */
uint32_t checkpoint_newest_generation(const struct checkpoint_dir *dir);
struct checkpoint_joint {
    const char *directory;
    struct checkpoint_id id;
    uint8_t digest[CHECKPOINT_DIGEST_BYTES]; /* of its MANIFEST */
};
/* Opens parts as one checkpoint, which has the records and databases of all; checkpoint_info is the first one's. They are verified
 * when they are read, and only what is read. fingerprint: of the job; length 0: of any. NULL after E0702, or as checkpoint_find's. */
struct checkpoint *checkpoint_join(const struct checkpoint_joint *joints, uint32_t count,
                                   struct str fingerprint, struct diag_list *diags);

/* --- For a mirror on another machine (serve/link.h) --- */

/* A checkpoint with its chain and the operators' tables, as files by their names below the directory; all are open, so
 * that a running job may remove them. Nothing is verified: who has the files verifies. */
struct checkpoint_pack;
struct checkpoint_pack_file {
    const char *name; /* "gen-000007/ckpt-000000000042/state.bin" */
    uint64_t bytes;
    int64_t
        changed_us; /* wall clock: of a table's last change; 0: of a checkpoint's file, which never changes */
    bool has_content; /* of a file with digests in its MANIFEST: */
    uint8_t content
        [16]; /* files with the same bytes have the same content (xxh3-128 of the MANIFEST's digests) */
};

/* Opens the newest checkpoint whose manifests can be read. NULL with *is_none: there is none; else NULL after a diagnostic. */
struct checkpoint_pack *checkpoint_pack_open(struct checkpoint_dir *dir, bool *is_none,
                                             struct diag_list *diags);
/* The same of that checkpoint. NULL after a diagnostic. */
struct checkpoint_pack *checkpoint_pack_open_one(struct checkpoint_dir *dir, struct checkpoint_id id,
                                                 struct diag_list *diags);
void checkpoint_pack_close(struct checkpoint_pack *pack); /* NULL is allowed */
struct checkpoint_id checkpoint_pack_id(const struct checkpoint_pack *pack);
struct run_id checkpoint_pack_run(const struct checkpoint_pack *pack);
const struct checkpoint_pack_file *checkpoint_pack_files(const struct checkpoint_pack *pack, uint32_t *count);
/* The open file number `file`; stays the pack's. */
int checkpoint_pack_fd(const struct checkpoint_pack *pack, uint32_t file);
/* Reads bytes of file number `file`, up to the length that it had. 0 or an errno. Any thread. */
int checkpoint_pack_read(const struct checkpoint_pack *pack, uint32_t file, uint64_t offset, void *data,
                         size_t bytes, size_t *got);
/* The chain of checkpoint `id` lies in the directory, with the names of a pack: verifies all of it, makes it the newest
 * checkpoint there, of a generation without a parent, and removes all other checkpoints. False after E0702 or E0708;
 * *is_damaged: after E0702: a byte of it is wrong, as it was where the pack comes from; what is damaged is removed, and the
 * other checkpoints stay. */
LEAT_CHECKED bool checkpoint_pack_adopt(const char *directory, struct checkpoint_id id, bool *is_damaged,
                                        struct diag_list *diags);
/* Removes the tables of a mirror's directory whose names, "tables/...", are not kept. What cannot be removed stays. */
void checkpoint_tables_sweep(const char *directory, bool (*is_kept)(const void *argument, const char *name),
                             const void *argument);

/* --- For the command line --- */

/* The folder of a checkpoint directory in which savepoints of its job lie that the run itself made (`leat ctl savepoint`). */
#define CHECKPOINT_SAVEPOINTS "savepoints"
/* Folder in a job's checkpoint directory where a cluster has gone on with the job (cli/run_cluster.c); run_new refuses a run that is
 * alone beside it. */
#define CHECKPOINT_CLUSTER "cluster"
/* Copies a checkpoint, with its chain, into the directory `to`, which must be missing or empty, and not within `dir`, but
 * for its folder CHECKPOINT_SAVEPOINTS. The copy is a checkpoint directory that holds nothing else and shares no inode. Every byte is checked on the way; `to` appears when
 * all of it is on the disk. id: generation 0 for the newest checkpoint that is whole; *id is then set to that
 * checkpoint's id. *bytes: of all files copied.
 * Needs no lock: a job may run at the same time. A copy in that folder that is not whole is gone when a run of the job begins
 * there. False after E0701, E0702, E0705, E0706 or E0708. */
LEAT_CHECKED bool checkpoint_copy(struct checkpoint_dir *dir, struct checkpoint_id *id, const char *to,
                                  uint64_t *bytes, struct diag_list *diags);

struct checkpoint_list {
    uint32_t count;
    /* Newest generation and epoch first; of a damaged checkpoint only `id` is set. */
    struct checkpoint_info *items;
    bool *is_damaged;
};
/* Lists the checkpoints by their MANIFESTs alone. The list lies in the arena. */
bool checkpoint_list(struct checkpoint_dir *dir, struct arena *arena, struct checkpoint_list *list,
                     struct diag_list *diags);
/* The same for the checkpoints that the newest run can go back to: those of the newest generation and of the
 * generations that it descends from. */
bool checkpoint_walk(struct checkpoint_dir *dir, struct arena *arena, struct checkpoint_list *list,
                     struct diag_list *diags);
/* For who looks while a job runs; no file is opened but MANIFESTs. Any thread.
 * checkpoint_ids: the checkpoints in the directory, newest generation and epoch first; the caller frees them.
 * checkpoint_look: *info of one; its texts lie in the arena. *written_bytes: of files that the checkpoint before it does not
 * have. False: its MANIFEST is damaged, or the checkpoint was removed meanwhile. */
struct checkpoint_id *checkpoint_ids(const struct checkpoint_dir *dir, uint32_t *count);
bool checkpoint_look(const struct checkpoint_dir *dir, struct checkpoint_id id, struct arena *arena,
                     struct checkpoint_info *info, uint64_t *written_bytes);
/* Reads every byte of the checkpoint, of its chain and of the directory's loose segments. False after a
 * diagnostic: E0702 names file and offset. */
bool checkpoint_verify(struct checkpoint_dir *dir, struct checkpoint_id id, struct diag_list *diags);
/* Appends files and parts with their sizes, as text. */
bool checkpoint_show(struct checkpoint_dir *dir, struct checkpoint_id id, struct byte_buffer *out,
                     struct diag_list *diags);

#endif

/* Inside state/: what lies in a checkpoint directory, and how it is read and written. */
#ifndef LEAT_STATE_CHECKPOINT_FILES_H
#define LEAT_STATE_CHECKPOINT_FILES_H

#include "state/checkpoint.h"

enum {
    DIGEST_BYTES = 16,
    MANIFEST_BYTES_MAX = 64 << 20,
    MANIFEST_FILES_MAX = 1 << 20,
    PIECE_BYTES_MAX = (16 << 20) + (1 << 20) + 4096,
    PATH_BYTES = CHECKPOINT_PATH_BYTES,
    DATABASE_NAME_BYTES = 16,
    CHECKPOINT_RECORD_MAX = 16 << 20
};

struct manifest_file {
    struct str path; /* relative to the checkpoint's directory */
    uint64_t bytes;
    const uint8_t *digests; /* DIGEST_BYTES for each CHECKPOINT_CHUNK_BYTES */
};

/* A piece of state.bin: consecutive records of one part, and of one key group where they are enough (checkpoint_write.c). The
 * manifest stores this struct as it is in memory. */
struct manifest_piece {
    uint64_t offset;
    uint32_t part, bytes;
    uint32_t group_min, group_max; /* the key groups of its records; SNAPSHOT_GLOBAL is the largest */
};

/* A MANIFEST. A decoded one points into the text that it was decoded from. */
struct manifest {
    struct checkpoint_info info;
    struct manifest_file *files;
    uint32_t files_count;
    struct str *parts;
    uint32_t parts_count;
    const char *pieces; /* pieces_count * sizeof(struct manifest_piece), unaligned */
    uint64_t pieces_count;
    /* DIGEST_BYTES for each piece: the pieces lie one behind another then, and are all of state.bin. NULL: there are pieces
     * without digests, as before there were such. */
    const uint8_t *piece_digests;
    const struct group_set *groups; /* that the checkpoint has, without stays; NULL: all */
};

static inline struct manifest_piece manifest_piece(const struct manifest *manifest, uint64_t index)
{
    struct manifest_piece piece;
    memcpy(&piece, manifest->pieces + index * sizeof(piece), sizeof(piece));
    return piece;
}

static inline uint64_t digest_count(uint64_t bytes)
{
    return bytes / CHECKPOINT_CHUNK_BYTES + (bytes % CHECKPOINT_CHUNK_BYTES != 0);
}

/* The content of a GENERATION file. */
struct generation {
    uint32_t generation;
    struct checkpoint_id parent;
    struct run_id run;
    /* The run that this generation's run began from (--from). from_path of length 0: none. In a decoded
     * struct the texts point into the decoded bytes. */
    struct str from_path, from_dropped;
    struct checkpoint_id from;
};

enum decode_result { DECODE_GOOD, DECODE_DAMAGED, DECODE_OTHER_FORMAT };

/* A MANIFEST or GENERATION has a magic number at its beginning and a digest at its end. Encoding appends to
 * `out`. Decoding checks lengths, counts, and that pieces and digests fit the files; `text` may hold any
 * bytes. DECODE_DAMAGED: *why says what is wrong (static text). */
void manifest_encode(const struct manifest *manifest, struct byte_buffer *out);
enum decode_result manifest_decode(struct str text, struct arena *arena, struct manifest *manifest,
                                   const char **why);
void generation_encode(const struct generation *generation, struct byte_buffer *out);
enum decode_result generation_decode(struct str text, struct generation *generation, const char **why);
/* Writes the GENERATION of a generation's directory, in place of another one, and syncs both. 0 or an errno. */
int generation_write(const char *directory, const struct generation *generation);
/* The xxh3-128 of the bytes, as checkpoints have it. */
void digest_of(const void *data, size_t bytes, uint8_t digest[DIGEST_BYTES]);
/* Sets the digest at the end of an encoded text, for tests and fuzzing. */
void manifest_seal(char *text, size_t bytes);

/* The name of a store's database in a checkpoint, and of its working directory: db, db-1, ... */
void database_name(uint32_t number, char name[DATABASE_NAME_BYTES]);
bool is_database_name(const char *name);
/* Whether the path, relative to a checkpoint's directory, is that of a file of a database. */
bool is_database_file(struct str path);

/* A file of a database, by its path relative to the checkpoint's directory, and its digests; malloc'd. */
struct known_digest {
    char *name;
    uint64_t bytes;
    uint8_t *digests;
};

/* Of a directory that was made of a checkpoint in an object store, until its first own one. */
#define RESTORED_NAME "RESTORED"

struct checkpoint_dir {
    char *path;
    char *database_directory; /* where the databases' working directories lie */
    struct str fingerprint, profile;
    struct checkpoint_keep keep;
    const struct group_set *groups; /* of this process; NULL: all */
    bool is_read_only;
    int lock_fd;                              /* -1: none */
    char *lock_text;                          /* the text of this process's LOCK; malloc'd */
    char taken_from[CHECKPOINT_HOLDER_BYTES]; /* the holder before --take-over; empty: nobody */
    struct generation generation;             /* this process's; generation 0: not started */
    struct checkpoint_id last;                /* the last checkpoint that this process published */
    uint32_t chain;                           /* number of checkpoints in the chain of `last` */
    uint64_t base_bytes, delta_bytes;         /* state.bin of that chain's base, and of all its deltas */
    struct known_digest *known;               /* of each database's files in the checkpoint `last` */
    uint32_t known_count;
    char **redo; /* paths of the segments to execute again; once the generation is started, links in it */
    uint32_t redo_count;
    uint64_t redo_next;  /* the first micro-batch behind the segments in `redo` */
    uint32_t redo_taken; /* segments that checkpoint_redo_take has added */
    bool awaits_head;    /* this process's checkpoints count when a head names them */
};

struct checkpoint {
    struct checkpoint_dir *dir;
    struct arena arena;
    struct manifest chain[CHECKPOINT_CHAIN_MAX]; /* base first */
    uint32_t count;
    /* checkpoint_join: the next part, and its own `dir` is closed with it; its bytes are verified when they are read. */
    struct checkpoint *next;
    bool is_part;
};

/* checkpoint_read.c. Of several parts the one that has the database, whose number becomes that within the part. */
const struct checkpoint *checkpoint_part_of(const struct checkpoint *checkpoint, uint32_t *number);

/* checkpoint_lock.c. Takes the lock; false after E0701 or E0706. */
LEAT_CHECKED bool checkpoint_lock(struct checkpoint_dir *dir, bool take_over, struct diag_list *diags);
/* Releases the lock, if this process still holds it, and frees dir->lock_text. */
void checkpoint_unlock(struct checkpoint_dir *dir);

/* Each writes a directory's path; `path` has room for PATH_BYTES. */
void path_generation(const struct checkpoint_dir *dir, uint32_t generation, char *path);
void path_checkpoint(const struct checkpoint_dir *dir, struct checkpoint_id id, char *path);

/* Checkpoints on disk, newest generation and epoch first. malloc'd. */
struct checkpoint_id *ids_list(const struct checkpoint_dir *dir, uint32_t *count);
/* Generations on disk, newest first. malloc'd. */
uint32_t *generations_list(const struct checkpoint_dir *dir, uint32_t *count);

/* Reads a GENERATION or a MANIFEST. DECODE_DAMAGED: *why says what is wrong. */
enum decode_result generation_read(const struct checkpoint_dir *dir, uint32_t number,
                                   struct generation *generation, const char **why);
enum decode_result manifest_read(const struct checkpoint_dir *dir, struct checkpoint_id id,
                                 struct arena *arena, struct manifest *manifest, const char **why);

/* The same of a MANIFEST's text, which *manifest points into. */
enum decode_result manifest_take(struct str text, struct checkpoint_id id, struct arena *arena,
                                 struct manifest *manifest, const char **why);

/* Checkpoints in the order in which a restore tries them, newest first: those of the newest generation, then
 * those of its parents, each from the parent checkpoint down. malloc'd. */
struct checkpoint_id *ids_walk(const struct checkpoint_dir *dir, uint32_t *count);

/* Generations in the order of a restore, newest first; limit: the last epoch of the generation that counts.
 * malloc'd. */
struct generation_span {
    uint32_t generation;
    uint64_t limit;
};
struct generation_span *spans_walk(const struct checkpoint_dir *dir, uint32_t *count);
/* The numbers n of the entries "PREFIXn" in a directory, largest first; malloc'd. */
uint64_t *numbers_list(const char *path, const char *prefix, uint32_t *count);

/* checkpoint_order.c. `path` has room for PATH_BYTES. */
void path_order(const struct checkpoint_dir *dir, struct checkpoint_id id, char *path); /* in a checkpoint */
/* Keeps the order log of a checkpoint that is about to be removed, as a loose segment. 0 or an errno. */
int order_keep(const struct checkpoint_dir *dir, struct checkpoint_id id);
/* Removes loose segments that no kept checkpoint needs, and the oldest ones beyond the bounds. oldest_kept:
 * the oldest checkpoint that is kept, in the order of a restore. 0 or an errno. */
int order_prune(const struct checkpoint_dir *dir, struct checkpoint_id oldest_kept);
bool order_has_loose(const struct checkpoint_dir *dir, uint32_t generation);
/* Links the segments of dir->redo into the directory `temporary`, which will become `generation`; dir->redo
 * then names the links. 0 or an errno. */
int redo_link(struct checkpoint_dir *dir, const char *temporary, const char *generation);
void redo_free(struct checkpoint_dir *dir);
/* Checks every entry of the checkpoint's order log, which digests alone do not; false after E0702. */
bool order_verify(const struct checkpoint_dir *dir, struct checkpoint_id id, struct diag_list *diags);
/* The same for all loose segments. */
bool order_verify_loose(const struct checkpoint_dir *dir, struct diag_list *diags);
void order_show(const struct checkpoint_dir *dir, struct checkpoint_id id, struct byte_buffer *out);
void order_show_loose(const struct checkpoint_dir *dir, struct byte_buffer *out);

/* checkpoint_pieces.c.
 *   - piece_has: whether the piece may have records of the key groups (NULL: all), or records without a group.
 *   - pieces_verify: reads all pieces, and compares them with their digests; of a manifest without these: true. False after E0702. */
bool piece_has(const struct manifest_piece *piece, const struct group_set *groups);
LEAT_CHECKED bool pieces_verify(const struct checkpoint_dir *dir, const struct manifest *manifest,
                                struct diag_list *diags);

/* checkpoint_parts.c. Whether a head names a part; a checkpoint of a run that was alone counts as one that a head names.
 *   - part_doubt: notes, before the part has its name, that it is in doubt. The caller syncs the generation's folder. 0 or an errno.
 *   - part_forget: the part was removed. */
enum part_fate { PART_NAMED, PART_IN_DOUBT, PART_VOID };
enum part_fate part_fate(const struct checkpoint_dir *dir, struct checkpoint_id id);
int part_doubt(const struct checkpoint_dir *dir, struct checkpoint_id id);
void part_forget(const struct checkpoint_dir *dir, struct checkpoint_id id);
/* Writes the HEAD of a generation's folder, which the caller syncs. 0 or an errno. */
int part_write_head(const char *directory, struct str manifest);

/* checkpoint_prune.c. Sets kept[i] of the checkpoints that `keep` names, at least the newest. created_us: newest first;
 * TIME_MIN: damaged. kept: zeroed. */
void keep_mark(const int64_t *created_us, uint32_t count, const struct checkpoint_keep *keep, bool *kept);

/* The digests of a whole file: DIGEST_BYTES for each chunk, malloc'd, also after an error. 0 or an errno. */
int digest_file(const char *path, uint64_t *bytes, uint8_t **digests);
/* Copies a file to a new inode and fsyncs it. 0 or an errno. */
int copy_file(const char *from, const char *to);

/* checkpoint_read.c. Reading past the page cache: large files of checkpoints are read once or twice, and filling new pages would
 * cost more than reading them.
 *   - uncached_open: a descriptor, or -1 and errno; through the page cache where the file system has no other way.
 *   - uncached_memory: room for `bytes` bytes that uncached_read reads, with whole blocks of the disk around them; malloc'd.
 *   - uncached_read: `bytes` bytes from `offset`. *data: where they begin in `memory`. 0 or an errno. */
int uncached_open(const char *path);
char *uncached_memory(size_t bytes);
int uncached_read(int fd, char *memory, size_t bytes, uint64_t offset, char **data);
/* E0702 for a file; offset -1: all of it. */
struct diag *checkpoint_damaged(const char *path, int64_t offset, bool is_warning, struct diag_list *diags,
                                const char *why);
/* Reads every byte of a file that a MANIFEST has. False after a diagnostic: a warning or an error. */
bool manifest_file_verify(const char *path, const struct manifest_file *file, bool is_warning,
                          struct diag_list *diags);
/* Reads every byte of the manifest's files. False after a diagnostic: a warning or an error. */
bool manifest_verify(const struct checkpoint_dir *dir, const struct manifest *manifest, bool is_warning,
                     struct diag_list *diags);
/* Loads the manifests of a checkpoint's chain; NULL after a diagnostic. */
struct checkpoint *chain_open(struct checkpoint_dir *dir, struct checkpoint_id id, bool is_warning,
                              enum decode_result *result, struct diag_list *diags);

/* checkpoint_pack.c. All files of a chain's manifests, open, so that a running job may remove the checkpoint; base first, in
 * the manifests' order. */
struct open_files {
    int *fds;
    uint32_t count;
};
/* False after E0702; files_close is needed all the same. */
LEAT_CHECKED bool files_open(const struct checkpoint *chain, struct open_files *files,
                             struct diag_list *diags);
void files_close(struct open_files *files);
/* Writes the GENERATION of the chain unless it is there, and removes all checkpoints and generations but the chain's. 0 or an errno. */
int chain_settle(const struct checkpoint_dir *dir, const struct checkpoint *chain);
/* E0702 with the reason. Returns false. */
bool file_unreadable(const char *path, int error, struct diag_list *diags);

#endif

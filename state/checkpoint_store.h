/* Checkpoints in an object store (objects/objects.h): copies of what was published in a directory, from which a job goes on where
 * the directory is lost.
 *
 *     heads/000007-000000000042-TOKEN           names all files of a checkpoint with its chain, and the objects that hold them
 *     gen-000007-TOKEN/ckpt-000000000042/NAME   a checkpoint's own files, as they are
 *     db/CONTENT                                files of databases: each goes up once, whatever checkpoints have it
 *     tables/CONTENT                            operators' tables
 *
 * TOKEN is a random one of the process that wrote: a life that began anew from an older checkpoint counts epochs anew, and gives
 * no name twice. Where a life goes on with a checkpoint whose MANIFEST is in the store with the same bytes, its head names the
 * objects of the process that put them. CONTENT is a digest and a size. A head is written last; what no head names is not there for anybody. Pruning
 * deletes heads first, and what no kept head names when it has been so for CHECKPOINT_STORE_DELAY_US, so that who reads a head can
 * go on. Each job needs a URL of its own. One thread at a time, but for checkpoint_store_cancel and checkpoint_store_stats. */
#ifndef LEAT_STATE_CHECKPOINT_STORE_H
#define LEAT_STATE_CHECKPOINT_STORE_H

#include "state/checkpoint.h"
#include "state/objects/objects.h"

enum { CHECKPOINT_HEAD_BYTES_MAX = 64 << 20, CHECKPOINT_HEAD_FILES_MAX = 1 << 20 };
#define CHECKPOINT_STORE_DELAY_US (10 * US_PER_MINUTE)

struct checkpoint_head_file {
    struct str name;   /* below the directory: "gen-000007/ckpt-000000000042/state.bin" */
    struct str object; /* that holds its bytes */
    uint64_t bytes;
};

struct checkpoint_head {
    struct checkpoint_id id;
    int64_t created_us; /* wall clock: when it was put */
    struct checkpoint_head_file *files;
    uint32_t count;
    uint64_t bytes; /* of all files; set by checkpoint_store_list alone */
};

struct checkpoint_store;
/* NULL after E0710. Sends nothing. */
struct checkpoint_store *checkpoint_store_open(const struct objects_options *options,
                                               struct diag_list *diags);
void checkpoint_store_close(struct checkpoint_store *store); /* NULL is allowed */
void checkpoint_store_cancel(struct checkpoint_store *store);
void checkpoint_store_stats(const struct checkpoint_store *store, struct objects_stats *stats);

/* Copies the newest checkpoint of the directory, unless this process has done so. *id: that checkpoint; generation 0: there is
 * none. `holder` (NULL: nobody) must still hold the directory before the head is written. False after E0702 (the directory),
 * E0709, E0710 (also: the store has a newer generation, so another run's) or E0711; what was put stays for the next time. */
LEAT_CHECKED bool checkpoint_store_put(struct checkpoint_store *store, struct checkpoint_dir *dir,
                                       const struct checkpoint_dir *holder, struct checkpoint_id *id,
                                       struct diag_list *diags);
/* Deletes heads that `keep` does not keep, and what none names since long. now_us: a clock that only rises; does nothing until the
 * delay has passed since the call before. `holder` as above. *removed: objects deleted. */
LEAT_CHECKED bool checkpoint_store_prune(struct checkpoint_store *store, const struct checkpoint_dir *holder,
                                         const struct checkpoint_keep *keep, int64_t now_us,
                                         uint32_t *removed, struct diag_list *diags);

/* Makes the checkpoint directory `to`, which must be missing or empty, of a checkpoint in the store, and verifies every byte. id:
 * generation 0 for the newest that is whole; older ones are tried then, with warnings. *id: which; *bytes: of its files. After a
 * failure `to` is as it was. False after E0701, E0702, E0705, E0708, E0608, E0605, E0710 or E0711. */
LEAT_CHECKED bool checkpoint_store_restore(struct checkpoint_store *store, struct checkpoint_id *id,
                                           const char *to, uint64_t *bytes, struct diag_list *diags);

/* Bytes that a restore has read of the checkpoint in the store; requests that failed are not counted. */
struct checkpoint_store_read {
    uint64_t manifests; /* with the head */
    uint64_t
        pieces; /* of state.bin; the gaps of at most an eighth between pieces that come in one request, too */
    uint64_t database; /* files of databases */
    uint64_t tables;   /* operators' table files, which all instances need */
};
/* The same of some key groups alone: what is read of state.bin is the pieces that have them, or records without a group, each
 * verified by its own digest. `to` has one base then, whose MANIFEST says which groups it has: only who opens it with
 * checkpoint_dir_options.groups, all of them among `groups`, can go on with it. It has no order log: micro-batches that must be
 * executed again are the whole job's, not some groups'. A checkpoint of before, without pieces, or of other groups: E0705. Holds
 * 17 MiB at most beside the MANIFESTs. */
LEAT_CHECKED bool checkpoint_store_restore_groups(struct checkpoint_store *store, struct checkpoint_id *id,
                                                  const char *to, const struct group_set *groups,
                                                  struct checkpoint_store_read *read,
                                                  struct diag_list *diags);

/* *id: the newest checkpoint that has a head, whole or not, or of several workers (checkpoint_store_parts.h); generation 0: there is
 * none. False after E0710 or E0711. */
LEAT_CHECKED bool checkpoint_store_newest(struct checkpoint_store *store, struct checkpoint_id *id,
                                          struct diag_list *diags);
/* Lists the checkpoints in the store, newest first, without their files. *found lies in the arena. False after E0710 or E0711. */
LEAT_CHECKED bool checkpoint_store_list(struct checkpoint_store *store, struct arena *arena,
                                        struct checkpoint_head **found, uint32_t *count,
                                        struct diag_list *diags);

/* --- Inside: heads --- */

/* A head is text with a digest at its end. Decoding checks all of it: names stay below the directory, counts are bounded. */
void checkpoint_head_encode(const struct checkpoint_head *head, struct byte_buffer *out);
/* The head's texts point into `text`, its files lie in the arena. False: *why says what is wrong (static). */
LEAT_CHECKED bool checkpoint_head_decode(struct str text, struct arena *arena, struct checkpoint_head *head,
                                         const char **why);
/* Parses the object's name of a head, or of a part (checkpoint_store_parts.h). */
LEAT_CHECKED bool checkpoint_head_name(struct str name, struct checkpoint_id *id);

#endif

/* Checkpoints of several workers in an object store, in a job's URL beside those of a run that is alone (checkpoint_store.h). Each worker
 * puts its part; who leads puts the manifest of all parts (run/head.h), which is bytes here.
 *
 *     cluster/NAME                                  the cluster's name, the generation of the run that was alone before, the job's digest
 *     cluster/heads/head-000003-000000000017        a manifest: incarnation and epoch
 *     cluster/parts/000003-000000000017-TOKEN       a part: its files and their objects, as a head names them (checkpoint_head.c)
 *     cluster/gen-000003-TOKEN/ckpt-000000000017/   a part's own files
 *     cluster/gen-000003-TOKEN/db/CONTENT           files of databases; tables/CONTENT: operators' tables
 *
 * TOKEN is of a worker's life in one incarnation; what it has put, others name, and nobody writes again. So a worker of an earlier
 * incarnation that wakes up adds and removes nothing that a later one needs: what it deletes was unnamed for long when it looked, and is
 * put under no such name again.
 *
 * Only who leads deletes: manifests that are not kept, then what no manifest names, and none has named for CHECKPOINT_STORE_DELAY_US.
 * A worker counts on an object only while the newest head names it for this worker, or it was put since. Threads: as checkpoint_store.h. */
#ifndef LEAT_STATE_CHECKPOINT_STORE_PARTS_H
#define LEAT_STATE_CHECKPOINT_STORE_PARTS_H

#include "state/checkpoint_store.h"

enum { CHECKPOINT_PART_NAME_BYTES = 64, CHECKPOINT_CLUSTER_NAME_BYTES = 64 };

/* --- A worker's part --- */

/* Where a part is: the name of its object, also of the head of a run that was alone; xxh3-128 of its MANIFEST. */
struct checkpoint_store_part {
    struct str name;
    struct checkpoint_id id;
    uint8_t digest[CHECKPOINT_DIGEST_BYTES];
};

/* Puts the directory's checkpoint `id` with its chain; `name` gets the part's. False after E0702 (the directory), E0710 or E0711; what was
 * put stays for the next time. */
LEAT_CHECKED bool checkpoint_store_put_part(struct checkpoint_store *store, struct checkpoint_dir *dir,
                                            struct checkpoint_id id, char name[CHECKPOINT_PART_NAME_BYTES],
                                            struct diag_list *diags);
/* The part that was put last is in the newest head: what that part does not name may be deleted from now on. */
void checkpoint_store_part_named(struct checkpoint_store *store);
/* Reads what this worker's part names with which its life begins, so that it need not be sent again. Where that fails, it is; and what a run
 * that was alone has put. */
void checkpoint_store_know_part(struct checkpoint_store *store, struct str name);
/* Whether the part is there. MISSING: not. FAILED after E0710. */
enum objects_result checkpoint_store_has_part(struct checkpoint_store *store, struct str name,
                                              struct diag_list *diags);
/* Makes the checkpoint directory `to`, missing or empty, of the part, and verifies every byte. groups: those of its records that are
 * needed, of which the part may have some; records without a group always come; NULL: all of it. *bytes: that were read. After a failure
 * `to` is as it was. False as checkpoint_store_restore. */
LEAT_CHECKED bool checkpoint_store_get_part(struct checkpoint_store *store,
                                            const struct checkpoint_store_part *part,
                                            const struct group_set *groups, const char *to, uint64_t *bytes,
                                            struct diag_list *diags);
/* A copy of a worker's newest part, in a checkpoint directory like that worker's own: part after part, of which what is there already is not
 * got again. Who begins with the head finds the part there.
 *   - new: `to` is the directory; it is made where it is missing. keep_free: so many bytes of its disk stay free.
 *   - bring: the directory has the part and its chain, every byte verified, and nothing else; *bytes: gets added what came from the store. A
 *     directory that another process holds is left alone, where it has the part. False as checkpoint_store_restore, or after E0706; the
 *     part before is there yet, and what was got stays for the next time.
 *   - forget: removes the directory, unless another process holds it, and frees the mirror. */
struct checkpoint_mirror;
struct checkpoint_mirror *checkpoint_mirror_new(struct checkpoint_store *store, const char *to,
                                                int64_t keep_free);
void checkpoint_mirror_free(struct checkpoint_mirror *mirror); /* NULL is allowed */
LEAT_CHECKED bool checkpoint_mirror_bring(struct checkpoint_mirror *mirror,
                                          const struct checkpoint_store_part *part, uint64_t *bytes,
                                          struct diag_list *diags);
void checkpoint_mirror_forget(struct checkpoint_mirror *mirror);
/* Finds the newest head of a run that was alone, or that of *id, unless its generation is 0, and sets what it has. *run, *bytes: what its
 * MANIFEST says. The name lies in the arena. MISSING: there is none. FAILED after E0710 or E0711. */
enum objects_result checkpoint_store_find_alone(struct checkpoint_store *store, struct checkpoint_id wanted,
                                                struct arena *arena, struct checkpoint_store_part *part,
                                                struct run_id *run, uint64_t *bytes, struct diag_list *diags);

/* --- Manifests --- */

/* The id of a manifest: incarnation of its workers, and epoch. The same bytes may be put again. */
LEAT_CHECKED bool checkpoint_store_put_manifest(struct checkpoint_store *store, struct checkpoint_id id,
                                                struct str manifest, struct diag_list *diags);
/* Appends the manifest. FAILED after E0710 or E0711. */
enum objects_result checkpoint_store_get_manifest(struct checkpoint_store *store, struct checkpoint_id id,
                                                  struct byte_buffer *manifest, struct diag_list *diags);
/* Lists manifests, newest first, in the arena. False after E0710 or E0711; so are those below. */
LEAT_CHECKED bool checkpoint_store_manifests(struct checkpoint_store *store, struct arena *arena,
                                             struct checkpoint_id **ids, uint32_t *count,
                                             struct diag_list *diags);
LEAT_CHECKED bool checkpoint_store_delete_manifest(struct checkpoint_store *store, struct checkpoint_id id,
                                                   struct diag_list *diags);
/* Whether the next checkpoint_store_prune_parts is due. now_us: a clock that only rises. */
bool checkpoint_store_is_prune_due(const struct checkpoint_store *store, int64_t now_us);
/* Deletes parts that are not among `parts`, and what no part among them names, when it has been so for long; some hundred objects at
 * most, and the rest with the next call; and what unfinished puts have left. */
LEAT_CHECKED bool checkpoint_store_prune_parts(struct checkpoint_store *store, const struct str *parts,
                                               uint32_t count, int64_t now_us, uint32_t *removed,
                                               struct diag_list *diags);

/* --- The cluster --- */

struct checkpoint_store_cluster {
    char name[CHECKPOINT_CLUSTER_NAME_BYTES + 1]; /* "": no cluster has begun here */
    char job[2 * CHECKPOINT_DIGEST_BYTES + 1];    /* digest of the job, as hex digits */
    uint32_t before; /* generation of the run that was alone; 0: there was none */
    uint32_t newest; /* highest generation that an object's name has */
};
LEAT_CHECKED bool checkpoint_store_read_cluster(struct checkpoint_store *store,
                                                struct checkpoint_store_cluster *cluster,
                                                struct diag_list *diags);
/* Where there is no record yet. What it says counts when it is read again: TAKEN: that of another cluster may be there; UNKNOWN: so it may for a
 * moment yet, in place of this one. */
enum objects_new checkpoint_store_write_cluster(struct checkpoint_store *store,
                                                const struct checkpoint_store_cluster *cluster,
                                                struct diag_list *diags);

#endif

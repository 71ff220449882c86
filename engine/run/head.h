/* The manifest of a checkpoint of several workers: which parts it has, and where they lie. The leader makes it, and publishes it as
 * the job's head; who begins with it takes what is his from all parts. Any thread.
 *
 * It is words and texts (base/words.h), and a digest of all before. */
#ifndef LEAT_RUN_HEAD_H
#define LEAT_RUN_HEAD_H

#include "run/run.h"
#include "state/checkpoint.h"

/* An ordinary checkpoint, in the directory of the worker that wrote it. */
struct run_head_part {
    uint32_t worker;
    struct checkpoint_id
        id;         /* its generation is the incarnation of the workers; its epoch that of all parts */
    uint64_t bytes; /* of all its files */
    uint8_t digest[CHECKPOINT_DIGEST_BYTES]; /* of its MANIFEST */
    struct str directory;
};

struct run_head {
    struct run_id run; /* of the job: the same over all incarnations */
    uint64_t epoch;
    /* Of which worker had which key groups and stages: workers with the same take all of their state from their own parts. Zero: it
     * does not say. */
    uint8_t placement[CHECKPOINT_DIGEST_BYTES];
    uint32_t leader; /* which part has the positions of all sources, and the order log */
    uint32_t count;
    struct run_head_part parts[RUN_WORKERS_MAX]; /* in the order of workers, from 0 on */
};

/* Epochs of several workers are not above that one; they rise by one for each checkpoint. */
#define RUN_EPOCH_MAX ((uint64_t)INT64_MAX)

/* Whether a head can have a part in a directory of that path: it is not empty, not too long, and has no byte 0. */
bool run_head_directory_is_good(struct str path);
/* Appends the manifest. */
void run_head_encode(const struct run_head *head, struct byte_buffer *out);
/* Reads a manifest, whose bytes come from outside; texts point into them. False: *why says what is wrong, a static text. */
LEAT_CHECKED bool run_head_decode(struct str manifest, struct run_head *head, const char **why);
/* Opens the head's parts as one checkpoint (checkpoint_join); checkpoint_info is that of the part of the worker that led. fingerprint: of the
 * job; length 0: of any. NULL after a diagnostic. */
struct checkpoint *run_head_open(const struct run_head *head, struct str fingerprint,
                                 struct diag_list *diags);
/* Appends the manifest of a run that was alone: of the newest whole checkpoint in its directory, so that several workers can begin with
 * it. False after a diagnostic. */
LEAT_CHECKED bool run_head_of_run(const char *directory, struct byte_buffer *out, struct diag_list *diags);

/* --- Heads as files ---
 *
 * A folder with a file for each manifest, head-000003-000000000017: incarnation and epoch. A file does not say whether its manifest has
 * become the head: whoever keeps the head does (etcd, say). Nothing else need be in the folder, and what else is there is left alone. */

enum { RUN_HEAD_BYTES_MAX = CHECKPOINT_MANY_BYTES_MAX, RUN_HEAD_NAME_BYTES = 48 };
/* The name of a manifest's file in its folder. */
void run_head_name(uint32_t incarnation, uint64_t epoch, char name[RUN_HEAD_NAME_BYTES]);
/* Whether a file of that name is a manifest, finished; and of which generation and epoch. */
bool run_head_read_name(const char *name, struct checkpoint_id *id);
/* Writes the manifest of the incarnation's checkpoint `epoch` into the folder, which is made where it is missing. When it returns true, all
 * is on the disk; a file of that name with the same bytes counts as written, so that a leader may try again. False after E0708: there is
 * no such file, or one with all bytes that a power failure may take back; or there is one with other bytes, which stays. */
LEAT_CHECKED bool run_head_write(const char *folder, uint32_t incarnation, uint64_t epoch,
                                 struct str manifest, struct diag_list *diags);
/* Reads a manifest's file, checks it, and appends its bytes to *manifest, empty before. *head: what it says; its texts point into
 * *manifest. False after E0705 (there is none) or E0702 (it is damaged, or of another head than its name says). */
LEAT_CHECKED bool run_head_load(const char *path, struct byte_buffer *manifest, struct run_head *head,
                                struct diag_list *diags);
/* Whether the path is that of a file which begins as a manifest does. */
bool run_head_is_file(const char *path);
/* The paths of the manifests in the folder, newest first, in the arena. Returns how many; 0 also where there is no such folder. Any
 * thread. */
uint32_t run_head_list(const char *folder, struct arena *arena, const char ***paths);
/* Removes manifests that are older than the head, which is that incarnation's checkpoint `epoch`, but for the newest `keep` of them that
 * can have been heads: one whose epoch a later one of an earlier checkpoint has taken again cannot. The head stays, and what is newer:
 * it may be about to become the head. *removed: how many. False after E0708. */
LEAT_CHECKED bool run_head_prune(const char *folder, uint32_t incarnation, uint64_t epoch, uint32_t keep,
                                 uint32_t *removed, struct diag_list *diags);

#endif

/* Heads in an object store: checkpoints of several workers whose parts lie there (state/checkpoint_store_parts.h). Whoever begins with
 * one, or looks inside, has its parts brought to directories first, and goes on as with any head. One thread at a time for each store. */
#ifndef LEAT_RUN_HEAD_STORE_H
#define LEAT_RUN_HEAD_STORE_H

#include "run/head.h"
#include "state/checkpoint_store.h"

/* Finds the newest head in the store, or that of `wanted`, unless its generation is 0: incarnation of its workers, and epoch. A checkpoint
 * of a run that was alone is a head of one part. Appends its manifest to *manifest, empty before, where texts of *head point to. MISSING:
 * there is none. FAILED after E0710 or E0711. */
enum objects_result run_head_in_store(struct checkpoint_store *store, struct checkpoint_id wanted,
                                      struct byte_buffer *manifest, struct run_head *head,
                                      struct diag_list *diags);
/* The same of a run that was alone. */
enum objects_result run_head_alone_in_store(struct checkpoint_store *store, struct checkpoint_id wanted,
                                            struct byte_buffer *manifest, struct diag_list *diags);

struct run_head_fetch {
    struct checkpoint_store *store;
    const char *near; /* folder with directories worker-N, which have parts of heads; NULL: there is none */
    const char *to;   /* folder for what comes from the store; made where it is missing */
    bool is_verified; /* what is near was verified by this process a moment ago; who reads it does so again */
    const struct group_set *groups; /* that are needed; NULL: all of the state */
    struct arena *arena;            /* of names of directories */
    uint64_t bytes, got;            /* gets how much came from the store, and how many parts */
};
/* Sets each part's directory, and digest, to where it lies on this machine: as it is where a worker's directory has it whole, else as it
 * comes from the store. False after E0710, E0711, E0702 or E0708. */
LEAT_CHECKED bool run_head_fetch(struct run_head *head, struct run_head_fetch *fetch,
                                 struct diag_list *diags);

/* Of who leads, behind a head: removes manifests that are older, but for the newest `keep` that can have been heads, and what no manifest
 * that is left has named for long. Manifests that are newer stay: one may be about to become the head. Does nothing until some minutes
 * have passed since the time before. now_us: a clock that only rises. *removed: how many objects. False after E0710 or E0711. */
LEAT_CHECKED bool run_head_prune_store(struct checkpoint_store *store, struct checkpoint_id head,
                                       uint32_t keep, int64_t now_us, uint32_t *removed,
                                       struct diag_list *diags);

#endif

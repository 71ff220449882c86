/* The versions of a table whose file is replaced while the job runs: `lookup` with `refresh`.
 *
 * A thread watches the file. When the file has changed and is the same at two looks, it is copied beside the
 * checkpoints, and the copy is read: the candidate. At the next barrier, after micro-batch n, the first
 * instance of the operator to reach the barrier makes the candidate the table of the micro-batches from n + 1
 * on, for all instances. So all rows of a micro-batch are looked up in one version, wherever and whenever
 * they are processed. Each instance has a seat on the version of its current micro-batch. The table of an
 * older version is freed when its last seat is left, and no third table is read before that: at most two are
 * in memory, each within half of the budget.
 *
 *     DIR/tables/ID/LOG                 a line for each version: its first micro-batch; replaced as a whole
 *     DIR/tables/ID/DIGEST/items.csv    the file as it was
 *
 * Both are on disk before a row is looked up in a new version, and so before a checkpoint after it is
 * published. A checkpoint holds the digest of the version that follows it: a resume uses that version,
 * whatever the file is now. If a resume falls back to an older checkpoint, the log says at which of the
 * repeated micro-batches the table changed; lines for micro-batches that were in no checkpoint are dropped. A
 * replay reads the log of the run whose order log it follows. Versions that the oldest checkpoint does not
 * need are removed after a new version came. */
#ifndef LEAT_OPERATORS_LOOKUP_LOOKUP_VERSIONS_H
#define LEAT_OPERATORS_LOOKUP_LOOKUP_VERSIONS_H

#include "core/operator_history.h"
#include "operators/lookup/lookup_table.h"

struct versions;
struct version;

/* The version that an instance looks rows up in. */
struct version_seat {
    struct version *version; /* NULL: none yet */
    uint64_t until;          /* micro-batches from this one on may have another version */
};

/* In open, by the first instance. *source is copied; what it points to, and the context, must outlive the
 * result. NULL: no live source, or no checkpoints; then read the file once, as without `refresh`. */
struct versions *versions_new(const struct lookup_source *source, int64_t refresh_us,
                              struct operator_context *context);
bool versions_wait_for_restore(const struct versions *versions);
/* In open if no restore follows, else in restore. The first call finds the version that the run begins with;
 * each call takes a seat. digest: from the checkpoint; length 0: none. False after diagnostics, which the
 * first call gives. */
bool versions_begin(struct versions *versions, struct operator_context *context, struct str digest,
                    struct version_seat *seat);
/* Moves the seat to the version of `micro_batch`. False: it is not available; the run fails. */
bool versions_seat(struct versions *versions, const struct operator_context *context, uint64_t micro_batch,
                   struct version_seat *seat);
/* In snapshot, after `micro_batch`: the candidate, if any, becomes the version of the micro-batches from
 * micro_batch + 1 on. */
void versions_turn(struct versions *versions, uint64_t micro_batch);
void versions_leave(struct versions *versions, struct version_seat *seat);
/* After the last seat was left; NULL is allowed. */
void versions_free(struct versions *versions);

const struct lookup_table *version_table(const struct version *version);

struct version_figures {
    uint64_t changes, refused;      /* since this start of the run */
    char error[REPORT_ERROR_BYTES]; /* about the file as it is now; empty: none */
};
void versions_figures(struct versions *versions, struct version_figures *figures);

#endif

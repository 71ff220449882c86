/* Private to run/checkpoints. */
#ifndef LEAT_RUN_CHECKPOINTS_INTERNAL_H
#define LEAT_RUN_CHECKPOINTS_INTERNAL_H

#include "run/base/barrier.h"
#include "run/checkpoints/checkpoints.h"

enum { PARTS_ID_MAX = UINT16_MAX };

struct checkpoints {
    struct run *run;
    struct checkpoint_from from;     /* with --from, the other run's checkpoint; path NULL: none */
    struct checkpoint_dir *from_dir; /* directory of `from` */
    struct run_id from_run;          /* with run.is_begun_again: id of the life before */
    struct byte_buffer parts;        /* the list of parts, which every checkpoint holds */
    pthread_t thread;
    bool has_thread;
    struct arena arena;
    struct diag_list diags; /* the coordinator's diagnostics */
    int64_t begun_us;       /* when the last checkpoint was begun, on the monotonic clock */
    /* Under the barrier's mutex. */
    uint64_t next_epoch;
    bool last_is_published;
    char why[512]; /* why the last failed checkpoint failed; "": none has failed */
    uint64_t count, failures, bytes;
    int64_t published_us, duration_us;
};

/* parts.c */
/* Once it is known what the run begins with: sets the ids of all nodes, and which of them restore state. For a
 * run from another's checkpoint it compares the two jobs; false after one diagnostic for each difference that
 * would lose state. *next_id: lowest id that no part has had so far. */
LEAT_CHECKED bool parts_init(struct run *run, uint32_t *next_id);
/* Writes the record of the parts, which every checkpoint has. */
void parts_put(const struct run *run, uint32_t next_id, struct byte_buffer *out);

/* from.c */
/* Opens the other run's checkpoint that this run begins with, as run->resumed. */
LEAT_CHECKED bool from_open(struct run *run);
/* Whether the newest run of this directory began from another run's checkpoint and has published none of its
 * own: then it begins there again. */
bool from_is_unfinished(struct run *run);
/* Whether an earlier life has begun from there, so that this one resumes it. */
bool from_has_begun(const struct run *run);
/* Matches the checkpoint's parts with those of the job. false after diagnostics. */
LEAT_CHECKED bool from_match(struct run *run, const struct parts *saved);

/* before_record.c: for a trace, chooses the newest checkpoint before the record, without changing the
 * directory. false after a diagnostic. */
LEAT_CHECKED bool before_record_choose(struct run *run);

#endif

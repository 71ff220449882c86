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
/* Appends the manifest of a run that was alone: of the newest whole checkpoint in its directory, so that several workers can begin with
 * it. False after a diagnostic. */
LEAT_CHECKED bool run_head_of_run(const char *directory, struct byte_buffer *out, struct diag_list *diags);

#endif

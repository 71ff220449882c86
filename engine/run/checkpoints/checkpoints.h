/* Checkpoints of a run: what it begins with, the coordinator that takes them, and the parts they have. */
#ifndef LEAT_RUN_CHECKPOINTS_CHECKPOINTS_H
#define LEAT_RUN_CHECKPOINTS_CHECKPOINTS_H

#include "run/base/base.h"
#include "state/checkpoint.h"

/* Opens the checkpoint directory and finds the checkpoint to begin with (run->resumed and its neighbours).
 * Before sources and stages are opened. false after diagnostics, as below. */
bool checkpoints_init(struct run *run);
/* Opens the state store, in the checkpoint directory or in a temporary one. */
bool checkpoints_open_state(struct run *run);
/* Gives sources and nodes their state back. After they were opened. */
bool checkpoints_restore(struct run *run);
/* Lets the checkpoint directory go: a trace takes no checkpoints. */
void checkpoints_close(struct run *run);
void checkpoints_free(struct run *run);

/* Starts the coordinator; false: the system refuses a thread. */
bool checkpoints_start(struct run *run);
/* After the lanes have ended: waits for a checkpoint that is being written; after a failure, abandons the
 * one that was begun. */
void checkpoints_join(struct run *run);
/* After the join: whether the last checkpoint was published; else a diagnostic is added. */
bool checkpoints_have_last(struct run *run);
/* Adds figures. */
void checkpoints_stats(struct run *run, struct run_stats *stats);

/* The parts of a job in its checkpoints: each part's name, the id under which its state is saved, and its
 * shape (core/shape.h). A part keeps its id for as long as checkpoints follow each other, also through
 * `--from`, so that the database need not be written anew when a job changes: a new part gets an id that no
 * part had before. */
struct part {
    uint32_t id;
    bool has_state;
    struct str name, shape;
};

struct parts {
    struct part *items;
    uint32_t count, next_id; /* next_id: lowest id that no part has had */
};

/* Reads the parts of a checkpoint into the arena. false + E0702. */
LEAT_CHECKED bool parts_read(struct checkpoint *checkpoint, struct arena *arena, struct parts *parts,
                             struct diag_list *diags);
/* NULL: there is no part of that name. */
const struct part *parts_find(const struct parts *parts, struct str name);

#endif

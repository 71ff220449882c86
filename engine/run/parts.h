/* The parts of a job in its checkpoints: each part's name, the id under which its state is saved, and its
 * shape (core/shape.h). A part keeps its id for as long as checkpoints follow each other, also through
 * `--from`, so that the database need not be written anew when a job changes: a new part gets an id that no
 * part had before. Control thread. */
#ifndef LEAT_RUN_PARTS_H
#define LEAT_RUN_PARTS_H

#include "run/internal.h"
#include "state/checkpoint.h"

enum { PARTS_ID_MAX = UINT16_MAX };

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

/* Once it is known what the run begins with (in checkpoints_init): sets the ids of all nodes, and which of
 * them restore state. For a run from another's checkpoint it compares the two jobs; false after one
 * diagnostic for each difference that would lose state. */
LEAT_CHECKED bool parts_init(struct run *run);
/* Writes the record of the parts, which every checkpoint has. */
void parts_put(const struct run *run, struct byte_buffer *out);
/* from.c: adds a line to the notes that are shown where the run begins. */
void run_note(struct run *run, const char *format, ...) LEAT_PRINTF(2, 3);
/* from.c: opens the other run's checkpoint that this run begins with, as checkpoints->resumed. */
LEAT_CHECKED bool from_open(struct run *run);
/* from.c: whether the newest run of this directory began from another run's checkpoint and has published
 * none of its own: then it begins there again. */
bool from_is_unfinished(struct run *run);
/* from.c: whether an earlier life has begun from there, so that this one resumes it. */
bool from_has_begun(const struct run *run);
/* from.c: matches the checkpoint's parts with those of the job. false after diagnostics. */
LEAT_CHECKED bool from_match(struct run *run, const struct parts *saved);

#endif

/* The parts of a job in its checkpoints: what each is called, which number its state has there, and what it
 * stands on. Numbers stay with the parts for as long as checkpoints follow each other, through `--from` as
 * well, so that a database need not be written anew when a job changes: a part that is new gets one that none
 * had before. Control thread. */
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
    uint32_t count, next_id; /* next_id: no part had it */
};

/* Of a checkpoint; in the arena. false + E0702. */
LEAT_CHECKED bool parts_read(struct checkpoint *checkpoint, struct arena *arena, struct parts *parts,
                             struct diag_list *diags);
/* NULL: there is none of that name. */
const struct part *parts_find(const struct parts *parts, struct str name);

/* Once it is known what the run begins with (checkpoints_init): numbers for all nodes, and which of them have
 * something to take back. For a run from another's checkpoint: compares the two jobs; false after one
 * diagnostic for each difference that would lose state. */
LEAT_CHECKED bool parts_init(struct run *run);
/* The record that each checkpoint has. */
void parts_put(const struct run *run, struct byte_buffer *out);
/* from.c: what is said where the run begins, a line each. */
void run_note(struct run *run, const char *format, ...) LEAT_PRINTF(2, 3);
/* from.c: opens the checkpoint that a run from another's begins with, as checkpoints->resumed. */
LEAT_CHECKED bool from_open(struct run *run);
/* from.c: whether the newest run of the own directory began from another's checkpoint and has none of its
 * own: then it begins there again. */
bool from_is_unfinished(struct run *run);
/* from.c: whether a life before this one has begun from there, and this one goes on. */
bool from_has_begun(const struct run *run);
/* from.c: matches the checkpoint's parts with those of the job. */
LEAT_CHECKED bool from_match(struct run *run, const struct parts *saved);

#endif

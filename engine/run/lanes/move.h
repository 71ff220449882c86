/* Inside run/lanes: what an instance of a keyed stage has of moves (move.c), and how instances reach each other (move_pieces.c). */
#ifndef LEAT_RUN_LANES_MOVE_H
#define LEAT_RUN_LANES_MOVE_H

#include "core/operator_state.h"
#include "run/base/inbox.h"
#include "run/base/placements.h"
#include "run/lanes/internal.h"

/* What instances give: rounds of bases, which count on over all changes, and at a barrier what has changed since. The number of a
 * change is the version of its placement. */
enum given { GIVEN_BASE, GIVEN_CHANGES, GIVEN_TAGS };

enum { PIECE_BYTES = 256 << 10 /* of a base that are given or taken between two micro-batches, about */ };

struct stage_move {
    struct inbox inboxes[GIVEN_TAGS];
    const struct placement *next; /* announced, and the groups have not moved yet; NULL: none */
    uint64_t number;              /* of the round */
    /* Of the round: what to give next, of the groups `leaving` to instance `to`. */
    bool has_given, has_taken;
    uint32_t to, to_node;
    struct group_set leaving;
    struct operator_base at;
    struct group_set coming;   /* with the change */
    uint8_t giver[KEY_GROUPS]; /* by group: the worker that gives it with the change; NO_GIVER: none does */
    struct byte_buffer out, message;
};

enum { NO_GIVER = UINT8_MAX };
_Static_assert((int)RUN_WORKERS_MAX <= (int)NO_GIVER, "a worker's number fits a byte");

/* A lane's thread; instances by their numbers over all workers.
 *   - pieces_room: whether bases may be given to the instance now: what is on its way to its worker is bounded.
 *   - pieces_give: gives records of a node to another instance, and empties the buffer.
 *   - pieces_given: the instance has given all.
 *   - pieces_have_given: whether all instances of the stage, of all workers, have.
 *   - pieces_take: takes what has come, a message; *bytes: its length; false: there is none now. */
bool pieces_room(const struct run *run, uint32_t to);
void pieces_give(struct stage_instance *stage, enum given what, uint64_t number, uint32_t to, uint32_t node,
                 struct byte_buffer *records);
void pieces_given(const struct stage_instance *stage, enum given what);
bool pieces_have_given(const struct stage_instance *stage, enum given what, uint64_t number);
bool pieces_take(struct stage_instance *stage, enum given what, uint64_t number, size_t *bytes);

#endif

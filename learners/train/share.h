/*
 * Work of many pieces, shared with a lane that has nothing else to do (core/team.h). What is done must not
 * depend on who does a piece, nor on which are done at the same time.
 */
#ifndef LEARNERS_TRAIN_SHARE_H
#define LEARNERS_TRAIN_SHARE_H

#include <stdint.h>

struct team;

enum { SHARE_OWNER, SHARE_HELPER, SHARE_THREADS };

/* Does piece `number`; pieces are begun in the order of their numbers. who: SHARE_OWNER or SHARE_HELPER,
 * whose memory it may use. */
typedef void share_piece(void *of, uint32_t number, unsigned who);

/* The owner's thread: returns when all pieces are done. team NULL: alone, each after the other. */
void share_run(struct team *team, uint32_t count, share_piece *piece, void *of);

/* Likewise, but in any order: the owner begins with the first piece and the helper with the last, so that in
 * the next call most pieces come back to who did them, in whose cache their memory is. */
void share_apart(struct team *team, uint32_t count, share_piece *piece, void *of);

#endif

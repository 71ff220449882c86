/*
 * Work in many pieces, shared with an idle lane (core/team.h). The result must not depend on which thread
 * does a piece, nor on which pieces are done at the same time.
 */
#ifndef LEAT_LEARNERS_TRAIN_SHARE_H
#define LEAT_LEARNERS_TRAIN_SHARE_H

#include <stdint.h>

struct team;

enum { SHARE_OWNER, SHARE_HELPER, SHARE_THREADS };

/* Does piece `number`; pieces are begun in the order of their numbers. who: SHARE_OWNER or SHARE_HELPER, the
 * thread whose scratch memory the piece may use. */
typedef void share_piece(void *of, uint32_t number, unsigned who);

/* Call on the owner's thread; returns when all pieces are done. team NULL: the owner does them
 * alone, in order. */
void share_run(struct team *team, uint32_t count, share_piece *piece, void *of);

/* Likewise, but in any order: the owner begins with the first piece and the helper with the last, so that in
 * the next call most pieces are done by the same thread again, with their memory in its cache. */
void share_apart(struct team *team, uint32_t count, share_piece *piece, void *of);

#endif

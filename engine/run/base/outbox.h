/* Messages to other workers. A link has room for a part of the job's memory (RUN_LINKS_PART) and refuses what comes beyond that; what it
 * refuses waits here as in an inbox: in memory, and beyond that in a file. So nobody waits who sends: rows that a slow or silent worker
 * has not taken cost disk, not memory, as rows between lanes do.
 *
 * Why that never stands still, whatever is full: a receiver takes every message that comes, whichever micro-batch it belongs to, in
 * memory or in a file (run_receive), and waits for no lane. So a link's room comes back with what the link carries, and with nothing
 * else; the lowest micro-batch that a receiver has not run is never held back by rows of others that it has to run first. Messages of
 * one sender stay in their order. Any thread, but for outboxes_init and outboxes_free. */
#ifndef LEAT_RUN_BASE_OUTBOX_H
#define LEAT_RUN_BASE_OUTBOX_H

#include "run/base/base.h"

/* Where there are other workers. */
void outboxes_init(struct run *run);
void outboxes_free(struct run *run);

/* Sends a message to another worker by run_peers.send; or lets it wait, where others wait already or the link has no room. */
void outbox_post(const struct run *run, uint32_t worker, struct str message);
/* Sends what waits, until the link has no room. */
void outbox_drain(struct run *run, uint32_t worker);

#endif

/* POST /api/v1/savepoint?name=NAME: the run takes a checkpoint whose barrier comes after the request, copies it to
 * DIR/savepoints/NAME, and then answers. One at a time:
 *
 *   asked    by the API's thread (savepoint_serve)
 *   awaited  by the control thread (savepoint_tend): until that checkpoint is published
 *   copied   by a thread of its own
 *   done     the API's thread answers (savepoint_turn)
 *
 * The answer is JSON: {"savepoint": path, "checkpoint": "3-17", "bytes": N}. */
#ifndef LEAT_CONTROL_SAVEPOINT_H
#define LEAT_CONTROL_SAVEPOINT_H

#include "net/net.h"
#include "run/run.h"

struct api;
struct savepoint;

struct savepoint *savepoint_new(void);
/* After the API's thread has ended; NULL is allowed. */
void savepoint_free(struct savepoint *s);
/* The API's thread. Answers now or later. */
void savepoint_serve(struct api *api, struct net_exchange *exchange);
/* The API's thread, after each turn of its loop. */
void savepoint_turn(struct api *api);
/* Control thread, now and then while the run goes on. */
void savepoint_tend(struct api *api, struct run *run);
/* Control thread, when the run has ended: a copy in work is finished, a request that waits is refused, and so are later
 * ones. */
void savepoint_end(struct api *api);

#endif

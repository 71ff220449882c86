/* Deadlines of connections. All deadlines of one queue last equally long, so the first of a queue is the next to
 * pass: setting and clearing one moves a node of a list. One thread. */
#ifndef LEAT_NET_DEADLINE_H
#define LEAT_NET_DEADLINE_H

#include "core/base.h"

#include <uv.h>

struct deadline {
    struct deadline *next, *before; /* NULL: not set */
    uint64_t at_ms;                 /* by uv_now */
};

struct deadline_queue {
    struct deadline ring; /* next: the earliest */
    uint32_t lasts_ms;
    void (*passed)(struct deadline *deadline); /* the deadline is no longer set */
    struct deadline_queue *next;
};

struct deadlines {
    uv_timer_t timer;
    uint64_t next_ms; /* when the timer fires; UINT64_MAX: not set */
    struct deadline_queue *queues;
};

void deadlines_init(struct deadlines *deadlines, uv_loop_t *loop);
/* The queue must live until the last deadline of all queues has passed or been cleared. */
void deadlines_add(struct deadlines *deadlines, struct deadline_queue *queue, uint32_t lasts_ms,
                   void (*passed)(struct deadline *deadline));
/* Sets the deadline anew, where it was set or not. */
void deadline_set(struct deadlines *deadlines, struct deadline_queue *queue, struct deadline *deadline);
void deadline_clear(struct deadline *deadline);

#endif

#include "net/deadline.h"

enum { GRAIN_MS = 10 }; /* the timer fires no more often */

static void fired(uv_timer_t *timer);

static void arm(struct deadlines *deadlines, uint64_t at_ms)
{
    uint64_t now = uv_now(deadlines->timer.loop);
    uint64_t wait = MAX(at_ms > now ? at_ms - now : 0, GRAIN_MS);
    deadlines->next_ms = now + wait;
    uv_timer_start(&deadlines->timer, fired, wait, 0);
}

static void fired(uv_timer_t *timer)
{
    struct deadlines *deadlines = timer->data;
    uint64_t now = uv_now(timer->loop), earliest = UINT64_MAX;
    deadlines->next_ms = UINT64_MAX;
    for (struct deadline_queue *queue = deadlines->queues; queue != NULL; queue = queue->next) {
        struct deadline *first = queue->ring.next;
        while (first != &queue->ring && first->at_ms <= now) {
            deadline_clear(first);
            queue->passed(first);
            first = queue->ring.next;
        }
        if (first != &queue->ring)
            earliest = MIN(earliest, first->at_ms);
    }
    if (earliest < deadlines->next_ms)
        arm(deadlines, earliest);
}

void deadlines_init(struct deadlines *deadlines, uv_loop_t *loop)
{
    uv_timer_init(loop, &deadlines->timer);
    deadlines->timer.data = deadlines;
    deadlines->next_ms = UINT64_MAX;
    deadlines->queues = NULL;
}

void deadlines_add(struct deadlines *deadlines, struct deadline_queue *queue, uint32_t lasts_ms,
                   void (*passed)(struct deadline *deadline))
{
    *queue =
        (struct deadline_queue){.lasts_ms = MAX(lasts_ms, 1), .passed = passed, .next = deadlines->queues};
    queue->ring.next = queue->ring.before = &queue->ring;
    deadlines->queues = queue;
}

void deadline_set(struct deadlines *deadlines, struct deadline_queue *queue, struct deadline *deadline)
{
    deadline_clear(deadline);
    uv_update_time(deadlines->timer.loop); /* a service may have worked long since this turn began */
    deadline->at_ms = uv_now(deadlines->timer.loop) + queue->lasts_ms;
    deadline->next = &queue->ring;
    deadline->before = queue->ring.before;
    deadline->before->next = deadline;
    queue->ring.before = deadline;
    if (deadline->at_ms < deadlines->next_ms)
        arm(deadlines, deadline->at_ms);
}

void deadline_clear(struct deadline *deadline)
{
    if (deadline->next == NULL)
        return;
    deadline->next->before = deadline->before;
    deadline->before->next = deadline->next;
    deadline->next = deadline->before = NULL;
}

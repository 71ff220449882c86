/* Help from idle lanes. While the owner of some work is busy it opens its team; idle lanes then call the
 * task, once for each small piece. The owner never waits for help to come: it does every piece that nobody
 * else has begun. The result must not depend on who does a piece. */
#ifndef LEAT_CORE_TEAM_H
#define LEAT_CORE_TEAM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Does one piece (microseconds; for large batches milliseconds), or waits about as long. Called
 * on any thread, while the owner works, too. Returns false when no pieces are left until the team
 * is opened again. */
typedef bool team_task(void *argument);

struct team {
    atomic_uint state; /* TEAM_OPEN, plus 1 while a helper is inside */
    team_task *task;
    void *argument;
    void (*wake)(void *engine); /* wakes sleeping lanes */
    void *engine;
    /* The owner is busy and will reopen the team within microseconds: lanes should spin, not sleep, since
     * waking them would take longer. */
    atomic_bool comes_again;
};

/* Called by the owner: from here until team_close other threads may call the task. */
void team_open(struct team *team, team_task *task, void *argument);
/* Called by the owner; returns when no helper is inside. */
void team_close(struct team *team);

/* Called by any other thread: does one piece if there is one and nobody else helps; one helper is enough to
 * keep all pieces moving. Returns whether the caller should try again at once. */
bool team_help(struct team *team);

/* Call once per round of a loop that waits for another thread's next few instructions. After some hundred
 * rounds each call yields the processor, because the other thread may need it. */
void team_pause(unsigned round);

#endif

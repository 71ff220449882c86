/*
 * Help from lanes that have nothing else to do. While the owner of some work is at it, it opens its team;
 * other lanes then call the task, each time for one small piece. Nobody waits for help that may not come: the
 * owner does every piece that nobody else has begun. What is done must not depend on who does it.
 */
#ifndef LEAT_CORE_TEAM_H
#define LEAT_CORE_TEAM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Does one piece (microseconds; of large batches, milliseconds), or waits for as long; false: no more are to
 * be had until the team is opened again. On any thread, beside the owner. */
typedef bool team_task(void *argument);

struct team {
    atomic_uint state; /* TEAM_OPEN, and 1 while somebody is inside */
    team_task *task;
    void *argument;
    void (*wake)(void *engine); /* lanes that sleep */
    void *engine;
    atomic_bool comes_again; /* the owner is at work, and opens it again within microseconds: waking would
                                take longer */
};

/* The owner's thread: from here until team_close the task may be called. */
void team_open(struct team *team, team_task *task, void *argument);
/* Returns when nobody is inside. */
void team_close(struct team *team);

/* Any other thread: does one piece if there is one and nobody else helps: one helper keeps all pieces moving.
 * Whether it should come again at once. */
bool team_help(struct team *team);

/* Once round a loop that waits for another thread's next few instructions; from the `round`-th hundred on the
 * processor goes to others, who may be that thread. */
void team_pause(unsigned round);

#endif

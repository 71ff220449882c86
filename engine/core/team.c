#include "core/team.h"

#include <sched.h>

enum { TEAM_OPEN = 1 << 30, SPINS = 200 };

void team_pause(unsigned round)
{
    if (round >= SPINS) {
        sched_yield();
        return;
    }
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

void team_open(struct team *team, team_task *task, void *argument)
{
    team->task = task;
    team->argument = argument;
    atomic_fetch_or_explicit(&team->state, TEAM_OPEN, memory_order_release);
    team->wake(team->engine);
}

void team_close(struct team *team)
{
    atomic_fetch_and_explicit(&team->state, ~(unsigned)TEAM_OPEN, memory_order_acq_rel);
    for (unsigned round = 0; atomic_load_explicit(&team->state, memory_order_acquire) != 0; round++)
        team_pause(round);
}

bool team_help(struct team *team)
{
    if (atomic_load_explicit(&team->state, memory_order_relaxed) != TEAM_OPEN)
        return false;
    unsigned nobody = TEAM_OPEN;
    if (!atomic_compare_exchange_strong_explicit(&team->state, &nobody, TEAM_OPEN + 1, memory_order_acquire,
                                                 memory_order_relaxed))
        return false;
    bool has_more = team->task(team->argument);
    atomic_fetch_sub_explicit(&team->state, 1, memory_order_release);
    return has_more;
}

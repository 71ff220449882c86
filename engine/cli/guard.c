#include "cli/guard.h"

#include "core/quiet_thread.h"

#include <time.h>

enum { LOOK_US = 20000 };

static void *guard_main(void *argument)
{
    struct guard *guard = argument;
    while (!atomic_load(&guard->is_done) && !guard->has_ended_it) {
        guard->has_ended_it = guard->look(guard->user);
        nanosleep(&(struct timespec){.tv_nsec = LOOK_US * 1000}, NULL);
    }
    return NULL;
}

void guard_begin(struct guard *guard, bool (*look)(void *user), void *user)
{
    *guard = (struct guard){.look = look, .user = user};
    guard->has_thread = quiet_thread_start(&guard->thread, guard_main, guard);
}

bool guard_end(struct guard *guard)
{
    atomic_store(&guard->is_done, true);
    if (guard->has_thread)
        pthread_join(guard->thread, NULL);
    return guard->has_ended_it;
}

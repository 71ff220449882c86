/* Ends a wait of the control thread, which cannot look at anything meanwhile: a thread of its own looks. */
#ifndef LEAT_CLI_GUARD_H
#define LEAT_CLI_GUARD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct guard {
    bool (*look)(void *user); /* whether it has ended the wait; called every 20 ms until it has */
    void *user;
    pthread_t thread;
    bool has_thread, has_ended_it;
    atomic_bool is_done;
};

/* Without a thread, which the system may refuse, nothing ends the wait but what it waits for. */
void guard_begin(struct guard *guard, bool (*look)(void *user), void *user);
/* Behind the wait. Returns whether the guard has ended it; no more looks follow. */
bool guard_end(struct guard *guard);

#endif

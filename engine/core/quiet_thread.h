/* A thread that gets no signals: they belong to the control thread. */
#ifndef LEAT_CORE_QUIET_THREAD_H
#define LEAT_CORE_QUIET_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

/* False: the system refuses it. */
static inline bool quiet_thread_start(pthread_t *thread, void *(*run)(void *), void *argument)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error == 0;
}

#endif

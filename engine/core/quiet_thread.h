/* A thread that gets no signals: they belong to the control thread. SIGSEGV, SIGBUS and SIGABRT are not blocked: a fault of a thread that
 * blocks its signal ends the process without last words (refused.h). */
#ifndef LEAT_CORE_QUIET_THREAD_H
#define LEAT_CORE_QUIET_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

/* False: the system refuses it. */
static inline bool quiet_thread_start(pthread_t *thread, void *(*run)(void *), void *argument)
{
    sigset_t quiet, before;
    sigfillset(&quiet);
    sigdelset(&quiet, SIGSEGV);
    sigdelset(&quiet, SIGBUS);
    sigdelset(&quiet, SIGABRT);
    pthread_sigmask(SIG_SETMASK, &quiet, &before);
    int error = pthread_create(thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error == 0;
}

#endif

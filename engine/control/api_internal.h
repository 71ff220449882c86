/* What the files of the control API share; for these files only. */
#ifndef LEAT_CONTROL_API_INTERNAL_H
#define LEAT_CONTROL_API_INTERNAL_H

#include "control/api.h"
#include "control/api_key.h"
#include "control/history_api.h"

#include <pthread.h>
#include <stdatomic.h>

struct api {
    const struct plan *plan;
    struct net_loop *loop;
    pthread_t thread;
    int64_t published_us;                    /* the control thread's */
    _Atomic(struct history_watch *) history; /* NULL: not yet, or no memory */
    struct api_key key;
    atomic_bool can_act; /* the key was written */
    atomic_int wanted;   /* enum api_want */
    /* The figures; guarded by the mutex. */
    pthread_mutex_t mutex;
    bool is_there;
    struct run_stats stats;
    struct run_times *times;
    struct dead_watch watch;
    struct bottleneck_found recent;
};

/* A row of the table of what the API answers (api.c). */
struct api_route {
    const char *method;
    const char *path; /* one that ends in `*` stands for all that begin so */
    /* The API's thread. Gives the exchange its answer, now or later. */
    void (*serve)(struct api *api, struct net_exchange *exchange);
};

/* Answers with a body of that content-type, which no cache keeps. */
void api_answer(struct net_exchange *exchange, int status, struct str type, const struct byte_buffer *body);

#endif

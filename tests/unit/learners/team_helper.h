/* A thread that helps a team (core/team.h) as an idle lane does. */
#ifndef LEAT_TESTS_UNIT_LEARNERS_TEAM_HELPER_H
#define LEAT_TESTS_UNIT_LEARNERS_TEAM_HELPER_H

#include "core/team.h"

#include <stdatomic.h>
#include <stdbool.h>

struct helper {
    struct team team;
    atomic_bool is_over;
    atomic_uint pieces;      /* that it did, but for the last one of a call */
    atomic_uint calls, done; /* calls of team_open; of these the number whose pieces are all done */
};

/* Helps with a call once it waits for help. */
static void *help(void *argument)
{
    struct helper *h = argument;
    while (!atomic_load(&h->is_over)) {
        unsigned call = atomic_load(&h->calls);
        if (call == atomic_load(&h->done))
            team_pause(1000);
        else if (team_help(&h->team))
            atomic_fetch_add(&h->pieces, 1);
        else
            atomic_store(&h->done, call);
    }
    return NULL;
}

/* Called by team_open: waits until the helper has done the first piece of each call, or the only one. */
static void wait_for_help(void *engine)
{
    struct helper *h = engine;
    unsigned before = atomic_load(&h->pieces), call = atomic_fetch_add(&h->calls, 1) + 1;
    while (atomic_load(&h->pieces) == before && atomic_load(&h->done) != call)
        team_pause(1000);
}

#endif

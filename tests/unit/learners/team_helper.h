/* A thread that helps a team (core/team.h) as an idle lane does. */
#ifndef LEAT_TESTS_UNIT_LEARNERS_TEAM_HELPER_H
#define LEAT_TESTS_UNIT_LEARNERS_TEAM_HELPER_H

#include "core/team.h"

#include <stdatomic.h>
#include <stdbool.h>

struct helper {
    struct team team;
    atomic_bool is_over;
    atomic_uint pieces;
};

static void *help(void *argument)
{
    struct helper *h = argument;
    while (!atomic_load(&h->is_over)) {
        if (team_help(&h->team))
            atomic_fetch_add(&h->pieces, 1);
        else
            team_pause(1000);
    }
    return NULL;
}

/* Called by team_open: waits until the helper has done the first piece of each call. */
static void wait_for_help(void *engine)
{
    struct helper *h = engine;
    unsigned before = atomic_load(&h->pieces);
    while (atomic_load(&h->pieces) == before)
        team_pause(1000);
}

#endif

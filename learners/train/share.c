#include "learners/train/share.h"

#include "core/team.h"

#include <stddef.h>

struct shared {
    share_piece *piece;
    void *of;
    uint32_t count;
    atomic_uint begun;
};

static bool do_next(struct shared *s, unsigned who)
{
    uint32_t number = atomic_fetch_add_explicit(&s->begun, 1, memory_order_relaxed);
    if (number >= s->count)
        return false;
    s->piece(s->of, number, who);
    return true;
}

static bool help(void *argument)
{
    return do_next(argument, SHARE_HELPER);
}

void share_run(struct team *team, uint32_t count, share_piece *piece, void *of)
{
    struct shared s = {.piece = piece, .of = of, .count = count};
    bool is_shared = team != NULL && count > 1;
    if (is_shared)
        team_open(team, help, &s);
    while (do_next(&s, SHARE_OWNER)) {
    }
    if (is_shared)
        team_close(team);
}

#include "learners/train/share.h"

#include "core/team.h"

#include <stddef.h>

struct shared {
    share_piece *piece;
    void *of;
    uint32_t count;
    bool is_apart;
    _Atomic(uint64_t) begun; /* pieces begun by the owner, plus HELPERS times those begun by the helper */
};

static const uint64_t HELPERS = UINT64_C(1) << 32;

static bool do_next(struct shared *s, unsigned who)
{
    uint64_t one = who == SHARE_HELPER ? HELPERS : 1;
    uint64_t begun = atomic_fetch_add_explicit(&s->begun, one, memory_order_relaxed);
    uint64_t owners = begun % HELPERS, helpers = begun / HELPERS;
    if (owners + helpers >= s->count)
        return false;
    uint64_t number = !s->is_apart ? owners + helpers : who == SHARE_OWNER ? owners : s->count - 1 - helpers;
    s->piece(s->of, (uint32_t)number, who);
    return true;
}

static bool help(void *argument)
{
    return do_next(argument, SHARE_HELPER);
}

static void run(struct team *team, struct shared *s)
{
    bool is_shared = team != NULL && s->count > 1;
    if (is_shared)
        team_open(team, help, s);
    while (do_next(s, SHARE_OWNER)) {
    }
    if (is_shared)
        team_close(team);
}

void share_run(struct team *team, uint32_t count, share_piece *piece, void *of)
{
    run(team, &(struct shared){.piece = piece, .of = of, .count = count});
}

void share_apart(struct team *team, uint32_t count, share_piece *piece, void *of)
{
    run(team, &(struct shared){.piece = piece, .of = of, .count = count, .is_apart = true});
}

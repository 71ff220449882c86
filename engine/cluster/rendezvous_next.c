/* Who takes part in the next round, and whether one comes to a planned end for it: the leader's part of the rendezvous. */
#include "cluster/reach.h"
#include "cluster/rendezvous_internal.h"
#include "core/os.h"

uint32_t rendezvous_most(const struct rendezvous *r, const struct cluster_view *view)
{
    uint32_t wanted = view->wanted.workers;
    return wanted == 0 ? r->o.most : MAX(MIN(wanted, r->o.most), r->o.least);
}

/* Whether a request that is newer than the round names the worker as one that is to wait. */
static bool is_to_wait(const struct cluster_view *view, const struct rendezvous_round *last, int64_t lease)
{
    bool is = false;
    for (uint32_t i = 0; i < view->wanted.without_count && view->wanted.revision > last->wanted; i++)
        is |= view->wanted.without[i] == lease;
    return is;
}

/* Whether somebody has asked for more or fewer workers since the round began. */
static bool is_asked(const struct cluster_view *view, const struct rendezvous_round *last)
{
    return view->wanted.revision > last->wanted && view->wanted.drains == 0;
}

/* Where the leader's note of the lease is; RENDEZVOUS_WORKERS_MAX: there is none. lease 0: a place that is free. */
static uint32_t place_of(const struct rendezvous *r, int64_t lease)
{
    uint32_t i = 0;
    while (i < RENDEZVOUS_WORKERS_MAX && r->apart[i] != lease)
        i++;
    return i;
}

void rendezvous_note_apart(struct rendezvous *r, const struct rendezvous_round *before,
                           const struct rendezvous_round *next)
{
    for (uint32_t i = 0; i < before->count; i++) {
        int64_t lease = before->workers[i].lease;
        uint32_t place = place_of(r, lease);
        if (rendezvous_has_worker(next, lease) && place < RENDEZVOUS_WORKERS_MAX)
            r->apart[place] = 0;
        else if (!rendezvous_has_worker(next, lease) && place == RENDEZVOUS_WORKERS_MAX)
            r->apart[place_of(r, 0) % RENDEZVOUS_WORKERS_MAX] = lease; /* all are taken: the first one goes */
    }
}

static void add_worker(struct rendezvous_round *next, const struct cluster_member *member)
{
    next->workers[next->count++] =
        (struct rendezvous_worker){.lease = member->lease, .address = member->address, .host = member->host};
}

/* Those of the last round keep their numbers, where these are below the count of the next one, and others fill the gaps: so each finds
 * its part of the state as it left it. */
static void keep_numbers(const struct rendezvous_round *last, struct rendezvous_round *next)
{
    struct rendezvous_worker kept[RENDEZVOUS_WORKERS_MAX] = {{0}};
    uint32_t count = MIN(last->count, next->count);
    for (uint32_t i = 0; i < next->count; i++)
        if (rendezvous_number(last, next->workers[i].lease) < count)
            kept[rendezvous_number(last, next->workers[i].lease)] = next->workers[i];
    for (uint32_t i = 0, free_one = 0; i < next->count; i++) {
        if (rendezvous_number(last, next->workers[i].lease) < count)
            continue;
        while (kept[free_one].lease != 0)
            free_one++;
        kept[free_one] = next->workers[i];
    }
    memcpy(next->workers, kept, sizeof(kept));
}

/* Whom a round can have. */
enum choice { CHOOSE_ANY, CHOOSE_REACHED, CHOOSE_FITTING };

/* Whether the worker can be in the next round, if there is room. */
static bool is_fit(const struct rendezvous *r, const struct cluster_view *view,
                   const struct rendezvous_round *last, enum choice choice,
                   const struct cluster_member *member)
{
    if (rendezvous_has_worker(last, member->lease))
        choice = CHOOSE_ANY;
    bool is_apart =
        choice != CHOOSE_ANY && !is_asked(view, last) && place_of(r, member->lease) < RENDEZVOUS_WORKERS_MAX;
    bool fits = choice != CHOOSE_FITTING || member->fits == last->incarnation;
    return !is_apart && fits && !rendezvous_is_doubted(r, member, 0) && !member->leaves &&
           str_equal(member->flags, r->o.flags) && !member->is_refused && /* nor will be */
           admission_earlier(view, member, coordination_lease(r->o.coordination), rendezvous_has_gone, r) ==
               NULL;
}

/* In which order workers are taken into a round: those of the last one, standbys in place of those that have died, others, standbys in
 * place of those that leave. Those that are to wait are the last: where others have died, they take part. */
enum turn { TURN_OF_LAST, TURN_HOT, TURN_OTHER, TURN_STANDBY, TURN_TO_WAIT, TURNS };

static enum turn turn_of(const struct rendezvous *r, const struct cluster_view *view,
                         const struct rendezvous_round *last, bool is_planned,
                         const struct cluster_member *member)
{
    if (member->lease != coordination_lease(r->o.coordination) && is_to_wait(view, last, member->lease))
        return TURN_TO_WAIT;
    if (rendezvous_has_worker(last, member->lease))
        return TURN_OF_LAST;
    return !member->is_standby ? TURN_OTHER : is_planned ? TURN_STANDBY : TURN_HOT;
}

/* The leader, then by turns; those of the last round in their order, others by lease; at most as many as are wanted. */
static void choose(const struct rendezvous *r, const struct cluster_view *view,
                   const struct rendezvous_round *last, enum choice choice, uint32_t standbys_to,
                   struct rendezvous_round *next)
{
    next->count = 0;
    int64_t self = coordination_lease(r->o.coordination);
    const struct cluster_member *own = cluster_view_member(view, self);
    bool takes_part = own != NULL && !own->leaves;
    uint32_t taken = takes_part, most = rendezvous_most(r, view), count = last->count + view->members_count;
    for (uint32_t i = 0; i < TURNS * count; i++) {
        uint32_t place = i % count;
        bool is_of_last = place < last->count;
        const struct cluster_member *member = is_of_last
                                                  ? cluster_view_member(view, last->workers[place].lease)
                                                  : &view->members[place - last->count];
        if (member == NULL || (!is_of_last && rendezvous_has_worker(last, member->lease)) ||
            !is_fit(r, view, last, choice, member))
            continue;
        bool is_self = member->lease == self, is_more = member->is_standby && !is_of_last;
        if (turn_of(r, view, last, choice != CHOOSE_ANY, member) != i / count ||
            (!is_self && taken >= (is_more ? MIN(most, standbys_to) : most)))
            continue;
        add_worker(next, member);
        taken += !is_self;
    }
}

void rendezvous_choose(const struct rendezvous *r, const struct cluster_view *view,
                       const struct rendezvous_round *last, bool is_planned, uint32_t standbys_to,
                       struct rendezvous_round *next)
{
    choose(r, view, last, is_planned ? CHOOSE_FITTING : CHOOSE_ANY, standbys_to, next);
    if (is_planned && next->count < last->count)
        choose(r, view, last, CHOOSE_REACHED, standbys_to, next);
    keep_numbers(last, next);
}

uint64_t rendezvous_leave_out(const struct rendezvous *r, const struct cluster_view *view,
                              const struct rendezvous_round *last, struct rendezvous_round *next,
                              struct rendezvous_round *before)
{
    uint64_t unreached[RENDEZVOUS_WORKERS_MAX] = {0};
    uint32_t leader = 0;
    int64_t self = coordination_lease(r->o.coordination);
    *before = *next;
    for (uint32_t i = 0; i < next->count; i++) {
        const struct cluster_member *member = cluster_view_member(view, next->workers[i].lease);
        leader = member->lease == self ? i : leader;
        for (uint32_t k = 0; member->over == last->incarnation && k < member->unreached_count; k++)
            for (uint32_t other = 0; other < next->count; other++)
                if (str_equal(member->unreached[k], next->workers[other].address))
                    unreached[i] |= UINT64_C(1) << other;
    }
    uint64_t left_out = reach_left_out(unreached, next->count, leader, r->o.least);
    next->count = 0;
    for (uint32_t i = 0; i < before->count; i++)
        if ((left_out >> i & 1) == 0)
            next->workers[next->count++] = before->workers[i];
    keep_numbers(last, next);
    return left_out;
}

int64_t rendezvous_since(struct rendezvous *r, uint32_t candidates)
{
    if (candidates != r->candidates || r->since_us == 0) {
        r->candidates = candidates;
        r->since_us = os_monotonic_us();
    }
    return r->since_us;
}

bool rendezvous_fill(struct rendezvous *r, const struct cluster_view *view,
                     const struct rendezvous_round *last, struct rendezvous_round *next)
{
    struct rendezvous_round filled = {0};
    if (next->count >= r->o.least || os_monotonic_us() - rendezvous_since(r, next->count) < r->o.wait_us)
        return false;
    rendezvous_choose(r, view, last, false, r->o.least, &filled);
    if (filled.count < r->o.least)
        return false;
    *next = filled;
    return true;
}

bool rendezvous_change_is_due(struct rendezvous *r, const struct cluster_view *view,
                              const struct rendezvous_round *last)
{
    struct rendezvous_round next = {0};
    rendezvous_choose(r, view, last, true, last->count, &next);
    uint32_t stay = 0;
    for (uint32_t i = 0; i < last->count; i++)
        stay += rendezvous_has_worker(&next, last->workers[i].lease);
    int64_t since_us = rendezvous_since(r, next.count);
    if (stay < last->count) /* one leaves, or fewer are wanted */
        return true;
    if (next.count == last->count)
        return false;
    return is_asked(view, last) || (r->o.grows && os_monotonic_us() - since_us >= r->o.rest_us);
}

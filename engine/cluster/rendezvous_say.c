/* What a worker waits for, in words: for rendezvous_waits_for. */
#include "cluster/rendezvous_internal.h"

#include <stdio.h>

void rendezvous_say_who(struct rendezvous *r, const struct rendezvous_round *next)
{
    int length = snprintf(r->waits_for, RENDEZVOUS_WAITS_BYTES, "%u of %u to %u workers:", next->count,
                          r->o.least, r->o.most);
    for (uint32_t i = 0; i < next->count && length < RENDEZVOUS_WAITS_BYTES; i++)
        length += snprintf(r->waits_for + length, (size_t)(RENDEZVOUS_WAITS_BYTES - length), "%s %.*s",
                           i == 0 ? "" : ",", STR_ARGS(next->workers[i].address));
}

/* Of a worker that does not lead, while a round goes on without it: when it will take part. The leader may have another --grow. */
static void say_place(struct rendezvous *r, const struct cluster_view *view,
                      const struct rendezvous_round *last)
{
    bool is_full = last->count >= rendezvous_most(r, view);
    if (r->o.is_standby) {
        (void)snprintf(
            r->waits_for, RENDEZVOUS_WAITS_BYTES,
            "a place: %u workers run the job; this one is a standby, and takes part when one of them dies "
            "or leaves",
            last->count);
        return;
    }
    (void)snprintf(r->waits_for, RENDEZVOUS_WAITS_BYTES,
                   "a place: %u workers run the job%s; this one takes part %s", last->count,
                   last->count >= r->o.most ? ", as many as --nodes allows"
                   : is_full                ? ", as many as `leat cluster shrink` has asked for"
                                            : "",
                   is_full      ? "when one of them leaves or dies"
                   : r->o.grows ? "at the next planned change of workers, a checkpoint"
                                : "when `leat cluster grow` asks, or one of them leaves or dies");
}

void rendezvous_say_what_for(struct rendezvous *r, const struct cluster_view *view,
                             const struct rendezvous_round *last, bool has_ended)
{
    const struct cluster_member *self = cluster_view_member(view, coordination_lease(r->o.coordination)),
                                *leader = cluster_view_member(view, view->leader);
    const struct cluster_member *same =
        self == NULL ? NULL : admission_earlier(view, self, view->leader, rendezvous_has_gone, r);
    bool goes_on = last->count > 0 && !has_ended && last->incarnation == view->incarnation;
    for (uint32_t i = 0; i < last->count; i++) {
        const struct cluster_member *member = cluster_view_member(view, last->workers[i].lease);
        goes_on &= member != NULL && member->over < last->incarnation;
    }
    if (same != NULL)
        (void)snprintf(r->waits_for, RENDEZVOUS_WAITS_BYTES,
                       "the worker on %.*s has the address %.*s, too; this one waits until that has gone",
                       STR_ARGS(same->host), STR_ARGS(same->address));
    else if (goes_on)
        say_place(r, view, last);
    else if (leader == NULL && r->o.is_standby)
        (void)snprintf(r->waits_for, RENDEZVOUS_WAITS_BYTES, "workers that begin: a standby does not");
    else if (leader != NULL)
        (void)snprintf(r->waits_for, RENDEZVOUS_WAITS_BYTES,
                       "the leader, at %.*s on %.*s, which gathers the workers: %u are there",
                       STR_ARGS(leader->address), STR_ARGS(leader->host), view->members_count);
}

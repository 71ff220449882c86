#include "cluster/rates.h"
#include "cluster/rendezvous_internal.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/os.h"

#include <inttypes.h>
#include <stdlib.h>

enum { APART_US = 20000000 };

struct rendezvous *rendezvous_new(const struct rendezvous_options *o, struct diag_list *diags)
{
    if (o->least < 1 || o->most < o->least || o->most > RENDEZVOUS_WORKERS_MAX || o->wait_us < 0 ||
        o->return_us < 0) {
        struct diag *d = diag_error(diags, DIAG_OUT_OF_RANGE, (struct span){0},
                                    "numbers of workers: expected 1 <= LEAST <= MOST <= %d, found %u:%u",
                                    RENDEZVOUS_WORKERS_MAX, o->least, o->most);
        diag_hint(diags, d, "for example 2:8: at least two, at most eight");
        return NULL;
    }
    struct rendezvous *r = mem_calloc(1, sizeof(*r));
    r->o = *o;
    r->first_stop = -1;
    return r;
}

void rendezvous_free(struct rendezvous *r)
{
    if (r == NULL)
        return;
    arena_free(&r->arena);
    arena_free(&r->head_arena);
    arena_free(&r->request_arena);
    free(r->places);
    arena_free(&r->other_arena);
    free(r->pending);
    free(r);
}

uint64_t rendezvous_newest(const struct rendezvous *r)
{
    return r->round.incarnation;
}

const struct rendezvous_round *rendezvous_other(const struct rendezvous *r)
{
    return r->has_other ? &r->other : NULL;
}

bool rendezvous_must_stop(const struct rendezvous *r)
{
    return r->first_stop >= 0 && r->stop > r->first_stop;
}

bool rendezvous_must_leave(const struct rendezvous *r)
{
    return r->must_leave;
}

bool rendezvous_changes(const struct rendezvous *r)
{
    return r->changes;
}

bool rendezvous_may_leave(const struct rendezvous *r)
{
    return r->may_leave;
}

bool rendezvous_have_ended(const struct rendezvous *r)
{
    return r->have_ended;
}

uint64_t rendezvous_missed(const struct rendezvous *r)
{
    bool is_forgiven = r->has_told_unreached && os_monotonic_us() >= r->unreached_until_us;
    return r->missed > r->over || is_forgiven ? r->missed : 0;
}

const struct cluster_head *rendezvous_head(const struct rendezvous *r)
{
    return &r->head;
}

void rendezvous_place(struct rendezvous *r, struct str places)
{
    leat_assert(places.length <= RENDEZVOUS_PLACES_BYTES_MAX);
    free(r->places);
    r->places = mem_str(places);
}

const struct cluster_text *rendezvous_request(const struct rendezvous *r)
{
    return &r->request;
}

const char *rendezvous_waits_for(const struct rendezvous *r)
{
    return r->waits_for;
}

/* --- Who has gone --- */

bool rendezvous_is_doubted(const struct rendezvous *r, const struct cluster_member *member, uint64_t since)
{
    for (uint32_t i = 0; i < RENDEZVOUS_WORKERS_MAX; i++)
        if (r->doubts[i].lease == member->lease)
            return member->over < r->doubts[i].incarnation && since <= r->doubts[i].incarnation;
    return false;
}

bool rendezvous_has_gone(const void *rendezvous, const struct cluster_member *member)
{
    return rendezvous_is_doubted(rendezvous, member, 0);
}

/* Where a doubt of that worker goes: the place of its last one, else one that is free, else the oldest doubt's. */
static struct doubt *find_place(struct rendezvous *r, int64_t lease)
{
    struct doubt *place = &r->doubts[0];
    for (uint32_t i = 0; i < RENDEZVOUS_WORKERS_MAX; i++) {
        if (r->doubts[i].lease == lease)
            return &r->doubts[i];
        place = r->doubts[i].incarnation < place->incarnation ? &r->doubts[i] : place;
    }
    return place;
}

void rendezvous_doubt(struct rendezvous *r, uint32_t worker, bool is_unreached)
{
    leat_assert(worker < r->round.count && worker != r->round.self);
    int64_t lease = r->round.workers[worker].lease;
    *find_place(r, lease) = (struct doubt){lease, r->round.incarnation};
    r->unreached |= (uint64_t)is_unreached << worker;
    r->unreached_until_us = os_monotonic_us() + (r->o.apart_us > 0 ? r->o.apart_us : APART_US);
}

void rendezvous_describe(const struct rendezvous *r, struct cluster_member *member, struct str *unreached)
{
    const struct rendezvous_round *round = &r->round;
    member->over = r->over;
    member->ended = r->ended;
    member->leaves = r->leaves;
    member->is_standby = r->o.is_standby;
    member->prepared = r->prepared;
    member->fits = r->fits;
    member->unreached = unreached;
    member->unreached_count = 0;
    bool counts = os_monotonic_us() < r->unreached_until_us;
    for (uint32_t i = 0; counts && i < round->count; i++)
        if ((r->unreached >> i & 1) != 0)
            unreached[member->unreached_count++] = round->workers[i].address;
}

/* Forgets doubts of leases that have expired. */
static void forget_doubts(struct rendezvous *r, const struct cluster_view *view)
{
    for (uint32_t i = 0; i < RENDEZVOUS_WORKERS_MAX; i++)
        if (r->doubts[i].lease != 0 && cluster_view_member(view, r->doubts[i].lease) == NULL)
            r->doubts[i] = (struct doubt){0};
}

/* Whether all workers of the round are there, and none has left it. */
static bool is_whole(const struct rendezvous *r, const struct rendezvous_round *round,
                     const struct cluster_view *view)
{
    for (uint32_t i = 0; i < round->count; i++) {
        const struct cluster_member *member = cluster_view_member(view, round->workers[i].lease);
        if (member == NULL || member->over >= round->incarnation ||
            rendezvous_is_doubted(r, member, round->incarnation))
            return false;
    }
    return round->incarnation == view->incarnation && round->count > 0;
}

/* Whether the parts of all workers of the round have come to their end, and it does not say so yet. */
static bool are_ending(const struct rendezvous_round *round, const struct cluster_view *view)
{
    for (uint32_t i = 0; i < round->count; i++) {
        const struct cluster_member *member = cluster_view_member(view, round->workers[i].lease);
        if (member == NULL || member->ended != round->incarnation || member->over >= round->incarnation)
            return false;
    }
    return round->count > 0 && round->incarnation == view->incarnation;
}

/* Whether the round has come to its planned end, for other workers: all of its workers that are still there have taken the last
 * checkpoint as the head. */
static bool has_changed(const struct rendezvous *r, const struct rendezvous_round *round,
                        const struct cluster_view *view)
{
    uint32_t there = 0;
    for (uint32_t i = 0; i < round->count; i++) {
        const struct cluster_member *member = cluster_view_member(view, round->workers[i].lease);
        if (member != NULL && member->ended != round->incarnation)
            return false;
        there += member != NULL;
    }
    return round->changes && there > 0 && round->incarnation == view->incarnation && !r->is_finished &&
           !rendezvous_must_stop(r);
}

/* --- The leader's part --- */

bool rendezvous_has_worker(const struct rendezvous_round *round, int64_t lease)
{
    return rendezvous_number(round, lease) < round->count;
}

/* This worker, which leads, does not reach most others: it begins anew, as one that has just come, and another one leads. */
static enum etcd_outcome give_up_leading(struct rendezvous *r, struct diag_list *diags)
{
    enum etcd_outcome outcome = coordination_leave(r->o.coordination, diags);
    if (outcome != ETCD_DONE)
        return outcome;
    struct diag *d =
        diag_error(diags, DIAG_TAKEN_OVER, (struct span){0},
                   "this worker leads, and most other workers do not reach it: another one is to lead");
    diag_hint(diags, d, "is --advertise an address that the others reach, the port open in firewalls?");
    return ETCD_REFUSED;
}

/* Whether there are enough workers, for long enough. left_out: of those of the last round. */
static bool is_time(struct rendezvous *r, const struct cluster_view *view,
                    const struct rendezvous_round *last, const struct rendezvous_round *next,
                    uint32_t left_out)
{
    int64_t wait_us = last->count == 0 ? r->o.wait_us : r->o.return_us;
    int64_t since_us = rendezvous_since(r, next->count);
    if (next->count < r->o.least)
        return false;
    return next->count == rendezvous_most(r, view) ||
           (last->count > 0 && next->count + left_out >= last->count) || has_changed(r, last, view) ||
           os_monotonic_us() - since_us >= wait_us;
}

/* Begins the next round, if it is time; ETCD_DONE with a placement that is to be written. */
static enum etcd_outcome begin_round(struct rendezvous *r, const struct cluster_view *view,
                                     const struct rendezvous_round *last, struct diag_list *diags)
{
    struct rendezvous_round next = {0}, before;
    int64_t self = coordination_lease(r->o.coordination);
    bool is_planned = has_changed(r, last, view);
    if (!is_planned && r->round.incarnation == last->incarnation && r->over < last->incarnation)
        return ETCD_DONE; /* its own work in that round has not ended, nor has it said whom it did not reach */
    bool is_anybody_back = last->count > 0 && /* this worker was there, if only as one that waits */
                           r->lived == last->incarnation;
    const struct rendezvous_round none = {0};
    for (uint32_t i = 0; i < last->count; i++)
        is_anybody_back |= cluster_view_member(view, last->workers[i].lease) != NULL;
    rendezvous_choose(r, view, last, is_planned, is_anybody_back ? last->count : 0, &next);
    bool is_filled = !is_anybody_back && rendezvous_fill(r, view, last, &next);
    bool is_chosen = rendezvous_has_worker(&next, self);
    uint64_t left_out = rendezvous_leave_out(r, view, last, &next, &before);
    if (is_chosen && !rendezvous_has_worker(&next, self))
        return give_up_leading(r, diags);
    rendezvous_say_who(r, &next);
    if (!rendezvous_has_worker(&next, self) ||
        !(is_filled || is_time(r, view, is_anybody_back ? last : &none, &next, before.count - next.count)))
        return ETCD_DONE;
    rendezvous_note_apart(r, &before, &next);
    for (uint32_t i = 0; i < before.count; i++)
        if ((left_out >> i & 1) != 0)
            log_say(LOG_LEVEL_WARNING,
                    "the worker at %.*s is left out of the next round: it and others do not reach each other",
                    STR_ARGS(before.workers[i].address));
    enum etcd_outcome outcome = coordination_begin(r->o.coordination, &next.incarnation, next.secret, diags);
    if (outcome != ETCD_DONE)
        return outcome;
    next.leader = rendezvous_number(&next, self);
    next.lanes = cluster_view_member(view, self)->lanes;
    next.head.revision = view->head.revision;
    char *inputs =
        r->o.describe == NULL || r->o.most == 1 ? NULL : r->o.describe(r->o.user, next.incarnation);
    char *places = r->o.place == NULL ? NULL : r->o.place(r->o.user, last, &next);
    next.inputs = inputs == NULL ? (struct str){0} : str_from(inputs);
    next.places = places == NULL ? (struct str){0} : str_from(places);
    next.least = r->o.least;
    next.most = r->o.most;
    next.wanted = view->wanted.revision;
    r->pending = rendezvous_round_write(&next, ENDED_NOT);
    free(inputs);
    free(places);
    free(r->places); /* those that came too late for the round that is over */
    r->places = NULL;
    r->since_us = 0;
    return ETCD_DONE;
}

/* Names pairs of workers that are slow, once. */
static void name_slow(struct rendezvous *r, const struct cluster_view *view,
                      const struct rendezvous_round *round)
{
    char slow[RENDEZVOUS_SLOW_BYTES];
    rates_describe_slow(view, round, slow, sizeof(slow));
    if (slow[0] != '\0' && strcmp(slow, r->slow) != 0)
        log_say(LOG_LEVEL_WARNING,
                "workers that send slowly, by what they measured when they met, far below the median of all, "
                "%.1f MB/s: %s; look at the network between them, and at what else these machines do",
                (double)rates_median(view) / 1e6, slow);
    memcpy(r->slow, slow, sizeof(r->slow));
}

/* --- Turns --- */

/* Notes the round that goes on without this worker. */
static void note_other(struct rendezvous *r, const struct rendezvous_round *round)
{
    r->has_other = true;
    if (r->other.incarnation == round->incarnation)
        return;
    arena_reset(&r->other_arena);
    rendezvous_copy(round, &r->other_arena, &r->other);
}

/* Takes the round over into what is this worker's own. */
static void take_round(struct rendezvous *r, const struct rendezvous_round *round,
                       const struct cluster_view *view)
{
    struct rendezvous_round own = *round;
    own.self = rendezvous_number(round, coordination_lease(r->o.coordination));
    own.head = view->head;
    own.run = view->job.run;
    own.next_places = (struct str){0};
    memcpy(own.secret, view->secret, sizeof(own.secret));
    arena_reset(&r->arena);
    rendezvous_copy(&own, &r->arena, &r->round);
    r->unreached = 0;
    r->has_round = true;
}

/* Notes the newest head. */
static void note_head(struct rendezvous *r, const struct cluster_head *head)
{
    if (head->revision == r->head.revision)
        return;
    arena_reset(&r->head_arena);
    r->head = *head;
    r->head.manifest = arena_str(&r->head_arena, head->manifest);
    r->head.digest = arena_str(&r->head_arena, head->digest);
}

/* Whether the leader has the flags of this worker. False after a diagnostic. */
static bool flags_are_alike(const struct rendezvous *r, const struct cluster_view *view,
                            struct diag_list *diags)
{
    const struct cluster_member *leader = cluster_view_member(view, view->leader);
    if (leader == NULL || str_equal(leader->flags, r->o.flags))
        return true;
    struct str none = STR("none"), found = r->o.flags.length > 0 ? r->o.flags : none,
               expected = leader->flags.length > 0 ? leader->flags : none;
    struct diag *d = diag_error(
        diags, DIAG_CLUSTER_DIFFERS, (struct span){0},
        "flags that all workers must be given alike: expected `%.*s`, which the worker at `%.*s` leads with, found `%.*s`",
        STR_ARGS(expected), STR_ARGS(leader->address), STR_ARGS(found));
    diag_hint(
        diags, d,
        "start this worker with the same flags; or `leat cluster stop`, then start all workers with other ones");
    return false;
}

/* What the record says: *is_over: the leader begins the next round. */
static void look(struct rendezvous *r, const struct cluster_view *view, const struct rendezvous_round *last,
                 enum ended ended, bool *is_over)
{
    bool lives = is_whole(r, last, view) && ended == ENDED_NOT,
         goes_on = lives && last->incarnation > r->over;
    r->lived = goes_on ? last->incarnation : r->lived;
    /* Where it was stopped, those that have waited for a place go on. */
    bool is_of_last = rendezvous_has_worker(last, coordination_lease(r->o.coordination));
    r->have_ended = ended == ENDED_FINISHED ||
                    (ended != ENDED_NOT && r->seen > 0 && r->seen == last->incarnation && is_of_last);
    r->seen = ended != ENDED_NOT ? r->seen : last->incarnation;
    bool is_own = goes_on && rendezvous_has_worker(last, coordination_lease(r->o.coordination));
    *is_over = !goes_on;
    r->has_other = false;
    if (lives && !is_of_last)
        note_other(r, last);
    if (r->has_round && is_own && r->round.incarnation == last->incarnation)
        return;
    r->has_round = false;
    if (is_own && last->head.revision == view->head.revision)
        take_round(r, last, view);
    else if (is_own) /* a head came behind the one with which the round begins */
        *is_over = true;
    r->missed = r->has_round ? 0 : last->incarnation;
}

/* What is asked of this worker, and how far a planned end of the round has come. */
static void look_at_change(struct rendezvous *r, const struct cluster_view *view,
                           const struct rendezvous_round *last)
{
    r->stop = view->stop;
    arena_reset(&r->request_arena);
    r->request =
        (struct cluster_text){arena_str(&r->request_arena, view->request.text), view->request.revision};
    r->first_stop = r->first_stop < 0 ? view->stop : r->first_stop;
    r->must_leave = view->wanted.drains != 0 && view->wanted.drains == coordination_lease(r->o.coordination);
    r->changes = r->has_round && last->changes;
    r->may_leave = r->changes && r->leaves && has_changed(r, last, view);
}

/* Of the leader: decides what to write next, if anything. */
static enum etcd_outcome decide(struct rendezvous *r, const struct cluster_view *view,
                                struct rendezvous_round *last, enum ended ended, bool is_over,
                                struct diag_list *diags)
{
    bool goes_on = !is_over && ended == ENDED_NOT;
    if (r->pending != NULL)
        return ETCD_DONE;
    if (goes_on && has_changed(r, last, view))
        return begin_round(r, view, last, diags);
    if (ended == ENDED_NOT && are_ending(last, view))
        r->pending = rendezvous_round_write(last, r->is_finished ? ENDED_FINISHED : ENDED_STOPPED);
    else if (is_over && !r->have_ended && !rendezvous_must_stop(r))
        return begin_round(r, view, last, diags);
    else if (goes_on && !last->changes && r->has_round &&
             (r->places != NULL || rendezvous_change_is_due(r, view, last))) {
        last->changes = true;
        last->next_places = r->places == NULL ? (struct str){0} : str_from(r->places);
        r->pending = rendezvous_round_write(last, ENDED_NOT);
    }
    return ETCD_DONE;
}

static enum etcd_outcome turn(struct rendezvous *r, struct arena *arena, bool *has_written,
                              struct diag_list *diags)
{
    int64_t leader;
    struct cluster_view view;
    struct rendezvous_round *last = arena_alloc(arena, sizeof(*last));
    bool is_over;
    enum ended ended = ENDED_NOT;
    bool may_lead = !r->o.is_standby || r->lived > 0;
    enum etcd_outcome outcome =
        may_lead ? coordination_campaign(r->o.coordination, &leader, diags) : ETCD_REFUSED;
    if (outcome == ETCD_UNKNOWN || (may_lead && outcome == ETCD_REFUSED && leader == 0))
        return outcome;
    bool leads = outcome == ETCD_DONE;
    int64_t began_us = coordination_clock_us();
    outcome = coordination_read(r->o.coordination, arena, &view, diags);
    if (outcome != ETCD_DONE)
        return outcome;
    if (!flags_are_alike(r, &view, diags))
        return ETCD_REFUSED;
    if (view.refusal.length > 0)
        return admission_refused(&view, diags);
    outcome = admission_look(&r->admission, r->o.coordination, &view, began_us, leads, rendezvous_has_gone, r,
                             diags);
    if (outcome != ETCD_DONE)
        return outcome;
    if (!rendezvous_round_read(view.placement, arena, last, &ended))
        *last = (struct rendezvous_round){0};
    forget_doubts(r, &view);
    note_head(r, &view.head);
    look(r, &view, last, ended, &is_over);
    look_at_change(r, &view, last);
    if (!r->has_round && !leads)
        rendezvous_say_what_for(r, &view, last, ended != ENDED_NOT);
    if (!leads) {
        free(r->pending);
        r->pending = NULL;
        return ETCD_DONE;
    }
    if (r->has_round)
        name_slow(r, &view, last);
    outcome = decide(r, &view, last, ended, is_over, diags);
    if (outcome != ETCD_DONE || r->pending == NULL)
        return outcome;
    outcome = coordination_place(r->o.coordination, str_from(r->pending), diags);
    if (outcome != ETCD_UNKNOWN) {
        free(r->pending);
        r->pending = NULL;
    }
    *has_written = outcome == ETCD_DONE;
    return outcome;
}

enum etcd_outcome rendezvous_turn(struct rendezvous *r, const struct rendezvous_round **round,
                                  struct diag_list *diags)
{
    bool has_written = true;
    enum etcd_outcome outcome = ETCD_DONE;
    for (int i = 0; i < 2 && has_written; i++) { /* the leader reads what it has written, as all others do */
        struct arena arena = {.block_bytes = 16384};
        has_written = false;
        outcome = turn(r, &arena, &has_written, diags);
        arena_free(&arena);
    }
    if (outcome == ETCD_REFUSED)
        r->has_round = false;
    *round = r->has_round ? &r->round : NULL;
    return outcome;
}

enum etcd_outcome rendezvous_tell(struct rendezvous *r, const struct cluster_member *member,
                                  struct diag_list *diags)
{
    struct cluster_member told = *member;
    struct str unreached[RENDEZVOUS_WORKERS_MAX];
    rendezvous_describe(r, &told, unreached);
    r->has_told_unreached = told.unreached_count > 0;
    return coordination_tell(r->o.coordination, &told, diags);
}

enum etcd_outcome rendezvous_tell_over(struct rendezvous *r, const struct cluster_member *member,
                                       uint64_t incarnation, struct diag_list *diags)
{
    r->over = MAX(r->over, incarnation);
    return rendezvous_tell(r, member, diags);
}

enum etcd_outcome rendezvous_tell_ended(struct rendezvous *r, const struct cluster_member *member,
                                        uint64_t incarnation, bool is_finished, struct diag_list *diags)
{
    r->is_finished = is_finished;
    r->ended = incarnation;
    return rendezvous_tell(r, member, diags);
}

enum etcd_outcome rendezvous_tell_fits(struct rendezvous *r, const struct cluster_member *member,
                                       uint64_t incarnation, struct diag_list *diags)
{
    r->fits = incarnation;
    return rendezvous_tell(r, member, diags);
}

enum etcd_outcome rendezvous_tell_leaves(struct rendezvous *r, const struct cluster_member *member,
                                         struct diag_list *diags)
{
    r->leaves = true;
    return rendezvous_tell(r, member, diags);
}

enum etcd_outcome rendezvous_tell_prepared(struct rendezvous *r, const struct cluster_member *member,
                                           const struct cluster_prepared *prepared, struct diag_list *diags)
{
    r->prepared = *prepared;
    return rendezvous_tell(r, member, diags);
}

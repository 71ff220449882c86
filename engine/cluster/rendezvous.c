#include "cluster/rendezvous.h"

#include "core/mem.h"
#include "core/os.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

enum { VERSION = 1, WAITS_BYTES = 400 };

/* A worker that did not answer, until it says that it has left that incarnation, or its lease has expired. One for each lease. */
struct doubt {
    int64_t lease; /* 0: none */
    uint64_t incarnation;
};

struct rendezvous {
    struct rendezvous_options o;
    struct arena arena; /* of the round */
    struct rendezvous_round round;
    bool has_round;
    uint64_t over; /* rounds up to this incarnation are over for this worker, who has said so */
    uint64_t
        missed; /* incarnation of the newest round, in which this worker takes no part; 0: there is none */
    uint64_t
        seen; /* incarnation of the newest round that had not ended when this worker saw it; 0: there is none */
    bool have_ended;  /* all workers of that round, or the job is finished */
    bool is_finished; /* as this worker has said */
    int64_t stop;     /* mod revision of the newest request */
    struct doubt doubts[RENDEZVOUS_WORKERS_MAX];
    char *pending; /* a placement that this worker, the leader, has written or will; NULL: none */
    uint32_t candidates;
    int64_t since_us; /* since when there are so many; monotonic */
    char waits_for[WAITS_BYTES];
};

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
    return r;
}

void rendezvous_free(struct rendezvous *r)
{
    if (r == NULL)
        return;
    arena_free(&r->arena);
    free(r->pending);
    free(r);
}

int64_t rendezvous_stop(const struct rendezvous *r)
{
    return r->stop;
}

bool rendezvous_have_ended(const struct rendezvous *r)
{
    return r->have_ended;
}

uint64_t rendezvous_missed(const struct rendezvous *r)
{
    return r->missed > r->over ? r->missed : 0;
}

const char *rendezvous_waits_for(const struct rendezvous *r)
{
    return r->waits_for;
}

static const struct cluster_member *find_member(const struct cluster_view *view, int64_t lease)
{
    for (uint32_t i = 0; i < view->members_count; i++)
        if (view->members[i].lease == lease)
            return &view->members[i];
    return NULL;
}

/* --- A round as text --- */

/* What has become of the job in a round. */
enum ended { ENDED_NOT, ENDED_STOPPED, ENDED_FINISHED };

/* The caller frees it. */
static char *round_write(const struct rendezvous_round *round, enum ended ended)
{
    json_t *workers = json_array();
    for (uint32_t i = 0; i < round->count; i++) {
        const struct rendezvous_worker *worker = &round->workers[i];
        json_array_append_new(workers, json_pack("{s:I, s:s%, s:s%}", "lease", (json_int_t)worker->lease,
                                                 "address", worker->address.data, worker->address.length,
                                                 "host", worker->host.data, worker->host.length));
    }
    json_t *json =
        json_pack("{s:i, s:I, s:i, s:i, s:I, s:i, s:o}", "version", VERSION, "incarnation",
                  (json_int_t)round->incarnation, "leader", (int)round->leader, "lanes", (int)round->lanes,
                  "head", (json_int_t)round->head.revision, "ended", (int)ended, "workers", workers);
    char *text = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS);
    leat_assert(text != NULL); /* texts of members were read as UTF-8 */
    json_decref(json);
    return text;
}

static bool read_number(const json_t *json, const char *name, int64_t most, int64_t *value)
{
    const json_t *member = json_object_get(json, name);
    *value = json_integer_value(member);
    return json_is_integer(member) && *value >= 0 && *value <= most;
}

static bool read_text(const json_t *json, const char *name, struct arena *arena, struct str *text)
{
    const json_t *member = json_object_get(json, name);
    if (!json_is_string(member) || json_string_length(member) > COORDINATION_TEXT_BYTES_MAX)
        return false;
    *text = arena_str(arena, (struct str){json_string_value(member), json_string_length(member)});
    return true;
}

static bool read_workers(const json_t *workers, struct arena *arena, struct rendezvous_round *round)
{
    round->count = (uint32_t)MIN(json_array_size(workers), (size_t)RENDEZVOUS_WORKERS_MAX + 1);
    if (round->count == 0 || round->count > RENDEZVOUS_WORKERS_MAX)
        return false;
    for (uint32_t i = 0; i < round->count; i++) {
        const json_t *json = json_array_get(workers, i);
        struct rendezvous_worker *worker = &round->workers[i];
        worker->lease = json_integer_value(json_object_get(json, "lease"));
        if (worker->lease == 0 || !read_text(json, "address", arena, &worker->address) ||
            !read_text(json, "host", arena, &worker->host))
            return false;
        for (uint32_t k = 0; k < i; k++)
            if (round->workers[k].lease == worker->lease)
                return false;
    }
    return true;
}

/* Reads all but the secret, the head and the run. False: it is no round. */
static bool round_read(struct str text, struct arena *arena, struct rendezvous_round *round,
                       enum ended *ended)
{
    int64_t version, incarnation, leader, lanes, head, end = ENDED_NOT;
    json_t *json = json_loadb(text.data, text.length, JSON_REJECT_DUPLICATES, NULL);
    *round = (struct rendezvous_round){0};
    bool ok = json_is_object(json) && read_number(json, "version", VERSION, &version) && version == VERSION &&
              read_number(json, "incarnation", INT64_MAX, &incarnation) &&
              read_number(json, "lanes", UINT16_MAX, &lanes) && lanes > 0 &&
              read_number(json, "head", INT64_MAX, &head) &&
              read_number(json, "ended", ENDED_FINISHED, &end) &&
              read_workers(json_object_get(json, "workers"), arena, round) &&
              read_number(json, "leader", round->count - 1, &leader);
    *ended = (enum ended)end;
    json_decref(json);
    if (!ok)
        return false;
    round->incarnation = (uint64_t)incarnation;
    round->leader = (uint32_t)leader;
    round->lanes = (uint32_t)lanes;
    round->head.revision = head;
    return true;
}

bool rendezvous_read(struct str placement, struct arena *arena, struct rendezvous_round *round,
                     bool *has_ended)
{
    enum ended ended = ENDED_NOT;
    bool is_round = round_read(placement, arena, round, &ended);
    *has_ended = ended != ENDED_NOT;
    return is_round;
}

/* --- Who has gone --- */

/* Whether the worker is doubted since that incarnation, or a later one. */
static bool is_doubted(const struct rendezvous *r, const struct cluster_member *member, uint64_t since)
{
    for (uint32_t i = 0; i < RENDEZVOUS_WORKERS_MAX; i++)
        if (r->doubts[i].lease == member->lease)
            return member->over < r->doubts[i].incarnation && since <= r->doubts[i].incarnation;
    return false;
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

void rendezvous_doubt(struct rendezvous *r, uint32_t worker)
{
    leat_assert(worker < r->round.count && worker != r->round.self);
    int64_t lease = r->round.workers[worker].lease;
    *find_place(r, lease) = (struct doubt){lease, r->round.incarnation};
}

/* Forgets doubts of leases that have expired. */
static void forget_doubts(struct rendezvous *r, const struct cluster_view *view)
{
    for (uint32_t i = 0; i < RENDEZVOUS_WORKERS_MAX; i++)
        if (r->doubts[i].lease != 0 && find_member(view, r->doubts[i].lease) == NULL)
            r->doubts[i] = (struct doubt){0};
}

/* Whether all workers of the round are there, and none has left it. */
static bool is_whole(const struct rendezvous *r, const struct rendezvous_round *round,
                     const struct cluster_view *view)
{
    for (uint32_t i = 0; i < round->count; i++) {
        const struct cluster_member *member = find_member(view, round->workers[i].lease);
        if (member == NULL || member->over >= round->incarnation || is_doubted(r, member, round->incarnation))
            return false;
    }
    return round->incarnation == view->incarnation && round->incarnation > r->over;
}

/* Whether the parts of all workers of the round have come to their end, and it does not say so yet. */
static bool are_ending(const struct rendezvous_round *round, const struct cluster_view *view)
{
    for (uint32_t i = 0; i < round->count; i++) {
        const struct cluster_member *member = find_member(view, round->workers[i].lease);
        if (member == NULL || member->ended != round->incarnation || member->over >= round->incarnation)
            return false;
    }
    return round->count > 0 && round->incarnation == view->incarnation;
}

/* --- The leader's part --- */

static void add_worker(struct rendezvous_round *next, const struct cluster_member *member)
{
    next->workers[next->count++] =
        (struct rendezvous_worker){.lease = member->lease, .address = member->address, .host = member->host};
}

static bool has_worker(const struct rendezvous_round *round, int64_t lease)
{
    for (uint32_t i = 0; i < round->count; i++)
        if (round->workers[i].lease == lease)
            return true;
    return false;
}

/* Fills in who can take part: the leader, those of the last round in their order, others by lease; at most as many as are wanted. */
static void choose(const struct rendezvous *r, const struct cluster_view *view,
                   const struct rendezvous_round *last, struct rendezvous_round *next)
{
    int64_t self = coordination_lease(r->o.coordination);
    uint32_t left = r->o.most - 1; /* without the leader */
    for (uint32_t i = 0; i < last->count + view->members_count; i++) {
        bool is_of_last = i < last->count;
        const struct cluster_member *member =
            is_of_last ? find_member(view, last->workers[i].lease) : &view->members[i - last->count];
        if (member == NULL || (!is_of_last && has_worker(last, member->lease)) || is_doubted(r, member, 0))
            continue;
        bool is_self = member->lease == self;
        if (is_self || left > 0)
            add_worker(next, member);
        left -= !is_self && left > 0;
    }
}

static void say_who(struct rendezvous *r, const struct rendezvous_round *next)
{
    int length =
        snprintf(r->waits_for, WAITS_BYTES, "%u of %u to %u workers:", next->count, r->o.least, r->o.most);
    for (uint32_t i = 0; i < next->count && length < WAITS_BYTES; i++)
        length += snprintf(r->waits_for + length, (size_t)(WAITS_BYTES - length), "%s %.*s",
                           i == 0 ? "" : ",", STR_ARGS(next->workers[i].address));
}

/* Whether there are enough workers, for long enough. */
static bool is_time(struct rendezvous *r, const struct rendezvous_round *last,
                    const struct rendezvous_round *next)
{
    int64_t now = os_monotonic_us(), wait_us = last->count == 0 ? r->o.wait_us : r->o.return_us;
    if (next->count != r->candidates || r->since_us == 0) {
        r->candidates = next->count;
        r->since_us = now;
    }
    if (next->count < r->o.least)
        return false;
    return next->count == r->o.most || (last->count > 0 && next->count >= last->count) ||
           now - r->since_us >= wait_us;
}

/* Begins the next round, if it is time; ETCD_DONE with a placement that is to be written. */
static enum etcd_outcome begin_round(struct rendezvous *r, const struct cluster_view *view,
                                     const struct rendezvous_round *last, struct diag_list *diags)
{
    struct rendezvous_round next = {0};
    int64_t self = coordination_lease(r->o.coordination);
    choose(r, view, last, &next);
    say_who(r, &next);
    bool is_anybody_back = false;
    const struct rendezvous_round none = {0};
    for (uint32_t i = 0; i < last->count; i++)
        is_anybody_back |= find_member(view, last->workers[i].lease) != NULL;
    if (!has_worker(&next, self) || !is_time(r, is_anybody_back ? last : &none, &next))
        return ETCD_DONE;
    enum etcd_outcome outcome = coordination_begin(r->o.coordination, &next.incarnation, next.secret, diags);
    if (outcome != ETCD_DONE)
        return outcome;
    while (next.workers[next.leader].lease != self)
        next.leader++;
    next.lanes = find_member(view, self)->lanes;
    next.head.revision = view->head.revision;
    r->pending = round_write(&next, ENDED_NOT);
    r->since_us = 0;
    return ETCD_DONE;
}

/* --- Turns --- */

/* Takes the round over into what is this worker's own. */
static void take_round(struct rendezvous *r, const struct rendezvous_round *round,
                       const struct cluster_view *view)
{
    int64_t self = coordination_lease(r->o.coordination);
    arena_reset(&r->arena);
    r->round = *round;
    for (uint32_t i = 0; i < round->count; i++) {
        r->round.workers[i].address = arena_str(&r->arena, round->workers[i].address);
        r->round.workers[i].host = arena_str(&r->arena, round->workers[i].host);
        r->round.self = round->workers[i].lease == self ? i : r->round.self;
    }
    r->round.head = view->head;
    r->round.head.manifest = arena_str(&r->arena, view->head.manifest);
    r->round.head.digest = arena_str(&r->arena, view->head.digest);
    r->round.run = arena_str(&r->arena, view->job.run);
    memcpy(r->round.secret, view->secret, sizeof(r->round.secret));
    r->has_round = true;
}

/* What the record says: *is_over: the leader begins the next round. */
static void look(struct rendezvous *r, const struct cluster_view *view, const struct rendezvous_round *last,
                 enum ended ended, bool *is_over)
{
    bool goes_on = is_whole(r, last, view) && ended == ENDED_NOT;
    /* Where it was stopped, those that have waited for a place go on. */
    bool is_of_last = has_worker(last, coordination_lease(r->o.coordination));
    r->have_ended = ended == ENDED_FINISHED ||
                    (ended != ENDED_NOT && r->seen > 0 && r->seen == last->incarnation && is_of_last);
    r->seen = ended != ENDED_NOT ? r->seen : last->incarnation;
    bool is_own = goes_on && has_worker(last, coordination_lease(r->o.coordination));
    *is_over = !goes_on;
    if (r->has_round && is_own && r->round.incarnation == last->incarnation)
        return;
    r->has_round = false;
    if (is_own && last->head.revision == view->head.revision)
        take_round(r, last, view);
    else if (is_own) /* a head came behind the one with which the round begins */
        *is_over = true;
    r->missed = r->has_round ? 0 : last->incarnation;
}

static enum etcd_outcome turn(struct rendezvous *r, struct arena *arena, bool *has_written,
                              struct diag_list *diags)
{
    int64_t leader;
    struct cluster_view view;
    struct rendezvous_round *last = arena_alloc(arena, sizeof(*last));
    bool is_over;
    enum ended ended = ENDED_NOT;
    enum etcd_outcome outcome = coordination_campaign(r->o.coordination, &leader, diags);
    if (outcome == ETCD_UNKNOWN || (outcome == ETCD_REFUSED && leader == 0))
        return outcome;
    bool leads = outcome == ETCD_DONE;
    outcome = coordination_read(r->o.coordination, arena, &view, diags);
    if (outcome != ETCD_DONE)
        return outcome;
    if (!round_read(view.placement, arena, last, &ended))
        *last = (struct rendezvous_round){0};
    r->stop = view.stop;
    forget_doubts(r, &view);
    look(r, &view, last, ended, &is_over);
    if (!r->has_round && !leads)
        (void)snprintf(r->waits_for, WAITS_BYTES, "the leader: %u workers are there", view.members_count);
    if (!leads) {
        free(r->pending);
        r->pending = NULL;
        return ETCD_DONE;
    }
    if (r->pending == NULL && ended == ENDED_NOT && are_ending(last, &view))
        r->pending = round_write(last, r->is_finished ? ENDED_FINISHED : ENDED_STOPPED);
    else if (r->pending == NULL && is_over && !r->have_ended)
        outcome = begin_round(r, &view, last, diags);
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

enum etcd_outcome rendezvous_tell_over(struct rendezvous *r, const struct cluster_member *member,
                                       uint64_t incarnation, struct diag_list *diags)
{
    struct cluster_member told = *member;
    told.over = r->over = MAX(r->over, incarnation);
    return coordination_tell(r->o.coordination, &told, diags);
}

enum etcd_outcome rendezvous_tell_ended(struct rendezvous *r, const struct cluster_member *member,
                                        uint64_t incarnation, bool is_finished, struct diag_list *diags)
{
    struct cluster_member told = *member;
    r->is_finished = is_finished;
    told.over = r->over;
    told.ended = incarnation;
    return coordination_tell(r->o.coordination, &told, diags);
}

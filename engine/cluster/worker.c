/* The worker's keeper, and what the control thread asks of it (worker.h). */
#include "cluster/link_address.h"
#include "cluster/worker_internal.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/os.h"
#include "core/quiet_thread.h"
#include "core/wait.h"

#include <inttypes.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum {
    LOOK_US = 20000,      /* between two looks at what the control thread asks */
    CERTAIN_US = 1500000, /* after a look that showed that the round goes on */
    TURN_US = 500000,     /* between two turns at most, though nothing has changed in etcd */
    AGAIN_US = 200000,    /* before a step is tried again whose outcome is not known */
    FRUITLESS_MAX =
        5, /* after so many rounds without a head the rest before the next one no longer doubles */
};

/* --- The keeper --- */

/* Says what went wrong in a step that is tried again. */
static void say(struct worker *worker)
{
    for (unsigned i = 0; i < worker->diags.count; i++) {
        const struct diag *d = &worker->diags.items[i];
        log_say(LOG_LEVEL_WARNING, "%s%s%s%s%s", d->message, d->cause != NULL ? ": " : "",
                d->cause != NULL ? d->cause : "", d->hint != NULL && !worker->has_hinted ? "; " : "",
                d->hint != NULL && !worker->has_hinted ? d->hint : "");
        worker->has_hinted = true;
    }
}

static void begin_step(struct worker *worker)
{
    arena_reset(&worker->arena);
    diag_list_init(&worker->diags, &worker->arena);
}

static void set_state(struct worker *worker, enum worker_state state)
{
    pthread_mutex_lock(&worker->mutex);
    worker->state = state;
    if (worker->publishing == PUBLISHING_ASKED && state != WORKER_RUNS)
        worker->publishing = PUBLISHED_NOT;
    pthread_cond_broadcast(&worker->changed);
    pthread_mutex_unlock(&worker->mutex);
}

/* Rests before a step is tried again, unless the worker is to end. */
static void rest(struct worker *worker)
{
    struct timespec until = wait_until(AGAIN_US);
    pthread_mutex_lock(&worker->mutex);
    while (!worker->must_stop && wait_on(&worker->changed, &worker->mutex, &until))
        ;
    pthread_mutex_unlock(&worker->mutex);
}

/* Rounds that end before they had a head, one after the other: something is wrong that the next one will meet again. Each such round
 * makes the rest before the next one twice as long, up to 6.4 s. */
static void rest_after_round(struct worker *worker)
{
    for (uint32_t i = 0; worker->fruitless > 1 && i < 1U << MIN(worker->fruitless - 1, FRUITLESS_MAX); i++)
        rest(worker);
}

/* Waits until the control thread has ended the round's work. */
static void await_end_of_work(struct worker *worker)
{
    pthread_mutex_lock(&worker->mutex);
    while (!worker->must_stop && !worker->say_over)
        pthread_cond_wait(&worker->changed, &worker->mutex);
    pthread_mutex_unlock(&worker->mutex);
}

/* Workers whose links have broken. */
static void doubt(struct worker *worker)
{
    uint64_t gone = atomic_exchange(&worker->links.gone, 0);
    bool is_newest = worker->incarnation > 0 && rendezvous_newest(worker->rendezvous) == worker->incarnation;
    for (uint32_t i = 0; is_newest && i < worker->round.count; i++)
        if ((gone >> i & 1) != 0 && i != worker->round.self)
            rendezvous_doubt(worker->rendezvous, i, (atomic_load(&worker->links.unreached) >> i & 1) != 0);
}

static void end_round(struct worker *worker)
{
    if (worker->incarnation == 0)
        return;
    bool is_planned = atomic_load(&worker->changes) && worker->ended == worker->incarnation;
    log_say(LOG_LEVEL_INFO, "incarnation %" PRIu64 " is over: %s", worker->incarnation,
            is_planned ? "the workers change" : "back to the head");
    if (!is_planned) {                         /* else links have broken because others have gone on */
        links_end_silent(worker->links.links); /* others may have noticed first */
        doubt(worker);
    }
    worker->incarnation = 0;
    set_state(worker, WORKER_IS_OVER);
    worker_links_say_over(worker);
}

/* A step was refused: this worker joins again, or cannot take part. */
static void take_refusal(struct worker *worker)
{
    end_round(worker);
    if (diag_has_code(&worker->diags, DIAG_TAKEN_OVER) || coordination_is_gone(worker->coordination)) {
        say(worker);
        worker->has_joined = false;
    } else {
        set_state(worker, WORKER_REFUSED);
    }
}

/* Whether the step is done; else what follows from its outcome was done. */
static bool is_done(struct worker *worker, enum etcd_outcome outcome)
{
    if (outcome == ETCD_DONE)
        return true;
    if (outcome == ETCD_REFUSED) {
        take_refusal(worker);
        return false;
    }
    say(worker);
    rest(worker);
    return false;
}

static void join(struct worker *worker)
{
    struct str unreached[RENDEZVOUS_WORKERS_MAX];
    struct cluster_member member = worker->member;
    rendezvous_describe(worker->rendezvous, &member, unreached);
    if (!is_done(worker, coordination_join(worker->coordination, &worker->o.job, &member,
                                           worker->o.has_history, &worker->diags)))
        return;
    log_say(LOG_LEVEL_INFO, "joined the cluster as %s", worker->address);
    worker->has_joined = true;
    worker->turn_us = 0;
}

/* The rendezvous' round is another one as soon as the next one begins. */
static void copy_round(struct worker *worker, const struct rendezvous_round *round)
{
    pthread_mutex_lock(&worker->mutex);
    arena_reset(&worker->round_arena);
    rendezvous_copy(round, &worker->round_arena, &worker->round);
    pthread_mutex_unlock(&worker->mutex);
}

static void begin_round(struct worker *worker, const struct rendezvous_round *round)
{
    copy_round(worker, round);
    worker_links_meet(worker, round, &worker->arena);
    worker_rates_begin(worker, round);
    log_say(LOG_LEVEL_INFO,
            "incarnation %" PRIu64 ": %u workers; this one has number %u, number %u at %.*s leads",
            round->incarnation, round->count, round->self, round->leader,
            STR_ARGS(round->workers[round->leader].address));
    worker->incarnation = round->incarnation;
    atomic_store(&worker->changes, false);
    set_state(worker, WORKER_RUNS);
}

/* Takes over what a turn has shown. */
static void look(struct worker *worker, const struct rendezvous_round *round)
{
    uint64_t missed = rendezvous_missed(worker->rendezvous);
    if (rendezvous_must_stop(worker->rendezvous))
        atomic_store(&worker->job_must_stop, true);
    if (rendezvous_must_leave(worker->rendezvous))
        atomic_store(&worker->must_leave, true);
    if (rendezvous_changes(worker->rendezvous))
        atomic_store(&worker->changes, true);
    atomic_store(&worker->may_leave, rendezvous_may_leave(worker->rendezvous));
    worker_standby_look(worker);
    worker_requests_look(worker);
    pthread_mutex_lock(&worker->mutex);
    snprintf(worker->waits_for, sizeof(worker->waits_for), "%s", rendezvous_waits_for(worker->rendezvous));
    pthread_mutex_unlock(&worker->mutex);
    if (rendezvous_have_ended(worker->rendezvous)) {
        set_state(worker, WORKER_HAS_ENDED);
        return;
    }
    if (worker->incarnation > 0 && (round == NULL || round->incarnation != worker->incarnation))
        end_round(worker);
    else if (worker->incarnation == 0 && round != NULL)
        begin_round(worker, round);
    else if (round == NULL && missed > 0)
        (void)is_done(worker,
                      rendezvous_tell_over(worker->rendezvous, &worker->member, missed, &worker->diags));
}

static void take_turn(struct worker *worker)
{
    const struct rendezvous_round *round = NULL;
    int64_t now = os_monotonic_us();
    doubt(worker);
    worker_requests_place(worker);
    worker->turn_us = now + TURN_US;
    if (!is_done(worker, rendezvous_turn(worker->rendezvous, &round, &worker->diags)))
        return;
    look(worker, round);
    worker_note_other(worker, now);
    worker_rates_look(worker);
    if (worker->incarnation > 0) /* else it is over */
        atomic_store(&worker->seen_us, now);
}

static void publish(struct worker *worker)
{
    pthread_mutex_lock(&worker->mutex);
    bool is_asked = worker->is_publishing = worker->publishing == PUBLISHING_ASKED;
    pthread_mutex_unlock(&worker->mutex);
    if (!is_asked)
        return;
    enum etcd_outcome outcome = coordination_publish(worker->coordination, &worker->head, &worker->diags);
    pthread_mutex_lock(&worker->mutex);
    worker->is_publishing = false;
    if (outcome != ETCD_UNKNOWN &&
        worker->publishing == PUBLISHING_ASKED) /* else nobody waits for it any more */
        worker->publishing = outcome == ETCD_DONE ? PUBLISHED : PUBLISHED_NOT;
    pthread_cond_broadcast(&worker->changed);
    pthread_mutex_unlock(&worker->mutex);
    (void)is_done(worker, outcome);
}

/* What the control thread may have said. */
enum said { SAID_OVER, SAID_ENDED, SAID_LEAVES, SAID_STOP, SAID_FITS };

static enum etcd_outcome tell_rendezvous(struct worker *worker, enum said said)
{
    uint64_t incarnation = worker->round.incarnation;
    struct rendezvous *r = worker->rendezvous;
    switch (said) {
    case SAID_OVER: return rendezvous_tell_over(r, &worker->member, incarnation, &worker->diags);
    case SAID_ENDED:
        return rendezvous_tell_ended(r, &worker->member, incarnation, worker->is_finished, &worker->diags);
    case SAID_FITS: return rendezvous_tell_fits(r, &worker->member, worker->told_fits, &worker->diags);
    case SAID_STOP: return coordination_ask_stop(worker->coordination, &worker->diags);
    default: return rendezvous_tell_leaves(r, &worker->member, &worker->diags);
    }
}

/* Tells the others what the control thread has said. `asked`: cleared when it is told. */
static void tell(struct worker *worker, bool *asked, enum said said)
{
    bool is_over = said == SAID_OVER;
    if (is_over && !worker->has_head)
        rest_after_round(worker);
    enum etcd_outcome outcome = tell_rendezvous(worker, said);
    if (outcome == ETCD_UNKNOWN) {
        (void)is_done(worker, outcome);
        return;
    }
    pthread_mutex_lock(&worker->mutex);
    *asked = false;
    pthread_mutex_unlock(&worker->mutex);
    worker->turn_us = 0;
    if (said == SAID_ENDED)
        worker->ended = worker->round.incarnation;
    if (is_over) {
        worker_requests_end(worker);
        worker->incarnation = 0;
        worker->fruitless = worker->has_head ? 0 : worker->fruitless + 1;
        set_state(worker, WORKER_GATHERS);
    }
    (void)is_done(worker, outcome);
}

/* One step; it asks etcd at most once, but for a turn. */
static void take_step(struct worker *worker)
{
    pthread_mutex_lock(&worker->mutex);
    enum worker_state state = worker->state;
    bool publishes = worker->publishing == PUBLISHING_ASKED, is_over = worker->say_over,
         has_ended = worker->say_ended, leaves = worker->say_leaves, stops = worker->say_stop,
         answers = worker->say_answer;
    worker->say_fits |= worker->fits != worker->told_fits;
    worker->told_fits = worker->fits;
    pthread_mutex_unlock(&worker->mutex);
    begin_step(worker);
    if (state == WORKER_IS_OVER && !is_over)
        await_end_of_work(worker);
    else if (!worker->has_joined)
        join(worker);
    else if (is_over)
        tell(worker, &worker->say_over, SAID_OVER);
    else if (publishes)
        publish(worker);
    else if (stops) /* before its part has ended: else that is taken for the end of a planned change */
        tell(worker, &worker->say_stop, SAID_STOP);
    else if (has_ended && worker->incarnation > 0)
        tell(worker, &worker->say_ended, SAID_ENDED);
    else if (leaves)
        tell(worker, &worker->say_leaves, SAID_LEAVES);
    else if (worker_standby_is_due(worker))
        (void)is_done(worker, worker_standby_tell(worker));
    else if (worker->say_fits)
        tell(worker, &worker->say_fits, SAID_FITS);
    else if (answers && worker->incarnation > 0)
        (void)is_done(worker, worker_requests_answer(worker));
    else if (worker_rates_is_due(worker))
        (void)is_done(worker, worker_rates_tell(worker));
    else if (os_monotonic_us() >= worker->turn_us || atomic_load(&worker->links.gone) != 0)
        take_turn(worker);
    else if (coordination_wait(worker->coordination, LOOK_US))
        worker->turn_us = 0;
}

static bool goes_on(struct worker *worker)
{
    pthread_mutex_lock(&worker->mutex);
    bool goes_on = !worker->must_stop && worker->state != WORKER_HAS_ENDED && worker->state != WORKER_REFUSED;
    pthread_mutex_unlock(&worker->mutex);
    return goes_on;
}

static void *keep(void *argument)
{
    struct worker *worker = argument;
    struct arena arena = {.block_bytes = 4096};
    struct diag_list diags;
    while (goes_on(worker))
        take_step(worker);
    diag_list_init(&diags, &arena);
    if (worker->has_joined && coordination_leave(worker->coordination, &diags) != ETCD_DONE)
        log_say(LOG_LEVEL_INFO,
                "etcd does not answer: the others notice by its lease that this worker has left");
    arena_free(&arena);
    return NULL;
}

/* --- Beginning and end --- */

static bool refuse_address(const char *what, const char *found, struct diag_list *diags)
{
    struct diag *d = diag_error(
        diags, DIAG_LINK_FAILED, (struct span){0},
        "%s: expected HOST:PORT under which the other workers reach this one, found `%s`", what, found);
    diag_hint(
        diags, d,
        "give an address of this machine: --listen=10.0.0.7:7400, or --listen=0.0.0.0:7400 with --advertise=10.0.0.7:7400");
    return false;
}

/* The address that the others are told: with the port that was free, where any was asked for. */
static bool set_address(struct worker *worker, struct diag_list *diags)
{
    const char *told = worker->o.advertise != NULL ? worker->o.advertise : worker->o.listen;
    const char *colon = strrchr(told, ':');
    uint16_t port = links_port(worker->links.links);
    if (colon == NULL || colon == told || strlen(told) > LINK_ADDRESS_MAX - 5)
        return refuse_address("the worker's address", told, diags);
    if (worker->o.advertise == NULL && strncmp(told, "0.0.0.0:", 8) == 0)
        return refuse_address("--listen without --advertise", told, diags);
    struct sockaddr_in resolved;
    if (strcmp(colon, ":0") == 0)
        snprintf(worker->address, sizeof(worker->address), "%.*s:%u", (int)(colon - told), told, port);
    else
        snprintf(worker->address, sizeof(worker->address), "%s", told);
    if (!link_address_parse(worker->address, false, &resolved, diags))
        return false;
    if (gethostname(worker->host, sizeof(worker->host) - 1) != 0)
        snprintf(worker->host, sizeof(worker->host), "?");
    return true;
}

static bool make_rendezvous(struct worker *worker, struct diag_list *diags)
{
    const struct rendezvous_options options = {.coordination = worker->coordination,
                                               .least = worker->o.least,
                                               .most = worker->o.most,
                                               .wait_us = worker->o.wait_us,
                                               .return_us = worker->o.return_us,
                                               .flags = worker->o.flags,
                                               .describe = worker->o.describe,
                                               .place = worker->o.place,
                                               .user = worker->o.user,
                                               .grows = worker->o.grows,
                                               .rest_us = worker->o.rest_us,
                                               .is_standby = worker->o.is_standby};
    worker->rendezvous = rendezvous_new(&options, diags);
    return worker->rendezvous != NULL;
}

static bool start_keeper(struct worker *worker, struct diag_list *diags)
{
    if (quiet_thread_start(&worker->keeper, keep, worker))
        return true;
    struct diag *d = diag_error(diags, DIAG_MEMORY_BUDGET, (struct span){0},
                                "the system refuses to start a thread for the cluster");
    diag_hint(diags, d, "raise the limits that `ulimit -a` shows");
    return false;
}

static void dismantle(struct worker *worker)
{
    worker_links_end(worker);
    rendezvous_free(worker->rendezvous);
    if (worker->coordination != NULL)
        coordination_close(worker->coordination);
    arena_free(&worker->arena);
    arena_free(&worker->round_arena);
    free(worker->places);
    arena_free(&worker->other_arena);
    pthread_cond_destroy(&worker->changed);
    pthread_mutex_destroy(&worker->mutex);
    free(worker);
}

struct worker *worker_new(const struct worker_options *options, struct diag_list *diags)
{
    struct worker *worker = mem_calloc(1, sizeof(*worker));
    worker->o = *options;
    pthread_mutex_init(&worker->mutex, NULL);
    pthread_cond_init(&worker->changed, NULL);
    worker->coordination = coordination_open(&options->coordination, diags);
    if (worker_links_begin(worker, diags) && worker->coordination != NULL && make_rendezvous(worker, diags) &&
        set_address(worker, diags)) {
        worker->o.job.by = str_from(worker->address);
        worker->member = (struct cluster_member){.address = str_from(worker->address),
                                                 .host = str_from(worker->host),
                                                 .flags = options->flags,
                                                 .lanes = options->lanes};
        if (start_keeper(worker, diags))
            return worker;
    }
    dismantle(worker);
    return NULL;
}

void worker_free(struct worker *worker)
{
    if (worker == NULL)
        return;
    pthread_mutex_lock(&worker->mutex);
    worker->must_stop = true;
    pthread_cond_broadcast(&worker->changed);
    pthread_mutex_unlock(&worker->mutex);
    pthread_join(worker->keeper, NULL);
    dismantle(worker);
}

/* --- The control thread --- */

enum worker_state worker_await(struct worker *worker, enum worker_state seen, int64_t wait_us)
{
    struct timespec until = wait_until(wait_us);
    pthread_mutex_lock(&worker->mutex);
    while (worker->state == seen && wait_on(&worker->changed, &worker->mutex, &until))
        ;
    enum worker_state state = worker->state;
    pthread_mutex_unlock(&worker->mutex);
    return state;
}

const struct rendezvous_round *worker_round(const struct worker *worker)
{
    return &worker->round;
}

void worker_waits_for(struct worker *worker, char *text, size_t bytes)
{
    pthread_mutex_lock(&worker->mutex);
    snprintf(text, bytes, "%s", worker->waits_for);
    pthread_mutex_unlock(&worker->mutex);
}

bool worker_must_stop(const struct worker *worker)
{
    return atomic_load(&worker->job_must_stop);
}

bool worker_is_certain(struct worker *worker)
{
    pthread_mutex_lock(&worker->mutex);
    bool runs = worker->state == WORKER_RUNS;
    pthread_mutex_unlock(&worker->mutex);
    return runs && coordination_is_member(worker->coordination) &&
           os_monotonic_us() - atomic_load(&worker->seen_us) < CERTAIN_US;
}

void worker_leave(struct worker *worker)
{
    pthread_mutex_lock(&worker->mutex);
    worker->say_leaves = true;
    pthread_mutex_unlock(&worker->mutex);
}

void worker_ask_stop(struct worker *worker)
{
    pthread_mutex_lock(&worker->mutex);
    worker->say_stop = true;
    pthread_mutex_unlock(&worker->mutex);
}

bool worker_must_leave(const struct worker *worker)
{
    return atomic_load(&worker->must_leave);
}

bool worker_changes(const struct worker *worker)
{
    return atomic_load(&worker->changes);
}

bool worker_may_leave(const struct worker *worker)
{
    return atomic_load(&worker->may_leave);
}

const struct diag_list *worker_diags(const struct worker *worker)
{
    return &worker->diags;
}

bool worker_publish(struct worker *worker, uint64_t epoch, struct str manifest, struct str digest,
                    bool (*gives_up)(void *user), void *user)
{
    leat_assert(manifest.length < sizeof(worker->name) && digest.length < sizeof(worker->digest));
    pthread_mutex_lock(&worker->mutex);
    while (worker->is_publishing) /* one that was given up */
        pthread_cond_wait(&worker->changed, &worker->mutex);
    if (worker->state == WORKER_RUNS) {
        memcpy(worker->name, manifest.data, manifest.length);
        memcpy(worker->digest, digest.data, digest.length);
        worker->head = (struct cluster_head){.incarnation = worker->round.incarnation,
                                             .clock_us = os_wall_us(),
                                             .epoch = epoch,
                                             .manifest = {worker->name, manifest.length},
                                             .digest = {worker->digest, digest.length}};
        worker->publishing = PUBLISHING_ASKED;
    }
    while (worker->publishing == PUBLISHING_ASKED && !gives_up(user)) {
        struct timespec until = wait_until(LOOK_US);
        (void)wait_on(&worker->changed, &worker->mutex, &until);
    }
    bool is_head = worker->publishing == PUBLISHED;
    worker->publishing = PUBLISHING_NOTHING;
    pthread_mutex_unlock(&worker->mutex);
    return is_head;
}

void worker_say_ended(struct worker *worker, bool is_finished)
{
    pthread_mutex_lock(&worker->mutex);
    worker->is_finished = is_finished;
    worker->say_ended = true;
    pthread_mutex_unlock(&worker->mutex);
}

void worker_say_over(struct worker *worker, uint64_t incarnation, bool has_head)
{
    pthread_mutex_lock(&worker->mutex);
    bool is_of_round = worker->round.incarnation == incarnation;
    if (is_of_round && (worker->state == WORKER_RUNS || worker->state == WORKER_IS_OVER)) {
        worker->say_over = true;
        worker->has_head = has_head;
        worker->say_ended = false;
        worker->state = WORKER_GATHERS; /* the round may go on for the others yet, but not here */
        pthread_cond_broadcast(&worker->changed);
    }
    pthread_mutex_unlock(&worker->mutex);
}

/* `leat run --cluster`. A worker of the cluster (cluster/worker.h) runs the job in one round after the other: each round begins
 * with the head, and a run of this process has its part of it. */
#include "cli/run_cluster_internal.h"

#include "cli/cluster_directory.h"
#include "cli/cluster_heads.h"
#include "cli/cluster_inputs.h"
#include "cli/cluster_moves.h"
#include "cli/cluster_prune.h"
#include "cli/cluster_standby.h"
#include "cli/cluster_store.h"
#include "cli/commands.h"
#include "cli/guard.h"
#include "cli/run_cluster_job.h"
#include "cli/run_leave.h"
#include "cli/run_life.h"
#include "cli/run_wait.h"
#include "cli/token.h"
#include "cluster/worker.h"
#include "core/diag_copy.h"
#include "core/hex.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/os.h"
#include "run/head.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

enum {
    LOOK_US = 40000,
    RETURN_US = 3000000,    /* for those that have gone to come back, before the others begin without them */
    GROW_REST_US = 2000000, /* before workers that wait are taken in: others may come */
    GOING_US = 2000000,
    LIFE_GOES_ON = -1, /* in place of an exit status: the worker goes on */
};

/* --- A run in a round --- */

/* Implements worker_calls.receive. */
static void receive(void *user, uint32_t from, struct str message)
{
    struct part *part = user;
    if (run_receive(part->run, from, message))
        return;
    atomic_store(&part->bad_from, from + 1);
    run_abandon(part->run);
}

/* Implements worker_calls.has_room. */
static void has_room(void *user, uint32_t to)
{
    const struct part *part = user;
    run_has_room(part->run, to);
}

/* Implements worker_calls.is_over. */
static void is_over(void *user)
{
    const struct part *part = user;
    run_abandon(part->run);
}

/* Whether this worker is to leave the others: it was asked to. */
static bool is_leaving(const struct cluster *c)
{
    return *c->o->run->stop > 0 || worker_must_leave(c->worker);
}

static bool leave_in_order(struct part *part, bool has_ended)
{
    struct cluster *c = part->cluster;
    const struct run_leave how = {*c->o->run->stop > 0, has_ended, c->o->flags->drain_us};
    return run_leave_in_order(c->worker, part->life, &how, &c->leaving_us);
}

static void stop(struct part *part, bool *is_stopping, const char *why)
{
    if (*is_stopping)
        return;
    run_life_say(part->life, why);
    run_stop(part->run);
    *is_stopping = true;
}

/* What others than Ctrl-C ask for: a stop of the job, by `leat cluster stop` or the control API, or a checkpoint. */
static void do_what_is_asked(struct part *part, bool *is_stopping)
{
    struct worker *worker = part->cluster->worker;
    enum api_want want = part->api == NULL ? API_WANTS_NOTHING : api_wants(part->api);
    if (worker_must_stop(worker))
        stop(part, is_stopping, "stopping after a checkpoint, as `leat cluster stop` has asked");
    if (want == API_WANTS_STOP) {
        worker_ask_stop(worker); /* else those that wait for a place would go on */
        stop(part, is_stopping, "the job stops after a checkpoint, as the control API was asked to");
    }
    if (want == API_WANTS_CHECKPOINT)
        run_checkpoint(part->run);
}

/* Shows the run until it ends. Returns whether this worker leaves before. */
static bool watch(struct part *part)
{
    const struct cluster *c = part->cluster;
    bool is_stopping = false;
    while (!run_has_ended(part->run)) {
        nanosleep(&(struct timespec){.tv_nsec = LOOK_US * 1000}, NULL);
        run_life_look(part->life);
        do_what_is_asked(part, &is_stopping);
        cluster_standby_look(c->standby, part->run, part->round);
        cluster_moves_look(&part->cluster->moves, part->run, part->round);
        if (*c->o->run->stop > 0 && part->round->count == 1)
            stop(part, &is_stopping, "stopping after a checkpoint; a second Ctrl-C stops at once");
        else if (!worker_must_stop(c->worker) && is_leaving(c) && leave_in_order(part, false)) {
            run_abandon(part->run);
            return true;
        }
        if (part->round->self == part->round->leader && worker_changes(c->worker))
            stop(part, &is_stopping, "the workers change, at a checkpoint");
    }
    return false;
}

/* The run could not go on: because the round is over, or for a reason of its own. Returns an exit status, or LIFE_GOES_ON. */
static int judge_failure(struct part *part)
{
    struct cluster *c = part->cluster;
    struct diag_list *diags = &c->load->diags;
    uint32_t bad_from = atomic_load(&part->bad_from), unseen = atomic_load(&part->unseen);
    /* What other workers do when they go shows here before etcd tells that they have gone. */
    bool may_be_theirs = diags->errors > 0 || unseen > 0;
    bool is_own = worker_await(c->worker, WORKER_RUNS, may_be_theirs ? GOING_US : 0) == WORKER_RUNS;
    if (is_own && unseen > 0) {
        cluster_heads_refuse_unseen(&part->heads, unseen - 1, part->round->workers[unseen - 1].address,
                                    c->load->plan->config.checkpoint.store, diags);
        return EXIT_FAILED;
    }
    if (bad_from > 0) {
        struct diag *d =
            diag_error(diags, DIAG_FILE_DAMAGED, (struct span){0},
                       "a message of worker %u does not fit what this worker has of the job", bad_from - 1);
        diag_hint(diags, d, "start all workers with the same job and the same version of leat");
        return EXIT_FAILED;
    }
    if (is_own && diags->errors > 0 && !diag_has_code(diags, DIAG_TAKEN_OVER) &&
        !cluster_store_is_away(diags))
        return EXIT_FAILED;
    if (*c->o->run->stop > 0)
        return c->lives > 0 ? EXIT_GOOD : EXIT_INTERRUPTED;
    for (unsigned i = 0; i < diags->count; i++) /* effects of other workers that went */
        log_say(LOG_LEVEL_WARNING, "%s", diags->items[i].message);
    diag_list_init(diags, &c->load->arena);
    return LIFE_GOES_ON;
}

/* The job has come to its end here. Waits until it has everywhere. Workers go when all have said that it has: the leader says so only
 * with the last figures of all, which others have sent before they say it. */
static int await_others(struct part *part)
{
    struct cluster *c = part->cluster;
    const struct rendezvous_round *round = part->round;
    enum worker_state state = WORKER_RUNS;
    bool leaves = false, is_stopping = *c->o->run->stop > 0 && round->count == 1; /* that end was asked for */
    while (state == WORKER_RUNS && !leaves && !run_has_all_figures(part->run) &&
           atomic_load(&part->bad_from) == 0) {
        state = worker_await(c->worker, WORKER_RUNS, LOOK_US);
        leaves = is_leaving(c) && !is_stopping && leave_in_order(part, true);
    }
    if (atomic_load(&part->bad_from) > 0)
        return judge_failure(part);
    run_life_count_all(part->life);
    if (state == WORKER_RUNS && !leaves)
        run_leave_at_end(c->worker, part->life, round->self == round->leader && *c->o->run->stop == 0);
    while (state == WORKER_RUNS && !leaves) {
        state = worker_await(c->worker, WORKER_RUNS, LOOK_US);
        leaves = worker_may_leave(c->worker) || (is_leaving(c) && !is_stopping && leave_in_order(part, true));
    }
    if (state != WORKER_HAS_ENDED && round->self == round->leader)
        log_say(LOG_LEVEL_INFO, "ended at a checkpoint: %" PRIu64 " records are done",
                run_life_stats(part->life)->records);
    if (state != WORKER_HAS_ENDED && c->leaving_us > 0)
        log_say(LOG_LEVEL_INFO,
                "left the cluster; all is in the head, and the other workers go on from that");
    if (state == WORKER_RUNS)
        return EXIT_GOOD;
    if (state == WORKER_HAS_ENDED && round->self == round->leader)
        run_life_summarize(part->life, true);
    else if (state == WORKER_HAS_ENDED)
        run_life_tell_part(part->life, round->leader, round->workers[round->leader].address);
    if (state == WORKER_HAS_ENDED)
        return EXIT_GOOD;
    return LIFE_GOES_ON;
}

/* Implements worker_options.describe. */
static char *describe_inputs(void *user, uint64_t incarnation)
{
    const struct cluster *c = user;
    return cluster_inputs_describe(c->load->plan, c->directory.name, incarnation);
}

/* Implements worker_options.place. */
static char *place(void *user, const struct rendezvous_round *last, const struct rendezvous_round *next)
{
    const struct cluster *c = user;
    return cluster_moves_place(&c->moves, last, next);
}

static bool has_inputs(struct part *part)
{
    const struct cluster *c = part->cluster;
    const struct rendezvous_round *round = part->round;
    const struct rendezvous_worker *leader = &round->workers[round->leader];
    const char *who = arena_printf(&part->cluster->arena, "worker %u at %.*s on %.*s", round->leader,
                                   STR_ARGS(leader->address), STR_ARGS(leader->host));
    return round->self == round->leader || round->inputs.length == 0 ||
           cluster_inputs_compare(c->load->plan, round->inputs, who, &c->load->diags);
}

/* The page and the API, which this worker has had while it waited. False after a diagnostic. */
static bool take_api(struct part *part)
{
    struct cluster *c = part->cluster;
    part->api = c->api;
    c->api = NULL;
    c->has_tried_api = false;
    c->wait.said[0] = '\0'; /* a later wait is for something else */
    return part->api != NULL || run_control_start(c->o->control, c->load, &part->api, &c->load->diags);
}

/* Makes the run, with what the store or the shared directory has. False after a diagnostic. */
static bool make_run(struct part *part)
{
    struct cluster *c = part->cluster;
    bool has_store = c->load->plan->config.checkpoint.store.length > 0;
    if (!has_inputs(part) ||
        (has_store &&
         (part->heads.store == NULL || !cluster_store_claim(part->heads.store, &c->directory))) ||
        !cluster_directory_claim(&c->directory) || !run_cluster_set_peers(part) ||
        !cluster_directory_announce(&c->directory, part->peers.incarnation) || !run_cluster_read_head(part))
        return false;
    struct run_options options =
        run_cluster_life(c->o->run, (struct str){part->head.data, part->head.length}, c->lives == 0);
    options.peers = &part->peers;
    options.lanes = part->round->lanes;
    if (!take_api(part))
        return false;
    options.looks_at_columns = part->api != NULL;
    part->run = run_new(c->load->plan, &options, &c->load->diags);
    if (part->run == NULL)
        api_stop(part->api);
    return part->run != NULL;
}

/* Ends the wait for the store as soon as the round is over, or this worker is to end, to leave, or to stop the job: there is no run yet that
 * could be abandoned. */
static bool gives_up_store(void *user)
{
    struct part *part = user;
    const struct cluster *c = part->cluster;
    if (!run_cluster_is_over(part) && !is_leaving(c) && !worker_must_stop(c->worker))
        return false;
    checkpoint_store_cancel(part->heads.store);
    return true;
}

static bool begin_run(struct part *part)
{
    struct guard guard = {0};
    struct cluster *c = part->cluster;
    const struct worker_calls calls = {receive, has_room, is_over};
    struct str url = c->load->plan->config.checkpoint.store;
    part->heads =
        (struct cluster_heads){.directory = &c->directory,
                               .store = url.length == 0 ? NULL : cluster_store_open(url, &c->load->diags)};
    if (part->round->self == part->round->leader)
        part->prune =
            cluster_prune_new(&c->directory, url, (uint32_t)c->load->plan->config.checkpoint.keep.last);
    if (part->heads.store != NULL)
        guard_begin(&guard, gives_up_store, part);
    bool is_made = make_run(part), is_cancelled = guard_end(&guard);
    if (is_made && is_cancelled)
        run_abandon(part->run);
    if (is_made)
        worker_attach(c->worker, &calls, part);
    return is_made;
}

/* A worker that leaves keeps --drain-within also while the last checkpoint, or a sink, does not come to its end. */
static bool gives_up_last(void *user)
{
    struct part *part = user;
    if (part->round->count == 1 || !is_leaving(part->cluster) || !leave_in_order(part, false))
        return false;
    run_abandon(part->run);
    return true;
}

/* Shows the run until it ends. Returns an exit status, or LIFE_GOES_ON. */
static int see_run(struct part *part, bool is_started)
{
    struct guard guard = {0};
    bool leaves = is_started && watch(part);
    run_life_hide(part->life);
    if (!leaves)
        guard_begin(&guard, gives_up_last, part);
    bool is_good = run_life_wait(part->life, is_started);
    leaves |= guard_end(&guard) && !is_good;
    cluster_moves_end(&part->cluster->moves, part->run, part->round);
    return leaves ? EXIT_GOOD : is_good ? await_others(part) : judge_failure(part);
}

/* Runs the job in the round that goes on. Returns an exit status, or LIFE_GOES_ON. */
static int run_part(struct cluster *c)
{
    struct part *part = mem_calloc(1, sizeof(*part));
    int status;
    part->cluster = c;
    part->round = worker_round(c->worker);
    uint64_t incarnation = part->round->incarnation;
    bool has_head = false;
    part->is_prepared = cluster_standby_end(c->standby, &part->round->head);
    if (begin_run(part)) {
        const struct run_life_options options = {
            .load = c->load, .api = part->api, .is_quiet = c->o->is_quiet, .progress = c->o->progress};
        part->life = run_life_begin(&options, part->run);
        bool is_started = run_start(part->run);
        *c->o->has_begun = 1;
        c->lives++;
        status = see_run(part, is_started);
        worker_detach(c->worker);
        has_head = run_life_stats(part->life)->checkpoints > 0;
        run_life_free(part->life);
        run_free(part->run);
    } else
        status = judge_failure(part);
    if (part->round->self == part->round->leader) {
        free(c->inputs);
        c->inputs = mem_str(part->round->inputs);
    }
    cluster_prune_free(part->prune, status != LIFE_GOES_ON);
    checkpoint_store_close(part->heads.store);
    buffer_free(&part->head);
    free(part);
    if (status == LIFE_GOES_ON)
        worker_say_over(c->worker, incarnation, has_head);
    return status;
}

/* --- The cluster --- */

/* Who looks at this worker's page is told for what it waits. Where the page cannot be had now, a warning says why; the round tries again:
 * another worker of this machine may have the port until then. */
static void show_wait(struct cluster *c)
{
    struct arena arena = {.block_bytes = 4096};
    struct diag_list diags;
    if (!c->has_tried_api) {
        diag_list_init(&diags, &arena);
        if (!run_control_start(c->o->control, c->load, &c->api, &diags)) {
            const struct diag *why = &diags.items[0];
            log_say(LOG_LEVEL_WARNING,
                    "this worker has no page while it waits: %s%s%s; it tries again when its part begins",
                    why->message, why->cause != NULL ? ": " : "", why->cause != NULL ? why->cause : "");
        }
        arena_free(&arena);
        c->has_tried_api = true;
    }
    if (c->api != NULL)
        api_waits(c->api, c->wait.said);
}

static int take_part(struct cluster *c)
{
    enum worker_state state = WORKER_GATHERS;
    int status = LIFE_GOES_ON;
    while (status == LIFE_GOES_ON) {
        state = worker_await(c->worker, WORKER_GATHERS, LOOK_US);
        switch (state) {
        case WORKER_RUNS: status = run_part(c); break;
        case WORKER_IS_OVER: worker_say_over(c->worker, worker_round(c->worker)->incarnation, false); break;
        case WORKER_HAS_ENDED:
            log_say(LOG_LEVEL_INFO, "the job has ended: there is no work for this worker");
            status = EXIT_GOOD;
            break;
        case WORKER_REFUSED:
            diag_add_all(&c->load->diags, worker_diags(c->worker));
            status = EXIT_FAILED;
            break;
        default:
            run_wait_say(&c->wait, c->worker);
            show_wait(c);
            cluster_standby_wait(c->standby);
            if (worker_must_stop(c->worker) || worker_must_leave(c->worker))
                status = EXIT_GOOD;
            else if (!run_wait_compare(&c->wait, c->worker, c->load->plan, &c->load->diags))
                status = EXIT_FAILED;
            else if (*c->o->run->stop > 0)
                status = c->lives > 0 ? EXIT_GOOD : EXIT_INTERRUPTED;
        }
    }
    return status;
}

static void describe_job(struct cluster *c)
{
    uint8_t id[sizeof(struct run_id)];
    run_cluster_digest(c->load, c->directory.job);
    c->flags = run_cluster_same(c->o->run, &c->arena);
    leat_assert(getrandom(id, sizeof(id), 0) == (ssize_t)sizeof(id));
    hex_text(id, sizeof(id), c->job_run);
}

static bool refuse_job(struct cluster *c, const char *why, const char *hint)
{
    struct diag *d = diag_error(&c->load->diags, DIAG_OPTIONS_CLASH, (struct span){0}, "--cluster: %s", why);
    diag_hint(&c->load->diags, d, "%s", hint);
    return false;
}

static bool begin(struct cluster *c)
{
    const struct run_cluster_flags *flags = c->o->flags;
    struct str directory = c->load->plan->config.checkpoint.directory;
    struct coordination_address address;
    char *password = NULL;
    bool has_history;
    if (directory.length == 0)
        return refuse_job(
            c, "the job takes no checkpoints, from which workers go on when one dies",
            "set a directory that all workers see: `checkpoint: { dir: \"/shared/NAME\" }`; or one of each "
            "worker's own, and a store");
    if (!coordination_parse(str_from(flags->cluster), &address, &c->load->diags))
        return false;
    c->directory =
        (struct cluster_directory){.path = arena_strndup(&c->arena, directory.data, directory.length),
                                   .name = address.name,
                                   .is_own = c->load->plan->config.checkpoint.store.length > 0,
                                   .arena = &c->arena,
                                   .diags = &c->load->diags};
    if (!cluster_directory_look(&c->directory, &has_history) ||
        !cluster_store_look_first(c->load->plan->config.checkpoint.store, &c->directory, &has_history) ||
        !token_read("--etcd-password-file", flags->password_file, &password, &c->load->diags))
        return false;
    describe_job(c);
    if (strlen(c->flags) > COORDINATION_TEXT_BYTES_MAX)
        return refuse_job(c, "the flags that all workers must be given alike have more than 4096 bytes",
                          "give shorter paths, or fewer --drop-state");
    const struct worker_options options = {
        .coordination = {.address = str_from(flags->cluster),
                         .etcd = {.authority = flags->authority,
                                  .certificate = flags->certificate,
                                  .key = flags->key,
                                  .user = flags->user,
                                  .password = password},
                         .lease_s = flags->lease_s},
        .job = {.digest = str_from(c->directory.job),
                .version = run_cluster_version(),
                .profile = STR("cpu"),
                .run = str_from(c->job_run)},
        .flags = str_from(c->flags),
        .least = flags->least,
        .most = flags->most,
        .wait_us = flags->wait_us,
        .return_us = RETURN_US,
        .grows = !flags->grows_when_asked,
        .rest_us = GROW_REST_US,
        .is_standby = flags->is_standby,
        .listen = flags->listen,
        .advertise = flags->advertise,
        .lanes = run_cluster_lanes(c->o->run, c->load->plan),
        .links_bytes = c->load->plan->config.memory_bytes / RUN_LINKS_PART,
        .describe = describe_inputs,
        .place = place,
        .user = c,
        .has_history = has_history,
    };
    c->moves.plan = c->load->plan;
    c->worker = c->moves.worker = worker_new(&options, &c->load->diags);
    free(password);
    const struct cluster_standby_options standby = {.worker = c->worker,
                                                    .directory = &c->directory,
                                                    .store = c->load->plan->config.checkpoint.store,
                                                    .keep_free = c->load->plan->config.checkpoint.free_bytes};
    c->standby = c->worker != NULL && flags->is_standby ? cluster_standby_new(&standby) : NULL;
    return c->worker != NULL;
}

int run_cluster(const struct run_cluster_options *options)
{
    struct cluster c = {.o = options, .load = options->load};
    int status = begin(&c) ? take_part(&c) : EXIT_FAILED;
    api_stop(c.api);
    cluster_standby_free(c.standby);
    worker_free(c.worker);
    /* Only now: workers that wait take the files that it names as a sign of the round that goes on. Where others go on, they remove them. */
    if (c.inputs != NULL)
        cluster_inputs_forget(c.load->plan, str_from(c.inputs));
    free(c.inputs);
    run_wait_free(&c.wait);
    arena_free(&c.arena);
    return status;
}

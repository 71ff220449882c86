/* `leat run --cluster`. A worker of the cluster (cluster/worker.h) runs the job in one round after the other: each round begins
 * with the head, and a run of this process has its part of it. */
#include "cli/run_cluster.h"

#include "cli/cluster_directory.h"
#include "cli/commands.h"
#include "cli/run_life.h"
#include "cli/token.h"
#include "cluster/worker.h"
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
#include <unistd.h>

enum {
    LOOK_US = 40000,
    SAY_WAIT_US = 10000000,
    RETURN_US =
        5000000, /* in which workers that have gone may come back, before the others begin without them */
    ASK_AGAIN_US = 1000000,
    GOING_US = 2000000,
    LIFE_GOES_ON = -1, /* in place of an exit status: the worker goes on */
};

struct cluster {
    const struct run_cluster_options *o;
    struct job_load *load;
    struct worker *worker;
    struct arena arena;
    struct cluster_directory directory;
    char job_digest[2 * CHECKPOINT_DIGEST_BYTES + 1], job_run[2 * sizeof(struct run_id) + 1];
    uint32_t lives;
    char said[400];
    int64_t said_us;
};

/* A run in one round. */
struct part {
    struct cluster *cluster;
    const struct rendezvous_round *round;
    struct run_peers peers;
    struct run *run;
    struct run_life *life;
    struct byte_buffer head; /* manifest with which it begins */
    bool has_seen_parts;
    _Atomic uint32_t
        unseen; /* whose checkpoint this worker, the leader, does not see, and one more; 0: nobody's */
    _Atomic uint32_t bad_from; /* who sent a message that this run cannot have, and one more; 0: nobody */
};

/* --- Heads --- */

static void digest_text(struct str bytes, char *text)
{
    uint8_t digest[CHECKPOINT_DIGEST_BYTES];
    checkpoint_digest_of(bytes, digest);
    hex_text(digest, sizeof(digest), text);
}

/* Reads the manifest with which the round begins; empty: it begins with nothing. False after a diagnostic. */
static bool read_head(struct part *part)
{
    struct cluster *c = part->cluster;
    const struct cluster_head *head = &part->round->head;
    char digest[2 * CHECKPOINT_DIGEST_BYTES + 1], name[RUN_HEAD_NAME_BYTES];
    bool is_there;
    if (head->revision == 0)
        return cluster_directory_before(&c->directory, &part->head, &is_there);
    run_head_name((uint32_t)head->incarnation + c->directory.before, head->epoch, name);
    const char *path = arena_printf(&c->arena, "%s/%s", c->directory.heads, name);
    struct run_head *decoded = mem_alloc(sizeof(*decoded));
    bool is_good = run_head_load(path, &part->head, decoded, &c->load->diags);
    free(decoded);
    digest_text((struct str){part->head.data, part->head.length}, digest);
    if (!is_good || (str_is(head->manifest, name) && str_is(head->digest, digest)))
        return is_good;
    struct diag *d = diag_error(&c->load->diags, DIAG_CHECKPOINT_DAMAGED, (struct span){0},
                                "`%s` is not the head: etcd names `%.*s` of digest %.*s, found digest %s",
                                path, STR_ARGS(head->manifest), STR_ARGS(head->digest), digest);
    diag_hint(&c->load->diags, d, "do all workers see the same checkpoint directory?");
    return false;
}

/* Tells what went wrong with a head, on the coordinator's thread. */
static void say_diags(const struct diag_list *diags)
{
    for (unsigned i = 0; i < diags->count; i++)
        log_say(LOG_LEVEL_WARNING, "%s%s%s", diags->items[i].message,
                diags->items[i].cause != NULL ? ": " : "",
                diags->items[i].cause != NULL ? diags->items[i].cause : "");
}

/* Whether this worker sees the parts of all others: else nobody could begin with the head. Looks at the first head of a round. */
static bool parts_are_seen(struct part *part, struct str manifest, struct diag_list *diags)
{
    const char *why;
    struct run_head *head = mem_alloc(sizeof(*head));
    bool are_seen = part->has_seen_parts || run_head_decode(manifest, head, &why);
    for (uint32_t i = 0; are_seen && !part->has_seen_parts && i < head->count; i++) {
        const struct run_head_part *other = &head->parts[i];
        char path[CHECKPOINT_PATH_BYTES];
        uint8_t digest[CHECKPOINT_DIGEST_BYTES];
        uint64_t bytes;
        snprintf(path, sizeof(path), "%.*s", STR_ARGS(other->directory));
        const struct checkpoint_dir_options options = {.path = path, .read_only = true};
        struct checkpoint_dir *dir = checkpoint_dir_open(&options, diags);
        are_seen = dir != NULL && checkpoint_digest(dir, other->id, digest, &bytes, diags) &&
                   memcmp(digest, other->digest, sizeof(digest)) == 0;
        checkpoint_dir_close(dir);
        if (!are_seen)
            atomic_store(&part->unseen, i + 1);
    }
    part->has_seen_parts = are_seen;
    free(head);
    if (!are_seen)
        run_abandon(part->run);
    return are_seen;
}

/* Ends the wait for etcd. */
static bool gives_up(void *user)
{
    const struct part *part = user;
    return run_is_failing(part->run);
}

/* Implements run_peers.publish. */
static bool publish(void *engine, uint64_t epoch, struct str manifest)
{
    struct part *part = engine;
    struct cluster *c = part->cluster;
    uint32_t incarnation = part->peers.incarnation, removed;
    char name[RUN_HEAD_NAME_BYTES], digest[2 * CHECKPOINT_DIGEST_BYTES + 1];
    struct arena arena = {.block_bytes = 4096};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    run_head_name(incarnation, epoch, name);
    digest_text(manifest, digest);
    if (!parts_are_seen(part, manifest, &diags)) {
        say_diags(&diags);
        arena_free(&arena);
        return false;
    }
    bool is_head = run_head_write(c->directory.heads, incarnation, epoch, manifest, &diags) &&
                   failpoint("head.publish") == 0 &&
                   worker_publish(c->worker, epoch, str_from(name), str_from(digest), gives_up, part);
    (void)failpoint("head.moved");
    if (is_head)
        (void)!run_head_prune(c->directory.heads, incarnation, epoch,
                              (uint32_t)c->load->plan->config.checkpoint.keep.last, &removed,
                              &diags); /* old files cost room alone */
    say_diags(&diags);
    arena_free(&arena);
    return is_head;
}

/* --- A run in a round --- */

/* Implements run_peers.is_replaced. */
static bool is_replaced(void *engine)
{
    const struct part *part = engine;
    return cluster_directory_is_replaced(&part->cluster->directory, part->peers.incarnation);
}

/* Implements run_peers.send. */
static void send_message(void *engine, uint32_t to, struct str message)
{
    const struct part *part = engine;
    worker_send(part->cluster->worker, to, message);
}

/* Implements worker_calls.receive. */
static void receive(void *user, uint32_t from, struct str message)
{
    struct part *part = user;
    if (run_receive(part->run, from, message))
        return;
    atomic_store(&part->bad_from, from + 1);
    run_abandon(part->run);
}

/* Implements worker_calls.is_over. */
static void is_over(void *user)
{
    const struct part *part = user;
    run_abandon(part->run);
}

static bool set_peers(struct part *part)
{
    struct cluster *c = part->cluster;
    const struct rendezvous_round *round = part->round;
    part->peers = (struct run_peers){
        .self = round->self,
        .count = round->count,
        .leader = round->leader,
        .send = send_message,
        .engine = part,
        .directory = arena_printf(&c->arena, "%s/worker-%u", c->directory.folder, round->self),
        .incarnation = (uint32_t)round->incarnation + c->directory.before,
        .publish = publish,
        .is_replaced = is_replaced};
    if (round->incarnation <= UINT32_MAX - c->directory.before &&
        hex_bytes(round->run, part->peers.job_run, sizeof(part->peers.job_run)))
        return true;
    diag_error(&c->load->diags, DIAG_CLUSTER_LOST, (struct span){0},
               "the cluster's record has no id of the job, or incarnations beyond 32 bits");
    return false;
}

/* This worker leaves in order: behind a checkpoint, so that the others need not do its work again. */
struct leaving {
    bool is_asked;
    uint64_t until; /* epoch of a checkpoint behind which it leaves */
    int64_t asked_us;
};

/* Returns whether it may leave now. */
static bool leave_in_order(struct part *part, struct leaving *leaving)
{
    struct run_checkpoint_turn turn;
    int64_t now = os_monotonic_us();
    if (!run_checkpoint_turn(part->run, &turn))
        return true;
    if (!leaving->is_asked)
        leaving->until = turn.next;
    if (!leaving->is_asked || now - leaving->asked_us >= ASK_AGAIN_US) {
        run_checkpoint(part->run);
        leaving->asked_us = now;
    }
    leaving->is_asked = true;
    return turn.published >= leaving->until;
}

static void stop(struct part *part, bool *is_stopping, const char *why)
{
    if (*is_stopping)
        return;
    run_life_say(part->life, why);
    run_stop(part->run);
    *is_stopping = true;
}

/* Shows the run until it ends. Returns whether this worker leaves before. */
static bool watch(struct part *part)
{
    struct leaving leaving = {0};
    bool is_told = false, is_stopping = false;
    while (!run_has_ended(part->run)) {
        nanosleep(&(struct timespec){.tv_nsec = LOOK_US * 1000}, NULL);
        run_life_look(part->life);
        if (worker_must_stop(part->cluster->worker))
            stop(part, &is_stopping, "stopping after a checkpoint, as `leat cluster stop` has asked");
        if (*part->cluster->o->interrupts == 0)
            continue;
        if (part->round->count == 1)
            stop(part, &is_stopping, "stopping after a checkpoint; a second Ctrl-C stops at once");
        else if (!is_told)
            run_life_say(
                part->life,
                "leaving after a checkpoint; the other workers go on; a second Ctrl-C stops at once");
        is_told = true;
        if (part->round->count > 1 && leave_in_order(part, &leaving)) {
            run_abandon(part->run);
            return true;
        }
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
        struct diag *d =
            diag_error(diags, DIAG_FOREIGN_DIRECTORY, (struct span){0},
                       "the checkpoint of worker %u, at %.*s, is not in `%s` as this worker sees it",
                       unseen - 1, STR_ARGS(part->round->workers[unseen - 1].address), c->directory.folder);
        diag_hint(diags, d,
                  "`dir` of `checkpoint` must be one directory that all workers see under the same path");
        return EXIT_FAILED;
    }
    if (bad_from > 0) {
        struct diag *d =
            diag_error(diags, DIAG_FILE_DAMAGED, (struct span){0},
                       "a message of worker %u does not fit what this worker has of the job", bad_from - 1);
        diag_hint(diags, d, "start all workers with the same job and the same version of leat");
        return EXIT_FAILED;
    }
    if (is_own && diags->errors > 0 && !diag_has_code(diags, DIAG_TAKEN_OVER))
        return EXIT_FAILED;
    if (*c->o->interrupts > 0)
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
    while (state == WORKER_RUNS && !run_has_all_figures(part->run) && atomic_load(&part->bad_from) == 0)
        state = worker_await(c->worker, WORKER_RUNS, LOOK_US);
    if (atomic_load(&part->bad_from) > 0)
        return judge_failure(part);
    run_life_count_all(part->life);
    if (state == WORKER_RUNS)
        worker_say_ended(c->worker, run_life_stats(part->life)->is_finished);
    bool is_stopping = *c->o->interrupts > 0; /* it is the end that was asked for */
    while (state == WORKER_RUNS && (is_stopping || *c->o->interrupts == 0))
        state = worker_await(c->worker, WORKER_RUNS, LOOK_US);
    if (state == WORKER_RUNS) {
        log_say(LOG_LEVEL_INFO, "leaving; all is in the head, and the other workers end the job");
        return EXIT_GOOD;
    }
    if (state == WORKER_HAS_ENDED && round->self == round->leader)
        run_life_summarize(part->life, true);
    else if (state == WORKER_HAS_ENDED)
        run_life_tell_part(part->life, round->leader, round->workers[round->leader].address);
    if (state == WORKER_HAS_ENDED)
        return EXIT_GOOD;
    return LIFE_GOES_ON;
}

static bool begin_run(struct part *part)
{
    struct cluster *c = part->cluster;
    const struct worker_calls calls = {receive, is_over};
    if (!cluster_directory_claim(&c->directory) || !set_peers(part) ||
        !cluster_directory_announce(&c->directory, part->peers.incarnation) || !read_head(part))
        return false;
    const struct run_options options = {.peers = &part->peers,
                                        .lanes = part->round->lanes,
                                        .until_us = TIME_MAX,
                                        .stop = c->o->interrupts,
                                        .take_over = true,
                                        .head = {part->head.data, part->head.length}};
    part->run = run_new(c->load->plan, &options, &c->load->diags);
    if (part->run == NULL)
        return false;
    worker_attach(c->worker, &calls, part);
    return true;
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
    if (begin_run(part)) {
        const struct run_life_options options = {
            .load = c->load, .is_quiet = c->o->is_quiet, .progress = c->o->progress};
        part->life = run_life_begin(&options, part->run);
        bool is_started = run_start(part->run);
        *c->o->has_begun = 1;
        c->lives++;
        bool leaves = is_started && watch(part), is_good = run_life_wait(part->life, is_started);
        status = leaves ? EXIT_GOOD : is_good ? await_others(part) : judge_failure(part);
        worker_detach(c->worker);
        has_head = run_life_stats(part->life)->checkpoints > 0;
        if (leaves)
            log_say(LOG_LEVEL_INFO, "left the cluster; the other workers go on from the newest head");
        run_life_free(part->life);
        run_free(part->run);
    } else
        status = judge_failure(part);
    buffer_free(&part->head);
    free(part);
    if (status == LIFE_GOES_ON)
        worker_say_over(c->worker, incarnation, has_head);
    return status;
}

/* --- The cluster --- */

static void say_waits(struct cluster *c)
{
    char text[sizeof(c->said)];
    int64_t now = os_monotonic_us();
    worker_waits_for(c->worker, text, sizeof(text));
    if (text[0] == '\0' || (strcmp(text, c->said) == 0 && now - c->said_us < SAY_WAIT_US))
        return;
    log_say(LOG_LEVEL_INFO, "waiting: %s", text);
    snprintf(c->said, sizeof(c->said), "%s", text);
    c->said_us = now;
}

static void take_diags(struct cluster *c)
{
    const struct diag_list *from = worker_diags(c->worker);
    for (unsigned i = 0; i < from->count; i++) {
        const struct diag *item = &from->items[i];
        struct diag *d = diag_error(&c->load->diags, item->code, (struct span){0}, "%s", item->message);
        if (item->cause != NULL)
            diag_cause(&c->load->diags, d, "%s", item->cause);
        if (item->hint != NULL)
            diag_hint(&c->load->diags, d, "%s", item->hint);
    }
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
            take_diags(c);
            status = EXIT_FAILED;
            break;
        default:
            say_waits(c);
            if (worker_must_stop(c->worker))
                status = EXIT_GOOD;
            else if (*c->o->interrupts > 0)
                status = c->lives > 0 ? EXIT_GOOD : EXIT_INTERRUPTED;
        }
    }
    return status;
}

static void describe_job(struct cluster *c)
{
    const struct job_load *load = c->load;
    struct byte_buffer text = {0};
    uint8_t id[sizeof(struct run_id)];
    buffer_append(&text, load->source.text.data, load->source.text.length);
    for (uint32_t i = 0; i < load->settings.count; i++)
        buffer_printf(&text, "\n%.*s=%.*s", STR_ARGS(load->settings.names[i]),
                      STR_ARGS(load->settings.values[i]));
    digest_text((struct str){text.data, text.length}, c->job_digest);
    buffer_free(&text);
    leat_assert(getrandom(id, sizeof(id), 0) == (ssize_t)sizeof(id));
    hex_text(id, sizeof(id), c->job_run);
}

static uint32_t lanes_of(const struct cluster *c)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t lanes = c->o->lanes > 0 ? c->o->lanes : c->load->plan->config.workers;
    return lanes > 0 ? (uint32_t)lanes : cores > 0 ? (uint32_t)MIN(cores, 256) : 1;
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
        return refuse_job(c, "the job takes no checkpoints, from which workers go on when one dies",
                          "set a directory that all workers see: `checkpoint: { dir: \"/shared/NAME\" }`");
    if (!coordination_parse(str_from(flags->cluster), &address, &c->load->diags))
        return false;
    c->directory =
        (struct cluster_directory){.path = arena_strndup(&c->arena, directory.data, directory.length),
                                   .name = address.name,
                                   .arena = &c->arena,
                                   .diags = &c->load->diags};
    if (!cluster_directory_look(&c->directory, &has_history) ||
        !token_read("--etcd-password-file", flags->password_file, &password, &c->load->diags))
        return false;
    describe_job(c);
    const struct worker_options options = {
        .coordination = {.address = str_from(flags->cluster),
                         .etcd = {.authority = flags->authority,
                                  .certificate = flags->certificate,
                                  .key = flags->key,
                                  .user = flags->user,
                                  .password = password},
                         .lease_s = flags->lease_s},
        .job = {.digest = str_from(c->job_digest),
                .version = STR(LEAT_VERSION),
                .profile = STR("cpu"),
                .run = str_from(c->job_run)},
        .least = flags->least,
        .most = flags->most,
        .wait_us = flags->wait_us,
        .return_us = RETURN_US,
        .listen = flags->listen,
        .advertise = flags->advertise,
        .lanes = lanes_of(c),
        .has_history = has_history,
    };
    c->worker = worker_new(&options, &c->load->diags);
    free(password);
    return c->worker != NULL;
}

int run_cluster(const struct run_cluster_options *options)
{
    struct cluster c = {.o = options, .load = options->load};
    int status = begin(&c) ? take_part(&c) : EXIT_FAILED;
    worker_free(c.worker);
    arena_free(&c.arena);
    return status;
}

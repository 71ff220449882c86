/* What a run of a round has of the other workers (run_peers), and of the heads. */
#include "cli/cluster_store.h"
#include "cli/run_cluster_internal.h"
#include "cli/run_cluster_job.h"
#include "core/hex.h"
#include "core/os.h"
#include "run/head.h"

#include <time.h>

enum { LOOK_US = 40000 };

/* --- Heads --- */

bool run_cluster_read_head(struct part *part)
{
    const struct cluster_head *head = &part->round->head;
    bool begins_with_it = head->revision != 0 || part->cluster->o->run->from == NULL;
    return !begins_with_it || cluster_heads_read(&part->heads, head, &part->head);
}

/* Whether this worker sees the parts of all others. Looks at the first head of a round. */
static bool parts_are_seen(struct part *part, struct str manifest, struct diag_list *diags)
{
    uint32_t unseen;
    bool are_seen = cluster_heads_see_parts(&part->heads, manifest, &unseen, diags);
    if (unseen < RUN_WORKERS_MAX) {
        atomic_store(&part->unseen, unseen + 1);
        run_abandon(part->run);
    }
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
    const struct checkpoint_id id = {part->peers.incarnation, epoch};
    char name[RUN_HEAD_NAME_BYTES], digest[CLUSTER_DIGEST_TEXT];
    struct arena arena = {.block_bytes = 4096};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    run_head_name(part->peers.incarnation, epoch, name);
    cluster_digest_text(manifest, digest);
    bool is_head =
        parts_are_seen(part, manifest, &diags) && cluster_heads_write(&part->heads, id, manifest, &diags) &&
        failpoint("head.publish") == 0 &&
        worker_publish(part->cluster->worker, epoch, str_from(name), str_from(digest), gives_up, part);
    (void)failpoint("head.moved");
    if (is_head)
        cluster_prune_behind(part->prune, id);
    run_cluster_say_diags(&diags);
    arena_free(&arena);
    return is_head;
}

/* --- A run in a round --- */

/* Implements run_peers.is_replaced. Where workers see no directory of each other, it is the lease that says that no later incarnation has
 * begun: while that is not certain, the step waits. */
static bool is_replaced(void *engine)
{
    const struct part *part = engine;
    const struct cluster *c = part->cluster;
    if (part->heads.store == NULL)
        return cluster_directory_is_replaced(&c->directory, part->peers.incarnation);
    while (!worker_is_certain(c->worker)) {
        if (worker_await(c->worker, WORKER_RUNS, 0) != WORKER_RUNS ||
            (part->run != NULL && run_is_failing(part->run)))
            return true;
        nanosleep(&(struct timespec){.tv_nsec = LOOK_US * 1000}, NULL);
    }
    return false;
}

bool run_cluster_is_over(void *engine)
{
    const struct part *part = engine;
    return worker_await(part->cluster->worker, WORKER_RUNS, 0) != WORKER_RUNS;
}

/* Implements run_peers.send. */
static bool send_message(void *engine, uint32_t to, struct str message)
{
    const struct part *part = engine;
    return worker_send(part->cluster->worker, to, message);
}

/* Implements run_peers.flush. */
static void flush(void *engine)
{
    const struct part *part = engine;
    worker_flush(part->cluster->worker);
}

/* Implements run_peers.look_at_traffic. */
static void look_at_traffic(void *engine, struct run_traffic *traffic)
{
    const struct part *part = engine;
    struct worker_traffic now;
    worker_look_at_traffic(part->cluster->worker, &now);
    *traffic = (struct run_traffic){now.sent_bytes, now.sent_frames, now.received_bytes, now.round_trip_us,
                                    now.waiting_bytes};
}

bool run_cluster_set_peers(struct part *part)
{
    struct cluster *c = part->cluster;
    const struct rendezvous_round *round = part->round;
    const char **addresses = arena_array(&c->arena, const char *, round->count);
    for (uint32_t i = 0; i < round->count; i++)
        addresses[i] =
            arena_strndup(&c->arena, round->workers[i].address.data, round->workers[i].address.length);
    part->peers = (struct run_peers){
        .addresses = addresses,
        .look_at_traffic = look_at_traffic,
        .self = round->self,
        .count = round->count,
        .leader = round->leader,
        .send = send_message,
        .flush = flush,
        .engine = part,
        .directory = arena_printf(&c->arena, "%s/worker-%u", c->directory.folder, round->self),
        .incarnation = (uint32_t)round->incarnation + c->directory.before,
        .publish = publish,
        .store = part->heads.store,
        .homes = c->moves.homes,
        .are_parts_verified = part->is_prepared,
        .is_replaced = is_replaced,
        .is_over = run_cluster_is_over};
    if (round->incarnation <= UINT32_MAX - c->directory.before && cluster_moves_begin(&c->moves, round) &&
        hex_bytes(round->run, part->peers.job_run, sizeof(part->peers.job_run)))
        return true;
    diag_error(
        &c->load->diags, DIAG_CLUSTER_LOST, (struct span){0},
        "the cluster's record has no id of the job, no places of its parts, or incarnations beyond 32 bits");
    return false;
}

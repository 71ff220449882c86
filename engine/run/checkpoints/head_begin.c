/* Beginning with a head: the parts of all workers are one checkpoint (checkpoint_join), of which each stage instance takes what is its
 * own, at any number of workers: records and rows of its key groups, from whatever parts have them; all of a stage with one instance;
 * positions from the part of the worker that led. */
#include "run/checkpoints/internal.h"

#include "core/mem.h"
#include "core/os.h"
#include "run/base/placements.h"
#include "run/head_store.h"
#include "state/checkpoint_store_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* The highest generation of all parts. */
static uint32_t newest_of(const struct run_head *head)
{
    uint32_t newest = 0;
    for (uint32_t i = 0; head != NULL && i < head->count; i++)
        newest = MAX(newest, head->parts[i].id.generation);
    return newest;
}

static bool refuse_mode(struct run *run)
{
    bool is_fresh = run->options.mode == RUN_FRESH;
    struct diag *d = diag_error(run->diags, DIAG_RESUME_OR_FRESH, (struct span){0},
                                "the job is to begin with a head, and %s: expected one of the two",
                                is_fresh ? "without state" : "with the checkpoint of another run");
    diag_hint(run->diags, d, "to go on from the head, leave out %s; else leave out the head",
              is_fresh ? "--fresh" : "--from");
    return false;
}

/* Sets the key groups of all instances of this worker. */
static void set_own_groups(const struct run *run, const struct placement *placement, struct group_set *groups)
{
    *groups = (struct group_set){0};
    for (uint32_t g = 0; g < KEY_GROUPS; g++)
        if (peers_has_instance(run, placement->instance[g]))
            bit_set(groups->words, g);
}

/* Whether this worker is the home of a stage with one instance that keeps state by key group: of such state it needs all. */
static bool has_single_stage(const struct run *run)
{
    bool has = false;
    for (uint32_t i = 0; i < run->plan->nodes_count; i++) {
        const struct plan_node *node = &run->plan->nodes[i];
        has |= node->needs_memory && part_is_single(run, node) &&
               peers_home(run, node->stage) == peers_self(run);
    }
    return has;
}

/* Sets the key groups of which this worker needs state. Where groups will be, the leader's part says, without the state of any. False
 * after a diagnostic. */
static bool find_needed(struct run *run, struct run_head_fetch fetch, struct group_set *groups)
{
    static const struct group_set none;
    const struct run_head *head = run->checkpoints->head;
    struct run_head *leaders = mem_calloc(1, sizeof(*leaders));
    struct placement before, placement = {0};
    *leaders = (struct run_head){.run = head->run, .epoch = head->epoch, .count = 1};
    leaders->parts[0] = head->parts[head->leader];
    fetch.to = arena_printf(&run->arena, "%s/leader", fetch.to);
    fetch.groups = &none;
    struct checkpoint *part = run_head_fetch(leaders, &fetch, run->diags)
                                  ? run_head_open(leaders, (struct str){"", 0}, run->diags)
                                  : NULL;
    bool is_good = part != NULL && placements_first(run, part, &before, &placement);
    set_own_groups(run, &placement, groups);
    checkpoint_close(part);
    free(leaders);
    return is_good;
}

static const char *folder_of_parts(struct run *run)
{
    return arena_printf(&run->arena, "%s/.head", run->path);
}

/* Brings the parts of a head that lie in the store to this machine. False after a diagnostic. */
static bool fetch_parts(struct run *run)
{
    struct run_head *head = run->checkpoints->head;
    const struct run_peers *peers = run->options.peers;
    struct group_set groups;
    if (peers == NULL || peers->store == NULL)
        return true;
    if (peers->self < head->count)
        checkpoint_store_know_part(peers->store, head->parts[peers->self].directory);
    char *near = os_directory(run->path);
    struct run_head_fetch fetch = {.store = peers->store,
                                   .near = near,
                                   .to = folder_of_parts(run),
                                   .is_verified = peers->are_parts_verified,
                                   .arena = &run->arena};
    head_forget(run);
    bool needs_all = peers_count(run) == 1 || has_single_stage(run);
    bool is_good = needs_all || find_needed(run, fetch, &groups);
    fetch.groups = needs_all ? NULL : &groups;
    is_good = is_good && run_head_fetch(head, &fetch, run->diags);
    if (is_good)
        run_note(run, "%u of %u parts of the head come from the store: %llu bytes", (unsigned)fetch.got,
                 head->count, (unsigned long long)fetch.bytes);
    free(near);
    return is_good;
}

void head_forget(struct run *run)
{
    if (run->options.peers != NULL && run->options.peers->store != NULL)
        (void)os_remove_tree(folder_of_parts(run)); /* what stays is removed by the next start */
}

bool head_read(struct run *run)
{
    const char *why;
    struct run_head *head;
    if (run->options.head.length == 0)
        return true;
    if (run->options.mode == RUN_FRESH || run->options.mode == RUN_FROM)
        return refuse_mode(run);
    run->checkpoints->head = head = mem_calloc(1, sizeof(*head));
    if (run_head_decode(run->options.head, head, &why)) {
        if (!fetch_parts(run))
            return false;
        run->resumed = run_head_open(head, str_from(run->plan->fingerprint), run->diags);
        run->is_resumed = run->resumed != NULL;
        return run->is_resumed;
    }
    struct diag *d = diag_error(run->diags, DIAG_CHECKPOINT_DAMAGED, (struct span){0},
                                "the head with which the job is to begin is damaged: %s", why);
    diag_hint(run->diags, d, "begin with an earlier head, or start the job anew");
    return false;
}

/* A life that began with a head, and ended before its first checkpoint, leaves nothing in the directory to go on from; nor does a worker,
 * whose parts are nothing without a head. */
bool head_may_begin_anew(struct run *run)
{
    struct byte_buffer manifest = {0};
    struct run_head *head = mem_calloc(1, sizeof(*head));
    const char *why;
    char of_epoch[40] = "";
    bool has_begun = checkpoint_newest_head(run->dir, &manifest);
    if (has_begun && run_head_decode((struct str){manifest.data, manifest.length}, head, &why))
        snprintf(of_epoch, sizeof(of_epoch), " of epoch %llu", (unsigned long long)head->epoch);
    free(head);
    buffer_free(&manifest);
    if (!has_begun && (run->options.peers == NULL || !checkpoint_has_named(run->dir)))
        return true;
    struct diag *d = diag_error(run->diags, DIAG_RESUME_OR_FRESH, (struct span){0},
                                has_begun ? "the run in `%s` began with the head%s, and no head is given"
                                          : "`%s` has a part of a head%s, and no head is given",
                                run->path, of_epoch);
    diag_hint(
        run->diags, d,
        "begin with the newest head of the job; or --fresh begins without state: then rows that are out are written again");
    return false;
}

static bool refuse_incarnation(struct run *run, uint32_t wanted, uint32_t found)
{
    struct diag *d =
        diag_error(run->diags, DIAG_RESUME_OR_FRESH, (struct span){0},
                   "incarnation %u cannot begin in `%s`: there are checkpoints of incarnation %u or later",
                   wanted, run->path, found);
    diag_hint(run->diags, d, "begin with an incarnation above that of all checkpoints of the job");
    return false;
}

static bool refuse_directory(struct run *run)
{
    struct diag *d = diag_error(run->diags, DIAG_FOREIGN_DIRECTORY, (struct span){0},
                                "a worker's directory: expected a path of 1 to %d bytes, found %zu bytes",
                                CHECKPOINT_PATH_BYTES / 2 - 1, strlen(run->options.peers->directory));
    diag_hint(run->diags, d, "give the job a checkpoint directory with a shorter path");
    return false;
}

/* The part of the head that lies in this run's own directory, whatever the path by which the head names it; generation 0: none does. */
static struct checkpoint_id own_part(struct run *run)
{
    const struct run_head *head = run->checkpoints->head;
    struct stat own, other;
    if (head == NULL || stat(run->path, &own) != 0)
        return (struct checkpoint_id){0};
    for (uint32_t i = 0; i < head->count; i++)
        if (stat(arena_strndup(&run->arena, head->parts[i].directory.data, head->parts[i].directory.length),
                 &other) == 0 &&
            own.st_dev == other.st_dev && own.st_ino == other.st_ino)
            return head->parts[i].id;
    return (struct checkpoint_id){0};
}

void head_digest_placement(const struct run *run, const struct run_head *head,
                           const struct placement *placement, uint64_t move_seed,
                           uint8_t digest[CHECKPOINT_DIGEST_BYTES])
{
    uint32_t workers = head != NULL ? head->count : peers_count(run);
    struct byte_buffer bytes = {0};
    words_put(&bytes, workers);
    words_put(&bytes, placement->instances);
    words_put(&bytes, move_seed); /* by it, and by the version, operators move from database to database */
    words_put(&bytes, move_seed == 0 ? 0 : placement->version);
    buffer_append(&bytes, placement->instance, sizeof(placement->instance));
    for (uint32_t i = 0; i < run->plan->stages_count; i++)
        words_put(&bytes, run->plan->stages[i].tag != STAGE_SINGLE ? 0
                          : head != NULL                           ? head_home_before(run, head, i)
                                                                   : peers_home(run, i));
    /* Another version of leat may divide the job otherwise. */
    for (uint32_t i = 0; i < run->plan->nodes_count; i++) {
        words_put_text(&bytes, str_from(run->plan->nodes[i].label));
        words_put(&bytes, run->plan->nodes[i].stage);
    }
    checkpoint_digest_of((struct str){bytes.data, bytes.length}, digest);
    buffer_free(&bytes);
}

void head_note_placement(struct checkpoints *c)
{
    const struct run *run = c->run;
    const struct placement *now = placements_now(run);
    set_own_groups(run, now, &c->groups);
    head_digest_placement(run, NULL, now, run->options.move_seed, c->placement);
}

bool head_start(struct run *run)
{
    const struct run_head *head = run->checkpoints->head;
    const struct run_peers *peers = run->options.peers;
    uint32_t newest = MAX(newest_of(head), checkpoint_newest_generation(run->dir));
    struct run_id id = {{0}};
    if (head != NULL)
        id = head->run;
    else
        memcpy(id.bytes, peers->job_run, sizeof(id.bytes));
    if (peers != NULL && !run_head_directory_is_good(str_from(peers->directory)))
        return refuse_directory(run);
    head_note_placement(run->checkpoints);
    uint32_t generation = peers != NULL ? peers->incarnation : newest + 1;
    if (generation <= newest) /* where newest + 1 is 0, too */
        return refuse_incarnation(run, generation, newest);
    struct checkpoint_part_start start = {.parent = own_part(run),
                                          .run = id,
                                          .generation = generation,
                                          .groups = peers_count(run) > 1 ? &run->checkpoints->groups : NULL,
                                          .head = run->options.head,
                                          .awaits_head = peers != NULL};
    return checkpoint_start_part(run->dir, &start, run->diags);
}

/* Beginning with a head: the parts of all workers are one checkpoint (checkpoint_join), of which each stage instance takes what is its
 * own, at any number of workers: records and rows of its key groups, from whatever parts have them; all of a stage with one instance;
 * positions from the part of the worker that led. */
#include "run/checkpoints/internal.h"

#include "core/mem.h"
#include "run/base/placements.h"

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

/* The key groups of all instances of this worker; NULL: it has all. */
static const struct group_set *own_groups(struct run *run)
{
    uint32_t first = peers_first_instance(run);
    const struct placement *now = placements_now(run);
    if (peers_count(run) == 1)
        return NULL;
    struct group_set *groups = arena_calloc(&run->arena, 1, sizeof(*groups));
    for (uint32_t g = 0; g < KEY_GROUPS; g++)
        if (now->instance[g] - first < run->lanes_count)
            bit_set(groups->words, g);
    return groups;
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
    uint32_t generation = peers != NULL ? peers->incarnation : newest + 1;
    if (generation <= newest) /* where newest + 1 is 0, too */
        return refuse_incarnation(run, generation, newest);
    struct checkpoint_part_start start = {.parent = own_part(run),
                                          .run = id,
                                          .generation = generation,
                                          .groups = own_groups(run),
                                          .head = run->options.head,
                                          .awaits_head = peers != NULL};
    return checkpoint_start_part(run->dir, &start, run->diags);
}

void head_placement(const struct run *run, uint8_t placement[CHECKPOINT_DIGEST_BYTES])
{
    const struct placement *now = placements_now(run);
    struct byte_buffer bytes = {0};
    words_put(&bytes, peers_count(run));
    words_put(&bytes, now->instances);
    buffer_append(&bytes, now->instance, sizeof(now->instance));
    checkpoint_digest_of((struct str){bytes.data, bytes.length}, placement);
    buffer_free(&bytes);
}

uint32_t head_own_part(const struct run *run)
{
    const struct run_head *head = run->checkpoints == NULL ? NULL : run->checkpoints->head;
    uint8_t placement[CHECKPOINT_DIGEST_BYTES];
    if (head == NULL || run->options.peers == NULL)
        return 0;
    head_placement(run, placement);
    if (memcmp(placement, head->placement, sizeof(placement)) != 0)
        return 0;
    /* Parts are joined from the leader's on. */
    return 1 + (peers_self(run) + head->count - head->leader) % head->count;
}

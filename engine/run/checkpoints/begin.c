/* What a run begins with: chooses the checkpoint, opens the state store, and restores sources and nodes. */
#include "run/checkpoints/internal.h"

#include "core/mem.h"
#include "core/os.h"
#include "core/wait.h"
#include "run/base/placements.h"
#include "run/base/positions.h"
#include "run/lanes/lanes.h"
#include "run/sequencer/sequencer.h"
#include "state/state.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static bool refuse_choice(struct run *run, bool has_checkpoint)
{
    if (run->options.mode == RUN_RESUME && !has_checkpoint) {
        struct diag *d = diag_error(run->diags, DIAG_RESUME_OR_FRESH, (struct span){0},
                                    "there is no checkpoint to resume from in `%s`", run->path);
        diag_hint(run->diags, d, "start the job without --resume");
        return false;
    }
    return true;
}

static struct checkpoints *new_checkpoints(struct run *run)
{
    struct checkpoints *c = mem_calloc(1, sizeof(*c));
    c->run = run;
    c->next_epoch = 1;
    c->many = many_new(run);
    diag_list_init(&c->diags, &c->arena);
    run->checkpoints = c;
    run->barrier = run->trace == NULL ? barrier_new() : NULL;
    return c;
}

static bool refuse_without(struct run *run)
{
    struct diag *d =
        diag_error(run->diags, DIAG_RESUME_OR_FRESH, (struct span){0}, "this job takes no checkpoints");
    diag_hint(run->diags, d,
              "set a checkpoint directory in the job block: `checkpoint: { dir: \"state/%.*s\" }`",
              STR_ARGS(run->plan->name));
    return false;
}

/* A worker's directory holds parts, with which no run begins by itself: without a head, workers begin with nothing, or with another run's
 * checkpoint; in each incarnation anew, until there is a head. False after a diagnostic. */
static bool begin_anew(struct run *run)
{
    if (!refuse_choice(run, false) || (run->options.mode != RUN_FRESH && !head_may_begin_anew(run)))
        return false;
    /* Where sinks have moved, parts of their files were written by another worker of an incarnation before. */
    run->replaces_parts = !checkpoint_dir_is_empty(run->dir) || run->options.peers->incarnation > 1;
    return run->options.mode != RUN_FROM || from_open(run);
}

/* Finds the checkpoint to begin with: the newest of the directory, another run's, or none; a head's is found before. False after a
 * diagnostic. */
static bool find_begin(struct run *run)
{
    enum run_start_mode mode = run->options.mode;
    if (run->checkpoints->head != NULL)
        return true;
    if (run->options.peers != NULL)
        return begin_anew(run);
    if (mode == RUN_FRESH)
        return true;
    if (mode == RUN_FROM && !from_has_begun(run))
        return from_open(run);
    enum checkpoint_found found = checkpoint_find(run->dir, &run->resumed, run->diags);
    if (found == CHECKPOINT_NONE && from_is_unfinished(run)) {
        run->replaces_parts = true;
        return from_open(run);
    }
    if (found == CHECKPOINT_NONE && !head_may_begin_anew(run))
        return false;
    if (found == CHECKPOINT_REFUSED)
        inputs_explain_refusal(run);
    if (found == CHECKPOINT_REFUSED || !refuse_choice(run, found == CHECKPOINT_FOUND))
        return false;
    run->is_resumed = found == CHECKPOINT_FOUND;
    run->replaces_parts = found == CHECKPOINT_NONE && !checkpoint_dir_is_empty(run->dir);
    return true;
}

/* Implements sink_context.known_next. Sinks commit what a head covers when they are told of it, so nothing is out beyond the newest head,
 * whatever order logs lie in this directory; and workers that begin without a head have sent nothing. */
static uint64_t known_next(void *engine)
{
    const struct run *run = engine;
    if (run->checkpoints->head != NULL)
        return positions_micro_batch(checkpoint_info(run->resumed)->sources);
    return run->options.peers != NULL ? 0 : checkpoint_order_next(run->dir);
}

/* Implements sink_context.take_segment. */
static bool take_segment(void *engine, struct str segment)
{
    struct run *run = engine;
    return checkpoint_redo_take(run->dir, segment, run->diags);
}

/* The run that goes on here, or was here; false: there is none. */
static bool run_before(const struct run *run, struct run_id *before)
{
    const struct run_head *head = run->checkpoints->head;
    if (head == NULL && run->options.peers == NULL)
        return checkpoint_newest_run(run->dir, before);
    memcpy(before->bytes, head != NULL ? head->run.bytes : run->options.peers->job_run,
           sizeof(before->bytes));
    return true;
}

/* Shuts out any process that still sends for that run: rows that its sinks sent while a checkpoint is chosen would lie behind the chosen
 * checkpoint, and their order would be unknown. A head is chosen before by who leads, after the incarnations before it have ended. false
 * after a diagnostic. */
static bool fence_sinks(struct run *run)
{
    struct run_id before;
    bool goes_on = run->options.mode == RUN_AUTO || run->options.mode == RUN_RESUME;
    bool is_restored = goes_on && run->checkpoints->head == NULL && checkpoint_is_restored(run->dir);
    if (!run_before(run, &before))
        return true;
    for (uint32_t i = 0; i < run->plan->nodes_count; i++) {
        const struct plan_node *node = &run->plan->nodes[i];
        if (node->tag != PLAN_SINK || node->sink_kind->fence == NULL ||
            !peers_has_stage(run, peers_self(run), node->stage))
            continue;
        struct sink_context context = {.config = arena_copy(&run->arena, node->config, node->sink_kind->size),
                                       .input = node->bound[0].schema,
                                       .arena = &run->arena,
                                       .diags = run->diags,
                                       .has_checkpoints = true,
                                       .check = fence_check,
                                       .engine = run,
                                       .known_next = goes_on ? known_next : NULL,
                                       .take_segment = is_restored ? take_segment : NULL,
                                       .job = run->plan->name,
                                       .name = node->name};
        memcpy(context.run_id, before.bytes, sizeof(context.run_id));
        if (!node->sink_kind->fence(&context))
            return false;
    }
    return true;
}

/* The cluster's name and the processes that are its workers, for people: "`ctr`: worker 0 is pid 4711 on mill-3". */
static const char *describe_cluster(struct run *run, const char *folder)
{
    enum { NAMED_MAX = 3 };
    uint32_t named = 0;
    char *name = NULL, holder[CHECKPOINT_HOLDER_BYTES];
    size_t length = 0;
    bool is_known = os_read_file(arena_printf(&run->arena, "%s/NAME", folder), 256, &name, &length) == 0;
    const char *text = is_known ? arena_printf(&run->arena, "`%.*s`", (int)length, name) : "(unknown)";
    free(name);
    for (uint32_t i = 0; i < RUN_WORKERS_MAX && named < NAMED_MAX; i++)
        if (checkpoint_holder(arena_printf(&run->arena, "%s/worker-%u", folder, i), holder))
            text =
                arena_printf(&run->arena, "%s%s worker %u is %s", text, named++ == 0 ? ":" : ",", i, holder);
    return text;
}

/* Refuses a run that is alone where a cluster goes on: it would do again what the cluster has done. */
static bool refuse_cluster(struct run *run)
{
    const char *folder = arena_printf(&run->arena, "%s/" CHECKPOINT_CLUSTER, run->path);
    if (run->options.peers != NULL || run->trace != NULL || run->checkpoints->head != NULL ||
        access(folder, F_OK) != 0)
        return true;
    struct diag *d = diag_error(run->diags, DIAG_FOREIGN_DIRECTORY, (struct span){0},
                                "a cluster goes on with the checkpoints in `%s`, %s", run->path,
                                describe_cluster(run, folder));
    diag_hint(
        run->diags, d,
        "run the job with --cluster, also on one machine (--nodes=1); or begin anew in another directory");
    return false;
}

bool checkpoints_init(struct run *run)
{
    const struct job_checkpoint *config = &run->plan->config.checkpoint;
    uint32_t next_id;
    if (config->directory.length == 0)
        return run->options.mode != RUN_RESUME && run->options.mode != RUN_FROM ? parts_init(run, &next_id)
                                                                                : refuse_without(run);
    const char *path = run->options.peers != NULL
                           ? run->options.peers->directory
                           : arena_strndup(&run->arena, config->directory.data, config->directory.length);
    if (run->trace != NULL && access(path, F_OK) != 0)
        return parts_init(run, &next_id);
    struct checkpoints *c = new_checkpoints(run);
    struct checkpoint_dir_options options = {
        .path = path,
        .take_over = run->options.take_over,
        .read_only = run->trace != NULL,
        .fingerprint = str_from(run->plan->fingerprint),
        .profile = STR("cpu"),
        .keep = {.last = config->keep.last, .hourly = config->keep.hourly, .daily = config->keep.daily},
    };
    run->path = options.path;
    run->job_path = arena_strndup(&run->arena, config->directory.data, config->directory.length);
    run->dir = checkpoint_dir_open(&options, run->diags);
    if (run->dir == NULL)
        return false;
    if (checkpoint_dir_taken_from(run->dir) != NULL)
        run_note(run, "taking over `%s` from %s", run->path, checkpoint_dir_taken_from(run->dir));
    if (!upload_open(run) ||
        (run->trace == NULL && (!head_read(run) || !refuse_cluster(run) || !fence_sinks(run))))
        return false;
    if (!(run->trace != NULL ? before_record_choose(run) : find_begin(run)) || !parts_init(run, &next_id))
        return false;
    parts_put(run, next_id, &c->parts);
    if (run->trace == NULL) {
        inputs_put(c, &c->inputs);
        inputs_tell(run);
    }
    if (run->is_resumed) {
        c->next_epoch = checkpoint_info(run->resumed)->id.epoch + 1;
        struct str positions = checkpoint_info(run->resumed)->sources;
        run->was_finished = !run->is_from && positions_state(positions) == POSITIONS_FINAL;
        run->was_at_until = !run->is_from && positions_until(positions) >= run->options.until_us;
    }
    return true;
}

/* RocksDB gets a quarter of the memory budget, for its block cache and write buffers. */
bool checkpoints_open_state(struct run *run)
{
    struct checkpoints *c = run->checkpoints;
    const char *path = NULL;
    bool is_worker = run->options.peers != NULL;
    if (c != NULL && run->trace == NULL) {
        if (run->is_resumed && !run->is_from && c->head == NULL)
            checkpoint_redo_find(run->dir, positions_micro_batch(checkpoint_info(run->resumed)->sources),
                                 run->diags);
        if (!run->is_from)
            from_store_forget(run, run->diags);
        const struct run_id *before = run->is_begun_again ? &c->from_run : NULL;
        if (is_worker || c->head != NULL ? !head_start(run)
            : run->is_from               ? !checkpoint_start_from(run->dir, &c->from, before, run->diags)
                                         : !checkpoint_start_generation(run->dir, run->resumed, run->diags))
            return false;
        path = checkpoint_database_path(run->dir, 0, &run->arena);
    } else if (run->plan->has_state) {
        if (!temporary_directory_make(&run->temporary)) {
            int error = errno;
            struct diag *d =
                diag_error(run->diags, DIAG_STATE_FAILED, (struct span){0},
                           "cannot create a temporary directory for state that does not fit into memory");
            diag_errno(run->diags, d, error);
            diag_hint(run->diags, d,
                      "set TMPDIR to a directory where this user may write: TMPDIR=DIR leat run ...");
            return false;
        }
        path = arena_printf(&run->arena, "%s/db", run->temporary.path);
    }
    if (!run->plan->has_state)
        return true;
    int64_t memory = run->plan->config.memory_bytes;
    struct head_databases chosen;
    head_choose_databases(run, &chosen);
    struct state_stores_options options = {.path = path,
                                           .count = placements_may_change(run) ? run->lanes_count : 1,
                                           .are_shared = !placements_may_change(run),
                                           .memory_bytes = (size_t)(memory / 4),
                                           .from = run->is_resumed ? run->resumed : NULL,
                                           .part = chosen.own,
                                           .needed = chosen.is_known ? chosen.needed : NULL,
                                           .are_of_some = peers_count(run) > 1};
    run->operator_memory_bytes = memory / 2;
    if (!state_stores_open(&run->stores, &options, run->diags))
        return false;
    head_drop_left(run);
    if (c != NULL && c->head != NULL && run->stores.taken + run->stores.foreign_count > 0)
        run_note(run, "databases of the head: %u go on here, and of %u others rows are taken",
                 run->stores.taken, run->stores.foreign_count);
    if (is_worker && run->stores.taken > 0)
        checkpoint_share_databases(run->dir, run->resumed, run->stores.taken_first);
    for (uint32_t i = 0; i < run->stores.count && run->temporary.path != NULL; i++)
        state_store_set_temporary(run->stores.items[i]);
    return true;
}

bool checkpoints_restore(struct run *run)
{
    const struct checkpoint_info *info = checkpoint_info(run->resumed);
    failpoint("restore.begin");
    if (!sequencer_restore(run, info->sources) || !lanes_import(run) || !lanes_restore(run, run->resumed))
        return false;
    if (run->barrier != NULL)
        atomic_store(&run->barrier->published, info->id.epoch);
    if (run->barrier != NULL && (!run_awaits_store(run) || run->is_from))
        atomic_store(&run->barrier->committed, info->id.epoch);
    run->resumed_generation = info->id.generation;
    run->resumed_epoch = info->id.epoch;
    checkpoint_close(run->resumed);
    run->resumed = NULL;
    head_forget(run);
    failpoint("restore.end");
    return true;
}

void checkpoints_close(struct run *run)
{
    checkpoint_close(run->resumed);
    checkpoint_dir_close(run->dir);
    run->resumed = NULL;
    run->dir = NULL;
}

void checkpoints_free(struct run *run)
{
    struct checkpoints *c = run->checkpoints;
    if (c != NULL)
        upload_free(c->upload); /* looks at the directory */
    checkpoints_close(run);
    barrier_free(run->barrier);
    run->barrier = NULL;
    if (c == NULL)
        return;
    checkpoint_dir_close(c->from_dir);
    temporary_directory_remove(&c->from_temporary);
    checkpoint_from_free(&c->from);
    many_free(c->many);
    free(c->head);
    buffer_free(&c->parts);
    buffer_free(&c->inputs);
    arena_free(&c->arena);
    free(c);
    run->checkpoints = NULL;
}

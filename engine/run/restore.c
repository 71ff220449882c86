/* Resuming from a checkpoint: chooses it, reads it, and gives every node its state back. */
#include "run/barrier.h"
#include "run/parts.h"

#include "core/wait.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static bool refuse_choice(struct run *run, bool has_checkpoint)
{
    if (run->options.mode == RUN_RESUME && !has_checkpoint) {
        struct diag *d = diag_error(run->diags, DIAG_E0707, (struct span){0},
                                    "there is no checkpoint to resume from in `%.*s`",
                                    STR_ARGS(run->plan->config.checkpoint.directory));
        diag_hint(run->diags, d, "leave --resume away to start the job");
        return false;
    }
    return true;
}

static struct run_checkpoints *new_checkpoints(struct run *run)
{
    struct run_checkpoints *c = calloc(1, sizeof(*c));
    leat_assert(c != NULL);
    c->run = run;
    c->next_epoch = 1;
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->condition, NULL);
    diag_list_init(&c->diags, &c->arena);
    run->checkpoints = c;
    return c;
}

static bool refuse_without(struct run *run)
{
    struct diag *d = diag_error(run->diags, DIAG_E0707, (struct span){0}, "this job takes no checkpoints");
    diag_hint(run->diags, d, "give it a directory: `checkpoint: { dir: \"state/%.*s\" }` in the job block",
              STR_ARGS(run->plan->name));
    return false;
}

/* Finds the checkpoint to begin with: the newest of the directory, another run's, or none. False after a
 * diagnostic. */
static bool find_begin(struct run *run)
{
    struct run_checkpoints *c = run->checkpoints;
    enum run_start_mode mode = run->options.mode;
    if (mode == RUN_FRESH)
        return true;
    if (mode == RUN_FROM && !from_has_begun(run))
        return from_open(run);
    enum checkpoint_found found = checkpoint_find(c->dir, &c->resumed, run->diags);
    if (found == CHECKPOINT_NONE && from_is_unfinished(run)) {
        run->replaces_parts = true;
        return from_open(run);
    }
    if (found == CHECKPOINT_REFUSED || !refuse_choice(run, found == CHECKPOINT_FOUND))
        return false;
    run->is_resumed = found == CHECKPOINT_FOUND;
    run->replaces_parts = found == CHECKPOINT_NONE && !checkpoint_dir_is_empty(c->dir);
    return true;
}

bool checkpoints_init(struct run *run)
{
    const struct job_checkpoint *config = &run->plan->config.checkpoint;
    if (config->directory.length == 0)
        return run->options.mode != RUN_RESUME && run->options.mode != RUN_FROM ? parts_init(run)
                                                                                : refuse_without(run);
    const char *path = arena_strndup(&run->arena, config->directory.data, config->directory.length);
    if (run->trace != NULL && access(path, F_OK) != 0)
        return parts_init(run);
    struct run_checkpoints *c = new_checkpoints(run);
    struct checkpoint_dir_options options = {
        .path = path,
        .take_over = run->options.take_over,
        .read_only = run->trace != NULL,
        .fingerprint = str_from(run->plan->fingerprint),
        .profile = STR("cpu"),
        .keep = {.last = config->keep.last, .hourly = config->keep.hourly, .daily = config->keep.daily},
    };
    c->path = options.path;
    c->dir = checkpoint_dir_open(&options, run->diags);
    if (c->dir == NULL)
        return false;
    if (checkpoint_dir_taken_from(c->dir) != NULL)
        run_note(run, "taking over `%s` from %s", c->path, checkpoint_dir_taken_from(c->dir));
    if (run->trace == NULL && !fence_sinks(run))
        return false;
    if (!(run->trace != NULL ? trace_choose(run) : find_begin(run)) || !parts_init(run))
        return false;
    parts_put(run, &c->parts);
    if (run->is_resumed) {
        c->next_epoch = checkpoint_info(c->resumed)->id.epoch + 1;
        run->was_finished = !run->is_from && positions_are_final(checkpoint_info(c->resumed)->sources);
    }
    return true;
}

/* RocksDB gets a quarter of the memory budget, for its block cache and write buffers. */
bool checkpoints_open_state(struct run *run)
{
    struct run_checkpoints *c = run->checkpoints;
    const char *path = NULL;
    if (c != NULL && run->trace == NULL) {
        if (run->is_resumed && !run->is_from)
            checkpoint_redo_find(c->dir, c->resumed, positions_number(checkpoint_info(c->resumed)->sources),
                                 run->diags);
        const struct run_id *before = c->has_from_run ? &c->from_run : NULL;
        if (run->is_from ? !checkpoint_start_from(c->dir, &c->from, before, run->diags)
                         : !checkpoint_start_generation(c->dir, c->resumed, run->diags))
            return false;
        path = checkpoint_database_path(c->dir);
    } else if (run->plan->has_state) {
        if (!temporary_directory_make(&run->temporary)) {
            int error = errno;
            struct diag *d =
                diag_error(run->diags, DIAG_E0801, (struct span){0},
                           "no temporary directory can be made for state that does not fit into memory");
            diag_errno(run->diags, d, error);
            diag_hint(run->diags, d, "name one where this user may write: TMPDIR=DIR leat run ...");
            return false;
        }
        path = arena_printf(&run->arena, "%s/db", run->temporary.path);
    }
    if (!run->plan->has_state)
        return true;
    bool has_database = run->is_resumed && checkpoint_info(c->resumed)->has_database;
    if (has_database && !checkpoint_restore_database(c->resumed, path, run->diags))
        return false;
    int64_t memory = run->plan->config.memory_bytes;
    run->state_store = state_store_open(path, (size_t)(memory / 4), has_database, run->diags);
    if (run->state_store != NULL && run->temporary.path != NULL)
        state_store_set_temporary(run->state_store);
    run->operator_memory_bytes = memory / 2;
    return run->state_store != NULL;
}

bool checkpoints_have_sink(struct run *run, const struct plan_node *sink)
{
    if (!run->is_resumed || sink->sink_kind->snapshot == NULL)
        return run->is_resumed;
    if (run->is_from && !run->has_saved[sink->place])
        return false; /* the run's notes have said so */
    char prefix[CHECKPOINT_SINK_BYTES];
    checkpoint_sink_part(sink, prefix);
    uint32_t group;
    struct str data;
    struct snapshot_reader *reader = checkpoint_reader(run->checkpoints->resumed, prefix, 0, 0, run->diags);
    bool is_there = reader != NULL && snapshot_get(reader, &group, &data);
    /* A damaged part counts as there: the restore reports it. */
    bool is_good = reader != NULL && checkpoint_reader_close(reader);
    if (is_there || !is_good)
        return true;
    struct diag *d = diag_warning(run->diags, DIAG_E0707, sink->span,
                                  "sink `%.*s` is not in the checkpoint: it begins with the rows after it",
                                  STR_ARGS(sink->name));
    diag_hint(run->diags, d, "to have all rows in it, start anew with --fresh");
    return false;
}

static bool restore_counters(struct run *run, struct node_instance *node, struct checkpoint *from)
{
    char prefix[CHECKPOINT_PART_BYTES];
    checkpoint_counters_part(node, prefix);
    struct snapshot_reader *reader = checkpoint_reader(from, prefix, 0, 0, run->diags);
    uint32_t group;
    struct str data;
    struct saved_counters newest = {0};
    while (reader != NULL && snapshot_get(reader, &group, &data)) {
        struct saved_counters part;
        if (data.length != sizeof(part)) {
            snapshot_corrupt(reader, run->diags, "counters of another size");
            break;
        }
        memcpy(&part, data.data, sizeof(part));
        if (part.epoch > newest.epoch)
            newest = part;
        else if (part.epoch == newest.epoch)
            counters_add(&newest.counters, &part.counters);
    }
    node->context.counters = newest.counters;
    return reader != NULL && checkpoint_reader_close(reader);
}

/* Whether the sink kept its name and changed its kind: it cannot restore the other kind's state. True after
 * a diagnostic. */
static bool is_other_kind(struct run *run, const struct plan_node *sink, struct checkpoint *from)
{
    char name[CHECKPOINT_PART_BYTES], kind[64] = "";
    uint32_t group;
    struct str data;
    checkpoint_kind_part(sink, name);
    struct snapshot_reader *reader = checkpoint_reader(from, name, 0, 0, run->diags);
    while (snapshot_get(reader, &group, &data))
        snprintf(kind, sizeof(kind), "%.*s", STR_ARGS(data));
    if (!checkpoint_reader_close(reader))
        return true;
    if (strcmp(kind, sink->sink_kind->name) == 0)
        return false;
    struct diag *d = diag_error(run->diags, DIAG_E0707, sink->span,
                                "sink `%.*s` was of kind `%s` when the checkpoint was taken, and is `%s` now",
                                STR_ARGS(sink->name), kind, sink->sink_kind->name);
    diag_hint(run->diags, d,
              "give it its kind back; or give the sink another name: it then begins with the rows after the "
              "checkpoint; or start anew with --fresh");
    return true;
}

static bool restore_sink(struct run *run, struct node_instance *node, struct checkpoint *from)
{
    if (is_other_kind(run, node->node, from))
        return false;
    char prefix[CHECKPOINT_PART_BYTES];
    checkpoint_sink_part(node->node, prefix);
    struct snapshot_reader *reader = checkpoint_reader(from, prefix, 0, 1, run->diags);
    if (reader == NULL)
        return false;
    bool is_good = node->node->sink_kind->restore(&node->sink, reader);
    return checkpoint_reader_close(reader) && is_good;
}

/* Any thread; an instance is restored by one thread. */
static bool restore_operator(struct node_instance *node, struct checkpoint *from, struct diag_list *diags)
{
    char prefix[CHECKPOINT_PART_BYTES];
    struct run *run = node->stage->run;
    struct diag_list *usual = node->context.diags;
    snprintf(prefix, sizeof(prefix), "op/%u/", node->context.id);
    struct snapshot_reader *reader = checkpoint_reader(from, prefix, node->stage->instance,
                                                       run->stage_instances[node->stage->index], diags);
    if (reader == NULL)
        return false;
    node->context.diags = diags;
    bool is_good = node->node->operator_kind->restore(&node->context, reader);
    node->context.diags = usual;
    return checkpoint_reader_close(reader) && is_good;
}

/* Watermarks as they were after the last micro-batch, so that rows are judged late as before. */
static void restore_watermarks(struct run *run, struct stage_instance *stage)
{
    struct slot last = {.watermarks = run->sequencer.source_watermarks};
    stage_set_watermarks(stage, &last);
    for (uint32_t i = 0; i < stage->stage->nodes_count; i++)
        stage->nodes[i].context.watermark = stage_input_watermark(&stage->nodes[i]);
}

static bool restore_node(struct run *run, struct stage_instance *stage, struct node_instance *node,
                         struct checkpoint *from, struct diag_list *diags)
{
    const struct plan_node *plan_node = node->node;
    bool is_saved = run->has_saved[plan_node->place];
    /* The first instance gets the sum of the counters that the earlier life's instances had. */
    if (stage->instance == 0 && is_saved && !restore_counters(run, node, from))
        return false;
    if (plan_node->tag == PLAN_SINK)
        return plan_node->sink_kind->restore == NULL || !node->sink.is_resumed ||
               restore_sink(run, node, from);
    return !is_saved || plan_node->operator_kind == NULL || plan_node->operator_kind->restore == NULL ||
           restore_operator(node, from, diags);
}

/* The instances with one index, of all stages, which one thread restores. Each lane's state is separate,
 * and most of the time goes into reading it and into the first use of memory. Instance 0 also restores what
 * exists only once. */
struct restoring {
    struct run *run;
    uint32_t instance;
    struct arena arena;
    struct diag_list diags;
    pthread_t thread;
    bool has_thread, is_good;
};

static void *restore_instances(void *argument)
{
    struct restoring *r = argument;
    struct run *run = r->run;
    struct diag_list *diags = r->instance == 0 ? run->diags : &r->diags;
    r->is_good = true;
    for (uint32_t i = 0; i < run->stages_total && r->is_good; i++) {
        struct stage_instance *stage = run->stages[i];
        for (uint32_t k = 0; k < stage->stage->nodes_count && stage->instance == r->instance && r->is_good;
             k++)
            r->is_good = restore_node(run, stage, &stage->nodes[k], run->checkpoints->resumed, diags);
    }
    return NULL;
}

static void copy_diags(struct diag_list *to, const struct diag_list *from)
{
    for (unsigned i = 0; i < from->count; i++) {
        const struct diag *item = &from->items[i];
        struct diag *d = item->severity == DIAG_ERROR
                             ? diag_error(to, item->code, item->span, "%s", item->message)
                             : diag_warning(to, item->code, item->span, "%s", item->message);
        if (item->hint != NULL)
            diag_hint(to, d, "%s", item->hint);
        if (item->cause != NULL)
            diag_cause(to, d, "%s", item->cause);
        if (item->path != NULL)
            diag_at(to, d, item->path, item->offset, item->line);
    }
}

static bool restore_all(struct run *run)
{
    bool is_good = true;
    struct restoring *all = arena_array(&run->arena, struct restoring, run->lanes_count);
    for (uint32_t i = 0; i < run->lanes_count; i++) {
        all[i].run = run;
        all[i].instance = i;
        diag_list_init(&all[i].diags, &all[i].arena);
        all[i].has_thread = i > 0 && pthread_create(&all[i].thread, NULL, restore_instances, &all[i]) == 0;
    }
    for (uint32_t i = 0; i < run->lanes_count; i++)
        if (!all[i].has_thread)
            restore_instances(&all[i]);
    for (uint32_t i = 0; i < run->lanes_count; i++) {
        if (all[i].has_thread)
            pthread_join(all[i].thread, NULL);
        copy_diags(run->diags, &all[i].diags);
        arena_free(&all[i].arena);
        is_good &= all[i].is_good;
    }
    return is_good;
}

bool checkpoints_restore(struct run *run)
{
    struct run_checkpoints *c = run->checkpoints;
    failpoint("restore.begin");
    if (!sequencer_restore(run, checkpoint_info(c->resumed)->sources))
        return false;
    for (uint32_t i = 0; i < run->stages_total; i++) {
        struct stage_instance *stage = run->stages[i];
        stage->next = run->sequencer.first;
        restore_watermarks(run, stage);
    }
    if (!restore_all(run))
        return false;
    atomic_store(&c->published, checkpoint_info(c->resumed)->id.epoch);
    run->resumed_generation = checkpoint_info(c->resumed)->id.generation;
    run->resumed_epoch = checkpoint_info(c->resumed)->id.epoch;
    checkpoint_close(c->resumed);
    c->resumed = NULL;
    failpoint("restore.end");
    return true;
}

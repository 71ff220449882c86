/* The state and counters of nodes in a checkpoint: written at the barrier, restored at a resume. */
#include "run/lanes/internal.h"

#include "core/diag_copy.h"
#include "core/operator_state.h"
#include "core/os.h"
#include "run/base/barrier.h"
#include "run/base/placements.h"
#include "state/checkpoint.h"

#include <stdio.h>

enum { SINK_PART_BYTES = 120, PART_BYTES = SINK_PART_BYTES + 32 };

/* A record of a node's counters. Every checkpoint has the counters of all nodes, also a delta; of the records
 * in a chain of checkpoints only those of the newest epoch are used. */
struct saved_counters {
    uint64_t epoch;
    struct counters counters;
};

/* --- Names of parts --- */

/* Name of the part that holds a sink's state. It goes by the sink's name, since a job may gain or lose sinks,
 * and ends in a slash, so that it is no prefix of another sink's part. */
static void sink_part(const struct plan_node *sink, char name[SINK_PART_BYTES])
{
    struct str text = sink->name;
    if (text.length <= SINK_PART_BYTES - 8)
        snprintf(name, SINK_PART_BYTES, "sink/%.*s/", STR_ARGS(text));
    else /* no other sink's part can have a `#` in its name */
        snprintf(name, SINK_PART_BYTES, "sink/%.*s#%u/", 64, text.data, sink->place);
}

/* Name of the part that holds a node's counters, without the number of the instance. */
static void counters_part(const struct node_instance *node, char name[PART_BYTES])
{
    size_t length = strlen(strcpy(name, "counters/"));
    if (node->node->tag != PLAN_SINK)
        snprintf(name + length, PART_BYTES - length, "%u/", node->context.id);
    else
        sink_part(node->node, name + length);
}

/* Name of the part that holds the name of the sink's kind. */
static void kind_part(const struct plan_node *sink, char name[PART_BYTES])
{
    sink_part(sink, name + strlen(strcpy(name, "kind/")));
}

/* --- Writing --- */

static bool snapshot_counters(const struct barrier *barrier, struct node_instance *node,
                              const struct counters *counters)
{
    char name[PART_BYTES];
    counters_part(node, name);
    size_t length = strlen(name);
    snprintf(name + length, sizeof(name) - length, "%u", node->stage->instance);
    struct saved_counters saved = {barrier->epoch, *counters};
    return snapshot_put(checkpoint_part(barrier->writer, name), SNAPSHOT_GLOBAL, &saved, sizeof(saved));
}

static bool snapshot_node(const struct barrier *barrier, struct node_instance *node, uint64_t micro_batch)
{
    const struct plan_node *plan_node = node->node;
    char name[PART_BYTES];
    bool is_good = true;
    node->context.micro_batch = micro_batch; /* an instance of stage 0 may not have run this micro-batch */
    if (plan_node->operator_kind != NULL && operator_has_state(plan_node->operator_kind)) {
        snprintf(name, sizeof(name), "op/%u/%u", node->context.id, node->stage->instance);
        is_good &= operator_snapshot(plan_node->operator_kind, &node->context,
                                     checkpoint_part(barrier->writer, name));
    }
    if (plan_node->tag == PLAN_SINK && plan_node->sink_kind->snapshot != NULL) {
        kind_part(plan_node, name);
        const char *kind = plan_node->sink_kind->name;
        is_good &= snapshot_put(checkpoint_part(barrier->writer, name), SNAPSHOT_GLOBAL, kind, strlen(kind));
        sink_part(plan_node, name);
        is_good &= plan_node->sink_kind->snapshot(&node->sink, checkpoint_part(barrier->writer, name));
    }
    return is_good;
}

/* The node's counters; for a node of stage 0, of which each lane has an instance, the sum over the lanes. No
 * lane runs stage 0 meanwhile (sequencer_claim). */
static struct counters node_counters(const struct stage_instance *stage, uint32_t index)
{
    struct run *run = stage->run;
    if (stage->index > 0)
        return stage->nodes[index].context.counters;
    struct counters sum = {0};
    for (uint32_t lane = 0; lane < run->lanes_count; lane++)
        counters_add(&sum, &run->lanes->lanes[lane].sources->nodes[index].context.counters);
    return sum;
}

void stage_snapshot(struct stage_instance *stage)
{
    struct run *run = stage->run;
    const struct barrier *barrier = run->barrier;
    leat_assert(barrier->epoch == stage->slot->barrier && barrier->state == BARRIER_RUNNING);
    failpoint("ckpt.barrier");
    int64_t begin = os_monotonic_us();
    bool is_good = true;
    for (uint32_t i = 0; i < stage->stage->nodes_count; i++) {
        struct counters counters = node_counters(stage, i);
        is_good &= snapshot_counters(barrier, &stage->nodes[i], &counters);
        for (uint32_t lane = 0; stage->index == 0 && lane < run->lanes_count; lane++)
            is_good &=
                snapshot_node(barrier, &run->lanes->lanes[lane].sources->nodes[i], stage->slot->micro_batch);
        if (stage->index > 0)
            is_good &= snapshot_node(barrier, &stage->nodes[i], stage->slot->micro_batch);
    }
    barrier_pass(run, os_monotonic_us() - begin, is_good);
}

/* --- Restoring --- */

bool snapshot_has_sink(struct run *run, const struct plan_node *sink)
{
    if (!run->is_resumed || sink->sink_kind->snapshot == NULL)
        return run->is_resumed;
    if (run->is_from && !run->has_saved[sink->place])
        return false; /* run->notes say so (checkpoints/from.c) */
    char prefix[SINK_PART_BYTES];
    sink_part(sink, prefix);
    uint32_t group;
    struct str data;
    struct snapshot_reader *reader = checkpoint_reader(run->resumed, prefix, NULL, run->diags);
    bool is_there = reader != NULL && snapshot_get(reader, &group, &data);
    /* A damaged part counts as present; the restore reports the damage. */
    bool is_good = reader != NULL && checkpoint_reader_close(reader);
    if (is_there || !is_good)
        return true;
    struct diag *d =
        diag_warning(run->diags, DIAG_RESUME_OR_FRESH, sink->span,
                     "sink `%.*s` is not in the checkpoint, so it gets only rows after the checkpoint",
                     STR_ARGS(sink->name));
    diag_hint(run->diags, d, "to write all rows to this sink, start anew with --fresh");
    return false;
}

static bool restore_counters(struct run *run, struct node_instance *node, struct checkpoint *from)
{
    char prefix[PART_BYTES];
    counters_part(node, prefix);
    struct snapshot_reader *reader = checkpoint_reader(from, prefix, NULL, run->diags);
    uint32_t group;
    struct str data;
    struct saved_counters newest = {0};
    while (reader != NULL && snapshot_get(reader, &group, &data)) {
        struct saved_counters part;
        if (data.length != sizeof(part)) {
            snapshot_corrupt(reader, run->diags, "counters of a wrong size");
            break;
        }
        memcpy(&part, data.data, sizeof(part));
        if (part.epoch > newest.epoch)
            newest = part;
        else if (part.epoch == newest.epoch)
            counters_add(&newest.counters, &part.counters);
    }
    node->context.counters = newest.counters;
    run->lanes->restored[node->node->place] = (struct restored){newest.counters.in, newest.counters.dead};
    return reader != NULL && checkpoint_reader_close(reader);
}

/* Whether the sink kept its name and changed its kind: it cannot restore the other kind's state. True after
 * a diagnostic. */
static bool is_other_kind(struct run *run, const struct plan_node *sink, struct checkpoint *from)
{
    char name[PART_BYTES], kind[64] = "";
    uint32_t group;
    struct str data;
    kind_part(sink, name);
    struct snapshot_reader *reader = checkpoint_reader(from, name, NULL, run->diags);
    while (snapshot_get(reader, &group, &data))
        snprintf(kind, sizeof(kind), "%.*s", STR_ARGS(data));
    if (!checkpoint_reader_close(reader))
        return true;
    if (strcmp(kind, sink->sink_kind->name) == 0)
        return false;
    struct diag *d = diag_error(run->diags, DIAG_RESUME_OR_FRESH, sink->span,
                                "sink `%.*s` was of kind `%s` when the checkpoint was taken, and is `%s` now",
                                STR_ARGS(sink->name), kind, sink->sink_kind->name);
    diag_hint(run->diags, d,
              "set the sink's kind back; or give the sink another name, so that it gets only rows after the "
              "checkpoint; or start anew with --fresh");
    return true;
}

static bool restore_sink(struct run *run, struct node_instance *node, struct checkpoint *from)
{
    if (is_other_kind(run, node->node, from))
        return false;
    char prefix[PART_BYTES];
    sink_part(node->node, prefix);
    struct snapshot_reader *reader = checkpoint_reader(from, prefix, NULL, run->diags);
    if (reader == NULL)
        return false;
    bool is_good = node->node->sink_kind->restore(&node->sink, reader);
    return checkpoint_reader_close(reader) && is_good;
}

/* Any thread; an instance is restored by one thread. */
static bool restore_operator(struct node_instance *node, struct checkpoint *from, struct diag_list *diags)
{
    char prefix[PART_BYTES];
    struct diag_list *usual = node->context.diags;
    snprintf(prefix, sizeof(prefix), "op/%u/", node->context.id);
    struct snapshot_reader *reader = checkpoint_reader(from, prefix, node->context.groups, diags);
    if (reader == NULL)
        return false;
    node->context.diags = diags;
    bool is_good = operator_restore(node->node->operator_kind, &node->context, reader);
    node->context.diags = usual;
    return checkpoint_reader_close(reader) && is_good;
}

/* Sets the watermarks that the nodes had after the checkpoint's last micro-batch, so that the same rows are
 * late as without the restart. */
static void restore_watermarks(struct run *run, struct stage_instance *stage)
{
    stage_set_watermarks(stage, sequencer_watermarks(run), sequencer_done(run));
    for (uint32_t i = 0; i < stage->stage->nodes_count; i++)
        stage->nodes[i].context.watermark = stage_input_watermark(&stage->nodes[i]);
}

/* Whether the state is not needed any more; says so. */
static bool is_in_vain(const struct run *run, struct diag_list *diags)
{
    const struct run_peers *peers = run->options.peers;
    if (peers == NULL || peers->is_over == NULL || !peers->is_over(peers->engine))
        return false;
    if (!diag_has_code(diags, DIAG_TAKEN_OVER))
        diag_error(diags, DIAG_TAKEN_OVER, (struct span){0},
                   "the workers begin again while this one still reads its state: it reads no more of it");
    return true;
}

static bool restore_node(struct run *run, struct stage_instance *stage, struct node_instance *node,
                         struct checkpoint *from, struct diag_list *diags)
{
    const struct plan_node *plan_node = node->node;
    bool is_saved = run->has_saved[plan_node->place];
    if (is_in_vain(run, diags))
        return false;
    /* The first instance gets the sum of the counters that the earlier life's instances had. */
    if (stage->instance == 0 && is_saved && !restore_counters(run, node, from))
        return false;
    if (plan_node->tag == PLAN_SINK)
        return plan_node->sink_kind->restore == NULL || !node->sink.is_resumed ||
               restore_sink(run, node, from);
    return !is_saved || plan_node->operator_kind == NULL || !operator_has_state(plan_node->operator_kind) ||
           restore_operator(node, from, diags);
}

/* One thread of the restore: it restores the instances with one index, of all stages. Several threads help
 * because each instance has its own state, and most of the time goes into reading it and into the first use
 * of memory. The thread of index 0 also restores the nodes that have a single instance. */
struct restoring {
    struct run *run;
    struct checkpoint *from;
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
    for (uint32_t i = 0; i < run->lanes->stages_total && r->is_good; i++) {
        struct stage_instance *stage = run->lanes->stages[i];
        for (uint32_t k = 0; k < stage->stage->nodes_count && stage->local == r->instance && r->is_good; k++)
            r->is_good = restore_node(run, stage, &stage->nodes[k], r->from, diags);
    }
    return NULL;
}

static bool restore_all(struct run *run, struct checkpoint *from)
{
    bool is_good = true;
    struct restoring *all = arena_array(&run->arena, struct restoring, run->lanes_count);
    for (uint32_t i = 0; i < run->lanes_count; i++) {
        all[i].run = run;
        all[i].from = from;
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
        diag_add_all(run->diags, &all[i].diags);
        arena_free(&all[i].arena);
        is_good &= all[i].is_good;
    }
    return is_good;
}

/* In a store that was taken over as it was: deletes what it has of key groups that have gone to other workers. */
static bool drop_left(struct run *run, struct node_instance *node)
{
    struct group_set left;
    return run->stores.taken == 0 || node->node->operator_kind == NULL ||
           node->stage->stage->tag == STAGE_SINGLE || !placements_left(run, &left) ||
           operator_forget_groups(node->node->operator_kind, &node->context, &left);
}

static bool import(struct run *run, struct node_instance *node)
{
    bool is_good = drop_left(run, node);
    for (uint32_t i = 0; i < run->stores.foreign_count && node->node->operator_kind != NULL; i++)
        is_good = is_good && !is_in_vain(run, run->diags) &&
                  operator_import(node->node->operator_kind, &node->context, run->stores.foreign[i]);
    return is_good;
}

bool lanes_import(struct run *run)
{
    bool is_good = true;
    for (uint32_t i = 0; i < run->lanes->stages_total; i++)
        for (uint32_t k = 0; k < run->lanes->stages[i]->stage->nodes_count; k++)
            is_good &= import(run, &run->lanes->stages[i]->nodes[k]);
    state_stores_import_cold(&run->stores);
    state_stores_imported(&run->stores);
    const char *error = state_stores_error(&run->stores);
    if (error != NULL)
        diag_cause(run->diags,
                   diag_error(run->diags, DIAG_STATE_FAILED, (struct span){0}, "the state store failed"),
                   "%s", error);
    return is_good && error == NULL;
}

bool lanes_restore(struct run *run, struct checkpoint *from)
{
    for (uint32_t i = 0; i < run->lanes->stages_total; i++) {
        struct stage_instance *stage = run->lanes->stages[i];
        stage->next = sequencer_first(run);
        restore_watermarks(run, stage);
    }
    bool is_good = restore_all(run, from);
    for (uint32_t i = 0; i < run->lanes->stages_total; i++)
        stage_show_counters(run->lanes->stages[i]);
    for (uint32_t i = 0; i < run->lanes->stages_total && is_good && sequencer_done(run) != NULL; i++)
        stage_ask(run->lanes->stages[i], sequencer_done(run));
    return is_good;
}

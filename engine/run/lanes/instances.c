/* Builds the stage instances of all lanes: copies of option structs, contexts, wiring between nodes. */
#include "run/lanes/internal.h"

#include "core/operator_history.h"
#include "core/operator_state.h"
#include "core/os.h"
#include "run/base/peers.h"
#include "run/order/order.h"
#include "state/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>

struct stage_instance *lanes_instance(struct run *run, uint32_t stage, uint32_t instance)
{
    return run->lanes->stages[run->lanes->stage_first[stage] + instance];
}

static struct node_instance *find_node(struct stage_instance *stage, uint32_t place)
{
    for (uint32_t i = 0; i < stage->stage->nodes_count; i++)
        if (stage->nodes[i].node->place == place)
            return &stage->nodes[i];
    return NULL;
}

static void add_consumer(struct node_instance *from, uint32_t output, struct consumer consumer)
{
    struct arena *arena = &from->stage->run->arena;
    uint32_t count = from->consumers_count[output];
    struct consumer *grown = arena_array(arena, struct consumer, count + 1);
    if (count > 0)
        memcpy(grown, from->consumers[output], count * sizeof(*grown));
    grown[count] = consumer;
    from->consumers[output] = grown;
    from->consumers_count[output]++;
}

static void add_exchange_input(struct node_instance *node, uint32_t input, struct exchange *exchange)
{
    struct arena *arena = &node->stage->run->arena;
    uint32_t count = node->exchanges_count[input];
    struct exchange **grown = arena_array(arena, struct exchange *, count + 1);
    if (count > 0)
        memcpy(grown, node->exchanges[input], count * sizeof(*grown));
    grown[count] = exchange;
    node->exchanges[input] = grown;
    node->exchanges_count[input]++;
}

static void add_feeder(struct stage_instance *stage, uint32_t feeder)
{
    for (uint32_t i = 0; i < stage->feeders_count; i++)
        if (stage->feeders[i] == feeder)
            return;
    stage->feeders[stage->feeders_count++] = feeder;
}

static void wire(struct run *run, struct stage_instance *stage)
{
    const struct plan *plan = run->plan;
    for (uint32_t i = 0; i < stage->stage->nodes_count; i++) {
        struct node_instance *node = &stage->nodes[i];
        for (uint32_t k = 0; k < node->node->inputs_count; k++) {
            struct plan_edge edge = node->node->inputs[k];
            if (edge.node >= plan->nodes_count || plan->nodes[edge.node].stage != stage->index)
                continue;
            struct node_instance *from = find_node(stage, edge.node);
            leat_assert(from != NULL);
            add_consumer(from, edge.output, (struct consumer){.node = node, .input = k});
        }
    }
    for (uint32_t i = 0; i < plan->exchanges_count; i++) {
        struct exchange *x = &run->lanes->exchanges[i];
        if (x->plan->to_stage == stage->index) {
            add_exchange_input(find_node(stage, x->plan->to_node), x->plan->to_input, x);
            add_feeder(stage, x->plan->from_stage);
        }
        if (x->plan->from_stage != stage->index)
            continue;
        if (x->plan->from.output == PLAN_OUTPUT_DEAD)
            stage->dead_exchange = x;
        else
            add_consumer(find_node(stage, x->plan->from.node), x->plan->from.output,
                         (struct consumer){.exchange = x});
    }
    /* A stage that no exchange feeds waits for stage 0. */
    if (stage->index > 0 && stage->feeders_count == 0)
        add_feeder(stage, 0);
}

static void wake_lanes(void *engine)
{
    run_wake(engine);
}

/* The team through which lanes without work help this learner to find and make embedding rows; NULL: the
 * node is no learner, or there is one lane. */
static struct team *team_for(struct run *run, const struct plan_node *node)
{
    if (node->tag != PLAN_LEARNER || run->lanes_count == 1)
        return NULL;
    leat_assert(run->lanes->teams_count < run->plan->nodes_count);
    struct team *team = &run->lanes->teams[run->lanes->teams_count++];
    team->wake = wake_lanes;
    team->engine = run;
    return team;
}

/* Memory for one instance of the node. Nodes that keep state get equal shares of the budget at any number
 * of lanes; a node's share is split among its instances. */
static int64_t memory_of(const struct run *run, const struct plan_node *node)
{
    return test_state(base_memory_share(run->plan, run->operator_memory_bytes) /
                      run->stage_instances[node->stage]);
}

static void init_node(struct stage_instance *stage, struct node_instance *node,
                      const struct plan_node *plan_node)
{
    struct run *run = stage->run;
    node->node = plan_node;
    node->stage = stage;
    node->context = (struct operator_context){
        .config = plan_node->config,
        .engine = node,
        .place = plan_node->place,
        .id = run->ids[plan_node->place],
        .lane = stage->instance,
        .lanes = stage->stage->tag == STAGE_SINGLE ? 1 : peers_instances(run),
        .groups = stage->stage->tag == STAGE_SINGLE ? NULL : &stage->groups,
        .watermark = TIME_MIN,
        .memory_bytes = memory_of(run, plan_node),
        .output = plan_node->outputs[0],
        .outputs_read = plan_outputs_read(run->plan, plan_node->place),
        .pool = run->pool,
        .scratch = &node->scratch,
        .diags = run->diags,
        .is_from = run->is_from,
        .compares = run->options.compares,
        .state_store = state_stores_of(&run->stores, stage->local),
        .cold_store = plan_node->tag == PLAN_LEARNER && plan_node->needs_memory ? base_cold_store : NULL,
        .team = team_for(run, plan_node),
    };
    if (plan_node->operator_kind != NULL)
        node->context.config = arena_copy(&run->arena, plan_node->config, plan_node->operator_kind->size);
    if (plan_node->tag == PLAN_SINK)
        node->sink = (struct sink_context){
            .config = arena_copy(&run->arena, plan_node->config, plan_node->sink_kind->size),
            .input = plan_node->bound[0].schema,
            .arena = &run->arena,
            .diags = run->diags,
            .stop = run->options.stop,
            .is_resumed = run->trace == NULL && snapshot_has_sink(run, plan_node),
            .is_uncommitted = run_awaits_store(run) && !run->is_from,
            .notes_order = run_notes_order(run),
            .each_segment = sink_each_segment,
            .span = plan_node->path_span,
            .claims = run->plan->claims,
            .replaces_parts = run->replaces_parts,
            .replaces_all = run_replaces_own(run),
            .has_checkpoints = run->dir != NULL,
            .job = run->plan->name,
            .name = plan_node->name,
            .redo_next = order_replay_log(run)->redo_next,
            .wake = sequencer_wake,
            .engine = run,
            .check = run->barrier != NULL ? fence_check : NULL,
            .is_new_run = run->dir != NULL && (!run->is_resumed || run->is_from) && !run->is_begun_again,
            .may_repeat = run->options.may_repeat || run->is_from,
            .life = run->dir != NULL ? checkpoint_generation(run->dir) : 0,
        };
    if (plan_node->tag == PLAN_SINK && run->is_from) {
        const struct checkpoint_info *info = checkpoint_info(run->resumed);
        node->sink.is_from = true;
        node->sink.from_job = arena_str(&run->arena, info->notes);
        memcpy(node->sink.from_run, info->run.bytes, sizeof(node->sink.from_run));
    }
    if (plan_node->tag == PLAN_SINK && run->barrier != NULL)
        memcpy(node->sink.run_id, checkpoint_run(run->dir).bytes, sizeof(node->sink.run_id));
}

static bool open_node(struct node_instance *node)
{
    const struct plan_node *plan_node = node->node;
    if (plan_node->operator_kind != NULL)
        return operator_open(plan_node->operator_kind, &node->context);
    if (plan_node->tag == PLAN_SINK && plan_node->sink_kind->open != NULL && node->stage->run->trace == NULL)
        return plan_node->sink_kind->open(&node->sink);
    return true;
}

static struct stage_instance *new_instance(struct run *run, uint32_t stage, uint32_t local)
{
    struct stage_instance *made = arena_new(&run->arena, struct stage_instance);
    made->run = run;
    made->stage = &run->plan->stages[stage];
    made->index = stage;
    made->local = local;
    /* Single stages go to the last lanes, because the first lane starts with reading. */
    bool is_single = run->plan->stages[stage].tag == STAGE_SINGLE;
    made->instance = is_single ? 0 : peers_first_instance(run) + local;
    made->lane = is_single ? run->lanes_count - 1 - stage % run->lanes_count : local;
    made->next = sequencer_first(run);
    made->slot_watermarks = arena_array(&run->arena, int64_t, run->plan->nodes_count + 1);
    placement_groups(&run->placements[0], made->instance, &made->groups);
    made->nodes = arena_array(&run->arena, struct node_instance, made->stage->nodes_count);
    for (uint32_t i = 0; i < made->stage->nodes_count; i++)
        init_node(made, &made->nodes[i], &run->plan->nodes[made->stage->nodes[i]]);
    stage_publish_init(made);
    return made;
}

static void assign_to_lanes(struct run *run)
{
    for (uint32_t l = 0; l < run->lanes_count; l++) {
        struct lane *lane = &run->lanes->lanes[l];
        lane->sources = lanes_instance(run, 0, l);
        lane->instances = arena_array(&run->arena, struct stage_instance *, run->plan->stages_count);
        for (uint32_t stage = run->plan->stages_count; stage-- > 1;)
            for (uint32_t i = 0; i < run->stage_instances[stage]; i++)
                if (lanes_instance(run, stage, i)->lane == l)
                    lane->instances[lane->instances_count++] = lanes_instance(run, stage, i);
    }
}

static void make_lanes(struct run *run)
{
    const struct plan *plan = run->plan;
    struct lanes *lanes = run->lanes = arena_new(&run->arena, struct lanes);
    pthread_mutex_init(&lanes->peeks_mutex, NULL);
    pthread_mutex_init(&lanes->reports_mutex, NULL);
    lanes->dead_kept = dead_kept_new();
    lanes->lanes = arena_array(&run->arena, struct lane, run->lanes_count);
    for (uint32_t i = 0; i < run->lanes_count; i++) {
        lanes->lanes[i].run = run;
        lanes->lanes[i].index = i;
        decoding_init(run, &lanes->lanes[i].decoding);
    }
    lanes->teams = arena_array(&run->arena, struct team, plan->nodes_count);
    lanes->restored = arena_array(&run->arena, struct restored, plan->nodes_count);
    lanes->stage_first = arena_array(&run->arena, uint32_t, plan->stages_count);
    for (uint32_t stage = 0; stage < plan->stages_count; stage++) {
        lanes->stage_first[stage] = lanes->stages_total;
        lanes->stages_total += run->stage_instances[stage];
    }
    lanes->stages = arena_array(&run->arena, struct stage_instance *, lanes->stages_total);
}

static void collect_sinks(struct run *run)
{
    struct lanes *lanes = run->lanes;
    uint32_t room = MAX(run->plan->nodes_count, 1);
    lanes->sinks = arena_array(&run->arena, struct node_instance *, room);
    run->sinks = arena_array(&run->arena, struct sink_context *, room);
    for (uint32_t i = 0; i < lanes->stages_total; i++)
        for (uint32_t k = 0; k < lanes->stages[i]->stage->nodes_count; k++) {
            struct node_instance *node = &lanes->stages[i]->nodes[k];
            if (node->node->tag != PLAN_SINK)
                continue;
            run->sinks[run->sinks_count] = &node->sink;
            lanes->sinks[run->sinks_count++] = node;
        }
}

bool lanes_init(struct run *run)
{
    make_lanes(run);
    struct lanes *lanes = run->lanes;
    for (uint32_t stage = 0; stage < run->plan->stages_count; stage++)
        for (uint32_t i = 0; i < run->stage_instances[stage]; i++)
            lanes->stages[lanes->stage_first[stage] + i] = new_instance(run, stage, i);
    collect_sinks(run);
    exchange_init(run);
    load_init(run);
    for (uint32_t i = 0; i < lanes->stages_total; i++)
        wire(run, lanes->stages[i]);
    assign_to_lanes(run);
    looks_init(run);
    bool is_good = moves_init(run);
    for (uint32_t i = 0; i < lanes->stages_total; i++)
        for (uint32_t k = 0; k < lanes->stages[i]->stage->nodes_count; k++)
            is_good &= open_node(&lanes->stages[i]->nodes[k]);
    return is_good;
}

static void close_node(struct node_instance *node)
{
    const struct plan_node *plan_node = node->node;
    for (uint32_t i = 0; i < OPERATOR_INPUTS_MAX; i++)
        batch_list_release(&node->queues[i]);
    if (plan_node->operator_kind != NULL)
        operator_close(plan_node->operator_kind, &node->context);
    if (plan_node->tag == PLAN_SINK && plan_node->sink_kind->close != NULL && node->stage->run->trace == NULL)
        plan_node->sink_kind->close(&node->sink);
    arena_free(&node->scratch);
}

void lanes_free(struct run *run)
{
    struct lanes *lanes = run->lanes;
    if (lanes == NULL)
        return;
    for (uint32_t i = 0; i < lanes->stages_total; i++) {
        struct stage_instance *stage = lanes->stages[i];
        for (uint32_t k = 0; k < stage->stage->nodes_count; k++)
            close_node(&stage->nodes[k]);
        free(stage->dead);
        arena_free(&stage->dead_arena);
        arena_free(&stage->number_arena);
        buffer_free(&stage->publish_entry);
    }
    moves_free(run);
    looks_free(run);
    load_free(run);
    exchange_free(run);
    for (uint32_t i = 0; i < run->lanes_count; i++) {
        decoding_free(run, &lanes->lanes[i].decoding);
        arena_free(&lanes->lanes[i].peeks_scratch);
    }
    pthread_mutex_destroy(&lanes->peeks_mutex);
    pthread_mutex_destroy(&lanes->reports_mutex);
    dead_kept_free(lanes->dead_kept);
    run->lanes = NULL;
}

void stage_reports(struct stage_instance *stage)
{
    int epoch = atomic_load_explicit(&stage->run->lanes->report_epoch, memory_order_relaxed);
    if (epoch == stage->report_epoch)
        return;
    stage->report_epoch = epoch;
    for (uint32_t i = 0; i < stage->stage->nodes_count; i++) {
        struct node_instance *node = &stage->nodes[i];
        if (node->node->operator_kind == NULL)
            continue;
        struct report report = {0};
        operator_report(node->node->operator_kind, &node->context, &report);
        pthread_mutex_lock(&stage->run->lanes->reports_mutex);
        node->report = report;
        pthread_mutex_unlock(&stage->run->lanes->reports_mutex);
    }
}

const struct operator_context *run_context(struct run *run, const struct plan_node *node)
{
    return &find_node(lanes_instance(run, node->stage, 0), node->place)->context;
}

/* --- For operators that read other data than their input (core/operator_history.h) --- */

static const char *directory_of(struct run *run, const char *path, const struct operator_context *context)
{
    return arena_printf(&run->arena, "%s/tables/%u", path, context->id);
}

static struct run *run_of(const struct operator_context *context)
{
    const struct node_instance *node = context->engine;
    return node->stage->run;
}

void operator_history_micro_batches(const struct operator_context *context, struct operator_history *history)
{
    if (context->reader != NULL) {
        history->first = context->history->first;
        history->until = context->history->until;
        history->ahead = context->history->ahead;
        return;
    }
    const struct run *run = run_of(context);
    const struct replay_log *log = order_replay_log(run);
    bool is_replaying = log->identity != 0;
    history->first = sequencer_first(run);
    history->until = run->trace != NULL || is_replaying ? UINT64_MAX : log->redo_next;
    history->ahead = is_replaying ? log->next - sequencer_first(run) : 0;
}

void operator_history(const struct operator_context *context, struct operator_history *history)
{
    if (context->reader != NULL) {
        *history = *context->history;
        return;
    }
    struct run *run = run_of(context);
    bool is_saved = run->has_saved != NULL && run->has_saved[context->place];
    *history = (struct operator_history){.is_traced = run->trace != NULL,
                                         .will_restore = run->is_resumed && is_saved,
                                         .is_added = run->is_resumed && !is_saved};
    operator_history_micro_batches(context, history);
    for (uint32_t i = 0; i < run->plan->sources_count; i++)
        history->is_live |= run_source_node(run, i)->is_live;
    if (run->dir != NULL) {
        history->directory = directory_of(run, run->path, context);
        history->life = checkpoint_generation(run->dir);
    }
    if (order_replay_log(run)->identity != 0)
        history->replayed = directory_of(run, order_replay_log(run)->name, context);
}

uint64_t operator_history_oldest(const struct operator_context *context)
{
    const struct run *run = run_of(context);
    struct arena arena = {0};
    struct diag_list diags;
    struct run_id id;
    const char **paths;
    uint32_t count;
    uint64_t oldest = UINT64_MAX;
    diag_list_init(&diags, &arena);
    struct checkpoint_dir_options options = {.path = run->path, .read_only = true};
    struct checkpoint_dir *dir = checkpoint_dir_open(&options, &diags);
    if (dir != NULL)
        checkpoint_order_paths(dir, UINT64_MAX, &arena, &paths, &count, &oldest, &id, &diags);
    checkpoint_dir_close(dir);
    arena_free(&arena);
    return oldest == UINT64_MAX ? 0 : oldest;
}

int operator_check(const struct operator_context *context)
{
    return run_check(run_of(context));
}

void operator_fail(const struct operator_context *context, enum diag_code code, struct span span,
                   const char *what, const char *hint)
{
    if (context->reader != NULL) {
        diag_hint(context->diags, diag_error(context->diags, code, span, "%s", what), "%s", hint);
        return;
    }
    struct run *run = run_of(context);
    pthread_mutex_lock(&run->diags_mutex);
    diag_hint(run->diags, diag_error(run->diags, code, span, "%s", what), "%s", hint);
    pthread_mutex_unlock(&run->diags_mutex);
    run_fail(run);
}

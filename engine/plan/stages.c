/* Cuts the nodes into stages.
 *
 * Each node comes after its inputs. A node joins the stage of the node that feeds it when rows need not
 * move: the node depends on a row alone, or that stage already has the rows of equal keys on one instance.
 * Otherwise it opens a new stage, and each of its inputs is an exchange. A stage may be joined only if no
 * other input comes from a later stage, so that stages stay in topological order by their number. */
#include "plan/build.h"

static struct plan_stage *new_stage(struct plan_build *b, enum plan_stage_tag tag)
{
    struct plan *plan = b->plan;
    if (plan->stages_count == PLAN_STAGES_MAX) {
        diag_error(b->diags, DIAG_TOO_MANY, (struct span){0}, "this job needs more than %d exchanges by key",
                   PLAN_STAGES_MAX);
        return NULL;
    }
    struct plan_stage *stage = &plan->stages[plan->stages_count++];
    *stage = (struct plan_stage){.tag = tag, .nodes = arena_array(b->arena, uint32_t, plan->nodes_count)};
    return stage;
}

static void join_stage(struct plan_build *b, struct plan_node *node, uint32_t stage)
{
    node->stage = stage;
    struct plan_stage *s = &b->plan->stages[stage];
    s->nodes[s->nodes_count++] = node->place;
}

static void add_exchange(struct plan_build *b, const struct plan_node *node, uint32_t input,
                         struct plan_edge from, uint32_t from_stage, enum exchange_mode mode)
{
    b->plan->exchanges[b->plan->exchanges_count++] = (struct plan_exchange){
        .from = from,
        .to_node = node->place,
        .to_input = input,
        .from_stage = from_stage,
        .to_stage = node->stage,
        .mode = mode,
        .key_columns = node->bound[input].key_columns,
        .key_count = node->bound[input].key_count,
    };
}

static bool is_keyed(const struct plan_node *node)
{
    return node->inputs_count > 0 && node->bound[0].key_count > 0;
}

/* Whether the producer's rows with equal values in the input's key columns are already on one instance. */
static bool is_partitioned_for(const struct plan_node *from, const struct operator_input *input)
{
    if (from->partitioned_count != input->key_count)
        return false;
    for (uint32_t i = 0; i < input->key_count; i++)
        if (!str_equal(from->partitioned_by[i], input->schema->fields[input->key_columns[i]].name))
            return false;
    return true;
}

static void set_partitioning(struct plan_build *b, struct plan_node *node)
{
    if (is_keyed(node) && node->operator_kind->keeps_columns) {
        const struct operator_input *input = &node->bound[0];
        node->partitioned_by = arena_array(b->arena, struct str, input->key_count);
        node->partitioned_count = input->key_count;
        for (uint32_t i = 0; i < input->key_count; i++)
            node->partitioned_by[i] = input->schema->fields[input->key_columns[i]].name;
        return;
    }
    const struct plan_node *from = &b->plan->nodes[node->inputs[0].node];
    if (node->operator_kind->keeps_columns && node->inputs_count == 1 && node->stage == from->stage) {
        node->partitioned_by = from->partitioned_by;
        node->partitioned_count = from->partitioned_count;
    }
}

/* Index of the stage that the operator can join, or -1. */
static int stage_to_join(const struct plan_build *b, const struct plan_node *node)
{
    const struct plan_node *first = &b->plan->nodes[node->inputs[0].node];
    uint32_t stage = first->stage;
    enum plan_stage_tag tag = b->plan->stages[stage].tag;
    bool is_at_home = tag == STAGE_SINGLE ||
                      (node->operator_kind->determinism == DETERMINISM_BY_ROW && !is_keyed(node)) ||
                      (is_keyed(node) && tag == STAGE_KEYED && is_partitioned_for(first, &node->bound[0]));
    if (!is_at_home)
        return -1;
    for (uint32_t i = 1; i < node->inputs_count; i++) {
        const struct plan_node *from = &b->plan->nodes[node->inputs[i].node];
        if (from->stage > stage)
            return -1;
        if (from->stage == stage && is_keyed(node) && tag == STAGE_KEYED &&
            !is_partitioned_for(from, &node->bound[i]))
            return -1;
        if (from->stage < stage && !is_keyed(node) && tag == STAGE_KEYED)
            return -1;
    }
    return (int)stage;
}

static void place_operator(struct plan_build *b, struct plan_node *node)
{
    int joined = stage_to_join(b, node);
    bool is_single = node->tag == PLAN_LEARNER ||
                     (node->operator_kind->determinism == DETERMINISM_BY_ALL_ROWS && !is_keyed(node));
    if (joined < 0) {
        if (new_stage(b, is_single ? STAGE_SINGLE : STAGE_KEYED) == NULL)
            return;
        joined = (int)b->plan->stages_count - 1;
    }
    join_stage(b, node, (uint32_t)joined);
    enum plan_stage_tag tag = b->plan->stages[joined].tag;
    for (uint32_t i = 0; i < node->inputs_count; i++) {
        const struct plan_node *from = &b->plan->nodes[node->inputs[i].node];
        if (from->stage == node->stage)
            continue;
        enum exchange_mode mode = tag == STAGE_SINGLE            ? EXCHANGE_SINGLE
                                  : node->bound[i].key_count > 0 ? EXCHANGE_HASH
                                                                 : EXCHANGE_FORWARD;
        add_exchange(b, node, i, node->inputs[i], from->stage, mode);
    }
    set_partitioning(b, node);
}

static void place_sink(struct plan_build *b, struct plan_node *node)
{
    struct plan_edge edge = node->inputs[0];
    if (edge.node != PLAN_NODE_DEAD) {
        const struct plan_node *from = &b->plan->nodes[edge.node];
        if (b->plan->stages[from->stage].tag == STAGE_SINGLE) {
            join_stage(b, node, from->stage);
            return;
        }
        if (new_stage(b, STAGE_SINGLE) == NULL)
            return;
        join_stage(b, node, b->plan->stages_count - 1);
        add_exchange(b, node, 0, edge, from->stage, EXCHANGE_SINGLE);
        return;
    }
    /* Dead letters come from all other stages; this sink's stage makes none. */
    if (new_stage(b, STAGE_SINGLE) == NULL)
        return;
    uint32_t own = b->plan->stages_count - 1;
    join_stage(b, node, own);
    for (uint32_t stage = 0; stage < own; stage++)
        add_exchange(b, node, 0, (struct plan_edge){PLAN_NODE_DEAD, PLAN_OUTPUT_DEAD}, stage,
                     EXCHANGE_SINGLE);
}

void build_stages(struct plan_build *b)
{
    struct plan *plan = b->plan;
    plan->stages = arena_array(b->arena, struct plan_stage, PLAN_STAGES_MAX);
    plan->exchanges = arena_array(b->arena, struct plan_exchange,
                                  plan->nodes_count * OPERATOR_INPUTS_MAX + PLAN_STAGES_MAX * 4);
    new_stage(b, STAGE_SOURCES);
    for (uint32_t i = 0; i < plan->nodes_count; i++)
        if (plan->nodes[i].tag == PLAN_SOURCE)
            join_stage(b, &plan->nodes[i], 0);
    for (uint32_t i = 0; i < plan->nodes_count && b->diags->errors == 0; i++) {
        struct plan_node *node = &plan->nodes[i];
        if (node->tag == PLAN_OPERATOR || node->tag == PLAN_LEARNER)
            place_operator(b, node);
        else if (node->tag == PLAN_SINK && node->inputs[0].node != PLAN_NODE_DEAD)
            place_sink(b, node);
    }
    /* The sink of dead letters comes last, because its stage is fed by every other. */
    uint32_t dead_sinks = 0;
    for (uint32_t i = 0; i < plan->nodes_count && b->diags->errors == 0; i++) {
        struct plan_node *node = &plan->nodes[i];
        if (node->tag != PLAN_SINK || node->inputs[0].node != PLAN_NODE_DEAD)
            continue;
        if (dead_sinks++ == 0)
            place_sink(b, node);
        else
            diag_error(b->diags, DIAG_NAME_TAKEN, node->span, "only one sink can take `dead_letters`");
    }
}

/* Moves of key groups between the instances of keyed stages.
 *
 * A micro-batch with a barrier says whether the next one has another placement (run/base/placements.h). When an instance has
 * taken its snapshot at that barrier, it gives the groups that leave it: bytes for each instance that gets some, and for each of
 * its nodes. An instance runs its first micro-batch by the new placement when all instances of the stage have given, and begins
 * by taking what they have for it. No instance ever sees another one's state in any other way. */
#include "run/lanes/internal.h"

#include "core/mem.h"
#include "core/operator_state.h"
#include "core/os.h"

#include <stdlib.h>

static bool is_keyed(const struct stage_instance *stage)
{
    return stage->index > 0 && stage->stage->tag != STAGE_SINGLE;
}

bool moves_init(struct run *run)
{
    if (run->options.move_seed == 0)
        return true;
    bool is_good = true;
    for (uint32_t i = 0; i < run->lanes->stages_total; i++) {
        struct stage_instance *stage = run->lanes->stages[i];
        uint32_t count = run->stage_instances[stage->index] * stage->stage->nodes_count;
        for (uint32_t k = 0; is_keyed(stage) && stage->instance == 0 && k < stage->stage->nodes_count; k++) {
            const struct plan_node *node = stage->nodes[k].node;
            if (node->operator_kind == NULL || operator_can_give(node->operator_kind))
                continue;
            struct diag *d =
                diag_error(run->diags, DIAG_OPTIONS_CLASH, node->path_span,
                           "key groups cannot move: `%s` has state, and no function that gives it away",
                           node->operator_kind->name);
            diag_hint(run->diags, d, "run the job without --move");
            is_good = false;
        }
        for (uint32_t k = 0; is_keyed(stage) && k < ARRAY_COUNT(stage->given); k++)
            stage->given[k] = mem_calloc(MAX(count, 1), sizeof(*stage->given[k]));
    }
    return is_good;
}

void moves_free(struct run *run)
{
    for (uint32_t i = 0; i < run->lanes->stages_total; i++) {
        struct stage_instance *stage = run->lanes->stages[i];
        uint32_t count = run->stage_instances[stage->index] * stage->stage->nodes_count;
        for (uint32_t k = 0; k < ARRAY_COUNT(stage->given); k++) {
            for (uint32_t b = 0; stage->given[k] != NULL && b < count; b++)
                buffer_free(&stage->given[k][b]);
            free(stage->given[k]);
        }
    }
}

/* What the instance `from` has given, or will give, at the change to that version, to the instance `to`: a buffer for each
 * node. */
static struct byte_buffer *given(struct stage_instance *from, uint32_t version, uint32_t to)
{
    return &from->given[version % 2][to * from->stage->nodes_count];
}

/* An operator's state store failed; run_wait says why. */
static void fail(struct stage_instance *stage)
{
    run_fail(stage->run);
}

void stage_leave(struct stage_instance *stage, const struct placement *next)
{
    struct run *run = stage->run;
    if (!is_keyed(stage))
        return;
    failpoint("move.give");
    for (uint32_t to = 0; to < next->instances; to++) {
        struct group_set leaving = {0};
        for (uint32_t group = 0; group < KEY_GROUPS; group++)
            if (to != stage->instance && next->instance[group] == to && group_set_has(&stage->groups, group))
                bit_set(leaving.words, group);
        struct byte_buffer *out = given(stage, next->version, to);
        uint32_t count = group_set_count(&leaving);
        for (uint32_t k = 0; k < stage->stage->nodes_count; k++) {
            struct node_instance *node = &stage->nodes[k];
            buffer_clear(&out[k]);
            if (count > 0 && node->node->operator_kind != NULL &&
                !operator_give(node->node->operator_kind, &node->context, &leaving, &out[k]))
                fail(stage);
            atomic_fetch_add(&run->lanes->moved_bytes, out[k].length);
        }
        atomic_fetch_add(&run->lanes->moved_groups, count);
        for (uint32_t group = group_set_next(&leaving, 0); group < KEY_GROUPS;
             group = group_set_next(&leaving, group + 1))
            bit_clear(stage->groups.words, group);
    }
    failpoint("move.given");
    atomic_fetch_add(&run->lanes->gives[stage->index], 1);
    run_wake(run);
}

bool stage_is_placed(const struct stage_instance *stage, const struct placement *placement)
{
    struct run *run = stage->run;
    return placement->version == stage->placement_version || !is_keyed(stage) ||
           atomic_load(&run->lanes->gives[stage->index]) >=
               (uint64_t)placement->version * run->stage_instances[stage->index];
}

void stage_take(struct stage_instance *stage, const struct placement *placement)
{
    struct run *run = stage->run;
    stage->placement_version = placement->version;
    if (!is_keyed(stage))
        return;
    failpoint("move.take");
    placement_groups(placement, stage->instance, &stage->groups);
    for (uint32_t k = 0; k < stage->stage->nodes_count; k++) {
        struct node_instance *node = &stage->nodes[k];
        if (node->node->operator_kind == NULL)
            continue;
        operator_regroup(node->node->operator_kind, &node->context);
        for (uint32_t from = 0; from < placement->instances; from++) {
            struct stage_instance *giver = lanes_instance(run, stage->index, from);
            const struct byte_buffer *bytes = &given(giver, placement->version, stage->instance)[k];
            if (from != stage->instance && bytes->length > 0 &&
                !operator_take(node->node->operator_kind, &node->context,
                               (struct str){bytes->data, bytes->length}))
                fail(stage);
        }
    }
    failpoint("move.taken");
}

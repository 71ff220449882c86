/* Which state a follower has to keep: that of the nodes on the ways of requests. */
#include "plan/plan.h"

static bool is_on_a_way(const struct plan *plan, uint32_t place)
{
    for (uint32_t i = 0; i < plan->serves_count; i++)
        for (uint32_t step = 0; step < plan->serves[i].steps_count; step++)
            if (plan->serves[i].steps[step] == place)
                return true;
    return false;
}

enum operator_following plan_following(const struct plan *plan, const struct plan_node *node)
{
    if (node->operator_kind == NULL || !is_on_a_way(plan, node->place))
        return FOLLOWING_NOTHING;
    if (node->tag == PLAN_LEARNER)
        return node->operator_kind->cut != NULL ? FOLLOWING_CUTS : FOLLOWING_NOT;
    if (node->operator_kind->reading != READING_STATE)
        return FOLLOWING_NOTHING;
    if (node->operator_kind->absorbs != NULL)
        return FOLLOWING_ROWS;
    bool (*is_steady)(const void *config) = node->operator_kind->is_steady;
    return is_steady != NULL && is_steady(node->config) ? FOLLOWING_NOTHING : FOLLOWING_NOT;
}

const struct plan_node *plan_not_followed(const struct plan *plan)
{
    for (uint32_t i = 0; i < plan->nodes_count; i++)
        if (plan_following(plan, &plan->nodes[i]) == FOLLOWING_NOT)
            return &plan->nodes[i];
    return NULL;
}

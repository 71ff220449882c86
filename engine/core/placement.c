#include "core/placement.h"

uint32_t group_set_next(const struct group_set *set, uint32_t from)
{
    if (set == NULL)
        return MIN(from, KEY_GROUPS);
    for (uint32_t word = from / 64; from < KEY_GROUPS; from = ++word * 64) {
        uint64_t bits = set->words[word] >> from % 64;
        if (bits != 0)
            return from + (uint32_t)__builtin_ctzll(bits);
    }
    return KEY_GROUPS;
}

uint32_t group_set_limit(const struct group_set *set)
{
    uint32_t limit = KEY_GROUPS;
    while (limit > 0 && !group_set_has(set, limit - 1))
        limit--;
    return limit;
}

uint32_t group_set_count(const struct group_set *set)
{
    uint32_t count = 0;
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        count += group_set_has(set, group);
    return count;
}

void placement_ranges(struct placement *placement, uint32_t instances)
{
    leat_assert(instances > 0 && instances <= PLACEMENT_INSTANCES_MAX);
    placement->instances = instances;
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        placement->instance[group] = (uint8_t)(group * instances / KEY_GROUPS);
}

void placement_scatter(struct placement *placement, uint32_t instances, uint64_t seed)
{
    leat_assert(instances > 0 && instances <= PLACEMENT_INSTANCES_MAX);
    placement->instances = instances;
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        placement->instance[group] = (uint8_t)(key_hash((struct key){seed, group}) % instances);
}

void placement_move(struct placement *placement, uint32_t group, uint32_t instance)
{
    leat_assert(instance < placement->instances);
    placement->stays[group] += placement->instance[group] != instance;
    placement->instance[group] = (uint8_t)instance;
}

void placement_groups(const struct placement *placement, uint32_t instance, struct group_set *groups)
{
    *groups = (struct group_set){0};
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        if (placement->instance[group] == instance) {
            bit_set(groups->words, group);
            groups->stays[group] = placement->stays[group];
        }
}

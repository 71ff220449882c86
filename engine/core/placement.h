/* Placement: which instance of a keyed stage has which key groups (core/key.h). The rows of a group go to its instance,
 * and its state lies there; which one it is changes no result. */
#ifndef LEAT_CORE_PLACEMENT_H
#define LEAT_CORE_PLACEMENT_H

#include "core/key.h"

/* A set of key groups. Where a pointer to a set is NULL, all groups are meant, with stay 0.
 *
 * A group's stay rises each time it moves to another instance. What an instance wrote to its database of a group carries the
 * stay: when the group has left and comes back, rows of the earlier stay are void. */
struct group_set {
    uint64_t words[BIT_WORDS(KEY_GROUPS)];
    uint32_t stays[KEY_GROUPS]; /* of the groups in the set */
};

static inline bool group_set_has(const struct group_set *set, uint32_t group)
{
    return set == NULL || bit_get(set->words, group);
}

static inline uint32_t group_set_stay(const struct group_set *set, uint32_t group)
{
    return set == NULL ? 0 : set->stays[group];
}

/* Whether the set has the group in that stay. */
static inline bool group_set_has_stay(const struct group_set *set, uint32_t group, uint32_t stay)
{
    return group_set_has(set, group) && group_set_stay(set, group) == stay;
}

/* The first group of the set that is not below `from`; KEY_GROUPS: there is none. For loops over all groups of a set:
 *     for (uint32_t g = group_set_next(set, 0); g < KEY_GROUPS; g = group_set_next(set, g + 1)) */
uint32_t group_set_next(const struct group_set *set, uint32_t from);
/* One more than the largest group of the set; 0: the set is empty. */
uint32_t group_set_limit(const struct group_set *set);
uint32_t group_set_count(const struct group_set *set);
/* Whether the set has all groups of the other one. */
bool group_set_includes(const struct group_set *set, const struct group_set *other);
/* As people write it: "0-71, 90". Reading takes no group twice, in any order, and sets stays to 0. False: the text is no such list,
 * or has a group beyond the last. Writing ends with "..." where the list is longer than some ranges. */
enum { GROUP_SET_TEXT_BYTES = 160 };
LEAT_CHECKED bool group_set_parse(struct str text, struct group_set *set);
void group_set_text(const struct group_set *set, char text[GROUP_SET_TEXT_BYTES]);

enum { PLACEMENT_INSTANCES_MAX = 256 };

struct placement {
    uint32_t version;             /* rises with each change in the life of a run, from 0 on */
    uint32_t instances;           /* 1 to PLACEMENT_INSTANCES_MAX */
    uint8_t instance[KEY_GROUPS]; /* by key group, below `instances` */
    uint32_t stays[KEY_GROUPS];   /* by key group: how often it has moved */
};

/* Gives each instance a range of about as many groups. The stays are left as they are. */
void placement_ranges(struct placement *placement, uint32_t instances);
/* Begins with the groups where `before` has them, at another number of instances, and moves as few as give each instance about as many:
 * those of instances that are no more, and, where there are more instances, what others have too many. The stays are left as they
 * are. */
void placement_keep(struct placement *placement, const struct placement *before, uint32_t instances);
/* For tests: gives each group to an instance that the seed decides. */
void placement_scatter(struct placement *placement, uint32_t instances, uint64_t seed);
/* Gives the group to the instance; where that is another one, the group's stay rises. Once for each group in a change. */
void placement_move(struct placement *placement, uint32_t group, uint32_t instance);
/* The groups that the instance has. */
void placement_groups(const struct placement *placement, uint32_t instance, struct group_set *groups);

/* The instance of the key with that hash. */
static inline uint32_t placement_instance(const struct placement *placement, uint64_t hash)
{
    return placement->instance[key_group(hash)];
}

#endif

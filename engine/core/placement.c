#include "core/placement.h"

#include <stdio.h>

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

bool group_set_includes(const struct group_set *set, const struct group_set *other)
{
    for (uint32_t group = group_set_next(other, 0); group < KEY_GROUPS;
         group = group_set_next(other, group + 1))
        if (!group_set_has(set, group))
            return false;
    return true;
}

/* Takes a number below KEY_GROUPS from the front of the text. */
static bool take_group(struct str *text, uint32_t *group)
{
    size_t length = 0;
    *group = 0;
    for (; length < text->length && text->data[length] >= '0' && text->data[length] <= '9'; length++) {
        *group = *group * 10 + (uint32_t)(text->data[length] - '0');
        if (*group >= KEY_GROUPS)
            return false;
    }
    *text = (struct str){text->data + length, text->length - length};
    return length > 0;
}

/* Takes the character, with spaces behind it; false: it is not there. */
static bool take_mark(struct str *text, char mark)
{
    if (text->length == 0 || text->data[0] != mark)
        return false;
    do
        *text = (struct str){text->data + 1, text->length - 1};
    while (text->length > 0 && text->data[0] == ' ');
    return true;
}

bool group_set_parse(struct str text, struct group_set *set)
{
    *set = (struct group_set){0};
    do {
        uint32_t first, last;
        if (!take_group(&text, &first))
            return false;
        last = first;
        if (take_mark(&text, '-') && !take_group(&text, &last))
            return false;
        if (last < first)
            return false;
        for (uint32_t group = first; group <= last; group++) {
            if (bit_get(set->words, group))
                return false;
            bit_set(set->words, group);
        }
    } while (take_mark(&text, ','));
    return text.length == 0;
}

void group_set_text(const struct group_set *set, char text[GROUP_SET_TEXT_BYTES])
{
    enum { RANGE_BYTES = 16 }; /* of ", 700-719", or of ", ..." */
    size_t at = 0;
    text[0] = '\0';
    for (uint32_t first = group_set_next(set, 0); first < KEY_GROUPS;) {
        uint32_t last = first;
        while (last + 1 < KEY_GROUPS && group_set_has(set, last + 1))
            last++;
        const char *comma = at == 0 ? "" : ", ";
        if (at + 2 * RANGE_BYTES > GROUP_SET_TEXT_BYTES) {
            snprintf(text + at, GROUP_SET_TEXT_BYTES - at, ", ...");
            return;
        }
        at += (size_t)(first == last ? snprintf(text + at, RANGE_BYTES, "%s%u", comma, first)
                                     : snprintf(text + at, RANGE_BYTES, "%s%u-%u", comma, first, last));
        first = group_set_next(set, last + 1);
    }
}

void placement_ranges(struct placement *placement, uint32_t instances)
{
    leat_assert(instances > 0 && instances <= PLACEMENT_INSTANCES_MAX);
    placement->instances = instances;
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        placement->instance[group] = (uint8_t)(group * instances / KEY_GROUPS);
}

void placement_keep(struct placement *placement, const struct placement *before, uint32_t instances)
{
    uint32_t counts[PLACEMENT_INSTANCES_MAX] = {0};
    leat_assert(instances > 0 && instances <= PLACEMENT_INSTANCES_MAX);
    uint32_t most = instances <= before->instances ? KEY_GROUPS : (KEY_GROUPS + instances - 1) / instances;
    placement->instances = instances;
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        counts[before->instance[group]]++;
    for (uint32_t group = 0; group < KEY_GROUPS; group++) {
        uint32_t to = before->instance[group], least = 0;
        for (uint32_t i = 1; i < instances; i++)
            least = counts[i] < counts[least] ? i : least;
        if (to >= instances || counts[to] > most) {
            counts[to]--;
            counts[least]++;
            to = least;
        }
        placement->instance[group] = (uint8_t)to;
    }
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

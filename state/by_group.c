#include "state/by_group.h"

#include "core/key.h"
#include "core/mem.h"

#include <stdlib.h>

enum { CAPACITY_FIRST = 256 };

void by_group_add(struct by_group *list, uint32_t group, const void *record)
{
    leat_assert(group < KEY_GROUPS);
    if (list->count == list->capacity) {
        list->capacity = MAX(list->capacity * 2, (uint32_t)CAPACITY_FIRST);
        list->records = mem_realloc(list->records, list->capacity * sizeof(*list->records));
        list->groups = mem_realloc(list->groups, list->capacity * sizeof(*list->groups));
        free(list->scratch);
        list->scratch = mem_alloc(list->capacity * sizeof(*list->scratch));
    }
    list->groups[list->count] = (uint16_t)group;
    list->records[list->count++] = record;
}

void by_group_sort(struct by_group *list)
{
    uint32_t begins[KEY_GROUPS + 1] = {0};
    for (uint32_t i = 0; i < list->count; i++)
        begins[list->groups[i] + 1]++;
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        begins[group + 1] += begins[group];
    for (uint32_t i = 0; i < list->count; i++)
        list->scratch[begins[list->groups[i]]++] = list->records[i];
    const void **sorted = list->scratch;
    list->scratch = list->records;
    list->records = sorted;
}

void by_group_clear(struct by_group *list)
{
    list->count = 0;
}

void by_group_free(struct by_group *list)
{
    free(list->records);
    free(list->groups);
    free(list->scratch);
    *list = (struct by_group){0};
}

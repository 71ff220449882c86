/* Inside state/: records in the order of their key groups, so that a checkpoint has few pieces (checkpoint_write.c). One thread. */
#ifndef LEAT_STATE_BY_GROUP_H
#define LEAT_STATE_BY_GROUP_H

#include "core/base.h"

/* Zeroed: empty. The records stay the caller's. */
struct by_group {
    const void **records;
    uint16_t *groups; /* of the records, until by_group_sort */
    const void **scratch;
    uint32_t count, capacity;
};

void by_group_add(struct by_group *list, uint32_t group, const void *record);
/* Puts the records into the order of their groups; those of a group stay in the order in which they were added. */
void by_group_sort(struct by_group *list);
void by_group_clear(struct by_group *list); /* keeps the memory */
void by_group_free(struct by_group *list);

#endif

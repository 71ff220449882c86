/* The partitions that metrics show: of each source the first PARTITION_SERIES_MAX, each by its name, and the sum of all
 * others as the partition `other`. A partition that has a series keeps it as long as the run. One thread at a time. */
#ifndef LEAT_CONTROL_PARTITION_SERIES_H
#define LEAT_CONTROL_PARTITION_SERIES_H

#include "run/run.h"

enum {
    PARTITION_SERIES_MAX = 200,
    PARTITION_NAME_BYTES_MAX = 100 /* of a longer name the end is shown, where names of files differ */
};

struct partition_series {
    uint32_t node;                           /* the source's place in the plan */
    char name[PARTITION_NAME_BYTES_MAX + 8]; /* UTF-8, not empty; no two series of a node have the same */
    uint64_t records;
};

struct partition_watch;
struct partition_watch *partition_watch_new(void);
void partition_watch_free(struct partition_watch *watch); /* NULL is allowed */
/* Reads the run's partitions. Control thread. */
void partition_watch_look(struct partition_watch *watch, struct run *run);
/* The series as of the last look; they live until the next one. watch NULL: none. */
const struct partition_series *partition_watch_series(const struct partition_watch *watch, uint32_t *count);

#endif

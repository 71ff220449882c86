/* Memory that a step of a job allocates once, when it opens, by part: `leat explain` shows it
 * before the run. */
#ifndef LEAT_CORE_MEMORY_PLAN_H
#define LEAT_CORE_MEMORY_PLAN_H

#include "core/arena.h"

enum { MEMORY_PARTS_MAX = 12 };

struct memory_plan {
    char where[320]; /* where the memory is, e.g. "on the CPU" */
    uint32_t count;  /* 0: the step needs little memory */
    struct memory_part {
        const char *name; /* static */
        uint64_t bytes;
        bool is_elsewhere; /* the part lies in host memory, while `where` names a device */
    } parts[MEMORY_PARTS_MAX];
};

/* Adds a part; does nothing for 0 bytes. */
void memory_plan_add(struct memory_plan *plan, const char *name, uint64_t bytes, bool is_elsewhere);
/* Sum over the parts whose `is_elsewhere` equals the argument. */
uint64_t memory_plan_bytes(const struct memory_plan *plan, bool is_elsewhere);
/* "8.1 GiB: input 12.0 MiB, rows 30.5 MiB": sum and parts whose `is_elsewhere` equals the argument. */
const char *memory_plan_text(const struct memory_plan *plan, bool is_elsewhere, struct arena *arena);
/* "8.1 GiB" */
const char *memory_bytes_text(uint64_t bytes, struct arena *arena);

#endif

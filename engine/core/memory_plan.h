/* Memory that a step of a job takes for good when it opens, by part: what `leat explain` shows before. */
#ifndef LEAT_CORE_MEMORY_PLAN_H
#define LEAT_CORE_MEMORY_PLAN_H

#include "core/arena.h"

enum { MEMORY_PARTS_MAX = 12 };

struct memory_plan {
    char where[320]; /* "on the CPU" */
    uint32_t count;  /* 0: little, wherever it is */
    struct memory_part {
        const char *name; /* static */
        uint64_t bytes;
        bool is_elsewhere; /* of the host, beside a device whose memory `where` is */
    } parts[MEMORY_PARTS_MAX];
};

/* Nothing is added for no bytes. */
void memory_plan_add(struct memory_plan *plan, const char *name, uint64_t bytes, bool is_elsewhere);
/* Of all parts that lie there, or elsewhere. */
uint64_t memory_plan_bytes(const struct memory_plan *plan, bool is_elsewhere);
/* "8.1 GiB: input 12.0 MiB, rows 30.5 MiB", of those that lie there, or elsewhere. */
const char *memory_plan_text(const struct memory_plan *plan, bool is_elsewhere, struct arena *arena);
/* "8.1 GiB" */
const char *memory_bytes_text(uint64_t bytes, struct arena *arena);

#endif

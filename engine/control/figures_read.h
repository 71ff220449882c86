/* The figures of a run in another process, from the JSON of its control API (summary.h), as the picture wants them
 * (picture.h). One thread at a time. */
#ifndef LEAT_CONTROL_FIGURES_READ_H
#define LEAT_CONTROL_FIGURES_READ_H

#include "control/bottleneck.h"
#include "control/dead_watch.h"

/* Large (some MiB): allocated with calloc, and used again for each answer. */
struct figures_read {
    struct arena arena; /* of all texts */
    struct str job;
    struct run_stats stats; /* what the picture uses of it */
    struct plan_node nodes[PLAN_NODES_MAX];
    struct dead_watch watch;
    struct bottleneck_found recent;
    bool is_recent_known;
};

/* Reads an answer of /api/v1/figures, whose bytes may be any. NULL: good; else why it is none. */
LEAT_CHECKED const char *figures_read(struct figures_read *figures, struct str json);
void figures_read_free(struct figures_read *figures); /* NULL is allowed */

#endif

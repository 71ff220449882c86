/* The metrics of a run, and what they mean (`leat help metrics`): both from one table. Any thread, on figures that nobody
 * changes meanwhile. */
#ifndef LEAT_CONTROL_METRICS_H
#define LEAT_CONTROL_METRICS_H

#include "net/metrics.h"
#include "run/run.h"

struct metrics_source {
    const struct plan *plan;
    const struct run_stats *stats;
    const struct run_times *times; /* of the same moment */
};

void metrics_write(const struct metrics_source *source, struct metrics_text *text);

/* What the `index`-th metric is, counted from 0; NULL: there are fewer. */
const struct metric_meaning *metrics_meaning(uint32_t index);

#endif

/* The metrics of a run, and what they mean (`leat help metrics`): both from one table. Any thread, on figures that nobody
 * changes meanwhile. */
#ifndef LEAT_CONTROL_METRICS_H
#define LEAT_CONTROL_METRICS_H

#include "control/partition_series.h"
#include "net/metrics.h"
#include "run/run.h"

/* Series of an answer, without those of metrics_common. Beyond it the last ones, in the order of the table, are left out, and
 * leat_metrics_series_left_out says how many. */
enum { METRICS_SERIES_MAX = 10000 };

struct metrics_source {
    const struct plan *plan;
    const struct run_stats *stats;
    const struct run_times *times;            /* of the same moment */
    const struct partition_watch *partitions; /* NULL: none */
};

void metrics_write(const struct metrics_source *source, struct metrics_text *text);

/* What the `index`-th metric is, counted from 0; NULL: there are fewer. */
const struct metric_meaning *metrics_meaning(uint32_t index);

#endif

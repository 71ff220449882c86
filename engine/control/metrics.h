/* The figures of a run in the text format of Prometheus, and what they mean (`leat help metrics`): both from one table. Any
 * thread, on figures that nobody changes meanwhile. */
#ifndef LEAT_CONTROL_METRICS_H
#define LEAT_CONTROL_METRICS_H

#include "core/buffer.h"
#include "run/run.h"

struct metrics_source {
    const struct plan *plan;
    const struct run_stats *stats;
    const struct run_times *times; /* of the same moment */
};

void metrics_write(const struct metrics_source *source, struct byte_buffer *out);

/* What the `index`-th metric is, counted from 0; false: there are fewer. labels: "node, kind"; "": none. */
struct metrics_meaning {
    const char *name, *type, *labels, *help;
};
bool metrics_meaning(uint32_t index, struct metrics_meaning *meaning);

#endif

/* The report at the end of a run. Control thread. */
#ifndef LEAT_CONTROL_SUMMARY_H
#define LEAT_CONTROL_SUMMARY_H

#include "control/bottleneck.h"
#include "control/dead_watch.h"
#include "core/buffer.h"

struct summary {
    const struct plan *plan;
    /* At the end: taken after run_wait, dead_watch_end, bottleneck_whole. */
    const struct run_stats *stats;
    const struct dead_watch *watch;
    const struct bottleneck_found *bottleneck;
    bool is_good; /* run_wait's result; true while the run goes on */
};

void summary_text(const struct summary *summary, FILE *out);
/* Appends the report as JSON. */
void summary_put_json(const struct summary *summary, struct byte_buffer *out);

/* "12.30 M/s", "4.5 GiB", "1:02:03". They write into `out` and return it. Any thread. */
const char *format_rate(double per_second, char out[32]);
const char *format_bytes(double bytes, char out[32]);
const char *format_duration(int64_t microseconds, char out[32]);

#endif

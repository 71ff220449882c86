/* The report at the end of a run. Control thread. */
#ifndef LEAT_CONTROL_SUMMARY_H
#define LEAT_CONTROL_SUMMARY_H

#include "control/bottleneck.h"
#include "control/dead_watch.h"

struct summary {
    const struct plan *plan;
    const struct run_stats *stats;             /* taken after run_wait */
    const struct dead_watch *watch;            /* after dead_watch_end */
    const struct bottleneck_found *bottleneck; /* of bottleneck_whole */
    bool is_good;                              /* run_wait's result */
};

/* Write the report to `out`. */
void summary_text(const struct summary *summary, FILE *out);
void summary_json(const struct summary *summary, FILE *out);

/* "12.30 M/s", "4.5 GiB", "1:02:03". They write into `out` and return it. Any thread. */
const char *format_rate(double per_second, char out[32]);
const char *format_bytes(double bytes, char out[32]);
const char *format_duration(int64_t microseconds, char out[32]);

#endif

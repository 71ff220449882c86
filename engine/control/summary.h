/* The report at the end of a run. Control thread. */
#ifndef LEAT_CONTROL_SUMMARY_H
#define LEAT_CONTROL_SUMMARY_H

#include "control/dead_watch.h"

/* Write the report to `out`. stats: taken after run_wait. watch: after dead_watch_end. is_good: run_wait's
 * result. */
void summary_text(const struct plan *plan, const struct run_stats *stats, const struct dead_watch *watch,
                  bool is_good, FILE *out);
void summary_json(const struct plan *plan, const struct run_stats *stats, const struct dead_watch *watch,
                  bool is_good, FILE *out);

/* "12.30 M/s", "4.5 GiB", "1:02:03". They write into `out` and return it. Any thread. */
const char *format_rate(double per_second, char out[32]);
const char *format_bytes(double bytes, char out[32]);
const char *format_duration(int64_t microseconds, char out[32]);

#endif

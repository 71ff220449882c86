/* The report at the end of a run. Control thread. */
#ifndef LEAT_CONTROL_SUMMARY_H
#define LEAT_CONTROL_SUMMARY_H

#include "control/bottleneck.h"
#include "control/dead_watch.h"
#include "core/buffer.h"

/* What became of the requests to a `serve` beside the run, since its server began. */
struct summary_served {
    const char *name;
    uint64_t requests; /* the sum of the counts */
    uint32_t kinds;
    const char *kind_names[8];
    uint64_t counts[8];
};

struct summary {
    const struct plan *plan;
    /* At the end: taken after run_wait, dead_watch_end, bottleneck_whole. */
    const struct run_stats *stats;
    const struct dead_watch *watch;
    const struct bottleneck_found *bottleneck;
    /* Of each `serve` beside the run. */
    const struct summary_served *served;
    uint32_t served_count;
    bool is_good;     /* run_wait's result; true while the run goes on */
    bool is_going_on; /* run_wait has not returned */
};

/* Of several workers, the leader's figures are the job's; what is said of the time of lanes is of the leader's alone. */
void summary_text(const struct summary *summary, FILE *out);
/* Append the report as JSON: in lines, or on one line with "now", Unix milliseconds. Any thread. */
void summary_put_json(const struct summary *summary, struct byte_buffer *out);
void summary_put_line(const struct summary *summary, int64_t now_ms, struct byte_buffer *out);

/* In place of the summary, of a worker that does not lead (run_stats.is_part): which one it is, what it has done, and who has the job's
 * summary: the worker of that number, at that address. A line of text, or JSON with "is_part": true. Any thread. */
void summary_part_text(const struct summary *summary, uint32_t leader, struct str address, FILE *out);
void summary_put_part_json(const struct summary *summary, uint32_t leader, struct str address,
                           struct byte_buffer *out);

/* The share of the sources' input that is done, from 0; -1: it is not known how much there is. Any thread. */
double summary_share_done(const struct run_stats *stats);

/* "12.30 M/s", "4.5 GiB", "1:02:03". They write into `out` and return it. Any thread. */
const char *format_rate(double per_second, char out[32]);
const char *format_bytes(double bytes, char out[32]);
const char *format_duration(int64_t microseconds, char out[32]);

#endif

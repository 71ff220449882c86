/* Metrics as text: the format of Prometheus (0.0.4), or OpenMetrics 1.0 for a client that prefers it. What a metric is
 * stands in a row of a table: `/metrics`, `leat help metrics` and docs/metrics.md are made from the same rows.
 *
 * Any thread, one at a time for each text. */
#ifndef LEAT_NET_METRICS_H
#define LEAT_NET_METRICS_H

#include "net/net.h"

struct metric_meaning {
    const char *
        name; /* that of its samples; a counter's ends with _total, an info's with _info, a time's with _seconds */
    const char *type;   /* "counter", "gauge", "histogram", "info" */
    const char *labels; /* "node, kind"; "": none */
    const char *help;   /* a sentence without quotation marks, backslashes and newlines */
};

struct metrics_text {
    struct byte_buffer *out; /* the caller's */
    bool is_openmetrics;
    bool has_labels;           /* of the sample that is being written */
    bool is_left_out;          /* the sample is: it is counted, and nothing of it is written */
    uint64_t series_max;       /* samples beyond it are left out; 0: none is */
    uint64_t series, left_out; /* samples so far */
};

/* Whether the request prefers OpenMetrics 1.0 to the text format (header field `accept`). */
bool metrics_wants_open(const struct net_exchange *exchange);
/* The content-type of an answer. */
struct str metrics_content_type(bool is_openmetrics);

/* What stands before a metric's samples; all samples of a metric follow it. */
void metrics_head(struct metrics_text *text, const struct metric_meaning *meaning);
/* A sample: its name, labels, then its value. name: the meaning's; of a histogram, with _bucket, _sum or _count. */
void metrics_begin(struct metrics_text *text, const char *name);
/* value: valid UTF-8; quotation marks, backslashes and newlines in it are escaped. */
void metrics_label(struct metrics_text *text, const char *name, struct str value);
/* Labels that metrics_label_text has written, instead of a metrics_label for each. */
void metrics_labels(struct metrics_text *text, struct str labels);
/* Appends a label as it stands in a sample, to use it for many: metrics_labels. */
void metrics_label_text(struct byte_buffer *out, const char *name, struct str value);
void metrics_value(struct metrics_text *text, double value);
/* A time in nanoseconds; written in seconds, to the last digit. */
void metrics_time(struct metrics_text *text, uint64_t ns);
void metrics_count(struct metrics_text *text, uint64_t value);
/* A metric of one sample without labels, with its head. */
void metrics_single(struct metrics_text *text, const struct metric_meaning *meaning, uint64_t value);
/* Behind all metrics. */
void metrics_end(struct metrics_text *text);

/* The program's version, and the counters of a loop's connections: what every server of leat has. */
void metrics_common(struct metrics_text *text, const struct net_loop *loop);
/* What the `index`-th metric of metrics_common is, counted from 0; NULL: there are fewer. */
const struct metric_meaning *metrics_common_meaning(uint32_t index);

#endif

/* What `leat serve` says under /metrics: one row a metric (name, type, labels, help), which `leat help metrics` and
 * docs/metrics.md have, too. */
#ifndef LEAT_SERVE_METRICS_TABLE_H
#define LEAT_SERVE_METRICS_TABLE_H

#include "net/metrics.h"

enum serve_metric {
    /* figures.c */
    METRIC_SERVE_REQUESTS,
    METRIC_SERVE_ROWS,
    METRIC_SERVE_ROWS_LATE,
    METRIC_SERVE_BATCHES,
    METRIC_SERVE_SECONDS,
    /* metrics.c */
    METRIC_SERVE_STALENESS,
    METRIC_SERVE_WAITING_ROWS,
    METRIC_SERVE_LOADED,
    METRIC_SERVE_CONTROL,
    METRIC_SERVE_LOG_LINES,
    METRIC_SERVE_LOG_WAITING,
    METRIC_SERVE_UNKNOWN_MODELS,
    METRIC_FOLLOW_LIVE,
    METRIC_FOLLOW_FEATURES,
    METRIC_FOLLOW_ROWS,
    METRIC_FOLLOW_CUTS,
    METRIC_FOLLOW_BYTES,
    /* link_metrics.c */
    METRIC_LINK_UP,
    METRIC_LINK_ANSWERS,
    METRIC_LINK_UNANSWERED,
    METRIC_LINK_REFUSED,
    METRIC_LINK_DAMAGED,
    METRIC_LINK_BYTES,
    METRIC_LINK_CHECKPOINTS,
    METRIC_LINK_OFFERED_ANSWERS,
    METRIC_LINK_OFFERED_REFUSALS,
    METRIC_LINK_OFFERED_BYTES,
    SERVE_METRICS,
};
extern const struct metric_meaning serve_metrics[SERVE_METRICS];

/* A sample of a metric whose first label is the model or the job; its other labels and its value follow. */
void serve_metric_begin(struct metrics_text *text, enum serve_metric metric, struct str whose);

#endif

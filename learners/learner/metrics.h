/*
 * Progressive evaluation: predictions made before learning, scored when the label is known. Figures are
 * computed over the whole run and over a sliding window of the last `window` events (the window moves in
 * steps of a sixteenth of its length, so it holds 15/16 to 16/16 of these events).
 *
 * Sums are kept per METRICS_BLOCK events and added up in order, so that the figures do not depend on how the
 * events are cut into calls. AUC is computed from counts by logit in bins of 1/64 over [-16, 16): ties within
 * a bin count half, so the error is at most half the share of pairs that fall into one bin; auc_error reports
 * it. One thread.
 */
#ifndef LEAT_LEARNERS_LEARNER_METRICS_H
#define LEAT_LEARNERS_LEARNER_METRICS_H

#include "learners/loss.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { METRICS_BINS = 2048, METRICS_SLICES = 16, METRICS_BLOCK = 1024 };

struct metrics_sums {
    uint64_t count;
    double loss;  /* sum of logistic losses */
    double label; /* sum of labels */
    double prediction;
    double squares, absolutes; /* of prediction - label */
};

struct metrics {
    enum loss_kind kind;
    uint64_t slice_events;                /* window / METRICS_SLICES */
    struct metrics_sums whole;            /* sums of the full blocks */
    struct metrics_sums open;             /* sums of the block being filled */
    uint64_t whole_bins[2][METRICS_BINS]; /* [label > 0.5][bin] number of events of the whole run */
    struct metrics_sums slices[METRICS_SLICES];
    uint32_t slice_bins[METRICS_SLICES][2][METRICS_BINS];
    uint32_t slice; /* the slice being filled */
};

struct metrics_values {
    uint64_t count;
    double logloss, auc, auc_error, normalized_entropy,
        calibration; /* of the logistic loss; calibration = sum of predictions / sum of labels */
    double rmse, mae;
    double label_mean;
};

void metrics_init(struct metrics *metrics, enum loss_kind kind, uint64_t window);

struct kernels;

/* Adds n events; those with a non-finite logit are left out. Labels of the logistic loss: from 0 to 1; auc
 * counts a label above 0.5 as 1, else as 0. */
void metrics_add(struct metrics *metrics, const struct kernels *kernels, const double *logits,
                 const float *labels, size_t n);

/* The figures of the window, or of the whole run (is_window false). Without events all are 0. With squared
 * loss the figures of the logistic loss are 0; with logistic loss NaN where they do not exist, as auc before
 * there is an event of each label. */
struct metrics_values metrics_values(const struct metrics *metrics, bool is_window);

#endif

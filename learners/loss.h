/* The losses: value, and first and second derivative by the logit, in double; inline, because every event
 * needs them. */
#ifndef LEAT_LEARNERS_LOSS_H
#define LEAT_LEARNERS_LOSS_H

#include "kernels/num.h"

enum loss_kind { LOSS_LOGISTIC, LOSS_SQUARED };

struct loss_point {
    double prediction; /* probability, or the value itself */
    double gradient;   /* d loss / d logit */
    double curvature;  /* d^2 loss / d logit^2 */
};

static inline struct loss_point loss_at(enum loss_kind kind, double logit, double label)
{
    if (kind == LOSS_SQUARED)
        return (struct loss_point){.prediction = logit, .gradient = logit - label, .curvature = 1.0};
    double p = num_sigmoid(logit);
    return (struct loss_point){.prediction = p, .gradient = p - label, .curvature = p * (1.0 - p)};
}

/* Logistic: log(1 + e^z) - y z. Squared: (z - y)^2 / 2, whose derivative is the gradient of loss_at. */
static inline double loss_value(enum loss_kind kind, double logit, double label)
{
    return kind == LOSS_SQUARED ? 0.5 * (logit - label) * (logit - label) : num_logloss(logit, label);
}

/*
 * The weight of an example from a stream that emits each row at once with label 0, and again with label 1 if
 * a positive label follows: the ratio of p(y|x) to the distribution in such a stream, b(1|x) = p / (1 + p)
 * and b(0|x) = 1 / (1 + p), is 1 + p for label 1 and (1 - p)(1 + p) for label 0 (Ktena et al. 2019,
 * "Addressing Delayed Feedback for Continuous Training with Neural Networks in CTR prediction",
 * arXiv:1907.06558, "fake negative weighted"). p is the model's own prediction and counts as a constant: no
 * gradient goes through it. "Fake negative calibration" of the same paper learns b, without weights, and
 * gives p = b / (1 - b): an expression on predictions.
 */
static inline double loss_fake_negative_weight(double prediction, double label)
{
    return label > 0.5 ? 1.0 + prediction : (1.0 - prediction) * (1.0 + prediction);
}

#endif

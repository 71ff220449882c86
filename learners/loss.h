/* The losses: value, slope and curvature by the logit, in double; inline, for they are on every event's path.
 */
#ifndef LEARNERS_LOSS_H
#define LEARNERS_LOSS_H

#include "kernels/num.h"

enum loss_kind { LOSS_LOGISTIC, LOSS_SQUARED };

struct loss_point {
    double prediction; /* probability, or the value itself */
    double slope;      /* d loss / d logit */
    double curvature;  /* d^2 loss / d logit^2 */
};

static inline struct loss_point loss_at(enum loss_kind kind, double logit, double label)
{
    if (kind == LOSS_SQUARED)
        return (struct loss_point){.prediction = logit, .slope = logit - label, .curvature = 1.0};
    double p = num_sigmoid(logit);
    return (struct loss_point){.prediction = p, .slope = p - label, .curvature = p * (1.0 - p)};
}

/* Logistic: log(1 + e^z) - y z. Squared: (z - y)^2 / 2, whose slope the above is. */
static inline double loss_value(enum loss_kind kind, double logit, double label)
{
    return kind == LOSS_SQUARED ? 0.5 * (logit - label) * (logit - label) : num_logloss(logit, label);
}

#endif

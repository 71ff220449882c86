/* Learners are operators (core/operator.h) with one input whose instance sees all rows in the job's one order
 * (DETERMINISM_BY_ALL_ROWS). outputs[0]: `NAME.predictions`, the input's own columns (without those added for
 * expressions) and `prediction: float`, one row per example, from the weights before learning it; outputs[1]:
 * `NAME.metrics`. Their counters add up as in = learned + sampled_out + rejected: learned is `absorbed`,
 * sampled out is `filtered`, rejected is `dead` (without going to dead letters); predictions are `emitted`.
 *
 * A learner's option table has expressions (`label`, `sparse`, `dense` ...). Its `bind` makes each a column
 * of the input with bind->add_column, which returns the column's index, or -1 after a diagnostic; columns
 * that exist are returned as they are. bind->inputs[0].schema then has them all. It fills bind->learner, and
 * the plan refuses features that derive from the label (design, promise 3). */
#ifndef LEAT_CORE_LEARNER_H
#define LEAT_CORE_LEARNER_H

#include "core/operator.h"

enum { LEARNER_FEATURES_MAX = 256 };

struct learner_columns {
    int label; /* column index */
    struct span label_span;
    uint32_t count;
    int features[LEARNER_FEATURES_MAX];
    struct span spans[LEARNER_FEATURES_MAX];
    struct columns
        known; /* `known_early: [...]`: columns the label is computed from that are known when serving */
};

#endif

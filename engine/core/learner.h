/* Learners are operators (core/operator.h) with one input whose instance sees all rows in the job's one order
 * (DETERMINISM_BY_ALL_ROWS). outputs[0]: `NAME.predictions`, the input's own columns (without those added for
 * expressions) and `prediction: float`, one row per example, from the weights before learning it (several
 * labels: `prediction_LABEL` for each); outputs[1]: `NAME.metrics`. Their counters add up as in = learned +
 * sampled_out + weightless + frozen + rejected: learned is `absorbed`, sampled out, without weight and frozen
 * (predicted, not learned) are `filtered`, rejected is `dead` (without going to dead letters); predictions
 * are `emitted`.
 *
 * A learner's option table has expressions (`label`, `sparse`, `dense` ...). Its `bind` makes each a column
 * of the input with bind->add_column, which returns the column's index, or -1 after a diagnostic; columns
 * that exist are returned as they are. bind->inputs[0].schema then has them all. It fills bind->learner, and
 * the plan refuses features that derive from a label (design, promise 3). */
#ifndef LEAT_CORE_LEARNER_H
#define LEAT_CORE_LEARNER_H

#include "core/operator.h"

enum { LEARNER_FEATURES_MAX = 256, LEARNER_LABELS_MAX = 8 };

/* A learner's figure under `leat run --compare cpu`: after how many steps the devices agreed. */
#define LEARNER_COMPARED "compared_steps"

struct learner_columns {
    int labels[LEARNER_LABELS_MAX]; /* column indices */
    struct span label_spans[LEARNER_LABELS_MAX];
    uint32_t labels_count;
    uint32_t count;
    int features[LEARNER_FEATURES_MAX];
    struct span spans[LEARNER_FEATURES_MAX];
    struct columns
        known; /* `known_early: [...]`: columns the label is computed from that are known when serving */
};

/* What a model is made of, for `leat model`: first all dense parameters, then table by table its rows by
 * rising key. Any callback may return false to stop. Pointers are valid during the call. */
struct model_visitor {
    void *argument;
    /* float32, row-major; a vector has one row. */
    bool (*tensor)(void *argument, const char *name, const float *data, size_t rows, size_t columns);
    /* A table begins. name: the field (the column's name); dim: floats a row. */
    bool (*table)(void *argument, const char *name, size_t dim, uint64_t rows);
    /* A row: its weights without optimizer state; sightings; event time of the last one. */
    bool (*row)(void *argument, uint64_t key, const float *weights, uint64_t count, int64_t seen_us);
};

#endif

/*
 * Decisions while a learner runs. Learning rates follow schedules; and a learner whose figures leave their
 * bands (`freeze`) stops learning, but not predicting, until they are back. Both are decided at each multiple
 * of SCHEDULE_EXAMPLES examples, from the number of examples and the evaluation's window alone: so the
 * decisions depend on the records and their order, not on where batches end.
 */
#include "learners/learner/internal.h"

#include <math.h>

enum { SCHEDULE_EXAMPLES = 1024 };

static const struct option freeze_options[] = {
    OPTION_FLOAT(struct freeze_config, calibration_min, "calibration_min", 0, "0.0", "0.0", NULL,
                 "smallest calibration (sum of predictions / sum of labels) of the window; 0: no limit"),
    OPTION_FLOAT(struct freeze_config, calibration_max, "calibration_max", 0, "0.0", "0.0", NULL,
                 "largest calibration of the window; 0: no limit"),
    OPTION_FLOAT(struct freeze_config, label_mean_min, "label_mean_min", 0, "0.0", "0.0", NULL,
                 "smallest mean label of the window; 0: no limit"),
    OPTION_FLOAT(struct freeze_config, label_mean_max, "label_mean_max", 0, "0.0", "0.0", NULL,
                 "largest mean label of the window; 0: no limit"),
    OPTION_INT(struct freeze_config, after, "after", 0, "100000", "0", NULL,
               "examples before the bands apply; the bands are checked every 1,024 examples"),
    OPTIONS_END,
};

const struct option learner_evaluation_options[] = {
    OPTION_INT(struct evaluation_config, window, "window", 0, "100000", "16", "1000000000",
               "number of newest examples in the sliding evaluation"),
    OPTION_INT(struct evaluation_config, metrics_every, "metrics_every", 0, "100000", "1", NULL,
               "examples between two rows of `metrics`; one more row comes when the input has ended"),
    OPTION_BLOCK(struct evaluation_config, freeze, struct freeze_config, "freeze", 0, freeze_options,
                 "stops learning, but not predicting, while figures of the window are outside "
                 "of these bands; meanwhile ids that occur keep their rows, and other ids "
                 "expire (`expire_after`)"),
    OPTIONS_END,
};

static bool is_scheduled(const struct kind_ref *ref)
{
    const struct optimizer_config *o = ref->config;
    return o && (o->warmup > 0 || o->halve_every > 0);
}

static bool has_band(const struct freeze_config *f)
{
    return f->calibration_min > 0.0 || f->calibration_max > 0.0 || f->label_mean_min > 0.0 ||
           f->label_mean_max > 0.0;
}

bool learner_schedule_bind(struct operator_bind *bind, struct learner_config *c)
{
    const struct freeze_config *f = &c->evaluation.freeze;
    const char *problem = NULL;
    if ((f->calibration_min > f->calibration_max && f->calibration_max > 0.0) ||
        (f->label_mean_min > f->label_mean_max && f->label_mean_max > 0.0))
        problem = "a band of `freeze` is empty: its minimum is larger than its maximum";
    else if (c->loss != LOSS_LOGISTIC && (f->calibration_min > 0.0 || f->calibration_max > 0.0))
        problem =
            "calibration needs probabilities: with `loss: squared`, `freeze` takes only `label_mean_min` "
            "and `label_mean_max`";
    if (problem != NULL)
        diag_error(bind->diags, DIAG_BAD_LEARNER, bind->span, "%s", problem);
    c->is_scheduled = has_band(f) || is_scheduled(&c->linear) || is_scheduled(&c->embedding.optimizer) ||
                      (c->layers != NULL && is_scheduled(&c->layers->optimizer)) ||
                      (c->pairs != NULL && is_scheduled(&c->pairs->weights));
    return !problem;
}

uint32_t learner_piece(const struct learner_config *c, uint32_t rows)
{
    uint64_t left = SCHEDULE_EXAMPLES - c->state->seen % SCHEDULE_EXAMPLES;
    return c->is_scheduled ? (uint32_t)MIN(rows, left) : rows;
}

static bool is_outside(double value, double low, double high)
{
    return (low > 0.0 && !(value >= low)) || (high > 0.0 && !(value <= high));
}

static bool is_off_band(const struct learner_config *c)
{
    const struct freeze_config *f = &c->evaluation.freeze;
    if (!has_band(f) || c->state->seen < (uint64_t)f->after)
        return false;
    struct metrics_values v = metrics_values(&c->state->metrics[0], true);
    if (v.count == 0)
        return false;
    /* Without any label 1, predictions exceed the labels by any factor. */
    double calibration = isnan(v.calibration) ? (double)INFINITY : v.calibration;
    return is_outside(calibration, f->calibration_min, f->calibration_max) ||
           is_outside(v.label_mean, f->label_mean_min, f->label_mean_max);
}

void learner_schedule(struct learner_config *c)
{
    struct learner_state *s = c->state;
    if (!c->is_scheduled)
        return;
    uint64_t seen = s->seen / SCHEDULE_EXAMPLES * SCHEDULE_EXAMPLES;
    struct model_rates rates = {
        .linear = optimizer_rate(&c->linear, seen, SCHEDULE_EXAMPLES),
        .embedding = optimizer_rate(&c->embedding.optimizer, seen, SCHEDULE_EXAMPLES),
        .head = c->layers != NULL ? optimizer_rate(&c->layers->optimizer, seen, SCHEDULE_EXAMPLES) : 0.0F,
        .pairs = c->pairs != NULL ? optimizer_rate(&c->pairs->weights, seen, SCHEDULE_EXAMPLES) : 0.0F,
    };
    model_set_rates(s->model, &rates);
    if (seen == s->seen)
        s->is_frozen = is_off_band(c);
}

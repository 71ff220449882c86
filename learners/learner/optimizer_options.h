/* The option `optimizer: adagrad { rate: 0.05 }`: one struct for all kinds of optimizers, one option table
 * for each. */
#ifndef LEAT_LEARNERS_LEARNER_OPTIMIZER_OPTIONS_H
#define LEAT_LEARNERS_LEARNER_OPTIMIZER_OPTIONS_H

#include "core/option.h"
#include "learners/model/model.h"

struct optimizer_config {
    double rate, l1, l2, accumulator, decay, step_max;
    bool joint;
    int64_t warmup, halve_every;
    double rate_min;
    double momentum, beta, beta1, beta2, epsilon;
};

/* In the order of enum opt_kind. */
extern const struct kind_choice optimizer_kinds[];

/* The bound option as a model takes it. optimizer_ftrl: for linear weights in double (linear_is_double). */
/* The optimizer's name; "none" without one. */
const char *optimizer_name(const struct kind_ref *ref);
struct optimizer_options optimizer_from(const struct kind_ref *ref);
/* The learning rate after `seen` examples, where rates are decided every `block` examples; 0 without an optimizer. */
float optimizer_rate(const struct kind_ref *ref, uint64_t seen, uint32_t block);
struct ftrl64_params optimizer_ftrl(const struct kind_ref *ref);

#endif

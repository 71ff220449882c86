/* The option `loss: sampled_softmax { negatives: 256 }`: one struct for all losses (struct losses_options), one
 * option table for each. */
#ifndef LEAT_LEARNERS_LOSSES_OPTIONS_H
#define LEAT_LEARNERS_LOSSES_OPTIONS_H

#include "learners/losses/losses.h"

/* The losses of registry.def in its order, for OPTION_KIND. */
extern const struct kind_choice losses_choices[];

/* The loss of a bound option, whose options (struct losses_options) are ref->config; static storage. What
 * losses_check says of both is the learner's to report. Any thread. */
const struct losses_kind *losses_chosen(const struct kind_ref *ref);

#endif

/*
 * bpr: the item should score higher than each drawn one (Rendle et al. 2009, arXiv:1205.2618, section 4.1,
 * BPR-Opt, a term for each pair; the optimizer has the penalty on weights):
 *
 *   loss = -sum over the negatives of log sigmoid(s+ - s-)
 */
#include "learners/losses/losses.h"

const struct option losses_bpr_options[] = {
    OPTION_INT(struct losses_options, negatives, "negatives", 0, "1", "1", "4096",
               "items drawn for each target, each compared with the target's item"),
    OPTION_INCLUDE_ROWS(losses_shared_options),
    OPTIONS_END,
};

static double bpr_at(struct losses_call *call)
{
    const struct losses_target *t = call->target;
    double *margins = call->scores + 1, loss = 0.0, sum = 0.0;
    for (uint32_t i = 0; i < t->count; i++)
        margins[i] -= call->scores[0]; /* s- minus s+ */
    call->kernels->sigmoid64(call->gradients + 1, margins, t->count);
    call->kernels->logloss64(call->values, margins, call->zeros, t->count);
    for (uint32_t i = 0; i < t->count; i++) {
        bool is_hit = losses_is_hit(t, i);
        loss += is_hit ? 0.0 : call->values[i];
        call->gradients[1 + i] = is_hit ? 0.0 : call->gradients[1 + i];
        sum += call->gradients[1 + i];
    }
    call->gradients[0] = -sum;
    return loss;
}

const struct losses_kind losses_bpr = {
    .name = "bpr",
    .options = losses_bpr_options,
    .at = bpr_at,
};

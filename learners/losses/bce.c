/*
 * bce: each item is a yes-or-no question (Kang and McAuley 2018, arXiv:1808.09781, section III.E, whose
 * objective has one negative):
 *
 *   loss = -log sigmoid(s+) - sum over the negatives of log(1 - sigmoid(s-))
 */
#include "kernels/num.h"
#include "learners/losses/losses.h"

const struct option losses_bce_options[] = {
    OPTION_INT(struct losses_options, negatives, "negatives", 0, "1", "1", "4096",
               "items drawn for each target, which the model learns to score low"),
    OPTION_INCLUDE_ROWS(losses_shared_options),
    OPTIONS_END,
};

static double bce_at(struct losses_call *call)
{
    const struct losses_target *t = call->target;
    double loss = num_logloss(-call->scores[0], 0.0);
    call->gradients[0] = -num_sigmoid(-call->scores[0]);
    call->kernels->sigmoid64(call->gradients + 1, call->scores + 1, t->count);
    call->kernels->logloss64(call->values, call->scores + 1, call->zeros, t->count);
    for (uint32_t i = 0; i < t->count; i++) {
        bool is_hit = losses_is_hit(t, i);
        loss += is_hit ? 0.0 : call->values[i];
        call->gradients[1 + i] = is_hit ? 0.0 : call->gradients[1 + i];
    }
    return loss;
}

const struct losses_kind losses_bce = {
    .name = "bce",
    .options = losses_bce_options,
    .at = bce_at,
};

/*
 * gbce: bce whose probabilities stay calibrated although only a share of the negatives is drawn (Petrov and
 * Macdonald 2023, gSASRec, arXiv:2308.07192: the definitions of gBCE and of its parameter t). With K negatives of I items:
 *
 *   loss = -(log sigmoid(s+)^beta + sum over the negatives of log(1 - sigmoid(s-))) / (K + 1)
 *   beta = alpha (t (1 - 1 / alpha) + 1 / alpha), alpha = K / (I - 1)
 *
 * t = 0 gives bce (beta = 1, but for the divisor), t = 1 calibrated probabilities (beta = alpha).
 */
#include "kernels/num.h"
#include "learners/losses/losses.h"

const struct option losses_gbce_options[] = {
    OPTION_INT(struct losses_options, negatives, "negatives", 0, "256", "1", "4096",
               "items drawn for each target, which the model learns to score low"),
    OPTION_FLOAT(struct losses_options, calibration, "t", 0, "0.75", "0.0", "1.0",
                 "0: as bce, which overrates the items that it recommends; 1: calibrated probabilities"),
    OPTION_INCLUDE_ROWS(losses_shared_options),
    OPTIONS_END,
};

/* beta, by which the positive's part counts; more negatives than other items count as all of them. */
static double gbce_power(double negatives, double items, double calibration)
{
    double alpha = items > 1.0 ? negatives / (items - 1.0) : 1.0;
    alpha = alpha < 1.0 ? alpha : 1.0;
    return calibration * (alpha - 1.0) + 1.0;
}

static double gbce_at(struct losses_call *call)
{
    const struct losses_target *t = call->target;
    double share = 1.0 / ((double)t->count + 1.0);
    double power = gbce_power((double)t->count, (double)t->items, call->options->calibration);
    double loss = power * num_logloss(-call->scores[0], 0.0);
    call->gradients[0] = -power * num_sigmoid(-call->scores[0]) * share;
    call->kernels->sigmoid64(call->gradients + 1, call->scores + 1, t->count);
    call->kernels->logloss64(call->values, call->scores + 1, call->zeros, t->count);
    for (uint32_t i = 0; i < t->count; i++) {
        bool is_hit = losses_is_hit(t, i);
        loss += is_hit ? 0.0 : call->values[i];
        call->gradients[1 + i] = is_hit ? 0.0 : call->gradients[1 + i] * share;
    }
    return loss * share;
}

const struct losses_kind losses_gbce = {
    .name = "gbce",
    .options = losses_gbce_options,
    .at = gbce_at,
};

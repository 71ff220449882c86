/*
 * sampled_softmax: the item against drawn ones, by cross entropy, as an estimate of softmax over all items. A
 * drawn item stands for all those that could have been drawn, so its score is made smaller by the logarithm of
 * how often it is expected in the sample (Bengio and Senecal 2008, IEEE Trans. Neural Networks
 * 19(4): the normalizer by importance sampling; in-batch negatives: Yi et al. 2019, RecSys, the batch softmax with
 * s - log p in place of s):
 *
 *   loss = -log(e^v+ / (e^v+ + sum over the negatives of e^v-)), v = s - log_q
 *
 * Without `correct`, popular items, which are drawn more often, are scored too low.
 */
#include "kernels/num.h"
#include "learners/losses/losses.h"

#include <math.h>
#include <stdio.h>

const struct option losses_sampled_softmax_options[] = {
    OPTION_INT(struct losses_options, negatives, "negatives", 0, "256", "0", "4096",
               "items drawn for each target; more come closer to the softmax over all items"),
    OPTION_BOOL(struct losses_options, in_batch, "in_batch", "false",
                "the items of the batch's other targets are negatives, too: they cost nothing to draw"),
    OPTION_BOOL(struct losses_options, correct, "correct", "true",
                "subtract the logarithm of how often an item is expected among the negatives"),
    OPTION_INCLUDE_ROWS(losses_shared_options),
    OPTIONS_END,
};

static bool sampled_softmax_check(const struct losses_options *options, char reason[LOSSES_REASON])
{
    if (options->negatives > 0 || options->in_batch)
        return true;
    snprintf(reason, LOSSES_REASON,
             "sampled_softmax needs items to compare with: expected `negatives` of 1 or more, or `in_batch: "
             "true`, found `negatives: 0` and `in_batch: false`");
    return false;
}

/*
 * With z = v+ - log(sum of e^v-): loss = log(1 + e^-z), and the positive's derivative is -sigmoid(-z), which
 * the negatives share by their parts of the sum. So nothing is lost by cancellation where the positive's share
 * is nearly 1.
 */
double losses_cross_entropy(struct losses_call *call, bool has_log_q)
{
    const struct losses_target *t = call->target;
    double *v = call->scores + 1, *powers = call->gradients + 1, top = -INFINITY, sum = 0.0;
    double positive = call->scores[0] - (has_log_q ? t->positive_log_q : 0.0);
    for (uint32_t i = 0; i < t->count; i++) {
        v[i] -= has_log_q && t->log_q != NULL ? t->log_q[i] : 0.0;
        v[i] = losses_is_hit(t, i) ? -INFINITY : v[i];
        top = v[i] > top ? v[i] : top;
    }
    if (!(top > -INFINITY))
        return 0.0; /* nothing to compare with */
    for (uint32_t i = 0; i < t->count; i++)
        v[i] -= top;
    call->kernels->exp64(powers, v, t->count);
    for (uint32_t i = 0; i < t->count; i++) {
        powers[i] = v[i] > -INFINITY ? powers[i] : 0.0;
        sum += powers[i];
    }
    double z = positive - top - num_log(sum), rest = num_sigmoid(-z);
    call->gradients[0] = -rest;
    for (uint32_t i = 0; i < t->count; i++)
        powers[i] *= rest / sum;
    return num_logloss(-z, 0.0);
}

static double sampled_softmax_at(struct losses_call *call)
{
    return losses_cross_entropy(call, call->options->correct);
}

const struct losses_kind losses_sampled_softmax = {
    .name = "sampled_softmax",
    .options = losses_sampled_softmax_options,
    .check = sampled_softmax_check,
    .at = sampled_softmax_at,
};

/*
 * warp: items are drawn until one scores too high, and the more draws that takes, the less it counts (Weston et
 * al. 2011, WSABIE, IJCAI, algorithm 1, with alpha_j = 1 / j):
 *
 *   loss = L(rank) (1 - s+ + s-), for the first negative with s- > s+ - 1, the N-th that was drawn;
 *   rank = (Y - 1) / N, rounded down, of Y items; L(k) = 1 + 1/2 + ... + 1/k; 0 without such a negative.
 *
 * The target's negatives are the draws, in order (negatives.c makes them by a hash). A draw that is the
 * positive itself is no draw: it is not counted in N. The rank counts as a constant: no gradient goes through
 * it.
 */
#include "kernels/num.h"
#include "learners/losses/losses.h"

const struct option losses_warp_options[] = {
    OPTION_INT(struct losses_options, negatives, "tries", 0, "100", "1", "4096",
               "items drawn for each target at the most, until one scores too high"),
    OPTION_INCLUDE_ROWS(losses_shared_options),
    OPTIONS_END,
};

enum { SUMMED = 64 }; /* ranks up to here are summed, beyond them the series below is as exact */

/* L(k), the harmonic number: summed, or by its asymptotic series, log k + gamma + 1/2k - 1/12k^2 + 1/120k^4. */
static double rank_weight(uint32_t rank)
{
    double sum = 0.0, k = (double)rank;
    if (rank > SUMMED)
        return num_log(k) + 0.57721566490153286 + 1.0 / (2.0 * k) - 1.0 / (12.0 * k * k) +
               1.0 / (120.0 * k * k * k * k);
    for (uint32_t i = 1; i <= rank; i++)
        sum += 1.0 / (double)i;
    return sum;
}

static double warp_at(struct losses_call *call)
{
    const struct losses_target *t = call->target;
    uint32_t drawn = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        if (losses_is_hit(t, i))
            continue;
        drawn++;
        double over = 1.0 - call->scores[0] + losses_score(call, i);
        if (over <= 0.0)
            continue;
        uint32_t others = t->items > 1 ? t->items - 1 : 1;
        double weight = rank_weight(others / drawn);
        call->gradients[0] = -weight;
        call->gradients[1 + i] = weight;
        return weight * over;
    }
    return 0.0;
}

const struct losses_kind losses_warp = {
    .name = "warp",
    .options = losses_warp_options,
    .at = warp_at,
    .is_lazy = true,
};

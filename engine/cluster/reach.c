#include "cluster/reach.h"

/* How many of the workers in `remaining` worker i does not reach, or is not reached by. */
static uint32_t missed(const uint64_t *unreached, uint32_t count, uint64_t remaining, uint32_t i)
{
    uint32_t missed = 0;
    for (uint32_t k = 0; k < count; k++)
        missed += k != i && (remaining >> k & 1) != 0 && ((unreached[i] >> k | unreached[k] >> i) & 1) != 0;
    return missed;
}

uint64_t reach_left_out(const uint64_t *unreached, uint32_t count, uint32_t leader, uint32_t least)
{
    uint64_t all = count == 64 ? UINT64_MAX : (UINT64_C(1) << count) - 1, remaining = all;
    for (uint32_t left = count;; left--) {
        uint32_t worst = leader, most = missed(unreached, count, remaining, leader);
        most = (remaining >> leader & 1) != 0 ? most : 0;
        for (uint32_t i = 0; i < count; i++) {
            uint32_t missed_now = (remaining >> i & 1) != 0 ? missed(unreached, count, remaining, i) : 0;
            if (missed_now > most || (missed_now == most && missed_now > 0 && i != leader)) {
                worst = i;
                most = missed_now;
            }
        }
        if (most == 0)
            return all & ~remaining;
        if (left <= least)
            return 0;
        remaining &= ~(UINT64_C(1) << worst);
    }
}

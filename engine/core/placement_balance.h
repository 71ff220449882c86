/* Balance: which key groups move so that instances have about as much work. Pure functions; any thread. */
#ifndef LEAT_CORE_PLACEMENT_BALANCE_H
#define LEAT_CORE_PLACEMENT_BALANCE_H

#include "core/placement.h"

/* Groups move when the busiest instance has had more than BALANCE_BEGINS times the mean load in BALANCE_TURNS measurements in a row, and
 * then until it has less than BALANCE_ENDS times the mean: small differences, and such as pass, move nothing. A change moves at most one
 * byte of state in BALANCE_SHARE; a group that has more than that moves with a change of its own, where no smaller ones mend anything. */
#define BALANCE_BEGINS 1.1
#define BALANCE_ENDS   1.02
enum { BALANCE_TURNS = 2, BALANCE_SHARE = 10 };

/* Load of the busiest instance by the mean of all; 1 where there is no load. load: by key group, in any unit, not negative. */
double placement_imbalance(const struct placement *placement, const double load[KEY_GROUPS]);

/* What a change moves. */
struct balance_moves {
    uint32_t groups;
    double bytes; /* of their state, about */
};

/* Moves groups of the busiest instances to the least busy ones, those first that mend most, and where no single one does, one for others, until the busiest has BALANCE_ENDS times
 * the mean, nothing mends it, or the share of the bytes is used up. bytes: of state, by key group, not negative; where all are 0, nothing
 * is known of them, and each group counts alike. The same input gives the same moves. */
struct balance_moves placement_balance(struct placement *placement, const double load[KEY_GROUPS],
                                       const double bytes[KEY_GROUPS]);
/* Moves those of the groups that are elsewhere to the `count` instances from `first` on, each to the one that is least busy then, until
 * the share of the bytes is used up: what is left may be moved with the next change. */
struct balance_moves placement_gather(struct placement *placement, const struct group_set *groups,
                                      uint32_t first, uint32_t count, const double load[KEY_GROUPS],
                                      const double bytes[KEY_GROUPS]);

/* Measurements one after the other, each of a time of its own. */
struct balance {
    double load[KEY_GROUPS]; /* smoothed: a measurement counts half of what the next one does */
    bool
        goes_on; /* the caller's: the last change was not enough, so the next one need not wait for so many measurements */
    double imbalance; /* of the last measurement */
    uint32_t turns;   /* measurements in a row in which it was above BALANCE_BEGINS */
};

/* Takes in a measurement of that placement. Whether groups are to move. */
bool balance_measure(struct balance *balance, const struct placement *placement,
                     const double load[KEY_GROUPS]);
/* The first group from `from` on that has more load than an instance's mean: no placement mends that, for a group is where one
 * instance is; KEY_GROUPS: there is none. *share: gets its share of all load. */
uint32_t balance_hot(const struct balance *balance, uint32_t instances, uint32_t from, double *share);

#endif

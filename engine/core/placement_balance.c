#include "core/placement_balance.h"

#include <math.h>

/* A move must lower the load of the busier of its two instances by that much of the mean. */
static const double mends_least = 0.001;

/* So much of all load each group that is gathered counts besides its own: those without load are spread, too. */
static const double counts_least = 1e-6;

static double total_of(const double load[KEY_GROUPS])
{
    double total = 0;
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        total += load[group];
    return total;
}

static void add_up(const struct placement *placement, const double load[KEY_GROUPS],
                   double by_instance[PLACEMENT_INSTANCES_MAX])
{
    for (uint32_t i = 0; i < placement->instances; i++)
        by_instance[i] = 0;
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        by_instance[placement->instance[group]] += load[group];
}

double placement_imbalance(const struct placement *placement, const double load[KEY_GROUPS])
{
    double by_instance[PLACEMENT_INSTANCES_MAX], busiest = 0, total = total_of(load);
    add_up(placement, load, by_instance);
    for (uint32_t i = 0; i < placement->instances; i++)
        busiest = fmax(busiest, by_instance[i]);
    return total > 0 ? busiest * placement->instances / total : 1;
}

/* A change that is being made. */
struct change {
    struct placement *placement;
    const double *load, *bytes;
    double by_instance[PLACEMENT_INSTANCES_MAX]; /* load */
    uint64_t is_moved[BIT_WORDS(KEY_GROUPS)];
    double most;   /* bytes that may move */
    bool is_known; /* bytes are */
    bool is_alone; /* one group moves, however many bytes it has */
    struct balance_moves moves;
};

static void begin(struct change *change, struct placement *placement, const double load[KEY_GROUPS],
                  const double bytes[KEY_GROUPS])
{
    double total = total_of(bytes);
    *change = (struct change){.placement = placement,
                              .load = load,
                              .bytes = bytes,
                              .is_known = total > 0,
                              .most = (total > 0 ? total : KEY_GROUPS) / BALANCE_SHARE};
    add_up(placement, load, change->by_instance);
}

static double weight_of(const struct change *change, uint32_t group)
{
    return change->is_known ? change->bytes[group] : 1;
}

/* Whether the group may move with this change. */
static bool may_move(const struct change *change, uint32_t group)
{
    double before = change->is_known ? change->moves.bytes : change->moves.groups;
    return !bit_get(change->is_moved, group) &&
           (change->is_alone ? change->moves.groups == 0 : before + weight_of(change, group) <= change->most);
}

static void move(struct change *change, uint32_t group, uint32_t to)
{
    change->by_instance[change->placement->instance[group]] -= change->load[group];
    change->by_instance[to] += change->load[group];
    placement_move(change->placement, group, to);
    bit_set(change->is_moved, group);
    change->moves.groups++;
    change->moves.bytes += change->bytes[group];
}

/* The group of `from` whose move to `to` leaves the least load for the busier of the two; of equal ones the first. KEY_GROUPS: none
 * that may move leaves less than `most`. */
static uint32_t best_group(const struct change *change, uint32_t from, uint32_t to, double most)
{
    uint32_t best = KEY_GROUPS;
    for (uint32_t group = 0; group < KEY_GROUPS; group++) {
        double load = change->load[group];
        if (change->placement->instance[group] != from || load <= 0 || !may_move(change, group))
            continue;
        double left = fmax(change->by_instance[from] - load, change->by_instance[to] + load);
        if (left < most) {
            most = left;
            best = group;
        }
    }
    return best;
}

/* The busiest instance of those that are not stuck; PLACEMENT_INSTANCES_MAX: all are. */
static uint32_t busiest_of(uint32_t instances, const double *by_instance, const bool *is_stuck)
{
    uint32_t busiest = PLACEMENT_INSTANCES_MAX;
    for (uint32_t i = 0; i < instances; i++)
        if (!is_stuck[i] && (busiest == PLACEMENT_INSTANCES_MAX || by_instance[i] > by_instance[busiest]))
            busiest = i;
    return busiest;
}

/* The least busy one of `count` instances. */
static uint32_t least_of(uint32_t first, uint32_t count, const double *by_instance)
{
    uint32_t least = first;
    for (uint32_t i = first + 1; i < first + count; i++)
        if (by_instance[i] < by_instance[least])
            least = i;
    return least;
}

static bool exchange(struct change *change, uint32_t from, const bool *is_stuck);

static void mend(struct change *change, bool may_exchange)
{
    uint32_t instances = change->placement->instances;
    const double *by_instance = change->by_instance;
    bool is_stuck[PLACEMENT_INSTANCES_MAX] = {false};
    double mean = total_of(change->load) / instances;
    for (;;) {
        uint32_t from = busiest_of(instances, by_instance, is_stuck);
        if (from == PLACEMENT_INSTANCES_MAX || by_instance[from] <= BALANCE_ENDS * mean)
            break;
        uint32_t to = least_of(0, instances, by_instance);
        uint32_t group = best_group(change, from, to, by_instance[from] - mends_least * mean);
        if (group < KEY_GROUPS)
            move(change, group, to);
        else if (!may_exchange || !exchange(change, from, is_stuck))
            is_stuck[from] = true; /* by a group that is too large, say: the others can still be mended */
    }
}

/* No single move mends the instance `from`, because it has two large groups, say, and all others are as busy as the mean: moves the smallest
 * group that is enough to the least busy one all the same, and what is small from there on to others. Whether that makes the busiest
 * instance less busy; else nothing has changed. */
static bool exchange(struct change *change, uint32_t from, const bool *is_stuck)
{
    uint32_t instances = change->placement->instances, group = KEY_GROUPS;
    double mean = total_of(change->load) / instances,
           excess = change->by_instance[from] - BALANCE_ENDS * mean;
    struct placement placement = *change->placement;
    struct change tried = *change;
    for (uint32_t g = 0; g < KEY_GROUPS; g++)
        if (placement.instance[g] == from && change->load[g] >= excess && may_move(change, g) &&
            (group == KEY_GROUPS || change->load[g] < change->load[group]))
            group = g;
    if (group == KEY_GROUPS)
        return false;
    tried.placement = &placement;
    move(&tried, group, least_of(0, instances, tried.by_instance));
    mend(&tried, false);
    uint32_t busiest = busiest_of(instances, tried.by_instance, is_stuck);
    if (tried.by_instance[busiest] >= change->by_instance[from] - mends_least * mean)
        return false;
    *change->placement = placement;
    tried.placement = change->placement;
    *change = tried;
    return true;
}

struct balance_moves placement_balance(struct placement *placement, const double load[KEY_GROUPS],
                                       const double bytes[KEY_GROUPS])
{
    struct change change;
    begin(&change, placement, load, bytes);
    mend(&change, true);
    change.is_alone = change.moves.groups == 0;
    if (change.is_alone)
        mend(&change, false);
    return change.moves;
}

static void gather(struct change *change, const struct group_set *groups, uint32_t first, uint32_t count)
{
    for (uint32_t g = group_set_next(groups, 0); g < KEY_GROUPS; g = group_set_next(groups, g + 1))
        if (change->placement->instance[g] - first >= count && may_move(change, g))
            move(change, g, least_of(first, count, change->by_instance));
}

struct balance_moves placement_gather(struct placement *placement, const struct group_set *groups,
                                      uint32_t first, uint32_t count, const double load[KEY_GROUPS],
                                      const double bytes[KEY_GROUPS])
{
    struct change change;
    double counted[KEY_GROUPS], total = total_of(load), least = total > 0 ? total * counts_least : 1;
    leat_assert(count > 0 && first + count <= placement->instances);
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        counted[group] = load[group] + least;
    begin(&change, placement, counted, bytes);
    gather(&change, groups, first, count);
    change.is_alone = change.moves.groups == 0;
    if (change.is_alone)
        gather(&change, groups, first, count);
    return change.moves;
}

bool balance_measure(struct balance *balance, const struct placement *placement,
                     const double load[KEY_GROUPS])
{
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        balance->load[group] = balance->load[group] / 2 + load[group];
    balance->imbalance = placement_imbalance(placement, load);
    bool is_uneven =
        balance->imbalance > BALANCE_BEGINS && placement_imbalance(placement, balance->load) > BALANCE_BEGINS;
    balance->turns = is_uneven ? balance->turns + 1 : 0;
    if (balance->turns < (balance->goes_on ? 1 : BALANCE_TURNS))
        return false;
    balance->goes_on = false;
    balance->turns = 0;
    return true;
}

uint32_t balance_hot(const struct balance *balance, uint32_t instances, uint32_t from, double *share)
{
    double total = total_of(balance->load);
    for (uint32_t group = from; group < KEY_GROUPS && total > 0; group++)
        if (balance->load[group] * instances > total) {
            *share = balance->load[group] / total;
            return group;
        }
    return KEY_GROUPS;
}

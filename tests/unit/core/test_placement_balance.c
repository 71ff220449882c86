/* Balance of key groups: keys of Zipf's law over eight instances, as a job would meet them, measurement after measurement. */
#include "core/placement_balance.h"

#include "core/mem.h"
#include "unit/support/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { INSTANCES = 8, KEYS = 1000000, HOT = 200 /* keys that change, the hottest ones */ };

/* Key of the rank, where a share of the hottest ones has changed. */
static uint64_t key_of(uint32_t rank, bool has_changed)
{
    return has_changed && rank < HOT && rank % 5 == 0 ? KEYS + rank : rank;
}

/* Rows of each group, where keys have ranks by Zipf's law with exponent 1.1; `noise`: of rows that are counted, by chance. */
static void measure(double load[KEY_GROUPS], bool has_changed, struct test_random *random)
{
    memset(load, 0, KEY_GROUPS * sizeof(*load));
    for (uint32_t rank = 0; rank < KEYS; rank++)
        load[key_group(key_hash((struct key){key_of(rank, has_changed), 0}))] += pow(rank + 1, -1.1);
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        load[group] *= 0.98 + 0.0004 * (double)random_below(random, 100);
}

static const double alike[KEY_GROUPS]; /* bytes of groups, of which nothing is known */

static uint32_t moved(const struct placement *one, const struct placement *other)
{
    uint32_t count = 0;
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        count += one->instance[group] != other->instance[group];
    return count;
}

/* Checkpoints, of which a change takes two: at one it is announced, from the next one on it holds. Returns how many it took until the
 * busiest has at most 1.1 times the mean; *most: groups that moved with one of them. */
static uint32_t settle(struct placement *placement, struct balance *balance, bool has_changed,
                       struct test_random *random, uint32_t *most)
{
    double load[KEY_GROUPS];
    struct placement next = *placement;
    bool is_announced = false;
    uint32_t settled = 0;
    *most = 0;
    for (uint32_t checkpoint = 1; checkpoint <= 10; checkpoint++) {
        measure(load, has_changed, random);
        bool moves = balance_measure(balance, placement, load);
        if (is_announced) {
            *most = MAX(*most, moved(placement, &next));
            *placement = next;
            is_announced = false;
        } else if (moves) {
            next = *placement;
            is_announced = placement_balance(&next, balance->load, alike).groups > 0;
        }
        if (placement_imbalance(placement, load) > 1.1)
            settled = checkpoint;
    }
    return settled + 1;
}

static void test_zipf(void **state)
{
    struct test_random random = {7};
    struct placement placement = {0};
    struct balance balance = {0};
    double load[KEY_GROUPS];
    uint32_t most;
    (void)state;
    placement_ranges(&placement, INSTANCES);
    measure(load, false, &random);
    assert_true(placement_imbalance(&placement, load) > 1.5);
    assert_true(settle(&placement, &balance, false, &random, &most) <= 3);
    assert_in_range(most, 1, KEY_GROUPS / 10);
    measure(load, true, &random);
    assert_true(placement_imbalance(&placement, load) > 1.1);
    assert_true(settle(&placement, &balance, true, &random, &most) <= 3);
    assert_in_range(most, 1, KEY_GROUPS / 10);
}

/* What is nearly even, and what is uneven for one measurement, moves nothing; nor does what has moved move back. */
static void test_rest(void **state)
{
    struct test_random random = {8};
    struct placement placement = {0};
    struct balance balance = {0};
    double load[KEY_GROUPS];
    uint32_t most;
    (void)state;
    placement_ranges(&placement, INSTANCES);
    for (uint32_t i = 0; i < 50; i++) {
        for (uint32_t group = 0; group < KEY_GROUPS; group++)
            load[group] =
                1 + (group < KEY_GROUPS / INSTANCES && (i % 4 == 0 || random_below(&random, 100) < 5));
        assert_false(balance_measure(&balance, &placement, load));
    }
    balance = (struct balance){0};
    (void)settle(&placement, &balance, false, &random, &most);
    struct placement before = placement;
    for (uint32_t i = 0; i < 5; i++) {
        (void)settle(&placement, &balance, false, &random, &most);
        assert_int_equal(moved(&before, &placement), 0);
    }
}

/* One group has more than an instance's share: it is named, and all others, of which some have more, are spread evenly over the other
 * instances. */
static void test_hot(void **state)
{
    struct placement placement = {0};
    struct balance balance = {0};
    double load[KEY_GROUPS], share, rest[INSTANCES] = {0};
    (void)state;
    placement_ranges(&placement, INSTANCES);
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        load[group] = group == 5 ? 300 : group < 630 ? 1 : 2;
    assert_int_equal(balance_hot(&balance, INSTANCES, 0, &share), KEY_GROUPS);
    for (uint32_t i = 0; i < 40; i++)
        if (balance_measure(&balance, &placement, load))
            assert_true(placement_balance(&placement, balance.load, alike).groups <= KEY_GROUPS / 10);
    assert_int_equal(balance_hot(&balance, INSTANCES, 0, &share), 5);
    assert_true(fabs(share - 300.0 / 1109) < 0.001);
    assert_int_equal(balance_hot(&balance, INSTANCES, 6, &share), KEY_GROUPS);
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        rest[placement.instance[group]] += group == 5 ? 0 : load[group];
    for (uint32_t i = 0; i < INSTANCES; i++)
        assert_true(i == placement.instance[5] ? rest[i] < 1 : rest[i] < 1.03 * 1109 / 8);
}

/* Without load, with one instance, and with a load that is not spread, nothing moves and nothing fails. */
static void test_edges(void **state)
{
    struct placement placement = {0};
    struct balance balance = {0};
    double load[KEY_GROUPS] = {0};
    (void)state;
    placement_ranges(&placement, INSTANCES);
    for (uint32_t i = 0; i < 5; i++)
        assert_false(balance_measure(&balance, &placement, load));
    assert_int_equal(placement_balance(&placement, load, alike).groups, 0);
    load[3] = 7;
    assert_int_equal(placement_balance(&placement, load, alike).groups, 0);
    assert_true(placement_imbalance(&placement, load) == INSTANCES);
    placement_ranges(&placement, 1);
    assert_int_equal(placement_balance(&placement, load, alike).groups, 0);
    assert_true(placement_imbalance(&placement, load) == 1);
}

/* Bytes of the groups that are elsewhere in `next`. */
static double moved_bytes(const struct placement *one, const struct placement *next,
                          const double bytes[KEY_GROUPS])
{
    double sum = 0;
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        sum += one->instance[group] != next->instance[group] ? bytes[group] : 0;
    return sum;
}

/* One instance has all that is hot, and most of the state: a change moves a tenth of the bytes at most, and as many changes follow as it
 * takes. */
static void test_bytes(void **state)
{
    struct placement placement = {0};
    double load[KEY_GROUPS], bytes[KEY_GROUPS], total = 0;
    uint32_t changes = 0;
    (void)state;
    placement_ranges(&placement, INSTANCES);
    for (uint32_t group = 0; group < KEY_GROUPS; group++) {
        load[group] = placement.instance[group] == 0 ? 20 : 1;
        total += bytes[group] = placement.instance[group] == 0 ? 1000 : 100;
    }
    for (;; changes++) {
        struct placement before = placement;
        struct balance_moves moves = placement_balance(&placement, load, bytes);
        double sum = moved_bytes(&before, &placement, bytes);
        assert_int_equal(moves.groups, moved(&before, &placement));
        assert_true(fabs(moves.bytes - sum) < 1e-6 * total);
        assert_true(moves.groups <= 1 || sum <= total / BALANCE_SHARE);
        if (moves.groups == 0)
            break;
    }
    assert_in_range(changes, 5, 7); /* about 75 groups, 15 with each */
    assert_true(placement_imbalance(&placement, load) < BALANCE_BEGINS);
    /* Where all state is in the few groups that would move, a change moves none of it but one that moves alone. */
    placement_ranges(&placement, INSTANCES);
    for (uint32_t group = 0; group < KEY_GROUPS; group++) {
        load[group] = group < 4 ? 50 : 1;
        bytes[group] = group < 4 ? 1000 : 0;
    }
    struct placement before = placement;
    assert_true(placement_balance(&placement, load, bytes).groups > 1);
    assert_true(moved_bytes(&before, &placement, bytes) == 0);
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        load[group] = group < 4;
    placement_ranges(&placement, INSTANCES);
    for (uint32_t i = 0; i < 3; i++) {
        struct balance_moves moves = placement_balance(&placement, load, bytes);
        assert_int_equal(moves.groups, 1);
        assert_true(moves.bytes == 1000);
    }
    assert_int_equal(placement_balance(&placement, load, bytes).groups, 0);
}

/* Two large groups together have more than a mean, and all other instances are as busy as the mean: one of the two goes, and in exchange what
 * is small. Where nothing can be exchanged, nothing moves. */
static void test_exchange(void **state)
{
    struct placement placement = {0};
    double load[KEY_GROUPS];
    (void)state;
    placement_ranges(&placement, INSTANCES);
    for (uint32_t group = 0; group < KEY_GROUPS; group++) {
        bool is_first = placement.instance[group] == 0;
        load[group] = group == 0 ? 72 : group == 1 ? 40 : is_first ? 0 : 688.0 / 630;
    }
    assert_true(placement_imbalance(&placement, load) > 1.11);
    for (uint32_t i = 0; i < 2; i++)
        assert_in_range(placement_balance(&placement, load, alike).groups, 0, KEY_GROUPS / 10);
    assert_true(placement_imbalance(&placement, load) < BALANCE_ENDS + 0.01);
    assert_int_not_equal(placement.instance[0], placement.instance[1]);
    placement_ranges(&placement, INSTANCES);
    for (uint32_t group = 0; group < KEY_GROUPS; group++) /* all others have one group each */
        load[group] = group < 2 ? 60 : group > 0 && group % 90 == 0 ? 97 : 0;
    assert_int_equal(placement_balance(&placement, load, alike).groups, 0);
}

/* A change that was not enough is followed by the next one at the first measurement that says so; else it takes two. */
static void test_goes_on(void **state)
{
    struct placement placement = {0};
    struct balance balance = {0};
    double load[KEY_GROUPS];
    (void)state;
    placement_ranges(&placement, INSTANCES);
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        load[group] = placement.instance[group] == 0 ? 2 : 1;
    assert_false(balance_measure(&balance, &placement, load));
    assert_true(balance_measure(&balance, &placement, load));
    balance.goes_on = true;
    assert_true(balance_measure(&balance, &placement, load));
    assert_false(balance_measure(&balance, &placement, load));
    assert_true(balance_measure(&balance, &placement, load));
}

/* Named groups go to a worker's instances, a tenth of the bytes with a change, and those that are there stay. */
static void test_gather(void **state)
{
    struct placement placement = {0};
    struct group_set groups;
    double load[KEY_GROUPS], bytes[KEY_GROUPS];
    uint32_t sizes[INSTANCES] = {0};
    (void)state;
    placement_ranges(&placement, INSTANCES);
    assert_true(group_set_parse((struct str){"0-179", 5}, &groups));
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        load[group] = bytes[group] = group == 100 ? 200 : 1;
    assert_int_equal(placement_gather(&placement, &groups, 0, 2, load, bytes).groups, 0);
    for (uint32_t changes = 0;; changes++) {
        struct balance_moves moves = placement_gather(&placement, &groups, 6, 2, load, bytes);
        if (moves.groups == 0) {
            assert_int_equal(changes, 3); /* 91, 88 and the large one, alone */
            break;
        }
        assert_true(moves.groups == 1 || moves.bytes <= 919.0 / BALANCE_SHARE);
    }
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        sizes[placement.instance[group]]++;
    assert_true(sizes[0] == 0 && sizes[1] == 0 && sizes[2] == 90 && sizes[6] + sizes[7] == 360);
    assert_true(sizes[6] > 90 && sizes[7] > 90);
}

/* Groups without load, or of which nothing was measured, do not all go to the same instance. */
static void test_gather_without_load(void **state)
{
    struct placement placement = {0};
    struct group_set groups;
    double load[KEY_GROUPS] = {0}, bytes[KEY_GROUPS] = {0};
    (void)state;
    assert_true(group_set_parse(STR("0-71"), &groups));
    for (uint32_t busy = 0; busy < 2; busy++) {
        uint32_t sizes[INSTANCES] = {0};
        load[0] = busy;
        placement_ranges(&placement, INSTANCES);
        assert_int_equal(placement_gather(&placement, &groups, 5, 3, load, bytes).groups, 72);
        for (uint32_t group = 0; group < 72; group++)
            sizes[placement.instance[group]]++;
        assert_true(sizes[5] + sizes[6] + sizes[7] == 72 && (busy == 1 || sizes[5] == 24));
        for (uint32_t i = 5; i < 8; i++)
            assert_true(sizes[i] == 1 || sizes[i] >= 24);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_zipf),
                                       cmocka_unit_test(test_rest),
                                       cmocka_unit_test(test_hot),
                                       cmocka_unit_test(test_edges),
                                       cmocka_unit_test(test_exchange),
                                       cmocka_unit_test(test_goes_on),
                                       cmocka_unit_test(test_bytes),
                                       cmocka_unit_test(test_gather),
                                       cmocka_unit_test(test_gather_without_load)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

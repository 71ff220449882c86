/* A small seeded generator for tests: splitmix64. */
#ifndef LEAT_TESTS_UNIT_SUPPORT_RANDOM_H
#define LEAT_TESTS_UNIT_SUPPORT_RANDOM_H

#include "core/base.h"

struct test_random {
    uint64_t state;
};

static inline uint64_t random_next(struct test_random *random)
{
    uint64_t z = random->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* A number from 0 to limit - 1. */
static inline uint32_t random_below(struct test_random *random, uint32_t limit)
{
    return (uint32_t)((random_next(random) >> 32) * limit >> 32);
}

static inline bool random_chance(struct test_random *random, uint32_t percent)
{
    return random_below(random, 100) < percent;
}

#endif

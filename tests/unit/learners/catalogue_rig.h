/* What the tests of learners/items/catalogue.h share: a small one of rows of DIM floats, and its items. */
#ifndef LEAT_TESTS_UNIT_LEARNERS_CATALOGUE_RIG_H
#define LEAT_TESTS_UNIT_LEARNERS_CATALOGUE_RIG_H

#include "learners/items/catalogue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    NUMBERS = 500,
    DIM = 8,
    EXPIRE_S = 6400, /* points are 100 s apart */
    START_S = 1700000000,
};
#define SEED UINT64_C(77)

/* Picked once: asking the processor takes long in a virtual machine. */
static inline const struct kernels *best(void)
{
    static const struct kernels *kernels;
    const char *reason;
    if (kernels == NULL)
        kernels = kernels_pick(NULL, &reason);
    assert_non_null(kernels);
    return kernels;
}

static inline struct catalogue_options catalogue_rig_options(void)
{
    return (struct catalogue_options){
        .kernels = best(),
        .dim = DIM,
        .optimizer = {.kind = OPT_ADAGRAD, .params = {.rate = 0.1F}, .accumulator = 0.25F},
        .init = 0.5F,
        .numbers_max = NUMBERS,
        .expire_after_us = EXPIRE_S * US_PER_SECOND,
        .seed = SEED,
        .overfetch = ITEMS_OVERFETCH_MAX};
}

static inline struct catalogue *catalogue_rig(void)
{
    struct catalogue_options options = catalogue_rig_options();
    return catalogue_create(&options);
}

static inline enum items_added add(struct catalogue *c, uint64_t key, uint32_t seconds, uint32_t step,
                                   struct items_ref *ref)
{
    struct items_value value = {.key = key, .integer = (int64_t)key * 3};
    return catalogue_add(c, &value, seconds, step, ref);
}

#endif

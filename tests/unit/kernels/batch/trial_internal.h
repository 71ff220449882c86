/* Shared by trial.c, fill.c and main.c. */
#ifndef LEAT_TESTS_UNIT_KERNELS_BATCH_TRIAL_INTERNAL_H
#define LEAT_TESTS_UNIT_KERNELS_BATCH_TRIAL_INTERNAL_H

#include "trial.h"

enum { BUFFERS_MAX = 32 };

enum role { ROLE_INPUT, ROLE_OUTPUT, ROLE_CHANGED, ROLE_SCRATCH };

/* A block of host memory and a block of the variant's memory, each laid out as guard, shift, `bytes` of
 * content, guard. */
struct buffer {
    const char *name;
    enum role role;
    size_t bytes, valid;        /* bytes of the content; how many of them are compared */
    size_t offset, total;       /* where the content begins in the blocks; bytes of a block */
    unsigned char *block;       /* the host's */
    unsigned char *place_block; /* the variant's */
    trial_same *same;
    double *bounds;         /* a bound for each float, or NULL */
    struct trial_rows rows; /* count > 0: the content is rows */
};

struct trial {
    struct suite *suite;
    const struct target *target;
    uint64_t random;
    unsigned char poison;
    bool is_shifted, has_failed;
    unsigned buffers;
    struct buffer buffer[BUFFERS_MAX];
};

enum { TARGETS_MAX = KERNELS_VARIANTS };

struct suite {
    const char *kernel;
    const struct target *scalar; /* the reference: run once for each case */
    struct target targets[TARGETS_MAX];
    unsigned failures[TARGETS_MAX]; /* cases that failed */
    unsigned targets_count, cases;
    uint64_t seed;
    int only; /* the number of the only case to try, or -1 */
    bool is_small;
    const char *text; /* describes the case in progress */
};

#endif

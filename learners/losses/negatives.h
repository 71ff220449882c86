/*
 * Negatives of a target, drawn by a hash of (seed, step or the record's identity, place of the draw): no state,
 * so that a replay draws the same. And an estimate of how often items occur, for negatives that are the
 * positives of other targets.
 */
#ifndef LEAT_LEARNERS_LOSSES_NEGATIVES_H
#define LEAT_LEARNERS_LOSSES_NEGATIVES_H

#include "core/base.h"
#include "core/buffer.h"

/*
 * NEGATIVES_UNIFORM: each item alike.
 * NEGATIVES_LOG_UNIFORM: the item at place k of n with probability log((k + 2) / (k + 1)) / log(n + 1), a Zipf
 * distribution. Dense numbers are given at first records, so the first places tend to have the frequent items.
 */
enum negatives_draw { NEGATIVES_UNIFORM, NEGATIVES_LOG_UNIFORM };

struct negatives {
    uint64_t seed;
    enum negatives_draw draw;
    /* [count] dense numbers of the items that there are, rising; the caller's. NULL: 0 .. count - 1. */
    const uint32_t *live;
    uint32_t count; /* at least 1 */
};

/* The place in `live` of draw number `draw` for a target. Any thread; draws are independent, so an item may be
 * drawn twice. */
uint32_t negatives_place(const struct negatives *n, uint64_t identity, uint64_t draw);
/* Logarithm of how often the item at a place is expected in `draws` draws, at least 1. */
double negatives_log_q(const struct negatives *n, uint32_t place, uint32_t draws);

/* Draws 0 .. draws - 1: the items' dense numbers, and their log_q (NULL: not wanted). */
void negatives_draw(const struct negatives *n, uint64_t identity, uint32_t draws, uint32_t *numbers,
                    double *log_q);

/*
 * How often items occur: the mean interval between an item's occurrences (Yi et al. 2019, Sampling-Bias-Corrected
 * Neural Modeling for Large Corpus Item Recommendations, RecSys, algorithm 2): at an occurrence at time t,
 *
 *   B = (1 - rate) B + rate (t - A), A = t
 *
 * and the item's share of the occurrences is 1 / B. Time is a number that rises by 1 with each target. Unlike
 * the paper's hashed arrays, dense numbers have their own A and B, so an item's first occurrence, before which
 * there is no interval, sets A alone; B begins at `initial`. One thread.
 */
struct frequencies {
    double rate, initial;
    uint32_t count;    /* numbers below it have a place in the arrays */
    uint32_t capacity; /* of the arrays; grows with the largest number */
    uint64_t *last;    /* A + 1; 0: the item has not occurred */
    double *intervals; /* B */
};

enum { FREQUENCIES_REASON = 160 }; /* bytes of a reason, its NUL included */

/* rate: in (0, 1]. initial: an interval that a new item is taken to have, at least 1; the number of items is a
 * fair one. */
void frequencies_init(struct frequencies *f, double rate, double initial);
void frequencies_free(struct frequencies *f);

/* An item occurred at `time`, which never falls and is below UINT64_MAX. A second occurrence at the same time is
 * none. */
void frequencies_add(struct frequencies *f, uint32_t number, uint64_t time);
/* The number belongs to another item from now on. */
void frequencies_forget(struct frequencies *f, uint32_t number);
/* Logarithm of how often the item is expected in `draws` occurrences, at least 1; an item that has not occurred twice has
 * the initial interval. */
double frequencies_log_q(const struct frequencies *f, uint32_t number, uint32_t draws);

/* A batch whose targets are each other's negatives. */
struct negatives_batch {
    const uint32_t *positives; /* [targets] dense numbers */
    const float *const *rows;  /* [targets] their rows */
    uint32_t targets;          /* at least 2 */
};
/*
 * The negatives of a target in its batch: the positives of the others, in order. Writes targets - 1 rows, numbers
 * and log_q: how often an item is expected among the other targets. Returns the log_q of the target's own item, which
 * is corrected likewise. An item equal to it stays in the list: losses leave it out by its number.
 */
double negatives_in_batch(const struct negatives_batch *batch, const struct frequencies *f, uint32_t target,
                          const float **rows, uint32_t *numbers, double *log_q);

/* Appends the state: for each number A + 1 and B, 16 bytes, little-endian. frequencies_restore puts it back into an
 * initialized struct; false, with the struct unchanged and a reason, if the bytes cannot be a state of up to
 * numbers_max numbers at `time`. */
void frequencies_save(const struct frequencies *f, struct byte_buffer *out);
LEAT_CHECKED bool frequencies_restore(struct frequencies *f, const void *bytes, size_t length,
                                      uint32_t numbers_max, uint64_t time, char reason[FREQUENCIES_REASON]);

#endif

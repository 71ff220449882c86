/* Sketches: what many values look like, in a few kilobytes: how many there are, their range, their distribution, which
 * are frequent. They are for people who watch a run, never on the data path. A sketch that is zeroed is empty. Adding
 * allocates nothing. One thread at a time. */
#ifndef LEAT_CORE_SKETCH_H
#define LEAT_CORE_SKETCH_H

#include "core/base.h"

enum {
    SKETCH_REGISTER_BITS = 11,
    SKETCH_REGISTERS = 1 << SKETCH_REGISTER_BITS,
    SKETCH_BUCKETS = 64,
    SKETCH_TOPS = 44,       /* values that a sketch_top follows at a time */
    SKETCH_TEXT_BYTES = 64, /* of a value that it keeps */
    SKETCH_TEXT_CUT =
        255, /* sketch_top.lengths: the value is longer than the SKETCH_TEXT_BYTES that are kept */
    SKETCH_ANSWER_TOPS = 10,
};

/* --- How many different values --- */

/* HyperLogLog: standard error 1.04 / sqrt(2048) = 2.3 %. */
struct sketch_distinct {
    uint8_t registers[SKETCH_REGISTERS];
};
/* hash: of a value; all 64 bits count. */
void sketch_distinct_add(struct sketch_distinct *sketch, uint64_t hash);
void sketch_distinct_merge(struct sketch_distinct *into, const struct sketch_distinct *from);
double sketch_distinct_estimate(const struct sketch_distinct *sketch);

/* --- How numbers are distributed --- */

/* Buckets of equal width between two powers of two, as fine as SKETCH_BUCKETS of them allow (sketch.c). */
struct sketch_histogram {
    int64_t keys[SKETCH_BUCKETS]; /* rising */
    uint64_t counts[SKETCH_BUCKETS];
    int64_t zone;    /* keys in [-zone, zone) are in one bucket, of key 0 */
    uint64_t lumped; /* values in that bucket that had others before */
    uint32_t count, shift;
};
/* value: finite. */
void sketch_histogram_add(struct sketch_histogram *histogram, double value);
/* Afterwards `into` has at least the coarser buckets of the two. */
void sketch_histogram_merge(struct sketch_histogram *into, const struct sketch_histogram *from);
/* The bucket's values v: from <= v < to, and v <= to where `to` is the largest double. index: below count. */
void sketch_histogram_range(const struct sketch_histogram *histogram, uint32_t index, double *from,
                            double *to);

/* Also their number, range and mean. */
struct sketch_numbers {
    uint64_t count; /* finite ones */
    uint64_t not_finite;
    double min, max, mean; /* where count > 0 */
    struct sketch_histogram histogram;
};
void sketch_numbers_add(struct sketch_numbers *numbers, double value);
void sketch_numbers_merge(struct sketch_numbers *into, const struct sketch_numbers *from);

/* --- Which values are frequent --- */

/* SpaceSaving (Metwally, Agrawal, El Abbadi 2005): counts[i] - errors[i] <= true count <= counts[i]. A value with a
 * share above 1 / SKETCH_TOPS is surely among them. */
struct sketch_top {
    uint64_t hashes[SKETCH_TOPS], counts[SKETCH_TOPS], errors[SKETCH_TOPS];
    uint8_t lengths[SKETCH_TOPS]; /* of the text; or SKETCH_TEXT_CUT */
    char texts[SKETCH_TOPS][SKETCH_TEXT_BYTES];
    uint64_t total; /* values added */
    uint32_t count;
};
/* Values with the same hash are one value. At most SKETCH_TEXT_BYTES of the text are copied. */
void sketch_top_add(struct sketch_top *top, uint64_t hash, struct str text);

/* The most frequent values of several sketches. `at_least` is a lower bound of the value's count. */
struct sketch_frequent {
    uint64_t hash, at_least;
    const struct sketch_top *top; /* where the text is: texts[index] */
    uint32_t index;
};
/* Fills `found`, the most frequent first; equal ones by hash. tops: `count` of them, at most 1,024; they must outlive
 * `found`. Returns how many are found. *followed: how many different values the sketches follow: all that were added, if
 * each follows less than SKETCH_TOPS. Allocates. */
uint32_t sketch_top_frequent(const struct sketch_top *const *tops, uint32_t count,
                             struct sketch_frequent found[SKETCH_ANSWER_TOPS], uint32_t *followed);

#endif

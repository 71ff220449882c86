/*
 * Counts sightings of keys in bounded memory, to admit a key to a table after its n-th: a count-min sketch of
 * four rows of bytes with conservative update (Estan 2002). It never counts too low, so no key is admitted
 * late; it may admit one early: sketch_false_rate says how often, and halving (every `expire_after` of event
 * time) keeps it so. Deterministic in the order of sightings. One thread.
 */
#ifndef LEARNERS_SKETCH_H
#define LEARNERS_SKETCH_H

#include <stddef.h>
#include <stdint.h>

enum { SKETCH_DEPTH = 4, SKETCH_COUNT_MAX = 255 };

struct sketch {
    uint8_t *counts; /* SKETCH_DEPTH rows of `width` */
    size_t width;    /* a power of two */
};

/* bytes: rounded down to SKETCH_DEPTH powers of two, at least 4 KiB. */
void sketch_init(struct sketch *sketch, size_t bytes);
void sketch_free(struct sketch *sketch);

/* Counts one sighting of a well-mixed hash; returns the (over)estimate with it. */
unsigned sketch_add(struct sketch *sketch, uint64_t hash);
unsigned sketch_count(const struct sketch *sketch, uint64_t hash);

/* Halves every count. */
void sketch_halve(struct sketch *sketch);

/* The chance that a key never seen has a count above 0 now. */
double sketch_false_rate(const struct sketch *sketch);

#endif

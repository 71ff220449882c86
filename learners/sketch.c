#include "learners/sketch.h"

#include "core/base.h"

#include <stdlib.h>

void sketch_init(struct sketch *sketch, size_t bytes)
{
    size_t width = 1024;
    while (width * 2 * SKETCH_DEPTH <= bytes)
        width *= 2;
    sketch->width = width;
    sketch->counts = calloc(SKETCH_DEPTH, width);
    leat_assert(sketch->counts);
}

void sketch_free(struct sketch *sketch)
{
    free(sketch->counts);
    *sketch = (struct sketch){0};
}

/* Double hashing: the d-th place comes from the two halves. */
static uint8_t *place(const struct sketch *sketch, uint64_t hash, unsigned d)
{
    uint32_t low = (uint32_t)hash;
    uint32_t step = (uint32_t)(hash >> 32) | 1;
    return sketch->counts + d * sketch->width + ((low + d * step) & (sketch->width - 1));
}

unsigned sketch_count(const struct sketch *sketch, uint64_t hash)
{
    unsigned lowest = SKETCH_COUNT_MAX;
    for (unsigned d = 0; d < SKETCH_DEPTH; d++)
        lowest = MIN(lowest, (unsigned)*place(sketch, hash, d));
    return lowest;
}

unsigned sketch_add(struct sketch *sketch, uint64_t hash)
{
    unsigned lowest = sketch_count(sketch, hash);
    if (lowest == SKETCH_COUNT_MAX)
        return lowest;
    for (unsigned d = 0; d < SKETCH_DEPTH; d++) {
        uint8_t *count = place(sketch, hash, d);
        if (*count == lowest)
            *count = (uint8_t)(lowest + 1);
    }
    return lowest + 1;
}

void sketch_halve(struct sketch *sketch)
{
    for (size_t i = 0; i < SKETCH_DEPTH * sketch->width; i++)
        sketch->counts[i] /= 2;
}

double sketch_false_rate(const struct sketch *sketch)
{
    double rate = 1.0;
    for (size_t d = 0; d < SKETCH_DEPTH; d++) {
        size_t used = 0;
        for (size_t i = 0; i < sketch->width; i++)
            used += sketch->counts[d * sketch->width + i] > 0;
        rate *= (double)used / (double)sketch->width;
    }
    return rate;
}

/* The inside of the generator's world, shared by ctr_world.c (makes it) and ctr_event.c (reads it). */
#ifndef LEAT_CONNECTORS_GENERATOR_CTR_DRAW_H
#define LEAT_CONNECTORS_GENERATOR_CTR_DRAW_H

#include "connectors/generator/ctr_math.h"
#include "connectors/generator/ctr_world.h"

enum { CTR_RANK = 4 };

/* Purposes of random numbers; each (purpose, number) has its own sequence. */
enum ctr_purpose {
    PURPOSE_IDS,
    PURPOSE_WEIGHTS,
    PURPOSE_ITEMS,
    PURPOSE_ADVERTISERS,
    PURPOSE_DEVICES,
    PURPOSE_USERS,
    PURPOSE_CALIBRATION,
    PURPOSE_EVENT,
    PURPOSE_LABEL,
    PURPOSE_PLANTED_IMPRESSIONS,
    PURPOSE_PLANTED_CLICKS,
};

/* Draws an id with probability proportional to its weight, in constant time (the alias method; Walker 1977,
 * Vose 1991). */
struct ctr_draw_slot {
    uint32_t threshold, id, other; /* a random 32-bit number above the threshold draws `other`, else `id` */
};

struct ctr_draw {
    struct ctr_draw_slot *slots;
    uint32_t count;
};

/* Builds the table. ids: NULL means 0, 1, 2 ... Allocates the slots on first use. Returns false if there is
 * no memory, or no weight above 0. */
bool ctr_draw_build(struct ctr_draw *draw, const double *weights, const uint32_t *ids, uint32_t count);

static inline uint32_t ctr_draw_next(const struct ctr_draw *draw, struct ctr_random *random)
{
    uint64_t number = ctr_next(random);
    const struct ctr_draw_slot *slot = &draw->slots[(number >> 32) * draw->count >> 32];
    return (uint32_t)number <= slot->threshold ? slot->id : slot->other;
}

struct ctr_item {
    uint32_t adv, cat;
    double popularity;                                             /* weight before drift */
    double born_ms;                                                /* from the start; negative: before it */
    double exposure_ms, exposure_phase, quality_ms, quality_phase; /* periods of the drift in ms, phases in
                                                                      turns */
    double price;
};

struct ctr_home {
    uint32_t city, dev, br;
};

struct ctr_world {
    uint64_t seed;
    int64_t gap_us;
    double bias;
    float *linear[CTR_FIELDS];
    float (*vectors[CTR_FIELDS])[CTR_RANK];
    struct ctr_draw draws[CTR_FIELDS]; /* empty: the field is not drawn by rank */
    struct ctr_item *items;
    struct ctr_home *homes;
    uint8_t dev_os[2000];
};

/* For calibration: logit, without bias, of the sampled event `number` at a time at_ms from the start. */
double ctr_sample_logit(struct ctr_maker *maker, uint64_t number, double at_ms);

static inline double ctr_sigmoid(double z)
{
    return 1.0 / (1.0 + ctr_exp(-(z > 40.0 ? 40.0 : z < -40.0 ? -40.0 : z)));
}

#endif

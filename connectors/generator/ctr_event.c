#include "connectors/generator/ctr_draw.h"
#include "core/refused.h"

#include <stdlib.h>

/* The exposure of items is constant within a block of events. */
enum { BLOCK_EVENTS = 65536 };

struct ctr_maker {
    const struct ctr_world *world;
    struct ctr_draw items; /* drawn by their exposure at items_at_ms */
    double items_at_ms;
    double *weights;
};

static const struct {
    enum ctr_field a, b;
    double strength;
} pairs[] = {
    {CTR_USER, CTR_CAT, 0.30}, {CTR_SITE, CTR_CAT, 0.50},  {CTR_SLOT, CTR_CAT, 0.50},
    {CTR_SLOT, CTR_DEV, 0.40}, {CTR_HOUR, CTR_CAT, 0.35},  {CTR_OS, CTR_CAT, 0.30},
    {CTR_SITE, CTR_ADV, 0.25}, {CTR_ITEM, CTR_SLOT, 0.20}, {CTR_OS, CTR_ADV, 0.30},
    {CTR_CITY, CTR_CAT, 0.20}, {CTR_USER, CTR_SITE, 0.15},
};

struct ctr_maker *ctr_maker_new(const struct ctr_world *world)
{
    struct ctr_maker *maker = refused_ask_zeroed(1, sizeof(*maker));
    if (maker == NULL)
        return NULL;
    uint32_t count = ctr_fields[CTR_ITEM].size;
    maker->world = world;
    maker->items_at_ms = -1.0;
    maker->weights = refused_ask_zeroed(count, sizeof(*maker->weights));
    maker->items.slots = refused_ask_zeroed(count, sizeof(*maker->items.slots));
    if (maker->weights != NULL && maker->items.slots != NULL)
        return maker;
    ctr_maker_free(maker);
    return NULL;
}

void ctr_maker_free(struct ctr_maker *maker)
{
    if (maker == NULL)
        return;
    free(maker->weights);
    free(maker->items.slots);
    free(maker);
}

/* Builds the table from which items are drawn at at_ms, in milliseconds from the start: their popularity
 * drifts, and items not yet born are never drawn. */
static void expose_items(struct ctr_maker *maker, double at_ms)
{
    if (maker->items_at_ms == at_ms)
        return;
    for (uint32_t id = 0; id < ctr_fields[CTR_ITEM].size; id++) {
        const struct ctr_item *item = &maker->world->items[id];
        double wave = ctr_sine(at_ms / item->exposure_ms + item->exposure_phase);
        maker->weights[id] = item->born_ms <= at_ms ? item->popularity * ctr_exp(0.8 * wave) : 0.0;
    }
    bool is_built = ctr_draw_build(&maker->items, maker->weights, NULL, ctr_fields[CTR_ITEM].size);
    leat_assert(is_built);
    maker->items_at_ms = at_ms;
}

static int32_t thousandths(double value)
{
    return (int32_t)ctr_round(value * 1000.0);
}

/* Draws the retrieval score: Beta(2, 3), as the second smallest of four uniform numbers. */
static int32_t draw_score(struct ctr_random *random)
{
    uint64_t bits = ctr_next(random);
    uint32_t least = UINT32_MAX, second = UINT32_MAX;
    for (int i = 0; i < 4; i++, bits >>= 16) {
        uint32_t value = bits & 0xffff;
        second = MIN(second, MAX(least, value));
        least = MIN(least, value);
    }
    return (int32_t)((second * 1000 + 32768) >> 16);
}

static void make_fields(struct ctr_maker *maker, struct ctr_random *random, double at_ms,
                        struct ctr_event *event)
{
    const struct ctr_world *world = maker->world;
    uint32_t *field = event->field;
    field[CTR_USER] = ctr_draw_next(&world->draws[CTR_USER], random);
    field[CTR_ITEM] = ctr_draw_next(&maker->items, random);
    field[CTR_SITE] = ctr_draw_next(&world->draws[CTR_SITE], random);
    field[CTR_SLOT] = ctr_draw_next(&world->draws[CTR_SLOT], random);
    field[CTR_QUERY] = ctr_draw_next(&world->draws[CTR_QUERY], random);
    const struct ctr_home *home = &world->homes[field[CTR_USER]];
    uint64_t strays = ctr_next(random);
    bool is_other_dev = (strays & 0xffff) >= 58982;       /* 10 % */
    bool is_other_br = (strays >> 16 & 0xffff) >= 55706;  /* 15 % */
    bool is_elsewhere = (strays >> 32 & 0xffff) >= 55706; /* 15 % */
    field[CTR_DEV] = is_other_dev ? ctr_draw_next(&world->draws[CTR_DEV], random) : home->dev;
    field[CTR_BR] = is_other_br ? ctr_draw_next(&world->draws[CTR_BR], random) : home->br;
    field[CTR_CITY] = is_elsewhere ? ctr_draw_next(&world->draws[CTR_CITY], random) : home->city;
    field[CTR_OS] = world->dev_os[field[CTR_DEV]];
    const struct ctr_item *item = &world->items[field[CTR_ITEM]];
    field[CTR_ADV] = item->adv;
    field[CTR_CAT] = item->cat;
    field[CTR_HOUR] = (uint32_t)(event->ts_ms / 3600000 % 24);

    double noise, unused;
    ctr_normal(random, &noise, &unused);
    double age_ms = MAX(at_ms - item->born_ms, 0.0);
    event->dense[CTR_PRICE] = thousandths(item->price + 0.2 * noise); /* standardised log price */
    /* log of the age in hours, divided by 7 */
    event->dense[CTR_AGE] = thousandths(ctr_log(1.0 + age_ms / 3.6e6) / 7.0);
    event->dense[CTR_POS] = (int32_t)ctr_below(random, 10) * 100; /* position on the page */
    event->dense[CTR_SCORE] = draw_score(random);
}

/* The event's logit without the bias. */
static double logit_of(const struct ctr_world *world, const struct ctr_event *event, double at_ms)
{
    double z = 0.0;
    for (uint32_t f = 0; f < CTR_FIELDS; f++)
        z += (double)world->linear[f][event->field[f]];
    for (size_t i = 0; i < ARRAY_COUNT(pairs); i++) {
        const float *a = world->vectors[pairs[i].a][event->field[pairs[i].a]];
        const float *b = world->vectors[pairs[i].b][event->field[pairs[i].b]];
        double dot = 0.0;
        for (int k = 0; k < CTR_RANK; k++)
            dot += (double)a[k] * (double)b[k];
        z += pairs[i].strength * 0.5 * dot;
    }
    const struct ctr_item *item = &world->items[event->field[CTR_ITEM]];
    z += 0.25 * ctr_sine(at_ms / item->quality_ms + item->quality_phase);
    double price = event->dense[CTR_PRICE] / 1000.0, age = event->dense[CTR_AGE] / 1000.0;
    double pos = event->dense[CTR_POS] / 1000.0, score = event->dense[CTR_SCORE] / 1000.0 - 0.4;
    return z - 0.15 * price - 0.4 * (age - 0.9) - 0.8 * (pos - 0.45) + 1.2 * score - 0.8 * score * score;
}

double ctr_sample_logit(struct ctr_maker *maker, uint64_t number, double at_ms)
{
    struct ctr_random random = ctr_random_at(maker->world->seed, PURPOSE_CALIBRATION, number);
    struct ctr_event event = {.ts_ms = (int64_t)ctr_below(&random, 86400000)}; /* any hour of the day */
    expose_items(maker, at_ms);
    make_fields(maker, &random, at_ms, &event);
    return logit_of(maker->world, &event, at_ms);
}

/* Time of the impression in microseconds from the start, without jitter. random: the event's sequence, which
 * then draws its fields. */
static int64_t time_of(const struct ctr_world *world, uint64_t number, struct ctr_random *random)
{
    *random = ctr_random_at(world->seed, PURPOSE_EVENT, number);
    return (int64_t)number * world->gap_us + (int64_t)(ctr_uniform(random) * (double)world->gap_us);
}

int64_t ctr_floor_ms(const struct ctr_world *world, uint64_t number)
{
    return CTR_START_MS + (int64_t)(number + 1) * world->gap_us / 1000;
}

void ctr_make_impression(struct ctr_maker *maker, uint64_t number, struct ctr_event *event)
{
    const struct ctr_world *world = maker->world;
    int64_t block_us = (int64_t)(number / BLOCK_EVENTS * BLOCK_EVENTS) * world->gap_us;
    expose_items(maker, (double)block_us / 1000.0);
    struct ctr_random random;
    int64_t at_us = time_of(world, number, &random);
    event->imp_id = number;
    event->ts_ms = CTR_START_MS + (at_us + ctr_below(&random, CTR_JITTER_US)) / 1000;
    event->is_clicked = false;
    event->click_ms = 0;
    make_fields(maker, &random, (double)at_us / 1000.0, event);
}

/* Most clicks come within minutes, all within an hour. */
static int64_t draw_delay_ms(struct ctr_random *random)
{
    double mean_ms = ctr_uniform(random) < 0.85 ? 60e3 : 900e3;
    int64_t delay = (int64_t)(-mean_ms * ctr_log(ctr_uniform(random)));
    return 1 + delay % CTR_DELAY_MAX_MS;
}

void ctr_make(struct ctr_maker *maker, uint64_t number, struct ctr_event *event, struct ctr_truth *truth)
{
    ctr_make_impression(maker, number, event);
    const struct ctr_world *world = maker->world;
    struct ctr_random random;
    double at_ms = (double)time_of(world, number, &random) / 1000.0;
    double z = world->bias + logit_of(world, event, at_ms), p = ctr_sigmoid(z);
    random = ctr_random_at(world->seed, PURPOSE_LABEL, number);
    event->is_clicked = ctr_uniform(&random) < p;
    if (event->is_clicked)
        event->click_ms = event->ts_ms + draw_delay_ms(&random);
    if (truth != NULL)
        ctr_truth_add(truth, z, p, event->is_clicked);
}

#include "connectors/generator/ctr_draw.h"
#include "core/refused.h"

#include <stdlib.h>

const struct ctr_field_info ctr_fields[CTR_FIELDS] = {
    [CTR_USER] = {"user", 0, 200000, 1.0, 50.0, 0.30},
    [CTR_ITEM] = {"item", 0, 50000, 1.0, 10.0, 0.40},
    [CTR_ADV] = {"adv", 'a', 3000, 0.0, 0.0, 0.20},
    [CTR_CAT] = {"cat", 'c', 64, 0.0, 0.0, 0.25},
    [CTR_SITE] = {"site", 's', 20000, 1.1, 5.0, 0.35},
    [CTR_SLOT] = {"slot", 'p', 500, 1.0, 4.0, 0.30},
    [CTR_DEV] = {"dev", 'd', 2000, 1.1, 4.0, 0.20},
    [CTR_OS] = {"os", 'o', 12, 0.0, 0.0, 0.10},
    [CTR_BR] = {"br", 'b', 40, 1.0, 1.0, 0.10},
    [CTR_CITY] = {"city", 0, 5000, 1.0, 8.0, 0.15},
    [CTR_QUERY] = {"query", 'q', 1000000, 1.0, 20.0, 0.20},
    [CTR_HOUR] = {"hour", 0, 24, 0.0, 0.0, 0.10},
};

const char *const ctr_dense_names[CTR_DENSE] = {"price", "age", "pos", "score"};

static const double os_shares[] = {40, 22, 12, 8, 5, 4, 3, 2, 1.5, 1, 1, 0.5};

enum { DAY_MS = 86400000, CALIBRATION_TIMES = 8, CALIBRATION_EVENTS = 2048, CALIBRATION_STEPS = 12 };
#define WANTED_RATE 0.15

bool ctr_draw_build(struct ctr_draw *draw, const double *weights, const uint32_t *ids, uint32_t count)
{
    if (draw->slots == NULL && (draw->slots = refused_ask_zeroed(count, sizeof(*draw->slots))) == NULL)
        return false;
    draw->count = count;
    double sum = 0.0;
    for (uint32_t i = 0; i < count; i++)
        sum += weights[i];
    double *share = refused_ask(count * sizeof(*share));
    uint32_t *stack =
        refused_ask(count * sizeof(*stack)); /* small shares from the front, large ones from the back */
    bool is_built = share != NULL && stack != NULL && sum > 0.0;
    uint32_t small = 0, large = count;
    for (uint32_t i = 0; is_built && i < count; i++) {
        share[i] = weights[i] * count / sum;
        draw->slots[i] =
            (struct ctr_draw_slot){UINT32_MAX, ids == NULL ? i : ids[i], ids == NULL ? i : ids[i]};
        stack[share[i] < 1.0 ? small++ : --large] = i;
    }
    while (is_built && small > 0 && large < count) {
        uint32_t poor = stack[--small], rich = stack[large];
        draw->slots[poor].threshold = (uint32_t)(share[poor] * 4294967295.0);
        draw->slots[poor].other = draw->slots[rich].id;
        share[rich] -= 1.0 - share[poor];
        if (share[rich] < 1.0) {
            large++;
            stack[small++] = rich;
        }
    }
    free(share);
    free(stack);
    return is_built;
}

/* Makes a random mapping from rank to id, so that ids say nothing about popularity. */
static bool shuffle_ids(struct ctr_world *world, uint32_t field, uint32_t **ids)
{
    uint32_t count = ctr_fields[field].size;
    if ((*ids = refused_ask(count * sizeof(**ids))) == NULL)
        return false;
    struct ctr_random random = ctr_random_at(world->seed, PURPOSE_IDS, field);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t j = ctr_below(&random, i + 1);
        (*ids)[i] = (*ids)[j];
        (*ids)[j] = i;
    }
    return true;
}

static bool make_draw(struct ctr_world *world, uint32_t field)
{
    const struct ctr_field_info *info = &ctr_fields[field];
    uint32_t *ids = NULL;
    double *weights = refused_ask(info->size * sizeof(*weights));
    bool is_made = weights != NULL && shuffle_ids(world, field, &ids);
    for (uint32_t rank = 0; is_made && rank < info->size; rank++) {
        double place = rank + 1.0 + info->shift;
        weights[rank] = info->zipf == 1.0 ? 1.0 / place : ctr_power(place, -info->zipf);
    }
    is_made = is_made && ctr_draw_build(&world->draws[field], weights, ids, info->size);
    if (is_made && field == CTR_ITEM) {
        for (uint32_t rank = 0; rank < info->size; rank++)
            world->items[ids[rank]].popularity = weights[rank];
    }
    free(weights);
    free(ids);
    return is_made;
}

/* Draws the linear weights, and the vectors for the planted pairs of fields. */
static bool make_weights(struct ctr_world *world, uint32_t field)
{
    uint32_t count = ctr_fields[field].size;
    float *linear = world->linear[field] = refused_ask((count + 1) * sizeof(*linear));
    float(*vectors)[CTR_RANK] = refused_ask(count * sizeof(*vectors));
    world->vectors[field] = vectors;
    if (linear == NULL || vectors == NULL)
        return false;
    struct ctr_random random = ctr_random_at(world->seed, PURPOSE_WEIGHTS, field);
    double a, b;
    for (uint32_t i = 0; i < count; i += 2) {
        ctr_normal(&random, &a, &b);
        linear[i] = (float)(a * ctr_fields[field].deviation);
        linear[i + 1] = (float)(b * ctr_fields[field].deviation);
    }
    if (field == CTR_BR || field == CTR_QUERY) /* these fields are in no pair */
        return true;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = 0; k < CTR_RANK; k += 2) {
            ctr_normal(&random, &a, &b);
            vectors[i][k] = (float)a;
            vectors[i][k + 1] = (float)b;
        }
    }
    return true;
}

static bool make_items(struct ctr_world *world)
{
    double weights[3000];
    struct ctr_draw advertisers = {0}, categories = {0};
    for (uint32_t i = 0; i < ctr_fields[CTR_CAT].size; i++)
        weights[i] = ctr_power(i + 3.0, -0.7);
    bool is_made = ctr_draw_build(&categories, weights, NULL, ctr_fields[CTR_CAT].size);
    for (uint32_t i = 0; i < ctr_fields[CTR_ADV].size; i++)
        weights[i] = ctr_power(i + 5.0, -0.8);
    is_made = is_made && ctr_draw_build(&advertisers, weights, NULL, ctr_fields[CTR_ADV].size);
    for (uint32_t id = 0; is_made && id < ctr_fields[CTR_ITEM].size; id++) {
        struct ctr_item *item = &world->items[id];
        struct ctr_random random = ctr_random_at(world->seed, PURPOSE_ITEMS, id);
        item->adv = ctr_draw_next(&advertisers, &random);
        struct ctr_random of_adv = ctr_random_at(world->seed, PURPOSE_ADVERTISERS, item->adv);
        uint32_t own = ctr_draw_next(&categories, &of_adv);
        item->cat = ctr_uniform(&random) < 0.8 ? own : ctr_below(&random, ctr_fields[CTR_CAT].size);
        bool is_old = ctr_uniform(&random) < 0.6;
        item->born_ms = ctr_uniform(&random) * (is_old ? -60.0 : 35.0) * DAY_MS;
        item->exposure_ms = (4.0 + 16.0 * ctr_uniform(&random)) * DAY_MS;
        item->exposure_phase = ctr_uniform(&random);
        item->quality_ms = (8.0 + 32.0 * ctr_uniform(&random)) * DAY_MS;
        item->quality_phase = ctr_uniform(&random);
        double unused;
        ctr_normal(&random, &item->price, &unused);
    }
    free(advertisers.slots);
    free(categories.slots);
    return is_made;
}

static bool make_homes(struct ctr_world *world)
{
    struct ctr_draw systems = {0};
    bool is_made = ctr_draw_build(&systems, os_shares, NULL, ARRAY_COUNT(os_shares));
    for (uint32_t dev = 0; is_made && dev < ctr_fields[CTR_DEV].size; dev++) {
        struct ctr_random random = ctr_random_at(world->seed, PURPOSE_DEVICES, dev);
        world->dev_os[dev] = (uint8_t)ctr_draw_next(&systems, &random);
    }
    free(systems.slots);
    for (uint32_t user = 0; is_made && user < ctr_fields[CTR_USER].size; user++) {
        struct ctr_random random = ctr_random_at(world->seed, PURPOSE_USERS, user);
        world->homes[user].city = ctr_draw_next(&world->draws[CTR_CITY], &random);
        world->homes[user].dev = ctr_draw_next(&world->draws[CTR_DEV], &random);
        world->homes[user].br = ctr_draw_next(&world->draws[CTR_BR], &random);
    }
    return is_made;
}

/* Finds the bias with which the mean of p over sampled events is WANTED_RATE, by Newton's method. */
static bool calibrate(struct ctr_world *world)
{
    enum { EVENTS = CALIBRATION_TIMES * CALIBRATION_EVENTS };
    struct ctr_maker *maker = ctr_maker_new(world);
    double *logits = refused_ask(EVENTS * sizeof(*logits));
    bool is_done = maker != NULL && logits != NULL;
    for (uint32_t i = 0; is_done && i < EVENTS; i++) {
        double at_ms = (i / CALIBRATION_EVENTS) * 7.0 * DAY_MS / CALIBRATION_TIMES;
        logits[i] = ctr_sample_logit(maker, i, at_ms);
    }
    for (int step = 0; is_done && step < CALIBRATION_STEPS; step++) {
        double mean = 0.0, slope = 0.0;
        for (uint32_t i = 0; i < EVENTS; i++) {
            double p = ctr_sigmoid(logits[i] + world->bias);
            mean += p / EVENTS;
            slope += p * (1.0 - p) / EVENTS;
        }
        world->bias += (WANTED_RATE - mean) / slope;
    }
    free(logits);
    ctr_maker_free(maker);
    return is_done;
}

struct ctr_world *ctr_world_new(uint64_t seed, int64_t gap_us)
{
    leat_assert(gap_us > 0);
    struct ctr_world *world = refused_ask_zeroed(1, sizeof(*world));
    if (world == NULL)
        return NULL;
    world->seed = seed;
    world->gap_us = gap_us;
    world->bias = -2.0;
    world->items = refused_ask_zeroed(ctr_fields[CTR_ITEM].size, sizeof(*world->items));
    world->homes = refused_ask_zeroed(ctr_fields[CTR_USER].size, sizeof(*world->homes));
    bool is_made = world->items != NULL && world->homes != NULL;
    for (uint32_t field = 0; is_made && field < CTR_FIELDS; field++) {
        is_made = make_weights(world, field);
        if (is_made && ctr_fields[field].zipf != 0.0)
            is_made = make_draw(world, field);
    }
    if (is_made && make_items(world) && make_homes(world) && calibrate(world))
        return world;
    ctr_world_free(world);
    return NULL;
}

void ctr_world_free(struct ctr_world *world)
{
    if (world == NULL)
        return;
    for (uint32_t field = 0; field < CTR_FIELDS; field++) {
        free(world->linear[field]);
        free(world->vectors[field]);
        free(world->draws[field].slots);
    }
    free(world->items);
    free(world->homes);
    free(world);
}

int64_t ctr_world_gap_us(const struct ctr_world *world)
{
    return world->gap_us;
}

int64_t ctr_gap_us(double rate)
{
    leat_assert(rate >= 0.001 && rate <= 1e6);
    return ctr_round(1e6 / rate);
}

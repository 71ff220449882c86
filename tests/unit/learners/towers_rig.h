/* Models of learners/towers for tests: a small world of ids, its random events, and the model plainly in double: all
 * parameters in one array, the loss of a step as a function of them, gradients by central differences. */
#ifndef LEAT_TESTS_UNIT_LEARNERS_TOWERS_RIG_H
#define LEAT_TESTS_UNIT_LEARNERS_TOWERS_RIG_H

#include "learners/towers/internal.h"
#include "tests/unit/support/random.h"

#include "core/mem.h"
#include "kernels/num.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum {
    RIG_DIM = 4,
    RIG_HIDDEN = 8,
    RIG_WIDTH = 12,
    RIG_QUERY = 3,    /* user, country, recent: a list */
    RIG_FEATURES = 2, /* brand: a list; cat */
    RIG_FIELDS = 3,
    RIG_LIST = 3,
    RIG_BATCH = 6,
    RIG_ITEMS = 10,
    RIG_IDS = 11, /* ids of a field are below it */
    RIG_LAYER = RIG_HIDDEN * (RIG_FIELDS * RIG_DIM) + RIG_HIDDEN + RIG_WIDTH * RIG_HIDDEN + RIG_WIDTH,
    RIG_TOWER = RIG_FIELDS * RIG_IDS * RIG_DIM + RIG_LAYER, /* rows of each field, then the layers */
    RIG_PARAMS = 2 * RIG_TOWER,
};

struct rig_case {
    const char *name, *loss;
    bool has_layers, normalize, in_batch;
    int64_t negatives;
    double temperature;
};

static inline struct towers_options rig_options(const struct rig_case *of, float rate)
{
    struct optimizer_options sgd = {.kind = OPT_SGD,
                                    .params = {.rate = rate, .decay = 1.0F, .step_max = 1e9F}};
    return (struct towers_options){
        .kernels = kernels_pick(NULL, &(const char *){NULL}),
        .query_fields = RIG_QUERY,
        .features = RIG_FEATURES,
        .dim = RIG_DIM,
        .is_list = {true, false},
        .list_max = RIG_LIST,
        .has_layers = of->has_layers,
        .network = {.hidden = {RIG_HIDDEN}, .width = RIG_WIDTH},
        .normalize = of->normalize,
        .batch = RIG_BATCH,
        .refresh = RIG_ITEMS,
        .init = 0.5F,
        .rows = sgd,
        .dense = sgd,
        .loss = losses_find(str_from(of->loss)),
        .losses = {.temperature = of->temperature, .negatives = of->negatives, .in_batch = of->in_batch},
        .items_max = 1 << 20,
        .shards = 1,
        .seed = 11};
}

/* Events with the memory of their ids. */
struct rig_event {
    uint64_t query[2 + RIG_LIST], features[RIG_LIST + 1];
    uint16_t query_counts[RIG_QUERY], features_counts[RIG_FEATURES];
    uint32_t item; /* its key */
};

/* An item has 0 to 2 brands and one category, which follow from its key. */
static inline void rig_features(uint64_t key, uint64_t *ids, uint16_t *counts)
{
    uint32_t n = 0;
    counts[0] = (uint16_t)(key % 3), counts[1] = 1;
    for (uint64_t k = 0; k < key % 3; k++)
        ids[n++] = 1 + (key + k) % 4;
    ids[n] = 1 + key % 5;
}

static inline void rig_draw(struct test_random *random, struct rig_event *e)
{
    uint32_t recent = random_below(random, RIG_LIST + 1);
    *e = (struct rig_event){.query_counts = {1, 1, (uint16_t)recent},
                            .item = 1 + random_below(random, RIG_ITEMS)};
    e->query[0] = 1 + random_below(random, RIG_IDS - 1);
    e->query[1] = 1 + random_below(random, 3);
    for (uint32_t k = 0; k < recent; k++)
        e->query[2 + k] = 1 + random_below(random, RIG_IDS - 1);
    rig_features(e->item, e->features, e->features_counts);
}

static inline struct towers_event rig_event(const struct rig_event *e, uint64_t number)
{
    return (struct towers_event){.item = {.key = e->item, .integer = e->item},
                                 .query = {e->query, e->query_counts},
                                 .features = {e->features, e->features_counts},
                                 .has_features = true,
                                 .time_us = (int64_t)number * US_PER_SECOND,
                                 .identity = num_mix(number + 77),
                                 .teaches = true};
}

/* --- The plain model --- */

/* A row of a field of a tower, tower 1 being that of items. */
static inline double *rig_row(double *params, bool is_item, uint32_t field, uint64_t id)
{
    assert_in_range(id, 1, RIG_IDS - 1);
    return params + is_item * RIG_TOWER + (field * RIG_IDS + id) * RIG_DIM;
}

static inline double *rig_layers(double *params, bool is_item)
{
    return params + is_item * RIG_TOWER + RIG_FIELDS * RIG_IDS * RIG_DIM;
}

/* Ids of RIG_FIELDS fields, one behind the other -> out[RIG_WIDTH], or [RIG_DIM] without layers. */
static inline void rig_encode(const struct rig_case *of, double *params, bool is_item, const uint64_t *ids,
                              const uint16_t *counts, double *out)
{
    double x[RIG_FIELDS][RIG_DIM] = {0}, hidden[RIG_HIDDEN];
    uint32_t width = of->has_layers ? RIG_WIDTH : RIG_DIM;
    for (uint32_t f = 0; f < RIG_FIELDS; ids += counts[f++])
        for (uint32_t k = 0; k < counts[f]; k++)
            for (uint32_t c = 0; c < RIG_DIM; c++)
                x[f][c] += rig_row(params, is_item, f, ids[k])[c] / counts[f];
    const double *w = rig_layers(params, is_item), *flat = &x[0][0];
    for (uint32_t c = 0; c < RIG_DIM && !of->has_layers; c++)
        out[c] = x[0][c] + x[1][c] + x[2][c];
    if (of->has_layers) {
        const double *bias = w + RIG_HIDDEN * RIG_FIELDS * RIG_DIM, *second = bias + RIG_HIDDEN;
        for (uint32_t h = 0; h < RIG_HIDDEN; h++) {
            hidden[h] = bias[h];
            for (uint32_t c = 0; c < RIG_FIELDS * RIG_DIM; c++)
                hidden[h] += w[h * RIG_FIELDS * RIG_DIM + c] * flat[c];
            hidden[h] = hidden[h] > 0.0 ? hidden[h] : 0.0;
        }
        for (uint32_t c = 0; c < RIG_WIDTH; c++) {
            out[c] = second[RIG_WIDTH * RIG_HIDDEN + c];
            for (uint32_t h = 0; h < RIG_HIDDEN; h++)
                out[c] += second[c * RIG_HIDDEN + h] * hidden[h];
        }
    }
    double square = 0.0;
    for (uint32_t c = 0; c < width; c++)
        square += out[c] * out[c];
    for (uint32_t c = 0; c < width && of->normalize && square > 0.0; c++)
        out[c] /= sqrt(square);
}

static inline void rig_encode_item(const struct rig_case *of, double *params, uint64_t key, double *out)
{
    uint64_t ids[1 + RIG_LIST + 1] = {key};
    uint16_t counts[1 + RIG_FEATURES] = {1};
    rig_features(key, ids + 1, counts + 1);
    rig_encode(of, params, true, ids, counts, out);
}

/* A step: its events, and for each the keys of the items that it is compared with. */
struct rig_step {
    const struct rig_event *events;
    uint32_t count, others_count[RIG_BATCH];
    uint32_t others[RIG_BATCH][64];
};

static inline double rig_loss(const struct rig_case *of, double *params, const struct rig_step *step)
{
    double items[RIG_ITEMS + 1][RIG_WIDTH], query[RIG_WIDTH], loss = 0.0;
    uint32_t width = of->has_layers ? RIG_WIDTH : RIG_DIM;
    for (uint64_t key = 1; key <= RIG_ITEMS; key++)
        rig_encode_item(of, params, key, items[key]);
    for (uint32_t i = 0; i < step->count; i++) {
        const struct rig_event *e = &step->events[i];
        double scores[RIG_ITEMS + 1] = {0}, sum = 0.0, pairs = 0.0;
        rig_encode(of, params, false, e->query, e->query_counts, query);
        for (uint32_t key = 1; key <= RIG_ITEMS; key++)
            for (uint32_t c = 0; c < width; c++)
                scores[key] += query[c] * items[key][c] / of->temperature;
        for (uint32_t k = 0; k < step->others_count[i]; k++) {
            uint32_t other = step->others[i][k];
            double margin = scores[other] - scores[e->item];
            if (other == e->item)
                continue;
            sum += exp(margin);
            pairs += log1p(exp(margin));
        }
        loss += (strcmp(of->loss, "bpr") == 0 ? pairs : log1p(sum)) / step->count;
    }
    return loss;
}

/* gradients[RIG_PARAMS], by central differences. */
static inline void rig_gradients(const struct rig_case *of, double *params, const struct rig_step *step,
                                 double *gradients)
{
    const double h = 1e-6; /* few sums of a relu layer are so near to 0 */
    for (uint32_t p = 0; p < RIG_PARAMS; p++) {
        double before = params[p];
        params[p] = before + h;
        double above = rig_loss(of, params, step);
        params[p] = before - h;
        gradients[p] = (above - rig_loss(of, params, step)) / (2.0 * h);
        params[p] = before;
    }
}

/* --- Between both --- */

/* What a table's row begins with. */
static inline void rig_initial(const struct tower *t, uint64_t id, float *out)
{
    t->options.kernels->init_uniform(out, num_mix(t->options.seed ^ id), t->options.init, RIG_DIM);
}

static inline void rig_read_tower(struct towers *t, bool is_item, double *params)
{
    struct tower *tower = is_item ? &t->item : &t->query;
    for (uint32_t f = 0; f < RIG_FIELDS; f++)
        for (uint64_t id = 1; id < RIG_IDS; id++) {
            float row[RIG_DIM];
            const struct table *table = is_item && f == 0 ? catalogue_table(t->items) : &tower->tables[f];
            struct table_row *found = table_find(table, id);
            if (found != NULL)
                memcpy(row, table_payload(found), sizeof(row));
            else if (is_item && f == 0)
                memset(row, 0, sizeof(row));
            else
                rig_initial(tower, id, row);
            for (uint32_t c = 0; c < RIG_DIM; c++)
                rig_row(params, is_item, f, id)[c] = (double)row[c];
        }
    double *to = rig_layers(params, is_item);
    for (uint32_t p = 0; p < tower->net.params_count; p++) {
        size_t floats = (size_t)tower->net.params[p].n * tower->net.params[p].d + tower->net.params[p].n;
        float *from = mem_calloc(floats, sizeof(*from));
        struct gpu_error error;
        assert_true(net_save_weights(&tower->net, p, from, &error));
        for (size_t i = 0; i < floats; i++)
            *to++ = (double)from[i];
        free(from);
    }
}

/* All parameters of the model, as they are. Rows that nobody has made are as they would be made; those of items 0. */
static inline void rig_read(struct towers *t, double *params)
{
    memset(params, 0, RIG_PARAMS * sizeof(*params));
    rig_read_tower(t, false, params);
    rig_read_tower(t, true, params);
}

/* What the step of these events will compare, after towers_read. */
static inline void rig_step_of(struct towers *t, const struct rig_event *events,
                               const struct towers_event *call, uint32_t n, struct rig_step *step)
{
    struct targets_options targets = towers_targets(&t->options);
    uint32_t live_count, drawn[64];
    const uint32_t *live = catalogue_live(t->items, &live_count);
    struct negatives negatives = {targets.seed, targets.draw, live, live_count};
    *step = (struct rig_step){.events = events, .count = n};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t *count = &step->others_count[i], draws = (uint32_t)targets.losses.negatives;
        negatives_draw(&negatives, call[i].identity, draws, drawn, NULL);
        for (uint32_t k = 0; k < draws; k++) {
            struct items_value value;
            assert_true(items_numbers_value_now(catalogue_numbers(t->items), drawn[k], &value));
            step->others[i][(*count)++] = (uint32_t)value.key;
        }
        for (uint32_t k = 0; k < n && targets.losses.in_batch; k++)
            if (k != i)
                step->others[i][(*count)++] = events[k].item;
    }
}

/* The floats' bits, added to a hash. */
static inline uint64_t add_floats(uint64_t hash, const float *floats, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &floats[i], sizeof(bits));
        hash = num_mix(hash * 31 + bits);
    }
    return hash;
}

#endif

/* The world behind the generator `ctr`: who clicks on what, and why.
 *
 * An impression has 12 categorical fields, 4 dense ones and a hidden probability p of a click,
 *
 *     logit p = b + sum_f w_f[x_f] + sum_(f,g) a_fg <v_f[x_f], v_g[x_g]> / sqrt(4)
 *                 + dense terms + drift_item(t)
 *
 * where the pairs (f, g) are eleven planted pairs of fields; clicked ~ Bernoulli(p). Users, items, sites ...
 * are drawn by Zipf's law. Exposure and quality of items drift slowly in event time; two fifths of the items
 * are born after the start. b is chosen so that 15 % of the impressions are clicked.
 *
 * Everything is a function of (seed, record number), bit for bit the same on any machine, at any parallelism.
 * p itself is in no structure that leaves the maker: it goes into struct ctr_truth, which keeps sums only. */
#ifndef LEAT_CONNECTORS_GENERATOR_CTR_WORLD_H
#define LEAT_CONNECTORS_GENERATOR_CTR_WORLD_H

#include "connectors/generator/ctr_truth.h"

enum ctr_field {
    CTR_USER,
    CTR_ITEM,
    CTR_ADV,
    CTR_CAT,
    CTR_SITE,
    CTR_SLOT,
    CTR_DEV,
    CTR_OS,
    CTR_BR,
    CTR_CITY,
    CTR_QUERY,
    CTR_HOUR,
    CTR_FIELDS
};

enum ctr_dense { CTR_PRICE, CTR_AGE, CTR_POS, CTR_SCORE, CTR_DENSE };

struct ctr_field_info {
    const char *name;
    char prefix; /* of a text such as "a17"; 0: the field is an int */
    uint32_t size;
    double zipf, shift; /* rank r, from 0, has weight (r + 1 + shift)^-zipf; zipf 0: not drawn by rank */
    double deviation;   /* standard deviation of the linear weights */
};

extern const struct ctr_field_info ctr_fields[CTR_FIELDS];
extern const char *const ctr_dense_names[CTR_DENSE];

/* Time of the first impression, rounded down: 2023-11-14T22:13:20Z, in milliseconds. */
#define CTR_START_MS INT64_C(1700000000000)
/* Default impressions per second of event time: a million take seven days. */
#define CTR_RATE_TEXT "1.6534"
enum { CTR_DELAY_MAX_MS = 3600 * 1000, CTR_JITTER_US = 100 * 1000 };

/* Longest stream: a hundred years of event time. */
#define CTR_SPAN_MAX_US (INT64_C(36525) * US_PER_DAY)

/* The visible part of impression number `imp_id`, and whether it is clicked. */
struct ctr_event {
    uint64_t imp_id;
    int64_t ts_ms;
    uint32_t field[CTR_FIELDS];
    int32_t dense[CTR_DENSE]; /* in thousandths */
    bool is_clicked;
    int64_t click_ms; /* time of the click: 1 ms to an hour after ts_ms */
};

struct ctr_world;

/* Makes the world of a seed, in about 0.1 s and 50 MB. gap_us: mean time between impressions. Read-only
 * afterwards: any thread. Returns NULL if there is no memory. */
struct ctr_world *ctr_world_new(uint64_t seed, int64_t gap_us);
void ctr_world_free(struct ctr_world *world);
int64_t ctr_world_gap_us(const struct ctr_world *world);
/* Mean time between impressions. rate: impressions per second, in [0.001, 1000000]. */
int64_t ctr_gap_us(double rate);

/* Makes events; one maker per thread. Fast if event numbers rise. ctr_maker_new: NULL if there is no
 * memory. */
struct ctr_maker;
struct ctr_maker *ctr_maker_new(const struct ctr_world *world);
void ctr_maker_free(struct ctr_maker *maker);
/* Makes event `number` without the click: is_clicked is false. */
void ctr_make_impression(struct ctr_maker *maker, uint64_t number, struct ctr_event *event);
/* Makes event `number` with the click, and adds it to `truth`, which may be NULL. */
void ctr_make(struct ctr_maker *maker, uint64_t number, struct ctr_event *event, struct ctr_truth *truth);

/* The least time that events after event `number` can have, in milliseconds since 1970. */
int64_t ctr_floor_ms(const struct ctr_world *world, uint64_t number);

#endif

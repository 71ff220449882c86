/* The generator's world: rates, distributions and drift that it promises, and the scores of a model that
 * knows the true probabilities. */
#include "connectors/generator/ctr_draw.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { EVENTS = 150000, WORLDS = 2 };

static struct ctr_world *world;

static int make_world(void **state)
{
    (void)state;
    world = ctr_world_new(7, ctr_gap_us(1.6534));
    return world == NULL;
}

static int free_world(void **state)
{
    (void)state;
    ctr_world_free(world);
    return 0;
}

static void test_a_draw_follows_its_weights(void **state)
{
    (void)state;
    enum { DRAWS = 100000 };
    const double weights[] = {1, 0, 7, 2, 30};
    const uint32_t ids[] = {10, 11, 12, 13, 14};
    struct ctr_draw draw = {0};
    assert_true(ctr_draw_build(&draw, weights, ids, 5));
    uint32_t seen[5] = {0};
    struct ctr_random random = ctr_random_at(5, 5, 5);
    for (int i = 0; i < DRAWS; i++)
        seen[ctr_draw_next(&draw, &random) - 10]++;
    assert_int_equal(seen[1], 0);
    for (int i = 0; i < 5; i++) {
        double share = weights[i] / 40;
        assert_true(fabs(seen[i] - share * DRAWS) <= 5 * sqrt(DRAWS * share * (1 - share)));
    }
    free(draw.slots);
}

/* For several seeds: 15 % of the impressions are clicked, and the labels fit the probabilities: their logloss
 * is within five standard errors of its expectation. */
static void test_labels_fit_the_truth(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= WORLDS; seed++) {
        struct ctr_world *other = ctr_world_new(seed, ctr_gap_us(1.6534));
        struct ctr_maker *maker = ctr_maker_new(other);
        struct ctr_truth *truth = calloc(1, sizeof(*truth));
        struct ctr_event event;
        for (uint64_t i = 0; i < EVENTS; i++)
            ctr_make(maker, i * 7, &event, truth);
        struct ctr_scores scores = ctr_truth_scores(truth);
        assert_true(fabs(scores.ctr - 0.15) < 0.012);
        /* A label's loss has a standard deviation of about 0.55. */
        assert_true(fabs(scores.logloss - scores.logloss_expected) < 5 * 0.55 / sqrt(EVENTS));
        assert_true(scores.logloss > 0.31 && scores.logloss < 0.36);
        assert_true(scores.base_logloss - scores.logloss > 0.07);
        assert_true(scores.auc > 0.79 && scores.auc < 0.84);
        free(truth);
        ctr_maker_free(maker);
        ctr_world_free(other);
    }
}

static int rising(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* The slope of log frequency over log rank between the ranks `from` and `to`, counted from 0. */
static double slope_of(enum ctr_field field, uint32_t from, uint32_t to)
{
    uint32_t *counts = calloc(ctr_fields[field].size, sizeof(*counts));
    struct ctr_maker *maker = ctr_maker_new(world);
    struct ctr_event event;
    for (uint64_t i = 0; i < EVENTS; i++) {
        ctr_make_impression(maker, i, &event);
        counts[event.field[field]]++;
    }
    ctr_maker_free(maker);
    qsort(counts, ctr_fields[field].size, sizeof(*counts), rising);
    double slope = log((double)counts[to] / counts[from]) /
                   log((to + 1 + ctr_fields[field].shift) / (from + 1 + ctr_fields[field].shift));
    free(counts);
    return slope;
}

static void test_popularity_follows_zipf(void **state)
{
    (void)state;
    assert_true(fabs(slope_of(CTR_USER, 0, 200) + 1.0) < 0.12);
    assert_true(fabs(slope_of(CTR_SITE, 0, 300) + 1.1) < 0.12);
    assert_true(fabs(slope_of(CTR_QUERY, 0, 100) + 1.0) < 0.12);
    assert_true(fabs(slope_of(CTR_SLOT, 0, 300) + 1.0) < 0.12);
}

static void test_fields_are_in_range_and_consistent(void **state)
{
    (void)state;
    struct ctr_maker *maker = ctr_maker_new(world);
    uint32_t *adv_of_item = calloc(ctr_fields[CTR_ITEM].size, sizeof(*adv_of_item));
    int64_t before_ms = 0;
    uint32_t back = 0;
    for (uint64_t i = 0; i < EVENTS; i++) {
        struct ctr_event event;
        ctr_make(maker, i, &event, NULL);
        assert_int_equal(event.imp_id, i);
        for (uint32_t f = 0; f < CTR_FIELDS; f++)
            assert_true(event.field[f] < ctr_fields[f].size);
        assert_int_equal(event.field[CTR_HOUR], event.ts_ms / 3600000 % 24);
        assert_true(event.dense[CTR_AGE] >= 0 && event.dense[CTR_SCORE] >= 0 &&
                    event.dense[CTR_SCORE] <= 1000);
        assert_true(event.dense[CTR_POS] >= 0 && event.dense[CTR_POS] <= 900 &&
                    event.dense[CTR_POS] % 100 == 0);
        uint32_t *adv = &adv_of_item[event.field[CTR_ITEM]];
        assert_true(*adv == 0 || *adv == event.field[CTR_ADV] + 1);
        *adv = event.field[CTR_ADV] + 1;
        assert_true(!event.is_clicked ||
                    (event.click_ms > event.ts_ms && event.click_ms <= event.ts_ms + CTR_DELAY_MAX_MS));
        assert_true(event.is_clicked || event.click_ms == 0);
        back += event.ts_ms < before_ms;
        assert_true(event.ts_ms > before_ms - CTR_JITTER_US / 1000 - 1);
        if (i > 0)
            assert_true(event.ts_ms >= ctr_floor_ms(world, i - 1));
        before_ms = event.ts_ms;
    }
    assert_true(back > 0 && back < EVENTS / 100); /* a few events are out of order */
    free(adv_of_item);
    ctr_maker_free(maker);
}

/* The difference between the items shown at two places of the stream, from events `first` and `second` on:
 * half the sum of the absolute differences of the items' shares. */
static double distance_of_exposure(uint64_t first, uint64_t second)
{
    enum { SEEN = 65536 };
    double *shares = calloc(ctr_fields[CTR_ITEM].size, sizeof(*shares)), distance = 0.0;
    struct ctr_maker *maker = ctr_maker_new(world);
    struct ctr_event event;
    for (uint64_t i = 0; i < 2 * SEEN; i++) {
        ctr_make_impression(maker, i < SEEN ? first + i : second + i - SEEN, &event);
        shares[event.field[CTR_ITEM]] += (i < SEEN ? 1.0 : -1.0) / SEEN;
    }
    for (uint32_t id = 0; id < ctr_fields[CTR_ITEM].size; id++)
        distance += fabs(shares[id]) / 2;
    free(shares);
    ctr_maker_free(maker);
    return distance;
}

static void test_exposure_drifts(void **state)
{
    (void)state;
    double noise = distance_of_exposure(0, 65536),
           drift = distance_of_exposure(0, 65536 * 60); /* 11 hours and 27 days apart */
    assert_true(drift > noise + 0.1);
}

/* A record that is made by itself is the same as one that is made in sequence. */
static void test_records_stand_alone(void **state)
{
    (void)state;
    struct ctr_maker *maker = ctr_maker_new(world), *fresh = ctr_maker_new(world);
    struct ctr_event a, b;
    memset(&a, 0, sizeof(a));
    memset(&b, 0, sizeof(b));
    for (uint64_t i = 60000; i < 140000; i++) {
        ctr_make(maker, i, &a, NULL);
        if (i % 9973 != 0)
            continue;
        ctr_make(fresh, 3000000, &b, NULL);
        ctr_make(fresh, i, &b, NULL);
        assert_memory_equal(&a, &b, sizeof(a));
    }
    ctr_maker_free(maker);
    ctr_maker_free(fresh);
}

static void test_sums_do_not_depend_on_who_adds(void **state)
{
    (void)state;
    struct ctr_truth *parts = calloc(4, sizeof(*parts));
    for (int i = 0; i < 30000; i++) {
        double p = (i % 997 + 1) / 1000.0, z = log(p / (1 - p));
        ctr_truth_add(&parts[0], z, p, i % 3 == 0);
        ctr_truth_add(&parts[1 + i % 3], z, p, i % 3 == 0);
    }
    ctr_truth_merge(&parts[3], &parts[1]);
    ctr_truth_merge(&parts[3], &parts[2]);
    assert_memory_equal(&parts[0], &parts[3], sizeof(parts[0]));
    assert_int_equal(parts[0].events, 30000);
    free(parts);
}

static void test_scores_of_a_case_by_hand(void **state)
{
    (void)state;
    struct ctr_truth *truth = calloc(1, sizeof(*truth));
    assert_true(ctr_truth_scores(truth).logloss == 0.0);
    ctr_truth_add(truth, 1.0, 0.75, true);
    ctr_truth_add(truth, -1.0, 0.25, false);
    ctr_truth_add(truth, 1.0, 0.75, false);
    ctr_truth_add(truth, -20.0, 1e-9, false);
    struct ctr_scores scores = ctr_truth_scores(truth);
    assert_true(fabs(scores.ctr - 0.25) < 1e-12);
    assert_true(fabs(scores.logloss - (-log(0.75) - log(0.75) - log(0.25)) / 4) < 1e-6);
    assert_true(fabs(scores.base_logloss - (-0.25 * log(0.25) - 0.75 * log(0.75))) < 1e-9);
    assert_true(fabs(scores.auc - 2.5 / 3) < 1e-9); /* the one click ranks above two others, equal to one */
    free(truth);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_draw_follows_its_weights),
        cmocka_unit_test(test_labels_fit_the_truth),
        cmocka_unit_test(test_popularity_follows_zipf),
        cmocka_unit_test(test_fields_are_in_range_and_consistent),
        cmocka_unit_test(test_exposure_drifts),
        cmocka_unit_test(test_records_stand_alone),
        cmocka_unit_test(test_sums_do_not_depend_on_who_adds),
        cmocka_unit_test(test_scores_of_a_case_by_hand),
    };
    return cmocka_run_group_tests(tests, make_world, free_world);
}

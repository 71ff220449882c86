/* Two towers against the plain model of towers_rig.h; equal bits whoever helps and however events are cut into calls;
 * items that come, change and go. */
#include "tests/unit/learners/towers_rig.h"

#include "team_helper.h"

#include <pthread.h>
#include <stdio.h>

static const struct rig_case cases[] = {
    {"layers, lengths of 1", "sampled_softmax", true, true, true, 3, 0.3},
    {"layers, as they are", "sampled_softmax", true, false, false, 5, 1.0},
    {"in batch alone", "sampled_softmax", true, true, true, 0, 0.2},
    {"no layers", "bpr", false, false, false, 2, 1.0},
    {"no layers, lengths of 1", "bpr", false, true, false, 4, 0.5},
};

/* The larger one; a NaN stays. */
static double larger(double worst, double other)
{
    return other <= worst ? worst : other;
}

/* Gives the model RIG_BATCH events, whose step it then makes; `before`: what it was before the step. */
static void make_step(struct towers *t, struct test_random *random, uint64_t *number,
                      struct rig_event *events, struct rig_step *step, double *before)
{
    struct towers_event call[RIG_BATCH];
    struct towers_seen seen[RIG_BATCH];
    const uint8_t wants[RIG_BATCH] = {1, 1, 1, 1, 1, 1};
    for (uint32_t i = 0; i < RIG_BATCH; i++) {
        rig_draw(random, &events[i]);
        call[i] = rig_event(&events[i], ++*number);
    }
    uint64_t steps = t->steps;
    towers_read(t, call, RIG_BATCH, wants, seen);
    if (before != NULL)
        rig_read(t, before);
    rig_step_of(t, events, call, RIG_BATCH, step);
    towers_take(t);
    assert_int_equal(t->steps, steps + 1);
}

static void test_gradients(void **state)
{
    (void)state;
    static double before[RIG_PARAMS], after[RIG_PARAMS], gradients[RIG_PARAMS];
    for (size_t k = 0; k < 2 * ARRAY_COUNT(cases); k++) {
        size_t i = k / 2;
        const struct rig_case *of = &cases[i];
        struct towers_options options = rig_options(of, 1.0F);
        struct towers *t = towers_new(&options);
        if (k % 2 == 1)
            t->item.pass = 3; /* the step's items go through their tower in several passes */
        struct test_random random = {i};
        struct rig_event events[RIG_BATCH];
        struct rig_step step;
        uint64_t number = 0;
        double worst = 0.0, largest = 0.0;
        make_step(t, &random, &number, events, &step, before);
        rig_read(t, after);
        assert_true(fabs(t->loss - rig_loss(of, before, &step)) < 1e-6);
        rig_gradients(of, before, &step, gradients);
        for (uint32_t p = 0; p < RIG_PARAMS; p++) {
            worst = larger(worst, fabs(before[p] - after[p] - gradients[p]));
            largest = fmax(largest, fabs(gradients[p]));
        }
        printf("# gradients, %s, passes of %u: largest %.3g, difference %.3g\n", of->name, t->item.pass,
               largest, worst);
        assert_true(worst <= 1e-4 && largest > 0.02);
        towers_free(t);
    }
}

/* The largest difference of the model, and of the rows of its index, from the plain one. */
static double difference(struct towers *t, const struct rig_case *of, double *plain)
{
    static double now[RIG_PARAMS];
    double worst = 0.0, vector[RIG_WIDTH];
    struct items_ref ref;
    rig_read(t, now);
    for (uint32_t p = 0; p < RIG_PARAMS; p++)
        worst = larger(worst, fabs(now[p] - plain[p]));
    for (uint64_t key = 1; key <= RIG_ITEMS; key++) {
        if (!catalogue_find(t->items, key, &ref))
            continue;
        const float *row = items_index_row(catalogue_index(t->items), ref.number);
        assert_non_null(row);
        rig_encode_item(of, plain, key, vector);
        for (uint32_t c = 0; c < towers_width(&t->options); c++)
            worst = larger(worst, fabs((double)row[c] - vector[c]));
    }
    return worst;
}

static void test_steps(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    enum { STEPS = 20 }; /* a sanitizer is slow, and later steps run the same code */
#else
    enum { STEPS = 200 };
#endif
    static double plain[RIG_PARAMS], before[RIG_PARAMS], gradients[RIG_PARAMS];
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        const struct rig_case *of = &cases[i];
        const double rate = 0.05;
        struct towers_options options = rig_options(of, (float)rate);
        struct towers *t = towers_new(&options);
        struct test_random random = {400 + i}; /* no sum of a relu layer comes within 1e-6 of 0 */
        struct rig_event events[RIG_BATCH];
        struct rig_step step;
        uint64_t number = 0;
        double moved = 0.0;
        for (uint32_t k = 0; k < STEPS; k++) {
            make_step(t, &random, &number, events, &step, before);
            for (uint32_t p = 0; p < RIG_PARAMS; p++) /* rows of items that are new begin as the model says */
                plain[p] = k == 0 || plain[p] == 0.0 ? before[p] : plain[p];
            rig_gradients(of, plain, &step, gradients);
            for (uint32_t p = 0; p < RIG_PARAMS; p++) {
                plain[p] -= (double)(float)rate * gradients[p];
                moved = fmax(moved, fabs(gradients[p]));
            }
        }
        double worst = difference(t, of, plain);
        printf("# %d steps, %s: difference %.3g\n", STEPS, of->name, worst);
        assert_true(worst <= 1e-5 && moved > 0.02);
        towers_free(t);
    }
}

/* --- Equal bits --- */

/* Queries of all events and all encoded items, as a hash. cuts: the seed of the calls' sizes; 0: one event a call. */
static uint64_t run(const struct rig_case *of, uint64_t cuts, struct team *team)
{
    enum { EVENTS = 300 };
    static struct rig_event events[EVENTS];
    static struct towers_event call[EVENTS];
    static struct towers_seen seen[EVENTS];
    static uint8_t wants[EVENTS];
    struct towers_options options = rig_options(of, 0.05F);
    struct towers *t = towers_new(&options);
    struct test_random random = {5}, sizes = {cuts};
    uint64_t hash = 1;
    towers_set_team(t, team);
    for (uint32_t i = 0; i < EVENTS; i++) {
        rig_draw(&random, &events[i]);
        call[i] = rig_event(&events[i], i);
        call[i].teaches = !random_chance(&random, 20);
        wants[i] = 1;
    }
    for (uint32_t at = 0, n; at < EVENTS; at += n) {
        n = cuts == 0 ? 1 : 1 + random_below(&sizes, 20);
        n = towers_piece(t, call + at, MIN(n, EVENTS - at));
        towers_read(t, call + at, n, wants, seen);
        for (uint32_t i = 0; i < n; i++)
            hash = add_floats(hash, seen[i].query, towers_width(&options)) + seen[i].is_known;
        towers_take(t);
    }
    for (uint32_t number = 0; number < catalogue_used(t->items); number++) {
        const float *row = items_index_row(catalogue_index(t->items), number);
        if (row != NULL)
            hash = add_floats(hash, row, towers_width(&options));
    }
    towers_free(t);
    return hash;
}

static void test_cuts(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        uint64_t expected = run(&cases[i], 0, NULL);
        for (uint64_t cuts = 1; cuts < 5; cuts++)
            assert_int_equal(run(&cases[i], cuts, NULL), expected);
        assert_int_not_equal(run(&cases[(i + 1) % ARRAY_COUNT(cases)], 0, NULL), expected);
    }
}

static void test_team(void **state)
{
    (void)state;
    struct helper h = {.team = {.wake = wait_for_help}};
    pthread_t thread;
    h.team.engine = &h;
    uint64_t expected = run(&cases[0], 3, NULL);
    assert_int_equal(pthread_create(&thread, NULL, help, &h), 0);
    assert_int_equal(run(&cases[0], 3, &h.team), expected);
    atomic_store(&h.is_over, true);
    pthread_join(thread, NULL);
    assert_true(atomic_load(&h.pieces) > 0);
}

/* --- Items --- */

static void put(struct towers *t, uint64_t key, uint64_t of)
{
    uint64_t ids[RIG_LIST + 1];
    uint16_t counts[RIG_FEATURES];
    struct items_value item = {.key = key, .integer = (int64_t)key};
    rig_features(of, ids, counts);
    assert_true(towers_put(t, &item, &(struct towers_ids){ids, counts}, US_PER_SECOND));
}

static const float *encoded(struct towers *t, uint64_t key)
{
    struct items_ref ref;
    return catalogue_find(t->items, key, &ref) ? items_index_row(catalogue_index(t->items), ref.number)
                                               : NULL;
}

static struct towers_seen take_one(struct towers *t, struct rig_event *e, uint64_t number)
{
    struct towers_event call = rig_event(e, number);
    struct towers_seen seen;
    const uint8_t wants = 1;
    call.has_features = false;
    towers_read(t, &call, 1, &wants, &seen);
    towers_take(t);
    return seen;
}

static void test_items(void **state)
{
    (void)state;
    struct towers_options options = rig_options(&cases[0], 0.05F);
    struct test_random random = {9};
    struct rig_event event;
    options.is_listed = true;
    struct towers *t = towers_new(&options);
    for (uint64_t key = 1; key <= 4; key++)
        put(t, key, key);
    assert_null(encoded(t, 3));
    towers_encode_new(t);
    float before[RIG_WIDTH];
    assert_non_null(encoded(t, 3));
    memcpy(before, encoded(t, 3), sizeof(before));
    for (uint64_t number = 1; number <= 30; number++) { /* items from 5 on are in no catalogue */
        rig_draw(&random, &event);
        struct towers_seen seen = take_one(t, &event, number);
        assert_int_equal(seen.is_known, event.item <= 4);
        assert_int_equal(seen.teaches, event.item <= 4);
    }
    assert_true(t->steps > 0 && items_index_live(catalogue_index(t->items)) == 4);
    memcpy(before, encoded(t, 3), sizeof(before));
    put(t, 3, 3); /* nothing new */
    assert_int_equal(t->wanted_count, 0);
    put(t, 3, 7);
    towers_encode_new(t);
    assert_memory_not_equal(before, encoded(t, 3), sizeof(before));
    assert_true(towers_remove(t, 3) && !towers_remove(t, 3));
    assert_null(encoded(t, 3));
    for (uint64_t number = 31; number <= 60;
         number++) { /* it stays away, also where it waited for its step */
        rig_draw(&random, &event);
        event.item = 3;
        assert_false(take_one(t, &event, number).teaches);
    }
    put(t, 9, 2); /* the number is used again, by an item that is encoded as itself */
    put(t, 8, 2);
    assert_true(towers_remove(t, 8)); /* before it was encoded */
    towers_encode_new(t);
    struct items_ref ref;
    assert_true(catalogue_find(t->items, 9, &ref) && ref.generation > 0);
    assert_non_null(encoded(t, 9));
    assert_int_equal(items_index_live(catalogue_index(t->items)), 4);
    towers_free(t);
}

/* An item that goes while its event waits: the step leaves the event out, and its neighbours teach. */
static void test_removed_waiting(void **state)
{
    (void)state;
    struct towers_options options = rig_options(&cases[3], 0.05F);
    struct towers *t = towers_new(&options);
    struct test_random random = {4};
    struct rig_event event;
    for (uint32_t i = 0; i < RIG_BATCH; i++) {
        rig_draw(&random, &event);
        event.item = 1 + i % 3;
        if (i == RIG_BATCH - 1)
            assert_true(towers_remove(t, 1) && towers_remove(t, 2));
        struct towers_seen seen = take_one(t, &event, i);
        assert_int_equal(seen.is_known, i >= 3);
    }
    assert_int_equal(t->steps, 1);
    assert_int_equal(t->targets_learned, 2); /* both of item 3 */
    assert_int_equal(items_index_live(catalogue_index(t->items)), 1);
    towers_free(t);
}

/* Items take their turns: with refresh 2, those that no step has are encoded again within items / 2 steps. */
static void test_turns(void **state)
{
    (void)state;
    struct rig_case of = cases[0];
    of.negatives = 0; /* steps have the items of their events alone */
    struct towers_options options = rig_options(&of, 0.3F);
    options.refresh = 2, options.is_listed = true;
    struct towers *t = towers_new(&options);
    struct test_random random = {4};
    struct rig_event event;
    float before[RIG_ITEMS + 1][RIG_WIDTH];
    bool has_changed[RIG_ITEMS + 1] = {false};
    uint64_t number = 0;
    for (uint64_t key = 1; key <= RIG_ITEMS; key++)
        put(t, key, key);
    towers_encode_new(t);
    for (uint32_t step = 0; step < RIG_ITEMS / 2; step++) {
        uint32_t others = 0;
        for (uint64_t key = 1; key <= RIG_ITEMS; key++)
            memcpy(before[key], encoded(t, key), sizeof(before[key]));
        for (uint32_t i = 0; i < RIG_BATCH; i++) {
            rig_draw(&random, &event);
            event.item = 1 + i % 2;
            (void)take_one(t, &event, ++number);
        }
        for (uint64_t key = 3; key <= RIG_ITEMS; key++) {
            bool is_other = memcmp(before[key], encoded(t, key), sizeof(before[key])) != 0;
            others += is_other;
            has_changed[key] |= is_other;
        }
        assert_in_range(others, 0, 2);
    }
    for (uint64_t key = 3; key <= RIG_ITEMS; key++)
        assert_true(has_changed[key]);
    towers_free(t);
}

/* A row of an id that is too large: the events that need it teach nothing, the others do. */
static void test_too_large(void **state)
{
    (void)state;
    static double before[RIG_PARAMS], after[RIG_PARAMS], gradients[RIG_PARAMS];
    double worst = 0.0, most = 0.0;
    for (uint32_t normal = 0; normal < 2; normal++) {
        struct rig_case of = cases[1];
        of.normalize = normal != 0;
        struct towers_options options = rig_options(&of, 0.05F);
        struct towers *t = towers_new(&options);
        struct test_random random = {8};
        struct rig_event events[RIG_BATCH];
        struct rig_step step;
        uint64_t number = 0;
        for (uint32_t k = 0; k < 20; k++)
            make_step(t, &random, &number, events, &step, NULL);
        struct table_row *row = table_find(&t->query.tables[0], 3);
        assert_non_null(row);
        table_payload(row)[1] = INFINITY;
        uint64_t expected = 0;
        for (uint32_t k = 0; k < 20; k++) {
            make_step(t, &random, &number, events, &step, before);
            for (uint32_t i = 0; i < RIG_BATCH; i++)
                if (events[i].query[0] == 3)
                    expected++, step.others_count[i] = 0; /* has no loss */
            rig_read(t, after);
            rig_gradients(&of, before, &step, gradients);
            for (uint32_t is_item = 0; is_item < 2; is_item++)
                for (uint32_t p = 0; p < RIG_LAYER; p++) {
                    double moved = rig_layers(before, is_item)[p] - rig_layers(after, is_item)[p];
                    worst = larger(worst, fabs(moved - 0.05 * rig_layers(gradients, is_item)[p]));
                    most = fmax(most, fabs(moved));
                }
        }
        assert_true(worst <= 1e-6 && most > 1e-4);
        assert_true(expected > 5);
        assert_int_equal(t->targets_rejected, expected);
        assert_int_equal(t->query.rows_refused + t->item.rows_refused, 0);
        towers_free(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients), cmocka_unit_test(test_steps),
        cmocka_unit_test(test_cuts),      cmocka_unit_test(test_team),
        cmocka_unit_test(test_items),     cmocka_unit_test(test_removed_waiting),
        cmocka_unit_test(test_turns),     cmocka_unit_test(test_too_large),
    };
#ifdef __SANITIZE_THREAD__
    cmocka_set_test_filter("test_team"); /* the others have one thread */
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}

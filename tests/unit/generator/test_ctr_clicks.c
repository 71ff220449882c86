/* All clicks come, in the order of their times, also when reading begins at any position. */
#include "connectors/generator/ctr_clicks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { EVENTS = 30000 };

static struct ctr_world *world;

static int make_world(void **state)
{
    (void)state;
    world = ctr_world_new(9, ctr_gap_us(20.0));
    return world == NULL;
}

static int free_world(void **state)
{
    (void)state;
    ctr_world_free(world);
    return 0;
}

static void test_the_heap_sorts(void **state)
{
    (void)state;
    struct ctr_click_heap heap = {0};
    struct ctr_click click, before = {.ts_ms = INT64_MIN};
    for (uint64_t i = 0; i < 5000; i++)
        assert_true(
            ctr_click_push(&heap, (struct ctr_click){.ts_ms = (int64_t)(i * 7919 % 499), .imp_id = i}));
    assert_false(ctr_click_pop(&heap, -1, &click));
    uint64_t popped = 0;
    while (ctr_click_pop(&heap, INT64_MAX, &click)) {
        assert_true(click.ts_ms > before.ts_ms ||
                    (click.ts_ms == before.ts_ms && click.imp_id > before.imp_id));
        before = click;
        popped++;
    }
    assert_int_equal(popped, 5000);
    ctr_click_heap_free(&heap);
}

static void test_every_click_comes_once_in_order(void **state)
{
    (void)state;
    struct ctr_clicks *clicks = calloc(1, sizeof(*clicks));
    assert_true(ctr_clicks_open(clicks, world, EVENTS));
    int64_t *expected = calloc(EVENTS, sizeof(*expected));
    struct ctr_maker *maker = ctr_maker_new(world);
    uint64_t count = 0, seen = 0;
    for (uint64_t i = 0; i < EVENTS; i++) {
        struct ctr_event event;
        ctr_make(maker, i, &event, NULL);
        expected[i] = event.click_ms;
        count += event.is_clicked;
    }
    struct ctr_click click;
    int64_t before_ms = 0;
    for (; ctr_clicks_next(clicks, &click); seen++) {
        assert_true(click.ts_ms >= before_ms);
        assert_int_equal(click.ts_ms, expected[click.imp_id]);
        expected[click.imp_id] = -1;
        before_ms = click.ts_ms;
    }
    assert_int_equal(seen, count);
    assert_int_equal(clicks->truth.clicks, count);
    assert_int_equal(clicks->truth.events, EVENTS);
    assert_false(ctr_clicks_next(clicks, &click));
    ctr_clicks_close(clicks);
    free(clicks);
    free(expected);
    ctr_maker_free(maker);
}

static void test_seeking_equals_reading_on(void **state)
{
    (void)state;
    struct ctr_clicks *straight = calloc(1, sizeof(*straight)), *jumper = calloc(1, sizeof(*jumper));
    assert_true(ctr_clicks_open(straight, world, EVENTS) && ctr_clicks_open(jumper, world, EVENTS));
    uint64_t places = 0;
    for (uint64_t i = 0;; i++) {
        if (i % 271 == 0) {
            struct ctr_clicks *copy = calloc(1, sizeof(*copy));
            assert_true(ctr_clicks_open(copy, world, EVENTS));
            assert_true(ctr_clicks_seek(copy, straight->next, straight->last));
            assert_true(ctr_clicks_seek(jumper, straight->next, straight->last));
            struct ctr_click a, b;
            for (int k = 0; k < 50; k++) {
                bool has_a = ctr_clicks_next(copy, &a), has_b = ctr_clicks_next(jumper, &b);
                assert_int_equal(has_a, has_b);
                assert_true(!has_a || (a.ts_ms == b.ts_ms && a.imp_id == b.imp_id));
            }
            assert_true(ctr_clicks_seek(jumper, straight->next, straight->last));
            ctr_clicks_close(copy);
            free(copy);
            places++;
        }
        struct ctr_click a, b;
        bool has_a = ctr_clicks_next(straight, &a), has_b = ctr_clicks_next(jumper, &b);
        assert_int_equal(has_a, has_b);
        if (!has_a)
            break;
        assert_int_equal(a.imp_id, b.imp_id);
        assert_int_equal(a.ts_ms, b.ts_ms);
        assert_true(a.user == b.user && a.item == b.item);
    }
    assert_true(places >= 15);
    ctr_clicks_close(straight);
    ctr_clicks_close(jumper);
    free(straight);
    free(jumper);
}

/* A position after some impressions and before the first click. */
static void test_seeking_before_the_first_click(void **state)
{
    (void)state;
    struct ctr_clicks *straight = calloc(1, sizeof(*straight)), *jumper = calloc(1, sizeof(*jumper));
    assert_true(ctr_clicks_open(straight, world, EVENTS) && ctr_clicks_open(jumper, world, EVENTS));
    assert_true(ctr_clicks_seek(jumper, 3, 0));
    struct ctr_click a, b;
    for (int i = 0; i < 100; i++) {
        assert_true(ctr_clicks_next(straight, &a) && ctr_clicks_next(jumper, &b));
        assert_true(a.ts_ms == b.ts_ms && a.imp_id == b.imp_id);
    }
    ctr_clicks_close(straight);
    ctr_clicks_close(jumper);
    free(straight);
    free(jumper);
}

static void test_impossible_places_are_refused(void **state)
{
    (void)state;
    struct ctr_clicks *clicks = calloc(1, sizeof(*clicks));
    assert_true(ctr_clicks_open(clicks, world, EVENTS));
    assert_false(ctr_clicks_seek(clicks, EVENTS + 1, 0));
    assert_false(ctr_clicks_seek(clicks, 10, 11));
    struct ctr_maker *beyond = ctr_maker_new(world);
    struct ctr_event later = {0};
    for (uint64_t i = EVENTS; !later.is_clicked; i++)
        ctr_make(beyond, i, &later, NULL);
    assert_false(ctr_clicks_seek(clicks, EVENTS, later.imp_id + 1));
    ctr_maker_free(beyond);
    struct ctr_maker *maker = ctr_maker_new(world);
    struct ctr_event event;
    uint64_t unclicked = 0;
    for (ctr_make(maker, 0, &event, NULL); event.is_clicked; unclicked++)
        ctr_make(maker, unclicked, &event, NULL);
    assert_false(ctr_clicks_seek(clicks, EVENTS, unclicked + 1));
    ctr_maker_free(maker);
    ctr_clicks_close(clicks);
    free(clicks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_heap_sorts),
        cmocka_unit_test(test_every_click_comes_once_in_order),
        cmocka_unit_test(test_seeking_equals_reading_on),
        cmocka_unit_test(test_seeking_before_the_first_click),
        cmocka_unit_test(test_impossible_places_are_refused),
    };
    return cmocka_run_group_tests(tests, make_world, free_world);
}

/*
 * Sequence models: what is known of an event and what is learned do not depend on how events are cut into calls, or
 * on the kernels' variant; a request changes nothing and is answered what the event would have; and
 * models at their bounds.
 */
#include "sequential_rig.h"

#include <math.h>

/* --- Sameness --- */

static void test_calls(void **state)
{
    (void)state;
    struct rig_case of = rig_all;
    for (int i = 0; i < 4; i++) {
        of.is_hstu = i & 1;
        of.loss = i < 2 ? "sampled_softmax" : "softmax";
        of.masked_share = i == 1 || i == 2 ? 0.3 : 0.0;
        struct sequential_options options = rig_options(&of);
        options.losses.in_batch = i == 1;
        struct rig_result whole = rig_whole(&options, &of, 1500, 0, NULL);
        rig_assert_same(rig_whole(&options, &of, 1500, 1, NULL), whole);
        rig_assert_same(rig_whole(&options, &of, 1500, UINT32_MAX, NULL), whole);
        options.seed++; /* the hashes see a difference */
        assert_int_not_equal(rig_whole(&options, &of, 1500, 0, NULL).model, whole.model);
    }
}

static void test_variants(void **state)
{
    (void)state;
    for (int is_hstu = 0; is_hstu < 2; is_hstu++) {
        struct rig_case of = rig_all;
        of.is_hstu = is_hstu;
        struct sequential_options options = rig_options(&of);
        options.kernels = kernels_variant(KERNELS_SCALAR);
        struct rig_result scalar = rig_whole(&options, &of, 400, 0, NULL);
        for (enum kernels_variant v = KERNELS_SCALAR; v < KERNELS_VARIANTS; v++) {
            options.kernels = kernels_variant(v);
            if (kernels_supports(v))
                rig_assert_same(rig_whole(&options, &of, 400, 0, NULL), scalar);
        }
    }
}

/* --- Requests --- */

/* Each event is asked for before it comes, with others behind it, which it does not see. */
static void test_ask(void **state)
{
    (void)state;
    enum { AHEAD = 6 };
    struct sequential_options options = rig_options(&rig_all);
    struct sequential *s = sequential_new(&options), *never_asked = sequential_new(&options);
    static uint8_t wants[AHEAD] = {1, 1, 1, 1, 1, 1};
    struct sequential_seen asked[AHEAD], seen;
    uint64_t with_query = 0, new_contexts = 0;
    for (uint64_t n = 0; n < 900; n++) {
        struct sequential_event events[AHEAD];
        for (uint32_t i = 0; i < AHEAD; i++)
            events[i] = rig_event(&rig_all, i < 3 ? n + i : n); /* the event itself, three times more */
        struct items_ref ref;
        new_contexts += events[0].contexts[0].key != 0 &&
                        !catalogue_find(s->contexts[0], events[0].contexts[0].key, &ref);
        uint64_t before = n % 50 == 0 ? rig_model_hash(s, true) : 0;
        sequential_ask(s, events, AHEAD, wants, asked);
        if (n % 50 == 0)
            assert_int_equal(rig_model_hash(s, true), before);
        uint64_t hash = rig_seen_hash(1, &asked[0], options.dim);
        for (uint32_t i = 3; i < AHEAD; i++)
            assert_int_equal(rig_seen_hash(1, &asked[i], options.dim), hash);
        sequential_read(s, events, 1, wants, &seen);
        assert_int_equal(rig_seen_hash(1, &seen, options.dim), hash);
        with_query += seen.query != NULL;
        sequential_take(s);
        (void)rig_feed(never_asked, &rig_all, n, n + 1, 1, 1);
        if (n % RIG_BLOCK == RIG_BLOCK - 1) {
            sequential_set_watermark(s, (int64_t)(1000 + n * 10) * US_PER_SECOND);
            sequential_set_watermark(never_asked, (int64_t)(1000 + n * 10) * US_PER_SECOND);
        }
    }
    assert_true(with_query > 600 && new_contexts > 2);
    assert_int_equal(rig_model_hash(s, true), rig_model_hash(never_asked, true));
    sequential_free(s);
    sequential_free(never_asked);
}

/* --- Bounds --- */

static void give(struct sequential *s, const struct sequential_event *e, struct sequential_seen *seen)
{
    sequential_read(s, e, 1, &(uint8_t){1}, seen);
    sequential_take(s);
}

static struct sequential_event event_of(uint64_t user, uint32_t item, uint64_t number, bool teaches)
{
    return (struct sequential_event){.user = user,
                                     .item = rig_value(1, item),
                                     .time_us = (int64_t)(number + 5) * US_PER_SECOND,
                                     .identity = num_mix(number),
                                     .teaches = teaches};
}

/* Windows of the longest history, which fill a pass each, and one of a single event. */
static void test_histories_of_bounds(void **state)
{
    (void)state;
    static const uint32_t histories[] = {1, 2, HISTORY_MAX};
    for (size_t h = 0; h < ARRAY_COUNT(histories); h++) {
        struct rig_case of = {
            .loss = "bpr", .history = histories[h], .batch = 3, .rehearse = 1, .negatives = 1};
        of.is_hstu = h == 2;
        struct sequential_options options = rig_options(&of);
        struct sequential *s = sequential_new(&options);
        struct sequential_seen seen, asked;
        uint64_t n = 0;
        for (uint32_t i = 0; i < 8; i++, n++) {
            struct sequential_event e = event_of(2, i, n, true);
            give(s, &e, &seen);
        }
        for (; n < histories[h]; n++) { /* does not teach: no window is learned */
            struct sequential_event e = event_of(2, (uint32_t)n % 8, n, false);
            sequential_read(s, &e, 1, NULL, &seen);
            sequential_take(s);
        }
        for (uint32_t i = 0; i < 7; i++, n++) {
            struct sequential_event e = event_of(2, i, n, true);
            sequential_ask(s, &e, 1, &(uint8_t){1}, &asked);
            uint64_t hash = rig_seen_hash(1, &asked, options.dim);
            give(s, &e, &seen);
            assert_int_equal(rig_seen_hash(1, &seen, options.dim), hash);
            assert_int_equal(seen.length, history_window(n, histories[h]).length);
            for (uint32_t c = 0; c < options.dim; c++)
                assert_true(isfinite(seen.query[c]));
        }
        assert_true(sequential_counts(s).steps >= 4 && sequential_counts(s).rejected == 0);
        sequential_free(s);
    }
}

static void test_million_events_of_a_user(void **state)
{
    (void)state;
    enum { EVENTS = 1000000 };
    struct rig_case of = {.loss = "bpr", .history = 50, .batch = 1, .negatives = 1};
    struct sequential_options options = rig_options(&of);
    struct sequential *s = sequential_new(&options);
    static struct sequential_event events[SEQUENTIAL_CALL_MAX];
    static struct sequential_seen seen[SEQUENTIAL_CALL_MAX];
    for (uint32_t i = 0; i < 4; i++) {
        events[0] = event_of(9, i, i, true);
        give(s, events, seen);
    }
    assert_int_equal(sequential_counts(s).steps, 3); /* `batch: 1`: each event but the first */
    for (uint64_t n = 4, count; n < EVENTS; n += count) {
        count = MIN(EVENTS - n, (uint64_t)SEQUENTIAL_CALL_MAX);
        for (uint64_t i = 0; i < count; i++)
            events[i] = event_of(9, (uint32_t)(n + i) % 4, n + i, false);
        assert_int_equal(sequential_piece(s, events, (uint32_t)count), count);
        sequential_read(s, events, (uint32_t)count, NULL, seen);
        for (uint64_t i = 0; i < count; i++)
            assert_int_equal(seen[i].length, history_window(n + i, 50).length);
        sequential_take(s);
    }
    struct history_view view;
    histories_find(s->histories, &(uint64_t){9}, 1, 1, &view);
    assert_true(view.count == EVENTS && view.length == history_window(EVENTS, 50).length);
    struct history_entry entry;
    for (uint64_t n = history_window(EVENTS, 50).start; n < EVENTS; n++)
        assert_true(history_next(&view, &entry) && entry.item.number == n % 4 && entry.seconds == n + 5);
    assert_true(sequential_memory_now(s).history_bytes < 1 << 20);
    sequential_free(s);
}

/* What has no number leaves nothing behind: unknown items that do not teach, texts that are too long, items beyond
 * items_max. Their neighbours are learned as if they had not come. */
static void test_without_numbers(void **state)
{
    (void)state;
    struct rig_case of = {
        .loss = "bpr", .history = 8, .sides = 1, .batch = 2, .negatives = 1, .items_max = 5};
    struct sequential_options options = rig_options(&of);
    struct sequential *s = sequential_new(&options), *neighbour = sequential_new(&options);
    struct sequential_seen seen;
    char *text = calloc(ITEMS_TEXT_MAX + 1, 1);
    for (uint64_t n = 0; n < 200; n++) {
        struct sequential_event e = event_of(1 + n % 3, (uint32_t)n % 5, n, true), unknown = e;
        if (n >= 5) {
            unknown.item = rig_value(1, 100 + (uint32_t)n);
            unknown.teaches = n % 2 == 0; /* there are items_max */
            give(s, &unknown, &seen);
            assert_true(!seen.is_known);
        }
        unknown.item = (struct items_value){
            .key = num_mix(n + 1000000), .is_text = true, .text = {text, ITEMS_TEXT_MAX + 1}};
        unknown.teaches = true;
        give(s, &unknown, &seen);
        e.sides[0] = n % 4 == 0 ? unknown.item : rig_value(10, (uint32_t)n % 3);
        give(s, &e, &seen);
        e.sides[0] = n % 4 == 0 ? (struct items_value){0} : e.sides[0]; /* too long is as absent */
        give(neighbour, &e, &seen);
    }
    free(text);
    assert_int_equal(sequential_memory_now(s).items, 5);
    assert_int_equal(sequential_memory_now(s).unnumbered, 200 + 97);
    assert_int_equal(rig_model_hash(s, true), rig_model_hash(neighbour, true));
    sequential_free(s);
    sequential_free(neighbour);
}

/* A row that is too large, as one may become by a rate that is too high, makes the windows with it teach nothing: they are
 * counted, and the weights stay finite. */
static void test_rows_too_large(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        struct rig_case of = {
            .loss = i < 4 ? "bce" : "softmax", .history = 6, .batch = 6, .rehearse = 1, .negatives = 2};
        of.is_hstu = i & 1;
        struct sequential_options options = rig_options(&of);
        struct sequential *s = sequential_new(&options);
        struct sequential_seen seen;
        struct items_ref ref;
        (void)rig_feed(s, &of, 0, 300, 0, 1);
        uint64_t steps = sequential_counts(s).steps;
        assert_true(sequential_counts(s).rejected == 0 &&
                    catalogue_find(s->items, rig_value(1, 3).key, &ref));
        for (uint32_t c = 0; c < options.dim; c++)
            catalogue_rows(s->items)[ref.number][c] = i & 2 ? 3e38F : 1e25F;
        (void)rig_feed(s, &of, 300, 600, 0, 1);
        struct sequential_counts counts = sequential_counts(s);
        /* softmax compares each target with the item */
        assert_true(counts.steps > steps + 10 && (i >= 4 || counts.targets > counts.rejected + 100));
        assert_true(counts.rejected > 0 || !(i & 2)); /* what is merely large may be finite to the end */
        for (uint32_t p = 0; p < s->net.params_count; p++)
            for (size_t f = 0; f < s->net.params[p].floats; f++)
                assert_true(isfinite(s->net.params[p].w[f]));
        for (uint32_t n = 0; n < catalogue_used(s->items); n++)
            for (uint32_t c = 0; c < options.dim; c++)
                assert_true(isfinite(catalogue_rows(s->items)[n][c]));
        (void)catalogue_remove(s->items, rig_value(1, 3).key); /* without the item all windows teach again */
        uint64_t rejected = counts.rejected;
        uint32_t with_it = 0;
        for (uint64_t n = 600; n < 900; n++) {
            struct sequential_event e = rig_event(&of, n);
            if (e.item.integer == 3) {
                with_it++;
                continue;
            }
            give(s, &e, &seen);
        }
        assert_true(with_it > 0);
        assert_int_equal(sequential_counts(s).rejected, rejected);
        sequential_free(s);
    }
}

static uint64_t weights_hash(const struct sequential *s, uint32_t p)
{
    return rig_hash(1, s->net.params[p].w, s->net.params[p].floats * sizeof(float));
}

/* The other windows of the step teach the network as ever. */
static void test_neighbours_of_rows_too_large(void **state)
{
    (void)state;
    static const struct {
        uint64_t user;
        uint32_t item;
    } events[] = {{901, 3}, {901, 1}, {902, 1}, {902, 2},
                  {902, 1}, {903, 2}, {903, 1}}; /* 4 windows, one with 3 */
    for (int is_hstu = 0; is_hstu < 2; is_hstu++) {
        struct rig_case of = {.loss = "bpr", .history = 6, .batch = 4, .negatives = 1, .rows = OPT_ADAM};
        of.is_hstu = is_hstu;
        struct sequential_options options = rig_options(&of);
        struct sequential *s = sequential_new(&options);
        struct sequential_seen seen;
        struct items_ref ref;
        uint64_t before[32];
        uint64_t n = 0;
        while (n < 300 || sequential_counts(s).pending > 0)
            (void)rig_feed(s, &of, n, n + 1, 0, 1), n++;
        assert_true(catalogue_find(s->items, rig_value(1, 3).key, &ref));
        for (uint32_t c = 0; c < options.dim; c++)
            catalogue_rows(s->items)[ref.number][c] = 3e38F;
        for (uint32_t p = 0; p < s->net.params_count; p++)
            before[p] = weights_hash(s, p);
        uint64_t steps = sequential_counts(s).steps;
        for (size_t i = 0; i < ARRAY_COUNT(events); i++) {
            struct sequential_event e = event_of(events[i].user, events[i].item, 10000 + i, true);
            give(s, &e, &seen);
        }
        struct sequential_counts counts = sequential_counts(s);
        assert_true(counts.steps == steps + 1 && counts.rejected == 1 && isfinite(counts.loss));
        for (uint32_t p = 0; p < s->net.params_count; p++)
            assert_int_not_equal(weights_hash(s, p), before[p]);
        sequential_free(s);
    }
}

/* A call without events; events of one user in a call, of which the second sees the first. */
static void test_small_calls(void **state)
{
    (void)state;
    struct rig_case of = {.loss = "bce", .history = 4, .batch = 3, .negatives = 1};
    struct sequential_options options = rig_options(&of);
    struct sequential *s = sequential_new(&options);
    struct sequential_seen seen[3];
    uint64_t before = rig_model_hash(s, true);
    sequential_read(s, NULL, 0, NULL, seen);
    sequential_take(s);
    sequential_ask(s, NULL, 0, NULL, seen);
    assert_int_equal(sequential_piece(s, NULL, 0), 0);
    assert_int_equal(rig_model_hash(s, true), before);
    struct sequential_event events[] = {event_of(4, 0, 0, true), event_of(4, 1, 1, true),
                                        event_of(4, 0, 2, true)};
    sequential_read(s, events, 3, (uint8_t[]){1, 1, 1}, seen);
    for (uint32_t i = 0; i < 3; i++)
        assert_true(seen[i].length == i && (seen[i].query != NULL) == (i > 0) && seen[i].history_length == i);
    assert_true(!seen[0].is_known && !seen[1].is_known && seen[2].is_known);
    sequential_take(s);
    assert_int_equal(sequential_counts(s).pending, 2);
    sequential_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_variants),
        cmocka_unit_test(test_ask),
        cmocka_unit_test(test_histories_of_bounds),
        cmocka_unit_test(test_million_events_of_a_user),
        cmocka_unit_test(test_without_numbers),
        cmocka_unit_test(test_small_calls),
        cmocka_unit_test(test_rows_too_large),
        cmocka_unit_test(test_neighbours_of_rows_too_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

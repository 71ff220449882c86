/*
 * Saved sequence models: a checkpoint in the middle of a step is gone on from with equal bits; followers that take cuts
 * answer what the model answers; items and users that go, also while they wait for a step.
 */
#include "sequential_rig.h"

static struct sequential_event event_of(uint64_t user, uint32_t item, int64_t second)
{
    return (struct sequential_event){.user = user,
                                     .item = rig_value(1, item),
                                     .time_us = second * US_PER_SECOND,
                                     .identity = num_mix((uint64_t)second),
                                     .teaches = true};
}

/* An event at a time by which its user expires at once. */
static void give_late(struct sequential *s, uint64_t user, int64_t second)
{
    struct sequential_event late = event_of(user, 0, second);
    struct sequential_seen seen;
    sequential_read(s, &late, 1, NULL, &seen);
    sequential_take(s);
}

/* Both go on for some blocks; what they know and what they learn is equal. */
static void assert_go_on_alike(struct sequential *a, struct sequential *b, const struct rig_case *of,
                               uint64_t from)
{
    assert_int_equal(rig_model_hash(a, true), rig_model_hash(b, true));
    assert_int_equal(rig_run(a, of, from, from + 8 * RIG_BLOCK, 0, 1),
                     rig_run(b, of, from, from + 8 * RIG_BLOCK, 0, 1));
    assert_int_equal(rig_model_hash(a, true), rig_model_hash(b, true));
}

/* A base, and a base with a delta. The model that is saved has been told the end of input in the end. */
static void check_restore(const struct rig_case *of, const struct sequential_options *options, uint64_t from)
{
    struct stored stored, again, other;
    struct sequential *s = sequential_new(options);
    rig_store(&stored, s);
    (void)rig_run(s, of, 0, from, 0, 1);
    for (; sequential_counts(s).pending < 3; from++) /* in the middle of a step */
        (void)rig_feed(s, of, from, from + 1, 1, 1);
    struct snapshot_writer base = rig_save(&stored, 1, true);
    struct sequential *restored = rig_restored(options, &again, &base, NULL);
    assert_go_on_alike(s, restored, of, from);
    from += 8 * RIG_BLOCK;
    sequential_free(restored);
    struct snapshot_writer delta = rig_save(&stored, 2, false);
    restored = rig_restored(options, &again, &base, &delta);
    assert_go_on_alike(s, restored, of, from);
    for (uint64_t user = 1; user < 12000; user++) /* more than a watermark removes */
        give_late(s, user, 0);
    sequential_set_watermark(s, TIME_MAX);
    assert_true(sequential_memory_now(s).users <= RIG_USERS);
    struct snapshot_writer end = rig_save(&stored, 3, true);
    struct sequential *ended = rig_restored(options, &other, &end, NULL);
    assert_int_equal(rig_model_hash(ended, true), rig_model_hash(s, true));
    sequential_free(ended);
    sequential_free(restored);
    sequential_free(s);
    checkpoint_free(&base), checkpoint_free(&delta), checkpoint_free(&end);
}

static void test_restore(void **state)
{
    (void)state;
    struct rig_case of = rig_all;
    for (int i = 0; i < 4; i++) {
        of.is_hstu = i & 1;
        of.loss = i < 2 ? "sampled_softmax" : "softmax";
        of.masked_share = i == 1 || i == 2 ? 0.3 : 0.0;
        struct sequential_options options = rig_options(&of);
        options.losses.in_batch = i == 1;
        options.losses.negatives = i == 1 ? 3 : options.losses.negatives;
        check_restore(&of, &options, 250 + RIG_BLOCK * (uint64_t)i);
    }
}

/* Bytes of a part that are cut off, or say more than can be, are refused. */
static void damage(struct sequential *s, const struct stored_part *part)
{
    struct byte_buffer bytes = {0};
    part->save(s, 0, &bytes);
    assert_null(part->load(s, bytes.data, bytes.length));
    for (size_t length = 0; length < bytes.length; length += 1 + length / 40) {
        char *copy =
            malloc(length + (length == 0)); /* of exactly this size, so that a sanitizer sees its end */
        memcpy(copy, bytes.data, length);
        assert_non_null(part->load(s, copy, length));
        free(copy);
    }
    for (size_t at = 0; at < bytes.length; at += 4) {
        uint32_t was, wrong = UINT32_MAX - (uint32_t)(at & 3);
        memcpy(&was, bytes.data + at, sizeof(was));
        memcpy(bytes.data + at, &wrong, sizeof(wrong));
        if (part->load(s, bytes.data, bytes.length) == NULL) { /* then it can be gone on with */
            s->steps = s->targets_learned = 100;
            (void)rig_feed(s, &rig_all, 200, 210, 0, 1);
        }
        memcpy(bytes.data + at, &was, sizeof(was));
    }
    buffer_free(&bytes);
}

static void test_damaged(void **state)
{
    (void)state;
    struct sequential_options options = rig_options(&rig_all);
    struct stored_part parts[STORED_PARTS_MAX];
    struct sequential *s = sequential_new(&options);
    uint64_t n = 0;
    for (; n < 200 || s->pending.count == 0 || s->unlabelled.count == 0; n++)
        (void)rig_feed(s, &rig_all, n, n + 1, 0, 1);
    (void)sequential_parts(s, parts);
    assert_string_equal(parts[1].name, "step");
    assert_string_equal(parts[2].name, "masked");
    damage(s, &parts[2]);
    damage(s, &parts[1]);
    sequential_free(s);
}

/* --- Followers --- */

/* Answers for the next events, from both. */
static void compare_answers(struct sequential *s, struct sequential *follower, uint64_t from)
{
    enum { ASKED = 40 };
    struct sequential_event events[ASKED];
    struct sequential_seen seen[ASKED], other[ASKED];
    uint8_t wants[ASKED];
    memset(wants, 1, sizeof(wants));
    for (uint32_t i = 0; i < ASKED; i++)
        events[i] = rig_event(&rig_all, from + i);
    sequential_ask(s, events, ASKED, wants, seen);
    sequential_ask(follower, events, ASKED, wants, other);
    for (uint32_t i = 0; i < ASKED; i++)
        assert_int_equal(rig_seen_hash(1, &seen[i], RIG_DIM), rig_seen_hash(1, &other[i], RIG_DIM));
}

static void test_followers(void **state)
{
    (void)state;
    struct sequential_options options = rig_options(&rig_all);
    struct sequential *s = sequential_new(&options);
    struct stored stored, other;
    uint64_t n = 300;
    rig_store(&stored, s);
    (void)rig_run(s, &rig_all, 0, n, 0, 1);
    assert_true(stored_cut_note(&stored, true));
    struct snapshot_writer base = rig_save(&stored, 1, true);
    struct sequential *follower = rig_restored(&options, &other, &base, NULL);
    compare_answers(s, follower, n);
    for (; n < 1500; n += RIG_BLOCK) {
        struct byte_buffer cut = {0};
        (void)rig_run(s, &rig_all, n, n + RIG_BLOCK, 0, 1);
        if (n % 200 == 0)
            (void)catalogue_remove(s->items, rig_value(1, (uint32_t)(n / 200)).key);
        give_late(s, 78, (int64_t)(1000 + (n + RIG_BLOCK) * 10) - 950);
        assert_true(stored_cut(&stored, &cut));
        assert_true(stored_take_cut(&other, (struct str){cut.data, cut.length}, TABLE_STEP_NONE));
        assert_null(sequential_check(follower));
        assert_int_equal(sequential_memory_now(follower).users, sequential_memory_now(s).users);
        compare_answers(s, follower, n + RIG_BLOCK);
        assert_memory_equal(follower->masks.row, s->masks.row, RIG_DIM * sizeof(float));
        buffer_free(&cut);
    }
    checkpoint_free(&base);
    sequential_free(follower);
    sequential_free(s);
}

/* --- Items and users that go --- */

/* Items are removed at random between calls, while windows with them wait; their numbers come again. In the same places the
 * calls' sizes do not matter, nor does a restore. */
static void test_removed(void **state)
{
    (void)state;
    struct rig_case of = rig_all;
    of.expire_after_us = 0;
    struct sequential_options options = rig_options(&of);
    struct sequential *s = sequential_new(&options), *by_one = sequential_new(&options);
    struct stored stored, other;
    struct test_random random = {3};
    uint64_t removed = 0, waited = 0, n = 0;
    rig_store(&stored, s);
    for (; n < 1005; n += 5) {
        uint64_t key = rig_value(1, random_below(&random, RIG_ITEMS)).key;
        assert_int_equal(rig_feed(s, &of, n, n + 5, 0, 1), rig_feed(by_one, &of, n, n + 5, 1, 1));
        waited += sequential_counts(s).pending > 0;
        bool is_there = catalogue_remove(s->items, key);
        assert_int_equal(is_there, catalogue_remove(by_one->items, key));
        removed += is_there;
    }
    assert_true(removed > 80 && waited > 100);
    assert_int_equal(rig_model_hash(s, true), rig_model_hash(by_one, true));
    uint32_t again = 0;
    for (uint32_t i = 0; i < RIG_ITEMS; i++) {
        struct items_ref ref;
        again += catalogue_find(s->items, rig_value(1, i).key, &ref) && ref.generation > 0;
    }
    assert_true(again > 10);
    struct snapshot_writer base = rig_save(&stored, 1, true);
    struct sequential *restored = rig_restored(&options, &other, &base, NULL);
    of.expire_after_us = 0;
    assert_go_on_alike(s, restored, &of, n);
    checkpoint_free(&base);
    sequential_free(restored);
    sequential_free(by_one);
    sequential_free(s);
}

/* A target whose item is removed before the step is no target; a token whose item is gone is encoded as nothing, also when
 * its number belongs to another item. */
static void test_removed_from_pending(void **state)
{
    (void)state;
    struct rig_case of = {.loss = "bpr", .history = 6, .batch = 3, .negatives = 2};
    struct sequential_options options = rig_options(&of);
    struct sequential *s = sequential_new(&options);
    struct sequential_seen seen[2];
    static const uint32_t items[] = {0, 1, 2, 3};
    for (uint32_t i = 0; i < 3; i++) { /* 1 and 2 wait as targets, behind 0 */
        struct sequential_event e = event_of(1, items[i], i);
        sequential_read(s, &e, 1, NULL, seen);
        sequential_take(s);
    }
    assert_int_equal(sequential_counts(s).pending, 2);
    assert_true(catalogue_remove(s->items, rig_value(1, 1).key));
    struct sequential_event last = event_of(1, 3, 3); /* it gets the number of 1 */
    sequential_read(s, &last, 1, &(uint8_t){1}, seen);
    assert_true(seen[0].item.number == 1 && seen[0].item.generation == 1);
    assert_true(seen[0].length == 3 && seen[0].history_length == 2);
    sequential_take(s);
    struct sequential_counts counts = sequential_counts(s);
    assert_true(counts.steps == 1 && counts.targets == 2 && counts.rejected == 0 && counts.pending == 0);
    /* the history has 0, nothing, 2, 3 */
    static const uint32_t numbers[] = {0, 2, 1};
    sequential_ask(s, &last, 1, &(uint8_t){1}, seen);
    assert_true(seen[0].length == 4 && seen[0].history_length == 3);
    assert_memory_equal(seen[0].history, numbers, sizeof(numbers));
    for (uint32_t i = 0; i < 4; i++)
        (void)catalogue_remove(s->items, rig_value(1, i).key);
    sequential_ask(s, &last, 1, &(uint8_t){1}, seen);
    assert_true(seen[0].length == 4 && seen[0].history_length == 0 && seen[0].query != NULL &&
                !seen[0].is_known);
    sequential_free(s);
}

/* An event that comes so late that its user has expired at once stands alone, in one call with the next event and in calls
 * of their own. */
static void test_late_user(void **state)
{
    (void)state;
    struct rig_case of = {.loss = "bpr", .history = 6, .batch = 3, .negatives = 2};
    of.expire_after_us = 100 * US_PER_SECOND;
    struct sequential_options options = rig_options(&of);
    static const int64_t seconds[] = {500, 510, 990, 520, 991};
    static const uint32_t lengths[] = {0, 0, 0, 1, 2}; /* 520 is late, but its user is there by 990 */
    for (uint32_t size = 1; size <= 3; size++) {
        struct sequential *s = sequential_new(&options);
        struct sequential_event events[5];
        struct sequential_seen seen[5];
        sequential_set_watermark(s, 1000 * US_PER_SECOND);
        for (uint32_t i = 0; i < 5; i++)
            events[i] = event_of(1, i, seconds[i]);
        for (uint32_t at = 0; at < 5; at += size) {
            uint32_t n = MIN(size, 5 - at);
            sequential_read(s, events + at, n, NULL, seen + at);
            sequential_take(s);
        }
        for (uint32_t i = 0; i < 5; i++)
            assert_int_equal(seen[i].length, lengths[i]);
        assert_true(sequential_memory_now(s).users == 1 && sequential_memory_now(s).entries == 3);
        sequential_free(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_restore),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_followers),
        cmocka_unit_test(test_removed),
        cmocka_unit_test(test_removed_from_pending),
        cmocka_unit_test(test_late_user),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

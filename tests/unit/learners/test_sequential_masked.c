/*
 * Sequence models that learn by hidden items, too (masked.c): against the plain model in double, 200 steps; the gradients
 * of a whole step, dropout on, against central differences of the plain model's loss; which items are hidden; events without a
 * label; and what is asked for, which hidden items do not touch.
 */
#include "sequential_plain.h"

static const struct rig_case sasrec_case = {.name = "sasrec, sampled_softmax, hidden items",
                                            .loss = "sampled_softmax",
                                            .has_marks = true,
                                            .rows = OPT_ADAM,
                                            .dense = OPT_ADAM,
                                            .history = 9,
                                            .sides = 1,
                                            .contexts = 1,
                                            .batch = 3,
                                            .rehearse = 2,
                                            .pass_rows = 20,
                                            .negatives = 8,
                                            .dropout = 0.2F,
                                            .masked_share = 0.2};
static const struct rig_case hstu_case = {.name = "hstu, bce, hidden items",
                                          .loss = "bce",
                                          .is_hstu = true,
                                          .has_marks = true,
                                          .rows = OPT_ADAM,
                                          .dense = OPT_ADAGRAD,
                                          .history = 10,
                                          .sides = 2,
                                          .batch = 4,
                                          .rehearse = 1,
                                          .negatives = 2,
                                          .dropout = 0.2F,
                                          .masked_share = 0.5};

static void test_plain(void **state)
{
    (void)state;
    check_case(&sasrec_case, 200);
    check_case(&hstu_case, 200);
    struct rig_case all_labelled = hstu_case;
    all_labelled.name = "hstu, softmax, hidden items, no marks", all_labelled.loss = "softmax";
    all_labelled.has_marks = false, all_labelled.dropout = 0.0F, all_labelled.masked_share = 0.9;
    check_case(&all_labelled, 20);
}

/* --- Gradients of a whole step --- */

static double loss_now(void)
{
    uint32_t targets[2];
    return value(step_loss(targets));
}

/* Some of the weights of an array: gradient[i] against differences, relative to the difference or to the root mean square of
 * the array's gradients, if it is smaller. */
static void check_array(const char *what, uint32_t number_of, struct weights *of, const double *gradient)
{
    enum { CHECKS = 5 };
    double squares_of = 0.0;
    for (size_t i = 0; i < of->count; i++)
        squares_of += gradient[i] * gradient[i];
    double typical = sqrt(squares_of / (double)of->count);
    assert_true(isfinite(typical));
    for (size_t i = number_of % 3; i < of->count; i += of->count / CHECKS + 1) {
        double was = of->w[i], h = 1e-5;
        of->w[i] = was + h;
        double up = loss_now();
        of->w[i] = was - h;
        double want = (up - loss_now()) / (2.0 * h);
        of->w[i] = was;
        if (!(fabs(gradient[i] - want) <= 1e-4 * fmax(fabs(want), fmax(typical, 1e-7))))
            fail_msg("%s: %s %u, number %zu: gradient %.9g, by differences %.9g", plain.of->name, what,
                     number_of, i, gradient[i], want);
    }
}

/* Rows make a step of sgd, from which their gradient follows. */
static void check_row(const char *what, uint32_t number_of, struct weights *of, const float *now, float rate)
{
    double gradient[RIG_DIM], all = 0.0;
    for (size_t c = 0; c < RIG_DIM; c++) {
        gradient[c] = (of->w[c] - (double)now[c]) / (double)rate;
        all += fabs(gradient[c]);
    }
    if (all > 0.0)
        check_array(what, number_of, of, gradient);
}

static void check_rows(const char *what, struct catalogue *catalogue, uint64_t space, struct weights *rows,
                       uint32_t count, float rate)
{
    for (uint32_t i = 0; i < count; i++) {
        struct items_ref ref;
        if (rows[i].is_there && catalogue_find(catalogue, rig_value(space, i).key, &ref))
            check_row(what, i, &rows[i], catalogue_rows(catalogue)[ref.number], rate);
    }
}

/* The weights before the step become the plain model's, row by row. */
static void refresh_rows(struct catalogue *catalogue, uint64_t space, struct weights *rows, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct items_ref ref;
        if (rows[i].is_there && catalogue_find(catalogue, rig_value(space, i).key, &ref))
            for (size_t c = 0; c < RIG_DIM; c++)
                rows[i].w[c] = (double)catalogue_rows(catalogue)[ref.number][c];
    }
}

static void refresh(struct sequential *s)
{
    refresh_rows(s->items, 1, plain.items, RIG_ITEMS);
    for (uint32_t k = 0; k < plain.of->sides; k++)
        refresh_rows(s->sides[k], 10 + k, plain.sides[k], RIG_VALUES);
    for (uint32_t k = 0; k < plain.of->contexts; k++)
        refresh_rows(s->contexts[k], 20 + k, plain.contexts[k], RIG_VALUES);
    for (size_t c = 0; c < RIG_DIM; c++)
        plain.mask.w[c] = (double)s->masks.row[c];
    for (uint32_t p = 0; p < s->net.params_count; p++)
        for (size_t i = 0; i < plain.params[p].count; i++)
            plain.params[p].w[i] = (double)s->net.params[p].w[i];
}

static void check_gradients(struct sequential *s, float rate)
{
    for (uint32_t p = 0; p < s->net.params_count; p++) {
        double gradient[4 * RIG_DIM * RIG_DIM + 4 * RIG_DIM];
        assert_true(plain.params[p].count <= ARRAY_COUNT(gradient));
        for (size_t i = 0; i < plain.params[p].count; i++)
            gradient[i] = (double)s->net.params[p].gradient[i];
        check_array("weights", p, &plain.params[p], gradient);
    }
    check_row("hidden items' row", 0, &plain.mask, s->masks.row, rate);
    check_rows("item", s->items, 1, plain.items, RIG_ITEMS, rate);
    for (uint32_t k = 0; k < plain.of->sides; k++)
        check_rows("side", s->sides[k], 10 + k, plain.sides[k], RIG_VALUES, rate);
    for (uint32_t k = 0; k < plain.of->contexts; k++)
        check_rows("context", s->contexts[k], 20 + k, plain.contexts[k], RIG_VALUES, rate);
}

static void check_step(const struct rig_case *usual)
{
    struct rig_case of = *usual;
    of.rows = of.dense = OPT_SGD;
    struct sequential_options options = rig_options(&of);
    options.rows.params.rate = options.dense.params.rate = 1e-4F;
    options.rows.params.step_max = options.dense.params.step_max = 1e9F;
    struct sequential *s = begin_models(&of, &options);
    for (uint32_t p = 0; p < s->net.params_count; p++) /* gains and biases are no plain ones and zeros */
        for (size_t i = 0; i < s->net.params[p].floats; i++)
            if (i >= (size_t)s->net.params[p].n * s->net.params[p].stride ||
                i % s->net.params[p].stride < s->net.params[p].d)
                s->net.params[p].w[i] += (float)(num_mix(i + p) >> 40) * 0x1p-25F - 0.25F;
    take_weights(s);
    uint64_t n = 0;
    for (; plain.steps < 40; plain.steps++) {
        n = give_events(s, n);
        plain.count = plain.unlabelled_count = 0;
        refresh(s);
    }
    sequential_set_rates(s, 64.0F, 0.0F);
    n = give_events(s, n);
    add_windows();
    check_gradients(s, 64.0F);
    end_models(s);
}

static void test_gradients(void **state)
{
    (void)state;
    check_step(&sasrec_case);
    check_step(&hstu_case);
}

/* --- What is hidden --- */

/* Windows of `length` items, of which those at odd places teach nothing with marks; returns how many are hidden of each
 * window on average. at[p]: of how many windows the item at p is. */
static double hide(struct sequential *s, uint32_t length, uint32_t windows, uint32_t *at)
{
    struct history_entry tokens[HISTORY_MOST] = {{.seconds = 0}};
    struct items_ref item;
    assert_true(catalogue_find(s->items, rig_value(1, 0).key, &item));
    windows_clear(&s->pending);
    windows_clear(&s->unlabelled);
    for (uint32_t p = 0; p < length; p++) {
        tokens[p] = (struct history_entry){.item = item, .seconds = p};
        tokens[p].sides[s->options.sides] =
            s->options.marks && p % 2 == 1 ? MARK_TEACHES_NOT : MARK_UNLABELLED;
    }
    for (uint32_t w = 0; w < windows; w++)
        windows_copy(&s->pending, &(struct sequential_window){.length = length, .identity = num_mix(w)},
                     tokens);
    sequential_add_masked(s);
    assert_int_equal(s->pending.count, 2 * windows);
    memset(at, 0, length * sizeof(*at));
    uint32_t *counts = mem_calloc(windows, sizeof(*counts));
    for (uint32_t i = 0; i < s->masks.count; i++) {
        const struct sequential_place *place = &s->masks.places[i];
        const struct sequential_window *of = &s->pending.items[place->window];
        assert_true(of->is_masked && place->position < length && place->item.number == item.number);
        assert_true(sequential_is_mask(&s->pending.tokens[of->first + place->position]));
        at[place->position]++, counts[place->window - windows]++;
    }
    for (uint32_t w = 0; w < windows; w++)
        assert_true(counts[w] >= 1 && counts[w] <= sequential_masked_targets(&s->options));
    free(counts);
    return (double)s->masks.count / windows;
}

/* The share on average, at least one, each place as often; of what may not teach nothing is hidden. */
static void test_share(void **state)
{
    (void)state;
    enum { WINDOWS = 20000 };
    for (int has_marks = 0; has_marks < 2; has_marks++) {
        struct rig_case of = sasrec_case;
        of.has_marks = has_marks, of.history = 16;
        struct sequential_options options = rig_options(&of);
        struct sequential *s = sequential_new(&options);
        uint32_t at[HISTORY_MOST];
        (void)rig_feed(s, &of, 0, 20, 0, 1);
        for (uint32_t length = 1; length <= of.history; length++) {
            uint32_t all = has_marks ? (length + 1) / 2 : length;
            double want = fmax(0.2 * all, 1.0), mean = hide(s, length, WINDOWS, at);
            assert_true(fabs(mean - want) < 0.02);
            double chance = mean / all, error = sqrt(chance * (1.0 - chance) / WINDOWS);
            for (uint32_t p = 0; p < length; p++) {
                double found = (double)at[p] / WINDOWS, expected = has_marks && p % 2 == 1 ? 0.0 : chance;
                if (!(fabs(found - expected) <= 5.0 * error))
                    fail_msg("place %u of %u is hidden %g times, expected %g", p, length, found, expected);
            }
        }
        windows_clear(&s->pending);
        sequential_free(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_plain), cmocka_unit_test(test_gradients),
                                       cmocka_unit_test(test_share)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tape_free();
    return failed;
}

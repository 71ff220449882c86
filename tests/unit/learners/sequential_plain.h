/*
 * A plain sequence model in double, for tests: histories by the rule, windows, older windows, windows with hidden items,
 * losses, the mean over a step's targets, and the steps of adam and adagrad. A step's loss is one expression over numbers,
 * whose derivatives are found by walking it backwards, so that nothing of the models' gradients is written twice. Draws,
 * initial weights and what chance hides or drops are the model's.
 */
#ifndef LEAT_TESTS_UNIT_LEARNERS_SEQUENTIAL_PLAIN_H
#define LEAT_TESTS_UNIT_LEARNERS_SEQUENTIAL_PLAIN_H

#include "sequential_plain_net.h"

/* --- A step --- */

static uint32_t score(const uint32_t *query, uint32_t item)
{
    uint32_t row[RIG_DIM], at = plain.items[item].at;
    for (uint32_t c = 0; c < RIG_DIM; c++)
        row[c] = at + c;
    return dot(query, row, RIG_DIM);
}

/* One target's loss; identity: of its draws. */
static uint32_t target_loss(const uint32_t *query, uint32_t item, uint64_t identity)
{
    const char *name = plain.of->loss;
    bool is_full = strcmp(name, "softmax") == 0, is_softmax = strstr(name, "softmax") != NULL;
    uint32_t first = score(query, item), sum = number(0.0), pairs = number(0.0);
    struct negatives all = {num_mix(plain.model->options.seed ^ 0x7a59), NEGATIVES_UNIFORM, NULL,
                            plain.numbers_count};
    uint32_t count = is_full ? plain.numbers_count : (uint32_t)plain.of->negatives;
    double expected = is_full ? 1.0 : (double)count / plain.numbers_count;
    plain.items[item].takes_part |= strcmp(name, "bce") == 0; /* else only by comparison */
    for (uint32_t k = 0; k < count; k++) {
        uint32_t other = plain.numbers[is_full ? k : negatives_place(&all, identity, k)];
        if (other == item)
            continue;
        take_row(&plain.items[other]);
        take_row(&plain.items[item]);
        uint32_t margin = sum_of(score(query, other), first, -1.0);
        if (is_softmax)
            sum = sum_of(sum, exponential(margin), 1.0 / expected);
        else
            pairs =
                sum_of(pairs, log_1_plus_exp(strcmp(name, "bpr") == 0 ? margin : score(query, other)), 1.0);
    }
    if (is_softmax)
        return function(sum, log1p(value(sum)), 1.0 / (1.0 + value(sum)));
    if (strcmp(name, "bpr") == 0)
        return pairs;
    return sum_of(pairs, log_1_plus_exp(function(first, -value(first), -1.0)), 1.0);
}

static bool is_target(const struct token *t)
{
    return t->teaches && !t->is_unlabelled;
}

/* The older windows of the step, of the users that the model drew; histories do not change in a step. */
static void add_older(void)
{
    const struct histories *all[] = {plain.model->histories};
    struct histories_draw draw;
    uint64_t seed = plain.model->options.seed, key;
    uint32_t wanted = (plain.count + plain.unlabelled_count) * plain.of->rehearse;
    histories_draw_begin(all, 1, &draw);
    for (uint32_t place = 0; place < wanted; place++) {
        assert_true(histories_draw(&draw, seed, plain.steps + 1, place, &key));
        uint32_t user = 0;
        while (num_mix(1 + user) != key)
            user++;
        struct window w = plain.users[user];
        bool has_target = plain.of->masked_share == 0.0;
        w.is_older = true;
        w.identity = num_chance(seed ^ 0x3170, plain.steps, place);
        for (uint32_t p = 1; p < w.length; p++)
            has_target |= is_target(&w.tokens[p]);
        assert_true(plain.count < WINDOWS_MOST && plain.unlabelled_count < WINDOWS_MOST);
        *(has_target ? &plain.windows[plain.count++] : &plain.unlabelled[plain.unlabelled_count++]) = w;
    }
}

/* Of the items of a window that may be hidden the model hides some, at least one and about the share: in the order of the
 * places each of the `left` with chance wanted / left. */
static void add_masked(struct window w)
{
    uint64_t seed = plain.model->options.seed;
    uint64_t left = 0, wanted;
    for (uint32_t p = 0; p < w.length; p++)
        left += w.tokens[p].teaches;
    if (left == 0)
        return;
    w.is_masked = true, w.is_older = false;
    memset(w.contexts, 0, sizeof(w.contexts));
    w.identity = num_chance(seed ^ 0x3a5c, w.identity, 0);
    double chance = (double)(num_chance(seed ^ 0x3a5d, w.identity, 0) >> 11) * 0x1p-53;
    wanted = (uint64_t)(plain.of->masked_share * (double)left + chance);
    wanted = wanted == 0 ? 1 : MIN(wanted, left);
    for (uint32_t p = 0; p < w.length; p++) {
        if (!w.tokens[p].teaches)
            continue;
        w.tokens[p].is_hidden = (num_chance(seed ^ 0x3a5e, w.identity, p) >> 32) * left >> 32 < wanted;
        wanted -= w.tokens[p].is_hidden, left--;
    }
    assert_true(wanted == 0 && plain.count < WINDOWS_MOST);
    plain.windows[plain.count++] = w;
}

/* The windows of the step. */
static void add_windows(void)
{
    add_older();
    for (uint32_t i = 0, count = plain.count; i < count && plain.of->masked_share > 0.0; i++)
        add_masked(plain.windows[i]);
    for (uint32_t i = 0; i < plain.unlabelled_count; i++)
        add_masked(plain.unlabelled[i]);
}

/* Adds the loss of a window's target at a position. */
static void add_target(uint32_t sums[2], const struct window *w, rows_of x, uint32_t p)
{
    uint32_t query[RIG_DIM], item = w->target;
    memcpy(query, x[p], sizeof(query));
    if (w->is_masked)
        item = w->tokens[p].item;
    else if (w->is_older)
        item = w->tokens[p + 1].item;
    else
        add_contexts(query, w);
    uint64_t identity = num_chance(plain.model->options.seed, w->identity, p);
    sums[w->is_masked] = sum_of(sums[w->is_masked], target_loss(query, item, identity), 1.0);
}

/* The step's loss. targets: of the next item, and hidden ones. */
static uint32_t step_loss(uint32_t targets[2])
{
    static rows_of x;
    tape_clear();
    uint32_t sums[2] = {number(0.0), number(0.0)}, loss = number(0.0);
    double weights[2] = {1.0, plain.model->options.masked_weight};
    targets[0] = targets[1] = 0;
    all_weights(begin_weights);
    plain.drops = true;
    for (uint32_t i = 0; i < plain.count; i++) {
        const struct window *w = &plain.windows[i];
        encode(x, w);
        for (uint32_t p = 0; p < w->length; p++) {
            bool is_last = p + 1 == w->length;
            bool is_one = w->is_masked  ? w->tokens[p].is_hidden
                          : w->is_older ? !is_last && is_target(&w->tokens[p + 1])
                                        : is_last;
            if (!is_one)
                continue;
            add_target(sums, w, x, p);
            targets[w->is_masked]++;
        }
    }
    plain.drops = false;
    for (size_t i = 0; i < 2; i++)
        if (targets[i] > 0)
            loss = sum_of(loss, sums[i], weights[i] / targets[i]);
    plain.loss = targets[0] > 0 ? value(sums[0]) / targets[0] : plain.loss;
    plain.masked_loss = targets[1] > 0 ? value(sums[1]) / targets[1] : plain.masked_loss;
    return loss;
}

static void make_step(void)
{
    uint32_t targets[2];
    add_windows();
    uint32_t loss = step_loss(targets);
    assert_true(targets[0] + targets[1] > 0);
    go_back(loss);
    squares = 0.0;
    all_weights(add_squares);
    all_weights(step_weights);
    plain.targets += targets[0], plain.masked += targets[1];
    plain.steps++;
    plain.count = plain.unlabelled_count = 0;
}

/* --- Events --- */

static void find_row(struct weights *row, struct catalogue *catalogue, uint64_t key)
{
    struct items_ref ref;
    if (row->is_there)
        return;
    assert_true(catalogue_find(catalogue, key, &ref));
    weights_init(row, catalogue_rows(catalogue)[ref.number], RIG_DIM, &plain.model->options.rows);
}

static void check_query(const struct window *user, const struct sequential_event *e, const float *query)
{
    static rows_of x;
    struct window w = *user;
    for (uint32_t k = 0; k < plain.of->contexts; k++)
        w.contexts[k] = e->contexts[k].key != 0 && plain.contexts[k][e->contexts[k].integer].is_there
                            ? (uint32_t)e->contexts[k].integer + 1
                            : 0;
    tape_clear();
    all_weights(begin_weights);
    encode(x, &w);
    add_contexts(x[w.length - 1], &w);
    double off = 0.0, all = 0.0;
    for (uint32_t c = 0; c < RIG_DIM; c++) {
        off += pow((double)query[c] - value(x[w.length - 1][c]), 2.0);
        all += pow(value(x[w.length - 1][c]), 2.0);
    }
    if (!(sqrt(off / all) <= 2e-5))
        fail_msg("%s: a query is off by %g of its length after %lu steps", plain.of->name, sqrt(off / all),
                 (unsigned long)plain.steps);
}

static void take_event(const struct sequential_event *e, const struct sequential_seen *seen, bool is_checked)
{
    uint32_t user = 0, item = (uint32_t)e->item.integer;
    while (num_mix(1 + user) != e->user)
        user++;
    struct window *history = &plain.users[user];
    bool is_known = plain.items[item].is_there;
    assert_int_equal(seen->length, history->length);
    assert_int_equal(seen->is_known, is_known);
    if (history->length > 0 && is_checked)
        check_query(history, e, seen->query);
    if (!is_known && !e->teaches)
        return;
    if (!is_known) {
        find_row(&plain.items[item], plain.model->items, e->item.key);
        plain.numbers[plain.numbers_count++] = item;
    }
    struct token token = {.item = item,
                          .seconds = (uint32_t)(e->time_us / US_PER_SECOND),
                          .teaches = e->teaches,
                          .is_unlabelled = e->is_unlabelled};
    struct window window = *history;
    for (uint32_t k = 0; k < plain.of->sides; k++) {
        uint32_t number = (uint32_t)e->sides[k].integer;
        if (e->sides[k].key != 0 && e->teaches)
            find_row(&plain.sides[k][number], plain.model->sides[k], e->sides[k].key);
        token.sides[k] = e->sides[k].key != 0 && plain.sides[k][number].is_there ? number + 1 : 0;
    }
    for (uint32_t k = 0; k < plain.of->contexts && e->teaches; k++) {
        if (e->contexts[k].key == 0)
            continue;
        find_row(&plain.contexts[k][e->contexts[k].integer], plain.model->contexts[k], e->contexts[k].key);
        window.contexts[k] = (uint32_t)e->contexts[k].integer + 1;
    }
    if (e->teaches && window.length > 0) {
        window.target = item, window.identity = e->identity;
        *(e->is_unlabelled ? &plain.unlabelled[plain.unlabelled_count++] : &plain.windows[plain.count++]) =
            window;
    }
    if (history->length == plain.of->history) { /* the older half goes */
        uint32_t kept = plain.of->history / 2;
        memmove(history->tokens, history->tokens + history->length - kept, kept * sizeof(token));
        history->length = kept;
    }
    history->tokens[history->length++] = token;
}

/* --- Comparison --- */

static void compare(const char *what, uint32_t number_of, const float *found, const struct weights *expected)
{
    double off = 0.0, all = 0.0;
    for (size_t i = 0; i < expected->count; i++) {
        off += pow((double)found[i] - expected->w[i], 2.0);
        all += pow(expected->w[i], 2.0);
    }
    if (!(sqrt(off) <= 1e-5 * sqrt(all)))
        fail_msg("%s: %s %u is off by %g of its length after %lu steps", plain.of->name, what, number_of,
                 sqrt(off / all), (unsigned long)plain.steps);
}

static void compare_rows(const char *what, struct catalogue *catalogue, uint64_t space,
                         const struct weights *rows, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct items_ref ref;
        bool is_there = catalogue_find(catalogue, rig_value(space, i).key, &ref);
        assert_int_equal(is_there, rows[i].is_there);
        if (is_there)
            compare(what, i, catalogue_rows(catalogue)[ref.number], &rows[i]);
    }
}

/* Both models, with the same weights; options outlive them. */
static struct sequential *begin_models(const struct rig_case *of, const struct sequential_options *options)
{
    struct sequential *s = sequential_new(options);
    memset(&plain, 0, sizeof(plain));
    if (of->pass_rows > 0)
        s->pass_rows = s->pass_windows = of->pass_rows;
    plain.of = of, plain.model = s;
    assert_true(of->history <= HISTORY_MOST && of->batch * (1 + of->rehearse) <= WINDOWS_MOST / 2);
    assert_true(s->net.params_count <= PARAMS_MOST);
    return s;
}

static void take_weights(struct sequential *s)
{
    for (uint32_t p = 0; p < s->net.params_count; p++)
        weights_init(&plain.params[p], s->net.params[p].w,
                     (size_t)s->net.params[p].n * s->net.params[p].stride + s->net.params[p].n,
                     &s->options.dense);
    if (s->masks.row != NULL)
        weights_init(&plain.mask, s->masks.row, RIG_DIM, &s->options.rows);
}

static void end_models(struct sequential *s)
{
    all_weights(free_weights);
    sequential_free(s);
}

/* Gives both models events until a step of the model is due, which it has then made; the plain one has the windows. Returns
 * the number of the next event. */
static uint64_t give_events(struct sequential *s, uint64_t n)
{
    struct sequential_seen seen;
    for (uint64_t steps = s->steps; s->steps == steps; n++) {
        struct sequential_event e = rig_event(plain.of, n);
        sequential_read(s, &e, 1, &(uint8_t){1}, &seen);
        take_event(&e, &seen, n % 7 == 0);
        sequential_take(s);
    }
    assert_int_equal(plain.count + plain.unlabelled_count, plain.of->batch);
    return n;
}

static inline void check_case(const struct rig_case *of, uint64_t steps)
{
    struct sequential_options options = rig_options(of);
    struct sequential *s = begin_models(of, &options);
    take_weights(s);
    for (uint64_t n = 0; plain.steps < steps;) {
        n = give_events(s, n);
        make_step();
        struct sequential_counts counts = sequential_counts(s);
        assert_true(counts.steps == plain.steps && counts.rejected == 0);
        assert_true(counts.targets == plain.targets + plain.masked && counts.masked == plain.masked);
        if (!(fabs(counts.loss - plain.loss) <= 1e-5 * plain.loss &&
              fabs(counts.masked_loss - plain.masked_loss) <= 1e-5 * plain.masked_loss))
            fail_msg("%s: the loss of step %lu is %.9g, expected %.9g; of hidden items %.9g, expected %.9g",
                     of->name, (unsigned long)plain.steps, counts.loss, plain.loss, counts.masked_loss,
                     plain.masked_loss);
    }
    for (uint32_t p = 0; p < s->net.params_count; p++)
        compare("weights", p, s->net.params[p].w, &plain.params[p]);
    if (s->masks.row != NULL)
        compare("hidden items' row", 0, s->masks.row, &plain.mask);
    compare_rows("item", s->items, 1, plain.items, RIG_ITEMS);
    for (uint32_t k = 0; k < of->sides; k++)
        compare_rows("side", s->sides[k], 10 + k, plain.sides[k], RIG_VALUES);
    for (uint32_t k = 0; k < of->contexts; k++)
        compare_rows("context", s->contexts[k], 20 + k, plain.contexts[k], RIG_VALUES);
    end_models(s);
}

#endif

/*
 * Sequence models against a plain one in double, after 200 steps of random events: histories by the rule, windows,
 * older windows, the networks by their equations, losses, the mean over a step's targets, and the steps of adam and
 * adagrad. A step's loss is one expression over numbers, whose derivatives are found by walking it backwards, so that
 * nothing of the models' gradients is written twice. Draws and initial weights are the model's.
 */
#include "sequential_rig.h"
#include "tape.h"

#include "kernels/attention.h"

#include <math.h>

/* --- What is learned --- */

/* Some weights with the optimizer's state; of a row, whether it takes part in the step. */
struct weights {
    size_t count;
    double *w, *first, *second;
    uint32_t at; /* of the step's numbers */
    bool takes_part, is_there;
};

static void weights_init(struct weights *of, const float *w, size_t count, const struct optimizer_options *o)
{
    *of = (struct weights){.count = count, .is_there = true};
    of->w = mem_calloc(3 * count, sizeof(double));
    of->first = of->w + count, of->second = of->first + count;
    for (size_t i = 0; i < count; i++) {
        of->w[i] = (double)w[i];
        of->first[i] = o->kind == OPT_ADAGRAD ? (double)o->accumulator : 0.0;
    }
}

static void weights_begin(struct weights *of)
{
    of->takes_part = false;
    of->at = (uint32_t)tape.count;
    for (size_t i = 0; i < of->count; i++)
        number(of->w[i]);
}

/* steps: those made before. scale: of the gradient. */
static void weights_step(struct weights *of, const struct optimizer_options *o, uint64_t steps, double scale)
{
    double beta1 = (double)o->params.beta1, beta2 = (double)o->params.beta2, rate = (double)o->params.rate;
    double correct1 = 1.0 - pow(beta1, (double)steps + 1.0), correct2 = 1.0 - pow(beta2, (double)steps + 1.0);
    for (size_t i = 0; i < of->count; i++) {
        double g = tape.numbers[of->at + i].slope * scale;
        if (o->kind == OPT_ADAGRAD) {
            of->first[i] += g * g;
            of->w[i] -= rate * g / sqrt(of->first[i]);
            continue;
        }
        of->first[i] = beta1 * of->first[i] + (1.0 - beta1) * g;
        of->second[i] = beta2 * of->second[i] + (1.0 - beta2) * g * g;
        of->w[i] -=
            rate * of->first[i] / correct1 / (sqrt(of->second[i] / correct2) + (double)o->params.epsilon);
    }
}

/* --- The plain model --- */

enum { HISTORY_MOST = 16, WINDOWS_MOST = 64, VALUES_MOST = 8, PARAMS_MOST = 32 };

struct token {
    uint32_t item, sides[HISTORY_SIDES_MAX]; /* numbers of the stream's values plus 1; 0: absent */
    uint32_t seconds;
    bool teaches;
};
struct window {
    struct token tokens[HISTORY_MOST];
    uint32_t length, target, contexts[SEQUENTIAL_CONTEXTS_MAX];
    uint64_t identity;
    bool is_older;
};
static struct {
    const struct rig_case *of;
    struct sequential *model; /* for draws and initial weights */
    struct window users[RIG_USERS], windows[WINDOWS_MOST];
    uint32_t count;
    uint64_t steps, targets;
    double loss;
    struct weights params[PARAMS_MOST], items[RIG_ITEMS], sides[HISTORY_SIDES_MAX][VALUES_MOST],
        contexts[SEQUENTIAL_CONTEXTS_MAX][VALUES_MOST];
    uint32_t numbers[RIG_ITEMS], numbers_count; /* the items by their dense numbers */
} plain;

static void all_weights(void (*visit)(struct weights *, bool is_row))
{
    for (uint32_t p = 0; p < plain.model->net.params_count; p++)
        visit(&plain.params[p], false);
    for (uint32_t i = 0; i < RIG_ITEMS; i++)
        visit(&plain.items[i], true);
    for (uint32_t k = 0; k < HISTORY_SIDES_MAX; k++)
        for (uint32_t i = 0; i < VALUES_MOST; i++)
            visit(&plain.sides[k][i], true);
    for (uint32_t k = 0; k < SEQUENTIAL_CONTEXTS_MAX; k++)
        for (uint32_t i = 0; i < VALUES_MOST; i++)
            visit(&plain.contexts[k][i], true);
}

static void begin_weights(struct weights *of, bool is_row)
{
    (void)is_row;
    if (of->is_there)
        weights_begin(of);
}

static double squares;
static void add_squares(struct weights *of, bool is_row)
{
    for (size_t i = 0; of->is_there && !is_row && i < of->count; i++)
        squares += pow(tape.numbers[of->at + i].slope, 2.0);
}

static void step_weights(struct weights *of, bool is_row)
{
    const struct sequential_options *o = &plain.model->options;
    double most = (double)o->clip_norm, norm = sqrt(squares);
    double scale = is_row || most == 0.0 || norm <= most ? 1.0 : most / norm;
    if (of->is_there && (!is_row || of->takes_part))
        weights_step(of, is_row ? &o->rows : &o->dense, plain.steps, scale);
}

static void free_weights(struct weights *of, bool is_row)
{
    (void)is_row;
    free(of->w);
    *of = (struct weights){0};
}

static uint32_t take_row(struct weights *row)
{
    assert_true(row->is_there);
    row->takes_part = true;
    return row->at;
}

/* --- The networks, by their equations, over one window --- */

typedef uint32_t rows_of[HISTORY_MOST][4 * RIG_DIM];

static uint32_t param(uint32_t p, size_t i)
{
    return plain.params[p].at + (uint32_t)i;
}

static void norm(uint32_t *out, const uint32_t *x, uint32_t p)
{
    uint32_t mean = number(0.0), variance, centred[RIG_DIM];
    for (size_t i = 0; i < RIG_DIM; i++)
        mean = sum_of(mean, x[i], 1.0 / RIG_DIM);
    for (size_t i = 0; i < RIG_DIM; i++)
        centred[i] = sum_of(x[i], mean, -1.0);
    variance = dot(centred, centred, RIG_DIM);
    double deviation = sqrt(value(variance) / RIG_DIM + 1e-6);
    uint32_t inverse = function(variance, 1.0 / deviation, -0.5 / RIG_DIM / pow(deviation, 3.0));
    for (size_t i = 0; i < RIG_DIM; i++)
        out[i] = sum_of(product(product(centred[i], inverse), param(p, i)), param(p, RIG_DIM + i), 1.0);
}

/* out[n] = x W + b; p has n rows of d weights, then n biases. */
static void dense(uint32_t *out, const uint32_t *x, uint32_t p, bool has_bias)
{
    const struct net_params *shape = &plain.model->net.params[p];
    for (uint32_t j = 0; j < shape->n; j++) {
        uint32_t w[4 * RIG_DIM];
        for (uint32_t i = 0; i < shape->d; i++)
            w[i] = param(p, (size_t)j * shape->stride + i);
        out[j] = dot(w, x, shape->d);
        if (has_bias)
            out[j] = sum_of(out[j], param(p, (size_t)shape->n * shape->stride + j), 1.0);
    }
}

/* mixed[i] = sum over the tokens j up to i of weight(i, j) v_j, in parts of q, k, v. */
static void mix(uint32_t *mixed, rows_of parts, const struct window *w, uint32_t i, bool is_hstu)
{
    uint32_t weights[HISTORY_MOST], values[HISTORY_MOST], sum = number(0.0);
    for (uint32_t j = 0; j <= i; j++) {
        uint32_t s = dot(parts[i], parts[j] + RIG_DIM, RIG_DIM);
        if (is_hstu) {
            uint32_t bucket = attention_time_bucket(w->tokens[i].seconds, w->tokens[j].seconds);
            s = sum_of(s, param(3, i - j), 1.0);
            s = silu(sum_of(s, param(3, plain.of->history + bucket), 1.0));
            weights[j] = function(s, value(s) / plain.of->history, 1.0 / plain.of->history);
        } else {
            double root = sqrt(RIG_DIM);
            weights[j] = exponential(function(s, value(s) / root, 1.0 / root));
            sum = sum_of(sum, weights[j], 1.0);
        }
    }
    uint32_t inverse =
        is_hstu ? number(1.0) : function(sum, 1.0 / value(sum), -1.0 / value(sum) / value(sum));
    for (size_t c = 0; c < RIG_DIM; c++) {
        for (uint32_t j = 0; j <= i; j++)
            values[j] = parts[j][2 * RIG_DIM + c];
        mixed[c] = product(dot(weights, values, i + 1), inverse);
    }
}

/* Parameters: positions; norm, W of q, k, v; norm, both dense layers; a last norm. */
static void sasrec(rows_of x, const struct window *w)
{
    static rows_of parts;
    uint32_t normal[RIG_DIM], hidden[RIG_DIM], branch[RIG_DIM];
    for (uint32_t i = 0; i < w->length; i++) {
        norm(normal, x[i], 1);
        dense(parts[i], normal, 2, false);
    }
    for (uint32_t i = 0; i < w->length; i++) {
        mix(branch, parts, w, i, false);
        for (size_t c = 0; c < RIG_DIM; c++)
            x[i][c] = sum_of(x[i][c], branch[c], 1.0);
        norm(normal, x[i], 3);
        dense(hidden, normal, 4, true);
        for (size_t c = 0; c < RIG_DIM; c++)
            hidden[c] = function(hidden[c], fmax(value(hidden[c]), 0.0), value(hidden[c]) > 0.0);
        dense(branch, hidden, 5, true);
        for (size_t c = 0; c < RIG_DIM; c++)
            branch[c] = sum_of(x[i][c], branch[c], 1.0);
        norm(x[i], branch, 6);
    }
}

/* Parameters: positions; norm, W1 (rows of q, k, v, u), tables, norm, W2. */
static void hstu(rows_of x, const struct window *w)
{
    static rows_of parts;
    uint32_t normal[RIG_DIM], mixed[RIG_DIM], branch[RIG_DIM];
    for (uint32_t i = 0; i < w->length; i++) {
        norm(normal, x[i], 1);
        dense(parts[i], normal, 2, true);
        for (size_t c = 0; c < 4 * (size_t)RIG_DIM; c++)
            parts[i][c] = silu(parts[i][c]);
    }
    for (uint32_t i = 0; i < w->length; i++) {
        mix(mixed, parts, w, i, true);
        norm(normal, mixed, 4);
        for (size_t c = 0; c < RIG_DIM; c++)
            normal[c] = product(normal[c], parts[i][3 * RIG_DIM + c]);
        dense(branch, normal, 5, true);
        for (size_t c = 0; c < RIG_DIM; c++)
            x[i][c] = sum_of(x[i][c], branch[c], 1.0);
    }
}

/* The outputs at a window's tokens. */
static void encode(rows_of x, const struct window *w)
{
    for (uint32_t i = 0; i < w->length; i++) {
        uint32_t item = take_row(&plain.items[w->tokens[i].item]);
        for (uint32_t c = 0; c < RIG_DIM; c++) {
            uint32_t own = function(item + c, 4.0 * value(item + c), 4.0); /* sqrt(16) */
            x[i][c] = sum_of(own, param(0, i * plain.model->net.params[0].stride + c), 1.0);
            for (uint32_t k = 0; k < plain.of->sides; k++)
                if (w->tokens[i].sides[k] > 0)
                    x[i][c] = sum_of(x[i][c], take_row(&plain.sides[k][w->tokens[i].sides[k] - 1]) + c, 1.0);
        }
    }
    (plain.of->is_hstu ? hstu : sasrec)(x, w);
}

/* contexts: only those that are known. */
static void add_contexts(uint32_t *query, const struct window *w)
{
    for (uint32_t k = 0; k < plain.of->contexts; k++)
        for (uint32_t c = 0; w->contexts[k] > 0 && c < RIG_DIM; c++)
            query[c] = sum_of(query[c], take_row(&plain.contexts[k][w->contexts[k] - 1]) + c, 1.0);
}

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

/* The older windows of the step, of the users that the model drew; histories do not change in a step. */
static void add_older(void)
{
    const struct histories *all[] = {plain.model->histories};
    struct histories_draw draw;
    uint64_t seed = plain.model->options.seed, key;
    uint32_t wanted = plain.count * plain.of->rehearse;
    histories_draw_begin(all, 1, &draw);
    for (uint32_t place = 0; place < wanted; place++) {
        struct window *w = &plain.windows[plain.count++];
        assert_true(histories_draw(&draw, seed, plain.steps + 1, place, &key));
        uint32_t user = 0;
        while (num_mix(1 + user) != key)
            user++;
        *w = plain.users[user];
        w->is_older = true;
        w->identity = num_chance(seed ^ 0x3170, plain.steps, place);
    }
}

static void make_step(void)
{
    static rows_of x;
    uint32_t loss = 0, targets = 0;
    add_older();
    tape_clear();
    loss = number(0.0);
    all_weights(begin_weights);
    for (uint32_t i = 0; i < plain.count; i++) {
        const struct window *w = &plain.windows[i];
        encode(x, w);
        for (uint32_t p = 0; p < w->length; p++) {
            bool is_last = p + 1 == w->length;
            if (w->is_older ? is_last || !w->tokens[p + 1].teaches : !is_last)
                continue;
            uint32_t query[RIG_DIM];
            memcpy(query, x[p], sizeof(query));
            if (!w->is_older)
                add_contexts(query, w);
            uint64_t identity = num_chance(plain.model->options.seed, w->identity, p);
            loss = sum_of(loss, target_loss(query, w->is_older ? w->tokens[p + 1].item : w->target, identity),
                          1.0);
            targets++;
        }
    }
    assert_true(targets > 0);
    loss = function(loss, value(loss) / targets, 1.0 / targets);
    go_back(loss);
    squares = 0.0;
    all_weights(add_squares);
    all_weights(step_weights);
    plain.loss = value(loss);
    plain.targets += targets;
    plain.steps++;
    plain.count = 0;
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
    struct token token = {
        .item = item, .seconds = (uint32_t)(e->time_us / US_PER_SECOND), .teaches = e->teaches};
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
        plain.windows[plain.count++] = window;
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

static void check_case(const struct rig_case *of, uint64_t steps)
{
    struct sequential_options options = rig_options(of);
    struct sequential *s = sequential_new(&options);
    struct sequential_seen seen;
    memset(&plain, 0, sizeof(plain));
    if (of->pass_rows > 0)
        s->pass_rows = s->pass_windows = of->pass_rows;
    plain.of = of, plain.model = s;
    assert_true(of->history <= HISTORY_MOST && of->batch * (1 + of->rehearse) <= WINDOWS_MOST);
    assert_true(s->net.params_count <= PARAMS_MOST);
    for (uint32_t p = 0; p < s->net.params_count; p++)
        weights_init(&plain.params[p], s->net.params[p].w,
                     (size_t)s->net.params[p].n * s->net.params[p].stride + s->net.params[p].n,
                     &options.dense);
    for (uint64_t n = 0; plain.steps < steps; n++) {
        struct sequential_event e = rig_event(of, n);
        sequential_read(s, &e, 1, &(uint8_t){1}, &seen);
        take_event(&e, &seen, n % 7 == 0);
        sequential_take(s);
        if (plain.count < of->batch)
            continue;
        make_step();
        struct sequential_counts counts = sequential_counts(s);
        assert_true(counts.steps == plain.steps && counts.targets == plain.targets && counts.rejected == 0);
        if (!(fabs(counts.loss - plain.loss) <= 1e-5 * plain.loss))
            fail_msg("%s: the loss of step %lu is %.9g, expected %.9g", of->name, (unsigned long)plain.steps,
                     counts.loss, plain.loss);
    }
    for (uint32_t p = 0; p < s->net.params_count; p++)
        compare("weights", p, s->net.params[p].w, &plain.params[p]);
    compare_rows("item", s->items, 1, plain.items, RIG_ITEMS);
    for (uint32_t k = 0; k < of->sides; k++)
        compare_rows("side", s->sides[k], 10 + k, plain.sides[k], RIG_VALUES);
    for (uint32_t k = 0; k < of->contexts; k++)
        compare_rows("context", s->contexts[k], 20 + k, plain.contexts[k], RIG_VALUES);
    all_weights(free_weights);
    sequential_free(s);
}

static void test_sasrec(void **state)
{
    (void)state;
    check_case(&(struct rig_case){.name = "sasrec, sampled_softmax, adam",
                                  .loss = "sampled_softmax",
                                  .has_marks = true,
                                  .rows = OPT_ADAM,
                                  .dense = OPT_ADAM,
                                  .history = 9,
                                  .sides = 1,
                                  .contexts = 1,
                                  .batch = 5,
                                  .rehearse = 2,
                                  .pass_rows = 20,
                                  .negatives = 8},
               200);
    check_case(&(struct rig_case){.name = "sasrec, softmax, adagrad",
                                  .loss = "softmax",
                                  .rows = OPT_ADAGRAD,
                                  .dense = OPT_ADAGRAD,
                                  .history = 8,
                                  .contexts = 2,
                                  .batch = 7,
                                  .clip_norm = 0.05F},
               200);
}

/* Steps of one event; many draw nothing but the item itself, which is then not taught. */
static void test_small_steps(void **state)
{
    (void)state;
    check_case(&(struct rig_case){.name = "sasrec, bpr, one event a step",
                                  .loss = "bpr",
                                  .rows = OPT_ADAM,
                                  .dense = OPT_ADAGRAD,
                                  .history = 1,
                                  .sides = 2,
                                  .contexts = 3,
                                  .batch = 1,
                                  .rehearse = 2,
                                  .negatives = 1},
               200);
}

static void test_hstu(void **state)
{
    (void)state;
    check_case(&(struct rig_case){.name = "hstu, bce, adam",
                                  .loss = "bce",
                                  .is_hstu = true,
                                  .rows = OPT_ADAGRAD,
                                  .dense = OPT_ADAM,
                                  .history = 10,
                                  .sides = 2,
                                  .batch = 6,
                                  .negatives = 2},
               200);
    check_case(&(struct rig_case){.name = "hstu, bpr, adagrad",
                                  .loss = "bpr",
                                  .is_hstu = true,
                                  .has_marks = true,
                                  .rows = OPT_ADAM,
                                  .dense = OPT_ADAGRAD,
                                  .history = 7,
                                  .sides = 1,
                                  .contexts = 1,
                                  .batch = 4,
                                  .rehearse = 3,
                                  .negatives = 3},
               200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sasrec), cmocka_unit_test(test_small_steps),
                                       cmocka_unit_test(test_hstu)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tape_free();
    return failed;
}

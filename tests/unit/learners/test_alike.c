/* item2vec (learners/towers/alike.c) against a plain model in double: windows, pairs, gradients, queries, and the rows of
 * the index; equal bits whoever helps and however events are cut into calls; requests; items that go. */
#include "tests/unit/learners/towers_rig.h"

#include "team_helper.h"

#include <pthread.h>
#include <stdio.h>

enum {
    PAIRS = 7,
    HISTORY = 5,
    NEGATIVES = 3,
    USERS = 4,
    VECTORS = RIG_ITEMS + 1,
    PARAMS = 2 * VECTORS * RIG_DIM
};

static struct towers_options options_of(float rate)
{
    const struct rig_case of = {.loss = "bce", .negatives = NEGATIVES, .temperature = 1.0};
    struct towers_options o = rig_options(&of, rate);
    o.query_fields = 1, o.features = 0, o.refresh = 0;
    o.batch = PAIRS, o.history = HISTORY;
    return o;
}

static struct towers_event event_of(uint64_t user, uint64_t item, uint64_t number)
{
    return (struct towers_event){.item = {.key = item, .integer = (int64_t)item},
                                 .user = user,
                                 .time_us = (int64_t)number * US_PER_SECOND,
                                 .identity = num_mix(number + 77),
                                 .teaches = true};
}

/* Small keys are frequent. */
static struct towers_event draw_event(struct test_random *random, uint64_t number)
{
    uint32_t below = 1 + random_below(random, RIG_ITEMS);
    return event_of(1 + random_below(random, USERS), 1 + random_below(random, below), number);
}

static struct towers_seen take(struct towers *t, const struct towers_event *e)
{
    const uint8_t wants = 1;
    struct towers_seen seen;
    assert_int_equal(towers_piece(t, e, 1), 1);
    towers_read(t, e, 1, &wants, &seen);
    return seen;
}

/* --- The plain model --- */

struct plain_pair {
    uint64_t center, other, identity;
};

struct plain {
    struct towers *t;
    double params[PARAMS]; /* own vectors by key, then vectors as neighbours */
    bool is_made[VECTORS], is_known[VECTORS];
    struct {
        uint64_t items[HISTORY];
        uint32_t length;
    } users[USERS + 1];
    struct plain_pair pairs[PAIRS];
    uint64_t drawn[PAIRS][NEGATIVES];
    uint32_t count;
    struct popularity popular; /* its distribution has a test of its own */
    uint64_t occurrences, steps;
    double rate, loss, largest;
};

static double *vector_of(double *params, bool is_neighbour, uint64_t key)
{
    return params + (is_neighbour * VECTORS + key) * RIG_DIM;
}

static double dot_of(const double *a, const double *b)
{
    double sum = 0.0;
    for (uint32_t c = 0; c < RIG_DIM; c++)
        sum += a[c] * b[c];
    return sum;
}

static double loss_of(struct plain *p)
{
    double loss = 0.0;
    for (uint32_t i = 0; i < PAIRS; i++) {
        const double *query = vector_of(p->params, false, p->pairs[i].center);
        loss += log1p(exp(-dot_of(query, vector_of(p->params, true, p->pairs[i].other))));
        for (uint32_t k = 0; k < NEGATIVES; k++)
            if (p->drawn[i][k] != p->pairs[i].other)
                loss += log1p(exp(dot_of(query, vector_of(p->params, true, p->drawn[i][k]))));
    }
    return loss / PAIRS;
}

/* What the pairs are compared with, by the model's seed. */
static void draw_others(struct plain *p)
{
    struct targets_options targets = towers_targets(&p->t->options);
    for (uint32_t i = 0; i < PAIRS; i++) {
        uint32_t numbers[NEGATIVES];
        struct items_value value;
        popularity_draws(&p->popular, targets.seed, p->pairs[i].identity, NEGATIVES, numbers);
        for (uint32_t k = 0; k < NEGATIVES; k++) {
            assert_true(items_numbers_value_now(catalogue_numbers(p->t->items), numbers[k], &value));
            p->drawn[i][k] = value.key;
        }
    }
}

static void plain_step(struct plain *p)
{
    const double h = 1e-5;
    double gradients[PARAMS];
    draw_others(p);
    p->loss = loss_of(p);
    for (uint32_t i = 0; i < PARAMS; i++) {
        double before = p->params[i];
        p->params[i] = before + h;
        gradients[i] = loss_of(p);
        p->params[i] = before - h;
        gradients[i] = (gradients[i] - loss_of(p)) / (2.0 * h);
        p->params[i] = before;
        p->largest = fmax(p->largest, fabs(gradients[i]));
    }
    for (uint32_t i = 0; i < PARAMS; i++)
        p->params[i] -= p->rate * gradients[i];
    for (uint32_t i = 0; i < PAIRS; i++)
        p->is_made[p->pairs[i].center] = true;
    p->count = 0;
    p->steps++;
}

static void plain_pair(struct plain *p, const struct towers_event *e, uint64_t center, uint64_t other,
                       uint32_t place)
{
    p->pairs[p->count++] =
        (struct plain_pair){center, other, num_chance(p->t->options.seed ^ 0x9a17, e->identity, place)};
    if (p->count == PAIRS)
        plain_step(p);
}

/* An event: its pairs, with what is in the window; then the window, of which the older half goes when it is full. */
static void plain_take(struct plain *p, const struct towers_event *e)
{
    struct items_ref ref;
    assert_true(catalogue_find(p->t->items, e->item.key, &ref));
    if (e->teaches) {
        uint32_t live;
        (void)catalogue_live(p->t->items, &live);
        popularity_add(&p->popular, ref.number, p->occurrences++, live);
    }
    uint64_t *items = p->users[e->user].items;
    uint32_t *length = &p->users[e->user].length, drop = HISTORY - HISTORY / 2;
    for (uint32_t k = 0; k < *length && e->teaches; k++)
        if (items[k] != e->item.key) {
            plain_pair(p, e, e->item.key, items[k], 2 * k);
            plain_pair(p, e, items[k], e->item.key, 2 * k + 1);
        }
    if (*length == HISTORY) {
        memmove(items, items + drop, (HISTORY - drop) * sizeof(*items));
        *length -= drop;
    }
    items[(*length)++] = e->item.key;
}

static struct plain *plain_new(float rate)
{
    struct plain *p = mem_calloc(1, sizeof(*p));
    struct towers_options options = options_of(rate);
    p->t = towers_new(&options);
    p->rate = (double)rate;
    popularity_init(&p->popular);
    for (uint64_t key = 1; key < VECTORS; key++) {
        float row[RIG_DIM];
        rig_initial(&p->t->query, key, row);
        for (uint32_t c = 0; c < RIG_DIM; c++)
            vector_of(p->params, false, key)[c] = (double)row[c];
    }
    return p;
}

static void plain_free(struct plain *p)
{
    towers_free(p->t);
    popularity_free(&p->popular);
    free(p);
}

/* A new item's vector as a neighbour begins as the model says. */
static void plain_meet(struct plain *p, uint64_t key)
{
    struct items_ref ref;
    assert_true(catalogue_find(p->t->items, key, &ref));
    for (uint32_t c = 0; c < RIG_DIM && !p->is_known[key]; c++)
        vector_of(p->params, true, key)[c] = (double)catalogue_rows(p->t->items)[ref.number][c];
    p->is_known[key] = true;
}

static double larger(double worst, double other)
{
    return other <= worst ? worst : other;
}

/* How far the model is from the plain one: its vectors, and the index, which has own vectors of length 1. */
static double difference(struct plain *p)
{
    double worst = 0.0;
    for (uint64_t key = 1; key < VECTORS; key++) {
        struct items_ref ref;
        struct table_row *own = table_find(&p->t->query.tables[0], key);
        assert_int_equal(own != NULL, p->is_made[key]);
        if (!p->is_known[key])
            continue;
        assert_true(catalogue_find(p->t->items, key, &ref));
        const float *other = catalogue_rows(p->t->items)[ref.number];
        const float *index = items_index_row(catalogue_index(p->t->items), ref.number);
        assert_int_equal(index != NULL, p->is_made[key]);
        double *plain = vector_of(p->params, false, key), length = sqrt(dot_of(plain, plain));
        for (uint32_t c = 0; c < RIG_DIM; c++) {
            worst = larger(worst, fabs((double)other[c] - vector_of(p->params, true, key)[c]));
            if (own != NULL)
                worst = larger(worst, fabs((double)table_payload(own)[c] - plain[c]));
            if (own != NULL)
                worst = larger(worst, fabs((double)index[c] - plain[c] / length));
        }
    }
    return worst;
}

/* The query of a user is the mean of the window's own vectors, with length 1. */
static double query_difference(struct plain *p, uint64_t user, const float *query)
{
    double mean[RIG_DIM] = {0}, worst = 0.0;
    bool has_any = false;
    for (uint32_t k = 0; k < p->users[user].length; k++) {
        uint64_t key = p->users[user].items[k];
        has_any |= p->is_made[key];
        for (uint32_t c = 0; c < RIG_DIM && p->is_made[key]; c++)
            mean[c] += vector_of(p->params, false, key)[c];
    }
    assert_int_equal(query != NULL, has_any);
    for (uint32_t c = 0; c < RIG_DIM && has_any; c++)
        worst = larger(worst, fabs((double)query[c] - mean[c] / sqrt(dot_of(mean, mean))));
    return worst;
}

static void test_gradients(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed < 6; seed++) {
        struct plain *p = plain_new(1.0F);
        struct test_random random = {seed};
        for (uint64_t number = 1; p->steps == 0; number++) {
            struct towers_event e = draw_event(&random, number);
            (void)take(p->t, &e);
            plain_meet(p, e.item.key);
            towers_take(p->t);
            plain_take(p, &e);
        }
        assert_int_equal(p->t->steps, 1);
        double worst = difference(p);
        printf("# gradients: largest %.3g, difference %.3g\n", p->largest, worst);
        assert_true(worst <= 1e-4 && p->largest > 0.02);
        assert_true(fabs(p->t->loss - p->loss) < 1e-6);
        plain_free(p);
    }
}

static void test_steps(void **state)
{
    (void)state;
    struct plain *p = plain_new(0.05F);
    struct test_random random = {4};
    double worst = 0.0, queries = 0.0;
    uint64_t without = 0, number = 1;
    for (; p->steps < 200; number++) {
        struct towers_event e = draw_event(&random, number);
        e.teaches = !random_chance(&random, 10) || !p->is_known[e.item.key];
        struct towers_seen seen = take(p->t, &e);
        assert_int_equal(seen.is_known, p->is_known[e.item.key]);
        assert_int_equal(seen.window_count, p->users[e.user].length);
        without += p->users[e.user].length == 0;
        plain_meet(p, e.item.key);
        queries = larger(queries, query_difference(p, e.user, seen.query));
        towers_take(p->t);
        plain_take(p, &e);
        assert_int_equal(p->t->steps, p->steps);
        assert_int_equal(p->t->waiting_count, p->count);
        worst = larger(worst, difference(p));
    }
    printf("# 200 steps, %d events: difference %.3g, of queries %.3g\n", (int)number, worst, queries);
    assert_true(worst <= 1e-5 && queries <= 1e-5 && p->largest > 0.02);
    assert_int_equal(p->t->without_history, without);
    assert_true(without >= USERS && p->t->targets_rejected == 0 && p->t->query.rows_refused == 0);
    plain_free(p);
}

/* --- Equal bits --- */

/* Queries of all events and the index, as a hash. cuts: the seed of the calls' sizes; 0: one event a call. */
static uint64_t run(uint64_t cuts, double subsample, struct team *team)
{
    enum { EVENTS = 600 };
    static struct towers_event call[EVENTS];
    static struct towers_seen seen[EVENTS];
    static uint8_t wants[EVENTS];
    struct towers_options options = options_of(0.05F);
    options.batch = 64, options.subsample = subsample;
    struct towers *t = towers_new(&options);
    struct test_random random = {5}, sizes = {cuts};
    uint64_t hash = 1;
    towers_set_team(t, team);
    for (uint32_t i = 0; i < EVENTS; i++) {
        call[i] = draw_event(&random, i);
        call[i].teaches = !random_chance(&random, 20);
        wants[i] = 1;
    }
    for (uint32_t at = 0, n; at < EVENTS; at += n) {
        n = cuts == 0 ? 1 : 1 + random_below(&sizes, 40);
        n = towers_piece(t, call + at, MIN(n, EVENTS - at));
        towers_read(t, call + at, n, wants, seen);
        for (uint32_t i = 0; i < n; i++) {
            hash = num_mix(hash * 31 + seen[i].window_count);
            hash = seen[i].query != NULL ? add_floats(hash, seen[i].query, RIG_DIM) : hash;
        }
        towers_take(t);
    }
    assert_true(t->steps > 10);
    for (uint32_t number = 0; number < catalogue_used(t->items); number++) {
        const float *row = items_index_row(catalogue_index(t->items), number);
        hash = row != NULL ? add_floats(hash, row, RIG_DIM) : hash;
    }
    towers_free(t);
    return hash;
}

static void test_cuts(void **state)
{
    (void)state;
    uint64_t expected = run(0, 0.05, NULL);
    for (uint64_t cuts = 1; cuts < 5; cuts++)
        assert_int_equal(run(cuts, 0.05, NULL), expected);
    assert_int_not_equal(run(0, 0.0, NULL), expected);
}

static void test_team(void **state)
{
    (void)state;
    struct helper h = {.team = {.wake = wait_for_help}};
    pthread_t thread;
    h.team.engine = &h;
    uint64_t expected = run(3, 0.0, NULL);
    assert_int_equal(pthread_create(&thread, NULL, help, &h), 0);
    assert_int_equal(run(3, 0.0, &h.team), expected);
    atomic_store(&h.is_over, true);
    pthread_join(thread, NULL);
    assert_true(atomic_load(&h.pieces) > 0);
}

/* --- Frequent items, requests, items that go --- */

/* Ten items come in turn, so each has a tenth of all occurrences, once that is known, and counts with probability
 * sqrt(0.002 / 0.1); a pair needs both. */
static void test_subsample(void **state)
{
    (void)state;
    enum { EVENTS = 22000, KNOWN = 2000 };
    struct towers_options options = options_of(0.01F);
    options.history = 1, options.subsample = 0.002;
    struct towers *t = towers_new(&options);
    uint64_t before = 0;
    for (uint64_t number = 0; number < EVENTS; number++) {
        struct towers_event e = event_of(1, 1 + number % 10, number);
        if (number == KNOWN)
            before = t->targets_learned + t->waiting_count;
        (void)take(t, &e);
        towers_take(t);
    }
    double pairs = (double)(t->targets_learned + t->waiting_count - before);
    double expected = 2.0 * (EVENTS - KNOWN) * 0.002 / 0.1;
    printf("# pairs %g, expected %g\n", pairs, expected);
    assert_true(fabs(pairs - expected) < 5.0 * 2.0 * sqrt(expected / 2.0));
    towers_free(t);
}

/* An item that few events had has a vector, and is not in the index. */
static void test_occurrences(void **state)
{
    (void)state;
    struct towers_options options = options_of(0.05F);
    options.occurrences_min = 4;
    struct towers *t = towers_new(&options);
    for (uint64_t number = 1; number <= 60; number++) {
        bool is_rare = number % 10 == 0 && number <= 30, is_fourth = number == 41;
        struct towers_event e = event_of(1, is_rare || is_fourth ? 3 : 1 + number % 2, number);
        struct items_ref ref;
        (void)take(t, &e);
        towers_take(t);
        if (number == 40 || number == 60) {
            assert_true(catalogue_find(t->items, 3, &ref) && table_find(&t->query.tables[0], 3) != NULL);
            assert_int_equal(items_index_row(catalogue_index(t->items), ref.number) != NULL, number == 60);
            assert_int_equal(items_index_live(catalogue_index(t->items)), number == 60 ? 3 : 2);
        }
    }
    towers_free(t);
}

static struct towers_seen ask(struct towers *t, uint64_t user, uint64_t asked)
{
    const uint8_t wants = 1;
    struct towers_seen seen;
    struct towers_event request = {.user = user, .asked = asked, .time_us = US_PER_SECOND};
    towers_ask(t, &request, 1, &wants, &seen);
    return seen;
}

static void test_requests(void **state)
{
    (void)state;
    struct towers_options options = options_of(0.05F);
    struct towers *t = towers_new(&options);
    struct test_random random = {6};
    struct items_ref ref;
    for (uint64_t number = 1; number < 100; number++) {
        struct towers_event e = draw_event(&random, number);
        (void)take(t, &e);
        towers_take(t);
    }
    struct histories_counts before = histories_count(t->histories);
    assert_true(catalogue_find(t->items, 2, &ref));
    struct towers_seen seen = ask(t, 0, 2);
    assert_true(seen.is_asked && seen.asked == ref.number && seen.window_count == 0);
    assert_memory_equal(seen.query, items_index_row(catalogue_index(t->items), ref.number),
                        RIG_DIM * sizeof(float));
    assert_null(ask(t, 1, 999).query);       /* an item that nobody knows, not the user's items instead */
    assert_null(ask(t, USERS + 1, 0).query); /* a user whom nobody knows */
    assert_null(ask(t, 0, 0).query);
    struct towers_event e = event_of(1, 3, 100);
    float query[RIG_DIM];
    memcpy(query, ask(t, 1, 0).query, sizeof(query));
    seen = take(t, &e); /* answered as the event that comes next */
    assert_memory_equal(seen.query, query, sizeof(query));
    struct histories_counts after = histories_count(t->histories);
    assert_int_equal(after.entries, before.entries + (before.entries < after.entries ? 1 : 0));
    assert_int_equal(t->without_history, USERS);
    towers_free(t);
}

/* An item that goes leaves windows, pairs that wait, draws, vectors and the index; as a new one it begins anew. */
static void test_removed(void **state)
{
    (void)state;
    struct towers_options options = options_of(0.05F);
    struct towers *t = towers_new(&options);
    struct test_random random = {7};
    struct items_ref gone, ref;
    uint64_t number = 1;
    for (; number < 200; number++) {
        struct towers_event e = draw_event(&random, number);
        (void)take(t, &e);
        towers_take(t);
    }
    struct towers_event mine = event_of(1, 1, number++);
    for (uint32_t k = 0; k < 2; k++, mine = event_of(1, 2, number++)) {
        (void)take(t, &mine);
        towers_take(t);
    }
    mine = event_of(USERS + 1, 1, number++);
    (void)take(t, &mine);
    towers_take(t);
    assert_int_equal(ask(t, USERS + 1, 0).window_count, 1);
    assert_true(catalogue_find(t->items, 1, &gone) && popularity_share(&t->popular, gone.number) > 0.0);
    assert_non_null(table_find(&t->query.tables[0], 1));
    uint32_t window = ask(t, 1, 0).window_count;
    assert_true(towers_remove(t, 1));
    assert_true(ask(t, 1, 0).window_count < window);
    assert_null(ask(t, 1, 1).query);
    assert_true(popularity_share(&t->popular, gone.number) == 0.0);
    assert_null(table_find(&t->query.tables[0], 1));
    uint64_t steps = t->steps;
    while (t->steps < steps + 3) { /* also with the pairs that waited */
        struct towers_event e = draw_event(&random, number++);
        e.item.key += e.item.key == 1;
        (void)take(t, &e);
        towers_take(t);
    }
    assert_null(table_find(&t->query.tables[0], 1));
    assert_null(items_index_row(catalogue_index(t->items), gone.number));
    struct towers_event again = event_of(1, 1, number);
    assert_false(take(t, &again).is_known);
    towers_take(t);
    assert_true(catalogue_find(t->items, 1, &ref) && ref.number == gone.number &&
                ref.generation > gone.generation);
    assert_int_equal(ask(t, USERS + 1, 0).window_count, 0); /* the number is another item's now */
    towers_free(t);
}

/* Users and items that have not occurred for `expire_after` are forgotten, and vectors with their items. */
static void test_expiry(void **state)
{
    (void)state;
    struct towers_options options = options_of(0.05F);
    options.expire_after_us = 1000 * US_PER_SECOND;
    struct towers *t = towers_new(&options);
    struct test_random random = {8};
    for (uint64_t number = 1; number < 300; number++) {
        struct towers_event e = draw_event(&random, number);
        (void)take(t, &e);
        towers_take(t);
        towers_set_watermark(t, e.time_us);
    }
    assert_true(histories_count(t->histories).users == USERS && t->query.tables[0].stats.rows > 5);
    towers_set_watermark(t, 5000 * US_PER_SECOND);
    assert_true(histories_count(t->histories).users == 0 && t->query.tables[0].stats.rows == 0);
    assert_true(items_index_live(catalogue_index(t->items)) == 0 && t->popular.total == 0);
    for (uint64_t number = 5001; number < 5100; number++) {
        struct towers_event e = draw_event(&random, number);
        (void)take(t, &e);
        towers_take(t);
    }
    assert_true(items_index_live(catalogue_index(t->items)) > 5);
    towers_free(t);
}

/* What is saved besides tables comes back; bytes that are cut off are refused. */
static void test_saved(void **state)
{
    (void)state;
    struct towers_options options = options_of(0.05F);
    struct towers *t = towers_new(&options), *other = towers_new(&options);
    struct test_random random = {9};
    struct byte_buffer bytes = {0};
    for (uint64_t number = 1; number < 100; number++) {
        struct towers_event e = draw_event(&random, number);
        (void)take(t, &e);
        towers_take(t);
    }
    towers_alike_save(t, &bytes);
    assert_non_null(towers_alike_load(other, bytes.data, 8));
    assert_non_null(towers_alike_load(other, bytes.data, bytes.length - 1));
    assert_int_equal(other->popular.total, 0);
    assert_null(towers_alike_load(other, bytes.data, bytes.length));
    assert_true(other->occurrences == 99 && other->without_history == t->without_history);
    assert_true(other->popular.total == t->popular.total && t->popular.total > 0);
    assert_null(towers_alike_check(other)); /* none of these items is there: none is drawn */
    assert_int_equal(other->popular.total, 0);
    buffer_free(&bytes);
    towers_free(t);
    towers_free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),   cmocka_unit_test(test_steps),     cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_team),        cmocka_unit_test(test_subsample), cmocka_unit_test(test_requests),
        cmocka_unit_test(test_occurrences), cmocka_unit_test(test_removed),   cmocka_unit_test(test_expiry),
        cmocka_unit_test(test_saved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * attention_* of attention.h over jagged batches, in every variant: against a plain double model, its
 * gradients against the model's central differences, and the promises about bits: variants, last rows alone as
 * queries, windows without their last rows.
 */
#include "kernels/attention.h"
#include "kernels/attention_pages.h"
#include "kernels/dropout.h"
#include "kernels/kernels.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { EVENTS = 9, HEADS = 2, ROWS_MAX = 900, GAP = 8, POSITIONS = 20, LENGTH_MAX = 300, EACH = 13 };
enum { WIDTH_MAX = 3 * HEADS * ATTENTION_DIM_MAX + GAP, TABLE = 2 * POSITIONS + 1 };
static const float sentinel = 12345.0F;
#define PLAIN_CODE __attribute__((no_sanitize("address", "undefined"))) /* the model's loops are not tested */

struct shape {
    bool is_silu, is_causal, has_bias;
    float dropout;
    uint32_t d;
};

/* A batch, and what a variant made of it. q, k and v are columns of one matrix, and so are their gradients. */
struct trial {
    struct shape shape;
    struct attention a;
    struct attention_bias bias;
    uint32_t offsets[EVENTS + 1];
    uint64_t identities[EVENTS];
    size_t width, rows;
    float qkv[ROWS_MAX * WIDTH_MAX], dqkv[ROWS_MAX * WIDTH_MAX];
    float dout[ROWS_MAX * HEADS * ATTENTION_DIM_MAX], out[ROWS_MAX * HEADS * ATTENTION_DIM_MAX];
    float lse[ROWS_MAX * HEADS];
    float positions[HEADS][TABLE], dpositions[HEADS][TABLE];
    float times[ATTENTION_TIME_BUCKETS], dtimes[ATTENTION_TIME_BUCKETS];
    uint32_t query_seconds[ROWS_MAX], key_seconds[ROWS_MAX];
};

static struct trial first, second; /* too large for the stack */
static uint64_t random_state;

static uint64_t next_random(void)
{
    random_state += 0x9e3779b97f4a7c15U;
    return num_mix(random_state);
}

static float uniform(float bound)
{
    return ((float)(next_random() >> 40) * 0x1p-23F - 1.0F) * bound;
}

static void fill(float *x, size_t n, float bound)
{
    for (size_t i = 0; i < n; i++)
        x[i] = uniform(bound);
}

/* Sets t->a from the rest of t; call again after a copy. */
static void point(struct trial *t)
{
    size_t part = (size_t)HEADS * t->shape.d;
    t->bias = (struct attention_bias){.positions = t->positions[0] + POSITIONS,
                                      .times = t->times,
                                      .positions_max = POSITIONS,
                                      .positions_stride = TABLE,
                                      .query_seconds = t->query_seconds,
                                      .key_seconds = t->key_seconds,
                                      .dpositions = t->dpositions[0] + POSITIONS,
                                      .dtimes = t->dtimes};
    t->a = (struct attention){.offsets = t->offsets,
                              .events = EVENTS,
                              .heads = HEADS,
                              .d = t->shape.d,
                              .is_causal = t->shape.is_causal,
                              .scale = 1.0F / sqrtf((float)t->shape.d),
                              .q = {t->qkv, t->width},
                              .k = {t->qkv + part, t->width},
                              .v = {t->qkv + 2 * part, t->width},
                              .out = {t->out, part},
                              .lse = t->lse,
                              .weight_scale = 0.02F,
                              .bias = t->shape.has_bias ? &t->bias : NULL,
                              .dropout = t->shape.dropout,
                              .seed = 77,
                              .part = 5,
                              .identities = t->identities,
                              .dout = {t->dout, part},
                              .dq = {t->dqkv, t->width},
                              .dk = {t->dqkv + part, t->width},
                              .dv = {t->dqkv + 2 * part, t->width}};
}

static void make(struct trial *t, struct shape shape, const uint32_t lengths[EVENTS], uint64_t seed)
{
    random_state = seed;
    t->shape = shape;
    t->width = 3 * (size_t)HEADS * shape.d + GAP;
    t->offsets[0] = 0;
    for (size_t e = 0; e < EVENTS; e++) {
        t->offsets[e + 1] = t->offsets[e] + lengths[e];
        t->identities[e] = next_random();
    }
    t->rows = t->offsets[EVENTS];
    assert_true(t->rows <= ROWS_MAX);
    fill(t->qkv, t->rows * t->width, 2.0F);
    fill(t->dout, t->rows * HEADS * shape.d, 1.0F);
    fill(t->positions[0], (size_t)HEADS * TABLE, 0.5F);
    fill(t->times, ATTENTION_TIME_BUCKETS, 0.5F);
    for (size_t r = 0; r < t->rows; r++) {
        t->key_seconds[r] = (uint32_t)(next_random() >> (32 + next_random() % 32));
        t->query_seconds[r] = t->key_seconds[r] + (uint32_t)(next_random() % 100);
    }
    point(t);
}

static void clear(struct trial *t)
{
    for (size_t i = 0; i < t->rows * t->width; i++)
        t->dqkv[i] = sentinel;
    memset(t->dpositions, 0, sizeof(t->dpositions));
    memset(t->dtimes, 0, sizeof(t->dtimes));
    memset(t->lse, 0, sizeof(t->lse));
    memset(t->out, 0, sizeof(t->out));
}

static void *scratch_of(size_t d)
{
    size_t bytes = attention_scratch_bytes(d);
    assert_true(bytes <= (size_t)1 << 20);
    void *scratch = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(scratch);
    memset(scratch, 0xff, bytes); /* NaNs: what is not written first shows */
    return scratch;
}

static void forward(const struct kernels *k, struct trial *t)
{
    t->a.scratch = scratch_of(t->shape.d);
    (t->shape.is_silu ? k->attention_silu_forward : k->attention_softmax_forward)(&t->a);
    free(t->a.scratch);
}

static void run(const struct kernels *k, struct trial *t)
{
    clear(t);
    forward(k, t);
    t->a.scratch = scratch_of(t->shape.d);
    (t->shape.is_silu ? k->attention_silu_backward : k->attention_softmax_backward)(&t->a);
    free(t->a.scratch);
}

/* --- The plain model, in double --- */

/* One head of one window: x[3][n][d] are q, k and v; tables as doubles. */
struct model {
    const struct trial *t;
    size_t event, head, n, d;
    double x[3][LENGTH_MAX * ATTENTION_DIM_MAX];
    double positions[TABLE], times[ATTENTION_TIME_BUCKETS];
    double out[LENGTH_MAX * ATTENTION_DIM_MAX];
};

static struct model model;

static void model_take(const struct trial *t, size_t event, size_t head)
{
    size_t d = t->shape.d;
    model.t = t, model.event = event, model.head = head, model.d = d;
    model.n = t->offsets[event + 1] - t->offsets[event];
    assert_true(model.n <= LENGTH_MAX);
    for (size_t m = 0; m < 3; m++) {
        for (size_t i = 0; i < model.n * d; i++) {
            size_t row = t->offsets[event] + i / d;
            model.x[m][i] = (double)t->qkv[row * t->width + (m * HEADS + head) * d + i % d];
        }
    }
    for (size_t i = 0; i < TABLE; i++)
        model.positions[i] = (double)t->positions[head][i];
    for (size_t i = 0; i < ATTENTION_TIME_BUCKETS; i++)
        model.times[i] = (double)t->times[i];
}

PLAIN_CODE static double model_score(size_t i, size_t j)
{
    const struct trial *t = model.t;
    double s = 0.0;
    for (size_t c = 0; c < model.d; c++)
        s += model.x[0][i * model.d + c] * model.x[1][j * model.d + c];
    s *= (double)t->a.scale;
    if (!t->shape.has_bias)
        return s;
    long distance = (long)i - (long)j, most = POSITIONS;
    distance = distance > most ? most : distance < -most ? -most : distance;
    uint32_t query = t->query_seconds[t->offsets[model.event] + i];
    uint32_t key = t->key_seconds[t->offsets[model.event] + j];
    return s + model.positions[distance + most] + model.times[attention_time_bucket(query, key)];
}

/* Fills the rows begin..end of out, and returns the sum of dout * out over them. */
PLAIN_CODE static double model_rows(size_t begin, size_t end)
{
    const struct trial *t = model.t;
    uint64_t key = num_chance(t->a.seed, t->identities[model.event], t->a.part + model.head);
    double loss = 0.0, kept = 1.0 / (1.0 - (double)t->shape.dropout);
    memset(model.out + begin * model.d, 0, (end - begin) * model.d * sizeof(double));
    for (size_t i = begin; i < end; i++) {
        size_t seen = t->shape.is_causal ? i + 1 : model.n;
        double w[LENGTH_MAX], sum = 0.0, *out = model.out + i * model.d;
        for (size_t j = 0; j < seen; j++) {
            double s = model_score(i, j);
            w[j] = t->shape.is_silu ? s / (1.0 + exp(-s)) * (double)t->a.weight_scale : exp(s);
            sum += w[j];
        }
        for (size_t j = 0; j < seen; j++) {
            double p = t->shape.is_silu ? w[j] : w[j] / sum;
            bool is_kept =
                dropout_bits(dropout_row(key, i), dropout_column(key, j)) >= dropout_limit(t->shape.dropout);
            for (size_t c = 0; c < model.d && is_kept; c++)
                out[c] += p * kept * model.x[2][j * model.d + c];
        }
        const float *dout = t->dout + (t->offsets[model.event] + i) * HEADS * model.d + model.head * model.d;
        for (size_t c = 0; c < model.d; c++)
            loss += out[c] * (double)dout[c];
    }
    return loss;
}

/* The central difference of the loss by *x, on which no rows but begin..end of the output depend. */
static double slope_of(double *x, size_t begin, size_t end)
{
    double old = *x, h = 1e-4, above, below;
    *x = old + h, above = model_rows(begin, end);
    *x = old - h, below = model_rows(begin, end);
    *x = old;
    return (above - below) / (2.0 * h);
}

/* Errors of one array against the model: the largest, and in the sum of squares; both relative to the array. */
struct error {
    double worst, largest, squares, error_squares;
};

static void compare(struct error *e, double found, double expected)
{
    double difference = fabs(found - expected);
    assert_true(isfinite(found));
    e->worst = difference > e->worst ? difference : e->worst;
    e->largest = fabs(expected) > e->largest ? fabs(expected) : e->largest;
    e->squares += expected * expected;
    e->error_squares += difference * difference;
}

static void judge(const struct error *e, const char *what, const struct trial *t, double bound)
{
    const struct shape *s = &t->shape;
    double relative = e->squares > 0.0 ? sqrt(e->error_squares / e->squares) : 0.0;
    if (e->worst > bound * e->largest || relative > bound || e->largest == 0.0)
        fail_msg("%s of %s%s, d %u, dropout %g: largest error %g of %g, relative %g, allowed %g", what,
                 s->is_silu ? "silu" : "softmax", s->is_causal ? ", causal" : "", s->d, (double)s->dropout,
                 e->worst, e->largest, relative, bound);
}

static void check_outputs(const struct trial *t)
{
    struct error e = {0};
    for (size_t event = 0; event < EVENTS; event++) {
        for (size_t head = 0; head < HEADS; head++) {
            model_take(t, event, head);
            model_rows(0, model.n);
            for (size_t i = 0; i < model.n * model.d; i++) {
                size_t row = t->offsets[event] + i / model.d;
                compare(&e, (double)t->out[(row * HEADS + head) * model.d + i % model.d], model.out[i]);
            }
        }
    }
    judge(&e, "output", t, 1e-5);
}

/* Every EACH-th element of q, k and v, of all columns: EACH has no factor in common with their number. A row of q
 * makes its own row of the output; one of k and v, where attention is causal, none before it. */
static void check_slopes(const struct trial *t)
{
    static const char *const names[] = {"dq", "dk", "dv"};
    struct error errors[3] = {{0}};
    for (size_t event = 0; event < EVENTS; event++) {
        for (size_t head = 0; head < HEADS; head++) {
            model_take(t, event, head);
            for (size_t m = 0; m < 3; m++) {
                for (size_t i = (event + head) % EACH; i < model.n * model.d; i += EACH) {
                    size_t of = i / model.d, row = t->offsets[event] + of;
                    size_t begin = m == 0 || t->shape.is_causal ? of : 0, end = m == 0 ? of + 1 : model.n;
                    float found = t->dqkv[row * t->width + (m * HEADS + head) * model.d + i % model.d];
                    compare(&errors[m], (double)found, slope_of(&model.x[m][i], begin, end));
                }
            }
        }
    }
    for (size_t m = 0; m < 3; m++)
        judge(&errors[m], names[m], t, 1e-4);
}

static void check_bias_slopes(const struct trial *t)
{
    static double positions[HEADS][TABLE], times[ATTENTION_TIME_BUCKETS];
    struct error of_positions = {0}, of_times = {0};
    memset(positions, 0, sizeof(positions));
    memset(times, 0, sizeof(times));
    for (size_t event = 0; event < EVENTS; event++) {
        for (size_t head = 0; head < HEADS; head++) {
            model_take(t, event, head);
            for (size_t i = 0; i < TABLE; i++)
                positions[head][i] += slope_of(&model.positions[i], 0, model.n);
            for (size_t i = 0; i < ATTENTION_TIME_BUCKETS; i++)
                times[i] += slope_of(&model.times[i], 0, model.n);
        }
    }
    for (size_t i = 0; i < (size_t)HEADS * TABLE; i++)
        compare(&of_positions, (double)t->dpositions[i / TABLE][i % TABLE], positions[i / TABLE][i % TABLE]);
    for (size_t i = 0; i < ATTENTION_TIME_BUCKETS; i++)
        compare(&of_times, (double)t->dtimes[i], times[i]);
    judge(&of_positions, "gradient of positions", t, 1e-4);
    judge(&of_times, "gradient of times", t, 1e-4);
}

/* --- Tests --- */

static const struct kernels *scalar(void)
{
    return kernels_variant(KERNELS_SCALAR);
}

/* Shape number i of all: both kinds, causal or not, with and without dropout and bias. */
static bool shape_of(size_t i, uint32_t d, struct shape *shape)
{
    *shape = (struct shape){i & 1, i & 2, i & 4, i & 8 ? 0.3F : 0.0F, d};
    return shape->is_silu || !shape->has_bias;
}
enum { SHAPES = 16 };

static void test_slopes(void **state)
{
    (void)state;
    static const uint32_t lengths[EVENTS] = {1, 5, 0, 33, 16, 17, 70, 2, 32};
    struct shape shape;
    for (size_t i = 0; i < SHAPES; i++) {
        if (!shape_of(i, 16, &shape))
            continue;
        make(&first, shape, lengths, 1 + i);
        run(scalar(), &first);
        check_outputs(&first);
        check_slopes(&first);
        if (shape.has_bias)
            check_bias_slopes(&first);
    }
}

static void test_outputs(void **state)
{
    (void)state;
    static const uint32_t lengths[EVENTS] = {1, 200, 0, 129, 64, 65, 50, 128, 3};
    struct shape shape;
    for (uint32_t d = 16; d <= ATTENTION_DIM_MAX; d += 16) {
        for (size_t i = d == 16 || d == 64 ? 0 : d / 16; i < SHAPES; i += d == 16 || d == 64 ? 1 : 5) {
            if (!shape_of(i, d, &shape))
                continue;
            make(&first, shape, lengths, 100 + i);
            run(scalar(), &first);
            check_outputs(&first);
            for (size_t r = 0; r < first.rows * first.width; r++)
                assert_true(r % first.width < first.width - GAP ? first.dqkv[r] != sentinel
                                                                : first.dqkv[r] == sentinel);
        }
    }
}

static void random_lengths(uint32_t lengths[EVENTS])
{
    static const uint32_t some[] = {0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129};
    for (size_t e = 0; e < EVENTS; e++)
        lengths[e] = next_random() % 2 ? (uint32_t)(next_random() % 100)
                                       : some[next_random() % (sizeof(some) / sizeof(*some))];
    lengths[next_random() % EVENTS] = 0;
    lengths[next_random() % EVENTS] = 1;
}

static void test_variants(void **state)
{
    (void)state;
    uint32_t lengths[EVENTS];
    struct shape shape;
    for (size_t i = 0; i < SHAPES; i++) {
        for (uint32_t d = 16; d <= ATTENTION_DIM_MAX; d += i % 3 ? 48 : 16) {
            random_state = i * 1000 + d;
            random_lengths(lengths);
            if (!shape_of(i, d, &shape))
                continue;
            make(&first, shape, lengths, i * 1000 + d);
            memcpy(&second, &first, sizeof(second));
            point(&second);
            run(scalar(), &first);
            for (int v = KERNELS_SCALAR + 1; v < KERNELS_VARIANTS; v++) {
                const struct kernels *k = kernels_variant((enum kernels_variant)v);
                if (k == NULL)
                    continue;
                run(k, &second);
                assert_memory_equal(first.out, second.out, sizeof(first.out));
                assert_memory_equal(first.lse, second.lse, sizeof(first.lse));
                assert_memory_equal(first.dqkv, second.dqkv, first.rows * first.width * sizeof(float));
                assert_memory_equal(first.dpositions, second.dpositions, sizeof(first.dpositions));
                assert_memory_equal(first.dtimes, second.dtimes, sizeof(first.dtimes));
            }
        }
    }
}

/* Copies the last `counts` rows of each window of q, and their times, to the front of `second`. */
static void keep_last(const uint32_t counts[EVENTS], uint32_t queries[EVENTS + 1], float *q)
{
    size_t part = (size_t)HEADS * first.shape.d;
    queries[0] = 0;
    for (size_t e = 0; e < EVENTS; e++) {
        queries[e + 1] = queries[e] + counts[e];
        for (size_t i = 0; i < counts[e]; i++) {
            size_t from = first.offsets[e + 1] - counts[e] + i, to = queries[e] + i;
            memcpy(q + to * part, first.qkv + from * first.width, part * sizeof(float));
            second.query_seconds[to] = first.query_seconds[from];
        }
    }
}

static void check_last(const struct kernels *k, size_t turn)
{
    static float q[ROWS_MAX * HEADS * ATTENTION_DIM_MAX];
    uint32_t counts[EVENTS], queries[EVENTS + 1];
    size_t part = (size_t)HEADS * first.shape.d;
    for (size_t e = 0; e < EVENTS; e++) {
        uint32_t n = first.offsets[e + 1] - first.offsets[e];
        counts[e] = turn % 2 ? n > 0 : (uint32_t)(next_random() % (n + 1));
    }
    memcpy(&second, &first, sizeof(second));
    keep_last(counts, queries, q);
    point(&second);
    clear(&second);
    second.a.q = (struct attention_in){q, part};
    second.a.query_offsets = queries;
    forward(k, &second);
    for (size_t e = 0; e < EVENTS; e++) {
        size_t from = first.offsets[e + 1] - counts[e];
        assert_memory_equal(second.out + queries[e] * part, first.out + from * part,
                            counts[e] * part * sizeof(float));
        for (size_t h = 0; h < HEADS && !first.shape.is_silu; h++)
            assert_memory_equal(second.lse + h * queries[EVENTS] + queries[e],
                                first.lse + h * first.rows + from, counts[e] * sizeof(float));
    }
}

/* The last rows alone as queries, as with a cache of keys and values. */
static void test_last_rows(void **state)
{
    (void)state;
    uint32_t lengths[EVENTS];
    struct shape shape;
    for (size_t turn = 0; turn < 8 * SHAPES; turn++) {
        const struct kernels *k = kernels_variant((enum kernels_variant)(turn / SHAPES % KERNELS_VARIANTS));
        random_state = 5000 + turn;
        random_lengths(lengths);
        if (k == NULL || !shape_of(turn % SHAPES, turn % 4 ? 16 : 64, &shape))
            continue;
        make(&first, shape, lengths, 5000 + turn);
        clear(&first);
        forward(k, &first);
        check_last(k, turn / SHAPES);
    }
}

/* The keys and values of `first` in pages, window by window; queries from some row on. */
static void check_pages(const struct kernels *k, size_t turn, bool is_bf16)
{
    enum { PAGES = LENGTH_MAX / ATTENTION_PAGE + 1, WIDTH = HEADS * ATTENTION_DIM_MAX, FROM = 48 };
    static float pages[PAGES][FROM + 2 * WIDTH * ATTENTION_PAGE], out[ROWS_MAX * WIDTH];
    const void *at[PAGES];
    size_t part = (size_t)HEADS * first.shape.d;
    for (size_t p = 0; p < PAGES; p++)
        at[p] = memset(pages[p], 0xff, sizeof(pages[p])); /* NaNs */
    for (size_t e = 0; e < EVENTS; e++) {
        uint32_t row = first.offsets[e], n = first.offsets[e + 1] - row;
        uint32_t begin = n == 0 ? 0 : turn % 2 ? n - 1 : (uint32_t)(next_random() % n);
        for (uint32_t r = 0; r < n; r++) {
            const float *keys = first.a.k.at + (row + r) * first.width;
            attention_page_put(pages[r / ATTENTION_PAGE], is_bf16, FROM, r, keys, keys + part, part);
        }
        struct attention_bias bias = first.bias;
        bias.query_seconds += row + begin, bias.key_seconds += row;
        struct attention_pages a = {.pages = at,
                                    .is_bf16 = is_bf16,
                                    .from = FROM,
                                    .first = begin,
                                    .queries = n - begin,
                                    .heads = HEADS,
                                    .d = first.shape.d,
                                    .scale = first.a.scale,
                                    .q = {first.qkv + (row + begin) * first.width, first.width},
                                    .out = {out, part},
                                    .weight_scale = first.a.weight_scale,
                                    .bias = first.a.bias != NULL ? &bias : NULL};
        (first.shape.is_silu ? k->attention_silu_pages : k->attention_softmax_pages)(&a);
        assert_memory_equal(out, first.out + (row + begin) * part, (n - begin) * part * sizeof(float));
    }
}

static void test_pages(void **state)
{
    (void)state;
    uint32_t lengths[EVENTS];
    struct shape shape;
    for (size_t turn = 0; turn < 12 * 8; turn++) { /* causal, without dropout */
        random_state = 7000 + turn;
        random_lengths(lengths);
        if (!shape_of((turn & 1) | 2 | (turn & 2 ? 4 : 0), (uint32_t)(turn / 4 % 8 + 1) * 16, &shape))
            continue;
        make(&first, shape, lengths, 7000 + turn);
        bool is_bf16 = turn % 3 == 0;
        for (size_t i = 0; i < first.rows * first.width && is_bf16; i++)
            first.qkv[i] = float_of_bf16(bf16_of(float_bits(first.qkv[i]), 0, true));
        first.bias.positions_stride = turn % 5 ? TABLE : 0; /* 0: all heads share the tables */
        clear(&first);
        forward(scalar(), &first);
        for (int v = 0; v < KERNELS_VARIANTS; v++)
            if (kernels_variant((enum kernels_variant)v) != NULL)
                check_pages(kernels_variant((enum kernels_variant)v), turn, is_bf16);
    }
}

/* A window that ends earlier: with is_causal the rows that are left keep their bits. */
static void test_later_rows(void **state)
{
    (void)state;
    uint32_t lengths[EVENTS];
    struct shape shape;
    for (size_t turn = 0; turn < 8 * SHAPES; turn++) {
        const struct kernels *k = kernels_variant((enum kernels_variant)(turn / SHAPES % KERNELS_VARIANTS));
        random_state = 9000 + turn;
        random_lengths(lengths);
        if (k == NULL || !shape_of(turn % SHAPES | 2, 32, &shape))
            continue;
        make(&first, shape, lengths, 9000 + turn);
        clear(&first);
        forward(k, &first);
        memcpy(&second, &first, sizeof(second));
        point(&second);
        clear(&second);
        size_t last = EVENTS - 1, part = (size_t)HEADS * shape.d; /* the other windows would move */
        uint32_t left = lengths[last] / 2 + (turn % 2 && lengths[last] > 1 ? lengths[last] / 2 - 1 : 0);
        second.offsets[EVENTS] = second.offsets[last] + left;
        forward(k, &second);
        assert_memory_equal(second.out, first.out, second.offsets[EVENTS] * part * sizeof(float));
    }
}

/* Weights far from each other, and dropout's share. */
static void test_extremes(void **state)
{
    (void)state;
    static const uint32_t lengths[EVENTS] = {300, 0, 70, 1, 0, 0, 0, 0, 100};
    for (int causal = 0; causal < 2; causal++) {
        make(&first, (struct shape){.is_causal = causal, .d = 16}, lengths, 3);
        for (size_t r = 0; r < first.rows * first.width; r++)
            first.qkv[r] *= r % first.width < (size_t)2 * HEADS * 16 ? 20.0F : 1.0F;
        run(scalar(), &first);
        check_outputs(&first);
    }
    size_t kept = 0, places = 1000;
    uint64_t key = num_chance(1, 2, 3);
    for (size_t i = 0; i < places * places; i++)
        kept += dropout_bits(dropout_row(key, i / places), dropout_column(key, i % places)) >=
                dropout_limit(0.2F);
    /* The standard deviation of the share is 0.0004. */
    assert_true(fabs((double)kept / (double)(places * places) - 0.8) < 0.002);
    assert_int_equal(attention_time_bucket(7, 7), 0);
    assert_int_equal(attention_time_bucket(0, 4), 4);
    assert_int_equal(attention_time_bucket(0, UINT32_MAX), ATTENTION_TIME_BUCKETS - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slopes),    cmocka_unit_test(test_outputs),    cmocka_unit_test(test_variants),
        cmocka_unit_test(test_last_rows), cmocka_unit_test(test_later_rows), cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* weights_read, weights_forward and weights_update: every optimizer and FTRL in double, weights before and
 * behind the address of a row, NULL rows, with and without offsets, occurrences without an index
 * (BATCH_NONE), gradients that are not finite. The scalar variant is compared with plain loops of the
 * contract and with opt_*. */
#include "trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_names[OPT_KINDS] = {"sgd",           "momentum", "adagrad", "adagrad_row",
                                                  "adagrad_block", "adam",     "ftrl",    "newton"};

static const struct ftrl64_params ftrl = {.alpha = 0.1, .beta = 1.0, .l1 = 0.05, .l2 = 0.02};

/* A test of weights in rows of a table. */
struct weights_shape {
    uint32_t n;
    enum ids ids;
    enum opt_kind kind;
    bool is_double;
    enum fill fill;
    /* 1: bag, 2: scales, 4: l1, 8: l2, 16: step_max, 32: unit, 64: `rejected` is NULL, 128: weights lie
     * before the address of their row, 256: 16 slices */
    uint32_t bits;
};

/* The host's copy of rows; each fifth index has a NULL row. at: where the weight lies, in bytes from the
 * row's address. */
struct weights_rows {
    unsigned char *host;
    size_t stride, bytes;
    uint32_t count;
    ptrdiff_t at;
};

static unsigned char *host_place(const struct weights_rows *rows, uint32_t u)
{
    return u % 5 == 3 ? NULL : rows->host + u * rows->stride + (rows->at < 0 ? 0 : rows->at);
}

static struct opt_params params_of(uint32_t bits)
{
    return (struct opt_params){.rate = 0.1F,
                               .l1 = bits & 4 ? 0.01F : 0.0F,
                               .l2 = bits & 8 ? 0.02F : 0.0F,
                               .epsilon = 1e-3F,
                               .decay = 0.99F,
                               .beta1 = 0.9F,
                               .beta2 = 0.99F,
                               .correction1 = 1.5F,
                               .correction2 = 2.5F,
                               .step_max = bits & 16 ? 0.05F : 1e30F};
}

static void fill_weight(struct trial *t, const struct weights_shape *s, unsigned char *place)
{
    float floats[3] = {0};
    size_t state = opt_state_floats(s->kind, 1);
    trial_floats(t, floats, 1, s->fill);
    trial_floats(t, floats + 1, 2, FILL_POSITIVE);
    double pair[2] = {(double)floats[0] * 0.3, (double)floats[1]};
    if (s->is_double)
        memcpy(place, pair, sizeof(pair));
    else
        memcpy(place, floats, (1 + state) * sizeof(*floats));
}

/* Makes the rows of m indices and the list of n pointers to rows. Rows are aligned only as their weights
 * demand; the bytes beside the weights must stay unchanged. */
static struct weights_rows make_rows(struct trial *t, const struct weights_shape *s, uint32_t m,
                                     struct batch_weights *of)
{
    size_t align = s->is_double ? 8 : 4;
    size_t weight = s->is_double ? 16 : 4 * (1 + opt_state_floats(s->kind, 1));
    struct weights_rows r = {.count = m, .at = s->bits & 128 ? -(ptrdiff_t)weight : (ptrdiff_t)(2 * align)};
    r.stride = weight + 3 * align;
    r.bytes = r.stride * m;
    r.host = trial_changed(t, "rows", r.bytes, align, s->is_double ? same_doubles : same_floats);
    memset(r.host, 0x77, r.bytes);
    void **list = trial_input(t, "list", s->n * sizeof(*list), sizeof(*list));
    for (uint32_t u = 0; u < m; u++) {
        unsigned char *place = host_place(&r, u);
        if (place != NULL)
            fill_weight(t, s, place);
        list[u] = place != NULL ? (unsigned char *)trial_place(t, place) - r.at : NULL;
    }
    *of = (struct batch_weights){.rows = PLACE(t, list),
                                 .at = (int32_t)r.at,
                                 .is_double = s->is_double,
                                 .kind = s->kind,
                                 .params = params_of(s->bits),
                                 .ftrl = ftrl};
    return r;
}

/* The weight that FTRL computes from pair = {z, sum} (McMahan 2013, alg. 1), each operation rounded once. */
static double ftrl_weight(const double pair[2])
{
    double over = copysign(ftrl.l1, pair[0]) - pair[0];
    double scale = (ftrl.beta + sqrt(pair[1])) / ftrl.alpha + ftrl.l2;
    return fabs(pair[0]) > ftrl.l1 ? over / scale : 0.0;
}

static void ftrl_step(double pair[2], double grad)
{
    double w = ftrl_weight(pair), sum = pair[1] + grad * grad;
    double sigma = (sqrt(sum) - sqrt(pair[1])) / ftrl.alpha;
    pair[0] = (pair[0] + grad) - sigma * w;
    pair[1] = sum;
}

/* --- weights_read --- */

static void build_read(struct trial *t, const void *arg)
{
    const struct weights_shape *s = arg;
    uint32_t m = s->n - s->n / 3; /* fewer than n */
    struct batch_weights_read a = {.n = s->n};
    struct weights_rows rows = make_rows(t, s, m, &a.of);
    uint32_t *count = trial_input(t, "count", sizeof(*count), sizeof(*count));
    *count = m;
    float *out = trial_output(t, "out", s->n * sizeof(*out), TRIAL_MATRIX, same_floats);
    a.count = PLACE(t, count);
    a.out = PLACE(t, out);
    TRIAL_CALL(t, weights_read, &a);
    trial_valid(t, out, m * sizeof(*out));
    for (uint32_t u = 0; u < m && trial_is_scalar(t); u++) {
        const unsigned char *place = host_place(&rows, u);
        float want = 0.0F;
        double pair[2];
        if (place != NULL && s->is_double) {
            memcpy(pair, place, sizeof(pair));
            want = (float)ftrl_weight(pair);
        } else if (place != NULL) {
            memcpy(&want, place, sizeof(want));
        }
        TRIAL_CHECK(t, same_floats(&want, &out[u], sizeof(want)));
    }
}

void suite_weights_read(struct suite *suite)
{
    for (const uint32_t *n = suite_sizes(suite); *n != SIZES_END; n++) {
        for (uint32_t i = 0; i < 8; i++) {
            struct weights_shape s = {.n = *n,
                                      .kind = i % 4 == 0 ? OPT_SGD : OPT_ADAM,
                                      .is_double = i % 2 != 0,
                                      .fill = i < 4 ? FILL_PLAIN : FILL_SPECIAL,
                                      .bits = i % 4 < 2 ? 0 : 128};
            suite_try(suite, build_read, &s, "n %u%s%s%s", *n, s.is_double ? ", double" : "",
                      s.bits ? ", behind" : "", s.fill == FILL_SPECIAL ? ", special" : "");
        }
    }
    struct weights_shape huge = {.n = suite_huge(suite), .kind = OPT_ADAGRAD};
    suite_try(suite, build_read, &huge, "n %u", huge.n);
}

/* --- weights_forward --- */

struct forward_shape {
    uint32_t n, fields, dense;
    enum fill fill;
    /* 1: start, 2: bias, 4: rejected, 8: lists, 16: lists, many of one id, 32: stride, 64: in place. */
    uint32_t bits;
};

/* A call, and the host's copies of its buffers. */
struct forward_call {
    struct batch_weights_forward args; /* holds the kernel's addresses */
    float *start, *bias, *dense, *dense_weights, *weights, *logits;
    uint8_t *is_rejected;
    uint32_t *indices, *offsets;
};

static float *input_floats(struct trial *t, const char *name, size_t n, enum fill fill)
{
    float *x = trial_input(t, name, n * sizeof(*x), sizeof(*x));
    trial_floats(t, x, n, fill);
    return x;
}

static void fill_places(struct trial *t, const struct forward_shape *s, struct forward_call *c)
{
    size_t bags = (size_t)s->fields * s->n, places = bags;
    if (s->bits & 24) {
        c->offsets = trial_input(t, "offsets", (bags + 1) * sizeof(*c->offsets), sizeof(*c->offsets));
        for (size_t b = 0; b < bags; b++) {
            uint32_t length = trial_below(t, 40) == 0 ? 70 : trial_below(t, 4);
            bool is_one = s->bits & 16 && b / (s->n / 2 + 1) % 2 == 0;
            c->offsets[b + 1] = c->offsets[b] + (is_one ? 1 : length);
        }
        places = c->offsets[bags];
        c->args.offsets = PLACE(t, c->offsets);
    }
    uint32_t m = (uint32_t)places / 3 + 1;
    c->weights = input_floats(t, "weights", m, s->fill);
    c->indices = trial_input(t, "indices", places * sizeof(*c->indices), sizeof(*c->indices));
    for (size_t i = 0; i < places; i++)
        c->indices[i] = trial_below(t, 9) == 0 ? BATCH_NONE : trial_below(t, m);
    c->args.weights = PLACE(t, c->weights);
    c->args.indices = PLACE(t, c->indices);
}

static void fill_forward(struct trial *t, const struct forward_shape *s, struct forward_call *c)
{
    uint32_t stride = s->bits & 32 ? (s->n + 7) / 4 * 4 : s->n;
    c->args = (struct batch_weights_forward){.base = -0.0F,
                                             .dense_stride = s->bits & 32 ? stride : 0,
                                             .dense_count = s->dense,
                                             .fields = s->fields,
                                             .n = s->n};
    if (s->bits & 64) {
        c->logits = trial_changed(t, "logits", s->n * sizeof(*c->logits), TRIAL_MATRIX, same_floats);
        trial_floats(t, c->logits, s->n, s->fill);
        c->start = c->logits;
    } else {
        c->logits = trial_output(t, "logits", s->n * sizeof(*c->logits), TRIAL_MATRIX, same_floats);
        c->start = s->bits & 1 ? input_floats(t, "start", s->n, s->fill) : NULL;
    }
    c->bias = s->bits & 2 ? input_floats(t, "bias", 1, FILL_PLAIN) : NULL;
    c->dense = input_floats(t, "dense", (size_t)stride * s->dense, s->fill);
    c->dense_weights = input_floats(t, "dense_weights", s->dense, FILL_PLAIN);
    if (s->bits & 4) {
        c->is_rejected = trial_input(t, "is_rejected", s->n, 1);
        for (uint32_t e = 0; e < s->n; e++)
            c->is_rejected[e] = trial_below(t, 3) == 0;
    }
    fill_places(t, s, c);
    c->args.start = PLACE(t, c->start);
    c->args.bias = PLACE(t, c->bias);
    c->args.dense = PLACE(t, c->dense);
    c->args.dense_weights = PLACE(t, c->dense_weights);
    c->args.is_rejected = PLACE(t, c->is_rejected);
    c->args.logits = PLACE(t, c->logits);
}

/* Computes one event's logit by the contract. start: the logit that it begins with. */
static float forward_plainly(const struct forward_shape *s, const struct forward_call *c, float start,
                             uint32_t e)
{
    uint32_t stride = s->bits & 32 ? c->args.dense_stride : s->n;
    float sum = c->bias ? fmaf(c->bias[0], 1.0F, start) : start;
    for (uint32_t d = 0; d < s->dense; d++) {
        bool is_rejected = c->is_rejected != NULL && c->is_rejected[e];
        float x = is_rejected ? 0.0F : c->dense[(size_t)d * stride + e];
        sum = fmaf(x, c->dense_weights[d], sum);
    }
    for (uint32_t f = 0; f < s->fields; f++) {
        uint32_t bag = f * s->n + e;
        uint32_t from = c->offsets ? c->offsets[bag] : bag, to = c->offsets ? c->offsets[bag + 1] : bag + 1;
        for (uint32_t p = from; p < to; p++) {
            float scale = 1.0F / (float)(to - from);
            if (c->indices[p] != BATCH_NONE)
                sum = fmaf(scale, c->weights[c->indices[p]], sum);
        }
    }
    return sum;
}

static void build_forward(struct trial *t, const void *arg)
{
    const struct forward_shape *s = arg;
    struct forward_call c = {0};
    fill_forward(t, s, &c);
    float *starts = malloc(s->n * sizeof(*starts) + 1);
    for (uint32_t e = 0; e < s->n; e++)
        starts[e] = c.start != NULL ? c.start[e] : c.args.base;
    TRIAL_CALL(t, weights_forward, &c.args);
    for (uint32_t e = 0; e < s->n && trial_is_scalar(t); e++) {
        float want = forward_plainly(s, &c, starts[e], e);
        TRIAL_CHECK(t, same_floats(&want, &c.logits[e], sizeof(want)));
    }
    free(starts);
}

static void try_forward(struct suite *suite, struct forward_shape s)
{
    suite_try(suite, build_forward, &s, "n %u, fields %u, dense %u, bits %u%s", s.n, s.fields, s.dense,
              s.bits, s.fill == FILL_SPECIAL ? ", special" : "");
}

void suite_weights_forward(struct suite *suite)
{
    uint32_t turn = 0;
    for (uint32_t bits = 0; bits < 128; bits++) /* n around whole vectors */
        try_forward(suite, (struct forward_shape){13 + bits % 8, 3, bits % 5, FILL_PLAIN, bits});
    for (const uint32_t *n = suite_sizes(suite); *n != SIZES_END; n++) {
        for (uint32_t i = 0; i < 6; i++, turn++) {
            uint32_t fields = *n > 4000 ? 2 : turn % 11, lists = i % 3 * 8;
            try_forward(suite, (struct forward_shape){*n, fields, turn % 4, i < 3 ? FILL_PLAIN : FILL_SPECIAL,
                                                      lists | turn * 5 % 8 | turn % 2 * 32});
        }
    }
    uint32_t huge = suite_huge(suite);
    try_forward(suite, (struct forward_shape){huge, 1, 1, FILL_PLAIN, 0});
    try_forward(suite, (struct forward_shape){huge / 4, 2, 0, FILL_PLAIN, 8});
}

/* --- weights_update --- */

/* A call, and the host's copies of its buffers. */
struct update_call {
    struct batch_weights_update args; /* holds the kernel's addresses */
    struct weights_rows rows;
    float *grads, *scales;
    uint32_t *bag, *rejected;
    const uint32_t *order, *starts, *event;
    uint32_t m;
};

static void fill_update(struct trial *t, const struct weights_shape *s, struct update_call *c)
{
    size_t unit = s->bits & 32 ? 3 : 1, places = s->bits & 1 ? s->n / 3 + 1 : s->n;
    c->args = (struct batch_weights_update){.in = {.d = 1, .unit = s->bits & 32 ? 3 : 0}};
    c->m = trial_segments(t, s->n, s->ids, &c->args.in, &c->order, &c->starts);
    c->grads = input_floats(t, "grads", places * unit, s->fill);
    c->args.in.grads = PLACE(t, c->grads);
    if (s->bits & 1) {
        c->bag = trial_input(t, "bag", s->n * sizeof(*c->bag), sizeof(*c->bag));
        for (uint32_t i = 0; i < s->n; i++)
            c->bag[i] = i / 3;
        c->args.in.bag = PLACE(t, c->bag);
    }
    c->event = s->bits & 256 ? trial_slices(t, 16, &c->args.in) : NULL;
    c->scales = s->bits & 2 ? input_floats(t, "scales", s->n, FILL_PLAIN) : NULL;
    c->args.in.scales = PLACE(t, c->scales);
    c->rows = make_rows(t, s, c->m, &c->args.of);
    c->rejected = trial_changed(t, "rejected", sizeof(*c->rejected), sizeof(*c->rejected), same_bits);
    *c->rejected = 7;
    c->args.rejected = s->bits & 64 ? NULL : PLACE(t, c->rejected);
}

/* The gradients of all indices, by the scalar segment_reduce, which cases_segments.c compares with the contract. */
static void sum_all(const struct weights_shape *s, const struct update_call *c, float *sums)
{
    uint32_t count = c->m;
    struct batch_segment_reduce a = {.in = {.grads = c->grads,
                                            .bag = c->bag,
                                            .scales = c->scales,
                                            .order = c->order,
                                            .starts = c->starts,
                                            .count = &count,
                                            .n = s->n,
                                            .d = 1,
                                            .unit = c->args.in.unit,
                                            .event = c->event,
                                            .slices = c->args.in.slices},
                                     .sums = sums,
                                     .scratch = sums};
    batch_variant(KERNELS_SCALAR)->segment_reduce(&a, NULL);
}

/* Makes the step of one weight and its state with the kernels for rows. */
static void step_plainly(const struct weights_shape *s, unsigned char *place, float sum)
{
    const struct kernels *k = kernels_variant(KERNELS_SCALAR);
    struct opt_params params = params_of(s->bits);
    if (s->is_double) {
        double pair[2];
        memcpy(pair, place, sizeof(pair));
        ftrl_step(pair, (double)sum);
        memcpy(place, pair, sizeof(pair));
        return;
    }
    float floats[3];
    size_t bytes = (1 + opt_state_floats(s->kind, 1)) * sizeof(*floats);
    memcpy(floats, place, bytes);
    struct opt_row row = {.w = floats, .state = floats + 1, .g = &sum, .scale = 1.0F, .curvature = 1.0F};
    bool is_adagrad = s->kind == OPT_ADAGRAD_BLOCK; /* OPT_ADAGRAD_BLOCK is not defined for a single weight */
    opt_pick(k, is_adagrad ? OPT_ADAGRAD : s->kind)(&row, 1, 1, &params);
    memcpy(place, floats, bytes);
}

/* before: the rows' content before the call, which becomes the expected one. */
static void check_update(struct trial *t, const struct weights_shape *s, const struct update_call *c,
                         unsigned char *before)
{
    uint32_t rejected = 7;
    float *sums = malloc((c->m + 1) * sizeof(*sums));
    sum_all(s, c, sums);
    for (uint32_t u = 0; u < c->m; u++) {
        const unsigned char *place = host_place(&c->rows, u);
        float sum = sums[u];
        if (place != NULL && isfinite(sum))
            step_plainly(s, before + (place - c->rows.host), sum);
        rejected += place != NULL && !isfinite(sum);
    }
    TRIAL_CHECK(t, s->is_double ? same_doubles(before, c->rows.host, c->rows.bytes)
                                : same_floats(before, c->rows.host, c->rows.bytes));
    TRIAL_CHECK(t, *c->rejected == (s->bits & 64 ? 7 : rejected));
    free(sums);
}

static void build_update(struct trial *t, const void *arg)
{
    const struct weights_shape *s = arg;
    struct update_call c = {0};
    fill_update(t, s, &c);
    unsigned char *before = memcpy(malloc(c.rows.bytes + 1), c.rows.host, c.rows.bytes);
    TRIAL_CALL_SCRATCH(t, weights_update, &c.args);
    if (trial_is_scalar(t))
        check_update(t, s, &c, before);
    free(before);
}

static void try_update(struct suite *suite, struct weights_shape s)
{
    suite_try(suite, build_update, &s, "%s, n %u, ids %s, bits %u%s",
              s.is_double ? "double" : kind_names[s.kind], s.n, ids_names[s.ids], s.bits,
              s.fill == FILL_SPECIAL ? ", special" : "");
}

void suite_weights_update(struct suite *suite)
{
    static const uint32_t lengths[] = {32, 33, 127, 128, 129, 256, 257, 385};
    uint32_t turn = 0;
    /* newton is not supported: its turn tests FTRL in double. */
    for (uint32_t kind = 0; kind <= OPT_NEWTON; kind++) {
        bool is_double = kind == OPT_NEWTON;
        enum opt_kind k = is_double ? OPT_FTRL : (enum opt_kind)kind;
        for (uint32_t bits = 0; bits < 512; bits += 4, turn++)
            try_update(suite,
                       (struct weights_shape){40 + turn % 40, IDS_ZIPF, k, is_double,
                                              turn % 3 == 0 ? FILL_SPECIAL : FILL_PLAIN, bits + turn % 4});
    }
    for (uint32_t i = 0; i < 8; i++)
        try_update(suite, (struct weights_shape){lengths[i], IDS_ONE, OPT_SGD, false, FILL_PLAIN,
                                                 i * 37 % 64 + i % 2 * 256});
    for (const uint32_t *n = suite_sizes(suite); *n != SIZES_END; n++) {
        for (enum ids ids = 0; ids < IDS_KINDS; ids++, turn++) {
            enum opt_kind kind = (enum opt_kind)(turn % OPT_NEWTON);
            bool is_double = turn % 5 == 0;
            try_update(suite, (struct weights_shape){*n, ids, kind, is_double, FILL_PLAIN, turn % 512});
            try_update(suite, (struct weights_shape){*n, ids, kind, is_double, FILL_SPECIAL, turn * 3 % 512});
        }
    }
    uint32_t huge = suite_huge(suite);
    try_update(suite, (struct weights_shape){huge, IDS_ZIPF, OPT_ADAGRAD, false, FILL_PLAIN, 1});
    try_update(suite, (struct weights_shape){huge, IDS_ONE, OPT_FTRL, true, FILL_PLAIN, 3});
    try_update(suite, (struct weights_shape){huge, IDS_ONE, OPT_FTRL, true, FILL_PLAIN, 256 + 2});
    try_update(suite, (struct weights_shape){huge, IDS_ZIPF, OPT_ADAGRAD, false, FILL_PLAIN, 256 + 1});
}

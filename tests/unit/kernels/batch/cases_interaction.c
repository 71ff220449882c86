/* fm and ffm: all shapes with every variant. With every variant, logits and gradients are also compared with
 * plain sums over pairs in double, the gradients by central differences (the function is quadratic, so they
 * are exact up to rounding). With and without gaps between bags, which must stay unchanged, and with results
 * added to old content or not. */
#include "trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum mode { FORWARD, BACKWARD, BOTH, MODES };
static const char *const mode_names[] = {"forward", "backward", "both"};

struct shape {
    bool is_ffm;
    uint32_t bags, fields, d;
    enum mode mode;
    enum fill fill;
    uint32_t gap; /* floats behind a bag's vectors; behind its gradients there are twice as many */
    bool adds;
};

/* Weights of a field's row. */
static size_t row_floats(const struct shape *shape)
{
    return shape->is_ffm ? (size_t)shape->d * FFM_ROUND(shape->fields) : shape->d;
}

/* The weight of field f for partner g, dim i, in a bag's rows. */
static double weight(const struct shape *shape, const double *bag, size_t f, size_t g, size_t i)
{
    const double *row = bag + f * row_floats(shape);
    return shape->is_ffm ? row[i / 4 * FFM_ROUND(shape->fields) * 4 + g * 4 + i % 4] : row[i];
}

/* A bag's logit; *size: the sum of the absolute values of its terms, plus 1. */
static double plain_logit(const struct shape *shape, const double *bag, double *size)
{
    double total = 0.0, sizes = 0.0;
    for (size_t f = 0; f < shape->fields; f++) {
        for (size_t g = f + 1; g < shape->fields; g++) {
            for (size_t i = 0; i < shape->d; i++) {
                double product = weight(shape, bag, f, g, i) * weight(shape, bag, g, f, i);
                total += product;
                sizes += fabs(product);
            }
        }
    }
    *size = sizes + 1.0;
    return total;
}

static void check_bag(struct trial *t, const struct shape *shape, const float *vectors, const float *logit,
                      float gradient, const float *grads)
{
    size_t n = shape->fields * row_floats(shape);
    double *bag = malloc(n * sizeof(*bag)), size = 0.0;
    for (size_t i = 0; i < n; i++)
        bag[i] = (double)vectors[i];
    double value = plain_logit(shape, bag, &size);
    if (logit != NULL && fabs((double)*logit - value) > 1e-5 * size)
        trial_fail(t, "a logit is %g, the pairs' sum %g", (double)*logit, value);
    for (int k = 0; grads && k < 6; k++) {
        size_t at = trial_below(t, (uint32_t)n);
        double old = bag[at], h = 0.5;
        bag[at] = old + h;
        double above = plain_logit(shape, bag, &size);
        bag[at] = old - h;
        double numeric = (double)gradient * (above - plain_logit(shape, bag, &size)) / (2.0 * h);
        bag[at] = old;
        if (fabs(numeric - (double)grads[at]) > 1e-3 * fmax(fabs(numeric), 0.1))
            trial_fail(t, "the gradient by weight %zu is %g, by differences %g", at, (double)grads[at],
                       numeric);
    }
    free(bag);
}

/* Compares with the kernels for single events (kernels.h), bit for bit. logit_before, grads_before: the
 * outputs' old content, which is added if `adds`. */
static void check_event(struct trial *t, const struct shape *shape, const float *vectors, const float *logit,
                        float gradient, const float *grads, float logit_before, const float *grads_before)
{
    const struct kernels *k = kernels_variant(KERNELS_SCALAR);
    size_t n = shape->fields, length = row_floats(shape);
    float *zero = calloc(length, sizeof(*zero)), *sum = calloc(length, sizeof(*sum));
    float *expected = calloc(n * length, sizeof(*expected)), value;
    const float *rows[BATCH_FIELDS_MAX];
    for (size_t f = 0; f < FFM_ROUND(n); f++)
        rows[f] = f < n ? vectors + f * length : zero;
    if (shape->is_ffm) {
        value = k->ffm_forward(expected, rows, zero, n, shape->d);
    } else {
        value = k->fm_forward(sum, rows, n, shape->d);
        k->fm_backward(expected, sum, rows, n, shape->d);
    }
    value = shape->adds ? logit_before + value : value;
    for (size_t i = 0; i < n * length; i++) {
        expected[i] = gradient * expected[i];
        if (shape->adds && grads_before != NULL)
            expected[i] = grads_before[i] + expected[i];
    }
    TRIAL_CHECK(t, logit == NULL || same_floats(logit, &value, sizeof(value)));
    TRIAL_CHECK(t, grads == NULL || same_floats(grads, expected, n * length * sizeof(*expected)));
    free(zero);
    free(sum);
    free(expected);
}

/* The host's copies of what a call writes, and of their content before. */
struct results {
    float *logits, *logits_before;
    float *grads, *grads_before;
};

static float *make_result(struct trial *t, const char *name, size_t floats, size_t align, bool is_changed,
                          float **before)
{
    size_t bytes = floats * sizeof(**before);
    float *x = is_changed ? trial_changed(t, name, bytes, align, same_floats)
                          : trial_output(t, name, bytes, align, same_floats);
    if (is_changed)
        trial_floats(t, x, floats, FILL_PLAIN);
    *before = memcpy(malloc(bytes + 1), x, bytes);
    return x;
}

static void check_results(struct trial *t, const struct shape *shape, const float *vectors,
                          const float *logit_gradients, const struct results *r)
{
    size_t bag = shape->fields * row_floats(shape), stride = bag + shape->gap, to = bag + 2 * shape->gap;
    for (size_t b = 0; b<shape->bags; b += shape->bags> 1 ? shape->bags - 1 : 1) {
        const float *logit = r->logits != NULL ? r->logits + b : NULL,
                    *grad = r->grads != NULL ? r->grads + b * to : NULL;
        const float *grad_before = r->grads != NULL ? r->grads_before + b * to : NULL;
        float gradient = logit_gradients ? logit_gradients[b] : 0.0F;
        if (shape->fill == FILL_PLAIN && !shape->adds)
            check_bag(t, shape, vectors + b * stride, logit, gradient, grad);
        if (trial_is_scalar(t))
            check_event(t, shape, vectors + b * stride, logit, gradient, grad,
                        logit ? r->logits_before[b] : 0.0F, grad_before);
        for (size_t i = bag; grad && i < to; i++)
            TRIAL_CHECK(t, same_bits(grad + i, grad_before + i, sizeof(*grad)));
    }
}

static void build(struct trial *t, const void *arg)
{
    const struct shape *shape = arg;
    size_t bag = shape->fields * row_floats(shape), n = shape->bags * (bag + shape->gap);
    float *vectors = trial_input(t, "vectors", n * sizeof(*vectors), TRIAL_MATRIX);
    trial_floats(t, vectors, n, shape->fill);
    float *logit_gradients = NULL;
    struct results r = {0};
    if (shape->mode != BACKWARD)
        r.logits = make_result(t, "logits", shape->bags, sizeof(float), shape->adds, &r.logits_before);
    if (shape->mode != FORWARD) {
        logit_gradients = trial_input(t, "logit_gradients", shape->bags * sizeof(*logit_gradients),
                                      sizeof(*logit_gradients));
        trial_floats(t, logit_gradients, shape->bags, shape->fill);
        r.grads = make_result(t, "grads", n + shape->bags * (size_t)shape->gap, TRIAL_MATRIX,
                              shape->adds || shape->gap > 0, &r.grads_before);
    }
    struct batch_interaction a = {.vectors = PLACE(t, vectors),
                                  .bags = shape->bags,
                                  .fields = shape->fields,
                                  .d = shape->d,
                                  .logits = PLACE(t, r.logits),
                                  .logit_gradients = PLACE(t, logit_gradients),
                                  .grads = PLACE(t, r.grads),
                                  .stride = shape->gap > 0 ? (uint32_t)bag + shape->gap : 0,
                                  .grads_stride = shape->gap > 0 ? (uint32_t)bag + 2 * shape->gap : 0,
                                  .adds = shape->adds};
    if (shape->is_ffm)
        TRIAL_CALL(t, ffm, &a);
    else
        TRIAL_CALL(t, fm, &a);
    check_results(t, shape, vectors, logit_gradients, &r);
    free(r.logits_before);
    free(r.grads_before);
}

static void try_shape(struct suite *suite, struct shape shape)
{
    suite_try(suite, build, &shape, "%u bags, %u fields, d %u, %s, %s numbers, gap %u%s", shape.bags,
              shape.fields, shape.d, mode_names[shape.mode], shape.fill == FILL_PLAIN ? "plain" : "special",
              shape.gap, shape.adds ? ", added" : "");
}

/* floats: the most that the vectors of a case of several bags may have; an eighth of that where sizes
 * must be small. */
static void try_shapes(struct suite *suite, bool is_ffm, size_t floats)
{
    bool is_slow = suite_huge(suite) < 1 << 20;
    size_t bags_max = is_slow ? 37 : 301;
    floats /= is_slow ? 8 : 1;
    static const uint32_t fields[] = {1, 2, 3, 4, 5, 8, 13, 39, 64};
    static const uint32_t dims[] = {4, 8, 12, 16, 32, 64, 128};
    enum { FIELDS = sizeof(fields) / sizeof(*fields), DIMS = sizeof(dims) / sizeof(*dims) };
    for (unsigned i = 0; i < FIELDS * DIMS; i++) {
        struct shape shape = {.is_ffm = is_ffm, .fields = fields[i / DIMS], .d = dims[i % DIMS]};
        size_t many = floats / (shape.fields * row_floats(&shape));
        for (unsigned k = 0; k < 4; k++) {
            const uint32_t bags[] = {1, 3, (uint32_t)(many > bags_max ? bags_max : many), 0};
            shape.bags = bags[k];
            shape.mode = (enum mode)((i + k) % MODES);
            shape.fill = (i + k) / MODES % 3 == 2 ? FILL_SPECIAL : FILL_PLAIN;
            shape.adds = (i + k) / 2 % 3 == 1;
            shape.gap = (i + k) / 3 % 2 * 4 * (1 + k);
            if ((shape.bags == 1 || shape.bags <= many) && !(is_slow && (i + k) % 2 == 0))
                try_shape(suite, shape);
        }
    }
}

void suite_fm(struct suite *suite)
{
    try_shapes(suite, false, 1 << 15);
    try_shape(suite, (struct shape){.bags = 2, .fields = 64, .d = 512, .mode = BOTH});
    try_shape(suite, (struct shape){.bags = 1, .fields = 39, .d = 508, .mode = BOTH});
    try_shape(suite, (struct shape){.bags = suite_huge(suite), .fields = 2, .d = 4, .mode = FORWARD});
}

void suite_ffm(struct suite *suite)
{
    try_shapes(suite, true, 1 << 16);
    try_shape(suite, (struct shape){.is_ffm = true, .bags = 1, .fields = 9, .d = 512, .mode = BOTH});
    uint32_t huge = suite_huge(suite) / 4 + 1;
    try_shape(suite, (struct shape){.is_ffm = true, .bags = huge, .fields = 2, .d = 4, .mode = BOTH});
}

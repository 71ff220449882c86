/* add_rows, relu_mask and clip: the kernels of a network besides its matrix products. */
#include "trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct relu_shape {
    uint32_t n, columns, gap, y_gap;
};

static void build_relu_mask(struct trial *t, const void *arg)
{
    const struct relu_shape *s = arg;
    uint32_t stride = s->columns + s->gap, y_stride = s->columns + s->y_gap;
    size_t floats = (size_t)s->n * stride, y_floats = (size_t)s->n * y_stride;
    float *x = trial_changed(t, "x", floats * sizeof(*x), TRIAL_MATRIX, same_bits);
    float *y = trial_input(t, "y", y_floats * sizeof(*y), TRIAL_MATRIX);
    trial_floats(t, x, floats, FILL_SPECIAL);
    trial_floats(t, y, y_floats, FILL_SPECIAL);
    for (size_t i = 0; i < y_floats; i += 1 + trial_below(t, 3))
        y[i] = trial_below(t, 2) ? 0.0F : -0.0F;
    float *want = memcpy(malloc(floats * sizeof(*x) + 1), x, floats * sizeof(*x));
    for (size_t e = 0; e < s->n; e++)
        for (size_t c = 0; c < s->columns; c++)
            want[e * stride + c] = y[e * y_stride + c] > 0.0F ? x[e * stride + c] : 0.0F;
    struct batch_relu_mask a = {.x = PLACE(t, x),
                                .n = s->n,
                                .columns = s->columns,
                                .stride = s->gap > 0 ? stride : 0,
                                .y = PLACE(t, y),
                                .y_stride = s->y_gap > 0 ? y_stride : 0};
    TRIAL_CALL(t, relu_mask, &a);
    if (trial_is_scalar(t))
        TRIAL_CHECK(t, same_bits(want, x, floats * sizeof(*x)));
    free(want);
}

static void try_relu_mask(struct suite *suite, struct relu_shape s)
{
    suite_try(suite, build_relu_mask, &s, "%u rows, %u columns, gaps %u and %u", s.n, s.columns, s.gap,
              s.y_gap);
}

void suite_relu_mask(struct suite *suite)
{
    static const struct relu_shape shapes[] = {{7, 4, 0, 0},   {33, 12, 4, 0}, {5, 13, 3, 7},
                                               {70, 64, 8, 4}, {19, 3, 1, 5},  {6, 100, 0, 12}};
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
        try_relu_mask(suite, shapes[i]);
    for (const uint32_t *n = suite_sizes(suite); *n != SIZES_END; n++)
        try_relu_mask(suite, (struct relu_shape){*n, 8, *n % 2 * 4, 0});
    try_relu_mask(suite, (struct relu_shape){suite_huge(suite), 4, 0, 0});
}

static void build_add_rows(struct trial *t, const void *arg)
{
    const struct relu_shape *s = arg;
    uint32_t stride = s->columns + s->gap, y_stride = s->columns + s->y_gap;
    size_t floats = (size_t)s->n * stride, y_floats = (size_t)s->n * y_stride;
    float *x = trial_changed(t, "x", floats * sizeof(*x), TRIAL_MATRIX, same_floats);
    float *y = trial_input(t, "y", y_floats * sizeof(*y), TRIAL_MATRIX);
    trial_floats(t, x, floats, FILL_SPECIAL);
    trial_floats(t, y, y_floats, FILL_SPECIAL);
    float *want = memcpy(malloc(floats * sizeof(*x) + 1), x, floats * sizeof(*x));
    for (size_t e = 0; e < s->n; e++)
        for (size_t c = 0; c < s->columns; c++)
            want[e * stride + c] += y[e * y_stride + c];
    struct batch_add_rows a = {.x = PLACE(t, x),
                               .y = PLACE(t, y),
                               .n = s->n,
                               .columns = s->columns,
                               .x_stride = s->gap > 0 ? stride : 0,
                               .y_stride = s->y_gap > 0 ? y_stride : 0};
    TRIAL_CALL(t, add_rows, &a);
    if (trial_is_scalar(t))
        TRIAL_CHECK(t, same_floats(want, x, floats * sizeof(*x)));
    free(want);
}

void suite_add_rows(struct suite *suite)
{
    static const struct relu_shape shapes[] = {{7, 4, 0, 0},   {33, 12, 4, 0}, {5, 13, 3, 7},
                                               {70, 64, 8, 4}, {19, 3, 1, 5},  {1, 1000, 0, 12}};
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
        suite_try(suite, build_add_rows, &shapes[i], "%u rows, %u columns, gaps %u and %u", shapes[i].n,
                  shapes[i].columns, shapes[i].gap, shapes[i].y_gap);
    struct relu_shape huge = {1, suite_huge(suite), 0, 0};
    suite_try(suite, build_add_rows, &huge, "%u columns", huge.columns);
}

/* Squares whose root is far below the largest norm, or above it, or not finite. */
static void build_clip(struct trial *t, const void *arg)
{
    const uint32_t *count = arg;
    double *squares = trial_input(t, "squares", *count * sizeof(*squares), sizeof(*squares));
    float *scale = trial_output(t, "scale", sizeof(*scale), sizeof(*scale), same_floats);
    double sum = 0.0;
    for (uint32_t i = 0; i < *count; i++) {
        squares[i] = (double)trial_below(t, 1000) / 100.0;
        sum += squares[i];
    }
    uint32_t kind = *count % 4;
    if (kind == 3)
        squares[*count / 2] = *count % 8 == 3 ? (double)NAN : (double)INFINITY;
    float norm_max = kind == 0 ? (float)sqrt(sum) * 2.0F + 1.0F : (float)sqrt(sum) / 3.0F;
    struct batch_clip a = {
        .squares = PLACE(t, squares), .count = *count, .norm_max = norm_max, .scale = PLACE(t, scale)};
    TRIAL_CALL(t, clip, &a);
    trial_valid(t, scale, sizeof(*scale));
    double root = sqrt(sum);
    float want = kind == 3 ? 0.0F : root > (double)norm_max ? (float)((double)norm_max / root) : 1.0F;
    if (trial_is_scalar(t))
        TRIAL_CHECK(t, same_floats(&want, scale, sizeof(want)));
}

void suite_clip(struct suite *suite)
{
    for (uint32_t count = 0; count < 24; count++)
        suite_try(suite, build_clip, &count, "%u layers", count);
    for (uint32_t count = suite_huge(suite); count < suite_huge(suite) + 4; count++)
        suite_try(suite, build_clip, &count, "%u layers", count);
}

/* check: is_finite, squares and total, each with and without the others. */
#include "trial.h"

#include <math.h>
#include <stdlib.h>

struct check_shape {
    uint32_t rows, d;
    enum fill fill;
    uint32_t bits; /* 1: is_finite, 2: squares, 4: total */
};

static void check_plainly(struct trial *t, const struct check_shape *s, const float *x,
                          const uint8_t *is_finite, const float *squares, const double *total)
{
    double sum = 0.0, chunk = 0.0;
    for (uint32_t r = 0; r < s->rows; r++) {
        const float *row = x + (size_t)r * s->d;
        float want = kernels_variant(KERNELS_SCALAR)->sum_squares(row, s->d);
        bool row_is_finite = true;
        for (uint32_t i = 0; i < s->d; i++)
            row_is_finite = row_is_finite && isfinite(row[i]);
        TRIAL_CHECK(t, !(s->bits & 1) || is_finite[r] == row_is_finite);
        TRIAL_CHECK(t, !(s->bits & 2) || same_floats(&want, squares + r, sizeof(want)));
        chunk += row_is_finite ? (double)want : 0.0;
        if (r % BATCH_CHUNK == BATCH_CHUNK - 1 || r + 1 == s->rows) {
            sum += chunk;
            chunk = 0.0;
        }
    }
    TRIAL_CHECK(t, !(s->bits & 4) || same_bits(&sum, total, sizeof(sum)));
}

static void build_check(struct trial *t, const void *arg)
{
    const struct check_shape *s = arg;
    size_t n = (size_t)s->rows * s->d;
    float *x = trial_input(t, "x", n * sizeof(*x), TRIAL_MATRIX);
    uint8_t *is_finite = trial_output(t, "is_finite", s->rows, 1, same_bits);
    float *squares = trial_output(t, "squares", s->rows * sizeof(*squares), sizeof(*squares), same_floats);
    double *total = trial_output(t, "total", sizeof(*total), sizeof(*total), same_doubles);
    trial_floats(t, x, n, FILL_PLAIN);
    for (uint32_t r = 0; r < s->rows && s->fill == FILL_SPECIAL; r += 1 + trial_below(t, 4))
        trial_floats(t, x + (size_t)r * s->d, s->d, FILL_SPECIAL); /* some of these rows stay finite */
    struct batch_check a = {.x = PLACE(t, x),
                            .rows = s->rows,
                            .d = s->d,
                            .is_finite = s->bits & 1 ? PLACE(t, is_finite) : NULL,
                            .squares = s->bits & 2 ? PLACE(t, squares) : NULL,
                            .total = s->bits & 4 ? PLACE(t, total) : NULL};
    TRIAL_CALL_SCRATCH(t, check, &a);
    trial_valid(t, is_finite, s->bits & 1 ? s->rows : 0);
    trial_valid(t, squares, s->bits & 2 ? s->rows * sizeof(*squares) : 0);
    trial_valid(t, total, s->bits & 4 ? sizeof(*total) : 0);
    if (trial_is_scalar(t))
        check_plainly(t, s, x, is_finite, squares, total);
}

static void try_check(struct suite *suite, struct check_shape s)
{
    suite_try(suite, build_check, &s, "rows %u, d %u, bits %u%s", s.rows, s.d, s.bits,
              s.fill == FILL_SPECIAL ? ", special" : "");
}

void suite_check(struct suite *suite)
{
    static const uint32_t dims[] = {4, 8, 12, 16, 28, 64, 100, 128, 132, 512};
    for (uint32_t i = 0; i < 10; i++) {
        try_check(suite, (struct check_shape){5, dims[i], FILL_PLAIN, 7});
        try_check(suite, (struct check_shape){140, dims[i], FILL_SPECIAL, i % 8});
    }
    for (const uint32_t *rows = suite_sizes(suite); *rows != SIZES_END; rows++) {
        uint32_t d = *rows > 4000 ? 8 : dims[*rows % 10];
        try_check(suite, (struct check_shape){*rows, d, FILL_PLAIN, 7});
        try_check(suite, (struct check_shape){*rows, d, FILL_SPECIAL, 7});
    }
    try_check(suite, (struct check_shape){suite_huge(suite), 4, FILL_SPECIAL, 7});
}

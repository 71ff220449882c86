/* pack and mask_rows: all shapes of tiles, rows with and without gaps, with and without rejected events. */
#include "trial.h"

#include <stdlib.h>
#include <string.h>

struct pack_shape {
    uint32_t n, count, gap; /* floats behind each row and each column, which must stay unchanged */
    uint32_t reject_of;     /* one event in so many is rejected; 0: is_rejected is NULL */
};

/* is_rejected of n events. */
static uint8_t *make_marks(struct trial *t, uint32_t n, uint32_t reject_of)
{
    if (reject_of == 0)
        return NULL;
    uint8_t *marks = trial_input(t, "is_rejected", n, 1);
    for (uint32_t e = 0; e < n; e++)
        marks[e] = trial_below(t, reject_of) == 0;
    return marks;
}

static void build_pack(struct trial *t, const void *arg)
{
    const struct pack_shape *s = arg;
    uint32_t columns_stride = s->n + s->gap, stride = s->count + s->gap;
    size_t in = (size_t)columns_stride * s->count, bytes = sizeof(float) * s->n * stride;
    float *columns = trial_input(t, "columns", in * sizeof(*columns), sizeof(*columns));
    trial_floats(t, columns, in, FILL_SPECIAL);
    uint8_t *marks = make_marks(t, s->n, s->reject_of);
    float *out = s->gap > 0 ? trial_changed(t, "out", bytes, TRIAL_MATRIX, same_bits)
                            : trial_output(t, "out", bytes, TRIAL_MATRIX, same_bits);
    if (s->gap > 0)
        trial_floats(t, out, bytes / sizeof(*out), FILL_PLAIN);
    float *want = memcpy(malloc(bytes + 1), out, bytes);
    for (size_t e = 0; e < s->n; e++)
        for (size_t c = 0; c < s->count; c++)
            want[e * stride + c] = marks != NULL && marks[e] ? 0.0F : columns[c * columns_stride + e];
    struct batch_pack a = {.columns = PLACE(t, columns),
                           .columns_stride = columns_stride,
                           .count = s->count,
                           .n = s->n,
                           .is_rejected = PLACE(t, marks),
                           .out = PLACE(t, out),
                           .stride = s->gap > 0 ? stride : 0};
    TRIAL_CALL(t, pack, &a);
    if (trial_is_scalar(t))
        TRIAL_CHECK(t, same_bits(want, out, bytes));
    free(want);
}

static void try_pack(struct suite *suite, struct pack_shape s)
{
    suite_try(suite, build_pack, &s, "%u events, %u columns, gap %u, one of %u rejected", s.n, s.count, s.gap,
              s.reject_of);
}

void suite_pack(struct suite *suite)
{
    static const uint32_t counts[] = {1, 2, 4, 5, 12, 13, 31, 32, 33, 64, 100, 0};
    enum { COUNTS = sizeof(counts) / sizeof(*counts) };
    for (uint32_t i = 0; i < COUNTS; i++) {
        try_pack(suite, (struct pack_shape){15 + i, counts[i], i % 3 * 4, i % 4});
        try_pack(suite, (struct pack_shape){130 + i, counts[i], i % 2 * 4, 1 + i % 3 * 4});
        try_pack(suite, (struct pack_shape){5, counts[i], i % 2 * 8, 3});
    }
    for (const uint32_t *n = suite_sizes(suite); *n != SIZES_END; n++) {
        try_pack(suite, (struct pack_shape){*n, counts[*n % COUNTS], 4, 0});
        try_pack(suite, (struct pack_shape){*n, 13, 3, 5});
    }
    try_pack(suite, (struct pack_shape){suite_huge(suite), 6, 2, 100});
}

static void build_mask_rows(struct trial *t, const void *arg)
{
    const struct pack_shape *s = arg;
    uint32_t stride = s->count + s->gap;
    size_t floats = (size_t)s->n * stride;
    float *x = trial_changed(t, "x", floats * sizeof(*x), TRIAL_MATRIX, same_bits);
    trial_floats(t, x, floats, FILL_SPECIAL);
    uint8_t *marks = make_marks(t, s->n, s->reject_of);
    float *want = memcpy(malloc(floats * sizeof(*x) + 1), x, floats * sizeof(*x));
    for (size_t e = 0; e < s->n; e++)
        for (size_t c = 0; c < s->count && marks[e]; c++)
            want[e * stride + c] = 0.0F;
    struct batch_mask_rows a = {.x = PLACE(t, x),
                                .n = s->n,
                                .columns = s->count,
                                .stride = s->gap > 0 ? stride : 0,
                                .is_rejected = PLACE(t, marks)};
    TRIAL_CALL(t, mask_rows, &a);
    if (trial_is_scalar(t))
        TRIAL_CHECK(t, same_bits(want, x, floats * sizeof(*x)));
    free(want);
}

static void try_mask_rows(struct suite *suite, struct pack_shape s)
{
    suite_try(suite, build_mask_rows, &s, "%u rows, %u columns, gap %u, one of %u rejected", s.n, s.count,
              s.gap, s.reject_of);
}

/* Rows are aligned to 16 bytes, or only to their floats where they have no gaps. */
void suite_mask_rows(struct suite *suite)
{
    static const uint32_t counts[] = {1, 4, 7, 12, 64, 128, 129, 300};
    enum { COUNTS = sizeof(counts) / sizeof(*counts) };
    for (const uint32_t *n = suite_sizes(suite); *n != SIZES_END; n++) {
        for (uint32_t i = 0; i<COUNTS; i += *n> 4000 ? COUNTS : 1)
            try_mask_rows(suite,
                          (struct pack_shape){*n, counts[i], (4 - counts[i] % 4) % 4 + i % 2 * 4, 1 + i});
    }
    for (uint32_t i = 0; i < COUNTS; i++)
        try_mask_rows(suite, (struct pack_shape){40, counts[i], 0, 1 + i % 4});
    try_mask_rows(suite, (struct pack_shape){suite_huge(suite), 4, 0, 50});
}

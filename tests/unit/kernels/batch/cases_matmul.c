/* matmul: each operand transposed or not, strides, each epilogue, all kinds of tiles. The scalar variant is
 * compared with the contract's loop, bit for bit. */
#include "trial.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const char *const epilogue_names[] = {"plain", "bias", "bias and relu", "mask", "sums"};
static const char *const precision_names[] = {"fp32", "bf16", "fp16"};
enum { EPILOGUES = sizeof(epilogue_names) / sizeof(*epilogue_names) };

/* Constants that fill all of a, of b and of c. */
struct only {
    float a, b, c;
};

struct shape {
    uint32_t m, n, k;
    uint32_t apart; /* floats between the rows of matrices */
    bool is_device; /* strides are multiples of four */
    bool a_is_transposed, b_is_transposed, adds;
    enum matmul_epilogue epilogue;
    enum row_format precision;
    float scale;
    enum fill fill;
    int lower;               /* a and b are scaled by 2^-lower, c by 2^-2lower */
    const struct only *only; /* NULL: the content is random */
};

/* A matrix of the call. given: the stride as the call names it, 0 if nothing lies between rows. */
struct matrix {
    float *at;
    uint32_t stride, given;
};

static struct matrix make_matrix(struct trial *t, const char *name, const struct shape *s, uint32_t rows,
                                 uint32_t columns, bool is_changed)
{
    struct matrix made = {.stride = columns + s->apart};
    made.stride = s->is_device ? (made.stride + 3) / 4 * 4 : made.stride;
    made.given = made.stride != columns ? made.stride : 0;
    size_t n = (size_t)rows * made.stride;
    if (is_changed)
        made.at = trial_changed(t, name, n * sizeof(float), TRIAL_MATRIX, same_floats);
    else
        made.at = trial_input(t, name, n * sizeof(float), TRIAL_MATRIX);
    trial_floats(t, made.at, n, s->fill);
    return made;
}

/* The value as which matmul multiplies an operand: rounded by batch_round, which has its own test, except
 * that fp16 becomes infinite from half a step above the largest number on. */
static float operand(enum row_format precision, float x, float scale)
{
    const struct batch_kernels *scalar = batch_variant(KERNELS_SCALAR);
    uint16_t half;
    if (precision == ROW_FP32)
        return x;
    x *= precision == ROW_FP16 ? scale : 1.0F;
    if (precision == ROW_FP16 && fabsf(x) >= 65520.0F)
        return copysignf(INFINITY, x);
    struct batch_round down = {.x = &x, .n = 1, .format = precision, .out = &half};
    scalar->round(&down, NULL);
    struct batch_widen up = {.x = &half, .n = 1, .format = precision, .out = &x};
    scalar->widen(&up, NULL);
    return x / (precision == ROW_FP16 ? scale : 1.0F);
}

static float of_a(const struct shape *s, const struct matrix *a, size_t i, size_t p)
{
    return operand(s->precision, a->at[s->a_is_transposed ? p * a->stride + i : i * a->stride + p], s->scale);
}

static float of_b(const struct shape *s, const struct matrix *b, size_t p, size_t j)
{
    return operand(s->precision, b->at[s->b_is_transposed ? j * b->stride + p : p * b->stride + j], 1.0F);
}

static float product(const struct shape *s, const struct matrix *a, const struct matrix *b, size_t i,
                     size_t j, float sum)
{
    for (size_t p = 0; p < s->k; p++)
        sum = fmaf(of_a(s, a, i, p), of_b(s, b, p, j), sum);
    return sum;
}

static float sum_of(const struct shape *s, const struct matrix *a, size_t i, float total)
{
    float chunk = 0.0F;
    for (size_t p = 0; p < s->k; p++) {
        chunk += a->at[s->a_is_transposed ? p * a->stride + i : i * a->stride + p];
        if (p % BATCH_CHUNK == BATCH_CHUNK - 1 || p + 1 == s->k) {
            total += chunk;
            chunk = 0.0F;
        }
    }
    return total;
}

struct operands {
    struct matrix a, b, c, mask;
    float *bias, *sums, *sums_before;
};

/* Checks the elements of c, or some of them where there are many. before: c's content before the call. */
static void check_plainly(struct trial *t, const struct shape *s, const struct operands *o,
                          const float *before)
{
    size_t elements = (size_t)s->m * s->n, steps = elements > 4000 ? elements / 1999 : 1;
    for (size_t e = 0; e < elements; e += steps) {
        size_t i = e / s->n, j = e % s->n, at = i * o->c.stride + j;
        bool begins_at_c = s->adds && s->epilogue != MATMUL_MASK;
        float want = product(s, &o->a, &o->b, i, j, begins_at_c ? before[at] : 0.0F);
        if (s->epilogue == MATMUL_BIAS || s->epilogue == MATMUL_BIAS_RELU)
            want += o->bias[j];
        if (s->epilogue == MATMUL_BIAS_RELU && want < 0.0F)
            want = 0.0F;
        if (s->epilogue == MATMUL_MASK && !(o->mask.at[i * o->mask.stride + j] > 0.0F))
            want = 0.0F;
        if (s->adds && !begins_at_c)
            want = before[at] + want;
        if (!same_floats(&want, o->c.at + at, sizeof(want)))
            trial_fail(t, "c[%zu][%zu] is %a, the loop's %a", i, j, (double)o->c.at[at], (double)want);
    }
    for (size_t i = 0; i < s->m && s->epilogue == MATMUL_SUMS; i++) {
        float want = sum_of(s, &o->a, i, s->adds ? o->sums_before[i] : 0.0F);
        TRIAL_CHECK(t, same_floats(&want, o->sums + i, sizeof(want)));
    }
    /* The floats between the rows of c are unchanged. */
    for (size_t i = 0; i < s->m; i++)
        TRIAL_CHECK(t, same_bits(o->c.at + i * o->c.stride + s->n, before + i * o->c.stride + s->n,
                                 (o->c.stride - s->n) * sizeof(float)));
}

/* Sets how far each element of c may be from the scalar variant's: a share of the sum of its addends'
 * absolute values, plus what is lost where products are denormal. */
static void bound(struct trial *t, const struct shape *s, const struct operands *o, const float *before,
                  const struct batch_matmul *call)
{
    double *bounds = trial_bounds(t, o->c.at), tolerance = tolerance_matmul(call);
    for (size_t e = 0; bounds && e < (size_t)s->m * s->n; e++) {
        size_t i = e / s->n, j = e % s->n, at = i * o->c.stride + j;
        double sizes =
            (o->bias != NULL ? fabs((double)o->bias[j]) : 0.0) + (s->adds ? fabs((double)before[at]) : 0.0);
        for (size_t p = 0; p < s->k; p++)
            sizes += fabs((double)of_a(s, &o->a, i, p) * (double)of_b(s, &o->b, p, j));
        bool may_overflow = !(sizes <= (double)FLT_MAX);
        bounds[at] = may_overflow ? (double)INFINITY : tolerance * sizes + (s->k + 2) * 0x1p-149;
    }
}

/* Multiplies all of a matrix by `by`, or fills it with *only. */
static void lower(struct matrix *x, uint32_t rows, float by, const float *only)
{
    for (size_t i = 0; i < (size_t)rows * x->stride; i++)
        x->at[i] = only != NULL ? *only : x->at[i] * by;
}

static void build(struct trial *t, const void *arg)
{
    const struct shape *s = arg;
    struct operands o = {0};
    o.a = make_matrix(t, "a", s, s->a_is_transposed ? s->k : s->m, s->a_is_transposed ? s->m : s->k, false);
    o.b = make_matrix(t, "b", s, s->b_is_transposed ? s->n : s->k, s->b_is_transposed ? s->k : s->n, false);
    o.c = make_matrix(t, "c", s, s->m, s->n, true);
    size_t floats = (size_t)s->m * o.c.stride;
    lower(&o.a, s->a_is_transposed ? s->k : s->m, ldexpf(1.0F, -s->lower),
          s->only != NULL ? &s->only->a : NULL);
    lower(&o.b, s->b_is_transposed ? s->n : s->k, ldexpf(1.0F, -s->lower),
          s->only != NULL ? &s->only->b : NULL);
    lower(&o.c, s->m, ldexpf(1.0F, -2 * s->lower), s->only != NULL ? &s->only->c : NULL);
    float *before = trial_input(t, "before", floats * sizeof(*before), sizeof(*before));
    memcpy(before, o.c.at, floats * sizeof(*before));
    struct batch_matmul call = {.a = PLACE(t, o.a.at),
                                .b = PLACE(t, o.b.at),
                                .c = PLACE(t, o.c.at),
                                .m = s->m,
                                .n = s->n,
                                .k = s->k,
                                .a_stride = o.a.given,
                                .b_stride = o.b.given,
                                .c_stride = o.c.given,
                                .a_is_transposed = s->a_is_transposed,
                                .b_is_transposed = s->b_is_transposed,
                                .adds = s->adds,
                                .epilogue = s->epilogue,
                                .precision = s->precision,
                                .scale = s->scale};
    if (s->epilogue == MATMUL_BIAS || s->epilogue == MATMUL_BIAS_RELU) {
        o.bias = trial_input(t, "bias", s->n * sizeof(float), TRIAL_MATRIX);
        trial_floats(t, o.bias, s->n, s->fill);
        call.bias = PLACE(t, o.bias);
    }
    if (s->epilogue == MATMUL_MASK) {
        o.mask = make_matrix(t, "mask", s, s->m, s->n, false);
        call.mask = PLACE(t, o.mask.at);
        call.mask_stride = o.mask.given;
    }
    if (s->epilogue == MATMUL_SUMS) {
        o.sums = trial_changed(t, "sums", s->m * sizeof(float), TRIAL_MATRIX, same_floats);
        trial_floats(t, o.sums, s->m, s->fill);
        o.sums_before = trial_input(t, "sums before", s->m * sizeof(float), sizeof(float));
        memcpy(o.sums_before, o.sums, s->m * sizeof(float));
        call.sums = PLACE(t, o.sums);
    }
    TRIAL_CALL_SCRATCH(t, matmul, &call);
    bound(t, s, &o, before, &call);
    if (trial_is_scalar(t))
        check_plainly(t, s, &o, before);
}

static void try_shape(struct suite *suite, struct shape s)
{
    static const float scales[] = {1.0F, 1024.0F, 0x1p-6F};
    s.is_device = suite_is_device(suite);
    s.scale = scales[(s.m + s.n + s.k + s.apart) % 3];
    suite_try(suite, build, &s, "m %u, n %u, k %u, %u apart%s%s%s, %s, %s%s%s, scale %g, lower %d", s.m, s.n,
              s.k, s.apart, s.a_is_transposed ? ", a transposed" : "",
              s.b_is_transposed ? ", b transposed" : "", s.adds ? ", added" : "", epilogue_names[s.epilogue],
              precision_names[s.precision], s.fill == FILL_SPECIAL ? ", special" : "",
              s.only != NULL ? ", alike" : "", (double)s.scale, s.lower);
}

/* A shape of the given size; i chooses its other options. */
static struct shape in_turn(uint32_t m, uint32_t n, uint32_t k, uint32_t i)
{
    struct shape s = {.m = m, .n = n, .k = k, .apart = i / 4 % 3 * 5};
    s.a_is_transposed = i % 2 != 0;
    s.b_is_transposed = i / 2 % 2 != 0;
    s.epilogue = (enum matmul_epilogue)(i % EPILOGUES);
    s.adds = s.epilogue != MATMUL_BIAS && s.epilogue != MATMUL_BIAS_RELU && i / 5 % 2 != 0;
    s.precision = i % 7 == 3 ? ROW_BF16 : i % 7 == 5 ? ROW_FP16 : ROW_FP32;
    s.fill = i % 3 == 2 ? FILL_SPECIAL : FILL_PLAIN;
    return s;
}

/* Each epilogue with each combination of the other options, small. */
static void try_ways(struct suite *suite)
{
    for (uint32_t i = 0; i < 4 * EPILOGUES * 2 * 3; i++) {
        struct shape s = {.m = 13, .n = 21, .k = 18, .apart = i % 3};
        s.a_is_transposed = i % 2 != 0;
        s.b_is_transposed = i / 2 % 2 != 0;
        s.epilogue = (enum matmul_epilogue)(i / 4 % EPILOGUES);
        s.adds = i / 20 % 2 != 0;
        s.precision = (enum row_format)(i / 40);
        s.fill = i % 5 == 0 ? FILL_SPECIAL : FILL_PLAIN;
        bool may_add = s.epilogue != MATMUL_BIAS && s.epilogue != MATMUL_BIAS_RELU;
        if (!s.adds || may_add)
            try_shape(suite, s);
        s.m = 1 + i % 3, s.n = 16 + i % 9; /* few rows */
        if (!s.adds || may_add)
            try_shape(suite, s);
        s.m = 37, s.n = 1 + i % 9; /* few columns */
        if (!s.adds)
            try_shape(suite, s);
    }
}

/* Sums that are denormal or a little above: some CPUs multiply bf16 without denormals. */
static void try_low(struct suite *suite)
{
    static const struct only only[] = {
        {0.0F, -1.0F, -0.0F},                    /* a sum that stays -0 */
        {0x1p-52F, -0x1p-52F, 0x1.000002p-104F}, /* a sum that becomes denormal */
        {0x1p-130F, 0x1p100F, 0.0F},             /* denormal operands */
        {0x1p100F, 0x1p-130F, 0.0F},
        {0x1.ffp127F, 1.0F, 0.0F}, /* rounded to bf16, it stays finite */
    };
    for (uint32_t i = 0; i < 48; i++) {
        struct shape s = in_turn(13, 35, 15 + i % 2, i);
        s.epilogue = MATMUL_PLAIN;
        s.adds = i % 3 != 0;
        s.precision = ROW_BF16;
        s.fill = FILL_PLAIN;
        s.lower = 32 + (int)i;
        try_shape(suite, s);
        s.k = 1, s.adds = true;
        s.only = &only[i % (sizeof(only) / sizeof(*only))];
        try_shape(suite, s);
    }
}

void suite_matmul(struct suite *suite)
{
    if (!suite_is_device(suite))
        try_low(suite);
    static const uint32_t rows[] = {0, 1, 2, 3, 5, 7, 9, 12, 13, 35, 193}, rows_count = 11;
    static const uint32_t columns[] = {0, 1, 2, 6, 15, 16, 17, 33, 64, 70, 129}, columns_count = 11;
    static const uint32_t depths[] = {0, 1, 4, 15, 16, 33, 64, 129}, depths_count = 8;
    try_ways(suite);
    for (uint32_t i = 0; i < rows_count * columns_count; i++) {
        uint32_t m = rows[i % rows_count], n = columns[i / rows_count], k = depths[i % depths_count];
        if (!suite_is_device(suite) || m * n * k < 30000)
            try_shape(suite, in_turn(m, n, k, i));
    }
    /* Deeper than a block, and than what is kept between blocks; wider and higher than a block. */
    bool is_small = suite_huge(suite) < 1 << 20;
    static const struct {
        uint32_t m, n, k;
    } large[] = {{3, 5, 600},    {1, 40, 1100}, {2, 70, 300},  {40, 1, 1100}, {26, 34, 1030},
                 {200, 20, 257}, {14, 261, 20}, {5, 300, 260}, {400, 9, 40},  {300, 300, 300}};
    for (uint32_t i = 0; i < 10; i++) {
        for (uint32_t way = 0; way < (is_small ? 2 : 8); way++) {
            if (large[i].m * large[i].n * large[i].k < (is_small ? 1100000 : 1 << 30))
                try_shape(suite, in_turn(large[i].m, large[i].n, large[i].k, 5 * i + 3 * way));
        }
    }
    for (const uint32_t *n = suite_sizes(suite); *n != SIZES_END; n++) {
        try_shape(suite, in_turn(*n, 12, 8, *n));     /* a layer forward over n events */
        try_shape(suite, in_turn(*n, 1, 12, *n + 1)); /* a last layer with one logit */
        try_shape(suite, in_turn(1, 20, *n, *n + 2)); /* gradients: sums over n events */
        try_shape(suite, in_turn(12, 8, *n, *n + 3));
    }
    uint32_t huge = suite_huge(suite);
    try_shape(suite, in_turn(huge, 1, 5, 4));
    try_shape(suite, in_turn(3, 2, huge, 1));
}

/* update: every optimizer, format and class of dims; rows with two strides, NULL rows, gradients that are not
 * finite. The scalar variant is compared with segment_reduce, opt_* and round, called one after another. */
#include "trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct update_shape {
    uint32_t n, d;
    enum opt_kind kind;
    enum row_format format;
    enum ids ids;
    enum fill fill;
    /* 1: bag, 2: scales, 4: l1, 8: l2, 16: step_max, 32: seed 0, 64: `rejected` is NULL, 128: unit, 256: 8
     * slices */
    uint32_t bits;
};

static const char *const kind_names[OPT_KINDS] = {"sgd",           "momentum", "adagrad", "adagrad_row",
                                                  "adagrad_block", "adam",     "ftrl"};

static struct opt_params params_of(const struct update_shape *s)
{
    return (struct opt_params){.rate = 0.1F,
                               .l1 = s->bits & 4 ? 0.01F : 0.0F,
                               .l2 = s->bits & 8 ? 0.02F : 0.0F,
                               .epsilon = 1e-3F,
                               .decay = 0.99F,
                               .beta1 = 0.9F,
                               .beta2 = 0.99F,
                               .correction1 = 1.5F,
                               .correction2 = 2.5F,
                               .step_max = s->bits & 16 ? 0.05F : 1e30F};
}

/* Floats from one gradient to the next, as the call names them; 0: d. */
static uint32_t unit_of(const struct update_shape *s)
{
    return s->bits & 128 ? s->d + 12 : 0;
}

/* A call, and the host's copies of its buffers. */
struct update_call {
    struct batch_update args; /* holds the kernel's addresses */
    struct trial_rows tables[2];
    float *grads, *scales;
    const uint32_t *event;
    uint32_t *bag, *rejected;
    uint64_t *keys;
    const uint32_t *order, *starts;
    uint32_t m;
};

/* Row u of the call: NULL for each fifth u, the others lie in two tables by turns. */
static unsigned char *host_row(const struct update_call *c, uint32_t u)
{
    const struct trial_rows *table = &c->tables[u % 2];
    return u % 5 == 3 ? NULL : table->host + u / 2 * table->stride;
}

static void fill_call(struct trial *t, const struct update_shape *s, struct update_call *c)
{
    size_t state = opt_state_floats(s->kind, s->d), places = s->bits & 1 ? s->n / 3 + 1 : s->n;
    c->args = (struct batch_update){.in = {.d = s->d, .unit = unit_of(s)},
                                    .format = s->format,
                                    .kind = s->kind,
                                    .params = params_of(s),
                                    .seed = s->bits & 32 ? 0 : 77};
    c->m = trial_segments(t, s->n, s->ids, &c->args.in, &c->order, &c->starts);
    size_t floats = places * (unit_of(s) > 0 ? unit_of(s) : s->d);
    c->grads = trial_input(t, "grads", sizeof(*c->grads) * floats, TRIAL_MATRIX);
    trial_floats(t, c->grads, floats, s->fill);
    c->args.in.grads = PLACE(t, c->grads);
    if (s->bits & 1) {
        c->bag = trial_input(t, "bag", s->n * sizeof(*c->bag), sizeof(*c->bag));
        for (uint32_t i = 0; i < s->n; i++)
            c->bag[i] = i / 3;
        c->args.in.bag = PLACE(t, c->bag);
    }
    if (s->bits & 2) {
        c->scales = trial_input(t, "scales", s->n * sizeof(*c->scales), sizeof(*c->scales));
        trial_floats(t, c->scales, s->n, FILL_PLAIN);
        c->args.in.scales = PLACE(t, c->scales);
    }
    if (s->bits & 256)
        c->event = trial_slices(t, 8, &c->args.in);
    for (uint32_t k = 0; k < 2; k++) /* behind the second table's rows lie floats that must not change */
        c->tables[k] = trial_rows(t, s->format, s->d, state + k * 8, c->m / 2 + 1, FILL_PLAIN, true);
    void **rows = trial_input(t, "list", s->n * sizeof(*rows), sizeof(*rows));
    c->keys = trial_input(t, "keys", s->n * sizeof(*c->keys), sizeof(*c->keys));
    for (uint32_t u = 0; u < c->m; u++) {
        unsigned char *row = host_row(c, u);
        rows[u] = row != NULL ? trial_place(t, row) : NULL;
        c->keys[u] = trial_random(t);
    }
    c->rejected = trial_changed(t, "rejected", sizeof(*c->rejected), sizeof(*c->rejected), same_bits);
    *c->rejected = 7;
    c->args.rows = PLACE(t, rows);
    c->args.keys = s->format == ROW_FP32 ? NULL : PLACE(t, c->keys);
    c->args.rejected = s->bits & 64 ? NULL : PLACE(t, c->rejected);
}

/* Makes the step of one row with single-row kernels. Returns false if the gradient is not finite. */
static bool step_plainly(const struct update_shape *s, unsigned char *row, float *grad, uint64_t key)
{
    const struct kernels *kernels = kernels_variant(KERNELS_SCALAR);
    const struct batch_kernels *batch = batch_variant(KERNELS_SCALAR);
    struct opt_params params = params_of(s);
    float wide[BATCH_DIM_MAX];
    for (uint32_t i = 0; i < s->d; i++) {
        if (!isfinite(grad[i]))
            return false;
    }
    uint16_t *halves = (uint16_t *)(void *)row;
    struct opt_row step = {.w = s->format == ROW_FP32 ? (float *)(void *)row : wide,
                           .state = (float *)(void *)(row + row_weight_bytes(s->format, s->d)),
                           .g = grad,
                           .scale = 1.0F,
                           .curvature = 1.0F};
    if (s->format != ROW_FP32)
        batch->widen(&(struct batch_widen){halves, s->d, s->format, wide}, NULL);
    opt_pick(kernels, s->kind)(&step, 1, s->d, &params);
    struct batch_round round = {wide, s->d, s->format, s->bits & 32 ? 0 : 77, key, halves};
    if (s->format != ROW_FP32)
        batch->round(&round, NULL);
    return true;
}

/* before: the host's copies of both tables before the call, which become the expected content. */
static void check_plainly(struct trial *t, const struct update_shape *s, const struct update_call *c,
                          unsigned char *const before[2])
{
    float *sums = malloc(sizeof(*sums) * s->d * c->m + 1);
    uint32_t rejected = 7, count = c->m;
    struct batch_segments in = {.grads = c->grads,
                                .bag = c->bag,
                                .scales = c->scales,
                                .order = c->order,
                                .starts = c->starts,
                                .count = &count,
                                .n = s->n,
                                .d = s->d,
                                .unit = unit_of(s),
                                .event = c->event,
                                .slices = c->args.in.slices};
    struct batch_segment_reduce reduce = {.in = in, .sums = sums, .scratch = sums};
    batch_variant(KERNELS_SCALAR)->segment_reduce(&reduce, NULL);
    for (uint32_t u = 0; u < c->m; u++) {
        const struct trial_rows *table = &c->tables[u % 2];
        unsigned char *want = before[u % 2] + u / 2 * table->stride;
        if (host_row(c, u))
            rejected += !step_plainly(s, want, sums + (size_t)u * s->d, c->keys[u]);
    }
    for (uint32_t k = 0; k < 2; k++)
        TRIAL_CHECK(t, memcmp(before[k], c->tables[k].host, c->tables[k].stride * c->tables[k].count) == 0);
    TRIAL_CHECK(t, *c->rejected == (s->bits & 64 ? 7 : rejected));
    free(sums);
}

static void build_update(struct trial *t, const void *arg)
{
    const struct update_shape *s = arg;
    struct update_call c = {0};
    unsigned char *before[2];
    fill_call(t, s, &c);
    for (uint32_t k = 0; k < 2; k++) {
        size_t bytes = c.tables[k].stride * c.tables[k].count;
        before[k] = memcpy(malloc(bytes), c.tables[k].host, bytes);
    }
    TRIAL_CALL_SCRATCH(t, update, &c.args);
    if (trial_is_scalar(t))
        check_plainly(t, s, &c, before);
    free(before[0]);
    free(before[1]);
}

static void try_update(struct suite *suite, struct update_shape s)
{
    static const char *const formats[ROW_FORMATS] = {"fp32", "bf16", "fp16", "int8"};
    suite_try(suite, build_update, &s, "%s, %s, n %u, d %u, ids %s, bits %u%s", kind_names[s.kind],
              formats[s.format], s.n, s.d, ids_names[s.ids], s.bits,
              s.fill == FILL_SPECIAL ? ", special" : "");
}

void suite_update(struct suite *suite)
{
    static const uint32_t dims[] = {4, 8, 12, 16, 24, 64, 100, 128, 132, 512};
    uint32_t turn = 0;
    for (enum opt_kind kind = 0; kind < OPT_NEWTON; kind++) {
        for (enum row_format format = ROW_FP32; format < ROW_INT8; format++) {
            for (uint32_t i = 0; i < 10; i++, turn++)
                try_update(suite, (struct update_shape){33, dims[i], kind, format, IDS_ZIPF, FILL_PLAIN,
                                                        turn * 5 % 512});
            for (uint32_t limits = 0; limits < 32; limits += 4)
                try_update(suite, (struct update_shape){9, 20, kind, format, IDS_ZIPF, FILL_PLAIN, limits});
        }
    }
    for (const uint32_t *n = suite_sizes(suite); *n != SIZES_END; n++) {
        for (enum ids ids = 0; ids < IDS_KINDS; ids++, turn++) {
            uint32_t d = *n > 4000 ? 8 : dims[turn % 10];
            enum opt_kind kind = (enum opt_kind)(turn % OPT_NEWTON);
            enum row_format format = (enum row_format)(turn % 3);
            try_update(suite, (struct update_shape){*n, d, kind, format, ids, FILL_PLAIN,
                                                    turn % 64 + turn % 2 * 256});
            try_update(suite, (struct update_shape){*n, d, kind, format, ids, FILL_SPECIAL, turn * 3 % 512});
        }
    }
    uint32_t huge = suite_huge(suite);
    try_update(suite, (struct update_shape){huge, 4, OPT_ADAGRAD, ROW_FP32, IDS_ZIPF, FILL_PLAIN, 3});
    try_update(suite, (struct update_shape){huge, 8, OPT_SGD, ROW_BF16, IDS_ONE, FILL_PLAIN, 3});
    try_update(suite, (struct update_shape){huge, 8, OPT_SGD, ROW_BF16, IDS_ONE, FILL_PLAIN, 256 + 3});
    try_update(suite, (struct update_shape){huge, 4, OPT_ADAGRAD, ROW_FP32, IDS_ZIPF, FILL_PLAIN, 256 + 3});
}

/* cross and mixture: sizes around whole vectors, rows with and without gaps that must stay unchanged,
 * forward, backward and both. The scalar variant is compared with plain loops, its softmax with a
 * softmax in double. */
#include "trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum mode { FORWARD, BACKWARD, BOTH, MODES };
static const char *const mode_names[] = {"forward", "backward", "both"};

/* A matrix that a kernel writes: the host's copy, and its expected content. */
struct result {
    float *x, *want;
    size_t bytes;
};

static struct result make_result(struct trial *t, const char *name, size_t floats, bool is_changed)
{
    struct result r = {.bytes = floats * sizeof(*r.x)};
    r.x = is_changed ? trial_changed(t, name, r.bytes, TRIAL_MATRIX, same_floats)
                     : trial_output(t, name, r.bytes, TRIAL_MATRIX, same_floats);
    if (is_changed)
        trial_floats(t, r.x, floats, FILL_PLAIN);
    r.want = memcpy(malloc(r.bytes + 1), r.x, r.bytes);
    return r;
}

/* Compares a result of the scalar variant with the expected content, which is freed. */
static void end_result(struct trial *t, const struct result *r)
{
    if (trial_is_scalar(t))
        TRIAL_CHECK(t, r->x == NULL || same_floats(r->x, r->want, r->bytes));
    free(r->want);
}

static float *make_input(struct trial *t, const char *name, size_t floats, enum fill fill)
{
    float *x = trial_input(t, name, floats * sizeof(*x), TRIAL_MATRIX);
    trial_floats(t, x, floats, fill);
    return x;
}

/* The stride as a call names it: columns rounded up to a multiple of 4, as a GPU demands, plus the gap; 0 if
 * that is just the columns. */
static uint32_t given_stride(uint32_t columns, uint32_t gap)
{
    uint32_t stride = (columns + 3) / 4 * 4 + gap;
    return stride > columns ? stride : 0;
}

static size_t stride_of(uint32_t columns, uint32_t gap)
{
    return (columns + 3) / 4 * 4 + gap;
}

struct cross_shape {
    uint32_t n, columns, gap; /* the gaps of the matrices are multiples of this one */
    enum mode mode;
    bool adds, is_first; /* is_first: x is x0, and x_gradients is x0_gradients */
    enum fill fill;
};

static void cross_plainly(const struct cross_shape *s, const struct batch_cross *a, size_t e, size_t c)
{
    size_t x0_at = e * stride_of(s->columns, s->gap) + c, z_at = e * stride_of(s->columns, 3 * s->gap) + c;
    size_t x_at = s->is_first ? x0_at : e * stride_of(s->columns, 2 * s->gap) + c;
    size_t out_at = e * stride_of(s->columns, 4 * s->gap) + c;
    float x0 = a->x0[x0_at], z = a->z[z_at];
    if (a->out != NULL)
        a->out[out_at] = fmaf(x0, z, a->x[x_at]);
    if (a->out_gradients == NULL)
        return;
    float gradient = a->out_gradients[out_at];
    a->z_gradients[z_at] = gradient * x0;
    if (s->is_first) {
        a->x0_gradients[x0_at] = fmaf(gradient, z, gradient + a->x0_gradients[x0_at]);
        return;
    }
    a->x0_gradients[x0_at] = fmaf(gradient, z, a->x0_gradients[x0_at]);
    a->x_gradients[x_at] = s->adds ? a->x_gradients[x_at] + gradient : gradient;
}

static void build_cross(struct trial *t, const void *arg)
{
    const struct cross_shape *s = arg;
    uint32_t columns = s->columns, gap = s->gap;
    size_t n = s->n, x0_floats = n * stride_of(columns, gap), z_floats = n * stride_of(columns, 3 * gap);
    size_t x_floats = n * stride_of(columns, 2 * gap), out_floats = n * stride_of(columns, 4 * gap);
    bool has_gaps = given_stride(columns, gap) > 0;
    float *x0 = make_input(t, "x0", x0_floats, s->fill), *z = make_input(t, "z", z_floats, s->fill);
    float *x = s->is_first ? x0 : make_input(t, "x", x_floats, s->fill), *out_gradients = NULL;
    struct result out = {0}, x0_gradients = {0}, x_gradients = {0}, z_gradients = {0};
    if (s->mode != BACKWARD)
        out = make_result(t, "out", out_floats, has_gaps);
    if (s->mode != FORWARD) {
        out_gradients = make_input(t, "out_gradients", out_floats, s->fill);
        x0_gradients = make_result(t, "x0_gradients", x0_floats, true);
        z_gradients = make_result(t, "z_gradients", z_floats, has_gaps);
        x_gradients =
            s->is_first ? x0_gradients : make_result(t, "x_gradients", x_floats, s->adds || has_gaps);
    }
    struct batch_cross a = {.x0 = PLACE(t, x0),
                            .x = PLACE(t, x),
                            .z = PLACE(t, z),
                            .n = s->n,
                            .columns = columns,
                            .x0_stride = given_stride(columns, gap),
                            .x_stride = given_stride(columns, s->is_first ? gap : 2 * gap),
                            .z_stride = given_stride(columns, 3 * gap),
                            .out = PLACE(t, out.x),
                            .out_stride = given_stride(columns, 4 * gap),
                            .out_gradients = PLACE(t, out_gradients),
                            .out_gradients_stride = given_stride(columns, 4 * gap),
                            .x0_gradients = PLACE(t, x0_gradients.x),
                            .x_gradients = PLACE(t, x_gradients.x),
                            .z_gradients = PLACE(t, z_gradients.x),
                            .adds = s->adds};
    TRIAL_CALL(t, cross, &a);
    struct batch_cross want = {.x0 = x0,
                               .x = x,
                               .z = z,
                               .out = out.want,
                               .out_gradients = out_gradients,
                               .x0_gradients = x0_gradients.want,
                               .x_gradients = x_gradients.want,
                               .z_gradients = z_gradients.want};
    for (size_t i = 0; i < n * columns && trial_is_scalar(t); i++)
        cross_plainly(s, &want, i / columns, i % columns);
    end_result(t, &out);
    end_result(t, &x0_gradients);
    end_result(t, &z_gradients);
    if (!s->is_first)
        end_result(t, &x_gradients);
}

static void try_cross(struct suite *suite, struct cross_shape s)
{
    suite_try(suite, build_cross, &s, "%u events, %u columns, gap %u, %s%s%s%s", s.n, s.columns, s.gap,
              mode_names[s.mode], s.adds ? ", added" : "", s.is_first ? ", first" : "",
              s.fill == FILL_SPECIAL ? ", special" : "");
}

void suite_cross(struct suite *suite)
{
    static const uint32_t columns[] = {1, 4, 7, 12, 16, 20, 64, 129, 300};
    uint32_t turn = 0;
    for (const uint32_t *n = suite_sizes(suite); *n != SIZES_END; n++) {
        for (uint32_t i = 0; i<9; i += *n> 1000 ? 8 : 1)
            for (uint32_t k = 0; k < 2; k++, turn++)
                try_cross(suite,
                          (struct cross_shape){*n, *n > 1000 ? 12 : columns[i], turn % 2 * 4,
                                               (enum mode)(turn / 2 % MODES), turn % 5 < 2, turn % 7 < 2,
                                               turn % 3 == 0 ? FILL_SPECIAL : FILL_PLAIN});
    }
    try_cross(suite, (struct cross_shape){suite_huge(suite), 4, 0, BOTH, true, false, FILL_PLAIN});
}

struct mixture_shape {
    uint32_t n, experts, columns, gap;
    enum mode mode;
    bool adds;
    enum fill fill;
    bool is_tight; /* gates lie without gaps, aligned to their floats */
};

/* The host's copies of what a call reads and writes. */
struct mixture_call {
    float *inputs, *logits, *out_gradients;
    struct result gates, out, input_gradients, gate_gradients;
};

static size_t gates_stride(const struct mixture_shape *s)
{
    return s->is_tight ? s->experts : stride_of(s->experts, s->gap);
}

static size_t inputs_stride(const struct mixture_shape *s)
{
    return stride_of(s->experts * s->columns, s->gap);
}

static size_t out_stride(const struct mixture_shape *s)
{
    return stride_of(s->columns, 2 * s->gap);
}

/* Compares gates with a softmax in double: they may differ by their own rounding and by the rounding of e^x
 * and of its argument. */
static void check_gates(struct trial *t, const struct mixture_shape *s, const float *logits,
                        const float *gates)
{
    double sum = 0.0, largest = -INFINITY;
    bool is_broken = false;
    for (uint32_t k = 0; k < s->experts; k++) {
        is_broken |= !(logits[k] < INFINITY);
        largest = fmax(largest, (double)logits[k]);
    }
    is_broken |= largest == -INFINITY;
    for (uint32_t k = 0; k < s->experts; k++)
        sum += num_exp((double)logits[k] - largest);
    for (uint32_t k = 0; k < s->experts; k++) {
        double below = largest - (double)logits[k], want = num_exp(-below) / sum, got = (double)gates[k];
        double error = want > 0.0 ? (1e-6 + below * 0x1p-24) * want : 0.0;
        if (is_broken ? !isnan(got) : !(fabs(got - want) <= error + 1e-37))
            trial_fail(t, "gate %u of %u is %g, in double %g", k, s->experts, got, want);
    }
}

/* Computes the expected outputs of one event by the rule of batch_train.h from the gates that
 * the kernel computed. */
static void mixture_plainly(const struct mixture_shape *s, const struct mixture_call *c, size_t e)
{
    const float *inputs = c->inputs + e * inputs_stride(s), *gates = c->gates.x + e * gates_stride(s);
    const float *out_gradients = c->out_gradients != NULL ? c->out_gradients + e * out_stride(s) : NULL;
    float products[BATCH_EXPERTS_MAX], mean = 0.0F;
    for (uint32_t j = 0; j < s->columns && c->out.x; j++) {
        float sum = 0.0F;
        for (uint32_t k = 0; k < s->experts; k++)
            sum = fmaf(gates[k], inputs[k * s->columns + j], sum);
        c->out.want[e * out_stride(s) + j] = sum;
    }
    if (!out_gradients)
        return;
    for (uint32_t k = 0; k < s->experts; k++) {
        products[k] =
            kernels_variant(KERNELS_SCALAR)->dot(out_gradients, inputs + k * s->columns, s->columns);
        mean = fmaf(gates[k], products[k], mean);
        for (uint32_t j = 0; j < s->columns; j++) {
            float *to = &c->input_gradients.want[e * inputs_stride(s) + k * s->columns + j];
            *to = s->adds ? *to + gates[k] * out_gradients[j] : gates[k] * out_gradients[j];
        }
    }
    for (uint32_t k = 0; k < s->experts; k++)
        c->gate_gradients.want[e * gates_stride(s) + k] = gates[k] * (products[k] - mean);
}

static void check_mixture(struct trial *t, const struct mixture_shape *s, const struct mixture_call *c)
{
    for (size_t e = 0; e < s->n && trial_is_scalar(t); e++) {
        size_t at = e * gates_stride(s);
        if (c->out.x)
            check_gates(t, s, c->logits + at, c->gates.x + at);
        mixture_plainly(s, c, e);
        if (c->out.x)
            memcpy(c->gates.want + at, c->gates.x + at, s->experts * sizeof(*c->gates.x));
    }
    end_result(t, &c->gates);
    end_result(t, &c->out);
    end_result(t, &c->input_gradients);
    end_result(t, &c->gate_gradients);
}

static void build_mixture(struct trial *t, const void *arg)
{
    const struct mixture_shape *s = arg;
    uint32_t experts = s->experts, columns = s->columns, gap = s->gap, width = experts * columns;
    bool gates_have_gaps = !s->is_tight && given_stride(experts, gap) > 0;
    struct mixture_call c = {.inputs = make_input(t, "inputs", s->n * inputs_stride(s), s->fill),
                             .logits = make_input(t, "logits", s->n * gates_stride(s), s->fill)};
    for (size_t i = 0; i < s->n * gates_stride(s); i += 5)
        c.logits[i] *= 40.0F; /* some gates become 0 */
    c.gates = make_result(t, "gates", s->n * gates_stride(s), s->mode == BACKWARD || gates_have_gaps);
    if (s->mode != BACKWARD)
        c.out = make_result(t, "out", s->n * out_stride(s), given_stride(columns, 2 * gap) > 0);
    if (s->mode != FORWARD) {
        c.out_gradients = make_input(t, "out_gradients", s->n * out_stride(s), s->fill);
        c.input_gradients = make_result(t, "input_gradients", s->n * inputs_stride(s),
                                        s->adds || given_stride(width, gap) > 0);
        c.gate_gradients = make_result(t, "gate_gradients", s->n * gates_stride(s), gates_have_gaps);
    }
    struct batch_mixture a = {.inputs = PLACE(t, c.inputs),
                              .gate_logits = PLACE(t, c.logits),
                              .n = s->n,
                              .experts = experts,
                              .columns = columns,
                              .inputs_stride = given_stride(width, gap),
                              .gates_stride = gates_have_gaps ? given_stride(experts, gap) : 0,
                              .out = PLACE(t, c.out.x),
                              .gates = PLACE(t, c.gates.x),
                              .out_stride = given_stride(columns, 2 * gap),
                              .out_gradients = PLACE(t, c.out_gradients),
                              .out_gradients_stride = given_stride(columns, 2 * gap),
                              .input_gradients = PLACE(t, c.input_gradients.x),
                              .gate_gradients = PLACE(t, c.gate_gradients.x),
                              .input_gradients_stride = given_stride(width, gap),
                              .adds = s->adds};
    TRIAL_CALL(t, mixture, &a);
    check_mixture(t, s, &c);
}

static void try_mixture(struct suite *suite, struct mixture_shape s)
{
    suite_try(suite, build_mixture, &s, "%u events, %u experts, %u columns, gap %u, %s%s%s%s", s.n, s.experts,
              s.columns, s.gap, mode_names[s.mode], s.adds ? ", added" : "",
              s.fill == FILL_SPECIAL ? ", special" : "", s.is_tight ? ", tight" : "");
}

void suite_mixture(struct suite *suite)
{
    static const uint32_t experts[] = {1, 2, 3, 4, 8, 15, 17, 33, 64},
                          columns[] = {1, 4, 7, 16, 20, 33, 64, 132, 300};
    uint32_t turn = 0;
    for (const uint32_t *n = suite_sizes(suite); *n != SIZES_END; n++) {
        for (uint32_t i = 0; i<9; i += *n> 200 ? 4 : 1, turn++) {
            uint32_t k = *n > 200 ? turn % 5 : turn * 2 % 9, j = *n > 200 ? turn % 4 : i;
            try_mixture(suite, (struct mixture_shape){*n, experts[k], columns[j], turn % 3 * 4,
                                                      (enum mode)(turn / 2 % MODES), turn % 5 < 2,
                                                      turn % 4 == 1 ? FILL_SPECIAL : FILL_PLAIN, false});
        }
    }
    for (uint32_t i = 0; i < 81; i++)
        try_mixture(suite,
                    (struct mixture_shape){3, experts[i / 9], columns[i % 9], 0, (enum mode)(i % MODES),
                                           i % 2 == 0, i % 5 == 4 ? FILL_SPECIAL : FILL_PLAIN, false});
    static const uint32_t many[] = {65, 66, 80, 351, 1023, BATCH_EXPERTS_MAX};
    for (uint32_t i = 0; i < 36; i++)
        try_mixture(suite, (struct mixture_shape){i % 2 + i % 3 * 4, many[i / 6], columns[i % 5],
                                                  i % 4 / 3 * 4, (enum mode)(i / 2 % MODES), i % 4 == 1,
                                                  i % 5 == 4 ? FILL_SPECIAL : FILL_PLAIN, false});
    for (uint32_t i = 0; i < 18; i++)
        try_mixture(suite, (struct mixture_shape){5, i < 9 ? experts[i] : many[i % 6], 12, 0,
                                                  (enum mode)(i % MODES), false, FILL_PLAIN, true});
    try_mixture(suite,
                (struct mixture_shape){suite_huge(suite) / 8, 4, 8, 0, BOTH, false, FILL_PLAIN, false});
    try_mixture(suite, (struct mixture_shape){suite_huge(suite), 2, 4, 0, FORWARD, false, FILL_PLAIN, false});
}
